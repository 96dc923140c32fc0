"""/inference/v1/generate: every field of the contract, its bounds, and the bits of its numbers."""

import concurrent.futures
import json

import numpy as np
import pytest
from serverrun import base64_npy, floats, npy, same_bits

PATH = "/inference/v1/generate"
IDS = [7, 3, 9, 4, 1]
N_VOCAB = 301


def body(ids=IDS, more=None, **sampling):
    return {"token_ids": ids, "sampling_params": {"max_tokens": 0, **sampling}, **(more or {})}


def ask(server, ids=IDS, more=None, **sampling):
    return server.post(PATH, body(ids, more, **sampling)).json


def scores(server, candidates, ids=IDS, **sampling):
    answer = ask(server, ids, prompt_logprob_token_ids=candidates, **sampling)
    return npy(answer["prompt_token_id_logprobs"])


def refused(server, param, status=400, ids=IDS, more=None, **sampling):
    return server.refused(PATH, body(ids, more, **sampling), param, status)


# ---- the answer ---------------------------------------------------------------------------------


def test_members_that_are_not_asked_for_are_null(tiny):
    answer = tiny.post(PATH, {"token_ids": IDS, "sampling_params": {"max_tokens": 1}}).json
    assert set(answer) == {
        "request_id", "created", "model", "system_fingerprint", "choices", "prompt_logprobs",
        "prompt_token_id_logprobs", "prompt_logprob_tail", "prompt_logprob_mass",
        "prompt_token_ids", "kv_transfer_params", "usage"}
    for name in ("prompt_logprobs", "prompt_token_id_logprobs", "prompt_logprob_tail",
                 "prompt_token_ids", "kv_transfer_params"):
        assert answer[name] is None
    (choice,) = answer["choices"]
    assert set(choice) == {"index", "token_ids", "logprobs", "finish_reason", "stop_reason"}
    assert choice["index"] == 0 and len(choice["token_ids"]) == 1 and choice["logprobs"] is None
    assert choice["finish_reason"] == "length" and choice["stop_reason"] is None
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 1, 6)
    assert answer["model"] == "llama-tied-f32.gguf"


def test_sampling_params_may_be_empty_or_missing_and_max_tokens_runs_to_the_context(serve):
    with serve("--context", "32") as server:
        for sampling in ({"sampling_params": {}}, {"sampling_params": None}, {}):
            (choice,) = server.post(PATH, {"token_ids": IDS, **sampling}).json["choices"]
            ended = choice["finish_reason"]
            assert ended == "stop" or len(choice["token_ids"]) == 32 - len(IDS)
        server.refused(PATH, {"token_ids": [1] * 33}, "token_ids")
        full = server.post(PATH, body([1] * 32, prompt_logprobs=0)).json  # nothing can follow
        assert len(full["prompt_logprobs"]) == 32


def test_ids_and_request_ids_come_back(tiny):
    answer = ask(tiny, more={"return_token_ids": True, "request_id": "mine"})
    assert answer["prompt_token_ids"] == IDS and answer["request_id"] == "mine"
    answer = tiny.post(PATH, body(), {"X-Request-Id": "header-7"})
    assert answer.json["request_id"] == answer.headers["x-request-id"] == "header-7"
    answer = tiny.post(PATH, body(), {"X-Request-Id": "with space"})
    assert answer.json["request_id"] == answer.headers["x-request-id"] != "with space"


# ---- prompt_logprobs ----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 3, N_VOCAB, -1])
def test_the_true_token_comes_first_then_the_likeliest_by_rank(tiny, library, k):
    told = ask(tiny, prompt_logprobs=k)["prompt_logprobs"]
    expected = library.score(IDS, **({"top": k} if k else {}))
    assert len(told) == len(IDS) and told[0] is None
    width = N_VOCAB if k < 0 else k
    for i in range(1, len(IDS)):
        keys = list(told[i])
        assert keys[0] == str(IDS[i]) and len(keys) == len(set(keys))
        assert len(keys) in (width, width + 1)
        assert told[i][keys[0]]["logprob"] == expected["logprobs"][i]
        assert told[i][keys[0]]["rank"] == expected["ranks"][i]
        top = {str(entry["token_id"]): entry for entry in expected["top_logprobs"][i]} if k else {}
        assert set(keys) == set(top) | {keys[0]}
        ranks = [told[i][key]["rank"] for key in keys[1:]]
        assert ranks == sorted(ranks) and set(ranks) | {told[i][keys[0]]["rank"]} >= set(
            range(1, width + 1))
        for key, entry in top.items():
            assert told[i][key]["logprob"] == entry["logprob"]
        assert all(set(cell) == {"logprob", "rank", "decoded_token"} for cell in told[i].values())


