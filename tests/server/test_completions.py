"""POST /v1/completions, each number against the command's."""

import json

import numpy as np
import pytest
from clirun import LLAMA, MODELS, nepit
from openairun import COLUMNS, MORE_COLUMNS, array, same, together

PATH = "/v1/completions"
TEXT = "Hello wörld, at the end"
IDS = [39, 68, 75, 75, 78, 276, 127, 114, 81, 75, 67, 281]
CHOICE = ("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids")
PROMPT = ("prompt_logprobs", "prompt_token_id_logprobs", "prompt_logprob_tail", "prompt_token_ids")


def scored(library, top=0, **prompt):
    (line,) = library.ask("score", [{**prompt, "top": top}] if top else [prompt])
    return line


def check_legacy(legacy, line, k, first=0):
    """Tokens [first, ...) of a legacy object against a line of `nepit score`."""
    n = len(line["token_ids"])
    assert all(len(legacy[name]) == n - first for name in COLUMNS + MORE_COLUMNS)
    assert legacy["token_ids"] == line["token_ids"][first:]
    assert legacy["tokens"] == line["tokens"][first:]
    assert legacy["token_logprobs"] == line["logprobs"][first:]
    assert legacy["ranks"] == line["ranks"][first:]
    for i in range(first, n):
        dictionary, entries = legacy["top_logprobs"][i - first], legacy["top_tokens"][i - first]
        if i == 0:
            assert dictionary is None and entries is None
            continue
        true = [line["token_ids"][i], line["logprobs"][i], line["ranks"][i]]
        top = line["top_logprobs"][i][:k] if k else []
        others = [[one["token_id"], one["logprob"], one["rank"]] for one in top]
        expected = [true] + [one for one in others if one[0] != true[0]]
        assert [[e["token_id"], e["logprob"], e["rank"]] for e in entries] == expected
        largest = {}
        for entry in entries:
            token = entry["token"]
            largest[token] = max(largest.get(token, -np.inf), entry["logprob"])
        assert dictionary == largest
        if k:
            assert (max(dictionary.values()) == true[1]) == (line["ranks"][i] == 1)


# ---- prompts -------------------------------------------------------------------------------------


def test_C184_all_forms_of_a_prompt(tiny, library):
    ids = scored(library, prompt=TEXT)["token_ids"]
    forms = ((TEXT, 1), ([TEXT], 1), (ids, 1), ([ids], 1), ([TEXT, TEXT], 2), ([ids] * 2, 2))
    for prompt, n in forms:
        answer = tiny.post(PATH, {"prompt": prompt, "max_tokens": 2, "temperature": 0}).json
        assert [choice["index"] for choice in answer["choices"]] == list(range(n))
        assert answer["usage"]["prompt_tokens"] == n * len(ids)
        assert answer["usage"]["completion_tokens"] == 2 * n
        assert len({choice["text"] for choice in answer["choices"]}) == 1
        assert answer["id"].startswith("cmpl-") and answer["object"] == "text_completion"
        assert answer["model"] and answer["created"] > 1e9 and answer["system_fingerprint"]


