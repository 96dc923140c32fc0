"""Lists, iterators, threads, interrupts and ends of the native interface."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from checkout import DEMO, MODELS, ROOT
from nepit import NepitError
import nepit


TINY = MODELS / "llama-tied-f32.gguf"
GOOD, BAD = [7, 3, 9, 4], [1, 10**6]


@pytest.fixture(scope="module")
def other():
    """A model of this file alone, so that its counters are ours."""
    with nepit.open(DEMO, threads=1) as model:
        yield model


def totals(scores):
    return [score.total for score in scores]


def prompts(n, seed=0):
    numbers = np.random.default_rng(seed)
    return [numbers.integers(0, 250, numbers.integers(2, 30)).astype(np.int32) for _ in range(n)]


def test_a_stream_answers_in_order_what_single_calls_answer(tiny):
    many = prompts(700)
    right = [tiny.score(prompt).logprobs for prompt in many]
    for found in (tiny.score(many), tiny.score(iter(many)), tiny.score(tuple(many))):
        for score, logprobs in zip(found, right, strict=True):
            assert np.array_equal(score.logprobs, logprobs, equal_nan=True)
    square = np.array([[1, 2, 3], [4, 5, 6]])
    assert totals(tiny.score(square)) == totals(tiny.score(square.tolist()))


def test_gather_and_generate_take_lists_and_iterators(tiny):
    many = prompts(20, seed=1)
    flat, own = [3, 1, 4], [np.arange(1 + i % 3) for i in range(20)]
    starts = [len(prompt) - 2 for prompt in many]
    right = [tiny.gather(p, candidates=flat, start=s).scores for p, s in zip(many, starts)]
    for found in (
        tiny.gather(many, candidates=flat, start=starts),
        tiny.gather(iter(many), candidates=np.array(flat), start=iter(starts)),
        tiny.gather(many, candidates=[flat] * 20, start=starts),
    ):
        assert all(np.array_equal(g.scores, r) for g, r in zip(found, right, strict=True))
    answered = tiny.gather(many, [p[:2] for p in many], own)
    for i, (prompt, gathered) in enumerate(zip(many, answered, strict=True)):
        alone = tiny.gather(prompt, prompt[:2], own[i])
        assert np.array_equal(gathered.scores, alone.scores)
        assert gathered.scores.shape == (2, len(own[i]))
        assert np.array_equal(gathered.candidate_ids, own[i])
    drawn = tiny.generate(many, max_tokens=3, seed=5)
    streamed = list(tiny.generate(iter(many), max_tokens=3, seed=5, n=2))
    for prompt, one, two in zip(many, drawn, streamed, strict=True):
        assert one.token_ids.tolist() == two[0].token_ids.tolist()
        assert one.text == tiny.generate(prompt, max_tokens=3, seed=5).text and len(two) == 2


@pytest.mark.parametrize("column", ["response", "candidates", "start"])
def test_lists_of_unequal_length_are_named(tiny, column):
    given = {"candidates": [[1], [2], [3]]}
    if column != "start":
        given["response"] = [[1], [1], [1]]
    given[column] = [[1]] * 2 if column != "start" else [0, 0]
    with pytest.raises(ValueError, match=column):
        tiny.gather([GOOD] * 3, **given)
    with pytest.raises(ValueError, match=column):
        list(tiny.gather(iter([GOOD] * 3), **given))


def test_an_error_stands_in_its_place_and_harms_no_neighbour(tiny):
    many = [GOOD, BAD, None, [], GOOD[:2], ["a"], [1.5], [[1]], GOOD]
    right = {i: tiny.score(many[i]).total for i in (0, 4, 8)}
    for found in (
        tiny.score(many, errors="return"),
        list(tiny.score(iter(many), errors="return")),
    ):
        assert len(found) == len(many)
        for i, answer in enumerate(found):
            if i in right:
                assert answer.total == right[i]
            else:
                assert isinstance(answer, NepitError), i
        assert (found[1].code, found[1].where) == ("EINPUT", "prompts[1].token_ids[1]")
        assert found[1].given == "1000000" and "prompts[3]" in str(found[3])
    assert isinstance(tiny.score(BAD, errors="return"), NepitError)
    stream = tiny.score(iter(many))
    assert next(stream).total == right[0]
    with pytest.raises(NepitError, match=r"prompts\[1\]\.token_ids\[1\]"):
        next(stream)
    before = tiny.stats()["n_requests"]
    with pytest.raises(NepitError, match=r"prompts\[1\]\.token_ids\[1\]"):
        tiny.score([GOOD, BAD, GOOD])
    with pytest.raises(TypeError, match=r"prompts\[2\]"):
        tiny.score([GOOD, GOOD, None])
    assert tiny.stats()["n_requests"] == before  # nothing ran
    with pytest.raises(ValueError, match="errors"):
        tiny.score([GOOD], errors="ignore")


@pytest.mark.parametrize("n_bad", [1, 255, 256, 300])
def test_many_bad_prompts_among_good_ones(tiny, n_bad):
    many = [BAD if i < n_bad else GOOD for i in np.random.default_rng(n_bad).permutation(400)]
    found = list(tiny.score(iter(many), errors="return"))
    right = tiny.score(GOOD).total
    for i, (prompt, answer) in enumerate(zip(many, found, strict=True)):
        if prompt is GOOD:
            assert answer.total == right
        else:
            assert answer.where == f"prompts[{i}].token_ids[1]"


def test_an_iterator_that_fails_has_given_what_stood_before(tiny):
    def source():
        yield GOOD
        yield GOOD
        raise OSError("the disk is gone")

    stream = tiny.score(source())
    assert next(stream).total == next(stream).total
    with pytest.raises(OSError, match="disk"):
        next(stream)


def test_options_are_checked_at_the_call(tiny):
    for wrong in ({"start": -1}, {"top": -2}, {"start": 2**64}, {"top": 2**31}):
        with pytest.raises(NepitError) as caught:
            tiny.score(iter([GOOD]), **wrong)
        assert caught.value.code == "EINPUT" and caught.value.where == next(iter(wrong))
    for wrong in ({"start": 1.0}, {"top": "3"}, {"unheard_of": 1}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            tiny.score(iter([GOOD]), **wrong)
    for wrong in ({"seed": -3}, {"n": 0}, {"n": 129}, {"max_tokens": 0}, {"top_k": 2**31}):
        with pytest.raises(NepitError, match=next(iter(wrong))):
            tiny.generate(iter([GOOD]), **wrong)


def test_the_engine_works_while_the_next_prompts_are_read(other, monkeypatch):
    """Chunks are in the engine while the answers of the one before are taken."""
    monkeypatch.setattr(nepit._stream, "CHUNK_ITEMS", 8)
    monkeypatch.setattr(nepit._stream, "IDLE_S", 60)
    read = []

    def source():
        for i in range(64):
            read.append(i)
            yield np.arange(i, i + 12)

    for i, _ in enumerate(other.score(source())):
        chunk = i // 8
        assert len(read) >= min(8 * (chunk + 2), 64), (i, len(read))
        assert len(read) <= 8 * (chunk + nepit._stream.AHEAD)


def test_a_slow_source_is_not_waited_for_longer_than_needed(tiny):
    """A prompt that comes late does not hold back a chunk's worth of those before it."""
    tiny.score(GOOD)
    read = []

    def source():
        for i in range(20):
            read.append(i)
            time.sleep(0.02)
            yield GOOD

    stream = tiny.score(source())
    next(stream)
    assert len(read) < 10
    stream.close()


