"""/openapi.json says what the validator does and what answers are; /docs shows the same."""

import html
import itertools
import json
import re

import jsonschema_rs
import pytest

IDS = [7, 3, 9, 4, 1]
CHAT = {"messages": [{"role": "user", "content": "ab"}]}
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def server(serve, tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "chat.jinja"
    path.write_text(TEMPLATE)
    with serve("--chat-template", path) as one:
        yield one


@pytest.fixture(scope="module")
def document(server):
    return server.get("/openapi.json").json


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def validator(document, schema):
    return jsonschema_rs.Draft202012Validator({**schema, "components": document["components"]})


def body_schema(document, path):
    (operation,) = document["paths"][path].values()
    return operation["requestBody"]["content"]["application/json"]["schema"]


def references(value):
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    for part in value if isinstance(value, list) else []:
        yield from references(part)


def test_the_document_holds_together(document, server):
    assert document["openapi"] == "3.1.0" and document["info"]["version"]
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names)) and all(re.fullmatch(r"[a-z0-9_]+", n) for n in names)
    for reference in references(document):
        assert reference.startswith("#/components/schemas/")
        assert reference.rsplit("/", 1)[1] in document["components"]["schemas"], reference
    for method, path, operation in operations(document):
        assert operation["summary"], path
        assert ("requestBody" in operation) <= (method == "POST"), path
        assert {"200", "400"} <= set(operation["responses"])
        for response in operation["responses"].values():
            for kind, content in response["content"].items():
                validator(document, content["schema"])
                assert content["schema"] != {}, (path, kind)
        found = server.request(method, path, "{}" if "requestBody" in operation else None)
        assert found.status not in (404, 405), path
        other = server.request("PUT", path)
        assert other.status == 405 and method in other.headers["allow"], path


def test_every_field_is_described(document):
    def members(schema, prefix):
        for name, field in schema["properties"].items():
            yield prefix + name, field
            inner = field.get("anyOf", [field])[0]
            if inner.get("type") == "object" and "properties" in inner:
                yield from members(inner, f"{prefix}{name}.")

    for _, path, operation in operations(document):
        if "requestBody" in operation:
            for name, field in members(body_schema(document, path), ""):
                assert len(field["description"]) > 3 and field["x-known-from"], (path, name)
                assert re.fullmatch(r"\d+\.\d+\.\d+", field["x-since"])
                if "default" in field:
                    assert validator(document, field).is_valid(field["default"]), (path, name)


