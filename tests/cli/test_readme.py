"""What README.md shows is what the commands print."""

import hashlib
import re

import pytest
from clirun import DEMO, ROOT, nepit

README = (ROOT / "README.md").read_text()
SHOWN = re.search(r"^```\n(.*?)^```", README, re.M | re.S).group(1)

pytestmark = pytest.mark.skipif(not DEMO.exists(), reason="the demo model: ./run demo gets it")


def test_the_first_screen():
    gather = nepit(
        *("gather", "-m", DEMO, "--prompt", "The capital of France is", "--response", " Paris."),
        *("--candidates", "7042 4528 260 30 28"),
    ).text
    score = nepit("score", "-m", DEMO, "The capital of France is Paris.").text
    for printed in (gather, score):
        assert "\n".join(line.rstrip() for line in printed.strip().splitlines()) in SHOWN


def test_the_hash(monkeypatch):
    monkeypatch.chdir(ROOT)  # the answer names the model as it was given
    (promised,) = re.findall(r"^prints `([0-9a-f]{64})`", README, re.M)
    for cpu, threads in (("ref", 1), ("auto", 2)):
        done = nepit(
            *("score", "-m", DEMO.relative_to(ROOT), "--cpu", cpu, "--threads", threads, "--json"),
            "The capital of France is Paris.",
        )
        assert hashlib.sha256(done.out).hexdigest() == promised
