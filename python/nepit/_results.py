"""What the native calls answer: frozen dataclasses over C's arrays.

Arrays are views of the memory of an answer and read-only; they keep it alive. Log-probabilities are
in nats, float32; position i of a per-token array belongs to token i.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import pyarrow

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A text as ids.

    Attributes
    ----------
    token_ids : int32 [n_tokens]
    texts : bytes of each token; a token may hold a part of a character
    offsets : int64 [n_tokens, 2], the bytes [begin, end) of the text that each token covers
    """

    token_ids: Ids
    texts: list[bytes]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False)
class Score:
    """The log-probability of every token of a text.

    Attributes
    ----------
    token_ids : int32 [n_tokens]
    texts : bytes of each token ([] for a model without a tokenizer)
    offsets : int64 [n_tokens, 2], bytes of the text; None where ids were given
    logprobs : float32 [n_tokens]; NaN where no row scored the token, so for the first one
    ranks : int32 [n_tokens]; 1 is the likeliest, 0 where nothing was scored
    start : first row; row r scores token r+1
    entropies : float32 [n_rows], None unless asked for
    top_ids, top_logprobs : [n_rows, top] by rank, None unless asked for
    mass : float32 [n_rows], log of the probability beside the top tokens, None unless asked for
    n_computed : tokens that went through the model; the rest was shared or cached
    """

    token_ids: Ids
    texts: list[bytes]
    offsets: Optional[NDArray[np.int64]]
    logprobs: Floats
    ranks: Ids
    start: int
    entropies: Optional[Floats]
    top_ids: Optional[Ids]
    top_logprobs: Optional[Floats]
    mass: Optional[Floats]
    n_computed: int

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def scored(self) -> Floats:
        """float32 [n_rows]: the values of the scored tokens alone."""
        return self.logprobs[self.start + 1 :]

    @property
    def n_scored(self) -> int:
        return len(self.scored)

    @property
    def n_scored_bytes(self) -> int:
        """Bytes of the scored tokens."""
        return sum(len(text) for text in self.texts[self.start + 1 :])

    @property
    def total(self) -> float:
        """Sum in nats, added in order in float64."""
        return float(sum(self.scored.tolist()))

    @property
    def mean(self) -> float:
        """Mean in nats per scored token; NaN where nothing is scored."""
        return self.total / self.n_scored if self.n_scored else math.nan

    @property
    def perplexity(self) -> float:
        return math.exp(-self.mean) if self.n_scored else math.nan

    @property
    def bits_per_byte(self) -> float:
        n = self.n_scored_bytes
        return -self.total / math.log(2) / n if n else math.nan

    def _repr_html_(self) -> str:
        from . import _html

        return _html.tokens(self.texts, self.token_ids, self.logprobs, self.ranks)

    def to_pandas(self) -> pandas.DataFrame:
        """One line per token: token_id, text, begin, end, logprob, rank."""
        import pandas

        return pandas.DataFrame(self._columns())

    def to_arrow(self) -> pyarrow.Table:
        """The same as an Arrow table."""
        import pyarrow

        return pyarrow.table(self._columns())

    def _columns(self) -> dict[str, object]:
        columns: dict[str, object] = {"token_id": self.token_ids}
        if self.texts:
            columns["text"] = [text.decode(errors="replace") for text in self.texts]
        if self.offsets is not None:
            columns["begin"], columns["end"] = self.offsets[:, 0], self.offsets[:, 1]
        columns["logprob"], columns["rank"] = self.logprobs, self.ranks
        return columns

    def plot(self, ax: Optional[matplotlib.axes.Axes] = None) -> matplotlib.axes.Axes:
        """Log-probabilities along the text (needs matplotlib)."""
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots(figsize=(max(4, len(self) / 4), 3))[1]
        ax.bar(np.arange(len(self)), np.nan_to_num(self.logprobs))
        labels = [text.decode(errors="replace") for text in self.texts]
        ax.set_xticks(np.arange(len(labels)), labels, rotation=90)
        ax.set_ylabel("log-probability (nats)")
        return ax


