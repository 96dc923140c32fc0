"""Speed on sentences: 1,000 of 5 to 40 tokens by nepit's Python package, by minicons, and by plain
loops over transformers, from text to a log-probability for every token.

    python bench/sentences.py --peer-python P [--peers minicons loop padded] [--turns 5]
                              [--sentences 1000] [--threads 2] [--model M.gguf]

P is a Python with minicons, torch, transformers and gguf: `pip install minicons gguf accelerate`.
One JSON object per comparison on standard output, the turns on standard error; ten minutes on two
cores. All read the same file and compute in float32. The sentences come from a grammar with a fixed
seed; they are dealt into --turns parts, and in each turn every side scores the same new part, one
after another. The numbers of all sentences are compared first: a ratio is printed only where the
largest difference is at most 1e-3 nats.

    minicons  IncrementalLMScorer.token_score on lists of --batch sentences
    loop      one sentence after another, as it stands in most scripts
    padded    --batch sentences at a time, sorted by nothing, padded on the right

"ratio" is the median over the turns of their seconds : ours.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SHORTEST, LONGEST = 5, 40  # tokens
AGREEMENT = 1e-3  # nats
SETTLE_S = 0.3  # threads of a side that has just answered may spin for a moment

# ---- sentences ----------------------------------------------------------------------------------

WORDS = {
    "det": "the a this that every some no her his our".split(),
    "adj": "old small bright angry quiet careful green broken famous tired honest strange".split(),
    "noun": (
        "teacher river engine doctor window letter child garden company bridge student village "
        "storm painter answer machine captain forest lawyer kitchen"
    ).split(),
    "verb": (
        "finds watches carries follows remembers describes sells repairs admires hides visits "
        "paints forgets questions crosses"
    ).split(),
    "adv": "slowly often never quietly again yesterday gladly almost".split(),
    "prep": "near behind without under beside from with against".split(),
    "link": "because while although before and but until if".split(),
}


def phrase(rng):
    words = [rng.choice(WORDS["det"])]
    words += [rng.choice(WORDS["adj"])] if rng.random() < 0.5 else []
    words.append(rng.choice(WORDS["noun"]))
    if rng.random() < 0.25:
        words += [rng.choice(WORDS["prep"]), rng.choice(WORDS["det"]), rng.choice(WORDS["noun"])]
    return words


def clause(rng):
    words = phrase(rng)
    words += [rng.choice(WORDS["adv"])] if rng.random() < 0.3 else []
    return [*words, rng.choice(WORDS["verb"]), *phrase(rng)]


def sentence(rng):
    words = clause(rng)
    for _ in range(rng.randrange(4)):
        words += [rng.choice(WORDS["link"]), *clause(rng)]
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def sentences(n, n_tokens, seed=7):
    """So many different ones; n_tokens tells the length of one."""
    rng = random.Random(seed)
    found = {}
    while len(found) < n:
        text = sentence(rng)
        if SHORTEST <= n_tokens(text) <= LONGEST:
            found[text] = None
    return list(found)


# ---- the other side, in its own Python -----------------------------------------------------------


class Other:
    """Other ways to score: a list of numbers per text, none for its first token."""

    def __init__(self, path, threads, batch):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import torch
        import transformers

        torch.set_num_threads(threads)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        folder, name = os.path.split(os.path.abspath(path))
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32
        ).eval()
        self.torch, self.batch, self.scorer = torch, batch, None
        self.tokenizer.padding_side = "right"
        self.tokenizer.pad_token = self.tokenizer.eos_token

    def minicons(self, texts):
        if self.scorer is None:
            from minicons.scorer import IncrementalLMScorer

            self.scorer = IncrementalLMScorer(self.model, "cpu", tokenizer=self.tokenizer)
        told = []
        for at in range(0, len(texts), self.batch):
            rows = self.scorer.token_score(texts[at : at + self.batch])
            told += [[value for _, value in row[1:]] for row in rows]
        return told

    def loop(self, texts):
        torch, told = self.torch, []
        with torch.no_grad():
            for text in texts:
                ids = self.tokenizer(text, return_tensors="pt").input_ids
                rows = torch.log_softmax(self.model(ids).logits[0, :-1], -1)
                told.append(rows.gather(1, ids[0, 1:, None])[:, 0].tolist())
        return told

    def padded(self, texts):
        torch, told = self.torch, []
        with torch.no_grad():
            for at in range(0, len(texts), self.batch):
                some = texts[at : at + self.batch]
                given = self.tokenizer(some, return_tensors="pt", padding=True)
                rows = torch.log_softmax(self.model(**given).logits[:, :-1], -1)
                values = rows.gather(2, given.input_ids[:, 1:, None])[:, :, 0]
                counts = given.attention_mask.sum(1).tolist()
                told += [row[: n - 1].tolist() for row, n in zip(values, counts)]
        return told


def serve(args):
    """Answers on standard output, one line each: {"seconds", "values"}."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    other = Other(args.model, args.threads, args.batch)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        name, texts = json.loads(line)
        begin = time.perf_counter()
        values = getattr(other, name)(texts)
        seconds = time.perf_counter() - begin
        print(json.dumps({"seconds": seconds, "values": values}), file=answers, flush=True)


