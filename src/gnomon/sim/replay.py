"""Replay: when does each task of a graph start and end?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError, SimulationError
from gnomon.graph import Timeline, WorkGraph


class Limit(msgspec.Struct, frozen=True, eq=False):
    """A countable resource that some tasks need while they run: links, copy engines, host cores.

    First come, first served. A rendezvous group asks for all its members need at once.

    Attributes:
        name: What messages call it.
        capacity: Units there are.
        tasks: Who needs it: kinds, or a mask over the tasks.
        demand: Units each needs; one number for all, or one a task.
    """

    name: str
    capacity: int
    tasks: Sequence[str] | NDArray[np.bool_]
    demand: int | NDArray[np.int64] = 1


class SlowDown(msgspec.Struct, frozen=True):
    """How much tasks of one kind slow those of another while both run on the same rank.

    `{("compute", "comm"): 1.2}`: compute takes 1.2 times as long while communication runs beside
    it. Several neighbours at once: the worst counts.
    """

    factors: Mapping[tuple[str, str], float]


def replay(
    graph: WorkGraph,
    *,
    limits: Sequence[Limit] = (),
    slow_down: SlowDown | None = None,
    causes: bool = True,
) -> Timeline:
    """Plays a graph natively.

    Lanes run their tasks in order; a task starts when its lane is free and all edges into it are
    satisfied; rendezvous groups start together; run-time waits look at what their lanes hold
    then. Without waits, limits and slow-down this is one pass over the graph. The exact rules,
    ties included, are in `native/engine/replay/replay.hpp`.

    Args:
        causes: Also record what held each task back (5 bytes a task); needed for critical paths.

    >>> graph = WorkGraph.from_columns(
    ...     ["cpu", "gpu", "cpu", "gpu"], [10, 50, 10, 50], edges=([0, 2], [1, 3], "launch"))
    >>> line = replay(graph)
    >>> line.start_ns.tolist(), line.makespan_ns
    ([0, 10, 10, 60], 110)
    >>> line.critical_path().link
    ('start', 'launch', 'lane')
    """
    played = _core.replay(
        graph.native(), limits=_limits(graph, limits), slow_down=_slow_down(graph, slow_down),
        causes=causes,
    )  # fmt: skip
    if played.finished < len(graph):
        raise _stuck(graph, played)
    end = played.take_end()
    return Timeline(
        graph,
        played.take_start(),
        end if len(end) == len(graph) and len(end) else None,
        played.take_cause() if causes else None,
        played.take_reason() if causes else None,
        played.method,
    )


def _stuck(graph: WorkGraph, played: _core.Played) -> SimulationError:
    cycle = graph.native().first_cycle()
    if cycle:
        graph.validate()  # names the cycle better than we could
    blocked = list(played.stuck)
    shown = ", ".join(graph.describe(task) for task in blocked[:3])
    left = len(graph) - played.finished
    return SimulationError(
        f"the replay is stuck at {played.stuck_at} ns with {left} tasks left; first: {shown}; "
        "each waits for another (rendezvous, run-time wait or resource)",
        at_ns=played.stuck_at,
        blocked=blocked,
    )


def _limits(graph: WorkGraph, limits: Sequence[Limit]) -> _core.Limits | None:
    if not limits:
        return None
    n = len(graph)
    resource = np.full(n, -1, np.int32)
    demand = np.ones(n, np.int64)
    for number, limit in enumerate(limits):
        where = _tasks_of(graph, limit)
        twice = np.flatnonzero(where & (resource >= 0))
        if len(twice):
            other = limits[int(resource[twice[0]])].name
            raise InputError(
                f"{graph.describe(int(twice[0]))} needs both {other!r} and {limit.name!r}; "
                "a task can hold one resource"
            )
        resource[where] = number
        demand[where] = np.broadcast_to(np.asarray(limit.demand, np.int64), (n,))[where]
    _check_demands(graph, limits, resource, demand)
    capacity = np.asarray([limit.capacity for limit in limits], np.int64)
    return _core.Limits(resource=resource, capacity=capacity, demand=demand)


def _tasks_of(graph: WorkGraph, limit: Limit) -> NDArray[np.bool_]:
    if isinstance(limit.tasks, np.ndarray):
        if limit.tasks.shape != (len(graph),) or limit.tasks.dtype != bool:
            raise InputError(f"limit {limit.name!r} needs a mask over {len(graph)} tasks")
        return limit.tasks
    unknown = [kind for kind in limit.tasks if kind not in graph.kinds]
    if unknown:
        raise InputError(
            f"limit {limit.name!r} names kind {unknown[0]!r}; there are {', '.join(graph.kinds)}"
        )
    return graph.is_kind(*limit.tasks)


def _check_demands(
    graph: WorkGraph,
    limits: Sequence[Limit],
    resource: NDArray[np.int32],
    demand: NDArray[np.int64],
) -> None:
    """A demand over the capacity could never be met: say so before playing."""
    uses = np.flatnonzero(resource >= 0)
    if len(uses) and int(demand[uses].min()) < 0:
        bad = int(uses[np.argmax(demand[uses] < 0)])
        raise InputError(f"{graph.describe(bad)} needs {demand[bad]} of a resource")
    capacity = np.asarray([limit.capacity for limit in limits], np.int64)
    # Members of a group ask together; everybody else is a group of one.
    unit = np.arange(len(graph), dtype=np.int64)
    if graph.group is not None:
        unit = np.where(graph.group >= 0, len(graph) + graph.group, unit)
    asks, inverse = np.unique(unit[uses] * len(limits) + resource[uses], return_inverse=True)
    total = np.zeros(len(asks), np.int64)
    np.add.at(total, inverse, demand[uses])
    over = np.flatnonzero(total > capacity[asks % len(limits)])
    if len(over):
        task = int(uses[np.argmax(inverse == over[0])])
        limit = limits[int(asks[over[0]]) % len(limits)]
        raise InputError(
            f"{graph.describe(task)} needs {total[over[0]]} of {limit.name!r} at once, "
            f"there are {limit.capacity}"
        )


def _slow_down(graph: WorkGraph, slow_down: SlowDown | None) -> _core.SlowDown | None:
    if slow_down is None or not slow_down.factors or not len(graph):
        return None
    kinds = len(graph.kinds)
    factor = np.ones((kinds, kinds))
    for (slowed, by), value in slow_down.factors.items():
        if not np.isfinite(value) or value < 1.0:
            raise InputError(f"slow-down of {slowed!r} by {by!r} is {value}; give 1 or more")
        for kind in (slowed, by):
            if kind not in graph.kinds:
                known = ", ".join(graph.kinds)
                raise InputError(f"slow-down names kind {kind!r}; there are {known}")
        factor[graph.kinds.index(slowed), graph.kinds.index(by)] = value
    if float(graph.duration_ns.sum(dtype=np.float64)) * float(factor.max(initial=1.0)) >= 2.0**62:
        raise InputError("slowed-down durations add up to more than a century")
    device = None
    if graph.rank is not None and len(graph):
        device = np.unique(graph.rank, return_inverse=True)[1].astype(np.int32)
    return _core.SlowDown(kind=graph.kind, factor=factor.reshape(-1), kinds=kinds, device=device)


def makespan_with(graph: WorkGraph, duration_ns: ArrayLike) -> int:
    """Makespan under other durations, without keeping the timeline: for many samples."""
    played = _core.replay(graph.with_durations(duration_ns).native(), causes=False)
    if played.finished < len(graph):
        raise _stuck(graph, played)
    return int(played.makespan)
