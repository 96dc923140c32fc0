"""Every tiny model against the float64 oracle: all cells of all rows, ranks, candidates, starts.

The accuracy asked for is that of transformers in float32 with a float64 softmax on the same ids,
plus the rounding of the answer to float32, which transformers' number does not have.
"""

import json
import pathlib
import sys

import numpy as np
import pytest

import nprun

sys.path.insert(0, str(nprun.ROOT))
from tools import oracle  # noqa: E402

GOLDENS = [
    path
    for path in sorted(pathlib.Path(__file__).parent.glob("*.json"))
    if (nprun.MODELS / path.name.removesuffix(".json")).exists()
]
NAMES = [path.name.removesuffix(".json") for path in GOLDENS]
TWINS = [
    ("llama-tied-f32", "llama-tied-f32.gguf"),
    ("gpt2-plain", "gpt2-plain.gguf"),
    ("qwen2-sharded-f16", "qwen2-sharded-f16.gguf"),
]


@pytest.fixture(scope="module", params=NAMES)
def case(request):
    golden = json.loads((pathlib.Path(__file__).parent / f"{request.param}.json").read_text())
    golden["path"] = nprun.MODELS / request.param
    model = oracle.open_model(golden["path"])
    for sequence in golden["sequences"]:
        sequence["rows"] = oracle.rows(model, sequence["ids"])
    return golden


def rounding(rows):
    """What rounding to float32 may add: half a unit in the last place."""
    return np.spacing(np.abs(rows).astype(np.float32)).astype(np.float64) / 2


def scored(case):
    return [s for s in case["sequences"] if len(s["ids"]) > 1]


def test_oracle_is_what_was_committed(case):
    for sequence in scored(case):
        at = np.arange(len(sequence["ids"]) - 1), np.array(sequence["ids"][1:])
        rows = sequence["rows"]
        assert np.abs(rows[at] - sequence["oracle"]).max() < 1e-11
        assert (
            np.abs(rows[:-1, sequence["candidates"]] - sequence["oracle_candidates"]).max() < 1e-11
        )
        assert np.abs(rows[at] - sequence["transformers_float64"]).max() < 1e-11


def test_every_cell(case):
    sequences = scored(case)
    found = nprun.every_cell(case["path"], [s["ids"] for s in sequences], case["n_vocab"])
    bound = case["transformers_float32"]
    squares, n_cells = 0.0, 0
    for cells, sequence in zip(found, sequences):
        rows = sequence["rows"][:-1]
        assert cells.shape == rows.shape and cells.dtype == np.float32
        difference = np.abs(cells - rows) - rounding(rows)
        assert difference.max() <= 2 * bound["max"]
        squares += float((np.maximum(difference, 0) ** 2).sum())
        n_cells += difference.size
    rms = np.sqrt(squares / n_cells)
    print(f"{case['model']}: rms {rms:.2e}, transformers float32 {bound['rms']:.2e}")
    assert rms <= bound["rms"]


def test_score_is_the_row_before_and_the_first_is_null(case):  # C001
    for sequence in scored(case):
        ids = sequence["ids"]
        answer = nprun.score(case["path"], ids)
        cells = nprun.every_cell(case["path"], [ids], case["n_vocab"])[0]
        assert answer["token_ids"] == ids
        assert answer["logprobs"][0] is None and answer["ranks"][0] is None
        logprobs = np.array(answer["logprobs"][1:], dtype=np.float32)
        assert logprobs.tobytes() == cells[np.arange(len(ids) - 1), ids[1:]].tobytes()
        assert logprobs.max() <= 0
        assert answer["total"] == pytest.approx(float(logprobs.astype(np.float64).sum()), abs=1e-12)


