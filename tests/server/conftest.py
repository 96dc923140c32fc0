"""Servers that tests share, started when the first of them needs one."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from serverrun import DEMO, Library, Server, serve as serve_one  # noqa: E402


def shared(*arguments, **options):
    server = Server(*arguments, **options)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tiny():
    """llama-tied-f32.gguf: byte-level BPE, 301 ids, a context of few hundred tokens."""
    yield from shared()


@pytest.fixture(scope="session")
def demo():
    """SmolLM2-135M-Instruct, where it is here."""
    if not DEMO.exists():
        pytest.skip(f"{DEMO.name} is not here")
    yield from shared(model=DEMO)


@pytest.fixture(scope="session")
def serve():
    """with serve("--max-body", "1K") as server: one with other options, for one test."""
    return serve_one


@pytest.fixture(scope="session")
def library():
    """The tiny model through the command."""
    return Library()


@pytest.fixture(scope="session")
def demo_library():
    return Library(DEMO)
