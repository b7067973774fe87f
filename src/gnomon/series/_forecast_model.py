"""How the next hours follow from those before: the models behind `forecast`.

Each is fitted on a history and then asked for many origins at once. An origin is the number of
the first hour that is not known; the hour `h` steps ahead of it is `origin + h - 1`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from gnomon.series._calendar import hours_of
from gnomon.series._segment import Floats, Ints

_DAY, _WEEK, _MONTH = 24, 168, 672
#: Further ahead than a week the model of the last day of the week serves, hour by hour.
_FARTHEST = _WEEK


class Past(NamedTuple):
    """Hours that are known: their values, and the number since 1970 of the first."""

    values: Floats
    first: int

    def until(self, count: int) -> Past:
        return Past(self.values[:count], self.first)


class Model(Protocol):
    """Expects values `1 .. horizon` hours ahead of origins; only hours before one are read."""

    def predict(self, past: Past, origins: Ints, horizon: int) -> Floats: ...


class Persistence:
    """The last value, or the same hour of the last day, whichever came nearer so far."""

    def __init__(self, past: Past, horizon: int) -> None:
        origins = np.arange(_DAY, past.values.size - horizon)
        if origins.size == 0:
            self.follows_day = np.arange(1, horizon + 1) > _DAY // 4
            return
        actual = past.values[_targets(origins, horizon)]
        errors = [
            np.abs(guess - actual).mean(axis=0)
            for guess in (_last_value(past, origins, horizon), _last_day(past, origins, horizon))
        ]
        self.follows_day = errors[1] <= errors[0]

    def predict(self, past: Past, origins: Ints, horizon: int) -> Floats:
        follows = self.follows_day[:horizon]
        day = _last_day(past, origins, horizon)
        return np.where(follows, day, _last_value(past, origins, horizon))


def _targets(origins: Ints, horizon: int) -> Ints:
    return origins[:, np.newaxis] + np.arange(horizon)


def _last_value(past: Past, origins: Ints, horizon: int) -> Floats:
    return np.repeat(past.values[origins - 1][:, np.newaxis], horizon, axis=1)


def _last_day(past: Past, origins: Ints, horizon: int) -> Floats:
    days: Floats = past.values[origins[:, np.newaxis] - _DAY + np.arange(horizon) % _DAY]
    return days


class Seasonal:
    """The mean of the hour on such days of the last four weeks, and what now differs, fading."""

    _FADINGS_H = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

    def __init__(self, past: Past, horizon: int) -> None:
        self.fading_h = 16.0
        least = min(_MONTH, past.values.size // 2)
        origins = np.arange(max(least, _DAY), past.values.size - horizon, 5)
        if origins.size == 0:
            return
        usual, offset = self._usual(past, origins, horizon)
        actual = past.values[_targets(origins, horizon)]
        errors = [
            np.abs(usual + offset[:, np.newaxis] * _fade(tau, horizon) - actual).mean()
            for tau in self._FADINGS_H
        ]
        self.fading_h = self._FADINGS_H[int(np.argmin(errors))]

    def predict(self, past: Past, origins: Ints, horizon: int) -> Floats:
        usual, offset = self._usual(past, origins, horizon)
        return np.maximum(usual + offset[:, np.newaxis] * _fade(self.fading_h, horizon), 0.0)

    def _usual(self, past: Past, origins: Ints, horizon: int) -> tuple[Floats, Floats]:
        """Means of hour and kind of day, and by how much the last hours differ from them."""
        hours = hours_of(past.first + np.arange(int(origins.max()) + horizon))
        cell = np.where(hours.weekday >= 5, _DAY, 0) + hours.hour
        usual = np.empty((origins.size, horizon))
        offset = np.empty(origins.size)
        for row, origin in enumerate(origins.tolist()):
            window = slice(max(0, origin - _MONTH), origin)
            means = _hour_means(past.values[window], cell[window])
            usual[row] = means[cell[origin : origin + horizon]]
            last = slice(max(0, origin - 3), origin)
            offset[row] = (past.values[last] - means[cell[last]]).mean()
        return usual, offset


def _fade(tau_h: float, horizon: int) -> Floats:
    return np.exp(-np.arange(1, horizon + 1) / tau_h)


def _hour_means(values: Floats, cell: Ints) -> Floats:
    """48 means: 24 of working days and 24 of weekends; where there are none, of all days."""
    counts = np.bincount(cell, minlength=2 * _DAY)
    sums = np.bincount(cell, values, 2 * _DAY)
    of_hour = (sums[:_DAY] + sums[_DAY:]) / np.maximum(counts[:_DAY] + counts[_DAY:], 1)
    every = np.tile(of_hour, 2)
    return np.where(counts > 0, sums / np.maximum(counts, 1), every)


class Fitted:
    """A ridge regression for each distance, on what differs from a fitted usual course.

    The course is the hour of the day, the week and, faintly, the season, of the logarithm: errors
    are then relative ones. Explained by: the last hours, the same hour of the days before, means
    of hours to weeks, and products of those with the hour of the day, since the sun's hours
    follow other rules than the night's.
    """

    _COURSE_RIDGE = (1.0, 100.0, 10_000.0)  # hour, week, season
    _WEEK_WAVES, _DAY_WAVES = 20, 3

    def __init__(self, past: Past, horizon: int) -> None:
        # Zero has no logarithm; two hundredths of the mean are nothing to a grid that has coal.
        self.shift = 0.02 * float(past.values.mean()) + 1e-9
        logs = np.log(past.values + self.shift)
        waves = self._course_terms(past.first + np.arange(logs.size))
        self.middle = float(logs.mean())
        ridge = np.concatenate(
            [np.full(count, weight) for count, weight in zip(self._counts, self._COURSE_RIDGE)]
        )
        self.course = _solve_ridge(waves, logs - self.middle, ridge)
        self.stride = 5 if logs.size > 4 * _MONTH else 1
        left = logs - self.middle - waves @ self.course
        self.weights = [
            self._fit_distance(past, left, ahead)
            for ahead in range(1, min(horizon, _FARTHEST) + 1)
        ]

    def predict(self, past: Past, origins: Ints, horizon: int) -> Floats:
        known = int(origins.max())
        waves = self._course_terms(past.first + np.arange(known + horizon))
        usual = self.middle + waves @ self.course
        left = np.log(past.values[:known] + self.shift) - usual[:known]
        logs = np.empty((origins.size, horizon))
        for ahead in range(1, horizon + 1):
            near = ahead if ahead <= _FARTHEST else _FARTHEST - (_FARTHEST - ahead) % _DAY
            terms = self._terms(past, left, origins, near)
            logs[:, ahead - 1] = terms @ self.weights[near - 1] + usual[origins + ahead - 1]
        return np.maximum(np.exp(logs) - self.shift, 0.0)

    def _fit_distance(self, past: Past, left: Floats, ahead: int) -> Floats:
        origins = np.arange(_MONTH, left.size - ahead + 1, self.stride)
        terms = self._terms(past, left, origins, ahead)
        scale = terms.std(axis=0) + 1e-9
        scale[-1] = 1.0
        ridge = np.full(scale.size, 1.0 + ahead)
        ridge[-1] = 1e-6
        weights = _solve_ridge(terms / scale, left[origins + ahead - 1], ridge)
        unscaled: Floats = weights / scale
        return unscaled

    @property
    def _counts(self) -> tuple[int, int, int]:
        week = 2 * sum(wave % 7 != 0 for wave in range(1, self._WEEK_WAVES + 1))
        return _DAY, week, 2 * (1 + 2 * self._DAY_WAVES)

    def _course_terms(self, index: Ints) -> Floats:
        """Hour of the day as it is; the week as waves, which have no jump at midnight of UTC."""
        hours = hours_of(index)
        of_week = 2 * np.pi * (hours.weekday * _DAY + hours.hour) / _WEEK
        season = 2 * np.pi * hours.season / 12
        day = [np.ones(index.size), *_waves(2 * np.pi * hours.hour / _DAY, self._DAY_WAVES)]
        columns = [(hours.hour == hour).astype(np.float64) for hour in range(_DAY)]
        for wave in range(1, self._WEEK_WAVES + 1):
            if wave % 7:
                columns += [np.cos(wave * of_week), np.sin(wave * of_week)]
        columns += [turn * part for turn in (np.cos(season), np.sin(season)) for part in day]
        return np.column_stack(columns)

    def _terms(self, past: Past, left: Floats, origins: Ints, ahead: int) -> Floats:
        target = origins + ahead - 1
        back = -(-ahead // _DAY)
        days = [left[target - _DAY * (back + day)] for day in range(7)]
        sums = np.concatenate([[0.0], np.cumsum(left)])

        def mean(hours: int) -> Floats:
            difference: Floats = sums[origins] - sums[origins - hours]
            return difference / hours

        last, day_mean, week_mean = left[origins - 1], mean(_DAY), mean(_WEEK)
        week_ago = left[target - _DAY * (7 * -(-back // 7))]
        plain = [last, left[origins - 2], left[origins - 3], left[origins - 5], mean(6), day_mean]
        plain += [mean(2 * _DAY), week_mean, mean(_MONTH), day_mean - mean(3 * _DAY), *days[:3]]
        plain += [week_ago, np.mean(days, axis=0)]
        plain += [left[origins - _DAY - 1], left[origins - _DAY - 2], left[origins - 2 * _DAY - 1]]
        turns = _waves(2 * np.pi * ((past.first + target) % _DAY) / _DAY, self._DAY_WAVES)
        key = (last, day_mean, days[0], week_mean, left[origins - _DAY - 1])
        crossed = [value * turn for value in key for turn in turns]
        return np.column_stack([*plain, *crossed, *turns, np.ones(origins.size)])


def _waves(angle: Floats, count: int) -> list[Floats]:
    return [turn(wave * angle) for wave in range(1, count + 1) for turn in (np.cos, np.sin)]


def _solve_ridge(terms: Floats, target: Floats, ridge: Floats) -> Floats:
    weights = np.linalg.solve(terms.T @ terms + np.diag(ridge), terms.T @ target)
    return weights.astype(np.float64)


MODELS: dict[str, type[Persistence] | type[Seasonal] | type[Fitted]] = {
    "persistence": Persistence,
    "seasonal": Seasonal,
    "fitted": Fitted,
}
#: Hours of history that each needs to be better than the simpler one.
LEAST_HOURS = {"persistence": 2 * _DAY, "seasonal": 8 * _DAY, "fitted": 60 * _DAY}
