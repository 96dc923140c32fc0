#!/usr/bin/env python3
"""`LLM.generate` beside the C library: the same teacher-scoring prompts in one process, by turns.

    NEPIT_LIBRARY=build/libnepit.so .venv/bin/python bench/python_bench.py [--model M] [--turns 3]

Each turn has new prompts of 16 to 48 ids. C's side is one np_run whose requests lie ready; Python's
is SamplingParams and generate, with a list of its own for each prompt, until every array is there.
Who begins changes by turn; scores are compared bit for bit. One JSON line per case, medians over
the turns: {"case","model","n_prompts","c_s","python_s","ratio","cpu_us_per_prompt"}. The last is
what the calling thread worked more than in C, which does not depend on what else runs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]

import ctypes as c

import checkout  # noqa: F401 - names the library
import nepit._bridge as layout
import numpy as np
from judge import Judge
from nepit import LLM, SamplingParams, TokensPrompt

FORMS = ("numpy", "lists")


def questions(random, args, n_vocab):
    """Prompts, and candidates for each of their rows."""
    made = []
    for _ in range(args.prompts):
        ids = random.integers(1, n_vocab, random.integers(16, 49), dtype=np.int32)
        made.append((ids, random.integers(0, n_vocab, (len(ids) - 1, args.candidates), np.int32)))
    return made


def timed(work):
    """What a call gives, its seconds, and those that this thread worked."""
    begin, busy = time.perf_counter(), time.thread_time()
    given = work()
    return given, np.array([time.perf_counter() - begin, time.thread_time() - busy])


def c_side(judge, asked, max_tokens):
    """Seconds of np_run, and its scores."""
    judge.keeps.clear()
    params = {"max_tokens": max_tokens, "temperature": 1.0, "top_p": 1.0, "seed": 1, "top_k": 0}
    params |= {"min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "ignore_eos": False}
    requests = (layout.Request * len(asked))()
    for i, (ids, table) in enumerate(asked):
        mine = {**params, "prompt_logprob_token_ids": table, "logprobs": None}
        requests[i] = judge.request(ids, mine)
        judge.keeps.append(requests[i].sampling)
    results, error, n = (layout.Result * len(asked))(), layout.Error(), c.c_size_t(len(asked))
    ran, seconds = timed(
        lambda: judge.lib.np_run(judge.engine, requests, n, results, None, None, c.byref(error))
    )
    assert ran == 0, error.message
    scores = [np.array(r.scores[: r.n_rows * r.n_candidates], np.float32) for r in results]
    for result in results:
        judge.lib.np_result_free(c.byref(result))
    return seconds, scores


def python_side(llm, asked, max_tokens):
    """The same of LLM.generate."""
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids, _ in asked]
    tables = [table for _, table in asked]

    def work():
        params = [
            SamplingParams(max_tokens=max_tokens, prompt_logprob_token_ids=table)
            for table in tables
        ]
        outs = llm.generate(prompts, params, use_tqdm=False)
        return outs, [out.prompt_token_id_logprobs for out in outs]

    (_outs, scores), seconds = timed(work)
    return seconds, scores


def case(llm, judge, args, form, max_tokens):
    random = np.random.default_rng(args.seed)
    took = {"c": [], "python": []}
    for turn in range(args.turns):
        asked = questions(random, args, llm.model.info.n_vocab)
        told = asked
        if form == "lists":
            told = [(ids.tolist(), table.tolist()) for ids, table in asked]
        sides = [("c", lambda: c_side(judge, asked, max_tokens))]
        sides.append(("python", lambda: python_side(llm, told, max_tokens)))
        found = {}
        for name, side in sides[:: 1 if turn % 2 else -1]:
            seconds, found[name] = side()
            took[name].append(seconds)
        for mine, right in zip(found["python"], found["c"], strict=True):
            assert mine.tobytes() == right.tobytes()
    ours, theirs = (float(np.median([wall for wall, _ in took[x]])) for x in ("python", "c"))
    work = [p[1] - q[1] for p, q in zip(took["python"], took["c"], strict=True)]
    print(
        json.dumps(
            {
                "case": f"generate, {form}, max_tokens={max_tokens}",
                "model": Path(args.model).name,
                "n_prompts": args.prompts,
                "c_s": round(theirs, 4),
                "python_s": round(ours, 4),
                "ratio": round(ours / theirs, 4),
                "cpu_us_per_prompt": round(float(np.median(work)) / args.prompts * 1e6, 1),
            }
        ),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(checkout.DEMO))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--max-tokens", nargs="+", type=int, default=[0, 1])
    args = parser.parse_args()
    with LLM(args.model, threads=args.threads, enable_prefix_caching=False) as llm:
        with llm.model._engine as engine:  # the same for both: where memory lies matters more
            for form in args.form:
                for max_tokens in args.max_tokens:
                    case(llm, Judge(engine=engine), args, form, max_tokens)


if __name__ == "__main__":
    main()
