"""vLLM's outputs, made from what C answers: the same names, orders and layouts.

`prompt_logprobs` and `prompt_token_ids` are made when they are first looked at: a thousand prompts
with a hundred likeliest tokens at every row would be millions of small objects.
"""

from __future__ import annotations

import ctypes as c
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Optional, Union, cast, overload

import numpy as np
from numpy.typing import NDArray

from . import _bridge as bridge
from ._parts import FINISHES, stop_reason, text_bytes
from ._requests import Drawing

CUT = "\ufffd"  # what a part of a character is as text
LONGEST = 4  # tokens that one character can take, at most: one for each of its bytes


@dataclass(slots=True)
class Logprob:
    """One token at one place.

    Attributes
    ----------
    logprob : in nats; -inf is possible
    rank : 1 is the likeliest; None where it was not computed (`logprob_token_ids`)
    decoded_token : its text, by itself; None without a tokenizer or detokenization. A token that
        ends within a character is "", and the one that completes it has the whole character
    """

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


LogprobDict = dict[int, Logprob]


@dataclass
class FlatLogprobs(Sequence[LogprobDict]):
    """Log-probabilities of many places as a few plain lists.

    Place i has the entries `start_indices[i]` to `end_indices[i]` of the other lists, the true
    token first; a true token that is among the likeliest stands there twice. Reads like a list of
    dicts, {} where a place has no scores.
    """

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[Optional[int]] = field(default_factory=list)
    decoded_tokens: list[Optional[str]] = field(default_factory=list)

    def _add(self, place: Place) -> None:
        self.start_indices.append(len(self.token_ids))
        self.token_ids += place.token_ids
        self.logprobs += place.logprobs
        self.ranks += place.ranks
        self.decoded_tokens += place.texts
        self.end_indices.append(len(self.token_ids))

    def __len__(self) -> int:
        return len(self.start_indices)

    @overload
    def __getitem__(self, place: int) -> LogprobDict: ...

    @overload
    def __getitem__(self, place: slice) -> FlatLogprobs: ...

    def __getitem__(self, place: Union[int, slice]) -> Union[LogprobDict, FlatLogprobs]:
        if not isinstance(place, slice):
            span = slice(self.start_indices[place], self.end_indices[place])
            told = zip(self.logprobs[span], self.ranks[span], self.decoded_tokens[span])
            return {
                token: Logprob(logprob, rank, text)
                for token, (logprob, rank, text) in zip(self.token_ids[span], told)
            }
        cut = FlatLogprobs()
        for i in range(*place.indices(len(self))):
            span = slice(self.start_indices[i], self.end_indices[i])
            parts = self.token_ids[span], self.logprobs[span], self.ranks[span]
            cut._add(Place(*parts, self.decoded_tokens[span]))
        return cut

    def __iter__(self) -> Iterator[LogprobDict]:
        return (self[i] for i in range(len(self)))


PromptLogprobs = Union[list[Optional[LogprobDict]], FlatLogprobs]
SampleLogprobs = Union[list[LogprobDict], FlatLogprobs]


@dataclass
class Place:
    """All that is told of one place, the true token first."""

    token_ids: list[int]
    logprobs: list[float]
    ranks: list[Optional[int]]
    texts: list[Optional[str]]


