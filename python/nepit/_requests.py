"""Python values -> np_request, for the native interface and for vLLM's shapes alike."""

from __future__ import annotations

import ctypes as c
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from . import _arrays as arrays
from . import _bridge as bridge
from ._types import Candidates as Candidates
from ._types import Ids
from ._types import Prompt as Prompt

LOGPROB, RANK, ENTROPY, TAIL, MASS = 1, 2, 4, 8, 16
MODES = {"raw_logprobs": 0, "raw_logits": 1, "processed_logprobs": 2, "processed_logits": 3}
CONDITIONS = {None: 0, "bos": 1, "none": 2}
TO_THE_END = c.c_size_t(-1).value
INT32_MAX = 2**31 - 1
MAX_CHOICES = 128


def choice(value: Optional[bool], name: str) -> int:
    """np_choice: None leaves it to the model."""
    if value is not None and not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: True, False or None is expected, not {value!r}")
    return 0 if value is None else 1 if value else 2


def integer(value: object, name: str, low: int, high: int) -> int:
    """A whole number that C's type can hold; ctypes would cut it in silence."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name}: a whole number is expected, not {value!r}") from None
    if not low <= number <= high:
        raise bridge.NepitError("EINPUT", f"{low} to {high} are allowed", name, str(number))
    return number


def is_prompt(value: object) -> bool:
    """Whether this is one prompt, and not several of them."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype != object
    if isinstance(value, (str, bytes)):
        return True
    if isinstance(value, Sequence):
        return len(value) > 0 and arrays.is_id(value[0])
    if hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        return getattr(value, "ndim", 1) == 1
    return False


def raw_text(text: str | bytes, name: str = "text") -> bytes:
    """The bytes of a text; what stands for bytes that are no UTF-8 becomes them again."""
    if not isinstance(text, str):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:  # half a pair, as a cut JSON string has it
        half = f"{text[error.start]!r} at character {error.start} is no character"
        raise ValueError(f"{name}: {half}") from None


def number(value: object, name: str) -> float:
    """A number that C is given as a float."""
    if isinstance(value, (str, bytes)) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{name}: a number is expected, not {value!r}")
    return float(value)


def candidates_array(candidates: Candidates, name: str = "candidates") -> NDArray[np.int32]:
    """int32, [K] or [rows, K]; ragged rows are padded with -1."""
    plain = isinstance(candidates, (np.ndarray, str, bytes)) or arrays.is_list_of_ids(candidates)
    if not plain and isinstance(candidates, Sequence) and len(candidates) > 0:
        array = arrays.pad_rows(candidates, name)
    else:
        array = arrays.ids_array(candidates, name, (1, 2))
    if array.size == 0:
        raise bridge.NepitError("EINPUT", "at least one id is needed", name)
    return array


@dataclass
class Drawing:
    """How tokens are drawn: np_sampling with Python's values."""

    max_tokens: Optional[int] = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: Optional[int] = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Optional[Ids] = None
    bad_words: Sequence[Sequence[int]] = ()
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    include_stop: bool = False
    min_tokens: int = 0
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    n: int = 1
    processed: bool = False
    top: Optional[int] = None
    candidates: Optional[Ids] = None


