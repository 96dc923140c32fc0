"""What the peers of bench/ are given: the same weights as the model's, in one plain width."""

import sys

import numpy as np
import pytest

import nprun

sys.path[:0] = [str(nprun.ROOT), str(nprun.ROOT / "bench" / "peers")]
import peer_weights  # noqa: E402
from tools import oracle  # noqa: E402
from tools.oracle.folder import Folder  # noqa: E402
from tools.oracle.gguf import Gguf, bf16_to_f32  # noqa: E402

IDS = [1, 20, 7, 133, 20]


@pytest.mark.parametrize("name", ["llama-tied-f32", "qwen2-sharded-f16"])
def test_folder_of_gguf_is_the_checkpoint(name, tmp_path):
    """Both forms of these models were made from one checkpoint."""
    peer_weights.write(nprun.MODELS / f"{name}.gguf", tmp_path / "folder", "f32")
    made, given = Folder(tmp_path / "folder"), Folder(nprun.MODELS / name)
    assert made.tensors == given.tensors
    assert all(np.array_equal(made.read(name), given.read(name)) for name in given.tensors)
    for key in ("model_type", "hidden_size", "tie_word_embeddings", "num_key_value_heads"):
        assert made.settings[key] == given.settings[key]


@pytest.mark.parametrize("width", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["llama-mixed", "qwen2-mixed-v2"])
def test_both_forms_are_one_model(name, width, tmp_path):
    """Log-probabilities tell whether a tensor was lost, or its rows put in another order."""
    source = nprun.MODELS / f"{name}.gguf"
    found = []
    for target in (tmp_path / "x.gguf", tmp_path / "x"):
        peer_weights.write(source, target, width)
        found.append(oracle.true_logprobs(oracle.open_model(target), IDS))
        ours = nprun.score(target, IDS)["logprobs"][1:]
        assert np.allclose(ours, found[-1], atol=1e-4)
    assert np.array_equal(*found)
    exact = oracle.true_logprobs(oracle.open_model(source), IDS)
    assert np.array_equal(found[0], exact) == (width == "f32")


def test_gguf_in_f32_has_the_same_values(tmp_path):
    source = nprun.MODELS / "llama-mixed.gguf"
    peer_weights.write(source, tmp_path / "x.gguf", "f32")
    made, given = Gguf(tmp_path / "x.gguf"), Gguf(source)
    assert str(made.settings) == str(given.settings) and made.tensors == given.tensors
    assert all(np.array_equal(made.read(name), given.read(name)) for name in given.tensors)


def test_bf16_rounds_to_nearest_even():
    one, ulp = np.float32(1), np.float32(2**-7)
    x = [one, one + ulp / 2, one + 3 * ulp / 2, one + ulp * 0.51, -one - ulp / 2, 3.0e38, 1e-40]
    expected = [one, one, one + 2 * ulp, one + ulp, -one]
    found = bf16_to_f32(peer_weights.to_bf16(np.array(x, np.float32)))
    assert found[:5].tolist() == expected
    assert np.allclose(found[5], 3.0e38, rtol=2**-8) and abs(found[6] - 1e-40) < 2**-134
