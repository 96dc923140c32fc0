"""What SamplingParams ask for, in the layout of C; made once however many prompts share them."""

from __future__ import annotations

import copy
import ctypes as c
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from . import _bridge as bridge
from ._outputs import Asked
from ._requests import LOGPROB, RANK, TAIL, Batch, Drawing
from ._sampling import SamplingParams, wrong

_LEAST_TOP_P = 1.2e-38  # below, float32 has 0, C's word for "all"


@dataclass(frozen=True)
class Rules:
    """What the LLM adds to every request.

    Attributes
    ----------
    logprobs_mode : where the request names none
    max_logprobs : tokens told of one place, at most; -1: no limit
    end_ids : ids that end a text beside EOS
    encode : a text as ids, without BOS and EOS
    """

    logprobs_mode: str
    max_logprobs: int
    end_ids: Sequence[int]
    encode: Callable[[str], list[int]]


class Plan:
    """One SamplingParams, checked again: fields may have been set since it was made."""

    def __init__(
        self, given: SamplingParams, rules: Rules, where: str, last: Optional[Plan] = None
    ) -> None:
        if not isinstance(given, SamplingParams):
            raise TypeError(f"{where}: SamplingParams are expected, not {given!r}")
        params = copy.copy(given)
        params.__post_init__()
        self.params, self.where = params, where
        self._limit = rules.max_logprobs
        mode = params.logprobs_mode or rules.logprobs_mode
        self.asked = Asked(
            text=params.detokenize,
            logprobs=params.num_logprobs is not None,
            prompt_logprobs=params.prompt_logprobs is not None,
            candidates=params.prompt_logprob_token_ids is not None,
            tail=params.prompt_logprob_tail,
            flat=params.flat_logprobs,
        )
        self.unseeded = params.max_tokens != 0 and params.temperature > 0 and params.seed is None
        self.drawing = _drawing_of(params, rules, mode)
        self._batch = Batch(1)
        self._request = self._batch.requests[0]
        self._ask_for_scores(params, mode)
        self._check("logprobs", params.logprobs)
        if params.max_tokens != 0:
            self._draw(last)

    def _draw(self, last: Optional[Plan]) -> None:
        """How tokens are drawn: as by the plan before it, more often than not."""
        if last is not None and last.drawing == self.drawing:
            drawer = last._drawer
        else:
            drawer = Batch(1)
            drawer.drawing(0, self.drawing)
        self._request.sampling = drawer.requests[0].sampling
        self._request.max_tokens = drawer.requests[0].max_tokens
        self._drawer: Batch = drawer

    def _ask_for_scores(self, params: SamplingParams, mode: str) -> None:
        request = self._request
        request.skip_reading_prefix_cache = bool(params.skip_reading_prefix_cache)
        request.start = params.prompt_logprob_start or 0
        self._batch.temperature(0, params.score_temperature, mode)
        if params.prompt_logprobs is not None:
            self._check("prompt_logprobs", params.prompt_logprobs)
            request.want, request.top = LOGPROB | RANK, params.prompt_logprobs
        if params.prompt_logprob_token_ids is not None:
            name = f"{self.where}.prompt_logprob_token_ids"
            self._batch.candidates(0, params.prompt_logprob_token_ids, name)
            self._check("prompt_logprob_token_ids", request.n_candidates)
        if params.prompt_logprob_tail:
            request.want |= TAIL

    def _check(self, name: str, count: Optional[int]) -> None:
        """`max_logprobs` of the LLM, where it has one."""
        limit = self._limit
        if limit >= 0 and count is not None and (count > limit or count < 0):
            wrong(f"{self.where}.{name}", count, f"max_logprobs of this LLM is {limit}")

    def fill(self, batch: Batch, i: int, seed: Optional[int]) -> None:
        """Request i of a batch; `seed` is used where a token is drawn and the params name none."""
        request = batch.requests[i]
        c.memmove(c.byref(request), c.byref(self._request), c.sizeof(request))
        batch.keeps.append(self)
        if self.unseeded and seed is not None:
            sampling = bridge.Sampling()
            c.memmove(c.byref(sampling), self._request.sampling, c.sizeof(sampling))
            number = c.c_uint64(seed)
            sampling.seed = c.pointer(number)
            request.sampling = c.pointer(sampling)
            batch.keeps += (sampling, number)


def _drawing_of(params: SamplingParams, rules: Rules, mode: str) -> Drawing:
    ends = list(params.stop_token_ids or ())
    if not params.ignore_eos:
        ends += [token for token in rules.end_ids if token not in ends]
    labels, allowed = params.logprob_token_ids, params.allowed_token_ids
    return Drawing(
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=max(params.top_p, _LEAST_TOP_P),
        min_p=params.min_p,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        seed=None if params.seed is None else params.seed % 2**64,
        logit_bias=params.logit_bias or {},
        allowed_token_ids=None if allowed is None else list(allowed),
        bad_words=_words_of(params.bad_words or (), rules.encode),
        stop=list(params.stop or ()),
        stop_token_ids=ends,
        include_stop=params.include_stop_str_in_output,
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        skip_special_tokens=params.skip_special_tokens,
        n=params.n,
        processed=mode.startswith("processed"),
        top=params.logprobs if labels is None else 0,
        candidates=None if labels is None else list(labels),
    )


def _words_of(words: Sequence[str], encode: Callable[[str], list[int]]) -> list[list[int]]:
    """As vLLM takes them: at the beginning of a text and, where that is another first token of as
    many, behind a space."""
    found = []
    for word in words:
        bare, spaced = encode(word.lstrip()), encode(" " + word.lstrip())
        if not bare:
            wrong("bad_words", word, "must be at least one token")
        found.append(bare)
        if spaced and len(bare) == len(spaced) and bare[0] != spaced[0]:
            found.append(spaced)
    return found
