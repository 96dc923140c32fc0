"""Runs the command for the tests of this folder: bytes in, bytes out, and the exit status.

The command is $NEPIT, or nepit in the build folder $NEPIT_BUILD (default: build).
"""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
LLAMA = MODELS / "llama-tied-f32.gguf"  # byte-level BPE, 301 ids, BOS known but not added
DEMO = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
NO_TOKENIZER = MODELS / "llama-head10-bf16"
NEPIT = os.environ.get("NEPIT") or str(ROOT / os.environ.get("NEPIT_BUILD", "build") / "nepit")


def environment(**more):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NEPIT_")}
    return {**plain, "NEPIT_MODEL": str(LLAMA), **more}


class Done:
    def __init__(self, result):
        self.status = result.returncode
        self.out, self.err = result.stdout, result.stderr

    @property
    def text(self):
        return self.out.decode()

    @property
    def error(self):
        return self.err.decode()

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json(self):
        (line,) = self.lines
        return line


def nepit(*arguments, text=b"", status=0, **env):
    """status: what is expected; None: any."""
    text = text.encode() if isinstance(text, str) else text
    done = Done(
        subprocess.run(
            [NEPIT, *map(str, arguments)],
            input=text,
            capture_output=True,
            env=environment(**env),
            timeout=120,
        )
    )
    assert status is None or done.status == status, (
        done.status,
        done.err[-2000:],
        done.out[-2000:],
    )
    return done


def refused(*arguments, status=2, **options):
    """The one line on stderr of a command that must fail without printing a result."""
    done = nepit(*arguments, status=status, **options)
    assert done.out == b""
    (line,) = done.error.splitlines()
    assert line.startswith("nepit: ")
    return line


def answers(word, requests, *arguments, status=0, **options):
    """Requests: objects, or lines as text or bytes."""
    lines = [json.dumps(line) if isinstance(line, dict | list) else line for line in requests]
    text = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    done = nepit(word, "--jsonl", "-", *arguments, text=text, status=status, **options)
    assert len(done.lines) == len(requests)
    return done.lines
