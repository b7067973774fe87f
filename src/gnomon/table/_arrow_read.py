"""An Arrow IPC file to columns: views into the mapped file wherever the types allow it."""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.table import _arrow_schema as arrow
from gnomon.table._arrow_schema import Field
from gnomon.table._flatbuffer import FlatTable, Malformed
from gnomon.table.column import Column, Dictionary, ListOf, slice_column

_T = TypeVar("_T")
_CUT = "was the file cut short?"


class ArrowTable(msgspec.Struct, frozen=True, eq=False):
    """Columns of an Arrow file; arrays are read-only views of the mapped file.

    >>> import tempfile, pathlib
    >>> from gnomon.table import write_arrow, read_arrow
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "tasks.arrow"
    >>> write_arrow(path, {"dur_ns": np.array([3, 5]), "name": ["a", "b"]}, {"made": "by hand"})
    >>> table = read_arrow(path)
    >>> table.rows, table["dur_ns"].tolist(), table["name"], table.metadata
    (2, [3, 5], ['a', 'b'], {'made': 'by hand'})
    >>> folder.cleanup()
    """

    columns: dict[str, Column]
    metadata: dict[str, str]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]


def read_arrow(path: str | os.PathLike[str]) -> ArrowTable:
    """Opens an uncompressed Arrow IPC (Feather 2) file without copying its number columns."""
    where = os.fspath(path)
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise InputError("the file is empty", where=where, hint=_CUT)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        text = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {text}", where=where) from None
    try:
        return _read(data)
    except Malformed as error:
        raise InputError(error.what, where=where, hint=error.hint) from None


def _read(data: mmap.mmap) -> ArrowTable:
    end = len(data) - 10
    if data[:6] != arrow.MAGIC:
        raise Malformed("not an Arrow IPC file", "it does not begin with 'ARROW1'")
    if end < 8 or data[-6:] != arrow.MAGIC:
        raise Malformed("the Arrow file has no footer", _CUT)
    size = struct.unpack_from("<i", data, end)[0]
    if not 8 <= size <= end - 8:
        raise Malformed("the Arrow footer has an impossible size")
    footer = FlatTable.root(data[end - size : end])
    schema = footer.table(1)
    if footer.number(0, "h") not in (arrow.V4, arrow.V5) or schema is None:
        raise Malformed("the Arrow footer has no schema of a known version")
    fields, metadata = arrow.decode_schema(schema)
    file = _Body(data, end - size)
    dictionaries = _read_dictionaries(file, footer.structs(2, arrow.BLOCK), fields)
    batches = []
    rows = 0
    for block in footer.structs(3, arrow.BLOCK):
        header, start, length = file.message(block, arrow.RECORD_BATCH)
        cursor = _Cursor(file, header, start, length, dictionaries)
        batches.append([cursor.column(field, cursor.rows) for field in fields])
        rows += cursor.rows
    parts = zip(*batches) if batches else ([_empty(field, dictionaries)] for field in fields)
    columns = {field.name: _concat(list(part)) for field, part in zip(fields, parts)}
    return ArrowTable(columns, metadata, rows)


class _Body:
    """The file's messages, each held to lie before the footer."""

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self.data, self.end = data, end

    def message(self, block: tuple[int, ...], kind: int) -> tuple[FlatTable, int, int]:
        offset, meta, body = block
        if offset < 8 or meta < 16 or body < 0 or offset + meta + body > self.end:
            raise Malformed("a batch lies outside the file", _CUT)
        marker, size = struct.unpack_from("<II", self.data, offset)
        if marker != arrow.CONTINUATION or size > meta - 8:
            raise Malformed("a batch does not begin where the footer says")
        message = FlatTable.root(self.data[offset + 8 : offset + 8 + size])
        header = message.table(2)
        if message.number(1, "B") != kind or header is None:
            raise Malformed("a batch is of another kind than the footer says")
        if message.number(3, "q") > body:
            raise Malformed("a batch is longer than the footer says", _CUT)
        return header, offset + meta, body


