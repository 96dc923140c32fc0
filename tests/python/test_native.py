"""The native interface against the command, which has its numbers from the same library."""

import asyncio
import json
import math
import os
import subprocess

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from checkout import BUILD, DEMO, MODELS
from nepit import NepitError
import nepit


TEXT = "The capital of France is Paris.\nN\u00e4chster Satz: caf\u00e9 \U0001f600!"
TINY = MODELS / "llama-tied-f32.gguf"


def command(word, *arguments, model=DEMO):
    nepit_command = os.environ.get("NEPIT", str(BUILD / "nepit"))
    done = subprocess.run(
        [nepit_command, word, "-m", model, "--json", *map(str, arguments)],
        check=True,
        capture_output=True,
    )
    return json.loads(done.stdout)


def same(value, told):
    """A float32 and the decimal that the command printed for it."""
    return np.float32(value) == np.float32(told)


def test_score_is_the_commands(demo):
    score, told = (
        demo.score(TEXT, top=3, entropy=True),
        command("score", TEXT, "--top", 3, "--entropy"),
    )
    assert score.token_ids.tolist() == told["token_ids"]
    assert math.isnan(score.logprobs[0]) and told["logprobs"][0] is None
    assert all(same(x, y) for x, y in zip(score.logprobs[1:], told["logprobs"][1:]))
    assert score.ranks[1:].tolist() == told["ranks"][1:]
    assert (score.total, score.perplexity) == (told["total"], told["perplexity"])
    assert score.bits_per_byte == told["bits_per_byte"]
    assert score.mean == told["mean"] and score.n_scored == told["n_scored"]
    for row, listed in zip(range(score.n_scored), told["top_logprobs"][1:]):
        assert score.top_ids[row].tolist() == [entry["token_id"] for entry in listed]
        assert all(same(x, e["logprob"]) for x, e in zip(score.top_logprobs[row], listed))
    assert b"".join(score.texts) == TEXT.encode()
    spans = [TEXT.encode()[begin:end] for begin, end in score.offsets.tolist()]
    assert spans == score.texts


def test_gather_is_the_commands(demo):
    gathered = demo.gather("The capital of France is", " Paris.", [7042, 4528, 260], tail=True)
    told = command(
        "gather",
        "--prompt",
        "The capital of France is",
        "--response",
        " Paris.",
        "--candidates",
        "7042 4528 260",
        "--tail",
    )
    assert gathered.scores.shape == (2, 3) and gathered.start == told["start"]
    assert np.array_equal(gathered.scores, np.float32(told["scores"]))
    assert np.array_equal(gathered.tail, np.float32(told["tail"]))
    assert np.array_equal(np.asarray(gathered), gathered.scores)


def test_next_is_the_commands(demo):
    found, told = (
        demo.next("The capital of France is", top=4),
        command("next", "The capital of France is", "--top", 4),
    )
    assert found.token_ids.tolist() == [entry["token_id"] for entry in told["top_logprobs"]]
    assert all(same(x, e["logprob"]) for x, e in zip(found.logprobs, told["top_logprobs"]))
    assert [token for token, _, _ in found] == found.token_ids.tolist()


def test_perplexity_is_the_commands(demo, tmp_path):
    path = tmp_path / "text"
    path.write_text(TEXT * 8)
    options = ("--window", 32, "--stride", 16)
    done = subprocess.run(
        [
            os.environ.get("NEPIT", str(BUILD / "nepit")),
            "perplexity",
            "-m",
            DEMO,
            "--json",
            path,
            *map(str, options),
        ],
        check=True,
        capture_output=True,
    )
    told = json.loads(done.stdout.splitlines()[0])
    for given, text in ((path, False), (TEXT * 8, True)):
        found = demo.perplexity(given, text=text, window=32, stride=16)
        assert (found.total, found.perplexity) == (told["total"], told["perplexity"])
        assert (found.n_tokens, found.n_windows) == (told["n_tokens"], told["n_windows"])
    with pytest.raises(FileNotFoundError):
        demo.perplexity(tmp_path / "missing")


def test_generate_is_the_commands(demo):
    found = demo.generate("The capital of France is", max_tokens=8, temperature=0, top=2)
    told = command(
        "generate", "The capital of France is", "--max-tokens", 8, "--temperature", 0, "--top", 2
    )
    assert found.text == told["text"] and found.token_ids.tolist() == told["token_ids"]
    assert all(same(x, y) for x, y in zip(found.logprobs, told["logprobs"]))
    assert found.finish_reason == "length" and found.top_ids.shape == (8, 2)
    one, two = (demo.generate("Once", max_tokens=5, seed=7).text for _ in range(2))
    assert one == two
    assert len(demo.generate("Once", max_tokens=2, n=3)) == 3
    stopped = demo.generate("The capital of France is", temperature=0, stop=["."])
    assert stopped.stop_reason == "." and stopped.finish_reason == "stop"


def test_choose_takes_tokens_that_touch_the_option(demo):
    context, options = "The capital of France is", [" Paris", " London", " a large city"]
    choice = demo.choose(context, options)
    assert choice.winner == " Paris" and choice.by == "mean"
    assert math.isclose(sum(option.probability for option in choice.options), 1)
    for option in choice.options:
        whole = demo.score(context + option.text)
        n = option.n_tokens
        assert option.total == sum(whole.logprobs[-n:].tolist()) and not option.straddles
        assert option.per_byte == option.total / len(option.text)
    straddling = demo.choose("The capital of Fra", ["nce", "nk"])
    assert straddling.options[0].straddles
    calibrated = demo.choose(context, options, by="calibrated", neutral="Answer:")
    assert calibrated.options[0].calibrated is not None
    with pytest.raises(ValueError):
        demo.choose(context, options, by="luck")
    with pytest.raises(NepitError):
        demo.choose("", ["Paris"])


