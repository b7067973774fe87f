"""A user's own jobs: the executors they had, and how well a replay meets what was recorded."""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.decide.cluster import simulate
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph.jobs import BatchJobs
from gnomon.ingest.stages.trace import BatchTrace
from gnomon.sim.cluster import NEVER_NS, Executors

_SEEDS = 9


class SameJobs(msgspec.Struct, frozen=True, eq=False):
    """Makes the same jobs in every trial: those of a log."""

    jobs: BatchJobs

    def __call__(self, *, rng: np.random.Generator) -> BatchJobs:
        """As they are; trials differ in durations drawn and in the hour they start at."""
        return self.jobs


class Replayed(msgspec.Struct, frozen=True):
    """What a replay as recorded comes to.

    Attributes:
        makespan_s: From the first arrival to the last end, over some seeds.
        recorded_s: The same as the log has it; None where it does not say.
    """

    makespan_s: Estimate
    recorded_s: float | None

    @property
    def error_pct(self) -> float | None:
        if not self.recorded_s:
            return None
        return 100.0 * (self.makespan_s.mid / self.recorded_s - 1.0)


def recorded_executors(trace: BatchTrace, *, moving_delay_ns: int = 0) -> Executors:
    """The executors that a log's applications had, each as long as it was there.

    Those that stayed to the last job's end stay for good: a replay may take a little longer.
    """
    if trace.executors < 1:
        raise InputError(
            "it does not say how many executors there were", where=trace.where,
            hint="give --executors",
        )  # fmt: skip
    came: list[int] = []
    left: list[int] = []
    there: list[int] = []
    for when_ns, count in zip(trace.held_from_ns.tolist(), trace.held.tolist()):
        while len(there) < count:
            there.append(len(came))
            came.append(when_ns)
            left.append(NEVER_NS)
        while len(there) > count:
            gone = there.pop()
            if when_ns < trace.ended_ns:
                left[gone] = max(when_ns, came[gone] + 1)
    return Executors(
        count=len(came), from_ns=tuple(came), until_ns=tuple(left), moving_delay_ns=moving_delay_ns
    )


def replay_recorded(trace: BatchTrace, *, seed: int = 0) -> Replayed:
    """The log's jobs again on the executors they had, first come first served as in Spark."""
    executors = recorded_executors(trace)
    ends = [
        simulate(Fifo(), trace.jobs, executors, seed=seed + number).end_ns / 1e9
        for number in range(_SEEDS)
    ]
    recorded = trace.ended_ns / 1e9 if trace.ended_ns else None
    return Replayed(Estimate.from_samples(ends), recorded)