@dataclass(frozen=True, eq=False)
class Gathered:
    """Scores of candidates.

    Attributes
    ----------
    scores : float32 [n_rows, n_candidates], in the order asked; padding is -inf
    token_ids : int32 [n_tokens] of the whole sequence
    start : first row; row j of the array scores token start+j+1
    tail : float32 [n_rows], log of the probability beside the candidates, None unless asked for
    """

    scores: Floats
    token_ids: Ids
    start: int
    tail: Optional[Floats]
    n_computed: int

    def __array__(
        self, dtype: Optional[np.dtype[np.generic]] = None, copy: Optional[bool] = None
    ) -> NDArray[np.generic]:
        found = self.scores if dtype is None else self.scores.astype(dtype)
        return found.copy() if copy else found


@dataclass(frozen=True, eq=False)
class Next:
    """The likeliest next tokens.

    Attributes
    ----------
    token_ids : int32 [top] by rank
    texts : bytes of each
    logprobs : float32 [top]
    entropy : of the whole distribution, nats
    mass : log of the probability of everything that is not listed
    """

    token_ids: Ids
    texts: list[bytes]
    logprobs: Floats
    entropy: float
    mass: float
    n_computed: int

    @property
    def probabilities(self) -> NDArray[np.float64]:
        return np.exp(self.logprobs.astype(np.float64))

    def __iter__(self) -> Iterator[tuple[int, bytes, float]]:
        return iter(zip(self.token_ids.tolist(), self.texts, self.logprobs.tolist()))

    def _repr_html_(self) -> str:
        from . import _html

        return _html.table(self.texts, self.token_ids, self.logprobs)


@dataclass(frozen=True, eq=False)
class Option:
    """One option of `choose`; sums over its tokens, in nats.

    Attributes
    ----------
    text : the option; of ids, what they decode to
    total : log-probability of the whole option; of several spellings, of any of them
    mean, per_byte, per_character : total per token, byte and character
    calibrated : total minus the total after the neutral context; None without one
    probability : exp(total), shared out among the options: they add up to 1
    token_ids : int32, the tokens that are summed
    straddles : whether the first of them begins in the context
    greedy : whether each of them is the likeliest token in its place
    spellings : the options that were added up; () where there is one
    """

    text: str
    total: float
    mean: float
    per_byte: float
    per_character: float
    calibrated: Optional[float]
    token_ids: Ids
    probability: float
    straddles: bool
    greedy: bool
    spellings: tuple[Option, ...]

    @property
    def n_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False)
class Choice:
    """The options of a context and the winner by one rule.

    Attributes
    ----------
    options : in the order asked
    best : place of the winner
    by : the rule
    encoded : "together", where context and option were one text, else "separately"
    warnings : what about the context makes the numbers doubtful
    """

    options: list[Option]
    best: int
    by: str
    encoded: str
    warnings: tuple[str, ...]

    @property
    def winner(self) -> str:
        """The text of the winner."""
        return self.options[self.best].text


@dataclass(frozen=True, eq=False)
class Perplexity:
    """Sums over a document; `total` in nats."""

    total: float
    perplexity: float
    bits_per_byte: float
    n_tokens: int
    n_scored: int
    n_bytes: int
    n_scored_bytes: int
    n_windows: int
    n_computed: int
    window: int
    stride: int
    has_bos: bool


@dataclass(frozen=True, eq=False)
class Generation:
    """One text that follows a prompt.

    Attributes
    ----------
    text : str; bytes that are no UTF-8 are U+FFFD
    token_ids : int32 [n_tokens]
    logprobs, ranks : [n_tokens]; None unless `top` was given
    top_ids, top_logprobs : [n_tokens, top]; None unless asked for
    scores : float32 [n_tokens, K] of the candidates; None unless asked for
    finish_reason : "length" or "stop"
    stop_reason : the stop text or token id that ended it, else None
    seed : that it was drawn with
    """

    text: str
    token_ids: Ids
    logprobs: Optional[Floats]
    ranks: Optional[Ids]
    top_ids: Optional[Ids]
    top_logprobs: Optional[Floats]
    scores: Optional[Floats]
    finish_reason: str
    stop_reason: Union[int, str, None]
    seed: int
