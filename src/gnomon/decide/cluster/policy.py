"""The shape of a cluster's policy: its Python, native and live forms, and their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.policy import Policy
from gnomon.errors import InputError
from gnomon.graph.jobs import JobKinds
from gnomon.registry import Registry
from gnomon.sim.cluster import Executors, GridSteps, Guard

#: When a quota holds: for every task that starts, or before a decision, whatever that gives.
Binding = Literal["task", "decision"]
#: What a quota is of: executors that run a task, or all that applications hold.
Counts = Literal["busy", "held"]


class QuotaTerms(msgspec.Struct, frozen=True):
    """How a quota is enforced, so that a control can enforce its own in the same way.

    Attributes:
        narrows: Whether a job's limit shrinks with the quota.
    """

    narrows: bool = False
    binding: Binding = "task"
    counts: Counts = "busy"


class Setting(msgspec.Struct, frozen=True, eq=False):
    """Where a policy is to work: known before the first decision."""

    kinds: JobKinds
    executors: Executors
    grid: GridSteps | None = None
    seed: int = 0

    def grid_for(self, policy: str) -> GridSteps:
        """The grid, for a policy that cannot do without."""
        if self.grid is None:
            raise InputError(f"{policy} needs a grid", hint="name a zone, or give a signal")
        return self.grid


class NativeForm(msgspec.Struct, frozen=True, eq=False):
    """What the native simulator runs.

    Attributes:
        order: Which stage is next.
        gates: What the grid forbids.
        guard: How long it may.
        caution: How far coming hours are taken to lie from the middle of the forecast towards
            its upper end.
    """

    order: _core.Order
    gates: tuple[_core.Gate, ...] = ()
    guard: Guard = Guard()
    caution: float = 0.0

    def with_gate(self, gate: _core.Gate) -> NativeForm:
        """The same behind one more gate."""
        return msgspec.structs.replace(self, gates=(*self.gates, gate))

    def with_guard(self, guard: Guard) -> NativeForm:
        """The same with a guard at least as tight."""
        return msgspec.structs.replace(self, guard=tighter(self.guard, guard))


class ClusterState(msgspec.Struct, frozen=True, eq=False):
    """What `decide` sees; arrays are copies.

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
        stage_path_ns: The path to end: how long it takes from its start to the end of the job.
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
    stage_path_ns: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.stage)


class Serve(msgspec.Struct, frozen=True):
    """Give idle executors to this stage of the state, its job never holding more than `limit`."""

    index: int
    limit: int


class Wait(msgspec.Struct, frozen=True):
    """Give none until something happens."""


class ClusterPolicy(Policy, frozen=True):
    """Which stage gets executors next: `decide` or `native`, and `live` to run it beside Spark.

    `decide` is asked as long as there are idle executors and stages to serve.
    """

    # A policy in Python sees the grid, so it gets a placebo unless it declares that it does not.
    reads_grid: ClassVar[bool] = True

    def decide(self, state: ClusterState, rng: Generator) -> Serve | Wait:
        """What to do now."""
        self._lacks("Python")

    def native(self, setting: Setting) -> NativeForm:
        """What the simulator runs here: by default, it calls `decide`."""
        return NativeForm(_core.asked_order(_asker(self, np.random.default_rng(setting.seed))))

    def live(self, state: LiveCluster) -> LiveDecision:
        """What a running application should have now."""
        self._lacks("live")

    def stage_weights(self, state: LiveCluster) -> dict[int, float]:
        """A weight for each ready stage of a running application, the highest first in line."""
        if self.wrapped is None:
            self._lacks("live")
        return self.wrapped.stage_weights(state)

    @property
    def weighs_by(self) -> str:
        """What `stage_weights` goes by, in words."""
        return "" if self.wrapped is None else self.wrapped.weighs_by

    @property
    def orders_stages(self) -> bool:
        """Whether its live form sets the order of stages."""
        return self.wrapped is not None and self.wrapped.orders_stages

    @property
    def quota_terms(self) -> QuotaTerms:
        """How the outermost quota in it is enforced."""
        return QuotaTerms() if self.wrapped is None else self.wrapped.quota_terms


class Order(ClusterPolicy, frozen=True):
    """A policy that goes by the jobs alone, whatever the grid does."""

    reads_grid: ClassVar[bool] = False


#: Policies by name: `fifo`, `cap:fair`, `pcaps?gamma=0.8:decima`. Others bring theirs by entry
#: point.
cluster_policies: Registry[ClusterPolicy] = Registry(
    "cluster policy", group="gnomon.cluster_policies", package="gnomon.decide.cluster.policies"
)


def tighter(a: Guard, b: Guard) -> Guard:
    """The guard that keeps both."""
    return Guard(
        patience_ns=min(a.patience_ns, b.patience_ns),
        longest_hold_ns=min(a.longest_hold_ns, b.longest_hold_ns),
        finish_by_ns=min(a.finish_by_ns, b.finish_by_ns),
    )


def _asker(policy: ClusterPolicy, rng: Generator) -> Callable[[_core.AskedState], Serve | None]:
    """What the native simulator calls for each decision."""

    def choose(asked: _core.AskedState) -> Serve | None:
        state = ClusterState(
            now_ns=asked.now, executors=asked.executors, idle=asked.idle, busy=asked.busy,
            intensity=asked.intensity, low=asked.low, high=asked.high, job=asked.job,
            job_executors=asked.job_executors, job_arrival_ns=asked.job_arrival,
            job_work_ns=asked.job_work, source=asked.source, stage_job=asked.stage_job,
            stage=asked.stage, stage_tasks=asked.stage_tasks, stage_path_ns=asked.stage_way,
        )  # fmt: skip
        action = policy.decide(state, rng)
        if isinstance(action, Wait):
            return None
        if not isinstance(action, Serve) or not 0 <= action.index < len(state):
            raise InputError(f"{policy!r} answered {action!r} to {len(state)} stages")
        return Serve(action.index, min(max(action.limit, 0), state.executors))

    return choose
