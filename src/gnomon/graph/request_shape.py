"""Shapes of requests: which calls a recorded request made, in which order, how long each took.

A shape is one request as it was recorded, without names and dates. Calls are a list, callers
before callees. Times are the gaps between events, in whole microseconds: a shape that is played
again takes as long as the recording, and a call that takes longer delays what waited for it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

#: Bits of `ShapeCall.marks`.
QUEUED, FAILED, UNWAITED, OVERLAPPED = 1, 2, 4, 8


class ShapeCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call of a shape and the visit that it led to.

    Attributes:
        caller: The place of the visit that made it; -1 for the first.
        operation: Its place among `Shapes.operations`.
        after: Places of calls of the same caller that were answered before it was made, without
            those that these waited for in turn.
        delay_us: From the last of those answers, or the caller's begin, until it was made.
        lead_us: Until the callee began.
        rest_us: From the last answer that the callee waited for, or its begin, until its end.
        tail_us: From its end until the caller had the answer; may be below 0.
        marks: QUEUED: a message, nobody waits for an answer. FAILED: the visit ended with an
            error. UNWAITED: the caller ended without the answer. OVERLAPPED: the caller had other
            calls under way when it made this one, so the delay is not its own time.
        request_bytes: 0 where not known.
        response_bytes: 0 where not known.
    """

    caller: int
    operation: int
    after: tuple[int, ...] = ()
    delay_us: int = 0
    lead_us: int = 0
    rest_us: int = 0
    tail_us: int = 0
    marks: int = 0
    request_bytes: int = 0
    response_bytes: int = 0

    @property
    def is_waited(self) -> bool:
        return not self.marks & (QUEUED | UNWAITED)


class Shape(msgspec.Struct, frozen=True, array_like=True):
    """A request and how many recorded ones it stands for."""

    weight: int
    calls: tuple[ShapeCall, ...]


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """An operation of a tier; `tier` is a place in `Shapes.tiers`."""

    tier: int
    name: str


class Shapes(msgspec.Struct, frozen=True):
    """A library of shapes.

    Attributes:
        rate: Requests per second, as recorded.
    """

    tiers: tuple[str, ...]
    operations: tuple[Operation, ...]
    rate: float
    shapes: tuple[Shape, ...]


class Played(NamedTuple):
    """When a call was made and its visit began and ended, since the request began."""

    made_us: int
    begin_us: int
    end_us: int


def children_of(shape: Shape) -> list[list[int]]:
    """By visit: the calls that it makes, in order."""
    found: list[list[int]] = [[] for _ in shape.calls]
    for i, call in enumerate(shape.calls):
        if call.caller >= 0:
            found[call.caller].append(i)
    return found


def play(shape: Shape) -> list[Played]:
    """When everything happens where nothing takes longer than it was recorded to.

    >>> first, then = ShapeCall(0, 1, delay_us=10, rest_us=30), ShapeCall(0, 1, (1,), 2, 1, 7, 1)
    >>> for one in play(Shape(1, (ShapeCall(-1, 0, rest_us=5), first, then))):
    ...     print(one)
    Played(made_us=0, begin_us=0, end_us=56)
    Played(made_us=10, begin_us=10, end_us=40)
    Played(made_us=42, begin_us=43, end_us=50)
    """
    calls, below = shape.calls, children_of(shape)
    made, took = [0] * len(calls), [0] * len(calls)  # since the caller's begin; of a visit
    for i in range(len(calls) - 1, -1, -1):  # callees first
        last = 0
        answered: dict[int, int] = {}
        for j in below[i]:
            call = calls[j]
            made[j] = max((answered[k] for k in call.after), default=0) + call.delay_us
            answered[j] = made[j] + call.lead_us + took[j] + call.tail_us
            if call.is_waited:
                last = max(last, answered[j])
        took[i] = last + calls[i].rest_us
    found: list[Played] = []
    for call, made_us, took_us in zip(calls, made, took):
        start = found[call.caller].begin_us + made_us if call.caller >= 0 else made_us
        begin = start + call.lead_us
        found.append(Played(start, begin, begin + took_us))
    return found
