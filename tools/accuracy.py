"""How far nepit, transformers and llama.cpp are from float64, on real text: fills docs/ACCURACY.md.

    .venv/bin/python tools/accuracy.py [--transformers-python P] [--llama-python P] [--model M]
                                       [--write]

The text is tools/corpus.py's sample (14 languages, code, XML), the first ids of each, about 5,500
scored tokens. Every engine is compared with float64 of the weights that it was given: those of the
file, or those rounded to bf16 (a folder that bench/peers/peer_weights.py writes into .cache/peers;
of each text the first N_BF16 tokens, for frameworks are slow in bf16 on CPUs without it). A peer
that is not installed (bench/peers/setup.sh) leaves its rows of the table out.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "peers")]
import peer_weights  # noqa: E402
from peer import Peer, interpreter  # noqa: E402
from tools import corpus, oracle  # noqa: E402

MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
COMMAND = os.environ.get("NEPIT", str(ROOT / os.environ.get("NEPIT_BUILD", "build") / "nepit"))
CACHE = ROOT / ".cache" / "oracle"
WEIGHTS = ROOT / ".cache" / "peers"
PAGE = ROOT / "docs" / "ACCURACY.md"
BEGIN, END = "<!-- table: made by tools/accuracy.py --write -->", "<!-- end of the table -->"
N_SCORED = 5500
BYTES_EACH = 3000
N_BF16 = 100
FILE, ROUNDED = "the file's", "rounded to bf16"


def nepit(word, model, *arguments, text=None):
    done = subprocess.run(
        [COMMAND, word, "-m", str(model), *arguments], input=text, capture_output=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def documents(model):
    """[(name, ids)]: the same number of ids of every text, N_SCORED scored ones in all."""
    texts = corpus.sample(BYTES_EACH)
    if not texts:
        return []
    each = -(-N_SCORED // len(texts)) + 1
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "text"
        result = []
        for name, data in texts:
            path.write_bytes(data)
            ids = nepit("tokenize", model, "-f", str(path), "--json")[0]["token_ids"]
            result.append((name, ids[:each]))
    return result


def beginnings(sequences):
    """What is scored on weights rounded to bf16."""
    return [ids[: N_BF16 + 1] for ids in sequences]


def true_of_oracle(model, sequences):
    """float64 log-probabilities of all true tokens, kept in .cache under the hash of all they
    depend on."""
    key = hashlib.sha256(json.dumps(sequences).encode())
    model = pathlib.Path(model)
    files = sorted(model.iterdir()) if model.is_dir() else [model]
    for path in [*files, *sorted((ROOT / "tools" / "oracle").glob("*.py"))]:
        key.update(path.read_bytes())
    kept = CACHE / f"{key.hexdigest()[:32]}.npy"
    if not kept.exists():
        values = oracle.true_logprobs_of_all(oracle.open_model(model), sequences)
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, values)
    return np.load(kept)


def true_of_nepit(model, sequences, *options):
    """The same as nepit gives them, float32."""
    requests = "".join(
        json.dumps({"id": str(i), "token_ids": ids}) + "\n" for i, ids in enumerate(sequences)
    )
    answers = nepit("score", model, "--jsonl", "-", "--json", *options, text=requests.encode())
    assert [a["id"] for a in answers] == [str(i) for i in range(len(sequences))]
    return np.array([x for a in answers for x in a["logprobs"][1:]], dtype=np.float32)


def gap(values, exact):
    difference = np.asarray(values, dtype=np.float64) - exact
    return float(np.sqrt(np.mean(difference**2))), float(np.abs(difference).max())


def rewritten(model, ending, width):
    """A GGUF file's weights in f32 or bf16, in .cache, where bench/peers/run.py has them too."""
    path = WEIGHTS / f"{pathlib.Path(model).stem}.{ending}"
    if not path.exists():
        peer_weights.write(model, path, width)
    return path


def transformers_rows(args, bf16, sequences):
    """Yields (label, weights, values)."""
    python = interpreter("transformers", args.transformers_python)
    if not python:
        return
    softmaxes = [("float64", "with a float64 softmax"), ("own", "with its own log_softmax")]
    passes = [(args.model, FILE, "float32", sequences)]
    if bf16:
        passes.append((bf16, ROUNDED, "bfloat16", beginnings(sequences)))
    for path, weights, dtype, asked in passes:
        with Peer(python, "transformers_peer.py", path, "--dtype", dtype) as peer:
            for softmax, label in softmaxes:
                yield f"{peer.name}, {label}", weights, true_of_peer(peer, asked, softmax)


def llama_rows(args, sequences):
    python = interpreter("llama", args.llama_python)
    if not python:
        return
    for path, label in (
        (rewritten(args.model, "f32.gguf", "f32"), "weights expanded to float32"),
        (args.model, "the file as it is"),
    ):
        with Peer(python, "llama_peer.py", path) as peer:
            yield f"{peer.name}, {label}", FILE, true_of_peer(peer, sequences, "float64")


def nepit_rows(args, bf16, sequences):
    """One of every profile that suits the file, and of bf16 on the rounded weights."""
    info = nepit("info", args.model, "--json")[0]
    name = f"**nepit {info['version']}**, numeric version {info['numerics']}"
    quantised = "Q" in info["weight_types"]
    for profile in ("f32", "int16") if quantised else ("f32",):
        values = true_of_nepit(args.model, sequences, "--profile", profile)
        yield f"{name}, profile {profile}", FILE, values
    if bf16:
        values = true_of_nepit(bf16, beginnings(sequences), "--profile", "bf16")
        yield f"{name}, profile bf16", ROUNDED, values


def true_of_peer(peer, sequences, softmax):
    return np.concatenate([peer.ask([ids], softmax=softmax)[0] for ids in sequences])


def cpu_name():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return names[0] if names else "unknown"


def table(args, docs):
    sequences = [ids for _, ids in docs]
    is_gguf = pathlib.Path(args.model).suffix == ".gguf"
    bf16 = rewritten(args.model, "bf16", "bf16") if is_gguf else None
    exact = {FILE: true_of_oracle(args.model, sequences)}
    if bf16:
        exact[ROUNDED] = true_of_oracle(bf16, beginnings(sequences))
    found = [
        *nepit_rows(args, bf16, sequences),
        *transformers_rows(args, bf16, sequences),
        *llama_rows(args, sequences),
    ]
    rows = [(label, weights, *gap(values, exact[weights])) for label, weights, values in found]
    texts = " ".join(name for name, _ in docs)
    rounded = f", of the rounded weights the first {len(exact[ROUNDED])}" if bf16 else ""
    lines = ["| engine | weights | rms | max |", "|---|---|---|---|"]
    lines += [f"| {label} | {on} | {rms:.1e} | {worst:.1e} |" for label, on, rms, worst in rows]
    lines += [
        "",
        f"{pathlib.Path(args.model).name}, {len(exact[FILE])} scored tokens of {len(docs)} texts "
        f"({texts}){rounded}; {cpu_name()}, {datetime.date.today()}.",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--transformers-python", help="interpreter that has transformers and torch")
    parser.add_argument("--llama-python", help="interpreter that has llama_cpp")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ACCURACY.md")
    args = parser.parse_args()
    docs = documents(args.model)
    if not docs:
        raise SystemExit("accuracy: no text: tools/corpus.py could fetch none")
    made = table(args, docs)
    print(made)
    if args.write:
        head, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
