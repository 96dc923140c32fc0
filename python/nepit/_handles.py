"""What is open and what runs: handles that C closes, and tickets of requests.

Threads. A handle counts the threads that are in C with it, so that close() never takes it from
under them. A ticket waits without the GIL; Ctrl-C, and a `Watch` from any thread, end it before its
next step.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import threading
import weakref
from collections.abc import Callable

from . import _bridge as bridge
from ._bridge import lib

_EXIT_S = 5.0  # how long the end of the program waits for threads that are still in C


class _Use:
    """What a handle and its finalizer share: the pointer, and who is in C with it."""

    def __init__(
        self,
        pointer: int,
        close: Callable[[int], None],
        cancel: Callable[[int], None] | None,
        of: Handle | None,
    ) -> None:
        self.pointer, self.close, self.cancel, self.of = pointer, close, cancel, of
        self.closed = False
        self.pid = os.getpid()
        self.inside: dict[object, int] = {}
        self.lock = threading.RLock()  # re-entrant: a finalizer may come in between
        self.left = threading.Condition(self.lock)

    def wait(self, limit: float | None = None) -> bool:
        """Ends what runs and waits until the other threads have left."""
        me = threading.get_ident()
        with self.left:
            self.closed = True
            while self.inside.keys() - {me}:
                if limit is not None and limit <= 0:
                    return False
                if self.cancel is not None:
                    self.cancel(self.pointer)
                self.left.wait(0.05)
                limit = None if limit is None else limit - 0.05
        return True


def _end(use: _Use) -> None:
    if os.getpid() != use.pid or not use.wait(_EXIT_S):
        return  # a forked child has none of the threads that it would wait for
    use.close(use.pointer)
    if use.of is not None:
        use.of.leave(use)


class Handle:
    """A pointer that C closes: by close(), when nobody needs it, or when the program ends.

    Threads count themselves in while they are in C; close() ends what they run and waits for them.
    """

    def __init__(
        self,
        pointer: int,
        close: Callable[[int], None],
        cancel: Callable[[int], None] | None = None,
        of: Handle | None = None,
    ) -> None:
        self._use = _Use(pointer, close, cancel, of)
        if of is not None:
            of.enter(self._use)
        self._finalizer = weakref.finalize(self, _end, self._use)

    @property
    def closed(self) -> bool:
        return self._use.closed

    @property
    def pointer(self) -> int:
        """For a call of one thread that closes nothing meanwhile."""
        with self as pointer:
            return pointer

    def enter(self, who: object = None) -> int:
        """The pointer, which stays open until leave()."""
        use = self._use
        if os.getpid() != use.pid:
            raise RuntimeError(
                "this model was opened before fork(): threads do not survive it. Open it in the "
                "child, or start workers by spawn (multiprocessing.set_start_method('spawn'))"
            )
        key = threading.get_ident() if who is None else who
        with use.lock:
            if use.closed:
                raise ValueError("this model is closed")
            use.inside[key] = use.inside.get(key, 0) + 1
        return use.pointer

    def leave(self, who: object = None) -> None:
        use = self._use
        key = threading.get_ident() if who is None else who
        with use.lock:
            n = use.inside.pop(key) - 1
            if n:
                use.inside[key] = n
            elif use.closed:
                use.left.notify_all()

    def __enter__(self) -> int:
        return self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()

    @property
    def n_inside(self) -> int:
        """Threads that are in C with it."""
        return len(self._use.inside)

    def cancel(self) -> None:
        """Ends all that runs."""
        if self._use.cancel is not None:
            self._use.cancel(self._use.pointer)

    def call(self, name: str, *arguments: object) -> None:
        """A function of this handle that returns a status."""
        with self as pointer:
            bridge.call(name, pointer, *arguments)

    def close(self) -> None:
        if os.getpid() == self._use.pid:
            self._use.wait()
        self._use.closed = True  # in a forked child nobody can be waited for
        self._finalizer()


def path_of(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> bytes:
    """The bytes of a path, all of which C sees."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise bridge.NepitError("EINPUT", "a path holds no NUL", "path", repr(path)[:64])
    return raw


def open_model(path: bytes, options: bridge.ModelOptions) -> Handle:
    """Reads a model. Ctrl-C leaves at once; what was read by then is given back."""
    made: list[Handle] = []
    left = threading.Event()

    def work() -> None:
        out = c.c_void_p()
        bridge.call("np_model_open", path, c.byref(options), c.byref(out))
        handle = Handle(out.value or 0, lib.np_model_close)
        if not left.is_set():
            made.append(handle)

    aside(work, lambda: None, lambda _done: left.set())
    return made.pop()


def open_engine(model: Handle, options: bridge.EngineOptions) -> Handle:
    out = c.c_void_p()
    model.call("np_engine_open", c.byref(options), c.byref(out))
    return Handle(out.value or 0, lib.np_engine_close, lib.np_engine_cancel, model)


_POLL_MS, _LONG_POLL_MS = 50, 1000  # signals reach the main thread alone
_QUICK_TOKENS = 256
_main = threading.main_thread()
_no_ready = bridge.READY(0)
_local = threading.local()  # .watch: what cancels the work of this thread from outside


