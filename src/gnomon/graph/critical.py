"""The critical path: which tasks, tied by what, made the end as late as it is."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import msgspec
import numpy as np

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph.column_types import Ints
from gnomon.graph.timeline import Timeline
from gnomon.graph.workgraph import WorkGraph


class Reason(IntEnum):
    """How a task was held back by its cause: `Reason` of native/engine/replay/replay.hpp."""

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

    tasks: Ints
    link: tuple[str, ...]
    share_ns: Ints
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
    if not 0 <= last < len(timeline):
        raise InputError(f"task {last} does not exist, there are {len(timeline)}")
    path = _core.follow_causes(timeline.cause, last)[::-1].astype(np.int64)
    reasons = timeline.reason[path]
    # Where the path leaves each task: at its end, or at its start when the next one on the path
    # merely met it at a rendezvous.
    leaves = timeline.end_ns[path].copy()
    met = np.flatnonzero(reasons[1:] == Reason.RENDEZVOUS)
    leaves[met] = timeline.start_ns[path[met]]
    share = np.diff(leaves, prepend=timeline.start_ns[path[0]])
    link = ["start", *(_WORDS[reason] for reason in reasons[1:].tolist())]
    for hop, kind in _edge_kinds(graph, path, np.flatnonzero(reasons == Reason.EDGE)):
        link[hop] = kind
    kinds = np.bincount(graph.kind[path], weights=share, minlength=len(graph.kinds))
    by_kind = {kind: round(float(t)) for kind, t in zip(graph.kinds, kinds) if t > 0}
    return CriticalPath(path, tuple(link), share, by_kind, dict(Counter(link)))


_WORDS = {reason.value: reason.name.lower() for reason in Reason}


def _edge_kinds(graph: WorkGraph, path: Ints, hops: Ints) -> list[tuple[int, str]]:
    """The kind of the edge into each of these places of the path, all looked up at once."""
    source, target = path[hops - 1], path[hops]
    first, count = graph.edge_offset[source], np.diff(graph.edge_offset)[source]
    # The edges of all sources laid end to end: which hop each belongs to, and where it lies.
    owner = np.repeat(np.arange(len(hops)), count)
    edge = np.repeat(first - (np.cumsum(count) - count), count) + np.arange(count.sum())
    found = np.flatnonzero(graph.edge_target[edge] == target[owner])[::-1]  # the first wins
    return [(int(hops[owner[i]]), graph.edge_kinds[graph.edge_kind[edge[i]]]) for i in found]
