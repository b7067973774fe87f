"""The formulas of PCAPS and CAP (Lechowicz et al., arXiv 2502.09717), one by one.

`low` and `high` are the least and the greatest intensity expected, L and U in the paper.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError

Narrowing = Literal["none", "literal", "released", "dimensionless"]
#: In the order that the native core numbers them.
NARROWINGS: tuple[Narrowing, ...] = ("none", "literal", "released", "dimensionless")


def pcaps_threshold(importance: float, gamma: float, low: float, high: float) -> float:
    """Up to which intensity a stage of this relative importance runs (section 4.1).

    >>> pcaps_threshold(1.0, 0.5, 100, 500), pcaps_threshold(0.0, 0.5, 100, 500)
    (500.0, 300.0)
    """
    _check_share("importance", importance)
    _check_share("gamma", gamma)
    _check_range(low, high)
    return _core.pcaps_threshold(importance, gamma, low, high)


def pcaps_limit(
    limit: int, gamma: float, intensity: float, low: float, high: float,
    narrowing: Narrowing = "dimensionless",
) -> int:  # fmt: skip
    """The executors that PCAPS leaves a job of the limit its policy gave.

    As printed, P' = ceil(P min(exp(gamma (L - c)), 1 - gamma)): its exponent is in g/kWh,
    so that it is next to nothing a few grams above L ('literal'). The authors' simulator takes
    floor(P - gamma (P - P')) with 1 - min(0.9, gamma) ('released'). 'dimensionless' divides the
    exponent by U - L.

    >>> [pcaps_limit(40, 0.5, 300, 100, 500, how) for how in NARROWINGS]
    [40, 1, 20, 20]
    """
    _check_share("gamma", gamma)
    _check_range(low, high)
    how = NARROWINGS.index(narrowing)
    return _core.pcaps_narrowed(limit, how, gamma, intensity, low, high)


def runs_now(intensity: float, coming: ArrayLike, *, needed_h: float, margin: float = 0.0) -> bool:
    """pcaps+: whether this hour is among the cleanest that something needs before it is due.

    Args:
        intensity: Of this hour.
        coming: Of the hours that may still be waited for.
        needed_h: How many hours it needs.
        margin: By which share an hour has to be cleaner to be worth waiting for.

    >>> runs_now(300, [200, 400], needed_h=1), runs_now(300, [200, 400], needed_h=2)
    (False, True)
    """
    hours = np.ascontiguousarray(coming, dtype=np.float64)
    return _core.runs_now(intensity, hours, needed_h, margin)


def cap_alpha(low: float, high: float, steps: int) -> float:
    """CAP's competitive ratio: the root of (1 + 1/(k a))^k = (U - L) / (U (1 - 1/a)).

    >>> round(cap_alpha(130, 765, 80), 3)
    2.035
    """
    _check_range(low, high)
    return _core.cap_alpha(low, high, steps)


def cap_alpha_limit(low: float, high: float) -> float:
    """Where it tends with many executors: 1 / (1 + W((L/U - 1)/e)), W being Lambert's.

    >>> round(cap_alpha_limit(130, 765), 3)
    2.028
    """
    _check_range(low, high)
    if high <= low:
        return 1.0
    z = (low / high - 1.0) / math.e
    # Between -1/e and 0 the upper branch of W lies between -1 and 0; the series at -1/e starts
    # close enough for Newton's steps to stay there.
    p = math.sqrt(max(2.0 * (math.e * z + 1.0), 0.0))
    w = -1.0 + p - p * p / 3.0
    for _ in range(60):
        slope = math.exp(w) * (w + 1.0)
        if slope == 0.0:
            break
        step = (w * math.exp(w) - z) / slope
        w -= step
        if abs(step) < 1e-15:
            break
    return 1.0 / (1.0 + w) if w > -1.0 else math.inf


def cap_thresholds(low: float, high: float, steps: int) -> NDArray[np.float64]:
    """The intensity up to which the i-th executor above the least may be busy.

    >>> cap_thresholds(100, 500, 4).round()
    array([251., 219., 184., 145.])
    """
    return _core.cap_thresholds(high, steps, cap_alpha(low, high, steps))


def cap_quota(
    intensity: ArrayLike, low: ArrayLike, high: ArrayLike, *, min_executors: int, executors: int
) -> NDArray[np.int32]:
    """How many executors may be busy: all at `low`, `min_executors` at `high`.

    >>> cap_quota([100, 300, 500], 100, 500, min_executors=20, executors=100)
    array([100,  20,  20], dtype=int32)
    """
    if not 1 <= min_executors <= executors:
        raise InputError(f"min_executors={min_executors} of {executors} executors")
    now, lows, highs = (
        np.ascontiguousarray(column, dtype=np.float64)
        for column in np.broadcast_arrays(intensity, low, high)
    )
    quota = _core.cap_quota(now.ravel(), lows.ravel(), highs.ravel(), min_executors, executors)
    return np.asarray(quota)


def _check_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name}={value:g}: it lies from 0 to 1")


def _check_range(low: float, high: float) -> None:
    if not 0.0 <= low <= high < math.inf:
        raise InputError(f"an intensity from {low:g} to {high:g}: the least comes first")
