"""The latency of a service at one operating point: a whole distribution in a few numbers."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

#: A percentile is read from the samples if so many of them lie beyond.
_BEYOND = 5
#: With n samples, 95 % sure: at most this over n of all lie beyond the greatest (rule of three).
_RULE_OF_THREE = 3.0


class Latencies(msgspec.Struct, frozen=True, array_like=True):
    """Samples counted in buckets, those without any left out.

    Attributes:
        low_ms: Where each bucket begins.
        high_ms: And ends.
        count: Samples in it.

    >>> seen = Latencies.of([0, 90, 10], [1.0, 2.0, 4.0, 8.0])
    >>> seen.samples, seen.quantile_ms(50), seen.quantile_ms(100)
    (100, 4.0, 8.0)
    """

    low_ms: tuple[float, ...] = ()
    high_ms: tuple[float, ...] = ()
    count: tuple[int, ...] = ()

    @classmethod
    def of(cls, counts: ArrayLike, edges_ms: ArrayLike) -> Latencies:
        """From a histogram and the edges of its buckets."""
        number, edges = np.asarray(counts), np.asarray(edges_ms, float).round(6)
        used = np.flatnonzero(number)
        return cls(
            tuple(edges[used].tolist()), tuple(edges[used + 1].tolist()),
            tuple(number[used].tolist()),
        )  # fmt: skip

    @classmethod
    def from_samples(cls, samples_ms: ArrayLike) -> Latencies:
        """From samples, in buckets that are 1 % wide."""
        values = np.maximum(np.asarray(samples_ms, float), 1e-3)
        steps = math.ceil(math.log(values.max() / values.min()) / math.log(1.01)) + 1
        edges = values.min() * 1.01 ** np.arange(steps + 1)
        edges[0] *= 1.0 - 1e-9
        return cls.of(np.histogram(values, edges)[0], edges)

    @property
    def samples(self) -> int:
        return sum(self.count)

    def quantile_ms(self, percentile: float) -> float:
        """A percentile, rounded up to the end of its bucket; NaN of no samples.

        >>> Latencies().quantile_ms(99)
        nan
        """
        if not self.count:
            return math.nan
        reached = np.cumsum(self.count)
        at = int(np.searchsorted(reached, percentile / 100 * reached[-1] - 1e-9))
        return self.high_ms[min(at, len(self.high_ms) - 1)]

    def at(self, ranks: Floats) -> Floats:
        """Times at ranks from 0 to 1: the inverse distribution, straight inside a bucket."""
        reached = np.concatenate([[0.0], np.cumsum(self.count)]) / self.samples
        low, high = np.array(self.low_ms), np.array(self.high_ms)
        place = np.clip(np.searchsorted(reached, ranks, side="right") - 1, 0, len(low) - 1)
        within = (ranks - reached[place]) / (reached[place + 1] - reached[place])
        found: Floats = low[place] + np.clip(within, 0.0, 1.0) * (high - low)[place]
        return found

    def choices(self, percentiles: tuple[float, ...]) -> list[tuple[float, float]]:
        """What a plan may promise: pairs of a residual (percent beyond) and a time.

        Percentiles that the samples resolve, and the greatest sample with what may lie beyond.

        >>> Latencies.of([900, 100], [1.0, 2.0, 4.0]).choices((50.0, 99.0, 99.9))
        [(50.0, 2.0), (1.0, 4.0), (0.3, 4.0)]
        """
        count = self.samples
        found = [
            (round(100.0 - p, 6), self.quantile_ms(p))
            for p in percentiles
            if (100.0 - p) / 100.0 * count >= _BEYOND
        ]
        greatest = (min(100.0 * _RULE_OF_THREE / max(count, 1), 100.0), self.quantile_ms(100.0))
        return [*found, greatest] if not found or greatest[0] < found[-1][0] else found

    def is_within(self, other: Latencies, *, slack: float = 0.02) -> bool:
        """Whether this is no slower than another where plans look: median, p90, p99."""
        return all(
            self.quantile_ms(p) <= other.quantile_ms(p) * (1.0 + slack) for p in (50.0, 90.0, 99.0)
        )
