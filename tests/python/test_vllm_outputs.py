"""What LLM gives back: places, layouts, texts of tokens, copies."""

import copy
import gc
import inspect
import pickle

import numpy as np
import pytest
from checkout import DEMO
from nepit import LLM, CompletionOutput, Logprob, NepitError, RequestOutput, SamplingParams
from nepit._plan import _words_of

IDS = [7, 3, 9, 4, 1, 12, 8]


@pytest.fixture(scope="module")
def talker():
    with LLM(DEMO) as llm:
        yield llm


def one(llm, prompt=IDS, **params):
    return llm.generate(prompt, SamplingParams(**params), use_tqdm=False)[0]


def test_positional_order_is_vllms():
    made = CompletionOutput(0, "t", [1], -1.5, [{1: Logprob(-1.5, 1, "t")}], None, "stop", "t")
    assert (made.finish_reason, made.stop_reason, made.routed_experts) == ("stop", "t", None)
    assert made.finished() and not CompletionOutput(0, "", [], None, None).finished()
    out = RequestOutput("3", "p", [1], [None], [made], True, None, None, None, None, 5, 6)
    assert (out.request_id, out.finished, out.num_cached_tokens) == ("3", True, 5)
    assert out.num_cache_creation_tokens == 6 and out.prompt_token_id_logprobs is None
    assert Logprob(-1.0) == Logprob(-1.0, None, None)
    names = list(inspect.signature(RequestOutput).parameters)
    assert names[:6] == [
        "request_id", "prompt", "prompt_token_ids", "prompt_logprobs", "outputs", "finished",
    ]  # fmt: skip


def test_what_has_no_meaning_is_none(llm):
    out = one(llm, max_tokens=1)
    for name in (
        "metrics lora_request encoder_prompt encoder_prompt_token_ids kv_transfer_params "
        "ec_transfer_params num_cache_creation_tokens prompt_logprobs prompt_token_id_logprobs "
        "prompt_token_id_tail prompt"
    ).split():
        assert getattr(out, name) is None
    assert out.finished is True and out.outputs[0].finished()


@pytest.mark.parametrize("flat", [False, True])
def test_copies_are_whole_and_free_of_c(llm, flat):
    table = np.array([[1, 2]] * 6, np.int32)
    out = one(
        llm, prompt_logprobs=2, prompt_logprob_token_ids=table, logprobs=1, flat_logprobs=flat
    )
    told = repr(out)
    for made in (pickle.loads(pickle.dumps(out)), copy.deepcopy(out)):
        assert repr(made) == told and made.prompt_token_ids == IDS
        assert not np.shares_memory(made.prompt_token_id_logprobs, out.prompt_token_id_logprobs)
    scores = out.prompt_token_id_logprobs
    right = scores.copy()
    del out
    gc.collect()
    one(llm, prompt_logprob_token_ids=table)
    assert np.array_equal(scores, right)


def test_scores_are_a_view_that_torch_takes_without_a_word(llm):
    out = one(llm, max_tokens=0, prompt_logprob_token_ids=[1, 2])
    scores = out.prompt_token_id_logprobs
    assert scores.base is not None and scores.flags.writeable and scores.flags.c_contiguous
    assert np.from_dlpack(scores).shape == (6, 2)


def test_flat_logprobs_hold_the_same(llm):
    plain = one(llm, prompt_logprobs=3, logprobs=2, prompt_logprob_start=2, temperature=0)
    flat = one(
        llm, prompt_logprobs=3, logprobs=2, prompt_logprob_start=2, temperature=0,
        flat_logprobs=True,
    )  # fmt: skip
    found = flat.prompt_logprobs
    assert [place or None for place in found] == plain.prompt_logprobs
    assert list(flat.outputs[0].logprobs) == plain.outputs[0].logprobs
    assert found.start_indices == [0, 0, 0, 0, 4, 8, 12] and found.end_indices[-1] == 16
    assert found.token_ids[::4] == IDS[3:] and len(found.logprobs) == len(found.ranks) == 16
    assert found[-1] == found[6] and list(found[4:]) == [found[4], found[5], found[6]]
    assert found[5:].start_indices == [0, 4] and len(found[:0]) == 0


def test_a_prompt_of_one_token_has_one_place(llm):
    out = one(llm, [5], max_tokens=0, prompt_logprobs=1)
    assert out.prompt_logprobs == [None]
    empty = one(llm, [5], max_tokens=0, prompt_logprob_token_ids=[1, 2])
    assert empty.prompt_token_id_logprobs.shape == (0, 2)


def test_duplicates_and_order_of_candidates_stay(llm):
    out = one(llm, max_tokens=0, prompt_logprob_token_ids=[5, 5, 2])
    single = one(llm, max_tokens=0, prompt_logprob_token_ids=[2, 5])
    both = out.prompt_token_id_logprobs, single.prompt_token_id_logprobs
    assert np.array_equal(both[0], both[1][:, [1, 1, 0]])


