"""DistilGPT-2's published numbers, where a folder with it is given: NEPIT_DISTILGPT2=FOLDER."""

import os

import pytest

import nprun

FOLDER = os.environ.get("NEPIT_DISTILGPT2")
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="NEPIT_DISTILGPT2 names no folder with DistilGPT-2"
)

NEXT = {
    "The capital of France is": [
        (" the", -2.139),
        (" home", -2.498),
        (" now", -2.998),
        (" a", -3.009),
        (" being", -3.335),
    ],
    "The capital of Burkina Faso is": [
        (None, -2.593),
        (None, -2.617),
        (None, -3.086),
        (None, -3.194),
        (None, -3.198),
    ],
}
# text: total, mean, perplexity, {token: log-probability}
SCORED = {
    "The capital of France is Paris.": (
        -30.065,
        -5.011,
        150.02,
        [-14.300, -0.951, -4.620, -3.009, -5.891, -1.293],
    ),
    "The capital of France is Madrid.": (-31.838, -5.306, 201.62, [-7.926, -1.032]),
}


@pytest.mark.parametrize("text", NEXT)
def test_next(text):
    answer = nprun.answers(nprun.run("next", FOLDER, text, "--top", 5, "--json"))[0]
    for entry, (token, logprob) in zip(answer["top_logprobs"], NEXT[text], strict=True):
        assert token is None or entry["token"] == token
        assert entry["logprob"] == pytest.approx(logprob, abs=0.001)


@pytest.mark.parametrize("text", SCORED)
def test_score(text):
    total, mean, perplexity, last = SCORED[text]
    answer = nprun.answers(nprun.run("score", FOLDER, text, "--json"))[0]
    assert answer["total"] == pytest.approx(total, abs=0.001)
    assert answer["mean"] == pytest.approx(mean, abs=0.001)
    assert answer["perplexity"] == pytest.approx(perplexity, abs=0.2)  # 0.001 of the mean
    assert answer["n_scored"] == 6
    assert answer["logprobs"][-len(last) :] == pytest.approx(last, abs=0.001)
