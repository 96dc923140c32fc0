"""The committed hashes under a preloaded library that flushes subnormals and sets another rounding
mode at load, in every new thread, and at the first read (tests/fault/hostile_fp.c)."""

import os
import pathlib

import numpy as np
import pytest

import hashes
import nprun

BUILD = nprun.ROOT / os.environ.get("NEPIT_BUILD", "build")
LIBRARY = BUILD / "tests" / "fault" / "libhostile_fp.so"
MODES = ("zero", "up", "down")
pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason=f"{LIBRARY.name} is not built (not under sanitizers)"
)


@pytest.fixture(params=MODES)
def hostile(request, tmp_path):
    """The environment of the command; afterwards, that the library was there and in its threads."""
    mark = tmp_path / "mark"
    yield {"LD_PRELOAD": LIBRARY, "NEPIT_HOSTILE": request.param, "NEPIT_HOSTILE_MARK": mark}
    assert mark.exists()


@pytest.mark.parametrize("profile, name", hashes.cases(hashes.names_of))
def test_tiny_models(profile, name, hostile):
    assert hashes.hash_of(name, profile, threads=3, env=hostile) == hashes.committed(name, profile)


@pytest.mark.parametrize("level", hashes.LEVELS[:1])
@pytest.mark.parametrize("profile, name", hashes.cases(hashes.families_of))
def test_plain_loops(profile, name, level, hostile):
    found = hashes.hash_of(name, profile, level, threads=3, env=hostile)
    assert found == hashes.committed(name, profile)


@pytest.mark.skipif(not nprun.DEMO.exists(), reason="./run demo gets the demo model")
@pytest.mark.parametrize("profile", hashes.profiles_of_demo())
def test_demo_model(profile, hostile):
    found = hashes.hash_of_demo(profile, env=hostile)
    assert found == hashes.committed(hashes.DEMO_NAME, profile)


def test_the_command_itself(hostile):
    """What the command reads and prints: a temperature that no float holds, sums, JSON."""
    model, ids = nprun.MODELS / "llama-tied-f32", hashes.document("llama-tied-f32")[0][2]
    for options in ([], ["--score-temperature", "0.7"], ["--score-temperature", "1.3"]):
        usual = nprun.score(model, ids, *options)
        assert nprun.score(model, ids, *options, env=hostile) == usual
