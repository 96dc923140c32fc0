"""The command as the golden tests use it: `score`, `next` and `gather` on ids, answers as numpy
arrays.

The command is $NEPIT, else the one in the build folder $NEPIT_BUILD ("build" if not set).
"""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent
MODELS = ROOT / "tests" / "data" / "models"
DEMO = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
COMMAND = os.environ.get("NEPIT", str(ROOT / os.environ.get("NEPIT_BUILD", "build") / "nepit"))


def run(word, model, *arguments, env=None, text=None, status=0):
    command = [COMMAND, word, "-m", str(model), *map(str, arguments)]
    environment = dict(os.environ, **{name: str(value) for name, value in (env or {}).items()})
    done = subprocess.run(command, capture_output=True, env=environment, input=text, text=True)
    assert done.returncode == status, f"{command}: status {done.returncode}\n{done.stderr[-2000:]}"
    return done


def lines(ids):
    return " ".join(map(str, ids))


def answers(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def score(model, ids, *arguments, **options):
    return answers(run("score", model, "--ids", lines(ids), "--json", *arguments, **options))[0]


def gather(model, ids, candidates, *arguments, start=0, **options):
    """float32 [rows, K]; candidates [K] or [rows, K]."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, out = f"{folder}/wanted.npy", f"{folder}/out.npy"
        np.save(wanted, np.asarray(candidates, dtype=np.int32))
        run(
            "gather",
            model,
            "--ids",
            lines(ids),
            "--candidates",
            "@" + wanted,
            "--start",
            start,
            "-o",
            out,
            *arguments,
            **options,
        )
        return np.load(out)


def gather_many(model, requests, *arguments, **options):
    """requests: dicts with id, token_ids, prompt_logprob_token_ids -> {id: float32 [rows, K]}"""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out.npz"
        text = "".join(json.dumps(request) + "\n" for request in requests)
        run("gather", model, "--jsonl", "-", "-o", out, *arguments, text=text, **options)
        with np.load(out) as arrays:
            return {request["id"]: arrays[request["id"] + ".scores"] for request in requests}


def every_cell(model, sequences, n_vocab, *arguments, **options):
    """All log-probabilities of every scored row of each sequence: a list of float32 [n-1,
    n_vocab]."""
    everything = list(range(n_vocab))
    requests = [
        {"id": f"s{i}", "token_ids": list(map(int, ids)), "prompt_logprob_token_ids": everything}
        for i, ids in enumerate(sequences)
    ]
    found = gather_many(model, requests, *arguments, **options)
    return [found[f"s{i}"] for i in range(len(sequences))]
