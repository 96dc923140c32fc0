"""A folder with config.json and safetensors (one file, or shards named by an index)."""

import json
import pathlib

import numpy as np

from .gguf import bf16_to_f32

_CONVERT = {
    "F32": (4, lambda b: b.view("<f4")),
    "F16": (2, lambda b: b.view("<f2").astype(np.float32)),
    "BF16": (2, bf16_to_f32),
}


class Folder:
    """settings: config.json as it is; tensors: name -> shape; read(name) -> float32 array."""

    container = "safetensors"

    def __init__(self, path):
        path = pathlib.Path(path)
        self.path = str(path)
        self.settings = json.loads((path / "config.json").read_text())
        index = path / "model.safetensors.index.json"
        if index.exists():
            shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            shards = ["model.safetensors"]
        self._where, self.tensors = {}, {}
        for shard in shards:
            self._open(path / shard)

    def _open(self, path):
        data = np.memmap(path, np.uint8, "r")
        n = int(data[:8].view("<u8")[0])
        header = json.loads(bytes(data[8 : 8 + n]))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            self._where[name] = data, 8 + n + begin, 8 + n + end, entry["dtype"]
            self.tensors[name] = tuple(entry["shape"])

    def read(self, name):
        data, begin, end, dtype = self._where[name]
        if dtype not in _CONVERT:
            raise ValueError(
                f"{self.path}: {name} has type {dtype}, not one of {' '.join(_CONVERT)}"
            )
        n_bytes, convert = _CONVERT[dtype]
        shape = self.tensors[name]
        if end - begin != n_bytes * int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{self.path}: {name}: {end - begin} bytes for shape {shape}")
        return convert(np.array(data[begin:end])).reshape(shape)

    def cells(self, name):
        """Quantised weights come in GGUF files alone."""
