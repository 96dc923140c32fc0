"""What the architectures share: attention, norms and the pass over the layers, all in float64.

Weights are kept in float32, which holds every stored type exactly, and widened layer by layer;
rows go through attention and the head in blocks. So memory is the float32 model, one layer in
float64, and two blocks of rows.
"""

from concurrent.futures import ThreadPoolExecutor
import os

import numpy as np

from . import profiles

BLOCK_ROWS = 256
_threads = ThreadPoolExecutor(min(2, os.cpu_count() or 1))


def rms_norm(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def layer_norm(x, gain, bias, eps):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps) * gain + bias


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(q, k, v, lengths, window=None):
    """Causal attention in sequences of `lengths` that lie one after another: q [n, heads, d], k
    and v [n, kv_heads, d] -> [n, heads * d]. A row sees the last `window` keys up to its own."""
    n, n_heads, d = q.shape
    group = n_heads // k.shape[1]
    out = np.empty_like(q)

    def part(job):
        begin, first, last, h = job  # rows first to last of the sequence that begins at row begin
        scores = q[first:last, h] @ k[begin:last, h // group].T
        scores *= d**-0.5
        ahead = np.arange(begin, last) - np.arange(first, last)[:, None]
        scores[ahead > 0] = -np.inf
        if window is not None:
            scores[ahead <= -window] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        mixed = scores @ v[begin:last, h // group]
        out[first:last, h] = mixed / scores.sum(axis=1, keepdims=True)

    ends = np.cumsum(lengths)
    jobs = [
        (end - length, first, min(first + BLOCK_ROWS, end), h)
        for end, length in zip(ends, lengths)
        for first in range(end - length, end, BLOCK_ROWS)
        for h in range(n_heads)
    ]
    list(_threads.map(part, jobs))
    return out.reshape(n, -1)


class Decoder:
    """A decoder of n_layers layers. A subclass reads its settings in __init__ (n_vocab, n_layers,
    n_heads, ... ) and names its weights; `layer` and `embed` are its arithmetic.

    names: {own name: (GGUF name, safetensors name)}, "{i}" standing for the layer.
    ignored: endings of tensor names that carry no weights (buffers of old checkpoints).
    profile: None for float64 all through, or whose definition the linear layers follow.
    bf16_weights: matrices count as rounded to bf16, as profile bf16 keeps them.
    """

    profile, bf16_weights = None, False

    architectures = ()  # as config.json ("model_type") and GGUF ("general.architecture") call it
    names = {}
    tables = ()  # matrices that are no linear layer: read by row
    tied = False  # what config.json means when it does not say
    ignored = (".rotary_emb.inv_freq",)

    def __init__(self, source):
        self.source = source
        self._cache, self._used = {}, set()

    def setting(self, gguf, hf, default=None):
        """A setting by its GGUF name (without the architecture) or its config.json name."""
        if self.source.container == "gguf":
            key = f"{self.source.settings['general.architecture']}.{gguf}"
        else:
            key = hf
        value = self.source.settings.get(key, default)
        if value is None:
            raise ValueError(f"{self.source.path}: no setting {key}")
        return value

    def require(self, key, *allowed):
        """Refuses a config.json key that would change the arithmetic."""
        value = self.source.settings.get(key, allowed[0])
        if value not in allowed:
            raise ValueError(f"{self.source.path}: {key} = {value!r} is not supported")

    def tensor_name(self, own, i=None):
        return self.names[own][self.source.container != "gguf"].replace("{i}", str(i))

    def has(self, own, i=None):
        return self.tensor_name(own, i) in self.source.tensors

    def weight(self, own, i=None):
        """The weight in float32, as stored but for `fix` and `bf16_weights`."""
        key = own, i
        if key not in self._cache:
            name = self.tensor_name(own, i)
            self._used.add(name)
            w = np.ascontiguousarray(self.fix(own, self.source.read(name)))
            rounded = self.bf16_weights and w.ndim == 2 and own not in self.tables
            self._cache[key] = profiles.round_bf16(w) if rounded else w
        return self._cache[key]

    def cells(self, own, i):
        """Integers, scales and minima of a quantised matrix, or None."""
        cells = self.source.cells(self.tensor_name(own, i))
        return cells and [part if part is None else self.fix(own, part) for part in cells]

    def fix(self, own, w):
        """Brings a stored weight to [n_out, n_in] and its rows to the usual order."""
        return w

    def linear(self, x, own, i=None, bias=None):
        if self.profile:
            y = self._linear_of_profile(x, own, i)
        else:
            y = x @ self.weight(own, i).astype(np.float64).T
        if bias is not None:
            y = y + self.weight(bias, i).astype(y.dtype)
        return y.astype(np.float64)

    def _linear_of_profile(self, x, own, i=None):
        """float32 from float32: what comes in is rounded as the engine's activations are."""
        x, w = x.astype(np.float32), self.weight(own, i)
        cells = self.cells(own, i) if self.profile == "int16" else None
        return profiles.linear(self.profile, x, w, cells)

    def hidden(self, sequences):
        """Final hidden rows, after the last norm, of all sequences one after another: [rows,
        dim]."""
        lengths = [len(ids) for ids in sequences]
        if min(lengths) < 1 or max(lengths) > self.n_context:
            raise ValueError(f"{lengths} tokens; the context holds {self.n_context}")
        ids = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in sequences])
        if ids.min() < 0 or ids.max() >= self.n_vocab:
            raise ValueError(f"ids must be numbers from 0 to {self.n_vocab - 1}")
        x = self.embed(ids, np.concatenate([np.arange(n) for n in lengths]))
        for i in range(self.n_layers):
            x = self.layer(x, i, lengths)
        x = self.final_norm(x)
        self._check_all_used()
        return x

    def logits(self, hidden):
        """A head of its own where the file has one, else the embedding if the settings say so."""
        own = "head" if self.has("head") else "embedding"
        tied = self.source.settings.get("tie_word_embeddings", self.tied)
        if own == "embedding" and self.source.container != "gguf" and not tied:
            raise ValueError(f"{self.source.path}: no {self.tensor_name('head')} and not tied")
        if self.profile:
            return self._linear_of_profile(hidden, own).astype(np.float64)
        if not hasattr(self, "_head"):
            self._head = self.weight(own).astype(np.float64).T
        return hidden @ self._head

    def _check_all_used(self):
        """A tensor that was not read is arithmetic that was left out."""
        tied_copy = {self.tensor_name("head")}
        left = set(self.source.tensors) - self._used - tied_copy
        left = sorted(n for n in left if not n.endswith(self.ignored))
        if left:
            raise ValueError(f"{self.source.path}: tensors that no rule uses: {left[:3]}")
