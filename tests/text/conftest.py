"""The tokenizer under test, as a filter: tests/text/tokdump.c."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "tools")]


class Refused(Exception):
    """An error line of nepit."""


class Encoding(list):
    """Ids, with the byte span of each."""

    def __init__(self, ids, begin, end):
        super().__init__(ids)
        self.spans = list(zip(begin, end))


def tokdump():
    path = ROOT / os.environ.get("NEPIT_BUILD", "build") / "tests" / "text" / "tokdump"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    return path


@pytest.fixture(scope="session")
def encode():
    """encode(path of a model, [bytes]) -> [Encoding, or Refused]."""

    def run(model, texts, *options):
        records = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        done = subprocess.run([tokdump(), model, *options], input=records, capture_output=True)
        if done.returncode:
            raise Refused(done.stderr.decode().strip().removeprefix("tokdump: "))
        out, at = [], 0
        for _ in texts:
            n, length = struct.unpack_from("<II", done.stdout + bytes(4), at)
            if n == 0xFFFFFFFF:
                out.append(Refused(done.stdout[at + 8 : at + 8 + length].decode()))
                at += 8 + length
                continue
            numbers = struct.unpack_from(f"<{3 * n}I", done.stdout, at + 4)
            out.append(Encoding(numbers[:n], numbers[n : 2 * n], numbers[2 * n :]))
            at += 4 + 12 * n
        return out

    return run
