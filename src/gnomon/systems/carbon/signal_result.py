"""A grid's intensity as a Result: its hours, its day, what comes next, and when it is cleanest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import day_of
from gnomon.report import Chart, Figure, Line, LineChart, Manifest, Result
from gnomon.series import Signal
from gnomon.series.forecast import choose_method, forecast
from gnomon.series.intensity import describe_intensity, intensity_identity
from gnomon.table import Table
from gnomon.units import DAY_NS, HOUR_NS, parse

#: Beyond this many hours a curve shows days, with the range of each one's hours.
_MOST_HOURS = 24 * 31
_WINDOWS_H = (1, 2, 4, 8, 24)


class Seen(msgspec.Struct, frozen=True):
    """What is shown of a signal: its hours, a forecast, and what is known of what came."""

    hours: Signal
    ahead: Signal | None = None
    actual: Signal | None = None
    method: str = ""
    notes: tuple[str, ...] = ()
    seed: int | None = None


def see(
    known: Signal,
    start_ns: int,
    end_ns: int,
    *,
    horizon_ns: int | None = None,
    method: str = "fitted",
    notes: Sequence[str] = (),
    seed: int | None = None,
    where: str | None = None,
) -> Seen:
    """A span of a signal in whole hours of UTC, and a forecast from all that came before its end.

    Args:
        known: All that is known; what lies before the span is history to learn from.
        horizon_ns: How far ahead to forecast; not at all if None.
    """
    first, last = -(-start_ns // HOUR_NS) * HOUR_NS, end_ns // HOUR_NS * HOUR_NS
    if last <= first:
        span = f"{day_of(start_ns)} to {day_of(end_ns)}"
        hint = "hours begin on the hour in UTC: ask for a longer span"
        raise InputError(f"no whole hour lies in what there is, {span}", where=where, hint=hint)
    gaps = known.gaps()
    for gap in gaps:
        if gap.start_ns < last and gap.end_ns > first:
            hint = "--fill hold or --fill interpolate puts values there, or ask for another span"
            raise InputError(f"no value from {gap}", where=where, hint=hint)
    hours = known.slice(first, last).resample(HOUR_NS, 0)
    remarks = list(notes)
    if horizon_ns is None:
        return Seen(hours, notes=tuple(remarks), seed=seed)
    begin = max([known.start_ns, *(gap.end_ns for gap in gaps if gap.end_ns <= first)])
    if begin > known.start_ns:
        remarks.append(f"The forecast learns from the hours since the last gap, {day_of(begin)}.")
    choice = choose_method(last - begin, method)
    if choice.note:
        remarks.append(f"Forecast by {choice.method!r}: {choice.note}.")
    ahead = forecast(known.slice(begin, last), horizon_ns, method)
    return Seen(hours, ahead, _what_came(known, ahead), choice.method, tuple(remarks), seed)


def _what_came(known: Signal, ahead: Signal) -> Signal | None:
    """The hours that were forecast, where they are known by now and have no gap."""
    end_ns = min(known.end_ns, ahead.end_ns) // HOUR_NS * HOUR_NS
    if end_ns <= ahead.start_ns:
        return None
    came = known.slice(ahead.start_ns, end_ns)
    return None if came.gaps() else came.resample(HOUR_NS, 0)


def cleanest_windows(
    signal: Signal, lengths_h: Sequence[int] = _WINDOWS_H, *, among: str = "the span"
) -> Table:
    """The cleanest time to run for some hours on end, and what it spares against any time.

    >>> s = Signal.regular(0, HOUR_NS, [300, 100, 200, 400], unit="gCO2e/kWh", kind="carbon")
    >>> [(r["hours"], r["intensity"], r["spared_pct"]) for r in cleanest_windows(s, (1, 2)).rows()]
    [(1, 100.0, 60.0), (2, 150.0, 40.0)]
    """
    starts = signal.time_ns
    overall = signal.mean()
    rows = []
    for length in lengths_h:
        fitting = starts[starts + length * HOUR_NS <= signal.end_ns]
        if fitting.size == 0:
            continue
        means = signal.mean(fitting, fitting + length * HOUR_NS)
        best = int(np.argmin(means))
        spared = 100 * (1 - means[best] / overall) if overall else 0.0
        begin = int(fitting[best])
        rows.append(
            {
                "hours": length,
                "from": day_of(begin),
                "to": day_of(begin + length * HOUR_NS),
                "intensity": round(float(means[best]), 1),
                "spared_pct": round(float(spared), 1),
            }
        )
    return Table.from_rows(
        "cleanest",
        rows,
        units={"intensity": str(signal.unit), "spared_pct": "%"},
        caption=f"the cleanest of {among} for so many hours on end, against its mean",
    )


def to_result(seen: Seen, command: str = "", *, sources: Sequence[str] = ()) -> Result:
    """Everything there is to say about a grid's intensity."""
    hours = seen.hours
    notes = list(dict.fromkeys(seen.notes))
    return Result(
        "carbon",
        "signal",
        f"Carbon intensity of {hours.zone or 'a grid'}",
        "What does a kilowatt-hour emit, and when is it cleanest?",
        figures=_figures(seen),
        tables=[
            cleanest_windows(seen.ahead, among="the forecast")
            if seen.ahead is not None
            else cleanest_windows(hours),
            _day_table(hours),
        ],
        charts=_charts(seen),
        how=_how(seen),
        notes=notes,
        manifest=Manifest.of(
            command,
            sources,
            seed=seen.seed,
            kind=hours.kind,
            zone=hours.zone,
            forecast=seen.method,
        ),
    )


