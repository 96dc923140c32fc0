"""What an engine does for a data set, and what a checkpoint keeps, without Ray."""

import dataclasses
import inspect
import os
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from checkout import MODELS, ROOT
from nepit import NepitError
from nepit import _checkpoint as kept
from nepit import _tables as tables
import nepit
import nepit.ray

TINY = MODELS / "llama-tied-f32.gguf"
ENGINE = dict(profile=None, threads=1, context=0, max_memory=0, cache_memory=None, cpu=None)
TEXTS = ["hello world", "a", "The capital of France", "one\ntwo", "x" * 300, "hello world", "é"]
SCORE = dict(start=0, top=0, entropy=False, mass=False, condition=None, add_special=None)
SCORE |= dict(parse_special=None, score_temperature=None, logprobs_mode="raw_logprobs")


def score_job(want=None, folder=None, column="text", errors="column", model=TINY, **options):
    options = {**SCORE, **options}
    inputs = {"prompt": column}
    job = nepit.ray._job(
        "score", model, ENGINE, inputs, options, want, nepit.ray.SCORE_WANT, errors
    )
    return dataclasses.replace(job, folder=folder and str(folder))


def gather_job(inputs, want=None, **options):
    return nepit.ray._job(
        "gather", TINY, ENGINE, inputs, options, want, nepit.ray.GATHER_WANT, "column"
    )


def table(texts=TEXTS, kind=None):
    return pa.table({"text": pa.array(texts, kind), "n": pa.array(range(len(texts)), pa.int64())})


def cells(column):
    """Values that can be compared: floats as their bits."""
    as_bytes = column.type in (tables.FLOATS, pa.float64())
    return [np.array(v).tobytes() if as_bytes and v is not None else v for v in column.to_pylist()]


def same(a, b):
    assert a.column_names == b.column_names
    for name in a.column_names:
        assert cells(a[name]) == cells(b[name]), name


def opened(tmp_path, **options):
    """A checkpoint folder and its job."""
    job = score_job(folder=tmp_path / "kept", **options)
    kept.Store(job.folder).begin(nepit.ray._about(job))
    return job


def forbid(monkeypatch):
    """From here on nothing may be computed."""

    def never(*_arguments):
        raise AssertionError("computed again")

    verbs = {name: dataclasses.replace(verb, run=never) for name, verb in tables.VERBS.items()}
    monkeypatch.setattr(tables, "VERBS", verbs)


# ---- options -------------------------------------------------------------------------------------


def names_of(function):
    found = inspect.signature(function).parameters.values()
    return {p.name for p in found if p.kind is not p.VAR_KEYWORD} - {"self", "progress"}


def test_every_option_has_its_name():
    for verb in (nepit.ray.score, nepit.ray.gather):
        assert names_of(nepit.open) <= names_of(verb)
    assert names_of(nepit.Model.gather) - {"prompts"} <= names_of(nepit.ray.gather)
    assert names_of(nepit.Model.score) - {"prompts"} <= names_of(nepit.ray.score)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'tempreature'"):
        nepit.ray.score(None, model=TINY, tempreature=1.0)


@pytest.mark.parametrize(
    "name, value",
    [
        ("start", -1),
        ("start", True),
        ("start", 1.5),
        ("top", -2),
        ("entropy", 1),
        ("mass", True),
        ("condition", "eos"),
        ("add_special", "yes"),
        ("score_temperature", 0.0),
        ("score_temperature", float("inf")),
        ("score_temperature", float("nan")),
        ("logprobs_mode", "raw"),
        ("profile", "f16"),
        ("threads", -1),
        ("context", 0.5),
        ("max_memory", "1G"),
        ("errors", "ignore"),
        ("batch_size", 0),
    ],
)
def test_a_bad_option_is_named(name, value):
    with pytest.raises(NepitError) as told:
        nepit.ray.score(None, model=TINY, **{name: value})
    assert told.value.code == "EINPUT" and told.value.where == name


