"""`compare`: one list of texts under several models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

import numpy as np
from numpy.typing import NDArray

from ._frames import Columns, Shown, Tabular, brief
from ._results import Score
from ._score import Scoring
from ._types import Condition

if TYPE_CHECKING:
    from ._native import Model

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Aligned(Shown):
    """One text under all models, in the smallest pieces that all their tokens tile.

    Attributes
    ----------
    offsets : int64 [n_pieces, 2], bytes of the text
    texts : the bytes of each piece
    totals : float64 [n_pieces, n_models], nats; NaN where a model scores no token of a piece
    """

    offsets: NDArray[np.int64]
    texts: list[bytes]
    totals: Doubles


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Tabular):
    """Texts under several models; rows are texts, columns are models.

    Attributes
    ----------
    models : names
    texts : the texts, as bytes
    scores : for each text, the Score under each model
    total : float64 [n_texts, n_models], nats
    mean : float64 [n_texts, n_models], nats per scored token
    perplexity, bits_per_byte : float64 [n_texts, n_models]
    n_scored, n_scored_bytes : int64 [n_texts, n_models]
    same_tokens : whether all models cut all texts into the same tokens
    warnings : what must not be compared

    As a table, a line per text and model: text, model, n_scored, n_scored_bytes, total, mean,
    perplexity, bits_per_byte.
    """

    models: list[str]
    texts: list[bytes]
    scores: list[list[Score]]
    total: Doubles
    mean: Doubles
    perplexity: Doubles
    bits_per_byte: Doubles
    n_scored: NDArray[np.int64]
    n_scored_bytes: NDArray[np.int64]
    same_tokens: bool
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        bits = ", ".join(
            f"{brief(name)}: {value:.4f}"
            for name, value in zip(self.models, self.all_bits_per_byte)
        )
        return f"Comparison({len(self.texts)} texts; bits per byte {{{bits}}})"

    @property
    def all_bits_per_byte(self) -> list[float]:
        """Over all texts together, for each model."""
        n = self.n_scored_bytes.sum(axis=0)
        totals = self.total.sum(axis=0)
        return [
            -t / math.log(2) / k if k else math.nan for t, k in zip(totals.tolist(), n.tolist())
        ]

    @property
    def times_likelier(self) -> Doubles:
        """float64 [n_texts, n_models]: how many times likelier than under the first model."""
        with np.errstate(over="ignore"):
            return np.exp(self.total - self.total[:, :1])

    def aligned(self, text: int = 0) -> Aligned:
        """A text in pieces of bytes that the tokens of all models tile."""
        scores, raw = self.scores[text], self.texts[text]
        cuts = set(range(len(raw) + 1))
        for score in scores:
            assert score.offsets is not None
            cuts &= {0, *score.offsets.ravel().tolist()}
        edges = sorted(cuts | {0, len(raw)})
        spans = [(begin, end) for begin, end in zip(edges, edges[1:]) if end > begin]
        columns = [[span.total for span in score.spans(spans)] for score in scores]
        totals = np.array(columns, np.float64).reshape(len(scores), len(spans)).T
        offsets = np.array(spans, np.int64).reshape(len(spans), 2)
        return Aligned(offsets, [raw[begin:end] for begin, end in spans], totals)

    def _columns(self) -> Columns:
        n_texts, n_models = self.total.shape
        names = ("n_scored", "n_scored_bytes", "total", "mean", "perplexity", "bits_per_byte")
        columns: dict[str, object] = {
            "text": [t.decode(errors="replace") for t in self.texts for _ in range(n_models)],
            "model": self.models * n_texts,
        }
        return columns | {name: getattr(self, name).ravel() for name in names}

    def _repr_html_(self) -> str:
        from . import _html

        head = ["text", *(f"{m}: {x}" for m in self.models for x in ("total", "bits/byte"))]
        rows = []
        for i, text in enumerate(self.texts[:100]):
            cells = [_html.code(text if len(text) < 200 else text[:200] + b"...")]
            for j in range(len(self.models)):
                pair = float(self.total[i, j]), float(self.bits_per_byte[i, j])
                cells += [_html.number(pair[0]), _html.number(pair[1])]
            rows.append(cells)
        return _html.table(head, rows, self.warnings)


class Comparing(Scoring):
    """The verb `compare`."""

    def compare(
        self,
        texts: Union[str, bytes, Sequence[Union[str, bytes]]],
        *others: Model,
        names: Optional[Sequence[str]] = None,
        condition: Optional[Condition] = None,
        parse_special: Optional[bool] = None,
    ) -> Comparison:
        """Texts under this model and others.

        Parameters
        ----------
        texts : str, bytes, or a sequence of them
        *others : Model
            What to compare with; with none, the texts are compared with one another.
        names : sequence of str, optional
            For the models, this one first; by default those of their files.
        condition, parse_special
            As in `score`.

        Returns
        -------
        Comparison
            `warnings` says where numbers do not compare: perplexities and means of different
            tokenizers (bits per byte do), or texts of which models score different bytes.

        Raises
        ------
        NepitError
            As `score` does.
        ValueError
            Another number of names than of models.
        """
        many = [texts] if isinstance(texts, (str, bytes)) else list(texts)
        for i, text in enumerate(many):
            if not isinstance(text, (str, bytes)):
                raise TypeError(f"texts[{i}]: str or bytes are expected, not {type(text).__name__}")
        models: list[Scoring] = [self, *others]
        for model in models:
            if not isinstance(model, Scoring):
                raise TypeError(f"others: models are expected, not {type(model).__name__}")
        told = list(names) if names is not None else _names(models)
        if len(told) != len(models):
            raise ValueError(f"{len(told)} names for {len(models)} models")
        columns = [
            model.score(many, condition=condition, parse_special=parse_special) for model in models
        ]
        scores = [list(row) for row in zip(*columns)]
        raw = [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else t for t in many]
        return _comparison(told, raw, scores)


def _names(models: Sequence[Scoring]) -> list[str]:
    """Of their files; numbered where two are alike."""
    names: list[str] = []
    for model in models:
        name = Path(model.info.path).name
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names


def _comparison(names: list[str], texts: list[bytes], scores: list[list[Score]]) -> Comparison:
    shape = (len(texts), len(names))

    def table(name: str, kind: type[np.generic]) -> NDArray[np.generic]:
        cells = [[getattr(score, name) for score in row] for row in scores]
        return np.array(cells, kind).reshape(shape)

    same = all(
        np.array_equal(score.token_ids, row[0].token_ids) and score.texts == row[0].texts
        for row in scores
        for score in row
    )
    n_bytes = table("n_scored_bytes", np.int64)
    warnings = []
    if not same:
        warnings.append(
            "the tokenizers differ: totals and bits per byte compare, perplexities and means per "
            "token do not"
        )
    if len(names) > 1 and (n_bytes != n_bytes[:, :1]).any():
        warnings.append(
            "the models score different bytes, since some have nothing before the first token: "
            'compare bits per byte, or give condition="bos"'
        )
    return Comparison(
        models=names,
        texts=texts,
        scores=scores,
        total=table("total", np.float64),  # type: ignore[arg-type]
        mean=table("mean", np.float64),  # type: ignore[arg-type]
        perplexity=table("perplexity", np.float64),  # type: ignore[arg-type]
        bits_per_byte=table("bits_per_byte", np.float64),  # type: ignore[arg-type]
        n_scored=table("n_scored", np.int64),  # type: ignore[arg-type]
        n_scored_bytes=n_bytes,  # type: ignore[arg-type]
        same_tokens=same,
        warnings=tuple(warnings),
    )
