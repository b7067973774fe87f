"""A policy at work on a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gnomon import _core
from gnomon.decide.cluster.policy import (
    ClusterPolicy,
    ClusterView,
    Parts,
    PythonPolicy,
    Serve,
    Setting,
    Wait,
    cluster_policies,
    tighter,
)
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs
from gnomon.sim.cluster import ClusterRun, Executors, GridSteps, Guard, run_cluster

__all__ = ["simulate"]


def simulate(
    policy: str | ClusterPolicy | PythonPolicy,
    jobs: BatchJobs,
    executors: Executors | int,
    *,
    grid: GridSteps | None = None,
    outlook_high: np.ndarray[Any, Any] | None = None,
    guard: Guard | None = None,
    seed: int = 0,
    log_tasks: bool = False,
    log_holds: bool = False,
) -> ClusterRun:
    """Runs jobs under a policy.

    Args:
        policy: A policy, or the name of one: `fifo`, `cap?least=0.1:decima`.
        jobs: What arrives.
        executors: What runs it, or only how many.
        grid: The grid, for policies that look at it.
        outlook_high: The upper end of the outlook, for policies that are cautious.
        guard: How long the policy may keep work waiting, besides what it says itself.
        seed: Of durations, failures and what the policy draws.
        log_tasks: Keep every task.
        log_holds: Keep every stage that was held.

    >>> from gnomon.graph.jobs import JobKinds, Stage, Waves
    >>> kinds = JobKinds.build({"one": [Stage(4, {2: Waves(first=[10], rest=[5])})]})
    >>> simulate("fair", BatchJobs.of(kinds, [0], [0]), 4).tasks
    4
    """
    chosen = cluster_policies.create(policy) if isinstance(policy, str) else policy
    many = Executors(count=executors) if isinstance(executors, int) else executors
    if isinstance(chosen, ClusterPolicy):
        parts = chosen.parts(Setting(jobs.kinds, many, grid))
    else:
        parts = Parts(_core.asked_order(_asker(chosen, np.random.default_rng(seed))))
    if grid is not None and parts.caution > 0.0 and outlook_high is not None:
        dirtier = np.maximum(outlook_high - grid.outlook, 0.0)
        grid = grid.replace(outlook=grid.outlook + parts.caution * dirtier)
    return run_cluster(
        jobs, many, parts.order, parts.gates, grid=grid,
        guard=tighter(parts.guard, guard or Guard()), seed=seed, log_tasks=log_tasks,
        log_holds=log_holds,
    )  # fmt: skip


def _asker(
    policy: PythonPolicy, rng: np.random.Generator
) -> Callable[[_core.AskedState], Serve | None]:
    """What the native simulator calls for each decision."""

    def choose(state: _core.AskedState) -> Serve | None:
        view = ClusterView(
            now_ns=state.now, executors=state.executors, idle=state.idle, busy=state.busy,
            intensity=state.intensity, low=state.low, high=state.high, job=state.job,
            job_executors=state.job_executors, job_arrival_ns=state.job_arrival,
            job_work_ns=state.job_work, source=state.source, stage_job=state.stage_job,
            stage=state.stage, stage_tasks=state.stage_tasks, stage_way_ns=state.stage_way,
        )  # fmt: skip
        action = policy.decide(view, rng)
        if isinstance(action, Wait):
            return None
        if not isinstance(action, Serve) or not 0 <= action.index < len(view):
            raise InputError(f"{policy!r} answered {action!r} to {len(view)} stages")
        return Serve(action.index, min(max(action.limit, 0), state.executors))

    return choose
