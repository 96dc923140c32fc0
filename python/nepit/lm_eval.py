"""lm-evaluation-harness on nepit.

    python -m nepit.lm_eval --model_args path=model.gguf,profile=f32,threads=8 --tasks piqa

The harness finds no models by itself: this adds `nepit` to its list and hands over to its command,
whose other arguments are as ever. Numbers are those of its class `hf` with float32, by the same
rules: how context and continuation are cut, what stands before an empty context, rolling windows,
what is dropped from the left, and where a text ends.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Optional, Protocol, Union, cast

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.api.registry import register_model
    from lm_eval.models.utils import (
        handle_stop_sequences,
        has_bos_prefix,
        normalize_gen_kwargs,
        postprocess_generated_text,
    )
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    from tqdm import tqdm
except ImportError as error:
    raise ImportError("nepit.lm_eval needs the harness: pip install lm-eval") from error

from . import _harness as harness
from . import _native as native
from ._bridge import NepitError
from ._requests import Drawing
from ._tokenizer import Tokenizer

log = logging.getLogger(__name__)

Pair = tuple[Optional[tuple[str, str]], list[int], list[int]]  # texts (None: a window), ids, ids
# What may stand in a task's generation_kwargs beside `until` and the number of tokens.
DRAWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class Request(Protocol):
    """The harness' Instance."""

    args: tuple[object, ...]


