"""`score` and `next`: what a model says of texts as they stand."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional, TypedDict, TypeVar, overload

import numpy as np

from . import _arrays as arrays
from . import _bridge as bridge
from ._bridge import NepitError
from ._requests import (
    ENTROPY,
    INT32_MAX,
    LOGPROB,
    MASS,
    RANK,
    TO_THE_END,
    Batch,
    integer,
    is_prompt,
)
from ._results import Next, Score
from ._stream import Verb, ask
from ._text import Texts
from ._types import Condition, Errors, LogprobsMode, Prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._handles import Handle


T = TypeVar("T")


class NextOptions(TypedDict, total=False):
    """Keyword arguments of `next`; what they mean stands there."""

    top: int
    condition: Optional[Condition]
    add_special: Optional[bool]
    parse_special: Optional[bool]
    score_temperature: Optional[float]
    logprobs_mode: LogprobsMode
    progress: bool


class ScoreOptions(NextOptions, total=False):
    """Keyword arguments of `score`; what they mean stands there."""

    start: int
    entropy: bool
    mass: bool


class Reading(NamedTuple):
    """How a prompt becomes a sequence, and its logits log-probabilities."""

    condition: Optional[Condition]
    add_special: Optional[bool]
    parse_special: Optional[bool]
    score_temperature: Optional[float]
    logprobs_mode: LogprobsMode

    def fill(self, batch: Batch, i: int, prompt: Prompt, name: str) -> bridge.Request:
        batch.prompt(
            i, prompt, self.add_special, self.parse_special, self.condition, name or "prompt"
        )
        batch.temperature(i, self.score_temperature, self.logprobs_mode)
        return batch.requests[i]


def n_tokens_of(prompt: object) -> int:
    """About how many tokens a prompt has."""
    n = len(prompt) if isinstance(prompt, Sized) else 1000
    return n // 3 + 1 if isinstance(prompt, (str, bytes)) else n


def width_of(top: int, n_vocab: int) -> int:
    return n_vocab if top < 0 else min(top, n_vocab)


class Scoring(Texts):
    """The verbs `score` and `next`."""

    _engine: Handle

    @overload
    def score(self, prompts: Prompt, **options: Unpack[ScoreOptions]) -> Score: ...
    @overload
    def score(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[ScoreOptions],
    ) -> list[Score | NepitError]: ...
    @overload
    def score(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[ScoreOptions],
    ) -> list[Score]: ...
    @overload
    def score(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[ScoreOptions],
    ) -> Generator[Score | NepitError, None, None]: ...
    @overload
    def score(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[ScoreOptions],
    ) -> Generator[Score, None, None]: ...
    def score(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        start: int = 0,
        top: int = 0,
        entropy: bool = False,
        mass: bool = False,
        condition: Optional[Condition] = None,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        score_temperature: Optional[float] = None,
        logprobs_mode: LogprobsMode = "raw_logprobs",
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """The log-probability of every token.

        Parameters
        ----------
        prompts : str, bytes, ids; a sequence of them; or an iterator of them
            Ids are lists, integer arrays or tensors of one dimension, and are scored as they are.
            An array of two dimensions is a sequence of its rows. An iterator is read ahead by up
            to about 1,000 prompts (fewer where answers are large); answers keep their order.
        start : int
            First row, 0 to n_tokens-1; row r scores token r+1.
        top : int
            So many of the likeliest tokens of each row; -1: the whole vocabulary.
        entropy : bool
            The entropy of each row, nats.
        mass : bool
            The log of the probability beside the `top` tokens, nats.
        condition : {"bos", "none"}, optional
            What stands before a text; by default what the model's tokenizer adds.
        add_special, parse_special : bool, optional
            As in `tokenize`; add_special not together with `condition`.
        score_temperature : float, optional
            Above 0: divides the logits before the softmax.
        logprobs_mode : {"raw_logprobs", "raw_logits"}
            With "raw_logits", logits stand where log-probabilities would: sums and means of them,
            so `total` and `perplexity`, mean nothing.
        errors : {"raise", "return"}
            What is done with a prompt that is refused, in a sequence or an iterator: raised (a
            sequence then does not run at all, an iterator has given what stood before), or
            returned as a NepitError in its place.
        progress : bool
            A bar (needs tqdm).

        Returns
        -------
        Score, list of Score, or generator of Score : as `prompts` is
            Closing the generator ends what still runs.

        Raises
        ------
        NepitError
            EINPUT: an id outside the vocabulary (`where` is "token_ids[2]", of a sequence
            "prompts[5].token_ids[2]"), no token, a start past the end; ELIMIT: more tokens than
            the context, an answer above 4 GiB; EUNSUPPORTED: a text without a tokenizer.
        TypeError, ValueError
            What is no prompt or no option, before anything runs.
        """
        reading = Reading(condition, add_special, parse_special, score_temperature, logprobs_mode)
        row, n_top = integer(start, "start", 0, 2**63 - 1), integer(top, "top", -1, INT32_MAX)
        if mass and not n_top:
            raise NepitError("EINPUT", "is what the top tokens leave over: give `top`", "mass")
        want = LOGPROB | RANK | (ENTROPY if entropy else 0) | (MASS if mass else 0)

        def fill(batch: Batch, i: int, prompt: Prompt, name: str) -> None:
            request = reading.fill(batch, i, prompt, name)
            request.start, request.top, request.want = row, n_top, want

        width = 8 * width_of(top, self.info.n_vocab) + 40
        verb: Verb[Prompt, Score] = Verb(
            fill, self._score_of, n_tokens_of, lambda prompt: width * n_tokens_of(prompt), "score"
        )
        return self._ask(verb, prompts, errors, progress)

    @overload
    def next(self, prompts: Prompt, **options: Unpack[NextOptions]) -> Next: ...
    @overload
    def next(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[NextOptions],
    ) -> list[Next | NepitError]: ...
    @overload
    def next(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[NextOptions],
    ) -> list[Next]: ...
    @overload
    def next(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[NextOptions],
    ) -> Generator[Next | NepitError, None, None]: ...
    @overload
    def next(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[NextOptions],
    ) -> Generator[Next, None, None]: ...
    def next(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        top: int = 10,
        condition: Optional[Condition] = None,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        score_temperature: Optional[float] = None,
        logprobs_mode: LogprobsMode = "raw_logprobs",
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """The likeliest next tokens.

        Parameters
        ----------
        prompts : str, bytes, ids; a sequence of them; or an iterator of them
        top : int
            How many; -1: the whole vocabulary.
        condition, add_special, parse_special, score_temperature, logprobs_mode, errors, progress
            As in `score`.

        Returns
        -------
        Next, list of Next, or generator of Next : as `prompts` is

        Raises
        ------
        NepitError, TypeError, ValueError
            As `score` does; EINPUT where `top` is 0.
        """
        n_top = integer(top, "top", -1, INT32_MAX)
        if n_top == 0:
            raise NepitError("EINPUT", "at least 1, or -1 (the whole vocabulary)", "top", "0")
        reading = Reading(condition, add_special, parse_special, score_temperature, logprobs_mode)

        def fill(batch: Batch, i: int, prompt: Prompt, name: str) -> None:
            request = reading.fill(batch, i, prompt, name)
            request.start, request.next, request.top = TO_THE_END, 1, n_top
            request.want = ENTROPY | MASS

        size = 8 * width_of(top, self.info.n_vocab)
        verb: Verb[Prompt, Next] = Verb(
            fill, self._next_of, n_tokens_of, lambda prompt: size + 8 * n_tokens_of(prompt), "next"
        )
        return self._ask(verb, prompts, errors, progress)

    # ---- inside ----------------------------------------------------------------------------------

    def _ask(
        self, verb: Verb[Prompt, T], prompts: object, errors: Errors, progress: bool
    ) -> object:
        return ask(self._engine, verb, prompts, errors, progress, single=is_prompt(prompts))

    def _score_of(self, owner: object, answers: bridge.Answers, i: int, _memo: object) -> Score:
        raw = answers.raw[i]
        n, rows, first = raw.n_tokens, (raw.n_rows,), raw.start + 1
        ids = arrays.ints(owner, raw.token_ids, (n,))
        logprobs, ranks = np.full(n, np.nan, np.float32), np.zeros(n, np.int32)
        if raw.n_scored:
            logprobs[first:] = arrays.floats(owner, raw.logprobs, (raw.n_scored,))
            ranks[first:] = arrays.ints(owner, raw.ranks, (raw.n_scored,))
        top = (raw.n_rows, raw.n_top)
        return Score(
            token_ids=ids,
            texts=self._token_texts(ids.tolist()),
            offsets=arrays.spans(raw.begin, raw.end, n) if raw.begin else None,
            logprobs=arrays.read_only(logprobs),
            ranks=arrays.read_only(ranks),
            start=raw.start,
            entropies=arrays.maybe_floats(owner, raw.entropies, rows),
            top_ids=arrays.maybe_ints(owner, raw.top_ids, top),
            top_logprobs=arrays.maybe_floats(owner, raw.top_logprobs, top),
            mass=arrays.maybe_floats(owner, raw.mass, rows),
            n_computed=raw.n_computed,
        )

    def _next_of(self, owner: object, answers: bridge.Answers, i: int, _memo: object) -> Next:
        raw = answers.raw[i]
        ids = arrays.ints(owner, raw.top_ids, (raw.n_top,))
        return Next(
            token_ids=ids,
            texts=self._token_texts(ids.tolist()),
            logprobs=arrays.floats(owner, raw.top_logprobs, (raw.n_top,)),
            entropy=float(arrays.floats(owner, raw.entropies, (1,))[0]),
            mass=float(arrays.floats(owner, raw.mass, (1,))[0]),
            n_computed=raw.n_computed,
        )