class Words(dict[int, Optional[str]]):
    """The text of every token by itself, as far as they were met."""

    def __init__(self, token_bytes: Optional[Callable[[int], bytes]]) -> None:
        super().__init__()
        self._token_bytes = token_bytes
        self._bytes: dict[int, bytes] = {}
        self._cut: set[int] = set()  # those that end within a character

    def __missing__(self, token: int) -> Optional[str]:
        if self._token_bytes is None:
            return None
        raw = self._bytes[token] = self._token_bytes(token)
        text = raw.decode(errors="replace")
        if text.endswith(CUT):
            self._cut.add(token)
        self[token] = text
        return text

    def learn(self, result: bridge.Result) -> None:
        """Meets all tokens of an answer, which may be looked at when the model is closed."""
        if self._token_bytes is None:
            return
        met = set(result.token_ids[: result.n_tokens])
        if result.n_scored * result.n_top:
            met.update(result.top_ids[: result.n_scored * result.n_top])
        for token in met.difference(self):
            self[token]

    def told(self, tokens: Sequence[int], before: Sequence[int]) -> list[Optional[str]]:
        """Texts of tokens that could stand at one place, behind `before`."""
        texts = [self[token] for token in tokens]
        if not self._cut.isdisjoint(tokens):
            for i, token in enumerate(tokens):
                if token in self._cut:
                    texts[i] = self._completed(token, before[-LONGEST:])
        return texts

    def _completed(self, token: int, before: Sequence[int]) -> str:
        """The character that a token completes; "" where it stays a part of one."""
        for n in range(1, len(before) + 1):
            context = before[-n:]
            pieces = [self._bytes[other] for other in context]
            whole = b"".join([*pieces, self._bytes[token]]).decode(errors="replace")
            if whole.endswith(CUT):
                continue
            n_clean = n
            while n_clean and context[n_clean - 1] in self._cut:
                n_clean -= 1
            clean = b"".join(pieces[:n_clean]).decode(errors="replace")
            same = 0
            while same < min(len(clean), len(whole)) and clean[same] == whole[same]:
                same += 1
            return whole[same:]
        return ""


@dataclass
class Told:
    """Arrays of C with what is told of every place: [n], [n, width]."""

    n: int
    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int]
    width: int
    others: list[int]
    values: list[float]
    ranked: bool  # the others stand by rank

    def places(self, words: Words, before: list[int]) -> Iterator[Place]:
        """Each place, the true token first; `before` are the true tokens that precede."""
        known = list(before)
        ranks: list[Optional[int]] = [k if self.ranked else None for k in range(1, self.width + 1)]
        for i in range(self.n):
            span = slice(i * self.width, (i + 1) * self.width)
            tokens = [self.token_ids[i], *self.others[span]]
            logprobs = [self.logprobs[i], *self.values[span]]
            mine = [self.ranks[i], *ranks]
            if -1 in tokens:  # masks left fewer
                kept = [k for k, token in enumerate(tokens) if token >= 0]
                tokens = [tokens[k] for k in kept]
                logprobs, mine = [logprobs[k] for k in kept], [mine[k] for k in kept]
            yield Place(tokens, logprobs, mine, words.told(tokens, known))
            known.append(self.token_ids[i])


def _as_dict(place: Place) -> LogprobDict:
    told: LogprobDict = {}
    for token, logprob, rank, text in zip(
        place.token_ids, place.logprobs, place.ranks, place.texts
    ):
        if token not in told:
            told[token] = Logprob(logprob, rank, text)
    return told


def prompt_logprobs_of(result: bridge.Result, words: Words, flat: bool) -> PromptLogprobs:
    """As long as the prompt; None first, and before the first row asked for."""
    n, width = result.n_scored, result.n_top
    ids = result.token_ids[: result.n_tokens]
    first = min(result.start + 1, result.n_tokens)
    told = Told(
        n=n,
        token_ids=ids[first : first + n],
        logprobs=result.logprobs[:n] if n else [],
        ranks=result.ranks[:n] if n else [],
        width=width,
        others=result.top_ids[: n * width] if n * width else [],
        values=result.top_logprobs[: n * width] if n * width else [],
        ranked=True,
    )
    places = told.places(words, ids[1:first])
    if not flat:
        nothing: list[Optional[LogprobDict]] = [None] * first
        return nothing + [_as_dict(place) for place in places]
    found = FlatLogprobs()
    for _ in range(first):
        found._add(Place([], [], [], []))
    for place in places:
        found._add(place)
    return found


