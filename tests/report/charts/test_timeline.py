"""Thinning a timeline: fewer blocks, nothing lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.report import TimelineView


def view_of(spans, critical=None):
    lane, kind, name, start, dur = (np.array(c) for c in zip(*spans)) if spans else [[]] * 5
    start, dur = np.asarray(start, np.int64), np.asarray(dur, np.int64)
    return TimelineView(
        "t", ["a", "b"], ["x", "y"], ["n0", "n1", "n2"], lane, kind, name, start, start + dur,
        critical,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "words"),
    [
        ([(2, 0, 0, 0, 1)], "lane"),
        ([(0, -1, 0, 0, 1)], "kind"),
        ([(0, 0, 3, 0, 1)], "name"),
        ([(0, 0, 0, 5, -1)], "span 0 ends before"),
    ],
)
def test_wrong_timelines_are_refused(spans, words):
    with pytest.raises(InputError, match=words):
        view_of(spans)


def test_lengths_and_types_are_checked():
    with pytest.raises(InputError, match="one entry per span"):
        TimelineView("t", ["a"], ["x"], ["n"], [0], [0], [0], [0, 1], [1, 2])
    with pytest.raises(InputError, match="whole numbers"):
        TimelineView("t", ["a"], ["x"], ["n"], [0], [0], [0], [0.5], [1])


def test_an_empty_timeline_is_fine():
    view = view_of([])
    assert (len(view), view.first_ns, view.last_ns, view.merged) == (0, 0, 0, 0)
    assert view.thin(1) is view


def test_alternating_kinds_still_thin():
    view = view_of([(0, i % 2, 0, 10 * i, 5) for i in range(1000)])
    thin = view.thin(50)
    assert len(thin) <= 50
    assert thin.span_count.sum() == 1000


def test_critical_spans_stay_apart():
    critical = np.arange(100) % 10 == 0
    view = view_of([(0, 0, 0, 10 * i, 5) for i in range(100)], critical)
    thin = view.thin(10)
    assert thin.span_count[thin.critical].sum() == 10
    assert thin.span_count[~thin.critical].sum() == 90


def test_blocks_do_not_grow_over_quiet_time():
    bursts = [(0, 0, 0, 1_000_000 * b + 10 * i, 5) for b in range(20) for i in range(50)]
    thin = view_of(bursts).thin(25)
    assert 20 <= len(thin) <= 25  # a slot's edge may fall into a burst
    assert (thin.end_ns - thin.start_ns).max() <= 495
    assert thin.busy_ns.sum() == 20 * 250


def test_a_block_bears_the_longest_name():
    thin = view_of([(0, 0, 0, 0, 2), (0, 0, 1, 3, 9), (0, 0, 2, 13, 1)]).thin(1)
    assert [thin.names[i] for i in thin.name] == ["n1"]
    assert thin.merged == 2


spans = st.tuples(
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 2),
    st.integers(0, 500),
    st.integers(0, 60),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(spans, max_size=60), st.integers(1, 40), st.randoms())
def test_prop_thinning_loses_nothing(rows, most, random):
    critical = np.array([random.random() < 0.3 for _ in rows], bool)
    view = view_of(rows, critical)
    thin = view.thin(most)
    groups = {(r[0], r[1], c) for r, c in zip(rows, critical.tolist())}
    assert len(thin) <= max(most, len(groups))
    assert int(thin.span_count.sum()) == len(rows)
    assert (thin.first_ns, thin.last_ns) == (view.first_ns, view.last_ns)
    # Every span lies in a block of its lane, kind and criticality.
    for (lane, kind, _, start, dur), crit in zip(rows, critical.tolist()):
        inside = (
            (thin.lane == lane)
            & (thin.kind == kind)
            & (thin.critical == crit)
            & (thin.start_ns <= start)
            & (thin.end_ns >= start + dur)
        )
        assert inside.any()
    assert int(thin.span_busy_ns.sum()) == sum(row[4] for row in rows)
    # Thinning a thinned view keeps the count.
    assert int(thin.thin(1).span_count.sum()) == len(rows)
