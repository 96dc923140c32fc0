"""nepit generate: streams, objects, arrays; and that a teacher gives a student's own numbers."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from clirun import DEMO, LLAMA, NEPIT, NO_TOKENIZER, answers, environment, nepit, refused
from test_cli_terminal import on_terminal

TEXT = "hello there, world"


def one(*arguments, **options):
    return nepit("generate", "--json", *arguments, **options).json


def many(*arguments):
    return nepit("generate", "--json", *arguments).lines


def ids(numbers):
    return " ".join(map(str, numbers))


def decoded(token_ids):
    return nepit("tokenize", "--decode", ids(token_ids)).out if token_ids else b""


# ---- text and objects ---------------------------------------------------------------------------


def test_a_stream_is_the_text_of_the_object():
    for seed in range(8):
        arguments = [TEXT, "--seed", seed, "--max-tokens", 40, "--no-skip-special-tokens"]
        answer = one(*arguments)
        stream = nepit("generate", *arguments).out
        assert stream == decoded(answer["token_ids"]) + b"\n"
        assert answer["text"] == stream[:-1].decode(errors="replace")
        assert answer["n_generated"] == len(answer["token_ids"]) == len(answer["logprobs"])
        assert answer["seed"] == seed and answer["n_tokens"] == len(answer["prompt_token_ids"])


def test_the_fields_of_an_object():
    answer = one(TEXT, "--max-tokens", 2, "--top", 3, "--temperature", 0)
    assert list(answer) == (
        "index text token_ids tokens logprobs ranks top_logprobs finish_reason stop_reason "
        "n_generated n_tokens prompt_token_ids seed logprobs_mode model profile numerics"
    ).split()
    assert answer["ranks"] == [1, 1]
    for token, value, top in zip(
        answer["token_ids"], answer["logprobs"], answer["top_logprobs"], strict=True
    ):
        assert [entry["rank"] for entry in top] == [1, 2, 3]
        assert top[0]["token_id"] == token and top[0]["logprob"] == value
    assert answer["finish_reason"] == "length" and answer["stop_reason"] is None


def test_a_seed_that_was_drawn_is_named():
    first, second = one(TEXT), one(TEXT)
    assert first["seed"] != second["seed"] and first["token_ids"] != second["token_ids"]
    assert one(TEXT, "--seed", first["seed"]) == first


def test_threads_chunks_and_files_change_nothing(tmp_path):
    arguments = ["--seed", 7, "--top", 4, "--max-tokens", 70]
    plain = nepit("generate", "--json", TEXT, *arguments).out
    for chunk in ("1", "7"):
        more = {"NEPIT_CHUNK_ROWS": chunk, "NEPIT_OVERSUBSCRIBE": "1"}
        assert nepit("generate", "--json", TEXT, *arguments, "--threads", 3, **more).out == plain
    path = tmp_path / "text"
    path.write_text(TEXT)
    assert nepit("generate", "--json", "-f", path, *arguments).out == plain
    prompt = json.loads(plain)["prompt_token_ids"]
    assert nepit("generate", "--json", "--ids", ids(prompt), *arguments).out == plain
    nepit("generate", TEXT, *arguments, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == nepit("generate", TEXT, *arguments).out


def test_choices():
    three = many(TEXT, "--seed", 2, "--n", 3, "--max-tokens", 12)
    five = many(TEXT, "--seed", 2, "--n", 5, "--max-tokens", 12)
    assert [answer["index"] for answer in five] == [0, 1, 2, 3, 4]
    assert five[:3] == three
    assert len({tuple(answer["token_ids"]) for answer in five}) == 5
    stream = nepit("generate", TEXT, "--seed", 2, "--n", 3, "--max-tokens", 12).out
    parts = [b"choice %d:\n%s\n" % (i, decoded(three[i]["token_ids"])) for i in range(3)]
    assert stream == b"\n".join(parts)


def test_the_table_fits_80_columns():
    done = nepit("generate", TEXT, "--top", 3, "--max-tokens", 30, "--temperature", 0)
    answer = one(TEXT, "--top", 3, "--max-tokens", 30, "--temperature", 0)
    table = done.out[len(decoded(answer["token_ids"])) + 1 :].decode()
    assert all(len(line) <= 80 for line in table.splitlines())
    assert table.split()[:4] == ["pos", "token", "logprob", "rank"]
    for value in answer["logprobs"]:
        assert f"{value:10.4f}" in table
    assert "finish                length\nseed                    none\n" in table
    assert "prompt       " in table and "generated                 30 tokens\n" in table
    bare = nepit("generate", TEXT, "--top", 0, "--max-tokens", 4, "--temperature", 0).text
    assert len(bare.splitlines()) - answer["text"].count("\n") < 20


def test_the_tables_of_choices_are_labelled():
    done = nepit("generate", TEXT, "--n", 2, "--top", 1, "--seed", 3, "--max-tokens", 3)
    for i in range(2):
        assert done.out.count(b"\nchoice %d:\n   pos  token" % i) == 1
    assert b"seed                       3\n" in done.out
    one_table = nepit("generate", TEXT, "--top", 1, "--seed", 3, "--max-tokens", 3).out
    assert b"choice" not in one_table


def test_greedy_answers_are_the_same_every_run():
    arguments = ["generate", TEXT, "--max-tokens", 3, "--temperature", 0]
    assert nepit(*arguments, "--json").json["seed"] is None
    assert nepit(*arguments, "--json").out == nepit(*arguments, "--json").out
    assert nepit(*arguments, "--top", 1).out == nepit(*arguments, "--top", 1).out
    assert nepit(*arguments, "--json", "--seed", 5).json["seed"] == 5
    (line,) = answers("generate", [{"prompt": TEXT, "temperature": 0, "max_tokens": 3}])
    assert line["seed"] is None


def test_no_tokenizer_gives_ids():
    arguments = ["--ids", "1 2 3", "-m", NO_TOKENIZER, "--seed", 1, "--max-tokens", 5]
    answer = one(*arguments)
    assert answer["text"] is None and answer["tokens"] == [None] * 5
    assert nepit("generate", *arguments).text.split() == list(map(str, answer["token_ids"]))
    assert "no tokenizer" in nepit("generate", *arguments, "--stop", "a", status=1).error


# ---- where it ends ------------------------------------------------------------------------------


def test_stops():
    base = one(TEXT, "--seed", 3, "--max-tokens", 60, "--ignore-eos")
    text = base["text"]
    stop = next(
        text[i : i + 3] for i in range(20, 150) if text[i : i + 3].isascii() and text[i:].strip()
    )
    at = text.index(stop)
    got = one(TEXT, "--seed", 3, "--ignore-eos", "--stop", "absent", "--stop", stop)
    assert got["text"] == text[:at]
    assert (got["finish_reason"], got["stop_reason"]) == ("stop", stop)
    assert got["token_ids"] == base["token_ids"][: got["n_generated"]]
    kept = one(
        TEXT, "--seed", 3, "--ignore-eos", "--stop", stop, "--include-stop-str-in-output"
    )
    assert kept["text"] == text[: at + 3]
    stream = nepit("generate", TEXT, "--seed", 3, "--ignore-eos", "--stop", stop).out
    assert stream.decode(errors="replace") == text[:at] + "\n"


def test_ids_that_end_it():
    base = one(TEXT, "--seed", 3, "--max-tokens", 30, "--ignore-eos")
    last = base["token_ids"][10]
    first = base["token_ids"].index(last)
    got = one(TEXT, "--seed", 3, "--ignore-eos", "--stop-token-ids", f"299,{last}")
    assert got["n_generated"] == first + 1 and got["stop_reason"] == last
    eos = json.loads(nepit("info", "--json").out)["eos_id"]
    at_once = one(TEXT, "--logit-bias", f"{eos}:100")
    assert (at_once["token_ids"], at_once["text"]) == ([eos], "")
    assert (at_once["finish_reason"], at_once["stop_reason"]) == ("stop", None)
    assert nepit("generate", TEXT, "--logit-bias", f"{eos}:100").out == b"\n"
    later = one(TEXT, "--logit-bias", f"{eos}:100", "--min-tokens", 4)
    assert later["n_generated"] == 5 and later["token_ids"].count(eos) == 1
    ignored = one(TEXT, "--logit-bias", f"{eos}:100", "--ignore-eos", "--max-tokens", 6)
    assert ignored["token_ids"] == [eos] * 6 and ignored["finish_reason"] == "length"


def test_to_the_end_of_the_context():
    got = one("--ids", ids(range(30)), "--context", 40, "--max-tokens", -1, "--ignore-eos")
    assert got["n_generated"] == 10 and got["finish_reason"] == "length"
    error = nepit("generate", "--ids", ids(range(30)), "--context", 40, status=1).error
    assert "at most 10 can follow: 128 (--max-tokens)" in error
    assert one(TEXT, "--ignore-eos")["n_generated"] == 128


def test_masks_and_penalties():
    plain = one(TEXT, "--temperature", 0, "--max-tokens", 30)
    only = one(TEXT, "--allowed-token-ids", "40 41", "--max-tokens", 30)
    assert set(only["token_ids"]) <= {40, 41}
    for penalty in ("presence", "frequency", "repetition"):
        more = [f"--{penalty}-penalty", 1.9]
        changed = one(TEXT, "--temperature", 0, "--max-tokens", 30, *more)
        assert changed["token_ids"] != plain["token_ids"]
    word = plain["tokens"][3]
    without = one(TEXT, "--temperature", 0, "--max-tokens", 30, "--bad-words", word)
    assert word.strip() not in without["tokens"]
    for narrow in (["--top-k", 1], ["--top-p", 1e-9], ["--min-p", 1]):
        assert one(TEXT, "--max-tokens", 30, *narrow)["token_ids"] == plain["token_ids"]
    both = ["generate", TEXT, "--allowed-token-ids", 7, "--stop-token-ids", 7]
    assert nepit(*both).out == b"\n"
    failed = nepit(*both, "--min-tokens", 2, status=1)
    assert failed.out == b"" and "no token is left" in failed.error


# ---- a teacher gives a student's own numbers ----------------------------------------------------


@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits"])
def test_C054_scoring_what_was_generated_gives_its_numbers(mode):
    name = mode.split("_")[1]
    for seed, more in enumerate([[], ["--temperature", 0], ["--top-k", 5, "--min-p", 0.01]]):
        student = one(
            TEXT, "--seed", seed, "--max-tokens", 80, "--top", 4, "--logprobs-mode", mode, *more
        )
        n = student["n_tokens"]
        everything = ids(student["prompt_token_ids"] + student["token_ids"])
        arguments = ["--ids", everything, "--top", 4, "--logprobs-mode", mode]
        teacher = nepit("score", "--json", *arguments).json
        assert teacher[name][n:] == student[name]
        assert teacher["ranks"][n:] == student["ranks"]
        assert teacher["top_" + name][n:] == student["top_" + name]
        assert teacher["logprobs_mode"] == student["logprobs_mode"] == mode


def test_processed_values_are_those_of_the_draw():
    arguments = [TEXT, "--seed", 1, "--max-tokens", 20, "--top", 5, "--top-k", 3]
    answer = one(*arguments, "--logprobs-mode", "processed_logprobs")
    raw = one(*arguments)
    assert answer["logprobs_mode"] == "processed_logprobs"
    assert answer["token_ids"] == raw["token_ids"] and answer["logprobs"] != raw["logprobs"]
    for top in answer["top_logprobs"]:
        assert len(top) == 3
        assert abs(sum(np.exp(entry["logprob"]) for entry in top) - 1) < 1e-6
    logits = one(*arguments, "--logprobs-mode", "processed_logits", "--temperature", 2)
    assert "top_logits" in logits and "logits" in logits and "logprobs" not in logits


def test_gather_takes_the_arrays_as_they_are(tmp_path):
    path, scores = tmp_path / "student.npz", tmp_path / "scores.npy"
    answer = one(TEXT, "--max-tokens", 50, "--seed", 5, "--top", 6, "--arrays", path)
    student = np.load(path)
    n = answer["n_generated"]
    for name, dtype, shape in [
        ("token_ids", np.int32, (n,)),
        ("logprobs", np.float32, (n,)),
        ("top_ids", np.int32, (n, 6)),
        ("top_logprobs", np.float32, (n, 6)),
        ("prompt_token_ids", np.int32, (answer["n_tokens"],)),
    ]:
        assert (student[name].dtype, student[name].shape) == (dtype, shape)
    assert student["token_ids"].tolist() == answer["token_ids"]
    copy = tmp_path / "copy.npz"
    np.savez(copy, **student)
    for file in (path, copy):
        given = ["--prompt", f"@{file}", "--response", f"@{file}", "--candidates", f"@{file}"]
        nepit("gather", "--ids", *given, "-o", scores)
        assert np.load(scores).tobytes() == student["top_logprobs"].tobytes()
    nepit("generate", TEXT, "--max-tokens", 50, "--seed", 5, "--top", 6, "--arrays", copy)
    assert copy.read_bytes() == path.read_bytes()  # the same whether streamed or not


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits"])
def test_arrays_of_logits_have_their_name(tmp_path, mode):
    path, scores = tmp_path / "student.npz", tmp_path / "scores.npy"
    more = ["--logprobs-mode", mode, "--top", 2, "--temperature", 0, "--max-tokens", 5]
    answer = one(TEXT, *more, "--arrays", path)
    student = np.load(path)
    names = "prompt_token_ids token_ids logits top_ids top_logits"
    assert student.files == names.split()
    assert student["logits"].tolist() == [np.float32(value) for value in answer["logits"]]
    given = ["--prompt", f"@{path}", "--response", f"@{path}", "--candidates", f"@{path}"]
    nepit("gather", "--ids", *given, "--logprobs-mode", "raw_logits", "-o", scores)
    if mode == "raw_logits":
        assert np.load(scores).tobytes() == student["top_logits"].tobytes()


def test_a_place_that_cannot_be_written_is_told_first(tmp_path):
    for place in (tmp_path / "no" / "a.npz", tmp_path / "folder.npz"):
        (tmp_path / "folder.npz").mkdir(exist_ok=True)
        more = ["--top", 1, "--arrays", place, "-m", "/nonexistent"]  # not even the model is read
        line = refused("generate", TEXT, *more, status=1)
        assert line.startswith(f"nepit: {place}: ")


def test_arrays_that_fail_at_the_end_leave_the_answer(tmp_path):
    path = tmp_path / "a.npz"
    path.symlink_to("/dev/full")
    arguments = ["generate", TEXT, "--top", 1, "--temperature", 0, "--max-tokens", 3]
    for more in ([], ["--json"]):
        done = nepit(*arguments, *more, "--arrays", path, status=1)
        assert done.out == nepit(*arguments, *more).out
        (line,) = done.error.splitlines()
        assert line.startswith("nepit: generate: cannot be written") and str(path) in line


def test_the_arrays_are_a_whole_text(tmp_path):
    path = tmp_path / "student.npz"
    answer = one(TEXT, "--max-tokens", 5, "--seed", 5, "--top", 1, "--arrays", path)
    everything = answer["prompt_token_ids"] + answer["token_ids"]
    more = ["--max-tokens", 5, "--temperature", 0]
    for command in (["score"], ["next"], ["tokenize"], ["generate", *more]):
        from_file = nepit(*command, "--json", "--ids", f"@{path}").out
        assert from_file == nepit(*command, "--json", "--ids", ids(everything)).out
    assert nepit("tokenize", "--decode", f"@{path}").out == decoded(everything)
    np.savez(path, token_ids=np.array(everything[3:]))
    assert nepit("score", "--json", "--ids", f"@{path}").json["token_ids"] == everything[3:]
    np.savez(path, token_ids=np.arange(4), prompt_token_ids=np.zeros((2, 2), np.int32))
    assert "one list of ids" in refused("score", "--ids", f"@{path}", status=1)


def test_the_name_of_an_array_is_not_a_text(tmp_path):
    for name in ("@o.npz", "@o.npy"):
        for word in ("tokenize", "score", "next", "generate"):
            assert f"add --ids to take ids from a file: {name}" in refused(word, name)
        assert "add --ids" in refused("gather", name, "--candidates", 5)
        both = ["gather", "--candidates", 5, "--prompt", "a", "--response"]
        assert refused(*both, name).endswith(f"{name} (--response)")
        assert refused(*both, "a", "--prompt", name).endswith(f"{name} (--prompt)")
    (tmp_path / "text").write_text("@o.npz")
    nepit("score", "-f", tmp_path / "text")


def test_archives_that_cannot_be_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, top_ids=np.zeros((2, 3), np.int32))
    arguments = ["gather", "--ids", "--prompt", "1", "--response", "2 3", "--candidates"]
    assert "is compressed; numpy.savez" in refused(*arguments, f"@{path}")
    np.savez(path, other=np.zeros(3, np.int32))
    assert 'has no array "top_ids"' in refused(*arguments, f"@{path}")
    np.savez(path, top_ids=np.zeros((2, 3), np.int32))
    whole = path.read_bytes()
    nepit(*arguments, f"@{path}")
    for n in range(2, len(whole), 9):
        path.write_bytes(whole[:n])
        refused(*arguments, f"@{path}")
    end = whole.rindex(b"PK\5\6")
    directory = whole.index(b"PK\1\2")
    for at in [*range(directory, directory + 46), *range(end, len(whole))]:
        for value in (0, 255):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            assert nepit(*arguments, f"@{path}", status=None).status in (0, 2)


# ---- many requests ------------------------------------------------------------------------------


REQUESTS = [
    {"prompt": TEXT, "temperature": 0, "max_tokens": 5},
    {"prompt": TEXT, "seed": 3, "max_tokens": 9, "logprobs": 2, "stop": "e"},
    {"prompt": [5, 6, 7], "seed": 9007199254740993, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    {"token_ids": [5], "seed": 4, "logit_bias": {"50": 3, "51": -100}, "bad_words": ["a", "b"]},
    {"prompt": TEXT, "seed": 5, "stop": ["x", "y"], "stop_token_ids": [9], "min_tokens": 3},
    {"prompt": TEXT, "seed": 6, "presence_penalty": 1, "frequency_penalty": -1, "priority": -3},
    {"prompt": TEXT, "seed": 7, "repetition_penalty": 1.5, "allowed_token_ids": [60, 61, 62]},
    {"prompt": TEXT, "seed": 8, "cache_salt": "s", "skip_reading_prefix_cache": True},
    {"prompt": TEXT, "seed": 8, "detokenize": True, "skip_special_tokens": False, "user": "u"},
]


def test_requests_side_by_side_are_as_alone():
    together = answers("generate", REQUESTS * 3, "--max-tokens", 20)
    for i, request in enumerate(REQUESTS):
        (alone,) = answers("generate", [request], "--max-tokens", 20)
        for k in range(i, len(together), len(REQUESTS)):
            assert {**together[k], "id": 0, "seed": 0} == {**alone, "seed": 0}
    assert together[2]["seed"] == 9007199254740993
    assert together[0]["n_generated"] == 5 and len(together[1]["top_logprobs"][0]) == 2


def test_choices_of_many_requests():
    lines = "".join(
        json.dumps({"id": name, "prompt": TEXT, "n": n, "seed": 1, "max_tokens": 3}) + "\n"
        for name, n in (("a", 2), ("b", 3))
    )
    got = nepit("generate", "--jsonl", "-", text=lines).lines
    assert [(line["id"], line["index"]) for line in got] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2),
    ]  # fmt: skip
    assert got[0]["token_ids"] == got[2]["token_ids"]


@pytest.mark.parametrize(
    "field, value, why",
    [
        ("temperature", 2.5, "a number from 0 to 2"),
        ("temperature", "1", "a number"),
        ("top_p", 0, "above 0"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("top_k", -2, "from -1"),
        ("top_k", 1.5, "an integer"),
        ("min_p", -0.1, "from 0 to 1"),
        ("n", 0, "from 1 to 128"),
        ("n", 129, "from 1 to 128"),
        ("max_tokens", 0, "from 1"),
        ("max_tokens", 100000, "can follow"),
        ("min_tokens", 200, "at most max_tokens"),
        ("seed", -2, "an integer from 0"),
        ("seed", 1.5, "an integer from 0"),
        ("stop", 5, "a text or a list of texts"),
        ("stop", "", "an empty text ends nothing"),
        ("stop", ["a", 5], "must be a text"),
        ("stop_token_ids", [999], "a token id must lie"),
        ("allowed_token_ids", [], "at least one id"),
        ("logit_bias", [1], "an object"),
        ("logit_bias", {"x": 1}, "must be a token id"),
        ("logit_bias", {"": 1}, "must be a token id"),
        ("logit_bias", {"1": "2"}, "a number"),
        ("logit_bias", {"5000": 1}, "a token id must lie"),
        ("bad_words", [""], "the text is empty"),
        ("bad_words", 3, "a list of texts"),
        ("presence_penalty", 3, "from -2 to 2"),
        ("repetition_penalty", 0, "above 0"),
        ("ignore_eos", 1, "true or false"),
        ("cache_salt", "", "not empty"),
        ("logprobs", -2, "from -1"),
        ("logprobs_mode", "raw", "one of"),
        ("start", 3, "belongs to another command"),
        ("candidates", [1], "belongs to another command"),
        ("temprature", 1, 'did you mean "temperature"?'),
        ("echo", True, "not served here"),
        ("messages", [], "not served here"),
    ],
)
def test_C179_a_bad_field_is_named_and_harms_nobody(field, value, why):
    good = {"prompt": TEXT, "temperature": 0, "max_tokens": 4}
    bad = {"id": "bad", "prompt": TEXT, field: value}
    first, failed, last = answers("generate", [good, bad, good], status=1)
    assert why in failed["error"]["message"]
    assert failed["error"]["param"].startswith(field)
    assert failed["id"] == "bad" and failed["error"]["code"] == 400
    assert {**first, "id": 2, "seed": 0} == {**last, "seed": 0}


# ---- wrong use ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["--temperature", "2.1"], "from 0 to 2: 2.1 (--temperature)"),
        (["--temperature", "nan"], "from 0 to 2"),
        (["--top-p", "0"], "above 0, at most 1"),
        (["--top-p", "1.1"], "above 0, at most 1"),
        (["--min-p", "2"], "from 0 to 1"),
        (["--max-tokens", "0"], "at least 1, or -1"),
        (["--seed", "-2"], "must be at least -1: -2 (--seed)"),
        (["--n", "0"], "must lie between 1 and 128"),
        (["--presence-penalty", "3"], "from -2 to 2"),
        (["--repetition-penalty", "0"], "above 0"),
        (["--stop", ""], "an empty text ends nothing (--stop)"),
        (["--stop=a"] * 65, "at most 64 may be given"),
        (["--stop-token-ids", "x"], "a token id is a whole number"),
        (["--allowed-token-ids", ""], "at least one token id"),
        (["--logit-bias", "5"], "a token id, a colon and a number"),
        (["--logit-bias", "5:1,"], "a token id, a colon and a number"),
        (["--arrays", "a.npz"], "give --top K with it"),
        (["--arrays", "a.npz", "--top", "2", "--n", "2"], "one text of one request"),
        (["--arrays", "a.npy", "--top", "2"], ".npz is expected"),
        (["--chat"], "unknown option"),
        (["--start", "1"], "belongs to another command"),
        (["--logprobs-mode", "raw"], "one of these is expected"),
    ],
)
def test_wrong_use(arguments, why):
    assert why in refused("generate", TEXT, *arguments)


def test_errors_of_the_request_name_its_field():
    assert "(--stop-token-ids[0])" in refused("generate", TEXT, "--stop-token-ids", 999, status=1)
    assert "(token_ids)" in refused("generate", "--ids", "", status=1)


# ---- ends ---------------------------------------------------------------------------------------


def test_a_terminal_gets_no_control_bytes():
    """Ids 2 to 33 and others of this vocabulary are control bytes."""
    plain, seen = b"", b""
    for seed in range(6):
        arguments = ["generate", TEXT, "--seed", seed, "--max-tokens", 60, "--ignore-eos"]
        plain += nepit(*arguments).out
        seen += on_terminal(arguments, NO_COLOR="1")[0]
    control = [byte for byte in plain if byte < 32 and byte not in b"\n\t"]
    assert control
    assert not [byte for byte in seen if byte < 32 and byte not in b"\r\n\t"]
    seen.decode()  # broken bytes are shown too


@pytest.mark.skipif(not DEMO.exists(), reason="the demo model is not there; ./run demo gets it")
def test_ctrl_c_keeps_what_was_written(tmp_path):
    process = subprocess.Popen(
        [NEPIT, "generate", "Once upon a time", "--max-tokens", "2000", "--ignore-eos"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(NEPIT_MODEL=str(DEMO)),
    )
    first = os.read(process.stdout.fileno(), 4096)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=30)
    assert time.monotonic() - began < 1
    assert process.returncode == 128 + signal.SIGINT and error == b""
    assert (first + rest).decode().strip() and (first + rest).endswith(b"\n")


def test_a_reader_that_leaves_ends_it_quietly():
    command = f"{NEPIT} generate hello --max-tokens 500 --ignore-eos -m {LLAMA} | head -c 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True)
    assert done.stderr == b"" and done.returncode == 0


def test_timing_counts_what_was_generated():
    done = nepit("generate", "--ids", "1 2 3", "--max-tokens", 7, "--ignore-eos", "--timing")
    timing = json.loads(done.err)["timing"]
    assert (timing["n_tokens"], timing["n_rows"]) == (10, 7)
