"""Which registers are read and written: the dependencies of the original."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from gnomon.systems.clone.recording import DEPENDENCY_BINS


class Registers:
    """Numbers of registers, so many in all."""

    def __init__(self, dependencies: Sequence[float], rng: Generator, count: int) -> None:
        self._shares, self._rng = np.cumsum(dependencies), rng
        self._written = [-i for i in range(count)]
        self._now = 1

    def read(self, count: int | None = None) -> int:
        """One of the first, that was written as long ago as dependencies want."""
        bin_ = int(np.searchsorted(self._shares, self._rng.random()))
        want = 1 << min(bin_, DEPENDENCY_BINS - 1)
        return min(range(count or len(self._written)),
                   key=lambda i: abs(self._now - self._written[i] - want))  # fmt: skip

    def write(self, count: int | None = None, first: int = 0) -> int:
        """One of the first `count`, in turn."""
        self._now += 1
        found = first + self._now % ((count or len(self._written)) - first)
        self._written[found] = self._now
        return found
