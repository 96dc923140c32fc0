"""One hash over all log-probabilities of a document, whatever the CPU level, the threads, the
chunks and the company; and the committed hash of this numeric version, so that no bit changes in
silence.

bits.json: {numeric version: {model: SHA-256}}. A changed bit is a new numeric version: raise it
in the code, then write the new hashes with

    python tests/golden/test_bits.py     (it refuses to change those of a version that is there)
"""

import hashlib
import itertools
import json
import pathlib

import numpy as np
import pytest

import nepit

BITS = pathlib.Path(__file__).parent / "bits.json"
LEVELS = ("ref", "avx2", "avx512", "avx512bf16", "neon")
THREADS = (1, 2, 3, 5)
CHUNKS = (1, 7, 16, 64, 512)
FAMILIES = (
    "llama-mixed.gguf",
    "qwen2-sharded-f16",
    "gpt2-mixed.gguf",
)  # the full product of the axes
NAMES = sorted(path.name for path in nepit.MODELS.iterdir())
DEMO_NAME = nepit.DEMO.name


def document(name):
    """The sequences of a model's golden that have a row to score."""
    golden = json.loads((pathlib.Path(__file__).parent / f"{name}.json").read_text())
    return [s["ids"] for s in golden["sequences"] if len(s["ids"]) > 1], golden["n_vocab"]


def digest(arrays):
    sha = hashlib.sha256()
    for array in arrays:
        assert array.dtype == np.float32
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def hash_of(name, level="auto", threads=2, chunk=512):
    sequences, n_vocab = document(name)
    env = {"NEPIT_OVERSUBSCRIBE": 1, "NEPIT_CHUNK_ROWS": chunk}
    cells = nepit.every_cell(
        nepit.MODELS / name, sequences, n_vocab, "--cpu", level, "--threads", threads, env=env
    )
    return digest(cells)


def hash_of_demo(level="auto", threads=2, chunk=512):
    """64 ids, all cells of the vocabulary."""
    ids = np.random.Generator(np.random.PCG64(64)).integers(0, 49152, 64).tolist()
    env = {"NEPIT_OVERSUBSCRIBE": 1, "NEPIT_CHUNK_ROWS": chunk}
    return digest(
        [nepit.gather(nepit.DEMO, ids, range(49152), "--cpu", level, "--threads", threads, env=env)]
    )


def numerics():
    return nepit.answers(nepit.run("info", nepit.MODELS / NAMES[0], "--json"))[0]["numerics"]


def committed(name):
    return json.loads(BITS.read_text()).get(numerics(), {}).get(name)


def have(level):
    """Whether this machine has a CPU level: `info` refuses one that it lacks."""
    try:
        nepit.run("info", nepit.MODELS / NAMES[0], "--json", "--cpu", level)
    except AssertionError as error:
        assert "lacks" in str(error)
        return False
    return True


def need(level):
    if not have(level):
        pytest.skip(f"this machine lacks {level}")


@pytest.mark.parametrize("name", NAMES)
def test_no_bit_changed(name):
    assert hash_of(name) == committed(
        name
    ), f"{name}: other bits than numeric version {numerics()} gives"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_level(name, level):
    need(level)
    assert hash_of(name, level) == committed(name)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FAMILIES)
def test_product_of_levels_threads_chunks(name, level):
    need(level)
    for threads, chunk in itertools.product(THREADS, CHUNKS):
        assert hash_of(name, level, threads, chunk) == committed(
            name
        ), f"{threads} threads, chunks of {chunk}"


@pytest.mark.parametrize("name", FAMILIES)
def test_any_order_and_company(name):  # C014, C016, C019, C037, C041
    """Every sequence alone, all in some orders, in groups, twice, with others of other lengths
    between."""
    sequences, n_vocab = document(name)
    path, everything = nepit.MODELS / name, list(range(n_vocab))
    alone = [nepit.gather(path, ids, everything) for ids in sequences]
    assert digest(alone) == committed(name)
    rng = np.random.Generator(np.random.PCG64(1))
    for chunk in (7, 64, 512):
        order = rng.permutation(np.repeat(np.arange(len(sequences)), 3))
        requests = [
            {"id": f"r{j}", "token_ids": sequences[i], "prompt_logprob_token_ids": everything}
            for j, i in enumerate(order)
        ]
        requests += [
            {
                "id": f"x{j}",
                "token_ids": rng.integers(0, n_vocab, 3 + j).tolist(),
                "prompt_logprob_token_ids": everything,
            }
            for j in range(5)
        ]
        rng.shuffle(requests)
        found = nepit.gather_many(path, requests, env={"NEPIT_CHUNK_ROWS": chunk})
        for j, i in enumerate(order):
            assert found[f"r{j}"].tobytes() == alone[i].tobytes()


@pytest.mark.parametrize("name", FAMILIES)
def test_one_prefix_many_ends(name):  # C011, C016, C124
    """Sequences with a common beginning have equal rows there, at every length around a chunk."""
    sequences, n_vocab = document(name)
    ids, everything = sequences[-1], list(range(n_vocab))
    whole = nepit.gather(nepit.MODELS / name, ids, everything)
    lengths = [n for n in (2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 193) if n <= len(ids)]
    requests = [
        {"id": f"p{n}", "token_ids": ids[:n], "prompt_logprob_token_ids": everything}
        for n in lengths
    ]
    found = nepit.gather_many(nepit.MODELS / name, requests, env={"NEPIT_CHUNK_ROWS": 16})
    for n in lengths:
        assert found[f"p{n}"].tobytes() == whole[: n - 1].tobytes()


demo = pytest.mark.skipif(
    not nepit.DEMO.exists(), reason=f"models/{DEMO_NAME} is not here: ./run demo gets it"
)


@demo
@pytest.mark.parametrize("level", LEVELS)
def test_demo_model_every_level(level):
    need(level)
    assert hash_of_demo(level) == committed(DEMO_NAME)


@demo
@pytest.mark.parametrize("threads, chunk", [(1, 512), (3, 7), (5, 64), (2, 1)])
def test_demo_model_threads_and_chunks(threads, chunk):
    assert hash_of_demo("auto", threads, chunk) == committed(DEMO_NAME)


def write_bits():
    bits = json.loads(BITS.read_text()) if BITS.exists() else {}
    known = bits.setdefault(numerics(), {})
    for name in NAMES + ([DEMO_NAME] if nepit.DEMO.exists() else []):
        found = hash_of_demo() if name == DEMO_NAME else hash_of(name)
        if known.setdefault(name, found) != found:
            raise SystemExit(
                f"{name}: other bits, so it is another numeric version than {numerics()}"
            )
    BITS.write_text(json.dumps(bits, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_bits()