def test_a_start_keeps_the_length_of_prompt_logprobs(tiny):
    whole = ask(tiny, prompt_logprobs=2)["prompt_logprobs"]
    for start in range(len(IDS)):
        cut = ask(tiny, prompt_logprobs=2, prompt_logprob_start=start)["prompt_logprobs"]
        assert cut == [None] * (start + 1) + whole[start + 1 :]
    message = refused(tiny, "sampling_params.prompt_logprob_start", prompt_logprobs=2,
                      prompt_logprob_start=len(IDS))
    assert "5 tokens" in message and message.endswith(": 5")


def test_prompt_logprobs_as_booleans_and_null(tiny):  # C094
    assert ask(tiny, prompt_logprobs=None)["prompt_logprobs"] is None
    assert ask(tiny, prompt_logprobs=False)["prompt_logprobs"] is None
    assert ask(tiny, prompt_logprobs=True)["prompt_logprobs"] == \
        ask(tiny, prompt_logprobs=1)["prompt_logprobs"]
    for wrong in (-2, 1.5, "1", [1], 2**40):
        refused(tiny, "sampling_params.prompt_logprobs", prompt_logprobs=wrong)
    refused(tiny, "sampling_params.prompt_logprobs", prompt_logprobs=N_VOCAB + 1)


def test_one_token_has_no_score(tiny):
    assert ask(tiny, [7], prompt_logprobs=1)["prompt_logprobs"] == [None]
    assert scores(tiny, [5, 6], [7]).shape == (0, 2)


# ---- candidates ---------------------------------------------------------------------------------


def test_flat_candidates_are_the_librarys(tiny, library):
    for candidates in ([5], [5, 300, 0], [6, 6, 5, 6], list(range(N_VOCAB))):
        told = scores(tiny, candidates)
        assert told.dtype == np.float32 and told.shape == (4, len(candidates))
        assert same_bits(told, library.gather(IDS, candidates))


@pytest.mark.parametrize("start", range(8))
def test_the_shape_at_every_start(tiny, start):
    rows = max(len(IDS) - 1 - start, 0)
    whole = scores(tiny, [5, 6])
    assert same_bits(scores(tiny, [5, 6], prompt_logprob_start=start), whole[start:])
    nested = [[5, 6]] * max(rows, 1)
    if rows:
        assert same_bits(scores(tiny, nested, prompt_logprob_start=start), whole[start:])
    else:
        message = refused(tiny, "sampling_params.prompt_logprob_token_ids",
                          prompt_logprob_token_ids=nested, prompt_logprob_start=start)
        assert "rows expected: 0" in message and message.endswith("given: 1")


def test_ragged_rows_are_padded_with_minus_infinity(tiny, library):
    ragged = [[1], [2, 3], [4, 5, 6], []]
    told = scores(tiny, ragged)
    assert told.shape == (4, 3)
    for row, ids in enumerate(ragged):
        assert np.isneginf(told[row, len(ids):]).all() and np.isfinite(told[row, : len(ids)]).all()
    padded = [ids + [-1] * (3 - len(ids)) for ids in ragged]
    assert same_bits(told, scores(tiny, padded))
    assert same_bits(told, library.gather(IDS, ragged))
    holes = scores(tiny, [[-1, 2], [3, -1], [-1, -1], [4, 4]])
    assert np.isneginf(holes[[0, 1, 2, 2], [0, 1, 0, 1]]).all()
    assert holes[3, 0] == holes[3, 1]


