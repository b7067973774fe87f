"""What each event of a trace is to the graph: on which lane, of which class, launched by whom.

Host threads and GPU streams are lanes as they stand. Communication of a CPU backend (gloo, MPI)
is recorded as an annotation on whichever thread saw it end, beside the operators that run
meanwhile; it gets lanes of its own, one a peer or worker, and counts as launched by the call that
asked for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum, IntFlag
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.column_types import Codes, Flags, Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.collective_names import CPU_BACKENDS


class EventClass(IntEnum):
    """The native builder's classes (`native/engine/trace/graph.hpp`)."""

    IGNORED = 0
    HOST = 1
    CALL = 2
    DEVICE = 3
    MARK = 4


class EventFlag(IntFlag):
    """The native builder's flags."""

    SYNCHRONISES = 1
    OF_EVENT = 2
    OF_DEVICE = 4
    STREAM_WAIT = 8
    HOST_WAITS = 16
    EVENT_RECORD = 32
    FINDS_ROOM = 64
    COPIES = 128


class LaidOut(NamedTuple):
    """Columns over the events of a trace, and the lanes they lie on."""

    event_class: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    lane: Codes
    correlation: Ints
    lanes: tuple[str, ...]
    host_lanes: int
    #: Communication of a CPU backend, with the call that asked for it (-1: before the window).
    communications: tuple[tuple[int, int], ...]


_HOST = ("cpu_op",)
_CALLS = ("cuda_runtime", "cuda_driver")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_BLOCKING_COPIES = ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")


def lay_out(trace: KinetoTrace) -> LaidOut:
    """Sorts the events of a trace into classes and lanes."""
    event_class = np.zeros(len(trace), np.uint8)
    event_class[trace.is_category(*_HOST)] = EventClass.HOST
    event_class[trace.is_category(*_CALLS)] = EventClass.CALL
    event_class[trace.is_category(*_DEVICE)] = EventClass.DEVICE
    flags = np.asarray([_flags(name) for name in trace.names], np.uint8)[trace.name]
    correlation = trace.correlation.copy()
    communications = _communications(trace)
    fresh = int(correlation.max(initial=0)) + 1
    for number, (event, post) in enumerate(communications):
        event_class[event] = EventClass.DEVICE
        flags[event] = EventFlag.HOST_WAITS
        correlation[event] = fresh + number
        if post >= 0:
            event_class[post] = EventClass.CALL
            correlation[post] = fresh + number
    marks = step_marks(trace)
    marks = marks[event_class[marks] == EventClass.IGNORED]
    works = (event_class == EventClass.HOST) | (event_class == EventClass.CALL)
    event_class[marks[np.isin(trace.thread[marks], trace.thread[works])]] = EventClass.MARK
    lane, lanes, host_lanes = _lanes(trace, event_class, communications)
    return LaidOut(event_class, flags, lane, correlation, lanes, host_lanes, tuple(communications))


def step_marks(trace: KinetoTrace) -> Ints:
    """The events that mark the profiler's steps."""
    codes = [code for code, name in enumerate(trace.names) if name.startswith("ProfilerStep#")]
    return np.flatnonzero(np.isin(trace.name, codes) & trace.is_category("user_annotation"))


def _flags(name: str) -> int:
    if "StreamWaitEvent" in name:
        return EventFlag.STREAM_WAIT
    if "EventRecord" in name:
        return EventFlag.EVENT_RECORD
    if name.startswith("Memset"):
        return EventFlag.FINDS_ROOM
    if name.startswith(("Memcpy", "Copy")):
        # From and to pinned memory a copy goes on beside its caller.
        is_slow = "Pageable" in name or "Host" in name
        return EventFlag.FINDS_ROOM | (EventFlag.COPIES if is_slow else 0)
    if name in _BLOCKING_COPIES:
        return EventFlag.COPIES
    if "Synchronize" not in name:
        return 0
    flags = EventFlag.SYNCHRONISES
    if "Event" in name:
        flags |= EventFlag.OF_EVENT
    if "Device" in name or "Ctx" in name:
        flags |= EventFlag.OF_DEVICE
    return flags


# -- lanes -----------------------------------------------------------------------------------


