"""Arrays over C's memory, and Python's values as arrays that C can read."""

from __future__ import annotations

import ctypes as c
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._bridge import NepitError

T = TypeVar("T", bound=np.generic)


def _view(owner: object, pointer: Any, shape: tuple[int, ...], dtype: type[T]) -> NDArray[T] | None:
    """An array over C's memory, which `owner` keeps; None where C has none. Read-only."""
    if not pointer:
        return None
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    cells = (pointer._type_ * count).from_address(c.addressof(pointer.contents))
    cells._owner = owner  # the array's base is `cells`, which lives as long as any view of it
    array = np.frombuffer(cells, dtype).reshape(shape)
    array.flags.writeable = False
    return array


def maybe_floats(
    owner: object, pointer: object, shape: tuple[int, ...]
) -> NDArray[np.float32] | None:
    """float32; None where it was not asked for."""
    return _view(owner, pointer, shape, np.float32)


def maybe_ints(owner: object, pointer: object, shape: tuple[int, ...]) -> NDArray[np.int32] | None:
    """int32; None where it was not asked for."""
    return _view(owner, pointer, shape, np.int32)


def floats(owner: object, pointer: object, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """float32; empty where C has no row."""
    found = maybe_floats(owner, pointer, shape)
    return np.empty(shape, np.float32) if found is None else found


def ints(owner: object, pointer: object, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """int32; empty where C has no row."""
    found = maybe_ints(owner, pointer, shape)
    return np.empty(shape, np.int32) if found is None else found


def copied_ints(pointer: object, n: int) -> NDArray[np.int32]:
    """int32 that outlive C's memory."""
    return ints(None, pointer, (n,)).copy()


def spans(begin: object, end: object, n: int) -> NDArray[np.int64]:
    """[n, 2]: two arrays of size_t, copied."""
    sides = [_view(None, side, (n,), np.uintp) for side in (begin, end)]
    return np.stack([np.array(() if x is None else x, np.int64) for x in sides], axis=1)


def ids_array(values: object, name: str, dimensions: tuple[int, ...] = (1,)) -> NDArray[np.int32]:
    """Token ids in the layout of C: int32, contiguous. Lists, arrays of any integer type and
    stride, tensors (by DLPack or __array__). Floats, texts and numbers beyond int32 are refused.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: token ids are expected, not a text")
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        values = np.from_dlpack(values)
    array = np.asarray(values)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int32)  # an empty list
    if array.dtype == object or array.dtype.kind not in "iu":
        raise TypeError(f"{name}: token ids are whole numbers, not {array.dtype}")
    if array.ndim not in dimensions:
        raise ValueError(
            f"{name}: {array.ndim} dimensions, {' or '.join(map(str, dimensions))} are expected"
        )
    if array.dtype != np.int32 and array.size:
        low, high = int(array.min()), int(array.max())
        if low < -(2**31) or high >= 2**31:
            raise NepitError(
                "EINPUT", "an id must lie in 32 bits", name, str(low if low < -(2**31) else high)
            )
    return np.ascontiguousarray(array, dtype=np.int32)


def pad_rows(rows: Sequence[object], name: str) -> NDArray[np.int32]:
    """Rows of different lengths as one array, padded with -1."""
    lists = [ids_array(row, f"{name}[{i}]") for i, row in enumerate(rows)]
    width = max((len(row) for row in lists), default=0)
    padded = np.full((len(lists), width), -1, np.int32)
    for i, row in enumerate(lists):
        padded[i, : len(row)] = row
    return padded
