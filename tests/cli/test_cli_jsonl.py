"""--jsonl: one answer a line in the order of the requests; a bad line harms no other."""

import json
import os
import random
import subprocess

import pytest
from clirun import NEPIT, answers, environment, nepit, refused

IDS = [7, 3, 9, 4, 1]
GOOD = {"id": "good", "prompt": "hello there"}


def error(word, line, *arguments):
    """The error object of a bad line between two good ones, which must be answered."""
    first, bad, last = answers(word, [GOOD, line, GOOD], *arguments, status=1)
    assert first == last and "error" not in first
    assert list(bad) == ["id", "error"]
    assert list(bad["error"]) == ["message", "type", "param", "code"]
    return bad["error"]


def test_answers_keep_the_order_and_the_ids():
    requests = [
        {"id": "a", "prompt": "hello"},
        {"id": 7, "token_ids": [1, 2]},
        {"prompt": "x"},
        {"id": None, "prompt": [1, 2, 3]},
        {"id": 'ü\u0001"', "prompt": "x"},
    ]
    lines = answers("score", requests)
    assert [line["id"] for line in lines] == ["a", 7, 2, 3, 'ü\u0001"']
    for line, arguments in zip(lines, (["hello"], ["--ids", "1 2"], ["x"], ["--ids", "1 2 3"])):
        alone = nepit("score", "--json", *arguments).json
        assert {**alone, "id": line["id"]} == line


def test_empty_lines_are_passed_over_and_the_last_needs_no_end():
    done = nepit("score", "--jsonl", "-", text='\n{"prompt":"a b"}\r\n \t\n{"prompt":"c d"}')
    assert [line["id"] for line in done.lines] == [0, 1]
    assert nepit("score", "--jsonl", "-", text="").out == b""


