"""Text <-> ids of an open model."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, Union

from . import _arrays as arrays
from . import _bridge as bridge
from ._info import info_of
from ._requests import Prompt, choice
from ._results import Tokens


class Texts:
    """The part of a model that knows no weights."""

    def _begin_texts(self, model: bridge.Handle) -> None:
        self._model = model
        self.info = info_of(bridge.lib.np_model_info(model.pointer))
        self._texts: dict[int, bytes] = {}

    def tokenize(
        self,
        text: Union[str, bytes],
        *,
        add_special: Optional[bool] = None,
        parse_special: Optional[bool] = None,
    ) -> Tokens:
        """A text as ids, exactly as the model's own tokenizer makes them.

        Parameters
        ----------
        text : str, or bytes that need not be UTF-8
        add_special : BOS and EOS as the tokenizer adds them (None, True) or none (False)
        parse_special : whether "<|im_end|>" in the text is that token (None, True) or plain text
        """
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        tokens = bridge.Tokens()
        bridge.call(
            "np_tokenize",
            self._model.pointer,
            raw,
            len(raw),
            choice(add_special),
            choice(parse_special),
            c.byref(tokens),
        )
        try:
            n = tokens.n_tokens
            ids = arrays.copied_ints(tokens.token_ids, n)
            spans = arrays.spans(tokens.begin, tokens.end, n)
        finally:
            bridge.lib.np_tokens_free(c.byref(tokens))
        return Tokens(ids, [self.token_bytes(i) for i in ids.tolist()], spans)

    def detokenize(self, token_ids: Prompt) -> bytes:
        """The bytes of a sequence of ids; special tokens are their texts."""
        ids = arrays.ids_array(token_ids, "token_ids")
        out, n = c.c_void_p(), c.c_size_t()
        bridge.call(
            "np_detokenize",
            self._model.pointer,
            ids.ctypes.data,
            len(ids),
            c.byref(out),
            c.byref(n),
        )
        try:
            return c.string_at(out, n.value)
        finally:
            bridge.lib.np_free(out)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; they may be a part of a character."""
        if token_id not in self._texts:
            out, n = c.c_void_p(), c.c_size_t()
            bridge.call("np_token_bytes", self._model.pointer, token_id, c.byref(out), c.byref(n))
            self._texts[token_id] = c.string_at(out, n.value) if n.value else b""
        return self._texts[token_id]

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
        "<|im_end|>" there ends nothing.
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
        bridge.call("np_chat_render", self._model.pointer, c.byref(chat), c.byref(out))
        try:
            n = out.tokens.n_tokens
            ids = arrays.copied_ints(out.tokens.token_ids, n)
            spans = arrays.spans(out.tokens.begin, out.tokens.end, n)
        finally:
            bridge.lib.np_chat_text_free(c.byref(out))
        return Tokens(ids, [self.token_bytes(i) for i in ids.tolist()], spans)

    def _token_texts(self, ids: Iterable[int]) -> list[bytes]:
        return [self.token_bytes(i) for i in ids] if self.info.has_tokenizer else []