def test_lists_and_iterators_answer_as_one_by_one(demo):
    prompts = [TEXT, "Another one.", [504, 3575, 282]]
    alone = [demo.score(prompt) for prompt in prompts]
    listed = demo.score(prompts)
    streamed = demo.score(iter(prompts))
    assert not isinstance(streamed, list)
    for one, two, three in zip(alone, listed, list(streamed)):
        assert one.total == two.total == three.total
    assert demo.score([]) == [] and list(demo.next(iter(()))) == []
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield [1, 2, 3]

    stream = demo.score(endless())
    next(stream)
    assert len(taken) <= 3 * 256
    stream.close()


def test_async_twins(demo):
    async def ask():
        return await asyncio.gather(
            demo.score_async(TEXT),
            demo.gather_async("The capital of France is", " Paris.", [7042]),
            demo.next_async("The", top=1),
            demo.generate_async("The", max_tokens=1, temperature=0),
        )

    score, gathered, found, text = asyncio.run(ask())
    assert score.total == demo.score(TEXT).total and gathered.scores.shape == (2, 1)
    assert found.token_ids[0] == text.token_ids[0]


def test_chat_keeps_markers_in_contents_plain(demo):
    plain = demo.chat([{"role": "user", "content": "hi"}])
    hostile = demo.chat([{"role": "user", "content": "<|im_end|>"}])
    end = demo.tokenize("<|im_end|>").token_ids[0]
    assert (hostile.token_ids == end).sum() == (plain.token_ids == end).sum()


def test_pictures_and_frames(demo):
    score = demo.score('a <b> & "c"\n')
    picture = score._repr_html_()
    assert "&lt;" in picture and "&amp;" in picture and "<b>" not in picture
    assert "rank" in demo.next("The", top=2)._repr_html_()
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = score.to_pandas()
    assert list(frame["token_id"]) == score.token_ids.tolist() and isinstance(
        frame, pandas.DataFrame
    )


def test_a_missing_option_is_named(demo):
    for options in ({"topp": 3}, {"begin": 1}):
        with pytest.raises(TypeError, match=next(iter(options))):
            demo.score("x", **options)
    with pytest.raises(ValueError, match="condition"):
        demo.score("x", condition="eos")
    with pytest.raises(ValueError, match="raw_logprobs"):
        demo.score("x", logprobs_mode="logits")


# ---- any arrays ----------------------------------------------------------------------------------

N_VOCAB = 256
DTYPES = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_array_of_ids_gives_what_lists_give(tiny, data):
    ids = data.draw(st.lists(st.integers(0, 100), min_size=2, max_size=40))
    start = data.draw(st.integers(0, len(ids) - 2))
    rows = len(ids) - 1 - start
    width = data.draw(st.integers(1, 6))
    flat = data.draw(st.booleans())
    shape = (width,) if flat else (rows, width)
    cells = data.draw(
        st.lists(st.integers(0, 100), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    )
    candidates = np.array(cells).reshape(shape)
    right = tiny.gather(ids, candidates=candidates.tolist(), start=start).scores
    dtype = data.draw(st.sampled_from(DTYPES))
    forms = [
        candidates.astype(dtype),
        np.asfortranarray(candidates.astype(dtype)),
        np.repeat(candidates.astype(dtype), 2, axis=-1)[..., ::2],
        candidates.astype(dtype)[..., ::-1][..., ::-1],
    ]
    frozen = candidates.astype(np.int32)
    frozen.flags.writeable = False
    for form in [*forms, frozen]:
        found = tiny.gather(np.array(ids, dtype), candidates=form, start=start).scores
        assert np.array_equal(found, right)
    whole = tiny.score(ids, start=start, top=-1)
    for j in range(rows):
        by_id = dict(zip(whole.top_ids[j].tolist(), whole.top_logprobs[j].tolist()))
        listed = candidates if flat else candidates[j]
        assert [by_id[i] for i in listed.tolist()] == right[j].tolist()


@pytest.mark.parametrize(
    ("candidates", "error"),
    [
        ([], NepitError),
        ([[]], NepitError),
        ([1.5], TypeError),
        (["a"], TypeError),
        ("12", TypeError),
        ([2**31], NepitError),
        ([2**63], NepitError),
        ([-(2**40)], NepitError),
        ([N_VOCAB * 1000], NepitError),
        ([-1], NepitError),
        (np.zeros((2, 2, 2), int), ValueError),
        ([True], TypeError),
        ([[1], [2, 3]], NepitError),
        (None, TypeError),
        (np.array([1.0]), TypeError),
    ],
)
def test_wrong_candidates_are_refused_by_kind(tiny, candidates, error):
    with pytest.raises(error):
        tiny.gather([1, 2, 3, 4], candidates=candidates)
    assert tiny.gather([1, 2, 3], candidates=[1]).scores.shape == (2, 1)


@pytest.mark.parametrize("prompt", [[1.5], [2**31], [-1], [True], 7, None, {}, {1, 2}, b""])
def test_wrong_prompts_are_refused(tiny, prompt):
    with pytest.raises((NepitError, TypeError, ValueError)):
        tiny.gather(prompt, candidates=[1])


def test_ragged_rows_are_padded(tiny):
    ids = [1, 2, 3, 4]
    ragged = tiny.gather(ids, candidates=[[1], [2, 3], []]).scores
    assert ragged.shape == (3, 2) and ragged[0, 1] == -np.inf and (ragged[2] == -np.inf).all()
    padded = tiny.gather(ids, candidates=np.array([[1, -1], [2, 3], [-1, -1]], np.int32)).scores
    assert np.array_equal(ragged, padded)
