"""Who calls whom in recorded spans, how often, and how long it takes: for comparisons.

One analyser for any spans, so that those of a clone and those of its original are read alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from gnomon.ingest.spans.calls import Visits

#: Tier and name.
Operation = tuple[str, str]
#: Percentiles that are kept of latency: a percentile is its own place.
_GRID = range(101)


class Edge(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one operation by another.

    Attributes:
        caller: None for a request of a client.
        callee: Who is called.
        calls: All of them.
        failed: Those that ended with an error.
        squares: The sum over requests of the square of how often a request makes it: how much the
            number varies.
    """

    caller: Operation | None
    callee: Operation
    calls: int
    failed: int
    squares: int


class Latency(msgspec.Struct, frozen=True, array_like=True):
    """How long visits of an operation take, calls included.

    Attributes:
        is_entry: Of requests that begin with it; else of all visits.
        percentiles_ms: 0, 1, ... 100.
    """

    operation: Operation
    is_entry: bool
    count: int
    percentiles_ms: list[float]


class CallGraph(msgspec.Struct, frozen=True):
    """The edges and latencies of so many requests."""

    requests: int
    edges: list[Edge]
    latencies: list[Latency]


def call_graph(found: Visits) -> CallGraph:
    """The call graph of visits."""
    visits = found.visits
    made: dict[tuple[Operation | None, Operation], Counter[int]] = {}
    failed: Counter[tuple[Operation | None, Operation]] = Counter()
    times_ms: dict[tuple[Operation, bool], list[float]] = {}
    request: list[int] = []  # of each visit: the place of the first
    for i, visit in enumerate(visits):
        request.append(i if visit.parent < 0 else request[visit.parent])
        own = visit.service, visit.operation
        above = visits[visit.parent] if visit.parent >= 0 else None
        edge = None if above is None else (above.service, above.operation), own
        made.setdefault(edge, Counter())[request[i]] += 1
        failed[edge] += visit.is_failed
        took_ms = (visit.end_ns - visit.start_ns) / 1e6
        times_ms.setdefault((own, False), []).append(took_ms)
        if above is None:
            times_ms.setdefault((own, True), []).append(took_ms)
    return CallGraph(
        sum(visit.parent < 0 for visit in visits),
        [Edge(*edge, times.total(), failed[edge], sum(n * n for n in times.values()))
         for edge, times in made.items()],
        [Latency(own, is_entry, len(times), _percentiles(times))
         for (own, is_entry), times in times_ms.items()],
    )  # fmt: skip


def _percentiles(times_ms: Sequence[float]) -> list[float]:
    # Of a few recorded requests that are played again and again, straight lines between two would
    # not come up again; the requests themselves do.
    found = np.percentile(times_ms, list(_GRID), method="inverted_cdf")
    return [float(f"{ms:.4g}") for ms in found]
