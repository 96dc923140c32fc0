"""`pad`: results of unequal lengths as one array, with what tells the cells apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional, Union

import numpy as np
from numpy.typing import NDArray

from ._frames import Shown
from ._results import Gathered, Generation, Score, Tokens
from ._types import SupportsArray

Row = Union[Score, Gathered, Generation, Tokens, "NDArray[np.generic]", SupportsArray]


@dataclass(frozen=True, eq=False, repr=False)
class Padded(Shown):
    """Rows of unequal lengths, in both forms that trainers use.

    Attributes
    ----------
    values : [n, longest, ...]; row i fills its first lengths[i] cells
    mask : bool [n, longest], true where a cell is filled
    lengths : int64 [n]
    flat : [sum of lengths, ...], the rows behind one another
    offsets : int64 [n + 1]; row i is flat[offsets[i]:offsets[i + 1]]
    """

    values: NDArray[np.generic]
    mask: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    flat: NDArray[np.generic]
    offsets: NDArray[np.int64]


def pad(rows: Iterable[Row], *, fill: Optional[float] = None) -> Padded:
    """Rows of unequal lengths as one array with a mask, and end to end with offsets.

    Cells are told apart by length alone: an id that looks like padding stays. There is no side to
    choose: rows begin at 0.

    Parameters
    ----------
    rows : arrays of one type that agree in all dimensions but the first; of a Score its `scored`
        values, of a Gathered its `scores`, of Generation and Tokens their `token_ids`
    fill : float, optional
        In the cells that are not filled; by default NaN for floats, -1 for ids.

    Returns
    -------
    Padded
        Copies, which may be written to.

    Raises
    ------
    ValueError
        No row, or rows that differ in type or in another dimension than the first.
    """
    arrays = [_array(row) for row in rows]
    if not arrays:
        raise ValueError("rows: at least one is expected")
    kind, shape = arrays[0].dtype, arrays[0].shape[1:]
    for i, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[1:] != shape or array.dtype != kind:
            raise ValueError(
                f"rows[{i}]: {kind} [..., {', '.join(map(str, shape))}] is expected, "
                f"not {array.dtype} {list(array.shape)}"
            )
    if fill is None:
        fill = np.nan if kind.kind == "f" else -1
    elif kind.kind in "iu" and (fill % 1 or not np.can_cast(np.min_scalar_type(int(fill)), kind)):
        raise ValueError(f"fill: {kind} is expected, not {fill!r}")
    lengths = np.array([len(array) for array in arrays], np.int64)
    flat = np.concatenate(arrays)
    longest = int(lengths.max())
    mask = np.arange(longest) < lengths[:, None]
    values = np.full((len(arrays), longest, *shape), fill, kind)
    values[mask] = flat
    return Padded(values, mask, lengths, flat, np.concatenate([[0], np.cumsum(lengths)]))


def _array(row: Row) -> NDArray[np.generic]:
    if isinstance(row, Score):
        return row.scored
    if isinstance(row, (Generation, Tokens)):
        return row.token_ids
    return np.asarray(row)
