"""Writes a GGUF file again with every tensor in float32: the same values, for engines that would
compute with the quantised blocks in another way.

    python bench/peers/expand_gguf.py IN.gguf OUT.gguf
"""

import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent))
from tools.oracle.gguf import Gguf  # noqa: E402

ALIGNMENT = 32


def settings_span(data):
    """Bytes [24, end) of the file: all settings, as they are."""
    from tools.oracle.gguf import _Cursor

    cursor = _Cursor(data)
    cursor.at = 24
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        cursor.string()
        cursor.value(cursor.take("I"))
    return 24, cursor.at


def expand(source, target):
    model = Gguf(source)
    if model.settings.get("general.alignment", ALIGNMENT) != ALIGNMENT:
        raise SystemExit(f"{source}: an alignment other than {ALIGNMENT}")
    data = np.memmap(source, np.uint8, "r")
    begin, end = settings_span(data)
    infos, offset = b"", 0
    for name, shape in model.tensors.items():
        text = name.encode()
        infos += struct.pack("<Q", len(text)) + text + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, offset)
        offset += -(-int(np.prod(shape)) * 4 // ALIGNMENT) * ALIGNMENT
    with open(target, "wb") as out:
        out.write(bytes(data[:begin]) + bytes(data[begin:end]) + infos)
        out.write(bytes(-out.tell() % ALIGNMENT))
        for name in model.tensors:
            out.write(np.ascontiguousarray(model.read(name), "<f4").tobytes())
            out.write(bytes(-out.tell() % ALIGNMENT))


if __name__ == "__main__":
    expand(sys.argv[1], sys.argv[2])
