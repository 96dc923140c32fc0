"""gather: candidates in all their forms, arrays, archives, resuming."""

import base64
import io
import json
import signal
import subprocess
import time

import numpy as np
import pytest
from clirun import MODELS, NEPIT, answers, environment, nepit, refused

IDS = [7, 3, 9, 4, 1]


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def gather(candidates, *arguments, ids=IDS, **fields):
    return answers(
        "gather", [{"token_ids": ids, "prompt_logprob_token_ids": candidates, **fields}], *arguments
    )[0]


def whole_row(ids):
    row = nepit("next", "--ids", " ".join(map(str, ids)), "--top", "-1", "--json").json[
        "top_logprobs"
    ]
    return {entry["token_id"]: entry["logprob"] for entry in row}


def test_rows_are_cells_of_the_whole_vocabulary():
    scores = gather([5, 300, 5])["scores"]
    for row, values in enumerate(scores):
        everything = whole_row(IDS[: row + 1])
        assert values == [everything[5], everything[300], everything[5]]


@pytest.mark.parametrize("start", range(7))
def test_C002_the_shape_at_every_start(start):
    rows = max(len(IDS) - 1 - start, 0)
    answer = gather([5, 6], start=start)
    assert answer["scores"] == gather([5, 6])["scores"][start:] and len(answer["scores"]) == rows
    assert answer["row_token_ids"] == IDS[start + 1 :] and answer["start"] == start
    nested = {
        "token_ids": IDS,
        "prompt_logprob_token_ids": [[5, 6]] * max(rows, 1),
        "prompt_logprob_start": start,
    }
    line = answers("gather", [nested], status=0 if rows else 1)[0]
    if rows:
        assert line["scores"] == answer["scores"]
    else:
        assert line["error"]["param"] == "prompt_logprob_token_ids"
        assert "rows expected: 0 (5" in line["error"]["message"]
        assert line["error"]["message"].endswith("rows given: 1")


def test_all_forms_of_nested_candidates_agree(tmp_path):
    ragged = [[1], [2, 3], [4, 5, 6], [7]]
    padded = np.full((4, 3), -1)
    for i, row in enumerate(ragged):
        padded[i, : len(row)] = row
    expected = gather(ragged)["scores"]
    assert gather(padded.tolist())["scores"] == expected
    for array in (
        padded.astype(np.int32),
        padded.astype(np.int64),
        padded.astype(">i8"),
        np.asfortranarray(padded),
    ):
        assert gather(base64.b64encode(npy(array)).decode())["scores"] == expected
        (tmp_path / "ids.npy").write_bytes(npy(array))
        done = nepit(
            "gather", "--ids", "7 3 9 4 1", "--candidates", f"@{tmp_path}/ids.npy", "--json"
        )
        assert done.json["scores"] == expected


def test_flat_candidates_in_all_forms(tmp_path):
    expected = gather([1, 2, 3])["scores"]
    (tmp_path / "ids.npy").write_bytes(npy(np.array([1, 2, 3])))
    for text in ("1 2 3", "1,2,3", f"@{tmp_path}/ids.npy"):
        assert (
            nepit("gather", "--ids", "7 3 9 4 1", "--candidates", text, "--json").json["scores"]
            == expected
        )
    assert (
        gather(base64.b64encode(npy(np.array([1, 2, 3], dtype=np.uint16))).decode())["scores"]
        == expected
    )
    one = answers("gather", [{"token_ids": IDS}], "--candidates", "1 2 3")[0]
    assert one["scores"] == expected


