"""Kineto: the PyTorch profiler's Chrome traces, as columns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.ingest.cache import load_copy, place_of, save_copy
from gnomon.ingest.text import BAD_JSON, read_pieces
from gnomon.table import ArrowTable, Column, Dictionary

# Categories changed their names over the years; the columns hold today's.
_TODAY = {
    "Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset", "Python": "python_function", "User Annotation": "user_annotation",
    "operator": "cpu_op", "privateuse1_runtime": "cuda_runtime",
}  # fmt: skip
#: Older profilers wrote steps as operators.
_STEP = "ProfilerStep#"
_ANNOTATION = "user_annotation"


_KIND = "kineto/3"
_NUMBERS = ("start_ns", "duration_ns", "correlation", "stream", "device", "bytes")


class _Device(msgspec.Struct, gc=False):
    name: str | None = ""


class ProcessGroup(msgspec.Struct, frozen=True):
    """Ranks that communicate among themselves."""

    name: str
    ranks: tuple[int, ...]


class _KinetoGroup(msgspec.Struct, gc=False):
    pg_name: str = ""
    ranks: list[int] = []


class _Distributed(msgspec.Struct, gc=False):
    rank: int | None = None
    world_size: int | None = None
    pg_config: msgspec.Raw = msgspec.Raw(b"[]")


class KinetoTrace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The complete events of one profiler trace, ordered by start.

    Columns: `category`, `name`, `thread` (codes into `categories`, `names`, `threads`),
    `start_ns`, `duration_ns` (int64; time zero is the earliest event), `correlation`, `stream`,
    `device` (-1 when the event has none) and `bytes`. `shape` are codes into `shapes`, the raw
    JSON of an operator's input sizes, types and values, tab between them; `extra` codes into
    `extras`, a raw JSON object of what tells collectives and event waits apart.
    Both tables begin with "", for none. `groups` are the process groups this rank belongs to,
    `origin_ns` is what the recording machine's clock showed at time zero, and `dropped` counts
    what was left out, and why.
    """

    source: str
    category: NDArray[np.int32]
    name: NDArray[np.int32]
    thread: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    correlation: NDArray[np.int64]
    stream: NDArray[np.int64]
    device: NDArray[np.int64]
    bytes: NDArray[np.int64]
    shape: NDArray[np.int32]
    extra: NDArray[np.int32]
    categories: tuple[str, ...]
    names: tuple[str, ...]
    threads: tuple[tuple[int | str, int | str], ...]
    shapes: tuple[str, ...]
    extras: tuple[str, ...]
    gpus: tuple[str, ...]
    rank: int | None
    world_size: int | None
    groups: tuple[ProcessGroup, ...]
    origin_ns: int
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> NDArray[np.int64]:
        return self.start_ns + self.duration_ns

    @property
    def span_ns(self) -> int:
        return int(self.end_ns.max() - self.start_ns.min()) if len(self) else 0

    def is_category(self, *categories: str) -> NDArray[np.bool_]:
        return np.isin(
            self.category, [i for i, c in enumerate(self.categories) if c in categories]
        )

    def name_of(self, event: int) -> str:
        return str(self.names[self.name[event]])


def read_kineto(path: str | os.PathLike[str], *, cache: bool = True) -> KinetoTrace:
    """Reads one trace: .json, .json.gz or .json.zst.

    The file is read piece by piece, natively: memory is that of the columns, about 70 bytes an
    event, whatever the size of the file. A copy in columns is kept (`gnomon.ingest.cache`), so
    that the second read only maps it.
    """
    place = place_of(Path(path), _KIND) if cache else None
    if (copy := load_copy(place, _KIND)) is not None:
        with contextlib.suppress(InputError, KeyError, msgspec.DecodeError):  # then read it again
            return _from_copy(copy, str(path))
    trace = _read(path)
    if place is not None and place == place_of(Path(path), _KIND):
        save_copy(place, _KIND, *_to_copy(trace))
    return trace


def _read(path: str | os.PathLike[str]) -> KinetoTrace:
    where = str(path)
    reader = _core.TraceReader()
    pieces = read_pieces(path)
    try:
        for piece in pieces:
            reader.feed(piece)
        columns = reader.finish()
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        for _ in pieces:  # a damaged archive shows at its end, and is then the better reason
            pass
        raise InputError(str(error), where=where, hint=_hint(str(error))) from None
    if not reader.events:
        raise InputError("the trace has no events", where=where)
    return _trace(reader, columns, where)


def _hint(what: str) -> str | None:
    if "ends early" in what or "no 'ts'" in what:
        return "was the file cut short?"
    return "a PyTorch profiler trace was expected" if what.startswith("not JSON") else None


def _trace(reader: _core.TraceReader, columns: _core.TraceColumns, where: str) -> KinetoTrace:
    dropped = {
        "events had no end and were left out": reader.without_end,
        "begin/end events are not read, only complete ones": reader.begin_end,
        "events had arguments of an unknown shape, which were left out": reader.odd_arguments,
    }
    start, duration = columns.take_start_ns(), columns.take_duration_ns()
    if not len(start):
        what = "no event has both a start and an end" if any(dropped.values()) else None
        hint = "was anything profiled?"
        raise InputError(what or "the trace has no complete events", where=where, hint=hint)
    if float(start.max()) - float(start.min()) + float(duration.max()) >= 2.0**62:
        raise InputError("its events lie more than a century apart", where=where)
    # By start; among equals the longer first, so that a parent comes before its children.
    order = np.lexsort((-duration, start))
    names = _texts(reader.names())
    name = columns.take_name()[order]
    category, categories = _categories(reader, columns.take_category()[order], name, names)
    rank, world, groups = _distributed(reader.distributed_info())
    zero = int(start.min())
    return KinetoTrace(
        where, category, name, columns.take_thread()[order], start[order] - zero,
        duration[order], columns.take_correlation()[order], columns.take_stream()[order],
        columns.take_device()[order], columns.take_bytes()[order], columns.take_shape()[order],
        columns.take_extra()[order], categories, names,
        tuple(_thread(raw) for raw in reader.threads()), _texts(reader.shapes()),
        _texts(reader.extras()), _gpus(reader.device_properties()), rank, world, groups,
        _base_time(reader.base_time()) + zero,
        {why: count for why, count in dropped.items() if count},
    )  # fmt: skip