def _sample_logprobs(
    raw: bridge.Generated, ids: list[int], words: Words, flat: bool
) -> SampleLogprobs:
    n, chosen = raw.n_tokens, raw.n_candidates > 0
    width = raw.n_candidates if chosen else raw.n_top
    values = raw.scores if chosen else raw.top_logprobs
    others: list[int] = []
    if n * width:
        others = raw.candidate_ids[:width] * n if chosen else raw.top_ids[: n * width]
    told = Told(
        n=n,
        token_ids=ids,
        logprobs=raw.logprobs[:n] if n else [],
        ranks=raw.ranks[:n] if n else [],
        width=width,
        others=others,
        values=values[: n * width] if n * width else [],
        ranked=not chosen,
    )
    places = told.places(words, [])
    if not flat:
        return [_as_dict(place) for place in places]
    found = FlatLogprobs()
    for place in places:
        found._add(place)
    return found


@dataclass
class CompletionOutput:
    """One choice.

    Attributes
    ----------
    index : which of `n`
    text, token_ids : what was generated; no part of a character stands at the end of the text
    cumulative_logprob : sum of the tokens' log-probabilities; None where `logprobs` is
    logprobs : a dict by token id for every token, its own first; None where not asked for
    finish_reason : "stop" or "length"
    stop_reason : the text or id that ended it; None where EOS or the length did
    routed_experts, lora_request, sampling_mask, spec_decode_metrics, weight_versions : always None
    """

    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: Optional[float]
    logprobs: Optional[SampleLogprobs]
    routed_experts: None = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: None = None
    sampling_mask: None = None
    spec_decode_metrics: None = None
    weight_versions: None = None

    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None


def completion_of(
    index: int, raw: bridge.Generated, drawing: Drawing, words: Words, asked: Asked
) -> CompletionOutput:
    """One choice of an answer."""
    ids: list[int] = raw.token_ids[: raw.n_tokens]
    told, total = None, None
    if asked.logprobs:
        told = _sample_logprobs(raw, ids, words, asked.flat)
        total = math.fsum(raw.logprobs[: raw.n_tokens])
    return CompletionOutput(
        index=index,
        text=text_bytes(raw).decode(errors="replace").rstrip(CUT) if asked.text else "",
        token_ids=ids,
        cumulative_logprob=total,
        logprobs=told,
        finish_reason=FINISHES[raw.finish],
        stop_reason=stop_reason(raw, drawing),
    )


def nothing_followed(index: int, asked: Asked) -> CompletionOutput:
    """A choice of max_tokens=0."""
    if not asked.logprobs:
        return CompletionOutput(index, "", [], None, None, finish_reason="length")
    told: SampleLogprobs = FlatLogprobs() if asked.flat else []
    return CompletionOutput(index, "", [], 0.0, told, finish_reason="length")


@dataclass
class Asked:
    """What the outputs of a request are made of."""

    text: bool
    logprobs: bool
    prompt_logprobs: bool
    candidates: bool
    tail: bool
    flat: bool


@dataclass
class Source:
    """What an output that C has answered is made from, when it is looked at."""

    answers: bridge.Answers
    i: int
    words: Words
    asked: Asked

    @property
    def result(self) -> bridge.Result:
        return self.answers.results[self.i]


