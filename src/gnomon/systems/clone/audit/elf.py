"""Sections of programs, libraries and objects: which bytes are code, which are data."""

from __future__ import annotations

import struct

import msgspec

X86_64, AARCH64 = 62, 183
_NO_BITS, _LOADED, _EXECUTABLE = 8, 2, 4
_HEADER_BYTES = 64


class Section(msgspec.Struct, frozen=True):
    """Where it begins in the file, and what is in it."""

    name: str
    at: int
    data: bytes
    is_code: bool
    is_loaded: bool


class Elf(msgspec.Struct, frozen=True):
    """A file of 64 bits, little-endian, for one kind of machine."""

    machine: int
    sections: tuple[Section, ...]

    @property
    def code(self) -> list[Section]:
        return [one for one in self.sections if one.is_code]

    @property
    def data(self) -> list[Section]:
        return [one for one in self.sections if not one.is_code]


def read_elf(content: bytes) -> Elf | None:
    """None: it is no such file, or has lost its table of sections."""
    if content[:6] != b"\x7fELF\x02\x01" or len(content) < _HEADER_BYTES:
        return None
    (machine,) = struct.unpack_from("<H", content, 18)
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    if not table or size < _HEADER_BYTES or names >= count or table + size * count > len(content):
        return None
    # name, type, flags, address, offset, size, and four that nobody asks for
    rows = [struct.unpack_from("<IIQQQQIIQQ", content, table + i * size) for i in range(count)]
    text = _bytes(content, rows[names])
    found = tuple(
        Section(_name(text, row[0]), row[4], _bytes(content, row), bool(row[2] & _EXECUTABLE),
                bool(row[2] & _LOADED))
        for row in rows
        if row[1] not in (0, _NO_BITS)
    )  # fmt: skip
    return Elf(machine, found)


def _bytes(content: bytes, row: tuple[int, ...]) -> bytes:
    return content[row[4] : row[4] + row[5]]


def _name(text: bytes, at: int) -> str:
    return text[at : text.find(b"\0", at)].decode(errors="replace")
