"""One hash over all log-probabilities of a document: what the promises of docs/NUMERICS.md are
tested with, and the committed hashes of every profile.

bits.json: {numeric version: {profile: {model: SHA-256}}}. A changed bit is a new numeric version:
raise it in the code, then write the new hashes with

    python tests/golden/hashes.py     (it refuses to change those of a version that is there)

A new profile: its name in PROFILES, and which models it is for in is_for and families_of.
"""

import functools
import hashlib
import json
import pathlib

import numpy as np

import nprun

HERE = pathlib.Path(__file__).parent
BITS = HERE / "bits.json"
PROFILES = ("f32", "bf16", "int16")
LEVELS = ("ref", "avx2", "avx512", "avx512bf16", "neon")
NAMES = sorted(path.name for path in nprun.MODELS.iterdir())
QUANTISED = tuple(name for name in NAMES if "mixed" in name)
DEMO_NAME = nprun.DEMO.name
# the full product of the axes; a window and a group of six query heads among them
FAMILIES = ("llama-mixed.gguf", "qwen2-sharded-f16", "gpt2-mixed.gguf", "qwen2-window77")
FAMILIES_BF16 = ("llama-head10-bf16", "qwen2-window77", "gpt2-plain")


def is_for(profile, quantised):
    """Whether a profile is for quantised files, or for files of floats: f32 is for both."""
    return profile == "f32" or quantised == (profile == "int16")


def names_of(profile):
    """The tiny models that a profile is for."""
    return [name for name in NAMES if is_for(profile, name in QUANTISED)]


def families_of(profile):
    wanted = FAMILIES_BF16 if profile == "bf16" else FAMILIES
    return [name for name in wanted if name in names_of(profile)]


def profiles_of_demo():
    return [profile for profile in PROFILES if is_for(profile, quantised=True)]


def cases(names):
    """(profile, model) of every profile, models from names(profile)."""
    return [(profile, name) for profile in PROFILES for name in names(profile)]


def document(name):
    """The sequences of a model's golden that have a row to score."""
    golden = json.loads((HERE / f"{name}.json").read_text())
    return [s["ids"] for s in golden["sequences"] if len(s["ids"]) > 1], golden["n_vocab"]


def digest(arrays):
    sha = hashlib.sha256()
    for array in arrays:
        assert array.dtype == np.float32
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def how(profile, level, threads):
    return "--profile", profile, "--cpu", level, "--threads", threads


def first_ids(sequences, n):
    """The first n ids of a document, cut in the same sequences."""
    kept = []
    for ids in sequences:
        if n > 1:
            kept.append(ids[:n])
        n -= len(ids)
    return kept


def hash_of(name, profile="f32", level="auto", threads=2, chunk=512, env=None, sequences=None):
    """Of the model's document, or of other sequences."""
    whole, n_vocab = document(name)
    sequences = sequences or whole
    environment = {"NEPIT_OVERSUBSCRIBE": 1, "NEPIT_CHUNK_ROWS": chunk} | (env or {})
    options = how(profile, level, threads)
    return digest(
        nprun.every_cell(nprun.MODELS / name, sequences, n_vocab, *options, env=environment)
    )


def hash_of_demo(profile="f32", level="auto", threads=2, chunk=512, env=None):
    """64 ids, all cells of the vocabulary."""
    ids = np.random.Generator(np.random.PCG64(64)).integers(0, 49152, 64).tolist()
    environment = {"NEPIT_OVERSUBSCRIBE": 1, "NEPIT_CHUNK_ROWS": chunk} | (env or {})
    options = how(profile, level, threads)
    return digest([nprun.gather(nprun.DEMO, ids, range(49152), *options, env=environment)])


@functools.cache
def numerics():
    return nprun.answers(nprun.run("info", nprun.MODELS / NAMES[0], "--json"))[0]["numerics"]


def committed(name, profile="f32"):
    return json.loads(BITS.read_text()).get(numerics(), {}).get(profile, {}).get(name)


@functools.cache
def have(level):
    """Whether this machine has a CPU level: `info` refuses one that it lacks."""
    try:
        nprun.run("info", nprun.MODELS / NAMES[0], "--json", "--cpu", level)
    except AssertionError as error:
        assert "lacks" in str(error)
        return False
    return True


def write_bits():
    bits = json.loads(BITS.read_text()) if BITS.exists() else {}
    for profile in PROFILES:
        known = bits.setdefault(numerics(), {}).setdefault(profile, {})
        demo = [DEMO_NAME] if nprun.DEMO.exists() and profile in profiles_of_demo() else []
        for name in names_of(profile) + demo:
            found = hash_of_demo(profile) if name == DEMO_NAME else hash_of(name, profile)
            if known.setdefault(name, found) != found:
                raise SystemExit(
                    f"{name}, {profile}: other bits, so it is another version than {numerics()}"
                )
    BITS.write_text(json.dumps(bits, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_bits()
