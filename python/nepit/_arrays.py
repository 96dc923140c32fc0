"""Arrays over C's memory, and Python's values as arrays that C can read."""

from __future__ import annotations

import array
import itertools
import operator
from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ._bridge import NepitError, address_of

T = TypeVar("T", bound=np.generic)
V = TypeVar("V")

# ---- C's memory as arrays ------------------------------------------------------------------------


class _Memory:
    """What numpy makes a read-only array of; the array's base, so that it keeps the owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: object, address: int, shape: tuple[int, ...], kind: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": kind,
            "shape": shape,
            "data": (address, True),
        }


def _view(
    owner: object, pointer: object, shape: tuple[int, ...], dtype: type[T], kind: str
) -> NDArray[T] | None:
    """An array over C's memory, which `owner` keeps; None where C has none."""
    if not pointer:
        return None
    if 0 in shape:
        return np.empty(shape, dtype)
    address = pointer if isinstance(pointer, int) else address_of(pointer)
    return cast("NDArray[T]", np.asarray(_Memory(owner, address, shape, kind)))


def maybe_floats(
    owner: object, pointer: object, shape: tuple[int, ...]
) -> NDArray[np.float32] | None:
    """float32; None where it was not asked for."""
    return _view(owner, pointer, shape, np.float32, "<f4")


def maybe_ints(owner: object, pointer: object, shape: tuple[int, ...]) -> NDArray[np.int32] | None:
    """int32; None where it was not asked for."""
    return _view(owner, pointer, shape, np.int32, "<i4")


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
    return read_only(np.array(ints(None, pointer, (n,))))


def spans(begin: object, end: object, n: int) -> NDArray[np.int64]:
    """[n, 2]: two arrays of size_t, copied."""
    both = np.empty((n, 2), np.int64)
    for side, pointer in enumerate((begin, end)):
        found = _view(None, pointer, (n,), np.int64, "<i8")
        if found is not None:
            both[:, side] = found
    return read_only(both)


def read_only(array: NDArray[T]) -> NDArray[T]:
    """The same array, of what C has answered: nobody changes it."""
    array.flags.writeable = False
    return array


# ---- Python's values as arrays -------------------------------------------------------------------

_CPU_DEVICES = (1, 3)  # DLPack's: the CPU, and memory that is pinned for CUDA


def _from_tensor(values: object, name: str) -> NDArray[np.generic]:
    """A tensor by DLPack, else by __array__."""
    device = getattr(values, "__dlpack_device__", None)
    if device is not None and int(device()[0]) not in _CPU_DEVICES:
        raise TypeError(f"{name}: the tensor is not in the CPU's memory; copy it there (.cpu())")
    try:
        return np.from_dlpack(values)  # type: ignore[arg-type]
    except (BufferError, RuntimeError, TypeError) as error:
        if not hasattr(values, "__array__"):
            raise TypeError(f"{name}: token ids are expected: {error}") from error
    return np.asarray(values)


def _from_list(values: Sequence[object], name: str) -> NDArray[np.generic]:
    kinds = set(map(type, values))
    if bool in kinds or np.bool_ in kinds:
        raise TypeError(f"{name}: token ids are whole numbers, not bool")
    if kinds == {int}:  # one beyond 63 bits would make floats of all
        numbers = cast("Sequence[int]", values)
        if not _fits(min(numbers)) or not _fits(max(numbers)):
            place = next(i for i, value in enumerate(numbers) if not _fits(value))
            raise _too_large(f"{name}[{place}]", numbers[place])
        return np.array(numbers, np.int32)
    try:
        return np.asarray(values) if values else np.empty(0, np.int32)
    except ValueError as error:
        raise TypeError(f"{name}: token ids are expected: {error}") from error


def _fits(value: int) -> bool:
    return -(2**31) <= value < 2**31


def _too_large(where: str, given: object) -> NepitError:
    return NepitError("EINPUT", "an id must lie in 32 bits", where, str(given))


