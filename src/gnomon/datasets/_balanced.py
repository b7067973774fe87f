"""Draws that are spread evenly, so that a few jobs have the mix of many."""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def balanced(rng: np.random.Generator, weights: Sequence[float], count: int) -> NDArray[np.int64]:
    """Choices by weight, each as often as its weight asks for, to within one; in random order.

    >>> picked = balanced(np.random.default_rng(1), [3, 1], 8)
    >>> np.bincount(picked).tolist()
    [6, 2]
    """
    edges = np.cumsum(np.asarray(weights, dtype=np.float64))
    places = (np.arange(count) + rng.random()) / max(count, 1) * edges[-1]
    chosen = np.searchsorted(edges, places, side="right").clip(max=len(edges) - 1)
    return rng.permutation(chosen).astype(np.int64)


def even_ranks(rng: np.random.Generator, values: Floats) -> Floats:
    """Places in (0, 1) in the order of the values, one in each equal part."""
    rank = np.empty(len(values))
    rank[np.argsort(values, kind="stable")] = np.arange(len(values))
    return np.asarray((rank + rng.random(len(values))) / max(len(values), 1))


def quantile(at: Sequence[float], values: Sequence[float], places: Floats) -> Floats:
    """A quantile function that is known at some places."""
    return np.interp(places, at, values)


def normal_cdf(values: Floats) -> Floats:
    """Share of a standard normal below each value."""
    return np.array([0.5 * (1.0 + erf(value / sqrt(2.0))) for value in values])
