"""A model of a known shape with random bf16 weights, for speed alone: a folder of config.json and
safetensors, without a tokenizer.

    python bench/make_shape.py qwen2.5-1.5b FOLDER      3.1 GB

Weights are of either sign, 2^-8 to 2^-5 in magnitude, from a fixed seed. Sources of the shapes: the
config.json of the models that they are named after.
"""

import json
import pathlib
import struct
import sys

import numpy as np

SHAPES = {
    "qwen2.5-1.5b": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    },
    "smollm2-135m": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
    },
}


def tensors_of(config):
    """name -> shape, in the order of the file"""
    dim, ffn = config["hidden_size"], config["intermediate_size"]
    kv = dim // config["num_attention_heads"] * config["num_key_value_heads"]
    tensors = {
        "model.embed_tokens.weight": (config["vocab_size"], dim),
        "model.norm.weight": (dim,),
    }
    layer = {
        "input_layernorm.weight": (dim,),
        "post_attention_layernorm.weight": (dim,),
        "self_attn.q_proj.weight": (dim, dim),
        "self_attn.k_proj.weight": (kv, dim),
        "self_attn.v_proj.weight": (kv, dim),
        "self_attn.o_proj.weight": (dim, dim),
        "mlp.gate_proj.weight": (ffn, dim),
        "mlp.up_proj.weight": (ffn, dim),
        "mlp.down_proj.weight": (dim, ffn),
    }
    if config["model_type"] == "qwen2":
        layer |= {
            "self_attn.q_proj.bias": (dim,),
            "self_attn.k_proj.bias": (kv,),
            "self_attn.v_proj.bias": (kv,),
        }
    for i in range(config["num_hidden_layers"]):
        tensors |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return tensors


def random_bf16(rng, n):
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    exponent = (bits >> 8 & 3) + (127 - 8)
    return (bits & 0x807F) | (exponent << 7).astype(np.uint16)


def main(name, folder):
    config, folder = SHAPES[name], pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tensors, header, offset = tensors_of(config), {}, 0
    for tensor, shape in tensors.items():
        n_bytes = 2 * int(np.prod(shape))
        header[tensor] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [offset, offset + n_bytes],
        }
        offset += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.Generator(np.random.PCG64(1))
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            out.write(random_bf16(rng, int(np.prod(shape))).astype("<u2").tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        raise SystemExit(f"{__doc__}\nshapes: {', '.join(SHAPES)}")
    main(*sys.argv[1:])
