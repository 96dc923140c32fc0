"""Cases from docs/CASES.md that are seen through the command."""

import json
import re
import shutil
import subprocess
import time

import numpy as np
import pytest
from clirun import DEMO, LLAMA, MODELS, NEPIT, answers, environment, nepit, refused

GPT2 = MODELS / "gpt2-plain.gguf"
ROPE = MODELS / "qwen2-tied-f32"
FAMILIES = [LLAMA, ROPE, GPT2]


def as_ids(numbers):
    return " ".join(map(str, numbers))


def ids_of(text, *arguments):
    return nepit("tokenize", "--json", *arguments, "--", text).json["token_ids"]


def with_special(folder, **settings):
    """The tiny llama with other special tokens than the file has: bos or eos added."""
    raw = LLAMA.read_bytes()
    for name in settings:
        key = b"tokenizer.ggml.add_%s_token" % name.encode()
        place = raw.index(b"tokenizer.ggml.add_bos_token")
        end = place + len(key)
        raw = raw[:place] + key + raw[end : end + 4] + b"\x01" + raw[end + 5 :]
    path = folder / "special.gguf"
    path.write_bytes(raw)
    return path


# ---- ids and splits ----------------------------------------------------------------------------


def test_C026_ids_never_pass_through_text():
    """Two turns; the reply of the first was generated in a split that encoding would not make."""
    split = [71, 68, 75, 75, 78]
    dialogue = ids_of("a<|im_end|>") + split + [300] + ids_of(" there")
    answer = nepit("score", "--json", "--ids", as_ids(dialogue)).json
    assert answer["token_ids"] == dialogue != ids_of("".join(answer["tokens"]))
    rows = answers("gather", [{"prompt": dialogue, "response": split, "candidates": [1]}])[0]
    assert rows["row_token_ids"] == split and rows["n_tokens"] == len(dialogue) + 5


@pytest.mark.parametrize("text", ["hello there", "a<|im_end|>b", "é 漢", "\ufffd", " \n 12"])
def test_C027_tokenize_tells_whether_ids_are_canonical(text):
    canonical = ids_of(text)
    answer = nepit("tokenize", "--json", "--ids", as_ids(canonical)).json
    assert answer["text"] == text and answer["canonical"] is True
    single = [id for byte in text.encode() for id in byte_ids(byte)]
    answer = nepit("tokenize", "--json", "--ids", as_ids(single)).json
    assert answer["text"] == text and answer["canonical"] == (single == canonical)
    assert nepit("score", "--json", "--ids", as_ids(single)).json["n_tokens"] == len(text.encode())


def byte_ids(byte, table={}):
    """The token of one byte."""
    if not table:
        everything = nepit("tokenize", "--json", "--ids", as_ids(range(301))).json["bytes"]
        table.update({value[0]: id for id, value in enumerate(everything) if len(value) == 1})
    return [table[byte]]


@pytest.mark.parametrize("prompt, response", [("good morn", "ing"), ("Que", "stion")])
def test_C029_prompt_and_response_are_encoded_separately_and_the_answer_says_so(prompt, response):
    arguments = ["gather", "--candidates", "1", "--json"]
    answer = nepit(*arguments, "--prompt", prompt, "--response", response).json
    assert answer["split"] == "separate" and answer["row_token_ids"] == ids_of(response)
    assert answer["start"] == len(ids_of(prompt)) - 1
    assert "split" not in nepit(*arguments, prompt + response).json
    assert "empty" in refused(*arguments[:3], "--prompt", "", "--response", response, status=1)
    conditioned = nepit(*arguments, "--prompt", "", "--response", response, "--condition", "bos")
    assert conditioned.json["row_token_ids"] == ids_of(response)


def test_C031_only_the_continuation_is_scored_and_nothing_is_cut_in_silence():
    arguments = ["gather", "--prompt", "wxyz", "--response", "ab", "--candidates", "1", "--json"]
    answer = nepit(*arguments).json
    assert answer["row_token_ids"] == ids_of("ab") and answer["n_tokens"] == 6
    error = nepit(*arguments, "--context", "4", status=1).json["error"]
    assert "6 tokens" in error["message"] and "4 tokens" in error["message"]


