"""vLLM's offline interface: its names, fields and defaults, over nepit.

`LLM(...).generate(prompts, SamplingParams(...))` gives `RequestOutput`s that read like vLLM's.
Arguments without a meaning here are taken with one warning when they are harmless, and refused when
they would change a number. What differs on purpose: the prefix cache may be read and all rows are
still scored, duplicates among candidates are allowed, `max_tokens=0` generates nothing, `logprobs`
has no limit unless `max_logprobs` sets one, and what stands in the contents of a chat is plain
text.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Optional, Union

from . import _arrays as arrays
from . import _bridge as bridge
from . import _engine_args as engine_args
from . import _handles as handles
from ._native import Model
from ._outputs import (
    CompletionOutput,
    FlatLogprobs,
    Logprob,
    RequestOutput,
    Source,
    Words,
    completion_of,
    nothing_followed,
)
from ._plan import Plan, Rules
from ._processed import processed
from ._prompts import (
    Dialogue,
    PromptType,
    TextPrompt,
    TokensPrompt,
    dialogues_of,
    plain_contents,
    prompts_of,
    sequence_of,
)
from ._requests import MODES, TO_THE_END, Batch
from ._results import Score
from ._sampling import RequestOutputKind, SamplingParams, refuse, wrong
from ._tokenizer import Tokenizer
from ._types import Ids, LogprobsMode

__all__ = [
    "LLM",
    "CompletionOutput",
    "FlatLogprobs",
    "Logprob",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "TextPrompt",
    "Tokenizer",
    "TokensPrompt",
]

Params = Union[SamplingParams, Sequence[SamplingParams], None]

_SPREAD = 0x9E3779B97F4A7C15  # makes seeds of all 64 bits from small numbers

# Fields of np_request and np_sampling by vLLM's names.
_FIELDS = {
    "candidate_ids": "prompt_logprob_token_ids",
    "start": "prompt_logprob_start",
    "top": "prompt_logprobs",
    "sampling.top": "logprobs",
    "sampling.candidate_ids": "logprob_token_ids",
}
_OF_PROMPT = {"token_ids": "prompt_token_ids", "text": "prompt", "cache_salt": "cache_salt"}


def _refused(name: str, advice: str) -> Callable[..., NoReturn]:
    """A method of vLLM's that is not served."""

    def method(self: LLM, *_arguments: object, **_options: object) -> NoReturn:
        raise bridge.NepitError("EUNSUPPORTED", advice, f"LLM.{name}")

    method.__name__, method.__doc__ = name, f"Not served: {advice}."
    return method


