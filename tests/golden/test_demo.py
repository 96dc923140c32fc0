"""The demo model on about 5,500 tokens of real text against the float64 oracle."""

import sys

import numpy as np
import pytest

import nepit

sys.path.insert(0, str(nepit.ROOT))
from tools import accuracy  # noqa: E402

RMS, MAX = 4.0e-6, 1e-4  # nats; transformers float32 with a float64 softmax: 5.8e-6, 5.6e-5


@pytest.fixture(scope="module")
def sequences():
    if not nepit.DEMO.exists():
        pytest.skip(f"models/{nepit.DEMO.name} is not here: ./run demo gets it")
    docs = accuracy.documents(nepit.DEMO)
    n_scored = sum(len(ids) - 1 for _, ids in docs)
    if n_scored < 5000:
        pytest.skip(f"tools/corpus.py could fetch text for {n_scored} tokens only: no network?")
    return [ids for _, ids in docs]


def test_float64_agreement(sequences):  # C044
    found = accuracy.true_of_nepit(nepit.DEMO, sequences)
    rms, worst = accuracy.gap(found, accuracy.true_of_oracle(nepit.DEMO, sequences))
    print(f"{len(found)} tokens: rms {rms:.2e}, max {worst:.2e}")
    assert len(found) >= 5000
    assert rms <= RMS and worst <= MAX


def test_whole_text_has_the_same_bits_in_other_company(sequences):
    """All texts at once on two threads, against each alone on one, in other chunks."""
    together = accuracy.true_of_nepit(nepit.DEMO, sequences[:3])
    alone = [accuracy.true_of_nepit(nepit.DEMO, [ids], "--threads", "1") for ids in sequences[:3]]
    assert together.tobytes() == np.concatenate(alone).tobytes()
