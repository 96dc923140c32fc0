"""Token log-probabilities of causal language models, exactly.

    import nepit

    m = nepit.open("models/SmolLM2-135M-Instruct.Q4_1.gguf")
    m.score("The capital of France is Paris.").total
    m.gather("The capital of France is", " Paris.", [7042, 4528, 260])

`LLM`, `SamplingParams`, `TokensPrompt` and their companions have the names and defaults of vLLM's
offline interface.
"""

from typing import TYPE_CHECKING

from ._bridge import VERSION as __version__
from ._bridge import NepitError
from ._info import Info
from ._native import Model, open
from ._results import (
    Choice,
    Gathered,
    Generation,
    Next,
    Option,
    Perplexity,
    Score,
    Tokens,
)

if TYPE_CHECKING:
    from ._vllm import (
        LLM,
        CompletionOutput,
        Logprob,
        RequestOutput,
        SamplingParams,
        TextPrompt,
        TokensPrompt,
    )

__all__ = [
    "LLM",
    "Choice",
    "CompletionOutput",
    "Gathered",
    "Generation",
    "Info",
    "Logprob",
    "Model",
    "NepitError",
    "Next",
    "Option",
    "Perplexity",
    "RequestOutput",
    "SamplingParams",
    "Score",
    "TextPrompt",
    "Tokens",
    "TokensPrompt",
    "__version__",
    "open",
]


def __getattr__(name: str) -> object:
    """vLLM's shapes are slow to make, and are made when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _vllm

    return getattr(_vllm, name)
