"""`generate`: what follows a prompt."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Optional, TypedDict, TypeVar, overload

from . import _bridge as bridge
from . import _parts as parts
from ._bridge import NepitError
from ._requests import Batch, Drawing, is_prompt
from ._results import Generation
from ._score import n_tokens_of, width_of
from ._stream import Verb, ask
from ._text import Texts
from ._types import Errors, Ids, Prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._handles import Handle

V = TypeVar("V")


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate`; what they mean stands there."""

    max_tokens: Optional[int]
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Optional[Mapping[int, float]]
    allowed_token_ids: Optional[Ids]
    seed: Optional[int]
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    include_stop: bool
    ignore_eos: bool
    skip_special_tokens: bool
    top: Optional[int]
    candidates: Optional[Ids]
    add_special: Optional[bool]
    parse_special: Optional[bool]
    progress: bool


# What `generate` hands to a Drawing as it was given.
_AS_GIVEN = (
    *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "presence_penalty"),
    *("frequency_penalty", "repetition_penalty", "allowed_token_ids", "seed", "include_stop"),
    *("ignore_eos", "skip_special_tokens", "top", "candidates"),
)


class Generating(Texts):
    """The verb `generate`."""

    _engine: Handle

    @overload
    def generate(self, prompts: Prompt, **options: Unpack[GenerateOptions]) -> Generation: ...
    @overload
    def generate(
        self, prompts: Prompt, *, n: int, **options: Unpack[GenerateOptions]
    ) -> list[Generation]: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> list[Generation | NepitError]: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> list[Generation]: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation] | NepitError]: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> list[list[Generation]]: ...
    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> Generator[Generation | NepitError, None, None]: ...
    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> Generator[Generation, None, None]: ...
    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        n: int,
        errors: Literal["return"],
        **options: Unpack[GenerateOptions],
    ) -> Generator[list[Generation] | NepitError, None, None]: ...
    @overload
    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        n: int,
        errors: Literal["raise"] = "raise",
        **options: Unpack[GenerateOptions],
    ) -> Generator[list[Generation], None, None]: ...
    def generate(
        self,
        prompts: Prompt | Iterable[Prompt],
        *,
        max_tokens: Optional[int] = 128,
        min_tokens: int = 0,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Optional[Mapping[int, float]] = None,
        allowed_token_ids: Optional[Ids] = None,
        seed: Optional[int] = None,
        stop: str | Sequence[str] = (),
        stop_token_ids: Sequence[int] = (),
        include_stop: bool = False,
        ignore_eos: bool = False,
        skip_special_tokens: bool = True,
        top: Optional[int] = None,
        candidates: Optional[Ids] = None,
        n: Optional[int] = None,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        errors: Errors = "raise",
        progress: bool = False,
    ) -> object:
        """What follows a prompt.

        Parameters
        ----------
        prompts : str, bytes, ids; a sequence of them; or an iterator of them
        max_tokens, min_tokens : int
            Tokens at most, 1 and more (None: to the end of the context), and at least.
        temperature : float
            0 (always the likeliest token) to 2.
        top_k, top_p, min_p : int, float, float
            What is drawn from: the k likeliest (0: all), those that make up p, those at least min_p
            as likely as the likeliest.
        presence_penalty, frequency_penalty, repetition_penalty : float
            -2 to 2, -2 to 2, above 0.
        logit_bias, allowed_token_ids : mapping of ids to float; ids
        seed : int, optional
            0 to 2**64-1: the same seed gives the same text, whatever else runs.
        stop, stop_token_ids, include_stop : str or sequence of str; ids; bool
            Texts (at most 64) and tokens that end it, and whether that stays in the text.
        ignore_eos, skip_special_tokens : bool
        top : int, optional
            Log-probability and rank of each token, and so many likeliest ones beside (0: none).
        candidates : ids [K], optional
            Tokens whose log-probabilities are told at each step.
        n : int, optional
            1 to 128 texts for each prompt, as a list; without it one, and no list.
        add_special, parse_special, errors, progress
            As in `score`.

        Returns
        -------
        Generation, a list, or a generator of them : as `prompts` is

        Raises
        ------
        NepitError, TypeError, ValueError
            As `score` does; EINPUT: a parameter beyond its range, named in `where`.
        """
        if max_tokens == 0:
            raise NepitError("EINPUT", "at least 1 is needed", "max_tokens", "0")
        given = locals()
        drawing = Drawing(
            **{name: given[name] for name in _AS_GIVEN},
            logit_bias=_biases(logit_bias),
            stop=_texts(stop),
            stop_token_ids=_listed(stop_token_ids, "stop_token_ids"),
            n=1 if n is None else n,
        )
        verb = self._generating(drawing, add_special, parse_special, n is None)
        return ask(self._engine, verb, prompts, errors, progress, single=is_prompt(prompts))

    # ---- inside ----------------------------------------------------------------------------------

    def _generating(
        self,
        drawing: Drawing,
        add_special: Optional[bool],
        parse_special: Optional[bool],
        alone: bool,
    ) -> Verb[Prompt, object]:
        Batch(1).drawing(0, drawing)  # what is wrong with it is no fault of a prompt

        def fill(batch: Batch, i: int, prompt: Prompt, name: str) -> None:
            batch.prompt(i, prompt, add_special, parse_special, name=name or "prompt")
            batch.drawing(i, drawing)

        def take(owner: object, answers: bridge.Answers, i: int, _memo: object) -> object:
            result = answers.results[i]
            made = [
                parts.generation_of(owner, result.choices[k], drawing)
                for k in range(result.n_choices)
            ]
            return made[0] if alone else made

        row = 8 * width_of(drawing.top or 0, self.info.n_vocab) + 32
        length = drawing.max_tokens or self.info.n_context
        size = drawing.n * length * row
        return Verb(
            fill,
            take,
            lambda prompt: drawing.n * length + n_tokens_of(prompt),
            lambda prompt: size + 4 * n_tokens_of(prompt),
            "generate",
        )


def _listed(values: Iterable[V], name: str) -> list[V]:
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: a sequence is expected, not {values!r}")
    return list(values)


def _texts(stop: str | Sequence[str]) -> list[str]:
    texts = [stop] if isinstance(stop, str) else _listed(stop, "stop")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"stop[{i}]: a text is expected, not {text!r}")
    return texts


def _biases(biases: Optional[Mapping[int, float]]) -> Mapping[int, float]:
    if biases is not None and not isinstance(biases, Mapping):
        raise TypeError(f"logit_bias: ids with a bias each are expected, not {biases!r}")
    return biases or {}
