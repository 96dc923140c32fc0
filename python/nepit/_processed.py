"""The bar of `LLM.generate`, from what the engine says of itself: a run has no callback in Python,
which would hold the engine up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, Union, cast

if TYPE_CHECKING:
    from ._native import Model

_PERIOD_S = 0.2


class _Shown(Protocol):
    """What tqdm makes."""

    n: int

    def update(self, n: int) -> object: ...

    def close(self) -> object: ...


@contextlib.contextmanager
def processed(wanted: Union[bool, Callable[..., object]], n: int, model: Model) -> Iterator[None]:
    """A bar over n prompts; none where tqdm is not installed. `wanted` may be what makes one."""
    make = wanted if callable(wanted) else _tqdm() if wanted else None
    if make is None:
        yield
        return
    shown = cast(_Shown, make(total=n, desc="Processed prompts", dynamic_ncols=True))
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(shown, n, model, over), daemon=True)
    watcher.start()
    try:
        yield
        over.set()
        watcher.join()
        shown.update(n - shown.n)
    finally:
        over.set()
        watcher.join()
        shown.close()


def _tqdm() -> Union[Callable[..., object], None]:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return None
    return cast("Callable[..., object]", tqdm)


def _watch(shown: _Shown, n: int, model: Model, over: threading.Event) -> None:
    """Requests of other calls are waited for too, so the bar may lag; it never runs ahead."""
    seen = False
    while not over.wait(_PERIOD_S):
        stats = model.stats()
        left = int(stats["n_waiting"] + stats["n_running"])
        seen = seen or left > 0
        if seen:
            shown.update(max(n - left - shown.n, 0))
