"""The sampler against a plain float64 evaluation of the same steps, over random settings.

The oracle sorts whole rows and sums them as numpy does; where a boundary lies closer than TIGHT to
a cumulative probability, both sides of it are right. Random numbers come from a Philox of its own.
"""

import os
import pathlib
import struct
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DUMP = ROOT / os.environ.get("NEPIT_BUILD", "build") / "tests" / "score" / "sampledump"
N_CASES = 2000
TIGHT = 1e-11
F = np.float32


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, choice, position):
    low = 0xFFFFFFFF
    words = philox(
        (position & low, position >> 32, choice & low, choice >> 32), (seed & low, seed >> 32)
    )
    return ((words[1] << 32 | words[0]) >> 11) / 2**53


def maybe(rng, chance, value):
    """value() with that chance, else None."""
    return value() if rng.random() < chance else None


def random_ids(rng, n_vocab, most):
    return rng.integers(0, n_vocab, rng.integers(0, most + 1)).astype(np.int32)


def random_logits(rng, n):
    kind = rng.integers(6)
    if kind == 0:
        return rng.normal(0, 3, n).astype(F)
    if kind == 1:  # many ties
        return rng.integers(-3, 4, n).astype(F)
    if kind == 2:
        return np.full(n, -2.5, F)
    if kind == 3:  # peaked
        return (rng.normal(0, 1, n) ** 5).astype(F)
    if kind == 4:
        return rng.uniform(-1e4, 1e4, n).astype(F)
    return np.round(rng.normal(0, 4, n) * 8).astype(F) / F(8)


def random_case(rng):
    n = int(rng.choice([1, 2, 3, 7, 63, 64, 65, 128, 300, 1000, 4097, 5000]))
    prompt, output = random_ids(rng, n, 30), random_ids(rng, n, 12)
    ids = lambda most: random_ids(rng, n, most)  # noqa: E731
    bad = [random_ids(rng, n, 3) for _ in range(rng.integers(0, 4))]
    if len(output) >= 2:
        bad.append(np.append(output[-2:], rng.integers(n)).astype(np.int32))
    bias = ids(5) if rng.random() < 0.3 else []
    return {
        "n": n,
        "logits": random_logits(rng, n),
        "temperature": F(rng.choice([0, 0.005, 0.3, 0.7, 1, 1, 1.3, 2])),
        "top_k": int(rng.choice([0, -1, 0, 0, 1, 2, 5, 50, 64, 65, 200, n, n + 5])),
        "top_p": F(rng.choice([1, 1, 1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 1 - 2**-24])),
        "min_p": F(rng.choice([0, 0, 0, 1e-30, 0.001, 0.1, 0.5, 1])),
        "presence": F(rng.choice([0, 0, 0.5, -1.1, 2])),
        "frequency": F(rng.choice([0, 0, 0.3, -2, 1.7])),
        "repetition": F(rng.choice([1, 1, 1.1, 0.7, 3])),
        "bias": [(i, F(rng.choice([3.3, -7, 100, -1e9, 1e9]))) for i in bias],
        "allowed": maybe(rng, 0.2, lambda: random_ids(rng, n, 40)),
        "bad": [word for word in bad if len(word)] if rng.random() < 0.3 else [],
        "stop": ids(3),
        "eos": ids(2),
        "min_tokens": int(rng.choice([0, 0, 5, 20])),
        "ignore_eos": int(rng.integers(2)),
        "prompt": prompt,
        "output": output,
        "n_top": int(rng.choice([0, 1, 3, 20, n, n + 3])),
        "seed": int(rng.integers(0, 2**64, dtype=np.uint64)),
        "choice": int(rng.choice([0, 1, 2**32 + 5])),
    }


