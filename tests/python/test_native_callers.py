"""What callers do that nobody expects: buffers used again, forks, wrong kinds of everything."""

import os
import threading
import time
import warnings

import numpy as np
import pytest
from checkout import MODELS
from nepit import NepitError
import nepit

TINY = MODELS / "llama-tied-f32.gguf"
IDS = [5, 6, 7, 8, 9]


def refilled(kind, n=40):
    """The same object again and again, with the next prompt in it."""
    buffer = kind([0] * 6)
    for i in range(n):
        for k in range(6):
            buffer[k] = i + k + 1
        yield buffer


def test_an_iterator_of_vllms_prompts_may_do_so_too(llm):
    params = nepit.SamplingParams(max_tokens=1, temperature=0)
    for wrap in (lambda ids: ids, lambda ids: nepit.TokensPrompt(prompt_token_ids=ids)):
        prompts = (wrap(ids) for ids in refilled(np.array, 3))
        found = llm.generate(prompts, params, use_tqdm=False)
        assert [out.prompt_token_ids[0] for out in found] == [1, 2, 3]


def test_a_notebook_completes_every_name():
    assert set(nepit.__all__) <= set(dir(nepit)) and "TYPE_CHECKING" not in dir(nepit)


class Tensor:
    """As torch's: shared memory by DLPack, clone()."""

    def __init__(self, values):
        self.array = np.array(values, np.int64)

    def __setitem__(self, k, value):
        self.array[k] = value

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        return (Tensor(row) for row in self.array)

    @property
    def ndim(self):
        return self.array.ndim

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def clone(self):
        return Tensor(self.array)


@pytest.mark.parametrize("kind", [list, lambda x: np.array(x, np.int32), bytearray, Tensor])
def test_an_iterator_may_fill_one_buffer_again_and_again(tiny, kind):
    right = [[i + k + 1 for k in range(6)] for i in range(40)]
    assert [s.token_ids.tolist() for s in tiny.score(refilled(kind))] == right
    found = list(tiny.gather(refilled(kind), refilled(kind), refilled(kind)))
    assert [g.token_ids.tolist() for g in found] == [row * 2 for row in right]
    assert [g.candidate_ids.tolist() for g in found] == right
    beside = tiny.gather(right, candidates=refilled(kind))
    assert [g.candidate_ids.tolist() for g in beside] == right


def test_a_tensor_of_two_dimensions_is_answered_by_a_list(tiny):
    rows = Tensor([IDS, IDS[::-1]])
    assert [type(found) for found in (tiny.score(rows), tiny.gather(rows, candidates=[1]))] == [
        list,
        list,
    ]
    one, two = tiny.gather(rows, candidates=[[1], [2]], start=[1, 2])
    assert (one.start, two.start) == (1, 2)


def test_a_forked_child_can_close_what_it_was_given():
    model = nepit.open(TINY, threads=1)
    model.score(IDS)
    child = os.fork()
    if child == 0:
        try:
            with model:
                pass
            model.close()
        finally:
            os._exit(0)
    for _ in range(200):
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child did not end")
    assert model.score(IDS).n_scored == 4
    model.close()


def test_closing_ends_a_list_with_ecancelled():
    model = nepit.open(TINY, threads=1)
    many = [np.arange(500, dtype=np.int32) % 300 + i % 2 for i in range(50)]
    many += [np.roll(many[0], i) for i in range(1500)]

    def close():
        while model.stats()["n_computed"] < 3000:  # so that the first ones have their answers
            time.sleep(0.005)
        model.close()

    threading.Thread(target=close).start()
    with pytest.raises(NepitError) as told:
        model.score(many)
    assert told.value.code == "ECANCELLED"


def test_what_c_answered_is_read_only(tiny):
    score, tokens = tiny.score("a text", top=2, entropy=True), tiny.tokenize("a text")
    arrays = [score.logprobs, score.ranks, score.scored, score.offsets, score.token_ids]
    arrays += [score.top_ids, score.entropies, tokens.token_ids, tokens.offsets]
    assert not any(array.flags.writeable for array in arrays)


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 2**32 + 1},
        {"threads": -1},
        {"context": -1},
        {"context": 2**64 + 8},
        {"max_memory": -1},
        {"max_memory": 2**64 + 1},
        {"cache_memory": -1},
    ],
)
def test_sizes_are_not_cut(options):
    with pytest.raises(NepitError) as told:
        nepit.open(TINY, **options)
    assert told.value.where == next(iter(options))


@pytest.mark.parametrize("options", [{"profile": 3}, {"cpu": b"ref"}, {"threads": "2"}])
def test_what_is_no_option_is_named(options):
    with pytest.raises(TypeError, match=next(iter(options))):
        nepit.open(TINY, **options)


