"""GGUF version 2 and 3 (little-endian): settings and tensors, read with numpy alone.

Layout: magic, version, n_tensors, n_settings, the settings, the tensor list (name, dimensions
fastest first, type, offset), padding to `general.alignment`, then the data.
"""

import struct

import numpy as np

# setting type number -> struct code; 7 is bool, 8 string, 9 array
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


def _f16(bytes_):
    return bytes_.copy().view("<f2").astype(np.float32)


def _nibbles(qs):
    """16 bytes of a block -> 32 values: all low halves, then all high halves."""
    return np.concatenate([qs & 15, qs >> 4], axis=1)


def _fifth_bits(qh):
    """4 bytes of a block -> the fifth bit of each of its 32 values, in place (0 or 16)."""
    bits = np.ascontiguousarray(qh).view("<u4")
    return ((bits >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8) << 4


# Each takes blocks [n, bytes] and gives the integers [n, 32] and the scale and minimum (or None)
# [n, 1] of a block: a weight is q d + m.
def _q4_0(b):
    return _nibbles(b[:, 2:]).astype(np.int8) - 8, _f16(b[:, :2]), None


def _q4_1(b):
    return _nibbles(b[:, 4:]).astype(np.int8), _f16(b[:, :2]), _f16(b[:, 2:4])


def _q5_0(b):
    q = _nibbles(b[:, 6:]) | _fifth_bits(b[:, 2:6])
    return q.astype(np.int8) - 16, _f16(b[:, :2]), None


def _q5_1(b):
    q = _nibbles(b[:, 8:]) | _fifth_bits(b[:, 4:8])
    return q.astype(np.int8), _f16(b[:, :2]), _f16(b[:, 2:4])


def _q8_0(b):
    return b[:, 2:].copy().view(np.int8), _f16(b[:, :2]), None


def _expanded(cells):
    """blocks -> float32: one rounding per written operation. All the products are exact (11 bits by
    at most 8), so only the addition of a minimum rounds."""

    def convert(b):
        q, d, m = cells(b)
        w = q.astype(np.float32) * d
        return w if m is None else w + m

    return convert


def bf16_to_f32(raw):
    return (np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << 16).view(np.float32)


# type number: (name, elements per block, bytes per block, blocks -> float32)
TYPES = {
    0: ("F32", 1, 4, lambda b: b.copy().view("<f4")),
    1: ("F16", 1, 2, _f16),
    2: ("Q4_0", 32, 18, _expanded(_q4_0)),
    3: ("Q4_1", 32, 20, _expanded(_q4_1)),
    6: ("Q5_0", 32, 22, _expanded(_q5_0)),
    7: ("Q5_1", 32, 24, _expanded(_q5_1)),
    8: ("Q8_0", 32, 34, _expanded(_q8_0)),
    30: ("BF16", 1, 2, bf16_to_f32),
}
CELLS = {2: _q4_0, 3: _q4_1, 6: _q5_0, 7: _q5_1, 8: _q8_0}


class _Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        n = self.take("Q")
        text = bytes(self.data[self.at : self.at + n])
        if len(text) != n:
            raise ValueError(f"string of {n} bytes at {self.at} runs past the end")
        self.at += n
        return text

    def value(self, kind):
        if kind == 8:
            return self.string().decode("utf-8", "surrogateescape")
        if kind != 9:
            return self.take(_SCALARS[kind])
        kind, n = self.take("I"), self.take("Q")
        if kind in (8, 9):
            return [self.value(kind) for _ in range(n)]
        array = np.frombuffer(self.data, "<" + _SCALARS[kind], n, self.at)
        self.at += array.nbytes
        return array


class Gguf:
    """settings: dict; tensors: name -> shape in C order; read(name) -> float32 array."""

    container = "gguf"

    def __init__(self, path):
        self.path = str(path)
        self._data = np.memmap(path, np.uint8, "r")
        c = _Cursor(self._data)
        if bytes(self._data[:4]) != b"GGUF":
            raise ValueError(f"{path}: no GGUF magic")
        c.at = 4
        version = c.take("I")
        if version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {version}")
        n_tensors, n_settings = c.take("Q"), c.take("Q")
        self.settings = {}
        for _ in range(n_settings):
            key = c.string().decode()
            self.settings[key] = c.value(c.take("I"))
        self._where, self.tensors = {}, {}
        for _ in range(n_tensors):
            name = c.string().decode()
            dims = [c.take("Q") for _ in range(c.take("I"))]
            self._where[name] = c.take("I"), c.take("Q")
            self.tensors[name] = tuple(reversed(dims))
        alignment = int(self.settings.get("general.alignment", 32))
        self._begin = -(-c.at // alignment) * alignment

    def _blocks(self, name):
        kind, offset = self._where[name]
        if kind not in TYPES:
            raise ValueError(
                f"{self.path}: {name} has type {kind}, not one of "
                + " ".join(t[0] for t in TYPES.values())
            )
        _, elements, n_bytes, _ = TYPES[kind]
        n_blocks = int(np.prod(self.tensors[name], dtype=np.int64)) // elements
        begin = self._begin + offset
        return np.asarray(self._data[begin : begin + n_blocks * n_bytes]).reshape(
            n_blocks, n_bytes
        )

    def read(self, name):
        blocks = self._blocks(name)
        convert = TYPES[self._where[name][0]][3]
        return convert(blocks).reshape(self.tensors[name])

    def cells(self, name):
        """q [N, K], d and m [N, K / 32] of a quantised matrix; m may be None. None for others."""
        if self._where[name][0] not in CELLS:
            return None
        n = self.tensors[name][0]
        parts = CELLS[self._where[name][0]](self._blocks(name))
        return tuple(None if part is None else part.reshape(n, -1) for part in parts)
