"""The profiler's own time in each task of a graph, taken out.

A host task loses, in this order:

- *unsteadiness*: what it took more than the same call took in the trace's other steps (their
  lower quartile; with three steps, the fastest). Fresh pages and cold caches of the profiler hit
  now this call, now that one;
- *operators, launches, calls, frames*: the price of every event that begins or ends inside it
  (`profiler_cost`); as a rule one begins at its end, or one ends at its start;
- *steps*: the profiler's work between two step marks.

Devices work on beside a profiler; only the gaps before kernels get shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph import WorkGraph
from gnomon.graph.column_types import Flags, Floats, Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.profiler_cost import (
    EventPrices,
    ProfilerCost,
    group_by,
    price_events,
)
from gnomon.sim.trace.events import step_marks
from gnomon.sim.trace.graph import HOST_KINDS, TraceGraph

#: Never taken away: the work that an operator does between the profiler's doings.
_KEPT = 0.15
#: Part of a call's price that lies inside the call; the rest comes after it.
_INSIDE = 0.6
#: The quartile of a call's repeats that counts as its steady time.
_STEADY = 0.25
#: A device gap up to this long, behind a launch that came late, is the launch's way to the device.
_LAUNCH_LATENCY_NS = 20_000
#: The gap between two kernels that queue, where the trace shows too few.
_QUEUE_GAP_NS = 1_300.0
_ENOUGH = 20


class WithoutProfiler(msgspec.Struct, frozen=True, eq=False):
    """Durations without the profiler, and what host tasks of marked steps lost, by reason."""

    duration_ns: Floats
    removed_ns: dict[str, float]
    is_host: Flags


def take_profiler_out(
    trace: KinetoTrace, training: TraceGraph, cost: ProfilerCost
) -> WithoutProfiler:
    """Shortens what the profiler made longer."""
    graph = training.graph
    is_host = graph.is_kind(*HOST_KINDS)
    recorded = graph.duration_ns.astype(np.float64)
    duration = _steady(training, is_host, recorded, cost)
    inside = (training.step >= 0 if len(training.step_names) else True) & is_host
    removed = dict.fromkeys(_REASONS, 0.0)
    removed["unsteadiness"] = float(np.dot(recorded - duration, inside))
    for tasks, prices in _event_costs(trace, training, is_host, cost):
        if (pause := prices.pop("steps", None)) is not None:  # nothing else happens there
            taken = np.minimum(pause, duration[tasks])
            duration[tasks] -= taken
            removed["steps"] += float(taken.sum())
        asked = np.sum(list(prices.values()), axis=0)
        granted = np.minimum(asked, (1.0 - _KEPT) * duration[tasks])
        duration[tasks] -= granted
        counts = inside[tasks] & (asked > 0.0)
        share = np.divide(granted, asked, out=np.zeros_like(asked), where=counts)
        for why, ns in prices.items():
            removed[why] += float(np.dot(ns, share))
    return WithoutProfiler(_shorten_gaps(training, duration, cost), removed, is_host)


# -- steadiness ------------------------------------------------------------------------------


def _steady(training: TraceGraph, is_host: Flags, recorded: Floats, cost: ProfilerCost) -> Floats:
    """Each host task as long as it is among its repeats in other steps when all goes well."""
    steady = recorded.copy()
    tasks = np.flatnonzero(is_host & (training.step >= 0) if len(training.step_names) else is_host)
    if not len(tasks):
        return steady
    own, row = recorded[tasks], _repeats(training, tasks)
    # Repeats of a call next to each other, the shortest first.
    order = np.lexsort((own, row))
    first = np.flatnonzero(np.concatenate([[True], row[order][1:] != row[order][:-1]]))
    best = _steady_time(own[order], first, np.diff([*first.tolist(), len(order)]), cost)
    steady[tasks] = np.minimum(best[row], own)
    return steady


def _steady_time(took: Floats, first: Ints, count: Ints, cost: ProfilerCost) -> Floats:
    """The steady time of each call, from its repeats: `count` of them, in order, from `first`."""
    shortest = took[first]
    low = np.maximum(_quantile(took, first, count, _STEADY), cost.lone * shortest)
    middle = _quantile(took, first, count, 0.5)
    # With nothing to compare with, it loses what others of the kind lose.
    low = np.where(count == 1, cost.lone * shortest, low)
    steady: Floats = np.maximum(low, middle - cost.unsteady_ns)
    return steady


def _quantile(ordered: Floats, first: Ints, count: Ints, share: float) -> Floats:
    """A quantile of each run, as expected of samples of that size: k of n stands for k / (n + 1).

    Two samples say where the quartile below them would be.

    >>> samples = np.array([1.0, 2.0, 4.0, 1.0, 2.0])
    >>> _quantile(samples, np.array([0, 3]), np.array([3, 2]), 0.25)
    array([1.  , 0.75])
    """
    at = share * (count + 1) - 1.0
    below = np.clip(at.astype(np.int64), 0, np.maximum(count - 2, 0))
    above = np.minimum(below + 1, count - 1)
    low, high = ordered[first + below], ordered[first + above]
    between: Floats = np.where(count > 1, low + (at - below) * (high - low), low)
    return between


def _repeats(training: TraceGraph, tasks: Ints) -> Ints:
    """A number for each task, counted from zero, that its repeats in other steps share.

    Repeats are of one lane, kind and name, between the same neighbours, and of the same turn in
    their step: the third of its like with the third of its like.
    """
    graph, steps = training.graph, len(training.step_names) + 1
    lane, name = graph.lane[tasks], graph.name[tasks].astype(np.int64)
    apart = lane[1:] != lane[:-1]
    before, after = np.roll(name, 1), np.roll(name, -1)
    before[0] = after[-1] = -1
    before[1:][apart] = after[:-1][apart] = -1
    # One number of all of them; should it ever overflow, it stays a good hash.
    names = len(graph.names) + 1
    like = lane.astype(np.int64) * len(graph.kinds) + graph.kind[tasks]
    for part in (name, before + 1, after + 1):
        like = like * names + part
    order = np.argsort(like * steps + training.step[tasks], kind="stable")
    like, step = like[order], training.step[tasks[order]]
    # Runs of one like in one step; a like takes as many numbers as it has turns in any step.
    new_like = np.concatenate([[True], like[1:] != like[:-1]])
    begins = np.flatnonzero(new_like | np.concatenate([[True], step[1:] != step[:-1]]))
    length = np.diff(begins, append=len(tasks))
    turn = np.arange(len(tasks)) - np.repeat(begins, length)
    first_run = np.flatnonzero(new_like[begins])
    most = np.maximum.reduceat(length, first_run)
    base = np.repeat(np.cumsum(most) - most, np.diff(first_run, append=len(begins)))
    number = np.empty(len(tasks), np.int64)
    number[order] = np.repeat(base, length) + turn
    return number


# -- events ----------------------------------------------------------------------------------

#: Kinds of events that cost; 0 costs nothing.
_OPERATOR, _LAUNCH, _CALL, _FRAME = 1, 2, 3, 4
_KIND_OF = {
    "cpu_op": _OPERATOR, "cuda_runtime": _CALL, "cuda_driver": _CALL, "python_function": _FRAME,
}  # fmt: skip
_REASONS = ("operators", "launches", "calls", "frames", "steps")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _event_costs(
    trace: KinetoTrace, training: TraceGraph, is_host: Flags, cost: ProfilerCost
) -> Iterator[tuple[Ints | slice, dict[str, Floats]]]:
    """What the events cost that begin or end inside each task, by kind; thread by thread."""
    kind = _event_kinds(trace)
    nested = np.flatnonzero((kind > 0) & (kind != _FRAME))
    prices = price_events(
        cost, trace.start_ns[nested], trace.end_ns[nested], trace.thread[nested],
        kind[nested] == _OPERATOR, kind[nested] == _LAUNCH, len(trace.threads),
    )  # fmt: skip
    marks = step_marks(trace)
    for thread, tasks, events in _threads(trace, training, is_host, kind > 0):
        ends = training.recorded.end_ns[tasks]
        start, end = trace.start_ns[events], trace.end_ns[events]
        costs = dict(_thread_costs(ends, start, end, kind[events], prices, thread))
        own = marks[trace.thread[marks] == thread]
        if len(own) > 1:
            costs["steps"] = _between(trace.start_ns[own], trace.end_ns[own], ends)
        yield tasks, costs


def _event_kinds(trace: KinetoTrace) -> NDArray[np.int8]:
    """The kind of each event; a call that shares its correlation with a kernel is its launch."""
    kinds = np.asarray([_KIND_OF.get(name, 0) for name in trace.categories], np.int8)
    on_device = np.asarray([name in _ON_DEVICE for name in trace.categories], bool)
    kind = kinds[trace.category]
    calls = np.flatnonzero(kind == _CALL)
    started = trace.correlation[on_device[trace.category]]
    kind[calls[np.isin(trace.correlation[calls], started[started > 0])]] = _LAUNCH
    return kind


def _threads(
    trace: KinetoTrace, training: TraceGraph, is_host: Flags, counts: Flags
) -> Iterator[tuple[int, Ints | slice, Ints]]:
    """Each host thread that has both tasks and events, with these, in order."""
    graph = training.graph
    events, tasks = np.flatnonzero(counts), np.flatnonzero(is_host)
    events, first_event = group_by(events, trace.thread[events], len(trace.threads))
    tasks, first_task = group_by(tasks, graph.lane[tasks], len(graph.lanes))
    for lane, thread in _thread_of_lane(trace, graph).items():
        own = events[first_event[thread] : first_event[thread + 1]]
        done = tasks[first_task[lane] : first_task[lane + 1]]
        if len(own) and len(done):
            # As a rule a lane's tasks lie side by side, and a slice is quicker than its numbers.
            together = done[-1] - done[0] == len(done) - 1
            yield thread, slice(done[0], done[-1] + 1) if together else done, own


def _thread_of_lane(trace: KinetoTrace, graph: WorkGraph) -> dict[int, int]:
    by_name = {f"thread {tid}": thread for thread, (_, tid) in enumerate(trace.threads)}
    by_name |= {
        f"process {pid} thread {tid}": thread for thread, (pid, tid) in enumerate(trace.threads)
    }
    return {lane: by_name[name] for lane, name in enumerate(graph.lanes) if name in by_name}


def _thread_costs(
    task_end_ns: Ints, start_ns: Ints, end_ns: Ints, kind: NDArray[np.int8], prices: EventPrices,
    thread: int,
) -> Iterator[tuple[str, Floats]]:  # fmt: skip
    """What the events of one thread cost in each of its tasks, by kind of event."""

    def count(at_ns: Ints, of: int, side: Literal["left", "right"]) -> Ints:
        """How many events of a kind fall to each task."""
        found = np.searchsorted(task_end_ns, at_ns[kind == of], side)
        return np.bincount(found, minlength=len(task_end_ns))[: len(task_end_ns)]

    # An event begins at a task's end or inside it; it ends at a task's start or inside it.
    if (kind == _OPERATOR).any():
        enter = count(start_ns, _OPERATOR, "left") * prices.enter[thread]
        yield "operators", enter + count(end_ns, _OPERATOR, "right") * prices.exit[thread]
    for of, why, price in ((_LAUNCH, "launches", prices.launch), (_CALL, "calls", prices.call)):
        if (kind == of).any():
            after = count(end_ns, of, "right") * (1.0 - _INSIDE)
            yield why, (count(end_ns, of, "left") * _INSIDE + after) * price[thread]
    if (kind == _FRAME).any():
        ends = count(start_ns, _FRAME, "left") + count(end_ns, _FRAME, "right")
        yield "frames", ends * (prices.frame[thread] / 2.0)


def _between(mark_start_ns: Ints, mark_end_ns: Ints, task_end_ns: Ints) -> Floats:
    """How much of each task lies between two step marks, where only the profiler works."""
    pause = np.zeros(len(task_end_ns))
    at = np.searchsorted(task_end_ns, mark_end_ns[:-1], side="right")
    inside = at < len(task_end_ns)
    length = np.maximum(mark_start_ns[1:] - mark_end_ns[:-1], 0)
    np.add.at(pause, at[inside], length[inside])
    return pause


# -- devices ---------------------------------------------------------------------------------


def _shorten_gaps(training: TraceGraph, duration_ns: Floats, cost: ProfilerCost) -> Floats:
    """The durations, with the gaps before kernels as they are when these queue.

    Behind a slow host most kernels start when their launch arrives, and the gap before them is
    its way to the device. Behind a faster one they queue, and that way is hidden.
    """
    graph, line = training.graph, training.recorded
    gaps = np.flatnonzero(graph.is_kind("latency"))
    if not len(gaps):
        return duration_ns
    before = np.maximum(gaps - 1, 0)
    queued = (graph.lane[before] == graph.lane[gaps]) & (
        line.end_ns[before] >= line.start_ns[gaps]
    )
    length = duration_ns[gaps]
    usual = float(np.median(length[queued])) if queued.sum() >= _ENOUGH else _QUEUE_GAP_NS
    late = ~queued & (length <= _LAUNCH_LATENCY_NS)
    length = np.where(late, np.minimum(length, usual), length)
    duration = duration_ns.copy()
    duration[gaps] = np.maximum(length - cost.kernel_ns, 0.0)
    return duration