@register_model("nepit")
class NepitLM(TemplateLM):  # type: ignore[misc] # the harness has no types
    """A model of nepit as the harness wants it.

    Parameters
    ----------
    path, pretrained : a .gguf file or a folder; two names of one thing
    profile, threads, max_memory, cache_memory, cpu : as in nepit.open
    max_length : longest sequence in tokens; None means the model's context
    max_gen_toks : tokens of a generated text where the task does not say
    add_bos_token : BOS before every text (True), never (False), or as the tokenizer does
    prefix_token_id : stands before an empty context; None means BOS, or EOS where there is none
    seed : sampled texts are drawn with it, each text of a task with another number from there on
    enable_thinking, chat_template_args : variables of the chat template
    think_end_token : of a generated text only what stands after this text is kept
    batch_size, max_batch_size, device, trust_remote_code : what the harness hands to every model;
        they change nothing here, where batches are as large as is good and no code is loaded

    Threads: the harness uses one.
    """

    def __init__(
        self,
        path: Optional[str] = None,
        *,
        pretrained: Optional[str] = None,
        profile: Optional[str] = None,
        threads: int = 0,
        max_length: Optional[int] = None,
        max_gen_toks: int = 256,
        add_bos_token: Optional[bool] = None,
        prefix_token_id: Optional[int] = None,
        seed: int = 1234,
        max_memory: int = 0,
        cache_memory: Optional[int] = None,
        cpu: Optional[str] = None,
        enable_thinking: Optional[bool] = None,
        chat_template_args: Optional[Mapping[str, object]] = None,
        think_end_token: Optional[str] = None,
        batch_size: Union[int, str, None] = None,
        max_batch_size: Optional[int] = None,
        device: Optional[str] = None,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        if (path is None) == (pretrained is None):
            raise ValueError("path: one model file or folder is expected (or as pretrained=...)")
        self.path = str(path or pretrained)
        self.model = native.open(
            self.path,
            profile=profile,
            threads=threads,
            max_memory=max_memory,
            cache_memory=cache_memory,
            cpu=cpu,
        )
        self.tokenizer = Tokenizer(self.model)
        context = self.model.info.n_context
        if max_length is not None and not 1 <= max_length <= context:
            raise ValueError(f"max_length: 1 to {context} is allowed, not {max_length}")
        self.max_length = max_length or context
        self.max_gen_toks = max_gen_toks
        self.add_bos_token = add_bos_token
        self.custom_prefix_token_id = prefix_token_id
        if add_bos_token and self.model.info.bos_id < 0:
            raise ValueError("add_bos_token: this model has no BOS")
        self.seed = seed
        self.think_end_token = think_end_token
        self.variables = dict(chat_template_args or {})
        if enable_thinking is not None:
            self.variables["enable_thinking"] = enable_thinking

    # ---- tokens ----------------------------------------------------------------------------------

    @property
    def eot_token_id(self) -> int:
        return self.model.info.eos_id

    @property
    def prefix_token_id(self) -> int:
        if self.custom_prefix_token_id is not None:
            return self.custom_prefix_token_id
        info = self.model.info
        return info.bos_id if info.bos_id >= 0 else info.eos_id

    def tok_encode(
        self, string: str, add_special_tokens: Optional[bool] = None, **_unused: object
    ) -> list[int]:
        """A text as ids. A text that begins with BOS gets no second one."""
        wanted = self.add_bos_token if add_special_tokens is None else add_special_tokens
        if add_special_tokens is None and has_bos_prefix(string, self._text(self.prefix_token_id)):
            wanted = False
        ids: list[int] = self.model.tokenize(string, add_special=wanted).token_ids.tolist()
        info = self.model.info
        missing = wanted and self.add_bos_token and not info.adds_bos
        return [info.bos_id, *ids] if missing else ids

    def _text(self, token_id: int) -> Optional[str]:
        return self.model.token_bytes(token_id).decode(errors="replace") if token_id >= 0 else None

    # ---- what the harness asks -------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: Sequence[Pair], disable_tqdm: bool = False, **_unused: object
    ) -> list[tuple[float, bool]]:
        told: list[tuple[float, bool]] = []
        pairs = [self._fit(context, continuation) for _, context, continuation in requests]
        lengths = [len(context) + len(continuation) for context, continuation in pairs]
        with tqdm(total=len(pairs), disable=disable_tqdm, desc="nepit loglikelihood") as bar:
            for chunk in harness.chunks(lengths):
                answers = harness.follow(self.model, pairs[chunk])
                for (texts, _, _), answer in zip(requests[chunk], answers):
                    if texts is not None:  # rolling windows are no requests of their own
                        self.cache_hook.add_partial("loglikelihood", texts, answer)
                told += answers
                bar.update(len(answers))
        return told

    def _fit(self, context: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """What is too long loses its beginning; the last token, only scored, needs no place."""
        if not 0 < len(continuation) <= self.max_length:
            raise ValueError(
                f"a continuation of 1 to {self.max_length} tokens (max_length) is expected, "
                f"not {len(continuation)}"
            )
        if not context:
            raise ValueError("a context of white space alone has no token to start from")
        surplus = len(context) + len(continuation) - self.max_length - 1
        if surplus > 0:
            log.warning(
                "Context (%d tokens) and continuation (%d) are too long (max_length %d): "
                "%d tokens are dropped from the left.",
                len(context),
                len(continuation),
                self.max_length,
                surplus,
            )
        return context[max(surplus, 0) :], continuation

    def loglikelihood_rolling(
        self, requests: Sequence[Request], disable_tqdm: bool = False
    ) -> list[float]:
        windows: list[Pair] = []
        counts = []
        for request in requests:
            rolled = get_rolling_token_windows(
                token_list=self.tok_encode(cast(str, request.args[0])),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            mine: list[Pair] = [(None, *make_disjoint_window(window)) for window in rolled]
            windows += mine
            counts.append(len(mine))
        answers = iter(self._loglikelihood_tokens(windows, disable_tqdm))
        totals: list[float] = []
        for request, count in zip(requests, counts):
            total = sum(next(answers)[0] for _ in range(count))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
            totals.append(total)
        return totals

    def generate_until(self, requests: Sequence[Request], disable_tqdm: bool = False) -> list[str]:
        prompts: list[list[int]] = []
        drawings: list[Drawing] = []
        for i, request in enumerate(requests):
            context, wanted = request.args
            drawing = self._drawing(cast("dict[str, object]", wanted), self.seed + i)
            room = self.max_length - cast(int, drawing.max_tokens)
            if room <= 0:
                raise ValueError(
                    f"max_gen_toks: less than max_length ({self.max_length}) is expected, "
                    f"not {drawing.max_tokens}"
                )
            ids = self.tok_encode(cast(str, context))
            if len(ids) > room:
                log.warning("%d of %d tokens are dropped from the left.", len(ids) - room, len(ids))
            prompts.append(ids[-room:])
            drawings.append(drawing)
        texts: list[str] = []
        lengths = [len(ids) + cast(int, one.max_tokens) for ids, one in zip(prompts, drawings)]
        with tqdm(total=len(prompts), disable=disable_tqdm, desc="nepit generate_until") as bar:
            for chunk in harness.chunks(lengths):
                answers = harness.write(self.model, prompts[chunk], drawings[chunk])
                for request, drawing, answer in zip(requests[chunk], drawings[chunk], answers):
                    text = postprocess_generated_text(
                        answer, list(drawing.stop), self.think_end_token
                    )
                    self.cache_hook.add_partial("generate_until", request.args, text)
                    texts.append(text)
                bar.update(len(answers))
        return texts

    def _drawing(self, wanted: dict[str, object], seed: int) -> Drawing:
        """A task's generation_kwargs. What is not known here is refused: it might change a text."""
        known = dict(normalize_gen_kwargs(wanted, self.max_gen_toks))
        until = handle_stop_sequences(known.pop("until"), self._text(self.eot_token_id))
        max_tokens = known.pop("max_gen_toks")
        known["temperature"] = float(known.get("temperature", 0.0))
        known.pop("do_sample")
        if known.pop("num_beams", 1) != 1:
            raise ValueError("generation_kwargs: num_beams: there is no beam search here")
        unknown = [name for name in known if name not in DRAWN]
        if unknown:
            raise ValueError(
                f"generation_kwargs: {unknown[0]!r} is not known; until, max_gen_toks, do_sample, "
                f"{', '.join(DRAWN)} are"
            )
        stops = [text for text in until if text]
        # Special tokens do not appear in the text, so these stop by their ids.
        ids = [harness.single_token(self.model, text) for text in stops]
        drawing = Drawing(
            max_tokens=max_tokens,
            seed=seed,
            stop=stops,
            stop_token_ids=[i for i in ids if i is not None],
            include_stop=True,
        )
        for name, value in known.items():
            setattr(drawing, name, value)
        return drawing

    # ---- what it records -------------------------------------------------------------------------

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, object]], add_generation_prompt: bool = True
    ) -> str:
        """A dialogue as text. Where the template refuses it, once more without system messages."""
        try:
            return self._dialogue(chat_history, add_generation_prompt)
        except NepitError as error:
            if error.code != "EINPUT":
                raise
            log.warning("The chat template refuses the dialogue (%s): no system role.", error)
            others = [message for message in chat_history if message["role"] != "system"]
            return self._dialogue(others, add_generation_prompt)

    def _dialogue(self, messages: Sequence[Mapping[str, object]], add_prompt: bool) -> str:
        return harness.dialogue(
            self.model, messages, add_generation_prompt=add_prompt, variables=self.variables
        )

    def chat_template(self, chat_template: Union[bool, str] = False) -> Optional[str]:
        """The model's own template, the only one that it has."""
        if isinstance(chat_template, str):
            raise ValueError(
                f"apply_chat_template: the model has one template and none named {chat_template!r}"
            )
        return self.tokenizer.chat_template if chat_template else None

    @property
    def tokenizer_name(self) -> str:
        """Names the harness' cache of requests."""
        return self.path.replace("/", "__")

    def get_model_info(self) -> dict[str, object]:
        """What stands in the harness' results beside the numbers."""
        info = self.model.info
        return {
            "model_num_parameters": info.n_parameters,
            "model_dtype": f"nepit {info.profile}",
            "model_weight_types": info.weight_types,
            "model_revision": "",
            "model_sha": "",
        }


def main() -> None:
    """The harness' command, with nepit as the model unless another one is named."""
    from lm_eval.__main__ import cli_evaluate

    given = sys.argv[1:]
    named = any(one.partition("=")[0] in ("--model", "-M", "--config", "-C") for one in given)
    if not named and given and given[0] not in ("ls", "validate", "-h", "--help"):
        sys.argv += ["--model", "nepit"]
    cli_evaluate()


if __name__ == "__main__":
    main()
