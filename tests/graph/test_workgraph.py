"""Building, looking, refusing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import _core
from gnomon.errors import GraphError
from gnomon.graph import GraphBuilder, WorkGraph
from gnomon.table import Dictionary
from tests.strategies import graphs

WRONG = {
    "NaN duration": (dict(lane=["a"], duration_ns=[float("nan")]), "task 0 has duration nan"),
    "infinite duration": (dict(lane=["a"], duration_ns=[float("inf")]), "duration inf"),
    "negative duration": (dict(lane=["a", "b"], duration_ns=[1, -5]), "negative duration, -5 ns"),
    "absurd duration": (dict(lane=["a"], duration_ns=[2**62]), "over a century"),
    "absurd sum": (dict(lane=["a"] * 3, duration_ns=[2**61] * 3), "more than a century"),
    "text duration": (dict(lane=["a"], duration_ns=["long"]), "must be numbers"),
    "shape": (dict(lane=["a"], duration_ns=[[1]]), "flat column"),
    "lane count": (dict(lane=["a"], duration_ns=[1, 2]), "1 lanes for 2 rows"),
    "unknown lane": (dict(lane=[0, 7], duration_ns=[1, 1], lanes=["x"]), "task 1 is on unknown lane 7"),
    "negative lane": (dict(lane=[-1], duration_ns=[1], lanes=["x"]), "unknown lane -1"),
    "fractional lane": (dict(lane=[0.5], duration_ns=[1], lanes=["x"]), "whole numbers"),
    "huge lane": (dict(lane=[2**40], duration_ns=[1], lanes=["x"]), "out of range"),
    "dangling edge": (
        dict(lane=["a"], duration_ns=[1], edges=([0], [9])), "edge 0 ends at task 9, but there are 1",
    ),
    "edge lengths": (dict(lane=["a"], duration_ns=[1], edges=([0, 0], [0])), "2 edge sources but 1"),
    "cycle": (
        dict(lane=["a", "b"], duration_ns=[1, 1], edges=([0, 1], [1, 0]), name=["x", "y"]),
        r"cycle: task 0 \('x' on 'a'\) -> task 1 \('y' on 'b'\) -> task 0",
    ),
    "self loop": (dict(lane=["a"], duration_ns=[1], edges=([0], [0])), "cycle: task 0"),
    "against lane order": (dict(lane=["a", "a"], duration_ns=[1, 1], edges=([1], [0])), "cycle"),
    "group on one lane": (
        dict(lane=["a", "a"], duration_ns=[1, 1], group=[0, 0]), "can never start together",
    ),
    "wait on own lane": (dict(lane=["a"], duration_ns=[1], waits=([0], ["a"])), "waits for its own lane"),
    "wait on unknown lane": (dict(lane=["a"], duration_ns=[1], waits=([0], ["z"])), "lane 'z'"),
    "wait in a group": (
        dict(lane=["a", "b"], duration_ns=[1, 1], waits=([0], ["b"]), group=[0, 0]), "rendezvous group",
    ),
    "wait of unknown task": (dict(lane=["a"], duration_ns=[1], waits=([3], [0])), "belongs to task 3"),
    "rank count": (dict(lane=["a"], duration_ns=[1], rank=[0, 0]), "'rank' has 2 rows"),
    "too many kinds": (
        dict(lane=["a"] * 300, duration_ns=[1] * 300, kind=[str(i) for i in range(300)]),
        "300 distinct kinds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_told_in_one_line(case):
    columns, message = WRONG[case]
    with pytest.raises(GraphError, match=message) as caught:
        WorkGraph.from_columns(**columns)
    assert "\n" not in str(caught.value)


def test_codes_that_somebody_made_already_are_taken():
    kinds = Dictionary(np.array([2, 0, 2], np.int32), ("gap", "unused", "host"))
    names = Dictionary(np.array([0, 1, 1], np.int64), ["x", "y"])
    edges = ([0, 0], [1, 2], Dictionary(np.array([1, 1], np.uint8), ("launch", "queue")))
    graph = WorkGraph.from_columns(["a", "b", "b"], [1, 2, 3], kinds, names, edges)
    plain = WorkGraph.from_columns(
        ["a", "b", "b"],
        [1, 2, 3],
        ["host", "gap", "host"],
        ["x", "y", "y"],
        ([0, 0], [1, 2], "queue"),
    )
    assert graph.kinds == ("gap", "host")  # in the table's order, without what nobody uses
    assert [graph.kinds[code] for code in graph.kind] == ["host", "gap", "host"]
    assert graph.names == plain.names == ("x", "y")
    assert graph.edge_kinds == plain.edge_kinds == ("queue",)
    for column in ("name", "duration_ns", "edge_target", "lane"):
        assert np.array_equal(getattr(graph, column), getattr(plain, column))
    nothing = WorkGraph.from_columns([], [], Dictionary(np.empty(0, np.int32), ("x",)))
    assert nothing.kinds == ()


@pytest.mark.parametrize(
    ("codes", "values", "message"),
    [
        ([0, 0], ("x",), "2 kinds for 1 rows"),
        ([1], ("x",), "a code outside its table of 1"),
        ([-1], ("x",), "a code outside its table of 1"),
        ([0], (), "a code outside its table of 0"),
    ],
)
def test_codes_that_mean_nothing_are_refused(codes, values, message):
    with pytest.raises(GraphError, match=message):
        WorkGraph.from_columns(["a"], [1], Dictionary(np.array(codes, np.int32), values))


def test_more_kinds_than_a_graph_can_tell_apart_are_refused():
    values = [f"kind {number}" for number in range(300)]
    codes = np.arange(300, dtype=np.int32)
    with pytest.raises(GraphError, match="300 distinct kinds; at most 255 fit"):
        WorkGraph.from_columns(["a"] * 300, [1] * 300, Dictionary(codes, values))
    few = WorkGraph.from_columns(["a"] * 300, [1] * 300, Dictionary(codes % 3 + 290, values))
    assert few.kinds == ("kind 290", "kind 291", "kind 292")


def test_columns_are_read_only_and_shared():
    graph = WorkGraph.from_columns(["a", "b"], [1, 2])
    with pytest.raises(ValueError, match="read-only"):
        graph.duration_ns[0] = 5
    assert np.shares_memory(graph.with_durations([3, 4]).lane, graph.lane)


def test_what_the_caller_keeps_cannot_change_a_graph():
    lane, duration = np.zeros(3, np.int32), np.array([1, 2, 3])
    graph = WorkGraph.from_columns(lane, duration)
    lane[0], duration[0] = 10**8, -5
    assert graph.lane.tolist() == [0, 0, 0]
    assert graph.duration_ns.tolist() == [1, 2, 3]


def test_pickled_graphs_stay_frozen_and_equal():
    import pickle

    graph = WorkGraph.from_columns(["a", "b"], [1, 2], edges=([0], [1]), group=[0, -1])
    graph.native()
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert not again.lane.flags.writeable
    assert pickle.dumps(graph) == pickle.dumps(WorkGraph.from_columns(
        ["a", "b"], [1, 2], edges=([0], [1]), group=[0, -1]))  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"duration": np.zeros(1, np.int64)},
        {"lane": np.full(2, 7, np.int32)},
        {"duration": np.full(2, -1, np.int64)},
        {"edge_target": np.array([9], np.int32)},
        {"edge_offset": np.array([0, 5, 1])},
        {"edge_kind": np.zeros(3, np.uint8)},
        {"group": np.array([5, 5], np.int32)},
        {"wait_task": np.zeros(1, np.int32)},
        {"wait_task": np.array([1, 0], np.int32), "wait_lane": np.zeros(2, np.int32)},
    ],
)
def test_the_native_border_trusts_nobody(wrong):
    columns = {
        "lane": np.zeros(2, np.int32), "duration": np.zeros(2, np.int64),
        "edge_offset": np.array([0, 1, 1]), "edge_target": np.array([1], np.int32),
        "edge_kind": np.zeros(1, np.uint8), "lanes": 1,
    }  # fmt: skip
    _core.Graph(**columns)
    with pytest.raises(ValueError, match=r"."):
        _core.Graph(**(columns | wrong))
    with pytest.raises(TypeError):
        _core.Graph(**(columns | {"lane": np.zeros(2)}))


def test_other_native_functions_check_too(tmp_path):
    ints, longs, bytes_ = np.zeros(2, np.int32), np.zeros(2, np.int64), np.zeros(2, np.uint8)
    for call in (
        lambda: _core.follow_causes(np.array([5], np.int32), 0),
        lambda: _core.follow_causes(np.array([-1], np.int32), 4),
        lambda: _core.class_overlap(longs, longs[:1], bytes_, None, 1, 1),
        lambda: _core.class_overlap(longs, longs, np.full(2, 3, np.uint8), None, 1, 1),
        lambda: _core.serve(
            arrival=longs, size=longs[:1], servers=1, discipline=_core.Discipline.fifo
        ),
    ):
        with pytest.raises(ValueError, match=r"."):
            call()
    writer = _core.PerfettoWriter(str(tmp_path / "t"))
    with pytest.raises(ValueError, match="does not exist"):
        writer.write_slices(
            _core.Slices(lane=ints + 4, start=longs, end=longs, name=ints, kind=bytes_),
            lane_tracks=np.zeros(1, np.uint64), names=["a"], kinds=["k"],
        )  # fmt: skip
    writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        writer.add_process("late")


def test_builder_refuses_a_wait_on_a_lane_without_tasks_and_a_second_group():
    build = GraphBuilder()
    task = build.task("a", 1)
    with pytest.raises(GraphError, match="which has no task"):
        build.wait(task, "nowhere")
    build.rendezvous([task])
    with pytest.raises(GraphError, match="already in rendezvous group 0"):
        build.rendezvous([task])


def test_builder_equals_columns():
    build = GraphBuilder()
    a = build.task("cpu", 10, kind="host", name="op", rank=1, bytes=4, flops=2.0)
    b = build.task("gpu", 20, kind="kernel", name="gemm", rank=1)
    build.edge(a, b, "launch")
    assert build.build(source="test") == WorkGraph.from_columns(
        ["cpu", "gpu"], [10, 20], ["host", "kernel"], ["op", "gemm"], ([0], [1], "launch"),
        rank=[1, 1], bytes=[4, 0], flops=[2.0, 0.0], meta={"source": "test"},
    )  # fmt: skip


@given(graphs(max_tasks=30), st.data())
def test_prop_first_cycle_is_a_cycle(graph, data):
    """Close a random graph with one edge; either it is acyclic or the named tasks form a ring."""
    if len(graph) < 2:
        return
    u = data.draw(st.integers(0, len(graph) - 1))
    v = data.draw(st.integers(0, len(graph) - 1))
    source, target, kind = graph.edge_list()
    offset = graph.edge_offset.copy()
    offset[u + 1 :] += 1
    targets = np.insert(target, graph.edge_offset[u], v).astype(np.int32)
    kinds = np.insert(kind, graph.edge_offset[u], 0).astype(np.uint8)
    closed = graph.replace(
        edge_offset=offset, edge_target=targets, edge_kind=kinds,
        edge_kinds=graph.edge_kinds or ("data",),
    )  # fmt: skip
    cycle = closed.native().first_cycle()
    if not cycle:
        closed.validate()
        return
    for here, there in zip(cycle, [*cycle[1:], cycle[0]]):
        later = np.flatnonzero(
            (closed.lane == closed.lane[here]) & (np.arange(len(closed)) > here)
        )
        is_next_on_lane = len(later) > 0 and later[0] == there
        assert is_next_on_lane or there in closed.successors(here)
    with pytest.raises(GraphError, match="cycle"):
        closed.validate()


def test_repr_counts():
    assert repr(WorkGraph.from_columns([], [])) == "WorkGraph(0 tasks, 0 lanes, 0 edges)"
