"""Parts of answers that the native interface and vLLM's shapes have in common."""

from __future__ import annotations

import ctypes as c
from typing import Union

from . import _arrays as arrays
from . import _bridge as bridge
from ._requests import Drawing
from ._results import Generation

FINISHES = {0: "length", 1: "length", 2: "stop", 3: "stop"}


def text_bytes(raw: bridge.Generated) -> bytes:
    """What a choice's tokens are as text."""
    return c.string_at(raw.text, raw.n_text_bytes) if raw.text else b""


def stop_reason(raw: bridge.Generated, drawing: Drawing) -> Union[int, str, None]:
    """The stop text or token id that ended a choice; None where EOS or the length did."""
    if raw.finish == 3:
        text: str = drawing.stop[int(raw.stop_index)]
        return text
    last: int | None = raw.token_ids[raw.n_tokens - 1] if raw.n_tokens else None
    return last if raw.finish == 2 and last in drawing.stop_token_ids else None


def generation_of(owner: object, raw: bridge.Generated, drawing: Drawing) -> Generation:
    """One choice of an answer."""
    n, top = (raw.n_tokens,), (raw.n_tokens, raw.n_top)
    text = text_bytes(raw)
    return Generation(
        text=text.decode(errors="replace"),
        token_ids=arrays.ints(owner, raw.token_ids, n),
        logprobs=arrays.maybe_floats(owner, raw.logprobs, n),
        ranks=arrays.maybe_ints(owner, raw.ranks, n),
        top_ids=arrays.maybe_ints(owner, raw.top_ids, top),
        top_logprobs=arrays.maybe_floats(owner, raw.top_logprobs, top),
        scores=arrays.maybe_floats(owner, raw.scores, (raw.n_tokens, raw.n_candidates)),
        finish_reason=FINISHES[raw.finish],
        stop_reason=stop_reason(raw, drawing),
        seed=raw.seed,
    )
