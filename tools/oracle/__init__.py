"""The float64 oracle: what the log-probabilities of a model are, to about 1e-13 nats.

Plain numpy, independent of the C code. Adding an architecture: one class (names of weights,
`embed`, `layer`, `final_norm`) and its place in ARCHITECTURES.

    model = oracle.open_model("models/x.gguf")       # or a folder with config.json and safetensors
    oracle.true_logprobs(model, ids)                 # [n-1], of every next token
    oracle.candidate_logprobs(model, ids, [1, 2])    # [n-1, 2]; [rows, K] ids give one list per row
    oracle.rows(model, ids)                          # [n, n_vocab], every row whole

    open_model(path, bf16_weights=True)              # float64 of the weights rounded to bf16
    open_model(path, profile="int16")                # the definition of a profile (profiles.py)
"""

import pathlib

import numpy as np

from .decoder import BLOCK_ROWS
from .folder import Folder
from .gguf import Gguf
from .gpt2 import Gpt2
from .llama import Llama, Qwen2
from .profiles import PROFILES

ARCHITECTURES = {name: cls for cls in (Llama, Qwen2, Gpt2) for name in cls.architectures}


def open_model(path, profile=None, bf16_weights=False):
    path = pathlib.Path(path)
    if profile not in (None, *PROFILES):
        raise ValueError(f"profile {profile!r}, not one of {' '.join(PROFILES)}")
    source = Folder(path) if path.is_dir() else Gguf(path)
    key = "general.architecture" if source.container == "gguf" else "model_type"
    name = source.settings.get(key)
    if name not in ARCHITECTURES:
        raise ValueError(f"{path}: {key} = {name!r}, not one of {' '.join(ARCHITECTURES)}")
    model = ARCHITECTURES[name](source)
    model.profile, model.bf16_weights = profile, bf16_weights or profile == "bf16"
    return model


def log_softmax(logits):
    top = logits.max(axis=-1, keepdims=True)
    shifted = logits - top
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def row_blocks(model, sequences, wanted):
    """Yields log-probabilities [block, n_vocab] of the rows that `wanted` [all rows] marks, in
    order."""
    hidden = model.hidden(sequences)[wanted]
    for first in range(0, len(hidden), BLOCK_ROWS):
        yield log_softmax(model.logits(hidden[first : first + BLOCK_ROWS]))


def rows(model, ids, start=0, stop=None):
    """Whole rows start to stop of one sequence; row n-1 is the next, ungiven token's."""
    numbers = np.arange(len(ids))
    wanted = (numbers >= start) & (numbers < (len(ids) if stop is None else stop))
    return np.concatenate([np.empty((0, model.n_vocab)), *row_blocks(model, [ids], wanted)])


def candidate_logprobs(model, ids, candidates, start=0):
    """[n-1-start, K]; candidates [K] for all rows or [n-1-start, K], -1 giving -inf."""
    n_rows = max(len(ids) - 1 - start, 0)
    candidates = np.asarray(candidates, dtype=np.int64)
    if candidates.ndim == 1:
        candidates = np.broadcast_to(candidates, (n_rows, len(candidates)))
    return _cells(model, [ids], np.arange(len(ids)) >= start, candidates)


def true_logprobs(model, ids):
    """Entry r: log-probability of ids[r + 1] after ids[:r + 1]."""
    return true_logprobs_of_all(model, [ids])


def true_logprobs_of_all(model, sequences):
    """The same of many sequences in one pass, one after another."""
    targets = np.concatenate([np.asarray(ids[1:], dtype=np.int64) for ids in sequences])
    wanted = np.ones(sum(map(len, sequences)), dtype=bool)
    return _cells(model, sequences, wanted, targets[:, None])[:, 0]


def _cells(model, sequences, wanted, candidates):
    """Cells candidates [rows, K] of the wanted rows; the last row of a sequence scores nothing."""
    wanted = wanted.copy()
    wanted[np.cumsum([len(ids) for ids in sequences]) - 1] = False
    out, first = np.empty(candidates.shape), 0
    for block in row_blocks(model, sequences, wanted):
        asked = candidates[first : first + len(block)]
        cells = np.take_along_axis(block, np.maximum(asked, 0), axis=1)
        out[first : first + len(block)] = np.where(asked < 0, -np.inf, cells)
        first += len(block)
    return out
