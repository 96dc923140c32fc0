"""Bars, where tqdm is there and asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from ._frames import optional


class _Bar(Protocol):
    n: float
    total: float

    def update(self, n: float) -> object: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def bar(wanted: bool, label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A function that is told (done, total)."""
    if not wanted:
        yield lambda done, total: None
        return
    tqdm = cast(Callable[..., _Bar], getattr(optional("tqdm.auto", "progress"), "tqdm"))

    shown = tqdm(desc=label, unit=unit, unit_scale=unit == "B")

    def tell(done: int, total: int) -> None:
        if total and shown.total != total:
            shown.total = total
        shown.update(done - shown.n)

    try:
        yield tell
    finally:
        shown.close()
