"""`perplexity`: documents of any size, every token scored once."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Optional, TypedDict, cast, overload

from . import _bridge as bridge
from . import _handles as handles
from ._bridge import NepitError
from ._progress import bar
from ._requests import CONDITIONS, choice, integer, raw_text
from ._results import Perplexity
from ._text import Texts
from ._types import Condition, Document, Errors, Readable

if TYPE_CHECKING:
    from typing_extensions import Unpack

CHUNK_ITEMS, CHUNK_BYTES = 256, 4 << 20
_CANCELLED = 8


class PerplexityOptions(TypedDict, total=False):
    """Keyword arguments of `perplexity`; what they mean stands there."""

    text: bool
    window: int
    stride: int
    condition: Optional[Condition]
    add_special: Optional[bool]
    parse_special: Optional[bool]
    progress: bool


class Documents(Texts):
    """The verb `perplexity`."""

    _engine: handles.Handle

    @overload
    def perplexity(
        self, documents: Document, **options: Unpack[PerplexityOptions]
    ) -> Perplexity: ...
    @overload
    def perplexity(
        self,
        documents: Sequence[Document],
        *,
        errors: Literal["return"],
        **options: Unpack[PerplexityOptions],
    ) -> list[Perplexity | NepitError]: ...
    @overload
    def perplexity(
        self,
        documents: Sequence[Document],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[PerplexityOptions],
    ) -> list[Perplexity]: ...
    @overload
    def perplexity(
        self,
        documents: Iterable[Document],
        *,
        errors: Literal["return"],
        **options: Unpack[PerplexityOptions],
    ) -> Generator[Perplexity | NepitError, None, None]: ...
    @overload
    def perplexity(
        self,
        documents: Iterable[Document],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[PerplexityOptions],
    ) -> Generator[Perplexity, None, None]: ...
    def perplexity(
        self,
        documents: Document | Iterable[Document],
        *,
        text: bool = False,
        window: int = 0,
        stride: int = 0,
        condition: Optional[Condition] = None,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """Perplexity of documents of any size, every token but the first scored once.

        Parameters
        ----------
        documents : path, bytes, binary file; a sequence of them; or an iterator of them
            bytes are the text itself, a str is a path. A file is read piece by piece, from
            another thread.
        text : bool
            A str is the text itself.
        window, stride : int
            Rows of a window (0: the context), and from one window to the next, 1 to `window` (0:
            the window): a token sees between window-stride+1 and window tokens before it.
        condition, add_special, parse_special
            As in `score`.
        errors : {"raise", "return"}
            As in `score`; a sequence is run to its end before the first error is raised.
        progress : bool
            A bar, in bytes (needs tqdm).

        Returns
        -------
        Perplexity, list of Perplexity, or generator of Perplexity : as `documents` is

        Raises
        ------
        NepitError
            EINPUT (an option), EUNSUPPORTED (no tokenizer), ELIMIT (8 MiB without a place to cut).
        OSError
            A file that cannot be read.
        """
        if errors not in ("raise", "return"):
            raise ValueError(f'errors: "raise" or "return" is expected, not {errors!r}')
        if condition not in CONDITIONS:
            raise ValueError(f'condition: None, "bos" or "none" is expected, not {condition!r}')
        options = bridge.PerplexityOptions(
            window=integer(window, "window", 0, 2**63 - 1),
            stride=integer(stride, "stride", 0, 2**63 - 1),
            add_special=choice(add_special, "add_special"),
            parse_special=choice(parse_special, "parse_special"),
            condition=CONDITIONS[condition],
        )
        if _is_document(documents):
            one = cast(Document, documents)
            return next(self._documents([one], options, text, errors, progress))
        if isinstance(documents, (Mapping, Set)) or not isinstance(documents, Iterable):
            raise TypeError(
                f"documents: a path, a text or a file is expected, not {type(documents).__name__}"
            )
        told = self._documents(
            cast("Iterable[Document]", documents), options, text, errors, progress
        )
        return list(told) if isinstance(documents, Sequence) else told

    # ---- inside ----------------------------------------------------------------------------------

    def _documents(
        self,
        documents: Iterable[Document],
        options: bridge.PerplexityOptions,
        text: bool,
        errors: Errors,
        progress: bool,
    ) -> Generator[Perplexity | NepitError, None, None]:
        for some in _chunks(documents):
            for answer in self._read_all(some, options, text, progress):
                if isinstance(answer, Perplexity):
                    yield answer
                elif errors == "raise":
                    raise answer
                elif isinstance(answer, NepitError):
                    yield answer
                else:
                    made = NepitError("EIO", str(answer))
                    made.__cause__ = answer
                    yield made

    def _read_all(
        self,
        documents: Sequence[Document],
        options: bridge.PerplexityOptions,
        text: bool,
        progress: bool,
    ) -> list[Perplexity | Exception]:
        sources = [_Reader(document, text) for document in documents]
        raw = (bridge.Document * len(sources))(*(source.raw for source in sources))
        results = (bridge.PerplexityResult * len(sources))()

        def stop() -> None:
            for source in sources:
                source.stop()

        with bar(progress, "perplexity", "B") as tell:
            options.progress = bridge.PROGRESS(lambda _user, done, total: tell(done, total))
            try:
                handles.engine_aside(
                    self._engine,
                    lambda: self._engine.call(
                        "np_perplexity", raw, len(sources), c.byref(options), results
                    ),
                    stop,
                )
            finally:
                for source in sources:
                    source.close()
        return [source.failure or _told(result) for source, result in zip(sources, results)]


def _told(result: bridge.PerplexityResult) -> Perplexity | NepitError:
    if result.error.status:
        return bridge.error_of(result.error)
    values = {name: getattr(result, name) for name in Perplexity.__dataclass_fields__}
    return Perplexity(**{**values, "has_bos": bool(result.has_bos)})


def _is_document(value: object) -> bool:
    return isinstance(value, (str, bytes, os.PathLike)) or hasattr(value, "read")


def _chunks(documents: Iterable[Document]) -> Generator[list[Document], None, None]:
    """So many that windows of short ones run together, and that none waits long."""
    some: list[Document] = []
    size = 0
    for document in documents:
        some.append(document)
        if isinstance(document, (str, bytes)):
            size += len(document)
        if len(some) == CHUNK_ITEMS or size > CHUNK_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


class _Reader:
    """A document that C reads piece by piece; what goes wrong in Python is kept."""

    def __init__(self, document: Document, text: bool) -> None:
        self.failure: Exception | None = None
        self._stopped = False
        self._file: Readable | None = None
        self._stack = contextlib.ExitStack()
        self._path: str | os.PathLike[str] | None = None
        self._callback = bridge.READ(self._fill)
        if isinstance(document, bytes) or (text and isinstance(document, str)):
            self._text = raw_text(document)
            self.raw = bridge.Document(text=self._text, n_bytes=len(self._text))
            return
        if isinstance(document, (str, os.PathLike)):
            self._path = document
        elif hasattr(document, "read"):
            self._file = document
        else:
            raise TypeError(f"a path, a text or a file is expected, not {type(document).__name__}")
        self.raw = bridge.Document(n_bytes=self._size(), read=self._callback)

    def _size(self) -> int:
        if self._path is None:
            return 0
        with contextlib.suppress(OSError):  # it is told when the document's turn comes
            return Path(self._path).stat().st_size
        return 0

    def _fill(self, _user: object, out: int, n: int, error: int) -> int:
        if self._stopped:
            bridge.Error.from_address(error).status = _CANCELLED
            return -1
        try:
            if self._file is None:
                path = cast("str | os.PathLike[str]", self._path)
                self._file = self._stack.enter_context(Path(path).open("rb"))
            piece = self._file.read(n)
            if not isinstance(piece, (bytes, bytearray)):
                raise TypeError(f"a file open for bytes is expected, not {type(piece).__name__}")
            if len(piece) > n:
                raise ValueError(f"read({n}) gave {len(piece)} bytes")
            c.memmove(out, bytes(piece), len(piece))
            return len(piece)
        except Exception as failure:  # noqa: BLE001 - it is raised when C has returned
            self.failure = failure
            return -1

    def stop(self) -> None:
        """Ends the call at the next piece."""
        self._stopped = True

    def close(self) -> None:
        self._stack.close()
