"""What an evaluation harness asks of a model, apart from the harness: pairs of a context and what
follows it, texts that run up to a stop, and dialogues as texts.
"""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Optional

import numpy as np

from . import _arrays as arrays
from . import _bridge as bridge
from . import _parts as parts
from ._native import Model
from ._requests import Batch, Drawing

Ids = Sequence[int]
CHUNK_TOKENS = 16384  # handed over together; no number depends on it


def chunks(lengths: Sequence[int]) -> Iterator[slice]:
    """Neighbours that are handed over together, by the number of tokens of each."""
    first = n = 0
    for i, length in enumerate(lengths):
        if n and n + length > CHUNK_TOKENS:
            yield slice(first, i)
            first, n = i, 0
        n += length
    if lengths:
        yield slice(first, len(lengths))


def follow(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> list[tuple[float, bool]]:
    """How likely each continuation is after its context.

    Parameters
    ----------
    pairs : (context, continuation) as ids, neither empty; together at most one token longer than
        the model's context, since nothing is asked of the last token's row

    Returns
    -------
    list of (total, greedy)
        The sum of the continuation's log-probabilities (nats; float32, added in order in float64),
        and whether each of its tokens is the likeliest one (of equals, that of the lowest id).
    """
    if not pairs:
        return []
    batch = Batch(len(pairs))
    for i, (context, continuation) in enumerate(pairs):
        ids = [*context, *continuation]
        request = batch.requests[i]
        batch.prompt(i, ids[:-1], name=f"pairs[{i}]")
        batch.candidates(i, np.array(continuation, np.int32)[:, np.newaxis])
        request.start, request.next, request.top = len(context) - 1, 1, 1
    answers = model._run(batch)
    told = []
    for result, (_, continuation) in zip(answers.results, pairs):
        shape = (result.n_rows, 1)
        values = arrays.floats(answers, result.scores, shape)
        likeliest = arrays.ints(answers, result.top_ids, shape)
        greedy = np.array_equal(likeliest[:, 0], continuation)
        told.append((float(sum(values[:, 0].tolist())), greedy))
    return told


def write(model: Model, prompts: Sequence[Ids], drawings: Sequence[Drawing]) -> list[str]:
    """What follows each prompt; bytes that are no UTF-8 are U+FFFD."""
    if not prompts:
        return []
    batch = Batch(len(prompts))
    for i, (prompt, drawing) in enumerate(zip(prompts, drawings)):
        batch.prompt(i, prompt, name=f"prompts[{i}]")
        batch.drawing(i, drawing)
    answers = model._run(batch)  # holds the memory of the choices
    choices = [result.choices[0] for result in answers.results]
    return [parts.text_bytes(choice).decode(errors="replace") for choice in choices]


def single_token(model: Model, text: str) -> Optional[int]:
    """The special token that a text names, if it does: "<|im_end|>" is one."""
    ids = model.tokenize(text, add_special=False).token_ids
    plain = model.tokenize(text, add_special=False, parse_special=False).token_ids
    return int(ids[0]) if len(ids) == 1 and not np.array_equal(ids, plain) else None


def dialogue(
    model: Model,
    messages: Sequence[Mapping[str, object]],
    *,
    add_generation_prompt: bool,
    variables: Mapping[str, object],
) -> str:
    """A dialogue as text, by the model's chat template; without a generation prompt the last
    message is left open, to be continued.
    """
    texts = [json.dumps(list(messages)).encode(), json.dumps(dict(variables)).encode()]
    chat = bridge.Chat(
        messages=bridge.String(texts[0], len(texts[0])),
        variables=bridge.String(texts[1], len(texts[1])),
        add_generation_prompt=add_generation_prompt,
        continue_final_message=not add_generation_prompt,
        add_special=2,
    )
    out = bridge.ChatText()
    model._model.call("np_chat_render", c.byref(chat), c.byref(out))
    try:
        return c.string_at(out.text, out.n_bytes).decode()
    finally:
        bridge.lib.np_chat_text_free(c.byref(out))