@pytest.mark.parametrize(
    "prompt, place",
    [
        (["a", [1]], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([1, "a"], "prompt[1]"),
        ([1, [2]], "prompt[1]"),
        ({"text": "a"}, "prompt"),
        (5, "prompt"),
        (True, "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        ([[1], []], "prompt[1]"),
        ("", "prompt"),
        (["a", ""], "prompt[1]"),
        (None, "prompt"),
    ],
)
def test_C184_other_prompts_are_refused_by_place(tiny, prompt, place):
    tiny.refused(PATH, {"prompt": prompt}, place)


@pytest.mark.parametrize("bad", [301, -1, 2**31, 2**63, 2**64, 1.5, "a", True, None])
def test_C177_the_first_bad_id_is_named(tiny, bad):
    tiny.refused(PATH, {"prompt": [1, bad, bad]}, "prompt[1]")
    tiny.refused(PATH, {"prompt": [[1, 2], [3, bad]]}, "prompt[1][1]")
    tiny.post(PATH, {"prompt": [300], "max_tokens": 1})


def test_C024_ids_are_scored_as_given_and_come_back(tiny, library):
    split = [39, 68, 75, 75, 78]
    (answer,) = tiny.post(
        PATH,
        {"prompt": split, "max_tokens": 0, "echo": True, "logprobs": 0, "return_token_ids": True},
    ).json["choices"]
    assert answer["prompt_token_ids"] == split == answer["logprobs"]["token_ids"]
    assert answer["token_ids"] == [] and answer["text"] == "Hello"
    check_legacy(answer["logprobs"], scored(library, token_ids=split), 0)


def test_truncation_keeps_the_end_and_its_text(tiny, library):
    body = {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 0}
    (answer,) = tiny.post(PATH, {**body, "truncate_prompt_tokens": 4}).json["choices"]
    ids = scored(library, prompt=TEXT)["token_ids"][-4:]
    assert answer["logprobs"]["token_ids"] == ids
    assert TEXT.endswith(answer["text"]) and len(answer["text"]) >= 4
    tiny.refused(PATH, {**body, "truncate_prompt_tokens": 0}, "truncate_prompt_tokens")


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 2, 4, 10, 301, -1])
def test_C087_C089_alternatives_and_their_ids(tiny, library, k):
    body = {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": k}
    (answer,) = tiny.post(PATH, body).json["choices"]
    check_legacy(answer["logprobs"], scored(library, k, prompt=TEXT), 301 if k < 0 else k)
    wanted = 301 if k < 0 else k
    for entries in answer["logprobs"]["top_tokens"][1:]:
        assert min(wanted, 301) <= len(entries) <= max(1, wanted + 1)


def test_C087_texts_that_collide_keep_the_largest(tiny):
    body = {"prompt": IDS, "max_tokens": 0, "echo": True, "logprobs": 40}
    (answer,) = tiny.post(PATH, body).json["choices"]
    lost = [
        len(entries) - len(dictionary)
        for entries, dictionary in zip(
            answer["logprobs"]["top_tokens"][1:], answer["logprobs"]["top_logprobs"][1:]
        )
    ]
    assert max(lost) > 10  # fragments of characters are all written U+FFFD
    body["return_tokens_as_token_ids"] = True
    (answer,) = tiny.post(PATH, body).json["choices"]
    for i, dictionary in enumerate(answer["logprobs"]["top_logprobs"][1:], 1):
        entries = answer["logprobs"]["top_tokens"][i]
        assert dictionary == {f"token_id:{e['token_id']}": e["logprob"] for e in entries}
        assert answer["logprobs"]["tokens"][i] == f"token_id:{IDS[i]}"


def test_C084_C086_bytes_join_to_the_text_and_offsets_count_characters(tiny):
    text = "é 漢 \U0001f600 at\x00\n\"\\"
    body = {"prompt": text, "max_tokens": 0, "echo": True, "logprobs": 3}
    (answer,) = tiny.post(PATH, body).json["choices"]
    legacy = answer["logprobs"]
    assert answer["text"] == text
    assert b"".join(bytes(one) for one in legacy["bytes"]) == text.encode()
    assert any(len(one) == 1 and one[0] > 127 for one in legacy["bytes"])
    for token, raw in zip(legacy["tokens"], legacy["bytes"]):
        assert token == bytes(raw).decode(errors="replace")
    lengths = [len(token) for token in legacy["tokens"]]
    assert legacy["text_offset"] == [sum(lengths[:i]) for i in range(len(lengths))]


def test_C094_logprobs_as_numbers_and_booleans(tiny):
    def legacy(value):
        body = {"prompt": IDS, "max_tokens": 0, "echo": True, "logprobs": value}
        return tiny.post(PATH, body).json["choices"][0]["logprobs"]

    assert legacy(None) is None and legacy(False) is None
    assert legacy(True) == legacy(1) != legacy(0)
    assert [len(entries) for entries in legacy(0)["top_tokens"][1:]] == [1] * (len(IDS) - 1)
    for bad in (-2, 1.5, "1", [1], 2**40):
        tiny.refused(PATH, {"prompt": IDS, "logprobs": bad}, "logprobs")


def test_C112_a_row_for_every_token_of_prompt_and_answer(tiny, library):
    """What harnesses send: all that was given, and one more token."""
    prompts = [IDS, IDS[:3], [7], IDS[::-1] * 5]
    body = {"prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": True}
    answer = tiny.post(PATH, {**body, "seed": 1234}).json
    for choice, ids in zip(answer["choices"], prompts, strict=True):
        line = scored(library, 1, token_ids=ids + choice["logprobs"]["token_ids"][-1:])
        check_legacy(choice["logprobs"], line, 1)
        assert choice["logprobs"]["ranks"][-1] == 1
        assert choice["prompt_logprobs"][0] is None and len(choice["prompt_logprobs"]) == len(ids)
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert answer["usage"]["completion_tokens"] == 4


def test_generated_tokens_have_the_numbers_of_scoring(tiny, library):
    body = {"prompt": TEXT, "max_tokens": 8, "n": 3, "seed": 5, "logprobs": 4}
    answer = tiny.post(PATH, {**body, "return_token_ids": True}).json
    ids = scored(library, prompt=TEXT)["token_ids"]
    for choice in answer["choices"]:
        line = scored(library, 4, token_ids=ids + choice["token_ids"])
        check_legacy(choice["logprobs"], line, 4, first=len(ids))
        assert choice["logprobs"]["text_offset"][0] == 0
    request = {"prompt": TEXT, "max_tokens": 8, "n": 3, "seed": 5}
    lines = nepit("generate", "--jsonl", "-", text=json.dumps(request)).lines
    texts = [line["text"] for line in lines]
    assert [choice["text"] for choice in answer["choices"]] == texts


def test_named_tokens_beside_generated_ones(tiny, library):
    named = [7, 80, 7, 300]
    body = {"prompt": IDS, "max_tokens": 4, "seed": 3, "logprobs": 1, "logprob_token_ids": named}
    (choice,) = tiny.post(PATH, {**body, "return_token_ids": True}).json["choices"]
    request = {
        "token_ids": IDS + choice["token_ids"],
        "prompt_logprob_start": len(IDS) - 1,
        "prompt_logprob_token_ids": named,
    }
    (line,) = library.ask("gather", [request])
    told = choice["logprobs"]["top_tokens"]
    for id, entries, row in zip(choice["token_ids"], told, line["scores"], strict=True):
        expected = [[n, score] for n, score in zip(named, row) if n != id]
        assert [[e["token_id"], e["logprob"]] for e in entries[1:]] == expected
        assert entries[0]["token_id"] == id
    tiny.refused(PATH, {**body, "logprobs": None}, "logprob_token_ids")
    tiny.refused(PATH, {**body, "logprob_token_ids": [5, 301]}, "logprob_token_ids[1]")


def test_an_echo_may_tell_more_or_less_than_prompt_logprobs(tiny, library):
    line = scored(library, 5, token_ids=IDS)
    for told, k in ((0, 5), (5, 0), (2, 4)):
        body = {"prompt": IDS, "max_tokens": 0, "echo": True, "logprobs": k}
        (choice,) = tiny.post(PATH, {**body, "prompt_logprobs": told}).json["choices"]
        check_legacy(choice["logprobs"], line, k)
        for i in range(1, len(IDS)):
            expected = {str(IDS[i]): line["logprobs"][i]}
            for one in line["top_logprobs"][i][:told]:
                expected.setdefault(str(one["token_id"]), one["logprob"])
            entries = choice["prompt_logprobs"][i]
            assert {key: entry["logprob"] for key, entry in entries.items()} == expected
            assert next(iter(entries)) == str(IDS[i])


def test_teacher_scores_stand_inside_their_choice(tiny, library):
    prompts = [IDS, IDS[:5]]
    nested = [[[row * 7 % 301, 5, row] for row in range(len(ids) - 1)] for ids in prompts]
    requests = [
        {"token_ids": ids, "prompt_logprob_token_ids": lists} for ids, lists in zip(prompts, nested)
    ]
    expected = [line["scores"] for line in library.ask("gather", requests)]
    body = {"prompt": prompts, "max_tokens": 0, "prompt_logprob_token_ids": nested}
    answer = tiny.post(PATH, body).json
    for choice, rows in zip(answer["choices"], expected, strict=True):
        assert array(choice["prompt_token_id_logprobs"]).tolist() == np.float32(rows).tolist()
    body["prompt_logprob_format"] = "list"
    answer = tiny.post(PATH, body).json
    assert [choice["prompt_token_id_logprobs"] for choice in answer["choices"]] == expected
    shared = {"prompt": IDS, "max_tokens": 1, "prompt_logprob_token_ids": [3, 3, 299]}
    (line,) = library.ask("gather", [{"token_ids": IDS, "prompt_logprob_token_ids": [3, 3, 299]}])
    (choice,) = tiny.post(PATH, {**shared, "prompt_logprob_format": "list"}).json["choices"]
    assert choice["prompt_token_id_logprobs"] == line["scores"]
    tiny.refused(PATH, {**shared, "prompt_logprob_token_ids": [[1]]}, "prompt_logprob_token_ids")


def test_C096_minus_infinity_is_a_number(tiny):
    """A mask leaves one token: the others have no probability at all."""
    body = {
        "prompt": IDS,
        "max_tokens": 2,
        "allowed_token_ids": [80],
        "logprobs": 3,
        "logprobs_mode": "processed_logprobs",
    }
    text = tiny.post(PATH, body).text
    assert "Infinity" not in text and "NaN" not in text
    (choice,) = json.loads(text)["choices"]
    assert choice["logprobs"]["token_logprobs"] == [0.0, 0.0] and choice["text"] == "qq"
    padded = {"prompt": IDS, "max_tokens": 0, "prompt_logprob_format": "list"}
    lists = [[-1, 5]] + [[5]] * (len(IDS) - 2)
    text = tiny.post(PATH, {**padded, "prompt_logprob_token_ids": lists}).text
    (choice,) = json.loads(text)["choices"]
    assert choice["prompt_token_id_logprobs"][0][0] == -9999.0
    assert choice["prompt_token_id_logprobs"][1][1] == -9999.0


# ---- nothing is generated ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_C116_no_tokens(tiny, stream, n):
    """With and without echo, at the full window too."""
    full = (IDS * 50)[:512]
    for prompt in (IDS, full, [IDS, full]):
        for echo in (False, True):
            body = {"prompt": prompt, "max_tokens": 0, "echo": echo, "n": n}
            if stream:
                options = {"include_usage": True}
                answer = together(tiny.stream(PATH, {**body, "stream_options": options}))
            else:
                answer = tiny.post(PATH, body).json
            prompts = prompt if prompt is not IDS and prompt is not full else [prompt]
            texts = [tiny.post("/detokenize", {"tokens": ids}).json["prompt"] for ids in prompts]
            expected = [text if echo else "" for text in texts for _ in range(n)]
            assert [choice["text"] for choice in answer["choices"]] == expected
            assert all(choice["finish_reason"] == "length" for choice in answer["choices"])
            assert answer["usage"]["completion_tokens"] == 0
            assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))


