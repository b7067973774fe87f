"""Repeats: what comes again back to back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnomon.systems.training.prediction.recorded.repeats import Repeat, find_repeats


def found(row, anchor):
    row = np.asarray(row, np.int64)
    return find_repeats(row, np.isin(row, anchor))


def test_layers_between_ends_are_found():
    assert found([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8], [1]) == [Repeat(1, 3, 3)]


def test_short_patterns_without_an_anchor_are_not_layers():
    assert found([5, 5, 5, 1, 5, 5, 5, 1], [1]) == [Repeat(0, 4, 2)]


def test_both_passes_of_two_micro_batches():
    one = [9, 1, 2, 1, 2, 8, 7, 3, 4, 4, 3, 4, 4, 6]
    assert found(one + one, [1, 3]) == [
        Repeat(1, 2, 2), Repeat(7, 3, 2), Repeat(15, 2, 2), Repeat(21, 3, 2),
    ]  # fmt: skip


def test_nothing_repeats():
    assert found([1, 2, 3, 4], [1]) == []
    assert found([], [1]) == []
    assert found([1], [1]) == []


@given(
    layer=st.lists(st.integers(10, 14), min_size=0, max_size=6),
    times=st.integers(2, 6),
    before=st.lists(st.integers(0, 4), max_size=4, unique=True),
    after=st.lists(st.integers(5, 9), max_size=4, unique=True),
)
def test_prop_repeats_are_equal_disjoint_and_complete(layer, times, before, after):
    layer = [99, *layer]  # one anchor a layer
    row = np.asarray([*before, *layer * times, *after], np.int64)
    repeats = find_repeats(row, row == 99)
    covered = np.zeros(len(row), int)
    for r in repeats:
        pieces = row[r.start : r.stop].reshape(r.times, r.period)
        assert (pieces == pieces[0]).all()
        assert (pieces == 99).any(axis=1).all()
        covered[r.start : r.stop] += 1
    assert covered.max(initial=0) <= 1
    assert covered.sum() == len(layer) * times
    assert sum(r.times for r in repeats) == times
