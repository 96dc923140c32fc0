"""Data sets on a cluster of this machine: Parquet in and out, an engine and a driver killed in the
middle. Needs Ray Data: in this Python, or in the one that NEPIT_RAY_PYTHON names.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import BUILD, DEMO, ROOT
from processes import command, engines
import nepit.ray

DRIVER = Path(__file__).with_name("ray_driver.py")
PYTHON = os.environ.get("NEPIT_RAY_PYTHON", "")
if not PYTHON and importlib.util.find_spec("ray"):
    PYTHON = sys.executable
FILES, ROWS = 16, 8  # about 25 tokens each: some ten seconds, so that there is a middle
WORDS = "the of and to in is was for on that by with from a it as at".split()

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not PYTHON, reason="Ray Data is not here: NEPIT_RAY_PYTHON names a Python that has it"
    ),
]


@pytest.fixture
def temp():
    """Short, since Ray puts sockets there; what still runs from it is ended."""
    folder = tempfile.mkdtemp(prefix="npray", dir="/tmp")
    yield folder
    for pid in of_folder(folder):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def of_folder(folder):
    """The processes whose command line names the folder."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if folder.encode() in command(pid) and pid != os.getpid()]


def start(temp, *runs):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "NEPIT_LIBRARY": os.environ.get("NEPIT_LIBRARY", str(BUILD / "libnepit.so")),
        "RAY_AUTH_MODE": "disabled",  # else it writes a token into the home folder
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [PYTHON, str(DRIVER), json.dumps({"temp": temp, "runs": runs})]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def drive(temp, *runs):
    driver = start(temp, *runs)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


def texts(folder, n=FILES * ROWS):
    """Rows of text, some wrong, in FILES files."""
    folder.mkdir()
    order = np.random.default_rng(7).integers(0, len(WORDS), (n, 20))
    rows = [f"{i}: " + " ".join(WORDS[k] for k in row) for i, row in enumerate(order)]
    rows[3], rows[50], rows[n - 1] = None, "", "y" * 6000
    table = pa.table({"n": list(range(n)), "text": rows})
    for i in range(0, n, ROWS):
        pq.write_table(table.slice(i, ROWS), folder / f"{i:05}.parquet")
    return rows


def read(folder):
    return pq.read_table(folder).sort_by("n")


def options(**more):
    engine = {"model": str(DEMO), "context": 128, "concurrency": 2}
    return {**engine, "batch_size": ROWS, "top": 2, **more}


def bits(column):
    flat = column.combine_chunks()
    while pa.types.is_list(flat.type):
        flat = flat.flatten()
    return flat.drop_null().to_numpy(zero_copy_only=False).tobytes()


def same_bits(found, expected):
    assert found.num_rows == expected.num_rows and found.column_names == expected.column_names
    for name in expected.column_names:
        if pa.types.is_string(found[name].type):
            assert found[name].to_pylist() == expected[name].to_pylist()
            continue
        assert found[name].is_null().to_pylist() == expected[name].is_null().to_pylist(), name
        assert bits(found[name]) == bits(expected[name]), name


def check_direct(found, rows):
    """Against the library without Ray."""
    errors = found["error"].to_pylist()
    wrong = [i for i, error in enumerate(errors) if error is not None]
    assert wrong == [3, 50, len(rows) - 1]
    assert "null" in errors[3] and "at least one" in errors[50] and "do not fit" in errors[-1]
    good = [i for i in range(len(rows)) if i not in wrong]
    with nepit.open(DEMO, context=128) as model:
        for i, score in zip(good, model.score([rows[i] for i in good], top=2)):
            assert np.float32(found["logprobs"][i].as_py()).tobytes() == score.logprobs.tobytes()
            assert found["token_ids"][i].as_py() == score.token_ids.tolist()
            assert found["ranks"][i].as_py() == score.ranks.tolist()
            assert found["total"][i].as_py() == score.total
            assert found["top_ids"][i].as_py() == score.top_ids.tolist()
            told = np.float32(found["top_logprobs"][i].as_py())
            assert np.array_equal(told, score.top_logprobs)


