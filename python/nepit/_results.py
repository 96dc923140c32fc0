"""What the native calls answer: frozen dataclasses over C's arrays.

Arrays are views of the memory of an answer and read-only; they keep it alive. Log-probabilities are
in nats, float32; position i of a per-token array belongs to token i.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

import numpy as np
from numpy.typing import NDArray

from ._frames import Columns, Shown, Tabular, axes_of, brief, decoded
from ._spans import Span, offsets_of_texts, spans_of

if TYPE_CHECKING:
    import matplotlib.axes

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class Tokens(Tabular):
    """A text as ids.

    Attributes
    ----------
    token_ids : int32 [n_tokens]
    texts : bytes of each token; a token may hold a part of a character
    offsets : int64 [n_tokens, 2], the bytes [begin, end) of the text that each token covers; an
        added special token covers none

    As a table: token_id, text, begin, end.
    """

    token_ids: Ids
    texts: list[bytes]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.token_ids)

    def _columns(self) -> Columns:
        begin, end = self.offsets[:, 0], self.offsets[:, 1]
        return {"token_id": self.token_ids, "text": decoded(self.texts), "begin": begin, "end": end}


@dataclass(frozen=True, eq=False, repr=False)
class Score(Tabular):
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

    As a table, a line per token: token_id, text, begin, end, logprob, rank, and entropy where it
    was asked for.
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

    def __repr__(self) -> str:
        return (
            f"Score({len(self)} tokens, {self.n_scored} scored: total={self.total:.6g} nats, "
            f"perplexity={self.perplexity:.6g})"
        )

    @property
    def scored(self) -> Floats:
        """float32 [n_scored]: the values of the scored tokens alone."""
        return self.logprobs[self.start + 1 :]

    @property
    def n_scored(self) -> int:
        """Tokens that a row scored."""
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
        """exp(-mean); compares texts of one tokenizer only. NaN where nothing is scored."""
        with np.errstate(over="ignore"):
            return float(np.exp(-self.mean))

    @property
    def bits_per_byte(self) -> float:
        """-total / ln 2 per scored byte; compares models of any tokenizers."""
        n = self.n_scored_bytes
        return -self.total / math.log(2) / n if n else math.nan

    def spans(self, spans: Iterable[tuple[int, int]]) -> list[Span]:
        """Sums over spans of bytes: words, fields, sentences.

        Parameters
        ----------
        spans : pairs (begin, end) of bytes of the text; where ids were given, of the bytes that
            they stand for. Nothing is shifted: a span's tokens are those that touch its bytes.

        Returns
        -------
        list of Span
            Their `straddles_begin` and `straddles_end` say where a token reaches out of a span.

        Raises
        ------
        NepitError
            EINPUT: a span that is empty or reaches out of the text.
        ValueError
            The model has no tokenizer, so that tokens have no bytes.
        """
        if self.offsets is None and not self.texts:
            raise ValueError("a model without a tokenizer has no bytes for its tokens")
        offsets = offsets_of_texts(self.texts) if self.offsets is None else self.offsets
        return spans_of(spans, offsets, self.logprobs)

    def _notes(self) -> list[str]:
        notes = []
        entropies = [] if self.entropies is None else self.entropies.tolist()
        for i, (logprob, rank) in enumerate(zip(self.logprobs.tolist(), self.ranks.tolist())):
            row = i - self.start - 1
            note = "not scored" if math.isnan(logprob) else f"{logprob:.4f} nats, rank {rank}"
            if logprob <= 0:
                note += f", p {math.exp(logprob):.4g}"
            if 0 <= row < len(entropies):
                note += f", entropy {entropies[row]:.4f}"
            notes.append(note)
        return notes

    def _repr_html_(self) -> str:
        from . import _html

        return _html.tokens(
            self.texts, self.token_ids.tolist(), self.logprobs.tolist(), self._notes()
        )

    def _columns(self) -> Columns:
        columns: dict[str, object] = {"token_id": self.token_ids}
        if self.texts:
            columns["text"] = decoded(self.texts)
        if self.offsets is not None:
            columns["begin"], columns["end"] = self.offsets[:, 0], self.offsets[:, 1]
        columns["logprob"], columns["rank"] = self.logprobs, self.ranks
        if self.entropies is not None:
            entropies = np.full(len(self), np.nan, np.float32)
            rows = self.entropies[: self.n_scored]
            entropies[self.start + 1 : self.start + 1 + len(rows)] = rows
            columns["entropy"] = entropies
        return columns

    def plot(self, ax: Optional[matplotlib.axes.Axes] = None) -> matplotlib.axes.Axes:
        """Log-probabilities along the text, nats (needs matplotlib: `nepit[plot]`)."""
        axes = axes_of(ax, len(self) / 4)
        axes.bar(np.arange(len(self)), np.nan_to_num(self.logprobs, neginf=0.0))
        axes.set_xticks(np.arange(len(self.texts)), decoded(self.texts), rotation=90)
        axes.set_ylabel("log-probability (nats)")
        return axes


@dataclass(frozen=True, eq=False, repr=False)
class Gathered(Tabular):
    """Scores of candidates; `np.asarray` of it is `scores`.

    Attributes
    ----------
    scores : float32 [n_rows, K], in the order asked; padding is -inf
    token_ids : int32 [n_tokens] of the whole sequence
    candidate_ids : int32 [K], or [n_rows, K] with -1 as padding, as they were asked
    start : first row; row j of the array scores token start+j+1
    tail : float32 [n_rows], log of the probability beside the candidates, None unless asked for
    n_computed : tokens that went through the model; the rest was shared or cached

    As a table, a line per cell: row, token_id (that the row scores), candidate_id, logprob.
    """

    scores: Floats
    token_ids: Ids
    candidate_ids: Ids
    start: int
    tail: Optional[Floats]
    n_computed: int

    def __len__(self) -> int:
        return len(self.scores)

    def __array__(
        self, dtype: Optional[np.dtype[np.generic]] = None, copy: Optional[bool] = None
    ) -> NDArray[np.generic]:
        if copy is False and dtype is not None and dtype != self.scores.dtype:
            raise ValueError(f"scores are float32: as {dtype} they are a copy")
        found = self.scores if dtype is None else self.scores.astype(dtype, copy=False)
        return found.copy() if copy else found

    @property
    def row_token_ids(self) -> Ids:
        """int32 [n_rows]: the token that each row scores."""
        return self.token_ids[self.start + 1 : self.start + 1 + len(self.scores)]

    def _columns(self) -> Columns:
        n_rows, width = self.scores.shape
        candidates = np.broadcast_to(self.candidate_ids, (n_rows, width))
        cells = candidates.ravel() >= 0
        rows = np.arange(self.start, self.start + n_rows)
        return {
            "row": np.repeat(rows, width)[cells],
            "token_id": np.repeat(self.row_token_ids, width)[cells],
            "candidate_id": candidates.ravel()[cells],
            "logprob": self.scores.ravel()[cells],
        }

    def _repr_html_(self) -> str:
        from . import _html

        n_rows, width = min(len(self), 50), min(self.scores.shape[1], 20)
        ids = np.broadcast_to(self.candidate_ids, self.scores.shape)
        flat = self.candidate_ids.ndim == 1
        head = ["row", "token"] + [
            str(ids[0, k]) if flat and len(self) else "" for k in range(width)
        ]
        rows = [
            [str(self.start + j), str(self.row_token_ids[j])]
            + [
                _html.number(float(self.scores[j, k])) + ("" if flat else f" ({ids[j, k]})")
                for k in range(width)
            ]
            for j in range(n_rows)
        ]
        cut = f"{self.scores.shape[0]} rows, {self.scores.shape[1]} candidates"
        return _html.table(head, rows, [] if (n_rows, width) == self.scores.shape else [cut])

    def plot(self, ax: Optional[matplotlib.axes.Axes] = None) -> matplotlib.axes.Axes:
        """A map of rows by candidates, nats (needs matplotlib: `nepit[plot]`)."""
        axes = axes_of(ax, self.scores.shape[1] / 4, max(3.0, len(self) / 6))
        finite = np.where(np.isfinite(self.scores), self.scores, np.nan)
        axes.imshow(finite, aspect="auto", interpolation="nearest")
        axes.set_xlabel("candidate")
        axes.set_ylabel("row")
        return axes


@dataclass(frozen=True, eq=False, repr=False)
class Next(Tabular):
    """The likeliest next tokens; iterating gives (token_id, text, logprob).

    Attributes
    ----------
    token_ids : int32 [top] by rank
    texts : bytes of each
    logprobs : float32 [top]
    entropy : of the whole distribution, nats
    mass : log of the probability of everything that is not listed
    n_computed : tokens that went through the model; the rest was shared or cached

    As a table, a line per token: rank, token_id, text, logprob, probability.
    """

    token_ids: Ids
    texts: list[bytes]
    logprobs: Floats
    entropy: float
    mass: float
    n_computed: int

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [top]: exp of the log-probabilities."""
        return np.exp(self.logprobs.astype(np.float64))

    def __len__(self) -> int:
        return len(self.token_ids)

    def __iter__(self) -> Iterator[tuple[int, bytes, float]]:
        texts = self.texts or [b""] * len(self)
        return iter(list(zip(self.token_ids.tolist(), texts, self.logprobs.tolist())))

    def __repr__(self) -> str:
        listed = ", ".join(f"{text!r}: {logprob:.4f}" for _, text, logprob in list(self)[:4])
        more = ", ..." if len(self) > 4 else ""
        return f"Next({listed}{more}; entropy={self.entropy:.4f}, mass={self.mass:.4f})"

    def _columns(self) -> Columns:
        columns: dict[str, object] = {"rank": np.arange(1, len(self) + 1)}
        columns["token_id"] = self.token_ids
        if self.texts:
            columns["text"] = decoded(self.texts)
        columns["logprob"], columns["probability"] = self.logprobs, self.probabilities
        return columns

    def _repr_html_(self) -> str:
        from . import _html

        rows = [
            [str(rank), str(token), _html.code(text), _html.number(logprob), f"{p:.4f}"]
            for rank, ((token, text, logprob), p) in enumerate(zip(self, self.probabilities), 1)
        ]
        below = [f"entropy {self.entropy:.4f} nats; not listed: p {math.exp(self.mass):.4f}"]
        return _html.table(["rank", "id", "token", "log-probability", "p"], rows, below)

    def plot(self, ax: Optional[matplotlib.axes.Axes] = None) -> matplotlib.axes.Axes:
        """Probabilities by rank (needs matplotlib: `nepit[plot]`)."""
        axes = axes_of(ax, len(self) / 3)
        axes.bar(np.arange(len(self)), self.probabilities)
        axes.set_xticks(np.arange(len(self.texts)), decoded(self.texts), rotation=90)
        axes.set_ylabel("probability")
        return axes


