"""The grid beside a running application: its intensity now, and the forecast."""

from __future__ import annotations

import concurrent.futures
import math
import threading
from collections.abc import Callable

import numpy as np

from gnomon.decide.cluster.live import GridNow
from gnomon.errors import InputError
from gnomon.ingest.intensity.outlook import Outlook
from gnomon.series import Signal
from gnomon.systems.batch.grids import HORIZON_H
from gnomon.units import HOUR_NS

#: How long to wait for the first hours: longer than a provider's attempts take together.
_PATIENCE_S = 60.0


class LiveGrid:
    """The grid now, from forecasts that are refreshed.

    A thread of its own fetches them, as a provider may be slow: known hours are used until it
    answers.

    Args:
        ask: The hours between two times, of a provider, a file or a profile.
        refresh_s: After how long to fetch again.
        hour_s: How long an hour of the grid takes: a signal can be played faster.
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
        self._pending: concurrent.futures.Future[Outlook] | None = None
        self.basis = ""

    @property
    def hour_s(self) -> float:
        """How long an hour of the grid takes here."""
        return self._hour_s

    def now(self, now_s: float, *, wait_s: float = _PATIENCE_S) -> GridNow:
        """The grid at a time of the clock.

        Args:
            now_s: Seconds since 1970.
            wait_s: How long to wait for an answer, where the hour is not known.

        Raises:
            InputError: The grid is not known.
        """
        at = self._time_in_signal(now_s)
        self._take_answer()
        is_old = now_s - self._asked_s >= self._refresh_s
        if self._pending is None and (is_old or not self._reaches(at)):
            self._pending = _in_background(self._ask, at, at + (HORIZON_H + 2) * HOUR_NS)
            self._asked_s = now_s
        if self._pending is not None and not self._reaches(at):
            concurrent.futures.wait([self._pending], wait_s)
            self._take_answer()
        return self._known_at(at)

    def _time_in_signal(self, now_s: float) -> int:
        if self._began_s is None:
            self._began_s = now_s
        begin = self._began_s * 1e9 if self._start_ns is None else self._start_ns
        return int(begin + (now_s - self._began_s) * 1e9 * 3600.0 / self._hour_s)

    def _reaches(self, at: int) -> bool:
        return self._known is not None and self._known.start_ns <= at < self._known.end_ns

    def _take_answer(self) -> None:
        """Takes the answer, if there is one; raises where it is an error."""
        if self._pending is None or not self._pending.done():
            return
        # After an error nothing is known until the next answer: otherwise decisions would be
        # released at each error, and applied again during the next request.
        answered, self._pending, self._known = self._pending, None, None
        outlook = answered.result()
        self.basis = outlook.basis
        if outlook.signal is None:
            raise InputError(f"the grid is not known: {outlook.basis}")
        self._known = outlook.signal

    def _known_at(self, at: int) -> GridNow:
        signal = self._known
        if signal is None:
            raise InputError("the grid is not known yet: no answer so far")
        if not self._reaches(at):
            raise InputError(f"the hours known do not reach to now ({self.basis})")
        hours = min(HORIZON_H, int((signal.end_ns - at - 1) // HOUR_NS))
        times = at + HOUR_NS * np.arange(1, hours + 1)
        coming = signal.at(times)
        upper = signal
        if signal.high is not None:
            upper = signal.replace(values=signal.high, low=None, high=None)
        return GridNow(float(signal.at(at)), coming, upper.at(times))


def _in_background(
    ask: Callable[[int, int], Outlook], start_ns: int, end_ns: int
) -> concurrent.futures.Future[Outlook]:
    """Asks on a daemon thread: those of a pool would keep the process from ending."""
    answer: concurrent.futures.Future[Outlook] = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(ask(start_ns, end_ns))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="gnomon-grid", daemon=True).start()
    return answer
