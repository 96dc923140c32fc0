"""Data sets on more than one machine: Ray Data with one engine for each actor.

    import ray, nepit.ray

    texts = ray.data.read_parquet("texts")
    nepit.ray.score(texts, model="model.gguf", threads=8, concurrency=4).write_parquet("scores")

Needs `pip install 'nepit[ray]'`. Every number has the bits that `nepit.open(model).score(text)`
gives, on whichever machine, in whichever batch, and after whatever crash. docs/SCALE.md has the
figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, get_args

import numpy as np

from . import _arrays as arrays
from . import _bridge as bridge
from ._bridge import NepitError
from ._types import Candidates, Condition, LogprobsMode

try:
    from . import _checkpoint as _kept
    from . import _tables as tables
except ImportError as error:
    raise ImportError(f"nepit.ray needs Ray Data ({error}): pip install 'nepit[ray]'") from error

if TYPE_CHECKING:
    import ray
    import ray.data

Checkpoint = _kept.Checkpoint
Want = Union[Sequence[str], Mapping[str, str], None]
Errors = Literal["column", "raise"]
PROFILES = ("f32", "bf16", "int16")
MODES, CONDITIONS = get_args(LogprobsMode), (None, *get_args(Condition))
SCORE_WANT = ("logprobs", "token_ids", "ranks", "total", "n_tokens")
GATHER_WANT = ("scores", "start")


def score(
    dataset: ray.data.Dataset,
    *,
    model: str,
    column: str = "text",
    want: Want = None,
    start: int = 0,
    top: int = 0,
    entropy: bool = False,
    mass: bool = False,
    condition: Optional[Condition] = None,
    add_special: Optional[bool] = None,
    parse_special: Optional[bool] = None,
    score_temperature: Optional[float] = None,
    logprobs_mode: LogprobsMode = "raw_logprobs",
    profile: Optional[str] = None,
    threads: int = 1,
    context: int = 0,
    max_memory: int = 0,
    cache_memory: Optional[int] = None,
    cpu: Optional[str] = None,
    concurrency: Union[int, tuple[int, int]] = 1,
    num_cpus: Optional[float] = None,
    batch_size: int = 64,
    preserve_order: bool = False,
    errors: Errors = "column",
    checkpoint: Optional[str] = None,
    ray_remote_args: Optional[Mapping[str, object]] = None,
) -> ray.data.Dataset:
    """The log-probability of every token of a column of texts, or of ids.

    Parameters
    ----------
    dataset : with a column of texts (string or binary) or of token ids (lists of whole numbers)
    model : path of the model; the same files on every machine, which is checked
    column : its name
    want : names of the columns to add, or a mapping of them to names of your own. Default:
        logprobs, token_ids, ranks, total, n_tokens, and what `top`, `entropy` and `mass` give.
        Also: mean, perplexity, bits_per_byte, n_scored, n_scored_bytes, start, texts, offsets,
        entropies, top_ids, top_logprobs, mass; reused (bool: the row was in the checkpoint)
    start, top, entropy, mass, condition, add_special, parse_special, score_temperature,
        logprobs_mode : as in `Model.score`
    profile, context, max_memory, cache_memory, cpu : as in `nepit.open`
    threads : of each engine
    concurrency : engines; (least, most) lets Ray decide
    num_cpus : cores that Ray sets aside for an engine. Default: `threads`, and less where that
        would leave no core of the cluster for reading and writing, so that nothing moved.
    batch_size : rows that an engine has at a time: the blocks of the data set are split to that
        size. It bounds the memory, and is what a crash can cost; a minute of work is plenty.
    preserve_order : rows leave in the order of the data set; set for all of its plan
    errors : "column": a row that cannot be scored (null, empty, too long, no token for a byte) has
        nulls, and why in the column `error`; "raise": it ends the run
    checkpoint : folder (or an address that pyarrow knows) that keeps finished batches; a run that
        was ended continues from it
    ray_remote_args : for the actors, as in `map_batches`

    Returns
    -------
    ray.data.Dataset
        The data set with columns added, not computed yet. Lists are list<float32> in nats (NaN
        where nothing is scored) and list<int32>, position i for token i; `total` is float64.

    Raises
    ------
    NepitError
        EINPUT: an option, a column, or a checkpoint of another model or other options. Errors of
        the engines come from Ray while the data set is computed.
    """
    options: dict[str, object] = dict(start=start, top=top, entropy=entropy, mass=mass)
    options |= dict(condition=condition, add_special=add_special, parse_special=parse_special)
    options |= dict(score_temperature=score_temperature, logprobs_mode=logprobs_mode)
    default = [name for name in SCORE_WANT if name != column]
    engine = _engine(profile, threads, context, max_memory, cache_memory, cpu)
    job = _job("score", model, engine, {"prompt": column}, options, want, default, errors)
    pool = _pool(concurrency, threads, num_cpus, batch_size, preserve_order, ray_remote_args)
    return _mapped(dataset, job, checkpoint, pool)


def gather(
    dataset: ray.data.Dataset,
    *,
    model: str,
    prompt: str = "prompt",
    response: Optional[str] = "response",
    candidates: Union[str, Candidates] = "candidates",
    start: Union[int, str, None] = None,
    want: Want = None,
    tail: bool = False,
    score_temperature: Optional[float] = None,
    logprobs_mode: LogprobsMode = "raw_logprobs",
    add_special: Optional[bool] = None,
    parse_special: Optional[bool] = None,
    profile: Optional[str] = None,
    threads: int = 1,
    context: int = 0,
    max_memory: int = 0,
    cache_memory: Optional[int] = None,
    cpu: Optional[str] = None,
    concurrency: Union[int, tuple[int, int]] = 1,
    num_cpus: Optional[float] = None,
    batch_size: int = 64,
    preserve_order: bool = False,
    errors: Errors = "column",
    checkpoint: Optional[str] = None,
    ray_remote_args: Optional[Mapping[str, object]] = None,
) -> ray.data.Dataset:
    """Teacher scoring: chosen candidates at every row of every sequence.

    Parameters
    ----------
    prompt, response : columns of texts or of ids; response=None: the prompt is the whole sequence
    candidates : column of ids (a list for all rows, or a list for each row), or the ids themselves
        for the whole data set
    start : first row, a number or a column, in place of a response (response=None)
    want : scores, start (default, and tail where it is asked for), token_ids, n_tokens, reused
    tail, score_temperature, logprobs_mode, add_special, parse_special : as in `Model.gather`

    The rest is as in `score`.

    Returns
    -------
    ray.data.Dataset
        With `scores`, list<list<float32>> [n_rows, n_candidates], in nats; padding is -inf.
    """
    inputs = {"prompt": prompt}
    options: dict[str, object] = dict(tail=tail, logprobs_mode=logprobs_mode)
    options |= dict(score_temperature=score_temperature)
    options |= dict(add_special=add_special, parse_special=parse_special)
    if response is not None and start is not None:
        raise NepitError("EINPUT", "a response or a start is expected; response=None", "start")
    if response is not None:
        inputs["response"] = response
    if isinstance(start, str):
        inputs["start"] = start
    elif start is not None:
        options["start"] = start
    if isinstance(candidates, str):
        inputs["candidates"] = candidates
    else:
        options["candidates"] = ids = arrays.ids_array(candidates, "candidates").tolist()
        if not ids:
            raise NepitError("EINPUT", "at least one id is needed", "candidates")
    engine = _engine(profile, threads, context, max_memory, cache_memory, cpu)
    job = _job("gather", model, engine, inputs, options, want, GATHER_WANT, errors)
    pool = _pool(concurrency, threads, num_cpus, batch_size, preserve_order, ray_remote_args)
    return _mapped(dataset, job, checkpoint, pool)


def checkpoint_info(folder: str) -> Checkpoint:
    """What a checkpoint folder holds; may be asked while a run goes on."""
    store = _kept.Store(folder)
    if store.about() is None:
        raise NepitError("EINPUT", "there is no checkpoint", "checkpoint", folder)
    return store.index()[1]


# ---- options -------------------------------------------------------------------------------------


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


# What is allowed, and how an error says it. Names that are not here are columns.
ALLOWED: dict[str, tuple[Callable[[object], bool], str]] = {
    "start": (lambda x: _whole(x) and int(str(x)) >= 0, "a row, 0 or more"),
    "top": (lambda x: _whole(x) and int(str(x)) >= -1, "a number of tokens, or -1"),
    "entropy": (_flag, "True or False"),
    "mass": (_flag, "True or False"),
    "tail": (_flag, "True or False"),
    "condition": (lambda x: x in CONDITIONS, 'None, "bos" or "none"'),
    "add_special": (lambda x: x is None or _flag(x), "None, True or False"),
    "parse_special": (lambda x: x is None or _flag(x), "None, True or False"),
    "score_temperature": (
        lambda x: x is None or (_number(x) and 0 < float(str(x)) < math.inf),
        "None, or a number above 0",
    ),
    "logprobs_mode": (lambda x: x in MODES, f"one of {', '.join(MODES)}"),
    "profile": (lambda x: x is None or x in PROFILES, f"None or one of {', '.join(PROFILES)}"),
    "threads": (lambda x: _whole(x) and int(str(x)) >= 0, "0 or more"),
    "context": (lambda x: _whole(x) and int(str(x)) >= 0, "tokens, 0 or more"),
    "max_memory": (lambda x: _whole(x) and int(str(x)) >= 0, "bytes, 0 or more"),
    "preserve_order": (_flag, "True or False"),
    "errors": (lambda x: x in ("column", "raise"), '"column" or "raise"'),
    "batch_size": (lambda x: _whole(x) and int(str(x)) > 0, "rows, 1 or more"),
}


def _check(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        allowed, told = ALLOWED.get(name, (lambda _: True, ""))
        if not allowed(value):
            raise NepitError("EINPUT", f"{told} is expected", name, repr(value))
    if options.get("mass") and not options.get("top"):
        raise NepitError("EINPUT", "needs top: it is what the top tokens leave", "mass")


def _engine(
    profile: Optional[str],
    threads: int,
    context: int,
    max_memory: int,
    cache_memory: Optional[int],
    cpu: Optional[str],
) -> dict[str, object]:
    found: dict[str, object] = {
        "profile": profile,
        "threads": threads,
        "context": context,
        "max_memory": max_memory,
        "cache_memory": cache_memory,
        "cpu": cpu,
    }
    _check(found)
    return found


def _wanted(
    verb: str, want: Want, default: Sequence[str], options: Mapping[str, object]
) -> dict[str, str]:
    columns = tables.VERBS[verb].columns
    given = {name for name, column in columns.items() if options.get(column.option)}
    if want is None:
        want = [*default, *(name for name in columns if name in given)]
    if isinstance(want, str):
        raise TypeError("want: a list of names, or a mapping, is expected, not a text")
    names = dict(want) if isinstance(want, Mapping) else {name: name for name in want}
    known = [*columns, tables.REUSED]
    for name in names:
        if name not in known:
            raise NepitError("EINPUT", f"one of {', '.join(known)} is expected", "want", name)
        if name in columns and columns[name].option and name not in given:
            raise NepitError("EINPUT", f"needs the option {columns[name].option}", "want", name)
    if len(set(names.values()) | {tables.ERROR}) <= len(names):
        raise NepitError("EINPUT", "two columns have the same name", "want", str(names))
    return names


def _job(
    verb: str,
    model: str,
    engine: Mapping[str, object],
    inputs: Mapping[str, str],
    options: Mapping[str, object],
    want: Want,
    default: Sequence[str],
    errors: Errors,
) -> tables.Job:
    _check({**options, "errors": errors})
    names = _wanted(verb, want, default, options)
    path = str(Path(model).absolute()) if Path(model).exists() else str(model)
    return tables.Job(
        verb, path, _fingerprint(path), engine, inputs, options, names, errors == "raise"
    )


def _about(job: tables.Job) -> dict[str, object]:
    """What the bits of an answer depend on; a checkpoint belongs to one such set."""
    return {
        "format": 1,
        "verb": job.verb,
        "model_fingerprint": job.fingerprint,
        "numerics": bridge.text_of(bridge.lib.np_numerics()),
        "nepit": bridge.VERSION,
        "profile": job.engine["profile"] or "f32",
        "inputs": sorted(job.inputs),
        "columns": sorted(job.columns),
        **job.options,
    }


# ---- Ray -----------------------------------------------------------------------------------------


def _fingerprint(model: str) -> str:
    """Of the model here, or, where this machine does not have it, of one that does."""
    if Path(model).exists():
        return _kept.fingerprint(model)
    import ray

    found = ray.get(ray.remote(_kept.fingerprint).options(num_cpus=0).remote(model))
    return str(found)


@dataclass(frozen=True)
class _Pool:
    """How many engines, and how they are fed. An actor that dies is started again and does its
    task again: that is Ray Data's default.
    """

    least: int
    most: int
    threads: int
    num_cpus: Optional[float]
    batch_size: int
    preserve_order: bool
    remote: Mapping[str, Any]

    def cores(self, n_cores: float) -> float:
        """What an engine is given of a cluster of so many cores."""
        if self.num_cpus is not None:
            return self.num_cpus
        share = min(max(1, self.threads), max(0.01, (n_cores - 1) / self.least))
        return math.floor(share) if share > 1 else share  # Ray takes no fractions above 1


def _pool(
    concurrency: Union[int, tuple[int, int]],
    threads: int,
    num_cpus: Optional[float],
    batch_size: int,
    preserve_order: bool,
    remote: Optional[Mapping[str, object]],
) -> _Pool:
    least, most = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    if not (_whole(least) and _whole(most) and 1 <= least <= most):
        raise NepitError(
            "EINPUT", "a number, or (least, most), is expected", "concurrency", repr(concurrency)
        )
    _check({"batch_size": batch_size, "preserve_order": preserve_order})
    return _Pool(least, most, threads, num_cpus, batch_size, preserve_order, remote or {})


class _Actor(tables.Worker):
    """A worker whose index lies in the object store: once for each machine."""

    def __init__(
        self, job: tables.Job, index: Optional[Sequence[ray.ObjectRef[_kept.Index]]]
    ) -> None:
        import ray

        super().__init__(job, ray.get(index[0]) if index else None)


def _mapped(
    dataset: ray.data.Dataset, job: tables.Job, checkpoint: Optional[str], pool: _Pool
) -> ray.data.Dataset:
    import ray.data

    names = dataset.columns(fetch_if_missing=False)
    for name in job.inputs.values():
        if names is not None and name not in names:
            there = ", ".join(names)
            raise NepitError("EINPUT", f"there is no such column among {there}", "column", name)
    for name in job.want.values():
        if name in (names or ()):
            raise NepitError("EINPUT", "is a column already: give it another name", "want", name)
    index: Optional[list[ray.ObjectRef[_kept.Index]]] = None
    if checkpoint is not None:
        job = dataclasses.replace(job, folder=_kept.absolute(checkpoint))
        store = _kept.Store(str(job.folder))
        store.begin(_about(job))
        found = store.index()[0]
        index = [ray.put(found)] if found.names else None
    if not ray.is_initialized():
        ray.init()
    # A block is what Ray hands out. Blocks as they are read hold hours of work; one batch each lets
    # all engines end together, and a crash cost at most a batch.
    blocks = dataset.repartition(target_num_rows_per_block=pool.batch_size)
    result = blocks.map_batches(
        _Actor,
        compute=ray.data.ActorPoolStrategy(min_size=pool.least, max_size=pool.most),
        batch_size=pool.batch_size,
        batch_format="pyarrow",
        fn_constructor_kwargs={"job": job, "index": index},
        num_cpus=pool.cores(ray.cluster_resources().get("CPU", math.inf)),
        **pool.remote,
    )
    if pool.preserve_order:
        result.context.execution_options.preserve_order = True
    return result
