"""The model's tokenizer with the names of transformers' interface: `LLM.get_tokenizer()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, Union

import numpy as np
from numpy.typing import NDArray

from . import _bridge as bridge
from ._text import Texts

TokenIds = Union[int, Sequence[int], NDArray[np.integer]]


class Tokenizer:
    """Text <-> ids, exactly as the model was trained with them. Any thread may use it.

    Attributes
    ----------
    name_or_path : the model's path
    vocab_size : ids are 0 to vocab_size - 1
    bos_token_id, eos_token_id, pad_token_id, unk_token_id : None where there is none
    bos_token, eos_token, pad_token, unk_token : their texts
    chat_template : Jinja, or None
    """

    def __init__(self, texts: Texts) -> None:
        if not texts.info.has_tokenizer:
            raise bridge.NepitError("EUNSUPPORTED", "the model has no tokenizer", "tokenizer")
        self._texts = texts
        self._special: dict[int, bool] = {}
        self.name_or_path = texts.info.path
        self.vocab_size = texts.info.n_vocab
        with texts._model as model:
            told = bridge.lib.np_model_tokenizer(model)
            self.bos_token, self.eos_token = _text(told.bos_token), _text(told.eos_token)
            self.pad_token, self.unk_token = _text(told.pad_token), _text(told.unk_token)
            self.chat_template = _text(told.chat_template)
        self.bos_token_id = _known(texts.info.bos_id)
        self.eos_token_id = _known(texts.info.eos_id)
        self.pad_token_id, self.unk_token_id = self._id(self.pad_token), self._id(self.unk_token)
        self.is_fast = True

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"<nepit.Tokenizer of {self.name_or_path}: {self.vocab_size} tokens>"

    @property
    def max_token_id(self) -> int:
        """The highest id."""
        return self.vocab_size - 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; BOS and EOS as the tokenizer adds them, unless told not to."""
        ids: list[int] = self._texts.tokenize(
            text, add_special=add_special_tokens
        ).token_ids.tolist()
        return ids

    def __call__(
        self, text: Union[str, Sequence[str]], *, add_special_tokens: bool = True
    ) -> dict[str, Union[list[int], list[list[int]]]]:
        """`input_ids` and `attention_mask` of a text, or lists of them; nothing is padded."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens=add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        many = [self.encode(one, add_special_tokens=add_special_tokens) for one in text]
        return {"input_ids": many, "attention_mask": [[1] * len(ids) for ids in many]}

    def decode(self, token_ids: TokenIds, *, skip_special_tokens: bool = False) -> str:
        """The text of ids; what is no whole character becomes U+FFFD. Nothing is cleaned up."""
        ids = [int(token) for token in np.atleast_1d(np.asarray(token_ids, np.int64)).tolist()]
        if skip_special_tokens:
            ids = [token for token in ids if not self._is_special(token)]
        return self._texts.detokenize(ids).decode(errors="replace") if ids else ""

    def batch_decode(
        self, sequences: Iterable[TokenIds], *, skip_special_tokens: bool = False
    ) -> list[str]:
        """`decode` of each."""
        return [self.decode(ids, skip_special_tokens=skip_special_tokens) for ids in sequences]

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, object]],
        tools: Optional[Sequence[object]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **variables: object,
    ) -> Union[list[int], str]:
        """A dialogue as ids, or (tokenize=False) as text. What stands in contents is plain text:
        ``<|im_end|>`` there ends nothing.
        """
        if tools:
            variables["tools"] = tools
        told = self._texts.chat(
            conversation,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            chat_template=chat_template,
            **variables,
        )
        if not tokenize:
            return b"".join(told.texts).decode(errors="replace")
        ids: list[int] = told.token_ids.tolist()
        return ids

    def _id(self, text: Optional[str]) -> Optional[int]:
        """The id of a special token's text."""
        if text is None:
            return None
        ids = self.encode(text, add_special_tokens=False)
        return ids[0] if len(ids) == 1 else None

    def _is_special(self, token: int) -> bool:
        """Special tokens are those that a text makes only where it may name them."""
        if token not in self._special:
            text = self._texts.token_bytes(token)
            named, plain = (
                self._texts.tokenize(text, add_special=False, parse_special=parse).token_ids
                for parse in (True, False)
            )
            self._special[token] = named.tolist() == [token] and plain.tolist() != [token]
        return self._special[token]


def _known(token: int) -> Optional[int]:
    return token if token >= 0 else None


def _text(raw: Optional[bytes]) -> Optional[str]:
    return None if raw is None else bridge.text_of(raw)
