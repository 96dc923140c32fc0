"""One hash over all log-probabilities of a document, whatever the CPU level, the threads, the
chunks and the company; and the committed hash of this numeric version, so that no bit changes in
silence (hashes.py, which also writes them)."""

import itertools

import numpy as np
import pytest

import hashes
import nprun
from hashes import cases, committed, document, families_of, hash_of, hash_of_demo, names_of

THREADS = (1, 2, 3, 5)
CHUNKS = (1, 7, 16, 64, 512)  # matrix.py has more, and builds of its own


def need(level):
    if not hashes.have(level):
        pytest.skip(f"this machine lacks {level}")


@pytest.mark.parametrize("profile, name", cases(names_of))
def test_no_bit_changed(profile, name):
    found = hash_of(name, profile)
    assert found == committed(name, profile), f"other bits than version {hashes.numerics()} gives"


@pytest.mark.parametrize("level", hashes.LEVELS)
@pytest.mark.parametrize("profile, name", cases(names_of))
def test_every_level(profile, name, level):
    need(level)
    assert hash_of(name, profile, level) == committed(name, profile)


@pytest.mark.parametrize("level", hashes.LEVELS)
@pytest.mark.parametrize("profile, name", cases(families_of))
def test_product_of_levels_threads_chunks(profile, name, level):
    need(level)
    for threads, chunk in itertools.product(THREADS, CHUNKS):
        found = hash_of(name, profile, level, threads, chunk)
        assert found == committed(name, profile), f"{threads} threads, chunks of {chunk}"


@pytest.mark.parametrize("profile, name", cases(families_of))
def test_any_order_and_company(profile, name):  # C014, C016, C019, C037, C041
    """Every sequence alone, all in some orders, in groups, twice, with others of other lengths
    between."""
    sequences, n_vocab = document(name)
    path, everything, options = nprun.MODELS / name, list(range(n_vocab)), ("--profile", profile)
    alone = [nprun.gather(path, ids, everything, *options) for ids in sequences]
    assert hashes.digest(alone) == committed(name, profile)
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
        found = nprun.gather_many(path, requests, *options, env={"NEPIT_CHUNK_ROWS": chunk})
        for j, i in enumerate(order):
            assert found[f"r{j}"].tobytes() == alone[i].tobytes()


@pytest.mark.parametrize("profile, name", cases(families_of))
def test_one_prefix_many_ends(profile, name):  # C011, C016, C124
    """Sequences with a common beginning have equal rows there, at every length around a chunk."""
    sequences, n_vocab = document(name)
    ids, everything, options = sequences[-1], list(range(n_vocab)), ("--profile", profile)
    whole = nprun.gather(nprun.MODELS / name, ids, everything, *options)
    lengths = [n for n in (2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 193) if n <= len(ids)]
    requests = [
        {"id": f"p{n}", "token_ids": ids[:n], "prompt_logprob_token_ids": everything}
        for n in lengths
    ]
    env = {"NEPIT_CHUNK_ROWS": 16}
    found = nprun.gather_many(nprun.MODELS / name, requests, *options, env=env)
    for n in lengths:
        assert found[f"p{n}"].tobytes() == whole[: n - 1].tobytes()


demo = pytest.mark.skipif(
    not nprun.DEMO.exists(), reason=f"models/{hashes.DEMO_NAME} is not here: ./run demo gets it"
)


@demo
@pytest.mark.parametrize("level", hashes.LEVELS)
@pytest.mark.parametrize("profile", hashes.profiles_of_demo())
def test_demo_model_every_level(profile, level):
    need(level)
    assert hash_of_demo(profile, level) == committed(hashes.DEMO_NAME, profile)


@demo
@pytest.mark.parametrize("threads, chunk", [(1, 512), (3, 7), (5, 64), (2, 1)])
@pytest.mark.parametrize("profile", hashes.profiles_of_demo())
def test_demo_model_threads_and_chunks(profile, threads, chunk):
    assert hash_of_demo(profile, "auto", threads, chunk) == committed(hashes.DEMO_NAME, profile)
