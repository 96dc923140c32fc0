"""One request, a list of them, or an iterator of them, by one way through the engine.

An iterator is read in chunks, of which some are in the engine at a time: while one is computed, the
next are read and wait there, so that the engine never waits for Python. A chunk ends when it is
large, or when the engine would have nothing to do. What one request is refused for stays with it:
the others of its chunk run without it.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import Generic, Literal, TypeVar, cast, overload

import numpy as np

from . import _bridge as bridge
from ._arrays import kept
from ._bridge import NepitError
from ._handles import Handle, Ticket, run
from ._progress import bar
from ._requests import Batch
from ._types import Errors

In = TypeVar("In")
Out = TypeVar("Out")

AHEAD = 3  # chunks in the engine
CHUNK_ITEMS = 256
FIRST_TOKENS, CHUNK_TOKENS = 512, 4096  # about: the first chunk is small, so that answers come soon
CHUNK_BYTES = 32 << 20  # about, of answers
IDLE_S = 0.01  # a chunk waits so long for more while the engine has nothing to do
_REFUSED = re.compile(r"requests\[(\d+)\]\.?(.*)", re.S)


class Verb(Generic[In, Out]):
    """What is asked, and how the answer is read.

    Attributes
    ----------
    fill : writes an item as request i of a batch, and gives what `take` needs of it; the name is
        that of the item in errors
    take : reads result i; the owner keeps its memory
    n_tokens, n_bytes : about how long an item is, and how large its answer
    label : the verb, for the bar
    """

    __slots__ = ("fill", "label", "n_bytes", "n_tokens", "take")

    def __init__(
        self,
        fill: Callable[[Batch, int, In, str], object],
        take: Callable[[object, bridge.Answers, int, object], Out],
        n_tokens: Callable[[In], int],
        n_bytes: Callable[[In], int],
        label: str,
    ) -> None:
        self.fill, self.take, self.label = fill, take, label
        self.n_tokens, self.n_bytes = n_tokens, n_bytes


def one(engine: Handle, verb: Verb[In, Out], item: In) -> Out:
    """The answer to a single item."""
    batch = Batch(1)
    memo = verb.fill(batch, 0, item, "")
    answers = run(engine, batch.requests, batch.keeps)
    if answers.raw[0].error.status:
        raise bridge.error_of(answers.raw[0].error)
    return verb.take(answers, answers, 0, memo)


@overload
def many(
    engine: Handle,
    verb: Verb[In, Out],
    items: Sequence[In],
    errors: Literal["raise"],
    progress: bool,
) -> list[Out]: ...
@overload
def many(
    engine: Handle, verb: Verb[In, Out], items: Sequence[In], errors: Errors, progress: bool
) -> list[Out | NepitError]: ...
def many(
    engine: Handle, verb: Verb[In, Out], items: Sequence[In], errors: Errors, progress: bool
) -> list[Out | NepitError] | list[Out]:
    """The answers to a list. With errors="raise", nothing runs where one of them is refused."""
    if progress:
        return list(stream(engine, cast("Verb[In, Out | NepitError]", verb), items, errors, True))
    chunk = _Chunk(engine, verb, items, 0, errors == "raise")
    return list(_checked(chunk.answers(), errors))


def stream(
    engine: Handle, verb: Verb[In, Out], items: Iterable[In], errors: Errors, progress: bool
) -> Generator[Out | NepitError, None, None]:
    """The answers to an iterator, as they are taken."""
    total = len(items) if isinstance(items, Sequence) else 0
    with bar(progress, verb.label, "prompts") as tell:
        done = 0
        for chunk in chunks(engine, verb, items):
            for answer in _checked(chunk, errors):
                done += 1
                tell(done, total)
                yield answer


def _checked(answers: Iterable[Out | Exception], errors: Errors) -> Iterator[Out | NepitError]:
    for answer in answers:
        if not isinstance(answer, Exception):
            yield answer
        elif errors == "raise":
            raise answer
        else:
            yield _as_value(answer)


def _as_value(error: Exception) -> NepitError:
    if isinstance(error, NepitError):
        return error
    made = NepitError("EINPUT", str(error))
    made.__cause__ = error
    return made


def chunks(
    engine: Handle, verb: Verb[In, Out], items: Iterable[In]
) -> Generator[Iterator[Out | Exception], None, None]:
    """Answers and errors in the order of the items, some at a time."""
    source = _Source(iter(items), verb)
    flying: deque[_Chunk[In, Out]] = deque()
    try:
        while True:
            while len(flying) < AHEAD and not source.ended and not _ready(flying):
                first = source.n_read
                some = source.read(lambda: all(chunk.done() for chunk in flying))
                if some:
                    flying.append(_Chunk(engine, verb, some, first, False))
            if not flying:
                break
            yield flying[0].answers()
            flying.popleft()
        if source.failure is not None:
            raise source.failure
    finally:
        for chunk in flying:
            chunk.cancel()


def _ready(flying: deque[_Chunk[In, Out]]) -> bool:
    """Whether answers wait while the engine has work: they go out before more is read."""
    return len(flying) > 1 and flying[0].done() and not flying[-1].done()


class _Source(Generic[In]):
    """Items in chunks."""

    def __init__(self, items: Iterator[In], verb: Verb[In, Out]) -> None:
        self._items = items
        self._n_tokens, self._n_bytes = verb.n_tokens, verb.n_bytes
        self._limit = FIRST_TOKENS
        self.ended = False
        self.failure: Exception | None = None  # of the iterator; raised after what stood before
        self.n_read = 0

    def read(self, idle: Callable[[], bool]) -> list[In]:
        some: list[In] = []
        size, n_tokens, began = 0, 0, time.monotonic()
        while len(some) < CHUNK_ITEMS and n_tokens < self._limit and size < CHUNK_BYTES:
            try:
                some.append(kept(next(self._items)))
            except StopIteration:
                self.ended = True
                break
            except Exception as error:  # noqa: BLE001 - whatever a caller's iterator raises
                self.ended, self.failure = True, error
                break
            size += self._n_bytes(some[-1])
            n_tokens += self._n_tokens(some[-1])
            if time.monotonic() - began > IDLE_S and idle():
                break
        self.n_read += len(some)
        self._limit = min(2 * self._limit, CHUNK_TOKENS)
        return some


class _Chunk(Generic[In, Out]):
    """Items that run together: a place for each, with its ticket and number there, or its error."""

    def __init__(
        self, engine: Handle, verb: Verb[In, Out], items: Sequence[In], first: int, strict: bool
    ) -> None:
        self._engine, self._verb, self._first = engine, verb, first
        self._tickets: list[Ticket] = []
        self._places: list[tuple[int, int] | Exception] = []
        batch, filled = Batch(len(items)), 0
        names: list[int] = []
        self._memos: list[object] = [None] * len(items)
        for i, item in enumerate(items):
            try:
                self._memos[i] = verb.fill(batch, filled, item, f"prompts[{first + i}]")
            except (NepitError, TypeError, ValueError, OverflowError) as error:
                if strict:
                    raise
                batch.clear(filled)
                self._places.append(error)
                continue
            self._places.append((0, 0))
            names.append(i)
            filled += 1
        try:
            self._submit(engine, batch, names, strict)
        except BaseException:
            self.cancel()
            raise

    def _submit(self, engine: Handle, batch: Batch, names: list[int], strict: bool) -> None:
        at = 0
        while at < len(names):
            n = len(names) - at
            try:
                self._fly(engine, batch, names, at, n)
                return
            except NepitError as error:
                refused, said = self._refused(error, names, at, n)
                if refused is None or strict:
                    raise said from None
                self._places[names[at + refused]] = said
                if refused:
                    self._fly(engine, batch, names, at, refused)
                at += refused + 1

    def _fly(self, engine: Handle, batch: Batch, names: list[int], at: int, n: int) -> None:
        """Requests [at, at + n) as one ticket."""
        ticket = Ticket(engine, batch.requests, batch.keeps, at, n)
        for k in range(n):
            self._places[names[at + k]] = (len(self._tickets), k)
        self._tickets.append(ticket)

    def _refused(
        self, error: NepitError, names: list[int], at: int, n: int
    ) -> tuple[int | None, NepitError]:
        """Which of n requests was refused, and the error with the item's name."""
        found = _REFUSED.fullmatch(error.where)
        if found is None and (n > 1 or error.code not in ("EINPUT", "ELIMIT", "EUNSUPPORTED")):
            return None, error
        k, where = (int(found[1]), found[2]) if found else (0, error.where)
        name = f"prompts[{self._first + names[at + k]}]"
        place = f"{name}.{where}" if where else name
        return k, NepitError(error.code, error.message, place, error.given, error.offset)

    def done(self) -> bool:
        return all(ticket.done() for ticket in self._tickets)

    def cancel(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()

    def answers(self) -> Iterator[Out | Exception]:
        """Waits for them; once."""
        found: list[bridge.Answers | None] = [None] * len(self._tickets)
        try:
            for i, place in enumerate(self._places):
                if isinstance(place, Exception):
                    yield place
                    continue
                t, k = place
                answers = found[t]
                if answers is None:
                    answers = found[t] = self._tickets[t].wait()
                error = answers.raw[k].error
                if error.status:
                    yield bridge.error_of(error, f"prompts[{self._first + i}]")
                else:
                    yield self._taken(answers, k, i)
        finally:
            self.cancel()  # what nobody waited for

    def _taken(self, answers: bridge.Answers, k: int, i: int) -> Out | NepitError:
        try:
            return self._verb.take(bridge.Answer(answers, k), answers, k, self._memos[i])
        except ValueError:
            if not self._engine.closed:
                raise
            return NepitError("ECANCELLED", "the model was closed", f"prompts[{self._first + i}]")


def ask(
    engine: Handle,
    verb: Verb[In, Out],
    items: object,
    errors: Errors,
    progress: bool,
    *,
    single: bool,
) -> object:
    """One, a list or a stream of answers, as the items are."""
    if errors not in ("raise", "return"):
        raise ValueError(f'errors: "raise" or "return" is expected, not {errors!r}')
    if single and errors == "raise":
        return one(engine, verb, cast("In", items))
    if single:
        return many(engine, verb, [cast("In", items)], errors, progress)[0]
    if isinstance(items, (Sequence, np.ndarray)) or hasattr(items, "__dlpack__"):
        return many(engine, verb, list(cast("Sequence[In]", items)), errors, progress)
    if isinstance(items, Iterable) and not isinstance(items, (Mapping, Set)):
        return stream(engine, verb, items, errors, progress)
    raise TypeError(
        "prompts: a text, ids, a sequence or an iterator of them is expected, "
        f"not {type(items).__name__}"
    )
