"""Where Spark event logs lie, and their lines: one file, a rolling folder, or many of both."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.spark.block_codecs import BLOCK_CODECS, DamagedBlock, UnreadCodec
from gnomon.ingest.text import load_zstandard, read_pieces

CUT_SHORT = "ends of files that were cut short"
_PIECE = 1 << 20
_PART = re.compile(r"events_(\d+)_.+")
_COMPACT = ".compact"
_IN_PROGRESS = ".inprogress"
#: Every event begins with its name.
_EVENT = re.compile(rb'\s*\{\s*"Event"\s*:\s*"')


def looks_like_spark_log(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins with an event of Spark, or a folder is a rolling log."""
    place = Path(path)
    if place.is_dir():
        return bool(_parts(place))
    try:
        head = next(_pieces(place), b"")
    except UnreadCodec:
        return True
    except (InputError, DamagedBlock):
        return False
    return _EVENT.match(head) is not None


def find_spark_logs(path: str | os.PathLike[str]) -> list[Path]:
    """The logs at a path: itself, or those in a folder and in folders inside, by name.

    Files that hold something else, hidden ones, and links to folders are passed over.
    """
    place = Path(path)
    try:
        is_there, is_log = place.exists(), place.is_file()
    except (OSError, RuntimeError) as error:  # a link to itself
        raise InputError(f"cannot be read: {error}", where=str(path)) from None
    if not is_there:
        raise InputError("does not exist", where=str(path), hint="check the path")
    if not place.is_dir() and not is_log:
        raise InputError("is neither a file nor a folder", where=str(path))
    if is_log or _parts(place):
        return [place]
    found = list(_logs_in(place))
    if not found:
        hint = "spark.eventLog.dir names the folder that Spark writes them to"
        raise InputError("holds no Spark event logs", where=str(path), hint=hint)
    return found


def _logs_in(folder: Path) -> Iterator[Path]:
    # Links to folders may lead round in a circle: they are not followed.
    for name, folders, files in os.walk(folder):
        here = Path(name)
        rolling = {inner for inner in folders if _parts(here / inner)}
        folders[:] = sorted(f for f in folders if f not in rolling and not f.startswith("."))
        for entry in sorted({*rolling, *files}):
            is_log = entry in rolling or (here / entry).is_file()  # a pipe would never end
            if not entry.startswith(".") and is_log and looks_like_spark_log(here / entry):
                yield here / entry


def is_in_progress(path: Path) -> bool:
    """Whether the application was still running, by the name."""
    if path.is_dir():
        return any(path.glob(f"appstatus_*{_IN_PROGRESS}"))
    return path.name.endswith(_IN_PROGRESS)


def log_lines(path: Path, counted: Counter[str]) -> Iterator[bytes]:
    """The lines of a log, one after the other; the last may lack its end.

    What is damaged at its end is read as far as it goes and counted: that is how the log of a
    running or killed application looks.
    """
    if not path.is_dir():
        yield from _file_lines(path, counted)
        return
    for part in _parts(path):
        try:
            yield from _file_lines(part, counted)
        except InputError:  # the last may have been begun and not written to
            counted[CUT_SHORT] += 1


def _parts(folder: Path) -> Sequence[Path]:
    """Files of a rolling log, in order; a compact one stands for itself and those before it."""
    numbered = sorted(
        (int(match[1]), not entry.name.endswith(_COMPACT), entry)
        for entry in folder.iterdir()
        if (match := _PART.fullmatch(entry.name)) is not None
    )
    compact = [number for number, is_plain, _ in numbered if not is_plain]
    since = max(compact, default=-1)
    return [
        entry
        for number, is_plain, entry in numbered
        if number > since or (number == since and not is_plain)
    ]


def _file_lines(path: Path, counted: Counter[str]) -> Iterator[bytes]:
    held: list[bytes] = []
    read = 0
    try:
        for piece in _pieces(path):
            read += len(piece)
            lines = piece.split(b"\n")
            if len(lines) > 1:
                held.append(lines[0])
                yield b"".join(held)
                yield from lines[1:-1]
                held.clear()
            held.append(lines[-1])
    except (InputError, DamagedBlock) as error:
        if not read:
            raise _cannot(error, path) from None
        counted[CUT_SHORT] += 1
    if last := b"".join(held):
        yield last


def _cannot(error: InputError | DamagedBlock, path: Path) -> InputError:
    if isinstance(error, InputError):
        return error
    hint = "was the file cut short?"
    return InputError(f"the compressed stream is damaged ({error})", where=str(path), hint=hint)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            head = file.read(8)
            file.seek(0)
            for magic, decode in BLOCK_CODECS.items():
                if head.startswith(magic):
                    yield from decode(file)
                    return
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InputError(what, where=str(path)) from None
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        yield from _unzstd(path)
    else:
        yield from read_pieces(path, _PIECE)


def _unzstd(path: Path) -> Iterator[bytes]:
    """Frame after frame; Spark flushes them open, so that the last need not have an end."""
    zstandard = load_zstandard()
    frames = zstandard.ZstdDecompressor()
    stream, is_open = frames.decompressobj(), False
    with open(path, "rb") as file:
        try:
            while raw := file.read(_PIECE // 8):
                while raw:
                    is_open = True
                    if piece := stream.decompress(raw):
                        yield piece
                    raw = b""
                    if stream.eof:
                        raw = stream.unused_data
                        stream, is_open = frames.decompressobj(), False
        except zstandard.ZstdError as error:
            raise DamagedBlock(str(error)) from None
    if is_open:
        raise DamagedBlock("the zstd stream ends early")
