"""vLLM's `SamplingParams`: its fields, their defaults, their order and their checks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NoReturn, Optional, Union

import numpy as np

from ._bridge import NepitError
from ._requests import MODES
from ._types import Candidates

COOLEST = 1e-2  # vLLM draws at no lower temperature than this, 0 apart
MAX_LABELS = 128  # ids of logprob_token_ids, as in vLLM
_FLOAT32_LEAST = 1.2e-38  # what is below becomes 0, C's word for "the default"


class RequestOutputKind(Enum):
    """What a stream's outputs hold. Here every output is the whole answer."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


def refuse(where: str, given: object, why: str) -> NoReturn:
    """Raises for what vLLM has and nepit does not: it would change a number or a text."""
    raise NepitError("EUNSUPPORTED", why, where, repr(given)[:64])


def wrong(where: str, given: object, allowed: str) -> NoReturn:
    """Raises for a value that is not allowed."""
    raise NepitError("EINPUT", allowed, where, repr(given)[:64])


def _number(name: str, value: object, low: float, high: float, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name}: {allowed}, not {value!r}")
    if not low <= float(value) <= high:
        wrong(name, value, allowed)


def _count(name: str, value: object, low: int, high: int, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: {allowed}, not {value!r}")
    if not low <= value <= high:
        wrong(name, value, allowed)


_INT32, _INT64 = 2**31 - 1, 2**63

# name: lowest, highest, what is said. None is allowed where the field's default is None, and for
# max_tokens.
_NUMBERS: dict[str, tuple[float, float, str]] = {
    "presence_penalty": (-2, 2, "must be a number from -2 to 2"),
    "frequency_penalty": (-2, 2, "must be a number from -2 to 2"),
    "repetition_penalty": (_FLOAT32_LEAST, 3e38, "must be a finite number above 0"),
    "temperature": (0, 2, "must be a number from 0 to 2"),
    "top_p": (5e-324, 1, "must be a number above 0, at most 1"),
    "min_p": (0, 1, "must be a number from 0 to 1"),
    "score_temperature": (_FLOAT32_LEAST, 3e38, "must be a finite number above 0"),
}
_COUNTS: dict[str, tuple[int, int, str]] = {
    "n": (1, 128, "must be 1 to 128 choices"),
    "top_k": (-1, _INT32, "must be 0 (or -1: all) or more"),
    "seed": (-_INT64, 2 * _INT64 - 1, "must be a whole number of 64 bits"),
    "max_tokens": (0, _INT64, "must be 0 (nothing is generated) or more, or None"),
    "min_tokens": (0, _INT64, "must be 0 or more"),
    "logprobs": (-1, _INT32, "must be -1 (the whole vocabulary), 0 or more, or None"),
    "prompt_logprobs": (-1, _INT32, "must be -1 (the whole vocabulary), 0 or more, or None"),
    "prompt_logprob_start": (0, _INT64, "must be 0 or more: the first row"),
    "stream_interval": (1, _INT64, "must be 1 or more"),
    "routed_experts_prompt_start": (0, _INT64, "must be 0 or more"),
}

# name: values that mean nothing, why others are refused
_UNSERVED: dict[str, tuple[tuple[object, ...], str]] = {
    "watermarking": ((None, False), "texts are not marked"),
    "structured_outputs": ((None,), "no grammar holds the text: it would change what is drawn"),
    "thinking_token_budget": ((None, -1), "tokens are not forced"),
    "repetition_detection": ((None,), "repetitions do not end a text: use stop or max_tokens"),
    "trace_decode_token_ids": (
        (None,),
        "tokens are not forced: append them to the prompt and ask for prompt_logprobs",
    ),
    "extra_args": ((None, {}), "there are no further arguments: they would be ignored"),
}


@dataclass(eq=False, repr=False)
class SamplingParams:
    """How a prompt is scored and continued; vLLM's fields, in its order, with its defaults.

    Values are checked here and again when they are used. Fields that nepit adds stand at the end
    and are given by name.

    Attributes
    ----------
    n : choices, 1 to 128; more than 1 needs a temperature above 0
    presence_penalty, frequency_penalty : -2 to 2
    repetition_penalty : above 0
    temperature : 0 (always the likeliest token) to 2; what lies between 0 and 0.01 becomes 0.01.
        It never touches the scores of a prompt: see `score_temperature`
    top_p, top_k, min_p : as in vLLM; top_k 0 or -1 is all
    seed : the same seed gives the same text, whatever else runs; None (and -1): see `LLM`
    stop : texts that end the answer
    stop_token_ids, ignore_eos, min_tokens, include_stop_str_in_output : as in vLLM
    max_tokens : at most so many tokens follow; 0: none; None: to the end of the context
    logprobs : likeliest tokens beside each generated one; 0: its own alone; -1: the vocabulary
    prompt_logprobs : the same for the tokens of the prompt
    prompt_logprob_token_ids : candidates, [K] for every row or [rows, K] (ragged lists and -1 pad);
        arrays of any integer type and stride, and tensors, go in without becoming lists
    prompt_logprob_start : first row; row r scores token r+1
    logprob_token_ids : tokens told beside each generated one in place of the likeliest; at most 128
    flat_logprobs : `FlatLogprobs` in place of lists of dicts
    detokenize : False: no text, and no decoded_token
    logit_bias, allowed_token_ids, bad_words : as in vLLM
    skip_reading_prefix_cache : True computes everything anew; the numbers are the same. Unlike in
        vLLM, scoring a prompt does not need it
    prompt_logprob_tail : adds log(1 - sum of the candidates' probabilities) of each row
    score_temperature : divides the logits of scored rows before the softmax
    logprobs_mode : of this request; None: the LLM's

    Raises
    ------
    NepitError
        EINPUT names the field, what was given and what is allowed; EUNSUPPORTED a field of vLLM
        that would change what is generated and is not served.
    TypeError
        A value of a wrong type.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: Optional[bool] = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    prompt_logprob_token_ids: Optional[Candidates] = None
    prompt_logprob_start: Optional[int] = None
    logprob_token_ids: Optional[Sequence[int]] = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    stream_interval: Optional[int] = None
    skip_clone: bool = False
    structured_outputs: Optional[object] = None
    logit_bias: Optional[Mapping[int, float]] = None
    allowed_token_ids: Optional[Sequence[int]] = None
    extra_args: Optional[Mapping[str, object]] = None
    bad_words: Optional[Sequence[str]] = None
    skip_reading_prefix_cache: Optional[bool] = None
    thinking_token_budget: Optional[int] = None
    repetition_detection: Optional[object] = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: Optional[Sequence[int]] = None
    prompt_logprob_tail: bool = field(default=False, kw_only=True)
    score_temperature: Optional[float] = field(default=None, kw_only=True)
    logprobs_mode: Optional[str] = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        given = [(name, x) for name, x in self.__dict__.items() if x is not _DEFAULTS[name]]
        for name, value in given:
            if name in _UNSERVED:
                neutral, why = _UNSERVED[name]
                if value not in neutral:
                    refuse(name, value, why)
        self._normalise()
        for name, _ in given:
            value = getattr(self, name)
            if value is None and (_DEFAULTS[name] is None or name == "max_tokens"):
                continue
            if name in _NUMBERS:
                _number(name, value, *_NUMBERS[name])
            elif name in _COUNTS:
                _count(name, value, *_COUNTS[name])
        if given:
            self._check_following()
            self._check_scoring()
        if self.temperature < COOLEST:
            self._cool()

    def _cool(self) -> None:
        """Temperatures below what vLLM draws at."""
        if self.temperature > 0:
            warnings.warn(
                f"temperature {self.temperature} is drawn at {COOLEST}; 0 is the likeliest token",
                stacklevel=4,
            )
            self.temperature = COOLEST
            return
        if self.n > 1:
            wrong("n", self.n, "must be 1 where temperature is 0: all choices would be alike")
        self.top_p, self.top_k, self.min_p = 1.0, 0, 0.0

    def _normalise(self) -> None:
        """The forms that vLLM stores."""
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        for name in ("stop", "stop_token_ids", "bad_words"):
            values = getattr(self, name)
            if isinstance(values, (str, bytes)):
                raise TypeError(f"{name}: a list is expected, not {values!r}")
            if values is not None and not isinstance(values, Iterable):
                raise TypeError(f"{name}: a list is expected, not {values!r}")
            known = values if name == "stop" else dict.fromkeys(values or ())
            setattr(self, name, list(known or ()))
        if self.seed == -1:
            self.seed = None
        self.thinking_token_budget = None  # -1 and None are the same
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is True:
                setattr(self, name, 1)

    def _check_following(self) -> None:
        """What is drawn, and what ends it."""
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            wrong("min_tokens", self.min_tokens, f"must be at most max_tokens ({self.max_tokens})")
        for name in ("stop", "bad_words"):
            for i, text in enumerate(getattr(self, name)):
                if not isinstance(text, str):
                    raise TypeError(f"{name}[{i}]: a text is expected, not {text!r}")
                if not text:
                    wrong(f"{name}[{i}]", text, "must not be empty")
        if self.stop and not self.detokenize:
            wrong("stop", self.stop, "needs detokenize=True: without text nothing ends it")
        for name in ("stop_token_ids", "allowed_token_ids", "logprob_token_ids"):
            values = getattr(self, name)
            for i, value in enumerate(() if values is None else values):
                _count(f"{name}[{i}]", value, 0, _INT32, "must be a token id")
        for name in ("allowed_token_ids", "logprob_token_ids"):
            values = getattr(self, name)
            if values is not None and len(values) == 0:
                wrong(name, values, "must not be empty; None is no list")
        if self.logit_bias is not None and not isinstance(self.logit_bias, Mapping):
            raise TypeError(f"logit_bias: a dict is expected, not {self.logit_bias!r}")
        for key, bias in (self.logit_bias or {}).items():
            _count("logit_bias", key, 0, _INT32, "must have token ids as keys")
            _number(f"logit_bias[{key}]", bias, -3e38, 3e38, "must be a finite number")

    def _check_scoring(self) -> None:
        """What is told of the prompt, and of the tokens that follow."""
        labels = self.logprob_token_ids
        if labels is not None:
            if len(labels) > MAX_LABELS:
                wrong("logprob_token_ids", len(labels), f"at most {MAX_LABELS} ids are allowed")
            if self.logprobs is not None and self.logprobs != len(labels):
                wrong(
                    "logprobs",
                    self.logprobs,
                    f"must be the number of logprob_token_ids: {len(labels)}",
                )
        candidates = self.prompt_logprob_token_ids
        start, scored = self.prompt_logprob_start, self.prompt_logprobs is not None
        if start is not None and not scored and candidates is None:
            wrong(
                "prompt_logprob_start", start, "needs prompt_logprobs or prompt_logprob_token_ids"
            )
        if self.prompt_logprob_tail and candidates is None:
            wrong("prompt_logprob_tail", True, "needs prompt_logprob_token_ids")
        if self.logprobs_mode is not None and self.logprobs_mode not in MODES:
            wrong("logprobs_mode", self.logprobs_mode, f"must be one of {', '.join(MODES)}")

    @staticmethod
    def from_optional(
        n: Optional[int] = 1,
        presence_penalty: Optional[float] = 0.0,
        frequency_penalty: Optional[float] = 0.0,
        repetition_penalty: Optional[float] = 1.0,
        temperature: Optional[float] = 1.0,
        watermarking: Optional[bool] = None,
        top_p: Optional[float] = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: Optional[int] = None,
        stop: Union[str, Sequence[str], None] = None,
        stop_token_ids: Optional[Sequence[int]] = None,
        bad_words: Optional[Sequence[str]] = None,
        thinking_token_budget: Optional[int] = None,
        include_stop_str_in_output: bool = False,
        ignore_eos: bool = False,
        max_tokens: Optional[int] = 16,
        min_tokens: int = 0,
        logprobs: Optional[int] = None,
        prompt_logprobs: Optional[int] = None,
        prompt_logprob_token_ids: Optional[Candidates] = None,
        prompt_logprob_start: Optional[int] = None,
        detokenize: bool = True,
        skip_special_tokens: bool = True,
        spaces_between_special_tokens: bool = True,
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
        stream_interval: Optional[int] = None,
        structured_outputs: Optional[object] = None,
        logit_bias: Union[Mapping[int, float], Mapping[str, float], None] = None,
        allowed_token_ids: Optional[Sequence[int]] = None,
        extra_args: Optional[Mapping[str, object]] = None,
        skip_clone: bool = False,
        repetition_detection: Optional[object] = None,
        logprob_token_ids: Optional[Sequence[int]] = None,
        routed_experts_prompt_start: int = 0,
        trace_decode_token_ids: Optional[Sequence[int]] = None,
    ) -> SamplingParams:
        """As the constructor, with None for numbers that keep their default, and `logit_bias` as
        JSON has it: keys may be texts, values are cut to -100 and 100."""
        given: dict[str, Any] = dict(locals())
        for name in _NONE_IS_DEFAULT:
            if given[name] is None:
                given[name] = _DEFAULTS[name]
        if logit_bias is not None:
            given["logit_bias"] = {
                _bias_key(key): min(100.0, max(-100.0, bias)) for key, bias in logit_bias.items()
            }
        return SamplingParams(**given)

    def clone(self) -> SamplingParams:
        """A copy, deep unless `skip_clone`."""
        return copy.copy(self) if self.skip_clone else copy.deepcopy(self)

    @property
    def num_logprobs(self) -> Optional[int]:
        """Tokens told beside each generated one; None: nothing is told."""
        if self.logprobs is not None or not self.logprob_token_ids:
            return self.logprobs
        return len(self.logprob_token_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SamplingParams):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in _DEFAULTS)

    def __repr__(self) -> str:
        """What differs from the defaults."""
        told = (
            f"{name}={value!r}"
            for name, default in _DEFAULTS.items()
            if not _same(value := getattr(self, name), default) and not _same(value, [])
        )
        return f"SamplingParams({', '.join(told)})"


def _bias_key(key: Union[int, str]) -> int:
    try:
        return int(key)
    except (ValueError, TypeError):
        return wrong("logit_bias", key, "must have token ids as keys")


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and np.array_equal(one, other)  # type: ignore[arg-type]
    return bool(one == other)


_DEFAULTS: dict[str, object] = {f.name: f.default for f in fields(SamplingParams)}
_NONE_IS_DEFAULT = (
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
)
