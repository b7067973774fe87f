"""Shapes of recorded requests: visits of services as calls with the gaps between them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from gnomon.graph.request_shape import (
    FAILED,
    OVERLAPPED,
    QUEUED,
    UNWAITED,
    Operation,
    Shape,
    ShapeCall,
    Shapes,
)
from gnomon.ingest.spans.calls import Visit, Visits

#: A call that ends so little, of its own length, after the next was made was answered before it.
_SAME = 0.02
#: Tracers round: a call that ends so little after its caller was waited for.
_ROUNDED_NS = 2_000


def find_shapes(found: Visits, *, rate: float) -> Shapes:
    """Every request as a shape of its own, in order; operations are numbered as they come up."""
    visits = found.visits
    below: list[list[int]] = [[] for _ in visits]
    for i, visit in enumerate(visits):
        if visit.parent >= 0:
            below[visit.parent].append(i)
    tiers: dict[str, int] = {}
    operations: dict[tuple[str, str], int] = {}
    for visit in visits:
        tiers.setdefault(visit.service, len(tiers))
        operations.setdefault((visit.service, visit.operation), len(operations))
    shapes = [
        Shape(1, _calls(visits, below, i, operations))
        for i, visit in enumerate(visits)
        if visit.parent < 0
    ]
    named = tuple(Operation(tiers[service], name) for service, name in operations)
    return Shapes(tuple(tiers), named, rate, tuple(shapes))


class _Made:
    """One call as its caller saw it."""

    def __init__(self, visit: Visit, caller: Visit | None) -> None:
        self.visit = visit
        if caller is None:
            self.made_ns, self.answered_ns = visit.start_ns, visit.end_ns
        else:
            made = visit.sent_ns if visit.is_queued else visit.call_start_ns
            self.made_ns = min(max(made, caller.start_ns), caller.end_ns)
            self.answered_ns = max(visit.call_end_ns, self.made_ns)
        self.lead_ns = max(visit.start_ns - self.made_ns, 0)
        self.is_queued = caller is not None and visit.is_queued
        self.is_waited = caller is None or (
            not self.is_queued and self.answered_ns <= caller.end_ns + _ROUNDED_NS
        )
        self.after: list[int] = []
        self.delay_ns = self.rest_ns = 0
        self.is_overlapped = False

    def call(self, caller: int, operation: int, places: Sequence[int]) -> ShapeCall:
        visit = self.visit
        took_ns = self.lead_ns + visit.end_ns - visit.start_ns
        tail_ns = self.answered_ns - self.made_ns - took_ns if self.is_waited else 0
        marks = QUEUED * self.is_queued | FAILED * visit.is_failed
        if not self.is_queued:
            marks |= UNWAITED * (not self.is_waited) | OVERLAPPED * self.is_overlapped
        return ShapeCall(
            caller, operation, tuple(places[i] for i in self.after), _us(self.delay_ns),
            _us(self.lead_ns), _us(self.rest_ns), _us(tail_ns), marks, visit.request_bytes,
            visit.response_bytes,
        )  # fmt: skip


def _calls(
    visits: Sequence[Visit], below: Sequence[Sequence[int]], top: int,
    operations: dict[tuple[str, str], int],
) -> tuple[ShapeCall, ...]:  # fmt: skip
    calls: list[ShapeCall] = []
    # Callers before callees; a place in this list is a place in the shape.
    left = [(top, -1, _Made(visits[top], None), range(0))]
    at = 0
    while at < len(left):
        i, caller, made, places = left[at]
        visit = visits[i]
        own = [(_Made(visits[j], visit), j) for j in below[i]]
        own.sort(key=lambda one: one[0].made_ns)
        made.rest_ns = _set_gaps(visit, [one for one, _ in own])
        mine = range(len(left), len(left) + len(own))
        calls.append(made.call(caller, operations[visit.service, visit.operation], places))
        left += [(j, at, one, mine) for one, j in own]
        at += 1
    return tuple(calls)


def _set_gaps(visit: Visit, made: Sequence[_Made]) -> int:
    """What each call waited for and how long after that it was made; the rest of the visit.

    Calls are in the order in which they were made. A call waits for all that were answered before
    it was made; what one of those waited for already is left out.
    """
    for one, following in itertools.pairwise(made):
        late_ns = one.answered_ns - following.made_ns
        took_ns = one.answered_ns - one.made_ns
        if 0 < late_ns <= _SAME * took_ns and following.answered_ns >= one.answered_ns:
            one.answered_ns = following.made_ns
    running: list[tuple[int, int]] = []  # by when they are answered
    answered: list[int] = []
    latest_ns, made_ns = visit.start_ns, visit.start_ns
    for i, one in enumerate(made):
        while running and running[0][0] <= one.made_ns:
            latest_ns, j = heapq.heappop(running)
            answered.append(j)
            made_ns = max(made_ns, made[j].made_ns)
        if not one.is_queued:
            one.is_overlapped = bool(running)
        for j in reversed(answered):
            if made[j].answered_ns < made_ns:
                break
            one.after.append(j)
        one.after.sort()
        one.delay_ns = one.made_ns - latest_ns
        if one.is_waited:
            heapq.heappush(running, (one.answered_ns, i))
    last_ns = max((one.answered_ns for one in made if one.is_waited), default=visit.start_ns)
    return max(visit.end_ns - max(last_ns, visit.start_ns), 0)


def _us(ns: int) -> int:
    return round(ns / 1000)