def test_candidates_as_base64_of_npy(tiny):
    flat, nested = np.array([5, 300, 0]), np.array([[1, -1], [2, 3], [4, 5], [6, 7]])
    for array in (flat, nested):
        expected = scores(tiny, array.tolist())
        for form in (array.astype("<i4"), array.astype("<i8"), array.astype(">i8"),
                     np.asfortranarray(array)):
            assert same_bits(scores(tiny, base64_npy(form)), expected)
    for wrong in ("!!!!", "AAAA", "AAA", base64_npy(flat.astype("f4")),
                  base64_npy(nested.reshape(1, 4, 2))):
        refused(tiny, "sampling_params.prompt_logprob_token_ids", prompt_logprob_token_ids=wrong)


def test_rows_are_cells_of_the_whole_vocabulary(tiny):
    told = ask(tiny, prompt_logprobs=-1, prompt_logprob_token_ids=[0, 5, 300])
    for row, cells in enumerate(npy(told["prompt_token_id_logprobs"])):
        everything = told["prompt_logprobs"][row + 1]
        assert cells.tolist() == floats([everything[key]["logprob"] for key in "0 5 300".split()]
                                        ).tolist()


def test_as_lists_and_with_the_remaining_mass(tiny, library):
    answer = ask(tiny, prompt_logprob_token_ids=[5, 6, 5], prompt_logprob_tail=True,
                 prompt_logprob_format="list")
    expected = library.ask("gather", [{"token_ids": IDS, "prompt_logprob_token_ids": [5, 6, 5],
                                       "tail": True}])[0]
    assert answer["prompt_token_id_logprobs"] == expected["scores"]
    assert answer["prompt_logprob_tail"] == expected["tail"]
    ragged = ask(tiny, prompt_logprob_token_ids=[[5], [6, 7], [8], [9]],
                 prompt_logprob_format="list")["prompt_token_id_logprobs"]
    assert ragged[0][1] == -9999.0
    for param, sampling in (("prompt_logprob_tail", {"prompt_logprob_tail": True}),
                            ("prompt_logprob_start", {"prompt_logprob_start": 1}),
                            ("prompt_logprob_format", {"prompt_logprob_format": "binary"})):
        refused(tiny, f"sampling_params.{param}", **sampling)


def test_octet_stream_by_accept(tiny):
    for accept in ("application/octet-stream", "application/x-npy"):
        answer = tiny.post(PATH, body(prompt_logprob_token_ids=[5, 6]), {"Accept": accept})
        assert answer.headers["content-type"] == "application/octet-stream"
        assert same_bits(npy(answer.body), scores(tiny, [5, 6]))
    answer = tiny.post(PATH, body(prompt_logprobs=1), {"Accept": "application/octet-stream"})
    assert answer.headers["content-type"] == "application/json"  # no such array was asked for


WRONG_CANDIDATES = [
    ([], "", "at least one id"),
    ([[], [], [], []], "", "empty"),
    ([[5]], "", "expected: 4"),
    ([[5]] * 5, "", "expected: 4"),
    ([5, N_VOCAB], "[1]", "301"),
    ([5, -1], "[1]", "301"),
    ([[5], [6, N_VOCAB], [7], [8]], "[1][1]", "301"),
    ([[5], [6], [7], [-2]], "[3][0]", "301"),
    ([5, "6"], "[1]", ""),
    ([5, 6.5], "[1]", ""),
    ([5, None], "[1]", ""),
    ([5, True], "[1]", ""),
    ([5, 2**31], "[1]", ""),
    ([5, 10**40], "[1]", ""),
    ([[5], 6, [7], [8]], "[1]", ""),
    ([5, [6]], "[1]", ""),
    (5, "", ""),
    ({"5": 1}, "", ""),
    (True, "", ""),
]


@pytest.mark.parametrize("candidates,place,says", WRONG_CANDIDATES,
                         ids=lambda value: str(value)[:30])
def test_errors_of_candidates_name_their_place(tiny, candidates, place, says):
    message = refused(tiny, "sampling_params.prompt_logprob_token_ids" + place,
                      prompt_logprob_token_ids=candidates)
    assert says in message


# ---- fields -------------------------------------------------------------------------------------

