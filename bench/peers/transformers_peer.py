"""transformers as a peer: a process that scores lists of ids on request (protocol in peer.py).

    python transformers_peer.py MODEL [--dtype float32|float64|bfloat16] [--threads 2]

float64 here is float64 all through: transformers' own RMSNorm and eager softmax go through
float32, and its cos and sin are off by an ulp of float32, so those three are replaced.
"""

import argparse
import importlib
import json
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers


def load(path, dtype):
    if os.path.isdir(path):
        where, gguf = path, {}
    else:
        where, name = os.path.split(os.path.abspath(path))
        config = transformers.AutoConfig.from_pretrained(where, gguf_file=name)
        if (
            config.model_type == "gpt2"
        ):  # its reader puts the context length under a name nobody reads
            config.n_positions = config.n_ctx
        gguf = {"gguf_file": name, "config": config}
    dtype = getattr(torch, dtype)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        where, dtype=dtype, attn_implementation="sdpa", **gguf
    )
    return model.eval()


def _norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _rope(self, x, position_ids):
    angle = position_ids[..., None].float() * self.inv_freq.float()
    angle = torch.cat((angle, angle), dim=-1).double()
    return angle.cos().float().double(), angle.sin().float().double()


def make_exact(model):
    """Replaces what transformers computes in float32 in a float64 model; sdpa is float64
    already."""
    module = importlib.import_module(type(model).__module__)
    for name in dir(module):
        if name.endswith("RMSNorm"):
            getattr(module, name).forward = _norm
        if name.endswith("RotaryEmbedding"):
            getattr(module, name).forward = _rope
    return model


def logits_of(model, sequences, first):
    """Logits of the rows from `first` on; sequences of equal length go in one batch."""
    with torch.inference_mode():
        if len({len(ids) for ids in sequences}) == 1:
            # the head is spared the rows before `first`
            keep = len(sequences[0]) - first
            out = model(torch.tensor(sequences), use_cache=False, logits_to_keep=keep).logits
            return list(out)
        return [logits_of(model, [ids], first)[0] for ids in sequences]


def true_logprobs(logits, ids, first, softmax):
    """Of the tokens that rows first.. score; the last row scores nothing."""
    targets = torch.tensor(ids[first + 1 :])
    logits = logits[: len(targets)]
    if softmax != "own":
        logits = logits.to(getattr(torch, softmax))
    return torch.log_softmax(logits, -1).gather(1, targets[:, None])[:, 0].double()


def decode(model, ids, softmax):
    """The same for rows 0.., one token at a time."""
    cache, result = transformers.DynamicCache(config=model.config), []
    for i in range(len(ids) - 1):
        out = model(torch.tensor([ids[i : i + 1]]), past_key_values=cache, use_cache=True)
        result.append(true_logprobs(out.logits[0], ids[i : i + 2], 0, softmax))
    return torch.cat(result)


def answer(model, request):
    sequences, first = request["sequences"], request.get("first", 0)
    softmax = request.get("softmax", "own")
    begin = time.perf_counter()
    with torch.inference_mode():
        if request.get("decode"):
            result = [decode(model, ids, softmax) for ids in sequences]
        elif request.get("rows"):
            logits = logits_of(model, sequences, first)
            result = [torch.log_softmax(x.double(), -1) for x in logits]
        else:
            logits = logits_of(model, sequences, first)
            result = [true_logprobs(x, ids, first, softmax) for x, ids in zip(logits, sequences)]
    seconds = time.perf_counter() - begin
    if request.get("out"):
        np.save(request["out"], torch.cat(result).numpy())
    return {"seconds": seconds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = load(args.model, args.dtype)
    if args.dtype == "float64":
        make_exact(model)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, {args.dtype}"
    print(json.dumps({"ready": versions}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
