"""Which kernel of another stream did this one wait for? Inferred: ordinary traces do not say.

A trace shows that the host asked a stream to wait for an event, not for which. What it does show
is time. A kernel that waited starts a moment after the kernel it waited for has ended: not at once
(the stream must see the event first; about 1.3 us on an H200), and not much later. A start sooner
than that is something else: a kernel that was only waiting for room on the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["InferredWait", "Span", "infer_waits"]

#: A stream cannot see another's event sooner than this.
_SOONEST_NS = 1_000
#: Most waits end within this; up to the longest we believe it, but less.
_USUAL_NS = 3_000
_LONGEST_NS = 10_000
#: Below this the stream's own kernels or the launch explain the start as well.
_SHORTEST_GAP_NS = 2_000


class Span(msgspec.Struct, frozen=True):
    """A kernel on its stream.

    Attributes:
        stream: Its lane.
        start_ns: When it started.
        end_ns: When it ended.
        ready_ns: When it could have started by its launch and its own stream alone.
        launched_ns: When the host asked for it; -1 when that lies before the trace.
        may_wait: Whether the host asked its stream to wait for an event just before.
    """

    stream: str
    start_ns: int
    end_ns: int
    ready_ns: int
    launched_ns: int
    may_wait: bool


class InferredWait(msgspec.Struct, frozen=True):
    """Span `target` waited for span `source`, with this confidence (0 to 1)."""

    source: int
    target: int
    confidence: float


def infer_waits(spans: Sequence[Span]) -> list[InferredWait]:
    """The waits between streams that held a kernel back.

    A wait that did not bind (its event came before the kernel could have started anyway) leaves no
    mark in time, and none is inferred.

    >>> first = Span("a", 0, 100_000, 0, 0, False)
    >>> infer_waits([first, Span("b", 101_300, 150_000, 9_000, 5_000, True)])
    [InferredWait(source=0, target=1, confidence=0.9)]
    """
    streams: dict[str, list[tuple[int, int]]] = {}
    for number, span in enumerate(spans):
        streams.setdefault(span.stream, []).append((span.end_ns, number))
    for ends in streams.values():
        ends.sort()
    found = [_source_of(number, spans, streams) for number in range(len(spans))]
    return [wait for wait in found if wait is not None]


def _source_of(
    number: int, spans: Sequence[Span], streams: Mapping[str, list[tuple[int, int]]]
) -> InferredWait | None:
    span = spans[number]
    if not span.may_wait or span.start_ns - span.ready_ns < _SHORTEST_GAP_NS:
        return None
    candidates = []
    for stream, ends in streams.items():
        if stream == span.stream:
            continue
        at = bisect_right(ends, (span.start_ns - _SOONEST_NS, len(spans))) - 1
        if at < 0:
            continue
        end_ns, other = ends[at]
        is_in_time = end_ns > max(span.ready_ns, span.start_ns - _LONGEST_NS)
        if is_in_time and spans[other].launched_ns <= span.launched_ns:
            candidates.append((end_ns, other))
    if not candidates:
        return None
    end_ns, source = max(candidates)
    rivals = sum(end > end_ns - _SOONEST_NS for end, _ in candidates) - 1
    usual = span.start_ns - end_ns <= _USUAL_NS
    return InferredWait(source, number, round((0.9 if usual else 0.6) / (1 + rivals), 3))
