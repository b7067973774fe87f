"""A cluster of executors that runs jobs of stages of tasks, in the native simulator.

Durations are drawn from measured ones as in decima-sim (Mao et al., SIGCOMM 2019): by how many
executors an application holds and by what the executor did before. A draw belongs to its task, so
that two policies on one seed see the same tasks, and a difference is the policies' own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError, SimulationError
from gnomon.graph.jobs import BatchJobs, JobKinds
from gnomon.units import HOUR_NS

NEVER_NS = int(np.iinfo(np.int64).max)
#: A job's way to its end is estimated with so many executors: what measured jobs scale to.
PATH_EXECUTORS = 20
_WORD = 2**64 - 1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Executors(msgspec.Struct, frozen=True, kw_only=True):
    """What runs tasks, one each at a time.

    Attributes:
        count: How many there are.
        speed: Of each, where they differ: what a duration is divided by.
        from_ns: When each comes, where not all are there from the start.
        until_ns: When each leaves, once its task is done.
        moving_delay_ns: To come from one application to another.
        startup_ns: To be there after having been off, or after having failed.
        off_after_ns: Idle for this long, an executor is switched off; None keeps all on.
        straggler_chance: That a task takes `straggler_factor` times as long.
        task_failure_chance: That a task has to be done again.
        failures_per_hour: Of a working executor; it takes its task with it.

    >>> Executors(count=100).moving_delay_ns
    2000000000
    """

    count: int
    speed: tuple[float, ...] = ()
    from_ns: tuple[int, ...] = ()
    until_ns: tuple[int, ...] = ()
    moving_delay_ns: int = 2 * 10**9
    startup_ns: int = 0
    off_after_ns: int | None = None
    straggler_chance: float = 0.0
    straggler_factor: float = 3.0
    task_failure_chance: float = 0.0
    failures_per_hour: float = 0.0


class GridSteps(msgspec.Struct, frozen=True, eq=False):
    """The grid in equal steps from time zero, and what policies know of it.

    Attributes:
        step_ns: How long a step takes in the simulation.
        actual: g/kWh at each step: what emissions are counted by.
        seen: What policies see; another order of steps in a placebo.
        low: At each step, the least that is expected of the steps to come.
        high: The greatest.
        outlook: At each step (row) what is expected from this step on (columns).
    """

    step_ns: int
    actual: Floats
    seen: Floats
    low: Floats
    high: Floats
    outlook: Floats

    @classmethod
    def known(
        cls, values: Sequence[float] | Floats, step_ns: int, *, horizon: int = 48
    ) -> GridSteps:
        """A grid whose coming steps are known; the last ones see fewer of them.

        >>> grid = GridSteps.known([3, 1, 2], step_ns=60, horizon=2)
        >>> grid.low, grid.high, grid.outlook[0]
        (array([1., 1., 2.]), array([3., 2., 2.]), array([3., 1.]))
        """
        steps = np.ascontiguousarray(values, dtype=np.float64)
        if steps.size == 0 or not np.isfinite(steps).all() or (steps < 0).any():
            raise InputError("a grid has steps of zero or more g/kWh")
        if step_ns < 1 or horizon < 1:
            raise InputError("a step takes time, and an outlook has a step")
        ahead = np.minimum(np.arange(steps.size)[:, None] + np.arange(horizon), steps.size - 1)
        outlook = steps[ahead]
        return cls(step_ns, steps, steps, outlook.min(axis=1), outlook.max(axis=1), outlook)

    def hours_ns(self, hours: float) -> int:
        """So many hours of the grid, in simulated time."""
        return round(hours * self.step_ns)

    def replace(self, **changes: Any) -> GridSteps:
        """With other columns."""
        return msgspec.structs.replace(self, **changes)


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """How long the grid may keep work waiting.

    Attributes:
        patience_ns: After its arrival a job is held no longer than this.
        longest_hold_ns: A stage is held no longer than this.
        finish_by_ns: All jobs should be done by then: what would be late is no longer held.
    """

    patience_ns: int = NEVER_NS
    longest_hold_ns: int = NEVER_NS
    finish_by_ns: int = NEVER_NS


class HeldStages(msgspec.Struct, frozen=True, eq=False):
    """Stages that could have run and were held, once they were done.

    Attributes:
        job: Which job.
        stage: Its position in the job.
        held_ns: Since when.
        resumed_ns: When its first task started after all.
        intensity: g/kWh, as seen, when it was held.
        importance: Of the stage among those that were ready, where the policy has one.
        threshold: What it was measured against: g/kWh, or a quota.
        busy_ns: Executor time of the stage.
        weighted: Executor time times actual intensity.
    """

    job: NDArray[np.int32]
    stage: NDArray[np.int32]
    held_ns: Ints
    resumed_ns: Ints
    intensity: Floats
    importance: Floats
    threshold: Floats
    busy_ns: Ints
    weighted: Floats

    def __len__(self) -> int:
        return len(self.job)


class TaskLog(msgspec.Struct, frozen=True, eq=False):
    """Every task that ran, in the order of their ends; wave as in `gnomon.graph.jobs.WAVES`."""

    job: NDArray[np.int32]
    stage: NDArray[np.int32]
    executor: NDArray[np.int32]
    wave: NDArray[np.int8]
    failed: NDArray[np.uint8]
    start_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.job)


class ClusterRun(msgspec.Struct, frozen=True, eq=False):
    """The outcome of a run.

    Attributes:
        arrival_ns: When each job came.
        start_ns: When its first task started.
        finish_ns: When its last task ended.
        busy_ns: Executor time of each job.
        weighted: The same, times actual intensity (ns g/kWh).
        busy_at_ns: Executor time by step of the grid; so the next three.
        cpu_at_ns: CPU time.
        moving_at_ns: Executors on their way.
        on_at_ns: Executors switched on.
        quota_at_ns: Executors allowed; empty where nothing forbids any.
        end_ns: When all was done.
        holds: Decisions to wait.
    """

    arrival_ns: Ints
    start_ns: Ints
    finish_ns: Ints
    busy_ns: Ints
    weighted: Floats
    busy_at_ns: Floats
    cpu_at_ns: Floats
    moving_at_ns: Floats
    on_at_ns: Floats
    quota_at_ns: Floats
    end_ns: int
    events: int
    tasks: int
    decisions: int
    holds: int
    moves: int
    starts: int
    failed_tasks: int
    failed_executors: int
    wasted_ns: int
    held: HeldStages
    log: TaskLog

    @property
    def completion_ns(self) -> Ints:
        """From each job's arrival to its end."""
        return self.finish_ns - self.arrival_ns

    @property
    def work_ns(self) -> float:
        """Executor time of all jobs."""
        return float(self.busy_ns.sum())


