"""What the real vLLM says of itself and of a tiny model, as JSON on standard output.

python vllm_tells.py FOLDER < questions.json
"""

import dataclasses
import inspect
import json
import os
import sys
import warnings

protocol = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # vLLM logs to standard output
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS="2",
)

import msgspec
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.inputs import TextPrompt, TokensPrompt
from vllm.logprobs import FlatLogprobs, Logprob
from vllm.outputs import CompletionOutput, RequestOutput
from vllm_cases import values


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def shape():
    """Names, orders and defaults."""
    params = {}
    for field in msgspec.structs.fields(vllm.SamplingParams):
        if not field.name.startswith("_") and field.name != "output_text_buffer_length":
            default = field.default
            params[field.name] = default if default is None else str(default)
    return {
        "version": vllm.__version__,
        "params": params,
        "from_optional": parameters(vllm.SamplingParams.from_optional),
        "init": parameters(vllm.LLM.__init__),
        "engine": [field.name for field in dataclasses.fields(EngineArgs)],
        "generate": parameters(vllm.LLM.generate),
        "chat": parameters(vllm.LLM.chat),
        "methods": [name for name in dir(vllm.LLM) if not name.startswith("_")],
        "completion": [field.name for field in dataclasses.fields(CompletionOutput)],
        "output": parameters(RequestOutput.__init__),
        "logprob": [field.name for field in dataclasses.fields(Logprob)],
        "flat": [field.name for field in dataclasses.fields(FlatLogprobs)],
        "text_prompt": sorted(TextPrompt.__annotations__),
        "tokens_prompt": sorted(TokensPrompt.__annotations__),
    }


def verdict(params):
    """None, or what vLLM has against parameters."""
    try:
        vllm.SamplingParams(**values(params))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def place(told):
    return told and [[t, x.logprob, x.rank, x.decoded_token] for t, x in told.items()]


def answer(out):
    """One RequestOutput as plain values."""
    prompt = out.prompt_logprobs
    return {
        "prompt": out.prompt,
        "prompt_token_ids": list(out.prompt_token_ids),
        "finished": out.finished,
        "prompt_logprobs": prompt and [place(told) for told in prompt],
        "outputs": [
            {
                "index": made.index,
                "text": made.text,
                "token_ids": list(made.token_ids),
                "cumulative_logprob": made.cumulative_logprob,
                "logprobs": made.logprobs and [place(told) for told in made.logprobs],
                "finish_reason": made.finish_reason,
                "stop_reason": made.stop_reason,
            }
            for made in out.outputs
        ],
    }


def main():
    asked = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    told = {"shape": shape(), "verdicts": [verdict(params) for params in asked["verdicts"]]}
    llm = vllm.LLM(
        model=sys.argv[1],
        dtype="float32",
        max_model_len=64,
        max_logprobs=400,
        enforce_eager=True,
        disable_log_stats=True,
    )
    told["answers"] = [
        [answer(out) for out in llm.generate(prompts, vllm.SamplingParams(**values(params)))]
        for prompts, params in asked["questions"]
    ]
    defaults = llm.get_default_sampling_params()
    told["defaults"] = {name: getattr(defaults, name) for name in asked["defaults"]}
    json.dump(told, protocol)


if __name__ == "__main__":
    main()
