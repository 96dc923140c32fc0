"""perplexity: files of any size by windows and strides; its sums, its table, its faults."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from clirun import DEMO, LLAMA, MODELS, NEPIT, NO_TOKENIZER, answers, environment, nepit, refused

FIELDS = [
    "total",
    "mean",
    "perplexity",
    "bits_per_byte",
    "n_tokens",
    "n_scored",
    "n_bytes",
    "n_scored_bytes",
    "n_windows",
    "n_computed",
    "window",
    "stride",
    "conditioning",
    "model",
    "profile",
    "numerics",
]
TEXT = "The first of the texts, with 12 numbers and a few words.\n" * 12


@pytest.fixture
def files(tmp_path):
    """Writes files of these texts; returns their paths."""

    def write(*texts):
        paths = [tmp_path / f"{i}.txt" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        return paths

    return write


def perplexity(*arguments, **options):
    return nepit("perplexity", "--json", *arguments, **options).lines


def sums(line):
    """What does not depend on sharing."""
    return {key: value for key, value in line.items() if key not in ("n_computed", "file")}


def test_C079_the_answer_states_all_that_its_numbers_depend_on(files):
    (path,) = files(TEXT)
    line, everything = perplexity(path, "--window", 100, "--stride", 60)
    assert list(line) == ["file", *FIELDS] and list(everything) == ["n_files", *FIELDS]
    assert line["file"] == str(path) and line["window"] == 100 and line["stride"] == 60
    assert line["conditioning"] == "none" and line["model"] == str(LLAMA)
    assert line["profile"] == "f32" and line["numerics"] == "1"
    assert line["n_bytes"] == len(TEXT) and line["n_scored"] == line["n_tokens"] - 1
    assert line["mean"] == line["total"] / line["n_scored"]
    assert line["perplexity"] == pytest.approx(math.exp(-line["mean"]), rel=1e-14)
    bits = -line["total"] / math.log(2) / line["n_scored_bytes"]
    assert line["bits_per_byte"] == pytest.approx(bits, rel=1e-14)
    assert sums(line) == {key: everything[key] for key in sums(line)}


def test_C079_bits_per_byte_compare_two_tokenizers(files):
    (path,) = files(TEXT)
    names = ("llama-tied-f32", "qwen2-tied-f32")
    lines = [perplexity(path, "-m", MODELS / name)[0] for name in names]
    assert lines[0]["n_bytes"] == lines[1]["n_bytes"]
    for line in lines:
        nats = line["bits_per_byte"] * math.log(2) * line["n_scored_bytes"]
        assert nats == pytest.approx(-line["total"], rel=1e-12)


def test_a_short_file_has_the_numbers_of_score(files):
    (path,) = files("The capital of France is Paris.")
    line, _ = perplexity(path)
    score = nepit("score", "--json", "-f", path).json
    for key in set(FIELDS) & set(score):
        assert line[key] == score[key], key
    assert line["n_windows"] == 1 and line["window"] == line["stride"] == 512


@pytest.mark.parametrize("stride", ["window", "half", 1, 37])
def test_C081_each_token_once_at_every_stride(files, stride):
    (path,) = files(TEXT[:500])
    ids = nepit("tokenize", "--json", TEXT[:500]).json["token_ids"]
    window = 2 * (len(ids) - 1) // 5
    stride = {"window": window, "half": window // 2}.get(stride, stride)
    line, _ = perplexity(path, "--window", window, "--stride", stride)
    requests, places, scored = [], [], 0
    for begin in range(0, len(ids), stride):
        if scored < len(ids) - 1:
            requests.append({"token_ids": ids[begin : begin + window + 1]})
            places.append(scored - begin + 1)
            scored = min(begin + window, len(ids) - 1)
    total = 0.0
    for answer, place in zip(answers("score", requests), places, strict=True):
        for value in answer["logprobs"][place:]:
            total += float(np.float32(value))
    assert line["n_windows"] == len(requests) and line["n_scored"] == len(ids) - 1
    assert line["total"] == total


def test_C081_perplexity_does_not_rise_as_the_stride_shrinks():
    if not DEMO.exists():
        pytest.skip("the demo model is not there")
    text = (MODELS.parent.parent.parent / "README.md").read_text()[:500]
    strides = (64, 32, 16)
    lines = [
        perplexity("-", "--window", 64, "--stride", stride, "-m", DEMO, text=text)[0]
        for stride in strides
    ]
    assert lines[0]["total"] < lines[1]["total"] < lines[2]["total"]


def test_C082_a_file_longer_than_the_context_is_scored_by_windows(files):
    (path,) = files(TEXT * 4)
    line = refused("score", "-f", path, status=1)
    assert "512" in line
    whole, _ = perplexity(path)
    assert whole["n_tokens"] > 600 and whole["n_windows"] == math.ceil(whole["n_scored"] / 512)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_C107_chunks_and_threads_change_no_bit(files, chunk):
    (path,) = files(TEXT)
    plain = perplexity(path, "--window", 90, "--stride", 31)
    other = perplexity(
        path,
        *("--window", 90, "--stride", 31, "--threads", 3),
        NEPIT_CHUNK_ROWS=str(chunk),
        NEPIT_OVERSUBSCRIBE="1",
    )
    assert sums(plain[0]) == sums(other[0])


def test_C074_what_stands_before_the_first_token(files):
    (path,) = files(TEXT)
    none, bos = (perplexity(path, "--condition", how, "--window", 50)[0] for how in ("none", "bos"))
    assert none["conditioning"] == "none" and bos["conditioning"] == "bos"
    assert bos["n_scored"] == none["n_scored"] + 1 == none["n_tokens"]
    assert bos["n_scored_bytes"] == bos["n_bytes"] > none["n_scored_bytes"]
    line = refused("perplexity", path, "--condition", "bos", "--no-add-special-tokens")
    assert "condition" in line


def test_many_files_and_all_of_them(files):
    paths = files(TEXT, "short", TEXT[:99], "", "x")
    lines = perplexity(*paths, "--window", 64)
    alone = [perplexity(path, "--window", 64)[0] for path in paths]
    assert [sums(line) for line in lines[:-1]] == [sums(line) for line in alone]
    everything = lines[-1]
    assert everything["n_files"] == 5
    for key in ("total", "n_tokens", "n_scored", "n_bytes", "n_scored_bytes", "n_windows"):
        assert everything[key] == sum(line[key] for line in lines[:-1])
    assert alone[3]["n_scored"] == alone[3]["n_tokens"] == 0
    assert alone[3]["perplexity"] is alone[3]["bits_per_byte"] is alone[3]["mean"] is None


def test_the_table(files):
    paths = files(TEXT, "short", "")
    long = paths[0].with_name("a-name-that-is-much-too-long-for-its-column.txt")
    long.write_text("long")
    text = nepit("perplexity", *paths, long, "--window", 64, "--stride", 16).text
    lines = text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].split() == ["file", "tokens", "bytes", "total", "perplexity", "bits/byte"]
    assert lines[1].split()[0].endswith("0.txt") and lines[3].split()[3:] == ["0.0000", "-", "-"]
    assert lines[4].startswith("…-for-its-column.txt ") and lines[5].startswith("all ")
    assert re.search(r"window +64 rows, stride 16\n", text)
    assert re.search(r"conditioning +none\n", text)
    one = nepit("perplexity", paths[0]).text
    assert "\nall " not in one


def test_standard_input_and_pipes(files, tmp_path):
    (path,) = files(TEXT)
    from_file = perplexity(path)[0]
    from_input = perplexity("-", text=TEXT)[0]
    assert from_input["file"] == "-" and sums(from_input) == sums(from_file)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(TEXT))
    writer.start()
    from_pipe = perplexity(pipe)[0]
    writer.join()
    assert sums(from_pipe) == sums(from_file)


def test_a_bad_file_harms_no_other(files, tmp_path):
    first, last = files(TEXT, "last")
    missing, folder = tmp_path / "missing", tmp_path
    lines = perplexity(first, missing, folder, last, status=1)
    assert [line.get("file") for line in lines] == [*map(str, (first, missing, folder, last)), None]
    assert "No such file" in lines[1]["error"]["message"]
    assert "folder" in lines[2]["error"]["message"]
    assert lines[4]["n_files"] == 2 and lines[4]["total"] == lines[0]["total"] + lines[3]["total"]
    done = nepit("perplexity", first, missing, last, status=1)
    assert done.error == f"nepit: {missing}: No such file or directory\n"
    names = [line.split()[0][-5:] for line in done.text.splitlines()[1:4]]
    assert names == ["0.txt", "1.txt", "all"]


def test_bytes_that_are_not_utf8(files):
    good, bad = files(TEXT, b"some text \xff\xfe\x00 and\xc3 more")
    line = perplexity(bad)[0]
    assert line["n_bytes"] == 23
    if DEMO.exists():  # its vocabulary lacks some bytes
        lines = perplexity(good, bad, "-m", DEMO, "--window", 32, status=1)
        assert "error" in lines[1] and "10" in lines[1]["error"]["message"]
        assert lines[2]["n_files"] == 1


def open_files(pid):
    """What a process has open; one that is closed meanwhile is passed over."""
    links = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    with contextlib.suppress(FileNotFoundError):
        return [os.readlink(link) for link in links]
    return []


def changed_while_read(path, change):
    """The one line of a run during which the file changes, after its first block was read."""
    run = subprocess.Popen(
        [NEPIT, "perplexity", "--json", path, "--window", "64"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    while str(path) not in open_files(run.pid):
        assert run.poll() is None
    change(path)
    out, _ = run.communicate(timeout=100)
    return json.loads(out.splitlines()[0])


def test_a_file_that_grows_is_scored_as_it_was(files):
    (path,) = files(TEXT * 450)
    before = perplexity(path, "--window", 64)[0]

    def grow(path):
        with path.open("a") as file:
            file.write("and more")

    assert sums(changed_while_read(path, grow)) == sums(before)
    assert path.read_text().endswith("and more")


def test_a_file_that_shrinks_is_an_error(files):
    (path,) = files(TEXT * 450)  # more than one block
    line = changed_while_read(path, lambda path: os.truncate(path, 100))
    assert "the file has shrunk while read" in line["error"]["message"]


def test_wrong_use(files):
    (path,) = files(TEXT)
    assert "a file is expected" in refused("perplexity")
    assert "once only" in refused("perplexity", "-", "-")
    assert "at most the window" in refused("perplexity", path, "--window", 8, "--stride", 9)
    assert "at most the context of 512" in refused("perplexity", path, "--window", 513)
    assert "at least 1: 0" in refused("perplexity", path, "--window", 0)
    assert "belongs to another command" in refused("perplexity", path, "--top", 3)
    assert "no tokenizer" in refused("perplexity", path, "-m", NO_TOKENIZER)
    assert "array" in refused("perplexity", path, "-o", "x.npy")


def test_an_output_file(files, tmp_path):
    (path,) = files(TEXT)
    out = tmp_path / "out.json"
    assert nepit("perplexity", "--json", path, "-o", out).out == b""
    assert [sums(json.loads(line)) for line in out.read_text().splitlines()[:1]] == [
        sums(perplexity(path)[0])
    ]


def test_ctrl_c_prints_the_files_that_are_done(files, tmp_path):
    first, second = files(TEXT, TEXT * 20000)
    run = subprocess.Popen(
        [NEPIT, "perplexity", "--json", first, second, "--window", "512", "--stride", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    line = run.stdout.readline()  # the first is done
    time.sleep(0.5)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert run.returncode == 130 and out == b""
    assert json.loads(line)["file"] == str(first)
    (message,) = err.decode().splitlines()
    assert re.match(rf"nepit: {second}: interrupted after \d+ scored tokens: total -", message)


def test_ctrl_c_while_waiting_for_input():
    run = subprocess.Popen(
        [NEPIT, "perplexity", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    time.sleep(1)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=10) == 143
    assert run.stdout.read() == run.stderr.read() == b""


def test_a_closed_pipe_ends_quietly(files):
    paths = files(*[TEXT] * 40)
    run = subprocess.Popen(
        [NEPIT, "perplexity", "--json", *map(str, paths), "--window", "16", "--stride", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    run.stdout.readline()
    run.stdout.close()
    assert run.wait(timeout=60) == 0 and run.stderr.read() == b""


def peak_kib(*arguments):
    """The most memory of a run."""
    run = subprocess.Popen(
        [NEPIT, "perplexity", *map(str, arguments)], stdout=subprocess.DEVNULL, env=environment()
    )
    _, status, used = os.wait4(run.pid, 0)
    run.returncode = status
    assert status == 0
    return used.ru_maxrss


@pytest.mark.parametrize("mib", [1, pytest.param(30, marks=pytest.mark.long)])
def test_memory_does_not_grow_with_the_file(files, mib):
    block = 1 << 18  # " the" is one token
    small, large = files(" the" * (block // 2), " the" * (mib << 18))
    assert peak_kib(large, "--window", 64) - peak_kib(small, "--window", 64) < 1024
