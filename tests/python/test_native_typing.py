"""What type checkers say of the package, and that its signatures are what they seem."""

import importlib.util
import inspect
import os
import subprocess
import sys
import typing

import pytest
from checkout import ROOT
from nepit import _choose, _gather, _generate, _perplexity, _score
import nepit


HERE = ROOT / "tests/python"
VERBS = {
    "score": _score.ScoreOptions,
    "next": _score.NextOptions,
    "gather": _gather.GatherOptions,
    "generate": _generate.GenerateOptions,
    "choose": _choose.ChooseOptions,
    "perplexity": _perplexity.PerplexityOptions,
}


def test_mypy_is_content(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed (tools/requirements-test.txt)")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            HERE / "mypy.ini",
            "--cache-dir",
            tmp_path,
            ROOT / "python/nepit",
            HERE / "typed_sample.py",
        ],
        env={**os.environ, "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_pyright_is_content():
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "-p", HERE / "basedpyright.json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_overloads_and_the_method_have_the_same_keywords(verb):
    """Overloads name their options in one place; the method itself shows them with defaults."""
    parameters = inspect.signature(getattr(nepit.Model, verb)).parameters.values()
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    besides = {"errors", "start"} if verb == "gather" else {"errors", "n"}
    assert keywords - besides == set(VERBS[verb].__optional_keys__) - besides
    assert all(p.default is not p.empty for p in parameters if p.kind is p.KEYWORD_ONLY)


def public():
    """Every public name, and every public method of a class."""
    for name in nepit.__all__:
        thing = getattr(nepit, name)
        yield name, thing
        if inspect.isclass(thing) and thing.__module__.startswith("nepit"):
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_"):
                    yield f"{name}.{method}", function


def test_no_public_signature_has_any():
    for name, thing in public():
        if inspect.isfunction(thing):
            hints = dict(thing.__annotations__)
            assert not any("Any" in str(hint) for hint in hints.values()), (name, hints)
            assert typing.Any not in hints.values(), name


@pytest.mark.parametrize("verb", [*VERBS, "tokenize", "compare", "word_scores"])
def test_verbs_tell_all_of_their_arguments(verb):
    method = getattr(nepit.Model, verb)
    text = inspect.getdoc(method)
    for name in inspect.signature(method).parameters:
        assert name == "self" or name in text, (verb, name)
    assert "Returns\n-------" in text and "Raises\n------" in text
