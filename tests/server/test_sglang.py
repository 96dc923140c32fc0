"""SGLang's /generate: what slime asks, triples of every kind, flat lists, batches, streams."""

import base64

import numpy as np
import pytest
from serverrun import base64_npy, floats, npy, same_bits

IDS = [5, 9, 17, 200, 31, 7]
SCORE = {"temperature": 0, "max_new_tokens": 0}


def ask(server, **fields):
    return server.post("/generate", fields).json


def triples(values, ids, texts=None):
    texts = texts or [None] * len(ids)
    return [list(one) for one in zip(values, ids, texts, strict=True)]


def test_what_slime_asks(tiny, library):
    body = {"input_ids": IDS, "sampling_params": {**SCORE, "skip_special_tokens": False},
            "return_logprob": True, "logprob_start_len": 0}
    answer = tiny.post("/generate", body).json
    meta, score = answer["meta_info"], library.score(IDS)
    assert meta["input_token_logprobs"] == triples(score["logprobs"], IDS)
    assert meta["input_token_logprobs"][0] == [None, IDS[0], None]
    assert meta["output_token_logprobs"] == [] and answer["output_ids"] == []
    assert answer["text"] == "" and meta["finish_reason"] == {"type": "length", "length": 0}
    assert meta["prompt_tokens"] == 6 and meta["completion_tokens"] == 0
    assert "input_top_logprobs" not in meta and "input_token_ids_logprobs" not in meta
    assert meta["logprobs_mode"] == "raw_logprobs"


@pytest.mark.parametrize("start", range(-1, 7))
def test_every_start(tiny, library, start):
    meta = ask(tiny, input_ids=IDS, sampling_params=SCORE, return_logprob=True,
               logprob_start_len=start, top_logprobs_num=3, token_ids_logprob=[7, 7, 300],
               return_text_in_logprobs=True)["meta_info"]
    score = library.score(IDS, top=3)
    texts = score["tokens"]
    first = len(IDS) if start < 0 else start
    told = triples(score["logprobs"], IDS, texts)[first:]
    if told:
        told[0][0] = None
    assert meta["input_token_logprobs"] == told
    tops = [best and [[one["logprob"], one["token_id"], one["token"]] for one in best]
            for best in score["top_logprobs"]][first:]
    if tops:
        tops[0] = None
    assert meta["input_top_logprobs"] == tops
    rows = library.gather([*IDS, 1], [7, 7, 300])
    found = meta["input_token_ids_logprobs"]
    assert len(found) == len(told) and found[:1] in ([], [None])
    for row, entry in enumerate(found[1:], first):
        assert [one[1] for one in entry] == [7, 7, 300]
        assert same_bits(floats([one[0] for one in entry]), rows[row])
    (after,) = meta["output_token_ids_logprobs"]
    assert same_bits(floats([one[0] for one in after]), rows[5])


def test_targets_by_position(tiny, library):
    lists = [[], [4], [], [5, 6, 5], [7], []]
    for start in (0, 2):
        meta = ask(tiny, input_ids=IDS, sampling_params=SCORE, return_logprob=True,
                   logprob_start_len=start, token_ids_logprob_positions=lists)["meta_info"]
        found = meta["input_token_ids_logprobs"]
        assert found[0] is None and len(found) == 6 - start
        for token in range(start + 1, 6):
            entry, wanted = found[token - start], lists[token]
            assert [one[1] for one in entry] == wanted
            if wanted:
                scores = library.gather(IDS, wanted)[token - 1]
                assert same_bits(floats([one[0] for one in entry]), scores)
        assert meta["output_token_ids_logprobs"] == []


def test_flat_lists_are_the_nested_ones(tiny):
    fields = {"input_ids": IDS, "sampling_params": SCORE, "return_logprob": True,
              "logprob_start_len": 1, "top_logprobs_num": 5}
    nested = ask(tiny, **fields)["meta_info"]["input_top_logprobs"]
    flat = ask(tiny, **fields, return_flat_raw_top_logprobs=True)["meta_info"]
    coded = ask(tiny, **fields, return_flat_raw_top_logprobs=True,
                return_flat_raw_top_logprobs_b64=True)["meta_info"]
    assert "input_top_logprobs" not in flat and "output_top_logprobs" in flat
    for meta in flat, coded:
        assert meta["input_top_logprobs_shape"] == [5, 5]
        assert meta["input_top_logprobs_null_prefix"] == 1
    values = [one[0] for row in nested[1:] for one in row]
    ids = [one[1] for row in nested[1:] for one in row]
    assert flat["input_top_logprobs_val_flat"] == values
    assert flat["input_top_logprobs_idx_flat"] == ids
    for key, numbers in (("val", floats(values)), ("idx", np.array(ids, dtype=np.int32))):
        dtype = coded[f"input_top_logprobs_{key}_flat_b64_dtype"]
        data = base64.b64decode(coded[f"input_top_logprobs_{key}_flat_b64"])
        assert same_bits(np.frombuffer(data, dtype), numbers)


