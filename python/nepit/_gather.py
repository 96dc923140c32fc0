"""`gather`: teacher scoring, chosen candidates at every row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Literal, NamedTuple, Optional, TypedDict, cast, overload

import numpy as np
from numpy.typing import NDArray

from . import _arrays as arrays
from . import _bridge as bridge
from ._bridge import NepitError
from ._requests import TAIL, Batch, candidates_array, integer, is_prompt
from ._results import Gathered
from ._score import Reading, n_tokens_of
from ._stream import Verb, ask
from ._text import Texts
from ._types import Candidates, Errors, LogprobsMode, Prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._handles import Handle


class GatherOptions(TypedDict, total=False):
    """Keyword arguments of `gather`; what they mean stands there."""

    tail: bool
    add_special: Optional[bool]
    parse_special: Optional[bool]
    score_temperature: Optional[float]
    logprobs_mode: LogprobsMode
    progress: bool


class Question(NamedTuple):
    """One item of `gather`."""

    prompt: Prompt
    response: Optional[Prompt]
    candidates: Candidates
    start: int


class Gathering(Texts):
    """The verb `gather`."""

    _engine: Handle

    @overload
    def gather(
        self,
        prompts: Prompt,
        response: Optional[Prompt] = None,
        candidates: Optional[Candidates] = None,
        *,
        start: Optional[int] = None,
        **options: Unpack[GatherOptions],
    ) -> Gathered: ...
    @overload
    def gather(
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
    def gather(
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
    def gather(
        self,
        prompts: Iterable[Prompt],
        response: Optional[Iterable[Prompt]] = None,
        candidates: Candidates | Iterable[Candidates] | None = None,
        *,
        start: int | Iterable[int] | None = None,
        errors: Literal["return"],
        **options: Unpack[GatherOptions],
    ) -> Generator[Gathered | NepitError, None, None]: ...
    @overload
    def gather(
        self,
        prompts: Iterable[Prompt],
        response: Optional[Iterable[Prompt]] = None,
        candidates: Candidates | Iterable[Candidates] | None = None,
        *,
        start: int | Iterable[int] | None = None,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GatherOptions],
    ) -> Generator[Gathered, None, None]: ...
    def gather(
        self,
        prompts: Prompt | Iterable[Prompt],
        response: Prompt | Iterable[Prompt] | None = None,
        candidates: Candidates | Iterable[Candidates] | None = None,
        *,
        start: int | Iterable[int] | None = None,
        tail: bool = False,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        score_temperature: Optional[float] = None,
        logprobs_mode: LogprobsMode = "raw_logprobs",
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """Teacher scoring: the log-probabilities of chosen candidates at every row.

        Parameters
        ----------
        prompts : str, bytes, ids; a sequence of them; or an iterator of them
        response : text or ids, optional
            What follows the prompt, encoded by itself: its tokens are the scored ones. One for
            each prompt where there are several.
        candidates : ids [K] for every row, or [n_rows, K]
            Row j scores token start+j+1. -1 pads and scores -inf; ragged rows are padded.
            Duplicates are allowed. Where there are several prompts, [K] is for all of them; else
            it holds what each prompt has.
        start : int, optional
            First row, in place of `response`; one for all, or one for each. Default 0.
        tail : bool
            The log of the probability beside the candidates, nats.
        add_special, parse_special : bool, optional
            Of a prompt that is a text, as in `tokenize`.
        score_temperature, logprobs_mode, errors, progress
            As in `score`.

        Returns
        -------
        Gathered, list of Gathered, or generator of Gathered : as `prompts` is
            `scores` is float32 [n_rows, K], a read-only view of C's memory; n_rows is the number
            of response tokens, or n_tokens-1-start.

        Raises
        ------
        NepitError
            EINPUT: an id outside the vocabulary (`where` is "candidate_ids[3][1]", of a sequence
            "prompts[5].candidate_ids[3][1]"), no candidate, another number of rows than there are
            (both numbers are told); ELIMIT, EUNSUPPORTED as `score` does.
        TypeError, ValueError
            What is no prompt, no ids or no option; lists of unequal length.
        """
        if candidates is None:
            raise TypeError("candidates are missing")
        if response is not None and start is not None:
            raise TypeError("give a response or a start, not both")
        single = is_prompt(prompts)
        reading = Reading(None, add_special, parse_special, score_temperature, logprobs_mode)
        fill = self._filler(reading, TAIL if tail else 0)
        verb = Verb(fill, _gathered, _n_tokens, _n_bytes, "gather")
        items: object = (
            Question(
                cast("Prompt", prompts),
                cast("Optional[Prompt]", response),
                cast("Candidates", candidates),
                cast(int, start or 0),
            )
            if single
            else _questions(prompts, response, candidates, 0 if start is None else start)
        )
        return ask(self._engine, verb, items, errors, progress, single=single)

    # ---- inside ----------------------------------------------------------------------------------

    def _filler(self, reading: Reading, want: int) -> Callable[[Batch, int, Question, str], object]:
        def fill(batch: Batch, i: int, question: Question, name: str) -> NDArray[np.int32]:
            prompt, response, candidates, start = question
            if response is not None:
                before = self._as_ids(prompt, reading.add_special, reading.parse_special, name)
                if before.size == 0:
                    raise NepitError("EINPUT", "the prompt has no token", name or "prompt")
                place = name.replace("prompts", "response") or "response"
                after = self._as_ids(response, False, reading.parse_special, place)
                prompt = np.concatenate([before, after])
                start = len(before) - 1
            request = reading.fill(batch, i, prompt, name)
            request.start, request.want = integer(start, "start", 0, 2**63 - 1), want
            place = name.replace("prompts", "candidates") or "candidates"
            array = candidates_array(candidates, place)
            batch.take_candidates(i, array)
            return array

        return fill

    def _as_ids(
        self,
        prompt: Prompt,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        name: str = "",
    ) -> NDArray[np.int32]:
        if isinstance(prompt, (str, bytes)):
            return self._encode(prompt, add_special, parse_special).token_ids
        return arrays.ids_array(prompt, name or "prompt")


def _gathered(owner: object, answers: bridge.Answers, i: int, memo: object) -> Gathered:
    raw = answers.raw[i]
    n_rows = raw.n_rows
    return Gathered(
        arrays.floats(owner, raw.scores, (n_rows, raw.n_candidates)),
        arrays.ints(owner, raw.token_ids, (raw.n_tokens,)),
        cast("NDArray[np.int32]", memo),
        raw.start,
        arrays.maybe_floats(owner, raw.tail, (n_rows,)),
        raw.n_computed,
    )


def _n_tokens(question: Question) -> int:
    n = n_tokens_of(question.prompt)
    return n if question.response is None else n + n_tokens_of(question.response)


def _n_bytes(question: Question) -> int:
    n_rows = n_tokens_of(question.prompt if question.response is None else question.response)
    first = question.candidates
    flat = arrays.is_list_of_ids(first)
    shape = getattr(first, "shape", (len(first),) if flat else (0, 64))  # type: ignore[arg-type]
    return 4 * n_rows * int(shape[-1]) + 4 * n_tokens_of(question.prompt)


def _questions(
    prompts: object, response: object, candidates: object, start: object
) -> Iterable[Question]:
    """An item for each prompt; what is one of its kind is for all of them."""
    if isinstance(prompts, (Mapping, Set)) or not hasattr(prompts, "__iter__"):
        raise TypeError(
            "prompts: a text, ids, a sequence or an iterator of them is expected, "
            f"not {type(prompts).__name__}"
        )
    if is_prompt(candidates):
        candidates = candidates_array(cast("Candidates", candidates))
        shared = True
    else:
        shared = False
    columns = {
        "prompts": cast("Iterable[object]", prompts),
        "response": _column(response, response is None or is_prompt(response)),
        "candidates": _column(candidates, shared),
        "start": _column(start, arrays.is_id(start)),
    }
    rows = _zipped(columns)
    return list(rows) if _is_whole(prompts) else rows


def _column(values: object, shared: bool) -> Iterable[object]:
    return itertools.repeat(values) if shared else cast("Iterable[object]", values)


def _is_whole(column: object) -> bool:
    """Whether all its items are there at once."""
    return isinstance(column, (Sequence, np.ndarray)) or hasattr(column, "__dlpack__")


def _zipped(columns: Mapping[str, Iterable[object]]) -> Iterator[Question]:
    shared = {name for name, column in columns.items() if isinstance(column, itertools.repeat)}
    sources = [
        (name, iter(column) if name in shared or _is_whole(column) else map(arrays.kept, column))
        for name, column in columns.items()
    ]
    end = object()
    for i in itertools.count():
        row = [next(source, end) for _, source in sources]
        ended = {name for (name, _), value in zip(sources, row) if value is end}
        if ended:
            if ended | shared != set(columns):
                short = ", ".join(sorted(ended))
                raise ValueError(f"{short}: {i} given, the others go on; one for each prompt")
            return
        yield Question(*row)  # type: ignore[arg-type]
