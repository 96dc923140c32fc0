"""Makes tests/data/models: tiny random models of every family, as checkpoints and GGUF files come.

    .cache/peers/transformers/bin/python tools/make_models.py [OUT]     (see bench/peers/setup.sh)

Fixed seeds (numpy PCG64) and the versions below give the same bytes again. Sizes are odd on
purpose: hardly a dimension is a multiple of 64, heads are 8 to 24 wide, vocabularies end inside a
panel, Llama and Qwen2 share each key head among 2, 3 or 6 query heads. The mixed ones hold every
stored type, in rows of 32, 64, 96 and 160 weights. Weights are far larger than
trained ones, so that a wrong formula moves the answers by more than rounding does.

Made with transformers 5.24.0, tokenizers 0.23.3, gguf 0.19.0, safetensors 0.8.0, numpy 2.4.6.
"""

import json
import pathlib
import shutil
import struct
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).parent.parent / "tests" / "data" / "models"

# What the tiny tokenizers learn their merges from: our own words, in scripts of one to four bytes.
TEXT = """The height of the tower is the same as the height of the other tower, and that is that.
int main(void) { return 0; }   for (int i = 0; i < 10; i++) { total += i; }
Der Turm ist so hoch wie der andere. La tour est haute comme l'autre tour, l'autre soir.
Башня такая же высокая, как и другая башня. 塔は高い。塔は高い。 برج برج عالٍ
1984 2001 3.14159 don't won't we're they've I'll \t\t  \n\n   \n <tag attr="value">text</tag>
"""
SPLIT_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT_QWEN2 = SPLIT_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split(pattern):
    return [
        pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


SPLITS = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ],
    "llama-bpe": split(SPLIT_LLAMA3),
    "qwen2": split(SPLIT_QWEN2),
}


def make_tokenizer(rule, n_vocab, special):
    """Byte-level BPE with `special` tokens at the end and n_vocab ids in all."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if rule == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    parts = SPLITS[rule]
    tokenizer.pre_tokenizer = parts[0] if len(parts) == 1 else pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab - len(special),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    tokenizer.add_special_tokens(special)
    assert tokenizer.get_vocab_size() == n_vocab, tokenizer.get_vocab_size()
    return tokenizer


def random_weights(model, seed):
    """Standard normals from PCG64 in order of name: matrices by fan-in, gains around 1, biases
    around 0."""
    rng = np.random.Generator(np.random.PCG64(seed))
    state = model.state_dict()
    for name in sorted(state):
        if not name.endswith(("weight", "bias")) or state[name].dtype != torch.float32:
            continue
        shape = tuple(state[name].shape)
        values = rng.standard_normal(shape)
        if name.endswith("bias"):
            values *= 0.3
        elif len(shape) == 1:
            values = 1 + 0.2 * values
        elif "embed" in name or "wte" in name or "wpe" in name:
            values *= 0.6
        else:
            n_in = shape[0] if ".c_" in name else shape[1]  # Conv1D is [n_in, n_out]
            values *= 1.3 / np.sqrt(n_in)
        state[name].copy_(torch.from_numpy(values.astype(np.float32)))
    model.load_state_dict(state)
    model.tie_weights()
    return model


def save_tokenizer(folder, tokenizer, form, special):
    if form == "json":
        tokenizer.save(str(folder / "tokenizer.json"))
    elif form == "vocab":
        tokenizer.model.save(str(folder))
        # real GPT-2 files hold the special token in vocab.json too
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
        (folder / "vocab.json").write_text(json.dumps(ordered, ensure_ascii=False))
    settings = {"bos_token": special[0], "eos_token": special[0], "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def save_folder(
    out, name, model, dtype="float32", shard="5GB", tokenizer=None, form="json", special=()
):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if tokenizer:
        save_tokenizer(folder, tokenizer, form, special)
    return folder


def config_as_version_4(folder, dtype):
    """Rewrites config.json as transformers 4 wrote it: rope_theta at the top, torch_dtype, null
    scaling."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"], config["rope_scaling"] = rope["rope_theta"], None
    config.pop("dtype", None)
    config.update(torch_dtype=dtype, transformers_version="4.40.0")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def gpt2_as_published(folder, prefix, masks, n_positions):
    """Rewrites the tensors as real checkpoints have them: no prefix, causal masks among the
    weights."""
    path = folder / "model.safetensors"
    old = load_file(path)
    new = {}
    for name, value in old.items():
        bare = name.removeprefix("transformer.")
        new[name if bare == "lm_head.weight" else prefix + bare] = value
    if masks:
        layers = {
            name.split("h.")[1].split(".")[0] for name in new if "h." in name and ".attn." in name
        }
        for i in sorted(layers):
            mask = np.tril(np.ones((n_positions, n_positions), np.float32))[None, None]
            new[f"{prefix}h.{i}.attn.bias"] = mask if i == "0" else mask.astype(np.uint8)
            new[f"{prefix}h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    save_file(new, path, metadata={"format": "pt"})


# ---- GGUF ----------------------------------------------------------------------------------

LLAMA_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers.": "blk.",
}
GPT2_NAMES = {
    "transformer.wte.weight": "token_embd.weight",
    "transformer.wpe.weight": "position_embd.weight",
    "transformer.ln_f.": "output_norm.",
    "lm_head.weight": "output.weight",
    "transformer.h.": "blk.",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def gguf_name(name, table):
    for old, new in table.items():
        name = name.replace(old, new)
    return name


def permute(w, n_heads):
    """The order of Q and K rows that GGUF keeps for Llama: rotated pairs side by side."""
    return (
        w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, *w.shape[1:])
        .swapaxes(1, 2)
        .reshape(w.shape)
    )


