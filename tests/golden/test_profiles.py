"""The profiles against their definitions in tools/oracle/profiles.py: one linear layer bit for bit,
whole tiny models closely; what each may be from float64, and which files it refuses."""

import json
import pathlib
import sys

import numpy as np
import pytest

import nprun

sys.path.insert(0, str(nprun.ROOT))
from tools import oracle  # noqa: E402
from tools.oracle import gguf, profiles  # noqa: E402

HERE = pathlib.Path(__file__).parent
NAMES = sorted(path.name for path in nprun.MODELS.iterdir())
N_VOCAB = 70  # one panel and a bit
KINDS = {name: kind for kind, (name, *_) in gguf.TYPES.items()}


def is_quantised(path):
    if path.is_dir():
        return False
    source = gguf.Gguf(path)
    return any(source.cells(name) for name in source.tensors)


SUITED = [(name, "int16" if is_quantised(nprun.MODELS / name) else "bf16") for name in NAMES]
# how much of a profile's distance from float64 may be chance: roundings that fall elsewhere when
# attention is float32 and not float64. A step of int16 is so small that a hundredth of all do.
CHANCE = {"bf16": 0.1, "int16": 0.8}


def golden(name):
    return json.loads((HERE / f"{name}.json").read_text())


# ---- one layer, bit for bit ------------------------------------------------------------------


