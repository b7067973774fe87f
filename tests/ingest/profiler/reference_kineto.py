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
from gnomon.ingest.profiler.kineto import KinetoTrace, ProcessGroup
from gnomon.ingest.text import read_pieces

# Categories changed their names over the years; the columns hold today's.
_TODAY = {
    "Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset", "Python": "python_function", "User Annotation": "user_annotation",
    "operator": "cpu_op", "privateuse1_runtime": "cuda_runtime",
}  # fmt: skip
#: Older profilers wrote steps as operators.
_STEP = "ProfilerStep#"
#: Arguments kept as they were written.
_EXTRA = {
    "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Process Group Name",
    "Process Group Ranks", "Src Rank", "Dst Rank", "Seq", "wait_on_stream",
    "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id",
}  # fmt: skip
_SHAPE = ("Input Dims", "Input dims", "Input type", "Concrete Inputs")


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
    baseTimeNanoseconds: int = 0


def reference_read_kineto(path: str | os.PathLike[str]) -> KinetoTrace:
    """Reads one trace: .json, .json.gz or .json.zst.

    Raises:
        InputError: The file is not a trace, is cut short, or holds an event that cannot be.
    """
    where = str(path)
    file = _decode(b"".join(read_pieces(path)), where)
    if not file.traceEvents:
        raise InputError("the trace has no events", where=where)
    if any(not event.ph for event in file.traceEvents):
        raise InputError("an event has no 'ph'", where=where)
    info = _distributed(file.distributedInfo, where)
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
    return _columns(where, complete, start, duration, file, info, dropped)


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


class _Group(msgspec.Struct):
    pg_name: str = ""
    ranks: list[int] = []


class _Info(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[_Group] = []


def _distributed(raw: msgspec.Raw, where: str) -> _Info:
    try:
        return msgspec.json.decode(raw, type=_Info)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"distributedInfo is malformed: {error}", where=where) from None


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


def _arguments(raw: msgspec.Raw, where: str) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not JSON ({error})", where=where) from None


def raw_members(text: str) -> list[tuple[str, str]]:
    """Keys of a JSON object with their values as they were written, in order."""
    decoder = json.JSONDecoder()
    at = _behind_space(text, text.index("{") + 1)
    found = []
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        begin = _behind_space(text, _behind_space(text, at) + 1)
        _, end = decoder.raw_decode(text, begin)
        found.append((key, text[begin:end]))
        at = _behind_space(text, end)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    return found


def _behind_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _shape_and_extra(text: str) -> tuple[str, str]:
    """What of an event's arguments is kept as text; "" for none."""
    if not any(key in text for key in (*_SHAPE, *_EXTRA)) and "\\" not in text:
        return "", ""
    members = raw_members(text)
    last = dict(members)
    dims = [raw for key, raw in members if key in _SHAPE[:2]]
    shape = (
        "\t".join([dims[-1], last.get("Input type", ""), last.get("Concrete Inputs", "")])
        if dims
        else ""
    )
    extra = ",".join(f'"{key}":{raw}' for key, raw in members if key in _EXTRA)
    return shape, f"{{{extra}}}" if extra else ""


def _base_time(file: _File) -> int:
    """What times count from; a time that no clock shows is none."""
    return file.baseTimeNanoseconds if abs(file.baseTimeNanoseconds) < 2**62 else 0


def _columns(
    where: str,
    events: list[_Event],
    start: NDArray[np.int64],
    duration: NDArray[np.int64],
    file: _File,
    info: _Info,
    dropped: dict[str, int],
) -> KinetoTrace:
    # By start; among equals the longer first, so that a parent comes before its children.
    order = np.lexsort((-duration, start))
    categories: dict[str, int] = {}
    names: dict[str, int] = {}
    threads: dict[tuple[int | str, int | str], int] = {}
    shapes, extras = {"": 0}, {"": 0}
    codes = np.zeros((len(events), 5), np.int32)
    numbers = np.full((len(events), 4), -1, np.int64)
    numbers[:, 3] = 0
    for row, i in enumerate(order.tolist()):
        event = events[i]
        is_old_step = event.name.startswith(_STEP) and not event.cat.startswith("gpu_")
        category = "user_annotation" if is_old_step else _TODAY.get(event.cat, event.cat)
        codes[row, :3] = (
            categories.setdefault(category, len(categories)),
            names.setdefault(event.name, len(names)),
            threads.setdefault((event.pid, event.tid), len(threads)),
        )
        if event.args:
            args = _arguments(event.args, where)
            if not isinstance(args, dict):
                why = "events had arguments of an unknown shape, which were left out"
                dropped[why] = dropped.get(why, 0) + 1
                continue
            numbers[row] = [
                _number(args.get(key)) for key in ("correlation", "stream", "device", "bytes")
            ]
            numbers[row, 3] = max(numbers[row, 3], 0)
            shape, extra = _shape_and_extra(bytes(event.args).decode())
            codes[row, 3] = shapes.setdefault(shape, len(shapes))
            codes[row, 4] = extras.setdefault(extra, len(extras))
    return KinetoTrace(
        where, *(codes[:, column].copy() for column in range(3)),
        start[order] - start.min(), duration[order],
        *(numbers[:, column].copy() for column in range(4)),
        codes[:, 3].copy(), codes[:, 4].copy(),
        tuple(categories), tuple(names), tuple(threads), tuple(shapes), tuple(extras),
        tuple(device.name for device in file.deviceProperties), info.rank, info.world_size,
        tuple(ProcessGroup(group.pg_name, tuple(group.ranks)) for group in info.pg_config),
        _base_time(file) + int(start.min()),
        {why: count for why, count in dropped.items() if count},
    )  # fmt: skip