def _walk(fields: Sequence[Field]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from _walk(field.children)


def _read_dictionaries(
    file: _Body, blocks: list[tuple[int, ...]], fields: Sequence[Field]
) -> dict[int, list[str]]:
    kinds = {f.dictionary: f.kind for f in _walk(fields) if f.dictionary is not None}
    values: dict[int, list[str]] = {}
    for block in blocks:
        header, start, length = file.message(block, arrow.DICTIONARY_BATCH)
        number, batch = header.number(0, "q"), header.table(1)
        if batch is None or number not in kinds:
            raise Malformed("a dictionary belongs to no column")
        cursor = _Cursor(file, batch, start, length, {})
        texts = cursor.column(Field("dictionary", kinds[number]), cursor.rows)
        assert isinstance(texts, list)
        if number in values and not header.number(2, "B"):
            raise Malformed("a dictionary is given twice")
        values[number] = values.get(number, []) + texts
    return values


class _Cursor:
    """Walks one batch's nodes and buffers in the order the schema gives."""

    def __init__(
        self, file: _Body, header: FlatTable, start: int, size: int, texts: Mapping[int, list[str]]
    ) -> None:
        if header.table(3) is not None:
            raise Malformed("the file is compressed", "write it again with compression=None")
        self.data, self.start, self.size, self.texts = file.data, start, size, texts
        self.rows = header.number(0, "q")
        self.nodes = iter(header.structs(1, arrow.NODE))
        self.buffers = iter(header.structs(2, arrow.BUFFER))
        if self.rows < 0:
            raise Malformed("a batch has a negative number of rows")

    def column(self, field: Field, rows: int | None = None) -> Column:
        """The next column; `rows` is how many it must have, None where its parent does not say."""
        count, nulls = self._node(field)
        if rows is not None and count != rows:
            raise Malformed(f"column {field.name!r} has {count} rows, {rows} were promised")
        missing = self._missing(field, count, nulls)
        if field.dictionary is not None:
            return self._dictionary(field, count)
        match field.kind:
            case "int":
                return self._array(field, field.dtype, count)
            case "float":
                values = self._array(field, field.dtype, count)
                return values if missing is None else _with_nan(values, missing)
            case "bool":
                packed = self._array(field, "u1", (count + 7) // 8)
                return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)
            case "utf8" | "large_utf8":
                return self._texts(field, count)
            case "list" | "large_list":
                return self._list(field, count)
            case _:
                raise Malformed(f"column {field.name!r} is a struct outside a list")

    def _node(self, field: Field) -> tuple[int, int]:
        node = next(self.nodes, None)
        if node is None or node[0] < 0:
            raise Malformed(f"column {field.name!r} is missing from a batch")
        return node[0], node[1]

    def _buffer(self, field: Field) -> tuple[int, int]:
        place = next(self.buffers, None)
        if place is None:
            raise Malformed(f"column {field.name!r} is missing from a batch")
        offset, size = place
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Malformed(f"column {field.name!r} lies outside its batch", _CUT)
        return self.start + offset, size

    def _array(self, field: Field, dtype: str, count: int) -> NDArray[Any]:
        start, size = self._buffer(field)
        number = np.dtype(dtype)
        if count * number.itemsize > size:
            raise Malformed(f"column {field.name!r} has fewer bytes than rows", _CUT)
        if not count:  # numpy refuses an empty view at the end of a buffer
            return np.empty(0, number)
        return np.frombuffer(self.data, number, count, start)

    def _missing(self, field: Field, count: int, nulls: int) -> NDArray[np.bool_] | None:
        """Which rows are null; only floats have a value (NaN) to say so."""
        start, size = self._buffer(field)
        if nulls == 0 or size == 0:
            return None
        if (count + 7) // 8 > size:
            raise Malformed(f"column {field.name!r} has a validity bitmap that is too short", _CUT)
        packed = np.frombuffer(self.data, np.uint8, (count + 7) // 8, start)
        missing = np.unpackbits(packed, count=count, bitorder="little") == 0
        absent = int(missing.sum())
        if absent and (field.kind != "float" or field.dictionary is not None):
            raise Malformed(
                f"column {field.name!r} has {absent} missing values",
                "fill them first; only float columns may have gaps",
            )
        return missing if absent else None

    def _dictionary(self, field: Field, count: int) -> Dictionary:
        codes = self._array(field, field.dtype, count)
        values = self.texts.get(-1 if field.dictionary is None else field.dictionary, [])
        if count and not (codes.min() >= 0 and codes.max() < len(values)):
            raise Malformed(f"column {field.name!r} has codes outside its {len(values)} values")
        return Dictionary(codes, values)

    def _offsets(self, field: Field, count: int) -> NDArray[np.int64]:
        wide = field.kind.startswith("large")
        start, size = self._buffer(field)
        if count == 0:  # writers may leave the single zero out
            return np.zeros(1, np.int64)
        number = np.dtype("<i8" if wide else "<i4")
        if (count + 1) * number.itemsize > size:
            raise Malformed(f"column {field.name!r} has fewer offsets than rows", _CUT)
        offsets = np.frombuffer(self.data, number, count + 1, start)
        if offsets[0] < 0 or bool(np.any(offsets[1:] < offsets[:-1])):
            raise Malformed(f"column {field.name!r} has offsets that fall")
        return offsets.astype(np.int64, copy=False)

    def _texts(self, field: Field, count: int) -> list[str]:
        offsets = self._offsets(field, count)
        start, size = self._buffer(field)
        last = int(offsets[-1])
        if last > size:
            raise Malformed(f"column {field.name!r} points outside its text", _CUT)
        raw = self.data[start : start + last]
        bounds = offsets.tolist()
        try:
            if raw.isascii():  # one decoding instead of one a row
                text = raw.decode("ascii")
                return [text[low:high] for low, high in itertools.pairwise(bounds)]
            return [raw[low:high].decode() for low, high in itertools.pairwise(bounds)]
        except UnicodeDecodeError:
            raise Malformed(f"column {field.name!r} holds text that is not UTF-8") from None

    def _list(self, field: Field, count: int) -> ListOf:
        offsets = self._offsets(field, count)
        child = self._child(field.children[0])
        first, last = int(offsets[0]), int(offsets[-1])
        parts = child if isinstance(child, Mapping) else {"": child}
        if any(len(part) < last for part in parts.values()):
            raise Malformed(f"column {field.name!r} points outside its elements", _CUT)
        if isinstance(child, Mapping):
            return ListOf(
                offsets - first if first else offsets,
                {name: slice_column(part, first, last) for name, part in child.items()},
            )
        return ListOf(offsets - first if first else offsets, slice_column(child, first, last))

    def _child(self, field: Field) -> Column | dict[str, Column]:
        if field.kind != "struct":
            return self.column(field)
        count, nulls = self._node(field)
        self._missing(field, count, nulls)
        return {child.name: self.column(child, count) for child in field.children}


def _with_nan(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    filled = values.copy()
    filled[missing] = np.nan
    filled.flags.writeable = False
    return filled


def _empty(field: Field, texts: Mapping[int, list[str]]) -> Column:
    if field.dictionary is not None:
        return Dictionary(np.empty(0, field.dtype), texts.get(field.dictionary, []))
    if field.kind in ("list", "large_list"):
        item = field.children[0]
        if item.kind == "struct":
            parts = {child.name: _empty(child, texts) for child in item.children}
            return ListOf(np.zeros(1, np.int64), parts)
        return ListOf(np.zeros(1, np.int64), _empty(item, texts))
    if field.kind in ("utf8", "large_utf8"):
        return []
    return np.empty(0, field.dtype or np.bool_)


def _concat(parts: list[Column]) -> Column:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Dictionary):
        return Dictionary(
            np.concatenate([p.codes for p in _same(parts, Dictionary)]), first.values
        )
    if isinstance(first, ListOf):
        lists = _same(parts, ListOf)
        ends = np.cumsum([0] + [int(part.offsets[-1]) for part in lists])
        offsets = [part.offsets[1:] + base for part, base in zip(lists, ends)]
        child: Column | dict[str, Column]
        if isinstance(first.child, Mapping):
            child = {
                name: _concat([part.child[name] for part in lists])  # type: ignore[call-overload,index]
                for name in first.child
            }
        else:
            child = _concat([part.child for part in lists])  # type: ignore[misc]
        return ListOf(np.concatenate([first.offsets[:1], *offsets]), child)
    if isinstance(first, np.ndarray):
        return np.concatenate(_same(parts, np.ndarray))
    return list(itertools.chain.from_iterable(_same(parts, list)))


def _same(parts: list[Any], kind: type[_T]) -> list[_T]:
    assert all(isinstance(part, kind) for part in parts)
    return parts
