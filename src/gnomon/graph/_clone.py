"""Repeating tasks: where the copies go, and how their edges re-attach."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GraphError
from gnomon.graph._columns import compact_groups
from gnomon.graph._combine import take_tasks, with_edges
from gnomon.graph.workgraph import WorkGraph

Indices = NDArray[np.int64]


class Layout:
    """New positions when each run of chosen tasks is followed by `times` copies of itself."""

    def __init__(self, tasks: int, chosen: Indices, times: int) -> None:
        breaks = np.flatnonzero(np.diff(chosen) > 1) + 1
        runs = np.split(chosen, breaks)
        run_start = np.asarray([run[0] for run in runs])
        run_length = np.asarray([len(run) for run in runs])
        self.is_chosen = np.zeros(tasks, bool)
        self.is_chosen[chosen] = True
        # Of each chosen task: the first task and the length of its run.
        self.run_start = np.zeros(tasks, np.int64)
        self.run_length = np.zeros(tasks, np.int64)
        self.run_start[chosen] = np.repeat(run_start, run_length)
        self.run_length[chosen] = np.repeat(run_length, run_length)
        pushed = np.zeros(tasks + 1, np.int64)
        np.add.at(pushed, run_start + run_length, times * run_length)
        self.original = np.arange(tasks) + np.cumsum(pushed)[:tasks]

    def copy(self, task: Indices, number: Indices | int) -> Indices:
        """Position of the copy of a chosen task; copy 0 is the original."""
        return self.original[task] + number * self.run_length[task]


def clone_tasks(graph: WorkGraph, chosen: Indices, times: int, chain: bool) -> WorkGraph:
    """The graph with the chosen tasks repeated; cycles are the caller's to check."""
    layout = Layout(len(graph), chosen, times)
    total = len(graph) + times * len(chosen)
    origin = np.empty(total, np.int64)
    number = np.zeros(total, np.int64)
    origin[layout.original] = np.arange(len(graph))
    for k in range(1, times + 1):
        where = layout.copy(chosen, k)
        origin[where], number[where] = chosen, k
    copied = take_tasks(graph, origin)
    source, target, kind = _clone_edges(graph, layout, times, chain)
    copied = with_edges(copied, source, target, kind, graph.edge_kinds)
    return copied.replace(group=_clone_groups(graph, layout, origin, number))


def _clone_edges(
    graph: WorkGraph, layout: Layout, times: int, chain: bool
) -> tuple[Indices, Indices, NDArray[np.uint8]]:
    u32, v32, kind = graph.edge_list()
    u, v = u32.astype(np.int64), v32.astype(np.int64)
    from_inside, to_inside = layout.is_chosen[u], layout.is_chosen[v]
    sources, targets, kinds = [layout.original[u]], [layout.original[v]], [kind]

    inner = from_inside & to_inside
    entering = ~from_inside & to_inside
    enter_u, enter_v = u[entering], v[entering]
    # How far before its run the source lies; within one run's length it is "the layer before".
    back = layout.run_start[enter_v] - enter_u
    near = (back > 0) & (back <= layout.run_length[enter_v]) & chain
    twin = np.where(near, enter_u + layout.run_length[enter_v], 0)
    for k in range(1, times + 1):
        sources += [
            layout.copy(u[inner], k),
            np.where(near, layout.copy(twin, k - 1), layout.original[enter_u]),
        ]
        targets += [layout.copy(v[inner], k), layout.copy(enter_v, k)]
        kinds += [kind[inner], kind[entering]]

    leaving = from_inside & ~to_inside
    sources.append(layout.copy(u[leaving], times))
    targets.append(layout.original[v[leaving]])
    kinds.append(kind[leaving])
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(kinds)


def _clone_groups(
    graph: WorkGraph, layout: Layout, origin: Indices, number: Indices
) -> NDArray[np.int32] | None:
    if graph.group is None:
        return None
    grouped = np.flatnonzero(graph.group >= 0)
    inside = graph.group[grouped[layout.is_chosen[grouped]]]
    outside = graph.group[grouped[~layout.is_chosen[grouped]]]
    split = np.intersect1d(inside, outside)
    if len(split):
        raise GraphError(
            f"rendezvous group {split[0]} has members among the cloned tasks and others outside"
        )
    groups = int(graph.group.max(initial=-1)) + 1
    old = graph.group[origin]
    renumbered = np.where(old >= 0, old + number * groups, -1)
    return compact_groups(renumbered)
