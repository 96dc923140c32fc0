"""Answers that are kept, so that a run that was killed goes on where it was.

A folder holds `checkpoint.json`, which says what the answers belong to, and two files for each
batch: `parts/NAME.parquet` with its answers, then `parts/NAME.keys` with the 16-byte key of each of
its rows. A key is a hash of what the row asks (its text or ids) and of nothing else, so a row is
found again however the data set is split, ordered or filtered the next time. Files are written
under another name and renamed when they are whole.

    NAME.keys    key of each row | digest of NAME.parquet | digest of all that stands before

What does not agree with its digest is as good as not there: its rows are computed again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ._bridge import NepitError

KEY_BYTES = 16
ABOUT = "checkpoint.json"
PARTS = "parts"
READERS = 8  # parts that are read at the same time for the index
OPEN_PARTS = 8  # that a worker keeps in memory
STALE_S = 3600  # an unfinished file this old has nobody who writes it
ANSWERS, KEYS = ".parquet", ".keys"


class _Damaged(Exception):
    """A file is gone, or is not what was written."""


def digest(*pieces: bytes) -> bytes:
    """16 bytes that stand for the pieces and for where each one ends."""
    hashed = hashlib.blake2b(digest_size=KEY_BYTES)
    for piece in pieces:
        hashed.update(len(piece).to_bytes(8, "little"))
        hashed.update(piece)
    return hashed.digest()


@dataclass(frozen=True)
class Index:
    """Where the finished rows are: keys in order, and part and row of each. 24 bytes a row."""

    keys: NDArray[np.bytes_]
    part: NDArray[np.int32]
    row: NDArray[np.int32]
    names: tuple[str, ...]  # of the parts

    def find(self, keys: Sequence[bytes]) -> NDArray[np.int64]:
        """The place of each key here, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        asked = np.array(keys, self.keys.dtype)
        at = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        return np.where(self.keys[at] == asked, at, -1)


