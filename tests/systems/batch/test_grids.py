"""Hours of a grid as a trial sees them: what is known, what is not, and the placebo."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.series import Signal
from gnomon.systems.batch.grids import HORIZON_H, GridHours, hours_of_zone, shuffled

HOUR_NS = 3_600 * 10**9
MINUTE_NS = 60 * 10**9


def signal(values, step_ns=HOUR_NS):
    return Signal.regular(0, step_ns, values, unit="gCO2e/kWh", kind="carbon-intensity")


def waves(hours, seed=0):
    rng = np.random.default_rng(seed)
    day = 300 + 120 * np.cos(2 * np.pi * np.arange(hours) / 24)
    return np.maximum(day + rng.normal(0, 15, hours), 1.0)


def test_hours_are_averaged_and_steps_are_theirs():
    hours = GridHours.of("x", signal(np.repeat(np.arange(48.0), 4), HOUR_NS // 4))
    assert hours.count == 48
    grid = hours.steps(3, 10, MINUTE_NS)
    assert grid.steps.actual.tolist() == list(range(3, 13))
    assert grid.steps.outlook.shape == (10, HORIZON_H)
    assert grid.steps.outlook[0, :3].tolist() == [3.0, 4.0, 5.0]
    assert grid.steps.low[0] == 0.0  # it begins anew after hour 47
    assert grid.steps.high[0] == 47.0


def test_hours_have_to_be_whole_and_without_gaps():
    with pytest.raises(InputError, match="less than a day"):
        GridHours.of("x", signal(np.ones(23)))
    first, last = signal(np.ones(30)), signal(np.ones(30)).shift(40 * HOUR_NS)
    with pytest.raises(InputError, match="gaps"):
        GridHours.of("x", Signal.concat([first, last]))


@pytest.mark.parametrize("method", ["persistence", "seasonal", "fitted"])
def test_a_forecast_reads_only_what_has_been(method):
    values = waves(2200)
    other = values.copy()
    other[1600:] = waves(600, seed=5) + 400  # only what comes after the last look
    one, two = (GridHours.of("x", signal(v)) for v in (values, other))
    seen, changed = (h.steps(1500, 90, MINUTE_NS, method) for h in (one, two))
    np.testing.assert_array_equal(seen.steps.outlook[:90], changed.steps.outlook[:90])
    np.testing.assert_array_equal(seen.high, changed.high)
    # The hour itself is known, and the range is around the middle.
    np.testing.assert_allclose(seen.steps.outlook[:, 0], values[1500:1590])
    assert (seen.high[:, 1:] >= seen.steps.outlook[:, 1:]).all()
    assert (seen.steps.low <= seen.steps.seen).all()
    assert (seen.steps.high >= seen.steps.seen).all()


def test_a_forecast_is_not_what_comes():
    hours = GridHours.of("x", signal(waves(2200)))
    known, fitted = (hours.steps(1500, 50, MINUTE_NS, how) for how in ("known", "fitted"))
    off = np.abs(known.steps.outlook[:, 1:] - fitted.steps.outlook[:, 1:]).mean()
    assert 1.0 < off < 40.0


def test_a_placebo_has_the_same_hours_at_other_times():
    grid = GridHours.of("x", signal(waves(200))).steps(0, 100, MINUTE_NS)
    mixed = shuffled(grid, 60, np.random.default_rng(0)).steps
    np.testing.assert_array_equal(mixed.actual, grid.steps.actual)
    assert sorted(mixed.seen[:60]) == sorted(grid.steps.actual[:60])
    assert (mixed.seen[:60] != grid.steps.actual[:60]).mean() > 0.9
    np.testing.assert_array_equal(mixed.seen[60:], grid.steps.seen[60:])
    # What was known at an hour goes with it.
    where = [int(np.flatnonzero(grid.steps.seen == value)[0]) for value in mixed.seen]
    np.testing.assert_array_equal(mixed.outlook, grid.steps.outlook[where])
    np.testing.assert_array_equal(mixed.high, grid.steps.high[where])


@pytest.mark.parametrize("method", ["known", "persistence", "seasonal", "fitted"])
def test_a_flat_grid_leaves_nothing_to_decide(method):
    steps = (
        GridHours.of("x", signal(np.full(2000, 300.1))).steps(1500, 60, MINUTE_NS, method).steps
    )
    assert (steps.outlook == steps.seen[0]).all()
    assert (steps.low == steps.high).all()


def test_a_zone_has_the_years_of_its_profile():
    hours = hours_of_zone("CAISO")
    assert hours.count > 3 * 8760
    assert 100 < hours.signal.mean() < 500
