"""The slow, obvious reader of profiler traces: a struct an event, through a JSON library.

The native reader is held against it.
"""

from __future__ import annotations

import json
import os
import re
from decimal import Decimal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.kineto import KinetoTrace
from gnomon.ingest.text import read_pieces

# Categories changed their names over the years; the columns hold today's.
_TODAY = {
    "Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset", "Python": "python_function", "User Annotation": "user_annotation",
    "operator": "cpu_op", "privateuse1_runtime": "cuda_runtime",
}  # fmt: skip
#: Older profilers wrote steps as operators.
_STEP = "ProfilerStep#"


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


def reference_read_kineto(path: str | os.PathLike[str]) -> KinetoTrace:
    """Reads one trace: .json, .json.gz or .json.zst.

    Raises:
        InputError: The file is not a trace, is cut short, or holds an event that cannot be.
    """
    where = str(path)
    file = _decode(b"".join(read_pieces(path)), where)
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


DECIMAL = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def _number(value: object) -> int:
    """A number, also in quotes, cut to a whole one; -1 for anything else."""
    text = value if isinstance(value, str) else json.dumps(value)
    if not DECIMAL.fullmatch(text):
        return -1
    number = Decimal(text)
    if number.adjusted() > 20:
        return -1
    whole = int(number)
    return whole if abs(whole) < 2**62 else -1


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
            args = msgspec.json.decode(event.args)
            if not isinstance(args, dict):
                why = "events had arguments of an unknown shape, which were left out"
                dropped[why] = dropped.get(why, 0) + 1
                continue
            numbers[row] = [
                _number(args.get(key)) for key in ("correlation", "stream", "device", "bytes")
            ]
            numbers[row, 3] = max(numbers[row, 3], 0)
    return KinetoTrace(
        where, codes[:, 0].copy(), codes[:, 1].copy(), codes[:, 2].copy(),
        start[order] - start.min(), duration[order],
        numbers[:, 0].copy(), numbers[:, 1].copy(), numbers[:, 2].copy(), numbers[:, 3].copy(),
        tuple(categories), tuple(names), tuple(threads),
        tuple(device.name for device in file.deviceProperties), rank, world,
        {why: count for why, count in dropped.items() if count},
    )  # fmt: skip
