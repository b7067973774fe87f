"""Tensors out of a TensorFlow checkpoint, without TensorFlow.

A checkpoint is two files. `<prefix>.index` is a sorted table in LevelDB's format: keys are names
of variables, values are `BundleEntryProto` messages that say which bytes of which data file hold
the variable. `<prefix>.data-00000-of-00001` is those bytes. Only what Decima's published
checkpoints use is read: tables without compression, one data file, float32 variables.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.model.decima.network import NETS, DecimaWeights

__all__ = ["decima_from_checkpoint", "read_tf_checkpoint"]

_FOOTER_BYTES = 48
_MAGIC = 0xDB4775248B80FB57
_TRAILER_BYTES = 5  # of each block: how it is compressed (1 byte) and a checksum (4)
_FLOAT32 = 1  # of TensorFlow's DataType
_MOST_BYTES = 1_000_000_000


class _Entry(msgspec.Struct, frozen=True):
    """What a `BundleEntryProto` says of a variable."""

    shape: tuple[int, ...]
    dtype: int
    shard: int
    offset: int
    size: int


def read_tf_checkpoint(prefix: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.float32]]:
    """The float32 variables of a checkpoint by name.

    Args:
        prefix: Path of the checkpoint as TensorFlow names it: without `.index`.
    """
    prefix = str(prefix).removesuffix(".index")
    index = _read(Path(f"{prefix}.index"))
    data = np.frombuffer(_read(Path(f"{prefix}.data-00000-of-00001")), dtype=np.uint8)
    where = f"{prefix}.index"
    try:
        entries = {
            key.decode(): _parse_entry(value) for key, value in _table_rows(index, where) if key
        }
    except (IndexError, struct.error, UnicodeDecodeError):
        raise InputError("the table breaks off", where=where, hint="was it cut short?") from None
    return {
        name: _tensor(name, entry, data, where)
        for name, entry in entries.items()
        if entry.dtype == _FLOAT32
    }


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(
                "more than a gigabyte: no checkpoint of a small model", where=str(path)
            )
        return path.read_bytes()
    except OSError as error:
        hint = "a checkpoint is a .index and a .data-00000-of-00001 file"
        raise InputError(str(error.strerror), where=str(path), hint=hint) from None


def _tensor(
    name: str, entry: _Entry, data: npt.NDArray[np.uint8], where: str
) -> npt.NDArray[np.float32]:
    count = 1
    for length in entry.shape:
        count *= length
    end = entry.offset + entry.size
    if entry.shard != 0 or entry.size != 4 * count or not 0 <= entry.offset <= end <= len(data):
        raise InputError(f"variable {name!r} is not where the table says", where=where)
    values = np.frombuffer(data[entry.offset : end].tobytes(), dtype="<f4")
    return values.astype(np.float32).reshape(entry.shape)


def _table_rows(table: bytes, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table: its last block is the index of the others."""
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise InputError("not the index of a checkpoint", where=where)
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    for _, handle in _block_rows(_block(table, offset, size, where)):
        offset, size, _ = _handle(handle, 0)
        yield from _block_rows(_block(table, offset, size, where))


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _block(table: bytes, offset: int, size: int, where: str) -> bytes:
    if offset + size + _TRAILER_BYTES > len(table):
        raise InputError("the table breaks off", where=where, hint="was it cut short?")
    if table[offset + size] != 0:
        raise InputError("the table is compressed, which is not read", where=where)
    return table[offset : offset + size]


def _block_rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Rows share the start of their key with the row before; restart points end the block."""
    restarts = struct.unpack("<I", block[-4:])[0]
    end = len(block) - 4 - 4 * restarts
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Fields of a protocol-buffer message: number, value if it is one, bytes if it has some."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value, b""
        elif wire == 2:
            size, at = _varint(message, at)
            yield number, 0, message[at : at + size]
            at += size
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise IndexError(at)


def _parse_entry(message: bytes) -> _Entry:
    """dtype = 1, shape = 2 { dim = 2 { size = 1 } }, shard = 3, offset = 4, size = 5."""
    fields = list(_fields(message))
    number = {field: value for field, value, _ in fields}
    shape = next((body for field, _, body in fields if field == 2), b"")
    dims = [body for field, _, body in _fields(shape) if field == 2]
    sizes = (sum(size for field, size, _ in _fields(dim) if field == 1) for dim in dims)
    return _Entry(
        shape=tuple(sizes),
        dtype=number.get(1, 0),
        shard=number.get(3, 0),
        offset=number.get(4, 0),
        size=number.get(5, 0),
    )


def decima_from_checkpoint(prefix: str | os.PathLike[str]) -> DecimaWeights:
    """Weights from a TensorFlow checkpoint of the authors' program.

    Args:
        prefix: Path of the checkpoint without `.index`.
    """
    tensors = read_tf_checkpoint(prefix)
    scopes = ["actor_agent", *(f"actor_agent_{i}" for i in range(1, 30))]
    names = [f"{scope}/Variable" for scope in scopes]
    for i in range(8):
        layer = "actor_agent/fully_connected" + (f"_{i}" if i else "")
        names += [f"{layer}/weights", f"{layer}/biases"]
    shapes = [
        shape for sizes in NETS.values() for pair in pairwise(sizes) for shape in (pair, pair[1:])
    ]
    for name, shape in zip(names, shapes, strict=True):
        found = tensors[name].shape if name in tensors else "none"
        if found != shape:
            what = f"{name} should be a variable of shape {shape}, and is {found}"
            raise InputError(what, where=os.fspath(prefix), hint="is it Decima's?")
    flat = np.concatenate([tensors[name].ravel() for name in names])
    return DecimaWeights(flat, f"checkpoint {Path(prefix).name} of the authors")
