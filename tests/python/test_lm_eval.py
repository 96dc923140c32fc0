"""lm-evaluation-harness on nepit: what it asks, without it; and its command, unchanged, with it.

NEPIT_LMEVAL_PYTHON=/path/to/python      of an environment with lm-eval 0.4.13 and numpy; where
                                         torch and transformers are there too, every number is
                                         compared with the harness' own class `hf` as well
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from checkout import DEMO, MODELS, ROOT
from nepit import _harness as harness
from nepit._requests import Drawing

import nepit

PYTHON = os.environ.get("NEPIT_LMEVAL_PYTHON")
FOLDER = MODELS / "llama-tied-f32"

CHOICES = [
    {"question": "hello at the end", "choices": ["one", "a longer answer", "é"], "label": 0},
    {"question": "Que", "choices": ["stion", "st", "st at"], "label": 2},
    {"question": "漢 is", "choices": ["\U0001f600", "at", "the"], "label": 1},
]
PAIRS = [
    {"context": "hello", "continuation": " wörld at the end"},
    {"context": "Hello", "continuation": "q"},  # the likeliest
    {"context": "the \n", "continuation": " end of it" + " end" * 6},  # spaces go over
    {"context": " at the" * 150, "continuation": " the"},  # too long: the beginning is dropped
]
PAGES = [{"page": "the end of it"}, {"page": "Hello at the end. " * 90}, {"page": "漢 is é"}]
OPENINGS = [{"opening": "hello at the end"}, {"opening": "the"}, {"opening": " at the" * 150}]
# output_type, rows, text, target, what else the task says
TASKS = {
    "choice": (
        "multiple_choice",
        CHOICES,
        "question",
        "label",
        {
            "doc_to_choice": "{{choices}}",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
    ),
    "cloze": (
        "loglikelihood",
        PAIRS,
        "context",
        "continuation",
        {"metric_list": [{"metric": "acc"}]},
    ),
    "rolling": (
        "loglikelihood_rolling",
        PAGES,
        "",
        "page",
        {"metric_list": [{"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}]},
    ),
    "until": (
        "generate_until",
        OPENINGS,
        "opening",
        "opening",
        {
            "generation_kwargs": {"until": ["e", "\n\n"], "max_gen_toks": 40, "do_sample": False},
            "metric_list": [{"metric": "exact_match"}],
        },
    ),
}


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


# ---- with the harness ----------------------------------------------------------------------------


def write_task(folder, name):
    kind, rows, text, target, more = TASKS[name]
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": f"nepit_{name}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": kind,
        "test_split": "test",
        "doc_to_text": "{{%s}}" % text if text else "",
        "doc_to_target": "{{%s}}" % target,
        **more,
    }
    (folder / f"nepit_{name}.yaml").write_text(json.dumps(task))  # JSON is YAML


def run(folder, module, *arguments):
    """The harness' command as a user calls it: what it logs of each task by document, and what it
    says.
    """
    for name in TASKS:
        write_task(folder, name)
    command = [PYTHON, "-m", module, "run", "--include_path", str(folder), "--log_samples"]
    command += ["--output_path", str(folder / module), "--tasks"]
    command += [f"nepit_{name}" for name in TASKS]
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        [*command, *arguments],
        env={**os.environ, **offline, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    samples = {}
    for name in TASKS:
        (log,) = (folder / module).rglob(f"samples_nepit_{name}_*.jsonl")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        samples[name] = sorted(lines, key=lambda line: line["doc_id"])
    shutil.rmtree(folder / module)
    return samples, done.stderr


def told(sample):
    """The log writes numbers and booleans as texts."""
    answers = [one[0] for one in sample["resps"]]
    if isinstance(answers[0], list):
        return [(float(total), str(greedy) == "True") for total, greedy in answers]
    return answers


def has(module):
    if not PYTHON:
        pytest.skip("NEPIT_LMEVAL_PYTHON names no Python with lm_eval")
    if subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{module} cannot be imported by {PYTHON}")


def split(model, context, continuation):
    """As the harness does: white space at the end of a context is the continuation's."""
    cut = context.rstrip()
    continuation = context[len(cut) :] + continuation
    first = model.tokenize(cut).token_ids.tolist()
    whole = model.tokenize(cut + continuation).token_ids.tolist()
    ids = whole[-(model.info.n_context + 1) :]
    n = len(whole) - len(first)
    return ids[:-n], ids[-n:]


def scored(model, context, continuation):
    ((total, greedy),) = harness.follow(model, [(context, continuation)])
    return total, greedy


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    has("lm_eval")
    folder = tmp_path_factory.mktemp("nepit")
    return run(folder, "nepit.lm_eval", "--model_args", f"path={FOLDER}")[0]


@pytest.mark.long
def test_the_harness_logs_the_models_own_numbers(tiny, samples):
    for row, sample in zip(CHOICES, samples["choice"], strict=True):
        pairs = [split(tiny, row["question"], f" {choice}") for choice in row["choices"]]
        wanted = [expected(tiny, *pair) for pair in pairs]
        assert told(sample) == wanted
        best = max(range(len(wanted)), key=lambda i: wanted[i][0])
        assert sample["acc"] == float(best == row["label"])
    for row, sample in zip(PAIRS, samples["cloze"], strict=True):
        pair = split(tiny, row["context"], row["continuation"])
        assert told(sample) == [scored(tiny, *pair)]
    assert [told(sample)[0][1] for sample in samples["cloze"]] == [False, True, False, False]