WRONG = [
    ("token_ids", {"token_ids": None}),
    ("token_ids", {"token_ids": []}),
    ("token_ids", {"token_ids": "text"}),
    ("token_ids", {"token_ids": 5}),
    ("token_ids[1]", {"token_ids": [5, "6"]}),
    ("token_ids[1]", {"token_ids": [5, -1]}),
    ("token_ids[1]", {"token_ids": [5, N_VOCAB]}),
    ("token_ids[1][0]", {"token_ids": [[5], [N_VOCAB]]}),
    ("token_ids[1]", {"token_ids": [[5], []]}),
    ("token_ids[1]", {"token_ids": [[5], 5]}),
    ("token_ids", {"token_ids": [1] * 600}),
    ("sampling_params", {"sampling_params": []}),
    ("sampling_params", {"sampling_params": 1}),
    ("stream", {"stream": "yes"}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("stream_options", {"stream": True, "stream_options": True}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": 1}}),
    ("request_id", {"request_id": 5}),
    ("request_id", {"request_id": "a\0b"}),
    ("priority", {"priority": 2**31}),
    ("priority", {"priority": "high"}),
    ("cache_salt", {"cache_salt": 1}),
    ("output_mode", {"output_mode": "tensor"}),
    ("fingerprint", {"fingerprint": "0000"}),
    ("kv_transfer_params", {"kv_transfer_params": {"do_remote_decode": True}}),
    ("timeout_ms", {"timeout_ms": 0}),
]
WRONG_SAMPLING = [
    ("n", 0), ("n", 129), ("n", 1.5), ("n", True),
    ("temperature", -0.1), ("temperature", 2.1), ("temperature", "1"), ("temperature", [1]),
    ("top_p", 0), ("top_p", 1.01), ("top_k", -2), ("min_p", 1.5), ("seed", "x"), ("seed", -2),
    ("stop", 5), ("stop", [5]), ("stop", [""]), ("stop_token_ids", [N_VOCAB]),
    ("stop_token_ids", ["a"]), ("ignore_eos", 1), ("max_tokens", -1), ("max_tokens", 1.5),
    ("min_tokens", -1), ("logprobs", -2), ("logprobs", N_VOCAB + 1),
    ("presence_penalty", 2.5), ("frequency_penalty", -2.5), ("repetition_penalty", 0),
    ("logit_bias", [1]), ("logit_bias", {"a": 1}), ("logit_bias", {"5": "x"}),
    ("logit_bias", {"301": 1}),
    ("allowed_token_ids", [N_VOCAB]), ("bad_words", [""]), ("bad_words", 7),
    ("prompt_logprob_start", -1), ("prompt_logprob_start", "0"),
    ("score_temperature", 0), ("score_temperature", -1), ("score_temperature", "hot"),
    ("prompt_logprobs_temperature", 0),
    ("logprobs_mode", "raw"), ("logprobs_mode", 1), ("use_beam_search", True), ("best_of", 2),
    ("logprob_token_ids", "5"), ("guided_regex", "a+"), ("extra_args", {"a": 1}),
    ("skip_reading_prefix_cache", "no"),
]


@pytest.mark.parametrize("param,fields", WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_field_is_a_400_with_its_place(tiny, param, fields):
    tiny.refused(PATH, {**body(), **fields}, param)


@pytest.mark.parametrize("name,value", WRONG_SAMPLING, ids=lambda value: str(value)[:20])
def test_a_wrong_sampling_parameter_is_a_400_with_its_place(tiny, name, value):
    error = tiny.post(PATH, body(prompt_logprobs=0, max_tokens=4, **{name: value})
                      if name != "max_tokens" else body(max_tokens=value), status=400).error
    assert error["param"].startswith(f"sampling_params.{name}"), error


def test_no_body_is_an_object_or_a_400(tiny):
    for wrong in (b"", b" ", b"{", b"[]", b"null", b"5", b'"a"', b'{"a":1}{"b":2}', b"\xff\xfe",
                  b'{"token_ids":[1],}', b'{"token_ids":[1]} x', b"{'token_ids':[1]}",
                  b'{"token_ids":[NaN]}', b'{"token_ids":[1],"token_ids":[2]}',
                  b"[" * 100000, b'{"a":' * 100000, b'{"token_ids":"\xc3\x28"}'):
        assert tiny.post(PATH, wrong, status=400).error["type"] == "BadRequestError"


def test_a_field_that_nobody_knows_is_told_once(serve):
    with serve() as server:
        names = "new_thing,sampling_params.newer_thing"
        for times in range(2):
            answer = server.post(PATH, body(more={"new_thing": [1]}, newer_thing=1))
            assert set(answer.headers["nepit-ignored-fields"].split(",")) == set(names.split(","))
            line = server.log(answer.headers["x-request-id"])
            assert ("ignored_fields" in line) == (times == 0)
        odd = server.post(PATH, body(more={"a\r\nSet-Cookie: b": 1}))
        assert odd.headers["nepit-ignored-fields"] == "?" and "set-cookie" not in odd.headers


def test_a_field_that_was_meant_is_not_ignored(tiny):
    for more, param, told in (
            ({"max_tokens": 5}, "max_tokens", "belongs into sampling_params"),
            ({"stream_option": {}}, "stream_option", "did you mean stream_options?")):
        error = tiny.post(PATH, body(more=more), status=400).error
        assert error["param"] == param and told in error["message"], error
    error = tiny.post(PATH, body(prompt_logprobs_start=1), status=400).error
    assert error["param"] == "sampling_params.prompt_logprobs_start"
    assert "did you mean prompt_logprob_start?" in error["message"]
    tiny.post(PATH, body(more={"stream_option": None, "max_tokens": None}))  # asks for nothing


def test_another_model_is_a_404(tiny):
    tiny_name = "llama-tied-f32.gguf"
    for name in (tiny_name, str(tiny.model), None):
        assert ask(tiny, more={"model": name})["model"] == tiny_name
    message = tiny.refused(PATH, body(more={"model": "gpt-4"}), "model", 404)
    assert tiny_name in message and "gpt-4" in message
    tiny.refused(PATH, body(more={"model": 5}), "model", 400)


def test_several_names_of_one_model(serve):
    with serve("--served-model-name", "teacher,teacher-v2") as server:
        assert [model["id"] for model in server.get("/v1/models").json["data"]] == [
            "teacher", "teacher-v2"]
        for name in ("teacher", "teacher-v2", str(server.model)):
            assert ask(server, more={"model": name})["model"] == "teacher"
        for name in ("teacher,teacher-v2", "Teacher", "teacher-v", "llama-tied-f32.gguf"):
            server.refused(PATH, body(more={"model": name}), "model", 404)


def test_the_fingerprint_is_told_and_checked(tiny):
    whole = ask(tiny)["system_fingerprint"]
    assert tiny.get("/v1/models").json["data"][0]["system_fingerprint"] == whole
    for part in (whole, whole[:8]):
        assert ask(tiny, more={"fingerprint": part})["system_fingerprint"] == whole
    for other in ("0" + whole, whole + "0", whole[:-1] + "9"):
        assert whole in refused(tiny, "fingerprint", more={"fingerprint": other})


# ---- modes --------------------------------------------------------------------------------------


def test_modes_and_temperature_of_scores(tiny, library, serve):
    raw = ask(tiny, prompt_logprobs=1, prompt_logprob_token_ids=[5, 6])
    assert raw["logprobs_mode"] == "raw_logprobs" and raw["profile"] == "f32"
    for mode, told in (("raw_logprobs", "raw_logprobs"), ("processed_logprobs", "raw_logprobs"),
                       ("raw_logits", "raw_logits"), ("processed_logits", "raw_logits")):
        answer = ask(tiny, prompt_logprobs=1, prompt_logprob_token_ids=[5, 6], logprobs_mode=mode)
        assert answer["logprobs_mode"] == told
        same = answer["prompt_token_id_logprobs"] == raw["prompt_token_id_logprobs"]
        assert same == (told == "raw_logprobs")
        logits = told == "raw_logits"
        if logits:
            expected = library.ask("gather", [{
                "token_ids": IDS, "prompt_logprob_token_ids": [5, 6], "logprobs_mode": told}])[0]
            assert same_bits(npy(answer["prompt_token_id_logprobs"]), floats(
                expected["logits" if "logits" in expected else "scores"]))
    for name in ("score_temperature", "prompt_logprobs_temperature"):
        warm = scores(tiny, [5, 6], **{name: 2.5})
        assert same_bits(warm, library.gather(IDS, [5, 6], score_temperature=2.5))
        assert not same_bits(warm, scores(tiny, [5, 6]))
    for sampling in ({"temperature": 0}, {"temperature": 2}, {"top_k": 1}, {"min_p": 1},
                     {"logit_bias": {"5": 100}}, {"allowed_token_ids": [5]},
                     {"repetition_penalty": 2}, {"presence_penalty": 2}):
        assert same_bits(scores(tiny, [5, 6], max_tokens=1, **sampling), scores(tiny, [5, 6]))
    with serve("--logprobs-mode", "raw_logits") as server:
        assert ask(server, prompt_logprobs=0)["logprobs_mode"] == "raw_logits"
        assert ask(server, prompt_logprobs=0, logprobs_mode="raw_logprobs")["prompt_logprobs"] == \
            ask(tiny, prompt_logprobs=0)["prompt_logprobs"]


# ---- generated tokens ---------------------------------------------------------------------------


def test_generated_tokens_are_the_librarys(tiny, library):
    sampling = {"max_tokens": 8, "temperature": 1.3, "seed": 11, "top_p": 0.9, "n": 3,
                "logprobs": 2, "ignore_eos": True}
    choices = ask(tiny, **sampling)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({tuple(choice["token_ids"]) for choice in choices}) > 1
    for choice in choices:
        told = choice["logprobs"]["content"]
        assert [cell["token_id"] for cell in told] == choice["token_ids"]
        whole = IDS + choice["token_ids"]
        again = library.score(whole, top=2)
        for i, cell in enumerate(told, len(IDS)):
            assert cell["logprob"] == again["logprobs"][i] and cell["rank"] == again["ranks"][i]
            assert [(top["token_id"], top["logprob"], top["rank"]) for top in cell["top_logprobs"]
                    ] == [(top["token_id"], top["logprob"], rank) for rank, top in enumerate(
                        again["top_logprobs"][i], 1)]
    again = ask(tiny, **sampling)["choices"]
    assert again == choices


def test_processed_log_probabilities_of_generated_tokens(tiny):
    (choice,) = ask(tiny, max_tokens=3, logprobs=1, allowed_token_ids=[5], ignore_eos=True,
                    logprobs_mode="processed_logprobs")["choices"]
    assert choice["token_ids"] == [5, 5, 5]
    assert [cell["logprob"] for cell in choice["logprobs"]["content"]] == [0.0] * 3
    for k in (0, -1):
        (choice,) = ask(tiny, max_tokens=1, logprobs=k)["choices"]
        assert len(choice["logprobs"]["content"][0]["top_logprobs"]) == (N_VOCAB if k else 0)


def test_stop_texts_and_ids(tiny, library):
    (free,) = ask(tiny, max_tokens=12, temperature=0, ignore_eos=True)["choices"]
    (choice,) = ask(tiny, max_tokens=12, temperature=0, stop_token_ids=[free["token_ids"][2]],
                    ignore_eos=True)["choices"]
    first = free["token_ids"].index(free["token_ids"][2])
    assert choice["token_ids"] == free["token_ids"][: first + 1]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == free["token_ids"][2]
    letters = {"allowed_token_ids": [40], "ignore_eos": True, "max_tokens": 9}
    (text,) = ask(tiny, more={"output_mode": "text"}, **letters)["choices"]
    letter = text["text"][0]
    assert text["text"] == letter * 9
    (cut,) = ask(tiny, more={"output_mode": "text"}, stop=letter * 4, **letters)["choices"]
    assert cut["text"] == "" and cut["stop_reason"] == letter * 4 and len(cut["token_ids"]) == 4
    (kept,) = ask(tiny, more={"output_mode": "text"}, stop=["no", letter * 4],
                  include_stop_str_in_output=True, **letters)["choices"]
    assert kept["text"] == letter * 4 and kept["finish_reason"] == "stop"


def test_nothing_follows_with_max_tokens_0(tiny):
    answer = ask(tiny, max_tokens=0, n=2, logprobs=3)
    assert [choice["token_ids"] for choice in answer["choices"]] == [[], []]
    assert all(choice["finish_reason"] == "length" for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 0


# ---- several prompts, streams, the cache --------------------------------------------------------


def test_several_prompts_in_one_request(tiny):
    prompts = [[7, 3, 9], [4, 1, 5, 6], [8]]
    answer = ask(tiny, prompts, prompt_logprobs=1, prompt_logprob_token_ids=[5, 6], max_tokens=1,
                 n=2, temperature=0)
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    for i, ids in enumerate(prompts):
        alone = ask(tiny, ids, prompt_logprobs=1, prompt_logprob_token_ids=[5, 6])
        assert answer["prompt_logprobs"][i] == alone["prompt_logprobs"]
        assert answer["prompt_token_id_logprobs"][i] == alone["prompt_token_id_logprobs"]
    nested = [[[5], [6, 7]], [[1]] * 3]
    answer = ask(tiny, prompts[:2], prompt_logprob_token_ids=nested)
    for i in range(2):
        assert same_bits(npy(answer["prompt_token_id_logprobs"][i]),
                         scores(tiny, nested[i], prompts[i]))
    place = "sampling_params.prompt_logprob_token_ids"
    refused(tiny, place, ids=prompts[:2], prompt_logprob_token_ids=[[5], [6]])
    refused(tiny, place, ids=prompts, prompt_logprob_token_ids=nested)
    refused(tiny, place + "[1][2][0]", ids=prompts[:2],
            prompt_logprob_token_ids=[[[5], [6]], [[1], [1], [N_VOCAB]]])


def joined(events, name):
    return [event[name] for event in events if name in event]


def test_parts_of_a_stream_join_to_the_plain_answer(serve):
    ids = np.random.default_rng(3).integers(0, N_VOCAB, 200).tolist()
    rows = np.random.default_rng(4).integers(0, N_VOCAB, (199, 7)).tolist()
    with serve(NEPIT_CHUNK_ROWS="16") as server:
        for candidates, start in ((list(range(250)), 0), (rows, 0), (rows[150:], 150)):
            sampling = {"prompt_logprob_token_ids": candidates, "prompt_logprobs": 2,
                        "prompt_logprob_start": start, "prompt_logprob_tail": True}
            events = server.stream(PATH, body(ids, skip_reading_prefix_cache=True, **sampling))
            plain = ask(server, ids, **sampling)
            arrays = [npy(part) for part in joined(events, "prompt_token_id_logprobs")]
            # 199 rows of 250 are more than one part may hold; the others may be ready at once
            assert len(arrays) > (len(candidates) == 250)
            assert same_bits(np.concatenate(arrays), npy(plain["prompt_token_id_logprobs"]))
            at = start
            for event, array in zip(events, arrays, strict=False):
                assert event["prompt_logprob_start"] == at
                at += len(array)
            assert sum(joined(events, "prompt_logprobs"), []) == plain["prompt_logprobs"]
            assert sum(joined(events, "prompt_logprob_tail"), []) == plain["prompt_logprob_tail"]


def test_streamed_tokens_join_to_the_plain_answer(tiny):
    sampling = {"max_tokens": 6, "n": 2, "seed": 5, "logprobs": 1, "ignore_eos": True}
    more = {"output_mode": "text", "stream_options": {"include_usage": True}}
    events = tiny.stream(PATH, body(more=more, **sampling))
    plain = ask(tiny, more={"output_mode": "text"}, **sampling)
    assert events[-1]["usage"]["completion_tokens"] == 12 and events[-1]["choices"] == []
    for index in range(2):
        parts = [part for event in events for part in event["choices"] if part["index"] == index]
        whole = plain["choices"][index]
        assert sum((part["token_ids"] for part in parts), []) == whole["token_ids"]
        assert all(len(part["token_ids"]) < 2 for part in parts)  # a token a part, always
        assert "".join(part["text"] for part in parts) == whole["text"]
        told = sum((part["logprobs"]["content"] for part in parts if part["logprobs"]), [])
        assert told == whole["logprobs"]["content"]
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]
    assert tiny.stream(PATH, body(prompt_logprob_token_ids=[5], prompt_logprob_start=9))[0][
        "prompt_token_id_logprobs"] == ask(tiny, prompt_logprob_token_ids=[5],
                                           prompt_logprob_start=9)["prompt_token_id_logprobs"]


def test_an_error_before_a_stream_is_a_status(tiny):
    answer = tiny.post(PATH, {**body(ids=[N_VOCAB]), "stream": True}, status=400)
    assert answer.headers["content-type"] == "application/json" and answer.error["param"]


def test_a_cached_beginning_changes_no_bit(serve, library):
    ids = np.random.default_rng(5).integers(0, N_VOCAB, 300).tolist()
    with serve() as server:
        first = ask(server, ids, prompt_logprobs=3, prompt_logprob_token_ids=[5, 6])
        cached = ask(server, ids, prompt_logprobs=3, prompt_logprob_token_ids=[5, 6])
        anew = ask(server, ids, prompt_logprobs=3, prompt_logprob_token_ids=[5, 6],
                   skip_reading_prefix_cache=True)
        salted = ask(server, ids, more={"cache_salt": "x"}, prompt_logprobs=3,
                     prompt_logprob_token_ids=[5, 6])
        n_cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                    for answer in (first, cached, anew, salted)]
        assert n_cached[0] == 0 and n_cached[1] >= 192 and n_cached[2:] == [0, 0], n_cached
        for answer in (cached, anew, salted):
            for name in ("prompt_logprobs", "prompt_token_id_logprobs"):
                assert answer[name] == first[name]
    assert same_bits(npy(first["prompt_token_id_logprobs"]), library.gather(ids, [5, 6]))


def test_equal_requests_at_once_have_one_answer(tiny):  # C042
    ids = np.random.default_rng(6).integers(0, N_VOCAB, 60).tolist()
    request = body(ids, prompt_logprobs=5, prompt_logprob_token_ids=[5, 6], max_tokens=4,
                   temperature=0, logprobs=2)
    other = [body(ids[k:], prompt_logprobs=2) for k in range(8)]

    def one(i):
        answer = tiny.post(PATH, other[i % 8] if i % 3 == 0 else request).json
        return i % 3 and json.dumps([answer[name] for name in (
            "choices", "prompt_logprobs", "prompt_token_id_logprobs")])

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(one, range(96)))
    assert len(answers - {0}) == 1


# ---- limits -------------------------------------------------------------------------------------


def test_max_logprobs(serve):
    with serve("--max-logprobs", "20") as server:
        assert len(ask(server, prompt_logprobs=20)["prompt_logprobs"][1]) in (20, 21)
        for name in ("prompt_logprobs", "logprobs"):
            for k in (21, -1):
                message = refused(server, f"sampling_params.{name}", max_tokens=1, **{name: k})
                assert "20" in message and str(k) in message


def test_max_answer_is_counted_before_the_work(serve):
    with serve("--max-answer", "20K") as server:
        assert ask(server, prompt_logprobs=20)["prompt_logprobs"]
        message = server.post(PATH, body([1] * 200, prompt_logprobs=-1), status=None)
        assert message.status in (400, 413) and "--max-answer" in message.error["message"]
        line = server.log(message.headers["x-request-id"])
        assert line["computed_tokens"] == 0
        assert server.post(PATH, body(max_tokens=300, logprobs=-1), status=None).status in (
            400, 413)


def test_a_request_has_a_time_limit(tiny, serve):
    long = body([1] * 400, max_tokens=100, ignore_eos=True, n=64, logprobs=20)
    answer = tiny.post(PATH, {**long, "timeout_ms": 1}, status=408)
    assert answer.error["type"] == "RequestTimeoutError"
    with serve("--timeout", "0.001") as server:
        assert server.post(PATH, long, status=408).error["code"] == 408
        assert server.post(PATH, {**long, "timeout_ms": 60000}, status=408).error["code"] == 408


@pytest.mark.parametrize("k", [1, 64])
def test_the_demo_model(demo, demo_library, k):
    ids = demo_library.tokenize("The capital of France is Paris.")["token_ids"]
    candidates = list(range(1000, 1000 + k))
    answer = ask(demo, ids, prompt_logprobs=k, prompt_logprob_token_ids=candidates)
    expected = demo_library.score(ids, top=k)
    for i, cell in enumerate(answer["prompt_logprobs"]):
        assert (cell is None) == (i == 0)
        if cell:
            assert next(iter(cell.values()))["logprob"] == expected["logprobs"][i]
    assert same_bits(npy(answer["prompt_token_id_logprobs"]), demo_library.gather(ids, candidates))