@pytest.mark.parametrize(
    "want, told",
    [
        (["logprob"], "one of logprobs, .* is expected: logprob"),
        (["entropies"], "needs the option entropy: entropies"),
        ({"logprobs": "x", "ranks": "x"}, "two columns have the same name"),
        ({"logprobs": "error"}, "two columns have the same name"),
    ],
)
def test_want_names_what_there_is(want, told):
    with pytest.raises(NepitError, match=told):
        score_job(want)


def test_teacher_scoring_needs_one_kind_of_rows():
    with pytest.raises(NepitError, match="a response or a start"):
        nepit.ray.gather(None, model=TINY, start=3)
    with pytest.raises(NepitError, match="at least one id") as told:
        nepit.ray.gather(None, model=TINY, candidates=[])
    assert told.value.where == "candidates"
    with pytest.raises(TypeError, match="candidates: token ids are whole numbers"):
        nepit.ray.gather(None, model=TINY, candidates=[0.5])


def test_a_model_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        kept.fingerprint("/nowhere/model.gguf")


# ---- rows ----------------------------------------------------------------------------------------


def test_scores_are_the_models(tiny):
    columns = [name for name in tables.SCORE if name != "error"]
    job = score_job(columns, top=3, entropy=True, mass=True, start=1)
    texts = [text for text in TEXTS if text != "a"]
    found = tables.Worker(job)(table(texts))
    assert found.column_names == ["text", "n", *columns, "error"]
    for i, score in enumerate(tiny.score(texts, top=3, entropy=True, mass=True, start=1)):
        for name in ("logprobs", "entropies", "mass", "top_logprobs"):
            values = np.array(found[name][i].as_py(), np.float32)
            assert values.tobytes() == getattr(score, name).tobytes(), name
        for name in ("token_ids", "ranks", "top_ids", "offsets"):
            assert found[name][i].as_py() == getattr(score, name).tolist()
        for name in ("total", "mean", "perplexity", "bits_per_byte"):
            assert np.array_equal(found[name][i].as_py(), getattr(score, name), equal_nan=True)
        for name in ("n_scored", "n_scored_bytes", "texts", "start"):
            assert found[name][i].as_py() == getattr(score, name), name
        assert found["n_tokens"][i].as_py() == len(score)
        assert found["error"][i].as_py() is None


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
    + [pa.dictionary(pa.int32(), pa.string())],
)
def test_texts_of_any_type(kind):
    worker = tables.Worker(score_job(["logprobs"]))
    texts = pa.array(TEXTS).cast(kind) if "dict" not in str(kind) else pa.array(TEXTS, kind)
    found = worker(pa.table({"text": texts}))
    same(found.select(["logprobs", "error"]), worker(table()).select(["logprobs", "error"]))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint16()])
@pytest.mark.parametrize("lists", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)])
def test_ids_of_any_type(tiny, kind, lists):
    ids = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    job = score_job(["logprobs"], column="ids")
    found = tables.Worker(job)(pa.table({"ids": pa.array(ids, lists(kind))}))
    for i, score in enumerate(tiny.score(ids)):
        values = np.array(found["logprobs"][i].as_py(), np.float32)
        assert values.tobytes() == score.logprobs.tobytes()


def test_default_columns_leave_the_column_of_ids_alone():
    assert "token_ids" in score_job().want
    options = {"start": 0, "top": 0, "entropy": False, "mass": False}
    default = [name for name in nepit.ray.SCORE_WANT if name != "token_ids"]
    names = nepit.ray._wanted("score", None, default, options)
    assert list(names) == ["logprobs", "ranks", "total", "n_tokens"]


