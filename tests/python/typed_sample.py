"""What a checker must conclude from calls of the native interface; read by checkers, never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING

import nepit
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import assert_type

    Floats = NDArray[np.float32]
    texts: list[str]
    ids: NDArray[np.int64]
    several: list[NDArray[np.int32]]
    source: Iterator[str]
    m = nepit.open("model.gguf", threads=2)

    assert_type(m, nepit.Model)
    assert_type(m.score("text"), nepit.Score)
    assert_type(m.score([1, 2, 3]), nepit.Score)
    assert_type(m.score(ids, top=3, entropy=True), nepit.Score)
    assert_type(m.score(texts), list[nepit.Score])
    assert_type(m.score(several), list[nepit.Score])
    assert_type(m.score([[1, 2], [3]]), list[nepit.Score])
    assert_type(m.score(source), Generator[nepit.Score, None, None])
    assert_type(m.score(texts, errors="return"), list[nepit.Score | nepit.NepitError])
    assert_type(m.next(texts, top=2), list[nepit.Next])
    assert_type(m.gather(ids, candidates=[1, 2]), nepit.Gathered)
    assert_type(m.gather("a", "b", ids).scores, Floats)
    assert_type(m.gather(several, candidates=[1], start=3), list[nepit.Gathered])
    assert_type(m.generate("a"), nepit.Generation)
    assert_type(m.generate("a", n=2), list[nepit.Generation])
    assert_type(m.generate(texts, n=2), list[list[nepit.Generation]])
    assert_type(m.generate(source), Generator[nepit.Generation, None, None])
    assert_type(m.choose("a", ["b", ("c", "C")]), nepit.Choice)
    assert_type(m.choose(texts, ["b"]), list[nepit.Choice])
    assert_type(m.perplexity("path"), nepit.Perplexity)
    assert_type(m.perplexity([b"text"]), list[nepit.Perplexity])
    assert_type(m.tokenize("a"), nepit.Tokens)
    assert_type(m.tokenize(texts), list[nepit.Tokens])
    assert_type(m.compare(texts, m), nepit.Comparison)
    assert_type(nepit.diff(m.score("a"), [-1.0, None]), nepit.Difference)
    assert_type(nepit.pad(m.score(texts)), nepit.Padded)

    async def twins() -> None:
        assert_type(await m.score_async("text"), nepit.Score)
        assert_type(await m.score_async(texts), list[nepit.Score])
        assert_type(m.score_async(source), AsyncGenerator[nepit.Score, None])
        assert_type(await m.gather_async(ids, candidates=[1]), nepit.Gathered)
        assert_type(await m.generate_async(texts, n=2), list[list[nepit.Generation]])
        assert_type(await m.choose_async("a", ["b"]), nepit.Choice)
        assert_type(await m.perplexity_async("path"), nepit.Perplexity)
        assert_type(await m.tokenize_async(texts), list[nepit.Tokens])

    m.score("a", topp=3)  # type: ignore[call-overload]  # pyright: ignore
    m.score("a", logprobs_mode="logits")  # type: ignore[call-overload]  # pyright: ignore
    m.score(3.5)  # type: ignore[call-overload]  # pyright: ignore
    m.choose("a", ["b"], by="luck")  # type: ignore[call-overload]  # pyright: ignore