def gguf_tensors(model):
    config, family = model.config, model.config.model_type
    tied = config.tie_word_embeddings
    for name, value in sorted(model.state_dict().items()):
        if tied and name == "lm_head.weight":
            continue
        w = value.float().numpy()
        if family == "gpt2":
            yield gguf_name(name, GPT2_NAMES), w.T if ".c_" in name and w.ndim == 2 else w
            continue
        if family == "llama" and ".q_proj." in name:
            w = permute(w, config.num_attention_heads)
        if family == "llama" and ".k_proj." in name:
            w = permute(w, config.num_key_value_heads)
        yield gguf_name(name, LLAMA_NAMES), w


def gguf_settings(writer, config):
    if config.model_type == "gpt2":
        writer.add_context_length(config.n_positions)
        writer.add_embedding_length(config.n_embd)
        writer.add_feed_forward_length(4 * config.n_embd)
        writer.add_block_count(config.n_layer)
        writer.add_head_count(config.n_head)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    usual = config.hidden_size // config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or usual
    if head_dim != usual:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if config.model_type == "llama":
        writer.add_rope_dimension_count(head_dim)


def gguf_tokenizer(writer, tokenizer, rule, special):
    vocab = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list([text for text, _ in vocab])
    writer.add_token_types([3 if text in special else 1 for text, _ in vocab])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.token_to_id(special[0]))
    writer.add_eos_token_id(tokenizer.token_to_id(special[0]))
    writer.add_add_bos_token(False)


