"""Beside the real vLLM, started once: names, orders, defaults, checks, and the outputs of a model.

NEPIT_VLLM_PYTHON=/path/python      an environment with vllm 0.32 (its CPU build)
"""

import dataclasses
import inspect
import json
import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from checkout import MODELS
from nepit import LLM, CompletionOutput, Logprob, NepitError, RequestOutput, SamplingParams
from nepit._engine_args import HARMLESS, MEANT, REFUSED
from nepit._outputs import FlatLogprobs
from nepit._prompts import _KNOWN, _UNSERVED
from vllm_cases import BOTH_REFUSE, BOTH_TAKE, DEFAULTS, NEPIT_REFUSES, NEPIT_TAKES, values

pytestmark = [pytest.mark.long, pytest.mark.peers]
PYTHON = os.environ.get("NEPIT_VLLM_PYTHON")
OURS = {"prompt_logprob_tail", "score_temperature", "logprobs_mode"}
NEPITS = {"profile", "threads", "max_memory", "cache_memory", "cpu"}
FORMER = {  # of earlier releases
    "device", "disable_log_requests", "max_seq_len_to_capture", "rope_scaling", "rope_theta",
    "swap_space", "task",
}  # fmt: skip
GENERATION = {"temperature": 0.5, "top_k": 7, "max_new_tokens": 9, "eos_token_id": [298, 9]}
PAR = {"temperature": 0.0, "max_tokens": 6}
IDS = [7, 3, 9, 4, 1, 12, 8]
TEXT = "a\U0001f600b\u00e9 c"
QUESTIONS = [
    ([{"prompt_token_ids": IDS}], {**PAR, "prompt_logprobs": 3, "logprobs": 2}),
    ([{"prompt_token_ids": IDS}], {**PAR, "prompt_logprobs": 0, "logprobs": 0}),
    ([{"prompt_token_ids": [5]}], {**PAR, "prompt_logprobs": 1}),
    ([TEXT, "ab"], {**PAR, "prompt_logprobs": 4, "logprobs": 4}),
    ([TEXT], {**PAR, "prompt_logprobs": 2, "logprobs": 1, "flat_logprobs": True}),
    ([TEXT], {**PAR, "prompt_logprobs": 1, "logprobs": 1, "detokenize": False}),
    ([{"prompt_token_ids": IDS}], {**PAR, "prompt_logprobs": -1, "max_tokens": 1}),
    ([{"prompt_token_ids": IDS}], {**PAR, "logit_bias": {"9": 100.0}, "logprobs": 1}),
    ([{"prompt_token_ids": IDS}], {**PAR, "logit_bias": {"9": 100.0}, "ignore_eos": True}),
    ([{"prompt_token_ids": IDS}], {**PAR, "allowed_token_ids": [20, 21, 22], "logprobs": 1}),
    ([{"prompt_token_ids": IDS}], {**PAR, "logprob_token_ids": [5, 6], "logprobs": 2}),
    ([{"prompt_token_ids": [5] * 60}], {**PAR, "max_tokens": 16, "ignore_eos": True}),
    ([{"prompt_token_ids": IDS}, "ab"], {"temperature": 0, "max_tokens": 9, "min_tokens": 4}),
    ([{"prompt_token_ids": IDS}], {**PAR, "repetition_penalty": 1.7, "presence_penalty": 1.0}),
]


