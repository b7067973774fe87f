"""Where the time goes: exposed, overlapped, idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph.column_types import Ints
from gnomon.graph.timeline import Timeline

_MOST_CLASSES = 8


class Breakdown(msgspec.Struct, frozen=True, eq=False):
    """Time by set of active classes, a rank per row.

    `time_ns[rank, set]` is how long exactly the classes of the bit set were active; the sets of a
    rank add up to the makespan. Exposed time of a class is time in which nothing else ran.

    >>> from gnomon.graph import WorkGraph
    >>> g = WorkGraph.from_columns(["a", "b"], [100, 60], kind=["compute", "comm"])
    >>> b = Timeline(g, np.array([0, 80])).breakdown()
    >>> b.exposed_ns("compute"), b.exposed_ns("comm"), b.overlapped_ns, b.idle_ns
    (80, 40, 20, 0)
    """

    classes: tuple[str, ...]
    ranks: tuple[int, ...]
    time_ns: Ints
    makespan_ns: int

    def _sets(self) -> Ints:
        return np.arange(self.time_ns.shape[1])

    def _mean(self, per_rank: Ints) -> int:
        return round(float(per_rank.mean())) if len(per_rank) else 0

    def exposed_by_rank(self, name: str) -> Ints:
        """Time in which only this class ran, rank by rank."""
        return self.time_ns[:, 1 << self._index(name)]

    def overlapped_by_rank(self) -> Ints:
        """Time in which two classes or more ran, rank by rank."""
        several = np.asarray([int(s).bit_count() > 1 for s in self._sets()])
        return np.asarray(self.time_ns[:, several].sum(axis=1), np.int64)

    def idle_by_rank(self) -> Ints:
        """Time in which no class ran, rank by rank."""
        return self.time_ns[:, 0]

    def exposed_ns(self, name: str) -> int:
        """Exposed time of a class, mean over ranks."""
        return self._mean(self.exposed_by_rank(name))

    @property
    def overlapped_ns(self) -> int:
        """Time with two classes or more, mean over ranks."""
        return self._mean(self.overlapped_by_rank())

    @property
    def idle_ns(self) -> int:
        """Time with no class, mean over ranks."""
        return self._mean(self.idle_by_rank())

    def _index(self, name: str) -> int:
        if name not in self.classes:
            raise InputError(f"no class {name!r}; there are {', '.join(self.classes)}")
        return self.classes.index(name)


def breakdown(timeline: Timeline, classes: Mapping[str, Sequence[str]] | None) -> Breakdown:
    """See Timeline.breakdown."""
    graph = timeline.graph
    if classes is None:
        used = [graph.kinds[code] for code in np.unique(graph.kind).tolist()]
        classes = {kind: (kind,) for kind in used}
    if len(classes) > _MOST_CLASSES:
        raise InputError(
            f"{len(classes)} classes; at most {_MOST_CLASSES} can be distinguished",
            hint="give `classes` that gather several kinds",
        )
    class_of_kind = np.full(256, 255, np.uint8)
    for code, kinds in enumerate(classes.values()):
        for kind in kinds:
            if kind in graph.kinds:
                class_of_kind[graph.kinds.index(kind)] = code
    rank_of_task = None
    ranks = (0,)
    if graph.rank is not None and len(graph):
        found, inverse = np.unique(graph.rank, return_inverse=True)
        ranks, rank_of_task = tuple(found.tolist()), inverse.astype(np.int32)
    counted = _core.class_overlap(
        timeline.start_ns, timeline.end_ns, class_of_kind[graph.kind], rank_of_task,
        len(ranks), len(classes),
    ).reshape(len(ranks), -1)  # fmt: skip
    time_ns = np.array(counted)
    # The sweep sees idle time between spans only; a rank also idles before and after its own.
    time_ns[:, 0] = timeline.makespan_ns - time_ns[:, 1:].sum(axis=1)
    return Breakdown(tuple(classes), ranks, time_ns, timeline.makespan_ns)
