"""Stages in an order where those that have to be done before come first."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def parents_first(parents: Sequence[Collection[int]]) -> list[int] | None:
    """Positions of stages, parents before children, else as they were; None if there is a cycle.

    >>> parents_first([[2], [], [1]])
    [1, 2, 0]
    >>> parents_first([[1], [0]]) is None
    True
    """
    waits_for = [len(set(of_one)) for of_one in parents]
    children: list[list[int]] = [[] for _ in parents]
    for child, of_one in enumerate(parents):
        for parent in set(of_one):
            children[parent].append(child)
    ready = [stage for stage, count in enumerate(waits_for) if count == 0]
    order = []
    while ready:
        stage = heapq.heappop(ready)
        order.append(stage)
        for child in children[stage]:
            waits_for[child] -= 1
            if waits_for[child] == 0:
                heapq.heappush(ready, child)
    return order if len(order) == len(parents) else None
