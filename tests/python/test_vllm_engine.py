"""Engine arguments: what each means, which are harmless, which are refused; generation_config."""

import gc
import json
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from checkout import MODELS
from nepit import LLM, NepitError, SamplingParams
from nepit._engine_args import HARMLESS, MEANT, REFUSED

TINY = MODELS / "llama-tied-f32.gguf"
FOLDER = MODELS / "llama-tied-f32"


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_every_argument_has_one_place():
    assert not HARMLESS & MEANT and not HARMLESS & set(REFUSED) and not MEANT & set(REFUSED)
    for name, (neutral, why) in REFUSED.items():
        assert neutral and why, name


def test_harmless_ones_are_named_in_one_warning():
    with pytest.warns(UserWarning) as caught:
        LLM(TINY, gpu_memory_utilization=0.9, enforce_eager=True, tensor_parallel_size=2).close()
    (told,) = [str(w.message) for w in caught]
    assert "gpu_memory_utilization, enforce_eager, tensor_parallel_size" in told
    assert caught[0].filename == __file__


def test_what_asks_for_what_is_done_is_silent(quiet):
    nothing = {name: None for name, (neutral, _) in REFUSED.items() if None in neutral}
    LLM(TINY, **nothing).close()
    LLM(
        TINY, trust_remote_code=False, tensor_parallel_size=1, pipeline_parallel_size=1,
        enforce_eager=False, max_num_seqs=None, tokenizer=str(TINY), enable_prefix_caching=True,
        load_format="gguf", quantization="gguf", kv_cache_dtype="auto", runner="generate",
        tokenizer_mode="auto", generation_config="vllm", hf_overrides={}, revision="main",
    ).close()  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quantization", "fp8"), ("kv_cache_dtype", "fp8"), ("hf_overrides", {"rope_theta": 1}),
        ("rope_scaling", {"type": "yarn"}), ("enable_lora", True), ("load_format", "dummy"),
        ("tokenizer", "another"), ("tokenizer_mode", "mistral"), ("revision", "abc"),
        ("runner", "pooling"), ("logits_processors", [object()]), ("enable_prompt_embeds", True),
        ("dtype", "float16"), ("dtype", "half"), ("hf_config_path", "x"),
        ("disable_sliding_window", True), ("watermark_config", {"a": 1}),
    ],
)  # fmt: skip
def test_what_would_change_a_number_is_refused(name, value):
    with pytest.raises(NepitError) as caught:
        LLM(TINY, **{name: value})
    assert (caught.value.code, caught.value.where) == ("EUNSUPPORTED", name)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("dtype", "float64", NepitError), ("logprobs_mode", "cooked", NepitError),
        ("max_logprobs", -2, NepitError), ("max_model_len", 0, NepitError),
        ("max_model_len", "long", TypeError), ("max_model_len", 10**6, NepitError),
        ("generation_config", "nowhere", NepitError), ("chat_template", "nowhere", OSError),
    ],
)  # fmt: skip
def test_wrong_values_are_named(name, value, error):
    with pytest.raises(error) as caught:
        LLM(TINY, **{name: value})
    assert value == "nowhere" or name in str(caught.value) or "context" in str(caught.value)


def test_unknown_ones_name_the_nearest():
    with pytest.raises(TypeError, match="gpu_memory_utilization"):
        LLM(TINY, gpu_memory_utilisation=0.5)
    with pytest.raises(TypeError, match="max_model_len"):
        LLM(TINY, max_model_length=5)
    with pytest.raises(TypeError, match="zzz"):
        LLM(TINY, zzz=1)


class Bfloat16:
    """As torch.bfloat16 shows itself."""

    def __str__(self):
        return "torch.bfloat16"


def test_dtypes(quiet):
    for dtype in ("bfloat16", Bfloat16()):
        with LLM(TINY, dtype=dtype) as llm:
            assert llm.model.info.profile == "bf16"
    for dtype in ("float32", "torch.float32"):
        with LLM(TINY, dtype=dtype) as llm:
            assert llm.model.info.profile == "f32"
    with pytest.raises(NepitError, match="profile"):
        LLM(TINY, dtype="bfloat16", profile="f32")
    with pytest.warns(UserWarning, match="float32"), LLM(TINY, dtype="auto") as llm:
        assert llm.model.info.profile == "f32"


def test_max_logprobs_is_a_limit():
    ids = [1, 2, 3]
    with LLM(TINY, max_logprobs=2) as llm:
        llm.generate(ids, SamplingParams(logprobs=2, prompt_logprobs=2, max_tokens=1))
        for name, value in (
            ("logprobs", 3),
            ("prompt_logprobs", -1),
            ("prompt_logprob_token_ids", [1, 2, 3]),
        ):
            with pytest.raises(NepitError, match="max_logprobs") as caught:
                llm.generate(ids, SamplingParams(**{name: value}))
            assert caught.value.where == f"sampling_params.{name}"


def test_modes_of_the_llm_and_of_a_request():
    ids, params = [1, 2, 3], {"prompt_logprobs": 0, "max_tokens": 2, "logprobs": 0, "seed": 1}
    params |= {"temperature": 0.5, "ignore_eos": True}
    found = {}
    for mode in ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"):
        with LLM(TINY, logprobs_mode=mode) as llm:
            found[mode] = llm.generate(ids, SamplingParams(**params))[0]
        with LLM(TINY) as llm:
            one = llm.generate(ids, SamplingParams(**params, logprobs_mode=mode))[0]
        assert one.prompt_logprobs == found[mode].prompt_logprobs
        assert one.outputs == found[mode].outputs
    assert found["processed_logprobs"].prompt_logprobs == found["raw_logprobs"].prompt_logprobs
    assert found["raw_logits"].prompt_logprobs != found["raw_logprobs"].prompt_logprobs
    told = {mode: out.outputs[0].logprobs[0] for mode, out in found.items()}
    assert len({repr(values) for values in told.values()}) == 4


