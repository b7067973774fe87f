"""A recording on disk: the folder that `record` writes and the other commands read.

Standard library alone: this runs inside the recorded program, whose Python may lack all of ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gzip
import json
import os
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gnomon.errors import InputError

META = "meta.json"
_TRACE = re.compile(r"(kineto|rank(\d+))\.json\.gz")
# Lines of a trace that tell where it was made. They stand alone, before and after the events.
_PRIVATE = re.compile(rb'^([\s\],]*"(?:host_name|traceName)"):\s*"(?:[^"\\]|\\.)*"')


def trace_name(rank: int, world_size: int) -> str:
    """What the trace of a rank is called.

    >>> trace_name(0, 1), trace_name(3, 8)
    ('kineto.json.gz', 'rank3.json.gz')
    """
    return f"rank{rank}.json.gz" if world_size > 1 else "kineto.json.gz"


@dataclasses.dataclass(frozen=True)
class Recording:
    """What lies in a folder: its traces, and the figures that were measured beside them.

    Attributes:
        traces: Every rank's trace, by rank.
        meta: The content of `meta.json`; empty where there is none.
    """

    folder: Path
    traces: tuple[Path, ...]
    meta: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Recording:
        """What there is; an empty or absent folder is an empty recording."""
        names = os.listdir(folder) if folder.is_dir() else []
        ranked = sorted((int(m[2] or 0), m[0]) for m in map(_TRACE.fullmatch, names) if m)
        meta = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            meta = json.loads((folder / META).read_bytes())
        traces = tuple(folder / name for _, name in ranked)
        return cls(folder, traces, meta if isinstance(meta, dict) else {})

    def unprofiled_steps_ms(self) -> list[float]:
        """The steps without the profiler, before it first ran."""
        return list(self.meta.get("step_ms_event") or self.meta.get("step_ms") or [])

    def summary(self) -> str:
        """One line: where the trace is, what a step takes without the profiler and with it."""
        parts = [f"{self.folder}: no trace"]
        if self.traces:
            more = f" and {len(self.traces) - 1} more" if len(self.traces) > 1 else ""
            size = sum(path.stat().st_size for path in self.traces) / 1e3
            parts = [f"{self.traces[0]}{more} ({size:,.0f} kB)"]
        unprofiled = self.unprofiled_steps_ms()
        if unprofiled:
            span = f"{min(unprofiled):.4g} to {max(unprofiled):.4g} over {len(unprofiled)}"
            parts.append(f"{statistics.median(unprofiled):.4g} ms per step ({span})")
        if profiled := self.meta.get("profiled_step_ms"):
            parts.append(f"{profiled:.4g} ms with the profiler")
        return ", ".join(parts)


def refuse_existing(folder: Path, rank: int, world_size: int) -> None:
    """Raises when the folder holds another recording."""
    if found := _in_the_way(folder, rank, world_size):
        raise InputError(
            f"already holds a recording ({', '.join(found[:3])})", where=str(folder),
            hint="choose another folder, or overwrite=True (--overwrite)",
        )  # fmt: skip


def remove_existing(folder: Path, rank: int, world_size: int) -> None:
    """Takes another recording away, so that its files never stand beside ours."""
    for name in _in_the_way(folder, rank, world_size):
        (folder / name).unlink(missing_ok=True)


def _in_the_way(folder: Path, rank: int, world_size: int) -> list[str]:
    """Files of another recording that this rank answers for.

    Ranks share the folder, and a fast one may have written while a slow one begins: each answers
    for its own name, and rank 0 also for what no rank of this job will write.
    """
    recording = Recording.open(folder)
    own = trace_name(rank, world_size)
    found = [path.name for path in recording.traces]
    if rank > 0:
        return [name for name in found if name == own]
    others = {trace_name(other, world_size) for other in range(1, world_size)}
    return [META] * (folder / META).exists() + [name for name in found if name not in others]


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Writes `meta.json`, whole or not at all."""
    with _atomic(folder / META) as file:
        file.write(json.dumps(meta, indent=1).encode() + b"\n")


def pack_trace(raw: Path, target: Path) -> None:
    """Compresses an exported trace, without the names of the machine and of its folders."""
    with (
        open(raw, "rb") as lines,
        _atomic(target) as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
    ):
        for some in iter(functools.partial(lines.readlines, 1 << 20), []):
            packed.write(b"".join(_PRIVATE.sub(rb'\1: ""', line) for line in some))


@contextlib.contextmanager
def _atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when the block ends well. (gnomon.table's needs numpy.)"""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", buffering=1 << 20) as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
