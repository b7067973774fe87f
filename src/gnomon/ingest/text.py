"""Opening what people have: plain, gzip and zstd files; a broken one gets one clear line."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from gnomon.errors import InputError, MissingExtra

__all__ = ["read_head", "read_whole"]

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """The decompressed content of a file.

    What counts is the content, not the name: people rename.
    """
    where = str(path)
    raw = _read_raw(path)
    if not raw:
        raise InputError("is empty", where=where)
    if raw[:2] == _GZIP:
        return _gunzip(raw, where)
    if raw[:4] == _ZSTD:
        return _unzstd(raw, where)
    return raw


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


def _zstd_head(file: BinaryIO, size: int) -> bytes:
    try:
        zstandard = _zstd()
    except MissingExtra:
        return b""
    try:
        head: bytes = zstandard.ZstdDecompressor().stream_reader(file).read(size)
    except zstandard.ZstdError:
        return b""
    return head


def _read_raw(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _cannot_read(error, str(path)) from None


def _cannot_read(error: OSError, where: str) -> InputError:
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = "check the path"
    elif isinstance(error, IsADirectoryError):
        hint = "give a file"
    return InputError(f"cannot be read: {error.strerror or error}", where=where, hint=hint)


def _gunzip(raw: bytes, where: str) -> bytes:
    from isal import igzip, isal_zlib

    try:
        content: bytes = igzip.decompress(raw)  # type: ignore[no-untyped-call]
        return content
    except (EOFError, isal_zlib.error, zlib.error, OSError) as error:  # type: ignore[misc]
        cut = isinstance(error, EOFError) or "incomplete" in str(error).lower()
        what = "the gzip stream ends early" if cut else f"the gzip stream is damaged ({error})"
        raise InputError(what, where=where, hint="was the file cut short?") from None


def _zstd() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "zstd", "reading .zst files") from None
    return zstandard


def _unzstd(raw: bytes, where: str) -> bytes:
    zstandard = _zstd()
    try:
        stream = zstandard.ZstdDecompressor().decompressobj()
        content: bytes = stream.decompress(raw)
    except zstandard.ZstdError as error:
        raise InputError(f"the zstd stream is damaged ({error})", where=where) from None
    if not stream.eof:
        raise InputError("the zstd stream ends early", where=where, hint="was the file cut short?")
    return content
