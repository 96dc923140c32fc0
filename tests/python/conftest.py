import pytest
from checkout import BUILD, DEMO, MODELS

# A sanitizer must be loaded before Python itself.
SANITIZED = "asan" in BUILD.name
if not SANITIZED:
    import nepit

collect_ignore_glob = ["test_*.py"] if SANITIZED else []


@pytest.fixture(scope="session")
def tiny():
    with nepit.open(MODELS / "llama-tied-f32.gguf") as model:
        yield model


@pytest.fixture(scope="session")
def demo():
    with nepit.open(DEMO) as model:
        yield model


@pytest.fixture(scope="session")
def llm():
    with nepit.LLM(MODELS / "llama-tied-f32.gguf") as llm:
        yield llm