def index_of(parts: Mapping[str, bytes]) -> Index:
    """The index of parts, given the keys of each, one behind the other."""
    names = tuple(sorted(parts))
    keys = np.frombuffer(b"".join(parts[name] for name in names), f"S{KEY_BYTES}")
    counts = [len(parts[name]) // KEY_BYTES for name in names]
    part = np.repeat(np.arange(len(names), dtype=np.int32), counts)
    row = np.concatenate([np.arange(n, dtype=np.int32) for n in counts] or [part])
    order = np.argsort(keys, kind="stable")
    return Index(keys[order], part[order], row[order], names)


@dataclass(frozen=True)
class Checkpoint:
    """What a folder holds.

    Attributes
    ----------
    n_rows : rows with an answer
    n_parts : batches that hold them
    n_damaged : batches whose keys cannot be read; their rows are computed again
    n_bytes : of all files
    about : what the answers belong to: model, options, arithmetic
    """

    n_rows: int
    n_parts: int
    n_damaged: int
    n_bytes: int
    about: Mapping[str, object]


class Store:
    """A checkpoint folder on any file system that pyarrow knows."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._fs, self._root = _file_system(folder)
        self._read = functools.lru_cache(OPEN_PARTS)(self._read_part)

    def begin(self, about: Mapping[str, object]) -> None:
        """Makes the folder, or checks that it belongs to the same run.

        Raises
        ------
        NepitError
            EINPUT: the folder belongs to another model or other options (all that differ are
            named), or it holds something else.
        """
        self._fs.create_dir(f"{self._root}/{PARTS}", recursive=True)
        found = self.about()
        if found is not None:
            _refuse_another(self.folder, found, about)
            return
        if self._files():
            raise NepitError("EINPUT", f"parts are here, but no {ABOUT}", "checkpoint", self.folder)
        self._write(ABOUT, json.dumps(dict(about), indent=1, sort_keys=True).encode() + b"\n")

    def about(self) -> Optional[dict[str, object]]:
        """What the answers belong to; None where there is no checkpoint."""
        path = f"{self._root}/{ABOUT}"
        if self._fs.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        try:
            with self._fs.open_input_stream(path) as file:
                found = json.loads(file.read())
        except ValueError as error:
            raise NepitError("EFORMAT", f"not JSON: {error}", path) from error
        if not isinstance(found, dict):
            raise NepitError("EFORMAT", "an object is expected", path)
        return found

    def index(self) -> tuple[Index, Checkpoint]:
        """Reads the keys of all parts, and clears what a killed run left half written."""
        files = self._files()
        self._clear(files)
        names = [info.base_name[: -len(KEYS)] for info in files if info.path.endswith(KEYS)]
        with ThreadPoolExecutor(READERS) as pool:
            keys = list(pool.map(self._keys_or_none, names))
        parts = {name: found for name, found in zip(names, keys) if found is not None}
        index = index_of(parts)
        n_bytes = sum(info.size for info in files)
        n_rows = len(np.unique(index.keys))
        n_damaged = len(names) - len(parts)
        return index, Checkpoint(n_rows, len(parts), n_damaged, n_bytes, self.about() or {})

    def take(self, name: str, rows: Sequence[int]) -> Optional[pa.Table]:
        """Rows of a part; None where it is gone or damaged."""
        try:
            return self._read(name)[1].take(pa.array(rows, pa.int64()))
        except _Damaged:
            return None

    def of_batch(self, keys: Sequence[bytes]) -> tuple[str, dict[bytes, int]]:
        """The name of a batch's part, and the rows that it has where it was written already: by
        the process that ran this batch before it was killed.
        """
        name = digest(*keys).hex()
        try:
            found = self._read(name)[0]
        except _Damaged:
            return name, {}
        starts = range(0, len(found), KEY_BYTES)
        return name, {found[at : at + KEY_BYTES]: row for row, at in enumerate(starts)}

    def write(self, name: str, keys: Sequence[bytes], answers: pa.Table) -> None:
        """Writes a part: whole or not at all."""
        data = parquet(answers)
        self._write(f"{PARTS}/{name}{ANSWERS}", data)
        record = b"".join(keys) + digest(data)
        self._write(f"{PARTS}/{name}{KEYS}", record + digest(record))

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        part = f"{path}.{secrets.token_hex(4)}.part"
        with self._fs.open_output_stream(part) as file:
            file.write(data)
        self._fs.move(part, path)

    def _files(self) -> list[pafs.FileInfo]:
        found: list[pafs.FileInfo] = self._fs.get_file_info(
            pafs.FileSelector(f"{self._root}/{PARTS}", allow_not_found=True)
        )
        return found

    def _clear(self, files: Sequence[pafs.FileInfo]) -> None:
        for info in files:
            old = info.mtime is not None and time.time() - info.mtime.timestamp() > STALE_S
            if info.path.endswith(".part") and old:
                self._fs.delete_file(info.path)

    def _bytes_of(self, name: str) -> bytes:
        try:
            with self._fs.open_input_stream(f"{self._root}/{PARTS}/{name}") as file:
                data: bytes = file.read()
        except FileNotFoundError as error:
            raise _Damaged from error
        return data

    def _keys_of(self, name: str) -> tuple[bytes, bytes]:
        """The keys of a part, one behind the other, and the digest of its answers."""
        raw = self._bytes_of(name + KEYS)
        record, check = raw[:-KEY_BYTES], raw[-KEY_BYTES:]
        if len(record) % KEY_BYTES or not record or digest(record) != check:
            raise _Damaged
        return record[:-KEY_BYTES], record[-KEY_BYTES:]

    def _keys_or_none(self, name: str) -> Optional[bytes]:
        try:
            return self._keys_of(name)[0]
        except _Damaged:
            return None

    def _read_part(self, name: str) -> tuple[bytes, pa.Table]:
        keys, check = self._keys_of(name)
        data = self._bytes_of(name + ANSWERS)
        if digest(data) != check:
            raise _Damaged
        return keys, pq.read_table(pa.BufferReader(data))


def parquet(table: pa.Table) -> bytes:
    """The table as a file. Numbers are split by bytes, since no two log-probabilities are alike but
    their exponents are: 191 bytes for 64 of them, where the defaults of Parquet give 359.
    """
    numbers = []
    for field in table.schema:
        kind, path = field.type, field.name
        while pa.types.is_list(kind):
            kind, path = kind.value_type, path + ".list.element"
        if pa.types.is_floating(kind) or pa.types.is_integer(kind):
            numbers.append(path)
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="zstd", use_dictionary=False, use_byte_stream_split=numbers
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def absolute(folder: str) -> str:
    """The folder as any process of this machine can name it; addresses stay."""
    return folder if "://" in folder else str(Path(folder).absolute())


def _file_system(folder: str) -> tuple[pafs.FileSystem, str]:
    if "://" in folder:
        system, path = pafs.FileSystem.from_uri(folder)
        return system, path.rstrip("/")
    return pafs.LocalFileSystem(), folder


def _refuse_another(folder: str, found: Mapping[str, object], about: Mapping[str, object]) -> None:
    names = [name for name in (*found, *about) if found.get(name) != about.get(name)]
    if not names:
        return
    told = [f"{name} was {found.get(name)!r} and is {about.get(name)!r}" for name in names]
    raise NepitError(
        "EINPUT",
        "this folder belongs to another run; " + "; ".join(dict.fromkeys(told)),
        "checkpoint",
        folder,
    )


# ---- which model ---------------------------------------------------------------------------------

MODEL_FILES = (".safetensors", ".json", ".gguf", "merges.txt")
PIECE_BYTES = 1 << 24


def fingerprint(model: str) -> str:
    """A hash of every byte of a model's files and of their names: 32 hexadecimal digits."""
    path = Path(model)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if path.is_dir():
        files = [file for file in files if file.name.endswith(MODEL_FILES)]
    with ThreadPoolExecutor(READERS) as pool:
        pieces = [
            (file, at)
            for file in files
            for at in range(0, max(1, file.stat().st_size), PIECE_BYTES)
        ]
        hashes = list(pool.map(lambda piece: _piece(*piece), pieces))
    names = [file.name.encode() for file in files] if path.is_dir() else []
    return digest(*names, *hashes).hex()


def _piece(file: Path, at: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(at)
        return digest(opened.read(PIECE_BYTES))
