import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.series.carbon_data import load_tool

from gnomon.errors import InputError
from gnomon.series import Signal
from gnomon.series._forecast_model import LEAST_HOURS, MODELS, Past
from gnomon.series._forecast_range import Forecaster
from gnomon.series.forecast import METHODS, choose_method, forecast, score
from gnomon.series.zones import zone_signal
from gnomon.units import DAY_NS, HOUR_NS

START_NS = 1672531200 * 10**9  # 2023-01-01T00:00:00Z


def hourly(values, **fields):
    fields = {
        "unit": "gCO2e/kWh",
        "kind": "carbon",
        "zone": "XX",
        "attribution": "made up",
    } | fields
    return Signal.regular(START_NS, HOUR_NS, values, **fields)


def clockwork(days):
    """The same day again and again."""
    return hourly(300 + 100 * np.cos(2 * np.pi * np.arange(24 * days) / 24))


@pytest.fixture(scope="module")
def grid():
    """Two years of generated hours of a windy grid."""
    return zone_signal("DE", START_NS, START_NS + 730 * DAY_NS, seed=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_clockwork_is_foreseen_and_its_range_is_narrow(method):
    history = clockwork(90)
    ahead = forecast(history, 48 * HOUR_NS, method)
    truth = clockwork(92).values[-48:]
    np.testing.assert_allclose(ahead.values, truth, rtol=0.06 if method == "persistence" else 0.02)
    assert (ahead.start_ns, len(ahead)) == (history.end_ns, 48)
    assert np.mean(ahead.high - ahead.low) < 25
    assert (ahead.unit, ahead.kind, ahead.zone) == (history.unit, history.kind, history.zone)
    assert ahead.attribution == f"forecast by gnomon, {method}, from made up"


@pytest.mark.parametrize("method", METHODS)
def test_a_flat_history_stays_flat(method):
    ahead = forecast(hourly(np.full(24 * 70, 250.0)), 30 * HOUR_NS, method)
    np.testing.assert_allclose(ahead.values, 250.0)
    np.testing.assert_allclose(ahead.low, 250.0)
    np.testing.assert_allclose(ahead.high, 250.0)


@pytest.mark.parametrize("method", METHODS)
def test_hours_of_zero_are_no_trouble(method):
    values = 50 + 50 * np.cos(2 * np.pi * np.arange(24 * 70) / 24)
    values[values < 10] = 0.0
    ahead = forecast(hourly(values), 24 * HOUR_NS, method)
    assert np.isfinite(ahead.values).all()
    assert (ahead.low >= 0).all()
    only_zeros = forecast(hourly(np.zeros(24 * 70)), 24 * HOUR_NS, method)
    np.testing.assert_allclose(only_zeros.values, 0.0, atol=1e-6)


def test_short_histories_fall_back_and_say_so():
    ten_days = forecast(clockwork(10), 12 * HOUR_NS)
    assert (
        "seasonal (10 d of history are too few for 'fitted', which needs 60 d)"
        in ten_days.attribution
    )
    two_days = forecast(clockwork(2), 48 * HOUR_NS)
    assert ", persistence (2 d of history are too few" in two_days.attribution
    assert len(two_days) == 48
    assert choose_method(100 * DAY_NS).note == ""


@pytest.mark.parametrize(
    ("hours", "line"),
    [(47, r"needs 2 days of history, not 1 d 23 h"), (1, "needs 2 days of history, not 1 h")],
)
def test_less_than_two_days_are_refused(hours, line):
    with pytest.raises(InputError, match=line):
        forecast(hourly(np.full(hours, 1.0)), HOUR_NS)


def test_what_cannot_be_forecast_is_refused():
    with pytest.raises(InputError, match="no way to forecast is called 'oracle'"):
        forecast(clockwork(10), HOUR_NS, "oracle")
    for horizon_ns in (0, -1, 400 * DAY_NS):
        with pytest.raises(InputError, match="a forecast reaches"):
            forecast(clockwork(10), horizon_ns)
    gappy = clockwork(10).values.copy()
    gappy[100] = np.nan
    with pytest.raises(InputError, match="no value from"):
        forecast(hourly(gappy), HOUR_NS)
    with pytest.raises(InputError, match="below zero"):
        forecast(hourly(np.linspace(-1, 1, 100)), HOUR_NS)


def test_other_steps_and_phases_become_hours_that_end_where_the_history_does():
    halves = Signal.regular(
        START_NS + 17,
        HOUR_NS // 2,
        np.tile([100.0, 300.0], 24 * 20),
        unit="gCO2e/kWh",
        kind="carbon",
    )
    ahead = forecast(halves, 90 * 60 * 10**9, "seasonal")
    assert (ahead.start_ns, ahead.end_ns) == (halves.end_ns, halves.end_ns + 90 * 60 * 10**9)
    np.testing.assert_allclose(ahead.values, 200.0)


@pytest.mark.parametrize("method", METHODS)
def test_only_the_past_is_read(grid, method):
    past = Past(grid.values, START_NS // HOUR_NS)
    origins = np.array([5000, 5001, 9000])
    forecaster = Forecaster(method, past.until(5000), 30)
    expected = forecaster.predict(past, origins)
    changed = past.values.copy()
    changed[9000:] = 1e6
    seen = forecaster.predict(Past(changed, past.first), origins)
    for before, after in zip(expected, seen):
        np.testing.assert_array_equal(before, after)
    alone = forecaster.predict(past.until(5000), origins[:1])
    np.testing.assert_allclose(alone.mid[0], expected.mid[0])


@pytest.mark.parametrize("method", METHODS)
def test_farther_than_a_week_has_values_too(grid, method):
    ahead = forecast(grid.slice(grid.start_ns, grid.start_ns + 200 * DAY_NS), 10 * DAY_NS, method)
    assert len(ahead) == 240
    assert (ahead.values > 0).all()
    assert (ahead.high >= ahead.low).all()


def test_better_methods_are_better_and_ranges_hold_what_they_promise(grid):
    tables = {method: score(grid, method, horizons=(1, 24, 48), days=2) for method in METHODS}
    errors = {method: table["mape_pct"] for method, table in tables.items()}
    assert errors["fitted"][0] < errors["seasonal"][0]
    assert errors["fitted"][3] < errors["seasonal"][3] < errors["persistence"][3]
    assert errors["fitted"][0] < errors["fitted"][1] < errors["fitted"][2]
    for table in tables.values():
        assert [row["ahead"] for row in table.rows()] == ["1 h", "24 h", "48 h", "day 1", "day 2"]
        assert (abs(table["coverage_pct"] - 80) < 9).all()
    assert tables["fitted"]["hours"][-1] == 24 * 364


def test_scores_of_a_clockwork_are_perfect():
    table = score(clockwork(150), "fitted", horizons=(1,), days=1)
    assert (table["mape_pct"] < 1.0).all()
    assert len(table) == 2


def test_scores_need_a_past_and_a_span(grid):
    with pytest.raises(InputError, match="too few for 'fitted'"):
        score(grid, start_ns=grid.start_ns + 30 * DAY_NS)
    with pytest.raises(InputError, match="fits between start and end"):
        score(grid, start_ns=grid.end_ns - 10 * HOUR_NS)
    with pytest.raises(InputError, match="fits between start and end"):
        score(grid, start_ns=grid.end_ns + DAY_NS)


@settings(max_examples=15)
@given(
    st.integers(48, 24 * 40), st.integers(1, 60), st.sampled_from(METHODS), st.integers(0, 2**32)
)
def test_prop_any_history_of_two_days_gives_ordered_finite_ranges(hours, horizon, method, seed):
    rng = np.random.default_rng(seed)
    values = rng.gamma(2.0, 100.0, hours) * rng.integers(0, 2, hours)
    ahead = forecast(hourly(values), horizon * HOUR_NS, method)
    assert len(ahead) == horizon
    assert np.isfinite(ahead.low).all()
    assert np.isfinite(ahead.high).all()
    assert (ahead.low >= 0).all()
    assert (ahead.low <= ahead.values).all()
    assert (ahead.values <= ahead.high).all()
    assert ahead == forecast(hourly(values), horizon * HOUR_NS, method)


def test_every_method_has_a_model_and_a_least_history():
    assert tuple(MODELS) == tuple(LEAST_HOURS) == METHODS


@pytest.mark.data
@pytest.mark.parametrize(
    ("zone", "day_1", "day_4"), [("PJM", 3.1, 5.6), ("CISO", 8.2, 13.0), ("SE", 4.6, 7.4)]
)
def test_real_hours_are_forecast_as_well_as_was_measured(public_data, zone, day_1, day_4):
    """CarbonCast's data and span: what benchmarks/carbon_forecast.py prints, with some room."""
    signal = load_tool().read_cast(public_data / "carbon", zone, "lifecycle")
    july = int(np.datetime64("2021-07-01", "ns").astype(np.int64))
    table = score(signal, "fitted", horizons=(1,), start_ns=july)
    assert table["hours"][-1] == 181 * 24
    assert table["mape_pct"][1] < day_1
    assert table["mape_pct"][4] < day_4
    assert 65 < table["coverage_pct"][1:].mean() < 92
