"""Profiles: what is typical of a signal over hours, weeks, seasons and years, in a few kilobytes.

A profile is computed from a real signal by `fit_profile` and turned into hours again by
`Profile.generate`: other hours, as real ones might have been. They have the daily shape of each
month, the week, the distribution and the memory of the real ones, and the level of the years.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.series import _instant
from gnomon.series._calendar import CalendarHours, hours_of
from gnomon.series._memory import correlated_normals
from gnomon.series._segment import Floats, Ints
from gnomon.series.signal import Signal
from gnomon.units import HOUR_NS

#: Standard normal values at which the distribution of what is left is kept: shares 0.0005, 0.002,
#: 0.005, 0.01, 0.02, 0.05, 0.1 ... 0.9, 0.95 ... 0.9995 lie below them.
NORMAL_NODES = np.array(
    [-3.2905, -2.8782, -2.5758, -2.3263, -2.0537, -1.6449, -1.2816, -0.8416, -0.5244, -0.2533,
     0.0, 0.2533, 0.5244, 0.8416, 1.2816, 1.6449, 2.0537, 2.3263, 2.5758, 2.8782, 3.2905]
)  # fmt: skip
_MONTHS, _DAY, _WEEK = 12, 24, 168
#: Tables are kept as whole thousandths of a standard deviation.
_PER_UNIT = 1000.0
_MAX_HOURS = 2_000_000
#: So many deviations above the lowest hour, the low end of what is generated begins to bend.
_BEND = 0.2


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What is typical of a signal; tables are thousandths of the standard deviation of a year.

    A value is `level + deviation * shape`, where level and deviation follow the years, and the
    shape is `mean` by month and hour, plus `week`, plus `spread` by month and hour times what is
    left. What is left is a normal number with the `memory` given, bent by `quantiles` to the
    distribution of that hour of the day; `drawn` to `real` bends the whole to the distribution
    of all hours.

    Attributes:
        levels: Mean of each of the equal parts, a year or a little more, that the data fall into.
        deviations: Standard deviation of each part.
        newest: 10th percentile, mean and 90th percentile of the newest part's hours.
        mean: January 00:00 UTC to December 23:00 UTC, 12 x 24.
        spread: The same, for the standard deviation of what is left.
        week: Monday 00:00 UTC to Sunday 23:00 UTC, 7 x 24: what the day of the week adds.
        quantiles: For each hour of the day, what is left at `NORMAL_NODES`; 24 x 21.
        memory: Weights of simple autocorrelations, in ten-thousandths.
        drawn: Quantiles that the shape has by itself.
        real: Quantiles that it should have.
    """

    zone: str
    kind: str
    unit: str
    attribution: str
    start_ns: int
    end_ns: int
    levels: tuple[float, ...]
    deviations: tuple[float, ...]
    newest: tuple[float, float, float]
    bounds: tuple[float, float]
    mean: tuple[int, ...]
    spread: tuple[int, ...]
    week: tuple[int, ...]
    quantiles: tuple[int, ...]
    memory: tuple[int, ...]
    drawn: tuple[int, ...]
    real: tuple[int, ...]

    def __post_init__(self) -> None:
        cells = _MONTHS * _DAY
        expected = {"mean": cells, "spread": cells, "week": _WEEK}
        expected |= {"quantiles": _DAY * NORMAL_NODES.size, "deviations": len(self.levels)}
        expected |= {"real": len(self.drawn)}
        for name, count in expected.items():
            if len(getattr(self, name)) != count:
                what = f"{name!r} has {len(getattr(self, name))} numbers where {count} belong"
                raise InputError(what, where=f"profile of {self.zone!r}")

    @classmethod
    def fit(cls, signal: Signal) -> Profile:
        """The profile of a signal of a year or more, without gaps; newer years count more."""
        from gnomon.series._fit_profile import fit_profile

        return fit_profile(signal)

    @property
    def hours(self) -> Estimate:
        """The mean of the newest year, and the range in which 80 % of its hours lie."""
        return Estimate(*self.newest)

    @property
    def day_shape(self) -> Floats:
        shape = self._table("mean").reshape(_MONTHS, _DAY)
        return np.clip(self.levels[-1] + self.deviations[-1] * shape, *self.bounds)

    def generate(self, start_ns: int, end_ns: int, rng: np.random.Generator) -> Signal:
        """Hours that might have been, over any span.

        One number is drawn from `rng`; it stands for a whole history. Generators with the same
        seed therefore give the same hours wherever two spans overlap (rounded to hundredths,
        which hides all but the rarest of the transform's last bits).

        Args:
            end_ns: End. Years outside of the data have the level of the nearest one inside.

        Returns:
            An hourly step signal, cut at start and end.
        """
        first, count = _span(start_ns, end_ns)
        key = int(rng.integers(2**63))
        index = np.arange(first, first + count)
        shape = self.shape_hours(index, key)
        level, deviation = (self._course(name, index) for name in ("levels", "deviations"))
        values = self._within(level + deviation * shape, deviation).round(2)
        signal = Signal.regular(
            first * HOUR_NS, HOUR_NS, np.maximum(values, 0.0), unit=self.unit, kind=self.kind,
            zone=self.zone, attribution=f"generated by gnomon: {self.attribution}",
        )  # fmt: skip
        return signal.slice(start_ns, end_ns)

    def _within(self, values: Floats, deviation: Floats) -> Floats:
        """Values inside of the bounds; those near the lower one come closer and never lie on it.

        Real hours have no floor that many share: cut off there, the cleanest would all be alike.
        """
        low, high = self.bounds
        width = np.minimum(_BEND * deviation, (high - low) / 4)
        below = np.minimum(values - low - width, 0.0)
        bent = width * np.exp(below / np.maximum(width, 1e-12))
        within: Floats = np.clip(np.where(below < 0, low + bent, values), low, high)
        return within

    def shape_hours(self, index: Ints, key: int) -> Floats:
        """The shape of hours (numbers since 1970), in standard deviations, for one history."""
        drawn, real = self._table("drawn"), self._table("real")
        raw = self.raw_hours(index, key)
        beyond = np.minimum(raw - drawn[0], 0.0) + np.maximum(raw - drawn[-1], 0.0)
        bent: Floats = np.interp(raw, drawn, real) + beyond
        return bent

    def raw_hours(self, index: Ints, key: int) -> Floats:
        """The shape before it is bent to the distribution of all hours."""
        hours = hours_of(index)
        normals = correlated_normals(self._weights, int(index[0]), index.size, key)
        left = self._bend(normals, hours.hour)
        mean, spread, week = self._expected(hours)
        return mean + week + spread * left

    def _bend(self, normals: Floats, hour: Ints) -> Floats:
        """Normal numbers to the distribution of what is left at each hour of the day."""
        quantiles = self._table("quantiles").reshape(_DAY, -1)
        left = np.empty(normals.size)
        for of_day in range(_DAY):
            chosen = hour == of_day
            left[chosen] = np.interp(normals[chosen], NORMAL_NODES, quantiles[of_day])
        return left

    def _expected(self, hours: CalendarHours) -> tuple[Floats, Floats, Floats]:
        mean = interpolate_months(nodes_through_means(self._table("mean")), hours)
        spread = interpolate_months(self._table("spread").reshape(_MONTHS, _DAY), hours)
        return mean, spread, self._table("week")[hours.weekday * _DAY + hours.hour]

    def _course(self, name: str, index: Ints) -> Floats:
        parts = np.array(getattr(self, name))
        nodes = level_nodes(parts) if name == "levels" else parts
        middles = part_middles(self.start_ns, self.end_ns, parts.size)
        course: Floats = np.interp(index + 0.5, middles, nodes)
        return course

    def _table(self, name: str) -> Floats:
        table: Floats = self._tables[name]
        return table

    @cached_property
    def _tables(self) -> dict[str, Any]:
        names = ("mean", "spread", "week", "quantiles", "drawn", "real")
        return {name: np.array(getattr(self, name)) / _PER_UNIT for name in names}

    @cached_property
    def _weights(self) -> Floats:
        weights = np.array(self.memory, dtype=np.float64)
        shares: Floats = weights / weights.sum()
        return shares


