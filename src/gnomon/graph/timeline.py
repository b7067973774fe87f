"""Timeline: when each task of a graph started and ended, and what that says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.graph._columns import frozen
from gnomon.graph.column_types import Codes, Flags, Floats, Ints
from gnomon.graph.workgraph import WorkGraph

if TYPE_CHECKING:
    from gnomon.graph.breakdown import Breakdown
    from gnomon.graph.compare import TimelineDiff
    from gnomon.graph.critical import CriticalPath

_MOST_CELLS = 10**8


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """Starts and ends of a graph's tasks, from a replay or as recorded.

    `ends` is None when every task ends `duration` after its start (half of the memory of a large
    replay). A replay also leaves `cause` and `reason`: which task held this one back longest, and
    how; a recorded timeline has none.

    >>> g = WorkGraph.from_columns(["cpu", "gpu"], [10, 50], kind=["host", "kernel"])
    >>> line = Timeline(g, np.array([0, 10]))
    >>> line
    Timeline(2 tasks, 60 ns)
    >>> line.breakdown().exposed_ns("kernel")
    50
    """

    graph: WorkGraph
    start_ns: Ints
    ends: Ints | None = None
    cause: Codes | None = None
    reason: NDArray[np.uint8] | None = None
    method: str = "recorded"

    def __post_init__(self) -> None:
        for column in ("start_ns", "ends", "cause", "reason"):
            values = getattr(self, column)
            if values is None:
                continue
            if len(values) != len(self.graph):
                raise InputError(f"{len(values)} rows of {column} for {len(self.graph)} tasks")
            object.__setattr__(self, column, frozen(values))

    def __len__(self) -> int:
        return len(self.start_ns)

    def __repr__(self) -> str:
        from gnomon.units import format_duration

        return f"Timeline({len(self):,} tasks, {format_duration(self.makespan_ns)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return (
            np.array_equal(self.start_ns, other.start_ns)
            and np.array_equal(self.end_ns, other.end_ns)
            and self.graph == other.graph
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def end_ns(self) -> Ints:
        """End of each task."""
        return self.ends if self.ends is not None else self.start_ns + self.graph.duration_ns

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    @cached_property
    def begin_ns(self) -> int:
        """Start of the first task."""
        return int(self.start_ns.min()) if len(self) else 0

    @cached_property
    def makespan_ns(self) -> int:
        """From the first start to the last end."""
        return int(self.end_ns.max()) - self.begin_ns if len(self) else 0

    def breakdown(self, classes: Mapping[str, Sequence[str]] | None = None) -> Breakdown:
        """Where the time goes: exposed, overlapped and idle time by class of kinds.

        Args:
            classes: Name of each class and the kinds in it; kinds left out are not counted. By
                default each kind is a class of its own.
        """
        from gnomon.graph.breakdown import breakdown

        return breakdown(self, classes)

    def critical_path(self, last: int | None = None) -> CriticalPath:
        """The chain of tasks that made the end as late as it is (or one task's end)."""
        from gnomon.graph.critical import critical_path

        return critical_path(self, last)

    def compare(self, other: Timeline) -> TimelineDiff:
        """What the other timeline does differently: total, by kind, by name."""
        from gnomon.graph.compare import compare

        return compare(self, other)

    def utilisation(self, bin_ns: int, lanes: Sequence[int] | None = None) -> Floats:
        """Busy fraction of each lane in each bin of time; a row per lane.

        >>> g = WorkGraph.from_columns(["a", "a"], [5, 10])
        >>> Timeline(g, np.array([0, 10])).utilisation(10).tolist()
        [[0.5, 1.0]]
        """
        chosen = list(range(len(self.graph.lanes))) if lanes is None else list(lanes)
        # Tasks sorted by lane once: a mask a lane would cost lanes x tasks.
        order = np.argsort(self.graph.lane, kind="stable")
        first = np.searchsorted(
            self.graph.lane, np.arange(len(self.graph.lanes) + 1), sorter=order
        )
        bins = self._bins(bin_ns)
        if bins * max(len(chosen), 1) > _MOST_CELLS:
            raise InputError(
                f"{bins:,} bins of {bin_ns} ns for {len(chosen)} lanes are too many",
                hint="give wider bins",
            )
        table = np.zeros((len(chosen), bins))
        for row, lane in enumerate(chosen):
            table[row] = self._busy(order[first[lane] : first[lane + 1]], bin_ns)
        return table

    def busy_fraction(self, tasks: Flags, bin_ns: int) -> Floats:
        """Fraction of each bin in which at least one of the chosen tasks ran."""
        return self._busy(np.flatnonzero(tasks), bin_ns)

    def _bins(self, bin_ns: int) -> int:
        if bin_ns <= 0:
            raise InputError(f"a bin of {bin_ns} ns; give a positive width")
        return max(1, -(-self.makespan_ns // bin_ns))

    def _busy(self, tasks: Ints, bin_ns: int) -> Floats:
        bins = self._bins(bin_ns)
        start, end = union_of_spans(self.start_ns[tasks], self.end_ns[tasks])
        edges = self.begin_ns + bin_ns * np.arange(bins + 1, dtype=np.int64)
        edges[-1] = min(edges[-1], self.begin_ns + max(self.makespan_ns, 1))
        return np.diff(covered_until(start, end, edges)) / np.diff(edges)

    def cut(self, start_ns: int, end_ns: int) -> Timeline:
        """The tasks that run at some time in [start, end), shortened to what lies inside.

        Times count from `start_ns` in the result. Causes are dropped: they may lie outside.
        """
        from gnomon.graph.edit import select

        if end_ns <= start_ns:
            raise InputError(f"the window [{start_ns}, {end_ns}) ns is empty")
        inside = (self.start_ns < end_ns) & (self.end_ns > start_ns)
        # A task without length belongs to the window that holds its instant.
        inside |= (
            (self.start_ns == self.end_ns) & (self.start_ns >= start_ns) & (self.start_ns < end_ns)
        )
        start = np.clip(self.start_ns[inside], start_ns, end_ns)
        end = np.clip(self.end_ns[inside], start_ns, end_ns)
        clipped = (end - start) - (self.end_ns[inside] - self.start_ns[inside])
        graph = select(self.graph, inside)
        # Waits and slowed tasks last longer than their duration; what is cut off is cut from it.
        graph = graph.with_durations(np.maximum(graph.duration_ns + clipped, 0))
        return Timeline(graph, start - start_ns, end - start_ns)

    def save(self, path: str | Path) -> None:
        """Writes graph and times as one Arrow file."""
        from gnomon.graph.store import save_timeline

        save_timeline(self, path)

    @staticmethod
    def load(path: str | Path) -> Timeline:
        """Reads what `save` wrote."""
        from gnomon.graph.store import load_timeline

        return load_timeline(path)


def union_of_spans(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Overlapping spans melted into disjoint ones, in order.

    >>> union_of_spans(np.array([0, 5, 20]), np.array([10, 12, 30]))
    (array([ 0, 20]), array([12, 30]))
    """
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate([[True], start[1:] > end[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return start[opens], end[closes]


def covered_until(start: Ints, end: Ints, at: Ints) -> Ints:
    """How much of the disjoint spans lies before each instant."""
    total = np.concatenate([[0], np.cumsum(end - start)])
    begun = np.searchsorted(start, at, side="right")
    last = np.maximum(begun - 1, 0)
    open_part = np.minimum(at, end[last]) - start[last] if len(start) else np.zeros_like(at)
    return np.where(begun > 0, total[last] + open_part, 0)
