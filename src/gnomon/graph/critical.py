"""The critical path: which tasks, tied by what, made the end as late as it is."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph.timeline import Timeline

__all__ = ["CriticalPath", "Reason", "critical_path"]


class Reason(IntEnum):
    """How a task was held back by its cause. Mirrors `Reason` of native/engine/replay.hpp."""

    NONE = 0
    LANE = 1
    EDGE = 2
    RENDEZVOUS = 3
    WAIT = 4
    RESOURCE = 5


class CriticalPath(msgspec.Struct, frozen=True, eq=False):
    """A chain of tasks in time order; `share_ns` of each adds up to `length_ns`.

    `link[i]` says how task i was held back by the one before it: 'lane', 'rendezvous', 'wait',
    'resource', or the kind of the edge. The first has 'start'.
    """

    tasks: NDArray[np.int64]
    link: tuple[str, ...]
    share_ns: NDArray[np.int64]
    by_kind_ns: dict[str, int]
    by_link: dict[str, int]

    @property
    def length_ns(self) -> int:
        """From the start of the first task to the end of the last."""
        return int(self.share_ns.sum())

    def __len__(self) -> int:
        return len(self.tasks)


def critical_path(timeline: Timeline, last: int | None = None) -> CriticalPath:
    """See Timeline.critical_path."""
    graph = timeline.graph
    if timeline.cause is None or timeline.reason is None:
        raise InputError(
            "the timeline does not say what held its tasks back",
            hint="replay it with causes=True; a recorded timeline has none",
        )
    if not len(timeline):
        empty = np.empty(0, np.int64)
        return CriticalPath(empty, (), empty, {}, {})
    if last is None:
        last = int(np.argmax(timeline.end_ns))
    path = _core.follow_causes(timeline.cause, last)[::-1].astype(np.int64)
    reasons = timeline.reason[path]
    # Where the path leaves each task: at its end, or at its start when the next one on the path
    # merely met it at a rendezvous.
    leaves = timeline.end_ns[path].copy()
    met = np.flatnonzero(reasons[1:] == Reason.RENDEZVOUS)
    leaves[met] = timeline.start_ns[path[met]]
    share = np.diff(leaves, prepend=timeline.start_ns[path[0]])
    link = ["start"]
    for before, task, reason in zip(path[:-1].tolist(), path[1:].tolist(), reasons[1:].tolist()):
        if reason == Reason.EDGE:
            link.append(graph.edge_kind_between(before, task) or "edge")
        else:
            link.append(Reason(reason).name.lower())
    kinds = np.bincount(graph.kind[path], weights=share, minlength=len(graph.kinds))
    by_kind = {kind: round(float(t)) for kind, t in zip(graph.kinds, kinds) if t > 0}
    return CriticalPath(path, tuple(link), share, by_kind, dict(Counter(link)))
