"""Cases from docs/CASES.md that need the float64 oracle."""

import json
import shutil
import struct
import sys

import numpy as np
import pytest

import nprun

sys.path.insert(0, str(nprun.ROOT))
from tools import oracle  # noqa: E402
from tools.oracle.gguf import TYPES  # noqa: E402

BOUND = 1e-4   # nats, docs/ACCURACY.md
IDS = np.random.Generator(np.random.PCG64(46)).integers(0, 270, 120).tolist()


def gaps(path, ids=IDS):
    """Differences from float64 in every cell, and the divergence of every row."""
    rows = oracle.rows(oracle.open_model(path), ids)[:-1]
    (cells,) = nprun.every_cell(path, [ids], rows.shape[1])
    return np.abs(cells - rows), (np.exp(rows) * (rows - cells)).sum(axis=1)


def tied_bf16(folder):
    """llama-tied-f32 with every weight rounded to bf16."""
    source = nprun.MODELS / "llama-tied-f32"
    shutil.copy(source / "config.json", folder)
    raw = (source / "model.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + n])
    data = np.frombuffer(raw, "<u4", offset=8 + n).astype(np.uint64)
    half = ((data + 0x7FFF + (data >> 16 & 1)) >> 16).astype("<u2").tobytes()
    for tensor in header.values():
        if "dtype" in tensor:
            tensor.update(dtype="BF16", data_offsets=[at // 2 for at in tensor["data_offsets"]])
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + half)
    return folder


def test_C046_bf16_weights_cost_no_accuracy():
    """Only the weights are bf16, no sum is: transformers in bfloat16 is off by 3e-2 in the mean."""
    difference, divergence = gaps(nprun.MODELS / "llama-head10-bf16")
    worst = np.abs(divergence).max()
    print(f"mean {difference.mean():.1e}, max {difference.max():.1e}, KL {worst:.1e}")
    assert difference.max() <= BOUND and worst <= 1e-6


def test_C047_a_tied_head_in_bf16(tmp_path):
    path = tied_bf16(tmp_path)
    difference, _ = gaps(path)
    assert difference.max() <= BOUND
    first, again, reloaded = (nprun.gather_many(path, requests)["a"].tobytes() for requests in (
        [{"id": "a", "token_ids": IDS, "prompt_logprob_token_ids": [1, 2]}],
        [{"id": "b", "token_ids": IDS[::-1], "prompt_logprob_token_ids": [1, 2]},
         {"id": "a", "token_ids": IDS, "prompt_logprob_token_ids": [1, 2]}],
        [{"id": "a", "token_ids": IDS, "prompt_logprob_token_ids": [1, 2]}]))
    assert first == again == reloaded


needs_demo = pytest.mark.skipif(not nprun.DEMO.exists(), reason="./run demo gets the demo model")


@needs_demo
def test_C047_a_tied_head_has_no_second_copy():
    info = nprun.answers(nprun.run("info", nprun.DEMO, "--json"))[0]
    assert info["head_tied"] and info["weight_bytes"] <= 1.01 * nprun.DEMO.stat().st_size


@needs_demo
def test_C049_a_thousand_rare_tokens_of_a_tied_head():
    ids, rare = [504, 3575, 282, 4649, 314], list(range(48152, 49152))
    exact = oracle.candidate_logprobs(oracle.open_model(nprun.DEMO), ids, rare)
    worst = np.abs(nprun.gather(nprun.DEMO, ids, rare) - exact).max()
    print(f"worst gap {worst:.1e}")
    assert worst <= BOUND


@pytest.mark.parametrize("name", ["llama-head10-bf16", "gpt2-plain", "qwen2-tied-f32"])
def test_C049_the_least_likely_tokens_of_each_head(name):
    """The 1,000 lowest cells: an own head in bf16, tied ones in f32."""
    path = nprun.MODELS / name
    ids = IDS[:30]
    rows = oracle.rows(oracle.open_model(path), ids)[:-1]
    (cells,) = nprun.every_cell(path, [ids], rows.shape[1])
    lowest = np.argsort(rows, axis=None)[:1000]
    assert np.abs(cells.ravel()[lowest] - rows.ravel()[lowest]).max() <= BOUND


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_C176_the_oracle_reads_blocks_as_the_reference_does(kind):
    """Bit by bit; tests/unit/test_tensor.c does it for nepit by the formulas of the format."""
    quants = pytest.importorskip("gguf.quants")
    constants = pytest.importorskip("gguf.constants")
    name, _, n_bytes, convert = TYPES[kind]
    rng = np.random.Generator(np.random.PCG64(kind))
    blocks = rng.integers(0, 256, (4096, n_bytes), dtype=np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        ours = np.ascontiguousarray(convert(blocks), dtype=np.float32)
        theirs = quants.dequantize(blocks, constants.GGMLQuantizationType[name])
    theirs = np.ascontiguousarray(theirs, dtype=np.float32).reshape(ours.shape)
    good = ~np.isnan(ours)
    assert (good == ~np.isnan(theirs)).all()
    assert ours[good].tobytes() == theirs[good].tobytes()
