"""PCAPS' and CAP's formulas at their ends, and where they must rise or fall."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.decide.cluster.rules import (
    NARROWINGS,
    cap_alpha,
    cap_alpha_limit,
    cap_quota,
    cap_thresholds,
    pcaps_limit,
    pcaps_threshold,
)
from gnomon.errors import InputError

shares = st.floats(0, 1)
ranges = st.tuples(st.floats(1, 900), st.floats(0, 900)).map(lambda r: (r[0], r[0] + r[1]))
wide = st.tuples(st.floats(1, 900), st.floats(1, 900)).map(lambda r: (r[0], r[0] + r[1]))


@given(shares, shares, ranges)
def test_prop_threshold_at_its_ends(importance, gamma, bounds):
    low, high = bounds
    assert pcaps_threshold(1.0, gamma, low, high) == high
    assert pcaps_threshold(importance, 0.0, low, high) == high
    base = gamma * low + (1 - gamma) * high
    assert pcaps_threshold(0.0, gamma, low, high) == pytest.approx(base)
    assert pcaps_threshold(0.0, 1.0, low, high) == pytest.approx(low)
    between = pcaps_threshold(importance, gamma, low, high)
    assert base * (1 - 1e-12) <= between <= high * (1 + 1e-12)


@given(st.tuples(shares, shares), shares, ranges)
def test_prop_the_more_important_the_dirtier_may_it_be(pair, gamma, bounds):
    less, more = sorted(pair)
    low, high = (pcaps_threshold(importance, gamma, *bounds) for importance in (less, more))
    assert low <= high * (1 + 1e-12)


@given(shares, st.tuples(shares, shares), ranges)
def test_prop_the_greater_gamma_the_less_runs(importance, pair, bounds):
    less, more = sorted(pair)
    assert pcaps_threshold(importance, more, *bounds) <= pcaps_threshold(
        importance, less, *bounds
    ) * (1 + 1e-9)


@given(st.integers(1, 1000), shares, shares, ranges, st.sampled_from(NARROWINGS))
def test_prop_limits_stay_between_one_and_all(limit, gamma, place, bounds, how):
    low, high = bounds
    intensity = low + place * (high - low)
    left = pcaps_limit(limit, gamma, intensity, low, high, how)
    assert 1 <= left <= limit
    assert pcaps_limit(limit, 0.0, intensity, low, high, how) == limit
    assert pcaps_limit(limit, gamma, intensity, low, high, "none") == limit


def test_limits_as_printed():
    # At L the exponent is 0: what is left is 1 - gamma.
    for how in ("literal", "dimensionless"):
        assert pcaps_limit(40, 0.25, 100, 100, 500, how) == 30
        assert pcaps_limit(40, 1.0, 100, 100, 500, how) == 1
    assert pcaps_limit(40, 0.25, 110, 100, 500, "literal") == math.ceil(40 * math.exp(-2.5))
    # floor(P - gamma (P - P')), P' with no more than 0.9 of gamma.
    assert pcaps_limit(40, 1.0, 100, 100, 500, "released") == math.ceil(40 * 0.1)


@pytest.mark.parametrize(("low", "high"), [(130, 765), (586, 785)])
def test_alpha_tends_to_lamberts_limit(low, high):
    limit = cap_alpha_limit(low, high)
    w = 1 / limit - 1
    assert w * math.exp(w) == pytest.approx((low / high - 1) / math.e, rel=1e-9)
    assert cap_alpha(low, high, 80) == pytest.approx(limit, rel=0.004)
    assert cap_alpha(low, high, 8) == pytest.approx(limit, rel=0.04)
    assert cap_alpha(low, high, 10**6) == pytest.approx(limit, rel=1e-5)


@given(wide, st.integers(1, 500))
def test_prop_alpha_is_the_root(bounds, steps):
    low, high = bounds
    alpha = cap_alpha(low, high, steps)
    assert alpha > 1
    left = steps * math.log1p(1 / (steps * alpha))
    assert left == pytest.approx(math.log((high - low) / (high * (1 - 1 / alpha))), abs=1e-6)


@given(wide, st.integers(1, 200))
def test_prop_thresholds_fall(bounds, steps):
    low, high = bounds
    thresholds = cap_thresholds(low, high, steps)
    assert len(thresholds) == steps
    assert thresholds[0] == pytest.approx(high / cap_alpha(low, high, steps))
    assert (np.diff(thresholds) < 0).all()
    # One more would be L: the root says so.
    alpha = cap_alpha(low, high, steps)
    after = high - (high - high / alpha) * (1 + 1 / (steps * alpha)) ** steps
    assert after == pytest.approx(low, rel=1e-6)


@given(ranges, st.integers(1, 60), st.data())
def test_prop_quota_falls_from_all_to_the_least(bounds, executors, data):
    low, high = bounds
    least = data.draw(st.integers(1, executors))
    intensity = np.linspace(low, high, 41)
    quota = cap_quota(intensity, low, high, min_executors=least, executors=executors)
    assert quota[0] == executors
    if high > low * (1 + 1e-9):
        assert quota[-1] == least
    assert (np.diff(quota) <= 0).all()
    assert quota.min() >= least


def test_a_flat_grid_is_all_clean():
    assert cap_alpha(100, 100, 5) == 1.0 == cap_alpha_limit(100, 100)
    assert cap_quota([100.0], 100.0, 100.0, min_executors=1, executors=9).tolist() == [9]
    assert pcaps_threshold(0.3, 0.9, 100, 100) == pytest.approx(100)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: pcaps_threshold(1.1, 0.5, 1, 2), "importance=1.1"),
        (lambda: pcaps_threshold(0.5, -0.1, 1, 2), "gamma=-0.1"),
        (lambda: pcaps_threshold(0.5, float("nan"), 1, 2), "gamma=nan"),
        (lambda: pcaps_threshold(0.5, 0.5, 3, 2), "from 3 to 2"),
        (lambda: pcaps_limit(5, 2.0, 1, 1, 2), "gamma=2"),
        (lambda: cap_alpha(-1, 2, 5), "from -1 to 2"),
        (lambda: cap_alpha_limit(1, float("inf")), "from 1 to inf"),
        (lambda: cap_quota([1.0], 1.0, 2.0, min_executors=0, executors=4), "min_executors=0 of 4"),
        (lambda: cap_quota([1.0], 1.0, 2.0, min_executors=5, executors=4), "min_executors=5 of 4"),
    ],
)
def test_out_of_range(call, why):
    with pytest.raises(InputError, match=why):
        call()
