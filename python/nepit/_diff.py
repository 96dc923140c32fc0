"""`diff`: how far two sets of log-probabilities are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union, cast

import numpy as np
from numpy.typing import NDArray

from ._frames import Columns, Shown, Tabular, brief
from ._results import Gathered, Generation, Score
from ._types import SupportsArray, SupportsDLPack

IMPOSSIBLE = -9999.0
"""How -inf is written where a format has no infinity: in JSON, ours and others'."""

Cells = Union[
    Score,
    Gathered,
    Generation,
    "NDArray[np.floating]",
    SupportsDLPack,
    SupportsArray,
    "Sequence[float | None]",
    "Sequence[Cells]",
]
_TINY = 1e-10  # keeps the relative error of a log-probability of 0 finite


@dataclass(frozen=True, eq=False, repr=False)
class Statistic(Shown):
    """Of the cells that are finite on both sides; NaN where there is none. `stdev` divides by n."""

    max: float
    mean: float
    stdev: float
    median: float
    min: float


@dataclass(frozen=True, eq=False, repr=False)
class Apart(Shown):
    """A cell: its place (of lists: the list first), both log-probabilities, both errors."""

    place: tuple[int, ...]
    a: float
    b: float
    relative: float
    probability: float


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Tabular):
    """How far two sets of log-probabilities are apart.

    The ratio of a cell is w = exp(a - b), as of a policy `a` and of what drew the tokens, `b`.

    Attributes
    ----------
    n : cells that are finite on both sides; all that follows but the counts is over these
    n_missing : cells that are NaN or None on a side, and counted nowhere else
    n_both_impossible, n_only_a_impossible, n_only_b_impossible : cells that are -inf (or -9999)
    n_different : cells of n that are not bit for bit the same number
    relative : Statistic of ``|a - b| / (|b| + 1e-10)``
    probability : Statistic of ``|exp(a) - exp(b)|``
    k1, k2, k3 : means of b - a, (a - b)**2 / 2 and w - 1 - (a - b): estimates of ``KL(b || a)`` in
        nats, from tokens that b drew
    ratio : Statistic of w
    effective_sample_size : (sum w)**2 / sum w**2, 1 to n
    clipped_fraction : of cells with ``|w - 1| > eps``
    eps : that
    worst : the cells with the largest ``|a - b|``, -inf against a number first

    As a table, a line for each of the worst: place, a, b, relative, probability.
    """

    n: int
    n_missing: int
    n_both_impossible: int
    n_only_a_impossible: int
    n_only_b_impossible: int
    n_different: int
    relative: Statistic
    probability: Statistic
    k1: float
    k2: float
    k3: float
    ratio: Statistic
    effective_sample_size: float
    clipped_fraction: float
    eps: float
    worst: tuple[Apart, ...]

    @property
    def same(self) -> bool:
        """Whether all cells are the same numbers, and there on both sides."""
        apart = self.n_different + self.n_only_a_impossible + self.n_only_b_impossible
        return apart == 0 and self.n_missing == 0

    def _columns(self) -> Columns:
        names = ("a", "b", "relative", "probability")
        columns: dict[str, object] = {"place": [brief(x.place) for x in self.worst]}
        return columns | {name: [getattr(x, name) for x in self.worst] for name in names}

    def _repr_html_(self) -> str:
        from . import _html

        rows = [
            [name]
            + [f"{getattr(value, part):.4g}" for part in ("max", "mean", "stdev", "median", "min")]
            for name, value in (
                ("relative error of log-probabilities", self.relative),
                ("error of probabilities", self.probability),
                ("ratio exp(a - b)", self.ratio),
            )
        ]
        below = [
            f"{self.n} cells, {self.n_different} different; -inf: both {self.n_both_impossible}, "
            f"only a {self.n_only_a_impossible}, only b {self.n_only_b_impossible}; "
            f"missing {self.n_missing}",
            f"k1 {self.k1:.4g}, k2 {self.k2:.4g}, k3 {self.k3:.4g} nats; effective sample size "
            f"{self.effective_sample_size:.6g}; clipped at {self.eps}: {self.clipped_fraction:.4g}",
        ]
        return _html.table(["", "max", "mean", "stdev", "median", "min"], rows, below)


