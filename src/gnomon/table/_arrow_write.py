"""Columns to an Arrow IPC file, straight from their memory."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.table import _arrow_schema as arrow
from gnomon.table._arrow_schema import Field
from gnomon.table._flatbuffer import FlatNode, Scalar, Structs, write_root
from gnomon.table.atomic import atomic_file
from gnomon.table.column import Column, Dictionary, ListOf

# Rows handled at a time: what a conversion (bits, text, a strided view) may cost in memory.
_STEP = 1 << 20
_INT32_MAX = 2**31 - 1


class _Buffer(msgspec.Struct, frozen=True):
    size: int
    chunks: Callable[[], Iterable[Any]]


_NO_VALIDITY = _Buffer(0, lambda: ())


class _Batch:
    """What one message body holds, in the order the format walks the columns."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.nodes: list[tuple[int, int]] = []
        self.buffers: list[_Buffer] = []

    def add(self, rows: int, *buffers: _Buffer) -> None:
        self.nodes.append((rows, 0))
        self.buffers += [_NO_VALIDITY, *buffers]

    def layout(self) -> tuple[list[tuple[int, int]], int]:
        places, at = [], 0
        for buffer in self.buffers:
            places.append((at, buffer.size))
            at += buffer.size + -buffer.size % 64
        return places, at

    def header(self) -> FlatNode:
        places, _ = self.layout()
        return FlatNode(
            {
                0: Scalar("q", self.rows),
                1: Structs(arrow.NODE, self.nodes),
                2: Structs(arrow.BUFFER, places),
            }
        )


class _Plan:
    """Fields, dictionaries and the record batch of a table, before a byte is written."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.dictionaries: list[_Batch] = []
        rows = {name: len(column) for name, column in columns.items()}
        self.batch = _Batch(next(iter(rows.values()), 0))
        for name, count in rows.items():
            if count != self.batch.rows:
                first = next(iter(rows))
                raise InputError(
                    f"column {name!r} has {count} rows, column {first!r} has {self.batch.rows}"
                )
        self.fields = [self._add(name, column) for name, column in columns.items()]

    def _add(self, name: str, column: Column) -> Field:
        if isinstance(column, Dictionary):
            return self._add_dictionary(name, column)
        if isinstance(column, ListOf):
            return self._add_list(name, column)
        if isinstance(column, np.ndarray) and column.dtype.kind != "U":
            return self._add_array(name, column)
        if isinstance(column, str):
            raise InputError(f"column {name!r} is one string, a list of strings was expected")
        texts: Sequence[str] = column.tolist() if isinstance(column, np.ndarray) else column
        return Field(name, _add_text(self.batch, name, texts))

    def _add_array(self, name: str, array: NDArray[Any]) -> Field:
        if array.ndim != 1:
            raise InputError(f"column {name!r} has {array.ndim} dimensions, a column has one")
        if array.dtype.kind == "b":
            self.batch.add(len(array), _bits(array))
            return Field(name, "bool")
        if array.dtype.kind in "iu" or array.dtype in (np.float32, np.float64):
            self.batch.add(len(array), _numbers(array))
            kind = "float" if array.dtype.kind == "f" else "int"
            return Field(name, kind, array.dtype.newbyteorder("<").str)
        raise InputError(
            f"column {name!r} is of type {array.dtype}, which has no place in a table",
            hint="use integers, float32, float64, booleans or strings",
        )

    def _add_dictionary(self, name: str, column: Dictionary) -> Field:
        codes = column.codes
        if len(codes) and not (codes.min() >= 0 and codes.max() < len(column.values)):
            raise InputError(f"column {name!r} has codes outside its {len(column.values)} values")
        batch = _Batch(len(column.values))
        kind = _add_text(batch, name, column.values)
        self.dictionaries.append(batch)
        self.batch.add(len(codes), _numbers(codes))
        dtype = codes.dtype.newbyteorder("<").str
        return Field(name, kind, dtype, dictionary=len(self.dictionaries) - 1)

    def _add_list(self, name: str, column: ListOf) -> Field:
        self.batch.add(len(column), _numbers(column.offsets))
        if not isinstance(column.child, Mapping):
            return Field(name, "large_list", children=(self._add("item", column.child),))
        self.batch.add(int(column.offsets[-1]))
        parts = tuple(self._add(key, part) for key, part in column.child.items())
        return Field(name, "large_list", children=(Field("item", "struct", children=parts),))


def _numbers(array: NDArray[Any]) -> _Buffer:
    little = array.dtype.newbyteorder("<")

    def chunks() -> Iterator[Any]:
        # A view of contiguous memory passes as it is; a strided one is copied a step at a time.
        for low in range(0, len(array), _STEP):
            yield np.ascontiguousarray(array[low : low + _STEP], little).data

    return _Buffer(array.size * array.itemsize, chunks)


def _bits(array: NDArray[Any]) -> _Buffer:
    def chunks() -> Iterator[Any]:
        for low in range(0, len(array), _STEP):
            yield np.packbits(array[low : low + _STEP], bitorder="little").data

    return _Buffer((len(array) + 7) // 8, chunks)


def _add_text(batch: _Batch, name: str, texts: Sequence[str]) -> str:
    """Adds offsets and characters; wide offsets only where 2 GiB of text ask for them."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    offsets[1:] = [_encoded_size(name, row, text) for row, text in enumerate(texts)]
    np.cumsum(offsets, out=offsets)
    size = int(offsets[-1])

    def chunks() -> Iterator[Any]:
        for low in range(0, len(texts), _STEP):
            yield "".join(texts[low : low + _STEP]).encode()

    wide = size > _INT32_MAX
    places = _numbers(offsets if wide else offsets.astype(np.int32))
    batch.add(len(texts), places, _Buffer(size, chunks))
    return "large_utf8" if wide else "utf8"


