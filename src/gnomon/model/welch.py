"""Are the means of two samples alike? Welch's test, without equal variances."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike


def welch_greater(a: ArrayLike, b: ArrayLike) -> float:
    """The chance of such a difference if the mean of `a` were not greater than that of `b`.

    Student's t is turned into a normal score by Wallace's approximation (1959), which is within
    half a percent of the chance from 3 degrees of freedom on.

    >>> round(welch_greater([5.1, 4.9, 5.0, 5.2], [4.0, 4.1, 3.9, 4.0]), 3)
    0.0
    >>> 0.3 < welch_greater([4.0, 4.1, 3.9, 4.0], [4.0, 3.9, 4.1, 4.0]) <= 0.5
    True
    """
    x, y = np.asarray(a, float), np.asarray(b, float)
    spread_x, spread_y = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    spread = float(spread_x + spread_y)
    difference = float(x.mean() - y.mean())
    if spread == 0.0:
        return 0.0 if difference > 0 else 1.0
    t = difference / math.sqrt(spread)
    freedom = spread**2 / (
        float(spread_x) ** 2 / (len(x) - 1) + float(spread_y) ** 2 / (len(y) - 1)
    )
    score = (
        (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    )
    return 1.0 - NormalDist().cdf(math.copysign(score, t))