def test_a_bad_row_harms_no_other():
    good = tables.Worker(score_job())(table())
    bad = [None, "", "y" * 6000]
    found = tables.Worker(score_job())(table([*TEXTS[:2], bad[0], *TEXTS[2:5], *bad[1:], "é"]))
    errors = found["error"].to_pylist()
    assert errors[2] == "EINPUT: the value is null (text)"
    assert errors[6].startswith("EINPUT: ") and "at least one token" in errors[6]
    assert errors[7].startswith("ELIMIT: ") and "6000" in errors[7]
    assert errors[6].endswith("(text)")  # the column, whatever the row of the batch
    right = [i for i, error in enumerate(errors) if error is None]
    assert right == [0, 1, 3, 4, 5, 8]
    for row in (2, 6, 7):
        assert all(found[name][row].as_py() is None for name in nepit.ray.SCORE_WANT)
    expected = good.take([0, 1, 2, 3, 4, 6]).drop_columns(["n"])
    same(found.take(right).drop_columns(["n"]), expected)


def test_bad_ids_are_told():
    ids = pa.array([[1, 2], None, [], [1, None], [1, 10**6], [-1, 2], [2**40, 1]])
    errors = tables.Worker(score_job(column="ids"))(pa.table({"ids": ids}))["error"].to_pylist()
    assert errors[0] is None
    told = ["is null", "at least one", "an id is null", "1000000", "-1", str(2**40)]
    for error, words in zip(errors[1:], told):
        assert error.startswith(("EINPUT: ", "ELIMIT: ")) and words in error, error
    floats = pa.table({"ids": pa.array([[1.0, 2.0]])})
    told = tables.Worker(score_job(column="ids"))(floats)["error"].to_pylist()
    assert told == ["EINPUT: token ids are whole numbers"]


def test_a_bad_row_ends_the_run_where_that_is_asked():
    worker = tables.Worker(score_job(errors="raise"))
    assert "error" not in worker(table()).column_names
    with pytest.raises(NepitError, match="at least one token.*row 2 of a batch") as told:
        worker(table(["a", "b", ""]))
    assert told.value.code == "EINPUT"


def test_columns_that_cannot_be():
    with pytest.raises(NepitError, match="no such column among words: text"):
        tables.Worker(score_job())(pa.table({"words": ["a"]}))
    with pytest.raises(TypeError, match="column 'text': texts or lists .* not double"):
        tables.Worker(score_job())(pa.table({"text": [1.5]}))
    with pytest.raises(NepitError, match="is a column already.*: ranks"):
        tables.Worker(score_job())(pa.table({"text": ["a"], "ranks": [1]}))
    found = tables.Worker(score_job({"ranks": "r"}))(pa.table({"text": ["a"], "ranks": [1]}))
    assert found.column_names == ["text", "ranks", "r", "error"]


def test_an_empty_table():
    found = tables.Worker(score_job())(table([], pa.string()))
    full = tables.Worker(score_job())(table())
    assert found.schema == full.schema and found.num_rows == 0


# ---- teacher scoring -----------------------------------------------------------------------------


def test_gathered_scores_are_the_models(tiny):
    prompts, responses = ["The capital", "one", "two"], [" of", " two three", " x"]
    candidates = [[1, 2, 3], [4, 5], [6]]
    rows = pa.table({"p": prompts, "r": responses, "c": candidates})
    inputs = {"prompt": "p", "response": "r", "candidates": "c"}
    found = tables.Worker(gather_job(inputs, tail=True))(rows)
    assert found.column_names == ["p", "r", "c", "scores", "start", "tail", "error"]
    for i, row in enumerate(zip(prompts, responses, candidates)):
        gathered = tiny.gather(*row, tail=True)
        assert np.array_equal(np.float32(found["scores"][i].as_py()), gathered.scores)
        assert np.array_equal(np.float32(found["tail"][i].as_py()), gathered.tail)
        assert found["start"][i].as_py() == gathered.start


