"""Waits between streams as the profiler recorded them, where it was asked for sync events.

A recorded wait names the waiting stream, its call and the event. Which record call set that event,
and on which stream, older profilers say; those on CUDA 12.9 and later leave both out (-1). Then
the event's number gives the call: events are numbered as they are made, so where each is recorded
once, the numbers follow the order of the record calls. The stream follows from what the host did
around the call:

- right after a launch, the event is of that launch's stream;
- several streams that wait one after another, with nothing launched in between, fork off the one
  that was in use before;
- one stream that waits for several joins them: each record is of another stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.sim.trace.events import EventClass, LaidOut

Stream = tuple[int, int]  # device and number
#: More streams than this do not fork off one at once.
_MOST_FORKS = 64


class _WaitArguments(msgspec.Struct):
    stream: int = msgspec.field(default=-1, name="wait_on_stream")
    record: int = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    event: int = msgspec.field(default=-1, name="wait_on_cuda_event_id")


class _What(Enum):
    LAUNCH = "launch"
    RECORD = "record"
    WAIT = "wait"


class _Act(NamedTuple):
    """Something the host did to a stream."""

    at_ns: int
    what: _What
    stream: Stream | None  # of a launch or wait; None for a record
    events: tuple[int, ...] = ()  # what a launch launched
    correlation: int = -1  # of a record
    extra: _WaitArguments | None = None  # of a wait


def recorded_waits(
    trace: KinetoTrace, laid: LaidOut
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Pairs of device events, source and target, for every recorded wait that holds one back."""
    nothing = np.empty(0, np.int32)
    if "cuda_sync" not in trace.categories:
        return nothing, nothing
    acts = _acts(trace, laid)
    source_of = _sources(acts)
    pairs = _follow(acts, source_of)
    return (
        np.asarray([source for source, _ in pairs], np.int32),
        np.asarray([target for _, target in pairs], np.int32),
    )


def _acts(trace: KinetoTrace, laid: LaidOut) -> list[_Act]:
    """Launches, records and waits, in the order in which the host asked for them."""
    launched: dict[int, list[int]] = defaultdict(list)
    for event in np.flatnonzero(laid.event_class == EventClass.DEVICE).tolist():
        launched[int(laid.correlation[event])].append(event)
    waits = {}
    for event in np.flatnonzero(trace.is_category("cuda_sync")).tolist():
        if trace.name_of(event) == "Stream Wait Event":
            waits[int(trace.correlation[event])] = event
    acts = []
    calls = np.flatnonzero((laid.event_class == EventClass.CALL) & (laid.correlation > 0))
    for call in calls.tolist():
        correlation, at_ns = int(laid.correlation[call]), int(trace.start_ns[call])
        if correlation in launched:
            events = launched[correlation]
            stream = _stream(trace, events[0])
            acts.append(_Act(at_ns, _What.LAUNCH, stream, tuple(events)))
        elif correlation in waits:
            event = waits[correlation]
            acts.append(_Act(at_ns, _What.WAIT, _stream(trace, event), extra=_extra(trace, event)))
        elif "EventRecord" in trace.name_of(call):
            acts.append(_Act(at_ns, _What.RECORD, None, correlation=correlation))
    return sorted(acts, key=lambda act: act.at_ns)


def _stream(trace: KinetoTrace, event: int) -> Stream:
    return int(trace.device[event]), int(trace.stream[event])


def _extra(trace: KinetoTrace, event: int) -> _WaitArguments:
    try:
        return msgspec.json.decode(
            trace.extras[trace.extra[event]] or "{}", type=_WaitArguments, strict=False
        )
    except msgspec.DecodeError:
        return _WaitArguments()


class _Source(NamedTuple):
    """Which record a wait is for, and on which stream that was."""

    record: int  # place among the acts
    stream: Stream


def _sources(acts: Sequence[_Act]) -> dict[int, _Source]:
    """The record behind each wait, where it is known; by places among the acts."""
    records = [i for i, act in enumerate(acts) if act.what is _What.RECORD]
    by_correlation = {acts[i].correlation: i for i in records}
    first = _first_number(acts, records)
    waits: dict[int, list[int]] = defaultdict(list)  # by the record they are for
    found: dict[int, _Source] = {}
    for i, act in enumerate(acts):
        if act.what is not _What.WAIT or act.extra is None or act.stream is None:
            continue
        record = by_correlation.get(act.extra.record)
        if record is not None and act.extra.stream >= 0:
            found[i] = _Source(record, (act.stream[0], act.extra.stream))
        elif first is not None and act.extra.event >= 0:
            waits[records[act.extra.event - first]].append(i)
    stream_of = _streams_of_records(acts, waits)
    for record, places in waits.items():
        stream = stream_of.get(record)
        found |= {place: _Source(record, stream) for place in places if stream is not None}
    return found


