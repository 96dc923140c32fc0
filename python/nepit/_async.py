"""The verbs without blocking the event loop: each answers what its twin answers.

The work runs in threads of the model's own, so that many calls at once share the engine's steps; a
list or an iterator is cheaper than many calls. A task that is cancelled ends its work before the
engine's next step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from typing import TYPE_CHECKING, Literal, Optional, TypeGuard, TypeVar, cast, overload

from ._bridge import NepitError
from ._choose import Choosing, Given
from ._gather import Gathering
from ._generate import Generating
from ._handles import Watch
from ._perplexity import Documents
from ._results import Choice, Gathered, Generation, Next, Perplexity, Score, Tokens
from ._score import Scoring
from ._types import Candidates, Document, Prompt

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from typing_extensions import Unpack

    from ._choose import ChooseOptions
    from ._gather import GatherOptions
    from ._generate import GenerateOptions
    from ._perplexity import PerplexityOptions
    from ._score import NextOptions, ScoreOptions

T = TypeVar("T")
_THREADS = 64  # calls at once; they wait, and take no time


class Twins(Scoring, Gathering, Generating, Choosing, Documents):
    """The verbs' async twins. Of an iterator, async ones too, they are async generators."""

    _pool: Optional[ThreadPoolExecutor]

    @overload
    async def score_async(self, prompts: Prompt, **options: Unpack[ScoreOptions]) -> Score: ...
    @overload
    async def score_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[ScoreOptions],
    ) -> list[Score | NepitError]: ...
    @overload
    async def score_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[ScoreOptions],
    ) -> list[Score]: ...
    @overload
    def score_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[ScoreOptions],
    ) -> AsyncGenerator[Score | NepitError, None]: ...
    @overload
    def score_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[ScoreOptions],
    ) -> AsyncGenerator[Score, None]: ...
    def score_async(self, prompts: object, *rest: object, **options: object) -> object:
        """`score`, without blocking the event loop."""
        return self._later(self.score, prompts, rest, options)

    @overload
    async def next_async(self, prompts: Prompt, **options: Unpack[NextOptions]) -> Next: ...
    @overload
    async def next_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[NextOptions],
    ) -> list[Next | NepitError]: ...
    @overload
    async def next_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[NextOptions],
    ) -> list[Next]: ...
    @overload
    def next_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[NextOptions],
    ) -> AsyncGenerator[Next | NepitError, None]: ...
    @overload
    def next_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[NextOptions],
    ) -> AsyncGenerator[Next, None]: ...
    def next_async(self, prompts: object, *rest: object, **options: object) -> object:
        """`next`, without blocking the event loop."""
        return self._later(self.next, prompts, rest, options)

    @overload
    async def gather_async(
        self,
        prompts: Prompt,
        response: Optional[Prompt] = None,
        candidates: Optional[Candidates] = None,
        *,
        start: Optional[int] = None,
        **options: Unpack[GatherOptions],
    ) -> Gathered: ...
    @overload
    async def gather_async(
        self,
        prompts: Sequence[Prompt],
        response: Optional[Sequence[Prompt]] = None,
        candidates: Candidates | Sequence[Candidates] | None = None,
        *,
        start: int | Sequence[int] | None = None,
        errors: Literal["return"],
        **options: Unpack[GatherOptions],
    ) -> list[Gathered | NepitError]: ...
    @overload
    async def gather_async(
        self,
        prompts: Sequence[Prompt],
        response: Optional[Sequence[Prompt]] = None,
        candidates: Candidates | Sequence[Candidates] | None = None,
        *,
        start: int | Sequence[int] | None = None,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GatherOptions],
    ) -> list[Gathered]: ...
    @overload
    def gather_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        response: Optional[Iterable[Prompt]] = None,
        candidates: Candidates | Iterable[Candidates] | None = None,
        *,
        start: int | Iterable[int] | None = None,
        errors: Literal["return"],
        **options: Unpack[GatherOptions],
    ) -> AsyncGenerator[Gathered | NepitError, None]: ...
    @overload
    def gather_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        response: Optional[Iterable[Prompt]] = None,
        candidates: Candidates | Iterable[Candidates] | None = None,
        *,
        start: int | Iterable[int] | None = None,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GatherOptions],
    ) -> AsyncGenerator[Gathered, None]: ...
    def gather_async(self, prompts: object, *rest: object, **options: object) -> object:
        """`gather`, without blocking the event loop."""
        return self._later(self.gather, prompts, rest, options)

    @overload
    async def generate_async(
        self, prompts: Prompt, **options: Unpack[GenerateOptions]
    ) -> Generation: ...
    @overload
    async def generate_async(
        self, prompts: Prompt, *, n: int, **options: Unpack[GenerateOptions]
    ) -> list[Generation]: ...
    @overload
    async def generate_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> list[Generation | NepitError]: ...
    @overload
    async def generate_async(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    async def generate_async(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation] | NepitError]: ...
    @overload
    async def generate_async(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    def generate_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[Generation | NepitError, None]: ...
    @overload
    def generate_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[Generation, None]: ...
    @overload
    def generate_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        n: int,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[list[Generation] | NepitError, None]: ...
    @overload
    def generate_async(
        self,
        prompts: Iterable[Prompt] | AsyncIterable[Prompt],
        *,
        n: int,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[list[Generation], None]: ...
    def generate_async(self, prompts: object, *rest: object, **options: object) -> object:
        """`generate`, without blocking the event loop."""
        return self._later(self.generate, prompts, rest, options)

    @overload
    async def choose_async(
        self, context: Prompt, options: Sequence[Given], **rest: Unpack[ChooseOptions]
    ) -> Choice: ...
    @overload
    async def choose_async(
        self,
        context: Sequence[Prompt],
        options: Sequence[Given] | Sequence[Sequence[Given]],
        *,
        errors: Literal["return"],
        **rest: Unpack[ChooseOptions],
    ) -> list[Choice | NepitError]: ...
    @overload
    async def choose_async(
        self,
        context: Sequence[Prompt],
        options: Sequence[Given] | Sequence[Sequence[Given]],
        *,
        errors: Literal["raise"] = "raise",
        **rest: Unpack[ChooseOptions],
    ) -> list[Choice]: ...
    @overload
    def choose_async(
        self,
        context: Iterable[Prompt] | AsyncIterable[Prompt],
        options: Sequence[Given] | Iterable[Sequence[Given]],
        *,
        errors: Literal["return"],
        **rest: Unpack[ChooseOptions],
    ) -> AsyncGenerator[Choice | NepitError, None]: ...
    @overload
    def choose_async(
        self,
        context: Iterable[Prompt] | AsyncIterable[Prompt],
        options: Sequence[Given] | Iterable[Sequence[Given]],
        *,
        errors: Literal["raise"] = "raise",
        **rest: Unpack[ChooseOptions],
    ) -> AsyncGenerator[Choice, None]: ...
    def choose_async(self, context: object, *rest: object, **options: object) -> object:
        """`choose`, without blocking the event loop."""
        return self._later(self.choose, context, rest, options)

    @overload
    async def perplexity_async(
        self, documents: Document, **options: Unpack[PerplexityOptions]
    ) -> Perplexity: ...
    @overload
    async def perplexity_async(
        self,
        documents: Sequence[Document],
        *,
        errors: Literal["return"],
        **options: Unpack[PerplexityOptions],
    ) -> list[Perplexity | NepitError]: ...
    @overload
    async def perplexity_async(
        self,
        documents: Sequence[Document],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[PerplexityOptions],
    ) -> list[Perplexity]: ...
    @overload
    def perplexity_async(
        self,
        documents: Iterable[Document] | AsyncIterable[Document],
        *,
        errors: Literal["return"],
        **options: Unpack[PerplexityOptions],
    ) -> AsyncGenerator[Perplexity | NepitError, None]: ...
    @overload
    def perplexity_async(
        self,
        documents: Iterable[Document] | AsyncIterable[Document],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[PerplexityOptions],
    ) -> AsyncGenerator[Perplexity, None]: ...
    def perplexity_async(self, documents: object, *rest: object, **options: object) -> object:
        """`perplexity`, without blocking the event loop."""
        return self._later(self.perplexity, documents, rest, options)

    @overload
    async def tokenize_async(
        self,
        text: str | bytes,
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> Tokens: ...
    @overload
    async def tokenize_async(
        self,
        text: Sequence[str | bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> list[Tokens]: ...
    @overload
    def tokenize_async(
        self,
        text: Iterable[str | bytes] | AsyncIterable[str | bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> AsyncGenerator[Tokens, None]: ...
    def tokenize_async(self, text: object, **options: object) -> object:
        """`tokenize`, without blocking the event loop."""
        return self._later(self.tokenize, text, (), options)

    # ---- inside ----------------------------------------------------------------------------------

    def _later(
        self,
        method: Callable[..., object],
        first: object,
        rest: tuple[object, ...],
        options: dict[str, object],
    ) -> Coroutine[object, object, object] | AsyncGenerator[object, None]:
        if isinstance(first, AsyncIterable):
            return self._stream_later(lambda watch: _pulled(first, watch), method, rest, options)
        if _is_stream(first):
            return self._stream_later(lambda _watch: first, method, rest, options)
        return self._aside(Watch(), functools.partial(method, first, *rest, **options))

    async def _aside(self, watch: Watch, work: Callable[[], T]) -> T:
        import asyncio  # slow to import, and seldom needed
        from concurrent.futures import ThreadPoolExecutor

        if self._engine.closed:
            raise ValueError("this model is closed")
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "nepit")

        def watched() -> T:
            with watch:
                return work()

        future = asyncio.get_running_loop().run_in_executor(self._pool, watched)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            watch.cancel()
            with contextlib.suppress(Exception):  # what it says of being cancelled
                await future
            raise

    async def _stream_later(
        self,
        source: Callable[[Watch], Iterable[object]],
        method: Callable[..., object],
        rest: tuple[object, ...],
        options: dict[str, object],
    ) -> AsyncGenerator[object, None]:
        watch, end = Watch(), object()
        answers = cast("Iterator[object]", method(source(watch), *rest, **options))
        try:
            while (answer := await self._aside(watch, lambda: next(answers, end))) is not end:
                yield answer
        finally:
            watch.cancel()
            await self._aside(Watch(), getattr(answers, "close", lambda: None))


def _is_stream(value: object) -> TypeGuard[Iterable[object]]:
    """Whether answers to it come as they are taken: no prompt, no sequence and no file."""
    whole = isinstance(value, (str, bytes, Sequence, Mapping, Set))
    array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    return isinstance(value, Iterable) and not whole and not array and not hasattr(value, "read")


def _pulled(source: AsyncIterable[T], watch: Watch) -> Iterator[T]:
    """An async iterator's items, for a thread beside the loop that runs it."""
    import asyncio

    loop = asyncio.get_running_loop()

    def pull() -> Iterator[T]:
        items = source.__aiter__()

        async def following() -> T:
            return await items.__anext__()

        while True:
            coming = asyncio.run_coroutine_threadsafe(following(), loop)
            watch.on_cancel(coming.cancel)
            try:
                yield coming.result()
            except StopAsyncIteration:
                return

    return pull()