def test_what_follows(tiny, library):
    sampling = {"temperature": 0, "max_new_tokens": 5}
    answer = ask(tiny, input_ids=IDS, sampling_params=sampling, return_logprob=True,
                 top_logprobs_num=2)
    (want,) = library.generate(IDS, temperature=0, max_tokens=5, top=2)
    meta = answer["meta_info"]
    assert answer["text"] == want["text"] and answer["output_ids"] == want["token_ids"]
    assert meta["output_token_logprobs"] == triples(want["logprobs"], want["token_ids"])
    assert meta["output_top_logprobs"] == [
        [[one["logprob"], one["token_id"], None] for one in best]
        for best in want["top_logprobs"]]
    assert meta["input_token_logprobs"] == meta["input_top_logprobs"] == []
    assert meta["completion_tokens"] == 5
    assert meta["finish_reason"] == {"type": "length", "length": 5}


def test_how_it_ends(tiny, library):
    (want,) = library.generate(IDS, temperature=0, max_tokens=6)
    last = want["token_ids"][3]
    answer = ask(tiny, input_ids=IDS, sampling_params={
        "temperature": 0, "max_new_tokens": 6, "stop_token_ids": [last]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": last}
    letters = library.tokenize("abcdef")["token_ids"]
    sampling = {"temperature": 1, "seed": 5, "allowed_token_ids": letters}
    (want,) = library.generate(IDS, max_tokens=30, **sampling)
    sampling["max_new_tokens"], stop = 30, want["text"][3]
    cut = ask(tiny, input_ids=IDS, sampling_params={**sampling, "stop": stop})
    assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert cut["text"] == want["text"][:want["text"].index(stop)]
    kept = ask(tiny, input_ids=IDS, sampling_params={**sampling, "stop": [stop],
                                                     "no_stop_trim": True})
    assert kept["text"] == cut["text"] + stop


def test_batches(tiny, library):
    prompts = [IDS, IDS[:3]]
    answers = ask(tiny, input_ids=prompts, sampling_params={**SCORE}, return_logprob=True,
                  logprob_start_len=[0, 1], top_logprobs_num=[0, 2],
                  token_ids_logprob=[[1], [2, 3]], rid="r")
    assert [one["meta_info"]["id"] for one in answers] == ["r_0", "r_1"]
    first, second = (one["meta_info"] for one in answers)
    assert first["input_token_logprobs"] == triples(library.score(IDS)["logprobs"], IDS)
    assert [one[1] for one in second["input_token_logprobs"]] == IDS[1:3]
    assert "input_top_logprobs" not in first and len(second["input_top_logprobs"][1]) == 2
    assert [len(one) for one in second["input_token_ids_logprobs"][1:]] == [2]
    texts = ask(tiny, text=["ab", "a"], sampling_params={"max_new_tokens": 1, "n": 2, "seed": 3})
    assert len(texts) == 4
    (single,) = ask(tiny, text=["ab"], sampling_params={"max_new_tokens": 0})
    assert single["meta_info"]["prompt_tokens"] == len(library.tokenize("ab")["token_ids"])


def test_stream_tells_the_state_each_time(tiny):
    body = {"text": "ab", "sampling_params": {"temperature": 0, "max_new_tokens": 4},
            "return_logprob": True, "logprob_start_len": 0, "rid": "x"}
    plain = tiny.post("/generate", body).json
    events = tiny.stream("/generate", body)
    for event in [*events, plain]:
        event.pop("index", None)
        event["meta_info"].pop("e2e_latency")
        event["meta_info"].pop("cached_tokens")
    assert events[-1] == plain
    for before, after in zip(events, events[1:], strict=False):
        assert after["text"].startswith(before["text"])
        assert before["meta_info"]["finish_reason"] is None
        assert after["output_ids"][:len(before["output_ids"])] == before["output_ids"]
    (only,) = tiny.stream("/generate", {**body, "sampling_params": SCORE})
    assert only["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert only["meta_info"]["input_token_logprobs"] == plain["meta_info"]["input_token_logprobs"]


def test_teacher_scoring_in_words_of_vllm(tiny, library):
    body = {"input_ids": IDS, "sampling_params": SCORE, "prompt_logprob_token_ids": [4, 5],
            "prompt_logprob_start": 2}
    answer = tiny.post("/generate", body).json
    want = library.gather(IDS, [4, 5], start=2)
    assert same_bits(npy(answer["prompt_token_id_logprobs"]), want)
    raw = tiny.post("/generate", body, {"Accept": "application/octet-stream"})
    assert same_bits(npy(raw.body), want)
    parts = tiny.stream("/generate", body)
    joined = [npy(part["prompt_token_id_logprobs"]) for part in parts
              if "prompt_token_id_logprobs" in part]
    assert same_bits(np.concatenate(joined), want)


def test_ids_as_an_array(tiny, library):
    meta = ask(tiny, input_ids=IDS, sampling_params=SCORE, return_logprob=True,
               logprob_start_len=0,
               token_ids_logprob=base64_npy(np.array([3, 1], dtype=np.int64)))["meta_info"]
    rows = library.gather(IDS, [3, 1])
    for row, entry in zip(rows, meta["input_token_ids_logprobs"][1:], strict=True):
        assert same_bits(floats([one[0] for one in entry]), row)


ALL = {"input_ids": IDS, "return_logprob": True, "logprob_start_len": 0, "sampling_params": SCORE}


@pytest.mark.parametrize(("body", "param"), [
    ({}, "text"),
    ({"text": "a", "input_ids": [1]}, "input_ids"),
    ({"input_ids": []}, "input_ids"),
    ({"input_ids": "ab"}, "input_ids"),
    ({"input_ids": [1, 301]}, "input_ids[1]"),
    ({"input_ids": [[1], [2, 400]]}, "input_ids[1][1]"),
    ({"input_ids": [[1], []]}, "input_ids[1]"),
    ({"text": 5}, "text"),
    ({"text": ["a", 5]}, "text[1]"),
    ({**ALL, "logprob_start_len": 7}, "logprob_start_len"),
    ({**ALL, "logprob_start_len": -2}, "logprob_start_len"),
    ({**ALL, "logprob_start_len": [0, 1]}, "logprob_start_len"),
    ({**ALL, "logprob_start_len": ["a"]}, "logprob_start_len[0]"),
    ({**ALL, "top_logprobs_num": -1}, "top_logprobs_num"),
    ({**ALL, "top_logprobs_num": 302}, "top_logprobs_num"),
    ({**ALL, "token_ids_logprob": [301]}, "token_ids_logprob[0]"),
    ({**ALL, "token_ids_logprob": ["a"]}, "token_ids_logprob[0]"),
    ({**ALL, "token_ids_logprob": [[1], [2]]}, "token_ids_logprob"),
    ({**ALL, "token_ids_logprob": [1], "sampling_params": {}}, "token_ids_logprob"),
    ({"input_ids": IDS, "token_ids_logprob": [1]}, "token_ids_logprob"),
    ({**ALL, "token_ids_logprob_positions": [[1]]}, "token_ids_logprob_positions"),
    ({**ALL, "token_ids_logprob_positions": [[], [1], [], [301], [], []]},
     "token_ids_logprob_positions[3][0]"),
    ({**ALL, "token_ids_logprob_positions": [[]] * 6}, "token_ids_logprob_positions"),
    ({**ALL, "token_ids_logprob_positions": 3}, "token_ids_logprob_positions"),
    ({**ALL, "token_ids_logprob": [1], "token_ids_logprob_positions": [[1]] * 6},
     "token_ids_logprob_positions"),
    ({**ALL, "return_flat_raw_top_logprobs_b64": True}, "return_flat_raw_top_logprobs_b64"),
    ({**ALL, "prompt_logprobs": 1}, "return_logprob"),
    ({**ALL, "return_logprob": [True]}, "return_logprob"),
    ({**ALL, "sampling_params": [SCORE]}, "sampling_params"),
    ({**ALL, "sampling_params": {"max_new_tokens": -1}}, "sampling_params.max_new_tokens"),
    ({**ALL, "sampling_params": {"regex": "a+"}}, "sampling_params.regex"),
    ({**ALL, "sampling_params": {"temperature": "hot"}}, "sampling_params.temperature"),
    ({**ALL, "image_data": ["x"]}, "image_data"),
    ({**ALL, "lora_path": "x"}, "lora_path"),
    ({**ALL, "return_hidden_states": True}, "return_hidden_states"),
    ({**ALL, "stream_options": {"include_usage": True}}, "stream_options"),
])
def test_mistakes(tiny, body, param):
    tiny.refused("/generate", body, param)


def test_a_name_that_nobody_knows_is_told(tiny):
    answer = tiny.post("/generate", {**ALL, "no_such_field": 1})
    assert answer.headers["nepit-ignored-fields"] == "no_such_field"
