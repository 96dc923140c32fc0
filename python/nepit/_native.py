"""The native interface: `nepit.open(path)` and the model's verbs."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Optional, Union

from . import _bridge as bridge
from . import _handles as handles
from ._async import Twins
from ._compare import Comparing
from ._progress import bar
from ._requests import INT32_MAX, Batch, integer
from ._words import Wording


def open(  # noqa: A001 - the word of the product
    model: Union[str, os.PathLike[str]],
    *,
    profile: Optional[str] = None,
    threads: int = 0,
    context: int = 0,
    max_memory: int = 0,
    cache_memory: Optional[int] = None,
    cpu: Optional[str] = None,
    progress: bool = False,
) -> Model:
    """Opens a model for scoring.

    Parameters
    ----------
    model : a .gguf file, or a folder with config.json and safetensors
    profile : "f32" (default), "bf16" (files without quantised matrices) or "int16" (with some)
    threads : 0 means one per core
    context : longest sequence in tokens; 0 means the model's own
    max_memory : bytes for weights, keys, values and work space; 0 means no limit
    cache_memory : bytes of the prefix cache; None means 256 MiB, 0 none
    cpu : "auto", "ref", "avx2", "avx512", "avx512bf16" or "neon"; no bit depends on it
    progress : a bar while the file is read (needs tqdm)

    Returns
    -------
    Model
        To be used by any number of threads; closed by `with`, by close(), or when nobody needs it.

    Raises
    ------
    NepitError
        EIO, EFORMAT (with the byte offset), EUNSUPPORTED (names what is not supported), ELIMIT.
    """
    return Model(
        model,
        profile=profile,
        threads=threads,
        context=context,
        max_memory=max_memory,
        cache_memory=cache_memory,
        cpu=cpu,
        progress=progress,
    )


class Model(Twins, Comparing, Wording):
    """A model that is open: `nepit.open` makes it and says what the arguments mean."""

    def __init__(
        self,
        model: Union[str, os.PathLike[str]],
        *,
        profile: Optional[str] = None,
        threads: int = 0,
        context: int = 0,
        max_memory: int = 0,
        cache_memory: Optional[int] = None,
        cpu: Optional[str] = None,
        progress: bool = False,
    ) -> None:
        path = handles.path_of(model)
        threads = integer(threads, "threads", 0, INT32_MAX)
        context = integer(context, "context", 0, 2**63 - 1)
        max_memory = integer(max_memory, "max_memory", 0, 2**63 - 1)
        if cache_memory is not None:
            cache_memory = integer(cache_memory, "cache_memory", 0, 2**63 - 1)
        with bar(progress, "loading", "tensors") as tell:
            told = bridge.PROGRESS(lambda _user, done, total: tell(done, total))
            options = bridge.ModelOptions(
                profile=_word(profile, "profile"),
                cpu=_word(cpu, "cpu"),
                n_threads=threads,
                max_memory=max_memory,
                progress=told if progress else bridge.PROGRESS(0),
            )
            self._begin_texts(handles.open_model(path, options))
        engine = bridge.EngineOptions(
            n_threads=threads,
            n_context=context,
            max_memory=max_memory,
            cache_memory=cache_memory or 0,
            no_cache=cache_memory == 0,
        )
        try:
            self._engine = handles.open_engine(self._model, engine)
        except BaseException:
            self._model.close()
            raise
        self._pool = None
        self.context = context or self.info.n_context

    # ---- lifetime --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the model, and before it what other threads run with it: that fails with ECANCELLED.
        Arrays that it gave stay valid. Closing twice is allowed.
        """
        self._engine.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        self._model.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.info
        return f"<nepit.Model {Path(info.path).name}: {info.architecture}, {info.profile}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a model holds threads and cannot be pickled: open it in each worker")

    # ---- the prefix cache ------------------------------------------------------------------------

    def stats(self) -> dict[str, Union[int, float]]:
        """What the engine has done and holds; the names of np_stats."""
        with self._engine as pointer:
            raw = bridge.lib.np_engine_stats(pointer)
        return {name: getattr(raw, name) for name, *_ in bridge.Stats._fields_}

    def clear_cache(self) -> None:
        """Forgets the prefix cache."""
        with self._engine as pointer:
            bridge.lib.np_engine_clear_cache(pointer)

    def save_cache(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the prefix cache to a file."""
        self._engine.call("np_engine_save_cache", handles.path_of(path))

    def load_cache(self, path: Union[str, os.PathLike[str]]) -> None:
        """Adds a file's cache; answers have the same bits as without it."""
        self._engine.call("np_engine_load_cache", handles.path_of(path))

    # ---- inside ----------------------------------------------------------------------------------

    def _run(self, batch: Batch) -> bridge.Answers:
        answers = handles.run(self._engine, batch.requests, batch.keeps)
        for result in answers.results:
            if result.error.status:
                bridge.raise_error(result.error)
        return answers


def _word(value: Optional[str], name: str) -> Optional[bytes]:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name}: a text is expected, not {value!r}")
    if value and "\0" in value:
        raise bridge.NepitError("EINPUT", "an unknown word", name, repr(value)[:64])
    return value.encode() if value else None
