"""Makes tests/golden/NAME.json for every model of tests/data/models, or for those named.

    python tests/golden/make_goldens.py [--transformers-python P] [NAME...]
    (P: .cache/peers/transformers/bin/python if not given)

Each file holds ids (PCG64 seed 7), the float64 oracle's log-probabilities of the true tokens and
of some candidates, the same from transformers in float64 and float32, and how far transformers'
float32 pass (with a float64 softmax) lies from the oracle over all cells of all rows: the accuracy
that nepit has to reach. Of a folder with bf16 weights the bfloat16 pass too. It fails if the
oracle and transformers float64 differ by more than 1e-11 in any cell.
"""

import argparse
import hashlib
import json
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench" / "peers")]
from peer import Peer, interpreter  # noqa: E402
from tools import oracle  # noqa: E402

MODELS = ROOT / "tests" / "data" / "models"
LENGTHS = (1, 2, 9, 33, 200)  # 200 passes a block of 128 keys and three pages of 64


def sha256(path):
    """Of a file, or of the weights of a folder in order of name."""
    digest = hashlib.sha256()
    for part in [path] if path.is_file() else sorted(path.glob("*.safetensors")):
        digest.update(part.read_bytes())
    return digest.hexdigest()


def gap(a, b):
    difference = np.concatenate([(x - y).ravel() for x, y in zip(a, b)])
    return {"rms": float(np.sqrt(np.mean(difference**2))), "max": float(np.abs(difference).max())}


def rows_of(peer, sequences):
    """Whole float64 rows of each sequence, in the order of `sequences`."""
    return [peer.ask([ids], softmax="float64", rows=True)[0] for ids in sequences]


def dtypes_of(path):
    settings = json.loads((path / "config.json").read_text()) if path.is_dir() else {}
    is_bf16 = settings.get("torch_dtype") == "bfloat16"
    return ("float64", "float32", "bfloat16") if is_bf16 else ("float64", "float32")


def golden(path, python):
    model = oracle.open_model(path)
    rng = np.random.Generator(np.random.PCG64(7))
    lengths = [n for n in LENGTHS if n <= model.n_context]
    sequences = [rng.integers(0, model.n_vocab, n).tolist() for n in lengths]
    ours = [oracle.rows(model, ids) for ids in sequences]
    result = {
        "command": "python tests/golden/make_goldens.py",
        "seed": "PCG64 7",
        "model": path.name,
        "sha256": sha256(path),
        "numpy": np.__version__,
        "n_vocab": model.n_vocab,
    }
    theirs = {}
    for dtype in dtypes_of(path):
        with Peer(python, "transformers_peer.py", path, "--dtype", dtype) as peer:
            theirs[dtype] = rows_of(peer, sequences)
            result[f"transformers_{dtype}"] = gap(theirs[dtype], ours) | {"version": peer.name}
    worst = result["transformers_float64"]["max"]
    if not worst < 1e-11:
        raise SystemExit(f"{path.name}: oracle and transformers float64 differ by {worst}")
    result["sequences"] = []
    for ids, rows, f64, f32 in zip(sequences, ours, theirs["float64"], theirs["float32"]):
        at = np.arange(len(ids) - 1), np.array(ids[1:], dtype=np.int64)
        candidates = rng.integers(0, model.n_vocab, 3).tolist()
        result["sequences"].append(
            {
                "ids": ids,
                "oracle": rows[at].tolist(),
                "transformers_float64": f64[at].tolist(),
                "transformers_float32": f32[at].astype(np.float32).astype(float).round(7).tolist(),
                "candidates": candidates,
                "oracle_candidates": rows[:-1, candidates].tolist(),
            }
        )
    print(
        f"{path.name}: float64 {worst:.1e}, float32 rms {result['transformers_float32']['rms']:.1e}"
    )
    return result


def dump(result):
    """One sequence's field per line: a diff shows what moved."""
    sequences = result.pop("sequences")
    parts = [
        ",\n   ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in s.items()) for s in sequences
    ]
    head = ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in result.items())
    return "{" + head + ',\n "sequences": [\n  {' + "},\n  {".join(parts) + "}]}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transformers-python")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    python = interpreter("transformers", arguments.transformers_python)
    if python is None:
        raise SystemExit("no transformers here: bench/peers/setup.sh makes its environment")
    for path in sorted(MODELS.iterdir()):
        if arguments.names and path.name not in arguments.names:
            continue
        text = dump(golden(path, python))
        (pathlib.Path(__file__).parent / f"{path.name}.json").write_text(text)


if __name__ == "__main__":
    main()
