"""The blocks of docs/SERVER.md that show an output print exactly that: C114."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from clirun import ROOT

PAGE = (ROOT / "docs" / "SERVER.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```\n```\n(.*?)^```$", PAGE, re.M | re.S)
SECTIONS = [re.findall(r"^## (.*)$", PAGE[: PAGE.index(block)], re.M)[-1] for block, _ in BLOCKS]


def test_every_client_has_a_part():
    for name in ("curl", "vLLM", "openai", "lm-evaluation-harness", "TRL", "prime-rl", "vime",
                 "slime", "wrk"):
        assert re.search(rf"^## {name}", PAGE, re.M), name
    assert {"curl", "TRL", "prime-rl", "vime", "slime"} <= set(SECTIONS)


@pytest.mark.parametrize("command,printed", BLOCKS, ids=[
    f"{section.split(':')[0]}-{i}" for i, section in enumerate(SECTIONS)])
def test_what_the_page_shows(demo, command, printed):
    command = command.replace("http://127.0.0.1:8000", demo.url)
    folder = pathlib.Path(sys.executable).parent
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.rstrip() == printed.rstrip()


def test_what_the_readme_shows(demo):
    readme = (ROOT / "README.md").read_text()
    part = readme[readme.index("## By HTTP"):]
    shown = re.search(r"^(    curl .*?)\n\n.*?^prints `(.*?)`", part, re.M | re.S)
    command, printed = shown.groups()
    done = subprocess.run(["bash", "-c", command.replace("http://127.0.0.1:8000", demo.url)],
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.rstrip() == printed