def _figures(seen: Seen) -> list[Figure]:
    values, unit = seen.hours.values, str(seen.hours.unit)
    spread = f"80 % of the hours from {day_of(seen.hours.start_ns)} to {day_of(seen.hours.end_ns)}"
    figures = [
        Figure("identity", "What it is", describe_intensity(seen.hours)),
        Figure("intensity_g_kwh", "Mean", _mean(values), unit, better="lower", note=spread),
        *(_extreme(seen.hours, name, label) for name, label in _EXTREMES),
    ]
    if seen.ahead is not None:
        seconds = seen.ahead.duration_ns / 1e9
        ahead = seen.ahead.integrate_estimate(unit=seen.ahead.unit * parse("s")).scale(1 / seconds)
        length = seen.ahead.duration_ns // HOUR_NS
        note = f"by {seen.method}; the range is that of the single hours' ranges"
        label = f"Mean of the next {length} h"
        figures.append(Figure("forecast_g_kwh", label, ahead, unit, better="lower", note=note))
        figures += _hindsight(seen.ahead, seen.actual)
    return figures


def _hindsight(ahead: Signal, actual: Signal | None) -> list[Figure]:
    if actual is None or not (actual.values > 0).all():
        return []
    expected = ahead.at(actual.time_ns)
    error = 100 * float(np.mean(np.abs(expected - actual.values) / actual.values))
    note = f"against the {len(actual)} hours that came"
    label = "Mean error of the forecast"
    return [Figure("forecast_error_pct", label, round(error, 2), "%", better="lower", note=note)]


_EXTREMES = (("lowest_g_kwh", "Lowest hour"), ("highest_g_kwh", "Highest hour"))


def _mean(values: Any) -> Estimate:
    low, high = np.quantile(values, [0.1, 0.9]).round(2).tolist()
    mean = round(float(values.mean()), 2)
    return Estimate(min(low, mean), mean, max(mean, high))


def _extreme(hours: Signal, name: str, label: str) -> Figure:
    at = int(np.argmin(hours.values) if name.startswith("lowest") else np.argmax(hours.values))
    when = f"{day_of(int(hours.time_ns[at]))} UTC"
    return Figure(name, label, round(float(hours.values[at]), 2), str(hours.unit), note=when)


def _by_hour(hours: Signal) -> dict[str, list[float]]:
    of_day = hours.time_ns // HOUR_NS % 24
    rows: dict[str, list[float]] = {"hour": [], "mean": [], "low": [], "high": []}
    for hour in range(24):
        values = hours.values[of_day == hour]
        if values.size:
            low, high = np.quantile(values, [0.1, 0.9]).tolist()
            mean = float(values.mean())
            for name, value in zip(rows, (hour, mean, min(low, mean), max(high, mean))):
                rows[name].append(float(value))
    return rows


def _day_table(hours: Signal) -> Table:
    day = _by_hour(hours)
    columns: dict[str, list[Any]] = {"hour_utc": [f"{int(hour):02}:00" for hour in day["hour"]]}
    for name, label in (
        ("mean", "intensity"),
        ("low", "intensity_low"),
        ("high", "intensity_high"),
    ):
        columns[label] = [round(value, 1) for value in day[name]]
    units = dict.fromkeys(list(columns)[1:], str(hours.unit))
    caption = "mean of each hour of the day (UTC), and the range that holds 80 % of the days"
    return Table.from_columns("day", columns, units=units, caption=caption)


