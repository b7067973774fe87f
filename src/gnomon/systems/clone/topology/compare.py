"""A clone's own spans beside the original's: the call graph, errors and latency."""

from __future__ import annotations

import math

import msgspec

from gnomon.ingest.spans.call_graph import CallGraph, Edge, Operation

#: What counts as the same: latency at p50 and p99, and how often a call is made, besides chance.
LATENCY_PCT, CALLS_PCT = 15.0, 2.0
#: A rate is off if it is so many standard deviations off.
_DEVIATIONS = 4.0
#: Percentiles of fewer requests are shown and decide nothing, where others have more.
FEWEST = 10


class EdgeRow(msgspec.Struct, frozen=True):
    """How often a request makes a call: in the original and in the clone."""

    caller: Operation | None
    callee: Operation
    original: float
    clone: float
    original_failed_pct: float
    clone_failed_pct: float
    is_same: bool


class LatencyRow(msgspec.Struct, frozen=True):
    """Percentiles in ms (0, 1, ... 100), and how far the clone's are off."""

    operation: Operation
    is_entry: bool
    original_count: int
    clone_count: int
    original_ms: list[float]
    clone_ms: list[float]

    def error_pct(self, percentile: int) -> float:
        original, clone = self.original_ms[percentile], self.clone_ms[percentile]
        return 100.0 * (clone / original - 1.0) if original > 0 else 0.0

    @property
    def is_same(self) -> bool:
        return max(abs(self.error_pct(p)) for p in (50, 99)) <= LATENCY_PCT


class Comparison(msgspec.Struct, frozen=True):
    """All of it.

    Attributes:
        missing: Calls that only the original makes.
        added: Calls that only the clone makes.
    """

    edges: list[EdgeRow]
    latency: list[LatencyRow]
    missing: int
    added: int

    @property
    def has_same_graph(self) -> bool:
        return self.missing == self.added == 0

    @property
    def has_same_rates(self) -> bool:
        return all(row.is_same for row in self.edges)

    @property
    def entries(self) -> list[LatencyRow]:
        """First operations with enough requests; all of them where none has."""
        found = [row for row in self.latency if row.is_entry]
        return [row for row in found if row.original_count >= FEWEST] or found

    def worst_error_pct(self, percentile: int) -> float:
        """Of `entries`; NaN where the clone has none of them."""
        return max((row.error_pct(percentile) for row in self.entries), key=abs, default=math.nan)

    @property
    def matches(self) -> bool:
        is_as_fast = all(row.is_same for row in self.entries)
        return self.has_same_graph and self.has_same_rates and is_as_fast


def compare(original: CallGraph, clone: CallGraph) -> Comparison:
    """The clone beside the original, the most frequent calls first."""
    before = {(one.caller, one.callee): one for one in original.edges}
    after = {(one.caller, one.callee): one for one in clone.edges}
    rows = [
        _edge_row(before.get(edge, Edge(*edge, 0, 0, 0)), after.get(edge, Edge(*edge, 0, 0, 0)),
                  original.requests, clone.requests)
        for edge in {**before, **after}
    ]  # fmt: skip
    rows.sort(key=lambda row: -max(row.original, row.clone))
    timed = {(one.operation, one.is_entry): one for one in clone.latencies}
    latency = [
        LatencyRow(one.operation, one.is_entry, one.count, other.count, one.percentiles_ms,
                   other.percentiles_ms)
        for one in original.latencies
        if (other := timed.get((one.operation, one.is_entry))) is not None
    ]  # fmt: skip
    latency.sort(key=lambda row: -row.original_count)
    return Comparison(rows, latency, len(before.keys() - after.keys()),
                      len(after.keys() - before.keys()))  # fmt: skip


def _edge_row(one: Edge, other: Edge, recorded: int, played: int) -> EdgeRow:
    rate, clone_rate = one.calls / recorded, other.calls / played
    variance = max(one.squares / recorded - rate**2, 0.0)
    # One call more in all: rare ones are made once even where chance would leave them out.
    allowed = CALLS_PCT / 100 * rate + _DEVIATIONS * math.sqrt(variance / played) + 1.5 / played
    failed, clone_failed = (row.failed / max(row.calls, 1) for row in (one, other))
    chance = _DEVIATIONS * math.sqrt(failed * (1 - failed) / max(other.calls, 1))
    is_same = (
        (one.calls > 0) == (other.calls > 0)
        and abs(clone_rate - rate) <= allowed
        and abs(clone_failed - failed) <= CALLS_PCT / 100 + chance
    )
    return EdgeRow(one.caller, one.callee, rate, clone_rate, 100 * failed, 100 * clone_failed,
                   is_same)  # fmt: skip