def test_a_file_of_requests(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text(json.dumps(GOOD) + "\n")
    assert nepit("score", "--jsonl", path).lines == answers("score", [GOOD])


def test_options_are_defaults_and_fields_override_them():
    plain, own = answers(
        "score",
        [GOOD, {**GOOD, "top": 1, "start": 2, "score_temperature": 3}],
        "--top",
        "2",
        "--score-temperature",
        "2",
        "--start",
        "1",
    )
    assert len(plain["top_logprobs"][2]) == 2 and plain["score_temperature"] == 2
    assert plain["logprobs"][1] is None and plain["logprobs"][2] is not None
    assert (
        len(own["top_logprobs"][3]) == 1
        and own["score_temperature"] == 3
        and own["logprobs"][2] is None
    )


def test_fields_of_the_wire_have_the_same_meaning():
    ours = {**GOOD, "top": 3, "start": 1, "score_temperature": 2.0}
    wire = {
        **GOOD,
        "prompt_logprobs": 3,
        "prompt_logprob_start": 1,
        "prompt_logprobs_temperature": 2,
    }
    first, second = answers("score", [ours, wire])
    assert first == second
    nulls = {
        **GOOD,
        "prompt_logprobs": None,
        "score_temperature": None,
        "start": None,
        "token_ids": None,
        "logit_bias": None,
        "seed": None,
        "logprobs_mode": None,
        "add_special_tokens": None,
    }
    assert answers("score", [nulls]) == answers("score", [GOOD])


def test_fields_of_sampling_have_no_effect():
    more = {
        "temperature": 0,
        "top_p": 0.1,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 18446744073709551615,
        "n": 1,
        "max_tokens": 1,
        "stop": ["x"],
        "ignore_eos": True,
        "repetition_penalty": 2.0,
        "stream": False,
    }
    assert answers("score", [{**GOOD, **more}]) == answers("score", [GOOD])


@pytest.mark.parametrize(
    "field",
    [
        "logit_bias",
        "bad_words",
        "allowed_token_ids",
        "logprobs",
        "echo",
        "messages",
        "sampling_params",
        "truncate_prompt_tokens",
        "model",
    ],
)
def test_C022_a_field_that_could_change_a_number_is_refused_by_name(field):
    refusal = error("score", {**GOOD, field: [1]})
    assert refusal["param"] == field and refusal["code"] == 400


@pytest.mark.parametrize(
    "field, nearest",
    [
        ("promt", "prompt"),
        ("prompt_logprob", "prompt_logprobs"),
        ("scoretemperature", "score_temperature"),
        ("zzzzzzz", ""),
    ],
)
def test_unknown_fields_suggest_the_nearest(field, nearest):
    refusal = error("score", {**GOOD, field: 1})
    assert refusal["param"] == field and (f'"{nearest}"' in refusal["message"]) == bool(nearest)


@pytest.mark.parametrize(
    "field, value",
    [
        ("start", -1),
        ("start", 1.5),
        ("start", "1"),
        ("start", True),
        ("top", -2),
        ("top", 2**31),
        ("top", "3"),
        ("score_temperature", 0),
        ("score_temperature", -1),
        ("score_temperature", "1"),
        ("score_temperature", 1e-60),
        ("score_temperature", 1e60),
        ("entropy", 1),
        ("logprobs_mode", "cooked"),
        ("logprobs_mode", 1),
        ("condition", "eos"),
        ("add_special_tokens", 1),
        ("prompt", 5),
        ("prompt", {"a": 1}),
        ("temperature", "1"),
        ("temperature", -1),
        ("max_tokens", -1),
        ("top_p", 2),
        ("ignore_eos", 0),
        ("id", 1.5),
        ("id", [1]),
        ("id", "a\0b"),
    ],
)
def test_C057_fields_are_checked_for_type_and_range(field, value):
    refusal = error("score", {**GOOD, field: value})
    assert refusal["param"] == field and refusal["code"] == 400 and refusal["message"]


@pytest.mark.parametrize(
    "extra",
    [
        {"token_ids": [1]},
        {"start": 1, "prompt_logprob_start": 1},
        {"top": 1, "prompt_logprobs": 1},
        {"condition": "bos", "add_special_tokens": True},
    ],
)
def test_two_names_of_one_thing_are_refused(extra):
    assert "not both" in error("score", {**GOOD, **extra})["message"]


def test_neither_prompt_nor_ids():
    assert error("score", {"id": "good"})["param"] == "prompt"


@pytest.mark.parametrize(
    "ids, place",
    [
        ("[301]", "[0]"),
        ("[1,301]", "[1]"),
        ("[2147483648]", "[0]"),
        ("[1,9223372036854775808]", "[1]"),
        ("[1,2,99999999999999999999999]", "[2]"),
        ("[1.5]", "[0]"),
        ('["a"]', "[0]"),
        ("[true]", "[0]"),
        ("[null]", "[0]"),
        ("[-1]", "[0]"),
        ("[]", ""),
        ("[[]]", "[0]"),
        ("[1,[2]]", "[1]"),
        ("5", ""),
        ('"1 2"', ""),
        ("{}", ""),
    ],
)
def test_C177_the_first_bad_element_is_named(ids, place):
    refusal = error("score", '{"id":"good","token_ids":%s}' % ids)
    assert refusal["param"] == "token_ids" + place and refusal["code"] == 400


def test_an_integer_beyond_64_bits_elsewhere_does_not_soften_the_checks():
    seed = '"seed":18446744073709551615'
    assert answers("score", ['{"id":"x","token_ids":[1,2],%s}' % seed])[0]["id"] == "x"
    for ids in ('["a"]', "[1.5]", "[true]", "[null]", "[[]]"):
        assert (
            error("score", '{"id":"good",%s,"token_ids":%s}' % (seed, ids))["param"]
            == "token_ids[0]"
        )


def test_C177_the_last_id_of_the_vocabulary_is_good():
    assert answers("score", [{"token_ids": [300]}])[0]["n_tokens"] == 1


@pytest.mark.parametrize("depth", [100, 3000, 100_000])
@pytest.mark.parametrize("field", ["id", "prompt", "token_ids", "stop", "zzz"])
def test_C181_deep_nesting(depth, field):
    refusal = (
        error("score", '{"%s":%s%s}' % (field, "[" * depth, "]" * depth))
        if field != "stop"
        else None
    )
    if field == "stop" and depth > 2048:
        refusal = error("score", '{"prompt":"x","stop":%s%s}' % ("[" * depth, "]" * depth))
    assert refusal is None or refusal["code"] == 400


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud83d"',
        '"\\ude00"',
        '"\\ud83d\\ud83d"',
        b'"\xff\xfe"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        '"\\u00"',
        '"\x01"',
        '"unended',
    ],
)
def test_C182_texts_that_are_not_unicode(text):
    raw = text if isinstance(text, bytes) else text.encode()
    refusal = error("score", b'{"prompt":' + raw + b"}")
    assert (
        refusal["param"] == "line 2"
        and "JSON" in refusal["message"]
        and "byte " in refusal["message"]
    )


def test_C182_nul_is_a_byte():
    answer = answers("tokenize", ['{"prompt":"a\\u0000b"}'])[0]
    assert sum(answer["bytes"], []) == [97, 0, 98]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{",
        "[1]",
        "1",
        "null",
        '"x"',
        '{"prompt":"a","prompt":"b"}',
        '{"prompt":"a"} x',
        '{"prompt":"a",}',
        "{'prompt':'a'}",
        '{"prompt":NaN}',
        '{"score_temperature":1e999,"prompt":"a"}',
        "\ufeff{}",
    ],
)
def test_lines_that_are_no_request(line):
    assert error("score", line)["code"] == 400


