"""The little of FlatBuffers that Arrow's headers need: trees of tables, out and safely back.

Written forwards: a table first, then what it points to, so every reference is positive as the
format asks. The reader trusts nothing: each access is checked against the buffer, because a header
is the first thing a damaged file gets wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec


class Malformed(ValueError):
    """Bytes that break the format's promise; an InputError where the path is known."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        self.what, self.hint = what, hint
        super().__init__(what)


class Scalar(msgspec.Struct, frozen=True):
    """A number in a table; `fmt` is its struct code without byte order."""

    fmt: str
    value: int


class Structs(msgspec.Struct, frozen=True):
    """A vector of 8-byte aligned fixed-size records; `fmt` is one record's struct code."""

    fmt: str
    rows: Sequence[tuple[int, ...]]


class FlatNode(msgspec.Struct, frozen=True):
    """A table to be written: field number to value."""

    fields: Mapping[int, Value]


Value: TypeAlias = "Scalar | Structs | FlatNode | str | Sequence[FlatNode]"


def write_root(root: FlatNode) -> bytes:
    """The finished buffer, padded to 8 bytes.

    >>> data = write_root(FlatNode({0: Scalar("q", 7), 2: "hello"}))
    >>> table = FlatTable.root(data)
    >>> table.number(0, "q"), table.text(2), table.number(1, "h", default=-1)
    (7, 'hello', -1)
    """
    out = bytearray(4)
    at = _write_node(out, root)
    struct.pack_into("<I", out, 0, at)
    _pad(out, 8)
    return bytes(out)


def _pad(out: bytearray, to: int, ahead: int = 0) -> None:
    out.extend(bytes(-(len(out) + ahead) % to))


def _write_node(out: bytearray, node: FlatNode) -> int:
    sizes = {
        key: struct.calcsize("<" + value.fmt) if isinstance(value, Scalar) else 4
        for key, value in node.fields.items()
    }
    # Widest first, each aligned to its own width: the table itself starts on a multiple of 8.
    places: dict[int, int] = {}
    end = 4
    for key in sorted(sizes, key=lambda k: (-sizes[k], k)):
        end += -end % sizes[key]
        places[key] = end
        end += sizes[key]
    slots = max(node.fields, default=-1) + 1
    _pad(out, 2)
    vtable = len(out)
    out += struct.pack("<HH", 4 + 2 * slots, end)
    out += struct.pack(f"<{slots}H", *(places.get(key, 0) for key in range(slots)))
    _pad(out, 8)
    table = len(out)
    out += struct.pack("<i", table - vtable)
    out.extend(bytes(end - 4))
    for key, value in node.fields.items():
        at = table + places[key]
        if isinstance(value, Scalar):
            struct.pack_into("<" + value.fmt, out, at, value.value)
        else:
            struct.pack_into("<I", out, at, _write_reference(out, value) - at)
    return table


def _write_reference(out: bytearray, value: Structs | FlatNode | str | Sequence[FlatNode]) -> int:
    if isinstance(value, FlatNode):
        return _write_node(out, value)
    if isinstance(value, str):
        raw = value.encode()
        _pad(out, 4)
        at = len(out)
        out += struct.pack("<I", len(raw)) + raw + b"\0"
        return at
    if isinstance(value, Structs):
        _pad(out, 8, ahead=4)  # the records are aligned, not the length before them
        at = len(out)
        out += struct.pack("<I", len(value.rows))
        for row in value.rows:
            out += struct.pack("<" + value.fmt, *row)
        return at
    _pad(out, 4)
    at = len(out)
    out += struct.pack("<I", len(value))
    slots = len(out)
    out.extend(bytes(4 * len(value)))
    for i, node in enumerate(value):
        struct.pack_into("<I", out, slots + 4 * i, _write_node(out, node) - (slots + 4 * i))
    return at


class FlatTable:
    """A table inside a buffer; every read is checked against the buffer's end."""

    __slots__ = ("_data", "_places", "_pos")

    def __init__(self, data: bytes, pos: int) -> None:
        self._data, self._pos = data, pos
        vtable = pos - self._unpack("i", pos)
        size = self._unpack("H", vtable)
        if size < 4 or size % 2 or vtable + size > len(data):
            raise Malformed("a header table is damaged")
        self._places = struct.unpack_from(f"<{(size - 4) // 2}H", data, vtable + 4)

    @classmethod
    def root(cls, data: bytes) -> FlatTable:
        if len(data) < 8:
            raise Malformed("a header is too short")
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _unpack(self, fmt: str, pos: int) -> Any:
        if pos < 0 or pos + struct.calcsize("<" + fmt) > len(self._data):
            raise Malformed("a header points outside itself")
        return struct.unpack_from("<" + fmt, self._data, pos)[0]

    def _place(self, field: int) -> int:
        place = self._places[field] if field < len(self._places) else 0
        return self._pos + place if place else 0

    def _target(self, field: int) -> int:
        at = self._place(field)
        return at + self._unpack("I", at) if at else 0

    def number(self, field: int, fmt: str, default: int = 0) -> int:
        at = self._place(field)
        return int(self._unpack(fmt, at)) if at else default

    def table(self, field: int) -> FlatTable | None:
        at = self._target(field)
        return FlatTable(self._data, at) if at else None

    def text(self, field: int) -> str:
        at = self._target(field)
        if not at:
            return ""
        size = self._vector(at, 1)
        try:
            return str(self._data[at + 4 : at + 4 + size], "utf-8")
        except UnicodeDecodeError:
            raise Malformed("a name in the header is not UTF-8") from None

    def tables(self, field: int) -> list[FlatTable]:
        at = self._target(field)
        if not at:
            return []
        slots = [at + 4 + 4 * i for i in range(self._vector(at, 4))]
        return [FlatTable(self._data, slot + self._unpack("I", slot)) for slot in slots]

    def structs(self, field: int, fmt: str) -> list[tuple[int, ...]]:
        at = self._target(field)
        if not at:
            return []
        size = struct.calcsize("<" + fmt)
        count = self._vector(at, size)
        return list(struct.iter_unpack("<" + fmt, self._data[at + 4 : at + 4 + count * size]))

    def _vector(self, at: int, item_bytes: int) -> int:
        count = int(self._unpack("I", at))
        if at + 4 + count * item_bytes > len(self._data):
            raise Malformed("a header lists more entries than it holds")
        return count