def pack(case):
    allowed = case["allowed"]
    out = struct.pack(
        "<12i6f2Q",
        case["n"],
        case["top_k"],
        len(case["bias"]),
        -1 if allowed is None else len(allowed),
        *(len(case[name]) for name in ("stop", "eos", "bad", "prompt", "output")),
        case["n_top"],
        case["min_tokens"],
        case["ignore_eos"],
        *(case[name] for name in ("temperature", "top_p", "min_p")),
        *(case[name] for name in ("presence", "frequency", "repetition")),
        case["seed"],
        case["choice"],
    )
    out += b"".join(struct.pack("<if", i, value) for i, value in case["bias"])
    parts = ([] if allowed is None else [allowed]) + [case["stop"], case["eos"]]
    for word in case["bad"]:
        parts += [np.array([len(word)], np.int32), word]
    parts += [case["prompt"], case["output"], case["logits"]]
    return out + b"".join(part.tobytes() for part in parts)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, dtype, n):
        values = np.frombuffer(self.data, dtype, n, self.at)
        self.at += values.nbytes
        return values

    def one(self, dtype):
        return self.take(dtype, 1)[0]

    def answer(self, case):
        status = self.one("<i4")
        if status:
            return {"status": status}
        found = {"status": 0, "u": self.one("<f8"), "id": self.one("<i4")}
        found |= {"value": self.one("<f4"), "rank": self.one("<i4")}
        n_top = self.one("<i4")
        found |= {"top_ids": self.take("<i4", n_top), "top_values": self.take("<f4", n_top)}
        return found | {"row": self.take("<f4", case["n"])}


def dump(cases, env=None):
    done = subprocess.run(
        [DUMP],
        input=b"".join(map(pack, cases)),
        capture_output=True,
        check=True,
        env={**os.environ, **(env or {})},
    )
    reader = Reader(done.stdout)
    answers = [reader.answer(case) for case in cases]
    assert reader.at == len(done.stdout)
    return answers, done.stdout


def adjusted(case):
    """Steps 1 to 5, on float32."""
    row, output = case["logits"].copy(), case["output"]
    if case["allowed"] is not None:
        row[np.setdiff1d(np.arange(case["n"]), case["allowed"])] = -np.inf
    for word in case["bad"]:
        before = word[:-1]
        if len(before) <= len(output) and list(before) == list(output[len(output) - len(before) :]):
            row[word[-1]] = -np.inf
    if len(output) < case["min_tokens"]:
        row[case["stop"]] = -np.inf
        row[case["eos"]] = -np.inf
    for i, value in case["bias"]:
        row[i] += F(min(100, max(-100, value)))
    if case["repetition"] != 1 or case["presence"] != 0 or case["frequency"] != 0:
        seen = np.union1d(case["prompt"], output).astype(int)
        part = row[seen]
        row[seen] = np.where(part > 0, part / case["repetition"], part * case["repetition"])
        made, count = np.unique(output, return_counts=True)
        row[made] = row[made] - case["frequency"] * count.astype(F)
        row[made] = row[made] - case["presence"]
    return row


def in_order(row):
    """Ids of the tokens left, by logit and id."""
    order = np.lexsort((np.arange(len(row)), -row.astype(np.float64)))
    return order[row[order] > -np.inf]