def _span(start_ns: int, end_ns: int) -> tuple[int, int]:
    if end_ns <= start_ns:
        raise InputError("a span ends after it starts", hint="swap start and end")
    _instant.as_ns([start_ns, end_ns])
    first = start_ns // HOUR_NS
    count = -(-end_ns // HOUR_NS) - first
    if count > _MAX_HOURS:
        raise InputError(f"{count:,} hours are more than {_MAX_HOURS:,}", hint="is it in ns?")
    return first, count


def part_middles(start_ns: int, end_ns: int, count: int) -> Floats:
    """Middles of equal parts of a span, in hours since 1970."""
    start, end = start_ns / HOUR_NS, end_ns / HOUR_NS
    return start + (end - start) * (np.arange(count) + 0.5) / count


def level_nodes(means: Floats) -> Floats:
    """Values at the middles of parts such that the line through them has these means.

    The line is level before the first and after the last of them.

    >>> level_nodes(np.array([400.0, 300.0])).round(1)
    array([416.7, 283.3])
    """
    count = means.size
    matrix = 0.75 * np.eye(count)
    for part in range(count):
        matrix[part, max(part - 1, 0)] += 0.125
        matrix[part, min(part + 1, count - 1)] += 0.125
    return np.linalg.solve(matrix, means).astype(np.float64)


def nodes_through_means(means: Floats) -> Floats:
    """Values in the middle of each month such that the line through them has these means."""
    matrix = 0.75 * np.eye(_MONTHS)
    for month in range(_MONTHS):
        matrix[month, month - 1] += 0.125
        matrix[month, (month + 1) % _MONTHS] += 0.125
    return np.linalg.solve(matrix, means.reshape(_MONTHS, _DAY)).astype(np.float64)


def interpolate_months(nodes: Floats, hours: CalendarHours) -> Floats:
    """A 12 x 24 table at each hour, straight from the middle of one month to that of the next."""
    before = np.floor(hours.season).astype(np.int64)
    share = hours.season - before
    earlier = nodes[before % _MONTHS, hours.hour]
    later = nodes[(before + 1) % _MONTHS, hours.hour]
    return earlier * (1 - share) + later * share
