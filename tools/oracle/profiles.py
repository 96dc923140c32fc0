"""The linear layers of nepit's profiles, operation by operation as docs/NUMERICS.md has them: in
float32, every rounding where it says, with numpy alone.

With them the oracle gives what a profile is defined to give, up to attention, norms and functions,
which stay float64 here; a single layer has nepit's own bits (tests/golden/test_profiles.py).
"""

import numpy as np

PROFILES = ("f32", "bf16", "int16")
BLOCK, GROUP = 64, 32
ZERO = np.float32(0)


def fma(a, b, c):
    """float32 a b + c with one rounding. The product is exact in float64; the sum is rounded there
    to odd, after which the rounding to float32 is the only one that counts."""
    product, c = np.float64(a) * np.float64(b), np.float64(c)
    total = product + c
    of_c = total - product
    error = (product - (total - of_c)) + (c - of_c)
    bits = total.view(np.int64)
    away = np.where((error > 0) == (total > 0), 1, -1)
    bits = bits + np.where((error != 0) & (bits % 2 == 0), away, 0)
    return bits.view(np.float64).astype(np.float32)


def round_bf16(x):
    """float32, finite: to the nearest bf16, ties to even; below 2^-50 in magnitude it is 0."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    rounded = bits.view(np.float32)
    return np.where(np.abs(rounded) < np.float32(2.0**-50), ZERO, rounded)


def linear_f32(x, w):
    """x [rows, K], w [N, K], float32 -> [rows, N]: blocks of 64, odd before even."""
    total = np.zeros((len(x), len(w)), np.float32)
    depth = x.shape[1]
    for first in range(0, depth, BLOCK):
        s = np.zeros_like(total)
        for k in range(first, min(first + BLOCK, depth), 2):
            for i in range(min(k + 1, depth - 1), k - 1, -1):
                s = fma(x[:, i, None], w[None, :, i], s)
        total = total + s
    return total


def linear_bf16(x, w):
    """The same sums of rounded operands."""
    return linear_f32(round_bf16(x), round_bf16(w))


def pack_int16(x):
    """x [rows, K] -> integers [rows, groups, 32] (as float64, exact), s and h [rows, groups]."""
    groups = x.reshape(len(x), -1, GROUP)
    a = np.abs(groups).max(axis=-1)
    live = a >= np.float32(2.0**-100)
    a = np.where(live, a, np.float32(1))
    inverse = np.float32(32767) / a
    i = np.where(live[..., None], np.rint(groups * inverse[..., None]), ZERO).astype(np.float64)
    s = np.where(live, a / np.float32(32767), ZERO)
    return i, s, s * i.sum(axis=-1).astype(np.float32)


def linear_int16(x, cells):
    """cells: q integers [N, K], d and m (None: 0) float32 [N, groups]: a weight is q d + m."""
    q, d, m = cells
    m = np.zeros_like(d) if m is None else m
    i, s, h = pack_int16(x)
    q = q.reshape(len(q), -1, GROUP).astype(np.float64)
    y = np.zeros((len(x), len(q)), np.float32)
    for g in range(q.shape[1]):
        dot = i[:, g] @ q[:, g].T  # integers below 2^27: exact in any order
        y = fma(dot.astype(np.float32), s[:, g, None] * d[None, :, g], y)
        y = fma(h[:, g, None], m[None, :, g], y)
    return y


def linear(profile, x, w, cells):
    """One layer without bias; cells is None where the weights are not quantised."""
    if profile == "bf16":
        return linear_bf16(x, w)
    if profile == "int16" and cells is not None:
        return linear_int16(x, cells)
    return linear_f32(x, w)