def test_an_engine_that_is_killed_changes_no_bit(tmp_path, temp):
    rows = texts(tmp_path / "in")
    run = {"verb": "score", "input": str(tmp_path / "in"), "options": options()}
    calm = {**run, "output": str(tmp_path / "calm")}
    shot = {**run, "output": str(tmp_path / "shot"), "kill": 2}
    kept = {**shot, "output": str(tmp_path / "kept")}
    kept["options"] = options(checkpoint=str(tmp_path / "checkpoint"))
    _, told, told_kept = drive(temp, calm, shot, kept)
    for each in (told, told_kept):
        assert len(each["engines"]) == 2 and each["killed"] in each["engines"]
        assert 2 <= each["written"] < each["files"], "it was killed in the middle"
        assert set(each["engines_after"]) - set(each["engines"]), "another one was started"
    expected = read(tmp_path / "calm")
    check_direct(expected, rows)
    same_bits(read(tmp_path / "shot"), expected)
    same_bits(read(tmp_path / "kept"), expected)
    info = nepit.ray.checkpoint_info(str(tmp_path / "checkpoint"))
    assert info.n_rows == len(rows) - 3 and info.n_damaged == 0


def test_a_driver_that_is_killed_goes_on(tmp_path, temp):
    rows = texts(tmp_path / "in")
    folder = str(tmp_path / "checkpoint")
    want = ["logprobs", "token_ids", "ranks", "total", "top_ids", "top_logprobs", "reused"]
    run = {
        "verb": "score",
        "input": str(tmp_path / "in"),
        "options": options(checkpoint=folder, want=want),
    }
    driver = start(temp, {**run, "output": str(tmp_path / "first")})
    parts = tmp_path / "checkpoint/parts"
    deadline = time.monotonic() + 120
    while len(list(parts.glob("*.keys"))) < 5:
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    pids = engines(driver.pid)
    driver.kill()
    driver.communicate()
    while any(map(command, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pids and not any(map(command, pids)), "a driver that dies takes its engines along"
    before = nepit.ray.checkpoint_info(folder)
    assert 3 * ROWS <= before.n_rows < len(rows) - 3

    # The second run is split otherwise: other batches, one engine.
    changed = options(checkpoint=folder, want=want, batch_size=7, concurrency=1)
    again = {**run, "output": str(tmp_path / "out"), "options": changed}
    drive(temp, again)
    found = read(tmp_path / "out")
    assert sum(found["reused"].to_pylist()) == before.n_rows
    after = nepit.ray.checkpoint_info(folder)
    assert after.n_rows == len(rows) - 3
    check_direct(found, rows)

    other = options(checkpoint=folder, want=want, score_temperature=0.5)
    driver = start(temp, {**again, "options": other})
    err = driver.communicate(timeout=120)[1]
    assert driver.returncode != 0
    assert "score_temperature was None and is 0.5" in err


def test_order_and_teacher_scoring(tmp_path, temp):
    texts(tmp_path / "in", 64)
    n = 60
    sides = {"prompt": [f"prompt {i}" for i in range(n)], "response": [f" r {i}" for i in range(n)]}
    candidates = [[i, i + 1, 7] for i in range(n)]
    (tmp_path / "pairs").mkdir()
    table = pa.table({"n": list(range(n)), **sides, "candidates": candidates})
    for i in range(0, n, 10):
        pq.write_table(table.slice(i, 10), tmp_path / f"pairs/{i:05}.parquet")
    score = {"verb": "score", "input": str(tmp_path / "in"), "output": str(tmp_path / "ordered")}
    score["options"] = options(preserve_order=True, batch_size=3)
    gather = {"verb": "gather", "input": str(tmp_path / "pairs"), "output": str(tmp_path / "g")}
    gather["options"] = options(tail=True)
    del gather["options"]["top"]
    drive(temp, score, gather)
    files = sorted((tmp_path / "ordered").glob("*.parquet"))
    numbers = [i for file in files for i in pq.read_table(file)["n"].to_pylist()]
    assert numbers == list(range(64))
    found = read(tmp_path / "g")
    with nepit.open(DEMO, context=128) as model:
        for i in range(n):
            right = model.gather(sides["prompt"][i], sides["response"][i], candidates[i], tail=True)
            assert np.array_equal(np.float32(found["scores"][i].as_py()), right.scores)
            assert np.array_equal(np.float32(found["tail"][i].as_py()), right.tail)
            assert found["start"][i].as_py() == right.start
