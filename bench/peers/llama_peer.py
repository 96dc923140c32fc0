"""llama.cpp (through llama-cpp-python) as a peer: a process that scores ids on request (see
peer.py).

python llama_peer.py MODEL.gguf [--threads 2] [--context 2048]
"""

import argparse
import json
import sys
import time

import llama_cpp
import numpy as np


def log_softmax(logits):
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def answer(model, request):
    """The softmax is float64 whatever is asked: llama.cpp itself gives logits."""
    first, result, seconds = request.get("first", 0), [], 0.0
    for ids in request["sequences"]:
        begin = time.perf_counter()
        model.reset()
        model.eval(ids)
        rows = log_softmax(model.scores[first : len(ids)])
        if not request.get("rows"):
            rows = rows[np.arange(len(ids) - 1 - first), ids[first + 1 :]]
        seconds += time.perf_counter() - begin
        result.append(rows)
    if request.get("out"):
        np.save(request["out"], np.concatenate(result))
    return {"seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    args = parser.parse_args()
    model = llama_cpp.Llama(
        model_path=args.model,
        n_ctx=args.context,
        n_batch=512,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        logits_all=True,
        verbose=False,
    )
    print(json.dumps({"ready": f"llama-cpp-python {llama_cpp.__version__}"}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
