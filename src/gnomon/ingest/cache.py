"""A columnar copy of what was read, so that the second read is near-instant.

Copies live in `$GNOMON_CACHE`, or `$XDG_CACHE_HOME/gnomon`, or `~/.cache/gnomon`;
`GNOMON_CACHE=off` does without. A copy is found by the file's real path, size and time of change,
so a file that changed is read again. The oldest copies go when all of them pass 4 GiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from gnomon.errors import InputError
from gnomon.table import ArrowTable, Column, read_arrow, write_arrow

__all__ = ["cache_folder", "load_copy", "save_copy"]

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
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gnomon"


def _place(path: Path, kind: str) -> Path | None:
    folder = cache_folder()
    if folder is None:
        return None
    try:
        facts = path.stat()
    except OSError:
        return None
    if facts.st_size < _SMALLEST_BYTES:
        return None
    identity = f"{kind}\0{os.path.realpath(path)}\0{facts.st_size}\0{facts.st_mtime_ns}"
    return folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:40]}.arrow"


def load_copy(path: Path, kind: str) -> ArrowTable | None:
    """The copy of a file as it is now, or None. A damaged copy counts as none."""
    place = _place(path, kind)
    if place is None or not place.is_file():
        return None
    try:
        table = read_arrow(place)
        os.utime(place)  # the least recently used go first
    except (InputError, OSError):
        return None
    return table if table.metadata.get("kind") == kind else None


def save_copy(
    path: Path, kind: str, columns: Mapping[str, Column], metadata: Mapping[str, str]
) -> None:
    """Keeps a copy, whole or not at all. A cache that cannot be written is no error."""
    place = _place(path, kind)
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
