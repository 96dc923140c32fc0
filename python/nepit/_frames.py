"""Results as tables, pictures and one line; pandas, pyarrow and matplotlib only where asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import pyarrow

Columns = Mapping[str, object]


def optional(module: str, extra: str) -> object:
    """A module that the package does not need; without it an error says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{package} is needed for this and is not installed: pip install 'nepit[{extra}]'"
        ) from error


class _Pandas(Protocol):
    def DataFrame(self, data: Columns) -> pandas.DataFrame: ...  # noqa: N802


class _Arrow(Protocol):
    def table(self, data: Columns) -> pyarrow.Table: ...


class _Plots(Protocol):
    def subplots(self, *, figsize: tuple[float, float]) -> tuple[object, matplotlib.axes.Axes]: ...


def axes_of(
    ax: matplotlib.axes.Axes | None, width: float, height: float = 3
) -> matplotlib.axes.Axes:
    """The axes that were given, or new ones; sizes in inches."""
    if ax is not None:
        return ax
    plots = cast(_Plots, optional("matplotlib.pyplot", "plot"))
    return plots.subplots(figsize=(min(max(4.0, width), 40.0), height))[1]


class Shown:
    """A dataclass that is printed in one line, arrays by their shapes."""

    __slots__ = ()

    def __repr__(self) -> str:
        told = ", ".join(
            f"{field.name}={brief(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) is not None
        )
        return f"{type(self).__name__}({told})"


class Tabular(Shown):
    """What has columns."""

    __slots__ = ()

    def _columns(self) -> Columns:
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of the columns that the class names (needs pandas: `nepit[frames]`)."""
        return cast(_Pandas, optional("pandas", "frames")).DataFrame(self._columns())

    def to_arrow(self) -> pyarrow.Table:
        """The same as an Arrow table (needs pyarrow: `nepit[frames]`)."""
        return cast(_Arrow, optional("pyarrow", "frames")).table(self._columns())


def brief(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)) and len(value) > 4:
        return f"<{len(value)} items>"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (str, bytes)) and len(value) > 60:
        return f"{value[:57]!r}..."
    return repr(value)


def decoded(texts: list[bytes]) -> list[str]:
    """Bytes of tokens as str; parts of characters become U+FFFD."""
    return [text.decode(errors="replace") for text in texts]