class Watch:
    """Cancels, from any thread, what another one has submitted and will submit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()
        self._others: Callable[[], object] | None = None
        self.cancelled = False

    def __enter__(self) -> None:
        _local.watch = self

    def __exit__(self, *_: object) -> None:
        _local.watch = None

    def add(self, ticket: Ticket) -> None:
        with self._lock:
            self._tickets.add(ticket)
            cancelled = self.cancelled
        if cancelled:
            ticket.cancel()

    def on_cancel(self, then: Callable[[], object]) -> None:
        """What else is to be called; the last one given."""
        with self._lock:
            self._others = then
            cancelled = self.cancelled
        if cancelled:
            then()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            tickets, others = list(self._tickets), self._others
        for ticket in tickets:
            ticket.cancel()
        if others is not None:
            others()


def watch() -> Watch | None:
    """What watches this thread."""
    return getattr(_local, "watch", None)


class Ticket:
    """Requests [first, first + n) of an array that run. `keeps`: what C borrows meanwhile."""

    def __init__(
        self, engine: Handle, requests: c.Array[bridge.Request], keeps: object, first: int, n: int
    ) -> None:
        self._n = n
        self._keeps: tuple[object, ...] = (requests, keeps)
        self._engine, self._lock, self._pid = engine, threading.Lock(), os.getpid()
        self._out = c.c_void_p()  # C writes it: no interrupt comes between running and knowing it
        begin = c.byref(requests[first])
        with engine as pointer:
            bridge.call("np_submit", pointer, begin, n, _no_ready, None, c.byref(self._out))
        watching = watch()
        if watching is not None:
            watching.add(self)

    def done(self) -> bool:
        """Whether wait() would not wait."""
        return not self._out or bool(lib.np_poll(self._out, 0))

    def cancel(self) -> None:
        """Ends what is not done, before the next step. Any thread."""
        with self._lock:
            if self._out and not self._engine.closed:
                with (
                    contextlib.suppress(ValueError),
                    self._engine,
                ):  # closed meanwhile: it has ended
                    lib.np_cancel(self._out)

    def wait(self) -> bridge.Answers:
        """The results, errors of single requests within them. Ctrl-C ends what runs."""
        step = _POLL_MS if threading.get_ident() == _main.ident else _LONG_POLL_MS
        try:
            with self._engine:
                while not lib.np_poll(self._out, step):
                    pass
        except ValueError:  # the engine was closed, and has ended it
            pass
        except BaseException:
            self.cancel()
            self._take()
            raise
        return self._take()

    def _take(self) -> bridge.Answers:
        answers, error = bridge.Answers(self._n), bridge.Error()
        with self._lock:
            pointer, self._out.value = self._out.value, None
        lib.np_wait(pointer, answers.raw, c.byref(error))
        self._keeps = ()
        return answers

    def __del__(self) -> None:
        if self._out and os.getpid() == self._pid:
            self.cancel()
            lib.np_wait(self._out, None, None)


def _is_quick(request: bridge.Request) -> bool:
    """Whether it is over within a step or two: what Ctrl-C may wait for."""
    return bool(request.token_ids) and request.n_tokens <= _QUICK_TOKENS and not request.max_tokens


def run(engine: Handle, requests: c.Array[bridge.Request], keeps: object) -> bridge.Answers:
    """Runs requests together and gives their results."""
    n = len(requests)
    if watch() is not None:
        return Ticket(engine, requests, keeps, 0, n).wait()
    if n == 1 and _is_quick(requests[0]):
        answers = bridge.Answers(1)
        with engine as pointer:
            lib.np_run(pointer, requests, 1, answers.raw, None, None, None)
        return answers
    error, out = bridge.Error(), c.c_void_p()  # a ticket that nobody else can reach
    step = _POLL_MS if threading.get_ident() == _main.ident else _LONG_POLL_MS
    with engine as pointer:
        try:
            if lib.np_submit(pointer, requests, n, _no_ready, None, c.byref(out), c.byref(error)):
                raise bridge.error_of(error)
            while not lib.np_poll(out, step):
                pass
        except BaseException:
            if out:
                lib.np_cancel(out)
                lib.np_wait(out, None, None)
            raise
        answers = bridge.Answers(n)
        lib.np_wait(out, answers.raw, None)
        return answers


def aside(
    work: Callable[[], None],
    meanwhile: Callable[[], object],
    leave: Callable[[threading.Event], object],
) -> None:
    """A long call that has no ticket, in a thread of its own: so Ctrl-C reaches who waits here.

    `meanwhile` is called again and again; `leave` when the wait is given up, with what is set once
    the call has ended.
    """
    failure: list[BaseException] = []
    done = threading.Event()

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=body, daemon=True).start()
    try:
        while not done.wait(_POLL_MS / 1000):
            meanwhile()
    except BaseException:
        leave(done)
        raise
    if failure:
        raise failure[0]


def engine_aside(engine: Handle, work: Callable[[], None], stop: Callable[[], object]) -> None:
    """The same for work of an engine. `stop` ends it where it next asks for something; a `Watch`
    does that, and ends the engine's work only where nobody else's is in it. Ctrl-C ends all.
    """
    watching = watch()

    def meanwhile() -> None:
        if watching is not None and watching.cancelled:
            stop()
            if engine.n_inside == 1:
                engine.cancel()

    def leave(done: threading.Event) -> None:
        stop()
        while not done.is_set():
            engine.cancel()
            done.wait(_POLL_MS / 1000)

    aside(work, meanwhile, leave)
