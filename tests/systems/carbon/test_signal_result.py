import json

import numpy as np
import pytest

from gnomon.errors import InputError
from gnomon.report import render_html, to_json
from gnomon.series import Signal
from gnomon.series.intensity import intensity_kind
from gnomon.systems.carbon.signal_result import cleanest_windows, see, to_result, to_script

HOUR_NS = 3600 * 10**9
DAY_NS = 24 * HOUR_NS
START_NS = 1704067200 * 10**9  # 2024-01-01T00:00:00Z


def grid(days, **fields):
    """Cleanest at noon, and every day alike."""
    hours = np.arange(24 * days)
    values = 300 + 100 * np.cos(2 * np.pi * hours / 24)
    fields = {"unit": "gCO2e/kWh", "kind": intensity_kind(), "zone": "XX"} | fields
    return Signal.regular(START_NS, HOUR_NS, values, **({"attribution": "made up"} | fields))


def test_the_result_says_what_it_is_and_when_it_is_cleanest():
    known = grid(20)
    result = to_result(see(known, known.start_ns, known.end_ns), "a command")
    assert result.figure("identity").value == "average, life-cycle, gCO2e/kWh, XX; made up"
    mean = result.figure("intensity_g_kwh").value
    assert mean.mid == pytest.approx(300)
    assert (mean.low, mean.high) == pytest.approx((203.4, 396.6), abs=0.1)
    assert result.figure("lowest_g_kwh").note == "2024-01-01 12:00 UTC"
    rows = {row["hours"]: row for row in result.table("cleanest").rows()}
    assert rows[1]["from"] == "2024-01-01 12:00"
    assert rows[1]["intensity"] == 200.0
    assert rows[4]["intensity"] > rows[2]["intensity"] > rows[1]["intensity"]
    assert rows[24]["spared_pct"] == 0.0
    day = list(result.table("day").rows())
    assert len(day) == 24
    assert day[12]["intensity"] == 200.0
    assert [chart.title for chart in result.charts] == ["The day", "The span"]
    assert "<svg" in render_html(result)


def test_a_forecast_with_its_range_is_shown_and_compared_with_what_came():
    known = grid(90)
    end = known.end_ns - 2 * DAY_NS
    seen = see(known, end - 7 * DAY_NS, end, horizon_ns=3 * DAY_NS)
    assert (len(seen.hours), len(seen.ahead), len(seen.actual)) == (168, 72, 48)
    result = to_result(seen)
    assert result.figure("forecast_g_kwh").value.mid == pytest.approx(300, rel=0.01)
    assert result.figure("forecast_error_pct").value < 1
    assert "the forecast" in result.table("cleanest").caption
    lines = result.charts[-1].lines
    assert [line.name for line in lines] == ["before", "forecast", "came"]
    assert lines[1].low[0] <= lines[1].y[0] <= lines[1].high[0]
    script = json.loads(to_json(result, extra=to_script(seen)))
    assert (script["basis"], script["scope"], script["generated"]) == (
        "average",
        "lifecycle",
        False,
    )
    assert script["span"]["start"] == "2024-03-22T00:00Z"
    assert len(script["forecast"]["low"]) == 72
    assert script["forecast"]["method"] == "fitted"


def test_a_long_span_shows_days():
    known = grid(100)
    chart = to_result(see(known, known.start_ns, known.end_ns)).charts[1]
    assert len(chart.lines[0].x) == 100
    assert chart.lines[0].low[0] == pytest.approx(200)


def test_gaps_are_refused_in_the_span_and_named_before_it():
    values = grid(30).values.copy()
    values[100:104] = np.nan
    known = grid(30).replace(values=values)
    with pytest.raises(InputError, match=r"grid\.csv: no value from 2024-01-05T04:00:00Z.*--fill"):
        see(known, known.start_ns, known.end_ns, where="grid.csv")
    seen = see(known, START_NS + 10 * DAY_NS, known.end_ns, horizon_ns=DAY_NS)
    assert "The forecast learns from the hours since the last gap, 2024-01-05 08:00." in seen.notes
    assert any(note.startswith("Forecast by 'seasonal': 25 d of history") for note in seen.notes)


def test_parts_of_hours_are_left_out():
    known = grid(10)
    seen = see(known, START_NS + 1, START_NS + 5 * HOUR_NS - 1)
    assert (seen.hours.start_ns, seen.hours.end_ns) == (START_NS + HOUR_NS, START_NS + 4 * HOUR_NS)
    short = "sdk: no whole hour lies in what there is, 2024-01-01 00:05 to 2024-01-01 00:55"
    with pytest.raises(InputError, match=short):
        see(known, START_NS + HOUR_NS // 12, START_NS + HOUR_NS * 11 // 12, where="sdk")


def test_windows_longer_than_the_signal_are_left_out():
    table = cleanest_windows(grid(1).slice(START_NS, START_NS + 5 * HOUR_NS))
    assert table["hours"].tolist() == [1, 2, 4]
