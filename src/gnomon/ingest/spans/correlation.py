"""How alike the times of one request's calls are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np

#: Fewer requests say nothing about what is alike in them.
_FEWEST = 10
_MOST = 0.95


def mean_correlation(calls: Iterable[tuple[Sequence[int], Sequence[int]]], requests: int) -> float:
    """The mean correlation of calls' times within a request, as normal scores, from 0 on.

    Scores z of calls with deviations s have, each by itself, a variance of their sum of s z of
    sum(s^2). What there is beyond that, over the sum of s_i s_j of the pairs that occur together,
    is their mean correlation.

    Args:
        calls: Of each call of a tree: its times, and the number of the request of each.
        requests: How many there are.

    >>> slow = list(range(100))
    >>> mean_correlation([(slow, slow), (slow, slow)], 100)
    0.95
    >>> mean_correlation([(slow, slow), (slow[::-1], slow)], 100)
    0.0
    """
    total, alone, paired = np.zeros(requests), np.zeros(requests), np.zeros(requests)
    for times, request in calls:
        spread = float(np.std(times))
        if len(times) < _FEWEST or not spread > 0:
            continue
        place = np.empty(len(times))
        place[np.argsort(times, kind="stable")] = np.arange(len(times))
        score = np.array([NormalDist().inv_cdf((p + 0.5) / len(times)) for p in place])
        np.add.at(total, request, spread * score)
        np.add.at(alone, request, spread**2)
        np.add.at(paired, request, spread)
    pairs = float(np.sum(paired**2 - alone))
    if requests < _FEWEST or not pairs > 0:
        return 0.0
    return round(float(np.clip((np.sum(total**2) - np.sum(alone)) / pairs, 0.0, _MOST)), 3)