def stored_blocks(rng, kind, rows, depth):
    """Random blocks of a type: any integers, scales from subnormal to large."""
    name, elements, n_bytes, _ = gguf.TYPES[kind]
    n = rows * depth // elements
    if name == "F32":
        return rng.standard_normal((rows, depth)).astype("<f4").view(np.uint8)
    if name == "BF16":
        w = profiles.round_bf16(rng.standard_normal((rows, depth)).astype(np.float32))
        return (w.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    scale = rng.standard_normal((n, 2)) * 2.0 ** rng.integers(-22, 3, (n, 2))
    if name == "F16":
        return scale[:, 0].astype("<f2").reshape(rows, depth).view(np.uint8)
    blocks = rng.integers(0, 256, (n, n_bytes), dtype=np.uint8)
    n_scales = 1 + (name in ("Q4_1", "Q5_1"))
    blocks[:, : 2 * n_scales] = scale[:, :n_scales].astype("<f2").view(np.uint8)
    return blocks.reshape(rows, -1)


def inputs(rng, depth):
    """Embeddings: plain ones, rows of steep slopes, silent groups, one large element, exact
    halves."""
    x = rng.standard_normal((N_VOCAB, depth))
    x[10:20] *= 2.0 ** rng.integers(-70, 20, (10, depth))
    x[20:30, :32] *= 2.0**-110
    x[30:35, -32:] = 0
    x[35:40, 5] = 3e8
    x[40:50] = rng.integers(-3, 4, (10, depth))
    x[50:55] = 1 + rng.integers(0, 512, (5, depth)) / 512  # ties between two bf16
    return x.astype(np.float32)


def normed(x, gain, eps):
    """The contract's RMSNorm, bit for bit: sixteen lanes in float64."""
    wide = x.astype(np.float64)
    lanes = np.zeros((len(x), 16))
    for first in range(0, x.shape[1], 16):
        lanes += wide[:, first : first + 16] ** 2
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
    r = 1 / np.sqrt(lanes / x.shape[1] + eps)
    return ((wide * r) * gain).astype(np.float32)


def write_head_alone(path, embedding, gain, kind, head):
    """A model whose only layer adds nothing: its logits are one linear layer of normed rows."""
    writer_module = pytest.importorskip("gguf")
    depth = embedding.shape[1]
    writer = writer_module.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(depth)
    writer.add_feed_forward_length(8)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((depth, depth), np.float32))
    for name in ("ffn_gate", "ffn_up"):
        writer.add_tensor(f"blk.0.{name}.weight", np.zeros((8, depth), np.float32))
    writer.add_tensor("blk.0.ffn_down.weight", np.zeros((depth, 8), np.float32))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(depth, np.float32))
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", gain)
    writer.add_tensor(
        "output.weight", head, raw_dtype=writer_module.GGMLQuantizationType[kind]
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("depth", [32, 64, 96, 160])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_linear_layer_has_the_bits_of_its_definition(kind, depth, tmp_path):
    rng = np.random.Generator(np.random.PCG64([KINDS[kind], depth]))
    embedding = inputs(rng, depth)
    gain = (rng.standard_normal(depth) * 2.0 ** rng.integers(-4, 5, depth)).astype(np.float32)
    path = tmp_path / "head.gguf"
    head = stored_blocks(rng, KINDS[kind], N_VOCAB, depth)
    write_head_alone(path, embedding, gain, kind, head)
    model = oracle.open_model(path)
    w, cells = model.weight("head"), model.cells("head", None)
    ids = list(range(N_VOCAB))
    for profile in ("f32", "bf16" if cells is None else "int16"):
        rows = profiles.round_bf16(embedding) if profile == "bf16" else embedding
        expected = profiles.linear(profile, normed(rows, gain, model.eps), w, cells)[:-1]
        found = nprun.gather(
            path, ids, ids, "--profile", profile, "--logprobs-mode", "raw_logits"
        )
        assert np.isfinite(expected).all()
        assert found.tobytes() == expected.tobytes(), f"{profile}: {np.abs(found - expected).max()}"


def test_fma_rounds_once():
    """Against exact fractions, among them sums whose float64 lies between two float32."""
    from fractions import Fraction

    rng = np.random.Generator(np.random.PCG64(5))
    a, b = (
        (rng.standard_normal(4000) * 2.0 ** rng.integers(-6, 7, 4000)).astype(np.float32)
        for _ in range(2)
    )
    near = (a.astype(np.float64) * b).astype(np.float32)
    c = np.where(np.arange(4000) % 2, near * 2.0 ** rng.integers(-30, 31, 4000), -near)
    c = c.astype(np.float32)
    for x, y, z, found in zip(a, b, c, profiles.fma(a, b, c)):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        at = [np.nextafter(found, np.float32(side), dtype=np.float32) for side in (-np.inf, np.inf)]
        mine = abs(Fraction(float(found)) - exact)
        assert all(mine <= abs(Fraction(float(other)) - exact) for other in at)


# ---- whole models ----------------------------------------------------------------------------


def gap(a, b):
    difference = np.concatenate([(x - y).ravel() for x, y in zip(a, b)])
    return float(np.sqrt(np.mean(difference**2))), float(np.abs(difference).max())


def whole_rows(name, ids, **how):
    model = oracle.open_model(nprun.MODELS / name, **how)
    return [oracle.rows(model, each)[:-1] for each in ids]


@pytest.mark.parametrize("name, profile", SUITED)
def test_a_model_is_what_its_profile_defines(name, profile):
    """nepit differs from the definition only where an activation lies so near the middle of two
    values that float32 and float64 attention round it to different ones: far less than the
    profile differs from float64."""
    sequences = [s["ids"] for s in golden(name)["sequences"] if 1 < len(s["ids"]) <= 33]
    defined = whole_rows(name, sequences, profile=profile)
    exact = whole_rows(name, sequences, bf16_weights=profile == "bf16")
    found = nprun.every_cell(
        nprun.MODELS / name, sequences, defined[0].shape[1], "--profile", profile
    )
    (of_definition, _), (ours, worst), (apart, _) = (
        gap(defined, exact),
        gap(found, exact),
        gap(found, defined),
    )
    print(
        f"{name} {profile}: from float64 {ours:.1e} (max {worst:.1e}), its definition "
        f"{of_definition:.1e}, from the definition {apart:.1e}"
    )
    assert apart <= CHANCE[profile] * of_definition
    assert ours <= 1.25 * of_definition


def test_bf16_is_about_half_as_far_as_transformers_bfloat16():
    """On the same weights; make_goldens.py measured transformers, over all cells of all rows. Half
    is what real text must reach (test_demo.py); this random model is a bit above it."""
    name = "llama-head10-bf16"
    sequences = [s["ids"] for s in golden(name)["sequences"] if len(s["ids"]) > 1]
    exact = whole_rows(name, sequences)
    n_vocab = exact[0].shape[1]
    found = nprun.every_cell(nprun.MODELS / name, sequences, n_vocab, "--profile", "bf16")
    ours, theirs = gap(found, exact)[0], golden(name)["transformers_bfloat16"]["rms"]
    print(f"rms {ours:.1e}, transformers bfloat16 {theirs:.1e}")
    assert ours <= 0.55 * theirs


@pytest.mark.parametrize("one, other", [("llama-tied-f32", "llama-tied-f32.gguf")])
def test_folder_and_gguf_of_equal_weights_give_equal_bits_in_bf16(one, other):
    ids, everything = golden(one)["sequences"][-1]["ids"], list(range(golden(one)["n_vocab"]))
    a, b = (
        nprun.gather(nprun.MODELS / name, ids, everything, "--profile", "bf16")
        for name in (one, other)
    )
    assert a.tobytes() == b.tobytes()


# ---- which file a profile is for -------------------------------------------------------------


@pytest.mark.parametrize("name, suited", SUITED)
def test_an_answer_names_its_profile_and_the_other_one_is_refused(name, suited):
    path, other = nprun.MODELS / name, {"bf16": "int16", "int16": "bf16"}[suited]
    why = {
        "bf16": "bf16 is for weights of BF16, F16 and F32; this file holds Q",
        "int16": "int16 is for quantised weights; this file has none (use f32 or bf16)",
    }[other]
    refused = nprun.run("info", path, "--profile", other, status=3)
    assert why in refused.stderr and "(profile)" in refused.stderr
    assert refused.stderr.count("\n") == 1 and refused.stdout == ""
    for profile in ("f32", suited):
        assert nprun.score(path, [1, 2, 3], "--profile", profile)["profile"] == profile
    assert nprun.score(path, [1, 2, 3])["profile"] == "f32"
