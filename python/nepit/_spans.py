"""Sums of log-probabilities over spans of bytes: fields, words, sentences."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._bridge import NepitError
from ._frames import Shown


@dataclass(frozen=True, eq=False, repr=False)
class Span(Shown):
    """The tokens that touch the bytes [begin, end) of a text.

    Attributes
    ----------
    begin, end : the bytes asked for
    first, last : the tokens [first, last) that touch them
    total, mean, min : of their log-probabilities, nats; NaN where none of them is scored
    n_scored : how many of them are scored; the first token of a text may not be
    straddles_begin, straddles_end : whether the first or the last of them reaches out of the span,
        so that the numbers are also those of its neighbours' bytes
    """

    begin: int
    end: int
    first: int
    last: int
    total: float
    mean: float
    min: float
    n_scored: int
    straddles_begin: bool
    straddles_end: bool

    @property
    def n_tokens(self) -> int:
        return self.last - self.first


def spans_of(
    spans: Iterable[tuple[int, int]],
    offsets: NDArray[np.int64],
    logprobs: NDArray[np.float32],
) -> list[Span]:
    """A Span for each pair of bytes [begin, end) of the text."""
    begins, ends = offsets[:, 0], offsets[:, 1]
    filled = np.nonzero(ends > begins)[0]  # special tokens cover no byte
    n_bytes = int(ends.max(initial=0))
    told = []
    for i, pair in enumerate(spans):
        begin, end = _whole(pair, f"spans[{i}]")
        if not 0 <= begin < end <= n_bytes:
            raise NepitError(
                "EINPUT",
                f"a span begins before it ends, within the {n_bytes} bytes of the text",
                f"spans[{i}]",
                f"({begin}, {end})",
            )
        touching = filled[(ends[filled] > begin) & (begins[filled] < end)]
        first, last = int(touching[0]), int(touching[-1])
        values = [x for x in logprobs[touching].tolist() if not math.isnan(x)]
        told.append(
            Span(
                begin=begin,
                end=end,
                first=first,
                last=last + 1,
                total=sum(values) if values else math.nan,
                mean=sum(values) / len(values) if values else math.nan,
                min=min(values, default=math.nan),
                n_scored=len(values),
                straddles_begin=bool(begins[first] < begin),
                straddles_end=bool(ends[last] > end),
            )
        )
    return told


def _whole(pair: tuple[int, int], name: str) -> tuple[int, int]:
    try:
        begin, end = pair
        return operator.index(begin), operator.index(end)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: (begin, end) in bytes is expected, not {pair!r}") from None


def offsets_of_texts(texts: list[bytes]) -> NDArray[np.int64]:
    """int64 [n, 2]: where each token stands in the bytes of all."""
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)
