"""TRL's server routes: /get_sequence_logprobs/ in both of its forms, number by number."""

import base64

import numpy as np
import pytest
from serverrun import floats, same_bits

ROUTE = "/get_sequence_logprobs/"
SEQUENCES = [[5, 9, 17, 200, 31, 7], [44, 3], [12, 13, 14, 15], [8]]
LENGTHS = [2, 1, 0, 1]


def ask(server, **fields):
    body = {"sequences": SEQUENCES, "prompt_lengths": LENGTHS, "top_logprobs": 4,
            "temperature": 1.0, **fields}
    return server.post(ROUTE, body).json


def decode(text, dtype, shape):
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype).reshape(shape)


def expected(library, top, **fields):
    """Per sequence and position: (values, ids, own value, own id), or None."""
    told = []
    for ids, length in zip(SEQUENCES, LENGTHS, strict=True):
        score = library.score(ids, top=top, **fields)
        told.append([])
        for position in range(length, len(ids)):
            if position == 0:
                told[-1].append(None)
                continue
            best = score["top_logprobs"][position]
            told[-1].append(([one["logprob"] for one in best], [one["token_id"] for one in best],
                             score["logprobs"][position], ids[position]))
    return told


def test_lists(tiny, library):
    answer = ask(tiny)
    for i, positions in enumerate(expected(library, 4)):
        assert len(answer["logprobs"][i]) == len(SEQUENCES[i]) - LENGTHS[i]
        for t, told in enumerate(positions):
            row = [answer[key][i][t] for key in ("logprobs", "logprob_token_ids",
                                                 "actual_logprobs", "actual_token_ids")]
            if told is None:
                assert row == [[], [], [], []]
            else:
                values, ids, own, own_id = told
                assert row == [values, ids, [own], [own_id]]
    assert answer["logprobs_mode"] == "raw_logprobs" and answer["numerics"]


def test_arrays_are_the_lists(tiny, library):
    answer = ask(tiny, response_format="binary")
    assert answer["shape"] == [4, 4, 4] and answer["completion_lengths"] == [4, 1, 4, 0]
    values = decode(answer["logprobs_b64"], "<f4", [4, 4, 4])
    ids = decode(answer["token_ids_b64"], "<i4", [4, 4, 4])
    own = decode(answer["actual_logprobs_b64"], "<f4", [4, 4, 1])
    own_ids = decode(answer["actual_token_ids_b64"], "<i4", [4, 4, 1])
    want_values, want_own = np.full((4, 4, 4), -np.inf, "f4"), np.full((4, 4, 1), -np.inf, "f4")
    want_ids, want_own_ids = np.zeros((4, 4, 4), "i4"), np.zeros((4, 4, 1), "i4")
    for i, positions in enumerate(expected(library, 4)):
        for t, told in enumerate(positions):
            if told is not None:
                want_values[i, t], want_ids[i, t] = floats(told[0]), told[1]
                want_own[i, t], want_own_ids[i, t] = floats(told[2]), told[3]
    assert same_bits(values, want_values) and same_bits(ids, want_ids)
    assert same_bits(own, want_own) and same_bits(own_ids, want_own_ids)


def test_the_path_without_a_slash_and_defaults(tiny):
    body = {"sequences": SEQUENCES, "prompt_lengths": LENGTHS}
    first, second = (tiny.post(path, body).json for path in (ROUTE, ROUTE[:-1]))
    assert first == second and len(first["logprobs"][0][0]) == 100
    whole = ask(tiny, top_logprobs=-1)
    assert len(whole["logprobs"][0][0]) == 301
    none = ask(tiny, top_logprobs=0)
    assert none["logprobs"][0] == [[], [], [], []] and len(none["actual_logprobs"][0]) == 4


def test_temperature_of_scores(tiny, library):
    message = tiny.refused(ROUTE, {"sequences": [[1, 2]], "prompt_lengths": [1],
                                   "temperature": 0.7}, "temperature")
    assert "score_temperature" in message
    answer = ask(tiny, score_temperature=0.7)
    told = expected(library, 4, score_temperature=0.7)
    assert answer["logprobs"][0] == [values for values, _, _, _ in told[0]]


def test_small_routes(tiny):
    assert tiny.get("/health/").json == {"status": "ok"}
    assert tiny.get("/get_world_size/").json == tiny.get("/get_world_size").json == {
        "world_size": 1}


@pytest.mark.parametrize(("body", "param"), [
    ({}, "sequences"),
    ({"sequences": [[1, 2]]}, "prompt_lengths"),
    ({"sequences": [1, 2], "prompt_lengths": [1]}, "sequences[0]"),
    ({"sequences": [], "prompt_lengths": []}, "sequences"),
    ({"sequences": [[]], "prompt_lengths": [0]}, "sequences[0]"),
    ({"sequences": [[1], "a"], "prompt_lengths": [1, 1]}, "sequences[1]"),
    ({"sequences": [[1, 301]], "prompt_lengths": [1]}, "sequences[0][1]"),
    ({"sequences": [[1], [1, -1]], "prompt_lengths": [1, 0]}, "sequences[1][1]"),
    ({"sequences": [[1, 1.5]], "prompt_lengths": [1]}, "sequences[0][1]"),
    ({"sequences": [[1] * 4096], "prompt_lengths": [1]}, "sequences[0]"),
    ({"sequences": [[1, 2]], "prompt_lengths": [3]}, "prompt_lengths[0]"),
    ({"sequences": [[1, 2]], "prompt_lengths": [-1]}, "prompt_lengths[0]"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1, 1]}, "prompt_lengths"),
    ({"sequences": [[1, 2]], "prompt_lengths": 1}, "prompt_lengths"),
    ({"sequences": [[1, 2]], "prompt_lengths": ["a"]}, "prompt_lengths[0]"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "top_logprobs": -2}, "top_logprobs"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "top_logprobs": "a"}, "top_logprobs"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "top_logprobs": 302}, "top_logprobs"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "temperature": 0}, "temperature"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "response_format": "npy"}, "response_format"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "images": [["a"]]}, "images"),
    ({"sequences": [[1, 2]], "prompt_lengths": [1], "stream": True}, None),
])
def test_mistakes(tiny, body, param):
    if param is None:
        assert "stream" in tiny.post(ROUTE, body).headers["nepit-ignored-fields"]
    else:
        tiny.refused(ROUTE, body, param)


def test_an_answer_that_is_too_large_is_refused_before_any_work(serve):
    with serve("--max-answer", "64K") as server:
        body = {"sequences": [[1] * 200] * 20, "prompt_lengths": [0] * 20, "top_logprobs": 300,
                "response_format": "binary"}
        assert "--max-answer" in server.post(ROUTE, body, status=400).error["message"]
