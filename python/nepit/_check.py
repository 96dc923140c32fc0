"""`check`: whether another tokenizer gives the same ids as a model's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional, Protocol, Union, cast

from ._bridge import NepitError
from ._frames import Shown
from ._native import Model
from ._results import Tokens


class Tokenizer(Protocol):
    """transformers' and tokenizers' tokenizers: `encode` gives ids, or an object with them."""

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> object: ...


# Where tokenizers go apart: white space, case, digits, contractions, scripts, marks, emoji,
# controls, markers, and what HTML, code and chats hold.
NASTY = (
    "Hello world",
    " leading",
    "trailing ",
    "  two  spaces   three ",
    "\n",
    "\n\n\n",
    "a\n b\n\n  c\t\td \r\n e",
    "\u00a0no-break\u00a0space\u2003em\u3000wide",
    "don't DON'T it's we'll I'VE 'tis o\u2019clock",
    "1 12 123 1234 12345 1,234.5678 0x1F 3.14e-10 \u0663\u0664\u0665 \u00bd\u00b2",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5 A\u030a \ufb01 \u1e9e\u00df",
    "Stra\u00dfe \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u05e9\u05dc\u05d5\u05dd \u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0e44\u0e17\u0e22",
    "\U0001f600\U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea",
    "zero\u200bwidth\u200djoin\ufeffbom \u202eright\u202c",
    "\x01\x02\x1b[0m\x7f\x85",
    "!!!???... --- *** ### ((([[{{}}]])))",
    "def f(x):\n    return x ** 2  # \u03bb\n\tif not x: pass\n",
    '<p class="a">&amp; &lt;b&gt;</p> {"k": [1, 2.0, null]}',
    "https://example.org/a_b?c=%20&d=e#f user@example.org",
    "<|endoftext|> <|im_start|>user<|im_end|> <s></s> <unk> [INST] <pad>",
    "camelCaseHTTPServer snake_case_2 SCREAMING kebab-case",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\u0929\u093c \u1100\u1161\u11a8 \u0f73 \u0344",
    "x\u0300\u0301\u0302\u0303\u0304y",
    "",
)


@dataclass(frozen=True, eq=False, repr=False)
class Mismatch(Shown):
    """A text of which the ids differ.

    Attributes
    ----------
    text : the text
    add_special : whether special tokens were asked for
    ours, theirs : ids; `ours` is None where the model refuses the text
    token : place of the first id that differs
    offset : byte of the text where that token begins, -1 where `ours` is None
    why : the model's refusal, or ""
    """

    text: str
    add_special: bool
    ours: Optional[list[int]]
    theirs: list[int]
    token: int
    offset: int
    why: str


@dataclass(frozen=True, eq=False, repr=False)
class Check(Shown):
    """Whether two tokenizers agree; true where they do.

    Attributes
    ----------
    n_texts : texts that were encoded, with and without special tokens each
    n_different : how many of these encodings differ
    first : the first of them, None where there is none
    """

    n_texts: int
    n_different: int
    first: Optional[Mismatch]

    def __bool__(self) -> bool:
        return self.first is None


def check(
    model: Model, tokenizer: Tokenizer, texts: Optional[Iterable[Union[str, bytes]]] = None
) -> Check:
    """Whether a transformers or tokenizers tokenizer gives the same ids as the model's own.

    Neither package is imported: whatever has their `encode` will do.

    Parameters
    ----------
    model : Model
    tokenizer : what is loaded from the `tokenizer.json` that a trainer uses
    texts : str, optional
        To be looked at beside about 30 texts on which tokenizers go apart.

    Returns
    -------
    Check
        True where all ids agree; else `first` tells the text, both lists and where they part.

    Raises
    ------
    NepitError
        EUNSUPPORTED: the model has no tokenizer.
    """
    if isinstance(texts, (str, bytes)):
        texts = [texts]
    if not model.info.has_tokenizer:
        raise NepitError("EUNSUPPORTED", "this model has no tokenizer", "model")
    n_texts, found = 0, []
    for text in (*NASTY, *(texts or ())):
        if isinstance(text, bytes):
            text = text.decode()
        n_texts += 1
        found += [x for x in (_compared(model, tokenizer, text, s) for s in (False, True)) if x]
    return Check(n_texts, len(found), found[0] if found else None)


def _ids(encoded: object) -> list[int]:
    """transformers gives the list, tokenizers an object that holds it."""
    ids = cast("Iterable[int]", getattr(encoded, "ids", encoded))
    return [int(i) for i in ids]


def _compared(model: Model, tokenizer: Tokenizer, text: str, special: bool) -> Optional[Mismatch]:
    theirs = _ids(tokenizer.encode(text, add_special_tokens=special))
    try:
        tokens: Tokens = model.tokenize(text, add_special=special)
    except NepitError as error:
        return Mismatch(text, special, None, theirs, 0, -1, str(error))
    ours = tokens.token_ids.tolist()
    if ours == theirs:
        return None
    pairs = zip(ours, theirs)
    shorter = min(len(ours), len(theirs))
    token = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    n_bytes = len(text.encode())
    offset = int(tokens.offsets[token, 0]) if token < len(ours) else n_bytes
    return Mismatch(text, special, ours, theirs, token, offset, "")
