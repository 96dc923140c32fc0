"""What goes in: texts, ids, candidates and documents, as types."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, Protocol, Union

import numpy as np
from numpy.typing import NDArray


class SupportsDLPack(Protocol):
    """A tensor on the CPU: torch's, JAX's, CuPy's pinned ones."""

    def __dlpack__(self) -> object: ...


class SupportsArray(Protocol):
    """What numpy can make an array of."""

    def __array__(self) -> NDArray[np.generic]: ...


class Readable(Protocol):
    """A file that is open for reading bytes."""

    def read(self, size: int, /) -> bytes: ...


Int = Union[int, np.integer]
IdArray = Union["NDArray[np.integer]", SupportsDLPack, SupportsArray]
Ids = Union[Sequence[Int], IdArray]  # one dimension
Prompt = Union[str, bytes, Ids]
Candidates = Union[Sequence[Int], Sequence[Ids], IdArray]  # [K] for every row, or [rows, K]
Document = Union[str, bytes, "os.PathLike[str]", Readable]

Condition = Literal["bos", "none"]
LogprobsMode = Literal["raw_logprobs", "raw_logits"]
Rule = Literal["mean", "total", "bytes", "characters", "calibrated"]
Errors = Literal["raise", "return"]
