"""Text <-> ids of an open model."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Optional, overload

from . import _arrays as arrays
from . import _bridge as bridge
from ._handles import Handle
from ._info import info_of
from ._requests import choice, integer, raw_text
from ._results import Tokens
from ._types import Ids


class Texts:
    """The part of a model that knows no weights."""

    def _begin_texts(self, model: Handle) -> None:
        self._model = model
        with model as pointer:
            self.info = info_of(bridge.lib.np_model_info(pointer))
        self._texts = _TokenBytes(model)

    @overload
    def tokenize(
        self,
        text: str | bytes,
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> Tokens: ...
    @overload
    def tokenize(
        self,
        text: Sequence[str | bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> list[Tokens]: ...
    @overload
    def tokenize(
        self,
        text: Iterable[str | bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> Iterator[Tokens]: ...
    def tokenize(
        self,
        text: str | bytes | Iterable[str | bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> object:
        """Texts as ids, exactly as the model's own tokenizer makes them.

        Parameters
        ----------
        text : str, or bytes that need not be UTF-8; a sequence of them; or an iterator of them
        add_special : bool, optional
            BOS and EOS as the tokenizer adds them (None, True) or none (False).
        parse_special : bool, optional
            Whether ``<|im_end|>`` in the text is that token (None, True) or plain text.

        Returns
        -------
        Tokens, list of Tokens, or iterator of Tokens : as `text` is

        Raises
        ------
        NepitError
            EUNSUPPORTED: the model has no tokenizer; EINPUT: a byte that the vocabulary lacks, at
            `offset`; ELIMIT: above 1 GiB.
        """
        if isinstance(text, (str, bytes)):
            return self._encode(text, add_special, parse_special)
        if isinstance(text, (Mapping, Set)) or not isinstance(text, Iterable):
            raise TypeError(f"text: str or bytes are expected, not {type(text).__name__}")
        found = (self._encode(one, add_special, parse_special) for one in text)
        return list(found) if isinstance(text, Sequence) else found

    def _encode(
        self, text: str | bytes, add_special: Optional[bool], parse_special: Optional[bool]
    ) -> Tokens:
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text: str or bytes are expected, not {type(text).__name__}")
        raw, tokens = raw_text(text), bridge.Tokens()
        special = choice(add_special, "add_special"), choice(parse_special, "parse_special")
        self._model.call("np_tokenize", raw, len(raw), *special, c.byref(tokens))
        try:
            return self._tokens(tokens)
        finally:
            bridge.lib.np_tokens_free(c.byref(tokens))

    def _tokens(self, raw: bridge.Tokens) -> Tokens:
        n = raw.n_tokens
        ids = arrays.copied_ints(raw.token_ids, n)
        return Tokens(ids, self._token_texts(ids.tolist()), arrays.spans(raw.begin, raw.end, n))

    def detokenize(self, token_ids: Ids) -> bytes:
        """The bytes of a sequence of ids; special tokens are their texts.

        Raises
        ------
        NepitError
            EINPUT: an id outside the vocabulary, named by its place; EUNSUPPORTED: no tokenizer.
        """
        ids = arrays.ids_array(token_ids, "token_ids")
        out, n = c.c_void_p(), c.c_size_t()
        address = ids.ctypes.data
        self._model.call("np_detokenize", address, len(ids), c.byref(out), c.byref(n))
        try:
            return c.string_at(out, n.value)
        finally:
            bridge.lib.np_free(out)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; they may be a part of a character."""
        return self._texts[integer(token_id, "token_id", -(2**31), 2**31 - 1)]

    def chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: Optional[str] = None,
        **variables: object,
    ) -> Tokens:
        """A dialogue as ids, by the model's chat template. What stands in contents is plain text:
        ``<|im_end|>`` there ends nothing.
        """
        texts = [json.dumps(list(messages)).encode(), json.dumps(variables).encode()]
        template = chat_template.encode() if chat_template is not None else None
        chat = bridge.Chat(
            messages=bridge.String(texts[0], len(texts[0])),
            variables=bridge.String(texts[1], len(texts[1])),
            chat_template=bridge.String(template, len(template or b"")),
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            add_special=2,
        )
        out = bridge.ChatText()
        self._model.call("np_chat_render", c.byref(chat), c.byref(out))
        try:
            return self._tokens(out.tokens)
        finally:
            bridge.lib.np_chat_text_free(c.byref(out))

    def _token_texts(self, ids: Iterable[int]) -> list[bytes]:
        return list(map(self._texts.__getitem__, ids)) if self.info.has_tokenizer else []


class _TokenBytes(dict[int, bytes]):
    """The bytes of each token that was asked for."""

    def __init__(self, model: Handle) -> None:
        super().__init__()
        self._model = model

    def __missing__(self, token_id: int) -> bytes:
        out, n = c.c_void_p(), c.c_size_t()
        self._model.call("np_token_bytes", token_id, c.byref(out), c.byref(n))
        found = self[token_id] = c.string_at(out, n.value) if n.value else b""
        return found
