"""vLLM's prompts: every form that `LLM.generate` and `LLM.chat` take, as sequences of C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, TypedDict, Union, cast

from ._arrays import kept
from ._bridge import NepitError
from ._requests import is_prompt
from ._sampling import refuse, wrong
from ._types import Ids, Prompt

Dialogue = Sequence[Mapping[str, object]]


class _Options(TypedDict, total=False):
    cache_salt: str


class TextPrompt(_Options):
    """A prompt as a text.

    Attributes
    ----------
    prompt : the text; BOS and EOS are added as the tokenizer does
    cache_salt : the prefix cache is shared only with prompts of the same salt
    """

    prompt: str


class _TokensOptions(_Options, total=False):
    prompt: str


class TokensPrompt(_TokensOptions):
    """A prompt as ids, used as they are.

    Attributes
    ----------
    prompt_token_ids : list of int, or an array or tensor of any integer type
    prompt : the text that belongs to them; it is told in the output, and not looked at
    cache_salt : as in `TextPrompt`
    """

    prompt_token_ids: Ids


PromptType = Union[str, TextPrompt, TokensPrompt, Ids]

_KNOWN = frozenset(("prompt", "prompt_token_ids", "cache_salt", "prompt_token_offsets"))
_UNSERVED = {
    "prompt_embeds": "prompts are texts or token ids, not embeddings",
    "prompt_is_token_ids": "prompts are texts or token ids, not embeddings",
    "multi_modal_data": "the models that are served read text alone",
    "multi_modal_uuids": "the models that are served read text alone",
    "media_io_kwargs": "the models that are served read text alone",
    "mm_processor_kwargs": "the models that are served read text alone",
    "token_type_ids": "causal models have no token types",
    "encoder_prompt": "the models that are served have no encoder",
    "decoder_prompt": "the models that are served have no encoder",
}


def prompts_of(prompts: object) -> list[object]:
    """Any form of prompts as a list of single ones."""
    if isinstance(prompts, (str, Mapping)) or is_prompt(prompts):
        return [prompts]
    if isinstance(prompts, bytes):
        raise TypeError("prompts: a text is expected, not bytes")
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts: texts, token ids or dicts are expected, not {prompts!r}")
    if isinstance(prompts, Sequence) or hasattr(prompts, "__array__"):
        return list(prompts)
    return [kept(prompt) for prompt in prompts]


def sequence_of(prompt: object, where: str) -> tuple[Prompt, Optional[str], Optional[str]]:
    """What is scored, its text where the prompt has one, and the cache salt."""
    if isinstance(prompt, str):
        return prompt, prompt, None
    if not isinstance(prompt, Mapping):
        return cast(Prompt, prompt), None, None
    for key, value in prompt.items():
        if key not in _KNOWN:
            _unknown(str(key), value, where)
    text, salt = prompt.get("prompt"), prompt.get("cache_salt")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"{where}.prompt: a text is expected, not {text!r}")
    if salt is not None and not isinstance(salt, str):
        raise TypeError(f"{where}.cache_salt: a text is expected, not {salt!r}")
    if salt == "":
        wrong(f"{where}.cache_salt", salt, "must not be empty; without the key nothing is salted")
    ids = prompt.get("prompt_token_ids")
    if ids is not None:
        return cast(Prompt, ids), text, salt
    if text is None:
        raise TypeError(f"{where}: prompt_token_ids or prompt is needed")
    return text, text, salt


def _unknown(key: str, value: object, where: str) -> None:
    if key not in _UNSERVED:
        raise TypeError(f"{where}: unknown key {key!r}; {', '.join(sorted(_KNOWN))} are known")
    if value is not None:
        refuse(f"{where}.{key}", type(value).__name__, _UNSERVED[key])


def dialogues_of(messages: object) -> list[Dialogue]:
    """One dialogue, or several, as a list of them."""
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: a list of dicts, or of such lists, is expected: {messages!r}")
    many = list(messages)
    return [many] if many and isinstance(many[0], Mapping) else many


def plain_contents(dialogue: Dialogue, layout: str, where: str) -> list[Mapping[str, object]]:
    """Contents that are lists of parts as texts, joined by line ends, unless the template is to see
    the parts themselves (`layout` "openai")."""
    if layout not in ("auto", "string", "openai"):
        wrong("chat_template_content_format", layout, 'must be "auto", "string" or "openai"')
    told: list[Mapping[str, object]] = []
    for i, message in enumerate(dialogue):
        if not isinstance(message, Mapping):
            raise TypeError(f"{where}[{i}]: a dict with role and content is expected: {message!r}")
        content = message.get("content")
        if isinstance(content, list):
            texts = [_part(part, f"{where}[{i}].content[{k}]") for k, part in enumerate(content)]
            if layout != "openai":
                message = {**message, "content": "\n".join(texts)}
        told.append(message)
    return told


def _part(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind != "text":
        refuse(where, kind or type(part).__name__, "the models that are served read text alone")
    text = part.get("text")
    if not isinstance(text, str):
        raise NepitError("EINPUT", "a text part has a text", f"{where}.text", repr(text)[:64])
    return text