def _charts(seen: Seen) -> list[Chart]:
    hours, unit = seen.hours, str(seen.hours.unit)
    day = _by_hour(hours)
    shape = Line("mean", day["hour"], day["mean"], low=day["low"], high=day["high"])
    charts: list[Chart] = [
        LineChart(
            "The day", [shape], x_label="hour of the day (UTC)", y_label="intensity", y_unit=unit,
            caption="Mean of each hour; 80 % of the days lie in the band.",
        ),
        _course(hours),
    ]  # fmt: skip
    if seen.ahead is not None:
        charts.append(_outlook(seen))
    return charts


def _course(hours: Signal) -> LineChart:
    if len(hours) <= _MOST_HOURS:
        line = Line("hours", _days_from(hours, hours.start_ns), hours.values.tolist(), step=True)
        caption = f"Each hour from {day_of(hours.start_ns)} UTC."
    else:
        line = _daily(hours)
        caption = f"Daily means from {day_of(hours.start_ns)} UTC; the band is each day's range."
    return LineChart(
        "The span", [line], x_label="days", x_unit="d", y_label="intensity",
        y_unit=str(hours.unit), caption=caption,
    )  # fmt: skip


def _daily(hours: Signal) -> Line:
    count = len(hours) // 24
    days = hours.values[: count * 24].reshape(count, 24)
    return Line(
        "daily mean",
        [float(day) for day in range(count)],
        days.mean(axis=1).tolist(),
        low=days.min(axis=1).tolist(),
        high=days.max(axis=1).tolist(),
    )


def _outlook(seen: Seen) -> LineChart:
    ahead = seen.ahead
    assert ahead is not None
    begin = max(seen.hours.start_ns, ahead.start_ns - 3 * DAY_NS)
    past = seen.hours.slice(begin, seen.hours.end_ns)
    assert ahead.low is not None
    assert ahead.high is not None
    lines = [
        Line("before", _days_from(past, ahead.start_ns), past.values.tolist(), step=True),
        Line(
            "forecast", _days_from(ahead, ahead.start_ns), ahead.values.tolist(),
            low=ahead.low.tolist(), high=ahead.high.tolist(), dashed=True,
        ),
    ]  # fmt: skip
    if seen.actual is not None:
        came = seen.actual
        lines.append(
            Line("came", _days_from(came, ahead.start_ns), came.values.tolist(), step=True)
        )
    return LineChart(
        "What comes next", lines, x_label="days from the last known hour", x_unit="d",
        y_label="intensity", y_unit=str(ahead.unit),
        caption="The band is meant to hold 80 % of the hours.",
    )  # fmt: skip


def _days_from(signal: Signal, zero_ns: int) -> list[float]:
    days: list[float] = ((signal.time_ns - zero_ns) / DAY_NS).tolist()
    return days


def _how(seen: Seen) -> list[str]:
    lines = [
        "Average or marginal, direct or life-cycle is **part of what a signal is**; signals that "
        "differ in it do not add (`gnomon.series.intensity`)."
    ]
    if seen.seed is not None:
        lines.append(
            "Hours are **generated from a profile** of real ones: daily shape by month, week, "
            "distribution and memory, level of the years (`gnomon.series.profile`). They are "
            "hours as they might have been, not hours that were."
        )
    if seen.ahead is not None:
        lines.append(
            "The forecast knows **nothing but the hours before**; its range comes from the errors "
            "that the same method made on them (`gnomon.series.forecast`)."
        )
    return lines


def to_script(seen: Seen) -> dict[str, object]:
    """What the JSON has at its top: identity, hours and forecast as plain numbers."""
    identity = intensity_identity(seen.hours)
    return {
        "zone": seen.hours.zone,
        "basis": identity.basis if identity else None,
        "scope": identity.scope if identity else None,
        "unit": str(seen.hours.unit),
        "attribution": seen.hours.attribution,
        "generated": seen.seed is not None,
        "span": _plain(seen.hours),
        "forecast": None if seen.ahead is None else {"method": seen.method, **_plain(seen.ahead)},
    }


def _plain(signal: Signal) -> dict[str, object]:
    about: dict[str, object] = {
        "start": f"{day_of(signal.start_ns).replace(' ', 'T')}Z",
        "step_s": 3600,
        "values": signal.values.tolist(),
    }
    if signal.low is not None and signal.high is not None:
        about |= {"low": signal.low.tolist(), "high": signal.high.tolist()}
    return about