class Peer:
    def __init__(self, args):
        command = [args.peer_python, __file__, "--serve", "--model", args.model]
        command += ["--threads", str(args.threads), "--batch", str(args.batch)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._read()

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the other side ended with status {self.process.wait()}")
        return json.loads(line)

    def ask(self, name, texts):
        """-> (seconds, values)"""
        self.process.stdin.write(json.dumps([name, texts]) + "\n")
        self.process.stdin.flush()
        told = self._read()
        return told["seconds"], told["values"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the comparison ------------------------------------------------------------------------------


def largest_difference(ours, theirs):
    """In nats; infinite where the tokens are not the same ones."""
    if [len(one) for one in ours] != [len(one) for one in theirs]:
        return float("inf")
    return max(abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y))


def measure(args, model, peer):
    def ours(texts):
        begin = time.perf_counter()
        scores = model.score(texts)
        values = [score.scored.tolist() for score in scores]
        return time.perf_counter() - begin, values

    def count(text):
        return len(model.tokenize(text))

    texts = sentences(args.sentences, count)
    n_tokens = sum(count(text) for text in texts)
    sides = {"nepit": ours}
    sides |= {name: lambda texts, name=name: peer.ask(name, texts) for name in args.peers}
    for side in sides.values():  # whatever is made at the first call
        side(["A first sentence.", "And another one."])
    seconds = {name: [] for name in sides}
    worst = dict.fromkeys(args.peers, 0.0)
    for turn in range(args.turns):
        part = texts[turn :: args.turns]
        values = {}
        for name, side in sides.items():
            time.sleep(SETTLE_S)
            model.clear_cache()
            took, values[name] = side(part)
            seconds[name].append(took)
            print(f"turn {turn + 1}: {name} {took:.1f} s", file=sys.stderr, flush=True)
        for name in args.peers:
            worst[name] = max(worst[name], largest_difference(values["nepit"], values[name]))
    for name in args.peers:
        line = {"case": "sentences", "peer": name, "sentences": len(texts), "tokens": n_tokens}
        line |= {"turns": args.turns, "max_abs_diff": worst[name]}
        if worst[name] <= AGREEMENT:
            ratio = statistics.median(b / a for a, b in zip(seconds["nepit"], seconds[name]))
            line["ours_tok_s"] = round(n_tokens / sum(seconds["nepit"]), 1)
            line["peer_tok_s"] = round(n_tokens / sum(seconds[name]), 1)
            line |= {"ratio": round(ratio, 3), "ok": ratio >= 2}
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python")
    names = ("minicons", "loop", "padded")
    parser.add_argument("--peers", nargs="+", choices=names, default=names)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args)
    if args.peer_python is None:
        parser.error(
            "--peer-python: a Python with minicons, torch, transformers and gguf is needed"
        )
    library = ROOT / os.environ.get("NEPIT_BUILD", "build") / "libnepit.so"
    os.environ.setdefault("NEPIT_LIBRARY", str(library))
    sys.path.insert(0, str(ROOT / "python"))
    import nepit

    peer = Peer(args)
    try:
        with nepit.open(args.model, threads=args.threads) as model:
            measure(args, model, peer)
    finally:
        peer.close()
    return None


if __name__ == "__main__":
    main()
