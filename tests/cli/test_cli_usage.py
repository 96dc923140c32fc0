"""The command line itself: help, options, wrong options, exit statuses, messages."""

import re

import pytest
from clirun import LLAMA, MODELS, ROOT, NO_TOKENIZER, nepit, refused

COMMANDS = ["tokenize", "score", "next", "gather", "generate", "perplexity", "info"]


def test_alone_prints_the_commands():
    done = nepit()
    assert all(f"\n  {word} " in done.text for word in COMMANDS)
    assert nepit("--help").out == done.out == nepit("help").out


def test_version():
    assert re.fullmatch(r"nepit \d+\.\d+\.\d+ \(numerics \d+\)\n", nepit("--version").text)


@pytest.mark.parametrize("word", COMMANDS)
def test_help_fits_80_columns_and_has_an_example(word):
    done = nepit(word, "--help")
    assert nepit("help", word).out == done.out
    assert all(len(line) <= 80 for line in done.text.splitlines())
    assert f"Example:\n  nepit {word}" in done.text
    assert "  export NEPIT_MODEL=models/" in done.text


@pytest.mark.parametrize("word", COMMANDS)
def test_the_example_of_the_help_is_understood(word):
    """Ids of the example belong to the demo model: another one may refuse their range."""
    import shlex

    example = nepit(word, "--help").text.split("Example:\n")[1]
    arguments = shlex.split(example.replace("\\\n", " "))[1:]
    assert nepit(*arguments, status=None).status in (0, 1)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["scroe"], "did you mean score?"),
        (["frobnicate"], "nepit alone lists them"),
        (["score", "--tpo", "3", "x"], "did you mean --top?"),
        (["score", "--entorpy", "x"], "did you mean --entropy?"),
        (["score", "--no-add-special-token", "x"], "did you mean --no-add-special-tokens?"),
        (["score", "-z", "x"], "unknown option"),
        (["score", "-5"], "-- stands before a text that begins with -"),
        (["score", "--tail", "x"], "belongs to another command"),
        (["score", "--top", "x", "y"], "a whole number is expected: x (--top)"),
        (["score", "--top", "1.5", "y"], "a whole number is expected"),
        (["score", "--top", "", "y"], "a whole number is expected"),
        (["score", "--top", " 1", "y"], "a whole number is expected"),
        (["score", "--top", "99999999999999999999", "y"], "a whole number is expected"),
        (["score", "--top", "-2", "y"], "must be at least -1: "),
        (["score", "--start", "-1", "y"], "must be at least 0: "),
        (["score", "--lowest", "0", "y"], "must be at least 1: "),
        (["score", "--threads=0", "y"], "must lie between 1 and"),
        (["score", "--context", "0", "y"], "must be at least 1: "),
        (["score", "--max-memory", "1X", "y"], "a size such as"),
        (["score", "--max-memory", "-1", "y"], "a size such as"),
        (["score", "--max-memory", "1e300", "y"], "a size such as"),
        (["score", "--json=1", "x"], "takes no value"),
        (["score", "-m"], "a value is missing"),
        (["score", "--profile", "f16", "x"], "one of these is expected: f32, bf16, int16: f16"),
        (["score", "--cpu", "sse9", "x"], "sse9 (--cpu)"),
        (["score", "--condition", "eos", "x"], "one of these is expected: bos, none"),
        (["score", "--unit", "bans", "x"], "one of these is expected: nats, bits"),
        (["score", "--condition", "bos", "--add-special-tokens", "x"], "not both (--condition)"),
        (["score", "--unit", "bits", "--logprobs-mode", "raw_logits", "x"], "not with raw logits"),
        (["next", "--logprobs-mode=processed_logits", "--unit=bits", "x"], "not with raw logits"),
        (["next", "--top", "0", "x"], "must be at least 1, or -1 for the whole vocabulary (--top)"),
        (["score"], "no text"),
        (["score", "a", "b"], "one text is expected"),
        (["score", "a", "-f", "b"], "one input only"),
        (["score", "-f", "/nonexistent"], "(/nonexistent)"),
        (["score", "--jsonl", "/nonexistent"], "(/nonexistent)"),
        (["gather"], "nothing to score"),
        (["gather", "--prompt", "x", "--candidates", "1"], "go together"),
        (["gather", "--response", "x", "--candidates", "1"], "go together"),
        (["gather", "--ids", "1 2", "--candidates", "@/nonexistent"], "(/nonexistent)"),
        (["gather", "--ids", "1 2", "--candidates", "1", "--resume"], "-o OUT.npz"),
        (["gather", "--jsonl", "-", "--candidates", "1", "-o", "x.npy"], "one request"),
        (["gather", "--candidates=1", "x", "-o", "x.npy", "--tail"], "OUT.npz (--tail)"),
        (["score", "-o", "x.npz", "x"], "this command writes text"),
        (["info", "-ox.npy"], "this command writes text"),
        (["info", "text"], "takes no text"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(arguments, expected):
    assert expected in refused(*arguments)


@pytest.mark.parametrize("temperature", ["0", "-1", "nan", "inf", "1e999", "0x1", "x", ""])
def test_C057_score_temperature(temperature):
    assert "above 0" in refused("score", "--score-temperature", temperature, "x")


def test_C144_an_unknown_flag_ends_at_once_with_the_nearest():
    assert "--context" in refused("score", "--contxt", "5", "x")


def test_no_model_is_named():
    assert "NEPIT_MODEL" in refused("score", "x", NEPIT_MODEL="")


@pytest.mark.parametrize("path", ["/nonexistent", str(MODELS), "/dev/null", str(LLAMA) + "/x"])
def test_a_model_that_does_not_open_is_status_3(path):
    assert path in refused("score", "-m", path, "x", status=3)


def test_a_name_is_found_in_the_local_cache(tmp_path):
    cache = tmp_path / "hub" / "models--some--model"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("0123abcd\n")
    (cache / "snapshots").mkdir()
    (cache / "snapshots" / "0123abcd").symlink_to(MODELS / "llama-tied-f32")
    info = nepit("info", "-m", "some/model", "--json", HF_HOME=str(tmp_path)).json
    assert info["model"].endswith("/snapshots/0123abcd")
    for name in ("some/other", "../some/model", "some/model/x"):
        assert name in refused("info", "-m", name, status=3, HF_HOME=str(tmp_path))
    line = refused("info", "-m", "some/other", status=3, HF_HOME=str(tmp_path))
    assert f"Hugging Face cache, searched at {tmp_path}/hub" in line


def test_an_unknown_cpu_level_is_the_same_error_from_the_environment():
    assert "sse9 (NEPIT_CPU)" in refused("score", "x", NEPIT_CPU="sse9")


def test_max_memory_is_refused_up_front_with_both_numbers():
    line = refused("score", "--max-memory", "1K", "x", status=3)
    assert "1024" in line and re.search(r"\d{5,}", line)


def test_options_take_values_in_every_form():
    plain = nepit("score", "hello", "--json", "--top", "2").out
    for arguments in (["--top=2"], ["--top", "2"]):
        assert nepit("score", *arguments, "--json", "hello").out == plain
    for arguments in (["-m", LLAMA], [f"-m{LLAMA}"], ["--model", LLAMA], [f"--model={LLAMA}"]):
        assert (
            nepit("score", *arguments, "--json", "--top=2", "hello", NEPIT_MODEL="/x").out == plain
        )
    assert nepit("score", "--json", "--top=3", "--top=2", "hello").out == plain


def test_two_dashes_end_the_options():
    assert nepit("tokenize", "--json", "--", "--json").json["n_tokens"] > 0
    assert refused("tokenize", "--", "--json", "x")


def test_a_hostile_argument_stays_on_one_line():
    done = nepit("score", "--top", "a\n\x1b[31mb", "x", status=2)
    assert done.err.count(b"\n") == 1 and b"\x1b" not in done.err


@pytest.mark.parametrize(
    "ids, place",
    [
        ("1,2,,3", "[2], byte 4"),
        (",1", "[0], byte 0"),
        ("1, 2,", "[2], byte 5"),
        (" , ", "[0], byte 1"),
    ],
)
def test_a_comma_without_an_id_is_named(ids, place):
    assert f"(token_ids{place})" in refused("score", "--ids", ids, status=1)
    assert f"(candidates{place})" in refused("gather", "x", "--candidates", ids)


def test_ids_stand_between_spaces_and_commas():
    plain = nepit("score", "--json", "--ids", "1 2 3").out
    for ids in ("1,2,3", "1, 2 ,3", " 1\n2\t3\n"):
        assert nepit("score", "--json", "--ids", ids).out == plain


def test_text_from_a_file_and_from_standard_input(tmp_path):
    plain = nepit("score", "--json", "hello there").out
    path = tmp_path / "text"
    path.write_bytes(b"hello there")
    assert nepit("score", "--json", "-f", path).out == plain
    assert nepit("score", "--json", "--file=-", text=b"hello there").out == plain


def test_a_model_without_tokenizer_scores_ids_and_refuses_texts():
    answer = nepit("score", "--ids", "1 2 3", "--json", "-m", NO_TOKENIZER).json
    assert answer["tokens"] == [None] * 3 and answer["n_bytes"] is None
    assert answer["bits_per_byte"] is None and answer["total"] < 0
    assert "no tokenizer" in refused("score", "abc", "-m", NO_TOKENIZER, status=1)
    assert "no tokenizer" in refused("tokenize", "abc", "-m", NO_TOKENIZER, status=1)


def test_info_names_what_the_file_holds():
    info = nepit("info", "--json").json
    assert info["architecture"] == "llama" and info["n_vocab"] == 301 and info["profile"] == "f32"
    assert info["kv_bytes"] == info["n_context"] * info["kv_bytes_per_token"]
    assert nepit("info", "--json", "--context", "10").json["n_context"] == 10
    table = nepit("info").text
    assert "architecture          llama\n" in table
    assert all(len(line) <= 80 for line in table.splitlines() if not line.startswith("model "))


def test_info_names_the_profile_and_what_it_does_to_the_weights():
    wide = nepit("info", "--json").json
    narrow = nepit("info", "--json", "--profile", "bf16").json
    assert (wide["profile"], wide["weights_rounded"]) == ("f32", False)
    assert (narrow["profile"], narrow["weights_rounded"]) == ("bf16", True)
    assert narrow["weight_types"] == wide["weight_types"]  # as stored
    assert 0.5 < narrow["weight_bytes"] / wide["weight_bytes"] < 0.55
    table = nepit("info", "--profile", "bf16").text
    assert "profile               bf16\nrounded to bf16       yes\n" in table
    assert "rounded to bf16       no\n" in nepit("info").text
    bf16 = nepit("info", "--json", "--profile", "bf16", "-m", NO_TOKENIZER).json
    assert bf16["weight_types"].startswith("BF16") and not bf16["weights_rounded"]


def test_quantised_weights_stay_as_wide_as_in_the_file():
    path = MODELS / "llama-mixed.gguf"
    info = nepit("info", "--json", "--profile", "int16", "-m", path).json
    assert (info["profile"], info["weights_rounded"]) == ("int16", False)
    assert info["weight_bytes"] < 1.4 * path.stat().st_size  # 96 rows are padded to 128


@pytest.mark.parametrize(
    "profile, model, why",
    [
        ("int16", LLAMA, "this file has none (use f32 or bf16) (profile)"),
        ("bf16", MODELS / "llama-mixed.gguf", "(use f32 or int16) (profile)"),
    ],
)
def test_a_profile_that_is_not_for_the_file_is_refused(profile, model, why):
    for command in (["info"], ["score", "--ids", "1 2"], ["tokenize", "--ids", "1 2"]):
        assert why in refused(*command, "--profile", profile, "-m", model, status=3)


def test_timing_is_one_json_line_on_standard_error():
    import json

    done = nepit("score", "--ids", "1 2 3", "--timing")
    timing = json.loads(done.err)["timing"]
    assert list(timing) == ["load_s", "compute_s", "n_tokens", "n_rows", "tokens_per_s"]
    assert timing["n_tokens"] == 3 and timing["n_rows"] == 2


def test_threads_and_chunks_do_not_change_a_byte():
    plain = nepit("score", "--json", "--top", "3", "--entropy", "hello there, world").out
    for threads in ("1", "2", "3"):
        for chunk in ("1", "3", "512"):
            more = {"NEPIT_CHUNK_ROWS": chunk, "NEPIT_OVERSUBSCRIBE": "1"}
            assert (
                nepit(
                    "score",
                    "--json",
                    "--top",
                    "3",
                    "--entropy",
                    "--threads",
                    threads,
                    "hello there, world",
                    **more,
                ).out
                == plain
            )


def test_the_docs_name_every_option():
    page = (ROOT / "docs" / "COMMANDS.md").read_text()
    options = {
        name for word in COMMANDS for name in re.findall(r"--[a-z-]+", nepit(word, "--help").text)
    }
    missing = {name for name in options - {"--help"} if name not in page}
    assert not missing
