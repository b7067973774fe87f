"""Forecasts with a range, from the history of a signal alone, and how good they are.

No weather and no plant data go in, so where wind rules they lose to those who have them. A
provider's own forecast is simply a signal with low and high.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gnomon.errors import InputError
from gnomon.series._forecast_model import LEAST_HOURS, Past
from gnomon.series._forecast_range import Forecaster, ForecastRows
from gnomon.series._segment import Floats, Ints
from gnomon.series.signal import Signal
from gnomon.table import Table
from gnomon.units import DAY_NS, HOUR_NS, format_duration

#: From the simplest to the best.
METHODS = tuple(LEAST_HOURS)
_LONGEST_NS = 31 * DAY_NS
#: Hours between origins of single distances: prime to 24, so that all hours of the day are seen.
_POINT_STRIDE = 7
_REFIT_HOURS = 28 * 24


class Choice(NamedTuple):
    """The method that a history is long enough for, and why it is not the one asked for."""

    method: str
    note: str


def choose_method(history_ns: int, method: str = "fitted") -> Choice:
    """The method asked for, or the best that a shorter history can carry.

    >>> choose_method(10 * DAY_NS)
    Choice(method='seasonal', note="10 d of history are too few for 'fitted', which needs 60 d")
    """
    if method not in METHODS:
        hint = f"one of {', '.join(METHODS)}"
        raise InputError(f"no way to forecast is called {method!r}", hint=hint)
    hours = history_ns // HOUR_NS
    given = f"{hours // 24} d" if hours >= 48 else format_duration(history_ns)
    if hours < min(LEAST_HOURS.values()):
        what = f"a forecast needs 2 days of history, not {given}"
        raise InputError(what, hint="give more of the past")
    possible = [name for name in METHODS if LEAST_HOURS[name] <= hours]
    if method in possible:
        return Choice(method, "")
    needed = LEAST_HOURS[method] // 24
    note = f"{given} of history are too few for {method!r}, which needs {needed} d"
    return Choice(possible[-1], note)


def forecast(history: Signal, horizon_ns: int, method: str = "fitted") -> Signal:
    """The hours that follow a history, each with the range that holds 80 % of them.

    A history that is too short for a method is forecast by the next simpler one; the attribution
    says so. The range comes from the errors that the method would have made before.

    >>> wave = 300 + 100 * np.cos(2 * np.pi * np.arange(240) / 24)
    >>> past = Signal.regular(0, HOUR_NS, wave, unit="gCO2e/kWh", kind="carbon", zone="DE")
    >>> ahead = forecast(past, 6 * HOUR_NS, "seasonal")
    >>> ahead.values.round(), ahead.start_ns == past.end_ns, ahead.has_range
    (array([400., 397., 387., 371., 350., 326.]), True, True)

    Args:
        history: Values without gaps, up to now. Steps other than an hour are averaged to hours
            that end where the history does.
        horizon_ns: How far ahead; the last hour may be a part of one.
        method: 'persistence': the last value, or the last day; 'seasonal': means of the last four
            weeks and a fading offset; 'fitted': a regression on the hours, days and weeks before.
    """
    if not 0 < horizon_ns <= _LONGEST_NS:
        longest = format_duration(_LONGEST_NS)
        raise InputError(f"a forecast reaches from some minutes to {longest} ahead")
    past = _past(history)
    choice = choose_method(past.values.size * HOUR_NS, method)
    forecaster = Forecaster(choice.method, past, -(-horizon_ns // HOUR_NS))
    outlook = forecaster.predict(past, np.array([past.values.size]))
    low, mid, high = (array[0].round(2) for array in (outlook.low, outlook.mid, outlook.high))
    reason = f" ({choice.note})" if choice.note else ""
    thanks = (
        f"forecast by gnomon, {choice.method}{reason}, from {history.attribution or 'history'}"
    )
    signal = Signal.regular(
        history.end_ns, HOUR_NS, mid, low=low, high=high, unit=history.unit, kind=history.kind,
        zone=history.zone, attribution=thanks,
    )  # fmt: skip
    return signal.slice(history.end_ns, history.end_ns + horizon_ns)


def outlooks(
    hours: Signal, first: int, count: int, horizon: int, method: str = "fitted"
) -> ForecastRows:
    """What would have been expected at each of a number of hours, of the hours after it.

    The method is fitted once, on what comes before the first of them.

    Args:
        first: The first hour, counted from the begin, at which one looks ahead; it is known.
        count: How many hours one does.

    Returns:
        `mid`, `low` and `high`: a row for each hour, a column for each hour ahead of it.

    >>> wave = 300 + 100 * np.cos(2 * np.pi * np.arange(240) / 24)
    >>> past = Signal.regular(0, HOUR_NS, wave, unit="gCO2e/kWh", kind="carbon", zone="DE")
    >>> outlooks(past, 200, 2, 3, "seasonal").mid.shape
    (2, 3)
    """
    past = _past(hours)
    if not 0 <= first <= past.values.size - count or count < 1 or horizon < 1:
        raise InputError("the hours to look ahead from lie outside of the signal")
    if LEAST_HOURS.get(method, 0) > first + 1:
        raise InputError(choose_method((first + 1) * HOUR_NS, method).note, hint="start later")
    choose_method((first + 1) * HOUR_NS, method)
    forecaster = Forecaster(method, past.until(first + 1), horizon)
    return forecaster.predict(past, np.arange(first + 1, first + 1 + count))


def _past(history: Signal) -> Past:
    if history.duration_ns < HOUR_NS:
        raise InputError("a forecast needs 2 days of history, not less than an hour")
    hours = history.duration_ns // HOUR_NS
    start_ns = history.end_ns - hours * HOUR_NS
    whole = history.slice(start_ns, history.end_ns)
    values = whole.resample(HOUR_NS, start_ns).values
    if (values < 0).any():
        raise InputError("the history has values below zero", where=repr(history))
    return Past(values, start_ns // HOUR_NS)


def score(
    signal: Signal,
    method: str = "fitted",
    *,
    horizons: Sequence[int] = (1, 24, 48),
    days: int = 4,
    start_ns: int | None = None,
    end_ns: int | None = None,
) -> Table:
    """How good forecasts of a signal would have been, each made from its past alone.

    The method is fitted again every four weeks, on all that came before. Single distances are
    tried from every seventh hour; whole days from every midnight (UTC), as CarbonCast reports
    them: day 1 is the mean over 1 to 24 hours ahead.

    Args:
        start_ns: Where the first forecast begins; unless given, a year before the end, or half
            way.
        end_ns: Where the last one ends; the end of the signal unless given.

    Returns:
        A row for each distance: `ahead`, `mape_pct`, `coverage_pct` (of a range meant to hold
        80 %) and `hours`, the number compared. Hours of zero have no relative error and are
        left out.
    """
    past = _past(signal)
    reach = max([*horizons, 24 * days])
    begin, end = _trial_span(signal, past, start_ns, end_ns, reach)
    choose_method(begin * HOUR_NS, method)
    if LEAST_HOURS[method] > begin:
        raise InputError(choose_method(begin * HOUR_NS, method).note, hint="start later")
    trial = _Trial(past, method, reach, begin, end)
    points = trial.compare(np.arange(begin, end - reach + 1, _POINT_STRIDE))
    midnights = np.arange(begin + (-(past.first + begin)) % 24, end - reach + 1, 24)
    whole = trial.compare(midnights) if days else points
    rows = [points.row(f"{ahead} h", slice(ahead - 1, ahead)) for ahead in horizons]
    rows += [whole.row(f"day {day + 1}", slice(24 * day, 24 * day + 24)) for day in range(days)]
    return Table.from_rows(
        "scores", rows, units={"mape_pct": "%", "coverage_pct": "%"},
        caption=f"forecasts by {method!r}, each from the past alone",
    )  # fmt: skip


def _trial_span(
    signal: Signal, past: Past, start_ns: int | None, end_ns: int | None, reach: int
) -> tuple[int, int]:
    size = past.values.size
    end = size if end_ns is None else end_ns // HOUR_NS - past.first
    begin = max(size // 2, end - 8766) if start_ns is None else start_ns // HOUR_NS - past.first
    if not 0 < begin < end <= size or end - begin < reach:
        what = f"no forecast of {reach} h fits between start and end"
        raise InputError(what, where=repr(signal))
    return begin, end


class _Compared(NamedTuple):
    """Outcomes beside what was expected: one row an origin, one column an hour ahead."""

    actual: Floats
    outlook: ForecastRows

    def row(self, ahead: str, chosen: slice) -> dict[str, object]:
        actual, mid, low, high = (array[:, chosen] for array in (self.actual, *self.outlook))
        known = actual > 0
        errors = np.abs(mid - actual)[known] / actual[known]
        inside = (low <= actual) & (actual <= high)
        return {
            "ahead": ahead,
            "mape_pct": 100 * float(errors.mean()) if errors.size else float("nan"),
            "coverage_pct": 100 * float(inside.mean()),
            "hours": int(known.sum()),
        }


class _Trial:
    """One signal forecast again and again, by forecasters fitted as time goes on."""

    def __init__(self, past: Past, method: str, reach: int, begin: int, end: int) -> None:
        self.past, self.reach = past, reach
        self.starts = list(range(begin, end - reach + 1, _REFIT_HOURS)) or [begin]
        self.made = [Forecaster(method, past.until(start), reach) for start in self.starts]

    def compare(self, origins: Ints) -> _Compared:
        parts = []
        which = np.searchsorted(self.starts, origins, side="right") - 1
        for number, forecaster in enumerate(self.made):
            if (mine := origins[which == number]).size:
                parts.append(forecaster.predict(self.past, mine))
        targets = origins[:, np.newaxis] + np.arange(self.reach)
        low, mid, high = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("low", "mid", "high")
        )
        return _Compared(self.past.values[targets], ForecastRows(mid, low, high))
