"""The shape of a cluster's policy: what it is made of natively, or a decision in Python."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon import _core
from gnomon.graph.jobs import JobKinds
from gnomon.registry import Registry
from gnomon.sim.cluster import Executors, GridSteps, Guard

__all__ = [
    "ClusterPolicy", "ClusterView", "Parts", "PythonPolicy", "Serve", "Setting", "Wait",
    "cluster_policies", "tighter",
]  # fmt: skip


class Setting(msgspec.Struct, frozen=True, eq=False):
    """Where a policy is to work: known before the first decision."""

    kinds: JobKinds
    executors: Executors
    grid: GridSteps | None = None


class Parts(msgspec.Struct, frozen=True, eq=False):
    """What the native simulator runs.

    Attributes:
        order: Which stage is next.
        gates: What the grid forbids.
        guard: How long it may.
        caution: How far from the middle of a forecast towards its upper end coming hours are
            taken to be.
    """

    order: _core.Order
    gates: tuple[_core.Gate, ...] = ()
    guard: Guard = Guard()
    caution: float = 0.0


@runtime_checkable
class ClusterPolicy(Protocol):
    """A policy of native parts. Write it as a frozen Struct: its fields are its parameters."""

    def parts(self, setting: Setting) -> Parts:
        """What it is made of here."""
        ...


class ClusterView(msgspec.Struct, frozen=True, eq=False):
    """What a policy in Python sees; arrays are copies.

    Attributes:
        now_ns: The time.
        executors: How many there are.
        idle: Of them without work.
        busy: Of them with work, or on their way to it.
        intensity: Of the grid now; None where there is no grid. So `low` and `high`.
        job: Number of each job in the system, in order of arrival.
        job_executors: What each holds.
        job_arrival_ns: When it came.
        job_work_ns: Its work that has not started.
        source: The place among them of the job that an executor just came free of, or -1.
        stage_job: For each stage that could be served, the place of its job.
        stage: Its position in the job.
        stage_tasks: Tasks that have not started.
        stage_way_ns: How long it takes from its start to the end of the job.
    """

    now_ns: int
    executors: int
    idle: int
    busy: int
    intensity: float | None
    low: float | None
    high: float | None
    job: NDArray[np.int32]
    job_executors: NDArray[np.int32]
    job_arrival_ns: NDArray[np.int64]
    job_work_ns: NDArray[np.float64]
    source: int
    stage_job: NDArray[np.int32]
    stage: NDArray[np.int32]
    stage_tasks: NDArray[np.int32]
    stage_way_ns: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.stage)


class Serve(msgspec.Struct, frozen=True):
    """Give idle executors to this stage of the view, its job never holding more than `limit`."""

    index: int
    limit: int


class Wait(msgspec.Struct, frozen=True):
    """Give none until something happens."""


@runtime_checkable
class PythonPolicy(Protocol):
    """A policy in Python: it is asked as long as there are idle executors and stages to serve."""

    def decide(self, state: ClusterView, rng: Generator) -> Serve | Wait:
        """What to do now."""
        ...


#: Policies by name: `fifo`, `cap:fair`, `pcaps?gamma=0.8:decima`. Others bring theirs by entry
#: point.
cluster_policies: Registry[ClusterPolicy | PythonPolicy] = Registry(
    "cluster policy", group="gnomon.cluster_policies"
)


def tighter(a: Guard, b: Guard) -> Guard:
    """The guard that keeps both."""
    return Guard(
        patience_ns=min(a.patience_ns, b.patience_ns),
        longest_hold_ns=min(a.longest_hold_ns, b.longest_hold_ns),
        finish_by_ns=min(a.finish_by_ns, b.finish_by_ns),
    )