class LLM:
    """A model for offline scoring and generation, with vLLM's arguments.

    Any thread may use it. It is closed by `with`, by close(), or when nobody needs it.

    Parameters
    ----------
    model : a .gguf file, or a folder with config.json and safetensors
    tokenizer : None or the model itself; another one is refused
    dtype : "float32" (default), "bfloat16" (profile bf16), or torch's; "auto" is float32, with a
        warning; float16 is refused
    seed : requests that name no seed draw with one made of this and of their number, so that a
        program gives the same texts each time; None: with a random one
    max_model_len : longest sequence in tokens; None, -1, "auto": the model's own
    max_logprobs : so many tokens of one place at most may be asked for; -1 (default): any number
    logprobs_mode : "raw_logprobs", "raw_logits", "processed_logprobs" or "processed_logits"
    enable_prefix_caching : False keeps nothing; no number depends on it
    chat_template : Jinja, or a file of it, in place of the model's
    generation_config : "auto" reads the model folder's generation_config.json: its sampling values
        are used where `generate` is given no SamplingParams, its eos_token_id ends texts; "vllm"
        takes the ids alone; else the folder of another one
    override_generation_config : values that come before the file's
    profile, threads, max_memory, cache_memory, cpu : as in `nepit.open`
    **others : vLLM's other engine arguments. Those that say how its hardware is used are taken with
        one warning; those that would change a number are refused

    Raises
    ------
    NepitError
        EUNSUPPORTED and EINPUT name the argument; the rest as `nepit.open`.
    TypeError
        An argument that vLLM does not have either; the nearest is named.
    """

    def __init__(
        self,
        model: Union[str, os.PathLike[str]],
        *,
        tokenizer: Optional[str] = None,
        dtype: object = "float32",
        seed: Optional[int] = 0,
        max_model_len: Union[int, str, None] = None,
        max_logprobs: int = -1,
        logprobs_mode: str = "raw_logprobs",
        enable_prefix_caching: Optional[bool] = None,
        chat_template: Union[str, Path, None] = None,
        generation_config: str = "auto",
        override_generation_config: Optional[Mapping[str, object]] = None,
        profile: Optional[str] = None,
        threads: int = 0,
        max_memory: int = 0,
        cache_memory: Optional[int] = None,
        cpu: Optional[str] = None,
        **others: object,
    ) -> None:
        path = os.fspath(model)
        engine_args.check(others, stacklevel=2)
        engine_args.check_tokenizer(tokenizer, path)
        mode = getattr(logprobs_mode, "value", logprobs_mode)
        if mode not in MODES:
            wrong("logprobs_mode", mode, f"must be one of {', '.join(MODES)}")
        if max_logprobs < -1:
            wrong("max_logprobs", max_logprobs, "must be -1 (no limit) or more")
        config = engine_args.generation_config_of(generation_config, path)
        self._defaults = engine_args.default_params(
            config, generation_config, override_generation_config or {}
        )
        self._template = engine_args.template_of(chat_template)
        self._seed = seed
        self.model = Model(
            path,
            profile=engine_args.profile_of(dtype, profile, stacklevel=2),
            threads=threads,
            context=engine_args.context_of(max_model_len),
            max_memory=max_memory,
            cache_memory=engine_args.cache_of(enable_prefix_caching, cache_memory),
            cpu=cpu,
        )
        info = self.model.info
        self.logprobs_mode = mode
        self._rules = Rules(
            mode, max_logprobs, engine_args.end_ids(config, info.eos_id), self._encode
        )
        self._words = Words(self.model.token_bytes if info.has_tokenizer else None)
        self._no_words = Words(None)
        self._lock, self._n_requests = threading.Lock(), 0

    def close(self) -> None:
        """Ends the model. What it gave stays valid."""
        self.model.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LLM(model={self.model.info.path!r})"

    # ---- scoring and generation ------------------------------------------------------------------

    def generate(
        self,
        prompts: Union[PromptType, Sequence[PromptType]],
        sampling_params: Params = None,
        *,
        use_tqdm: Union[bool, Callable[..., object]] = True,
        lora_request: None = None,
        priority: Union[int, Sequence[int], None] = None,
        tokenization_kwargs: Optional[Mapping[str, object]] = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """Scores and continues prompts; all of them run together.

        Parameters
        ----------
        prompts : a text, TextPrompt, TokensPrompt or list of ids (or an array), or a list of these
        sampling_params : one for all, or one per prompt; None: `get_default_sampling_params()`.
            The end of the context ends a text too, whatever max_tokens is
        use_tqdm : a bar, where tqdm is installed; or what makes one
        priority : lower numbers go first; one for all, or one per prompt
        tokenization_kwargs : {"add_special_tokens": bool}, for texts

        Returns
        -------
        list of RequestOutput, in the order of the prompts.

        Raises
        ------
        NepitError
            A prompt that is refused, with its place ("prompts[3].prompt_token_ids[7]"), before
            anything runs.
        """
        if lora_request is not None:
            refuse("lora_request", lora_request, "adapters are not served: merge the weights")
        if mm_processor_kwargs:
            refuse("mm_processor_kwargs", mm_processor_kwargs, "only text is read")
        add_special = _add_special(tokenization_kwargs)
        many = prompts_of(prompts)
        plans = self._plans(sampling_params, len(many))
        if not many:
            return []
        with self._lock:
            first, self._n_requests = self._n_requests, self._n_requests + len(many)
        batch = Batch(len(many))
        texts: list[Optional[str]] = []
        for i, (prompt, plan) in enumerate(zip(many, plans)):
            plan.fill(batch, i, self._seed_of(first + i))
            texts.append(self._place(batch, i, prompt, add_special))
        for i, number in enumerate(_each(priority, len(many), "priority")):
            batch.requests[i].priority = number
        try:
            with processed(use_tqdm, len(many), self.model):
                answers = self._run(batch)
        except bridge.NepitError as error:
            raise _renamed(error, isinstance(sampling_params, Sequence)) from None
        return [
            self._output(answers, i, str(first + i), texts[i], plans[i]) for i in range(len(many))
        ]

    def chat(
        self,
        messages: Union[Dialogue, Sequence[Dialogue]],
        sampling_params: Params = None,
        use_tqdm: Union[bool, Callable[..., object]] = True,
        lora_request: None = None,
        priority: Union[int, Sequence[int], None] = None,
        chat_template: Optional[str] = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Optional[Sequence[Mapping[str, object]]] = None,
        chat_template_kwargs: Optional[Mapping[str, object]] = None,
        tokenization_kwargs: Optional[Mapping[str, object]] = None,
        mm_processor_kwargs: None = None,
    ) -> list[RequestOutput]:
        """`generate` on dialogues, by the model's chat template.

        Parameters
        ----------
        messages : a list of {"role", "content"}, or a list of such lists
        chat_template : Jinja in place of the model's
        chat_template_content_format : "openai" gives the template the parts of a content, else it
            gets their texts, joined by line ends
        add_generation_prompt, continue_final_message : as in transformers; not both
        tools, chat_template_kwargs : what else the template asks for

        Other parameters, results and errors as in `generate`. What stands in contents is plain
        text: ``<|im_end|>`` there ends nothing.
        """
        if add_generation_prompt and continue_final_message:
            wrong(
                "continue_final_message",
                True,
                "needs add_generation_prompt=False: the last message is continued, or a new one "
                "begins",
            )
        if _add_special(tokenization_kwargs):
            refuse("tokenization_kwargs", tokenization_kwargs, "the template says where BOS stands")
        variables = dict(chat_template_kwargs or {})
        if tools:
            variables["tools"] = list(tools)
        prompts: list[PromptType] = []
        for i, dialogue in enumerate(dialogues_of(messages)):
            told = self.model.chat(
                plain_contents(dialogue, chat_template_content_format, f"messages[{i}]"),
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                chat_template=self._template if chat_template is None else chat_template,
                **variables,
            )
            text = b"".join(told.texts).decode(errors="replace")
            prompts.append(TokensPrompt(prompt_token_ids=told.token_ids, prompt=text))
        return self.generate(
            prompts,
            sampling_params,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
            priority=priority,
            mm_processor_kwargs=mm_processor_kwargs,
        )

    def score_prompts(
        self,
        prompts: Union[PromptType, Sequence[PromptType]],
        *,
        start: int = 0,
        top: int = 0,
        score_temperature: Optional[float] = None,
        logprobs_mode: LogprobsMode = "raw_logprobs",
    ) -> list[Score]:
        """The log-probability of every token, as arrays: `Model.score` on vLLM's prompts.

        Parameters
        ----------
        start : first row; row r scores token r+1
        top : so many likeliest tokens of each row
        score_temperature : divides the logits before the softmax
        """
        many = [sequence_of(p, f"prompts[{i}]")[0] for i, p in enumerate(prompts_of(prompts))]
        return self.model.score(
            many,
            start=start,
            top=top,
            score_temperature=score_temperature,
            logprobs_mode=logprobs_mode,
        )

    def score_labels(
        self,
        query: Union[str, Ids],
        items: Sequence[Union[str, Ids]],
        label_token_ids: Ids,
        *,
        apply_softmax: bool = True,
        item_first: bool = False,
        add_special_tokens: bool = True,
    ) -> list[float]:
        """Of each item the probability that the first label follows: vLLM's generative scoring.

        Parameters
        ----------
        query, items : texts or ids; each item stands behind the query, or (item_first) before it
        label_token_ids : ids that could follow
        apply_softmax : among the labels alone; False: among the whole vocabulary
        add_special_tokens : BOS and EOS of the query, as the tokenizer adds them
        """
        labels = arrays.ids_array(label_token_ids, "label_token_ids")
        if len(items) == 0 or labels.size == 0:
            wrong("items" if len(items) == 0 else "label_token_ids", [], "must not be empty")
        head = self._ids_of(query, "query", add_special_tokens)
        batch = Batch(len(items))
        for i, item in enumerate(items):
            tail = self._ids_of(item, f"items[{i}]", False)
            batch.prompt(i, tail + head if item_first else head + tail, name=f"items[{i}]")
            batch.candidates(i, labels)
            batch.requests[i].start, batch.requests[i].next = TO_THE_END // 2, 1
        answers = self._run(batch)
        found: list[float] = []
        for i in range(len(items)):
            result = answers.results[i]
            values = arrays.floats(answers, result.scores, (result.n_candidates,)).tolist()
            highest = max(values) if apply_softmax else 0.0
            weights = [math.exp(value - highest) for value in values]
            found.append(weights[0] / (math.fsum(weights) if apply_softmax else 1.0))
        return found

    # ---- what else vLLM's class has --------------------------------------------------------------

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, with the names of transformers' interface."""
        return Tokenizer(self.model)

    def get_default_sampling_params(self) -> SamplingParams:
        """What `generate` uses where it is given none: vLLM's defaults, and the values of
        generation_config.json and `override_generation_config`."""
        return SamplingParams.from_optional(**self._defaults)  # type: ignore[arg-type]

    def get_world_size(self, include_dp: bool = True) -> int:
        """1: the model lies in this process."""
        return 1

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets the prefix cache; what runs goes on. True."""
        self.model.clear_cache()
        return True

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """Level 0 does nothing, level 1 forgets the prefix cache; the weights stay. The model may
        be used meanwhile. Level 2 would drop the weights and is refused: close the LLM."""
        if level not in (0, 1):
            refuse("level", level, "weights stay while a model is open: close it and open it again")
        if level == 1:
            self.model.clear_cache()

    def wake_up(self, tags: Optional[Sequence[str]] = None) -> bool:
        """Nothing sleeps. True."""
        return True

    encode = _refused("encode", "hidden states are not told; score_prompts gives log-probabilities")
    embed = _refused("embed", "there are no embeddings; score_prompts gives log-probabilities")
    classify = _refused(
        "classify", "there are no classifiers; score_labels gives the probability of label tokens"
    )
    reward = _refused("reward", "there are no reward models; score_prompts gives log-probabilities")
    score = _refused(
        "score",
        "this is vLLM's reranker; score_prompts gives log-probabilities, score_labels the "
        "probability of label tokens, generate with prompt_logprobs vLLM's form of them",
    )
    beam_search = _refused(
        "beam_search", "beams are not kept; generate draws up to 128 choices (n)"
    )
    collective_rpc = _refused("collective_rpc", "there are no workers to call")
    apply_model = _refused("apply_model", "the model is no torch module")

    # ---- inside ----------------------------------------------------------------------------------

    def _run(self, batch: Batch) -> bridge.Answers:
        answers = handles.run(self.model._engine, batch.requests, batch.keeps)
        for i, result in enumerate(answers.results):
            if result.error.status:
                raise bridge.error_of(result.error, f"requests[{i}]")
        return answers

    def _encode(self, text: str) -> list[int]:
        return self._ids_of(text, "text", False)

    def _ids_of(self, given: Union[str, Ids], where: str, add_special: bool) -> list[int]:
        if isinstance(given, str):
            ids = self.model.tokenize(given, add_special=add_special).token_ids
        else:
            ids = arrays.ids_array(given, where)
        listed: list[int] = ids.tolist()
        return listed

    def _seed_of(self, number: int) -> Optional[int]:
        """What request `number` draws with, where it names no seed."""
        if self._seed is None:
            return None
        return ((self._seed * _SPREAD) ^ (number + 1)) * _SPREAD % 2**64

    def _plans(self, given: Params, n: int) -> list[Plan]:
        if given is None:
            given = self.get_default_sampling_params()
        if not isinstance(given, Sequence):
            return [Plan(given, self._rules, "sampling_params")] * n
        if len(given) != n:
            wrong("sampling_params", len(given), f"must be one for all, or {n}, as many as prompts")
        known: dict[int, Plan] = {}
        last = None
        for i, params in enumerate(given):
            if id(params) not in known:
                last = Plan(params, self._rules, f"sampling_params[{i}]", last)
                known[id(params)] = last
        return [known[id(params)] for params in given]

    def _place(
        self, batch: Batch, i: int, prompt: object, add_special: Optional[bool]
    ) -> Optional[str]:
        """The sequence of request i; gives the text that its output tells."""
        sequence, text, salt = sequence_of(prompt, f"prompts[{i}]")
        request, context = batch.requests[i], self.model.context
        limited = 0 < request.max_tokens < TO_THE_END
        if limited and isinstance(sequence, str):
            if 4 * len(sequence) + request.max_tokens > context - 8:  # it may not fit: count
                sequence = self.model.tokenize(sequence, add_special=add_special).token_ids
        batch.prompt(i, sequence, add_special, name=f"prompts[{i}]")
        if limited and 0 < context - request.n_tokens < request.max_tokens:
            request.max_tokens = context - request.n_tokens  # as in vLLM, the context ends it
        if salt is not None:
            raw = salt.encode()
            batch.keeps.append(raw)
            request.cache_salt = raw
        return text

    def _output(
        self, answers: bridge.Answers, i: int, request_id: str, text: Optional[str], plan: Plan
    ) -> RequestOutput:
        asked = plan.asked
        words = self._words if asked.text else self._no_words
        source = Source(answers, i, words, asked)
        if plan.params.max_tokens == 0:
            made = [nothing_followed(k, asked) for k in range(plan.params.n)]
        else:
            result = source.result
            made = [
                completion_of(k, result.choices[k], plan.drawing, words, asked)
                for k in range(result.n_choices)
            ]
        return RequestOutput._of(request_id, text, made, source)


def _each(given: Union[int, Sequence[int], None], n: int, name: str) -> Sequence[int]:
    if given is None:
        return ()
    if isinstance(given, int):
        return [given] * n
    if len(given) != n:
        wrong(name, len(given), f"must be one for all, or {n}, as many as prompts")
    return given


def _add_special(given: Optional[Mapping[str, object]]) -> Optional[bool]:
    """Of vLLM's tokenization_kwargs the only one that is served."""
    known = dict(given or {})
    value = known.pop("add_special_tokens", None)
    for name, other in known.items():
        if other is not None:
            refuse(f"tokenization_kwargs.{name}", other, "only add_special_tokens is served")
    return None if value is None else bool(value)


def _renamed(error: bridge.NepitError, each: bool) -> bridge.NepitError:
    """An error of C with the place that the caller knows."""
    found = re.fullmatch(r"(?:requests\[(\d+)\]\.?)?([a-z_.]*)(.*)", error.where, re.DOTALL)
    if not found:
        return error
    number, name, rest = found.groups()
    i = int(number or 0)
    if name in _OF_PROMPT:
        where = f"prompts[{i}].{_OF_PROMPT[name]}"
    elif name:
        head = f"sampling_params[{i}]" if each else "sampling_params"
        where = f"{head}.{_FIELDS.get(name, name.removeprefix('sampling.'))}"
    else:
        where = f"prompts[{i}]"
    return bridge.NepitError(error.code, error.message, where + rest, error.given, error.offset)
