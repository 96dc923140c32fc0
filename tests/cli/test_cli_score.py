"""score, next and tokenize: fields, sums, options, tables."""

import json
import math
import re

import numpy as np
import pytest
from clirun import LLAMA, answers, nepit, refused

SCORE_FIELDS = [
    "token_ids",
    "tokens",
    "logprobs",
    "ranks",
    "total",
    "mean",
    "perplexity",
    "bits_per_byte",
    "n_tokens",
    "n_scored",
    "n_bytes",
    "n_scored_bytes",
    "conditioning",
    "logprobs_mode",
    "model",
    "profile",
    "numerics",
]


def score(*arguments, **options):
    return nepit("score", "--json", *arguments, **options).json


def test_fields():
    answer = score("hello there")
    assert list(answer) == SCORE_FIELDS
    assert answer["logprobs"][0] is None and answer["ranks"][0] is None
    assert (
        answer["model"] == str(LLAMA) and answer["profile"] == "f32" and answer["numerics"] == "1"
    )
    assert answer["conditioning"] == "none" and answer["logprobs_mode"] == "raw_logprobs"
    assert answer["n_tokens"] == len(answer["token_ids"]) == answer["n_scored"] + 1
    assert answer["n_bytes"] == 11 and answer["n_scored_bytes"] == 11 - len(answer["tokens"][0])


def test_sums_are_those_of_the_printed_values():
    answer = score("hello there")
    printed = [float(np.float32(value)) for value in answer["logprobs"][1:]]
    assert answer["total"] == sum(printed)
    assert answer["mean"] == answer["total"] / answer["n_scored"]
    assert answer["perplexity"] == pytest.approx(math.exp(-answer["mean"]), rel=1e-12)
    bits = -answer["total"] / math.log(2) / answer["n_scored_bytes"]
    assert answer["bits_per_byte"] == pytest.approx(bits, rel=1e-12)


def test_printed_floats_are_the_shortest_of_float32():
    for text in re.findall(
        r"-?\d+\.\d+(?:e-?\d+)?", nepit("score", "--json", "hello").text.split("total")[0]
    ):
        value = np.float32(text)
        assert np.format_float_positional(value, unique=True, trim="0") == text or "e" in text


def test_entropy_top_and_ranks_agree():
    answer = score("hello there", "--top", "-1", "--entropy")
    for i in range(1, answer["n_tokens"]):
        row = answer["top_logprobs"][i]
        assert [entry["rank"] for entry in row] == list(range(1, 302))
        assert sum(math.exp(entry["logprob"]) for entry in row) == pytest.approx(1, abs=1e-5)
        own = row[answer["ranks"][i] - 1]
        assert own["token_id"] == answer["token_ids"][i] and own["logprob"] == answer["logprobs"][i]
        entropy = -sum(math.exp(entry["logprob"]) * entry["logprob"] for entry in row)
        assert answer["entropies"][i] == pytest.approx(entropy, abs=1e-4)
    assert answer["top_logprobs"][0] is None and answer["entropies"][0] is None


@pytest.mark.parametrize("k", [1, 2, 4, 10])
def test_C087_top_has_k_entries_whatever_the_texts(k):
    for row in score("hello there", "--top", str(k))["top_logprobs"][1:]:
        assert len(row) == k and len({entry["token_id"] for entry in row}) == k


def test_C089_every_alternative_carries_its_id():
    for row in score("hello there", "--top", "5")["top_logprobs"][1:]:
        assert all(list(entry) == ["token_id", "token", "logprob", "rank"] for entry in row)


def test_C022_top_implies_the_plain_values():
    assert score("hello", "--top", "5")["logprobs"] == score("hello")["logprobs"]


def test_C006_no_log_probability_above_0():
    row = score("--ids", "1 2 3", "--top", "-1")["top_logprobs"][1]
    assert all(entry["logprob"] <= 0 for entry in row)


def test_C009_tokens_join_to_the_text():
    text = "\n2. Anna had 15"
    answer = score(text)
    assert "".join(answer["tokens"]) == text and answer["logprobs"][0] is None


def test_C024_ids_are_scored_as_given():
    answer = score("--ids", "71 68 75 75 78")
    assert answer["token_ids"] == [71, 68, 75, 75, 78] != score("hello")["token_ids"]
    assert "".join(answer["tokens"]) == "hello"


def test_C034_an_id_that_looks_like_padding_stays():
    requests = [{"token_ids": [1, 2, 0, 3, 4]}, {"token_ids": [5, 6]}]
    first, second = answers("score", requests)
    assert first["n_scored"] == 4 and second["n_scored"] == 1
    assert first["logprobs"] == score("--ids", "1 2 0 3 4")["logprobs"]


@pytest.mark.parametrize("start", [5, 100])
def test_C017_a_row_past_the_ids_is_an_error_with_both_numbers(start):
    line = refused("score", "--ids", "7 3 9 4 1", "--start", str(start), status=1)
    assert "5 tokens" in line and f": {start} (--start)" in line


