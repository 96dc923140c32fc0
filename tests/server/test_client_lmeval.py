"""lm-evaluation-harness, unchanged, against the server: C112, C134.

    NEPIT_LMEVAL_PYTHON=/path/to/python      of an environment with lm-eval[api] 0.4.13

Its command runs two tasks made of local files with tokenized requests; every number that it logs is
compared with the command's, and its own tokenizer with /tokenize.
"""

import json
import os
import subprocess

import pytest
from clirun import nepit

PYTHON = os.environ.get("NEPIT_LMEVAL_PYTHON")

CHOICES = [
    {"question": "hello at the end", "choices": ["one", "a longer answer", "é"], "label": 0},
    {"question": "Que", "choices": ["stion", "st", "st at"], "label": 2},
    {"question": "漢 is", "choices": ["\U0001f600", "at", "the"], "label": 1},
]
PAIRS = [
    {"context": "hello", "continuation": " wörld at the end"},
    {"context": "Hello", "continuation": "q"},  # the likeliest
    {"context": "a" * 40, "continuation": "b"},
    {"context": "the", "continuation": " end of it" + " end" * 6},
]
TASKS = {
    "nepit_choice": (CHOICES, "question", "label", "multiple_choice", ["acc", "acc_norm"]),
    "nepit_pairs": (PAIRS, "context", "continuation", "loglikelihood", ["acc"]),
}


def write_task(folder, name):
    rows, text, target, kind, metrics = TASKS[name]
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": kind,
        "test_split": "test",
        "doc_to_text": "{{%s}}" % text,
        "doc_to_target": "{{%s}}" % target,
        "metric_list": [{"metric": metric} for metric in metrics],
    }
    if kind == "multiple_choice":
        task["doc_to_choice"] = "{{choices}}"
    (folder / f"{name}.yaml").write_text(json.dumps(task))  # JSON is YAML


def ids_of(text):
    return nepit("tokenize", "--json", "--no-add-special-tokens", "--", text).json["token_ids"]


def expected(library, context, continuation):
    """[sum, greedy] of a continuation, cut as the harness cuts it."""
    first, ids = len(ids_of(context)), ids_of(context + continuation)
    (line,) = library.ask("score", [{"token_ids": ids}])
    return [sum(line["logprobs"][first:]), all(rank == 1 for rank in line["ranks"][first:])]


def run(server, folder, batch, *arguments):
    for name in TASKS:
        write_task(folder, name)
    (model,) = server.get("/v1/models").json["data"]
    base = f"base_url={server.url}/v1/completions,model={model['id']}"
    command = [PYTHON, "-m", "lm_eval", "--model", "local-completions", "--tasks", ",".join(TASKS)]
    command += ["--include_path", str(folder), "--output_path", str(folder / "out")]
    command += ["--batch_size", str(batch), "--log_samples"]
    command += ["--model_args", ",".join([base, "max_length=512", *arguments])]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        command, env={**os.environ, **offline}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    samples = {}
    for name in TASKS:
        (path,) = (folder / "out").rglob(f"samples_{name}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        samples[name] = sorted(lines, key=lambda line: line["doc_id"])
    return samples


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 4])
def test_C112_C134_the_harness_gets_the_commands_numbers(tiny, library, tmp_path, batch):
    if not PYTHON:
        pytest.skip("NEPIT_LMEVAL_PYTHON names no Python with lm_eval")
    if subprocess.run([PYTHON, "-c", "import lm_eval"], capture_output=True).returncode:
        pytest.skip(f"lm_eval cannot be imported by {PYTHON}")
    more = ["tokenizer_backend=remote", "tokenized_requests=True", "num_concurrent=2"]
    samples = run(tiny, tmp_path, batch, *more)
    for row, sample in zip(CHOICES, samples["nepit_choice"], strict=True):
        wanted = [expected(library, row["question"], f" {choice}") for choice in row["choices"]]
        assert told(sample) == wanted
        best = max(range(len(wanted)), key=lambda i: wanted[i][0])
        assert sample["acc"] == float(best == row["label"])
    wanted = [expected(library, row["context"], row["continuation"]) for row in PAIRS]
    assert [told(sample) for sample in samples["nepit_pairs"]] == [[one] for one in wanted]
    assert [greedy for _, greedy in wanted] == [False, True, False, False]


def told(sample):
    """The log writes numbers and booleans as text."""
    pairs = [one[0] if isinstance(one[0], list) else one for one in sample["resps"]]
    return [[float(total), str(greedy) == "True"] for total, greedy in pairs]