def test_default_is_16_tokens(tiny):
    assert tiny.post(PATH, {"prompt": IDS}).json["usage"]["completion_tokens"] <= 16
    body = {"prompt": IDS, "ignore_eos": True}
    for given in ({}, {"max_tokens": None}):
        assert tiny.post(PATH, {**body, **given}).json["usage"]["completion_tokens"] == 16


# ---- streams -------------------------------------------------------------------------------------

STREAMS = [
    {"prompt": TEXT, "max_tokens": 3, "echo": True, "logprobs": 2},
    {"prompt": TEXT, "max_tokens": 3, "echo": True},
    {"prompt": [TEXT, "a", "at"], "max_tokens": 5, "n": 2, "logprobs": 0, "echo": True},
    {"prompt": [IDS, [7], IDS * 40], "max_tokens": 3, "echo": True, "logprobs": 3},
    {"prompt": [IDS, [7], IDS * 40], "max_tokens": 0, "echo": True, "logprobs": 3},
    {"prompt": [7], "max_tokens": 2, "echo": True, "logprobs": 1},
    {"prompt": IDS, "max_tokens": 6, "logprobs": 2, "stop": ["q"]},
    {"prompt": IDS, "max_tokens": 4, "prompt_logprobs": 1, "prompt_logprob_start": 3},
    {"prompt": [IDS, [4, 5]], "max_tokens": 2, "prompt_logprob_token_ids": [1, 2, 3], "echo": True},
    {
        "prompt": IDS * 30,
        "max_tokens": 2,
        "prompt_logprob_token_ids": [1, 2, 3],
        "prompt_logprobs": -1,
        "prompt_logprob_tail": True,
        "logprobs": 5,
        "echo": True,
    },
    {"prompt": IDS, "max_tokens": 2, "echo": True, "logprobs": 1, "prompt_logprob_start": 4},
]


