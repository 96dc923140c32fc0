"""The native interface: `nepit.open(path)` and the model's verbs."""

from __future__ import annotations

import contextlib
import ctypes as c
import functools
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Optional, ParamSpec, TypeVar, Union, cast

import numpy as np

from . import _arrays as arrays
from . import _bridge as bridge
from . import _parts as parts
from ._progress import bar
from ._requests import (
    ENTROPY,
    LOGPROB,
    MASS,
    RANK,
    TAIL,
    TO_THE_END,
    Batch,
    Candidates,
    Drawing,
    Prompt,
    is_prompt,
)
from ._results import Choice, Gathered, Generation, Next, Option, Perplexity, Score
from ._text import Texts

T = TypeVar("T")
P = ParamSpec("P")
CHUNK = 256  # prompts in the engine at a time when they come from an iterator


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
    model : a .gguf file, or a folder with config.json and *.safetensors
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


def _twin(
    method: Callable[Concatenate[Model, P], T],
) -> Callable[Concatenate[Model, P], Coroutine[object, object, T]]:
    @functools.wraps(method)
    async def aside(self: Model, *arguments: P.args, **options: P.kwargs) -> T:
        import asyncio  # slow to import, and seldom needed

        work = functools.partial(method, self, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(None, work)

    return aside


class Model(Texts):
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
        with bar(progress, "loading", "tensors") as tell:
            told = bridge.PROGRESS(lambda _user, done, total: tell(done, total))
            options = bridge.ModelOptions(
                profile=profile.encode() if profile else None,
                cpu=cpu.encode() if cpu else None,
                n_threads=threads,
                max_memory=max_memory,
                progress=told if progress else bridge.PROGRESS(0),
            )
            self._begin_texts(bridge.open_model(os.fspath(model), options))
        engine = bridge.EngineOptions(
            n_threads=threads,
            n_context=context,
            max_memory=max_memory,
            cache_memory=cache_memory or 0,
            no_cache=cache_memory == 0,
        )
        try:
            self._engine = bridge.open_engine(self._model, engine)
        except BaseException:
            self._model.close()
            raise
        self.context = context or self.info.n_context

    # ---- lifetime --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the model. Arrays that it gave stay valid."""
        self._engine.close()
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

    # ---- verbs -----------------------------------------------------------------------------------

    def score(self, prompts: object, **options: object) -> object:
        """The log-probability of every token.

        Parameters
        ----------
        prompts : a text or a list of ids; a list of them; or an iterator of them, which is read
            as answers are taken, in order, with bounded memory
        start : int, first row (row r scores token r+1); default 0
        top : int, so many likeliest tokens of each row; -1: the whole vocabulary
        entropy, mass : bool, of each row; mass needs `top`
        condition : "bos" or "none" (default: as the tokenizer does), for texts
        add_special, parse_special : as in `tokenize`
        score_temperature : divides the logits before the softmax
        logprobs_mode : "raw_logprobs" or "raw_logits"
        progress : bool, a bar (needs tqdm)

        Returns
        -------
        Score, a list of them, or an iterator: as `prompts` is.
        """
        return self._many(prompts, self._fill_score, self._score_of, options)

    def gather(
        self,
        prompt: Prompt,
        response: Optional[Prompt] = None,
        candidates: Optional[Candidates] = None,
        *,
        start: Optional[int] = None,
        tail: bool = False,
        score_temperature: Optional[float] = None,
        logprobs_mode: str = "raw_logprobs",
        add_special: Optional[bool] = None,
    ) -> Gathered:
        """Teacher scoring: chosen candidates at every row.

        Parameters
        ----------
        prompt : text or ids
        response : text or ids that follow it, encoded by itself; its tokens are the scored ones
        candidates : ids [K] for every row, or [n_rows, K] (-1 pads; ragged lists are padded)
        start : first row, in place of `response`; row r scores token r+1
        tail : adds the log of the probability beside the candidates

        Returns
        -------
        Gathered
            `scores` is float32 [n_rows, K], a view of C's memory.
        """
        if candidates is None:
            raise TypeError("candidates are missing")
        if response is not None:
            if start is not None:
                raise TypeError("give a response or a start, not both")
            before = self._as_ids(prompt, add_special)
            if before.size == 0:
                raise bridge.NepitError("EINPUT", "the prompt has no token", "prompt")
            prompt = np.concatenate([before, self._as_ids(response, False)])
            start = len(before) - 1
        batch = Batch(1)
        batch.prompt(0, prompt, add_special)
        batch.candidates(0, candidates)
        batch.temperature(0, score_temperature, logprobs_mode)
        batch.requests[0].start = start or 0
        batch.requests[0].want = TAIL if tail else 0
        answers = self._run(batch)
        result = answers.results[0]
        shape = (result.n_rows, result.n_candidates)
        return Gathered(
            scores=arrays.floats(answers, result.scores, shape),
            token_ids=arrays.ints(answers, result.token_ids, (result.n_tokens,)),
            start=result.start,
            tail=arrays.maybe_floats(answers, result.tail, (result.n_rows,)),
            n_computed=result.n_computed,
        )

    def next(self, prompts: object, **options: object) -> object:
        """The likeliest next tokens.

        Parameters
        ----------
        prompts : a text or ids; a list, or an iterator of them
        top : how many; default 10
        score_temperature, condition, add_special, parse_special, progress : as in `score`

        Returns
        -------
        Next, a list of them, or an iterator: as `prompts` is.
        """
        return self._many(prompts, self._fill_next, self._next_of, options)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: Optional[int] = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: Optional[int] = None,
        stop: Union[str, Sequence[str]] = (),
        top: Optional[int] = None,
        n: int = 1,
    ) -> Union[Generation, list[Generation]]:
        """What follows a prompt.

        Parameters
        ----------
        max_tokens : at most so many; None: to the end of the context
        temperature : 0 is always the likeliest token
        seed : the same seed gives the same text
        stop : texts that end it
        top : log-probabilities beside each token, and those of so many likeliest ones
        n : choices; more than one gives a list
        """
        drawing = Drawing(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            stop=[stop] if isinstance(stop, str) else list(stop),
            top=top,
            n=n,
        )
        batch = Batch(1)
        batch.prompt(0, prompt)
        batch.drawing(0, drawing)
        answers = self._run(batch)
        result = answers.results[0]
        texts = [
            parts.generation_of(answers, result.choices[k], drawing)
            for k in range(result.n_choices)
        ]
        return texts[0] if n == 1 else texts

    def choose(
        self,
        context: str,
        options: Sequence[str],
        *,
        by: str = "mean",
        neutral: Optional[str] = None,
    ) -> Choice:
        """Which option follows a context best.

        Context and option are encoded together, and an option's tokens are those that touch it;
        `straddles` says that the first of them began in the context.

        Parameters
        ----------
        by : "mean" (per token), "total", "bytes", "characters" or "calibrated" (the total minus
            the option's total after `neutral`)
        """
        rules = {"mean": "mean", "total": "total", "bytes": "per_byte"}
        rules |= {"characters": "per_character", "calibrated": "calibrated"}
        if by not in rules:
            raise ValueError(f"by: one of {', '.join(rules)} is expected, not {by!r}")
        if by == "calibrated" and neutral is None:
            raise TypeError('by="calibrated" needs a neutral text')
        if not options:
            raise bridge.NepitError("EINPUT", "at least one option is expected", "options")
        sums = self._sums(context, options)
        base = self._sums(neutral, options) if neutral is not None else None
        totals = np.array([total for total, _, _ in sums])
        weights = np.exp(totals - totals.max())
        told = []
        for i, (total, n, straddles) in enumerate(sums):
            text = options[i]
            told.append(
                Option(
                    text=text,
                    total=total,
                    mean=total / n,
                    per_byte=total / len(text.encode()),
                    per_character=total / len(text),
                    calibrated=total - base[i][0] if base else None,
                    n_tokens=n,
                    probability=float(weights[i] / weights.sum()),
                    straddles=straddles,
                )
            )
        values = [cast(float, getattr(option, rules[by])) for option in told]
        return Choice(told, int(np.argmax(values)), by)

    def _sums(self, context: str, options: Sequence[str]) -> list[tuple[float, int, bool]]:
        """Total, tokens and whether the first one straddles, for each option."""
        n_context = len(context.encode())
        for i, option in enumerate(options):
            if not option:
                raise bridge.NepitError("EINPUT", "an option is empty", f"options[{i}]")
        sums = []
        for score in self.score([context + option for option in options]):
            assert score.offsets is not None
            touching = np.nonzero(score.offsets[:, 1] > n_context)[0]
            first = int(touching[0])
            values = score.logprobs[first:]
            if np.isnan(values).any():
                raise bridge.NepitError(
                    "EINPUT", "the first token has no score: the context is empty", "context"
                )
            straddles = bool(score.offsets[first, 0] < n_context)
            sums.append((float(sum(values.tolist())), len(values), straddles))
        return sums

    def perplexity(
        self,
        document: Union[str, os.PathLike[str]],
        *,
        text: bool = False,
        window: int = 0,
        stride: int = 0,
        progress: bool = False,
    ) -> Perplexity:
        """Perplexity of a document of any size, every token scored once.

        Parameters
        ----------
        document : a path; with text=True the text itself
        window, stride : rows; 0 means the context, and the window
        """
        with contextlib.ExitStack() as stack:
            if text:
                raw = str(document).encode("utf-8", "surrogateescape")
                source = bridge.Document(text=raw, n_bytes=len(raw))
                failure: list[BaseException] = []
            else:
                file = stack.enter_context(Path(document).open("rb"))
                source, failure = parts.document(file.read, Path(document).stat().st_size)
            tell = stack.enter_context(bar(progress, "perplexity", "B"))
            options = bridge.PerplexityOptions(
                window=window,
                stride=stride,
                progress=bridge.PROGRESS(lambda _user, done, total: tell(done, total)),
            )
            raw_result = bridge.PerplexityResult()
            bridge.call(
                "np_perplexity",
                self._engine.pointer,
                c.byref(source),
                1,
                c.byref(options),
                c.byref(raw_result),
            )
        if failure:
            raise failure[0]
        if raw_result.error.status:
            bridge.raise_error(raw_result.error)
        names = Perplexity.__dataclass_fields__
        values = {name: getattr(raw_result, name) for name in names}
        return Perplexity(**{**values, "has_bos": bool(raw_result.has_bos)})

    # ---- async twins: the same without blocking the event loop -----------------------------------

    score_async = _twin(score)
    gather_async = _twin(gather)
    next_async = _twin(next)
    generate_async = _twin(generate)
    perplexity_async = _twin(perplexity)

    # ---- the prefix cache ------------------------------------------------------------------------

    def stats(self) -> dict[str, Union[int, float]]:
        """What the engine has done and holds; the names of np_stats."""
        raw = bridge.lib.np_engine_stats(self._engine.pointer)
        return {name: getattr(raw, name) for name, *_ in bridge.Stats._fields_}

    def clear_cache(self) -> None:
        """Forgets the prefix cache."""
        bridge.lib.np_engine_clear_cache(self._engine.pointer)

    def save_cache(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the prefix cache to a file."""
        bridge.call("np_engine_save_cache", self._engine.pointer, os.fsencode(path))

    def load_cache(self, path: Union[str, os.PathLike[str]]) -> None:
        """Adds a file's cache; answers have the same bits as without it."""
        bridge.call("np_engine_load_cache", self._engine.pointer, os.fsencode(path))

    # ---- inside ----------------------------------------------------------------------------------

    def _as_ids(self, prompt: Prompt, add_special: Optional[bool]) -> np.typing.NDArray[np.int32]:
        if isinstance(prompt, (str, bytes)):
            return self.tokenize(prompt, add_special=add_special).token_ids
        return arrays.ids_array(prompt, "prompt")

    def _run(self, batch: Batch) -> bridge.Answers:
        answers = bridge.run(self._engine, batch.requests, batch.keeps)
        for result in answers.results:
            if result.error.status:
                bridge.raise_error(result.error)
        return answers

    def _many(
        self,
        prompts: object,
        fill: Callable[[Batch, int, dict[str, object]], None],
        take: Callable[[bridge.Answers, int, dict[str, object]], T],
        options: Mapping[str, object],
    ) -> Union[T, list[T], Iterator[T]]:
        if is_prompt(prompts):
            return self._some([cast(Prompt, prompts)], fill, take, options)[0]
        if isinstance(prompts, Sequence) or isinstance(prompts, np.ndarray):
            with bar(bool(options.get("progress")), "nepit", "prompts") as tell:
                done: list[T] = []
                for at in range(0, len(prompts), CHUNK):
                    done += self._some(list(prompts[at : at + CHUNK]), fill, take, options)
                    tell(len(done), len(prompts))
                return done
        if isinstance(prompts, Iterable):
            return self._stream(iter(prompts), fill, take, options)
        raise TypeError(f"a text, ids, a list or an iterator is expected, not {type(prompts)}")

    def _stream(
        self,
        prompts: Iterator[Prompt],
        fill: Callable[[Batch, int, dict[str, object]], None],
        take: Callable[[bridge.Answers, int, dict[str, object]], T],
        options: Mapping[str, object],
    ) -> Iterator[T]:
        some: list[Prompt] = []
        for prompt in prompts:
            some.append(prompt)
            if len(some) == CHUNK:
                yield from self._some(some, fill, take, options)
                some = []
        if some:
            yield from self._some(some, fill, take, options)

    def _some(
        self,
        prompts: list[Prompt],
        fill: Callable[[Batch, int, dict[str, object]], None],
        take: Callable[[bridge.Answers, int, dict[str, object]], T],
        options: Mapping[str, object],
    ) -> list[T]:
        if not prompts:
            return []
        batch = Batch(len(prompts))
        for i, prompt in enumerate(prompts):
            mine = dict(options)
            mine.pop("progress", None)
            batch.prompt(
                i,
                prompt,
                cast(Optional[bool], mine.pop("add_special", None)),
                cast(Optional[bool], mine.pop("parse_special", None)),
                cast(Optional[str], mine.pop("condition", None)),
                name=f"prompts[{i}]" if len(prompts) > 1 else "prompt",
            )
            temperature = cast(Optional[float], mine.pop("score_temperature", None))
            batch.temperature(i, temperature, cast(str, mine.pop("logprobs_mode", "raw_logprobs")))
            fill(batch, i, mine)
            if mine:
                raise TypeError(f"unknown option {next(iter(mine))!r}")
        answers = self._run(batch)
        return [take(answers, i, dict(options)) for i in range(len(prompts))]

    @staticmethod
    def _fill_score(batch: Batch, i: int, options: dict[str, object]) -> None:
        request = batch.requests[i]
        request.start = cast(int, options.pop("start", 0))
        request.top = cast(int, options.pop("top", 0))
        request.want = LOGPROB | RANK
        request.want |= ENTROPY if options.pop("entropy", False) else 0
        request.want |= MASS if options.pop("mass", False) else 0

    def _score_of(self, answers: bridge.Answers, i: int, _options: dict[str, object]) -> Score:
        result = answers.results[i]
        n, rows = result.n_tokens, (result.n_rows,)
        ids = arrays.ints(answers, result.token_ids, (n,))
        logprobs, ranks = np.full(n, np.nan, np.float32), np.zeros(n, np.int32)
        first = result.start + 1
        if result.n_scored:
            logprobs[first:] = arrays.floats(answers, result.logprobs, (result.n_scored,))
            ranks[first:] = arrays.ints(answers, result.ranks, (result.n_scored,))
        offsets = None
        if result.begin:
            offsets = arrays.spans(result.begin, result.end, n)
        top = (result.n_rows, result.n_top)
        return Score(
            token_ids=ids,
            texts=self._token_texts(ids.tolist()),
            offsets=offsets,
            logprobs=logprobs,
            ranks=ranks,
            start=result.start,
            entropies=arrays.maybe_floats(answers, result.entropies, rows),
            top_ids=arrays.maybe_ints(answers, result.top_ids, top),
            top_logprobs=arrays.maybe_floats(answers, result.top_logprobs, top),
            mass=arrays.maybe_floats(answers, result.mass, rows),
            n_computed=result.n_computed,
        )

    @staticmethod
    def _fill_next(batch: Batch, i: int, options: dict[str, object]) -> None:
        request = batch.requests[i]
        request.start, request.next = TO_THE_END // 2, 1
        request.top = cast(int, options.pop("top", 10))
        request.want = ENTROPY | MASS

    def _next_of(self, answers: bridge.Answers, i: int, _options: dict[str, object]) -> Next:
        result = answers.results[i]
        ids = arrays.ints(answers, result.top_ids, (result.n_top,))
        return Next(
            token_ids=ids,
            texts=self._token_texts(ids.tolist()),
            logprobs=arrays.floats(answers, result.top_logprobs, (result.n_top,)),
            entropy=float(result.entropies[0]),
            mass=float(result.mass[0]),
        )
