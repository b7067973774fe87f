"""How like two spans of one signal are: distribution, daily shape, memory, and swing."""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.series._calendar import hours_of
from gnomon.series._memory import autocorrelation
from gnomon.series._segment import Floats, Ints
from gnomon.series.signal import Signal
from gnomon.units import HOUR_NS

__all__ = ["LAGS_H", "Likeness", "compare_years"]

#: Distances in hours at which memories are compared.
LAGS_H = (1, 6, 24, 168)


class Likeness(msgspec.Struct, frozen=True):
    """Differences of a second signal from a first, all without unit; zero is no difference.

    Attributes:
        level: The second mean over the first, less one.
        quantiles: The largest difference of a percentile from the 1st to the 99th, over the mean.
        distribution: The largest difference of the shares below a value (Kolmogorov-Smirnov).
        shape: Root mean square difference of the means by month and hour, over the mean.
        shape_correlation: Correlation of those means; one where both have the same shape.
        memory: Autocorrelation of the second less that of the first, at each of `LAGS_H`.
        swing: Mean change of the daily mean from one day to the next: second over first, less one.
        day_range: Mean of a day's highest less its lowest hour: second over first, less one.
    """

    level: float
    quantiles: float
    distribution: float
    shape: float
    shape_correlation: float
    memory: tuple[float, ...]
    swing: float
    day_range: float


def compare_years(real: Signal, generated: Signal) -> Likeness:
    """How far one signal is from another of the same unit; whole years make most sense.

    >>> real = Signal.regular(0, HOUR_NS, np.arange(480.0) % 24, unit="gCO2e/kWh", kind="carbon")
    >>> same = compare_years(real, real)
    >>> same.quantiles, same.memory, round(same.shape_correlation, 6)
    (0.0, (0.0, 0.0, 0.0, 0.0), 1.0)
    """
    first, first_index = _hourly(real)
    second, second_index = _hourly(generated.to(real.unit))
    mean = float(first.mean())
    if mean <= 0:
        raise InputError("the first signal has no mean above zero to compare with")
    shapes = _shapes(first, first_index, second, second_index)
    return Likeness(
        level=float(second.mean()) / mean - 1,
        quantiles=float(np.abs(_percentiles(first) - _percentiles(second)).max()) / mean,
        distribution=_largest_distance(first, second),
        shape=float(np.sqrt(np.mean((shapes[0] - shapes[1]) ** 2))) / mean,
        shape_correlation=_correlation(*shapes),
        memory=tuple((_memory(second) - _memory(first)).tolist()),
        swing=_ratio(_swing(second), _swing(first)),
        day_range=_ratio(_day_range(second), _day_range(first)),
    )


def _hourly(signal: Signal) -> tuple[Floats, Ints]:
    hourly = signal.resample(HOUR_NS, 0)
    if len(hourly) <= max(LAGS_H) + 24:
        raise InputError(f"{len(hourly)} hours are too few to compare", hint="give a year")
    return hourly.values, hourly.time_ns // HOUR_NS


def _percentiles(values: Floats) -> Floats:
    percentiles: Floats = np.percentile(values, np.arange(1, 100))
    return percentiles


def _largest_distance(first: Floats, second: Floats) -> float:
    everything = np.concatenate([first, second])
    shares = [
        np.searchsorted(np.sort(values), everything, side="right") / values.size
        for values in (first, second)
    ]
    return float(np.abs(shares[0] - shares[1]).max())


def _shapes(a: Floats, a_index: Ints, b: Floats, b_index: Ints) -> tuple[Floats, Floats]:
    """Means by month and hour, where both signals have some."""
    sums, counts = [], []
    for values, index in ((a, a_index), (b, b_index)):
        hours = hours_of(index)
        cell = hours.month * 24 + hours.hour
        sums.append(np.bincount(cell, values, 288))
        counts.append(np.bincount(cell, minlength=288))
    both = (counts[0] > 0) & (counts[1] > 0)
    if not both.any():
        raise InputError("the signals have no month in common", hint="compare whole years")
    return sums[0][both] / counts[0][both], sums[1][both] / counts[1][both]


def _correlation(first: Floats, second: Floats) -> float:
    if first.std() == 0 or second.std() == 0:
        return 1.0 if first.std() == second.std() else 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _memory(values: Floats) -> Floats:
    return autocorrelation(values, np.array(LAGS_H))


def _days(values: Floats) -> Floats:
    return values[: values.size // 24 * 24].reshape(-1, 24)


def _swing(values: Floats) -> float:
    return float(np.abs(np.diff(_days(values).mean(axis=1))).mean())


def _day_range(values: Floats) -> float:
    days = _days(values)
    return float((days.max(axis=1) - days.min(axis=1)).mean())


def _ratio(value: float, base: float) -> float:
    return value / base - 1 if base > 0 else 0.0 if value == base else float("inf")
