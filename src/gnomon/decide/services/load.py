"""How much load to be ready for: what came lately, and what it may rise by meanwhile."""

from __future__ import annotations

import math

import numpy as np

from gnomon import _core
from gnomon.decide.services.state import Floats, Window

#: Standard deviations of a Poisson count: what a rise or a short mean has more is no chance.
_CHANCE = 1.5
#: However steady load has been, it may rise by this share.
LEAST_RISE = 0.15
#: What one jump from hardly any load teaches must not be paid for at full load.
GREATEST_RISE = 1.5
#: Windows until a mean is worth comparing with.
_SETTLED = 5


def class_rates(window: Window, past: Floats | None = None) -> Floats:
    """Requests per second of each class; where nothing was measured, what was last known, or 0."""
    rate = window.class_rate
    if np.isfinite(rate.sum()):
        return rate
    return np.where(np.isfinite(rate), rate, 0.0 if past is None else past[-1])


def appended(rates: Floats | None, now: Floats, most: int) -> Floats:
    """Rates of the last windows, a row each, and one more."""
    if rates is None:
        return now[None]
    return np.concatenate((rates[-(most - 1) :] if most > 1 else rates[:0], now[None]))


def ready_for(rates: Floats, rise: float, window_s: float) -> Floats:
    """Requests per second of each class: the greatest of their means, and a rise on top.

    So load rises quickly and falls slowly. A short mean is noisy: it counts as far as it is above
    what chance explains.
    """
    return _core.load_ahead(rates.ravel(), rates.shape[1], rise, window_s, chance=_CHANCE)


def greatest_rise(
    before: float, past: Floats | None, now: Floats, window_s: float, half_life_s: float
) -> float:
    """The greatest rise seen, as a share of the load before it; forgotten by halves.

    A rise that is seen counts up to GREATEST_RISE.

    Args:
        before: The greatest one until now.
        past: Rates of the windows before, a row each.
        now: Rates of the last window.
    """
    kept = before * math.pow(0.5, window_s / half_life_s)
    if past is None or len(past) < _SETTLED:
        return kept
    mean, after = float(past.sum()) / len(past), float(now.sum())
    if mean <= 0:
        return kept
    seen = (after - _CHANCE * math.sqrt(after / window_s)) / mean - 1.0
    return max(kept, min(seen, GREATEST_RISE))
