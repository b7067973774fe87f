"""A profile from a real signal: what is typical of its hours, weeks, seasons and years."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.series._calendar import CalendarHours, hours_of
from gnomon.series._memory import fit_memory
from gnomon.series._segment import Floats, Ints
from gnomon.series.profile import (
    NORMAL_NODES,
    Profile,
    interpolate_months,
    level_nodes,
    nodes_through_means,
    part_middles,
)
from gnomon.series.signal import Signal
from gnomon.units import HOUR_NS

_YEAR_HOURS = 8766
_LEAST_HOURS = 360 * 24
#: Grids change: a year counts half of the one that follows it.
_RECENCY = 0.5
_PER_UNIT = 1000.0
#: Shares of hours below the quantiles by which the whole distribution is corrected.
_SHARES = np.array(
    [0.001, 0.003, 0.01, 0.02, 0.035, 0.05, *np.arange(0.1, 0.91, 0.05).round(2).tolist(),
     0.95, 0.965, 0.98, 0.99, 0.997, 0.999]
)  # fmt: skip
#: Years to draw, and the history, for the distribution that a profile has by itself.
_TRIAL_YEARS, _TRIAL_KEY = 16, 7


def fit_profile(signal: Signal) -> Profile:
    """The profile of a signal of a year or more, without gaps; newer years count more.

    >>> hours = np.arange(366 * 24)
    >>> day = 300 + 100 * np.cos(2 * np.pi * hours / 24) + hours % 7
    >>> signal = Signal.regular(0, HOUR_NS, day, unit="gCO2e/kWh", kind="carbon", zone="X")
    >>> profile = fit_profile(signal)
    >>> profile.day_shape[0, [0, 12]].round()
    array([403., 203.])

    Args:
        signal: The real hours; another step is averaged to hours of UTC.
    """
    hourly = signal.resample(HOUR_NS, 0)
    if hourly.duration_ns < _LEAST_HOURS * HOUR_NS:
        days = hourly.duration_ns / (24 * HOUR_NS)
        what = f"a profile needs the hours of a year, not of {days:.1f} days"
        raise InputError(what, where=f"signal {signal.kind!r}")
    index = hourly.time_ns // HOUR_NS
    course = _Course.of(hourly, index)
    shape = (hourly.values - course.level) / course.deviation
    tables = _fit_tables(shape, hours_of(index), course.weight)
    profile = Profile(
        zone=signal.zone or "",
        kind=signal.kind,
        unit=str(signal.unit),
        attribution=signal.attribution,
        start_ns=hourly.start_ns,
        end_ns=hourly.end_ns,
        levels=tuple(course.levels.round(3).tolist()),
        deviations=tuple(course.deviations.round(3).tolist()),
        newest=course.newest,
        bounds=(float(hourly.values.min()), float(hourly.values.max())),
        drawn=(-1_000_000, 1_000_000),
        real=(-1_000_000, 1_000_000),
        **tables,
    )
    return _corrected(profile, shape, course.weight)


class _Course(NamedTuple):
    """Level, deviation and weight over the years."""

    levels: Floats
    deviations: Floats
    newest: tuple[float, float, float]
    level: Floats
    deviation: Floats
    weight: Floats

    @classmethod
    def of(cls, hourly: Signal, index: Ints) -> _Course:
        values = hourly.values
        count = max(1, (values.size + 48) // _YEAR_HOURS)
        part = np.minimum(np.arange(values.size) * count // values.size, count - 1)
        parts = [values[part == k] for k in range(count)]
        levels = np.array([chunk.mean() for chunk in parts])
        # A signal that never changes has no deviation to divide by.
        deviations = np.array([max(float(chunk.std()), 1e-6) for chunk in parts])
        low, high = np.quantile(parts[-1], [0.1, 0.9]).round(2).tolist()
        newest = (min(low, mean := round(float(levels[-1]), 2)), mean, max(high, mean))
        middles = part_middles(hourly.start_ns, hourly.end_ns, count)
        return cls(
            levels,
            deviations,
            newest,
            np.interp(index + 0.5, middles, level_nodes(levels)),
            np.interp(index + 0.5, middles, deviations),
            _RECENCY ** (count - 1.0 - part),
        )


def _fit_tables(shape: Floats, hours: CalendarHours, weight: Floats) -> dict[str, tuple[int, ...]]:
    cell = hours.month * 24 + hours.hour
    of_week = hours.weekday * 24 + hours.hour
    week = np.zeros(168)
    # Means of months and of weekdays see each other's part: twice is as good as for ever.
    for _ in range(2):
        mean = _cell_means(shape - week[of_week], cell, weight, 288)
        expected = interpolate_months(nodes_through_means(mean), hours)
        week = _cell_means(shape - expected, of_week, weight, 168)
        week -= np.tile(week.reshape(7, 24).mean(axis=0), 7)
    left = shape - expected - week[of_week]
    spread = np.sqrt(_cell_means(left**2, cell, weight, 288))
    spread = np.maximum(spread, 2 / _PER_UNIT)
    scaled = left / interpolate_months(spread.reshape(12, 24), hours)
    quantiles = _hour_quantiles(scaled, hours.hour, weight)
    memory = fit_memory(_normals(scaled, quantiles, hours.hour))
    tables = {"mean": mean, "spread": spread, "week": week, "quantiles": quantiles.ravel()}
    return {name: _whole(table) for name, table in tables.items()} | {
        "memory": tuple((memory * 10_000).round().astype(int).tolist())
    }


def _whole(table: Floats) -> tuple[int, ...]:
    return tuple((table * _PER_UNIT).round().astype(int).tolist())


def _cell_means(values: Floats, cell: Ints, weight: Floats, cells: int) -> Floats:
    total = np.bincount(cell, weight, cells)
    return np.bincount(cell, weight * values, cells) / np.maximum(total, 1e-12)


def _hour_quantiles(scaled: Floats, hour: Ints, weight: Floats) -> Floats:
    """Quantiles at the nodes for each hour of the day, taken together with its neighbours."""
    shares = _node_shares()
    table = np.empty((24, NORMAL_NODES.size))
    for of_day in range(24):
        near = np.abs((hour - of_day + 12) % 24 - 12) <= 1
        table[of_day] = _weighted_quantiles(scaled[near], weight[near], shares)
    return table


def _node_shares() -> Floats:
    tail = [0.0005, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4]
    return np.array([*tail, 0.5, *(1 - share for share in reversed(tail))])


def _weighted_quantiles(values: Floats, weight: Floats, shares: Floats) -> Floats:
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return np.interp(shares, (below - 0.5 * weight[order]) / below[-1], values[order])


def _normals(scaled: Floats, quantiles: Floats, hour: Ints) -> Floats:
    """What is left as normal numbers: the bending of the generator, undone."""
    # Equal quantiles, where a grid often has the very same value, would not invert.
    rising = quantiles + 1e-9 * np.arange(NORMAL_NODES.size)
    normals = np.empty(scaled.size)
    for of_day in range(24):
        chosen = hour == of_day
        normals[chosen] = np.interp(scaled[chosen], rising[of_day], NORMAL_NODES)
    return normals


def _corrected(profile: Profile, shape: Floats, weight: Floats) -> Profile:
    """The profile with the quantiles it draws by itself beside those it should have."""
    index = np.arange(_TRIAL_YEARS * _YEAR_HOURS) + profile.start_ns // HOUR_NS
    drawn = np.quantile(profile.raw_hours(index, _TRIAL_KEY), _SHARES)
    real = _weighted_quantiles(shape, weight, _SHARES)
    whole = np.maximum.accumulate((drawn * _PER_UNIT).round())
    rising = np.concatenate([[True], np.diff(whole) > 0])
    return msgspec.structs.replace(
        profile,
        drawn=tuple(whole[rising].astype(int).tolist()),
        real=_whole(np.maximum.accumulate(real)[rising]),
    )
