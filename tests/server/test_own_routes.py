"""The routes under /nepit/v1/: the same numbers as the commands of these names."""

import math

import numpy as np
import pytest
from clirun import nepit
from serverrun import base64_npy, floats, npy, same_bits

IDS = [5, 9, 17, 200, 31, 7]
SCORE, GATHER, CHOOSE, PERPLEXITY = (
    f"/nepit/v1/{word}" for word in ("score", "gather", "choose", "perplexity"))
TEXT = "The cat sat on the mat; the dog did not. " * 30


# -- score

SHARED = ["token_ids", "tokens", "logprobs", "ranks", "entropies", "top_logprobs", "total", "mean",
          "perplexity", "bits_per_byte", "n_tokens", "n_scored", "n_bytes", "n_scored_bytes",
          "conditioning"]


@pytest.mark.parametrize("fields", [
    {}, {"top": 3}, {"entropy": True, "top": 1}, {"start": 2}, {"score_temperature": 0.6},
    {"logprobs_mode": "raw_logits", "top": 2}, {"condition": "bos"},
    {"add_special_tokens": False}, {"parse_special": False}])
@pytest.mark.parametrize("prompt", ["abc de", IDS])
def test_score_is_the_command(tiny, library, fields, prompt):
    if isinstance(prompt, list) and {"condition", "add_special_tokens", "parse_special"} & {
            *fields}:
        pytest.skip("how a text becomes ids does not concern ids")
    answer = tiny.post(SCORE, {"prompt": prompt, **fields}).json
    (want,) = library.ask("score", [{"prompt": prompt, **fields}])
    (result,) = answer["results"]
    for key in [*SHARED, "logits", "top_logits"]:
        assert result.get(key) == want.get(key), key
    assert answer["logprobs_mode"] == want["logprobs_mode"]
    assert answer["numerics"] == want["numerics"] and answer["profile"] == want["profile"]


def test_spans_cover_the_text(tiny):
    text = "abc dé"
    (result,) = tiny.post(SCORE, {"prompt": text}).json["results"]
    offsets = result["offsets"]
    assert offsets[0][0] == 0 and offsets[-1][1] == len(text.encode())
    assert all(a[1] == b[0] for a, b in zip(offsets, offsets[1:], strict=False))
    assert result["n_bytes"] == len(text.encode())
    (result,) = tiny.post(SCORE, {"token_ids": IDS}).json["results"]
    assert "offsets" not in result


def test_mass_that_is_not_listed(tiny):
    (result,) = tiny.post(SCORE, {"token_ids": IDS, "top": 5, "mass": True}).json["results"]
    assert result["log_mass_not_listed"][0] is None
    for best, left in zip(result["top_logprobs"][1:], result["log_mass_not_listed"][1:],
                          strict=True):
        listed = sum(math.exp(one["logprob"]) for one in best)
        assert listed + math.exp(left) == pytest.approx(1, abs=1e-6)


def test_many_prompts_are_one_by_one(tiny, library):
    prompts = ["abc", "d", "ef gh"]
    for key in ("prompt", "prompts"):
        results = tiny.post(SCORE, {key: prompts}).json["results"]
        want = library.ask("score", [{"prompt": prompt} for prompt in prompts])
        assert [one["logprobs"] for one in results] == [one["logprobs"] for one in want]
        assert [one["total"] for one in results] == [one["total"] for one in want]
    short = tiny.post(SCORE, {"token_ids": [[3]]}).json["results"][0]
    assert short["logprobs"] == [None] and short["mean"] is None and short["total"] == 0