Ask = Callable[..., tuple[int, int]]


@functools.lru_cache(maxsize=8)
def native_kinds(kinds: JobKinds, path_executors: int = PATH_EXECUTORS) -> _core.ClusterKinds:
    """The columns of kinds as the native simulator takes them; kept, as many runs share them."""
    work = np.array([kinds.work_ns(int(level)) for level in kinds.levels]).T
    return _core.ClusterKinds(
        first_stage=kinds.first_stage, tasks=kinds.tasks, first_parent=kinds.first_parent,
        parents=kinds.parents, levels=kinds.levels, sample_first=kinds.sample_first,
        sample_count=kinds.sample_count, sample=kinds.sample_ns, cpu=kinds.cpu_ns,
        typical=np.ascontiguousarray(kinds.typical_ns),
        path=np.ascontiguousarray(kinds.path_ns(path_executors)),
        work_at_level=np.ascontiguousarray(work.ravel()),
    )  # fmt: skip


def _native_executors(executors: Executors) -> _core.ClusterExecutors:
    return _core.ClusterExecutors(
        count=executors.count,
        speed=np.asarray(executors.speed, dtype=np.float64),
        from_=np.asarray(executors.from_ns, dtype=np.int64),
        until=np.asarray(executors.until_ns, dtype=np.int64),
        moving_delay=executors.moving_delay_ns,
        startup=executors.startup_ns,
        off_after=NEVER_NS if executors.off_after_ns is None else executors.off_after_ns,
        straggler_chance=executors.straggler_chance,
        straggler_factor=executors.straggler_factor,
        task_failure_chance=executors.task_failure_chance,
        failures_per_ns=executors.failures_per_hour / HOUR_NS,
    )


def _native_jobs(jobs: BatchJobs) -> _core.ClusterJobs:
    return _core.ClusterJobs(
        kind=jobs.kind, arrival=jobs.arrival_ns, after=jobs.after, application=jobs.application,
        deadline=jobs.deadline_ns, weight=jobs.weight,
    )  # fmt: skip