def test_ranks(case):  # C061, C062
    """The rank of the answer's own order where no other logit is within rounding of the token's."""
    margin = 4 * case["transformers_float32"]["max"]
    for sequence in scored(case):
        ids = sequence["ids"]
        rows = sequence["rows"][:-1]
        true = rows[np.arange(len(ids) - 1), ids[1:]][:, None]
        least = 1 + (rows > true + margin).sum(axis=1)
        most = (rows >= true - margin).sum(axis=1)
        ranks = np.array(nprun.score(case["path"], ids)["ranks"][1:])
        assert (least <= ranks).all() and (ranks <= most).all()


def test_one_token(case):
    ids = case["sequences"][0]["ids"]
    answer = nprun.score(case["path"], ids)
    assert len(ids) == 1 and answer["logprobs"] == [None] and answer["n_scored"] == 0
    assert nprun.gather(case["path"], ids, [0, 1]).shape == (0, 2)


def test_next_row(case):
    sequence = case["sequences"][-1]
    answer = nprun.answers(
        nprun.run(
            "next",
            case["path"],
            "--ids",
            nprun.lines(sequence["ids"]),
            "--top",
            case["n_vocab"],
            "--json",
        )
    )[0]
    row = sequence["rows"][-1]
    top = answer["top_logprobs"]
    assert [entry["rank"] for entry in top] == list(range(1, case["n_vocab"] + 1))
    found = np.empty_like(row)
    found[[entry["token_id"] for entry in top]] = [entry["logprob"] for entry in top]
    assert (
        np.abs(found - row).max() <= 2 * case["transformers_float32"]["max"] + rounding(row).max()
    )


def test_candidates_flat_and_nested(case):
    """Equal, bit for bit, to the same cells of the whole rows; -1 scores -inf; duplicates are
    allowed."""
    sequence = case["sequences"][2]
    ids, n_rows = sequence["ids"], len(sequence["ids"]) - 1
    cells = nprun.every_cell(case["path"], [ids], case["n_vocab"])[0]
    flat = sequence["candidates"] + sequence["candidates"][:1]
    assert nprun.gather(case["path"], ids, flat).tobytes() == cells[:, flat].tobytes()
    rng = np.random.Generator(np.random.PCG64(3))
    nested = rng.integers(-1, case["n_vocab"], (n_rows, 5))
    expected = np.where(
        nested < 0, -np.inf, np.take_along_axis(cells, np.maximum(nested, 0), axis=1)
    )
    found = nprun.gather(case["path"], ids, nested)
    assert found.tobytes() == expected.astype(np.float32).tobytes()


def test_every_start(case):  # C002
    ids, candidates = case["sequences"][2]["ids"], case["sequences"][2]["candidates"]
    n = len(ids)
    cells = nprun.every_cell(case["path"], [ids], case["n_vocab"])[0][:, candidates]
    starts = range(n + 2)
    requests = [
        {"id": f"{start}", "token_ids": ids, "start": start, "prompt_logprob_token_ids": candidates}
        for start in starts
    ]
    nested = [
        {
            "id": f"n{start}",
            "token_ids": ids,
            "start": start,
            "prompt_logprob_token_ids": [candidates] * (n - 1 - start),
        }
        for start in range(n - 1)
    ]
    found = nprun.gather_many(case["path"], requests + nested)
    for start in starts:
        assert found[f"{start}"].shape == (max(n - 1 - start, 0), len(candidates))
        assert found[f"{start}"].tobytes() == cells[start:].tobytes()
        if start < n - 1:
            assert found[f"n{start}"].tobytes() == cells[start:].tobytes()


@pytest.mark.parametrize("one, other", TWINS)
def test_folder_and_gguf_of_equal_weights_give_equal_bits(one, other):
    golden = json.loads((pathlib.Path(__file__).parent / f"{one}.json").read_text())
    sequences = [s["ids"] for s in scored(golden)]
    a, b = (
        nprun.every_cell(nprun.MODELS / name, sequences, golden["n_vocab"]) for name in (one, other)
    )
    assert [x.tobytes() for x in a] == [x.tobytes() for x in b]