def test_a_stream_that_is_closed_ends_what_runs(other):
    stream = other.score(iter([[1, 2], *(list(range(i, i + 64)) for i in range(150))]))
    next(stream)
    before = other.stats()["n_computed"]
    stream.close()
    del stream
    other.score([1, 2, 3])
    assert other.stats()["n_computed"] - before < 4000
    assert other.stats()["n_running"] == 0


def test_a_stream_of_a_model_that_is_closed_says_so():
    model = nepit.open(TINY)
    stream = model.score(iter(prompts(700)))
    next(stream)
    model.close()
    with pytest.raises((NepitError, ValueError)):
        list(stream)


def test_closing_ends_the_work_of_other_threads():
    model = nepit.open(DEMO, threads=1)
    told = []

    def work():
        try:
            for i in range(100):
                model.score(list(range(i, i + 900)))
        except (NepitError, ValueError) as error:
            told.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    model.close()
    for thread in threads:
        thread.join(30)
    assert len(told) == 3
    assert all(getattr(error, "code", "ECANCELLED") == "ECANCELLED" for error in told)


def test_ctrl_c_ends_a_stream_and_a_document(other, tmp_path):
    path = tmp_path / "long"
    path.write_text("The cat sat on the mat and looked at all the other cats. " * 2000)

    def stream():
        list(other.score(list(range(i, i + 300)) for i in range(90)))

    for work in (stream, lambda: other.perplexity(path)):
        before = other.stats()["n_computed"]
        timer = threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            work()
        timer.join()
        assert other.stats()["n_computed"] - before < 8000
        assert len(other.score([1, 2, 3])) == 3


