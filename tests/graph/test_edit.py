"""Edits keep graphs valid, and mean what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import GraphError, SimulationError
from gnomon.graph import (
    LAUNCH,
    GraphBuilder,
    WorkGraph,
    clone,
    connect,
    disconnect,
    drop,
    insert,
    merge,
    regroup,
    reorder,
    scale,
    select,
    splice,
)
from gnomon.sim import replay
from tests.strategies import graphs


def must_precede(graph: WorkGraph) -> set[tuple[int, int]]:
    """All pairs (u, v) such that v can only start after u has ended: the slow closure."""
    n = len(graph)
    direct: list[set[int]] = [set(graph.successors(i).tolist()) for i in range(n)]
    for i in range(n):
        later = [j for j in range(i + 1, n) if graph.lane[j] == graph.lane[i]]
        direct[i] |= set(later[:1])
    reach: set[tuple[int, int]] = set()
    for i in range(n):
        todo = list(direct[i])
        seen: set[int] = set()
        while todo:
            j = todo.pop()
            if j not in seen:
                seen.add(j)
                todo += direct[j]
        reach |= {(i, j) for j in seen}
    return reach


@given(graphs(max_tasks=12), st.data())
def test_prop_drop_with_bridges_keeps_exactly_the_order_of_the_rest(graph, data):
    gone = np.asarray(
        data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool
    )
    rest = drop(graph, gone)
    rest.validate()
    kept = np.flatnonzero(~gone).tolist()
    wanted = {
        (kept.index(u), kept.index(v)) for u, v in must_precede(graph) if u in kept and v in kept
    }
    assert must_precede(rest) == wanted


def must_end_before_issue(graph: WorkGraph) -> set[tuple[int, int]]:
    """All pairs (u, v) such that v counts as issued to its lane only after u has ended."""
    order = must_precede(graph)
    source, target, kind = graph.edge_list()
    launches = [
        (u, v) for u, v, k in zip(source.tolist(), target.tolist(), kind.tolist())
        if graph.edge_kinds[k] == LAUNCH
    ]  # fmt: skip
    gates = set()
    for v in range(len(graph)):
        for launcher, issued in launches:
            if graph.lane[issued] == graph.lane[v] and issued <= v:
                gates |= {(launcher, v)} | {(u, v) for u, w in order if w == launcher}
    return gates


@given(graphs(max_tasks=12), st.data())
def test_prop_drop_keeps_what_gates_the_issue_of_the_rest(graph, data):
    """Otherwise a synchronise call would see other work than before, or its own future."""
    drawn = data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph)))
    kept = np.flatnonzero(~np.asarray(drawn, bool)).tolist()
    before = {
        (kept.index(u), kept.index(v))
        for u, v in must_end_before_issue(graph)
        if u in kept and v in kept
    }
    assert must_end_before_issue(drop(graph, np.asarray(drawn, bool))) == before


def test_a_dropped_kernel_still_gates_the_issue_of_the_next():
    build = GraphBuilder()
    slow = build.task("cpu 0", 100)
    a = build.task("gpu", 1)
    quick = build.task("cpu 1", 1)
    b = build.task("gpu", 500)
    sync = build.task("cpu 1", 1)
    build.edge(slow, a, "launch")
    build.edge(quick, b, "launch")
    build.wait(sync, "gpu")
    graph = build.build()
    assert replay(graph).end_ns[sync] == 2  # b is not issued: a, before it, is not yet
    assert replay(drop(graph, [a])).end_ns[sync - 1] == 2


def test_a_launch_between_two_kernels_of_one_lane_may_be_dropped():
    build = GraphBuilder()
    first = build.task("gpu", 10)
    launch = build.task("cpu", 100)
    second = build.task("gpu", 50)
    sync = build.task("cpu 2", 1)
    build.edge(first, launch)
    build.edge(launch, second, "launch")
    build.wait(sync, "gpu")
    graph = build.build()
    assert replay(graph).end_ns[sync] == 11
    assert replay(drop(graph, [launch])).end_ns[sync - 1] == 11


def test_what_a_dropped_launch_launched_is_launched_by_what_came_before():
    build = GraphBuilder()
    first = build.task("cpu", 5)
    kernels = [build.task("gpu", 10)]
    sync = build.task("cpu", 1)
    second = build.task("cpu", 5)
    kernels.append(build.task("gpu", 10))
    build.edge(first, kernels[0], "launch")
    build.edge(second, kernels[1], "launch")
    build.wait(sync, "gpu")
    line = replay(drop(build.build(), [second]))
    assert line.end_ns.tolist() == [5, 15, 16, 26]


@given(graphs(max_tasks=12, waits=True, groups=True), st.data())
def test_prop_select_keeps_inner_edges_only(graph, data):
    keep = np.asarray(
        data.draw(st.lists(st.booleans(), min_size=len(graph), max_size=len(graph))), bool
    )
    part = select(graph, keep)
    part.validate()
    assert part.duration_ns.tolist() == graph.duration_ns[keep].tolist()
    source, target, _ = graph.edge_list()
    assert part.n_edges == int(np.count_nonzero(keep[source] & keep[target]))
    if graph.wait_task is not None:
        expected = int(np.count_nonzero(keep[graph.wait_task]))
        assert (0 if part.wait_task is None else len(part.wait_task)) == expected


@given(graphs(max_tasks=12, forward=True, waits=True), st.data())
def test_prop_clone_of_a_stretch_stays_valid(graph, data):
    if not len(graph):
        return
    low = data.draw(st.integers(0, len(graph) - 1))
    high = data.draw(st.integers(low + 1, len(graph)))
    times = data.draw(st.integers(0, 3))
    chain = data.draw(st.booleans())
    copied = clone(graph, slice(low, high), times, chain=chain)
    copied.validate()
    assert len(copied) == len(graph) + times * (high - low)
    assert copied.native().is_forward()
    expected = [*graph.duration_ns[:low], *np.tile(graph.duration_ns[low:high], times + 1),
                *graph.duration_ns[high:]]  # fmt: skip
    assert copied.duration_ns.tolist() == expected
    inner = select(graph, slice(low, high))
    for k in range(times + 1):
        at = low + k * (high - low)
        assert select(copied, slice(at, at + high - low)) == inner


def test_cloned_layers_chain_like_the_observed_ones():
    # cpu launches a kernel a layer; each layer's kernel needs the one before it.
    build = WorkGraph.from_columns(
        ["cpu", "a", "cpu", "b", "cpu", "a"], [1, 10, 1, 10, 1, 10],
        edges=([0, 2, 4, 1, 3], [1, 3, 5, 3, 5], ["launch"] * 3 + ["data"] * 2),
    )  # fmt: skip
    deeper = clone(build, slice(2, 4), times=2)
    assert replay(deeper).makespan_ns == replay(build).makespan_ns + 20
    # 3 (b) -> 5 (copy 1 of b) -> 7 (copy 2 of b) -> 9 (the last a)
    assert 5 in deeper.successors(3)
    assert 7 in deeper.successors(5)
    assert 9 in deeper.successors(7)


def test_clone_repeats_rendezvous_and_refuses_half_of_one():
    graph = WorkGraph.from_columns(["a", "b", "a"], [1, 5, 2], group=[0, 0, -1])
    copied = clone(graph, [0, 1])
    assert copied.group.tolist() == [0, 0, 1, 1, -1]
    assert replay(copied).start_ns.tolist() == [0, 0, 5, 5, 6]
    with pytest.raises(GraphError, match="others outside"):
        clone(graph, [0])


def test_clone_refuses_an_unclosed_set():
    # Task 2 comes after 0 and before 1: it belongs between the cloned tasks, but is not cloned.
    graph = WorkGraph.from_columns(["a", "a", "b"], [1, 1, 1], edges=([0, 2], [2, 1]))
    with pytest.raises(GraphError, match="cycle"):
        clone(graph, [0, 1])


@given(graphs(max_tasks=8, waits=True, groups=True, optional=True),
       graphs(max_tasks=8, waits=True, groups=True), st.data())  # fmt: skip
def test_prop_splice_then_select_gives_both_back(graph, other, data):
    before = data.draw(st.integers(0, len(graph)))
    try:
        both = splice(graph, other, before)
    except GraphError as error:
        assert "cycle" in str(error)  # the other's tasks cut a lane's backward edge in two
        return
    both.validate()
    inside = np.zeros(len(both), bool)
    inside[before : before + len(other)] = True
    assert select(both, inside).duration_ns.tolist() == other.duration_ns.tolist()
    assert must_precede(graph) <= {
        (u - len(other) * (u >= before + len(other)), v - len(other) * (v >= before + len(other)))
        for u, v in must_precede(both)
        if not inside[u] and not inside[v]
    }


@given(st.lists(graphs(max_tasks=8, groups=True, waits=True), min_size=1, max_size=3))
def test_prop_merged_ranks_play_as_if_alone(parts):
    try:
        alone = [replay(part) for part in parts]
    except SimulationError:
        return
    merged = merge(parts)
    merged.validate()
    assert merged.rank.tolist() == [r for r, part in enumerate(parts) for _ in range(len(part))]
    together = replay(merged)
    assert together.start_ns.tolist() == [t for line in alone for t in line.start_ns.tolist()]


def test_merge_ties_ranks_by_group():
    one = WorkGraph.from_columns(["gpu", "gpu"], [10, 5])
    slow = WorkGraph.from_columns(["gpu", "gpu"], [30, 5])
    job = regroup(merge([one, slow]), [-1, 0, -1, 0])
    assert replay(job).start_ns.tolist() == [0, 30, 0, 30]
    with pytest.raises(GraphError, match="as many different ranks"):
        merge([one, one], ranks=[3, 3])


@given(graphs(max_tasks=10))
def test_prop_reorder_and_back(graph):
    order = np.lexsort((np.arange(len(graph)), graph.lane))
    moved = reorder(graph, order)
    assert reorder(moved, np.argsort(order)) == graph
    assert replay(moved).start_ns.tolist() == replay(graph).start_ns[order].tolist()


def test_insert_takes_the_place_and_shifts_the_rest():
    graph = WorkGraph.from_columns(["gpu", "gpu"], [5, 5], edges=([0], [1], "data"))
    edited = insert(
        graph, 1, lane="net", duration_ns=7, kind="comm", name="send", after=[0], then=[1]
    )
    assert edited.lanes == ("gpu", "net")
    assert replay(edited).start_ns.tolist() == [0, 5, 12]


def test_connect_refuses_a_cycle_and_disconnect_undoes():
    graph = WorkGraph.from_columns(["a", "b"], [1, 1])
    tied = connect(graph, [0], [1], "data")
    with pytest.raises(GraphError, match="cycle"):
        connect(tied, [1], [0])
    assert disconnect(tied, [True]) == graph
    assert disconnect(tied, [0]) == graph
    with pytest.raises(GraphError, match="edge 3 does not exist"):
        disconnect(tied, [3])


def test_durations_are_checked_wherever_they_come_in():
    graph = WorkGraph.from_columns(["a", "a"], [1, 2**53 + 1])
    with pytest.raises(GraphError, match="negative duration"):
        graph.with_durations([-50, 1])
    with pytest.raises(GraphError, match="century"):
        graph.with_durations([2**61, 2**61])
    # What is not scaled is not touched, not even by rounding.
    assert scale(graph, [0], 3.0).duration_ns.tolist() == [3, 2**53 + 1]


def test_group_numbers_are_packed():
    graph = WorkGraph.from_columns(["a", "b"], [1, 1], group=[300_000_000, 300_000_000])
    assert graph.group.tolist() == [0, 0]
    assert clone(graph, [0, 1], times=3).group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_scale_refuses_nonsense(factor):
    with pytest.raises(GraphError, match="cannot scale"):
        scale(WorkGraph.from_columns(["a"], [1]), [0], factor)


@pytest.mark.parametrize("edit", [
    lambda g: select(g, [5]), lambda g: select(g, [True, False]), lambda g: splice(g, g, 9),
    lambda g: clone(g, [0], -1), lambda g: reorder(g, [0, 0]), lambda g: clone(g, [0], 2**31),
])  # fmt: skip
def test_edits_refuse_what_is_not_there(edit):
    with pytest.raises(GraphError):
        edit(WorkGraph.from_columns(["a"], [1]))
