"""Host threads: nested profiler events laid flat into pieces that follow one another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnomon.ingest.kineto import KinetoTrace

#: Owner of a piece in which the profiler saw nothing: time between operators.
GAP = -1


class Piece(NamedTuple):
    """A stretch of a thread inside one innermost event (or a gap)."""

    start_ns: int
    end_ns: int
    owner: int


def host_events(trace: KinetoTrace) -> dict[int, list[int]]:
    """Events of each host thread, in order. Python frames and annotations hold others' time."""
    chosen = np.flatnonzero(trace.is_category("cpu_op", "cuda_runtime", "cuda_driver"))
    threads: dict[int, list[int]] = {}
    for event, thread in zip(chosen.tolist(), trace.thread[chosen].tolist()):
        threads.setdefault(thread, []).append(event)
    return threads


def flatten(
    start: list[int], end: list[int], events: list[int], begin_ns: int, calls: set[int]
) -> list[Piece]:
    """One thread's events, nested as they are, as pieces that touch and never overlap.

    Each piece belongs to the innermost event; time outside all events becomes gaps, so nothing of
    the thread's time is lost. A call (of the runtime) that is all covered, or recorded without
    length, still gets an empty piece: something may be waiting for it.

    Args:
        start: Start of each event of the trace; `end` likewise.
        events: The thread's events by start, parents before their children.
        begin_ns: Where the thread's time begins.
        calls: Events that must not vanish.
    """
    pieces: list[Piece] = []
    stack: list[int] = []
    seen: set[int] = set()
    cursor = begin_ns

    def emit(until: int, owner: int) -> None:
        nonlocal cursor
        if until > cursor:
            pieces.append(Piece(cursor, until, owner))
            seen.add(owner)
            cursor = until

    def close() -> None:
        event = stack.pop()
        emit(end[event], event)
        if event in calls and event not in seen:
            pieces.append(Piece(cursor, cursor, event))

    for event in events:
        while stack and end[stack[-1]] <= start[event]:
            close()
        emit(start[event], stack[-1] if stack else GAP)
        stack.append(event)
    while stack:
        close()
    return pieces
