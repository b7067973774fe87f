"""What is this file? Told from its first bytes, never from its name alone."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.execution.trace import looks_like_execution_trace
from gnomon.ingest.profiler.kineto import looks_like_kineto
from gnomon.ingest.profiler.operation_log import looks_like_operation_log
from gnomon.ingest.spark.log_files import looks_like_spark_log
from gnomon.ingest.text import read_head

__all__ = ["FORMATS", "Identity", "identify"]

#: Formats by name, and what they are in words.
FORMATS = {
    "kineto": "PyTorch profiler trace (Chrome trace JSON)",
    "execution-trace": "PyTorch execution trace",
    "spark-log": "Spark event log",
    "perfetto": "Perfetto trace (protobuf)",
    "arrow": "Arrow file",
    "operation-log": "operations of a training job, rank by rank",
    "parquet": "Parquet file",
    "csv": "comma-separated values",
    "json": "JSON of no known kind",
    "result": "saved gnomon result",
    "folder": "folder",
    "unknown": "nothing gnomon knows",
}


_FAR = 4 << 20


class Identity(msgspec.Struct, frozen=True):
    """A format, its words, and the size on disk."""

    format: str
    bytes: int

    @property
    def about(self) -> str:
        """The format in words."""
        return FORMATS[self.format]


def identify(path: str | os.PathLike[str]) -> Identity:
    """Looks at a file or folder.

    >>> from gnomon.datasets import bundled
    >>> identify(bundled("h200-gpt-l6") / "kineto.json.gz").about
    'PyTorch profiler trace (Chrome trace JSON)'
    """
    if not os.fspath(path):
        raise InputError("an empty path names nothing")
    place = Path(path)
    try:
        return _look(place)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _look(place: Path) -> Identity:
    if place.is_dir():
        is_result = (place / "manifest.json").is_file() and (place / "result.json").is_file()
        size = sum(p.stat().st_size for p in place.rglob("*") if p.is_file())
        if is_result:
            return Identity("result", size)
        return Identity("spark-log" if looks_like_spark_log(place) else "folder", size)
    head = read_head(place).removeprefix(b"\xef\xbb\xbf")
    if _format_of(head) in ("json", "unknown"):
        head = read_head(place, _FAR).removeprefix(b"\xef\xbb\xbf")  # its marks may come late
    size = place.stat().st_size
    if size == 0:
        raise InputError("is empty", where=str(place))
    found = _format_of(head)
    if found in ("parquet", "csv") and looks_like_operation_log(place):
        found = "operation-log"
    if found in ("json", "unknown") and looks_like_spark_log(place):
        found = "spark-log"
    return Identity(found, size)


def _format_of(head: bytes) -> str:
    text = head.lstrip()
    if head.startswith(b"ARROW1"):
        return "arrow"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head[:1] == b"\x0a" and not _is_text(head):
        return "perfetto"
    if text[:1] in (b"{", b"["):
        if looks_like_kineto(head):
            return "kineto"
        return "execution-trace" if looks_like_execution_trace(head) else "json"
    first_line = head.split(b"\n", 1)[0]
    return "csv" if _is_text(head) and first_line.count(b",") >= 1 else "unknown"


def _is_text(head: bytes) -> bool:
    return b"\0" not in head and all(byte >= 9 for byte in head[:512])