@pytest.mark.parametrize(
    "candidates, param",
    [
        ([], ""),
        ([[]], ""),
        ([[], [], [], []], ""),
        ([1, 301], "[1]"),
        ([-1], "[0]"),
        ([1, 1.5], "[1]"),
        ([1, [2]], "[1]"),
        ([[1], 2, [3], [4]], "[1]"),
        ([[1], [2], [3], [4, -2]], "[3][1]"),
        ([[1], [2], [301], [4]], "[2][0]"),
        ([[1], [2], [3]], ""),
        ([[1]] * 5, ""),
        (["x"], "[0]"),
        ("****", ""),
        ("QUJD", ""),
        ("QUJ", ""),
        (5, ""),
        ({"a": 1}, ""),
        ([2**31], "[0]"),
        ([2**63], "[0]"),
        (base64.b64encode(npy(np.zeros((2, 2, 2), int))).decode(), ""),
        (base64.b64encode(npy(np.array([[1], [2], [2**40], [1]]))).decode(), "[2][0]"),
        (base64.b64encode(npy(np.array([1.0]))).decode(), ""),
        (base64.b64encode(npy(np.array([1]))[:-1]).decode(), ""),
    ],
)
def test_C177_bad_candidates_are_named(candidates, param):
    requests = [{"token_ids": IDS, "prompt_logprob_token_ids": c} for c in (candidates, [1])]
    bad, good = answers("gather", requests, status=1)
    assert bad["error"]["param"].startswith("prompt_logprob_token_ids" + param) and "scores" in good
    if param:
        assert bad["error"]["param"] == "prompt_logprob_token_ids" + param


def test_no_candidates():
    assert "no candidates" in refused("gather", "--ids", "1 2", status=1)


def test_prompt_and_response_count_the_tokens():
    prompt, response = "hello", " there"
    answer = nepit(
        "gather", "--prompt", prompt, "--response", response, "--candidates", "1 2", "--json"
    ).json
    a = nepit("tokenize", prompt, "--json").json["token_ids"]
    b = nepit("tokenize", response, "--json").json["token_ids"]
    assert answer["row_token_ids"] == b and answer["start"] == len(a) - 1
    ids = gather([1, 2], ids=a + b, start=len(a) - 1)
    assert ids["scores"] == answer["scores"]
    for fields in ({"prompt": prompt, "response": response}, {"prompt": a, "response": b}):
        assert (
            answers("gather", [{**fields, "candidates": [1, 2]}])[0]["scores"] == answer["scores"]
        )
    lists = [" ".join(map(str, ids)) for ids in (a, b)]
    done = nepit(
        "gather",
        "--ids",
        "--prompt",
        lists[0],
        "--response",
        lists[1],
        "--candidates",
        "1 2",
        "--json",
    )
    assert done.json == answer


def test_start_is_always_a_row():
    answer = nepit(
        "gather", "--prompt", "hello", "--response", " there", "--candidates", "1", "--json"
    ).json
    whole = nepit(
        "gather",
        "--prompt",
        "hello",
        "--response",
        " there",
        "--candidates",
        "1",
        "--json",
        "--start",
        "0",
    ).json
    assert whole["start"] == 0 and whole["scores"][answer["start"] :] == answer["scores"]


def test_conditions_of_prompt_and_response():
    arguments = ["gather", "--prompt", "", "--response", "hello", "--candidates", "1", "--json"]
    error = nepit(*arguments, status=1).json["error"]
    assert error["param"] == "prompt" and "empty" in error["message"]
    answer = nepit(*arguments, "--condition", "bos").json
    assert answer["start"] == 0 and len(answer["row_token_ids"]) == answer["n_tokens"] - 1
    empty = nepit(
        "gather", "--prompt", "hello", "--response", "", "--candidates", "1", "--json", status=1
    )
    assert empty.json["error"]["param"] == "response"


def test_C121_tail_is_the_log_of_the_remaining_mass():
    answer = gather([[5, 6, 5], [7], [8, 9], [1]], tail=True)
    for row, tail in enumerate(answer["tail"]):
        everything = whole_row(IDS[: row + 1])
        given = {5, 6} if row == 0 else {7} if row == 1 else {8, 9} if row == 2 else {1}
        rest = sum(np.exp(value) for token, value in everything.items() if token not in given)
        assert tail == pytest.approx(np.log(rest), abs=1e-5)
    assert "tail" not in gather([1])
    assert gather([1], "--tail")["tail"] == gather([1], prompt_logprob_tail=True)["tail"]


