"""What Decima's decisions were worth: how much less its rollout cost afterwards than expected.

The cost of a rollout is the time that jobs spend in the system. What it still costs at a decision
is compared with what other rollouts of the same jobs cost from the same time on (Mao et al.,
SIGCOMM 2019, section 5.3), so that what arrives by chance cancels. That alone is noisy: thousands
of later decisions are in it. So the difference is explained as far as possible by the state (a
linear fit over all rollouts), and a decision answers for what happens within seconds plus the
change of what the state promises (generalised advantages, Schulman et al., ICLR 2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.sim.cluster import ClusterRun

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Record = Mapping[str, NDArray[Any]]

_RIDGE = 0.01
_ROUNDING_S2 = 1e-12


class Worth(NamedTuple):
    """Of each rollout, what its decisions were worth; and how much of it the state explains.

    Attributes:
        advantages: Seconds that jobs spend less in the system, by decision.
        explained: Share of the variance between rollouts that the fit on the state explains.
    """

    advantages: list[Floats]
    explained: float


def advantages(
    runs: Sequence[ClusterRun], records: Sequence[Record], *, memory_s: float, reach_s: float
) -> Worth:
    """Of every decision in rollouts of the same jobs.

    Args:
        memory_s: Costs count e times less for every so many seconds that they come later.
        reach_s: So does what happened after a decision, beside what the state promises.
    """
    times = [np.asarray(record["time"], dtype=np.int64) for record in records]
    costs = [[cost_to_go(run, when, memory_s) for run in runs] for when in times]
    own = [costs[i][i] for i in range(len(runs))]
    expected = [np.mean(of_all, axis=0) for of_all in costs]
    states = _against_the_others([state_features(record) for record in records], times)
    slope, explained = _fit(states, [mine - mean for mine, mean in zip(own, expected)])
    found = [
        _accumulate(when, mine, mean + state @ slope, memory_s, reach_s)
        for when, mine, mean, state in zip(times, own, expected, states)
    ]
    return Worth(found, explained)


def cost_to_go(run: ClusterRun, when_ns: Ints, memory_s: float = np.inf) -> Floats:
    """Seconds that jobs spend in the system from each time on, later ones counting less."""
    arrival, finish = np.sort(run.arrival_ns), np.sort(run.finish_ns)
    change = np.unique(np.concatenate([arrival, finish]))
    jobs = np.searchsorted(arrival, change, "right") - np.searchsorted(finish, change, "right")
    beyond = np.zeros(len(change))
    for i in range(len(change) - 2, -1, -1):
        cost, fades = _over(jobs[i], change[i + 1] - change[i], memory_s)
        beyond[i] = cost + fades * beyond[i + 1]
    # A time before the first arrival costs what that does: there is nobody to count yet.
    place = np.searchsorted(change, when_ns, "right") - 1
    within = np.clip(place, 0, max(len(change) - 2, 0))
    since = np.clip(change[np.minimum(within + 1, len(change) - 1)] - when_ns, 0, None)
    cost, fades = _over(jobs[within], since, memory_s)
    inside = cost + fades * beyond[np.minimum(within + 1, len(change) - 1)]
    return np.asarray(np.where(place < 0, beyond[0], inside), dtype=np.float64)


def _over(jobs: Any, length_ns: Any, memory_s: float) -> tuple[Any, Any]:
    """What jobs cost over a stretch of time, and what is left of a cost behind it."""
    length = np.asarray(length_ns) / 1e9
    if np.isinf(memory_s):
        return jobs * length, np.ones_like(length)
    return -jobs * memory_s * np.expm1(-length / memory_s), np.exp(-length / memory_s)


def state_features(record: Record) -> Floats:
    """Of every decision, numbers that say how much is still to come."""
    first_job, decisions = record["first_job"], len(record["time"])
    jobs = np.diff(first_job)
    decision = np.repeat(np.arange(decisions), jobs)
    first_node = np.concatenate([[0], np.cumsum(record["job_nodes"], dtype=np.int64)])

    def by_job(of_nodes: NDArray[Any]) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(of_nodes, dtype=np.float64)])
        return np.asarray(total[first_node[1:]] - total[first_node[:-1]])

    def by_decision(of_jobs: NDArray[Any]) -> Floats:
        sums = np.bincount(decision, weights=of_jobs, minlength=decisions)
        return np.asarray(sums, dtype=np.float64)

    work, tasks = by_job(record["work_ms"] / 1e5), by_job(record["tasks"] / 200.0)
    held = record["job_executors"] / 20.0
    height = np.maximum.reduceat(record["height"], first_node[:-1]) if len(work) else work
    # The shortest job first: its work delays all the others, the longest's delays nobody.
    shortest_first = np.lexsort((work, decision))
    still_there = jobs[decision] - (np.arange(len(work)) - np.repeat(first_job[:-1], jobs))
    columns = (
        jobs,
        by_decision(work),
        by_decision(np.sqrt(work)),
        by_decision(work[shortest_first] * still_there),
        by_decision(tasks),
        by_decision(record["job_nodes"]),
        by_decision(height),
        by_decision(held),
        by_decision(held == 0.0),
        by_decision(np.minimum(held, 1.0)),
        record["free_executors"],
    )
    return np.stack(columns, axis=1).astype(np.float64)


def _against_the_others(states: list[Floats], times: list[Ints]) -> list[Floats]:
    """Features less what rollouts have at the same time on average; after its end one has none."""
    differences = []
    for state, when in zip(states, times):
        mean = np.zeros_like(state)
        for other, moments in zip(states, times):
            place = np.clip(np.searchsorted(moments, when, "right") - 1, 0, None)
            mean += other[place] * (when <= moments[-1])[:, None]
        differences.append(state - mean / len(states))
    return differences


def _fit(states: list[Floats], costs: list[Floats]) -> tuple[Floats, float]:
    """Slopes of a ridge regression, and the share of the variance that it explains."""
    x, y = np.concatenate(states), np.concatenate(costs)
    scale = x.std(axis=0)
    scaled = x / np.where(scale > 0, scale, 1.0)
    ridge = _RIDGE * len(y) * np.eye(x.shape[1])
    slope = np.linalg.solve(scaled.T @ scaled + ridge, scaled.T @ y)
    spread = float(np.var(y))
    missed = float(np.var(y - scaled @ slope))
    explained = 1.0 - missed / spread if spread > _ROUNDING_S2 else 0.0
    return slope / np.where(scale > 0, scale, 1.0), explained


def _accumulate(
    when_ns: Ints, cost: Floats, promised: Floats, memory_s: float, reach_s: float
) -> Floats:
    """From costs to go and what states promise of them to what each decision gained."""
    apart = np.diff(when_ns) / 1e9
    fades = np.exp(-apart / memory_s)
    surprise = cost - promised
    surprise[:-1] = (cost[:-1] - fades * cost[1:]) + fades * promised[1:] - promised[:-1]
    carry = fades * np.exp(-apart / reach_s)
    for i in range(len(surprise) - 2, -1, -1):
        surprise[i] += carry[i] * surprise[i + 1]
    return -surprise
