"""Arrow tables in, Arrow tables with the answers beside them out: what one engine does for a data
set. Nothing here knows how the tables come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional, Union, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from . import _checkpoint as checkpoint
from . import _native as native
from ._bridge import NepitError
from ._results import Gathered, Score
from ._types import Candidates, Prompt

if TYPE_CHECKING:
    from ._gather import GatherOptions
    from ._score import ScoreOptions

Ids = NDArray[np.int64]
Cell = Union[str, bytes, int, Ids, list[Ids], Exception, None]
Answer = Union[Score, Gathered]
Found = Union[Answer, NepitError]

ROW_ERRORS = ("EINPUT", "ELIMIT", "ENUMERIC")  # the row's; any other ends the run
_PLACE = re.compile(r"^(prompts|response|candidates|start)\[\d+\](?:\.(\w+))?")
_INPUT = {"prompts": "prompt", "candidate_ids": "candidates", "start": "start"}
LIST_LIMIT = 2**31 - 1  # values in one list column of a batch

# ---- columns -------------------------------------------------------------------------------------

INT32, INT64 = pa.list_(pa.int32()), pa.list_(pa.int64())
FLOATS = pa.list_(pa.float32())


@dataclass(frozen=True)
class Column:
    """A column of answers: its type, how a result tells it, and the option that it needs."""

    type: pa.DataType
    value: Callable[[Answer], object]
    option: str = ""


def _own(name: str) -> Callable[[Answer], object]:
    return lambda answer: getattr(answer, name)


SCORE = {
    "logprobs": Column(FLOATS, _own("logprobs")),
    "token_ids": Column(INT32, _own("token_ids")),
    "ranks": Column(INT32, _own("ranks")),
    "total": Column(pa.float64(), _own("total")),
    "n_tokens": Column(pa.int64(), lambda score: len(cast(Score, score))),
    "mean": Column(pa.float64(), _own("mean")),
    "perplexity": Column(pa.float64(), _own("perplexity")),
    "bits_per_byte": Column(pa.float64(), _own("bits_per_byte")),
    "n_scored": Column(pa.int64(), _own("n_scored")),
    "n_scored_bytes": Column(pa.int64(), _own("n_scored_bytes")),
    "start": Column(pa.int64(), _own("start")),
    "texts": Column(pa.list_(pa.binary()), _own("texts")),
    "offsets": Column(pa.list_(INT64), _own("offsets")),
    "entropies": Column(FLOATS, _own("entropies"), "entropy"),
    "top_ids": Column(pa.list_(INT32), _own("top_ids"), "top"),
    "top_logprobs": Column(pa.list_(FLOATS), _own("top_logprobs"), "top"),
    "mass": Column(FLOATS, _own("mass"), "mass"),
}
GATHER = {
    "scores": Column(pa.list_(FLOATS), _own("scores")),
    "start": Column(pa.int64(), _own("start")),
    "token_ids": Column(INT32, _own("token_ids")),
    "n_tokens": Column(pa.int64(), lambda answer: len(answer.token_ids)),
    "tail": Column(FLOATS, _own("tail"), "tail"),
}
REUSED, ERROR = "reused", "error"


def _flat(rows: Sequence[NDArray[np.generic]], kind: pa.DataType) -> pa.Array:
    if sum(row.size for row in rows) > LIST_LIMIT:
        raise NepitError("ELIMIT", "the answers of a batch are too large", "batch_size")
    dtype = kind.to_pandas_dtype()
    values = np.concatenate([np.empty(0, dtype), *(row.ravel() for row in rows)])
    return pa.array(values.astype(dtype, copy=False), kind)


def _ends(counts: Sequence[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int32))


def _lists(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """A list column, of an array (or None) for each row; two axes are lists of lists."""
    nested = pa.types.is_list(kind.value_type)
    nothing = np.empty((0, 0) if nested else 0, np.int32)
    rows = [nothing if value is None else np.asarray(value) for value in values]
    if nested:
        widths = [row.shape[1] for row in rows for _ in range(len(row))]
        inner = _flat(rows, kind.value_type.value_type)
        flat = pa.ListArray.from_arrays(_ends(widths), inner, type=kind.value_type)
    else:
        flat = _flat(rows, kind.value_type)
    missing = np.array([value is None for value in values], bool)
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(_ends([len(row) for row in rows]), flat, type=kind, mask=mask)


def table_of(answers: Sequence[Answer], columns: Mapping[str, Column]) -> pa.Table:
    """One row for each answer."""
    arrays = []
    for column in columns.values():
        values = [column.value(answer) for answer in answers]
        numbers = pa.types.is_list(column.type) and column.type.value_type != pa.binary()
        arrays.append(_lists(values, column.type) if numbers else pa.array(values, column.type))
    return pa.table(arrays, schema=pa.schema([(n, c.type) for n, c in columns.items()]))


# ---- cells ---------------------------------------------------------------------------------------


def cells_of(column: pa.ChunkedArray, name: str) -> list[Cell]:
    """Texts, ids (int64), lists of ids or numbers; None for null; an error for what is neither."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _allowed(kind):
        raise TypeError(f"column {name!r}: texts or lists of token ids are expected, not {kind}")
    return [_cell(scalar, name) for scalar in column]


