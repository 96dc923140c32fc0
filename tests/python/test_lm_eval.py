"""lm-evaluation-harness on nepit: what it asks, without it; and its command, unchanged, with it.

NEPIT_LMEVAL_PYTHON=/path/to/python      of an environment with lm-eval 0.4.13 and numpy; where
                                         torch and transformers are there too, every number is
                                         compared with the harness' own class `hf` as well
"""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from checkout import MODELS, ROOT
from nepit import _harness as harness
from nepit._requests import Drawing

import nepit

PYTHON = os.environ.get("NEPIT_LMEVAL_PYTHON")
FOLDER = MODELS / "llama-tied-f32"


def expected(model, context, continuation):
    """Sum and greediness of a continuation, from the scores of the whole."""
    score = model.score([*context, *continuation])
    values, ranks = score.logprobs[len(context) :], score.ranks[len(context) :]
    return float(sum(values.tolist())), bool((ranks == 1).all())


def likeliest(model, ids, n):
    """The tokens that follow greedily."""
    return model.generate(ids, max_tokens=n, temperature=0).token_ids.tolist()


def test_a_continuation_has_the_sum_of_its_scores(tiny):
    context = [5, 9, 17, 200, 31]
    pairs = [(context, [7]), (context, [44]), (context, [7, 44, 3]), ([8], [9, 9]), ([1, 2], [3])]
    pairs.append((context, likeliest(tiny, context, 4)))
    told = harness.follow(tiny, pairs)
    assert told == [expected(tiny, *pair) for pair in pairs]
    assert [greedy for _, greedy in told][-1]
    assert harness.follow(tiny, []) == []


def test_the_last_token_needs_no_place_in_the_context(tiny):
    n = tiny.info.n_context
    ids = np.random.default_rng(3).integers(0, tiny.info.n_vocab, n + 1).tolist()
    ((total, _),) = harness.follow(tiny, [(ids[:1], ids[1:])])
    short = tiny.score(ids[:n])
    last = tiny.next(ids[:n], top=-1)
    (at,) = np.nonzero(last.token_ids == ids[n])[0]
    assert total == float(sum([*short.scored.tolist(), float(last.logprobs[at])]))
    with pytest.raises(nepit.NepitError) as caught:
        harness.follow(tiny, [(ids[:2], [*ids[2:], 5])])
    assert caught.value.code in ("EINPUT", "ELIMIT")


def test_contexts_are_computed_once(tiny):
    tiny.clear_cache()
    before = tiny.stats()["n_computed"]
    context = list(range(20, 60))
    harness.follow(tiny, [(context, [token]) for token in range(4)])
    assert tiny.stats()["n_computed"] - before == len(context)


def test_a_wrong_id_is_an_error_with_its_place(tiny):
    with pytest.raises(nepit.NepitError) as caught:
        harness.follow(tiny, [([5], [7]), ([5, 99999], [7])])
    assert (caught.value.code, caught.value.given) == ("EINPUT", "99999")


@pytest.mark.parametrize("lengths", [[], [1], [20000], [16000, 300, 90, 20000, 1, 1], [1] * 40000])
def test_chunks_are_neighbours_and_everything_once(lengths):
    parts = list(harness.chunks(lengths))
    assert [one for part in parts for one in lengths[part]] == lengths
    for part in parts:
        n = sum(lengths[part])
        assert n <= harness.CHUNK_TOKENS or len(lengths[part]) == 1


def test_texts_end_with_their_stop(tiny):
    prompt = tiny.tokenize("hello at").token_ids.tolist()
    letters = [int(tiny.tokenize(letter).token_ids[0]) for letter in "abcdefgh"]
    plain = Drawing(max_tokens=24, seed=5, allowed_token_ids=letters)
    (free,) = harness.write(tiny, [prompt], [plain])
    assert len(free) == 24 and set(free) <= set("abcdefgh")
    stop = free[4:6]
    stopped = dataclasses.replace(plain, stop=[stop], include_stop=True)
    assert harness.write(tiny, [prompt, prompt], [stopped, plain]) == [
        free[: free.index(stop) + len(stop)],
        free,
    ]
    assert harness.write(tiny, [], []) == []


def test_a_special_token_is_known_by_its_text(demo):
    assert harness.single_token(demo, "<|im_end|>") == 2
    assert harness.single_token(demo, "\n") is None
    assert harness.single_token(demo, "<|im_end|>\n") is None
    assert harness.single_token(demo, "") is None


def test_a_dialogue_becomes_a_text(demo):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    text = harness.dialogue(demo, messages, add_generation_prompt=True, variables={})
    assert text == (
        "<|im_start|>system\nBe short.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    messages.append({"role": "assistant", "content": "Yo"})
    text = harness.dialogue(demo, messages, add_generation_prompt=False, variables={})
    assert text.endswith("<|im_start|>assistant\nYo")
    assert "im_start" in harness.chat_template(demo)


def test_without_the_harness_the_error_names_it():
    code = "import sys; sys.modules['lm_eval'] = None; import nepit.lm_eval"
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "pip install lm-eval" in done.stderr.splitlines()[-1]
