"""Jobs that somebody ran, as read from what is left of them, and what had to be left out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.jobs import BatchJobs, JobKinds


class BatchTrace(msgspec.Struct, frozen=True, eq=False):
    """Jobs as they arrived; every job is a kind of its own.

    Attributes:
        left_out: How many jobs or rows are not among them, by why.
        executors: The most that were at hand at once (of one task at a time); 0: not known.
        held_from_ns: When their number changed, on the clock of the arrivals; empty: not known.
            Jobs may have been there before the first executor was.
        held: How many there were from then on.
        ended_ns: When the last of the jobs ended, on the same clock; 0: not known.
    """

    where: str
    jobs: BatchJobs
    left_out: Mapping[str, int] = {}
    notes: tuple[str, ...] = ()
    executors: int = 0
    held_from_ns: NDArray[np.int64] = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    held: NDArray[np.int32] = msgspec.field(default_factory=lambda: np.zeros(0, np.int32))

    ended_ns: int = 0

    @property
    def kinds(self) -> JobKinds:
        return self.jobs.kinds
