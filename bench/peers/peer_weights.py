"""Writes the weights of a GGUF file again in one plain width, so that every engine computes with
the same values: float32 (what the stored blocks mean) or bfloat16 (those, rounded to nearest even).

    python bench/peers/peer_weights.py IN.gguf f32|bf16 OUT

OUT ending in .gguf: a GGUF file; else a folder with config.json and model.safetensors (Llama and
Qwen2). Tensors of one dimension, which llama.cpp wants in float32, stay that wide in a GGUF file,
but hold rounded values in bf16.
"""

import json
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))
from tools import oracle  # noqa: E402
from tools.oracle.gguf import Gguf, _Cursor, bf16_to_f32  # noqa: E402

ALIGNMENT = 32
GGUF_TYPES = {"f32": 0, "bf16": 30}
FOLDER_TYPES = {"f32": "F32", "bf16": "BF16"}
TORCH_TYPES = {"f32": "float32", "bf16": "bfloat16"}


def to_bf16(x):
    """float32 -> the upper halves of the nearest bfloat16, ties to even. Weights are finite."""
    bits = np.ascontiguousarray(x, "<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def stored(x, width):
    return to_bf16(x) if width == "bf16" else np.ascontiguousarray(x, "<f4")


def settings_of(data):
    """The bytes of all settings, as they are: they begin behind the four fields of the header."""
    cursor = _Cursor(data)
    cursor.at = 24
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        cursor.string()
        cursor.value(cursor.take("I"))
    return bytes(data[24 : cursor.at])


def gguf_tensor(model, name, width):
    """-> (type, array)"""
    values = stored(model.read(name), width)
    if width == "bf16" and values.ndim == 1:
        return GGUF_TYPES["f32"], bf16_to_f32(values)
    return GGUF_TYPES[width], values


def write_gguf(source, target, width="f32"):
    model = Gguf(source)
    if model.settings.get("general.alignment", ALIGNMENT) != ALIGNMENT:
        raise SystemExit(f"{source}: an alignment other than {ALIGNMENT}")
    data = np.memmap(source, np.uint8, "r")
    infos, offset = b"", 0
    for name in model.tensors:
        kind, values = gguf_tensor(model, name, width)
        text = name.encode()
        infos += struct.pack("<Q", len(text)) + text + struct.pack("<I", values.ndim)
        infos += struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
        infos += struct.pack("<IQ", kind, offset)
        offset += -(-values.nbytes // ALIGNMENT) * ALIGNMENT
    with open(target, "wb") as out:
        out.write(bytes(data[:24]) + settings_of(data) + infos)
        out.write(bytes(-out.tell() % ALIGNMENT))
        for name in model.tensors:
            out.write(gguf_tensor(model, name, width)[1].tobytes())
            out.write(bytes(-out.tell() % ALIGNMENT))


def config_of(model, width):
    """config.json as transformers writes it, of an oracle model."""
    architecture = model.architectures[0]
    return {
        "architectures": [{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}[architecture]],
        "model_type": architecture,
        "vocab_size": model.n_vocab,
        "hidden_size": model.dim,
        "intermediate_size": int(model.setting("feed_forward_length", "intermediate_size")),
        "num_hidden_layers": model.n_layers,
        "num_attention_heads": model.n_heads,
        "num_key_value_heads": model.n_kv_heads,
        "head_dim": model.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": model.n_context,
        "rms_norm_eps": model.eps,
        "rope_theta": model.theta,
        "tie_word_embeddings": not model.has("head"),
        "torch_dtype": TORCH_TYPES[width],
    }


def folder_tensors(model):
    """(own name, layer, name in the folder) of every weight that the model has."""
    for own, (_, name) in model.names.items():
        for i in range(model.n_layers) if "{i}" in name else [None]:
            if model.has(own, i):
                yield own, i, name.replace("{i}", str(i))


def write_folder(source, target, width):
    model, target = oracle.open_model(source), pathlib.Path(target)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for own, i, name in folder_tensors(model):
        values = stored(model.weight(own, i), width)
        span = [offset, offset + values.nbytes]
        header[name] = {
            "dtype": FOLDER_TYPES[width],
            "shape": list(values.shape),
            "data_offsets": span,
        }
        offset = span[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.mkdir(parents=True, exist_ok=True)
    with open(target / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for own, i, _ in folder_tensors(model):
            out.write(stored(model.weight(own, i), width).tobytes())
    (target / "config.json").write_text(json.dumps(config_of(model, width), indent=2) + "\n")


def write(source, target, width):
    """Under a name of its own until it is whole. An unfinished one of before is written over."""
    target = pathlib.Path(target)
    part = target.with_name("part-" + target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    (write_gguf if target.suffix == ".gguf" else write_folder)(source, part, width)
    part.rename(target)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[2] not in GGUF_TYPES:
        raise SystemExit(__doc__)
    write(sys.argv[1], sys.argv[3], sys.argv[2])
