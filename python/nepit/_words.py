"""`word_scores`: the log-probability of each word of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

import numpy as np
from numpy.typing import NDArray

from ._frames import Shown
from ._gather import Gathering
from ._requests import raw_text
from ._results import Score
from ._score import Scoring
from ._spans import Span
from ._types import Condition


@dataclass(frozen=True, eq=False, repr=False)
class Word(Shown):
    """A word of a text.

    Attributes
    ----------
    text : its bytes
    span : the tokens that touch it and their sums
    total : of the span, nats
    corrected : the total with the end of the word; None unless asked for
    """

    text: bytes
    span: Span
    total: float
    corrected: Optional[float]


class Wording(Scoring, Gathering):
    """The verb `word_scores`."""

    def word_scores(
        self,
        text: str | bytes,
        words: Iterable[tuple[int, int]],
        *,
        end_of_word: bool = False,
        condition: Optional[Condition] = None,
    ) -> list[Word]:
        """The log-probability of each word of a text.

        Parameters
        ----------
        text : str or bytes
        words : pairs (begin, end)
            Bytes of the text that are a word: the caller says what a word is ("hasn't" is one or
            two). White space before a word may belong to it or not: a token that holds both counts.
        end_of_word : bool
            Adds `corrected`. Where tokens hold the space before a word, the model says that a word
            has ended only with the token that follows. So log P(a token that begins with white
            space, or ends the text) is added at the row after a word that white space or the end
            of the text follows, and subtracted at the row before a word that white space begins:
            the probability of the space then counts for the word that it ends.
        condition
            As in `score`.

        Returns
        -------
        list of Word

        Raises
        ------
        NepitError
            As `score` and `Score.spans` do.
        """
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"text: str or bytes are expected, not {type(text).__name__}")
        raw = raw_text(text)
        score = self.score(raw, condition=condition)
        spans = score.spans(words)
        begins = self._begins(score) if end_of_word else None
        told = []
        for span in spans:
            corrected = None if begins is None else _corrected(span, score, raw, begins)
            told.append(Word(raw[span.begin : span.end], span, span.total, corrected))
        return told

    def _begins(self, score: Score) -> NDArray[np.float64]:
        """float64 [n_tokens]: log P(the token behind token i begins with white space, or ends the
        text).
        """
        ends = {self.info.eos_id}
        ids = [i for i in range(self.info.n_vocab) if self._texts[i][:1].isspace() or i in ends]
        rows = self.gather(score.token_ids, candidates=np.array(ids, np.int32)).scores
        last = self.next(score.token_ids, top=-1)  # the row behind the last token
        by_id = last.logprobs[np.argsort(last.token_ids)]
        logprobs = np.concatenate([rows, by_id[None, ids]])
        return np.asarray(np.logaddexp.reduce(logprobs.astype(np.float64), axis=1))


def _corrected(span: Span, score: Score, raw: bytes, begins: NDArray[np.float64]) -> float:
    total = span.total
    if math.isnan(total):
        return total
    assert score.offsets is not None
    token_end = int(score.offsets[span.last - 1, 1])
    if token_end == len(raw) or raw[token_end : token_end + 1].isspace():
        total += float(begins[span.last - 1])
    token_begin = int(score.offsets[span.first, 0])
    if span.first > 0 and raw[token_begin : token_begin + 1].isspace():
        total -= float(begins[span.first - 1])
    return total
