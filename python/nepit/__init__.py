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

if TYPE_CHECKING:
    from ._check import Check, Mismatch, check
    from ._compare import Aligned, Comparison
    from ._diff import IMPOSSIBLE, Apart, Difference, Statistic, diff
    from ._info import Info
    from ._native import Model, open
    from ._pad import Padded, pad
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
    from ._spans import Span
    from ._vllm import (
        LLM,
        CompletionOutput,
        FlatLogprobs,
        Logprob,
        RequestOutput,
        RequestOutputKind,
        SamplingParams,
        TextPrompt,
        Tokenizer,
        TokensPrompt,
    )
    from ._words import Word

__all__ = [
    "IMPOSSIBLE",
    "LLM",
    "Aligned",
    "Apart",
    "Check",
    "Choice",
    "Comparison",
    "CompletionOutput",
    "Difference",
    "FlatLogprobs",
    "Gathered",
    "Generation",
    "Info",
    "Logprob",
    "Mismatch",
    "Model",
    "NepitError",
    "Next",
    "Option",
    "Padded",
    "Perplexity",
    "RequestOutput",
    "RequestOutputKind",
    "SamplingParams",
    "Score",
    "Span",
    "Statistic",
    "TextPrompt",
    "Tokenizer",
    "Tokens",
    "TokensPrompt",
    "Word",
    "__version__",
    "check",
    "diff",
    "open",
    "pad",
]


_LATER = {
    "_check": ("Check", "Mismatch", "check"),
    "_compare": ("Aligned", "Comparison"),
    "_diff": ("IMPOSSIBLE", "Apart", "Difference", "Statistic", "diff"),
    "_info": ("Info",),
    "_native": ("Model", "open"),
    "_pad": ("Padded", "pad"),
    "_results": tuple("Choice Gathered Generation Next Option Perplexity Score Tokens".split()),
    "_spans": ("Span",),
    "_words": ("Word",),
}
_HOMES = {name: home for home, names in _LATER.items() for name in names}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> object:
    """What takes time to make, numpy first of all, is made when it is asked for."""
    import importlib

    if name == "ray":
        return importlib.import_module(".ray", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f".{_HOMES.get(name, '_vllm')}", __name__)
    found: object = getattr(home, name)
    globals()[name] = found
    return found
