"""What vLLM's documents show for its scoring route: requests, base64, numpy, nothing else. C122."""

import base64
import io

import numpy as np
import pytest
from serverrun import same_bits

requests = pytest.importorskip("requests")

CONTEXT, RESPONSE = [7, 3, 9, 4], [1, 200, 8]
START = len(CONTEXT) - 1


def teacher(server, candidates, start=START, **sampling):
    response = requests.post(
        f"{server.url}/inference/v1/generate",
        json={
            "model": requests.get(f"{server.url}/v1/models").json()["data"][0]["id"],
            "token_ids": CONTEXT + RESPONSE,
            "sampling_params": {
                "max_tokens": 1,
                "temperature": 1.0,
                "prompt_logprob_token_ids": candidates,
                "prompt_logprob_start": start,
                **sampling,
            },
        },
    )
    response.raise_for_status()
    answer = response.json()
    assert len(answer["choices"][0]["token_ids"]) == 1
    return np.load(io.BytesIO(base64.b64decode(answer["prompt_token_id_logprobs"])))


def check(array, library, candidates, rows=len(RESPONSE)):
    assert array.dtype == np.float32 and array.shape[0] == rows and array.flags.c_contiguous
    assert not np.isnan(array).any() and (array <= 0).all()
    assert same_bits(array, library.gather(CONTEXT + RESPONSE, candidates, start=START))


def test_shared_candidates(tiny, library):
    for candidates in ([5], [5, 300, 0], list(range(64))):
        check(teacher(tiny, candidates), library, candidates)


def test_candidates_per_row(tiny, library):
    students = np.random.default_rng(1).integers(0, 301, (len(RESPONSE), 16), dtype=np.int32)
    students[1, 9:] = -1
    array = teacher(tiny, students.tolist())
    check(array, library, students.tolist())
    assert np.isneginf(array[1, 9:]).all() and np.isfinite(array[1, :9]).all()


def test_the_response_itself(tiny, library):
    """One candidate per row; refuses what is not float32 [R, 1], finite, at most 0 (vime)."""
    array = teacher(tiny, [[token] for token in RESPONSE])
    assert array.shape == (len(RESPONSE), 1) and np.isfinite(array).all()
    expected = library.score(CONTEXT + RESPONSE)["logprobs"][len(CONTEXT):]
    assert array[:, 0].tolist() == np.array(expected, dtype=np.float32).tolist()


def test_the_first_key_is_the_true_token(tiny, library):
    """As prime-rl reads prompt_logprobs: the first entry of each object, null as 0."""
    ids = CONTEXT + RESPONSE
    answer = requests.post(f"{tiny.url}/inference/v1/generate", json={
        "model": None, "token_ids": ids, "sampling_params": {
            "max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "prompt_logprobs": 1}}).json()
    told = [next(iter(entry.values()))["logprob"] if entry else 0.0
            for entry in answer["prompt_logprobs"]]
    assert told == [0.0, *library.score(ids)["logprobs"][1:]]


def test_a_mistake_is_raised_as_one(tiny):
    for candidates, start in (([], START), ([301], START), ([[5]], START), ([[5]], 99)):
        with pytest.raises(requests.HTTPError) as caught:
            teacher(tiny, candidates, start)
        assert caught.value.response.status_code == 400
    assert teacher(tiny, [5], 99).shape == (0, 1)