def test_candidates_for_all_and_for_each_row(tiny):
    ids = [[1, 2, 3, 4], [5, 6, 7, 8]]
    starts = [1, 2]
    nested = [[[1, 2], [3, 4]], [[9]]]
    rows = pa.table({"ids": ids, "s": starts, "c": nested})
    inputs = {"prompt": "ids", "start": "s", "candidates": "c"}
    found = tables.Worker(gather_job(inputs, want=["scores", "token_ids", "n_tokens"]))(rows)
    for i in range(2):
        gathered = tiny.gather(ids[i], candidates=nested[i], start=starts[i])
        assert np.array_equal(np.float32(found["scores"][i].as_py()), gathered.scores)
        assert found["token_ids"][i].as_py() == ids[i] and found["n_tokens"][i].as_py() == 4
    found = tables.Worker(gather_job({"prompt": "ids"}, candidates=[7, 7], start=0))(rows)
    for i in range(2):
        gathered = tiny.gather(ids[i], candidates=[7, 7], start=0)
        assert np.array_equal(np.float32(found["scores"][i].as_py()), gathered.scores)


def test_a_bad_row_of_candidates_harms_no_other():
    rows = {"p": ["a", "b", "", "d"], "r": ["x"] * 4, "c": [[1], [10**6], [1], []]}
    inputs = {"prompt": "p", "response": "r", "candidates": "c"}
    found = tables.Worker(gather_job(inputs))(pa.table(rows))
    errors = found["error"].to_pylist()
    assert errors[0] is None and found["scores"][0].is_valid
    assert "1000000" in errors[1] and errors[1].endswith("(c[0])")
    assert errors[2].endswith("(p)") and errors[3].endswith("(c)")


# ---- keys ----------------------------------------------------------------------------------------


def test_a_key_is_what_is_asked():
    key = tables.key_of
    assert key(["ab"]) == key([b"ab"]) == key(["ab"])
    ids = [np.array([1, 2], dtype) for dtype in (np.int32, np.int64, np.uint8)]
    assert len({key([array]) for array in ids}) == 1
    different = [["ab"], ["a", "b"], ["b", "a"], ["", "ab"], ["ab", ""], [97], ["97"], [ids[0]]]
    different += [[[ids[0]]], [[ids[0], ids[0]]], [ids[0], ids[0]], [np.array([2, 1])], []]
    assert len({key(cells) for cells in different}) == len(different)
    for wrong in (None, ValueError(), np.array([1.0]), [np.array([1.0])]):
        assert key([wrong]) is None


@given(st.lists(st.binary(max_size=4), max_size=3), st.lists(st.binary(max_size=4), max_size=3))
def test_keys_of_different_rows_differ(a, b):
    assert (tables.key_of(a) == tables.key_of(b)) == (a == b)


@given(st.lists(st.binary(max_size=4), max_size=40), st.binary(max_size=4), st.integers(1, 7))
def test_the_index_finds_every_row(values, other, size):
    keys = [kept.digest(value) for value in values]
    parts = {f"{i}.parquet": keys[i : i + size] for i in range(0, len(keys), size)}
    index = kept.index_of({name: b"".join(some) for name, some in parts.items()})
    for key, at in zip(keys, index.find(keys)):
        assert parts[index.names[index.part[at]]][index.row[at]] == key
    assert (index.find([kept.digest(other)])[0] >= 0) == (other in values)


# ---- checkpoints ---------------------------------------------------------------------------------


def run(job, *batches):
    index = kept.Store(job.folder).index()[0]
    worker = tables.Worker(job, index)
    return [worker(batch) for batch in batches]