def test_npy(tmp_path):
    out = tmp_path / "out.npy"
    done = nepit("gather", "--ids", "7 3 9 4 1", "--candidates", "1 2 3", "-o", out)
    array = np.load(out)
    assert done.out == b"" and array.dtype == np.float32 and array.shape == (4, 3)
    assert array.tolist() == np.array(gather([1, 2, 3])["scores"], np.float32).tolist()
    nepit("gather", "--ids", "7 3", "--candidates", "1 2 3", "-o", out, "--start", "9")
    assert np.load(out).shape == (0, 3)
    nested = tmp_path / "ids.npy"
    nested.write_bytes(npy(np.array([[1, -1]])))
    nepit("gather", "--ids", "7 3", "--candidates", f"@{nested}", "-o", out)
    assert np.load(out)[0, 1] == -np.inf
    out.unlink()
    refused("gather", "--ids", "7 999", "--candidates", "1", "-o", out, status=1)
    assert not out.exists()


# ---- archives ----------------------------------------------------------------------------------

REQUESTS = [
    {"id": "a", "token_ids": IDS, "candidates": [1, 2], "tail": True},
    {"token_ids": IDS, "candidates": [3]},
    {"id": 30, "token_ids": IDS, "prompt_logprob_token_ids": [[1], [2, 3], [4], [5]]},
    {"id": "none", "token_ids": IDS, "candidates": [3], "start": 50},
]


def lines(requests):
    return "".join(json.dumps(request) + "\n" for request in requests)


def load(path):
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays}


def test_npz(tmp_path):
    out = tmp_path / "out.npz"
    done = nepit("gather", "--jsonl", "-", "-o", out, text=lines(REQUESTS))
    assert done.out == b"" and sorted(path.name for path in tmp_path.iterdir()) == ["out.npz"]
    arrays = load(out)
    keys = [
        f"{name}.{part}"
        for name in ("a", "1", "30", "none")
        for part in ("scores", "row_token_ids", "start")
    ]
    assert sorted(arrays) == sorted([*keys, "a.tail"])
    for key, line in zip(("a", "1", "30", "none"), answers("gather", REQUESTS)):
        scores = arrays[key + ".scores"]
        assert scores.dtype == np.float32 and arrays[key + ".start"] == line["start"]
        clamped = np.where(np.isinf(scores), np.float32(-9999), scores)
        assert (
            clamped.tolist() == np.array(line["scores"], np.float32).reshape(scores.shape).tolist()
        )
        assert arrays[key + ".row_token_ids"].tolist() == line["row_token_ids"]
    assert arrays["a.tail"].shape == (4,) and arrays["none.scores"].shape == (0, 1)


@pytest.mark.parametrize(
    "bad, param",
    [
        ({"id": "a"}, "id"),
        ({"id": "../x"}, "id"),
        ({"id": ".x"}, "id"),
        ({"id": ""}, "id"),
        ({"id": "x" * 201}, "id"),
        ({"id": "a\nb"}, "id"),
        ({"token_ids": [999]}, "token_ids[0]"),
    ],
)
def test_a_bad_request_among_good_ones_is_missing_in_the_archive(tmp_path, bad, param):
    out = tmp_path / "out.npz"
    requests = [REQUESTS[0], {"token_ids": IDS, "candidates": [1], **bad}, REQUESTS[2]]
    done = nepit("gather", "--jsonl", "-", "-o", out, text=lines(requests), status=1)
    assert done.json["error"]["param"] == param
    assert {key.split(".")[0] for key in load(out)} == {"a", "30"}
    assert not (tmp_path / "out.npz.parts").exists()


