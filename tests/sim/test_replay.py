"""The native replay against the slow, obvious one, and against what must always hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import GraphError, InputError, SimulationError
from gnomon.graph import GraphBuilder, Reason, WorkGraph
from gnomon.sim import Limit, SlowDown, makespan_with, replay
from tests.sim.reference import reference_replay
from tests.strategies import KINDS, graphs


def check_equal(graph, reference, **options):
    if reference.is_stuck:
        with pytest.raises((SimulationError, GraphError)):
            replay(graph, **options)
        return None
    line = replay(graph, **options)
    assert line.start_ns.tolist() == reference.start
    assert line.end_ns.tolist() == reference.end
    check_causes(line)
    bare = replay(graph, causes=False, **options)
    assert bare.cause is None
    assert bare.start_ns.tolist() == reference.start
    return line


def check_causes(line):
    """Every recorded cause really ended (or met) when the task could go on."""
    graph = line.graph
    for task, (cause, reason) in enumerate(zip(line.cause.tolist(), line.reason.tolist())):
        if reason == Reason.NONE:
            assert cause == -1
            assert line.start_ns[task] == 0
        elif reason == Reason.WAIT:
            assert line.end_ns[cause] + graph.duration_ns[task] == line.end_ns[task]
        elif reason == Reason.RENDEZVOUS:
            assert line.start_ns[cause] == line.start_ns[task]
            assert graph.group[cause] == graph.group[task]
        else:
            assert line.end_ns[cause] == line.start_ns[task]
            if reason == Reason.LANE:
                assert graph.lane[cause] == graph.lane[task]
            if reason == Reason.EDGE:
                assert task in graph.successors(cause)
    if len(line):
        path = line.critical_path()
        assert path.length_ns == line.end_ns.max() - line.start_ns[path.tasks[0]]
        assert np.all(path.share_ns >= 0)
        assert line.start_ns[path.tasks[0]] == 0


@given(graphs(forward=True))
def test_prop_forward_graphs(graph):
    line = check_equal(graph, reference_replay(graph))
    assert line.method == "forward"


@given(graphs())
def test_prop_any_index_order(graph):
    check_equal(graph, reference_replay(graph))


@given(graphs(groups=True))
def test_prop_rendezvous(graph):
    check_equal(graph, reference_replay(graph))


@given(graphs(waits=True))
def test_prop_run_time_waits(graph):
    check_equal(graph, reference_replay(graph))


@st.composite
def limited(draw, **options):
    graph = draw(graphs(**options))
    kinds = draw(st.permutations(KINDS))
    count = draw(st.integers(1, 2))
    limits, resource, demand = [], [-1] * len(graph), [1] * len(graph)
    capacity = []
    for number in range(count):
        kind = kinds[number]
        capacity.append(draw(st.integers(1, 4)))
        asked = draw(
            st.lists(st.integers(0, capacity[-1]), min_size=len(graph), max_size=len(graph))
        )
        if kind not in graph.kinds:
            capacity.pop()
            continue
        limits.append(Limit(f"r{number}", capacity[-1], (kind,), np.asarray(asked, np.int64)))
        for i in np.flatnonzero(graph.is_kind(kind)).tolist():
            resource[i], demand[i] = len(limits) - 1, asked[i]
    return graph, limits, resource, demand, capacity


@given(limited())
def test_prop_limits(case):
    graph, limits, resource, demand, capacity = case
    reference = reference_replay(graph, resource, demand, capacity)
    check_equal(graph, reference, limits=limits)


slow_factors = st.dictionaries(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    st.sampled_from([1.0, 1.1, 1.5, 2.0, 3.7]),
    max_size=4,
)


def known(graph, factors):
    return {pair: f for pair, f in factors.items() if set(pair) <= set(graph.kinds)}


@given(graphs(ranks=True), slow_factors)
def test_prop_slow_down(graph, factors):
    factors = known(graph, factors)
    reference = reference_replay(graph, slow=factors)
    check_equal(graph, reference, slow_down=SlowDown(factors))


@given(limited(groups=True, waits=True, ranks=True), slow_factors)
def test_prop_everything_at_once(case, factors):
    graph, limits, resource, demand, capacity = case
    together: dict[tuple[int, int], int] = {}
    for i, r in enumerate(resource):
        if r >= 0 and graph.group is not None and graph.group[i] >= 0:
            key = (int(graph.group[i]), r)
            together[key] = together.get(key, 0) + demand[i]
    factors = known(graph, factors)
    options = {"limits": limits, "slow_down": SlowDown(factors)}
    if any(amount > capacity[r] for (_, r), amount in together.items()):
        with pytest.raises(InputError, match="at once"):
            replay(graph, **options)
        return
    reference = reference_replay(graph, resource, demand, capacity, factors)
    check_equal(graph, reference, **options)


@given(graphs(groups=True, waits=True))
def test_prop_makespan_lies_between_longest_lane_and_serial_sum(graph):
    try:
        line = replay(graph)
    except SimulationError:
        return
    busy = np.zeros(len(graph.lanes), np.int64)
    np.add.at(busy, graph.lane, graph.duration_ns)
    last = int(line.end_ns.max(initial=0))
    assert int(busy.max(initial=0)) <= last <= int(graph.duration_ns.sum())


@given(graphs(), st.integers(0, 2**32))
def test_prop_slower_tasks_never_end_a_fixed_graph_earlier(graph, seed):
    longer = graph.duration_ns + np.random.default_rng(seed).integers(0, 9, len(graph))
    before, after = replay(graph), replay(graph.with_durations(longer))
    assert np.all(after.end_ns >= before.end_ns)
    assert makespan_with(graph, longer) == int(after.end_ns.max(initial=0))


def test_a_synchronise_waits_for_what_its_stream_holds_then():
    build = GraphBuilder()
    first = build.task("cpu", 10, name="launch a")
    a = build.task("gpu", 100, name="a")
    sync = build.task("cpu", 1, name="sync")
    second = build.task("cpu", 10, name="launch b")
    b = build.task("gpu", 100, name="b")
    build.edge(first, a, "launch")
    build.edge(second, b, "launch")
    build.wait(sync, "gpu")
    line = replay(build.build())
    assert line.end_ns[sync] == 111  # waits for a, which is held, not for b, which is not yet
    assert line.start_ns[b] == 121
    assert line.critical_path().link == ("start", "launch", "wait", "lane", "launch")


def test_a_late_rank_makes_all_wait_and_is_named_by_the_critical_path():
    build = GraphBuilder()
    early = build.task("rank 0", 10)
    late = build.task("rank 1", 90)
    members = [build.task("rank 0", 5, kind="comm"), build.task("rank 1", 5, kind="comm")]
    after = build.task("rank 0", 100)
    build.rendezvous(members)
    line = replay(build.build())
    assert line.start_ns[members].tolist() == [90, 90]
    path = line.critical_path()
    assert path.tasks.tolist() == [late, members[1], members[0], after]
    assert path.share_ns.tolist() == [90, 0, 5, 100]
    assert early not in path.tasks


def test_a_limit_serialises_and_is_named():
    graph = WorkGraph.from_columns(["a", "b"], [10, 10], kind="copy")
    line = replay(graph, limits=[Limit("engine", 1, ("copy",))])
    assert line.start_ns.tolist() == [0, 10]
    assert line.reason.tolist() == [Reason.NONE, Reason.RESOURCE]


def test_who_is_freed_because_another_left_the_queue_names_who_made_room():
    # r1 and r2 of one; the pair (b, c) needs both, d stands behind it for r2.
    build = GraphBuilder()
    build.task("l0", 10, kind="r1", name="a")
    pair = [build.task("l1", 20, kind="r1", name="b"), build.task("l2", 20, kind="r2", name="c")]
    late = build.task("l3", 30, kind="r2", name="d")
    build.rendezvous(pair)
    graph = build.build()
    line = replay(graph, limits=[Limit("r1", 1, ("r1",)), Limit("r2", 2, ("r2",))])
    assert line.start_ns.tolist() == [0, 10, 10, 10]
    check_causes(line)
    assert (line.cause[late], line.reason[late]) == (0, Reason.RESOURCE)


def test_slow_down_by_hand():
    # 100 ns of compute, a 30 ns copy beside it: 30 ns at half speed do 15 ns of work.
    graph = WorkGraph.from_columns(["a", "b"], [100, 30], kind=["compute", "comm"])
    line = replay(graph, slow_down=SlowDown({("compute", "comm"): 2.0}))
    assert line.end_ns.tolist() == [115, 30]


def test_a_rendezvous_that_cannot_happen_is_reported_with_its_tasks():
    build = GraphBuilder()
    a, b = build.task("x", 1, name="a"), build.task("y", 1, name="b")
    c, d = build.task("y", 1, name="c"), build.task("x", 1, name="d")
    build.rendezvous([a, c])
    build.rendezvous([b, d])
    with pytest.raises(
        SimulationError, match=r"stuck at 0 ns with 4 tasks left.*'a' on 'x'"
    ) as caught:
        replay(build.build())
    assert set(caught.value.blocked) <= {a, b, c, d}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": [Limit("r", 1, ("nope",))]}, "names kind 'nope'"),
        ({"limits": [Limit("r", 1, ("task",), 2)]}, "needs 2 of 'r' at once, there are 1"),
        (
            {"limits": [Limit("r", 1, ("task",)), Limit("s", 1, ("task",))]},
            "needs both 'r' and 's'",
        ),
        ({"slow_down": SlowDown({("task", "task"): 0.5})}, "give 1 or more"),
        ({"slow_down": SlowDown({("task", "nope"): 1.5})}, "names kind 'nope'"),
        ({"slow_down": SlowDown({("task", "task"): 1e300})}, "more than a century"),
        ({"slow_down": SlowDown({("task", "task"): float("nan")})}, "give 1 or more"),
    ],
)
def test_wrong_options_are_told_in_one_line(options, message):
    graph = WorkGraph.from_columns(["a"], [1])
    with pytest.raises(InputError, match=message) as caught:
        replay(graph, **options)
    assert "\n" not in str(caught.value)
