"""Opening what people have: plain, gzip and zstd files; a broken one gets one clear line."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from gnomon.errors import InputError, MissingExtra

#: What decoding raises for JSON that is damaged, of another shape, no text, or nested too deep.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

#: Compressed bytes are read so many at a time.
_COMPRESSED = 1 << 18
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_PIECE = 1 << 20


def read_pieces(path: str | os.PathLike[str], size: int = _PIECE) -> Iterator[bytes]:
    """The decompressed content of a file, piece by piece.

    What counts is the content, not the name: people rename.
    """
    where = str(path)
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
            file.seek(0)
            if not magic:
                raise InputError("is empty", where=where)
            if magic[:2] == _GZIP:
                yield from _gunzip(file, where, size)
            elif magic == _ZSTD:
                yield from _unzstd(file, where, size)
            else:
                while piece := file.read(size):
                    yield piece
    except OSError as error:
        raise _cannot_read(error, where) from None


def read_whole(path: str | os.PathLike[str], most_bytes: int, hint: str) -> bytes:
    """All of a file, decompressed; a small .gz can hold any amount, so there is a bound."""
    pieces, size = list[bytes](), 0
    for piece in read_pieces(path):
        pieces.append(piece)
        size += len(piece)
        if size > most_bytes:
            what = f"more than {most_bytes >> 20:,} MiB of text"
            raise InputError(what, where=os.fspath(path), hint=hint)
    return b"".join(pieces)


def read_head(path: str | os.PathLike[str], size: int = 4096) -> bytes:
    """The first decompressed bytes, as far as they can be had: for telling formats apart."""
    try:
        with open(path, "rb") as file:
            raw = file.read(size)
            if raw[:4] == _ZSTD:
                file.seek(0)
                return _zstd_head(file, size)
    except OSError as error:
        raise _cannot_read(error, str(path)) from None
    if raw[:2] == _GZIP:
        try:
            return zlib.decompressobj(31).decompress(raw, size)
        except zlib.error:
            return b""
    return raw


def _cannot_read(error: OSError, where: str) -> InputError:
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = "check the path"
    elif isinstance(error, IsADirectoryError):
        hint = "give a file"
    return InputError(f"cannot be read: {error.strerror or error}", where=where, hint=hint)


def _gunzip(file: BinaryIO, where: str, size: int) -> Iterator[bytes]:
    """Decompressed pieces of at most `size` bytes; several gzip members follow one another."""
    from isal import isal_zlib  # not its igzip: that takes longer to load than a trace to read

    stream = isal_zlib.decompressobj(wbits=31)
    raw = file.read(_COMPRESSED)
    try:
        while raw:
            if piece := stream.decompress(raw, size):
                yield piece
            raw = stream.unconsumed_tail
            if stream.eof:
                # Padding between members is allowed; the next begins as a file would.
                raw = stream.unused_data.lstrip(b"\0") or file.read(_COMPRESSED).lstrip(b"\0")
                if not raw:
                    return
                stream = isal_zlib.decompressobj(wbits=31)
            raw = raw or file.read(_COMPRESSED)
    except (isal_zlib.error, zlib.error) as error:  # type: ignore[misc]
        what = f"the gzip stream is damaged ({error})"
        raise InputError(what, where=where, hint="was the file cut short?") from None
    raise InputError("the gzip stream ends early", where=where, hint="was the file cut short?")


def load_zstandard() -> Any:
    """The module, or the line that installs it."""
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "zstd", "reading .zst files") from None
    return zstandard


def _zstd_head(file: BinaryIO, size: int) -> bytes:
    try:
        zstandard = load_zstandard()
    except MissingExtra:
        return b""
    try:
        head: bytes = zstandard.ZstdDecompressor().stream_reader(file).read(size)
    except zstandard.ZstdError:
        return b""
    return head


def _unzstd(file: BinaryIO, where: str, size: int) -> Iterator[bytes]:
    zstandard = load_zstandard()
    stream = zstandard.ZstdDecompressor().decompressobj()
    try:
        while raw := file.read(size):
            yield stream.decompress(raw)
    except zstandard.ZstdError as error:
        raise InputError(f"the zstd stream is damaged ({error})", where=where) from None
    if not stream.eof:
        raise InputError("the zstd stream ends early", where=where, hint="was the file cut short?")
