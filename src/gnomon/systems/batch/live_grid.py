"""The grid beside a running application: what it does now, and what is expected of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.outlook import Outlook
from gnomon.series import Signal
from gnomon.systems.batch.grids import HORIZON_H

__all__ = ["GridNow", "LiveGrid"]

_HOUR_NS = 3_600 * 10**9


class GridNow(msgspec.Struct, frozen=True, eq=False):
    """The grid at a moment.

    Attributes:
        intensity: Grams a kWh now.
        coming: Of the hours after this one, as expected; with `high`, the upper end of that.
    """

    intensity: float
    coming: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def low_end(self) -> float:
        """The least that is expected, now included."""
        return float(min(self.intensity, self.coming.min(initial=math.inf)))

    @property
    def high_end(self) -> float:
        """The greatest."""
        return float(max(self.intensity, self.coming.max(initial=0.0)))


class LiveGrid:
    """What the grid does now, from forecasts that are asked for again as they grow old.

    Args:
        ask: The hours between two times, as a provider, a file or a profile has them.
        refresh_s: After how long to ask again.
        hour_s: How long an hour of the grid takes here: a signal can be played faster.
        start_ns: Where in the signal it begins, if it is not played at the clock's own time.
    """

    def __init__(
        self, ask: Callable[[int, int], Outlook], *, refresh_s: float = 300.0,
        hour_s: float = 3600.0, start_ns: int | None = None,
    ) -> None:  # fmt: skip
        # Played faster, hours are used up faster.
        self._ask, self._refresh_s = ask, min(refresh_s, hour_s)
        self._hour_s, self._start_ns = hour_s, start_ns
        self._asked_s = -math.inf
        self._began_s: float | None = None
        self._known: Signal | None = None
        self.basis = ""

    @property
    def hour_s(self) -> float:
        """How long an hour of the grid takes here."""
        return self._hour_s

    def now(self, now_s: float) -> GridNow:
        """The grid at a time of the clock.

        Raises:
            InputError: Nobody knows.
        """
        if self._began_s is None:
            self._began_s = now_s
        begin = self._began_s * 1e9 if self._start_ns is None else self._start_ns
        at = int(begin + (now_s - self._began_s) * 1e9 * 3600.0 / self._hour_s)
        if self._known is None or now_s - self._asked_s >= self._refresh_s:
            self._renew(at, now_s)
        assert self._known is not None
        if not self._known.start_ns <= at < self._known.end_ns:
            self._renew(at, now_s)
        signal = self._known
        if not signal.start_ns <= at < signal.end_ns:
            raise InputError(f"the hours known do not reach to now ({self.basis})")
        hours = min(HORIZON_H, int((signal.end_ns - at - 1) // _HOUR_NS))
        times = at + _HOUR_NS * np.arange(1, hours + 1)
        coming = signal.at(times)
        upper = signal
        if signal.high is not None:
            upper = signal.replace(values=signal.high, low=None, high=None)
        return GridNow(float(signal.at(at)), coming, upper.at(times))

    def _renew(self, at: int, now_s: float) -> None:
        outlook = self._ask(at, at + (HORIZON_H + 2) * _HOUR_NS)
        self.basis = outlook.basis
        if outlook.signal is None:
            raise InputError(f"the grid is not known: {outlook.basis}")
        self._known, self._asked_s = outlook.signal, now_s
