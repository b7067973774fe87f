"""Normal numbers that remember: hours correlated as a grid's weather and demand are.

The autocorrelation is a sum of simple ones with weights of zero or more: memories of some hours
to a month, bare or beating with the day and the week. Such a sum is a valid autocorrelation
whatever the weights (each term has a spectrum that is nowhere negative), is known at every
distance, and takes a few numbers to write down.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gnomon.series._segment import Floats, Ints

#: Distances in hours at which a memory is fitted: dense where schedulers look, sparse beyond.
_LAGS = np.concatenate(
    [np.arange(1, 49), np.arange(50, 170, 2), np.arange(171, 337, 3), np.arange(340, 1000, 12)]
)
#: Hours of noise that one hour is made of; memories end well within half of it.
_REACH = 16384
_BLOCK = 4096
# Block numbers seed generators, which take no negative ones: zero lies before any time we allow.
_BLOCK_ORIGIN = 1024


class _Term(NamedTuple):
    """One simple autocorrelation: a memory of `tau_h` hours that beats `beats` times a period."""

    tau_h: float
    is_smooth: bool
    beats: int
    period_h: int

    def at(self, lags: Ints) -> Floats:
        far = np.abs(lags).astype(np.float64)
        fading = np.exp(-far / self.tau_h)
        if self.is_smooth:
            # Level at zero, as weather is; without this factor there is a kink, as of noise.
            fading *= 1 + far / self.tau_h
        if self.beats:
            fading *= np.cos(2 * np.pi * self.beats * far / self.period_h)
        return fading


_TERMS = tuple(
    _Term(tau, is_smooth, beat, 24)
    for tau, beats in ((1, 0), (3, 0), (8, 4), (20, 4), (50, 4), (120, 4), (300, 4), (700, 4))
    for is_smooth in (False, True)
    for beat in range(beats + 1)
) + tuple(_Term(tau, False, beat, 168) for tau in (120, 300, 700) for beat in (1, 2))


def _terms(lags: Ints) -> Floats:
    """Every simple autocorrelation, one a column, at distances in hours."""
    return np.column_stack([term.at(lags) for term in _TERMS])


def autocorrelation(values: Floats, lags: Ints) -> Floats:
    """Correlation of a line of values with itself, that many steps later.

    >>> wave = np.cos(2 * np.pi * np.arange(2400) / 24)
    >>> autocorrelation(wave, np.array([24, 12])).round(2)
    array([ 1., -1.])
    """
    centred = values - values.mean()
    variance = float(centred @ centred) / centred.size
    if variance == 0:
        return np.ones(lags.size)
    products = [float(centred[lag:] @ centred[:-lag]) / (centred.size - lag) for lag in lags]
    correlation: Floats = np.array(products) / variance
    return correlation


def fit_memory(normals: Floats) -> Floats:
    """Weights of the simple autocorrelations whose sum is nearest to that of the values."""
    lags = _LAGS[: int(np.searchsorted(_LAGS, normals.size // 4))]
    found = autocorrelation(normals, lags)
    # A near distance counts more than a far one; at no distance the sum has to be one.
    importance = lags**-0.25
    matrix = np.vstack([_terms(lags) * importance[:, np.newaxis], 50 * _terms(np.zeros(1, int))])
    weights = _solve_nonnegative(matrix, np.append(found * importance, 50.0))
    weights[weights < 1e-3] = 0.0
    shares: Floats = weights / weights.sum()
    return shares


def model_autocorrelation(weights: Floats, lags: Ints) -> Floats:
    """The autocorrelation that the weights stand for."""
    total = np.zeros(lags.size)
    for term, weight in zip(_TERMS, weights):
        if weight:
            total += weight * term.at(lags)
    return total


def _solve_nonnegative(matrix: Floats, target: Floats) -> Floats:
    """Least squares with no weight below zero, by active sets (Lawson and Hanson 1974, ch. 23)."""
    gram, right = matrix.T @ matrix, matrix.T @ target
    weights = np.zeros(right.size)
    used = np.zeros(right.size, dtype=bool)
    for _ in range(5 * right.size):
        gain = np.where(used, -np.inf, right - gram @ weights)
        best = int(gain.argmax())
        if gain[best] <= 1e-9 * np.abs(right).max():
            break
        used[best] = True
        while True:
            trial = np.zeros(right.size)
            inner = np.ix_(used, used)
            trial[used] = np.linalg.lstsq(gram[inner], right[used], rcond=None)[0]
            sinking = used & (trial <= 0)
            if not sinking.any():
                break
            step = (weights[sinking] / (weights[sinking] - trial[sinking])).min()
            weights = weights + step * (trial - weights)
            used &= weights > 1e-12
            weights[~used] = 0.0
        weights = trial
    return weights


@lru_cache(maxsize=64)
def _response(weights: tuple[float, ...]) -> Floats:
    """What one hour of noise does to the hours around it: the symmetric root of the spectrum."""
    half = model_autocorrelation(np.array(weights), np.arange(_REACH // 2 + 1))
    wrapped = np.concatenate([half, half[-2:0:-1]])
    spectrum = np.fft.rfft(wrapped).real
    kernel = np.fft.irfft(np.sqrt(np.maximum(spectrum, 0.0)), _REACH)
    return kernel / np.sqrt(kernel @ kernel)


def correlated_normals(weights: Floats, first: int, count: int, key: int) -> Floats:
    """Standard normal numbers for hours `first` to `first + count`, correlated by the weights.

    An hour's number depends on the key and the hour alone, whatever span is asked for: each hour
    of noise belongs to a block of hours with a seed of its own.
    """
    half = _REACH // 2
    # A length of many small factors: the transform of a prime one takes several times as long.
    size = -(-(count + _REACH) // _BLOCK) * _BLOCK
    begin = first - half
    blocks = range(begin // _BLOCK, -(-(begin + size) // _BLOCK))
    noise = np.concatenate([_noise_block(key, block) for block in blocks])
    noise = noise[begin - blocks.start * _BLOCK :][:size]
    response = _response(tuple(weights.tolist()))
    padded = np.zeros(size)
    padded[:half], padded[-half:] = response[:half], response[half:]
    mixed = np.fft.irfft(np.fft.rfft(noise) * np.fft.rfft(padded), size)
    return mixed[half : half + count]


def _noise_block(key: int, block: int) -> Floats:
    seed = np.random.SeedSequence([key, block + _BLOCK_ORIGIN])
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(_BLOCK)
