"""Nesting: who holds whom."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnomon.graph.nesting import enclosing


def parents(events, holds=None):
    start, length, thread = np.asarray(events, np.int64).reshape(-1, 3).T
    return enclosing(start, start + length, thread.astype(np.int32), holds).tolist()


def test_the_innermost_of_the_own_thread_counts():
    assert parents([(0, 10, 0), (1, 5, 0), (2, 2, 0), (2, 2, 1), (7, 2, 0)]) == [-1, 0, 1, -1, 0]


def test_neighbours_and_what_sticks_out_are_not_held():
    assert parents([(0, 5, 0), (5, 5, 0), (4, 4, 0)]) == [-1, -1, -1]


def test_what_may_not_hold_others_is_passed_over():
    holds = np.array([True, False, True])
    assert parents([(0, 10, 0), (1, 8, 0), (2, 2, 0)], holds) == [-1, 0, 0]


def test_nothing():
    assert parents([]) == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 1)), max_size=15))
def test_prop_a_parent_holds_its_child_and_is_no_descendant(events):
    found = parents(events)
    for child, parent in enumerate(found):
        if parent >= 0:
            (a, la, ta), (b, lb, tb) = events[parent], events[child]
            assert ta == tb
            assert a <= b <= b + lb <= a + la
        seen = set()
        while parent >= 0:
            assert parent not in seen
            seen.add(parent)
            parent = found[parent]