GENERATE = "/inference/v1/generate"
ASKED = [
    ("GET", "/health", None),
    ("GET", "/ping", None),
    ("POST", "/ping", None),
    ("GET", "/version", None),
    ("GET", "/v1/models", None),
    ("GET", "/tokenizer_info", None),
    ("GET", "/get_world_size/", None),
    ("GET", "/openapi.json", None),
    ("POST", GENERATE, {"token_ids": IDS}),
    ("POST", GENERATE, {"token_ids": IDS, "return_token_ids": True, "output_mode": "text",
                        "sampling_params": {
                            "max_tokens": 2, "n": 2, "logprobs": 2, "prompt_logprobs": 1,
                            "prompt_logprob_token_ids": [5], "prompt_logprob_tail": True}}),
    ("POST", GENERATE, {"token_ids": [IDS, [1]], "sampling_params": {
        "max_tokens": 0, "prompt_logprobs": 0, "prompt_logprob_token_ids": [5],
        "prompt_logprob_format": "list"}}),
    ("POST", "/v1/completions", {"prompt": "ab"}),
    ("POST", "/v1/completions", {"prompt": ["ab", "c"], "echo": True, "logprobs": 2,
                                 "return_token_ids": True, "prompt_logprobs": 1, "n": 2}),
    ("POST", "/v1/completions", {"prompt": [IDS], "max_tokens": 0, "logprobs": 0,
                                 "prompt_logprob_token_ids": [5], "prompt_logprob_tail": True}),
    ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 2}),
    ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 2, "logprobs": True,
                                      "top_logprobs": 2, "return_token_ids": True,
                                      "prompt_logprobs": 1, "return_prompt_text": True}),
    ("POST", "/v1/chat/completions", {"messages": [
        *CHAT["messages"], {"role": "assistant", "content": "cd"}],
        "score_final_message": True, "logprobs": True, "top_logprobs": 1}),
    ("POST", "/tokenize", {"prompt": "abc", "return_token_strs": True}),
    ("POST", "/tokenize", CHAT),
    ("POST", "/detokenize", {"tokens": IDS}),
    ("POST", "/get_sequence_logprobs/", {"sequences": [IDS, IDS[:3]], "prompt_lengths": [2, 0],
                                         "top_logprobs": 3}),
    ("POST", "/get_sequence_logprobs/", {"sequences": [IDS], "prompt_lengths": [2],
                                         "response_format": "binary"}),
    ("POST", "/generate", {"input_ids": IDS, "return_logprob": True, "logprob_start_len": 0,
                           "top_logprobs_num": 2, "token_ids_logprob": [5],
                           "sampling_params": {"max_new_tokens": 1}}),
    ("POST", "/generate", {"text": ["ab", "c"], "sampling_params": {"max_new_tokens": 1}}),
    ("POST", "/completion", {"prompt": IDS, "n_predict": 2, "n_probs": 2, "return_tokens": True}),
    ("POST", "/completion", {"prompt": ["ab", "c"], "n_predict": 1, "n_probs": 1,
                             "post_sampling_probs": True, "prompt_logprobs": 1}),
    ("POST", "/generative_scoring", {"query": "ab", "items": ["c", "d"],
                                     "label_token_ids": [5, 6]}),
    ("POST", "/nepit/v1/score", {"prompt": "ab"}),
    ("POST", "/nepit/v1/score", {"token_ids": [IDS, [1]], "top": 2, "mass": True,
                                 "entropy": True}),
    ("POST", "/nepit/v1/score", {"prompt": "ab", "top": 2, "logprobs_mode": "raw_logits"}),
    ("POST", "/nepit/v1/gather", {"prompt": IDS, "candidates": [5]}),
    ("POST", "/nepit/v1/gather", {"prompt": "ab", "response": "c", "candidates": [[5]],
                                  "tail": True, "format": "list"}),
    ("POST", "/nepit/v1/choose", {"context": "ab", "options": ["c", "d"]}),
    ("POST", "/nepit/v1/choose", {"context": "ab", "options": [["c", "d"], "e"],
                                  "by": "calibrated", "neutral": "x"}),
    ("POST", "/nepit/v1/perplexity", {"text": "abc"}),
    ("POST", "/nepit/v1/perplexity", {"text": ""}),
]


def check_answer(document, method, path, answer):
    response = document["paths"][path][method.lower()]["responses"][str(answer.status)]
    kind = answer.headers["content-type"].split(";")[0]
    assert kind in response["content"], (path, kind)
    if kind == "application/json":
        errors = [f"{error.instance_path}: {error.message[:300]}" for error in validator(
            document, response["content"][kind]["schema"]).iter_errors(answer.json)]
        assert not errors, (path, errors)


@pytest.mark.parametrize("method,path,body", ASKED, ids=lambda value: str(value)[:24])
def test_answers_have_their_shapes(document, server, method, path, body):
    if body is not None:
        assert validator(document, body_schema(document, path)).is_valid(body)
    answer = server.request(method, path, body)
    assert answer.status == 200, answer.body
    check_answer(document, method, path, answer)
    if body is not None:
        check_answer(document, method, path, server.post(path, {"model": 7}, status=400))


def test_every_route_with_a_body_is_asked_here(document):
    asked = {path for _, path, _ in ASKED}
    ours = {path for _, path, operation in operations(document) if "requestBody" in operation}
    assert ours <= asked, ours - asked


