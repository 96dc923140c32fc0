"""Speed against transformers float32, in one run: interleaved, medians of five, same ids, same
weights.

    python bench/peers/run.py [--transformers-python P] [--model M] [--repeats 5] [--case a512 ...]

JSON lines on standard output, nothing else. A ratio is printed only after both sides'
log-probabilities were compared: above MAX_DIFF nats the case fails. Cases: a512, one text of 512
tokens, every row scored; a2048, the last 512 rows of 2048; s64, 64 texts of 64. The time is of
the forward pass and the scores: nepit's own compute_s (--timing), transformers' from ids in
memory to log-probabilities.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(pathlib.Path(__file__).parent)]
from peer import Peer, interpreter  # noqa: E402

COMMAND = os.environ.get("NEPIT", str(ROOT / os.environ.get("NEPIT_BUILD", "build") / "nepit"))
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
MAX_DIFF = 1e-3
# name: texts, tokens of each, first row scored
CASES = {"a512": (1, 512, 0), "a2048": (1, 2048, 1536), "s64": (64, 64, 0)}


def sequences_of(case, n_vocab):
    n, length, _ = CASES[case]
    rng = np.random.Generator(np.random.PCG64(5))
    return [rng.integers(0, n_vocab, length).tolist() for _ in range(n)]


def ours(model, sequences, first, threads):
    """-> (log-probabilities, seconds)"""
    requests = "".join(json.dumps({"token_ids": ids, "start": first}) + "\n" for ids in sequences)
    command = [
        COMMAND,
        "score",
        "-m",
        str(model),
        "--jsonl",
        "-",
        "--json",
        "--timing",
        "--threads",
        str(threads),
    ]
    done = subprocess.run(command, input=requests, capture_output=True, text=True, check=True)
    answers = [json.loads(line)["logprobs"] for line in done.stdout.splitlines()]
    timing = [
        json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"timing"')
    ][-1]
    values = np.array([x for logprobs in answers for x in logprobs[first + 1 :]])
    return values, timing["timing"]["compute_s"]


def measure(case, args, peer, n_vocab):
    n, length, first = CASES[case]
    sequences = sequences_of(case, n_vocab)
    ours_s, peer_s = [], []
    mine, _ = ours(args.model, sequences, first, args.threads)  # and a warm file cache
    theirs, _ = peer.ask(sequences, first=first)
    worst = float(np.abs(mine - theirs).max())
    if not worst <= MAX_DIFF:
        return {"case": case, "error": f"log-probabilities differ by {worst}"}
    for _ in range(args.repeats):
        ours_s.append(ours(args.model, sequences, first, args.threads)[1])
        peer_s.append(peer.ask(sequences, keep=False, first=first)[1])
    ours_tok_s, peer_tok_s = (n * length / statistics.median(s) for s in (ours_s, peer_s))
    return {
        "case": case,
        "profile": "f32",
        "peer": peer.name,
        "peer_dtype": "float32",
        "ours_tok_s": round(ours_tok_s, 1),
        "peer_tok_s": round(peer_tok_s, 1),
        "ratio": round(ours_tok_s / peer_tok_s, 3),
        "max_abs_diff": worst,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--transformers-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--case", nargs="*", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    python = interpreter("transformers", args.transformers_python)
    if python is None:
        raise SystemExit("no transformers here: bench/peers/setup.sh transformers")
    info = subprocess.run(
        [COMMAND, "info", "-m", args.model, "--json"], capture_output=True, check=True
    )
    n_vocab, failed = json.loads(info.stdout)["n_vocab"], False
    options = ("--dtype", "float32", "--threads", args.threads)
    with Peer(python, "transformers_peer.py", args.model, *options) as peer:
        for case in args.case:
            result = measure(case, args, peer, n_vocab)
            failed = failed or "error" in result
            print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
