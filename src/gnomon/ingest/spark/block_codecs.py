"""Streams of compressed blocks as Java writes them: LZ4, Snappy and LZF.

Spark compresses its event logs with one of these where it does not use zstd. They are decoded
here in plain Python, at some 10 MB a second: slow beside the real libraries, but for the log of an
old Spark nothing has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

__all__ = ["BLOCK_CODECS", "DamagedBlock"]

_LZ4_MAGIC = b"LZ4Block"
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_LZF_MAGIC = b"ZV"
_MOST_BLOCK = 1 << 26


class DamagedBlock(ValueError):
    """A block that says something impossible."""


class CutShort(DamagedBlock):
    """The stream ends inside a block."""


def _exactly(file: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= _MOST_BLOCK:
        raise DamagedBlock(f"a block of {size:,} bytes")
    raw = file.read(size)
    if len(raw) < size:
        raise CutShort("ends early")
    return raw


# -- framing ---------------------------------------------------------------------------------


def _lz4_stream(file: BinaryIO) -> Iterator[bytes]:
    """LZ4BlockOutputStream: magic, method, two sizes, a checksum, the block; size 0 ends one."""
    while magic := file.read(len(_LZ4_MAGIC)):
        if len(magic) < len(_LZ4_MAGIC):
            raise CutShort("ends early")
        if magic != _LZ4_MAGIC:
            raise DamagedBlock("no LZ4 block where one should begin")
        header = _exactly(file, 13)
        method = header[0] & 0xF0
        packed, size = (int.from_bytes(header[at : at + 4], "little") for at in (1, 5))
        block = _exactly(file, packed)
        if method == _LZ4_PACKED:
            block = _lz4_block(block, size)
        elif method != _LZ4_RAW or packed != size:
            raise DamagedBlock(f"an LZ4 block of method {method:#x}")
        if block:
            yield block


def _snappy_stream(file: BinaryIO) -> Iterator[bytes]:
    """SnappyOutputStream of snappy-java: a header, then sizes and blocks; headers may repeat."""
    while head := file.read(4):
        if len(head) < 4:
            raise CutShort("ends early")
        if head == _SNAPPY_MAGIC[:4]:
            _exactly(file, len(_SNAPPY_MAGIC) - 4 + 8)  # the rest of it, and two versions
            continue
        yield _snappy_block(_exactly(file, int.from_bytes(head, "big")))


def _lzf_stream(file: BinaryIO) -> Iterator[bytes]:
    """LZFOutputStream: ZV, packed or not, one or two sizes, the block."""
    while head := file.read(5):
        if len(head) < 5:
            raise CutShort("ends early")
        if head[:2] != _LZF_MAGIC or head[2] > 1:
            raise DamagedBlock("no LZF block where one should begin")
        size = int.from_bytes(head[3:5], "big")
        if head[2] == 0:
            yield _exactly(file, size)
        else:
            full = int.from_bytes(_exactly(file, 2), "big")
            yield _lzf_block(_exactly(file, size), full)


#: How a stream begins, and what reads it.
BLOCK_CODECS: dict[bytes, Callable[[BinaryIO], Iterator[bytes]]] = {
    _LZ4_MAGIC: _lz4_stream,
    _SNAPPY_MAGIC: _snappy_stream,
    _LZF_MAGIC: _lzf_stream,
}


# -- blocks ----------------------------------------------------------------------------------


def _repeat(out: bytearray, distance: int, length: int) -> None:
    """Appends what was written `distance` bytes ago; it may reach into itself."""
    begin = len(out) - distance
    if distance <= 0 or begin < 0:
        raise DamagedBlock("a copy from before the block")
    if distance >= length:
        out += out[begin : begin + length]
    else:
        out += (bytes(out[begin:]) * (length // distance + 1))[:length]


def _sized(out: bytearray, size: int) -> bytes:
    if len(out) != size:
        raise DamagedBlock(f"a block of {len(out):,} bytes that should have {size:,}")
    return bytes(out)


def _lz4_block(block: bytes, size: int) -> bytes:
    if size > _MOST_BLOCK:
        raise DamagedBlock(f"a block of {size:,} bytes")
    out = bytearray()
    at = 0
    try:
        while at < len(block):
            token = block[at]
            at += 1
            literal = token >> 4
            if literal == 15:
                literal, at = _lz4_length(block, at, literal)
            out += block[at : at + literal]
            at += literal
            if at >= len(block):
                break
            distance = block[at] | block[at + 1] << 8
            at += 2
            length = token & 15
            if length == 15:
                length, at = _lz4_length(block, at, length)
            _repeat(out, distance, length + 4)
            if len(out) > size:
                break
    except IndexError:
        raise DamagedBlock("an LZ4 block ends early") from None
    return _sized(out, size)


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    more = 255
    while more == 255:
        more = block[at]
        at += 1
        length += more
    return length, at


def _snappy_block(block: bytes) -> bytes:
    out = bytearray()
    try:
        size, at = _varint(block)
        while at < len(block) and len(out) <= size:
            tag = block[at]
            at += 1
            kind, rest = tag & 3, tag >> 2
            if kind == 0:
                if rest >= 60:
                    many = rest - 59
                    rest = int.from_bytes(block[at : at + many], "little")
                    at += many
                out += block[at : at + rest + 1]
                at += rest + 1
            elif kind == 1:
                _repeat(out, (tag >> 5) << 8 | block[at], (rest & 7) + 4)
                at += 1
            else:
                many = 2 if kind == 2 else 4
                _repeat(out, int.from_bytes(block[at : at + many], "little"), rest + 1)
                at += many
    except IndexError:
        raise DamagedBlock("a Snappy block ends early") from None
    return _sized(out, size)


def _varint(block: bytes) -> tuple[int, int]:
    value = shift = at = 0
    while True:
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 28:
            raise DamagedBlock("a Snappy block of impossible size")
    if value > _MOST_BLOCK:
        raise DamagedBlock(f"a block of {value:,} bytes")
    return value, at


def _lzf_block(block: bytes, size: int) -> bytes:
    out = bytearray()
    at = 0
    try:
        while at < len(block) and len(out) <= size:
            control = block[at]
            at += 1
            if control < 32:
                out += block[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += block[at]
                at += 1
            _repeat(out, ((control & 31) << 8 | block[at]) + 1, length + 2)
            at += 1
    except IndexError:
        raise DamagedBlock("an LZF block ends early") from None
    return _sized(out, size)
