"""Who carries idle capacity: shares of what nobody used, by what each job used meanwhile.

tSCI (arXiv 2410.15087, section 3): to its own M a job adds, for every server, TE T/EL x idle
fraction x its share of all resources in use, and likewise the idle power. Jobs come and go, so
the rule is applied between one start or end and the next. While nothing runs, nobody is there to
carry: that part is kept apart, and with it the shares add up to the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.model.ranges import Floats

__all__ = ["IdleShares", "Usage", "share_idle"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Usage:
    """What jobs take of groups of machines, and when.

    Attributes:
        start_ns: Start of each job.
        end_ns: End of each job.
        units: Threads (or accelerators) that each job holds.
        group: The group whose units it holds; -1 for a job spread evenly over all of them.
        capacity: Units of each group.
    """

    start_ns: Ints
    end_ns: Ints
    units: Floats
    group: Ints
    capacity: Floats

    def __post_init__(self) -> None:
        if not (self.capacity > 0).all():
            raise InputError("every group needs capacity: threads, or accelerators")
        if not (self.start_ns <= self.end_ns).all():
            row = int(np.flatnonzero(self.start_ns > self.end_ns)[0])
            raise InputError(f"job {row} ends before it starts")


@dataclass(frozen=True, eq=False, slots=True)
class IdleShares:
    """What idle capacity costs, shared out.

    Attributes:
        jobs: Each job's share; a row a cost where several were given.
        nobody: What fell into time in which nothing ran, one number a cost.
        overfull_ns: Time in which some group had more units in use than it has.
    """

    jobs: Floats
    nobody: Floats
    overfull_ns: int


def share_idle(
    usage: Usage,
    cost: Floats,
    weight: Callable[[Ints, Ints], Floats] | None = None,
    span_ns: tuple[int, int] | None = None,
) -> IdleShares:
    """Share the cost of idle capacity among the jobs that run meanwhile, by units held.

    Args:
        usage: The jobs and the groups.
        cost: What each group costs when all of it is idle, per nanosecond or per unit of weight;
            several costs at once as rows.
        weight: How much the intervals from starts to ends weigh; their length unless given. Grid
            intensity integrated over them makes grams of idle power. It may answer a row a cost.
        span_ns: The time accounted for; from the first start to the last end unless given.

    The paper's example: A is 400 g over 10 years with 40 cores, B 50 g over 5 years with 10. A
    job holds all of B for a year while another holds 10 cores of A.

    >>> usage = Usage(
    ...     start_ns=np.array([0, 0]), end_ns=np.array([1, 1]), units=np.array([10.0, 10.0]),
    ...     group=np.array([1, 0]), capacity=np.array([40.0, 10.0]))
    >>> 50 / 5 + float(share_idle(usage, np.array([400 / 10, 50 / 5])).jobs[0])
    25.0
    """
    first, last = span_ns or (int(usage.start_ns.min()), int(usage.end_ns.max()))
    edges = np.unique(np.concatenate([usage.start_ns, usage.end_ns, [first, last]]))
    starts, ends = edges[:-1], edges[1:]
    begins = np.searchsorted(edges, usage.start_ns)
    stops = np.searchsorted(edges, usage.end_ns)
    costs = np.atleast_2d(cost)
    all_capacity = usage.capacity.sum()
    spread = _in_use(usage, -1, begins, stops, starts.size)
    used = np.zeros(starts.size)
    amount = np.zeros((len(costs), starts.size))
    overfull = np.zeros(starts.size, dtype=bool)
    named = set(np.unique(usage.group).tolist())
    alone = [group for group in range(usage.capacity.size) if group in named]
    # Groups that no job names have the same share in use: they count as one.
    alike = [group for group in range(usage.capacity.size) if group not in named]
    for groups in [*([group] for group in alone), *([alike] if alike else [])]:
        capacity = usage.capacity[groups].sum()
        held = spread * (capacity / all_capacity)
        if len(groups) == 1 and groups[0] in named:
            held = held + _in_use(usage, groups[0], begins, stops, starts.size)
        used += held
        idle = np.clip(1.0 - held / capacity, 0.0, 1.0)
        amount += np.outer(costs[:, groups].sum(axis=1), idle)
        overfull |= held > capacity * (1 + 1e-9)
    amount *= (ends - starts).astype(np.float64) if weight is None else weight(starts, ends)
    runs = used > all_capacity * 1e-12
    by_unit = np.where(runs, amount / np.where(runs, used, 1.0), 0.0)
    until = np.concatenate([np.zeros((len(costs), 1)), np.cumsum(by_unit, axis=1)], axis=1)
    shares = usage.units * (until[:, stops] - until[:, begins])
    return IdleShares(
        shares if np.ndim(cost) == 2 else shares[0],
        amount[:, ~runs].sum(axis=1),
        int((ends - starts)[overfull].sum()),
    )


def _in_use(
    usage: Usage,
    group: int,
    begins: npt.NDArray[np.intp],
    stops: npt.NDArray[np.intp],
    size: int,
) -> Floats:
    """Units of a group that are held, from each edge to the next."""
    rows = np.flatnonzero(usage.group == group)
    units = usage.units[rows]
    change = np.bincount(begins[rows], units, size + 1) - np.bincount(stops[rows], units, size + 1)
    held = np.cumsum(change)[:size]
    # Sums of fractions leave dust behind when all jobs are gone.
    return np.where(held < 1e-9 * max(1.0, float(units.max(initial=0.0))), 0.0, held)
