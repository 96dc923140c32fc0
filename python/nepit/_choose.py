"""`choose`: which option follows a context best."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Optional, TypedDict, Union, cast, overload

import numpy as np
from numpy.typing import NDArray

from . import _arrays as arrays
from . import _bridge as bridge
from ._bridge import NepitError
from ._requests import LOGPROB, RANK, Batch, is_prompt, raw_text
from ._results import Choice, Option
from ._stream import Verb, stream
from ._text import Texts
from ._types import Errors, Prompt, Rule

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._handles import Handle

Spellings = tuple[str, ...]
Given = Union[Prompt, Spellings]
RULES: dict[str, str] = {
    "mean": "mean",
    "total": "total",
    "bytes": "per_byte",
    "characters": "per_character",
    "calibrated": "calibrated",
}


class ChooseOptions(TypedDict, total=False):
    """Keyword arguments of `choose`; what they mean stands there."""

    by: Rule
    neutral: Optional[Prompt]
    add_special: Optional[bool]
    parse_special: Optional[bool]
    progress: bool


@dataclass(frozen=True)
class Sequel:
    """A context and one spelling of an option as one sequence."""

    token_ids: NDArray[np.int32]
    first: int  # token of the option
    straddles: bool
    text: str
    n_bytes: int
    together: bool


@dataclass(frozen=True)
class Scored:
    """What a sequel scores."""

    total: float
    n_tokens: int
    greedy: bool


class Choosing(Texts):
    """The verb `choose`."""

    _engine: Handle

    @overload
    def choose(
        self, context: Prompt, options: Sequence[Given], **rest: Unpack[ChooseOptions]
    ) -> Choice: ...
    @overload
    def choose(
        self,
        context: Sequence[Prompt],
        options: Sequence[Given] | Sequence[Sequence[Given]],
        *,
        errors: Literal["return"],
        **rest: Unpack[ChooseOptions],
    ) -> list[Choice | NepitError]: ...
    @overload
    def choose(
        self,
        context: Sequence[Prompt],
        options: Sequence[Given] | Sequence[Sequence[Given]],
        *,
        errors: Literal["raise"] = "raise",
        **rest: Unpack[ChooseOptions],
    ) -> list[Choice]: ...
    @overload
    def choose(
        self,
        context: Iterable[Prompt],
        options: Sequence[Given] | Iterable[Sequence[Given]],
        *,
        errors: Literal["return"],
        **rest: Unpack[ChooseOptions],
    ) -> Generator[Choice | NepitError, None, None]: ...
    @overload
    def choose(
        self,
        context: Iterable[Prompt],
        options: Sequence[Given] | Iterable[Sequence[Given]],
        *,
        errors: Literal["raise"] = "raise",
        **rest: Unpack[ChooseOptions],
    ) -> Generator[Choice, None, None]: ...
    def choose(
        self,
        context: Prompt | Iterable[Prompt],
        options: Sequence[Given] | Iterable[Sequence[Given]],
        *,
        by: Rule = "mean",
        neutral: Optional[Prompt] = None,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """Which option follows a context best.

        A context and an option that are texts are encoded together, and the option's tokens are
        those that touch it; `straddles` says that the first of them begins in the context. Where
        one of them is ids, each is encoded by itself.

        Parameters
        ----------
        context : str, bytes, ids; a sequence of them; or an iterator of them
        options : sequence
            Texts, ids, or tuples of texts: spellings of one option, whose probabilities are added.
            For several contexts, these options for all of them, or a list of options for each.
        by : {"mean", "total", "bytes", "characters", "calibrated"}
            What decides: nats per token, in all, per byte, per character; or in all minus the
            option's total after `neutral`.
        neutral : text or ids, optional
            A context that says nothing, such as "Answer:".
        add_special, parse_special : bool, optional
            As in `tokenize`.
        errors, progress
            As in `score`.

        Returns
        -------
        Choice, list of Choice, or generator of Choice : as `context` is

        Raises
        ------
        NepitError
            As `score` does; EINPUT: no option, an option that is empty, a context without a token.
        """
        if by not in RULES:
            raise ValueError(f"by: one of {', '.join(RULES)} is expected, not {by!r}")
        if by == "calibrated" and neutral is None:
            raise TypeError('by="calibrated" needs a neutral context')
        if errors not in ("raise", "return"):
            raise ValueError(f'errors: "raise" or "return" is expected, not {errors!r}')
        special = (add_special, parse_special)
        single = is_prompt(context)
        if not single and (isinstance(context, (Mapping, Set)) or not hasattr(context, "__iter__")):
            raise TypeError(f"context: a text or ids is expected, not {type(context).__name__}")
        contexts = cast("Iterable[Prompt]", [context] if single else context)
        asked = _paired(contexts, options, single)
        made = self._chosen(asked, neutral, by, special, errors, progress)
        if single:
            return next(made)
        return list(made) if isinstance(context, (Sequence, np.ndarray)) else made

    # ---- inside ----------------------------------------------------------------------------------

    def _chosen(
        self,
        asked: Iterable[tuple[Prompt, Sequence[Given]]],
        neutral: Optional[Prompt],
        by: Rule,
        special: tuple[Optional[bool], Optional[bool]],
        errors: Errors,
        progress: bool,
    ) -> Generator[Choice | NepitError, None, None]:
        """Reads ahead as `stream` does; the sequels of one context stand behind one another."""
        pending: list[tuple[Prompt, list[list[Sequel]], bool] | NepitError] = []

        def sequels() -> Iterator[Sequel]:
            for i, (context, options) in enumerate(asked):
                try:
                    groups = self._sequels(context, options, special)
                    if neutral is not None:
                        groups += self._sequels(neutral, options, special)
                except (NepitError, TypeError, ValueError) as error:
                    if errors == "raise":
                        raise
                    pending.append(_as_nepit(error, i))
                    continue
                pending.append((context, groups, neutral is not None))
                for group in groups:
                    yield from group

        verb = Verb(_fill, _scored, _n_tokens, _n_tokens, "choose")
        answers = stream(self._engine, verb, sequels(), "return", progress)
        return _regrouped(pending, answers, by, errors)

    def _sequels(
        self,
        context: Prompt,
        options: Sequence[Given],
        special: tuple[Optional[bool], Optional[bool]],
    ) -> list[list[Sequel]]:
        """For each option, its spellings behind the context."""
        if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
            raise TypeError("options: a sequence of texts or ids is expected")
        if not options:
            raise NepitError("EINPUT", "at least one option is expected", "options")
        groups = []
        for i, option in enumerate(options):
            spelled = isinstance(option, tuple) and not is_prompt(option)
            spellings = cast("Sequence[Prompt]", option if spelled else [option])
            if not spellings:
                raise NepitError("EINPUT", "at least one spelling is expected", f"options[{i}]")
            groups.append([self._sequel(context, s, f"options[{i}]", special) for s in spellings])
        return groups

    def _sequel(
        self,
        context: Prompt,
        option: Prompt,
        name: str,
        special: tuple[Optional[bool], Optional[bool]],
    ) -> Sequel:
        together = isinstance(context, (str, bytes)) and isinstance(option, (str, bytes))
        if len(option) == 0:  # type: ignore[arg-type]
            raise NepitError("EINPUT", "an option is empty", name)
        if together:
            before, raw = raw_text(cast(str, context)), raw_text(cast(str, option))
            tokens = self._encode(before + raw, *special)
            begin, end = tokens.offsets[:, 0], tokens.offsets[:, 1]
            touching = np.nonzero((end > len(before)) & (end > begin))[0]
            first = int(touching[0])
            ids = tokens.token_ids[: int(touching[-1]) + 1]
            straddles = bool(begin[first] < len(before))
        else:
            parts = [
                self._encode(context, *special).token_ids
                if isinstance(context, (str, bytes))
                else arrays.ids_array(context, "context"),
                self._encode(option, False, special[1]).token_ids
                if isinstance(option, (str, bytes))
                else arrays.ids_array(option, name),
            ]
            ids, first, straddles = np.concatenate(parts), len(parts[0]), False
            raw = raw_text(option) if isinstance(option, (str, bytes)) else b""
            if not raw and self.info.has_tokenizer:
                raw = self.detokenize(parts[1])
        if first == 0:
            raise NepitError("EINPUT", "the option's first token has no row: no context", "context")
        return Sequel(ids, first, straddles, raw.decode(errors="replace"), len(raw), together)


def _n_tokens(sequel: Sequel) -> int:
    return len(sequel.token_ids)


def _fill(batch: Batch, i: int, sequel: Sequel, name: str) -> None:
    batch.prompt(i, sequel.token_ids, name=name)
    batch.requests[i].start = sequel.first - 1
    batch.requests[i].want = LOGPROB | RANK


def _scored(owner: object, answers: bridge.Answers, i: int, _memo: object) -> Scored:
    raw = answers.raw[i]
    values = arrays.floats(owner, raw.logprobs, (raw.n_scored,))
    ranks = arrays.ints(owner, raw.ranks, (raw.n_scored,))
    return Scored(float(sum(values.tolist())), raw.n_scored, bool((ranks == 1).all()))


def _as_nepit(error: Exception, i: int) -> NepitError:
    if isinstance(error, NepitError):
        return error
    made = NepitError("EINPUT", str(error), f"context[{i}]")
    made.__cause__ = error
    return made


def _paired(
    contexts: Iterable[Prompt], options: object, single: bool
) -> Iterator[tuple[Prompt, Sequence[Given]]]:
    """Each context with its options."""
    own = not isinstance(options, Sequence) or (
        len(options) > 0 and isinstance(options[0], list) and not arrays.is_list_of_ids(options[0])
    )
    if single or not own:
        for context in contexts:
            yield context, cast("Sequence[Given]", options)
        return
    try:
        yield from zip(contexts, cast("Iterable[Sequence[Given]]", options), strict=True)
    except ValueError as error:
        raise ValueError(f"options: a list for each context is expected ({error})") from None


def _regrouped(
    pending: list[tuple[Prompt, list[list[Sequel]], bool] | NepitError],
    answers: Generator[Scored | NepitError, None, None],
    by: Rule,
    errors: Errors,
) -> Generator[Choice | NepitError, None, None]:
    """Choices of contexts, from the answers to their sequels."""
    try:
        while True:
            first = next(answers, None)
            while pending and isinstance(pending[0], NepitError):
                yield cast(NepitError, pending.pop(0))
            if first is None:
                return
            context, groups, calibrated = cast(
                "tuple[Prompt, list[list[Sequel]], bool]", pending.pop(0)
            )
            n = sum(len(group) for group in groups)
            scores = [first, *(next(answers) for _ in range(n - 1))]
            bad = next((score for score in scores if isinstance(score, NepitError)), None)
            if bad is not None and errors == "raise":
                raise bad
            yield bad or _choice(context, groups, cast("list[Scored]", scores), calibrated, by)
    finally:
        answers.close()


def _choice(
    context: Prompt, groups: list[list[Sequel]], scores: list[Scored], calibrated: bool, by: Rule
) -> Choice:
    source = iter(scores)
    made = [_option([_single(sequel, next(source)) for sequel in group]) for group in groups]
    if calibrated:
        half = len(made) // 2
        made, base = made[:half], made[half:]
        made = [replace(x, calibrated=x.total - y.total) for x, y in zip(made, base)]
    totals = np.array([option.total for option in made])
    weights = np.exp(totals - totals.max()) if np.isfinite(totals.max()) else np.ones(len(made))
    shares = (weights / weights.sum()).tolist()
    told = [replace(option, probability=p) for option, p in zip(made, shares)]
    values = [cast(float, getattr(option, RULES[by])) for option in told]
    warnings: tuple[str, ...] = ()
    if isinstance(context, (str, bytes)) and raw_text(context)[-1:].isspace():
        warnings = (
            "the context ends with a space: most vocabularies have words with the space before "
            "them, so it belongs to the beginning of the options",
        )
    return Choice(
        options=told,
        best=int(np.argmax(values)),
        by=by,
        encoded="together" if groups[0][0].together else "separately",
        warnings=warnings,
    )


def _single(sequel: Sequel, score: Scored) -> Option:
    n_characters = len(sequel.text)
    return Option(
        text=sequel.text,
        total=score.total,
        mean=score.total / score.n_tokens,
        per_byte=score.total / sequel.n_bytes if sequel.n_bytes else math.nan,
        per_character=score.total / n_characters if n_characters else math.nan,
        calibrated=None,
        token_ids=sequel.token_ids[sequel.first :],
        probability=math.nan,
        straddles=sequel.straddles,
        greedy=score.greedy,
        spellings=(),
    )


def _option(spelled: list[Option]) -> Option:
    """One spelling as it is; of several, the likeliest with the sum of all."""
    if len(spelled) == 1:
        return spelled[0]
    best = max(spelled, key=lambda option: option.total)
    total = float(np.logaddexp.reduce([option.total for option in spelled]))
    scale = total / best.total if best.total else 1.0
    return replace(
        best,
        total=total,
        mean=total / best.n_tokens,
        per_byte=best.per_byte * scale,
        per_character=best.per_character * scale,
        spellings=tuple(spelled),
    )