@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_C002_start_cuts_and_changes_no_bit(start):
    ids = "7 3 9 4 1"
    whole, part = score("--ids", ids), score("--ids", ids, "--start", str(start))
    expected = [value if i > start else None for i, value in enumerate(whole["logprobs"])]
    assert part["logprobs"] == expected and part["n_scored"] == max(4 - start, 0)
    assert part["n_tokens"] == 5 and len(part["ranks"]) == 5


def test_C076_condition_is_explicit_and_without_context_the_first_value_is_null():
    plain, bos = score("The cat"), score("The cat", "--condition", "bos")
    assert plain["conditioning"] == "none" and plain["logprobs"][0] is None
    assert bos["conditioning"] == "bos" and bos["token_ids"][1:] == plain["token_ids"]
    assert bos["logprobs"][0] is None and bos["logprobs"][1] is not None
    assert bos["n_bytes"] == bos["n_scored_bytes"] == 7
    assert score("The cat", "--condition", "none")["token_ids"] == plain["token_ids"]


def test_ids_are_used_as_they_are():
    assert "condition" in refused("score", "--ids", "1 2", "--condition", "bos", status=1)
    assert score("--ids", "1 2", "--condition", "none")["token_ids"] == [1, 2]
    assert score("--ids", "1 2", "--add-special-tokens")["token_ids"] == [1, 2]


def test_parse_special():
    assert score("a<|im_end|>")["token_ids"][-1] == 300
    assert score("a<|im_end|>", "--parse-special")["token_ids"][-1] == 300
    assert 300 not in score("a<|im_end|>", "--no-parse-special")["token_ids"]


def test_C056_score_temperature_divides_before_the_softmax():
    logits = {
        entry["token_id"]: entry["logit"]
        for entry in score("--ids", "1 2", "--top", "-1", "--logprobs-mode", "raw_logits")[
            "top_logits"
        ][1]
    }
    row = score("--ids", "1 2", "--top", "-1", "--score-temperature", "0.5")["top_logprobs"][1]
    norm = math.log(sum(math.exp(logit / 0.5) for logit in logits.values()))
    for entry in row:
        assert entry["logprob"] == pytest.approx(logits[entry["token_id"]] / 0.5 - norm, abs=1e-4)


def test_C069_logits_are_never_under_a_log_probability_name():
    text = nepit(
        "score",
        "--json",
        "--ids",
        "1 2 3",
        "--top",
        "2",
        "--lowest",
        "1",
        "--logprobs-mode",
        "raw_logits",
    ).text
    answer = json.loads(text)
    assert answer["logprobs_mode"] == "raw_logits" and "logits" in answer and "top_logits" in answer
    assert 'logprob"' not in text and 'logprobs"' not in text and "perplexity" not in text


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_processed_modes_equal_the_raw_ones_on_given_tokens(mode):
    answer = score("hello", "--logprobs-mode", mode + "_logprobs")
    assert answer == score("hello") and answer["logprobs_mode"] == "raw_logprobs"


def test_C059_sampling_temperature_changes_nothing():
    requests = [
        {"prompt": "hello there", "temperature": t, "top_p": 0.5, "max_tokens": 1} for t in (0, 1)
    ]
    first, second = answers("score", requests)
    assert {**first, "id": 1} == second
    assert first["logprobs"] == score("hello there")["logprobs"]


def test_unit_bits():
    nats, bits = score("hello"), score("hello", "--unit", "bits", "--entropy")
    assert bits["unit"] == "bits" and "unit" not in nats
    for a, b in zip(nats["logprobs"][1:], bits["logprobs"][1:]):
        assert b == pytest.approx(a / math.log(2), rel=1e-6)
    assert bits["total"] == sum(float(np.float32(value)) for value in bits["logprobs"][1:])
    assert (
        bits["perplexity"] == nats["perplexity"] and bits["bits_per_byte"] == nats["bits_per_byte"]
    )


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_lowest(n):
    answer = score("hello there, world", "--lowest", str(n))
    scored = sorted((value, i) for i, value in enumerate(answer["logprobs"]) if value is not None)
    assert [(entry["logprob"], entry["position"]) for entry in answer["lowest"]] == scored[:n]


def test_one_token_and_none():
    one = score("--ids", "5")
    assert one["logprobs"] == [None] and one["n_scored"] == 0 and one["total"] == 0
    assert one["mean"] is None and one["perplexity"] is None and one["bits_per_byte"] is None
    for arguments in (
        ["score", ""],
        ["score", "--ids", ""],
        ["next", ""],
        ["next", "--ids", "  "],
    ):
        assert "at least one token" in refused(*arguments, status=1)
    error = nepit("score", "--json", "--ids", "", status=1).json["error"]
    assert (
        error["code"] == 400
        and error["param"] == "token_ids"
        and error["type"] == "BadRequestError"
    )


