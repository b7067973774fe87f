"""Breakdown, utilisation, cuts and comparisons against slow versions of themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph
from gnomon.sim import replay
from tests.strategies import KINDS, graphs


@st.composite
def timelines(draw, **options):
    """Recorded-looking timelines: any starts, spans of one lane may even overlap."""
    graph = draw(graphs(**options))
    n = len(graph)
    start = np.asarray(draw(st.lists(st.integers(0, 40), min_size=n, max_size=n)), np.int64)
    return Timeline(graph, start)


def at_instant(line, kind, t, rank=None):
    mask = line.graph.is_kind(kind) & (line.start_ns <= t) & (line.end_ns > t)
    if rank is not None:
        mask &= line.graph.rank == rank
    return bool(mask.any())


@given(timelines(ranks=True))
def test_prop_breakdown_counts_every_nanosecond(line):
    """All times are small whole numbers: look at each nanosecond."""
    found = line.breakdown({kind: (kind,) for kind in KINDS})
    last = line.begin_ns + line.makespan_ns
    for row, rank in enumerate(found.ranks):
        expected = np.zeros(8, np.int64)
        present = rank if line.graph.rank is not None and len(line) else None
        for t in range(line.begin_ns, last):
            expected[sum(at_instant(line, k, t, present) << i for i, k in enumerate(KINDS))] += 1
        assert found.time_ns[row].tolist() == expected.tolist()
    assert np.all(found.time_ns.sum(axis=1) == line.makespan_ns)
    parts = sum(found.exposed_by_rank(k) for k in KINDS)
    whole = parts + found.overlapped_by_rank() + found.idle_by_rank()
    assert np.all(whole == line.makespan_ns)


@given(timelines(), st.integers(1, 15))
def test_prop_utilisation_counts_every_nanosecond(line, width):
    table = line.utilisation(width)
    for lane in range(len(line.graph.lanes)):
        mask = line.graph.lane == lane
        for b in range(table.shape[1]):
            low = line.begin_ns + b * width
            high = min(low + width, line.begin_ns + max(line.makespan_ns, 1))
            busy = sum(
                bool(np.any(mask & (line.start_ns <= t) & (line.end_ns > t)))
                for t in range(low, high)
            )
            assert table[lane, b] == pytest.approx(busy / (high - low))


@given(timelines(), st.integers(0, 30), st.integers(1, 30))
def test_prop_cut_keeps_what_lies_inside(line, start, width):
    part = line.cut(start, start + width)
    part.graph.validate()
    inside = np.minimum(line.end_ns, start + width) - np.maximum(line.start_ns, start)
    assert int((part.end_ns - part.start_ns).sum()) == int(np.maximum(inside, 0).sum())
    assert np.all(part.start_ns >= 0)
    assert np.all(part.end_ns <= width)


def test_cut_refuses_an_empty_window():
    line = replay(WorkGraph.from_columns(["a"], [5]))
    with pytest.raises(InputError, match="empty"):
        line.cut(5, 5)


def test_breakdown_by_hand():
    graph = WorkGraph.from_columns(
        ["gpu", "net", "gpu"], [100, 60, 20], ["compute", "comm", "compute"], edges=([1], [2])
    )
    line = Timeline(graph, np.array([0, 80, 150]))
    found = line.breakdown()
    assert (found.exposed_ns("compute"), found.exposed_ns("comm")) == (100, 40)
    assert found.overlapped_ns == 20
    assert found.idle_ns == 10
    with pytest.raises(InputError, match="no class 'disk'"):
        found.exposed_ns("disk")


def test_breakdown_refuses_too_many_classes():
    graph = WorkGraph.from_columns(["a"] * 9, [1] * 9, kind=[str(i) for i in range(9)])
    with pytest.raises(InputError, match="9 classes"):
        replay(graph).breakdown()


@given(graphs(), graphs())
def test_prop_compare_adds_up(before, after):
    one, two = replay(before), replay(after)
    diff = one.compare(two)
    assert int(diff.by_kind["before_ns"].sum()) == int(before.duration_ns.sum())
    assert int(diff.by_name["after_ns"].sum()) == int(after.duration_ns.sum())
    assert diff.after_ns - diff.before_ns == two.makespan_ns - one.makespan_ns
    assert int(diff.by_kind["before_tasks"].sum()) == len(before)


def test_a_recorded_timeline_has_no_critical_path():
    line = Timeline(WorkGraph.from_columns(["a"], [5]), np.array([0]))
    with pytest.raises(InputError, match="replay it"):
        line.critical_path()


def test_a_critical_path_ends_at_a_task_that_is_there():
    line = replay(WorkGraph.from_columns(["a"], [5]))
    for last in (-1, 1, 2_000_000_000):
        with pytest.raises(InputError, match="does not exist"):
            line.critical_path(last)


def test_too_many_bins_are_refused():
    line = replay(WorkGraph.from_columns(["a"], [10**15]))
    with pytest.raises(InputError, match="wider bins"):
        line.utilisation(1)


def test_pickling_does_not_depend_on_what_was_asked_before():
    import pickle

    line = replay(WorkGraph.from_columns(["a"], [5]))
    before = pickle.dumps(line)
    assert line.makespan_ns == 5
    assert line.end_ns.tolist() == [5]
    assert pickle.dumps(line) == before


def test_lengths_must_agree():
    with pytest.raises(InputError, match="2 rows of start_ns for 1 tasks"):
        Timeline(WorkGraph.from_columns(["a"], [5]), np.array([0, 1]))
