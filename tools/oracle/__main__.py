"""float64 log-probabilities of a list of ids.

    .venv/bin/python -m tools.oracle MODEL --ids "1 2 3"|--ids-file F [--candidates "4 5"|--rows]
                                     [--bf16-weights|--profile P] [-o O.npy]
"""

import argparse
import sys

import numpy as np

from . import PROFILES, candidate_logprobs, open_model, rows, true_logprobs


def read_ids(text):
    return [int(word) for word in text.replace(",", " ").split()]


def read_file(path):
    if path.endswith(".npy"):
        return np.load(path).astype(np.int64)
    with open(path) as f:
        return read_ids(f.read())


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tools.oracle", description="float64 log-probabilities"
    )
    parser.add_argument("model", help="a .gguf file or a folder with config.json and safetensors")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--ids", help="ids separated by spaces or commas")
    given.add_argument("--ids-file", help="the same in a file, or a .npy of integers")
    parser.add_argument(
        "--candidates", help='ids "4 5", or a .npy [K] or [rows, K] with -1 as padding'
    )
    parser.add_argument(
        "--start", type=int, default=0, help="first row (with --candidates or --rows)"
    )
    parser.add_argument("--rows", action="store_true", help="whole rows, the next token's too")
    parser.add_argument("--bf16-weights", action="store_true", help="matrices rounded to bf16")
    parser.add_argument("--profile", choices=PROFILES, help="linear layers as a profile has them")
    parser.add_argument("-o", "--output", help=".npy file, float64; else printed, one row per line")
    args = parser.parse_args()

    ids = read_ids(args.ids) if args.ids else read_file(args.ids_file)
    model = open_model(args.model, args.profile, args.bf16_weights)
    if args.rows:
        result = rows(model, ids, args.start)
    elif args.candidates:
        load = read_file if args.candidates.endswith(".npy") else read_ids
        result = candidate_logprobs(model, ids, load(args.candidates), args.start)
    else:
        result = true_logprobs(model, ids)
    if args.output:
        np.save(args.output, result)
    else:
        np.savetxt(sys.stdout, result, fmt="%.17g")


if __name__ == "__main__":
    sys.exit(main())