class RequestOutput:
    """The answer to one prompt.

    Parameters
    ----------
    request_id : a number as text
    prompt : the text, where the prompt was one or names one; of a dialogue the rendered text
    prompt_token_ids : list of int, the ids that were scored
    prompt_logprobs : as long as the prompt; None first and before `prompt_logprob_start`, else a
        dict by token id, the true token first, then by rank; None where not asked for
    outputs : list of CompletionOutput
    finished : True
    num_cached_tokens : tokens that did not go through the model for it
    prompt_token_id_logprobs : float32 [rows, K], a view of C's memory; None where not asked for
    prompt_token_id_tail : float32 [rows], log of the mass beside the candidates
    metrics, lora_request, encoder_prompt, encoder_prompt_token_ids, num_cache_creation_tokens,
    kv_transfer_params, ec_transfer_params : None
    """

    def __init__(
        self,
        request_id: str,
        prompt: Optional[str],
        prompt_token_ids: Optional[list[int]],
        prompt_logprobs: Optional[PromptLogprobs],
        outputs: list[CompletionOutput],
        finished: bool,
        metrics: None = None,
        lora_request: None = None,
        encoder_prompt: Optional[str] = None,
        encoder_prompt_token_ids: Optional[list[int]] = None,
        num_cached_tokens: Optional[int] = None,
        num_cache_creation_tokens: Optional[int] = None,
        *,
        prompt_token_id_logprobs: Optional[NDArray[np.float32]] = None,
        prompt_token_id_tail: Optional[NDArray[np.float32]] = None,
        kv_transfer_params: Optional[dict[str, object]] = None,
        ec_transfer_params: Optional[dict[str, object]] = None,
    ) -> None:
        self.request_id, self.prompt = request_id, prompt
        self.prompt_token_ids, self.prompt_logprobs = prompt_token_ids, prompt_logprobs
        self.outputs, self.finished = outputs, finished
        self.metrics, self.lora_request = metrics, lora_request
        self.encoder_prompt = encoder_prompt
        self.encoder_prompt_token_ids = encoder_prompt_token_ids
        self.num_cached_tokens = num_cached_tokens
        self.num_cache_creation_tokens = num_cache_creation_tokens
        self.prompt_token_id_logprobs = prompt_token_id_logprobs
        self.prompt_token_id_tail = prompt_token_id_tail
        self.kv_transfer_params = kv_transfer_params
        self.ec_transfer_params = ec_transfer_params
        self._source: Optional[Source] = None

    @classmethod
    def _of(
        cls, request_id: str, prompt: Optional[str], outputs: list[CompletionOutput], source: Source
    ) -> RequestOutput:
        result, asked = source.result, source.asked
        if asked.prompt_logprobs:
            source.words.learn(result)
        scores = tail = None
        if asked.candidates:
            scores = _rows(source, result.scores, (result.n_rows, result.n_candidates))
        if asked.tail:
            tail = _rows(source, result.tail, (result.n_rows,))
        needed = max(result.n_tokens - 1, 0) + sum(len(made.token_ids) for made in outputs)
        made = cls(
            request_id,
            prompt,
            None,
            None,
            outputs,
            True,
            num_cached_tokens=max(needed - result.n_computed, 0),
            prompt_token_id_logprobs=scores,
            prompt_token_id_tail=tail,
        )
        del made.prompt_token_ids, made.prompt_logprobs
        made._source = source
        return made

    @cached_property
    def prompt_token_ids(self) -> Optional[list[int]]:
        """The ids that were scored."""
        assert self._source is not None
        result = self._source.result
        ids: list[int] = result.token_ids[: result.n_tokens]
        return ids

    @cached_property
    def prompt_logprobs(self) -> Optional[PromptLogprobs]:
        """A dict by token id for every place of the prompt, None first."""
        assert self._source is not None
        asked = self._source.asked
        if not asked.prompt_logprobs:
            return None
        return prompt_logprobs_of(self._source.result, self._source.words, asked.flat)

    def __getstate__(self) -> dict[str, object]:
        state = {"prompt_token_ids": self.prompt_token_ids, "prompt_logprobs": self.prompt_logprobs}
        return {**self.__dict__, **state, "_source": None}

    def __repr__(self) -> str:
        names = (
            "request_id prompt prompt_token_ids encoder_prompt encoder_prompt_token_ids "
            "prompt_logprobs prompt_token_id_logprobs outputs finished metrics lora_request "
            "num_cached_tokens num_cache_creation_tokens"
        ).split()
        return f"RequestOutput({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class _Cells:
    """What numpy makes an array over C's memory of. Nobody else looks at these rows: they may be
    written to, as torch asks for."""

    def __init__(self, owner: object, address: int, shape: tuple[int, ...]) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "data": (address, False),
        }


def _rows(source: Source, pointer: object, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if not pointer or math.prod(shape) == 0:
        return np.empty(shape, np.float32)
    address = c.cast(cast("c._Pointer[c.c_float]", pointer), c.c_void_p).value or 0
    return np.asarray(_Cells(source.answers, address, shape))
