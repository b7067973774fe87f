"""Kineto: the PyTorch profiler's Chrome traces, as columns."""

from __future__ import annotations

import os
from decimal import Decimal
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.text import read_whole

__all__ = ["KinetoTrace", "looks_like_kineto", "read_kineto"]

# Categories changed their names over the years; the columns hold today's.
_TODAY = {
    "Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset", "Python": "python_function", "User Annotation": "user_annotation",
    "operator": "cpu_op", "privateuse1_runtime": "cuda_runtime",
}  # fmt: skip
#: Older profilers wrote steps as operators.
_STEP = "ProfilerStep#"


class _Args(msgspec.Struct, gc=False):
    correlation: int | str = -1
    stream: int | str = -1
    device: int | str = -1
    bytes: int | str | float = 0


class _Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    # Decimal keeps nanoseconds: a float of microseconds since 1970 cannot.
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _Device(msgspec.Struct, gc=False):
    name: str = ""


class _File(msgspec.Struct, gc=False):
    traceEvents: list[_Event]
    deviceProperties: list[_Device] = []
    distributedInfo: msgspec.Raw = msgspec.Raw(b"{}")


class KinetoTrace(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The complete events of one profiler trace, ordered by start.

    Columns: `category`, `name`, `thread` (codes into `categories`, `names`, `threads`),
    `start_ns`, `duration_ns` (int64; time zero is the earliest event), `correlation`, `stream`,
    `device` (-1 when the event has none) and `bytes`. `dropped` counts what was left out, and why.
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
    categories: tuple[str, ...]
    names: tuple[str, ...]
    threads: tuple[tuple[int | str, int | str], ...]
    gpus: tuple[str, ...]
    rank: int | None
    world_size: int | None
    dropped: dict[str, int]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> NDArray[np.int64]:
        """End of each event."""
        return self.start_ns + self.duration_ns

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return int(self.end_ns.max() - self.start_ns.min()) if len(self) else 0

    def is_category(self, *categories: str) -> NDArray[np.bool_]:
        """Which events belong to one of these categories."""
        return np.isin(
            self.category, [i for i, c in enumerate(self.categories) if c in categories]
        )

    def name_of(self, event: int) -> str:
        """The name of an event."""
        return str(self.names[self.name[event]])


def looks_like_kineto(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a Chrome trace.

    >>> looks_like_kineto(b'{"schemaVersion": 1, "traceEvents": [')
    True
    >>> looks_like_kineto(b"hello")
    False
    """
    text = head.lstrip()
    marks = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"', b'"displayTimeUnit"')
    return (text.startswith(b"{") and any(mark in head for mark in marks)) or (
        text.startswith(b"[") and b'"ph"' in head
    )


def read_kineto(path: str | os.PathLike[str]) -> KinetoTrace:
    """Reads one trace: .json, .json.gz or .json.zst.

    Raises:
        InputError: The file is not a trace, is cut short, or holds an event that cannot be.
    """
    where = str(path)
    file = _decode(read_whole(path), where)
    if not file.traceEvents:
        raise InputError("the trace has no events", where=where)
    rank, world = _distributed(file.distributedInfo, where)
    complete = [event for event in file.traceEvents if event.ph == "X"]
    if not complete:
        raise InputError(
            "the trace has no complete events", where=where, hint="was anything profiled?"
        )
    times = _times(complete, where)
    dropped = {
        "events had no end and were left out": sum(time is None for time in times),
        "begin/end events are not read, only complete ones": sum(
            event.ph in ("B", "E") for event in file.traceEvents
        ),
    }
    complete = [event for event, time in zip(complete, times) if time is not None]
    start, duration = np.asarray([t for t in times if t is not None], np.int64).reshape(-1, 2).T
    if not len(start):
        raise InputError("no event has both a start and an end", where=where)
    return _columns(where, complete, start, duration, file, rank, world, dropped)


def _decode(content: bytes, where: str) -> _File:
    try:
        if content.lstrip()[:1] == b"[":
            return _File(msgspec.json.decode(content, type=list[_Event]))
        return msgspec.json.decode(content, type=_File)
    except msgspec.ValidationError as error:
        missing = "missing required field `traceEvents`" in str(error)
        what = "has no 'traceEvents': not a profiler trace" if missing else f"not a trace: {error}"
        raise InputError(what, where=where) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        cut = "truncated" in str(error)
        what = "the JSON ends early" if cut else f"not JSON ({error})"
        hint = "was the file cut short?" if cut else "a PyTorch profiler trace was expected"
        raise InputError(what, where=where, hint=hint) from None


def _distributed(raw: msgspec.Raw, where: str) -> tuple[int | None, int | None]:
    class Info(msgspec.Struct):
        rank: int | None = None
        world_size: int | None = None

    try:
        info = msgspec.json.decode(raw, type=Info)
    except msgspec.DecodeError as error:
        raise InputError(f"distributedInfo is malformed: {error}", where=where) from None
    return info.rank, info.world_size


def _times(events: list[_Event], where: str) -> list[tuple[int, int] | None]:
    """Nanoseconds of each event; None for those the profiler left without an end."""
    times: list[tuple[int, int] | None] = []
    for i, event in enumerate(events):
        if event.ts is None:
            raise InputError(
                f"event {i} has no 'ts' ({event.cat} {event.name[:60]!r})", where=where,
                hint="was the file cut short?",
            )  # fmt: skip
        if event.dur is None:
            times.append(None)
            continue
        start, duration = _nanoseconds(event.ts), _nanoseconds(event.dur)
        if start is None or duration is None or duration < 0:
            raise InputError(
                f"event {i} ({event.cat} {event.name[:60]!r}) has an impossible time: "
                f"ts {event.ts}, dur {event.dur}",
                where=where,
            )
        times.append((start, duration))
    return times


def _nanoseconds(microseconds: Decimal) -> int | None:
    """None for what is no number, or further away than a century."""
    # The exponent first: making an integer of 1e999999 would take a million digits.
    if not microseconds.is_finite() or microseconds.adjusted() > 18:
        return None
    nanoseconds = int(microseconds.scaleb(3))
    return nanoseconds if abs(nanoseconds) < 2**62 else None


def _number(value: object) -> int:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 2**62 else -1


def _columns(
    where: str,
    events: list[_Event],
    start: NDArray[np.int64],
    duration: NDArray[np.int64],
    file: _File,
    rank: int | None,
    world: int | None,
    dropped: dict[str, int],
) -> KinetoTrace:
    # By start; among equals the longer first, so that a parent comes before its children.
    order = np.lexsort((-duration, start))
    categories: dict[str, int] = {}
    names: dict[str, int] = {}
    threads: dict[tuple[int | str, int | str], int] = {}
    codes = np.empty((len(events), 3), np.int32)
    numbers = np.full((len(events), 4), -1, np.int64)
    numbers[:, 3] = 0
    decode = msgspec.json.Decoder(_Args).decode
    for row, i in enumerate(order.tolist()):
        event = events[i]
        is_old_step = event.name.startswith(_STEP) and not event.cat.startswith("gpu_")
        category = "user_annotation" if is_old_step else _TODAY.get(event.cat, event.cat)
        codes[row] = (
            categories.setdefault(category, len(categories)),
            names.setdefault(event.name, len(names)),
            threads.setdefault((event.pid, event.tid), len(threads)),
        )
        if event.args:
            try:
                args = decode(event.args)
            except msgspec.DecodeError:
                why = "events had arguments of an unknown shape, which were left out"
                dropped[why] = dropped.get(why, 0) + 1
                continue
            numbers[row] = (
                _number(args.correlation), _number(args.stream), _number(args.device),
                max(_number(args.bytes), 0),
            )  # fmt: skip
    return KinetoTrace(
        where, codes[:, 0].copy(), codes[:, 1].copy(), codes[:, 2].copy(),
        start[order] - start.min(), duration[order],
        numbers[:, 0].copy(), numbers[:, 1].copy(), numbers[:, 2].copy(), numbers[:, 3].copy(),
        tuple(categories), tuple(names), tuple(threads),
        tuple(device.name for device in file.deviceProperties), rank, world,
        {why: count for why, count in dropped.items() if count},
    )  # fmt: skip
