"""The slow, obvious replay: the rules of native/engine/replay/replay.hpp, one sentence a line.

It looks at every task at every instant; nothing is clever, so it can be checked by reading.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from gnomon.graph import LAUNCH, WorkGraph


@dataclasses.dataclass
class Reference:
    start: list[int | None]
    end: list[int | None]

    @property
    def is_stuck(self) -> bool:
        return any(e is None for e in self.end)


def reference_replay(
    graph: WorkGraph,
    resource: list[int] | None = None,
    demand: list[int] | None = None,
    capacity: list[int] | None = None,
    slow: Mapping[tuple[str, str], float] | None = None,
) -> Reference:
    n = len(graph)
    lane = graph.lane.tolist()
    duration = graph.duration_ns.tolist()
    kinds = [graph.kinds[k] for k in graph.kind.tolist()]
    device = graph.rank.tolist() if graph.rank is not None else [0] * n
    source, target, edge_kind = (column.tolist() for column in graph.edge_list())
    before: list[list[int]] = [[] for _ in range(n)]
    issued_by: list[list[int]] = [[] for _ in range(n)]
    for u, v, k in zip(source, target, edge_kind):
        before[v].append(u)
        if graph.edge_kinds[k] == LAUNCH:
            issued_by[v].append(u)
    for v in range(n):
        earlier = [u for u in range(v) if lane[u] == lane[v]]
        before[v] += earlier[-1:]
    group = graph.group.tolist() if graph.group is not None else [-1] * n
    units = {
        i: [j for j in range(n) if group[j] == group[i]] if group[i] >= 0 else [i]
        for i in range(n)
    }
    waits: dict[int, list[int]] = {}
    if graph.wait_task is not None:
        for task, on in zip(graph.wait_task.tolist(), graph.wait_lane.tolist()):
            waits.setdefault(task, []).append(on)
    resource = resource or [-1] * n
    demand = demand or [1] * n
    free = list(capacity or [])
    slow = slow or {}
    matters = {k for pair, f in slow.items() if f != 1.0 for k in pair}

    start: list[int | None] = [None] * n
    end: list[int | None] = [None] * n
    done = [False] * n
    is_ready = [False] * n
    queue: list[list[int]] = []  # units in order of asking
    unresolved: list[int] = []
    held_by: dict[int, set[int]] = {}  # waits that go on: for which tasks
    remaining: dict[int, float] = {}
    factor: dict[int, float] = {}
    settled: dict[int, int] = {}
    now = 0

    def needs(unit: list[int]) -> dict[int, int]:
        total: dict[int, int] = {}
        for i in unit:
            if resource[i] >= 0:
                total[resource[i]] = total.get(resource[i], 0) + demand[i]
        return {r: amount for r, amount in total.items() if amount > 0}

    def begin(i: int) -> None:
        start[i] = now
        if waits.get(i):
            unresolved.append(i)
        elif kinds[i] in matters and duration[i] > 0:
            remaining[i] = float(duration[i])
            factor[i] = 0.0
        else:
            end[i] = now + duration[i]

    def last_held(on: int) -> int | None:
        """Last task of the longest prefix of the lane of which all have been issued."""
        last = None
        for i in range(n):
            if lane[i] == on:
                if not all(done[u] for u in issued_by[i]):
                    break
                last = i
        return last

    while True:
        changed = True
        while changed:
            changed = False
            # 1. everything that ends now
            for i in range(n):
                if start[i] is not None and not done[i] and end[i] == now:
                    done[i] = changed = True
                    if resource[i] >= 0:
                        free[resource[i]] += demand[i]
                    remaining.pop(i, None)
                    for waiter, on in held_by.items():
                        if i in on:
                            on.discard(i)
                            if not on:
                                end[waiter] = now + duration[waiter]
            if changed:
                continue
            # 2. everything that can start now
            for i in range(n):
                if not is_ready[i] and all(done[u] for u in before[i]):
                    is_ready[i] = changed = True
                    if all(is_ready[j] for j in units[i]):
                        queue.append(units[i])
            taken: set[int] = set()
            for unit in list(queue):
                wanted = needs(unit)
                if any(r in taken or free[r] < amount for r, amount in wanted.items()):
                    taken |= wanted.keys()  # nobody overtakes in a queue
                    continue
                for r, amount in wanted.items():
                    free[r] -= amount
                queue.remove(unit)
                for i in unit:
                    begin(i)
                changed = True
            if changed:
                continue
            # 3. run-time waits look at their lanes
            if unresolved:
                changed = True
                for i in unresolved:
                    on = {last_held(waited) for waited in waits[i]}
                    on = {p for p in on if p is not None and not done[p]}
                    if on:
                        held_by[i] = on
                    else:
                        end[i] = now + duration[i]
                unresolved.clear()
        # 4. who runs beside whom has settled: rates
        for i in list(remaining):
            beside = {kinds[j] for j in remaining if j != i and device[j] == device[i]}
            new = max([1.0, *(slow.get((kinds[i], k), 1.0) for k in beside)])
            if new != factor[i]:
                if factor[i] > 0:
                    remaining[i] = max(0.0, remaining[i] - float(now - settled[i]) / factor[i])
                settled[i], factor[i] = now, new
                end[i] = now + math.ceil(remaining[i] * new - 1e-6)
        pending = [e for i, e in enumerate(end) if e is not None and not done[i]]
        if not pending:
            return Reference(start, [e if d else None for e, d in zip(end, done)])
        now = min(pending)