def _encoded_size(name: str, row: int, text: object) -> int:
    if not isinstance(text, str):
        raise InputError(f"column {name!r}, row {row}: {text!r} is not text")
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InputError(
            f"column {name!r}, row {row}: half a surrogate pair cannot be stored as UTF-8",
            hint="decode the source with errors='replace'",
        ) from None


class _Stream:
    """The file under way: messages out, their places kept for the footer."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.at = file, 0

    def put(self, data: Any, size: int) -> None:
        self.file.write(data)
        self.at += size

    def pad(self, to: int) -> None:
        gap = -self.at % to
        self.put(bytes(gap), gap)

    def message(self, kind: int, header: FlatNode, batch: _Batch | None = None) -> tuple[int, ...]:
        body = batch.layout()[1] if batch else 0
        meta = write_root(
            FlatNode(
                {
                    0: Scalar("h", arrow.V5),
                    1: Scalar("B", kind),
                    2: header,
                    3: Scalar("q", body),
                }
            )
        )
        start = self.at
        # Padding the header brings the body, and with it each buffer, to a multiple of 64.
        meta += bytes(-(start + 8 + len(meta)) % 64)
        prefix = struct.pack("<II", arrow.CONTINUATION, len(meta))
        self.put(prefix + meta, 8 + len(meta))
        for buffer in batch.buffers if batch else ():
            before = self.at
            for chunk in buffer.chunks():
                self.put(chunk, memoryview(chunk).nbytes)
            assert self.at - before == buffer.size, "a column changed while it was written"
            self.pad(64)
        return start, 8 + len(meta), body


def write_arrow(
    path: str | os.PathLike[str],
    columns: Mapping[str, Column],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes columns as an Arrow IPC file that pyarrow, polars and duckdb open as it is.

    The file appears whole or not at all. Number columns go out straight from their memory; the
    rest is converted a million rows at a time, so no second copy of the table is ever made.

    Args:
        columns: Name to numpy array, strings, `Dictionary` or `ListOf`, all of one length.
    """
    try:
        plan = _Plan(columns)
    except InputError as error:
        raise InputError(error.what, where=os.fspath(path), hint=error.hint) from None
    schema = arrow.encode_schema(plan.fields, metadata or {})
    with atomic_file(path) as file:
        stream = _Stream(file)
        stream.put(arrow.MAGIC + bytes(2), 8)
        stream.message(arrow.SCHEMA, schema)
        dictionaries = [
            stream.message(
                arrow.DICTIONARY_BATCH,
                FlatNode({0: Scalar("q", number), 1: batch.header()}),
                batch,
            )
            for number, batch in enumerate(plan.dictionaries)
        ]
        records = [stream.message(arrow.RECORD_BATCH, plan.batch.header(), plan.batch)]
        stream.put(struct.pack("<II", arrow.CONTINUATION, 0), 8)
        footer = write_root(
            FlatNode(
                {
                    0: Scalar("h", arrow.V5),
                    1: schema,
                    2: Structs(arrow.BLOCK, dictionaries),
                    3: Structs(arrow.BLOCK, records),
                }
            )
        )
        stream.put(footer, len(footer))
        stream.put(struct.pack("<I", len(footer)) + arrow.MAGIC, 10)
