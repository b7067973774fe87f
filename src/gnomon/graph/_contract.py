"""Bridges over dropped tasks: the orders that led through them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gnomon.graph.workgraph import WorkGraph


def bridges(
    graph: WorkGraph, gone: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges between kept tasks that stand for every path whose inner tasks are all dropped.

    For each dropped task we keep, a lane, only the latest kept task that must come before it:
    the earlier ones follow from lane order. So the work is dropped tasks x lanes, not paths.
    """
    before, after = _neighbours(graph, gone)
    lane = graph.lane
    entries: dict[int, dict[int, int]] = {}
    for task in _in_order(np.flatnonzero(gone).tolist(), before, gone):
        latest: dict[int, int] = {}
        for source in before[task]:
            found = entries[source].items() if gone[source] else ((int(lane[source]), source),)
            for on, kept in found:
                latest[on] = max(kept, latest.get(on, -1))
        entries[task] = latest
    pairs = {
        (kept, target)
        for task, latest in entries.items()
        for target in after[task]
        if not gone[target]
        for on, kept in latest.items()
        if on != lane[target]  # lane order says it already
    }
    if not pairs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    both = np.asarray(sorted(pairs), np.int64)
    return both[:, 0], both[:, 1]


def _neighbours(
    graph: WorkGraph, gone: NDArray[np.bool_]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Predecessors and successors of the dropped tasks, lane order included."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    source, target, _ = graph.edge_list()
    by_lane = np.argsort(graph.lane, kind="stable")
    same = graph.lane[by_lane[1:]] == graph.lane[by_lane[:-1]]
    sources = np.concatenate([source, by_lane[:-1][same]])
    targets = np.concatenate([target, by_lane[1:][same]])
    touches = gone[sources] | gone[targets]
    for u, v in zip(sources[touches].tolist(), targets[touches].tolist()):
        if gone[v]:
            before[v].append(u)
        if gone[u]:
            after[u].append(v)
    return before, after


def _in_order(
    dropped: list[int], before: dict[int, list[int]], gone: NDArray[np.bool_]
) -> list[int]:
    """Dropped tasks, each after the dropped ones it depends on."""
    missing = {task: sum(bool(gone[u]) for u in before[task]) for task in dropped}
    follows: dict[int, list[int]] = defaultdict(list)
    for task in dropped:
        for u in before[task]:
            if gone[u]:
                follows[u].append(task)
    ready = [task for task in dropped if missing[task] == 0]
    for task in ready:  # grows while we walk it
        for v in follows[task]:
            missing[v] -= 1
            if missing[v] == 0:
                ready.append(v)
    return ready
