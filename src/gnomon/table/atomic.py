"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from gnomon.errors import InputError

_counter = itertools.count()


def sibling(path: Path) -> Path:
    """A hidden name beside `path` that nobody else in this process uses, for work in progress."""
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_counter)}.part")


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes its name only when the block ends well.

    A reader never sees half a file, and a failed write leaves what was there before.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with atomic_file(Path(folder.name) / "a.txt") as file:
    ...     _ = file.write(b"whole")
    >>> [p.name for p in Path(folder.name).iterdir()]
    ['a.txt']
    >>> folder.cleanup()
    """
    path = regular_target(path)
    part, file = _create_beside(path)
    try:
        with file:
            yield file
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(
            f"cannot be written: {error.strerror or error}", where=str(path)
        ) from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def regular_target(path: str | os.PathLike[str]) -> Path:
    """Where a file will really appear: links followed, anything but a writable file refused.

    Renaming onto a path replaces whatever is there, devices and pipes included.
    """
    if not os.fspath(path):
        raise InputError("a file to write needs a name")
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise InputError("is a folder, a file was to be written", where=str(path))
        if target.exists() and not target.is_file():
            raise InputError("is not a regular file and will not be replaced", where=str(path))
        if target.exists() and not os.access(target, os.W_OK):
            raise InputError("cannot be written: it is read-only", where=str(path))
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise InputError(what, where=str(path)) from None
    return target


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made with its parents where it is not there."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"cannot be made: {error.strerror or error}"
        raise InputError(what, where=str(folder)) from None
    return folder


def unused_path(path: Path, taken: Collection[Path]) -> Path:
    """The path, numbered where it is taken already.

    >>> unused_path(Path("a.csv"), [Path("a.csv"), Path("a-2.csv")]).name
    'a-3.csv'
    """
    numbered = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(2))
    return next(p for p in itertools.chain([path], numbered) if p not in taken)


def _create_beside(path: Path) -> tuple[Path, BinaryIO]:
    # Not tempfile: its files are readable by the owner alone, and results are shared.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)
    while True:
        part = sibling(path)
        try:
            return part, os.fdopen(os.open(part, flags, 0o666), "wb", buffering=1 << 20)
        except FileExistsError:
            continue
        except OSError as error:
            hint = "does the folder exist?" if isinstance(error, FileNotFoundError) else None
            what = f"cannot be written: {error.strerror or error}"
            raise InputError(what, where=str(path), hint=hint) from None
