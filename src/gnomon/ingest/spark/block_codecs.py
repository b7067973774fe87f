"""Streams of compressed blocks as Java writes them: LZ4 and Snappy.

Spark compresses its event logs with one of these where it does not use zstd. The blocks are
decoded by cramjam; LZF, which Spark can write too and nobody uses, is named and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from gnomon.errors import InputError, MissingExtra

_LZ4_MAGIC = b"LZ4Block"
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_LZF_MAGICS = (b"ZV\0", b"ZV\1")
_MOST_BLOCK = 1 << 26


class DamagedBlock(ValueError):
    """A block that says something impossible, or ends early."""


class UnreadCodec(InputError):
    """A stream that is clearly Spark's, of a codec that is not read."""


def _exactly(file: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= _MOST_BLOCK:
        raise DamagedBlock(f"a block of {size:,} bytes")
    raw = file.read(size)
    if len(raw) < size:
        raise DamagedBlock("ends early")
    return raw


def _cramjam() -> Any:
    try:
        import cramjam
    except ImportError:
        raise MissingExtra(
            "cramjam", "codecs", "reading Spark logs compressed with lz4 or snappy"
        ) from None
    return cramjam


def _unpacked(decode: Callable[..., Any], block: bytes, size: int, **options: int) -> bytes:
    if size > _MOST_BLOCK:
        raise DamagedBlock(f"a block of {size:,} bytes")
    try:
        content = bytes(decode(block, **options))
    except _cramjam().DecompressionError as error:
        raise DamagedBlock(str(error)) from None
    if len(content) != size:
        raise DamagedBlock(f"a block of {len(content):,} bytes that should have {size:,}")
    return content


def _lz4_stream(file: BinaryIO) -> Iterator[bytes]:
    """LZ4BlockOutputStream: magic, method, two sizes, a checksum, the block; size 0 ends one."""
    decode = _cramjam().lz4.decompress_block
    while magic := file.read(len(_LZ4_MAGIC)):
        if magic != _LZ4_MAGIC:
            raise DamagedBlock("no LZ4 block where one should begin")
        header = _exactly(file, 13)
        method = header[0] & 0xF0
        packed, size = (int.from_bytes(header[at : at + 4], "little") for at in (1, 5))
        block = _exactly(file, packed)
        if method == _LZ4_PACKED:
            block = _unpacked(decode, block, size, output_len=size)
        elif method != _LZ4_RAW or packed != size:
            raise DamagedBlock(f"an LZ4 block of method {method:#x}")
        if block:
            yield block


def _snappy_stream(file: BinaryIO) -> Iterator[bytes]:
    """SnappyOutputStream of snappy-java: a header, then sizes and blocks; headers may repeat."""
    snappy = _cramjam().snappy
    while head := file.read(4):
        if len(head) < 4:
            raise DamagedBlock("ends early")
        if head == _SNAPPY_MAGIC[:4]:
            _exactly(file, len(_SNAPPY_MAGIC) - 4 + 8)  # the rest of it, and two versions
            continue
        block = _exactly(file, int.from_bytes(head, "big"))
        try:
            size = int(snappy.decompress_raw_len(block))
        except _cramjam().DecompressionError as error:
            raise DamagedBlock(str(error)) from None
        yield _unpacked(snappy.decompress_raw, block, size)


def _lzf_stream(file: BinaryIO) -> Iterator[bytes]:
    hint = "set spark.eventLog.compression.codec to zstd, lz4 or snappy"
    raise UnreadCodec("is compressed with LZF, which is not read", where=file.name, hint=hint)


#: How a stream begins, and what reads it.
BLOCK_CODECS: dict[bytes, Callable[[BinaryIO], Iterator[bytes]]] = {
    _LZ4_MAGIC: _lz4_stream,
    _SNAPPY_MAGIC: _snappy_stream,
    **dict.fromkeys(_LZF_MAGICS, _lzf_stream),
}