def test_C032_the_rows_of_a_continuation_need_no_slicing():
    """The worked table of docs/COMMANDS.md."""
    request = {"prompt": [0, 1, 2, 3], "response": [4, 5, 6], "candidates": [[4], [5], [6]]}
    gathered = answers("gather", [request])[0]
    assert gathered["start"] == 3 and gathered["row_token_ids"] == [4, 5, 6]
    scored = nepit("score", "--json", "--ids", "0 1 2 3 4 5 6", "--start", "3").json
    assert scored["logprobs"][:4] == [None] * 4
    assert [[value] for value in scored["logprobs"][4:]] == gathered["scores"]


def test_C039_entry_i_belongs_to_token_i():
    ids = [7, 3, 9, 4, 1]
    answer = nepit("score", "--json", "--ids", as_ids(ids)).json
    for i in range(1, 5):
        last = nepit("next", "--json", "--top", "-1", "--ids", as_ids(ids[:i])).json
        own = {entry["token_id"]: entry["logprob"] for entry in last["top_logprobs"]}
        assert answer["logprobs"][i] == own[ids[i]]
    assert answer["total"] == sum(float(np.float32(value)) for value in answer["logprobs"][1:])


# ---- unequal lengths ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", FAMILIES, ids=lambda path: path.name)
def test_C037_unequal_lengths_equal_their_solo_runs(model):
    rng = np.random.default_rng(37)
    requests = [{"token_ids": rng.integers(0, 290, n).tolist(), "top": 2} for n in (2, 40, 17, 3)]
    together = answers("score", requests, "-m", model)
    for number, request in enumerate(requests):
        (alone,) = answers("score", [request], "-m", model)
        assert {**alone, "id": number} == together[number]


@pytest.mark.parametrize("field", ["padding_side", "pad_token_id", "padding", "attention_mask"])
def test_C036_there_is_nothing_to_pad(field):
    (line,) = answers("score", [{"prompt": "hello", field: 1}], status=1)
    assert line["error"]["param"] == field
    assert "unknown option" in refused("score", "--padding-side", "left", "hello")


# ---- special tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=lambda path: path.name)
def test_C074_the_condition_is_explicit_and_follows_the_tokenizer(model, tmp_path):
    def scored(*arguments, model=model):
        answer = nepit("score", "--json", "-m", model, "Hi there", *arguments).json
        return answer["conditioning"], answer["n_tokens"] - answer["n_scored"], answer["token_ids"]

    plain = scored()
    assert plain[:2] == ("none", 1) and scored("--condition", "none") == plain
    bos = nepit("info", "--json", "-m", model).json["bos_id"]
    assert scored("--condition", "bos") == ("bos", 1, [bos, *plain[2]])
    if model == LLAMA:
        adds = with_special(tmp_path, bos=True)
        assert scored(model=adds) == ("bos", 1, [bos, *plain[2]])
        assert scored("--condition", "none", model=adds) == plain


def test_C077_an_end_token_is_listed_where_it_is_added_and_can_be_left_out(tmp_path):
    plain = nepit("score", "--json", "I am.").json
    assert plain["tokens"][-1] != "<|endoftext|>"
    adds = with_special(tmp_path, eos=True)
    ended = nepit("score", "--json", "-m", adds, "I am.").json
    assert ended["token_ids"] == [*plain["token_ids"], 298] and ended["n_scored_bytes"] == (
        plain["n_scored_bytes"]
    )
    assert ended["logprobs"][:-1] == plain["logprobs"] and ended["logprobs"][-1] < 0
    without = nepit("score", "--json", "-m", adds, "I am.", "--no-add-special-tokens").json
    assert {**without, "model": ""} == {**plain, "model": ""}


def test_C131_spans_tile_the_text_and_added_tokens_have_none(tmp_path):
    text = "👩‍👩‍👧 hé\u0301 <|im_end|> \r\n漢12"
    plain = nepit("tokenize", "--json", text).json
    place = 0
    for (begin, end), value in zip(plain["offsets"], plain["bytes"]):
        assert begin == place and text.encode()[begin:end] == bytes(value)
        place = end
    assert place == len(text.encode())
    added = nepit("tokenize", "--json", "-m", with_special(tmp_path, bos=True), text).json
    assert added["offsets"] == [[0, 0], *plain["offsets"]]
    assert added["token_ids"] == [298, *plain["token_ids"]]


