"""schemathesis against /openapi.json: no 5xx, statuses and shapes as told, violations refused.

What the schema takes and the server refuses is judged in test_openapi.py: a schema cannot tell of
fields that must go together, of lengths, or of what the tokenizer can encode.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

import pytest
from test_openapi import MINIMAL, TEMPLATE

COMMAND = pathlib.Path(sys.executable).parent / "schemathesis"
CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance",
          "response_schema_conformance", "response_headers_conformance",
          "negative_data_rejection", "unsupported_method"]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not COMMAND.exists(), reason="schemathesis: ./run setup test gets it"),
]


def without_base64(value):
    """Almost no random text is base64 of a .npy file; it would keep the rest from being tried."""
    if isinstance(value, list):
        return [without_base64(part) for part in value if not (
            isinstance(part, dict) and part.get("pattern", "").startswith("^k05VTVBZ"))]
    if isinstance(value, dict):
        return {name: without_base64(part) for name, part in value.items()}
    return value


def with_examples(document):
    """A body for each route, from which schemathesis starts."""
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if "requestBody" in operation:
                operation["requestBody"]["content"]["application/json"]["example"] = MINIMAL[path]
    return document


def test_the_document_tells_the_truth(serve, tmp_path):
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    with serve("--chat-template", tmp_path / "chat.jinja", "--timeout", "5") as server:
        document = with_examples(without_base64(server.get("/openapi.json").json))
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        command = [COMMAND, "run", tmp_path / "openapi.json", "--url", server.url, "--no-color",
                   "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing",
                   "--seed", os.environ.get("NEPIT_SCHEMA_SEED", "1"), "--warnings", "off",
                   "-n", os.environ.get("NEPIT_SCHEMA_EXAMPLES", "20"), "--max-time", "200",
                   "--continue-on-failure"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              cwd=tmp_path, timeout=600)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        seen = collections.defaultdict(collections.Counter)
        for line in server.log():
            seen[line["method"], line["path"]][line["status"]] += 1
        assert not [found for found in seen.values() if max(found) >= 500]
        for path, methods in document["paths"].items():
            for method in methods:
                assert seen[method.upper(), path][200], (method, path)