# Whatever is sent in a field: what the schema refuses the server refuses, and what it takes the
# server takes, unless the value alone cannot tell (two fields that do not go together, a text that
# the tokenizer cannot encode, ...).
VALUES = [None, True, False, 0, 1, -1, 2, -2, 0.5, 1.5, 100, 301, 2**31, 2**63, 10**30, -1e300,
          1e-50, "", "a", "null", "AAAA", "\u0000", [], [0], [300], [301], [-1], [1.5], ["a"], [""],
          [None], [True], [[]], [[1]], [["a"]], {}, {"5": 1}, {"a": 1}, {"5": "a"},
          {"type": "text"}]
MINIMAL = {path: body for _, path, body in reversed(ASKED) if body}
MINIMAL[GENERATE] = {"token_ids": IDS, "sampling_params": {"max_tokens": 1}}
MINIMAL["/v1/completions"] = {"prompt": IDS, "max_tokens": 1}
MINIMAL["/generate"] = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 1}}
MINIMAL["/completion"] = {"prompt": IDS, "n_predict": 1}


def bodies(schema, base):
    """(field, body) for every field and value, those of inner objects too."""
    for name, field in schema["properties"].items():
        for value in VALUES:
            yield name, {**base, name: value}
        inner = field.get("anyOf", [field])[0]
        if inner.get("type") == "object" and inner.get("properties"):
            for inner_name, body in bodies(inner, base.get(name, {})):
                yield f"{name}.{inner_name}", {**base, name: body}


def disagreements(document, server, path, step):
    schema = body_schema(document, path)
    judge = validator(document, schema)
    told = []
    for name, body in itertools.islice(bodies(schema, MINIMAL[path]), 0, None, step):
        answer = server.post(path, body, status=None)
        assert answer.status < 500, (name, body, answer.body)
        if answer.status != 200:
            check_answer(document, "POST", path, answer)
        if not judge.is_valid(body) and answer.status == 200:
            told.append(f"taken, against the schema: {json.dumps(body)[:200]}")
        if judge.is_valid(body) and answer.status not in (200, 404):
            error = answer.error
            told.append(f"refused: {name}: {error['param']}: {error['message']}"
                        f" {json.dumps(body)[:100]}")
    return told


# What a value alone cannot tell: fields that go together, lengths, the model, the tokenizer.
REASONS = re.compile(
    r"needs |not together|one of them|is required|are expected|one for each|is expected"
    r"|at most max_tokens|at least one (token|id|message)|all rows are empty|the text is empty"
    r"|the model served here|must be (1|an object|a list|a text)|the prompt is empty"
    r"|the assistant's"
    r"|vocabulary|not done in the time")


@pytest.mark.parametrize("path,step", [(GENERATE, 7)] + [
    pytest.param(path, 1, marks=pytest.mark.long) for path in MINIMAL])
def test_the_schema_of_a_body_is_what_the_validator_does(document, server, path, step):
    told = [line for line in disagreements(document, server, path, step)
            if not (line.startswith("refused") and REASONS.search(line))]
    assert not told, "\n".join(told[:20])


def test_keys_are_in_the_document(serve, tmp_path):
    (tmp_path / "keys").write_text("a-key\n")
    with serve("--api-key-file", tmp_path / "keys") as server:
        document = server.get("/openapi.json").json  # as /docs: needs no key
        assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
        for method, path, operation in operations(document):
            found = server.request(method, path, "{}" if "requestBody" in operation else None)
            assert (found.status == 401) == (operation["security"] == [{"key": []}]), path
            assert ("401" in operation["responses"]) == (found.status == 401), path


def test_the_page(serve):
    with serve("--served-model-name", "<b>&\"name\"") as server:
        answer = server.get("/docs")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        page = answer.text
        assert "<script" not in page and "http://" not in page and "https://" not in page
        assert "<b>" not in page and html.escape("<b>&\"name\"") in page
        document = server.get("/openapi.json").json
        for method, path, operation in operations(document):
            assert f"<code>{method} {path}</code>" in page
            if "requestBody" in operation:
                for name in body_schema(document, path)["properties"]:
                    assert f"<code>{name}</code>" in page, (path, name)
        for tag in ("table", "tr", "td", "code", "dl", "dd", "p", "h2"):
            assert len(re.findall(f"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag
