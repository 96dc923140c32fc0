"""The float64 oracle: what the log-probabilities of a model are, to about 1e-13 nats.

Plain numpy, independent of the C code. Adding an architecture: one class (names of weights, `embed`,
`layer`, `final_norm`) and its place in ARCHITECTURES.

    model = oracle.open_model("models/x.gguf")       # or a folder with config.json and safetensors
    oracle.true_logprobs(model, ids)                 # [n-1], of every next token
    oracle.candidate_logprobs(model, ids, [1, 2])    # [n-1, 2]; [rows, K] ids give one list per row
    oracle.rows(model, ids)                          # [n, n_vocab], every row whole
"""

import pathlib

import numpy as np

from .decoder import BLOCK_ROWS
from .folder import Folder
from .gguf import Gguf
from .gpt2 import Gpt2
from .llama import Llama, Qwen2

ARCHITECTURES = {name: cls for cls in (Llama, Qwen2, Gpt2) for name in cls.architectures}


def open_model(path):
    path = pathlib.Path(path)
    source = Folder(path) if path.is_dir() else Gguf(path)
    key = "general.architecture" if source.container == "gguf" else "model_type"
    name = source.settings.get(key)
    if name not in ARCHITECTURES:
        raise ValueError(f"{path}: {key} = {name!r}, not one of {' '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name](source)


def log_softmax(logits):
    top = logits.max(axis=-1, keepdims=True)
    shifted = logits - top
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def row_blocks(model, ids, start=0, stop=None):
    """Yields (first row, log-probabilities [rows, n_vocab]) for causal rows start to stop."""
    hidden = model.hidden(ids)
    stop = len(ids) if stop is None else stop
    for first in range(start, stop, BLOCK_ROWS):
        yield first, log_softmax(model.logits(hidden[first:min(first + BLOCK_ROWS, stop)]))


def rows(model, ids, start=0, stop=None):
    parts = [block for _, block in row_blocks(model, ids, start, stop)]
    return np.concatenate(parts) if parts else np.empty((0, model.n_vocab))


def true_logprobs(model, ids):
    """Entry r: log-probability of ids[r + 1] after ids[:r + 1]."""
    targets = np.asarray(ids[1:], dtype=np.int64)
    return candidate_logprobs(model, ids, targets[:, None])[:, 0]


def candidate_logprobs(model, ids, candidates, start=0):
    """[n-1-start, K]; candidates [K] for all rows or [n-1-start, K], -1 giving -inf."""
    n_rows = max(len(ids) - 1 - start, 0)
    candidates = np.asarray(candidates, dtype=np.int64)
    if candidates.ndim == 1:
        candidates = np.broadcast_to(candidates, (n_rows, len(candidates)))
    out = np.empty(candidates.shape)
    if n_rows == 0:
        return out
    for first, block in row_blocks(model, ids, start, len(ids) - 1):
        wanted = candidates[first - start:first - start + len(block)]
        cells = np.take_along_axis(block, np.maximum(wanted, 0), axis=1)
        out[first - start:first - start + len(block)] = np.where(wanted < 0, -np.inf, cells)
    return out