def _native_grid(grid: GridSteps | None, step_ns: int) -> _core.ClusterGrid:
    if grid is None:
        return _core.ClusterGrid(step=step_ns)
    return _core.ClusterGrid(
        step=grid.step_ns, actual=grid.actual, seen=grid.seen, low=grid.low, high=grid.high,
        horizon=grid.outlook.shape[1], outlook=np.ravel(grid.outlook),
    )  # fmt: skip


def _native_guard(guard: Guard) -> _core.ClusterGuard:
    return _core.ClusterGuard(
        patience=guard.patience_ns,
        longest_hold=guard.longest_hold_ns,
        finish_by=guard.finish_by_ns,
    )


def run_cluster(
    jobs: BatchJobs,
    executors: Executors,
    order: _core.Order,
    gates: Sequence[_core.Gate] = (),
    *,
    grid: GridSteps | None = None,
    guard: Guard | None = None,
    seed: int = 0,
    policy_seed: int | None = None,
    step_ns: int = 60 * 10**9,
    log_tasks: bool = False,
    log_holds: bool = False,
) -> ClusterRun:
    """Runs jobs to their end.

    Policies by name are in `gnomon.decide.cluster`; this takes what they are made of.

    Args:
        jobs: What arrives.
        executors: What runs it.
        order: Which stage is next.
        gates: What the grid forbids.
        grid: The grid; gates and PCAPS need it.
        guard: How long work may be kept waiting.
        seed: Of durations and failures.
        policy_seed: Of what a policy draws; the same as `seed` unless given.
        step_ns: By what use of executors is counted where there is no grid.
        log_tasks: Keep every task.
        log_holds: Keep every stage that was held.

    Raises:
        SimulationError: A policy never served a job.

    >>> from gnomon.graph.jobs import Stage, Waves
    >>> kinds = JobKinds.build({"one": [Stage(4, {2: Waves(first=[10], rest=[5])})]})
    >>> jobs = BatchJobs.of(kinds, [0], [0])
    >>> fifo = _core.fifo_order(1 << 30, False)
    >>> run_cluster(jobs, Executors(count=2, moving_delay_ns=3), fifo).finish_ns.tolist()
    [18]
    """
    try:
        kinds = native_kinds(jobs.kinds, min(PATH_EXECUTORS, max(executors.count, 1)))
        arriving, running = _native_jobs(jobs), _native_executors(executors)
        steps, bounds = _native_grid(grid, step_ns), _native_guard(guard or Guard())
    except ValueError as error:
        raise InputError(str(error), where="cluster") from None
    try:
        out = _core.run_cluster(
            kinds=kinds, jobs=arriving, executors=running, grid=steps, guard=bounds, order=order,
            gates=gates, seed=seed & _WORD,
            policy_seed=(seed if policy_seed is None else policy_seed) & _WORD,
            log_tasks=log_tasks, log_holds=log_holds,
        )  # fmt: skip
    except ValueError as error:
        # With a frame below this one it is the error of a policy in Python, and stays as it is.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise InputError(str(error), where="cluster") from None
    if out.unfinished:
        left = np.flatnonzero(out.finish < 0)
        raise SimulationError(
            f"{out.unfinished} of {len(jobs)} jobs were never served; the first is job "
            f"{left[0]}", blocked=left[:8].tolist(),
        )  # fmt: skip
    return _to_run(jobs, out)


def _to_run(jobs: BatchJobs, out: _core.ClusterRun) -> ClusterRun:
    arrival, finish, held, log = jobs.arrival_ns.copy(), out.finish, out.held, out.log
    for job in np.flatnonzero(jobs.after >= 0):
        arrival[job] += finish[jobs.after[job]]
    return ClusterRun(
        arrival_ns=arrival, start_ns=out.start, finish_ns=finish, busy_ns=out.busy,
        weighted=out.weighted, busy_at_ns=out.busy_at, cpu_at_ns=out.cpu_at,
        moving_at_ns=out.moving_at, on_at_ns=out.on_at, quota_at_ns=out.quota_at, end_ns=out.end,
        events=out.events, tasks=out.tasks, decisions=out.decisions, holds=out.holds,
        moves=out.moves, starts=out.starts, failed_tasks=out.failed_tasks,
        failed_executors=out.failed_executors, wasted_ns=out.wasted,
        held=HeldStages(
            held.job, held.stage, held.held, held.resumed, held.intensity, held.importance,
            held.threshold, held.busy, held.weighted,
        ),
        log=TaskLog(
            log.job, log.stage, log.executor, log.wave, log.failed, log.start, log.end,
        ),
    )  # fmt: skip
