"""A columnar copy of what was read, so that the second read is near-instant.

Copies live in `$GNOMON_CACHE`, or `$XDG_CACHE_HOME/gnomon`, or `~/.cache/gnomon`;
`GNOMON_CACHE=off` does without. A copy is found by the file's real path, inode, size and times of
change, so a file that changed is read again. The oldest copies go when all of them pass 4 GiB.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gnomon.errors import InputError
from gnomon.table import ArrowTable, Column, read_arrow, write_arrow

_MOST_BYTES = 4 << 30
#: Below this reading the file itself is as quick.
_SMALLEST_BYTES = 256 << 10
_STALE_S = 3600


def cache_folder() -> Path | None:
    """Where copies are kept; None when the user wants none."""
    chosen = os.environ.get("GNOMON_CACHE", "")
    if chosen.lower() in ("off", "0", "no"):
        return None
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "gnomon"
    try:
        return Path.home() / ".cache" / "gnomon"
    except RuntimeError:  # a user without a home, as in containers
        return None


def place_of(path: Path, kind: str) -> Path | None:
    """Where the copy of a file as it is now belongs; None when there shall be none."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        facts = path.stat()
    except OSError:
        return None
    if facts.st_size < _SMALLEST_BYTES:
        return None
    import hashlib  # loads a library of four megabytes, which only copies need

    # The time of the inode's change too: a copy that kept size and date is another file.
    known = (os.path.realpath(path), facts.st_dev, facts.st_ino, facts.st_size,
             facts.st_mtime_ns, facts.st_ctime_ns)  # fmt: skip
    return folder / f"{hashlib.sha256(repr((kind, known)).encode()).hexdigest()[:40]}.arrow"


def load_copy(place: Path | None, kind: str) -> ArrowTable | None:
    """The copy kept at a place, or None; one that cannot be read counts as none."""
    if place is None:
        return None
    try:
        if not place.is_file():
            return None
        table = read_arrow(place)
        os.utime(place)  # the least recently used go first
    except (InputError, OSError):
        return None
    return table if table.metadata.get("kind") == kind else None


def save_copy(
    place: Path | None, kind: str, columns: Mapping[str, Column], metadata: Mapping[str, str]
) -> None:
    """Keeps a copy, whole or not at all. A cache that cannot be written is no error.

    The place must have been asked for before the file was read, and be the same afterwards:
    otherwise the file changed meanwhile, and the copy would be of what is no longer there.
    """
    if place is None:
        return
    with contextlib.suppress(InputError, OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_arrow(place, columns, {**metadata, "kind": kind})
        _tidy(place.parent)


def _tidy(folder: Path) -> None:
    """Removes what a killed process left behind, and the oldest copies beyond the limit."""
    now = time.time()
    for part in folder.glob(".*.part"):
        if now - part.stat().st_mtime > _STALE_S:
            part.unlink(missing_ok=True)
    copies = sorted(folder.glob("*.arrow"), key=lambda p: p.stat().st_mtime, reverse=True)
    total = 0
    for copy in copies:
        total += copy.stat().st_size
        if total > _MOST_BYTES:
            copy.unlink(missing_ok=True)
