"""The code blocks of README.md and docs/*.md: run, and compared with what stands below them.

    .venv/bin/python tests/docs/pages.py [PAGE...]   runs them and writes what they print

A block of python or sh is followed by what it prints, in a block without a language; by nothing
where it prints nothing that stays the same. Blocks of python on one page are one program.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("NEPIT_BUILD", ROOT / "build")).resolve()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```([\w{}-]*)\n(.*?)^```\n", re.M | re.S)
MARK = "\x1e"  # between the outputs of blocks


@dataclass
class Block:
    language: str
    code: str
    output: str | None  # None: none is shown
    span: tuple[int, int]  # of the output in the page


def blocks_of(page):
    text = page.read_text()
    found = list(BLOCK.finditer(text))
    blocks = []
    for match, after in zip(found, [*found[1:], None]):
        output, span = None, (match.end(), match.end())
        if after and not after[1] and not text[match.end() : after.start()].strip():
            output, span = after[2], (after.start(2), after.end(2))
        if match[1]:
            blocks.append(Block(match[1], match[2], output, span))
    return blocks


def run_python(blocks):
    """What each block prints; they share one interpreter."""
    parts = [f"{block.code}\nprint({MARK!r}, end='', flush=True)\n" for block in blocks]
    environment = {
        **os.environ,
        "NEPIT_LIBRARY": str(BUILD / "libnepit.so"),
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONWARNINGS": "error",
    }
    done = subprocess.run(
        [sys.executable, "-c", "".join(parts)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split(MARK)[:-1]


def run_shell(code, folder):
    """A block of sh in a folder of its own, with the demo model."""
    environment = {
        **os.environ,
        "PATH": f"{BUILD}{os.pathsep}{os.environ['PATH']}",
        "NEPIT_MODEL": str(ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    }
    return subprocess.run(
        ["bash", "-e", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def update(page):
    text, shift = page.read_text(), 0
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    for block, printed in zip(blocks, run_python(blocks)):
        if block.output is not None:
            begin, end = (place + shift for place in block.span)
            text = text[:begin] + printed + text[end:]
            shift += len(printed) - (end - begin)
    page.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