def test_C169_names_of_bytes_are_ordinary_tokens_of_a_byte_level_vocabulary(tmp_path):
    """The ids of the last merges stand for these texts instead."""
    names = ["<0x41>", "<0x-1>", "<0xZZ>", "<0x1>", "<0x100>"]
    source = MODELS / "llama-tied-f32"
    for path in source.iterdir():
        shutil.copy(path, tmp_path)
    recipe = json.loads((source / "tokenizer.json").read_text())
    model = recipe["model"]
    by_id = {id: text for text, id in model["vocab"].items()}
    first = len(by_id) - len(names)
    for id, name in enumerate(names, first):
        del model["vocab"][by_id[id]]
        model["vocab"][name] = id
    known = model["vocab"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    model["merges"] = [m for m in merges if {*m, "".join(m)} <= known.keys()]
    (tmp_path / "tokenizer.json").write_text(json.dumps(recipe))
    ids = as_ids(range(first, first + 5))
    answer = nepit("tokenize", "--json", "-m", tmp_path, "--ids", ids).json
    assert answer["tokens"] == names and answer["text"] == "".join(names)
    assert bytes(answer["bytes"][0]) == b"<0x41>"
    assert nepit("tokenize", "--json", "-m", tmp_path, "A").json["token_ids"] == ids_of("A")


def test_C086_each_alternative_is_decoded_alone():
    answer = nepit("next", "--json", "-m", GPT2, "é", "--top", "-1").json
    assert any(entry["token"] == "\ufffd" for entry in answer["top_logprobs"][:20])
    for entry in answer["top_logprobs"][:20]:
        alone = nepit("tokenize", "--decode", entry["token_id"], "-m", GPT2).out
        assert alone.decode("utf-8", "replace") == entry["token"]


# ---- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", sorted(MODELS.iterdir()), ids=lambda path: path.name)
def test_C111_every_given_token_has_a_row_in_every_kind_of_file(model):
    answer = nepit("score", "--json", "-m", model, "--ids", "5 6 7 8", "--top", "1").json
    assert len(answer["logprobs"]) == len(answer["top_logprobs"]) == 4
    assert answer["logprobs"][0] is None and None not in answer["logprobs"][1:]


def test_C151_info_names_the_tokenizer_and_a_fingerprint_of_the_file(tmp_path):
    info = nepit("info", "--json").json
    assert info["tokenizer"] == "byte-level BPE, splitting rule smollm"
    assert re.fullmatch("[0-9a-f]{16}", info["fingerprint"])
    copy = tmp_path / "copy.gguf"
    shutil.copy(LLAMA, copy)
    assert nepit("info", "--json", "-m", copy).json["fingerprint"] == info["fingerprint"]
    copy.write_bytes(LLAMA.read_bytes()[:-1] + b"\x01")
    assert nepit("info", "--json", "-m", copy).json["fingerprint"] != info["fingerprint"]


# ---- limits ------------------------------------------------------------------------------------


def test_C082_every_command_refuses_more_tokens_than_the_context():
    for word, more in (("score", []), ("next", []), ("gather", ["--candidates", "1"])):
        line = refused(word, "--context", "3", "--ids", "1 2 3 4", *more, status=1)
        assert "4 tokens" in line and "3 tokens" in line
    (line,) = answers("score", [{"prompt": "x", "truncate_prompt_tokens": 3}], status=1)
    assert line["error"]["param"] == "truncate_prompt_tokens"


def test_C096_only_minus_infinity_is_written_as_the_floor():
    """Finite values keep their digits however low they are."""
    arguments = ["--ids", "1 2 3", "--score-temperature", "1e-4", "--json"]
    scored = nepit("score", *arguments, "--top", "-1").json
    gathered = nepit("gather", *arguments, "--candidates", "2 3").json["scores"]
    assert scored["logprobs"][1:] == [gathered[0][0], gathered[1][1]]
    assert min(scored["logprobs"][1:]) < -9999
    following = nepit("next", "--ids", "1", *arguments[2:], "--top", "-1").json["top_logprobs"]
    assert [entry["logprob"] for entry in following] == [
        entry["logprob"] for entry in scored["top_logprobs"][1]
    ]


def test_C104_the_longest_text_works_and_too_little_memory_is_said_up_front():
    """C116: at the full window nothing is generated."""
    ids = as_ids((7 * i) % 300 for i in range(512))
    answer = nepit("score", "--json", "--ids", ids, "--top", "1").json
    assert answer["n_scored"] == 511 and len(answer["top_logprobs"]) == 512
    line = refused("score", "--ids", ids, "--max-memory", "1M", status=3)
    assert "1048576" in line and re.search(r"= \d{7,}", line)


def test_C106_the_size_of_an_answer_is_computed_first(tmp_path):
    """2.2 million candidates for 511 rows: refused with both numbers, and before any work."""
    ids = [(7 * i) % 300 for i in range(512)]
    np.save(tmp_path / "ids.npy", np.zeros(2_200_000, np.int32))
    line = refused(
        "gather", "--ids", as_ids(ids), "--candidates", f"@{tmp_path}/ids.npy", status=1
    )
    assert f"{511 * 2_200_000 * 4} bytes" in line and f"{4 << 30} bytes" in line


# ---- memory and cost ---------------------------------------------------------------------------


def waiting(*arguments):
    """A run that answers a request at a time and then waits for more."""
    command = [NEPIT, *map(str, arguments), "--jsonl", "-"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    )


def status_kib(process, key):
    for line in open(f"/proc/{process.pid}/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1])


def ask(process, *requests):
    process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
    process.stdin.flush()
    return [process.stdout.readline() for _ in requests]


def end(process):
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


needs_demo = pytest.mark.skipif(not DEMO.exists(), reason="the demo model: ./run demo gets it")


@needs_demo
def test_C107_no_row_of_logits_is_kept():
    """One row, then 127 of the same ids: their logits would be 25 MB."""
    process = waiting("score", "-m", DEMO)
    ids = [(7919 * i) % 49152 for i in range(128)]
    ask(process, {"token_ids": ids, "start": 126})
    before = status_kib(process, "VmHWM")
    ask(process, {"token_ids": ids})
    assert status_kib(process, "VmHWM") - before < 4096
    end(process)


def test_C109_memory_is_flat_over_2000_unique_requests():
    process = waiting("score", "--cache-memory", "1M")  # full after some hundred requests
    rng = np.random.default_rng(109)
    sizes = []
    for hundred in range(20):
        lengths = rng.integers(2, 30, 100)
        lines = ask(process, *({"token_ids": rng.integers(0, 301, n).tolist()} for n in lengths))
        assert [json.loads(line)["n_tokens"] for line in lines] == lengths.tolist()
        sizes.append(status_kib(process, "VmRSS"))
    # A step of many requests takes and gives back up to 3 MiB: what stays is the least of some.
    assert min(sizes[10:]) - min(sizes[2:10]) <= 256 and max(sizes) - min(sizes) <= 4096
    end(process)


@needs_demo
def test_C101_time_grows_no_faster_than_the_answer():
    process = waiting("score", "-m", DEMO)
    request = {"token_ids": [(7919 * i) % 49152 for i in range(12)]}
    ask(process, request)
    costs = []
    for top in (0, 100, 10_000, -1):
        begin = time.monotonic()
        (line,) = ask(process, {**request, "top": top})
        costs.append((time.monotonic() - begin, len(line)))
    end(process)
    for seconds, n_bytes in costs[1:]:
        assert seconds <= 3 * costs[0][0] + 0.5 + 3e-7 * n_bytes, costs


def test_C042_64_equal_requests_have_one_answer():
    request = {"id": "same", "prompt": "hello there", "top": 3, "entropy": True}
    lines = [line for _ in range(5) for line in answers("score", [request] * 64)]
    assert all(line == lines[0] for line in lines)


def test_C174_a_head_that_is_there_is_used_whatever_the_flag_says(tmp_path):
    source = MODELS / "llama-head10-bf16"
    shutil.copy(source / "model.safetensors", tmp_path)
    config = json.loads((source / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    own, flagged = (
        nepit("score", "--ids", "1 2 3", "--json", "-m", m).json for m in (source, tmp_path)
    )
    assert own["logprobs"] == flagged["logprobs"]
    assert nepit("info", "--json", "-m", tmp_path).json["head_tied"] is False
