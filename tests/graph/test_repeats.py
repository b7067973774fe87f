"""Repeats: what comes again back to back."""

from __future__ import annotations

import random
import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gnomon.graph.repeats import Repeat, find_repeats, longest_repeat


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


# -- the longest ---------------------------------------------------------------------------------


def slow_repeat(codes: list[int]) -> Repeat | None:
    """Every start and every period, one element after the other."""
    best, most = None, 0
    for period in range(1, len(codes) // 2 + 1):
        for start in range(len(codes) - 2 * period + 1):
            end = start + period
            while end < len(codes) and codes[end] == codes[end - period]:
                end += 1
            repeats = (end - start) // period
            if repeats >= 2 and repeats * period > most:
                most = repeats * period
                best = Repeat(start, period, repeats, (end - start) - most)
    return best


@given(st.lists(st.integers(0, 2), max_size=40))
def test_prop_the_longest_repeat_is_the_one_found_slowly(codes):
    assert longest_repeat(np.asarray(codes, np.int32)) == slow_repeat(codes)


@given(
    block=st.lists(st.integers(0, 9), min_size=2, max_size=8),
    times=st.integers(2, 6),
    data=st.data(),
)
def test_prop_a_repetition_is_found_among_other_things(block, times, data):
    around = st.lists(st.integers(10, 99), max_size=5, unique=True)
    before, after = data.draw(around), data.draw(around)
    found = longest_repeat(np.asarray(before + block * times + after, np.int32))
    assert found is not None
    assert found.period * found.times + found.slack >= len(block) * times


def test_ten_thousand_calls_take_no_time():
    block = random.Random(0).choices(range(30), k=100)
    codes = np.asarray(block * 100, np.int32)
    began = time.process_time()
    assert longest_repeat(codes) == Repeat(0, 100, 100, 0)
    assert time.process_time() - began < 2.0
