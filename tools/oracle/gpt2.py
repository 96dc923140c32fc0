"""GPT-2: LayerNorm, learned positions, GELU by tanh, Q, K and V in one matrix."""

import numpy as np

from .decoder import Decoder, attention, gelu_tanh, layer_norm


class Gpt2(Decoder):
    architectures = ("gpt2",)
    tied = True
    tables = ("positions",)
    ignored = (".attn.bias", ".attn.masked_bias")  # the causal mask of old checkpoints
    names = {
        "embedding": ("token_embd.weight", "wte.weight"),
        "positions": ("position_embd.weight", "wpe.weight"),
        "head": ("output.weight", "lm_head.weight"),
        "norm": ("output_norm.weight", "ln_f.weight"),
        "norm_bias": ("output_norm.bias", "ln_f.bias"),
        "norm1": ("blk.{i}.attn_norm.weight", "h.{i}.ln_1.weight"),
        "norm1_bias": ("blk.{i}.attn_norm.bias", "h.{i}.ln_1.bias"),
        "norm2": ("blk.{i}.ffn_norm.weight", "h.{i}.ln_2.weight"),
        "norm2_bias": ("blk.{i}.ffn_norm.bias", "h.{i}.ln_2.bias"),
        "qkv": ("blk.{i}.attn_qkv.weight", "h.{i}.attn.c_attn.weight"),
        "qkv_bias": ("blk.{i}.attn_qkv.bias", "h.{i}.attn.c_attn.bias"),
        "o": ("blk.{i}.attn_output.weight", "h.{i}.attn.c_proj.weight"),
        "o_bias": ("blk.{i}.attn_output.bias", "h.{i}.attn.c_proj.bias"),
        "up": ("blk.{i}.ffn_up.weight", "h.{i}.mlp.c_fc.weight"),
        "up_bias": ("blk.{i}.ffn_up.bias", "h.{i}.mlp.c_fc.bias"),
        "down": ("blk.{i}.ffn_down.weight", "h.{i}.mlp.c_proj.weight"),
        "down_bias": ("blk.{i}.ffn_down.bias", "h.{i}.mlp.c_proj.bias"),
    }

    def __init__(self, source):
        super().__init__(source)
        self.prefix = "transformer." if "transformer.wte.weight" in source.tensors else ""
        self.n_layers = int(self.setting("block_count", "n_layer"))
        self.n_heads = int(self.setting("attention.head_count", "n_head"))
        self.eps = float(self.setting("attention.layer_norm_epsilon", "layer_norm_epsilon"))
        self.require("activation_function", "gelu_new")
        self.require("scale_attn_weights", True)
        self.require("scale_attn_by_inverse_layer_idx", False)
        self.n_vocab = source.tensors[self.tensor_name("embedding")][0]
        self.n_context = source.tensors[self.tensor_name("positions")][0]

    def tensor_name(self, own, i=None):
        name = super().tensor_name(own, i)
        return name if self.source.container == "gguf" or own == "head" else self.prefix + name

    def fix(self, own, w):
        """safetensors keeps these matrices as [n_in, n_out] (Conv1D)."""
        conv = self.source.container != "gguf" and own in ("qkv", "o", "up", "down")
        return w.T if conv else w

    def embed(self, ids, positions):
        parts = self.weight("embedding")[ids], self.weight("positions")[positions]
        return parts[0].astype(np.float64) + parts[1]

    def norm(self, x, own, i=None):
        return layer_norm(x, self.weight(own, i), self.weight(own + "_bias", i), self.eps)

    def layer(self, x, i, lengths):
        qkv = self.linear(self.norm(x, "norm1", i), "qkv", i, "qkv_bias")
        q, k, v = (part.reshape(len(x), self.n_heads, -1) for part in np.split(qkv, 3, axis=1))
        x = x + self.linear(attention(q, k, v, lengths), "o", i, "o_bias")
        h = gelu_tanh(self.linear(self.norm(x, "norm2", i), "up", i, "up_bias"))
        return x + self.linear(h, "down", i, "down_bias")

    def final_norm(self, x):
        return self.norm(x, "norm")
