"""Pictures for notebooks: plain HTML without scripts, readable on light and on dark pages.

Colours are translucent, so that the page's own text and ground show through.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

_STYLE = "font-family:monospace;white-space:pre-wrap;line-height:1.7"
MOST_TOKENS = 4000  # of one picture
_VISIBLE = {i: chr(0x2400 + i) for i in range(32)} | {127: "\u2421"}
_VISIBLE |= {ord("\n"): "\u21b5\n", ord("\t"): "\u2192\t"}


def _alpha(logprob: float) -> float:
    """0 for what is certain, 0.65 for what is below about -10 nats."""
    return 0.65 * (1 - math.exp(max(logprob, -1000.0) / 3))


def shown(text: bytes | str) -> str:
    """A text with its white space and controls visible and its markup harmless."""
    told = text.decode(errors="replace") if isinstance(text, bytes) else text
    return html.escape(told.translate(_VISIBLE))


def number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else html.escape(str(value))


def tokens(
    texts: Sequence[bytes], ids: Sequence[int], logprobs: Sequence[float], notes: Sequence[str]
) -> str:
    """A text, its tokens coloured by log-probability; the numbers on hover."""
    names: Sequence[bytes] = texts if texts else [f"{i} ".encode() for i in ids]
    parts = []
    for text, token, logprob, note in list(zip(names, ids, logprobs, notes))[:MOST_TOKENS]:
        ground = "rgba(128,128,128,.25)"
        if not math.isnan(logprob):
            ground = f"rgba(220,40,40,{_alpha(logprob):.2f})"
        hover = html.escape(f"{text!r} id {token}: {note}", quote=True)
        parts.append(f'<span style="background:{ground}" title="{hover}">{shown(text)}</span>')
    if len(names) > MOST_TOKENS:
        parts.append(f" \u2026 and {len(names) - MOST_TOKENS} more tokens")
    return f'<div style="{_STYLE}">{"".join(parts)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], below: Iterable[str] = ()) -> str:
    """Cells that are HTML already."""
    top = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{x}</td>" for x in row) + "</tr>" for row in rows)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in below)
    return f"<table><tr>{top}</tr>{lines}</table>{notes}"


def code(text: bytes | str) -> str:
    return f'<code style="white-space:pre">{shown(text)}</code>'
