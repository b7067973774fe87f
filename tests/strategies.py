"""Random work graphs for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gnomon.graph import WorkGraph

KINDS = ("compute", "comm", "host")


@st.composite
def graphs(
    draw,
    max_tasks: int = 16,
    groups: bool = False,
    waits: bool = False,
    ranks: bool = False,
    forward: bool = False,
    optional: bool = False,
):
    """Graphs whose edges and lane order cannot form a cycle.

    Edges point forward in a hidden order; the index order is another interleaving of the lanes,
    unless `forward`, so both kinds of replay are exercised.
    """
    n = draw(st.integers(0, max_tasks))
    lanes = draw(st.integers(1, 4))
    lane = draw(st.lists(st.integers(0, lanes - 1), min_size=n, max_size=n))
    duration = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 10, 17]), min_size=n, max_size=n))
    kind = draw(st.lists(st.sampled_from(KINDS), min_size=n, max_size=n))
    pairs = draw(
        st.lists(
            st.tuples(
                st.integers(0, max(n - 1, 0)),
                st.integers(0, max(n - 1, 0)),
                st.sampled_from(["launch", "data"]),
            ),
            max_size=2 * n,
        )
    )
    edges = [(min(u, v), max(u, v), k) for u, v, k in pairs if u != v] if n else []
    position = list(range(n))
    if not forward and n:
        keys = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
        order = _interleave(lane, keys)
        for new, old in enumerate(order):
            position[old] = new
        lane, duration, kind = ([column[i] for i in order] for column in (lane, duration, kind))
    group = None
    if groups and n:
        group = [-1] * n
        for number in range(draw(st.integers(0, 3))):
            members = draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=3))
            used: set[int] = set()
            for i in sorted(members):
                if group[i] < 0 and lane[i] not in used:
                    group[i] = number
                    used.add(lane[i])
    wait_pairs = []
    if waits and n:
        wanted = draw(
            st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, lanes - 1)), max_size=4)
        )
        wait_pairs = [
            (t, w) for t, w in sorted(wanted) if lane[t] != w and not (group and group[t] >= 0)
        ]
    numbers = st.lists(st.integers(0, 10**12), min_size=n, max_size=n)
    return WorkGraph.from_columns(
        np.asarray(lane, np.int32),
        duration,
        kind,
        [f"t{i % 5}" for i in range(n)],
        ([position[u] for u, _, _ in edges], [position[v] for _, v, _ in edges], [k for *_, k in edges]),
        lanes=[f"lane {i}" for i in range(lanes)],
        group=group,
        waits=([t for t, _ in wait_pairs], [w for _, w in wait_pairs]) if wait_pairs else None,
        rank=[i % 2 for i in lane] if ranks else None,
        bytes=draw(numbers) if optional else None,
        flops=draw(numbers) if optional else None,
    )  # fmt: skip


def _interleave(lane: list[int], keys: list[int]) -> list[int]:
    """Another order of the tasks in which each lane keeps its own."""
    queues: dict[int, list[int]] = {}
    for task, on in enumerate(lane):
        queues.setdefault(on, []).append(task)
    order: list[int] = []
    for key in keys:
        names = sorted(queues)
        chosen = names[key % len(names)]
        order.append(queues[chosen].pop(0))
        if not queues[chosen]:
            del queues[chosen]
    return order