@pytest.mark.long
def test_pages_are_read_in_windows_of_the_whole_context(tiny, samples):
    n = tiny.info.n_context
    for row, sample in zip(PAGES, samples["rolling"], strict=True):
        ids = tiny.tokenize(row["page"]).token_ids.tolist()
        windows = [([tiny.info.bos_id], ids[:n])]
        for end in range(n, len(ids), n):
            part = ids[end : end + n]
            before = ids[: end + len(part)][-(n + 1) :]
            windows.append((before[: -len(part)], part))
        wanted = sum(total for total, _ in harness.follow(tiny, windows))
        assert [float(one) for one in told(sample)] == [pytest.approx(wanted, rel=1e-12)]


@pytest.mark.long
def test_texts_are_generates(tiny, samples):
    for row, sample in zip(OPENINGS, samples["until"], strict=True):
        ids = tiny.tokenize(row["opening"]).token_ids[-(tiny.info.n_context - 40) :]
        text = tiny.generate(ids, max_tokens=40, temperature=0, stop=["e", "\n\n"]).text
        assert told(sample) == [text]


@pytest.mark.long
@pytest.mark.parametrize("more", ["", ",add_bos_token=True,max_length=48,prefix_token_id=7"])
def test_numbers_are_those_of_the_harness_own_class(tmp_path, more):
    has("lm_eval, torch, transformers")
    ours, _ = run(tmp_path, "nepit.lm_eval", "--model_args", f"path={FOLDER}{more}")
    args = f"pretrained={FOLDER},dtype=float32{more}"
    theirs, _ = run(tmp_path, "lm_eval", "--model", "hf", "--device", "cpu", "--model_args", args)
    for name in TASKS:
        for one, other in zip(ours[name], theirs[name], strict=True):
            for mine, yours in zip(told(one), told(other), strict=True):
                if name == "until":
                    assert mine == yours
                elif name == "rolling":
                    assert float(mine) == pytest.approx(float(yours), rel=2e-6)
                else:
                    assert mine[0] == pytest.approx(yours[0], rel=5e-6)
                    assert mine[1] == yours[1]


@pytest.mark.long
def test_dialogues_and_the_harness_cache(demo, tmp_path):
    has("lm_eval")
    options = ["--model_args", f"path={DEMO},threads=1", "--apply_chat_template", "--use_cache"]
    first, said = run(tmp_path, "nepit.lm_eval", *options, str(tmp_path / "cache"))
    n_pairs = sum(len(row["choices"]) for row in CHOICES) + len(PAIRS)
    assert f"Cached requests: 0, Requests remaining: {n_pairs}" in said
    for row, sample in zip(CHOICES, first["choice"], strict=True):
        dialogue = harness.dialogue(
            demo,
            [{"role": "user", "content": row["question"]}],
            add_generation_prompt=True,
            variables={},
        )
        pairs = [split(demo, dialogue, choice) for choice in row["choices"]]
        assert told(sample) == [scored(demo, *pair) for pair in pairs]
    again, said = run(tmp_path, "nepit.lm_eval", *options, str(tmp_path / "cache"))
    assert said.count("Requests remaining: 0") == 3  # kinds of requests
    assert {name: list(map(told, lines)) for name, lines in again.items()} == {
        name: list(map(told, lines)) for name, lines in first.items()
    }


# What runs in the harness' own Python: what a task may ask of generated texts.
ASK = """
import sys
from types import SimpleNamespace
from nepit.lm_eval import NepitLM
model = NepitLM(path=sys.argv[1], threads=1, max_gen_toks=12)
def ask(*wanted):
    requests = [SimpleNamespace(args=("hello", dict(one))) for one in wanted]
    return model.generate_until(requests, disable_tqdm=True)
greedy = ask({})[0]
assert ask({"temperature": 0, "num_beams": 1}) == [greedy]
drawn = ask(*[{"do_sample": True, "temperature": 1.0}] * 3)
assert len(set(drawn)) == 3  # each of the repeats is another one
assert ask(*[{"do_sample": True, "temperature": 1.0}] * 3) == drawn  # and the same every time
for wanted in ({"penalty_alpha": 0.5}, {"num_beams": 4}, {"max_gen_toks": 512}):
    try:
        ask(wanted)
    except ValueError as error:
        assert next(iter(wanted)) in str(error)
    else:
        raise AssertionError(wanted)
for wrong in ({}, {"max_length": 513}, {"pretrained": sys.argv[1]}):
    try:
        NepitLM(**{"path": sys.argv[1], **wrong} if wrong else {})
    except ValueError as error:
        assert str(error).split(":")[0] in ("path", "max_length")
    else:
        raise AssertionError(wrong)
"""


@pytest.mark.long
def test_what_a_task_asks_is_done_or_refused():
    has("lm_eval")
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [PYTHON, "-c", ASK, str(FOLDER)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
