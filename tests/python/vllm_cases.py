"""Parameters that vLLM 0.32 takes or refuses, and what nepit does with them; values are JSON."""

# vLLM's defaults in the order of its positional arguments.
DEFAULTS = {
    "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "temperature": 1.0, "watermarking": None, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": None,
    "stop": None, "stop_token_ids": None, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0,
    "logprobs": None, "prompt_logprobs": None, "prompt_logprob_token_ids": None,
    "prompt_logprob_start": None, "logprob_token_ids": None, "flat_logprobs": False,
    "detokenize": True, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False, "output_kind": "RequestOutputKind.CUMULATIVE",
    "stream_interval": None, "skip_clone": False, "structured_outputs": None, "logit_bias": None,
    "allowed_token_ids": None, "extra_args": None, "bad_words": None,
    "skip_reading_prefix_cache": None, "thinking_token_budget": None, "repetition_detection": None,
    "routed_experts_prompt_start": 0, "trace_decode_token_ids": None,
}  # fmt: skip

# Parameters, and whether both take them when they are made.
BOTH_TAKE = [
    {}, {"n": 2}, {"n": 128}, {"presence_penalty": -2}, {"presence_penalty": 2.0},
    {"frequency_penalty": 1.5}, {"repetition_penalty": 0.1}, {"repetition_penalty": 5},
    {"temperature": 0}, {"temperature": 0.0, "top_p": 0.3, "top_k": 4, "min_p": 0.2},
    {"temperature": 2}, {"temperature": 0.001}, {"top_p": 1e-9}, {"top_p": 1}, {"top_k": -1},
    {"top_k": 7}, {"min_p": 1}, {"seed": -1}, {"seed": 0}, {"seed": -5}, {"seed": 2**63},
    {"stop": "a"}, {"stop": ["a", "b"]}, {"stop": []}, {"stop_token_ids": [3, 3, 1]},
    {"max_tokens": None}, {"max_tokens": 1}, {"min_tokens": 3}, {"min_tokens": 16},
    {"logprobs": 0}, {"logprobs": -1}, {"logprobs": True}, {"prompt_logprobs": -1},
    {"prompt_logprobs": True}, {"flat_logprobs": True}, {"detokenize": False},
    {"logit_bias": {"3": 1.5}}, {"allowed_token_ids": [1]}, {"bad_words": ["x", "x"]},
    {"stream_interval": 2}, {"thinking_token_budget": -1}, {"skip_clone": True},
    {"prompt_logprob_token_ids": [[1], [2]], "prompt_logprob_start": 1},
    {"logprob_token_ids": [1, 2]}, {"logprob_token_ids": [1, 2], "logprobs": 2},
    {"watermarking": False}, {"extra_args": {}}, {"routed_experts_prompt_start": 0},
]  # fmt: skip
BOTH_REFUSE = [
    {"n": 0}, {"n": -1}, {"n": "2"}, {"n": 1.5}, {"presence_penalty": 2.1},
    {"frequency_penalty": -3}, {"repetition_penalty": 0}, {"repetition_penalty": -1},
    {"repetition_penalty": "inf"}, {"temperature": -0.1}, {"temperature": 2.5},
    {"temperature": "nan"}, {"temperature": "inf"}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -2},
    {"top_k": 1.5}, {"min_p": -0.1}, {"min_p": 1.01}, {"max_tokens": -1}, {"min_tokens": -1},
    {"min_tokens": 17}, {"min_tokens": 3, "max_tokens": 2}, {"logprobs": -2},
    {"prompt_logprobs": -2}, {"stop": ""}, {"stop": ["a", ""]}, {"stop_token_ids": ["a"]},
    {"stop": "a", "detokenize": False}, {"bad_words": [""]}, {"temperature": 0, "n": 2},
    {"stream_interval": 0}, {"thinking_token_budget": -2}, {"thinking_token_budget": 1.5},
]  # fmt: skip
# vLLM finds these out when they are used; nepit at once.
REFUSED_WHEN_USED = [
    {"allowed_token_ids": []}, {"logprob_token_ids": [1, 2], "logprobs": 3},
    {"logprob_token_ids": list(range(129))}, {"prompt_logprob_start": 3},
]  # fmt: skip
# What differs, and why.
NEPIT_TAKES = [
    ({"max_tokens": 0}, "nothing is generated: scoring needs no token"),
]
NEPIT_REFUSES = [
    ({"n": 129}, "128 choices at most"),
    ({"watermarking": True}, "not served"),
    ({"thinking_token_budget": 5}, "not served"),
    ({"trace_decode_token_ids": [1]}, "not served"),
    ({"extra_args": {"a": 1}}, "nothing is ignored"),
    ({"logprobs": False}, "0 or None?"),
    ({"max_tokens": 1.5}, "no whole number"),
]


def values(params):
    """JSON has no infinities, and texts alone as keys."""
    numbers = {"inf": float("inf"), "nan": float("nan")}
    made = {k: numbers.get(v, v) if isinstance(v, str) else v for k, v in params.items()}
    if "logit_bias" in made:
        made["logit_bias"] = {int(k): v for k, v in made["logit_bias"].items()}
    return made
