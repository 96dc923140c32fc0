"""Prompts in every form, dialogues, the tokenizer, and the scores that are nepit's own."""

import math

import numpy as np
import pytest
from checkout import DEMO, MODELS
from nepit import LLM, NepitError, SamplingParams, TextPrompt, TokensPrompt

IDS = [7, 3, 9, 4, 1, 12, 8]
SCORED = SamplingParams(max_tokens=0, prompt_logprobs=0)


class Tensor:
    """As torch's: DLPack, and no list."""

    def __init__(self, array):
        self.array, self.ndim, self.shape = array, array.ndim, array.shape

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture(scope="module")
def talker():
    with LLM(DEMO) as llm:
        yield llm


@pytest.mark.parametrize(
    "form",
    [
        IDS,
        tuple(IDS),
        np.array(IDS),
        np.array(IDS, np.uint8),
        np.repeat(np.array(IDS, np.int16), 2)[::2],
        Tensor(np.array(IDS)),
        TokensPrompt(prompt_token_ids=IDS),
        {"prompt_token_ids": np.array(IDS, np.int64), "prompt": "shown"},
        [IDS],
        [np.array(IDS, np.int64)],
        np.array([IDS]),
        [TokensPrompt(prompt_token_ids=Tensor(np.array(IDS, np.int32)), cache_salt="s")],
    ],
    ids=lambda form: type(form).__name__,
)
def test_ids_in_every_form(llm, form):
    outs = llm.generate(form, SCORED)
    assert [out.prompt_token_ids for out in outs] == [IDS]
    assert outs[0].prompt_logprobs == llm.generate(IDS, SCORED)[0].prompt_logprobs
    assert outs[0].prompt == (form.get("prompt") if isinstance(form, dict) else None)


def test_mixed_lists_keep_their_order(llm):
    forms = ["ab", IDS, TextPrompt(prompt="b"), TokensPrompt(prompt_token_ids=[1, 2]), "ab"]
    outs = llm.generate(forms, SCORED)
    assert [out.prompt for out in outs] == ["ab", None, "b", None, "ab"]
    assert outs[1].prompt_token_ids == IDS and outs[0].prompt_logprobs == outs[4].prompt_logprobs
    numbers = [int(out.request_id) for out in outs]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    assert llm.generate([], SCORED) == []


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ([[4, 5], [6], [7, 8, 9]], (3, 3)),
        (np.array([[4, 5], [6, -1], [7, 7]], np.int32), (3, 2)),
        (np.arange(24).reshape(3, 8)[:, ::3], (3, 3)),
        (np.array([4, 5], np.uint16), (3, 2)),
        (Tensor(np.array([[4, 5], [6, 2], [7, 8]])), (3, 2)),
    ],
    ids=["ragged", "int32", "strided", "uint16", "tensor"],
)
def test_candidates_in_every_form(llm, table, kinds):  # C119
    params = SamplingParams(max_tokens=1, prompt_logprob_token_ids=table, prompt_logprob_start=3)
    scores = llm.generate(IDS, params)[0].prompt_token_id_logprobs
    whole = llm.generate(IDS, SamplingParams(max_tokens=0, prompt_logprobs=-1))[0].prompt_logprobs
    assert scores.shape == kinds
    array = getattr(table, "array", table)
    for r in range(3):
        row = array if getattr(array, "ndim", 2) == 1 else array[r]
        for column, token in enumerate(row):
            right = whole[4 + r][int(token)].logprob if token >= 0 else -math.inf
            assert scores[r, column] == np.float32(right)
        assert np.all(scores[r, len(row) :] == -np.inf)


def test_int32_arrays_are_not_copied(llm):
    table = np.array([[4, 5]] * 6, np.int32)
    params = SamplingParams(max_tokens=0, prompt_logprob_token_ids=table)
    (plan,) = set(llm._plans(params, 3))
    assert any(keep is table for keep in plan._batch.keeps)


@pytest.mark.parametrize(
    ("prompt", "error", "place"),
    [
        ({"prompts": "a"}, TypeError, "prompts"),
        ({"prompt_token_ids": None}, TypeError, "prompt"),
        ({"prompt": 3}, TypeError, "prompt"),
        ({"prompt": "a", "cache_salt": ""}, NepitError, "cache_salt"),
        ({"prompt": "a", "cache_salt": 1}, TypeError, "cache_salt"),
        ({"prompt": "a", "multi_modal_data": {"image": 1}}, NepitError, "multi_modal_data"),
        ({"prompt_embeds": [1.0]}, NepitError, "prompt_embeds"),
        ({"encoder_prompt": "a", "decoder_prompt": "b"}, NepitError, "encoder_prompt"),
        ({"prompt_token_ids": IDS, "token_type_ids": [0]}, NepitError, "token_type_ids"),
        ([], NepitError, "prompts[1]"),
        ([1.5], TypeError, "prompts[1]"),
        ([-1], NepitError, "prompts[1].prompt_token_ids[0]"),
        ([10**6], NepitError, "prompts[1].prompt_token_ids[0]"),
        ([2**40], NepitError, "prompts[1]"),
        (None, TypeError, "prompts[1]"),
        ([1] * 600, NepitError, "prompts[1].prompt_token_ids"),
    ],
    ids=str,
)
def test_wrong_prompts_are_named(llm, prompt, error, place):
    before = llm.model.stats()["n_requests"]
    with pytest.raises(error) as caught:
        llm.generate([IDS, prompt], SCORED)
    assert place in str(caught.value) and llm.model.stats()["n_requests"] == before