@pytest.mark.parametrize(("body", "param"), [
    ({}, "prompt"),
    ({"prompt": "a", "token_ids": [1]}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt[1]"),
    ({"token_ids": [1, 301]}, "token_ids[1]"),
    ({"token_ids": [[1], [1, -5]]}, "token_ids[1][1]"),
    ({"token_ids": IDS, "start": 9}, "start"),
    ({"token_ids": IDS, "start": -1}, "start"),
    ({"token_ids": IDS, "top": 302}, "top"),
    ({"token_ids": IDS, "top": 1.5}, "top"),
    ({"token_ids": IDS, "mass": True}, "mass"),
    ({"token_ids": IDS, "score_temperature": 0}, "score_temperature"),
    ({"token_ids": IDS, "logprobs_mode": "log"}, "logprobs_mode"),
    ({"prompt": "a", "condition": "bos", "add_special_tokens": True}, "condition"),
    ({"prompt": "a", "condition": "eos"}, "condition"),
    ({"prompt": "a", "tops": 5}, "tops"),
    ({"prompt": "a", "stream": True}, "stream"),
])
def test_score_mistakes(tiny, body, param):
    message = tiny.refused(SCORE, body, param)
    if param == "tops":
        assert "did you mean top?" in message


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_the_route_of_a_reranker_says_so(tiny, path):
    body = {"text_1": "a", "text_2": ["b"], "model": "x"}
    message = tiny.refused(path, body, "text_1")
    assert "reranker" in message and "/nepit/v1/score" in message


# -- gather

@pytest.mark.parametrize("candidates", [[4, 4, 300], [[1], [2, 3], [], [4, 5, 6], [7]]])
def test_gather_is_the_command(tiny, library, candidates):
    body = {"token_ids": IDS, "candidates": candidates, "tail": True}
    (want,) = library.ask("gather", [body])
    (listed,) = tiny.post(GATHER, {**body, "format": "list"}).json["results"]
    for key in ("start", "row_token_ids", "scores", "tail", "n_tokens"):
        assert listed[key] == want[key]
    (coded,) = tiny.post(GATHER, body).json["results"]
    assert same_bits(npy(coded["scores"]), floats(want["scores"]))
    raw = tiny.post(GATHER, {**body, "tail": False}, {"Accept": "application/octet-stream"})
    assert same_bits(npy(raw.body), floats(want["scores"]))


@pytest.mark.parametrize(("prompt", "response"), [("abc", "de"), ([1, 2], [3, 4]), ("ab", [9])])
def test_prompt_and_response(tiny, library, prompt, response):
    body = {"prompt": prompt, "response": response, "candidates": [7, 8]}
    (want,) = library.ask("gather", [body])
    (result,) = tiny.post(GATHER, {**body, "format": "list"}).json["results"]
    for key in ("start", "row_token_ids", "scores", "n_tokens", "split"):
        assert result[key] == want[key]


def test_gather_of_many(tiny, library):
    body = {"prompt": [[1, 2], [3]], "response": [[4, 5], [6]],
            "candidates": [[[7], [8, 9]], [[10]]]}
    results = tiny.post(GATHER, body).json["results"]
    for i, result in enumerate(results):
        (want,) = library.ask("gather", [{"prompt": body["prompt"][i],
                                          "response": body["response"][i],
                                          "candidates": body["candidates"][i]}])
        assert same_bits(npy(result["scores"]), floats(want["scores"]))
    array = base64_npy(np.array([7, 8], dtype=np.int64))
    (result,) = tiny.post(GATHER, {"token_ids": IDS, "candidates": array,
                                   "start": 3}).json["results"]
    assert same_bits(npy(result["scores"]), library.gather(IDS, [7, 8], start=3))


@pytest.mark.parametrize(("body", "param"), [
    ({"candidates": [1]}, "prompt"),
    ({"token_ids": IDS}, "candidates"),
    ({"token_ids": IDS, "candidates": []}, "candidates"),
    ({"token_ids": IDS, "candidates": [301]}, "candidates[0]"),
    ({"token_ids": IDS, "candidates": ["a"]}, "candidates[0]"),
    ({"token_ids": IDS, "candidates": [[1], [2]]}, "candidates"),
    ({"token_ids": IDS, "candidates": [[1], [2], [3], [4], [-2]]}, "candidates[4][0]"),
    ({"token_ids": IDS, "candidates": "%%%"}, "candidates"),
    ({"token_ids": [IDS, IDS], "candidates": [[1]] * 5}, "candidates"),
    ({"token_ids": IDS, "candidates": [1], "format": "npz"}, "format"),
    ({"prompt": "a", "response": "", "candidates": [1]}, "response"),
    ({"prompt": ["a", "b"], "response": "c", "candidates": [1]}, "response"),
    ({"prompt": "", "response": "c", "candidates": [1]}, "prompt"),
    ({"prompt": "a", "response": "c", "candidate": [1]}, "candidate"),
])
def test_gather_mistakes(tiny, body, param):
    tiny.refused(GATHER, body, param)


# -- choose

def reference(library, context, option, **fields):
    """Tokens of both together, from the first that touches the option."""
    both = library.tokenize(context + option)
    if fields:
        both["token_ids"] = library.ask("score", [{"prompt": context + option, **fields}])[0][
            "token_ids"]
        both["offsets"] = [[0, 0], *both["offsets"]]
    n_context = len(context.encode())
    first = next(i for i, (_, end) in enumerate(both["offsets"]) if end > n_context)
    score = library.score(both["token_ids"])
    return (both["token_ids"][first:], score["logprobs"][first:], first - 1,
            both["offsets"][first][0] < n_context)


def test_choose_by_every_rule_C137(tiny, library):
    context, options = "The answer: ", ["yes", "no, it is not", "é"]
    answer = tiny.post(CHOOSE, {"context": context, "options": options, "neutral": "It: "}).json
    totals, told = [], answer["options"]
    for option, entry in zip(options, told, strict=True):
        ids, logprobs, start, straddles = reference(library, context, option)
        total = 0.0
        for value in logprobs:
            total += float(np.float32(value))
        totals.append(total)
        neutral = 0.0
        for value in reference(library, "It: ", option)[1]:
            neutral += float(np.float32(value))
        assert entry["token_ids"] == ids and entry["logprobs"] == logprobs
        assert entry["start"] == start and entry["straddles"] is straddles
        assert entry["total"] == total and entry["mean"] == total / len(ids)
        assert entry["per_byte"] == total / len(option.encode()) == total / entry["n_bytes"]
        assert entry["per_character"] == total / len(option)
        assert entry["calibrated"] == total - neutral and entry["n_tokens"] == len(ids)
    whole = sum(math.exp(total) for total in totals)
    for total, entry in zip(totals, told, strict=True):
        assert entry["probability"] == pytest.approx(math.exp(total) / whole, rel=1e-9)
    keys = {"mean": "mean", "total": "total", "bytes": "per_byte", "chars": "per_character",
            "calibrated": "calibrated"}
    for rule, key in keys.items():
        best = max(range(3), key=lambda i, key=key: told[i][key])
        assert answer["winners"][rule] == best
        again = tiny.post(CHOOSE, {"context": context, "options": options, "neutral": "It: ",
                                   "by": rule}).json
        assert again["winner"] == best and again["by"] == rule
    assert answer["split"] == "together" and answer["warnings"][0].startswith("the context ends")


def test_split_inside_a_token_C029(demo, demo_library):
    """'good morn' + 'ing' is one token less than both apart; the answer says that it straddles."""
    for context, option, fields in (("good morn", "ing", {}),
                                    ("Que", "stion", {"condition": "bos"})):
        answer = demo.post(CHOOSE, {"context": context, "options": [option, " x"],
                                    **fields}).json
        ids, logprobs, start, straddles = reference(demo_library, context, option, **fields)
        assert straddles and len(ids) == 1
        first, second = answer["options"]
        assert first["token_ids"] == ids and first["logprobs"] == logprobs
        assert first["start"] == start and first["straddles"] is straddles
        assert second["straddles"] is False
    assert "condition" in demo.refused(
        CHOOSE, {"context": "", "options": ["yes"]}, "options[0]")
    answer = demo.post(CHOOSE, {"context": "", "options": ["yes"], "condition": "bos"}).json
    assert answer["conditioning"] == "bos" and answer["options"][0]["start"] == 0


def test_labels_of_any_length_C129(tiny, library):
    options = ["a", "a much longer label, of many tokens"]
    answer = tiny.post(CHOOSE, {"context": "x:", "options": options, "by": "total"}).json
    assert [one["n_tokens"] for one in answer["options"]] == [
        len(reference(library, "x:", option)[0]) for option in options]
    assert sum(one["probability"] for one in answer["options"]) == pytest.approx(1)


def test_variants_are_added_and_white_space_is_told_C136(tiny, library):
    options = [["yes", " yes", "Yes"], "no"]
    answer = tiny.post(CHOOSE, {"context": "Sentiment:", "options": options}).json
    first, second = answer["options"]
    totals = [one["total"] for one in first["variants"]]
    assert [one["text"] for one in first["variants"]] == options[0] and "variants" not in second
    assert totals[1] == pytest.approx(sum(reference(library, "Sentiment:", " yes")[1]), rel=1e-6)
    assert math.exp(first["total"]) == pytest.approx(sum(map(math.exp, totals)), rel=1e-12)
    assert first["mean"] == max(one["mean"] for one in first["variants"])
    assert answer["warnings"] == []
    spaced = tiny.post(CHOOSE, {"context": "Sentiment: ", "options": options}).json
    assert "white space" in spaced["warnings"][0]


def test_options_share_their_context(demo):
    context = "One upon a time there was a " + "very " * 100 + "small"
    options = [" cat", " dog", " house", " man"]
    answer = demo.post(CHOOSE, {"context": context, "options": options}).json
    usage = answer["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"] / 2


@pytest.mark.parametrize(("body", "param"), [
    ({"options": ["a"]}, "context"),
    ({"context": "a"}, "options"),
    ({"context": "a", "options": []}, "options"),
    ({"context": "a", "options": "b"}, "options"),
    ({"context": "a", "options": ["b", 5]}, "options[1]"),
    ({"context": "a", "options": ["b", ""]}, "options[1]"),
    ({"context": "a", "options": ["b", []]}, "options[1]"),
    ({"context": "a", "options": ["b", ["c", ""]]}, "options[1][1]"),
    ({"context": "a", "options": ["b", ["c", 5]]}, "options[1][1]"),
    ({"context": 5, "options": ["b"]}, "context"),
    ({"context": "", "options": ["b"]}, "options[0]"),
    ({"context": "a", "options": ["b"], "by": "sum"}, "by"),
    ({"context": "a", "options": ["b"], "by": "calibrated"}, "neutral"),
    ({"context": "a", "options": ["b"], "option": ["b"]}, "option"),
    ({"context": "a" * 5000, "options": ["b"]}, "options[0]"),
])
def test_choose_mistakes(tiny, body, param):
    tiny.refused(CHOOSE, body, param)


# -- perplexity

NUMBERS = ["total", "mean", "perplexity", "bits_per_byte", "n_tokens", "n_scored", "n_bytes",
           "n_scored_bytes", "n_windows", "window", "stride", "conditioning"]


@pytest.mark.parametrize(("window", "stride"), [
    (None, None), (64, None), (64, 16), (50, 49), (7, 3), (200, 1)])
def test_perplexity_is_the_command(tiny, tmp_path, window, stride):
    file = tmp_path / "text"
    file.write_text(TEXT)
    arguments = [] if window is None else ["--window", str(window)]
    arguments += [] if stride is None else ["--stride", str(stride)]
    want = nepit("perplexity", "--json", *arguments, str(file)).lines[0]
    body = {"text": TEXT, "window": window, "stride": stride}
    answer = tiny.post(PERPLEXITY, body).json
    for key in NUMBERS:
        assert answer[key] == want[key], key


@pytest.mark.parametrize("text", ["", "a", "ab", "\u00e9\u00e9 x"])
@pytest.mark.parametrize("condition", [None, "bos", "none"])
def test_perplexity_of_little(tiny, tmp_path, text, condition):
    file = tmp_path / "text"
    file.write_text(text)
    arguments = ["--condition", condition] if condition else []
    want = nepit("perplexity", "--json", *arguments, str(file)).lines[0]
    answer = tiny.post(PERPLEXITY, {"text": text, "condition": condition}).json
    assert {key: answer[key] for key in NUMBERS} == {key: want[key] for key in NUMBERS}


@pytest.mark.parametrize(("body", "param"), [
    ({}, "text"),
    ({"text": 5}, "text"),
    ({"text": ["a"]}, "text"),
    ({"text": "a", "window": 0}, "window"),
    ({"text": "a", "window": 100000}, "window"),
    ({"text": "a", "window": 4, "stride": 5}, "stride"),
    ({"text": "a", "stride": 0}, "stride"),
    ({"text": "ab " * 40000, "window": 8, "stride": 1}, "stride"),
    ({"text": "a", "windows": 5}, "windows"),
])
def test_perplexity_mistakes(tiny, body, param):
    tiny.refused(PERPLEXITY, body, param)


def test_identity(tiny):
    answer = tiny.post(SCORE, {"prompt": "ab", "request_id": "mine"}).json
    assert answer["request_id"] == "mine" and answer["system_fingerprint"]
    tiny.post(SCORE, {"prompt": "ab", "fingerprint": answer["system_fingerprint"]})
    tiny.refused(SCORE, {"prompt": "ab", "fingerprint": "np-0"}, "fingerprint")
