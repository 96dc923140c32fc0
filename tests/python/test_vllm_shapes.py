"""vLLM's shapes: names, defaults, layouts and checks, and the same numbers as the native calls."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
from checkout import DEMO, MODELS
from nepit import LLM, NepitError, SamplingParams, TextPrompt, TokensPrompt
import nepit

IDS = [7, 3, 9, 4, 1, 12, 8]

# vLLM's defaults, as of its release 0.32.
DEFAULTS = {
    "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None, "stop": None,
    "stop_token_ids": None, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0,
    "logprobs": None, "prompt_logprobs": None, "prompt_logprob_token_ids": None,
    "prompt_logprob_start": None, "logprob_token_ids": None, "flat_logprobs": False,
    "detokenize": True, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False, "logit_bias": None, "allowed_token_ids": None,
    "bad_words": None, "skip_reading_prefix_cache": None, "extra_args": None,
}  # fmt: skip


def one(llm, **params):
    return llm.generate(TokensPrompt(prompt_token_ids=IDS), SamplingParams(**params))[0]


def test_defaults_are_vllms():
    found = {f.name: f.default for f in dataclasses.fields(SamplingParams)}
    assert {name: found[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0), ("temperature", -0.1), ("temperature", math.nan), ("top_p", 0), ("top_p", 1.1),
        ("top_k", -2), ("min_p", 2), ("presence_penalty", 3), ("repetition_penalty", 0),
        ("max_tokens", -1), ("logprobs", -2), ("prompt_logprobs", -3), ("logprobs", False),
        ("prompt_logprob_start", -1), ("prompt_logprob_start", 3), ("score_temperature", 0),
        ("prompt_logprob_tail", True), ("temperature", "warm"), 
        ("structured_outputs", {"regex": "a"}),
    ],
)  # fmt: skip
def test_wrong_values_are_named(field, value):
    with pytest.raises((NepitError, TypeError), match=field):
        SamplingParams(**{field: value})


def test_teacher_scoring(llm, tiny):
    candidates = np.array([[4, 5], [6, -1], [7, 7]], np.int32)
    out = one(llm, max_tokens=1, prompt_logprob_token_ids=candidates, prompt_logprob_start=3)
    right = tiny.gather(IDS, candidates=candidates, start=3).scores
    assert out.prompt_token_id_logprobs.dtype == np.float32
    assert np.array_equal(out.prompt_token_id_logprobs, right)
    assert out.prompt_token_id_logprobs[1, 1] == -np.inf
    assert out.prompt_logprobs is None and len(out.outputs[0].token_ids) == 1
    flat = one(llm, max_tokens=0, prompt_logprob_token_ids=[4, 5], prompt_logprob_tail=True)
    again = tiny.gather(IDS, candidates=[4, 5], tail=True)
    assert np.array_equal(flat.prompt_token_id_logprobs, again.scores)
    assert np.array_equal(flat.prompt_token_id_tail, again.tail)
    assert flat.outputs[0].token_ids == [] and flat.outputs[0].finish_reason == "length"
    cached = one(llm, max_tokens=0, prompt_logprob_token_ids=[4, 5])
    assert np.array_equal(cached.prompt_token_id_logprobs, again.scores)
    assert cached.num_cached_tokens > 0


def test_prompt_logprobs_have_the_true_token_first(llm, tiny):  # C062
    score = tiny.score(IDS, top=3)
    for k in (0, 1, 3):
        rows = one(llm, max_tokens=0, prompt_logprobs=k).prompt_logprobs
        assert len(rows) == len(IDS) and rows[0] is None
        for i, row in enumerate(rows[1:], start=1):
            first = next(iter(row))
            assert first == IDS[i] and row[first].logprob == float(score.logprobs[i])
            assert row[first].rank == score.ranks[i] and len(row) in (max(k, 1), k + 1)
            others = [value.rank for token, value in row.items() if token != first]
            assert others == sorted(others)
            assert all(
                row[t].logprob == float(x)
                for t, x in zip(score.top_ids[i - 1][:k].tolist(), score.top_logprobs[i - 1][:k])
            )
    cut = one(llm, max_tokens=0, prompt_logprobs=1, prompt_logprob_start=4).prompt_logprobs
    assert [row is None for row in cut] == [True] * 5 + [False] * 2
    assert cut[5:] == one(llm, max_tokens=0, prompt_logprobs=1).prompt_logprobs[5:]


def test_generated_logprobs_are_those_of_scoring(llm, tiny):
    out = one(llm, max_tokens=5, temperature=0, logprobs=2, ignore_eos=True)
    choice = out.outputs[0]
    score = tiny.score(IDS + choice.token_ids)
    for t, (token, row) in enumerate(zip(choice.token_ids, choice.logprobs)):
        assert next(iter(row)) == token
        assert row[token].logprob == float(score.logprobs[len(IDS) + t]) and row[token].rank == 1
    assert choice.cumulative_logprob == math.fsum(
        float(x) for x in score.logprobs[len(IDS) :].tolist()
    )
    named = one(llm, max_tokens=2, temperature=0, logprob_token_ids=[5, 6], ignore_eos=True)
    assert {5, 6} <= set(named.outputs[0].logprobs[0])


def test_prompts_of_all_kinds(llm):
    params = SamplingParams(max_tokens=0, prompt_logprobs=0)
    forms = [
        IDS,
        np.array(IDS),
        TokensPrompt(prompt_token_ids=IDS),
        [IDS],
        [np.array(IDS, np.int64)],
        [TokensPrompt(prompt_token_ids=np.array(IDS))],
    ]
    found = [llm.generate(form, params) for form in forms]
    assert all(
        len(outs) == 1 and outs[0].prompt_logprobs == found[0][0].prompt_logprobs for outs in found
    )
    texts = llm.generate(["ab", TextPrompt(prompt="ab")], params)
    assert texts[0].prompt_token_ids == texts[1].prompt_token_ids and texts[0].prompt == "ab"
    assert llm.generate([], params) == []
    ids = [out.request_id for out in llm.generate([IDS, IDS], params)]
    assert int(ids[1]) == int(ids[0]) + 1
    several = llm.generate([IDS, IDS[:3]], [params, SamplingParams(max_tokens=2)])
    assert several[1].prompt_logprobs is None and several[0].outputs[0].token_ids == []
    for wrong in ({"prompts": 1}, {"prompt_token_ids": None}, {"prompt_token_ids": IDS, "lora": 1}):
        with pytest.raises(TypeError):
            llm.generate(wrong, params)
    with pytest.raises(NepitError, match="sampling_params"):
        llm.generate([IDS], [params, params])


def test_one_bad_prompt_is_named_before_anything_runs(llm):
    before = llm.model.stats()["n_requests"]
    with pytest.raises(NepitError) as caught:
        llm.generate([IDS, [1, 2, 10**6]], SamplingParams(max_tokens=1))
    assert caught.value.where == "prompts[1].prompt_token_ids[2]"
    assert llm.model.stats()["n_requests"] == before
    with pytest.raises(NepitError, match="rows"):
        one(llm, prompt_logprob_token_ids=[[1], [2]])


def test_engine_arguments():
    path = MODELS / "llama-tied-f32.gguf"
    with pytest.warns(UserWarning, match="gpu_memory_utilization"):
        LLM(path, gpu_memory_utilization=0.9).close()
    with pytest.warns(UserWarning, match="float32"):
        LLM(path, dtype="auto").close()
    with LLM(path, dtype="bfloat16") as llm:
        assert llm.model.info.profile == "bf16"
    for name, value in (("quantization", "awq"), ("enable_lora", True), ("kv_cache_dtype", "fp8")):
        with pytest.raises(NepitError, match=name):
            LLM(path, **{name: value})
    with pytest.raises(TypeError, match="gpu_mem"):
        LLM(path, gpu_mem=1)
    with pytest.raises(NepitError, match="dtype"):
        LLM(path, dtype="float16")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LLM(path, max_model_len=64, pipeline_parallel_size=1).close()


def test_chat(demo):
    dialogue = [{"role": "user", "content": "Say hi"}]
    with LLM(DEMO) as llm:
        out = llm.chat(dialogue, SamplingParams(max_tokens=2, temperature=0))
    told = demo.chat(dialogue)
    assert out[0].prompt_token_ids == told.token_ids.tolist()
    assert out[0].prompt == b"".join(told.texts).decode()
    assert len(out[0].outputs[0].token_ids) == 2


def test_a_thousand_prompts_share_one_call(llm):
    prompts = [[i % 50 + 1, (i * 7) % 50, 3, i % 11] for i in range(1000)]
    params = SamplingParams(max_tokens=0, prompt_logprob_token_ids=[1, 2, 3])
    outs = llm.generate(prompts, params)
    alone = nepit.open(MODELS / "llama-tied-f32.gguf")
    for i in (0, 1, 500, 999):
        right = alone.gather(prompts[i], candidates=[1, 2, 3]).scores
        assert np.array_equal(outs[i].prompt_token_id_logprobs, right)
    alone.close()
