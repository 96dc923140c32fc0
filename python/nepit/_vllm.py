"""vLLM's offline interface: its names, fields and defaults, over nepit.

`LLM(...).generate(prompts, SamplingParams(...))` gives `RequestOutput`s that read like vLLM's.
Arguments without a meaning here are taken with one warning when they are harmless, and refused when
they would change a number. What differs on purpose: the prefix cache may be read and all rows are
still scored, duplicates among candidates are allowed, `max_tokens=0` generates nothing, and
`tail` adds the log of the mass beside the candidates.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional, TypedDict, Union, cast

import numpy as np
from numpy.typing import NDArray

from . import _arrays as arrays
from . import _bridge as bridge
from ._native import Model
from ._parts import FINISHES, stop_reason, text_bytes
from ._progress import bar
from ._requests import LOGPROB, RANK, TAIL, Batch, Candidates, Drawing, Prompt


class TextPrompt(TypedDict, total=False):
    """A prompt as a text."""

    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    """A prompt as ids, used as they are."""

    prompt_token_ids: Union[Sequence[int], NDArray[np.integer]]
    prompt: str
    cache_salt: str


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability in nats; rank 1 is the likeliest, None where it is not known."""

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


LogprobDict = dict[int, Logprob]


def _number(name: str, value: object, low: float, high: float, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise TypeError(f"{name}: {what} is expected, not {value!r}")
    if not low <= float(value) <= high:
        raise ValueError(f"{name}: {what} is expected, not {value!r}")


def _count(name: str, value: Optional[int], low: int, what: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: {what} is expected, not {value!r}")
    if value < low:
        raise ValueError(f"{name}: {what} is expected, not {value!r}")


@dataclass
class SamplingParams:
    """How a prompt is scored and continued.

    Attributes
    ----------
    n, temperature, top_p, top_k, min_p, seed, presence_penalty, frequency_penalty,
    repetition_penalty, stop, stop_token_ids, ignore_eos, min_tokens, logit_bias, allowed_token_ids,
    bad_words, include_stop_str_in_output, skip_special_tokens : as in vLLM
    max_tokens : at most so many tokens follow; 0: none; None: to the end of the context
    logprobs : likeliest tokens beside each generated one; 0: its own alone; -1: all; None: nothing
    prompt_logprobs : the same for tokens of the prompt
    prompt_logprob_token_ids : candidates at every row, [K], or [rows, K] (ragged, -1 pads); numpy
        arrays of int32 are taken as they lie in memory
    prompt_logprob_start : first row; row r scores token r+1
    prompt_logprob_tail : adds log(1 - sum of the candidates' probabilities) per row
    logprob_token_ids : candidates beside each generated token, in place of the likeliest
    score_temperature : divides the logits of scored rows before the softmax
    skip_reading_prefix_cache : computes everything anew; the numbers are the same
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
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
    prompt_logprob_tail: bool = False
    logprob_token_ids: Optional[Sequence[int]] = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Optional[Mapping[int, float]] = None
    allowed_token_ids: Optional[Sequence[int]] = None
    bad_words: Optional[Sequence[str]] = None
    skip_reading_prefix_cache: Optional[bool] = None
    score_temperature: Optional[float] = None
    extra_args: Optional[Mapping[str, object]] = None
    structured_outputs: Optional[object] = None
    thinking_token_budget: Optional[int] = None

    def __post_init__(self) -> None:
        _count("n", self.n, 1, "1 or more")
        _number("presence_penalty", self.presence_penalty, -2, 2, "a number from -2 to 2")
        _number("frequency_penalty", self.frequency_penalty, -2, 2, "a number from -2 to 2")
        _number("repetition_penalty", self.repetition_penalty, 1e-38, 1e38, "a number above 0")
        _number("temperature", self.temperature, 0, 2, "a number from 0 to 2")
        _number("top_p", self.top_p, 1e-38, 1, "a number above 0, at most 1")
        _count("top_k", self.top_k, -1, "-1, 0 (all) or more")
        _number("min_p", self.min_p, 0, 1, "a number from 0 to 1")
        _count("max_tokens", self.max_tokens, 0, "0 or more, or None")
        _count("min_tokens", self.min_tokens, 0, "0 or more")
        _count("logprobs", self.logprobs, -1, "-1 (all), 0 or more, or None")
        _count("prompt_logprobs", self.prompt_logprobs, -1, "-1 (all), 0 or more, or None")
        _count("prompt_logprob_start", self.prompt_logprob_start, 0, "0 or more, or None")
        if self.score_temperature is not None:
            _number("score_temperature", self.score_temperature, 1e-38, 1e38, "a number above 0")
        scored = self.prompt_logprobs is not None or self.prompt_logprob_token_ids is not None
        if self.prompt_logprob_start is not None and not scored:
            raise ValueError(
                "prompt_logprob_start needs prompt_logprobs or prompt_logprob_token_ids"
            )
        if self.prompt_logprob_tail and self.prompt_logprob_token_ids is None:
            raise ValueError("prompt_logprob_tail needs prompt_logprob_token_ids")
        for name in ("extra_args", "structured_outputs", "thinking_token_budget"):
            if getattr(self, name):
                raise NotImplementedError(
                    f"{name} is not served: it would change what is generated"
                )

    @property
    def stops(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    def clone(self) -> SamplingParams:
        """A copy."""
        import copy

        return copy.copy(self)


@dataclass
class CompletionOutput:
    """One choice; see vLLM. `logprobs[i]` has the generated token first."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: Optional[float]
    logprobs: Optional[list[LogprobDict]]
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None

    def finished(self) -> bool:
        """Whether it has ended."""
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """The answer to one prompt.

    Attributes
    ----------
    prompt_logprobs : list as long as the prompt; None first and before `prompt_logprob_start`,
        else a dict by token id, the true token first, then by rank
    prompt_token_id_logprobs : float32 [rows, K], a view of C's memory
    prompt_token_id_tail : float32 [rows], log of the mass beside the candidates
    num_cached_tokens : tokens that did not go through the model for it
    """

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: list[int]
    prompt_logprobs: Optional[list[Optional[LogprobDict]]]
    outputs: list[CompletionOutput]
    finished: bool = True
    prompt_token_id_logprobs: Optional[NDArray[np.float32]] = None
    prompt_token_id_tail: Optional[NDArray[np.float32]] = None
    num_cached_tokens: Optional[int] = None
    metrics: Optional[object] = None
    lora_request: Optional[object] = None
    kv_transfer_params: Optional[dict[str, object]] = field(default=None)


# Engine arguments of vLLM: what they mean here. "harmless": a word, once; a set of values: those
# alone, since any other would change a number or what is promised.
_HARMLESS = frozenset(
    "gpu_memory_utilization enforce_eager disable_log_stats tensor_parallel_size max_num_seqs "
    "max_num_batched_tokens block_size swap_space enable_prefix_caching enable_chunked_prefill "
    "trust_remote_code download_dir load_format tokenizer_mode disable_custom_all_reduce "
    "max_seq_len_to_capture distributed_executor_backend compilation_config revision "
    "tokenizer_revision attention_backend cpu_offload_gb logits_processor_pattern "
    "async_scheduling max_logprobs seed hf_token skip_tokenizer_init".split()
)
_REFUSED: dict[str, tuple[object, ...]] = {
    "quantization": (None, "gguf"),
    "kv_cache_dtype": (None, "auto", "float32"),
    "rope_scaling": (None,),
    "rope_theta": (None,),
    "hf_overrides": (None,),
    "enable_lora": (None, False),
    "speculative_config": (None,),
    "tokenizer": (None,),
    "pipeline_parallel_size": (None, 1),
    "runner": (None, "auto", "generate"),
    "task": (None, "auto", "generate"),
}
_DTYPES = {
    "auto": None,
    "float32": None,
    "float": None,
    "bfloat16": "bf16",
}


def _profile(dtype: object) -> Optional[str]:
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f'dtype: "auto", "float32" or "bfloat16" is expected, not {dtype!r}')
    if name == "auto":
        warnings.warn('dtype "auto" is float32 here, whatever the file holds', stacklevel=3)
    return _DTYPES[name]


class LLM:
    """A model for offline scoring and generation, with vLLM's arguments.

    Parameters
    ----------
    model : a .gguf file or a folder with config.json and *.safetensors
    dtype : "float32" (default), "bfloat16" (profile bf16), or torch's
    max_model_len : longest sequence, tokens; None: the model's own
    logprobs_mode : "raw_logprobs", "raw_logits", "processed_logprobs" or "processed_logits"
    profile, threads, max_memory, cache_memory, cpu : as in `nepit.open`
    """

    def __init__(
        self,
        model: Union[str, os.PathLike[str]],
        *,
        dtype: object = "float32",
        max_model_len: Optional[int] = None,
        logprobs_mode: str = "raw_logprobs",
        profile: Optional[str] = None,
        threads: int = 0,
        max_memory: int = 0,
        cache_memory: Optional[int] = None,
        cpu: Optional[str] = None,
        **others: object,
    ) -> None:
        for name, value in others.items():
            if name in _REFUSED and value not in _REFUSED[name]:
                raise NotImplementedError(f"{name}={value!r} is not served: it changes numbers")
            if name not in _REFUSED and name not in _HARMLESS:
                raise TypeError(f"unknown argument {name!r}")
            if name in _HARMLESS:
                warnings.warn(f"{name} has no meaning here", stacklevel=2)
        self.model = Model(
            model,
            profile=profile or _profile(dtype),
            threads=threads,
            context=max_model_len or 0,
            max_memory=max_memory,
            cache_memory=cache_memory,
            cpu=cpu,
        )
        self.logprobs_mode = logprobs_mode
        self._n_requests = 0

    def close(self) -> None:
        """Ends the model."""
        self.model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(
        self,
        prompts: object,
        sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        use_tqdm: bool = False,
        priority: Optional[Sequence[int]] = None,
        lora_request: None = None,
    ) -> list[RequestOutput]:
        """Scores and continues prompts.

        Parameters
        ----------
        prompts : a text, TextPrompt, TokensPrompt, list of ids, or a list of these
        sampling_params : one for all, or one per prompt; default SamplingParams()

        Returns
        -------
        list of RequestOutput, in the order of the prompts. A prompt that is refused raises, with
        the place in `where`, before anything runs.
        """
        many = _prompts(prompts)
        if sampling_params is None:
            sampling_params = SamplingParams()
        params = (
            [sampling_params] * len(many)
            if isinstance(sampling_params, SamplingParams)
            else list(sampling_params)
        )
        if len(params) != len(many):
            raise ValueError(f"{len(params)} sampling_params for {len(many)} prompts")
        if not many:
            return []
        batch, drawings = Batch(len(many)), []
        for i, (prompt, param) in enumerate(zip(many, params)):
            drawings.append(self._fill(batch, i, prompt, param))
            if priority is not None:
                batch.requests[i].priority = priority[i]
        with bar(use_tqdm, "Processed prompts", "prompts") as tell:
            answers = self.model._run(batch)
            tell(len(many), len(many))
        first, self._n_requests = self._n_requests, self._n_requests + len(many)
        return [
            self._output(answers, i, str(first + i), many[i], params[i], drawings[i])
            for i in range(len(many))
        ]

    def chat(
        self,
        messages: object,
        sampling_params: Union[SamplingParams, Sequence[SamplingParams], None] = None,
        *,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Optional[Sequence[object]] = None,
        chat_template_kwargs: Optional[Mapping[str, object]] = None,
        use_tqdm: bool = False,
    ) -> list[RequestOutput]:
        """`generate` on dialogues, by the model's chat template."""
        dialogues = cast(Sequence[object], messages)
        if dialogues and isinstance(dialogues[0], Mapping):
            dialogues = [dialogues]
        prompts = [
            self.model.chat(
                cast(Sequence[Mapping[str, object]], dialogue),
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                chat_template=chat_template,
                **({"tools": tools} if tools else {}),
                **dict(chat_template_kwargs or {}),
            ).token_ids
            for dialogue in dialogues
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    # ---- inside ----------------------------------------------------------------------------------

    def _fill(self, batch: Batch, i: int, prompt: object, params: SamplingParams) -> Drawing:
        request = batch.requests[i]
        ids, salt = _sequence(prompt)
        batch.prompt(i, ids, name=f"prompts[{i}]")
        if salt is not None:
            raw = salt.encode()
            batch.keeps.append(raw)
            request.cache_salt = raw
        request.skip_reading_prefix_cache = bool(params.skip_reading_prefix_cache)
        batch.temperature(i, params.score_temperature, self.logprobs_mode)
        request.start = params.prompt_logprob_start or 0
        if params.prompt_logprobs is not None:
            request.want, request.top = LOGPROB | RANK, params.prompt_logprobs
        if params.prompt_logprob_token_ids is not None:
            batch.candidates(i, params.prompt_logprob_token_ids, "prompt_logprob_token_ids")
        if params.prompt_logprob_tail:
            request.want |= TAIL
        top = params.logprobs
        if params.logprob_token_ids is not None and top is None:
            top = 0
        drawing = Drawing(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            repetition_penalty=params.repetition_penalty,
            seed=params.seed,
            logit_bias=params.logit_bias or {},
            allowed_token_ids=params.allowed_token_ids,
            bad_words=self._words(params.bad_words or ()),
            stop=params.stops,
            stop_token_ids=list(params.stop_token_ids or ()),
            include_stop=params.include_stop_str_in_output,
            min_tokens=params.min_tokens,
            ignore_eos=params.ignore_eos,
            skip_special_tokens=params.skip_special_tokens,
            n=params.n,
            processed=self.logprobs_mode.startswith("processed"),
            top=top,
            candidates=params.logprob_token_ids,
        )
        if params.max_tokens != 0:
            batch.drawing(i, drawing)
        return drawing

    def _words(self, words: Sequence[str]) -> list[list[int]]:
        """As vLLM takes them: at the beginning of a text and, where that is another token, behind
        a space."""
        found = []
        for word in words:
            bare, spaced = (
                self.model.tokenize(space + word.lstrip(), add_special=False).token_ids.tolist()
                for space in ("", " ")
            )
            found.append(bare)
            if len(bare) == len(spaced) and bare[0] != spaced[0]:
                found.append(spaced)
        return found

    def _decoded(self, token_id: int) -> Optional[str]:
        if not self.model.info.has_tokenizer:
            return None
        return self.model.token_bytes(token_id).decode(errors="replace")

    def _row(
        self,
        token: int,
        logprob: float,
        rank: int,
        ids: Sequence[int],
        values: Sequence[float],
        ranked: bool = True,
    ) -> LogprobDict:
        """The true token first, then the others by rank."""
        row = {token: Logprob(logprob, rank, self._decoded(token))}
        for k, (other, value) in enumerate(zip(ids, values), start=1):
            if other not in row and other >= 0:
                row[other] = Logprob(value, k if ranked else None, self._decoded(other))
        return row

    def _prompt_logprobs(self, result: bridge.Result) -> list[Optional[LogprobDict]]:
        rows: list[Optional[LogprobDict]] = [None] * min(result.start + 1, result.n_tokens)
        top = result.n_top
        for j in range(result.n_scored):
            rows.append(
                self._row(
                    result.token_ids[result.start + j + 1],
                    result.logprobs[j],
                    result.ranks[j],
                    result.top_ids[j * top : (j + 1) * top] if top else (),
                    result.top_logprobs[j * top : (j + 1) * top] if top else (),
                )
            )
        return rows

    def _choice(self, k: int, raw: bridge.Generated, drawing: Drawing) -> CompletionOutput:
        ids = raw.token_ids[: raw.n_tokens]
        logprobs, total = None, None
        if raw.logprobs:
            chosen = raw.n_candidates > 0
            width = raw.n_candidates if chosen else raw.n_top
            beside, values = (
                (raw.candidate_ids, raw.scores) if chosen else (raw.top_ids, raw.top_logprobs)
            )
            logprobs = []
            for t in range(raw.n_tokens):
                span = slice(t * width, (t + 1) * width)
                others = beside[:width] if chosen else beside[span] if width else ()
                logprobs.append(
                    self._row(
                        ids[t],
                        raw.logprobs[t],
                        raw.ranks[t],
                        others,
                        values[span] if width else (),
                        ranked=not chosen,
                    )
                )
            total = math.fsum(raw.logprobs[: raw.n_tokens])
        text = text_bytes(raw)
        return CompletionOutput(
            index=k,
            text=text.decode(errors="replace"),
            token_ids=ids,
            cumulative_logprob=total,
            logprobs=logprobs,
            finish_reason=FINISHES[raw.finish],
            stop_reason=stop_reason(raw, drawing),
        )

    def _output(
        self,
        answers: bridge.Answers,
        i: int,
        request_id: str,
        prompt: object,
        params: SamplingParams,
        drawing: Drawing,
    ) -> RequestOutput:
        result = answers.results[i]
        scores = tail = None
        if params.prompt_logprob_token_ids is not None:
            scores = arrays.floats(answers, result.scores, (result.n_rows, result.n_candidates))
        if params.prompt_logprob_tail:
            tail = arrays.floats(answers, result.tail, (result.n_rows,))
        choices = [self._choice(k, result.choices[k], drawing) for k in range(result.n_choices)]
        if params.max_tokens == 0:
            choices = [CompletionOutput(k, "", [], None, None, "length") for k in range(params.n)]
        needed = max(result.n_tokens - 1, 0) + sum(len(made.token_ids) for made in choices)
        text = prompt if isinstance(prompt, str) else None
        if isinstance(prompt, Mapping):
            text = cast(Optional[str], prompt.get("prompt"))
        return RequestOutput(
            request_id=request_id,
            prompt=text,
            prompt_token_ids=arrays.ints(answers, result.token_ids, (result.n_tokens,)).tolist(),
            prompt_logprobs=(
                self._prompt_logprobs(result) if params.prompt_logprobs is not None else None
            ),
            outputs=choices,
            prompt_token_id_logprobs=scores,
            prompt_token_id_tail=tail,
            num_cached_tokens=max(needed - result.n_computed, 0),
        )


def _prompts(prompts: object) -> list[object]:
    """Any form of prompts as a list of single ones."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if isinstance(prompts, np.ndarray) and prompts.ndim == 1:
        return [prompts]
    many = list(cast(Iterable[object], prompts))
    if many and isinstance(many[0], (int, np.integer)):
        return [many]
    return many


def _sequence(prompt: object) -> tuple[Prompt, Optional[str]]:
    """What is scored, and the cache salt."""
    if not isinstance(prompt, Mapping):
        return cast(Prompt, prompt), None
    unknown = set(prompt) - {"prompt", "prompt_token_ids", "cache_salt"}
    if unknown:
        raise TypeError(f"unknown key of a prompt: {sorted(map(str, unknown))[0]!r}")
    salt = cast(Optional[str], prompt.get("cache_salt"))
    if prompt.get("prompt_token_ids") is not None:
        return cast(Prompt, prompt["prompt_token_ids"]), salt
    if prompt.get("prompt") is None:
        raise TypeError("a prompt needs prompt_token_ids or prompt")
    return cast(Prompt, prompt["prompt"]), salt