def save_gguf(out, name, model, types, tokenizer=None, rule=None, special=(), version=3):
    """types: ending of a tensor's name -> type, F32 for vectors and for what is not named."""
    path = out / name
    writer = gguf.GGUFWriter(path, model.config.model_type)
    writer.add_name(name)
    gguf_settings(writer, model.config)
    if tokenizer:
        gguf_tokenizer(writer, tokenizer, rule, special)
    for tensor, w in gguf_tensors(model):
        ending = [t for e, t in types.items() if tensor.endswith(e + ".weight")]
        kind = gguf.GGMLQuantizationType[ending[0] if ending and w.ndim == 2 else "F32"]
        writer.add_tensor(
            tensor, gguf.quants.quantize(np.ascontiguousarray(w), kind), raw_dtype=kind
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:  # versions 2 and 3 differ in the number alone (3 also allows big-endian)
        data = bytearray(path.read_bytes())
        struct.pack_into("<I", data, 4, version)
        path.write_bytes(data)


MIXED = {
    "attn_q": "Q4_1",
    "attn_k": "F16",
    "attn_v": "BF16",
    "attn_output": "Q8_0",
    "ffn_gate": "Q5_0",
    "ffn_up": "Q5_1",
    "ffn_down": "Q4_0",
    "token_embd": "Q8_0",
    "output": "Q4_1",
    "attn_qkv": "Q5_1",
    "position_embd": "F16",
}
# Rows of 32, 64, 96 and 160 weights: one block, blocks of 64 k, and half ones at the end.
BLOCKS = {
    "blk.0.attn_q": "Q4_0",
    "blk.0.attn_k": "Q5_0",
    "blk.0.attn_v": "Q5_1",
    "blk.0.attn_output": "Q4_1",
    "blk.0.ffn_gate": "Q8_0",
    "blk.0.ffn_up": "Q5_0",
    "blk.0.ffn_down": "Q5_1",
    "blk.1.attn_q": "F16",
    "blk.1.attn_k": "Q8_0",
    "blk.1.attn_v": "Q4_0",
    "blk.1.attn_output": "Q5_0",
    "blk.1.ffn_gate": "BF16",
    "blk.1.ffn_up": "Q4_1",
    "blk.1.ffn_down": "Q4_0",
    "token_embd": "Q4_1",
    "output": "Q5_1",
}
MIXED_GPT2 = dict(MIXED, ffn_up="Q4_1", ffn_down="Q5_0")
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END = ["<|endoftext|>"]


def llama(seed, **settings):
    settings = (
        dict(
            vocab_size=301,
            num_attention_heads=3,
            num_key_value_heads=1,
            num_hidden_layers=2,
            max_position_embeddings=512,
            rms_norm_eps=1e-5,
            bos_token_id=298,
            eos_token_id=298,
        )
        | settings
    )
    settings.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": 100000.0})
    return random_weights(transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)), seed)


def qwen2(seed, **settings):
    settings = (
        dict(
            vocab_size=299,
            num_attention_heads=3,
            num_key_value_heads=1,
            num_hidden_layers=2,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            bos_token_id=296,
            eos_token_id=296,
        )
        | settings
    )
    settings.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": 1000000.0})
    return random_weights(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**settings)), seed)


def gpt2(seed, **settings):
    settings = (
        dict(
            vocab_size=293, n_head=3, n_layer=2, n_positions=40, bos_token_id=292, eos_token_id=292
        )
        | settings
    )
    return random_weights(transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)), seed)