def softmax(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def expected(case):
    """The processed row, ids that may fall either way, and the tokens in the order of drawing."""
    row = adjusted(case)
    if not (row > -np.inf).any():
        return None
    if case["temperature"] == 0:
        return row, set(), None
    row = row / max(case["temperature"], F(0.01))
    top, doubtful = row.max(), set()
    if case["min_p"] > 0:
        gap = row.astype(np.float64) - top - np.log(np.float64(case["min_p"]))
        doubtful |= set(np.flatnonzero(np.abs(gap) < 1e-12)) if case["min_p"] < 1 else set()
        row = np.where(gap >= 0, row, F(-np.inf))
    order = None
    if 0 < case["top_k"] < case["n"]:
        order = in_order(row)[: case["top_k"]]
    if case["top_p"] < 1:
        order = in_order(row) if order is None else order
        p = softmax(row[order])
        before = np.concatenate([[0], np.cumsum(p)[:-1]])
        doubtful |= set(order[np.abs(before - np.float64(case["top_p"])) < TIGHT])
        order = order[before < case["top_p"]]
    if order is None:
        return row, doubtful, np.flatnonzero(row > -np.inf)
    kept = np.full_like(row, -np.inf)
    kept[order] = row[order]
    return kept, doubtful, order


def check_draw(case, found, order):
    if order is None:
        assert found["id"] == in_order(found["row"])[0]
        return
    p = softmax(found["row"][order])
    at = list(order).index(found["id"])
    high = p[: at + 1].sum()
    assert high - p[at] - TIGHT <= found["u"] <= high + TIGHT


def check_scores(case, found):
    order = in_order(found["row"])
    left = found["row"][order].astype(np.float64) - found["row"][order[0]]
    right = left - np.log(np.exp(left).sum())
    at = list(order).index(found["id"])
    assert found["rank"] == at + 1
    assert np.isclose(found["value"], right[at], rtol=1e-7, atol=1e-9)
    n_top = min(case["n_top"], len(order))
    assert list(found["top_ids"]) == list(order[:n_top])
    assert np.allclose(found["top_values"], right[:n_top], rtol=1e-7, atol=1e-9)


def cases_of(seed, n):
    rng = np.random.default_rng(seed)
    return [random_case(rng) for _ in range(n)]


def test_rows_equal_those_of_float64():
    cases = cases_of(1, N_CASES)
    answers, _ = dump(cases)
    n_drawn = n_refused = n_doubtful = 0
    for case, found in zip(cases, answers):
        empty = case["allowed"] is not None and len(case["allowed"]) == 0
        right = None if empty else expected(case)
        assert (found["status"] == 0) == (right is not None), case
        if right is None:
            n_refused += 1
            continue
        row, doubtful, order = right
        differ = set(np.flatnonzero(row != found["row"]))
        assert differ <= doubtful, (case, differ)
        assert found["u"] == uniform(case["seed"], case["choice"], len(case["output"]))
        if differ:
            n_doubtful += 1
            continue
        check_draw(case, found, order)
        check_scores(case, found)
        n_drawn += 1
    assert n_drawn > 0.85 * N_CASES and n_refused < 0.1 * N_CASES and n_doubtful < 20


def test_every_level_gives_the_same_bytes():
    cases = cases_of(2, 300)
    assert dump(cases)[1] == dump(cases, {"NEPIT_CPU": "ref"})[1]


def test_draws_follow_the_distribution():
    """Chi-square of 10,000 draws by choice, and by seed: 99.9 % of right samplers stay below."""
    rng = np.random.default_rng(3)
    nothing = np.array([], np.int32)
    plain = random_case(rng) | dict(temperature=F(1), top_k=0, top_p=F(1), min_p=F(0), min_tokens=0)
    plain |= dict(presence=F(0), frequency=F(0), repetition=F(1), n_top=0, seed=11, choice=0)
    plain |= dict(n=60, logits=rng.normal(0, 1.5, 60).astype(F), bias=[], allowed=None, bad=[])
    plain |= dict(stop=nothing, eos=nothing, prompt=nothing, output=nothing)
    for axis, settings in (
        ("choice", {}),
        ("seed", {}),
        ("choice", {"top_k": 8}),
        ("seed", {"top_p": F(0.8)}),
        ("seed", {"min_p": F(0.05), "temperature": F(0.7)}),
    ):
        answers, _ = dump([plain | settings | {axis: value} for value in range(10_000)])
        p = softmax(expected(plain | settings)[0])
        counts = np.bincount([found["id"] for found in answers], minlength=60)
        left = p > 0
        assert not counts[~left].any()
        chi = ((counts[left] - 10_000 * p[left]) ** 2 / (10_000 * p[left])).sum()
        degrees = left.sum() - 1
        assert chi < degrees + 3.1 * np.sqrt(2 * degrees) + 6, (axis, settings, chi, degrees)
