"""Rotary positions as models were trained with them: a float32 table, then exact use of it."""

import numpy as np


def inverse_frequencies(head_dim, theta):
    """float32 [head_dim/2]: the exponent 2i/head_dim as a float32 quotient, the power in float64
    rounded to float32, then the float32 reciprocal."""
    exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    power = (float(theta) ** exponent.astype(np.float64)).astype(np.float32)
    return np.float32(1) / power


def table(positions, head_dim, theta):
    """cos, sin [positions, head_dim/2]: the angle is a float32 product, cos and sin are rounded
    once to float32, and widened again for the float64 pass."""
    angle = positions.astype(np.float32)[:, None] * inverse_frequencies(head_dim, theta)
    assert angle.dtype == np.float32
    angle = angle.astype(np.float64)
    return [f(angle).astype(np.float32).astype(np.float64) for f in (np.cos, np.sin)]


def rotate(x, cos, sin):
    """x [rows, heads, head_dim]: pairs (i, i + head_dim/2)."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
