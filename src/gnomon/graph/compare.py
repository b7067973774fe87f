"""Two timelines beside one another."""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.graph.timeline import Timeline
from gnomon.table import Table


class TimelineDiff(msgspec.Struct, frozen=True, eq=False):
    """What changed from one timeline to another: the total, and tables by kind and by name."""

    before_ns: int
    after_ns: int
    by_kind: Table
    by_name: Table

    @property
    def change(self) -> float:
        """Relative change of the makespan: 0.03 is three per cent slower."""
        return self.after_ns / self.before_ns - 1.0 if self.before_ns else 0.0


def compare(before: Timeline, after: Timeline) -> TimelineDiff:
    """See Timeline.compare.

    >>> from gnomon.graph import WorkGraph
    >>> g = WorkGraph.from_columns(["a"], [100], kind="kernel")
    >>> before = Timeline(g, np.array([0]))
    >>> diff = compare(before, Timeline(g.with_durations([150]), np.array([0])))
    >>> diff.change, diff.by_kind["change_ns"].tolist()
    (0.5, [50])
    """
    return TimelineDiff(
        before.makespan_ns,
        after.makespan_ns,
        _by(before, after, "kind"),
        _by(before, after, "name"),
    )


def _by(before: Timeline, after: Timeline, column: str) -> Table:
    old, new = _totals(before, column), _totals(after, column)
    # Widest change first; ties by text, so that the same inputs give the same table.
    keys = sorted(
        old.keys() | new.keys(),
        key=lambda k: (-abs(new.get(k, (0, 0))[0] - old.get(k, (0, 0))[0]), k),
    )
    rows = [(*old.get(k, (0, 0)), *new.get(k, (0, 0))) for k in keys]
    values = np.asarray(rows, np.int64).reshape(-1, 4)
    return Table(
        f"by {column}",
        {
            column: keys,
            "before_ns": values[:, 0],
            "after_ns": values[:, 2],
            "change_ns": values[:, 2] - values[:, 0],
            "before_tasks": values[:, 1],
            "after_tasks": values[:, 3],
        },
        units={"before_ns": "ns", "after_ns": "ns", "change_ns": "ns"},
    )


def _totals(timeline: Timeline, column: str) -> dict[str, tuple[int, int]]:
    graph = timeline.graph
    codes = getattr(graph, column)
    texts = getattr(graph, f"{column}s")
    spent = timeline.end_ns - timeline.start_ns
    # Sums of int64 through float weights would lose nanoseconds past 2**53.
    total = np.zeros(len(texts), np.int64)
    np.add.at(total, codes, spent)
    count = np.bincount(codes, minlength=len(texts))
    return {t: (int(s), int(c)) for t, s, c in zip(texts, total, count) if c}
