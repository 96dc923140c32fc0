"""llama.cpp's /completion: prompts of every shape, n_probs before and after masks, streams."""

import json
import math

import numpy as np
import pytest
from serverrun import npy, same_bits

IDS = [5, 9, 17, 200]
GREEDY = {"temperature": 0, "n_predict": 4}


def ask(server, **fields):
    return server.post("/completion", fields).json


def events(server, **fields):
    answer = server.post("/completion", {**fields, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream"
    parts = answer.text.split("\n\n")
    assert parts.pop() == "" and "[DONE]" not in answer.text
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def test_probabilities_are_those_of_the_model(tiny, library):
    answer = ask(tiny, prompt=IDS, n_probs=3, return_tokens=True, **GREEDY)
    (want,) = library.generate(IDS, temperature=0, max_tokens=4, top=3)
    assert answer["content"] == want["text"] and answer["tokens"] == want["token_ids"]
    assert answer["stop"] is True and answer["stop_type"] == "limit"
    assert answer["stopping_word"] == "" and answer["truncated"] is False
    assert answer["tokens_predicted"] == 4 and answer["tokens_evaluated"] == 4
    assert answer["generation_settings"]["top_k"] == 40 and answer["timings"]["predicted_n"] == 4
    told = answer["completion_probabilities"]
    bytes_of = dict(zip(want["token_ids"],
                        library.ask("tokenize", [{"token_ids": want["token_ids"]}])[0]["bytes"],
                        strict=True))
    for i, entry in enumerate(told):
        assert set(entry) == {"id", "token", "bytes", "logprob", "top_logprobs"}
        assert entry["id"] == want["token_ids"][i] and entry["logprob"] == want["logprobs"][i]
        assert entry["bytes"] == bytes_of[entry["id"]] and entry["token"] == want["tokens"][i]
        assert [(one["id"], one["logprob"], one["token"]) for one in entry["top_logprobs"]] == [
            (one["token_id"], one["logprob"], one["token"]) for one in want["top_logprobs"][i]]
    plain = ask(tiny, prompt=IDS, **GREEDY)
    assert plain["tokens"] == [] and "completion_probabilities" not in plain


def test_probabilities_after_masks(tiny, library):
    fields = {"temperature": 0.7, "top_k": 3, "top_p": 1, "min_p": 0, "seed": 4}
    answer = ask(tiny, prompt=IDS, n_predict=3, n_probs=5, post_sampling_probs=True, **fields)
    (want,) = library.generate(IDS, max_tokens=3, top=5, logprobs_mode="processed_logprobs",
                               **fields)
    for i, entry in enumerate(answer["completion_probabilities"]):
        assert set(entry) == {"id", "token", "bytes", "prob", "top_probs"}
        assert entry["id"] == want["token_ids"][i]
        assert np.float32(entry["prob"]) == np.float32(math.exp(np.float32(want["logprobs"][i])))
        best = [one for one in want["top_logprobs"][i] if one["logprob"] > -9999]
        assert len(entry["top_probs"]) == 3 == len(best)
        assert [one["id"] for one in entry["top_probs"]] == [one["token_id"] for one in best]
        assert abs(sum(one["prob"] for one in entry["top_probs"]) - 1) < 1e-6


def test_prompts_of_every_shape(tiny, library):
    text = "ab"
    ids = library.tokenize(text)["token_ids"]
    one = ask(tiny, prompt=ids, **GREEDY)
    for prompt in (text, {"prompt_string": text}):
        assert ask(tiny, prompt=prompt, **GREEDY)["content"] == one["content"]
    mixed = ask(tiny, prompt=[IDS[0], text, IDS[1]], **GREEDY)
    assert mixed["content"] == ask(tiny, prompt=[IDS[0], *ids, IDS[1]], **GREEDY)["content"]
    assert mixed["tokens_evaluated"] == len(ids) + 2
    many = ask(tiny, prompt=[text, ids, {"prompt_string": text}, [text, IDS[0]]], **GREEDY)
    assert [part["index"] for part in many] == [0, 1, 2, 3]
    assert {part["content"] for part in many[:3]} == {one["content"]}
    assert len(ask(tiny, prompt=text, n_cmpl=3, n_predict=1)) == 3
    assert ask(tiny, prompt=text, **GREEDY)["prompt"] == text


def test_defaults_draw(tiny, library):
    (want,) = library.generate(IDS, max_tokens=8, temperature=0.8, top_k=40, top_p=0.95,
                               min_p=0.05, seed=11)
    assert ask(tiny, prompt=IDS, n_predict=8, seed=11)["content"] == want["text"]


def test_how_it_ends(tiny, library):
    letters = library.tokenize("abcdef")["token_ids"]
    sampling = {"seed": 5, "allowed_token_ids": letters, "n_predict": 20}
    text = ask(tiny, prompt=IDS, **sampling)["content"]
    cut = ask(tiny, prompt=IDS, stop=["zz", text[3]], **sampling)
    assert cut["stop_type"] == "word" and cut["stopping_word"] == text[3]
    assert cut["content"] == text[:text.index(text[3])]
    none = ask(tiny, prompt=IDS, n_predict=0)
    assert none["content"] == "" and none["tokens_predicted"] == 0
    assert none["stop_type"] == "limit"
    whole = ask(tiny, prompt=IDS, n_predict=-1, ignore_eos=True)
    assert whole["tokens_predicted"] > 100 and whole["stop_type"] == "limit"


def test_streams(tiny):
    plain = ask(tiny, prompt=IDS, n_probs=2, return_tokens=True, **GREEDY)
    parts = events(tiny, prompt=IDS, n_probs=2, **GREEDY)
    assert "".join(part["content"] for part in parts) == plain["content"]
    assert sum((part["tokens"] for part in parts), []) == plain["tokens"]
    assert sum((part["completion_probabilities"] for part in parts), []) == \
        plain["completion_probabilities"]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1]["stop_type"] == "limit" and parts[-1]["timings"]["predicted_n"] == 4
    (only,) = events(tiny, prompt=IDS, n_predict=0)
    assert only["stop"] is True and only["content"] == ""


def test_the_cache_changes_nothing(tiny):
    answers = [ask(tiny, prompt=IDS, n_probs=4, cache_prompt=cached, **GREEDY)
               for cached in (True, True, False)]
    told = [answer["completion_probabilities"] for answer in answers]
    assert told[0] == told[1] == told[2] and answers[2]["tokens_cached"] == 0


def test_teacher_scoring_in_words_of_vllm(tiny, library):
    body = {"prompt": IDS, "n_predict": 0, "prompt_logprob_token_ids": [[4], [5], [6]]}
    want = library.gather(IDS, [[4], [5], [6]])
    assert same_bits(npy(ask(tiny, **body)["prompt_token_id_logprobs"]), want)
    raw = tiny.post("/completion", body, {"Accept": "application/octet-stream"})
    assert same_bits(npy(raw.body), want)
    parts = events(tiny, **body)
    joined = [npy(part["prompt_token_id_logprobs"]) for part in parts
              if "prompt_token_id_logprobs" in part]
    assert same_bits(np.concatenate(joined), want) and parts[-1]["stop"] is True


@pytest.mark.parametrize(("path", "meant"), [
    ("/completions", "/v1/completions"), ("/completio", "/completion"),
    ("/tokenise", "/tokenize"), ("/nothing/of/the/kind", None)])
def test_another_path_names_the_one_that_was_meant(tiny, path, meant):
    message = tiny.post(path, {"prompt": IDS}, status=404).error["message"]
    assert ("did you mean %s?" % meant in message) if meant else ("openapi.json" in message)


@pytest.mark.parametrize(("body", "param"), [
    ({}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": {"prompt_string": 5}}, "prompt"),
    ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "prompt"),
    ({"prompt": [1, 301]}, "prompt[1]"),
    ({"prompt": [1, "a", 1.5]}, "prompt[2]"),
    ({"prompt": ["a", [1, 2, 2**40]]}, "prompt[1][2]"),
    ({"prompt": ["a", None]}, "prompt[1]"),
    ({"prompt": [True, 1]}, "prompt[0]"),
    ({"prompt": [[1], [5, 999]]}, "prompt[1][1]"),
    ({"prompt": [[1], []]}, "prompt[1]"),
    ({"prompt": "a", "n_predict": -3}, "n_predict"),
    ({"prompt": "a", "n_predict": "x"}, "n_predict"),
    ({"prompt": "a", "n_probs": -1}, "n_probs"),
    ({"prompt": "a", "n_probs": 302}, "n_probs"),
    ({"prompt": "a", "temperature": -1}, "temperature"),
    ({"prompt": "a", "repeat_penalty": 1.1}, "repeat_penalty"),
    ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty"),
    ({"prompt": "a", "mirostat": 2}, "mirostat"),
    ({"prompt": "a", "grammar": "root ::= x"}, "grammar"),
    ({"prompt": "a", "samplers": ["temperature", "top_k"]}, "samplers"),
    ({"prompt": "a", "stop": [""]}, "stop[0]"),
    ({"prompt": "a", "lora": [{"id": 0}]}, "lora"),
    ({"prompt": "a", "logit_bias": [[1, 2]]}, "logit_bias"),
])
def test_mistakes(tiny, body, param):
    tiny.refused("/completion", body, param)


def test_harmless_fields_are_taken(tiny):
    answer = tiny.post("/completion", {
        "prompt": "a", "n_predict": 1, "id_slot": -1, "n_keep": 0, "repeat_penalty": 1.0,
        "mirostat": 0, "typical_p": 1, "grammar": "", "samplers": ["top_k", "top_p", "min_p",
                                                                   "temperature"],
        "cache_prompt": True, "response_fields": []})
    assert "nepit-ignored-fields" not in answer.headers