def tiny_llama(folder):
    """A model that vLLM's CPU kernels can run (heads of 32), with the tiny tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((MODELS / "llama-tied-f32" / name).read_bytes())
    config = json.loads((MODELS / "llama-tied-f32/config.json").read_text())
    sizes = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    config |= {**sizes, "intermediate_size": 96, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(GENERATION))
    shapes = {"model.embed_tokens.weight": (301, 64), "model.norm.weight": (64,)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "input_layernorm": (64,), "post_attention_layernorm": (64,),
            "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64),
            "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
            "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
        }.items():  # fmt: skip
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    random, header, data = np.random.default_rng(5), {}, b""
    for name, shape in shapes.items():
        cells = random.normal(0, 0.35, shape) + (1.0 if len(shape) == 1 else 0.0)
        raw = cells.astype("<f4").tobytes()
        span = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": span}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("llama32"))


@pytest.fixture(scope="module")
def told(folder):
    if not PYTHON:
        pytest.skip("NEPIT_VLLM_PYTHON names no Python with vllm")
    cases = [*BOTH_TAKE, *BOTH_REFUSE, *(p for p, _ in (*NEPIT_TAKES, *NEPIT_REFUSES))]
    asked = {"verdicts": cases, "questions": QUESTIONS, "defaults": ["temperature", "top_k"]}
    command = [PYTHON, str(Path(__file__).parent / "vllm_tells.py"), str(folder)]
    ran = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


def names(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def fields(kind):
    return [field.name for field in dataclasses.fields(kind)]


def test_names_and_orders(told):
    shape = told["shape"]
    known = {k: v if v is None else str(v) for k, v in DEFAULTS.items()}
    assert list(shape["params"].items()) == list(known.items())
    assert [name for name in fields(SamplingParams) if name not in OURS] == list(shape["params"])
    assert names(SamplingParams.from_optional) == shape["from_optional"]
    assert sorted(names(LLM.generate)) == sorted(shape["generate"])
    assert names(LLM.generate)[:2] == shape["generate"][:2]
    assert names(LLM.chat) == shape["chat"]
    assert fields(CompletionOutput) == shape["completion"]
    assert fields(Logprob) == shape["logprob"]
    assert fields(FlatLogprobs) == shape["flat"]
    ours = [name for name in names(RequestOutput.__init__) if name != "prompt_token_id_tail"]
    assert ours == [name for name in shape["output"] if name != "kwargs"]


def test_every_engine_argument_has_a_meaning(told):
    shape = told["shape"]
    theirs = {*shape["init"], *shape["engine"]} - {"kwargs"}
    ours = HARMLESS | MEANT | set(REFUSED)
    assert theirs - ours == set() and ours - theirs == NEPITS | FORMER


def test_every_key_of_a_prompt_is_known(told):
    keys = {*told["shape"]["text_prompt"], *told["shape"]["tokens_prompt"]}
    assert keys <= _KNOWN | set(_UNSERVED)


def test_the_same_parameters_are_taken_and_refused(told):
    verdicts = iter(told["verdicts"])
    expected = [(p, True, True) for p in BOTH_TAKE] + [(p, False, False) for p in BOTH_REFUSE]
    expected += [(p, True, False) for p, _ in NEPIT_TAKES]
    expected += [(p, False, True) for p, _ in NEPIT_REFUSES]
    differ = []
    for params, ours, theirs in expected:
        verdict = next(verdicts)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                SamplingParams(**values(params))
            mine = True
        except (NepitError, TypeError):
            mine = False
        if (mine, verdict is None) != (ours, theirs):
            differ.append((params, mine, verdict))
    assert differ == []


def same_places(mine, theirs):
    """The same ids and texts, numbers within 2e-3, ranks within what that allows."""
    if theirs is None:
        assert mine is None
        return
    assert len(mine) == len(theirs)
    for place, right in zip(mine, theirs, strict=True):
        if right is None:
            assert place is None
            continue
        assert next(iter(place)) == right[0][0]
        assert set(place) == {token for token, *_ in right}
        for token, logprob, rank, text in right:
            assert place[token].logprob == pytest.approx(logprob, abs=2e-3)
            assert place[token].decoded_token == text
            assert place[token].rank is None or abs(place[token].rank - rank) <= 1


def test_the_same_outputs(told, folder):
    with LLM(folder) as llm:
        for (prompts, params), answers in zip(QUESTIONS, told["answers"]):
            outs = llm.generate(prompts, SamplingParams(**values(params)), use_tqdm=False)
            for out, right in zip(outs, answers, strict=True):
                assert out.prompt_token_ids == right["prompt_token_ids"]
                assert (out.prompt, out.finished) == (right["prompt"], right["finished"])
                flat = params.get("flat_logprobs", False)
                places = out.prompt_logprobs
                if flat:
                    places = [place or None for place in places]
                    right["prompt_logprobs"] = [p or None for p in right["prompt_logprobs"]]
                same_places(places, right["prompt_logprobs"])
                for made, choice in zip(out.outputs, right["outputs"], strict=True):
                    for name in ("index", "text", "token_ids", "finish_reason", "stop_reason"):
                        assert getattr(made, name) == choice[name], (params, name)
                    same_places(made.logprobs, choice["logprobs"])
                    total = choice["cumulative_logprob"]
                    assert made.cumulative_logprob == (total and pytest.approx(total, abs=5e-3))


def test_the_models_own_defaults(told, folder):
    with LLM(folder) as llm:
        mine = llm.get_default_sampling_params()
        assert {"temperature": mine.temperature, "top_k": mine.top_k} == told["defaults"]
