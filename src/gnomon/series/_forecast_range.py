"""The range of a forecast: how far a model was off before, by distance and hour of the day."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnomon.series._forecast_model import LEAST_HOURS, MODELS, Model, Past
from gnomon.series._segment import Floats, Ints

#: Share of hours meant to lie in the range.
COVERAGE = 0.8
_DAY = 24


class ForecastRows(NamedTuple):
    """Expected values with their range: one row an origin, one column an hour ahead."""

    mid: Floats
    low: Floats
    high: Floats


class Forecaster:
    """A model fitted on a history, and the range that its own errors there call for.

    The errors are those of the same model fitted on the earlier part of the history, in the part
    that follows: an error on hours that a model has learned from would be too small.
    """

    def __init__(self, method: str, past: Past, horizon: int) -> None:
        self.horizon = horizon
        self.model: Model = MODELS[method](past, horizon)
        self.shift = 0.02 * float(past.values.mean()) + 1e-9
        # Errors at half of the history's length and more are not to be seen in it: those at the
        # farthest distance that is have to do.
        seen = min(horizon, max(past.values.size // 2 - 1, 1))
        below, above, self.by_hour = self._learn(method, past, seen)
        self.below, self.above = (
            np.concatenate([edge, np.full(horizon - seen, edge[-1])]) for edge in (below, above)
        )

    def predict(self, past: Past, origins: Ints) -> ForecastRows:
        """Values and ranges 1 to `horizon` hours ahead of each origin."""
        mid = self.model.predict(past, origins, self.horizon)
        of_day = (past.first + origins[:, np.newaxis] + np.arange(self.horizon)) % _DAY
        width = self.by_hour[of_day]
        low = (mid + self.shift) * np.exp(self.below * width) - self.shift
        high = (mid + self.shift) * np.exp(self.above * width) - self.shift
        return ForecastRows(mid, np.clip(low, 0.0, mid), np.maximum(high, mid))

    def _learn(self, method: str, past: Past, horizon: int) -> tuple[Floats, Floats, Floats]:
        """Lower and upper quantile by distance, and how much wider some hours of the day are."""
        size = past.values.size
        # As long before as the model needs, then at least a third of what there is, and a season
        # if there is one: errors of summer say little of those in winter.
        begin = max(min(LEAST_HOURS[method], size // 2), min(2 * size // 3, size - 120 * _DAY))
        origins = np.arange(begin, size - horizon + 1, 7 if size > 60 * _DAY else 1)
        if origins.size < 4:
            return self._guess(past, horizon)
        early: Model = MODELS[method](past.until(begin), horizon)
        mid = early.predict(past, origins, horizon)
        targets = origins[:, np.newaxis] + np.arange(horizon)
        errors = np.log((past.values[targets] + self.shift) / (mid + self.shift))
        of_day = (past.first + targets) % _DAY
        by_hour = _relative_widths(errors, of_day)
        scaled = errors / by_hour[of_day]
        tail = (1 - COVERAGE) / 2
        below, above = (_by_distance(scaled, share) for share in (tail, 1 - tail))
        return np.minimum(below, 0.0), np.maximum(above, 0.0), by_hour

    def _guess(self, past: Past, horizon: int) -> tuple[Floats, Floats, Floats]:
        """Too little history to see errors: the spread of the history itself."""
        spread = float(np.log(past.values + self.shift).std())
        flat = np.full(horizon, 1.2816 * spread)
        return -flat, flat, np.ones(_DAY)


def _relative_widths(errors: Floats, of_day: Ints) -> Floats:
    """Mean absolute error at each hour of the day, over that of all; pulled half way to one."""
    sizes = np.abs(errors).ravel()
    overall = float(sizes.mean())
    if overall == 0:
        return np.ones(_DAY)
    counts = np.bincount(of_day.ravel(), minlength=_DAY)
    means = np.bincount(of_day.ravel(), sizes, _DAY) / np.maximum(counts, 1)
    return np.where(counts > 0, np.sqrt(np.maximum(means / overall, 0.04)), 1.0)


def _by_distance(errors: Floats, share: float) -> Floats:
    """A quantile for each distance, of its errors and its neighbours'."""
    horizon = errors.shape[1]
    quantiles = np.empty(horizon)
    for ahead in range(horizon):
        # One hour ahead is another matter than two; a day ahead, an hour more or less is not.
        reach = min(ahead // 3, 6)
        near = errors[:, max(0, ahead - reach) : ahead + reach + 1]
        quantiles[ahead] = np.quantile(near, share)
    return quantiles
