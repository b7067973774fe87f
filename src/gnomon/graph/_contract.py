"""Bridges over dropped tasks: the orders that led through them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from gnomon.graph.workgraph import LAUNCH, WorkGraph

#: Kind of an edge that stands for paths through dropped tasks.
BRIDGE = "bridge"


def bridges(
    graph: WorkGraph, gone: NDArray[np.bool_]
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Edges between kept tasks that stand for every path whose inner tasks are all dropped.

    For each dropped task we keep, a lane, only the latest kept task that must come before it:
    the earlier ones follow from lane order. So the work is dropped tasks x lanes, not paths.
    What a dropped task launched is launched by what came before it: without a launch edge it
    would count as issued from the start, and a synchronise call could wait for its own future.
    """
    before, after, launched = _neighbours(graph, gone)
    lane = graph.lane
    entries: dict[int, dict[int, int]] = {}
    for task in _in_order(np.flatnonzero(gone).tolist(), before, gone):
        latest: dict[int, int] = {}
        for source in before[task]:
            found = entries[source].items() if gone[source] else ((int(lane[source]), source),)
            for on, kept in found:
                latest[on] = max(kept, latest.get(on, -1))
        entries[task] = latest
    pairs: dict[str, set[tuple[int, int]]] = {LAUNCH: set(), BRIDGE: set()}
    for task, latest in entries.items():
        for target in after[task]:
            if gone[target]:
                continue
            kind = LAUNCH if (task, target) in launched else BRIDGE
            # On its own lane the order says it already.
            pairs[kind] |= {(kept, target) for on, kept in latest.items() if on != lane[target]}
    pairs[BRIDGE] -= pairs[LAUNCH]
    return {kind: _columns(found) for kind, found in pairs.items() if found}


def _columns(pairs: set[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    both = np.asarray(sorted(pairs), np.int64)
    return both[:, 0], both[:, 1]


def _neighbours(
    graph: WorkGraph, gone: NDArray[np.bool_]
) -> tuple[dict[int, list[int]], dict[int, list[int]], set[tuple[int, int]]]:
    """Predecessors and successors of the dropped tasks, lane order included, and launches."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    source, target, kind = graph.edge_list()
    launch = graph.edge_kinds.index(LAUNCH) if LAUNCH in graph.edge_kinds else -1
    issues = gone[source] & (kind == launch)
    launched = set(zip(source[issues].tolist(), target[issues].tolist()))
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
    return before, after, launched


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