def test_keys_that_are_none_mean_nothing(llm):
    prompt = {"prompt_token_ids": IDS, "multi_modal_data": None, "mm_processor_kwargs": None}
    assert llm.generate(prompt, SCORED)[0].prompt_token_ids == IDS


def test_wrong_parameters_are_named_by_place(llm):
    good = SamplingParams(max_tokens=1)
    bad = SamplingParams(max_tokens=1, prompt_logprob_token_ids=[[1], [2]])
    with pytest.raises(NepitError) as caught:
        llm.generate([IDS, IDS], [good, bad])
    assert caught.value.where == "sampling_params[1].prompt_logprob_token_ids"
    with pytest.raises(NepitError) as caught:
        llm.generate([IDS], SamplingParams(max_tokens=0, prompt_logprob_token_ids=[1, 999]))
    assert caught.value.where == "sampling_params.prompt_logprob_token_ids[1]"
    with pytest.raises(NepitError) as caught:
        llm.generate([[1] * 512], SamplingParams(max_tokens=1))
    assert caught.value.where == "sampling_params.max_tokens"
    for wrong in ([good], [good] * 3):
        with pytest.raises(NepitError, match="sampling_params"):
            llm.generate([IDS, IDS], wrong)
    with pytest.raises(TypeError, match="SamplingParams"):
        llm.generate([IDS], {"max_tokens": 1})
    for name, value in (("lora_request", object()), ("mm_processor_kwargs", {"a": 1})):
        with pytest.raises(NepitError, match=name):
            llm.generate([IDS], good, **{name: value})
    with pytest.raises(NepitError, match="priority"):
        llm.generate([IDS, IDS], good, priority=[1])
    with pytest.raises(NepitError, match="truncate_prompt_tokens"):
        llm.generate(["a"], good, tokenization_kwargs={"truncate_prompt_tokens": 3})


@pytest.mark.parametrize("max_tokens", [5, 6, 1000, None])
def test_the_context_ends_a_text(max_tokens):
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    with LLM(MODELS / "llama-tied-f32.gguf", max_model_len=12) as llm:
        for prompt in (IDS, "a\u00e9bcde"):  # seven tokens
            out = llm.generate(prompt, params)[0]
            assert len(out.prompt_token_ids) == 7
            assert len(out.outputs[0].token_ids) == 5
            assert out.outputs[0].finish_reason == "length"
        whole = SamplingParams(max_tokens=0, prompt_logprobs=0)  # C116: at the full window too
        assert len(llm.generate([[1] * 12], whole)[0].prompt_logprobs) == 12


def test_priorities_and_salts_change_no_number(llm):
    plain = llm.generate([IDS, IDS[:4]], SCORED)
    for how in ({"priority": 3}, {"priority": [2, -1]}):
        again = llm.generate([IDS, IDS[:4]], SCORED, **how)
        assert [o.prompt_logprobs for o in again] == [o.prompt_logprobs for o in plain]
    salted = [TokensPrompt(prompt_token_ids=[9] * 200, cache_salt=salt) for salt in "aab"]
    cached = [llm.generate(prompt, SCORED)[0].num_cached_tokens for prompt in salted]
    assert cached[0] == cached[2] == 0 < cached[1]


def test_bars(llm, capsys):
    made = []

    class Bar:
        def __init__(self, **how):
            self.n, self.how, self.closed = 0, how, False
            made.append(self)

        def update(self, n):
            self.n += n

        def close(self):
            self.closed = True

    llm.generate([IDS] * 5, SCORED, use_tqdm=Bar)
    assert made[0].n == made[0].how["total"] == 5 and made[0].closed
    with pytest.raises(NepitError):
        llm.generate([[999]], SCORED, use_tqdm=Bar)
    assert made[1].n == 0 and made[1].closed
    capsys.readouterr()
    llm.generate([IDS], SCORED, use_tqdm=False)
    assert capsys.readouterr() == ("", "")


# ---- dialogues and the tokenizer -----------------------------------------------------------------

HI = [{"role": "user", "content": "Say hi"}]


