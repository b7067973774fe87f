"""A policy at work on a simulated cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.decide.cluster.policy import ClusterPolicy, Setting, cluster_policies, tighter
from gnomon.graph.jobs import BatchJobs
from gnomon.sim.cluster import ClusterRun, Executors, GridSteps, Guard, run_cluster


def simulate(
    policy: str | ClusterPolicy,
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
        policy: A policy, or the name of one: `fifo`, `cap?min_share=0.1:decima`.
        jobs: What arrives.
        executors: What runs it, or only how many.
        grid: The grid, for policies that look at it.
        outlook_high: The upper end of the outlook, for policies that are cautious.
        guard: How long the policy may keep work waiting, besides its own bounds.
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
    form = chosen.native(Setting(jobs.kinds, many, grid, seed))
    if grid is not None and form.caution > 0.0 and outlook_high is not None:
        dirtier = np.maximum(outlook_high - grid.outlook, 0.0)
        grid = grid.replace(outlook=grid.outlook + form.caution * dirtier)
    return run_cluster(
        jobs, many, form.order, form.gates, grid=grid,
        guard=tighter(form.guard, guard or Guard()), seed=seed, log_tasks=log_tasks,
        log_holds=log_holds,
    )  # fmt: skip
