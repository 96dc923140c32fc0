"""SamplingParams: fields, defaults, order, checks, copies; and what they mean, C the judge."""

import copy
import dataclasses
import math
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judge import Judge
from nepit import LLM, NepitError, SamplingParams
from vllm_cases import (
    BOTH_REFUSE,
    BOTH_TAKE,
    DEFAULTS,
    NEPIT_REFUSES,
    NEPIT_TAKES,
    REFUSED_WHEN_USED,
    values,
)
from checkout import MODELS

OURS = {"prompt_logprob_tail": False, "score_temperature": None, "logprobs_mode": None}


def make(params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SamplingParams(**values(params))


def test_names_defaults_and_order_are_vllms():
    found = {f.name: f.default for f in dataclasses.fields(SamplingParams)}
    found["output_kind"] = str(found["output_kind"])
    assert list(found.items()) == [*DEFAULTS.items(), *OURS.items()]
    by_place = SamplingParams(2, 0.5, -0.5, 1.2, 0.7, None, 0.9, 3, 0.1, 5, "x", [4], True, 9)
    by_name = SamplingParams(
        n=2, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.2,
        temperature=0.7, top_p=0.9, top_k=3, min_p=0.1, seed=5, stop=["x"], stop_token_ids=[4],
        ignore_eos=True, max_tokens=9,
    )  # fmt: skip
    assert by_place == by_name
    with pytest.raises(TypeError):
        SamplingParams(*range(40))
    with pytest.raises(TypeError):
        SamplingParams(best_of=2)


@pytest.mark.parametrize("params", [*BOTH_TAKE, *(p for p, _ in NEPIT_TAKES)], ids=str)
def test_taken(params):
    made = make(params)
    assert made.clone() == made == pickle.loads(pickle.dumps(made)) == copy.deepcopy(made)
    assert eval(repr(made), {"SamplingParams": SamplingParams}) == made


@pytest.mark.parametrize(
    "params", [*BOTH_REFUSE, *REFUSED_WHEN_USED, *(p for p, _ in NEPIT_REFUSES)], ids=str
)
def test_refused_by_name(params):
    with pytest.raises((NepitError, TypeError)) as caught:
        make(params)
    assert any(name in str(caught.value) for name in params)
    if isinstance(caught.value, NepitError):
        assert caught.value.code in ("EINPUT", "EUNSUPPORTED")
        assert any(caught.value.where.startswith(name) for name in params)


def test_what_is_stored_is_what_vllm_stores():
    plain = SamplingParams()
    assert (plain.stop, plain.stop_token_ids, plain.bad_words) == ([], [], [])
    assert SamplingParams(stop="ab").stop == ["ab"]
    assert SamplingParams(stop_token_ids=[3, 1, 3]).stop_token_ids == [3, 1]
    assert SamplingParams(bad_words=["b", "a", "b"]).bad_words == ["b", "a"]
    assert SamplingParams(seed=-1).seed is None
    assert SamplingParams(logprobs=True).logprobs == 1
    greedy = SamplingParams(temperature=0, top_p=0.5, top_k=3, min_p=0.1)
    assert (greedy.top_p, greedy.top_k, greedy.min_p) == (1.0, 0, 0.0)
    with pytest.warns(UserWarning, match="0.01"):
        assert SamplingParams(temperature=0.002).temperature == 0.01
    assert SamplingParams(logprob_token_ids=[1, 2, 3]).num_logprobs == 3
    assert SamplingParams(logprobs=5).num_logprobs == 5 and plain.num_logprobs is None


def test_from_optional():
    nothing = SamplingParams.from_optional(
        n=None, temperature=None, top_p=None, repetition_penalty=None, presence_penalty=None
    )
    assert nothing == SamplingParams()
    biased = SamplingParams.from_optional(logit_bias={"3": 500, 4: -1.0})
    assert biased.logit_bias == {3: 100.0, 4: -1.0}
    with pytest.raises(NepitError, match="logit_bias"):
        SamplingParams.from_optional(logit_bias={"x": 1.0})
    assert SamplingParams.from_optional(max_tokens=3, stop="a") == SamplingParams(
        max_tokens=3, stop=["a"]
    )


def test_copies_share_nothing_and_arrays_compare():
    ids = np.array([[1, 2], [3, -1]], np.int32)
    params = SamplingParams(prompt_logprob_token_ids=ids, stop=["a"])
    copied = params.clone()
    assert copied == params and not np.shares_memory(copied.prompt_logprob_token_ids, ids)
    copied.stop.append("b")
    assert copied != params and params.stop == ["a"]
    shallow = SamplingParams(prompt_logprob_token_ids=ids, skip_clone=True).clone()
    assert np.shares_memory(shallow.prompt_logprob_token_ids, ids)
    assert params != SamplingParams(prompt_logprob_token_ids=ids + 1, stop=["a"])
    assert params != "params"


def test_fields_set_later_are_checked_when_used(llm):
    params = SamplingParams(max_tokens=1)
    params.top_k = -7
    with pytest.raises(NepitError, match="top_k"):
        llm.generate([1, 2], params)
    params.top_k, params.stop = 0, "a"
    llm.generate([1, 2], params)
    assert params.stop == "a"  # the caller's object is as it was


# ---- what they mean ------------------------------------------------------------------------------

IDS = st.lists(st.integers(0, 300), min_size=1, max_size=12)


@st.composite
def questions(draw):
    """A prompt, and parameters that C takes too."""
    ids = draw(IDS)
    params = {
        "max_tokens": draw(st.sampled_from([0, 1, 3])),
        "temperature": draw(st.sampled_from([0.0, 0.5, 1.0, 1.7])),
        "top_p": draw(st.sampled_from([1.0, 0.8, 1e-30])),
        "top_k": draw(st.sampled_from([-1, 0, 1, 5])),
        "min_p": draw(st.sampled_from([0.0, 0.05])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "repetition_penalty": draw(st.sampled_from([1.0, 0.5, 1.9])),
        "presence_penalty": draw(st.sampled_from([0.0, -2, 1.5])),
        "ignore_eos": draw(st.booleans()),
        "logprobs": draw(st.sampled_from([None, 0, 3, -1])),
        "flat_logprobs": draw(st.booleans()),
        "skip_reading_prefix_cache": draw(st.sampled_from([None, True])),
    }
    start = draw(st.integers(0, len(ids) - 1))
    kind = draw(st.sampled_from(["none", "flat", "rows", "top"]))
    rows = len(ids) - 1 - start
    if kind == "rows" and rows:
        width = draw(st.integers(1, 4))
        cells = st.lists(st.integers(-1, 300), min_size=width, max_size=width)
        table = draw(st.lists(cells, min_size=rows, max_size=rows))
        assume(any(cell >= 0 for row in table for cell in row))  # else it is refused
        params["prompt_logprob_token_ids"] = table
    elif kind == "flat":
        params["prompt_logprob_token_ids"] = draw(st.lists(st.integers(0, 300), min_size=1))
        params["prompt_logprob_tail"] = draw(st.booleans())
    elif kind == "top" and rows:
        params["prompt_logprobs"] = draw(st.sampled_from([0, 1, 5, -1]))
    if params.keys() & {"prompt_logprob_token_ids", "prompt_logprobs"}:
        params["prompt_logprob_start"] = start
        params["score_temperature"] = draw(st.sampled_from([None, 0.7, 2.0]))
        params["logprobs_mode"] = draw(st.sampled_from([None, "raw_logits"]))
    return ids, params


@pytest.fixture(scope="module")
def judge():
    with Judge(MODELS / "llama-tied-f32.gguf") as judge:
        yield judge


def entries(told, i):
    """(id, log-probability, rank) at one place, whichever the layout."""
    return [(token, x.logprob, x.rank) for token, x in told[i].items()]


@settings(max_examples=120, deadline=None)
@given(question=questions())
def test_every_number_is_the_one_of_c(llm, judge, question):
    ids, params = question
    out = llm.generate([ids], SamplingParams(**params), use_tqdm=False)[0]
    right = judge.run(ids, params)
    assert out.prompt_token_ids == ids and out.finished and out.prompt is None
    for name in ("prompt_token_id_logprobs", "prompt_token_id_tail"):
        mine, theirs = getattr(out, name), right[name]
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert mine.dtype == np.float32 and mine.shape == theirs.shape
            assert mine.tobytes() == theirs.tobytes()
    if "prompt_logprobs" in params:
        first = params["prompt_logprob_start"] + 1
        assert len(out.prompt_logprobs) == len(ids)
        assert all(not place for place in out.prompt_logprobs[:first])
        for i in range(first, len(ids)):
            assert entries(out.prompt_logprobs, i) == right["prompt_logprobs"][i - first]
    else:
        assert out.prompt_logprobs is None
    choice = out.outputs[0]
    assert choice.token_ids == right["token_ids"] and choice.text == right["text"]
    assert choice.finish_reason == right["finish_reason"]
    if params["logprobs"] is None:
        assert choice.logprobs is None and choice.cumulative_logprob is None
    else:
        assert len(choice.logprobs) == len(choice.token_ids)
        for i in range(len(choice.token_ids)):
            assert entries(choice.logprobs, i) == right["logprobs"][i]
        assert choice.cumulative_logprob == math.fsum(told[0][1] for told in right["logprobs"])


def test_a_seed_of_the_llm_gives_the_same_texts():
    path = MODELS / "llama-tied-f32.gguf"
    params = SamplingParams(max_tokens=8, ignore_eos=True)

    def drawn(**how):
        with LLM(path, **how) as llm:
            outs = [*llm.generate([[1, 2]] * 2, params), *llm.generate([[1, 2]] * 2, params)]
            return [tuple(out.outputs[0].token_ids) for out in outs]

    assert drawn() == drawn() == drawn(seed=0) != drawn(seed=1)
    assert len(set(drawn())) == 4 and drawn(seed=None) != drawn(seed=None)
    with LLM(path) as llm:
        named = SamplingParams(max_tokens=8, ignore_eos=True, seed=7)
        one, two = llm.generate([[1, 2]] * 2, named)
        assert one.outputs[0].token_ids == two.outputs[0].token_ids
        negative = SamplingParams(max_tokens=8, ignore_eos=True, seed=-2)
        same = SamplingParams(max_tokens=8, ignore_eos=True, seed=2**64 - 2)
        assert llm.generate([1], negative)[0].outputs[0] == llm.generate([1], same)[0].outputs[0]