@pytest.mark.parametrize("body", STREAMS, ids=range(len(STREAMS)))
def test_C091_a_stream_says_what_the_plain_answer_says(tiny, body):
    body = {**body, "seed": 11, "return_token_ids": True}
    plain = tiny.post(PATH, body).json
    events = tiny.stream(PATH, {**body, "stream_options": {"include_usage": True}})
    streamed = together(events)
    assert len(streamed["choices"]) == len(plain["choices"])
    for one, other in zip(plain["choices"], streamed["choices"]):
        same(one, other, *CHOICE, *PROMPT)
    same(plain, streamed, "object", "model", "system_fingerprint", "logprobs_mode", "profile")
    assert events[-1]["choices"] == [] and events[-1]["usage"]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert events[-1]["usage"][name] == plain["usage"][name]
    assert len({event["id"] for event in events}) == 1
    assert all("usage" not in event for event in events[:-1])


def test_C091_cached_rows_come_before_what_follows(demo):
    """The engine has the first token of a cached prompt before all of its rows."""
    body = {"prompt": IDS * 45, "max_tokens": 2, "temperature": 0, "logprobs": 1, "echo": True}
    plain = demo.post(PATH, body).json["choices"][0]
    for _ in range(3):
        (streamed,) = together(demo.stream(PATH, body))["choices"]
        same(plain, streamed, *CHOICE, *PROMPT[:3])


