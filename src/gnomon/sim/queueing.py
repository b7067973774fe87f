"""Queueing: jobs that wait for a number of equal servers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError

#: Given the time and the waiting jobs in order of arrival: a position among them, or ~t (negative)
#: to hold until time t or the next arrival or departure; -1 names no time.
Choose = Callable[[int, NDArray[np.int64]], int]


class Served(msgspec.Struct, frozen=True, eq=False):
    """When each job started and ended, and where. A job that was never served has -1."""

    arrival_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    server: NDArray[np.int32]

    @property
    def is_served(self) -> NDArray[np.bool_]:
        """Which jobs got a server."""
        return self.server >= 0

    @property
    def wait_ns(self) -> NDArray[np.int64]:
        """Time in the queue of the served jobs."""
        return (self.start_ns - self.arrival_ns)[self.is_served]

    @property
    def response_ns(self) -> NDArray[np.int64]:
        """Time from arrival to end of the served jobs."""
        return (self.end_ns - self.arrival_ns)[self.is_served]


def serve(
    arrival_ns: ArrayLike,
    size_ns: ArrayLike,
    servers: int = 1,
    *,
    discipline: str = "fifo",
    choose: Choose | None = None,
    seed: int = 0,
) -> Served:
    """Plays jobs through a queue.

    Args:
        arrival_ns: Arrival times in order.
        discipline: fifo, lifo, shortest or random.
        choose: A policy instead of a discipline, called at each free server.

    >>> serve([0, 1, 2], [10, 10, 1], discipline="shortest").start_ns.tolist()
    [0, 11, 10]
    """
    arrival, size = whole_nanoseconds(arrival_ns, "arrival"), whole_nanoseconds(size_ns, "size")
    if len(arrival) != len(size):
        raise InputError(f"{len(arrival)} arrivals but {len(size)} sizes")
    if servers < 1:
        raise InputError(f"{servers} servers; there must be one at least")
    if len(arrival) and (np.any(arrival[1:] < arrival[:-1]) or arrival[0] < 0):
        raise InputError("arrivals must be sorted and not negative")
    if len(size) and int(size.min()) < 0:
        raise InputError(f"job {int(np.argmax(size < 0))} has a negative size")
    if len(size) and float(arrival[-1]) + float(size.sum(dtype=np.float64)) >= 2.0**62:
        raise InputError("arrivals and sizes add up to more than a century")
    known = {"fifo", "lifo", "shortest", "random"}
    if choose is None and discipline not in known:
        raise InputError(f"no discipline {discipline!r}; there are {', '.join(sorted(known))}")
    rule = getattr(_core.Discipline, "custom" if choose else discipline)
    ask = _checked(choose) if choose else None
    served = _core.serve(
        arrival=arrival, size=size, servers=servers, discipline=rule, seed=seed, choose=ask
    )
    return Served(arrival, served.start, served.end, served.server)


def whole_nanoseconds(values: ArrayLike, what: str) -> NDArray[np.int64]:
    """A flat column of whole numbers as int64; fractions are refused, not cut."""
    array = np.asarray(values)
    if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
        raise InputError(f"{what}s must be a flat column of whole ns, not {array.dtype}")
    return np.ascontiguousarray(array.reshape(-1), np.int64)


def _checked(choose: Choose) -> Choose:
    def ask(now_ns: int, waiting: NDArray[np.int64]) -> int:
        position = int(choose(now_ns, waiting))
        if position >= len(waiting):
            raise InputError(f"the policy picked a job that does not wait, number {position}")
        return position

    return ask


def poisson_arrivals(count: int, rate_per_s: float, seed: int) -> NDArray[np.int64]:
    """Arrival times of a Poisson process, in nanoseconds.

    >>> int(poisson_arrivals(1000, rate_per_s=100.0, seed=1)[-1] / 1e9)
    10
    """
    if count < 0 or not rate_per_s > 0:
        raise InputError(f"{count} arrivals at {rate_per_s}/s; give a positive rate")
    return _core.poisson_arrivals(count, 1e9 / rate_per_s, seed)


def exponential_sizes(count: int, mean_ns: float, seed: int) -> NDArray[np.int64]:
    """Exponential service times; independent of the arrivals of the same seed."""
    if count < 0 or not mean_ns > 0:
        raise InputError(f"{count} sizes of mean {mean_ns} ns; give a positive mean")
    return _core.exponential_sizes(count, mean_ns, seed)