def test_a_nul_does_not_end_a_path_or_a_word(tiny):
    with pytest.raises(NepitError, match="NUL"):
        nepit.open(f"{TINY}\0.old")
    with pytest.raises(NepitError, match="NUL"):
        tiny.save_cache("/nowhere\0/cache")
    with pytest.raises(NepitError, match="profile"):
        nepit.open(TINY, profile="f32\0")


def test_half_a_surrogate_pair_is_named(tiny):
    with pytest.raises(ValueError, match=r"prompts\[1\]: .*ud83d' at character 2"):
        tiny.score(["abc", "de\ud83d"])
    with pytest.raises(ValueError, match=r"stop\[0\]"):
        tiny.generate("abc", stop="\ud83d")
    good, bad = tiny.score(["abc", "de\ud83d"], errors="return")
    assert good.n_scored == 2 and "prompts[1]" in bad.message


@pytest.mark.parametrize(
    "option, value",
    [
        ("stop", 5),
        ("stop", [5]),
        ("stop", None),
        ("stop_token_ids", 5),
        ("logit_bias", [1]),
        ("temperature", "1"),
        ("temperature", None),
        ("top_p", "a"),
        ("min_p", "a"),
    ],
)
def test_a_wrong_kind_is_named(tiny, option, value):
    with pytest.raises(TypeError, match=option):
        tiny.generate("abc", **{option: value})


@pytest.mark.parametrize(
    "option, value", [("stop", 5), ("stop_token_ids", 5), ("logit_bias", [1]), ("bad_words", 5)]
)
def test_a_wrong_kind_is_named_in_vllms_shapes(option, value):
    with pytest.raises(TypeError, match=option):
        nepit.SamplingParams(**{option: value})


def test_a_mass_without_top_names_what_is_missing(tiny):
    with pytest.raises(NepitError) as told:
        tiny.score("abc", mass=True)
    assert told.value.where == "mass"
    with pytest.raises(TypeError, match="score_temperature"):
        tiny.score("abc", score_temperature="1")


def test_spans_are_pairs_of_whole_numbers(tiny):
    score = tiny.score("hello")
    for wrong in ((0.0, 5.0), ("a", "b"), (0,), 5):
        with pytest.raises(TypeError, match=r"spans\[0\]"):
            score.spans([wrong])
    (span,) = score.spans(np.array([[0, 5]]))
    assert type(span.begin) is int and span.end == 5


def test_texts_are_texts(tiny):
    with pytest.raises(TypeError, match="text"):
        tiny.word_scores(IDS, [(0, 1)])
    with pytest.raises(TypeError, match=r"texts\[0\]"):
        tiny.compare(IDS)
    with pytest.raises(TypeError, match="models"):
        tiny.compare("abc", 5)


def test_what_is_hardly_possible_has_a_perplexity_of_infinity(tiny):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiny.score(IDS, score_temperature=1e-30).perplexity == np.inf


@pytest.mark.parametrize("fill", [0.5, 2**40, float("nan")])
def test_a_filling_that_the_type_lacks_is_refused(fill):
    with pytest.raises(ValueError, match="fill"):
        nepit.pad([np.array([1, 2], np.int32), np.array([1], np.int32)], fill=fill)


def test_words_of_a_text_that_fills_the_context(tiny):
    text = "a" * 511
    (short,) = tiny.word_scores(text, [(0, 511)], end_of_word=True)
    (full,) = tiny.word_scores(text + "a", [(0, 511)], end_of_word=True)
    assert full.total == full.corrected == short.total != short.corrected
    (full,) = tiny.word_scores(text + "a", [(0, 512)], end_of_word=True)
    assert full.total > full.corrected
    ends = [tiny.info.eos_id, *(i for i in range(301) if tiny.token_bytes(i)[:1].isspace())]
    row = tiny.gather(text, "a", ends).scores[0].astype(np.float64)
    assert np.isclose(short.corrected, short.total + np.logaddexp.reduce(row), atol=1e-9)


def test_a_tensor_that_numpy_cannot_read_is_named():
    class Narrow:
        def __dlpack__(self, **_):
            raise RuntimeError("Unsupported dtype in DLTensor.")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TypeError, match=r"a: .*float\(\)"):
        nepit.diff(Narrow(), [-1.0])


@pytest.mark.parametrize("prompt", ["a text", [1, 2, 3]])
def test_an_option_of_another_kind_is_refused_whatever_the_prompt(tiny, prompt):
    with pytest.raises(TypeError, match="add_special"):
        tiny.score(prompt, add_special="no")
    with pytest.raises(ValueError, match="condition"):
        tiny.score(prompt, condition="eos")