def test_what_is_finished_is_not_computed_again(tmp_path, monkeypatch):
    job = opened(tmp_path, want=["logprobs", "token_ids", "total", "reused"])
    whole = table()
    first = pa.concat_tables(run(job, whole.slice(0, 3), whole.slice(3)))
    assert first["reused"].to_pylist() == [False] * 7
    forbid(monkeypatch)
    shuffled = [6, 2, 5, 0, 4, 1, 3]
    again = pa.concat_tables(run(job, whole.take(shuffled[:5]), whole.take(shuffled[5:])))
    assert again["reused"].to_pylist() == [True] * 7
    same(again.drop_columns(["reused"]), first.take(shuffled).drop_columns(["reused"]))
    info = nepit.ray.checkpoint_info(job.folder)
    assert (info.n_rows, info.n_parts, info.n_damaged) == (6, 2, 0)  # one text comes twice
    assert info.about["profile"] == "f32" and info.n_bytes > 0


def test_a_batch_that_is_done_again_is_found_without_an_index(tmp_path, monkeypatch):
    job = opened(tmp_path)
    first = tables.Worker(job)(table())
    forbid(monkeypatch)
    same(tables.Worker(job)(table()), first)


def test_only_what_is_missing_is_computed(tmp_path, monkeypatch):
    job = opened(tmp_path)
    run(job, table(TEXTS[:3]))
    asked = []
    verb = tables.VERBS["score"]

    def counted(model, job, rows):
        asked.extend(row[0] for row in rows)
        return verb.run(model, job, rows)

    monkeypatch.setitem(tables.VERBS, "score", dataclasses.replace(verb, run=counted))
    found = run(job, table([*TEXTS, None, ""]))[0]
    assert asked == [*TEXTS[3:5], TEXTS[6], ""]
    monkeypatch.undo()
    plain = tables.Worker(dataclasses.replace(job, folder=None))(table([*TEXTS, None, ""]))
    same(found, plain)


def test_a_row_that_failed_is_tried_again(tmp_path):
    job = opened(tmp_path)
    short = dataclasses.replace(job, engine={**ENGINE, "context": 16})
    found = run(short, table())[0]
    assert found["error"][4].as_py().startswith("ELIMIT")
    found = run(job, table())[0]
    assert found["error"].to_pylist() == [None] * 7
    same(found, tables.Worker(dataclasses.replace(job, folder=None))(table()))