class Batch:
    """Requests in the layout of C, and all that C borrows for them."""

    def __init__(self, n: int) -> None:
        self.requests = bridge.requests_of(n)()
        self.keeps: list[object] = []

    def __len__(self) -> int:
        return len(self.requests)

    def clear(self, i: int) -> None:
        """Request i is empty again."""
        self.requests[i] = bridge.Request()

    def _array(self, array: NDArray[np.int32]) -> int:
        self.keeps.append(array)
        try:
            return c.addressof(c.c_char.from_buffer(array.data))  # far quicker than .ctypes
        except (TypeError, ValueError):  # read-only, or empty
            return int(array.ctypes.data)

    def _ids(self, values: Optional[Ids], name: str) -> bridge.Ids:
        if values is None:
            return bridge.Ids()
        array = arrays.ids_array(values, name)
        self.keeps.append(array)
        return bridge.Ids(array.ctypes.data_as(c.POINTER(c.c_int32)), len(array))

    def prompt(
        self,
        i: int,
        prompt: Prompt,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
        condition: Optional[str] = None,
        name: str = "prompt",
    ) -> None:
        """The sequence of request i."""
        request = self.requests[i]
        specials = choice(add_special, "add_special"), choice(parse_special, "parse_special")
        if condition not in CONDITIONS:
            raise ValueError(f'condition: None, "bos" or "none" is expected, not {condition!r}')
        if isinstance(prompt, (str, bytes)):
            text = raw_text(prompt, name)
            self.keeps.append(text)
            request.text, request.n_bytes = text, len(text)
            request.add_special, request.parse_special = specials
            request.condition = CONDITIONS[condition]
            return
        ids = arrays.ids_array(prompt, name)
        if ids.size == 0:
            raise bridge.NepitError("EINPUT", "at least one token id is needed", name)
        request.token_ids, request.n_tokens = self._array(ids), len(ids)

    def candidates(self, i: int, candidates: Candidates, name: str = "candidates") -> None:
        """Flat ids for every row, or a row of ids for each; ragged rows are padded."""
        self.take_candidates(i, candidates_array(candidates, name))

    def take_candidates(self, i: int, array: NDArray[np.int32]) -> None:
        """The same of an array that `candidates_array` gave."""
        request = self.requests[i]
        request.candidate_ids = self._array(array)
        request.n_candidates = array.shape[-1]
        if array.ndim == 2:
            request.n_candidate_rows = array.shape[0]

    def temperature(self, i: int, value: Optional[float], mode: str = "raw_logprobs") -> None:
        """score_temperature and logprobs_mode of the scored rows."""
        if mode not in MODES:
            raise ValueError(f"logprobs_mode: one of {', '.join(MODES)} is expected, not {mode!r}")
        self.requests[i].logprobs_mode = MODES[mode] % 2
        if value is None:
            return
        divisor = c.c_float(number(value, "score_temperature"))
        self.keeps.append(divisor)
        self.requests[i].score_temperature = c.pointer(divisor)

    def drawing(self, i: int, drawing: Drawing) -> None:
        """What follows the sequence of request i."""
        request, sampling = self.requests[i], bridge.Sampling()
        temperature = c.c_float(number(drawing.temperature, "temperature"))
        sampling.temperature = c.pointer(temperature)
        sampling.top_k = integer(drawing.top_k, "top_k", -1, INT32_MAX)
        sampling.min_tokens = integer(drawing.min_tokens, "min_tokens", 0, 2**63 - 1)
        sampling.n = integer(drawing.n, "n", 1, MAX_CHOICES)
        for name in ("min_p", "presence_penalty", "frequency_penalty"):
            setattr(sampling, name, number(getattr(drawing, name), name))
        for name in ("top_p", "repetition_penalty"):
            if not number(getattr(drawing, name), name) > 0:  # 0 is C's word for the default
                raise bridge.NepitError(
                    "EINPUT", "must be above 0", name, str(getattr(drawing, name))
                )
            setattr(sampling, name, getattr(drawing, name))
        if drawing.seed is not None and drawing.seed != -1:
            seed = c.c_uint64(integer(drawing.seed, "seed", 0, 2**64 - 1))
            self.keeps.append(seed)
            sampling.seed = c.pointer(seed)
        if drawing.logit_bias:
            biases = (bridge.Bias * len(drawing.logit_bias))(
                *(bridge.Bias(int(key), value) for key, value in drawing.logit_bias.items())
            )
            sampling.logit_bias, sampling.n_logit_bias = biases, len(biases)
            self.keeps.append(biases)
        sampling.allowed_token_ids = self._ids(drawing.allowed_token_ids, "allowed_token_ids")
        sampling.stop_token_ids = self._ids(drawing.stop_token_ids, "stop_token_ids")
        sampling.candidate_ids = self._ids(drawing.candidates, "logprob_token_ids")
        if drawing.bad_words:
            words = (bridge.Ids * len(drawing.bad_words))(
                *(self._ids(word, f"bad_words[{k}]") for k, word in enumerate(drawing.bad_words))
            )
            sampling.bad_words, sampling.n_bad_words = words, len(words)
            self.keeps.append(words)
        if drawing.stop:
            texts = [raw_text(text, f"stop[{k}]") for k, text in enumerate(drawing.stop)]
            stops = (bridge.String * len(texts))(
                *(bridge.String(text, len(text)) for text in texts)
            )
            sampling.stop, sampling.n_stop = stops, len(stops)
            self.keeps += [stops, texts]
        sampling.include_stop = drawing.include_stop
        sampling.ignore_eos = drawing.ignore_eos
        sampling.keep_special = not drawing.skip_special_tokens
        sampling.processed = drawing.processed
        if drawing.top is not None:
            sampling.top = integer(drawing.top, "top", -1, INT32_MAX)
        if drawing.top is not None or drawing.candidates is not None:
            sampling.want = LOGPROB | RANK
        self.keeps += [temperature, sampling]
        request.sampling = c.pointer(sampling)
        request.max_tokens = (
            TO_THE_END
            if drawing.max_tokens is None
            else integer(drawing.max_tokens, "max_tokens", 0, 2**63 - 1)
        )