def make_llama(out):
    smollm = make_tokenizer("smollm", 301, CHAT)
    tied = llama(11, hidden_size=36, intermediate_size=52, tie_word_embeddings=True)
    save_folder(out, "llama-tied-f32", tied, tokenizer=smollm, special=CHAT)
    save_gguf(out, "llama-tied-f32.gguf", tied, {}, smollm, "smollm", CHAT)
    wide = llama(
        12,
        vocab_size=277,
        hidden_size=42,
        intermediate_size=60,
        num_attention_heads=6,
        head_dim=10,
        num_key_value_heads=2,
        num_hidden_layers=3,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    folder = save_folder(out, "llama-head10-bf16", wide, "bfloat16")
    config_as_version_4(folder, "bfloat16")
    mixed = llama(
        13,
        hidden_size=96,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=96,
        tie_word_embeddings=True,
    )
    save_gguf(
        out,
        "llama-mixed.gguf",
        mixed,
        MIXED,
        make_tokenizer("llama-bpe", 301, CHAT),
        "llama-bpe",
        CHAT,
    )


def make_blocks(out):
    wide = llama(
        14,
        hidden_size=160,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        intermediate_size=64,
        tie_word_embeddings=True,
    )
    save_gguf(out, "llama-mixed160.gguf", wide, BLOCKS)
    narrow = qwen2(
        26,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=160,
        tie_word_embeddings=False,
    )
    save_gguf(out, "qwen2-mixed32.gguf", narrow, BLOCKS)


def make_qwen2(out):
    tokenizer = make_tokenizer("qwen2", 299, CHAT)
    tied = qwen2(21, hidden_size=30, intermediate_size=44, tie_word_embeddings=True)
    folder = save_folder(out, "qwen2-tied-f32", tied, tokenizer=tokenizer, special=CHAT)
    config_as_version_4(folder, "float32")
    sharded = qwen2(22, hidden_size=54, intermediate_size=70, tie_word_embeddings=False)
    save_folder(
        out,
        "qwen2-sharded-f16",
        sharded,
        "float16",
        shard="60KB",
        tokenizer=tokenizer,
        special=CHAT,
    )
    save_gguf(out, "qwen2-sharded-f16.gguf", sharded, dict.fromkeys(MIXED, "F16"))
    mixed = qwen2(
        23,
        hidden_size=96,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=96,
        tie_word_embeddings=False,
    )
    save_gguf(out, "qwen2-mixed-v2.gguf", mixed, MIXED, tokenizer, "qwen2", CHAT, version=2)
    make_windows(out)


def make_windows(out):
    """Windows of a few keys and of more than a page, in the last layers and in named ones."""
    short = qwen2(
        24,
        hidden_size=30,
        intermediate_size=44,
        num_hidden_layers=3,
        tie_word_embeddings=True,
        use_sliding_window=True,
        sliding_window=5,
        max_window_layers=1,
    )
    folder = save_folder(out, "qwen2-window5", short)
    config_as_version_4(folder, "float32")
    config = json.loads((folder / "config.json").read_text())
    del config["layer_types"]  # old files have max_window_layers alone
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    long = qwen2(
        25,
        hidden_size=36,
        num_attention_heads=6,
        num_key_value_heads=1,
        head_dim=12,
        intermediate_size=40,
        num_hidden_layers=3,
        tie_word_embeddings=True,
        use_sliding_window=True,
        sliding_window=77,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    save_folder(out, "qwen2-window77", long)


def make_gpt2(out):
    tokenizer = make_tokenizer("gpt-2", 293, END)
    masked = gpt2(31, n_embd=24)
    folder = save_folder(out, "gpt2-prefix-masks", masked, tokenizer=tokenizer, special=END)
    gpt2_as_published(folder, "transformer.", True, 40)
    plain = gpt2(32, n_embd=30)
    folder = save_folder(out, "gpt2-plain", plain, tokenizer=tokenizer, form="vocab", special=END)
    gpt2_as_published(folder, "", False, 40)
    config_as_version_4(folder, "float32")
    save_gguf(out, "gpt2-plain.gguf", plain, {}, tokenizer, "gpt-2", END)
    mixed = gpt2(33, n_embd=96, n_head=4, n_layer=1, tie_word_embeddings=False)
    save_gguf(out, "gpt2-mixed.gguf", mixed, MIXED_GPT2, tokenizer, "gpt-2", END)


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    out.mkdir(parents=True, exist_ok=True)
    transformers.utils.logging.disable_progress_bar()
    for make in (make_llama, make_blocks, make_qwen2, make_gpt2):
        make(out)
    for path in sorted(out.iterdir()):
        files = [path] if path.is_file() else list(path.iterdir())
        print(f"{sum(f.stat().st_size for f in files):8d} bytes  {path.name}")


if __name__ == "__main__":
    main()