def test_C082_more_tokens_than_the_context_is_an_error_with_both_numbers():
    line = refused("score", "--context", "3", "--ids", "1 2 3 4", status=1)
    assert "4 tokens" in line and "3 tokens" in line
    assert nepit("score", "--context", "4", "--ids", "1 2 3 4", "--json").json["n_tokens"] == 4


@pytest.mark.parametrize(
    "ids, place",
    [
        ("1 301", 1),
        ("-1", 0),
        ("1 2147483647", 1),
        ("1 2147483648", 1),
        ("1,99999999999999999999", 1),
        ("1 2 x", 2),
        ("1.5", 0),
        ("1 2-3", 1),
    ],
)
def test_C177_ids_out_of_range_on_the_command_line(ids, place):
    assert f"token_ids[{place}]" in refused("score", "--ids", "--", ids, status=1)


# ---- tables ------------------------------------------------------------------------------------


def test_table_golden():
    lines = nepit("score", "--ids", "71 200 220 68").text.splitlines()
    assert lines[0] == "   pos  token                                   logprob      rank"
    assert lines[1] == "     0  h                                             -         -"
    assert re.fullmatch(r"     1  \\x0c {33} +-\d+\.\d{4} +\d+", lines[2])
    assert (
        lines[5] == ""
        and lines[6].startswith("total  ")
        and lines[-1].split() == ["conditioning", "none"]
    )


HOSTILE = [
    "a b\n\t\r\x07\x1b[31m\x7f",
    "\u202eabc\u200b\u00a0",
    "🙂 Việt 漢字",
    "x" * 500,
    "e\u0301",
    "\\n",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "arguments",
    [
        ["score", "--top", "3", "--entropy"],
        ["tokenize"],
        ["next"],
        ["gather", "--candidates", "1 200 3", "--tail"],
    ],
)
def test_tables_fit_80_columns_and_send_no_control_byte(text, arguments):
    for line in nepit(*arguments, text).text.split("\n"):
        assert len(line) <= 80
        assert all(c.isprintable() for c in line), line


def test_whitespace_is_visible():
    tokens = [line[28:] for line in nepit("tokenize", " \n\t\\").text.splitlines()[1:-1]]
    assert "".join(tokens) == "·\\n\\t\\\\"


# ---- next --------------------------------------------------------------------------------------


def test_next():
    answer = nepit("next", "--ids", "1 2 3", "--top", "-1", "--json").json
    row = answer["top_logprobs"]
    assert [list(entry) for entry in row[:1]] == [
        ["token_id", "token", "logprob", "probability", "rank"]
    ]
    assert len(row) == 301 and [entry["rank"] for entry in row] == list(range(1, 302))
    assert sum(entry["probability"] for entry in row) == pytest.approx(1, abs=1e-6)
    assert answer["mass_not_listed"] == pytest.approx(0, abs=1e-6)
    longer = score("--ids", "1 2 3 9", "--top", "4")["top_logprobs"][3]
    assert [(e["token_id"], e["logprob"]) for e in longer] == [
        (e["token_id"], e["logprob"]) for e in row[:4]
    ]
    assert len(nepit("next", "hello", "--json").json["top_logprobs"]) == 10


def test_next_mass_not_listed():
    answer = nepit("next", "--ids", "1 2 3", "--top", "3", "--json").json
    listed = sum(entry["probability"] for entry in answer["top_logprobs"])
    assert answer["mass_not_listed"] == pytest.approx(1 - listed, abs=1e-6)
    assert math.exp(answer["log_mass_not_listed"]) == pytest.approx(1 - listed, abs=1e-6)
    assert "mass not listed" in nepit("next", "--ids", "1 2 3").text


# ---- tokenize ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"hello there", b"\xff\xfe a\xf0\x9f\x91", b"\n\n  0.", "漢字 é".encode(), b" "]
)
def test_C084_bytes_and_offsets_tile_the_text(text):
    answer = nepit("tokenize", "--json", "-f", "-", text=text).json
    assert b"".join(map(bytes, answer["bytes"])) == text
    assert answer["offsets"][0][0] == 0 and answer["offsets"][-1][1] == len(text)
    for i, (begin, end) in enumerate(answer["offsets"]):
        assert text[begin:end] == bytes(answer["bytes"][i])
    ids = " ".join(map(str, answer["token_ids"]))
    assert nepit("tokenize", "--decode", ids).out == text


def test_tokenize_ids_and_decode_errors():
    answer = nepit("tokenize", "--json", "--ids", "71 68").json
    assert answer["text"] == "he" and answer["bytes"] == [[104], [101]]
    assert "token_ids[1]" in refused("tokenize", "--decode", "1 301", status=1)
    assert nepit("tokenize", "--decode", "").out == b""
    assert nepit("tokenize", "", "--json").json["n_tokens"] == 0