def _first_number(acts: Sequence[_Act], records: Sequence[int]) -> int | None:
    """The number of the event that the first record call set, if the numbers follow the calls.

    An event is recorded before it is waited for; of the offsets that hold for all waits the one
    with the least time in between is taken, since an event is mostly waited for right away.
    """
    numbered = [
        (i, act.extra.event)
        for i, act in enumerate(acts)
        if act.what is _What.WAIT and act.extra is not None and act.extra.event >= 0
    ]
    if not numbered or not records:
        return None
    first = max(number - (bisect_right(records, i) - 1) for i, number in numbered)
    fits = all(0 <= number - first < len(records) for _, number in numbered)
    return first if fits else None


def _streams_of_records(
    acts: Sequence[_Act], waits: dict[int, list[int]]
) -> dict[int, Stream | None]:
    """The stream of each record that is waited for."""
    streams: dict[int, Stream | None] = {}
    used: list[Stream] = []  # the latest last, each once
    last_launched: Stream | None = None
    handed: list[int] = []  # records waited for at once, nothing launched since the first
    for i, act in enumerate(acts):
        if act.what is _What.RECORD and i in waits:
            if waits[i][0] == i + 1:
                handed.append(i)
            else:  # kept for later: it stands for what was launched just now
                streams[i] = last_launched
        elif act.what is _What.LAUNCH and act.stream is not None:
            streams |= _streams_of_handovers(acts, handed, used)
            handed.clear()
            last_launched = act.stream
            _use(used, act.stream)
    return streams | _streams_of_handovers(acts, handed, used)


def _streams_of_handovers(
    acts: Sequence[_Act], handed: Sequence[int], used: list[Stream]
) -> dict[int, Stream | None]:
    """Streams of records that another stream waits for at once, one such after the other.

    A stream that waits for several joins them; several that wait for one fork off it.
    """
    streams: dict[int, Stream | None] = {}
    everybody = [acts[record + 1].stream for record in handed]
    at = 0
    while at < len(handed):
        joins = 1
        while at + joins < len(handed) and everybody[at + joins] == everybody[at]:
            joins += 1
        waiting = everybody[at : at + max(joins, _MOST_FORKS)]
        if joins > 1:
            count = joins
            others = [stream for stream in reversed(used) if stream != waiting[0]]
            sources = [*others[:count], *[None] * count]
        else:
            count = _distinct(waiting)
            others = [stream for stream in reversed(used) if stream not in waiting[:count]]
            sources = [others[0] if others else None] * count
        streams |= dict(zip(handed[at : at + count], sources))
        for stream in waiting[:count]:
            _use(used, stream)
        at += count
    return streams


def _distinct(streams: Sequence[Stream | None]) -> int:
    """How many of the first are all different."""
    seen: set[Stream | None] = set()
    for stream in streams:
        if stream in seen:
            break
        seen.add(stream)
    return len(seen)


def _use(used: list[Stream], stream: Stream | None) -> None:
    if stream is not None:
        if stream in used:
            used.remove(stream)
        used.append(stream)


def _follow(acts: Sequence[_Act], source_of: dict[int, _Source]) -> list[tuple[int, int]]:
    """Plays the acts: what each stream's next launch has to wait for.

    A stream that only waits and records passes on what it waited for.
    """
    last: dict[Stream, int] = {}
    # What came before it on its stream an event stands for too: of each stream the latest counts.
    pending: dict[Stream, dict[Stream, int]] = defaultdict(dict)
    recorded: dict[int, dict[Stream, int]] = {}
    launched = {-1: -1}
    stream_of = {source.record: source.stream for source in source_of.values()}
    pairs: set[tuple[int, int]] = set()
    for i, act in enumerate(acts):
        if act.what is _What.RECORD and i in stream_of:
            stream = stream_of[i]
            recorded[i] = dict(pending[stream])
            if stream in last:
                recorded[i][stream] = last[stream]
        elif act.what is _What.WAIT and act.stream is not None and i in source_of:
            for stream, event in recorded.get(source_of[i].record, {}).items():
                before = pending[act.stream].get(stream, -1)
                pending[act.stream][stream] = max(before, event, key=launched.__getitem__)
        elif act.what is _What.LAUNCH and act.stream is not None:
            for event in act.events:
                launched[event] = i
            others = (e for stream, e in pending[act.stream].items() if stream != act.stream)
            pairs |= {(source, act.events[0]) for source in others}
            pending[act.stream].clear()
            last[act.stream] = act.events[-1]
    return sorted(pairs)