def test_C096_minus_infinity_is_written_as_a_number():
    line = answers("gather", [{"token_ids": [1, 2, 3], "prompt_logprob_token_ids": [[1], [2, 3]]}])[
        0
    ]
    assert line["scores"][0][1] == -9999.0


def test_C019_lengths_are_those_of_each_request():
    lengths = [1, 3, 17, 2, 9, 30]
    lines = answers("score", [{"token_ids": [(7 * i) % 300 for i in range(n)]} for n in lengths])
    assert [len(line["logprobs"]) for line in lines] == lengths
    assert [line["n_scored"] for line in lines] == [n - 1 for n in lengths]


def test_many_requests_come_in_order_over_several_batches():
    requests = [{"id": i, "token_ids": [i % 300, 5, (3 * i) % 300]} for i in range(700)]
    lines = answers("score", requests)
    assert [line["id"] for line in lines] == list(range(700))
    assert lines[0]["logprobs"] == lines[300]["logprobs"]


def test_a_program_that_waits_for_its_answer_gets_it():
    command = [NEPIT, "score", "--jsonl", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        for i in range(5):
            process.stdin.write(b'{"id":%d,"token_ids":[1,2,%d]}\n' % (i, i))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == i
        process.stdin.close()
        assert process.wait(10) == 0


def test_C099_nothing_but_what_was_asked():
    assert "top_logprobs" not in answers("score", [GOOD])[0]


def test_an_error_of_one_request_with_json_stands_in_its_place():
    assert "error" in nepit("score", "--json", "--ids", "999", status=1).json
    assert "token_ids[0]" in refused("score", "--ids", "999", status=1)


def mutate(rng, line):
    line = bytearray(line)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(line))
        kind = rng.randrange(4)
        if kind == 0:
            line[at] = rng.randrange(256)
        elif kind == 1:
            del line[at : at + rng.randrange(1, 9)]
        elif kind == 2:
            line[at:at] = line[rng.randrange(len(line)) :][:20]
        else:
            line[at:at] = rng.choice(
                [b"-1", b"1e400", b"9" * 30, b"[", b"{", b'"', b"null", b"\\u0000"]
            )
        line = line or bytearray(b"x")
    line = bytes(line).replace(b"\n", b"x")
    return line if line.strip(b" \t\r") else b"x"


@pytest.mark.parametrize("word", ["score", "next", "gather", "tokenize"])
def test_C182_mutated_lines_get_an_answer_or_an_error_each(word):
    """NEPIT_MUTATIONS: how many lines."""
    fields = {"gather": {"candidates": [[1, 2], [3], [], [4]], "start": 0, "tail": True}}
    good = json.dumps({"id": "ab", "token_ids": IDS, **fields.get(word, {})}).encode()
    rng = random.Random(word)
    count = int(os.environ.get("NEPIT_MUTATIONS", "2000"))
    lines = [mutate(rng, good) for _ in range(count)]
    assert all(
        "id" in line
        for line in answers(word, lines, "--top=2" if word == "score" else "--json", status=1)
    )


@pytest.mark.parametrize("word", ["score", "next"])
def test_raw_logits_are_not_scaled_to_bits(word):
    line = {"id": "good", "prompt": "hello", "logprobs_mode": "raw_logits"}
    refusal = error(word, line, "--unit", "bits")
    assert refusal["param"] == "logprobs_mode" and refusal["code"] == 400


def test_next_of_no_token_is_refused():
    refusal = error("next", {"id": "good", "prompt": "hello", "top": 0})
    assert refusal["param"] == "top" and "-1 for the whole" in refusal["message"]


@pytest.mark.parametrize(
    "fields, param",
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 999]}, "prompt[1]"),
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [1, 999]}, "token_ids[1]"),
    ],
)
def test_an_error_names_the_input_as_it_was_given(fields, param):
    refusal = error("score", {"id": "good", **fields})
    assert refusal["param"] == param and refusal["code"] == 400


def test_an_empty_text_is_named_on_the_command_line():
    assert "(prompt)" in refused("score", "", status=1)
    assert "(token_ids)" in refused("score", "--ids", "", status=1)


def test_a_temperature_under_which_logits_overflow_is_named():
    refusal = error("score", {"id": "good", "prompt": "hello", "score_temperature": 1e-44})
    assert refusal["code"] == 400 and "divided by the score temperature" in refusal["message"]