def diff(a: Cells, b: Cells, *, eps: float = 0.2, worst: int = 10) -> Difference:
    """How far two sets of log-probabilities are apart.

    Parameters
    ----------
    a, b : arrays of any shape, tensors, Score (its scored tokens), Gathered, Generation, lists of
        numbers (None is missing), or lists of any of these
        Nats, of equal shape. The reference is `b`. -inf, and -9999 which JSON writes for it, is
        counted apart.
    eps : float
        The clipped fraction is that of ``|exp(a - b) - 1| > eps``.
    worst : int
        So many cells are listed.

    Returns
    -------
    Difference

    Raises
    ------
    ValueError
        The shapes differ (both are told); a value is +inf.
    TypeError
        What holds no numbers.
    """
    left, right = _blocks(a, "a"), _blocks(b, "b")
    shapes = [[block.shape for block in side] for side in (left, right)]
    if shapes[0] != shapes[1]:
        told = " and ".join(brief([list(shape) for shape in side]) for side in shapes)
        raise ValueError(f"a and b have different shapes: {told}")
    x, y = (_joined(side, name) for side, name in ((left, "a"), (right, "b")))
    missing = np.isnan(x) | np.isnan(y)
    gone_x, gone_y = np.isneginf(x) & ~missing, np.isneginf(y) & ~missing
    finite = ~missing & ~gone_x & ~gone_y
    p, q = x[finite], y[finite]
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.abs(p - q) / (np.abs(q) + _TINY)
        probability = np.abs(np.exp(p) - np.exp(q))
        log_ratio = p - q
        ratio = np.exp(log_ratio)
        k3 = np.expm1(log_ratio) - log_ratio
        clipped = np.abs(np.expm1(log_ratio)) > eps
    return Difference(
        n=int(finite.sum()),
        n_missing=int(missing.sum()),
        n_both_impossible=int((gone_x & gone_y).sum()),
        n_only_a_impossible=int((gone_x & ~gone_y).sum()),
        n_only_b_impossible=int((gone_y & ~gone_x).sum()),
        n_different=int((p != q).sum()),
        relative=_statistic(relative),
        probability=_statistic(probability),
        k1=_mean(-log_ratio),
        k2=_mean(log_ratio**2 / 2),
        k3=_mean(k3),
        ratio=_statistic(ratio),
        effective_sample_size=_effective(log_ratio),
        clipped_fraction=_mean(clipped),
        eps=eps,
        worst=_worst(x, y, missing, worst, [block.shape for block in left]),
    )


# ---- inside --------------------------------------------------------------------------------------


def _is_row(values: Sequence[object]) -> bool:
    """Whether a list is one of numbers."""
    return all(value is None or isinstance(value, (int, float, np.number)) for value in values)


def _blocks(values: object, name: str) -> list[NDArray[np.float64]]:
    """The arrays of one side."""
    if isinstance(values, Score):
        return [values.scored.astype(np.float64)]
    if isinstance(values, Gathered):
        return [values.scores.astype(np.float64)]
    if isinstance(values, Generation):
        if values.logprobs is None:
            raise TypeError(f"{name}: a Generation without log-probabilities: generate with top=0")
        return [values.logprobs.astype(np.float64)]
    if isinstance(values, (list, tuple)) and not _is_row(values):
        blocks = [block for i, one in enumerate(values) for block in _blocks(one, f"{name}[{i}]")]
        equal = len({block.shape for block in blocks}) == 1
        return [np.stack(blocks)] if equal else blocks
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        try:
            values = np.from_dlpack(cast("NDArray[np.float64]", values))
        except (BufferError, RuntimeError) as error:  # another device, bfloat16, with a gradient
            more = "give .detach().float().cpu()"
            raise TypeError(f"{name}: the tensor cannot be read ({error}): {more}") from error
    if isinstance(values, (str, bytes)) or values is None:
        raise TypeError(f"{name}: log-probabilities are expected, not {type(values).__name__}")
    array = np.array(values, np.float64)
    return [array.reshape(1) if array.ndim == 0 else array]


def _joined(blocks: list[NDArray[np.float64]], name: str) -> NDArray[np.float64]:
    flat = [block.ravel() for block in blocks]
    cells = np.concatenate(flat) if flat else np.empty(0)
    if np.isposinf(cells).any():
        raise ValueError(f"{name}: a log-probability is +inf")
    cells[cells <= IMPOSSIBLE] = -np.inf
    return cells


def _mean(values: NDArray[np.generic]) -> float:
    return float(np.mean(cast("NDArray[np.float64]", values))) if values.size else math.nan


def _statistic(values: NDArray[np.float64]) -> Statistic:
    if not values.size:
        return Statistic(*[math.nan] * 5)
    with np.errstate(over="ignore", invalid="ignore"):
        parts = (values.max(), values.mean(), values.std(), np.median(values), values.min())
    return Statistic(*map(float, parts))


def _effective(log_ratio: NDArray[np.float64]) -> float:
    if not log_ratio.size:
        return math.nan
    weights = np.exp(log_ratio - log_ratio.max())  # a common factor cancels
    return float(weights.sum() ** 2 / (weights**2).sum())


def _worst(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    missing: NDArray[np.bool_],
    n: int,
    shapes: Sequence[tuple[int, ...]],
) -> tuple[Apart, ...]:
    with np.errstate(invalid="ignore"):
        apart = np.where(x == y, 0.0, np.abs(x - y))
    apart[missing] = 0
    order = np.argsort(-apart, kind="stable")[:n]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    told = []
    for cell in order[apart[order] > 0].tolist():
        block = int(np.searchsorted(ends, cell, side="right"))
        within = cell - (int(ends[block - 1]) if block else 0)
        place = tuple(int(i) for i in np.unravel_index(within, shapes[block]))
        a, b = float(x[cell]), float(y[cell])
        relative = abs(a - b) / (abs(b) + _TINY) if math.isfinite(b) else math.inf
        probability = abs(math.exp(a) - math.exp(b))
        told.append(
            Apart((block, *place) if len(shapes) > 1 else place, a, b, relative, probability)
        )
    return tuple(told)
