"""What one run comes to: energy, carbon, job times."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.sim.cluster import ClusterRun, GridSteps

J_PER_KWH = 3.6e6


class Power(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor draws.

    The default is a guess for four virtual cores and 7 GB, as PCAPS' executors were: 5 W a core
    and 0.37 W a GB. Idle executors cost nothing by default, as there.

    >>> Power(busy_w=20).busy_w
    20
    """

    busy_w: float = 22.6
    idle_w: float = 0.0
    startup_j: float = 0.0
    pue: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.busy_w < 1e6 and 0 <= self.idle_w <= self.busy_w):
            raise InputError(
                "an executor draws over 0 and under a million watts, idle no more than busy"
            )
        if not (0 <= self.startup_j < 1e9 and 1 <= self.pue < 10):
            raise InputError("a start takes 0 to a billion joules, and the PUE lies from 1 to 10")


class PolicyMeasures(msgspec.Struct, frozen=True):
    """One run of one policy.

    Attributes:
        carbon_g: By executor time: what is busy draws its power.
        energy_kwh: The same way.
        cpu_carbon_g: By CPU time: waiting inside a task draws nothing.
        cpu_energy_kwh: The same way.
        jct_p95_s: The time that 95 % of jobs stay under.
        quota_share: Mean share of executors allowed; 1 where nothing was forbidden.
        busy_kwh: Of the energy by executor time, what tasks took; the rest is idle or starting.
        busy_g: The same of the carbon.
    """

    carbon_g: float
    energy_kwh: float
    cpu_carbon_g: float
    cpu_energy_kwh: float
    work_s: float
    jct_mean_s: float
    jct_p95_s: float
    ect_s: float
    quota_share: float
    decisions: int
    events: int
    busy_kwh: float
    busy_g: float


def measure(run: ClusterRun, grid: GridSteps, power: Power, executors: int) -> PolicyMeasures:
    """The figures of a run."""
    hours = max(len(run.busy_at_ns), len(run.on_at_ns))
    if hours > grid.actual.size:
        raise InputError(
            f"the run took {hours} hours of the grid and there are {grid.actual.size}",
            hint="give more hours, or a bound on how long work may wait",
        )
    busy, cpu, on = (
        _padded(column, hours) / 1e9 for column in (run.busy_at_ns, run.cpu_at_ns, run.on_at_ns)
    )
    # An executor that waits inside a task draws what an idle one does.
    idle_j, waiting_j = (np.maximum(on - used, 0.0) * power.idle_w for used in (busy, cpu))
    # Starts are spread as executors' time is: which hour each fell into was not kept.
    start_j = run.starts * power.startup_j * busy / max(busy.sum(), 1e-9)
    by_task = busy * power.busy_w * power.pue / J_PER_KWH
    by_time = (busy * power.busy_w + idle_j + start_j) * power.pue / J_PER_KWH
    by_cpu = (cpu * power.busy_w + waiting_j + start_j) * power.pue / J_PER_KWH
    intensity = grid.actual[:hours]
    done_s = run.completion_ns / 1e9
    span = run.end_ns * executors
    return PolicyMeasures(
        float(by_time @ intensity), float(by_time.sum()), float(by_cpu @ intensity),
        float(by_cpu.sum()), float(busy.sum()), float(done_s.mean()),
        float(np.quantile(done_s, 0.95)), run.end_ns / 1e9,
        float(run.quota_at_ns.sum()) / span if len(run.quota_at_ns) and span else 1.0,
        run.decisions, run.events, float(by_task.sum()), float(by_task @ intensity),
    )  # fmt: skip


def _padded(column: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    padded = np.zeros(size)
    padded[: len(column)] = column
    return padded
