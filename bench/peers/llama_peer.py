"""llama.cpp (through llama-cpp-python) as a peer: a process that scores ids on request (see
peer.py).

    python llama_peer.py MODEL.gguf [--kv f16|f32] [--threads 2] [--context 2048]

Asks llama.cpp for the logits of the wanted rows alone. It has no softmax of whole rows; ours is in
float32 with a float64 sum, a few rows at a time while they are in the cache, or all float64.
"""

import argparse
import json
import sys
import time

import llama_cpp
import numpy as np

BATCH = 512
SOFTMAX_ROWS = 8
KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}


def log_softmax(logits):
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def logprobs_of(logits, targets, softmax):
    """[rows, n_vocab], ids [rows] -> float64 [rows]"""
    out = np.empty(len(targets))
    for i in range(0, len(targets), SOFTMAX_ROWS):
        rows, ids = logits[i : i + SOFTMAX_ROWS], targets[i : i + SOFTMAX_ROWS]
        if softmax == "float64":
            out[i : i + len(ids)] = log_softmax(rows)[np.arange(len(ids)), ids]
            continue
        shifted = rows - rows.max(axis=-1, keepdims=True)
        found = shifted[np.arange(len(ids)), ids].astype(np.float64)
        np.exp(shifted, out=shifted)
        out[i : i + len(ids)] = found - np.log(shifted.sum(axis=-1, dtype=np.float64))
    return out


class Engine:
    def __init__(self, args):
        self.llama = llama_cpp.Llama(
            model_path=args.model,
            n_ctx=args.context,
            n_batch=BATCH,
            n_threads=args.threads,
            n_threads_batch=args.threads,
            type_k=KV_TYPES[args.kv],
            type_v=KV_TYPES[args.kv],
            verbose=False,
        )
        self.context = self.llama.ctx
        self.n_vocab = self.llama.n_vocab()
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def rows(self, ids, position, first):
        """Appends ids at a position -> logits of its rows that are not before `first`."""
        batch, n_wanted = self.batch, 0
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = position + i >= first
            n_wanted += position + i >= first
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode: status {status}")
        if not n_wanted:
            return np.empty((0, self.n_vocab), np.float32)
        logits = llama_cpp.llama_get_logits(self.context)
        return np.ctypeslib.as_array(logits, shape=(n_wanted, self.n_vocab))


def score(engine, ids, request):
    first, size = request.get("first", 0), 1 if request.get("decode") else BATCH
    result = []
    engine.clear()
    # the last token scores nothing, but its row may be wanted
    n_tokens = len(ids) if request.get("rows") else len(ids) - 1
    for begin in range(0, n_tokens, size):
        end = min(begin + size, n_tokens)
        logits = engine.rows(ids[begin:end], begin, first)
        if request.get("rows"):
            result.append(log_softmax(logits))
        else:
            targets = np.array(ids[end + 1 - len(logits) : end + 1])
            result.append(logprobs_of(logits, targets, request.get("softmax", "own")))
    return np.concatenate(result)


def answer(engine, request):
    begin = time.perf_counter()
    result = [score(engine, ids, request) for ids in request["sequences"]]
    seconds = time.perf_counter() - begin
    if request.get("out"):
        np.save(request["out"], np.concatenate(result))
    return {"seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--kv", choices=KV_TYPES, default="f16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    args = parser.parse_args()
    engine = Engine(args)
    ready = f"llama-cpp-python {llama_cpp.__version__}, {args.kv} keys and values"
    print(json.dumps({"ready": ready}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
