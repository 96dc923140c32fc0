"""What a model is."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass

from . import _bridge as bridge


@dataclass(frozen=True)
class Info:
    """What a model is; sizes in bytes, lengths in tokens."""

    path: str
    container: str
    architecture: str
    name: str
    weight_types: str
    tokenizer: str
    profile: str
    cpu: str
    cpu_reason: str
    n_parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    n_vocab: int
    n_layers: int
    dim: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_dim: int
    n_context: int
    bos_id: int
    eos_id: int
    adds_bos: bool
    adds_eos: bool
    has_tokenizer: bool
    has_chat_template: bool
    head_tied: bool
    weights_rounded: bool


def info_of(raw: bridge.Info) -> Info:
    values: dict[str, object] = {}
    for name, kind, *_ in bridge.Info._fields_:
        value = getattr(raw, name)
        is_text, is_flag = kind is c.c_char_p, kind is c.c_int and not name.endswith("_id")
        values[name] = bridge.text_of(value) if is_text else bool(value) if is_flag else value
    for name in ("n_vocab", "n_layers", "dim", "n_heads", "n_kv_heads", "head_dim", "ffn_dim"):
        values[name] = int(getattr(raw, name))
    for name in ("n_context", "bos_id", "eos_id"):
        values[name] = int(getattr(raw, name))
    return Info(**values)  # type: ignore[arg-type]