@pytest.mark.parametrize("kind", [".parquet", ".keys"])
@pytest.mark.parametrize("damage", ["gone", "cut", "empty", "longer"])
def test_a_damaged_part_is_computed_again(tmp_path, kind, damage):
    job = opened(tmp_path)
    first = run(job, table())[0]
    [part] = (tmp_path / "kept/parts").glob(f"*{kind}")
    raw = part.read_bytes()
    damaged = {"cut": raw[: len(raw) // 2], "empty": b"", "longer": raw + bytes(16)}
    part.unlink() if damage == "gone" else part.write_bytes(damaged[damage])
    same(run(job, table())[0], first)
    assert part.read_bytes() == raw  # written anew


def test_every_flipped_byte_is_seen(tmp_path):
    job = opened(tmp_path, want=["logprobs", "token_ids", "ranks"])
    run(job, table(TEXTS[:3]))
    for part in (tmp_path / "kept/parts").iterdir():
        raw = part.read_bytes()
        for at in range(0, len(raw), max(1, len(raw) // 100)):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << at % 8
            part.write_bytes(flipped)
            assert kept.Store(job.folder).take(part.stem, range(3)) is None
        part.write_bytes(raw)
        assert kept.Store(job.folder).take(part.stem, range(3)).num_rows == 3


def test_what_a_killed_run_left_half_written(tmp_path):
    job = opened(tmp_path)
    first = run(job, table())[0]
    parts = tmp_path / "kept/parts"
    (parts / "0123.parquet.abcd.part").write_bytes(b"PAR1 half")
    (parts / "4567.parquet.abcd.part").write_bytes(b"")
    os.utime(parts / "4567.parquet.abcd.part", (1, 1))
    same(run(job, table())[0], first)
    left = [path.name for path in parts.iterdir() if path.suffix == ".part"]
    assert left == ["0123.parquet.abcd.part"]  # somebody may be writing the younger one


def test_a_folder_of_another_run_is_refused(tmp_path):
    job = opened(tmp_path)
    store = kept.Store(job.folder)
    store.begin(nepit.ray._about(job))
    for change, told in [
        (dict(score_temperature=0.5), "score_temperature was None and is 0.5"),
        (dict(want=["ranks"]), r"columns was \['logprobs'.* and is \['ranks'\]"),
        (dict(model=MODELS / "gpt2-plain.gguf"), "model_fingerprint was '[0-9a-f]{32}' and is"),
    ]:
        with pytest.raises(NepitError, match=told) as error:
            store.begin(nepit.ray._about(score_job(**change)))
        assert (error.value.where, error.value.given) == ("checkpoint", job.folder)
    other = gather_job({"prompt": "p", "response": "r"}, candidates=[1])
    with pytest.raises(NepitError, match="verb was 'score' and is 'gather'"):
        store.begin(nepit.ray._about(other))


def test_a_folder_of_something_else_is_refused(tmp_path):
    job = opened(tmp_path)
    run(job, table())
    about = tmp_path / "kept/checkpoint.json"
    about.write_text("{")
    with pytest.raises(NepitError, match="not JSON"):
        kept.Store(job.folder).begin(nepit.ray._about(job))
    about.unlink()
    with pytest.raises(NepitError, match="parts are here, but no checkpoint.json"):
        kept.Store(job.folder).begin(nepit.ray._about(job))
    with pytest.raises(NepitError, match="there is no checkpoint"):
        nepit.ray.checkpoint_info(job.folder)


def test_a_checkpoint_by_address(tmp_path, monkeypatch):
    job = score_job(folder=f"file://{tmp_path}/kept")
    kept.Store(job.folder).begin(nepit.ray._about(job))
    first = run(job, table())[0]
    forbid(monkeypatch)
    same(run(job, table())[0], first)


# ---- which model ---------------------------------------------------------------------------------


def test_a_fingerprint_is_of_every_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PIECE_BYTES", 64)
    path = tmp_path / "model.gguf"
    raw = bytes(range(256))
    seen = set()
    for at in [None, 0, 63, 64, 255]:
        changed = bytearray(raw)
        if at is not None:
            changed[at] ^= 1
        path.write_bytes(changed)
        seen.add(kept.fingerprint(str(path)))
    path.write_bytes(raw[:-1])
    seen.add(kept.fingerprint(str(path)))
    assert len(seen) == 6
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "notes.txt").write_text("1")
    first = kept.fingerprint(str(folder))
    (folder / "notes.txt").write_text("2")
    assert kept.fingerprint(str(folder)) == first
    (folder / "config.json").rename(folder / "tokenizer.json")
    assert kept.fingerprint(str(folder)) != first


def test_another_model_on_another_machine_is_refused(tmp_path):
    copy = shutil.copy(TINY, tmp_path / "model.gguf")
    job = score_job(model=copy)
    with open(copy, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    with pytest.raises(NepitError, match="another one than where the run began"):
        tables.Worker(job)


@pytest.mark.parametrize(
    ("threads", "engines", "asked", "cluster", "cores"),
    [
        (60, 100, None, 6400, 60),
        (60, 100, None, 6001, 60),
        (64, 100, None, 6400, 63),
        (2, 2, None, 2, 0.5),
        (1, 1, None, 1, 0.01),
        (8, 1, None, float("inf"), 8),
        (2, 2, 2, 2, 2),  # as it was asked for
    ],
)
def test_engines_leave_cores_to_read_and_write(threads, engines, asked, cluster, cores):
    pool = nepit.ray._pool(engines, threads, asked, 64, False, None)
    assert pool.cores(cluster) == cores


def test_the_module_comes_with_its_name():
    code = "import nepit; assert callable(nepit.ray.score); assert not hasattr(nepit, 'rays')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
