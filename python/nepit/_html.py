"""Pictures of texts for notebooks: plain HTML without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

_STYLE = "font-family:monospace;white-space:pre-wrap;line-height:1.7"


def _colour(logprob: float) -> str:
    """White for certain tokens, red for those below about -10 nats."""
    if math.isnan(logprob):
        return "#eeeeee"
    shade = round(255 * math.exp(logprob / 4)) if logprob > -1000 else 0
    return f"#ff{shade:02x}{shade:02x}"


def _shown(text: bytes) -> str:
    return html.escape(text.decode(errors="replace")).replace("\n", "\u21b5\n")


def tokens(
    texts: Sequence[bytes],
    ids: NDArray[np.int32],
    logprobs: NDArray[np.float32],
    ranks: NDArray[np.int32],
) -> str:
    """A text, its tokens coloured by log-probability; the numbers on hover."""
    shown: Iterable[bytes] = texts if texts else [str(i).encode() + b" " for i in ids.tolist()]
    parts = []
    for text, token, logprob, rank in zip(shown, ids.tolist(), logprobs.tolist(), ranks.tolist()):
        number = "not scored" if math.isnan(logprob) else f"{logprob:.4f} nats, rank {rank}"
        parts.append(
            f'<span style="background:{_colour(logprob)};color:#000" '
            f'title="id {token}: {number}">{_shown(text)}</span>'
        )
    return f'<div style="{_STYLE}">{"".join(parts)}</div>'


def table(texts: Sequence[bytes], ids: NDArray[np.int32], logprobs: NDArray[np.float32]) -> str:
    """Tokens, one per line, with their probabilities."""
    lines = [
        f"<tr><td>{rank}</td><td>{token}</td><td><code>{_shown(text)}</code></td>"
        f"<td>{logprob:.4f}</td><td>{math.exp(logprob):.4f}</td></tr>"
        for rank, (token, text, logprob) in enumerate(
            zip(ids.tolist(), texts, logprobs.tolist()), start=1
        )
    ]
    head = "<tr><th>rank</th><th>id</th><th>token</th><th>log-probability</th><th>p</th></tr>"
    return f"<table>{head}{''.join(lines)}</table>"
