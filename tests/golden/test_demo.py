"""The demo model on about 5,500 tokens of real text against the float64 oracle, every profile."""

import sys

import numpy as np
import pytest

import nprun

sys.path.insert(0, str(nprun.ROOT))
from tools import accuracy  # noqa: E402

# Nats, on this text; measured: f32 3.8e-6 and 2.9e-5, int16 5.5e-4 and 6.5e-3.
RMS, MAX = 4.0e-6, 1e-4  # transformers float32 with a float64 softmax: 5.8e-6, 5.6e-5
RMS_INT16, MAX_INT16 = 6.0e-4, 2e-2
# bf16 on the beginning of each text: 2.1e-2 and 1.5e-1. tools/accuracy.py measures transformers on
# the same tokens and weights: 5.24.0, torch 2.13.0 in bfloat16, with a float64 softmax, this rms
# and 8.8e-1.
RMS_TRANSFORMERS_BF16 = 7.2e-2


@pytest.fixture(scope="module")
def sequences():
    if not nprun.DEMO.exists():
        pytest.skip(f"models/{nprun.DEMO.name} is not here: ./run demo gets it")
    docs = accuracy.documents(nprun.DEMO)
    n_scored = sum(len(ids) - 1 for _, ids in docs)
    if n_scored < 5000:
        pytest.skip(f"tools/corpus.py could fetch text for {n_scored} tokens only: no network?")
    return [ids for _, ids in docs]


def test_float64_agreement(sequences):  # C044
    found = accuracy.true_of_nepit(nprun.DEMO, sequences)
    rms, worst = accuracy.gap(found, accuracy.true_of_oracle(nprun.DEMO, sequences))
    print(f"{len(found)} tokens: rms {rms:.2e}, max {worst:.2e}")
    assert len(found) >= 5000
    assert rms <= RMS and worst <= MAX


def test_int16_agreement(sequences):
    """Activations of 16 bits, on the file itself."""
    found = accuracy.true_of_nepit(nprun.DEMO, sequences, "--profile", "int16")
    rms, worst = accuracy.gap(found, accuracy.true_of_oracle(nprun.DEMO, sequences))
    print(f"{len(found)} tokens: rms {rms:.2e}, max {worst:.2e}")
    assert rms <= RMS_INT16 and worst <= MAX_INT16


def test_bf16_is_half_as_far_as_transformers_bfloat16(sequences):  # C046
    """On the weights rounded to bf16."""
    beginnings = accuracy.beginnings(sequences)
    model = accuracy.rewritten(nprun.DEMO, "bf16", "bf16")
    found = accuracy.true_of_nepit(model, beginnings, "--profile", "bf16")
    rms, worst = accuracy.gap(found, accuracy.true_of_oracle(model, beginnings))
    print(f"{len(found)} tokens: rms {rms:.2e}, max {worst:.2e}")
    assert rms <= 0.5 * RMS_TRANSFORMERS_BF16


def test_whole_text_has_the_same_bits_in_other_company(sequences):
    """All texts at once on two threads, against each alone on one, in other chunks."""
    together = accuracy.true_of_nepit(nprun.DEMO, sequences[:3])
    alone = [accuracy.true_of_nepit(nprun.DEMO, [ids], "--threads", "1") for ids in sequences[:3]]
    assert together.tobytes() == np.concatenate(alone).tobytes()