def test_stream_options_need_a_stream(tiny):
    tiny.refused(PATH, {"prompt": IDS, "stream_options": {"include_usage": True}}, "stream_options")


# ---- what a model expects ------------------------------------------------------------------------


def adds_bos(folder):
    """The tiny llama, whose file says that BOS is to be added."""
    raw = LLAMA.read_bytes()
    end = raw.index(b"tokenizer.ggml.add_bos_token") + len(b"tokenizer.ggml.add_bos_token")
    path = folder / "bos.gguf"
    path.write_bytes(raw[: end + 4] + b"\x01" + raw[end + 5 :])
    return path


def test_C071_C072_warnings_about_bos(tiny, serve, tmp_path):
    assert "warnings" not in tiny.post(PATH, {"prompt": TEXT, "max_tokens": 1}).json
    with serve(model=adds_bos(tmp_path)) as server:

        def answer(prompt, **more):
            body = {"prompt": prompt, "max_tokens": 1, "return_token_ids": True, **more}
            plain = server.post(PATH, body).json
            assert together(server.stream(PATH, body)).get("warnings") == plain.get("warnings")
            return plain

        fine = answer("at")
        assert fine["choices"][0]["prompt_token_ids"] == [298, 281] and "warnings" not in fine
        doubled = answer("<|endoftext|>at")
        assert doubled["choices"][0]["prompt_token_ids"] == [298, 298, 281]
        (warning,) = doubled["warnings"]
        assert "two BOS" in warning
        once = answer("<|endoftext|>at", add_special_tokens=False)
        assert once["choices"][0]["prompt_token_ids"] == [298, 281] and "warnings" not in once
        many = answer([[281], [298, 281], [298, 298, 281]])
        assert [line[:9] for line in many["warnings"]] == ["prompt[0]", "prompt[2]"]
        assert "BOS, which this model expects" in many["warnings"][0]


# ---- fields --------------------------------------------------------------------------------------


def test_known_fields_that_are_not_served_are_refused_by_name(tiny):
    body = {"prompt": IDS, "max_tokens": 1}
    harmless = {
        "best_of": 1,
        "suffix": None,
        "response_format": {"type": "text"},
        "use_beam_search": False,
        "user": "me",
        "logit_bias": {},
        "stop": [],
        "truncation_side": "left",
        "logprob_token_ids": None,
    }
    tiny.post(PATH, {**body, **harmless})
    for name, value in {
        "best_of": 2,
        "suffix": "x",
        "response_format": {"type": "json_object"},
        "use_beam_search": True,
        "truncation_side": "right",
        "prompt_embeds": "AAAA",
        "guided_choice": ["a"],
    }.items():
        message = tiny.refused(PATH, {**body, name: value}, name)
        assert "not served" in message
    answer = tiny.post(PATH, {**body, "no_such_field": 1})
    assert answer.headers["nepit-ignored-fields"] == "no_such_field"


def test_ids_of_answers_are_those_of_requests(tiny):
    answer = tiny.post(PATH, {"prompt": IDS, "max_tokens": 1, "request_id": "abc"}).json
    assert answer["id"] == "cmpl-abc"


def test_a_model_without_a_tokenizer_answers_in_ids(serve):
    with serve(model=MODELS / "llama-head10-bf16") as server:
        body = {"prompt": [5, 6, 7], "max_tokens": 2, "echo": True, "logprobs": 1}
        (choice,) = server.post(PATH, body).json["choices"]
        assert choice["text"] == "" and choice["logprobs"]["bytes"] == [None] * 5
        assert choice["logprobs"]["tokens"][:3] == ["token_id:5", "token_id:6", "token_id:7"]
        assert len(choice["logprobs"]["top_logprobs"][1]) in (1, 2)
        server.refused(PATH, {"prompt": "text"}, "prompt", status=400)