def test_prefix_caching():
    ids, params = [5] * 200, SamplingParams(max_tokens=0, prompt_logprobs=0)
    with LLM(TINY) as llm:
        first, second = llm.generate(ids, params)[0], llm.generate(ids, params)[0]
        assert first.num_cached_tokens == 0 < second.num_cached_tokens
        assert llm.reset_prefix_cache() is True
        assert llm.generate(ids, params)[0].num_cached_tokens == 0
        llm.sleep()
        assert llm.wake_up() is True and llm.wake_up(["weights"]) is True
        assert llm.generate(ids, params)[0].num_cached_tokens == 0
        anew = SamplingParams(max_tokens=0, prompt_logprobs=0, skip_reading_prefix_cache=True)
        again = llm.generate(ids, anew)[0]
        assert again.num_cached_tokens == 0 and again.prompt_logprobs == first.prompt_logprobs
        with pytest.raises(NepitError, match="level"):
            llm.sleep(2)
        assert llm.get_world_size() == 1 and repr(llm).startswith("LLM(model=")
    with LLM(TINY, enable_prefix_caching=False) as llm:
        llm.generate(ids, params)
        assert llm.generate(ids, params)[0].num_cached_tokens == 0
    with pytest.raises(NepitError, match="enable_prefix_caching"):
        LLM(TINY, enable_prefix_caching=False, cache_memory=1 << 20)


# ---- generation_config.json ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """The tiny model with a generation_config.json beside it."""
    made = tmp_path / "model"
    shutil.copytree(FOLDER, made)
    config = {"temperature": 0.25, "top_k": 4, "max_new_tokens": 3, "eos_token_id": [298, 9]}
    (made / "generation_config.json").write_text(json.dumps(config))
    return made


def test_the_models_own_sampling_values(folder):
    with LLM(folder) as llm:
        own = llm.get_default_sampling_params()
        assert own == SamplingParams(temperature=0.25, top_k=4, max_tokens=3)
        assert len(llm.generate([1, 2])[0].outputs[0].token_ids) <= 3
        assert llm.generate([1, 2], SamplingParams())[0].outputs[0].token_ids != []
    with LLM(folder, override_generation_config={"temperature": 0.5}) as llm:
        assert llm.get_default_sampling_params().temperature == 0.5
    with LLM(folder, generation_config="vllm") as llm:
        assert llm.get_default_sampling_params() == SamplingParams()
    with LLM(TINY, generation_config=str(folder)) as llm:
        assert llm.get_default_sampling_params() == own
    with LLM(TINY) as llm:
        assert llm.get_default_sampling_params() == SamplingParams()
    (folder / "generation_config.json").write_text("[1]")
    with pytest.raises(NepitError, match="generation_config"):
        LLM(folder)


def test_its_ids_end_texts(folder):
    forced = {"temperature": 0, "max_tokens": 3, "logit_bias": {9: 1000.0}}
    for source in ("auto", "vllm"):
        with LLM(folder, generation_config=source) as llm:
            choice = llm.generate([1], SamplingParams(**forced))[0].outputs[0]
            assert (choice.token_ids, choice.finish_reason, choice.stop_reason) == ([9], "stop", 9)
            on = llm.generate([1], SamplingParams(**forced, ignore_eos=True))[0].outputs[0]
            assert on.token_ids == [9, 9, 9]
    with LLM(FOLDER) as llm:
        assert llm.generate([1], SamplingParams(**forced))[0].outputs[0].token_ids == [9, 9, 9]


# ---- threads, memory, closing --------------------------------------------------------------------


def test_threads_share_an_llm_and_get_their_own_answers():
    prompts = [[i, i + 1, 7, 5] for i in range(1, 33)]
    params = SamplingParams(max_tokens=2, prompt_logprobs=1, logprobs=1, seed=3)
    with LLM(TINY) as llm:
        right = [llm.generate(prompt, params, use_tqdm=False)[0] for prompt in prompts]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda p: llm.generate(p, params, use_tqdm=False)[0], prompts))
    assert len({out.request_id for out in [*right, *found]}) == 64
    for mine, theirs in zip(found, right, strict=True):
        assert mine.prompt_logprobs == theirs.prompt_logprobs and mine.outputs == theirs.outputs


def test_thousands_of_calls_leave_nothing_behind():
    table = np.array([[1, 2, 3]] * 3, np.int32)
    with LLM(TINY) as llm:

        def some(n):
            for _ in range(n):
                params = SamplingParams(max_tokens=1, prompt_logprob_token_ids=table, logprobs=2)
                llm.generate([5, 6, 7, 8], params, use_tqdm=False)
            gc.collect()
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

        first = some(500)
        assert some(1500) - first < 1 << 20


def test_outputs_stay_when_the_llm_is_closed():
    llm = LLM(TINY)
    out = llm.generate("ab", SamplingParams(max_tokens=2, prompt_logprobs=3, logprobs=3))[0]
    llm.close()
    assert len(out.prompt_logprobs) == len(out.prompt_token_ids) == 2
    assert all(told.decoded_token is not None for told in out.prompt_logprobs[1].values())
    with pytest.raises(ValueError, match="closed"):
        llm.generate([1])
