"""One document out of a file, or out of an archive of several."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnomon.errors import InputError
from gnomon.ingest.text import read_pieces

if TYPE_CHECKING:
    import tarfile


class _Wanted(NamedTuple):
    what: str
    is_it: Callable[[bytes], bool]


def read_document(
    path: str | os.PathLike[str], member: str | None, what: str, is_it: Callable[[bytes], bool]
) -> tuple[bytes, str]:
    """The whole content of a file: plain, .gz, .zst, or one of those in a .tar.

    Args:
        member: Which one of an archive, by its name with or without the folders.
        is_it: Tells from its first bytes whether a file of an archive is such.

    Returns:
        The bytes, and where they are from.
    """
    path, member = _file_and_member(path, member)
    raw, source = b"".join(read_pieces(path)), str(path)
    if raw[257:262] == b"ustar":
        raw, name = _take(raw, member, _Wanted(what, is_it), source)
        return raw, f"{source}:{name}"
    if member is not None:
        raise InputError(f"is no archive, so has no {member!r} in it", where=source)
    return raw, source


def _file_and_member(
    path: str | os.PathLike[str], member: str | None
) -> tuple[str | os.PathLike[str], str | None]:
    text = os.fspath(path)
    if member is None and ":" in text and not Path(text).exists():
        for cut in re.finditer(":", text):
            if Path(text[: cut.start()]).is_file():
                return text[: cut.start()], text[cut.end() :]
    return path, member


def _take(raw: bytes, member: str | None, wanted: _Wanted, where: str) -> tuple[bytes, str]:
    import tarfile  # few need it, and it takes as long to load as a small trace to read

    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            files = {entry.name: entry for entry in archive if entry.isfile()}
            name = _choose(archive, files, member, wanted, where)
            content = archive.extractfile(files[name])
            return (content.read() if content else b""), name
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the archive is damaged ({error})", where=where, hint="was the file cut short?"
        ) from None


def _choose(
    archive: tarfile.TarFile,
    files: dict[str, tarfile.TarInfo],
    member: str | None,
    wanted: _Wanted,
    where: str,
) -> str:
    if member is not None:
        matches = [n for n in files if n == member] or [
            n for n in files if n.rpartition("/")[2] == member
        ]
        if len(matches) != 1:
            raise InputError(f"holds no {member!r}; {_holds(files)}", where=where)
        return matches[0]
    names = list(files)
    if len(names) > 1:
        names = [n for n, entry in files.items() if wanted.is_it(_head(archive, entry))]
    if not names:
        what = f"the archive holds no {wanted.what}"
        raise InputError(what, where=where, hint=_holds(files))
    if len(names) > 1:
        hint = f"name one as {os.path.basename(where)}:{min(names).rpartition('/')[2]}"
        raise InputError(f"{_holds(names)}, and only one can be read", where=where, hint=hint)
    return names[0]


def _head(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(entry)
    return content.read(4096) if content else b""


def _holds(names: Iterable[str], most: int = 8) -> str:
    listed = sorted(name.rpartition("/")[2] for name in names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"it holds {', '.join(listed[:most])}{more}" if listed else "it is empty"