def _allowed(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.ExtensionType):  # tensors of Ray
        return True
    tests = ("string", "large_string", "binary", "large_binary", "null", "integer")
    if any(getattr(pa.types, f"is_{test}")(kind) for test in tests):
        return True
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(nested or pa.types.is_fixed_size_list(kind))


def _cell(scalar: pa.Scalar, name: str) -> Cell:
    if not scalar.is_valid:
        return None
    if hasattr(scalar, "values"):
        return _ids(scalar.values, name)
    value = scalar.as_py()
    if isinstance(value, (str, bytes, int)):
        return value
    array = np.asarray(value)
    return list(array) if array.ndim == 2 else array


def _ids(values: pa.Array, name: str) -> Cell:
    if values.null_count:
        return NepitError("EINPUT", "an id is null", name)
    if hasattr(values.type, "value_type"):
        rows = [_ids(row.values, name) for row in values]
        wrong = [row for row in rows if isinstance(row, Exception)]
        return wrong[0] if wrong else cast("list[Ids]", rows)
    return cast(Ids, values.to_numpy(zero_copy_only=False))


def key_of(cells: Sequence[Cell]) -> Optional[bytes]:
    """What a row asks, in 16 bytes; None where a cell is no text, no ids and no number."""
    pieces: list[bytes] = []
    for cell in cells:
        if isinstance(cell, (str, bytes)):
            raw = cell.encode("utf-8", "surrogateescape") if isinstance(cell, str) else cell
            pieces += [b"text", raw]
        elif isinstance(cell, int):
            pieces += [b"number", str(cell).encode()]
        elif isinstance(cell, (np.ndarray, list)):
            rows = cell if isinstance(cell, list) else [cell]
            arrays = [np.asarray(row) for row in rows]
            if any(array.size and array.dtype.kind not in "iu" for array in arrays):
                return None
            pieces += [b"ids" if isinstance(cell, np.ndarray) else b"rows"]
            pieces += [array.astype("<i8").tobytes() for array in arrays] + [b"end"]
        else:
            return None
    return checkpoint.digest(*pieces)


# ---- work ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What is asked of a data set; values only, so that it travels to the machines.

    Attributes
    ----------
    verb : "score" or "gather"
    model : path, the same on every machine
    fingerprint : of the model's files
    engine : keywords of nepit.open
    inputs : column of the data set for each input of the verb
    options : keywords of the verb
    want : name in the output for each column of answers
    raises : whether a row that cannot be scored ends the run
    folder : of the checkpoint, None without
    """

    verb: str
    model: str
    fingerprint: str
    engine: Mapping[str, object]
    inputs: Mapping[str, str]
    options: Mapping[str, object]
    want: Mapping[str, str]
    raises: bool = False
    folder: Optional[str] = None

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of answers, without the one that says where they come from."""
        known = VERBS[self.verb].columns
        return {name: known[name] for name in self.want if name != REUSED}