def test_labels_beside_generated_tokens(llm):
    out = one(llm, max_tokens=2, temperature=0, logprob_token_ids=[5, 6], ignore_eos=True)
    whole = one(llm, max_tokens=2, temperature=0, logprobs=-1, ignore_eos=True)
    for told, all_of_them in zip(out.outputs[0].logprobs, whole.outputs[0].logprobs):
        own = next(iter(told))
        assert set(told) == {own, 5, 6} and told[own] == all_of_them[own]
        assert told[5].logprob == all_of_them[5].logprob
        assert own == 5 or told[5].rank is None
    assert out.outputs[0].cumulative_logprob == whole.outputs[0].cumulative_logprob


def test_max_tokens_zero_has_n_empty_choices(llm):
    out = one(llm, max_tokens=0, n=3, logprobs=1)
    assert [choice.index for choice in out.outputs] == [0, 1, 2]
    assert all(choice.token_ids == [] and choice.logprobs == [] for choice in out.outputs)
    assert {choice.finish_reason for choice in out.outputs} == {"length"}


# ---- texts ---------------------------------------------------------------------------------------


def test_characters_in_parts_are_told_by_the_token_that_completes_them(llm):
    text = "a\U0001f600b\u00e9"  # the tiny tokenizer has single bytes for these
    out = one(llm, text, max_tokens=0, prompt_logprobs=0)
    pieces = [llm.model.token_bytes(i) for i in out.prompt_token_ids]
    assert len(pieces) == 8 and b"".join(pieces) == text.encode()
    told = [next(iter(place.values())).decoded_token for place in out.prompt_logprobs[1:]]
    assert told == ["", "", "", "\U0001f600", "b", "", "\u00e9"]


def test_parts_beside_the_true_token_are_told_alone(llm):  # C086
    out = one(llm, "ab\u00e9", max_tokens=0, prompt_logprobs=-1)
    alone = [llm.model.token_bytes(i) for i in range(llm.model.info.n_vocab)]
    for place in out.prompt_logprobs[1:3]:
        for token, told in place.items():
            text = alone[token].decode(errors="replace")
            assert told.decoded_token == ("" if text.endswith("\ufffd") else text)
    for token, told in out.prompt_logprobs[3].items():  # b"\xc3" stands before it
        text = alone[token].decode(errors="replace")
        if text.endswith("\ufffd"):
            whole = (b"\xc3" + alone[token]).decode(errors="replace")
            assert told.decoded_token == ("" if whole.endswith("\ufffd") else whole)
        else:
            assert told.decoded_token == text


def test_a_token_of_the_replacement_character_itself(talker):
    out = one(talker, "x \ufffd y", max_tokens=0, prompt_logprobs=0)
    told = [next(iter(p.values())).decoded_token for p in out.prompt_logprobs[1:]]
    assert "\ufffd" not in "".join(told) or "".join(told).count("\ufffd") == 1


def test_detokenize_false_tells_no_text(llm):
    out = one(llm, max_tokens=3, logprobs=1, prompt_logprobs=1, detokenize=False)
    told = [x for p in (*out.prompt_logprobs[1:], *out.outputs[0].logprobs) for x in p.values()]
    assert out.outputs[0].text == "" and all(x.decoded_token is None for x in told)


def test_stop_reasons(talker):
    plain = talker.generate("The capital of France is", SamplingParams(max_tokens=8, temperature=0))
    text, ids = plain[0].outputs[0].text, plain[0].outputs[0].token_ids
    word = text[4:8]
    stopped = one(talker, "The capital of France is", max_tokens=8, temperature=0, stop=word)
    assert stopped.outputs[0].text == text[: text.index(word)]
    assert stopped.outputs[0].stop_reason == word
    with_it = one(
        talker, "The capital of France is", max_tokens=8, temperature=0, stop=[word],
        include_stop_str_in_output=True,
    )  # fmt: skip
    assert with_it.outputs[0].text == text[: text.index(word)] + word
    by_id = one(
        talker, "The capital of France is", max_tokens=8, temperature=0, stop_token_ids=[ids[2]]
    )
    assert by_id.outputs[0].token_ids == ids[:3] and by_id.outputs[0].stop_reason == ids[2]


def test_bad_words(talker):
    plain = one(talker, "The capital of France is", max_tokens=6, temperature=0).outputs[0]
    (token,) = talker.get_tokenizer().encode(".")
    assert token in plain.token_ids
    bad = one(talker, "The capital of France is", max_tokens=6, temperature=0, bad_words=["."])
    assert token not in bad.outputs[0].token_ids


def test_bad_words_stand_behind_a_space_too_where_they_are_as_many_tokens():
    known = {"a": [1], " a": [2], "bc": [3, 4], " bc": [5], "d": [6, 7], " d": [6, 8]}
    assert _words_of(["a", " bc", "d"], known.__getitem__) == [[1], [2], [3, 4], [6, 7]]
    with pytest.raises(NepitError, match="bad_words"):
        _words_of(["e"], {"e": [], " e": [1]}.__getitem__)
