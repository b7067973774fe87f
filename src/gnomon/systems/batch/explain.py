"""Why a stage was held: what it was measured against, what that saved, and what it cost."""

from __future__ import annotations

import numpy as np

from gnomon.decide.cluster import cluster_policies
from gnomon.graph.jobs import BatchJobs
from gnomon.sim.cluster import ClusterRun
from gnomon.systems.batch.grids import KnownGrid
from gnomon.systems.batch.measure import J_PER_KWH, Power
from gnomon.systems.batch.trial import TrialRunner

HeldRow = dict[str, str | int | float]
HELD_UNITS = {
    "held_at_h": "h", "saved_g": "g", "lost_s": "s", "grid_then": "g/kWh",
    "grid_when_run": "g/kWh",
}  # fmt: skip


def explain_holds(runner: TrialRunner, policy: str, *, most: int = 8) -> list[HeldRow]:
    """The stages that a policy held in a trial, those that saved most first."""
    run = runner.run(cluster_policies.create(policy), log_holds=True)
    power = runner.experiment.power
    return held_rows(run, runner.jobs, runner.grid, power, policy=policy, most=most)


def held_rows(
    run: ClusterRun, jobs: BatchJobs, grid: KnownGrid, power: Power, *, policy: str, most: int = 8
) -> list[HeldRow]:
    """Held stages with the grams that holding each saved and the seconds that it lost.

    Saved is against the same executor time at the intensity of when it was held; what its wait
    did to other stages is in the policy's totals alone.
    """
    held, hour_ns = run.held, grid.steps.step_ns
    busy_kwh = held.busy_ns / 1e9 * power.busy_w * power.pue / J_PER_KWH
    hour = np.minimum(held.held_ns // hour_ns, grid.steps.actual.size - 1)
    then = grid.steps.actual[hour]
    mean = held.weighted / np.maximum(held.busy_ns, 1)
    saved_g = busy_kwh * (then - mean)
    first = np.argsort(-saved_g, kind="stable")[:most]
    kinds = jobs.kinds
    return [
        {
            "policy": policy,
            "job": int(held.job[i]),
            "kind": kinds.names[int(jobs.kind[held.job[i]])],
            "stage": int(held.stage[i]),
            "held_at_h": float(held.held_ns[i]) / hour_ns,
            "because": _because(held.importance[i], held.threshold[i], held.intensity[i]),
            "grid_then": float(then[i]),
            "grid_when_run": float(mean[i]),
            "saved_g": round(float(saved_g[i]), 9),
            "lost_s": float(held.resumed_ns[i] - held.held_ns[i]) / 1e9,
        }
        for i in first
    ]


def _because(importance: float, threshold: float, seen: float) -> str:
    if importance > 0.0:
        return f"importance {importance:.2f} allows {threshold:.0f} g/kWh, the grid had {seen:.0f}"
    if threshold > 0.0:
        noun = "executor" if round(threshold) == 1 else "executors"
        return f"quota of {threshold:.0f} {noun} at {seen:.0f} g/kWh"
    return f"cleaner hours than {seen:.0f} g/kWh were expected in time"