def _texts(raw: list[bytes]) -> tuple[str, ...]:
    return tuple(text.decode(errors="replace") for text in raw)


def _categories(
    reader: _core.TraceReader,
    written_as: NDArray[np.int32],
    name: NDArray[np.int32],
    names: tuple[str, ...],
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    written = [text.decode(errors="replace") for text in reader.categories()]
    table: dict[str, int] = {}
    today = [table.setdefault(_TODAY.get(text, text), len(table)) for text in written]
    category = np.asarray(today, np.int32)[written_as]
    steps = [code for code, text in enumerate(names) if text.startswith(_STEP)]
    on_gpu = [code for text, code in table.items() if text.startswith("gpu_")]
    marks = np.isin(name, steps) & ~np.isin(category, on_gpu)
    if marks.any():
        category[marks] = table.setdefault(_ANNOTATION, len(table))
    return category, tuple(table)


def _thread(raw: bytes) -> tuple[int | str, int | str]:
    pid, _, tid = raw.partition(b"\t")
    return _id(pid), _id(tid)


def _id(raw: bytes) -> int | str:
    try:
        return msgspec.json.decode(raw, type=int | str)
    except BAD_JSON:
        return raw.decode(errors="replace")


def _gpus(raw: bytes) -> tuple[str, ...]:
    # What is known of the machine is nice to have: a trace is not refused for want of it.
    try:
        devices = msgspec.json.decode(raw or b"[]", type=list[_Device] | None)
    except BAD_JSON:
        return ()
    return tuple(device.name or "" for device in devices or ())


def _distributed(raw: bytes) -> tuple[int | None, int | None, tuple[ProcessGroup, ...]]:
    try:
        info = msgspec.json.decode(raw or b"{}", type=_Distributed | None, strict=False)
    except BAD_JSON:
        return None, None, ()
    return (info.rank, info.world_size, _groups(info.pg_config)) if info else (None, None, ())


def _groups(raw: msgspec.Raw) -> tuple[ProcessGroup, ...]:
    try:
        groups = msgspec.json.decode(raw, type=list[_KinetoGroup] | None, strict=False)
    except BAD_JSON:
        return ()
    return tuple(ProcessGroup(group.pg_name, tuple(group.ranks)) for group in groups or ())


def _base_time(raw: bytes) -> int:
    """What a profiler's times count from; older ones count from 1970."""
    try:
        base = msgspec.json.decode(raw or b"0", type=int | None, strict=False) or 0
    except BAD_JSON:
        return 0
    return base if abs(base) < 2**62 else 0


class _Rest(msgspec.Struct):
    """What of a trace is no column."""

    threads: list[tuple[int | str, int | str]]
    gpus: list[str]
    rank: int | None
    world_size: int | None
    groups: list[ProcessGroup]
    origin_ns: int
    dropped: dict[str, int]


def _to_copy(trace: KinetoTrace) -> tuple[dict[str, Column], Mapping[str, str]]:
    columns: dict[str, Column] = {
        "category": Dictionary(trace.category, trace.categories),
        "name": Dictionary(trace.name, trace.names),
        "shape": Dictionary(trace.shape, trace.shapes),
        "extra": Dictionary(trace.extra, trace.extras),
        "thread": trace.thread,
    }
    columns |= {column: getattr(trace, column) for column in _NUMBERS}
    rest = _Rest(
        list(trace.threads), list(trace.gpus), trace.rank, trace.world_size, list(trace.groups),
        trace.origin_ns, trace.dropped,
    )  # fmt: skip
    return columns, {"rest": msgspec.json.encode(rest).decode()}


def _from_copy(copy: ArrowTable, where: str) -> KinetoTrace:
    rest = msgspec.json.decode(copy.metadata["rest"], type=_Rest)
    codes = np.asarray(copy.columns["thread"], np.int32)
    if len(codes) and (int(codes.min()) < 0 or int(codes.max()) >= len(rest.threads)):
        raise InputError("the copy names threads that are not there", where=where)

    def texts(name: str) -> Dictionary:
        column = copy.columns[name]
        if not isinstance(column, Dictionary):
            raise InputError("the copy has another shape", where=where)
        return column

    category, name, shape, extra = (texts(c) for c in ("category", "name", "shape", "extra"))
    start, duration, correlation, stream, device, bytes = (
        np.asarray(copy.columns[column], np.int64) for column in _NUMBERS
    )
    return KinetoTrace(
        where, category.codes, name.codes, codes, start, duration, correlation, stream, device,
        bytes, shape.codes, extra.codes,
        tuple(category.values), tuple(name.values), tuple(rest.threads), tuple(shape.values),
        tuple(extra.values), tuple(rest.gpus), rest.rank, rest.world_size, tuple(rest.groups),
        rest.origin_ns, rest.dropped,
    )  # fmt: skip
