"""Bridges over dropped tasks: the orders that led through them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gnomon.graph.column_types import Flags, Ints
from gnomon.graph.workgraph import LAUNCH, WorkGraph

#: Kind of an edge that stands for paths through dropped tasks.
BRIDGE = "bridge"


def bridges(graph: WorkGraph, gone: Flags) -> dict[str, tuple[Ints, Ints]]:
    """Edges between kept tasks that stand for every path whose inner tasks are all dropped.

    For each dropped task we keep, a lane, only the latest kept task that must come before it:
    the earlier ones follow from lane order. So the work is dropped tasks x lanes, not paths.
    Launches need care: a task without a launch edge counts as issued from the start, and a
    synchronise call could then wait for its own future. What a dropped task launched is launched
    by what came before it, and what held back the issue of a dropped task holds back that of the
    next one on its lane.
    """
    before, after, launched = _neighbours(graph, gone)
    lane = graph.lane
    # Of each dropped task, a lane: the latest kept task that must end before it runs, and the
    # latest that must end before it counts as issued.
    runs: dict[int, dict[int, int]] = {}
    issues: dict[int, dict[int, int]] = {}
    for task in _in_order(np.flatnonzero(gone).tolist(), before, gone):
        runs[task], issues[task] = {}, {}
        for source in before[task]:
            reached = runs[source] if gone[source] else {int(lane[source]): source}
            _keep_latest(runs[task], reached)
            if (source, task) in launched:
                _keep_latest(issues[task], reached)
            if lane[source] == lane[task] and gone[source]:
                # A lane is issued in order: who waited for the one before waits for this one.
                _keep_latest(issues[task], issues[source])
    pairs: dict[str, set[tuple[int, int]]] = {LAUNCH: set(), BRIDGE: set()}
    for task, reached in runs.items():
        for target in after[task]:
            if gone[target]:
                continue
            issuing = dict(reached) if (task, target) in launched else {}
            if lane[task] == lane[target]:
                _keep_latest(issuing, issues[task])
            pairs[LAUNCH] |= {(kept, target) for kept in issuing.values()}
            # On its own lane the order says it already.
            pairs[BRIDGE] |= {(kept, target) for on, kept in reached.items() if on != lane[target]}
    pairs[BRIDGE] -= pairs[LAUNCH]
    return {kind: _columns(found) for kind, found in pairs.items() if found}


def _keep_latest(into: dict[int, int], found: dict[int, int]) -> None:
    for on, kept in found.items():
        into[on] = max(kept, into.get(on, -1))


def _columns(pairs: set[tuple[int, int]]) -> tuple[Ints, Ints]:
    both = np.asarray(sorted(pairs), np.int64)
    return both[:, 0], both[:, 1]


def _neighbours(
    graph: WorkGraph, gone: Flags
) -> tuple[dict[int, list[int]], dict[int, list[int]], set[tuple[int, int]]]:
    """Predecessors and successors of the dropped tasks, lane order included, and launches."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    source, target, kind = graph.edge_list()
    launch = graph.edge_kinds.index(LAUNCH) if LAUNCH in graph.edge_kinds else -1
    issues = (gone[source] | gone[target]) & (kind == launch)
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


def _in_order(dropped: list[int], before: dict[int, list[int]], gone: Flags) -> list[int]:
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
