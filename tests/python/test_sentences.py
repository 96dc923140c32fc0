"""bench/sentences.py: the sentences are the same ones everywhere, and differences are seen."""

import hashlib
import importlib.util
import math

import pytest
from checkout import ROOT

SPEC = importlib.util.spec_from_file_location("sentences", ROOT / "bench" / "sentences.py")
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)


@pytest.fixture(scope="module")
def texts(demo):
    return bench.sentences(1000, lambda text: len(demo.tokenize(text)))


def test_a_thousand_different_sentences_of_all_lengths(demo, texts):
    assert len(set(texts)) == 1000
    lengths = [len(demo.tokenize(text)) for text in texts]
    assert min(lengths) <= 8 and max(lengths) == bench.LONGEST
    assert all(bench.SHORTEST <= n <= bench.LONGEST for n in lengths)
    assert all(text[0].isupper() and text.endswith(".") for text in texts)


def test_the_seed_makes_them(texts):
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == "92a1b56e6f8a1651"


def test_a_difference_of_one_number_is_seen():
    ours = [[-1.0, -2.0], [-3.0]]
    assert bench.largest_difference(ours, ours) == 0
    assert bench.largest_difference(ours, [[-1.0, -2.5], [-3.0]]) == 0.5
    assert math.isinf(bench.largest_difference(ours, [[-1.0], [-2.0, -3.0]]))
