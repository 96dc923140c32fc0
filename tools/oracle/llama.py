"""Llama, and Qwen2, which adds biases to Q, K and V."""

import numpy as np

from . import rope
from .decoder import Decoder, attention, rms_norm, silu


class Llama(Decoder):
    architectures = ("llama",)
    permuted = True  # GGUF stores the rows of Q and K so that rotated pairs lie side by side
    names = {
        "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
        "head": ("output.weight", "lm_head.weight"),
        "norm": ("output_norm.weight", "model.norm.weight"),
        "norm1": ("blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight"),
        "norm2": ("blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"),
        "q": ("blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"),
        "k": ("blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"),
        "v": ("blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"),
        "q_bias": ("blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias"),
        "k_bias": ("blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias"),
        "v_bias": ("blk.{i}.attn_v.bias", "model.layers.{i}.self_attn.v_proj.bias"),
        "o": ("blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"),
        "gate": ("blk.{i}.ffn_gate.weight", "model.layers.{i}.mlp.gate_proj.weight"),
        "up": ("blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.up_proj.weight"),
        "down": ("blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"),
    }
    qkv_bias = False
    windows = {}  # layer -> keys that a row sees

    def __init__(self, source):
        super().__init__(source)
        self.n_layers = int(self.setting("block_count", "num_hidden_layers"))
        self.dim = int(self.setting("embedding_length", "hidden_size"))
        self.n_heads = int(self.setting("attention.head_count", "num_attention_heads"))
        self.n_kv_heads = int(
            self.setting("attention.head_count_kv", "num_key_value_heads", self.n_heads)
        )
        self.n_context = int(self.setting("context_length", "max_position_embeddings"))
        self.eps = float(self.setting("attention.layer_norm_rms_epsilon", "rms_norm_eps"))
        self.head_dim = int(
            self.setting("attention.key_length", "head_dim", self.dim // self.n_heads)
        )
        self.theta = self._theta()
        self._refuse()
        self.n_vocab = source.tensors[self.tensor_name("embedding")][0]

    def _theta(self):
        """transformers 5 keeps rope_theta inside rope_parameters, 4 at the top."""
        nested = self.source.settings.get("rope_parameters") or {}
        return float(
            nested.get("rope_theta") or self.setting("rope.freq_base", "rope_theta", 10000.0)
        )

    def _refuse(self):
        settings = self.source.settings
        if self.source.container == "gguf":
            scaling = settings.get(f"{self.architectures[0]}.rope.scaling.type", "none")
        else:
            nested = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
            scaling = nested.get("rope_type", nested.get("type", "default"))
            self.require("hidden_act", "silu")
            self.require("attention_bias", False)
            self.require("mlp_bias", False)
            self._windows(settings)
        if scaling not in ("none", "default"):
            raise ValueError(f"{self.source.path}: rope scaling {scaling!r} is not supported")

    def _windows(self, settings):
        self.require("use_sliding_window", False)

    def fix(self, own, w):
        if not (self.permuted and self.source.container == "gguf" and own in ("q", "k")):
            return w
        n_heads = self.n_heads if own == "q" else self.n_kv_heads
        pairs = w.reshape(n_heads, self.head_dim // 2, 2, w.shape[1])
        return pairs.swapaxes(1, 2).reshape(w.shape)

    def embed(self, ids, positions):
        self.cos, self.sin = rope.table(positions, self.head_dim, self.theta)
        return self.weight("embedding")[ids].astype(np.float64)

    def projection(self, x, own, i):
        bias = own + "_bias" if self.qkv_bias else None
        return self.linear(x, own, i, bias).reshape(len(x), -1, self.head_dim)

    def layer(self, x, i, lengths):
        h = rms_norm(x, self.weight("norm1", i), self.eps)
        q, k, v = (self.projection(h, own, i) for own in "qkv")
        q, k = (rope.rotate(t, self.cos, self.sin) for t in (q, k))
        x = x + self.linear(attention(q, k, v, lengths, self.windows.get(i)), "o", i)
        h = rms_norm(x, self.weight("norm2", i), self.eps)
        return x + self.linear(silu(self.linear(h, "gate", i)) * self.linear(h, "up", i), "down", i)

    def final_norm(self, x):
        return rms_norm(x, self.weight("norm"), self.eps)


class Qwen2(Llama):
    architectures = ("qwen2",)
    permuted = False
    qkv_bias = True

    def _windows(self, settings):
        """As transformers' Qwen2Config reads them: max_window_layers is the first layer that has a
        window, unless layer_types says which."""
        used = settings.get("use_sliding_window")
        window = settings.get("sliding_window", 4096) if used else None
        first = settings.get("max_window_layers", 28) if window else self.n_layers
        kinds = settings.get("layer_types") or [
            "sliding_attention" if i >= first else "full_attention" for i in range(self.n_layers)
        ]
        if len(kinds) != self.n_layers or set(kinds) - {"full_attention", "sliding_attention"}:
            raise ValueError(f"{self.source.path}: layer_types {kinds} are not supported")
        self.windows = {i: window for i, kind in enumerate(kinds) if kind == "sliding_attention"}
        if self.windows and not window:
            raise ValueError(f"{self.source.path}: sliding_attention without a sliding_window")