def _lanes(
    trace: KinetoTrace, event_class: NDArray[np.uint8], communications: list[tuple[int, int]]
) -> tuple[Codes, tuple[str, ...], int]:
    """Threads, then streams, then what CPU backends communicate; each in order of appearance."""
    lane = np.zeros(len(trace), np.int32)
    on_host = np.isin(event_class, (EventClass.HOST, EventClass.CALL, EventClass.MARK))
    threads = _number(trace.thread, on_host, lane)
    names = _thread_names(trace, threads)
    host_lanes = len(names)
    on_device = event_class == EventClass.DEVICE
    on_device[[event for event, _ in communications]] = False
    # One number for the pair: the device times the number of distinct streams, plus which.
    ids, which = np.unique(trace.stream, return_inverse=True)
    pairs = _number(trace.device * len(ids) + which, on_device, lane, host_lanes)
    names += [f"gpu {pair // len(ids)} stream {ids[pair % len(ids)]}" for pair in pairs]
    of_communication: dict[str, int] = {}
    for event, post in communications:
        name = _communication_lane(trace, event, post)
        lane[event] = len(names) + of_communication.setdefault(name, len(of_communication))
    return lane, (*names, *of_communication), host_lanes


def _number(key: Codes | Ints, where: Flags, lane: Codes, first: int = 0) -> list[int]:
    """Numbers distinct keys by first appearance into `lane`; the keys in that order."""
    rows = np.flatnonzero(where)
    values, at, inverse = np.unique(key[rows], return_index=True, return_inverse=True)
    order = np.argsort(at)
    number = np.empty(len(values), np.int32)
    number[order] = np.arange(len(values))
    lane[rows] = number[inverse] + first
    keys: list[int] = values[order].tolist()
    return keys


def _thread_names(trace: KinetoTrace, threads: Iterable[int]) -> list[str]:
    """Lanes by thread id; with the process in front where two processes share one."""
    keys = [trace.threads[thread] for thread in threads]
    twice = Counter(tid for _, tid in keys)
    return [
        f"process {pid} thread {tid}" if twice[tid] > 1 else f"thread {tid}" for pid, tid in keys
    ]


# -- communication of CPU backends -----------------------------------------------------------


def _communications(trace: KinetoTrace) -> list[tuple[int, int]]:
    """Each recorded communication with the call that asked for it.

    Both carry the operation's name, spelled in two ways, and come in the same order: the earliest
    call not taken yet that began before the communication did is its own.
    """
    operation = {
        code: _plain(name.partition(":")[2])
        for code, name in enumerate(trace.names)
        if name.startswith(CPU_BACKENDS)
    }
    if not operation:
        return []
    is_mark = trace.is_category("user_annotation", "cpu_op")
    found = np.flatnonzero(np.isin(trace.name, list(operation)) & is_mark).tolist()
    asked_by: dict[str, list[int]] = {}
    posts = {code: name for code, name in enumerate(trace.names) if name.startswith("c10d::")}
    rows = np.flatnonzero(np.isin(trace.name, list(posts)) & trace.is_category("cpu_op")).tolist()
    for row in rows:
        asked_by.setdefault(_plain(posts[int(trace.name[row])][len("c10d::") :]), []).append(row)
    communications = []
    for row in found:
        wanted = operation[int(trace.name[row])]
        # By its name; some calls have a longer one (alltoall_base_).
        longer = (c for name, c in asked_by.items() if name.startswith(wanted))
        calls = asked_by.get(wanted) or next(longer, [])
        is_before = bool(calls) and trace.start_ns[calls[0]] <= trace.start_ns[row]
        communications.append((row, calls.pop(0) if is_before else -1))
    return communications


def _plain(name: str) -> str:
    return re.sub("[^a-z]", "", name.lower())


def _communication_lane(trace: KinetoTrace, event: int, post: int) -> str:
    backend, _, operation = trace.name_of(event).partition(":")
    peer = peer_of(trace, post)
    if peer is not None:
        return f"{backend} {operation} {'from' if 'recv' in operation else 'to'} {peer}"
    return f"{backend} {operation} thread {trace.threads[trace.thread[event]][1]}"


def peer_of(trace: KinetoTrace, post: int) -> int | None:
    """The rank that a send or receive call names: the first number among its recorded values."""
    if post < 0 or not trace.name_of(post).startswith(("c10d::send", "c10d::recv")):
        return None
    _, _, values = trace.shapes[trace.shape[post]].rpartition("\t")
    try:
        given = msgspec.json.decode(values, type=list[str])
    except msgspec.DecodeError:
        return None
    return next((int(value) for value in given if value.isdigit()), None)