def interrupted(out, requests, *arguments):
    """Ctrl-C while the command waits for more requests; its journal must hold what was answered."""
    command = [NEPIT, "gather", "--jsonl", "-", "-o", str(out), *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        process.stdin.write(lines(requests).encode())
        process.stdin.flush()
        journal = out.parent / (out.name + ".parts") / "journal"
        deadline = time.monotonic() + 30
        while not journal.exists() or journal.read_bytes().count(b"\n") < 1 + len(requests):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert not out.exists()
    return journal


def test_where_all_requests_fail_there_is_no_archive(tmp_path):
    refused("gather", "--ids", "999", "--candidates", "1", "-o", tmp_path / "out.npz", status=1)
    assert list(tmp_path.iterdir()) == []
    nepit("gather", "--jsonl", "-", "-o", tmp_path / "out.npz", text="")
    assert load(tmp_path / "out.npz") == {}


def test_resume_continues_behind_what_is_done(tmp_path):
    whole, out = tmp_path / "whole.npz", tmp_path / "out.npz"
    nepit("gather", "--jsonl", "-", "-o", whole, text=lines(REQUESTS))
    journal = interrupted(out, REQUESTS[:2])
    # What a killed run was writing is repeated.
    journal.write_bytes(journal.read_bytes() + b'{"key":"30","numb')
    done = nepit("gather", "--jsonl", "-", "-o", out, "--resume", "--timing", text=lines(REQUESTS))
    assert json.loads(done.err)["timing"]["n_tokens"] == 2 * len(IDS)
    assert out.read_bytes() == whole.read_bytes()
    assert not journal.parent.exists()


def test_resume_refuses_what_is_not_the_same_run(tmp_path):
    out = tmp_path / "out.npz"
    interrupted(out, REQUESTS[:2])
    arguments = ["gather", "--jsonl", "-", "-o", out]
    text = lines(REQUESTS)
    assert "--resume" in refused(*arguments, text=text)
    assert "other options" in refused(*arguments, "--resume", "--tail", text=text)
    assert "other options" in refused(*arguments, "--resume", "--score-temperature", "2", text=text)
    assert "another model" in refused(
        *arguments, "--resume", "-m", MODELS / "qwen2-mixed-v2.gguf", text=text
    )
    swapped = lines([REQUESTS[1], REQUESTS[0], *REQUESTS[2:]])
    done = nepit(*arguments, "--resume", text=swapped, status=1)
    assert [line["error"]["param"] for line in done.lines] == ["--resume", "--resume"]


def test_resume_without_parts_is_a_first_run(tmp_path):
    nepit("gather", "--jsonl", "-", "-o", tmp_path / "out.npz", "--resume", text=lines(REQUESTS))
    assert (tmp_path / "out.npz").exists()


def test_a_broken_journal_is_refused(tmp_path):
    folder = tmp_path / "out.npz.parts"
    folder.mkdir()
    (folder / "journal").write_bytes(b"\x00\xff\n{}\n")
    arguments = ["gather", "--jsonl", "-", "-o", tmp_path / "out.npz", "--resume"]
    assert "parts of another" in refused(*arguments, text=lines(REQUESTS))


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 2**63 - 1},
        {"rows": 2**61, "width": 1},
        {"rows": 1, "width": 2**62 - 1},
        {"key": "../../x"},
        {"key": ""},
        {"key": "x" * 300},
        {"key": "1"},
        {"number": 1},
    ],
)
def test_a_journal_that_lies_is_refused(tmp_path, changed):
    """No read outside of a part, no foreign name and no name twice in the archive."""
    out = tmp_path / "out.npz"
    requests = [{k: v for k, v in request.items() if k != "id"} for request in REQUESTS[:2]]
    journal = interrupted(out, requests)
    identity, first, second = journal.read_text().splitlines()
    entry = json.dumps({**json.loads(first), **changed})
    journal.write_text("\n".join([identity, entry, second, ""]))
    arguments = ["gather", "--jsonl", "-", "-o", out, "--resume"]
    assert "not a journal" in refused(*arguments, text=lines(requests))
    assert not out.exists()


def test_a_missing_part_is_named(tmp_path):
    out = tmp_path / "out.npz"
    journal = interrupted(out, REQUESTS[:2])
    (journal.parent / "0.part").unlink()
    done = nepit("gather", "--jsonl", "-", "-o", out, "--resume", text=lines(REQUESTS), status=1)
    assert "0.part" in done.error and not out.exists()