def test_dialogues(talker, demo):
    scored = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    params = SamplingParams(max_tokens=0)
    single = talker.chat(HI, scored)
    several = talker.chat([HI, HI[:1]], scored)
    assert single[0].prompt_token_ids == demo.chat(HI).token_ids.tolist()
    assert several[0].prompt_logprobs == single[0].prompt_logprobs and len(several) == 2
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say hi"}]}]
    assert talker.chat(parts, params)[0].prompt == single[0].prompt
    two = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]
    assert "a\nb" in talker.chat(two, params)[0].prompt
    going_on = [*HI, {"role": "assistant", "content": "Hel"}]
    out = talker.chat(going_on, params, add_generation_prompt=False, continue_final_message=True)
    assert out[0].prompt.endswith("Hel")
    own = talker.chat(HI, params, chat_template="{{ messages[0]['content'] }}{{ x }}",
                      chat_template_kwargs={"x": "!"})  # fmt: skip
    assert own[0].prompt == "Say hi!"
    by_place = talker.chat(HI, params, False, None, None, "{{ messages[0]['content'] }}")
    assert by_place[0].prompt == "Say hi"
    with LLM(DEMO, chat_template="{{ messages[0]['role'] }}") as llm:
        assert llm.chat(HI, params)[0].prompt == "user"


def test_wrong_dialogues_are_named(talker):
    with pytest.raises(NepitError, match="continue_final_message"):
        talker.chat(HI, continue_final_message=True)
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]
    with pytest.raises(NepitError) as caught:
        talker.chat(picture)
    assert caught.value.where == "messages[0][0].content[0]" and caught.value.code == "EUNSUPPORTED"
    with pytest.raises(NepitError, match="chat_template_content_format"):
        talker.chat(HI, chat_template_content_format="other")
    with pytest.raises(NepitError, match="lora_request"):
        talker.chat(HI, lora_request="x")
    for wrong in ("Say hi", 3, {"role": "user"}, [["Say hi"]]):
        with pytest.raises(TypeError, match="messages"):
            talker.chat(wrong)


def test_the_tokenizer_has_the_usual_names(talker, demo):
    tokenizer = talker.get_tokenizer()
    assert tokenizer.vocab_size == len(tokenizer) == demo.info.n_vocab
    assert tokenizer.max_token_id == demo.info.n_vocab - 1
    assert tokenizer.eos_token_id == demo.info.eos_id == tokenizer.encode(tokenizer.eos_token)[0]
    ids = tokenizer.encode("Hello <|im_end|>")
    assert ids == demo.tokenize("Hello <|im_end|>").token_ids.tolist()
    assert tokenizer.decode(ids) == "Hello <|im_end|>" == tokenizer.decode(np.array(ids))
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Hello "
    assert tokenizer.decode(ids[0]) == "Hello" and tokenizer.decode([]) == ""
    assert tokenizer.batch_decode([ids, ids[:1]]) == ["Hello <|im_end|>", "Hello"]
    both = tokenizer(["a", "a b"])
    assert both["input_ids"] == [tokenizer.encode("a"), tokenizer.encode("a b")]
    assert tokenizer("a")["attention_mask"] == [1]
    chat = tokenizer.apply_chat_template(HI, add_generation_prompt=True)
    assert chat == demo.chat(HI).token_ids.tolist()
    text = tokenizer.apply_chat_template(HI, tokenize=False)
    assert text.endswith("Say hi<|im_end|>\n") and tokenizer.chat_template


# ---- scores --------------------------------------------------------------------------------------


def test_score_prompts_is_the_native_call(llm, tiny):
    forms = ["ab", IDS, TokensPrompt(prompt_token_ids=IDS)]
    found = llm.score_prompts(forms, top=2)
    right = tiny.score(["ab", IDS, IDS], top=2)
    for mine, theirs in zip(found, right):
        assert np.array_equal(mine.logprobs, theirs.logprobs, equal_nan=True)
        assert np.array_equal(mine.top_logprobs, theirs.top_logprobs)


def test_score_labels_is_generative_scoring(llm):
    whole = [
        llm.generate([7, 3, *item], SamplingParams(max_tokens=1, logprobs=-1, temperature=0))
        for item in ([9, 4], [1])
    ]
    rows = [out[0].outputs[0].logprobs[0] for out in whole]
    plain = llm.score_labels([7, 3], [[9, 4], [1]], [5, 6], apply_softmax=False)
    assert plain == [math.exp(row[5].logprob) for row in rows]
    among = llm.score_labels([7, 3], [[9, 4], [1]], [5, 6])
    assert among == pytest.approx(
        [1 / (1 + math.exp(row[6].logprob - row[5].logprob)) for row in rows], rel=1e-12
    )
    turned = llm.score_labels([9, 4], [[7, 3]], [5], apply_softmax=False, item_first=True)
    assert turned == plain[:1]
    texts = llm.score_labels("a", ["b"], [5], apply_softmax=False)
    ids = llm.get_tokenizer().encode("a") + llm.get_tokenizer().encode(
        "b", add_special_tokens=False
    )
    assert texts == llm.score_labels(ids[:1], [ids[1:]], [5], apply_softmax=False)
    for wrong in (([1], [], [5]), ([1], [[2]], [])):
        with pytest.raises(NepitError, match="empty"):
            llm.score_labels(*wrong)


@pytest.mark.parametrize(
    "name", ["score", "encode", "embed", "classify", "reward", "beam_search", "apply_model"]
)
def test_what_is_not_served_says_what_to_use(llm, name):
    with pytest.raises(NepitError, match=name) as caught:
        getattr(llm, name)(["a"], x=1)
    assert caught.value.code == "EUNSUPPORTED"
