"""The least carbon that anybody could have emitted: an offline bound.

All arrivals and all hours are known, work can be cut anywhere and nothing waits for anything but
its own arrival. What is left is to fill the cleanest hours: no schedule of the same work that is
done by the same time emits less. (With precedence and whole tasks less is possible; see arXiv
2512.07799 for solvers of that.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import Infeasible
from gnomon.graph.jobs import BatchJobs
from gnomon.sim.cluster import ClusterRun, GridSteps

Floats = NDArray[np.float64]


def cleanest_mean(
    run: ClusterRun, jobs: BatchJobs, grid: GridSteps, executors: int, end_ns: int
) -> float:
    """The least mean intensity at which a run's jobs could have been done by a time.

    Args:
        run: The work of its jobs is taken.
        jobs: Their arrivals; one after another could have come as soon as that one had.
    """
    last = min(-(-end_ns // grid.step_ns), grid.actual.size)
    hour = np.minimum(_earliest(jobs) // grid.step_ns, last - 1)
    arrived: Floats = np.cumsum(
        np.bincount(hour, run.busy_ns / grid.step_ns, last), dtype=np.float64
    )
    room = np.full(last, float(executors))
    room[-1] *= max(end_ns - (last - 1) * grid.step_ns, 1) / grid.step_ns
    done = fill_cleanest(grid.actual[:last], arrived, np.minimum(room, executors))
    return float(done @ grid.actual[:last]) / float(arrived[-1])


def _earliest(jobs: BatchJobs) -> NDArray[np.int64]:
    earliest = jobs.arrival_ns.copy()
    for job in np.flatnonzero(jobs.after >= 0):  # what it is after comes before it
        earliest[job] += earliest[jobs.after[job]]
    return earliest


def fill_cleanest(intensity: Floats, arrived: Floats, room: Floats) -> Floats:
    """Work in each hour, least dirty in sum: never more than has arrived, nor than there is room.

    What has been done by an hour is bounded by what has arrived: bounds that hold one another, so
    that taking the cleanest hour as far as it goes, then the next, is best.

    >>> fill_cleanest(np.array([5.0, 1.0, 3.0]), np.array([2.0, 2.0, 4.0]), np.full(3, 2.0))
    array([0., 2., 2.])
    """
    done = np.zeros(intensity.size)
    slack = arrived.astype(np.float64).copy()  # arrived by the end of each hour and not yet done
    for hour in np.argsort(intensity, kind="stable"):
        take = min(float(room[hour]), float(slack[hour:].min()))
        if take > 0:
            done[hour] = take
            slack[hour:] -= take
    if slack[-1] > 1e-6 * max(arrived[-1], 1.0):
        raise Infeasible(f"{slack[-1]:.3g} executor hours do not fit before the end")
    return done