@dataclass(frozen=True, eq=False, repr=False)
class Option(Shown):
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
        """Tokens that are summed."""
        return len(self.token_ids)


_RULES = ("total", "mean", "per_byte", "per_character", "calibrated", "probability")


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Tabular):
    """The options of a context and the winner by one rule.

    Attributes
    ----------
    options : in the order asked
    best : place of the winner
    by : the rule
    encoded : "together", where context and option were one text, else "separately"
    warnings : what about the context makes the numbers doubtful

    As a table, a line per option: text, n_tokens, total, mean, per_byte, per_character,
    calibrated, probability, best.
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

    def __repr__(self) -> str:
        shares = ", ".join(f"{brief(x.text)}: {x.probability:.4f}" for x in self.options[:6])
        return f"Choice({self.winner!r} by {self.by}; probability {{{shares}}})"

    def _columns(self) -> Columns:
        columns: dict[str, object] = {"text": [x.text for x in self.options]}
        columns["n_tokens"] = [x.n_tokens for x in self.options]
        for name in _RULES:
            columns[name] = [getattr(x, name) for x in self.options]
        columns["best"] = [i == self.best for i in range(len(self.options))]
        return columns

    def _repr_html_(self) -> str:
        from . import _html

        rows = []
        for i, option in enumerate(self.options):
            values = [getattr(option, name) for name in _RULES]
            cells = [_html.code(option.text), str(option.n_tokens)]
            cells += ["" if x is None else _html.number(x) for x in values]
            rows.append([f"<b>{cell}</b>" if i == self.best else cell for cell in cells])
        below = [f"best by {self.by}, encoded {self.encoded}", *self.warnings]
        return _html.table(["option", "tokens", *_RULES], rows, below)

    def plot(self, ax: Optional[matplotlib.axes.Axes] = None) -> matplotlib.axes.Axes:
        """Probabilities of the options (needs matplotlib: `nepit[plot]`)."""
        axes = axes_of(ax, 5, max(2.0, len(self.options) / 3))
        axes.barh([x.text for x in self.options], [x.probability for x in self.options])
        axes.invert_yaxis()
        axes.set_xlabel("probability")
        return axes


@dataclass(frozen=True, eq=False, repr=False)
class Perplexity(Shown):
    """Sums over a document.

    Attributes
    ----------
    total : nats
    perplexity : exp(-total / n_scored); compares models of one tokenizer only
    bits_per_byte : -total / ln 2 / n_scored_bytes; compares models of any tokenizers
    n_tokens, n_scored, n_bytes, n_scored_bytes : of the document, and of the tokens with a score
    n_windows, window, stride : how it was cut; rows
    n_computed : tokens that went through the model
    has_bos : whether BOS is the first token
    """

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


@dataclass(frozen=True, eq=False, repr=False)
class Generation(Tabular):
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

    As a table, a line per token: token_id, and logprob, rank where there are any.
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

    def __len__(self) -> int:
        return len(self.token_ids)

    def _columns(self) -> Columns:
        columns: dict[str, object] = {"token_id": self.token_ids}
        if self.logprobs is not None and self.ranks is not None:
            columns["logprob"], columns["rank"] = self.logprobs, self.ranks
        return columns
