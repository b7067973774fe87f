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

from gnomon.errors import InputError
from gnomon.model.ranges import Floats, Ints

#: Groups times edges that are looked at together: they stay in the processor's cache.
_BLOCK = 1 << 20
_LEAST_EDGES = 1 << 10


@dataclass(frozen=True, eq=False, slots=True)
class Usage:
    """What jobs take of groups of machines, and when; -1 is all groups evenly."""

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
        jobs: Each job's share; a row per cost where several were given.
        nobody: What fell into time in which nothing ran, one number per cost.
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
        cost: What each group costs when all of it is idle, per nanosecond or per unit of weight;
            several costs at once as rows.
        weight: How much the intervals from starts to ends weigh; their length unless given. Grid
            intensity integrated over them makes grams of idle power. It may answer a row per cost.
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
    edges, begins, stops = _edges(usage, first, last)
    in_use = _InUse(usage, begins, stops)
    capacity = in_use.capacity[:, None]
    costs = np.atleast_2d(cost)
    idle_costs = in_use.merge(costs)
    until = np.zeros((len(costs), edges.size))
    nobody, overfull_ns = np.zeros(len(costs)), 0
    # Every group at every edge would not fit into memory for a million jobs: block by block.
    step = max(_LEAST_EDGES, _BLOCK // len(capacity))
    for begin in range(0, edges.size - 1, step):
        end = min(begin + step, edges.size - 1)
        starts, ends = edges[begin:end], edges[begin + 1 : end + 1]
        held = in_use.held(begin, end)
        amount = idle_costs @ np.clip(1.0 - held / capacity, 0.0, 1.0)
        amount *= (ends - starts).astype(np.float64) if weight is None else weight(starts, ends)
        used = held.sum(axis=0)
        runs = used > capacity.sum() * 1e-12
        by_unit = np.where(runs, amount / np.where(runs, used, 1.0), 0.0)
        until[:, begin + 1 : end + 1] = until[:, [begin]] + np.cumsum(by_unit, axis=1)
        nobody += amount[:, ~runs].sum(axis=1)
        overfull = (held > capacity * (1 + 1e-9)).any(axis=0)
        overfull_ns += int((ends - starts)[overfull].sum())
    shares = np.empty((len(costs), usage.units.size))
    for share, row in zip(shares, until):
        share[:] = usage.units * (row[stops] - row[begins])
    return IdleShares(shares if np.ndim(cost) == 2 else shares[0], nobody, overfull_ns)


def _edges(usage: Usage, first: int, last: int) -> tuple[Ints, Ints, Ints]:
    """All starts and ends in order, and which of them each job starts and ends at."""
    times = np.concatenate([usage.start_ns, usage.end_ns, [first, last]])
    order = np.argsort(times, kind="stable")
    in_order = times[order]
    is_new = np.concatenate([[True], in_order[1:] != in_order[:-1]])
    place = np.empty(times.size, dtype=np.int64)
    place[order] = np.cumsum(is_new) - 1
    jobs = usage.units.size
    return in_order[is_new], place[:jobs], place[jobs : 2 * jobs]


class _InUse:
    """Units in use between edges, a row per group; groups that no job names count as one.

    Those all have the same share in use: that of the jobs that are spread evenly.
    """

    def __init__(self, usage: Usage, begins: Ints, stops: Ints) -> None:
        named = np.unique(usage.group[usage.group >= 0])
        self._row_of = np.full(usage.capacity.size, named.size, dtype=np.int64)
        self._row_of[named] = np.arange(named.size)
        self.capacity = np.bincount(self._row_of, usage.capacity)
        spread = self.capacity.size
        row = np.where(usage.group >= 0, self._row_of[usage.group], spread)
        largest = np.zeros(spread + 1)
        np.maximum.at(largest, row, usage.units)
        # Sums of fractions leave dust behind when all jobs are gone.
        self._dust = 1e-9 * np.maximum(1.0, largest)[:, None]
        edge = np.concatenate([begins, stops])
        order = np.argsort(edge, kind="stable")
        self._edge = edge[order]
        self._row = np.concatenate([row, row])[order]
        self._change = np.concatenate([usage.units, -usage.units])[order]
        self._carried = np.zeros(spread + 1)

    def merge(self, of_groups: Floats) -> Floats:
        merged = np.zeros((len(of_groups), self.capacity.size))
        np.add.at(merged.T, self._row_of, of_groups.T)
        return merged

    def held(self, begin: int, end: int) -> Floats:
        """From each edge of a block to the next; blocks are asked for in their order."""
        first, last = np.searchsorted(self._edge, [begin, end])
        rows, width = self._carried.size, end - begin
        at = self._row[first:last] * width + (self._edge[first:last] - begin)
        change = np.zeros((rows, width))
        change += np.bincount(at, self._change[first:last], rows * width).reshape(rows, width)
        change[:, 0] += self._carried
        held = np.cumsum(change, axis=1)
        self._carried = held[:, -1].copy()
        held[held < self._dust] = 0.0
        return held[:-1] + np.outer(self.capacity / self.capacity.sum(), held[-1])