def ids_array(values: object, name: str, dimensions: tuple[int, ...] = (1,)) -> NDArray[np.int32]:
    """Token ids in the layout of C: int32, contiguous; without a copy where they are so already.

    Takes lists, arrays of any integer type, stride and byte order, and tensors (by DLPack or
    __array__). Floats, truth values, texts and numbers beyond 32 bits are refused.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: token ids are expected, not a text")
    if isinstance(values, np.ndarray):
        if values.dtype == np.int32 and values.ndim in dimensions and values.flags.c_contiguous:
            return values
        array: NDArray[np.generic] = values
    elif isinstance(values, (list, tuple)):
        array = _from_list(values, name)
    elif hasattr(values, "__dlpack__"):
        array = _from_tensor(values, name)
    elif hasattr(values, "__array__") or isinstance(values, Sequence):
        array = np.asarray(values)
    else:
        raise TypeError(f"{name}: token ids are expected, not {type(values).__name__}")
    if array.dtype.kind not in "iu":
        if array.dtype == object:
            _refuse_huge(array, name)
        raise TypeError(f"{name}: token ids are whole numbers, not {array.dtype}")
    if array.ndim not in dimensions:
        wanted = " or ".join(map(str, dimensions))
        raise ValueError(f"{name}: {array.ndim} dimensions, {wanted} expected")
    if array.dtype.itemsize >= 4 and array.dtype.kind + str(array.dtype.itemsize) != "i4":
        _check_range(array, name)
    return np.ascontiguousarray(array, dtype=np.int32)


def _refuse_huge(array: NDArray[np.generic], name: str) -> None:
    """Names the first number that 64 bits do not hold, for which numpy made objects of all."""
    for place, value in np.ndenumerate(array):
        if isinstance(value, int) and not _fits(value):
            raise _too_large(name + "".join(f"[{i}]" for i in place), value)


def _check_range(array: NDArray[np.generic], name: str) -> None:
    bad = np.argwhere((array < -(2**31)) | (array >= 2**31))  # type: ignore[operator]
    if len(bad):
        place = tuple(bad[0].tolist())
        raise _too_large(name + "".join(f"[{i}]" for i in place), array[place])


def pad_rows(rows: Sequence[object], name: str) -> NDArray[np.int32]:
    """Rows of different lengths as one array, padded with -1."""
    if all(isinstance(row, (list, tuple)) for row in rows):
        flat = _flat(cast("Sequence[Sequence[object]]", rows))
        if flat is not None:
            return _filled(flat, [len(row) for row in rows])  # type: ignore[arg-type]
    lists = [ids_array(row, f"{name}[{i}]") for i, row in enumerate(rows)]
    joined = np.concatenate(lists) if lists else np.empty(0, np.int32)
    return _filled(joined, [len(row) for row in lists])


def _flat(rows: Sequence[Sequence[object]]) -> NDArray[np.int32] | None:
    """All cells at once; None where one of them is no plain id, which is then looked for by row."""
    cells = list(itertools.chain.from_iterable(rows))
    if not set(map(type, cells)) <= {int}:
        return None
    try:
        wide = np.array(cells, np.int64)
    except OverflowError:
        return None
    if wide.size and not (_fits(int(wide.min())) and _fits(int(wide.max()))):
        return None
    return wide.astype(np.int32)


def _filled(cells: NDArray[np.int32], lengths: Sequence[int]) -> NDArray[np.int32]:
    sizes = np.array(lengths, np.intp)
    width = int(sizes.max(initial=0))
    if width * len(sizes) == len(cells):
        return cells.reshape(len(sizes), width)
    padded = np.full((len(sizes), width), -1, np.int32)
    padded[np.arange(width) < sizes[:, None]] = cells
    return padded


def kept(value: V) -> V:
    """An item of an iterator that waits: a copy, where its owner may fill it with the next one."""
    if isinstance(value, np.ndarray):
        return cast(V, value.copy())
    if isinstance(value, list):
        return cast(V, [x if type(x) is int else kept(x) for x in value])
    if isinstance(value, dict):
        return cast(V, {key: kept(x) for key, x in value.items()})
    if isinstance(value, (bytearray, memoryview, array.array)):
        return cast(V, np.array(value))
    clone = getattr(value, "clone", None)  # torch's
    return cast(V, clone()) if callable(clone) and hasattr(value, "__dlpack__") else value


def is_id(value: object) -> bool:
    """Whether this is one whole number, and no list of them."""
    if isinstance(value, (int, np.integer)):
        return True
    if getattr(value, "ndim", None) != 0:
        return False
    try:  # a tensor without dimensions
        operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def is_list_of_ids(values: object) -> bool:
    """Whether this is a sequence of whole numbers."""
    return isinstance(values, Sequence) and len(values) > 0 and is_id(values[0])