SCRIPTS = {
    "a model that nobody closes": "m.score(IDS)",
    "a stream half read": "s = m.score([i] * 40 for i in range(400)); next(s)",
    "a daemon thread at work": (
        "import threading, time\n"
        "def work():\n"
        "    try:\n        m.score([[i] * 2000 for i in range(99)])\n"
        "    except nepit.NepitError:\n        pass\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "time.sleep(0.3)"
    ),
    "arrays that outlive it": "kept = m.gather(IDS, candidates=[1]).scores; m.close(); kept.sum()",
    "an error in a with": "with m:\n    m.close()",
}


@pytest.mark.parametrize("end", SCRIPTS)
def test_the_program_ends_by_itself(end):
    code = f"import nepit\nIDS = [1, 2, 3]\nm = nepit.open({str(DEMO)!r}, threads=1)\n"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code + SCRIPTS[end]],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


# ---- async ---------------------------------------------------------------------------------------


def test_async_twins_have_the_arguments_of_the_methods():
    for verb in "score next gather generate choose perplexity tokenize".split():
        assert callable(getattr(nepit.Model, verb + "_async")), verb


def test_many_tasks_share_the_engine(tiny):
    many = prompts(60, seed=4)

    async def ask():
        return await asyncio.gather(*(tiny.score_async(prompt) for prompt in many))

    assert totals(asyncio.run(ask())) == totals(tiny.score(many))


def test_async_lists_errors_and_streams(tiny):
    many = [GOOD, BAD, GOOD]

    async def coming():
        for prompt in many:
            await asyncio.sleep(0)
            yield prompt

    async def ask():
        listed = await tiny.score_async(many, errors="return")
        streamed = [x async for x in tiny.score_async(iter(many), errors="return")]
        pulled = [x async for x in tiny.score_async(coming(), errors="return")]
        with pytest.raises(NepitError):
            await tiny.next_async(BAD)
        tokens = await tiny.tokenize_async("a b")
        return listed, streamed, pulled, tokens

    *answers, tokens = asyncio.run(ask())
    right = tiny.score(GOOD).total
    for found in answers:
        assert [getattr(x, "total", None) for x in found] == [right, None, right]
    assert tokens.token_ids.tolist() == tiny.tokenize("a b").token_ids.tolist()


def test_what_a_twin_takes_for_a_stream(tiny, tmp_path):
    class Column:
        """Iterable, and neither a sequence nor an iterator: a column of a data set."""

        def __iter__(self):
            return iter([GOOD, GOOD])

    (tmp_path / "text").write_text("a b c d e")

    async def ask():
        column = [score.total async for score in tiny.score_async(Column())]
        array = await tiny.score_async(np.array(GOOD))
        with (tmp_path / "text").open("rb") as file:
            document = await tiny.perplexity_async(file)
        return column, array, document

    column, array, document = asyncio.run(ask())
    assert column == [array.total] * 2 and document.n_bytes == 9


def test_a_cancelled_task_ends_its_work_within_a_step(other):
    long = [list(range(i, i + 200)) for i in range(80)]

    async def ask():
        task = asyncio.create_task(other.score_async(long))
        neighbour = asyncio.create_task(other.score_async([4, 5, 6]))
        await asyncio.sleep(0.3)
        before = other.stats()["n_computed"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert other.stats()["n_computed"] - before < 4000
        return await neighbour

    assert asyncio.run(ask()).total == other.score([4, 5, 6]).total


def test_an_async_stream_that_is_left_ends(other):
    async def ask():
        stream = other.score_async(list(range(i, i + 20 + 60 * (i > 0))) for i in range(100))
        async for score in stream:
            await stream.aclose()
            return score.n_scored

    assert asyncio.run(ask()) == 19
    assert other.score([1, 2, 3]).n_scored == 2 and other.stats()["n_running"] == 0