@dataclass(frozen=True)
class Verb:
    columns: Mapping[str, Column]
    run: Callable[[native.Model, Job, Sequence[Sequence[Cell]]], list[Found]]


def _score(model: native.Model, job: Job, rows: Sequence[Sequence[Cell]]) -> list[Found]:
    prompts = [cast(Prompt, row[0]) for row in rows]
    options = cast("ScoreOptions", job.options)
    return list(model.score(prompts, errors="return", **options))


def _gather(model: native.Model, job: Job, rows: Sequence[Sequence[Cell]]) -> list[Found]:
    given = dict(job.options)
    given |= {name: list(cells) for name, cells in zip(job.inputs, zip(*rows))}
    prompts = cast("list[Prompt]", given.pop("prompt"))
    response = cast("Optional[list[Prompt]]", given.pop("response", None))
    candidates = cast("list[Candidates]", given.pop("candidates"))
    start = cast("Optional[list[int]]", given.pop("start", None))
    options = cast("GatherOptions", given)
    return list(
        model.gather(prompts, response, candidates, start=start, errors="return", **options)
    )


VERBS = {"score": Verb(SCORE, _score), "gather": Verb(GATHER, _gather)}


@dataclass
class _Batch:
    """The answers of a batch while they come together: rows of tables, or errors."""

    keys: list[Optional[bytes]]
    tables: list[pa.Table] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)  # row -> row of all tables together
    reused: set[int] = field(default_factory=set)
    errors: dict[int, Exception] = field(default_factory=dict)

    def add(self, rows: Sequence[int], answers: pa.Table, reused: bool) -> None:
        begin = sum(len(table) for table in self.tables)
        self.tables.append(answers)
        self.place |= {row: begin + i for i, row in enumerate(rows)}
        self.reused |= set(rows) if reused else set()

    def open_rows(self) -> list[int]:
        return [i for i in range(len(self.keys)) if i not in self.place and i not in self.errors]


