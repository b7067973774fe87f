"""How much load managers are ready for, and how far it may rise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import _core
from gnomon.decide.services import PERCENTILES, load
from gnomon.decide.services.load import GREATEST_RISE, appended, greatest_rise, ready_for

RATES = st.lists(st.lists(st.floats(0, 1e4), min_size=2, max_size=2), min_size=1, max_size=40)


def slow_ready_for(rates, rise, window_s):
    """Class by class, mean by mean."""
    found = []
    for c in range(len(rates[0])):
        values = [row[c] for row in rates]
        level = sum(values) / len(values)
        for span in (1, 2, 4, 8, 16):
            last = values[-span:]
            mean = sum(last) / len(last)
            level = max(level, mean - 1.5 * math.sqrt(mean / (len(last) * window_s)))
        found.append(level * (1 + rise))
    return found


@settings(max_examples=100, deadline=None)
@given(RATES, st.floats(0, 5), st.floats(0.1, 60))
def test_prop_load_to_be_ready_for_is_the_slow_loop(rates, rise, window_s):
    got = ready_for(np.array(rates), rise, window_s)
    np.testing.assert_allclose(got, slow_ready_for(rates, rise, window_s), rtol=1e-9, atol=1e-9)
    assert np.all(got >= np.mean(rates, axis=0) * (1 - 1e-9))


def test_what_chance_explains_is_one_number(monkeypatch):
    """Python and the native loop have the same constant, and both follow it."""
    jump = np.vstack([np.full((30, 1), 100.0), [[1000.0]]])
    monkeypatch.setattr(load, "_CHANCE", 0.0)
    assert ready_for(jump, 0.0, 1.0)[0] == 1000.0
    assert greatest_rise(0.0, jump[:30], np.array([110.0]), 1.0, 1800.0) == pytest.approx(0.1)


def test_windows_have_the_percentiles_that_the_simulator_counts():
    assert PERCENTILES is _core.MESH_PERCENTILES
    assert PERCENTILES == (50.0, 90.0, 95.0, 98.0, 99.0, 99.9)


def test_it_rises_at_once_and_falls_slowly():
    steady = np.full((30, 1), 100.0)
    jumped = ready_for(np.vstack([steady, [[1000.0]]]), 0.0, 1.0)[0]
    assert 900 < jumped < 1000
    dropped = ready_for(np.vstack([steady, [[1.0]]]), 0.0, 1.0)[0]
    assert dropped > 95


def test_the_greatest_rise_is_kept_and_forgotten_by_halves():
    past = np.full((10, 1), 100.0)
    seen = greatest_rise(0.0, past, np.array([250.0]), 1.0, 1800.0)
    assert seen == pytest.approx((250 - 1.5 * math.sqrt(250)) / 100 - 1)
    assert greatest_rise(seen, past, np.array([100.0]), 1800.0, 1800.0) == pytest.approx(seen / 2)
    assert greatest_rise(0.0, past, np.array([110.0]), 1.0, 1800.0) == 0.0  # within chance


@pytest.mark.parametrize("past", [None, np.zeros((10, 2)), np.full((3, 2), 5.0)])
def test_nothing_to_compare_with_is_no_rise(past):
    assert greatest_rise(0.0, past, np.array([500.0, 1.0]), 1.0, 1800.0) == 0.0


def test_only_so_many_windows_are_kept():
    rates = None
    for i in range(10):
        rates = appended(rates, np.array([float(i)]), 4)
    assert rates.ravel().tolist() == [6, 7, 8, 9]
    assert appended(rates, np.array([1.0]), 1).tolist() == [[1.0]]


def test_a_jump_from_hardly_any_load_is_no_lesson_for_full_load():
    night = np.full((29, 1), 5.0)
    assert greatest_rise(1.0, night, np.array([150.0]), 1.0, 1800.0) == GREATEST_RISE
    assert greatest_rise(3.0, night, np.array([150.0]), 1.0, 1800.0) > 2.9  # what was given stays
