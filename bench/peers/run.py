"""Speed beside other engines, in one run: interleaved, medians of five, same weights, same ids,
same threads.

    python bench/peers/run.py [--precision f32 bf16 q4_1] [--peers transformers vllm llama nepit]
                              [--case a512 ...] [--repeats 5] [--seconds 30] [--threads 2]
                              [--model M.gguf]
                              [--transformers-python P] [--llama-python P] [--vllm-python P]

One JSON object per comparison on standard output as soon as it is known, a table on standard error
at the end. Every engine is a process that is asked by one protocol (peer.py) and times itself from
ids in memory to log-probabilities, the model loaded. First all answer the same ids (an eighth of
the case's texts), which also warms them up: a ratio is printed only where their log-probabilities
agree as AGREEMENT asks. Then, --repeats times, each in turn answers ids that are new, so that no
cache of answers helps; with 0 only the numbers are compared. An engine takes no further turn that
would bring its answers of a case above --seconds; "turns" says how many it took. What is missing is
left out with the reason.

    a512    one text of 512 tokens, every row scored: tokens/s
    a2048   one text of 2,048, the last 512 rows scored: tokens/s (vLLM cannot leave rows out)
    g8      8 responses of 128 on one prompt of 512, the responses' rows scored: rows/s
    g16     16 responses of 64 on one prompt of 1,500, the responses' rows scored: rows/s
    s64     64 texts of 64, every row scored: tokens/s
    decode  64 tokens one by one, each scored: tokens/s
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
from collections import namedtuple

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(pathlib.Path(__file__).parent)]
import peer_weights  # noqa: E402
from peer import CACHE, Peer, interpreter  # noqa: E402
from tools.oracle.gguf import Gguf  # noqa: E402

OURS = ROOT / os.environ.get("NEPIT_BUILD", "build") / "bench" / "nepit_peer"
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
# Threads of an engine that has just answered may spin for a moment before they sleep.
SETTLE_S = 0.2

# count: what is divided by the seconds
Case = namedtuple("Case", "n_sequences n_tokens first n_shared count decode")
CASES = {
    "a512": Case(1, 512, 0, 0, 512, False),
    "a2048": Case(1, 2048, 1535, 0, 2048, False),
    "g8": Case(8, 640, 511, 512, 8 * 128, False),
    "g16": Case(16, 1564, 1499, 1500, 16 * 64, False),
    "s64": Case(64, 64, 0, 0, 64 * 64, False),
    "decode": Case(1, 65, 0, 0, 64, True),
}

# weights: "" is the model as it is, else what peer_weights.py makes of it; softmax: bfloat16
# logits are widened before it, as everyone who wants log-probabilities does
Engine = namedtuple("Engine", "peer weights options softmax", defaults=["own"])
ENGINES = {
    "nepit f32": Engine("nepit", "f32.gguf", ["--profile", "f32"]),
    "nepit bf16": Engine("nepit", "bf16.gguf", ["--profile", "bf16"]),
    "nepit f32, Q4_1": Engine("nepit", "", ["--profile", "f32"]),
    "nepit int16, Q4_1": Engine("nepit", "", ["--profile", "int16"]),
    "transformers f32": Engine("transformers", "f32", ["--dtype", "float32"]),
    "transformers bf16": Engine("transformers", "bf16", ["--dtype", "bfloat16"], "float32"),
    "vllm f32": Engine("vllm", "f32", ["--dtype", "float32"]),
    "vllm bf16": Engine("vllm", "bf16", ["--dtype", "bfloat16"]),
    # not its flash attention, which is 3e-2 nats off in float32
    "llama.cpp f32": Engine("llama", "f32.gguf", ["--kv", "f32"]),
    "llama.cpp bf16": Engine("llama", "bf16.gguf", ["--kv", "f16"]),
    "llama.cpp Q4_1": Engine("llama", "", ["--kv", "f16"]),
}
COMPARISONS = {
    "f32": [
        ("nepit f32", "transformers f32"),
        ("nepit f32", "vllm f32"),
        ("nepit f32", "llama.cpp f32"),
    ],
    "bf16": [
        ("nepit bf16", "transformers bf16"),
        ("nepit bf16", "vllm bf16"),
        ("nepit bf16", "llama.cpp bf16"),
    ],
    "q4_1": [
        ("nepit f32, Q4_1", "llama.cpp Q4_1"),
        ("nepit int16, Q4_1", "llama.cpp Q4_1"),
        ("nepit int16, Q4_1", "nepit f32, Q4_1"),
    ],
}
# theirs: (largest rms, largest difference) in nats, None: no limit. On random ids transformers and
# vLLM in bfloat16 are 0.08 rms from float64 of the same weights, llama.cpp on Q4_1 blocks 0.2.
AGREEMENT = {
    "transformers f32": (None, 1e-3),
    "vllm f32": (None, 1e-3),
    "llama.cpp f32": (None, 2e-2),
    "transformers bf16": (0.15, None),
    "vllm bf16": (0.15, None),
    "llama.cpp bf16": (0.15, None),
    "llama.cpp Q4_1": (0.3, None),
    "nepit f32, Q4_1": (2e-3, None),
}


def emit(line):
    print(json.dumps(line), flush=True)


def sequences_of(case, n_vocab, turn):
    """Random ids; turn 0 is the comparison."""
    rng = np.random.Generator(np.random.PCG64([5, turn]))
    shared = rng.integers(0, n_vocab, case.n_shared).tolist()
    rest = case.n_tokens - case.n_shared
    n = case.n_sequences if turn else max(case.n_sequences // 8, 1)
    return [shared + rng.integers(0, n_vocab, rest).tolist() for _ in range(n)]


def weights_of(model, kind):
    if not kind:
        return model
    path = CACHE / f"{pathlib.Path(model).stem}.{kind}"
    if not path.exists():
        print(f"writing {path.relative_to(ROOT)}", file=sys.stderr)
        peer_weights.write(model, path, kind.removesuffix(".gguf"))
    return path


def start(name, args):
    """-> a Peer; RuntimeError says why there is none"""
    engine = ENGINES[name]
    if engine.peer == "nepit":
        program, script = OURS, None
        if not OURS.exists():
            raise RuntimeError("build/bench/nepit_peer is not there: ./run bench-peers builds it")
    else:
        program = interpreter(engine.peer, getattr(args, f"{engine.peer}_python"))
        script = f"{engine.peer}_peer.py"
        if program is None:
            raise RuntimeError(f"not installed: bench/peers/setup.sh {engine.peer}")
    options = (*engine.options, "--threads", args.threads)
    weights = weights_of(args.model, engine.weights)
    return Peer(program, script, weights, *options, threads=args.threads)


class Bench:
    """The engines of one precision, side by side. One that fails is dropped, with a line."""

    def __init__(self, args, comparisons):
        self.args, self.peers, self.failed = args, {}, False
        self.comparisons = [pair for pair in comparisons if ENGINES[pair[1]].peer in args.peers]
        for name in dict.fromkeys(ours for ours, _ in self.comparisons):
            self.attempt(name, lambda: self.open(name))
        # an engine that has no counterpart need not be loaded
        for name in dict.fromkeys(t for ours, t in self.comparisons if ours in self.peers):
            if name not in self.peers:
                self.attempt(name, lambda: self.open(name))

    def open(self, name):
        self.peers[name] = start(name, self.args)
        print(f"{name}: {self.peers[name].name}", file=sys.stderr, flush=True)

    def attempt(self, name, work):
        """-> what `work` gives, None if the engine could not"""
        try:
            return work()
        except (RuntimeError, OSError) as error:
            emit({"skipped": name, "reason": str(error)})
            if name in self.peers:
                self.failed = True
                self.peers.pop(name).process.kill()

    def pairs(self):
        return [pair for pair in self.comparisons if all(name in self.peers for name in pair)]

    def ask(self, name, case, sequences, **options):
        time.sleep(SETTLE_S)
        how = {"first": case.first, "decode": case.decode, "softmax": ENGINES[name].softmax}
        return self.attempt(name, lambda: self.peers[name].ask(sequences, **how, **options))

    def gaps(self, case, n_vocab):
        """{pair: (rms, max)} of all pairs; every engine has answered once afterwards."""
        sequences = sequences_of(case, n_vocab, 0)
        found = {name: self.ask(name, case, sequences) for name in list(self.peers)}
        result = {}
        for ours, theirs in self.pairs():
            mine, (values, _) = found[ours][0], found[theirs]
            taken = self.peers[theirs].taken
            if taken:  # it went its own way: follow
                mine, _ = self.ask(ours, case, taken) or (np.nan, None)
            gap = mine - values
            result[ours, theirs] = float(np.sqrt(np.mean(gap**2))), float(np.abs(gap).max())
        return result

    def times(self, case, n_vocab, names):
        """{name: seconds of every turn}; each second turn goes backwards."""
        result = {name: [] for name in names}
        for turn in range(1, self.args.repeats + 1):
            sequences = sequences_of(case, n_vocab, turn)
            for name in names[:: 1 if turn % 2 else -1]:
                taken = result[name]
                too_long = taken and sum(taken) + taken[-1] > self.args.seconds
                if name not in self.peers or too_long:
                    continue
                answer = self.ask(name, case, sequences, keep=False)
                if answer:
                    taken.append(answer[1])
        return result

    def measure(self, case_name, n_vocab):
        """Yields one line per comparison."""
        case = CASES[case_name]
        lines = []
        for (ours, theirs), (rms, worst) in self.gaps(case, n_vocab).items():
            line = {"case": case_name, "ours": ours, "theirs": theirs}
            line |= {"gap_rms": rms, "gap_max": worst}
            max_rms, max_worst = AGREEMENT[theirs]
            if not (rms <= (max_rms or np.inf) and worst <= (max_worst or np.inf)):
                self.failed = True
                yield line | {"error": f"{self.peers[theirs].name} computed something else"}
            else:
                lines.append(line)
        if not lines or not self.args.repeats:
            yield from lines
            return
        agreed = dict.fromkeys(line[side] for side in ("ours", "theirs") for line in lines)
        times = self.times(case, n_vocab, list(agreed))
        for line in lines:
            mine, other = times[line["ours"]], times[line["theirs"]]
            if not (mine and other):
                continue
            ratios = [b / a for a, b in zip(mine, other)]
            speeds = [case.count / statistics.median(seconds) for seconds in (mine, other)]
            yield line | {
                "unit": "rows/s" if case.n_shared else "tokens/s",
                "ours_speed": round(speeds[0], 1),
                "theirs_speed": round(speeds[1], 1),
                "ratio": round(speeds[0] / speeds[1], 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
                "turns": [len(mine), len(other)],
            }

    def close(self):
        for peer in self.peers.values():
            peer.close()


def table(lines):
    head = ["case", "ours", "theirs", "speeds", "", "ratio", "(from to)", "turns"]
    rows = [[*head, "gap rms", "max, nats"]]
    for x in lines:
        speeds = [f"{x['ours_speed']:.1f}", f"{x['theirs_speed']:.1f} {x['unit']}"]
        ratio = [f"{x['ratio']:.2f}", f"({x['ratio_min']:.2f} {x['ratio_max']:.2f})"]
        gaps = [f"{x['gap_rms']:.1e}", f"{x['gap_max']:.1e}"]
        turns = "{} {}".format(*x["turns"])
        rows.append([x["case"], x["ours"], x["theirs"], *speeds, *ratio, turns, *gaps])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    peers = sorted({engine.peer for engine in ENGINES.values()})
    parser.add_argument("--precision", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    parser.add_argument("--peers", nargs="+", choices=peers, default=peers)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default=str(MODEL))
    for name in peers:
        if name != "nepit":
            parser.add_argument(f"--{name}-python")
    return parser.parse_args()


def main():
    args, results, failed = parse(), [], False
    n_vocab = Gguf(args.model).tensors["token_embd.weight"][0]
    try:
        for precision in args.precision:
            bench = Bench(args, COMPARISONS[precision])
            for case_name in args.case:
                for line in bench.measure(case_name, n_vocab):
                    emit(line)
                    results.append(line)
            bench.close()
            failed = failed or bench.failed
    finally:
        timed = [line for line in results if "ratio" in line]
        if timed:
            print("\n" + table(timed), file=sys.stderr)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
