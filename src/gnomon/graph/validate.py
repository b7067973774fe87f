"""What makes a graph playable, and words for what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GraphError
from gnomon.graph._columns import LONGEST_NS
from gnomon.graph.workgraph import WorkGraph


def validate(graph: WorkGraph) -> None:
    """Raises GraphError at the first thing that is wrong.

    >>> WorkGraph.from_columns(["a"], [1], name=["x"], edges=([0], [0]))
    Traceback (most recent call last):
    gnomon.errors.GraphError: the graph has a cycle: task 0 ('x' on 'a') -> task 0
    """
    _check_lengths(graph)
    _check_codes(graph)
    check_durations(graph)
    _check_groups(graph)
    _check_waits(graph)
    _check_cycles(graph)


def _check_lengths(graph: WorkGraph) -> None:
    n = len(graph)
    for column in ("duration_ns", "kind", "name", "bytes", "flops", "rank", "group"):
        values = getattr(graph, column)
        if values is not None and len(values) != n:
            raise GraphError(f"column {column!r} has {len(values)} rows, 'lane' has {n}")
    offset = graph.edge_offset
    if len(offset) != n + 1 or offset[0] != 0 or np.any(offset[1:] < offset[:-1]):
        raise GraphError("edge offsets do not rise from 0 over all tasks")
    if offset[-1] != graph.n_edges or len(graph.edge_kind) != graph.n_edges:
        raise GraphError(
            f"edge columns disagree: offsets end at {offset[-1]}, "
            f"{graph.n_edges} targets, {len(graph.edge_kind)} kinds"
        )


def _check_codes(graph: WorkGraph) -> None:
    n = len(graph)
    _within(graph.lane, len(graph.lanes), lambda i, v: f"task {i} is on unknown lane {v}")
    _within(graph.kind, len(graph.kinds), lambda i, v: f"task {i} has unknown kind {v}")
    _within(graph.name, len(graph.names), lambda i, v: f"task {i} has unknown name {v}")
    _within(graph.edge_target, n, lambda i, v: f"edge {i} ends at task {v}, there are {n}")
    _within(graph.edge_kind, len(graph.edge_kinds), lambda i, v: f"edge {i} has unknown kind {v}")
    if graph.rank is not None:
        _within(graph.rank, 2**31 - 1, lambda i, v: f"task {i} has rank {v}")


def _within(values: NDArray[Any], limit: int, say: Any) -> None:
    if not len(values) or (int(values.min()) >= 0 and int(values.max()) < limit):
        return
    bad = int(np.flatnonzero((values < 0) | (values >= limit))[0])
    raise GraphError(say(bad, int(values[bad])))


def check_durations(graph: WorkGraph) -> None:
    """Raises at the first negative duration, or when a sum along a path could overflow."""
    duration = graph.duration_ns
    if not len(duration):
        return
    if int(duration.min()) < 0:
        bad = int(np.argmax(duration < 0))
        raise GraphError(f"{graph.describe(bad)} has a negative duration, {duration[bad]} ns")
    # In floating point the sum cannot wrap around, and the bound leaves room for rounding.
    if float(duration.sum(dtype=np.float64)) >= LONGEST_NS:
        raise GraphError("durations add up to more than a century; are they in nanoseconds?")


def _check_groups(graph: WorkGraph) -> None:
    if graph.group is None:
        return
    # Group numbers are sizes of arrays in the engine: no more of them than there are tasks.
    _within(graph.group + np.int32(1), len(graph) + 1, _wrong_group)
    member = np.flatnonzero(graph.group >= 0)
    if not len(member):
        return
    lane, group = graph.lane[member], graph.group[member]
    order = np.lexsort((lane, group))
    same = (lane[order][1:] == lane[order][:-1]) & (group[order][1:] == group[order][:-1])
    if np.any(same):
        at = int(np.argmax(same))
        first, second = member[order[at]], member[order[at + 1]]
        raise GraphError(
            f"{graph.describe(int(first))} and task {second} of the same lane are in rendezvous "
            f"group {graph.group[first]}; they can never start together"
        )


def _wrong_group(task: int, shifted: int) -> str:
    return f"task {task} is in rendezvous group {shifted - 1}; groups are numbered from 0"


def _check_waits(graph: WorkGraph) -> None:
    task, lane = graph.wait_task, graph.wait_lane
    if (task is None) != (lane is None):
        raise GraphError("run-time waits need both columns, wait_task and wait_lane")
    if task is None or lane is None:
        return
    if len(task) != len(lane) or np.any(task[1:] < task[:-1]):
        raise GraphError("run-time waits must be sorted by task, one lane each")
    n = len(graph)
    _within(task, n, lambda i, v: f"wait {i} belongs to task {v}, there are {n}")
    _within(lane, len(graph.lanes), lambda i, v: f"wait {i} is on unknown lane {v}")
    if graph.group is not None and np.any(graph.group[task] >= 0):
        # Such a task would have two causes, one for its start and one for its end.
        bad = int(task[np.argmax(graph.group[task] >= 0)])
        raise GraphError(f"{graph.describe(bad)} has a run-time wait and is in a rendezvous group")
    own = np.flatnonzero(graph.lane[task] == lane)
    if len(own):
        raise GraphError(f"{graph.describe(int(task[own[0]]))} waits for its own lane")


def _check_cycles(graph: WorkGraph) -> None:
    native = graph.native()
    if native.is_forward():
        return
    cycle = native.first_cycle()
    if cycle:
        shown = " -> ".join(graph.describe(task) for task in cycle[:4])
        more = "" if len(cycle) <= 4 else f" -> {len(cycle) - 4} more"
        raise GraphError(f"the graph has a cycle: {shown}{more} -> task {cycle[0]}")