class Worker:
    """An engine that adds answers to tables.

    Parameters
    ----------
    job : what is asked
    index : the finished rows of the checkpoint, None without one

    Raises
    ------
    NepitError
        EINPUT: the model here is another one than where the run was started.
    """

    def __init__(self, job: Job, index: Optional[checkpoint.Index] = None) -> None:
        found = checkpoint.fingerprint(job.model)
        if found != job.fingerprint:
            raise NepitError(
                "EINPUT",
                f"the model here is another one than where the run began ({job.fingerprint})",
                job.model,
                found,
            )
        self.job, self.index = job, index
        self.store = checkpoint.Store(job.folder) if job.folder is not None else None
        self.model = native.open(job.model, **job.engine)  # type: ignore[arg-type]

    def __call__(self, table: pa.Table) -> pa.Table:
        cells = list(zip(*(self._cells(table, name) for name in self.job.inputs.values())))
        batch = _Batch([key_of(row) for row in cells])
        self._refuse(batch, cells)
        rows = self._from_index(batch)
        name = ""
        if self.store is not None and rows:
            name, part = self.store.of_batch([cast(bytes, batch.keys[i]) for i in rows])
            had = [i for i in rows if batch.keys[i] in part]
            if had:
                self._reuse(batch, name, had, [part[cast(bytes, batch.keys[i])] for i in had])
        self._compute(batch, cells, name)
        return self._beside(table, batch)

    def _cells(self, table: pa.Table, name: str) -> list[Cell]:
        if name not in table.column_names:
            there = ", ".join(table.column_names)
            raise NepitError("EINPUT", f"there is no such column among {there}", "column", name)
        return cells_of(table.column(name), name)

    def _refuse(self, batch: _Batch, cells: Sequence[Sequence[Cell]]) -> None:
        for i, row in enumerate(cells):
            for name, cell in zip(self.job.inputs.values(), row):
                if cell is None:
                    batch.errors[i] = NepitError("EINPUT", "the value is null", name)
                elif isinstance(cell, Exception):
                    batch.errors[i] = cell
            if batch.keys[i] is None and i not in batch.errors:
                batch.errors[i] = TypeError("token ids are whole numbers")

    def _from_index(self, batch: _Batch) -> list[int]:
        """Takes what the index knows; gives the rows that are left."""
        rows = batch.open_rows()
        if self.index is None or not rows:
            return rows
        places = self.index.find([cast(bytes, batch.keys[i]) for i in rows])
        for part in np.unique(self.index.part[places[places >= 0]]).tolist():
            here = [k for k, at in enumerate(places) if at >= 0 and self.index.part[at] == part]
            at = self.index.row[places[here]].tolist()
            self._reuse(batch, self.index.names[part], [rows[k] for k in here], at)
        return batch.open_rows()

    def _reuse(self, batch: _Batch, name: str, rows: Sequence[int], at: Sequence[int]) -> None:
        assert self.store is not None
        found = self.store.take(name, at)
        if found is not None:
            batch.add(rows, found.select(list(self.job.columns)), reused=True)

    def _compute(self, batch: _Batch, cells: Sequence[Sequence[Cell]], name: str) -> None:
        rows = batch.open_rows()
        if not rows:
            return
        found = VERBS[self.job.verb].run(self.model, self.job, [cells[i] for i in rows])
        failed = {i: self._here(x) for i, x in zip(rows, found) if isinstance(x, NepitError)}
        for error in failed.values():
            if error.code not in ROW_ERRORS:
                raise error
        batch.errors.update(failed)
        good = [i for i in rows if i not in failed]
        if not good:
            return
        answers = [x for x in found if not isinstance(x, NepitError)]
        done = table_of(answers, self.job.columns)
        if self.store is not None:
            self.store.write(name, [cast(bytes, batch.keys[i]) for i in good], done)
        batch.add(good, done, reused=False)

    def _here(self, error: NepitError) -> NepitError:
        """The error in terms of the data set: it names the column, and no place in a batch, which
        is another one the next time.
        """

        def column(match: re.Match[str]) -> str:
            word = _INPUT.get(match[2]) or _INPUT.get(match[1], match[1])
            return self.job.inputs.get(word, word)

        message, where = (_PLACE.sub(column, text) for text in (error.message, error.where))
        return NepitError(error.code, message, where, error.given, error.offset)

    def _beside(self, table: pa.Table, batch: _Batch) -> pa.Table:
        if self.job.raises and batch.errors:
            row = min(batch.errors)
            raise _placed(batch.errors[row], f"row {row} of a batch")
        n = len(batch.keys)
        at = pa.array([batch.place.get(i) for i in range(n)], pa.int64())
        schema = pa.schema([(name, column.type) for name, column in self.job.columns.items()])
        known = pa.concat_tables([schema.empty_table(), *batch.tables]).take(at)
        for name, as_name in self._names():
            if as_name in table.column_names:
                raise NepitError(
                    "EINPUT", "is a column already: give it another name", "want", as_name
                )
            table = table.append_column(as_name, self._column(known, batch, name))
        return table

    def _names(self) -> Iterator[tuple[str, str]]:
        yield from self.job.want.items()
        if not self.job.raises:
            yield ERROR, ERROR

    def _column(
        self, known: pa.Table, batch: _Batch, name: str
    ) -> Union[pa.Array, pa.ChunkedArray]:
        n = len(batch.keys)
        if name == REUSED:
            return pa.array([i in batch.reused for i in range(n)], pa.bool_())
        if name == ERROR:
            return pa.array([_told(batch.errors.get(i)) for i in range(n)], pa.string())
        return known.column(name)


def _placed(error: Exception, row: str) -> NepitError:
    if not isinstance(error, NepitError):
        return NepitError("EINPUT", str(error), row)
    where = f"{error.where}, {row}" if error.where else row
    return NepitError(error.code, error.message, where, error.given, error.offset)


def _told(error: Optional[Exception]) -> Optional[str]:
    if error is None:
        return None
    code = error.code if isinstance(error, NepitError) else "EINPUT"
    return f"{code}: {error}"
