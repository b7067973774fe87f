"""Nesting: which event of a thread holds another."""

from __future__ import annotations

import numpy as np

from gnomon.graph.column_types import Codes, Flags, Ints


def enclosing(start_ns: Ints, end_ns: Ints, thread: Codes, holds: Flags | None = None) -> Ints:
    """The place of the innermost event around each one on its thread; -1 for none.

    An event that another does not hold whole is not in it: a clock's grain makes neighbours
    overlap. Of events with equal times the first holds the others.

    >>> start, end = np.array([0, 1, 2, 9]), np.array([9, 4, 3, 12])
    >>> enclosing(start, end, np.zeros(4, np.int32)).tolist()
    [-1, 0, 1, -1]

    Args:
        start_ns: When each event begins.
        end_ns: When each ends.
        thread: Who runs it.
        holds: Which events may hold others; all unless given.
    """
    order = np.lexsort((-end_ns, start_ns, thread))
    parent = np.full(len(order), -1, np.int64)
    starts, ends, threads = start_ns.tolist(), end_ns.tolist(), thread.tolist()
    can_hold = [True] * len(order) if holds is None else holds.tolist()
    stack: list[int] = []
    last = None
    for event in order.tolist():
        if threads[event] != last:
            stack, last = [], threads[event]
        while stack and (ends[stack[-1]] < ends[event] or ends[stack[-1]] <= starts[event]):
            stack.pop()
        if stack:
            parent[event] = stack[-1]
        if can_hold[event]:
            stack.append(event)
    return parent
