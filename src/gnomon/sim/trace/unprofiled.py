"""How long the step takes when nobody profiles.

A profiled host is slower than it would be alone; a GPU hardly is. So the graph's host tasks are
cut down to what they would take without the profiler (`gnomon.sim.trace.profiler_time`),
and the graph is replayed: whether host or GPU then sets the pace follows by itself.

Steps count from end to end, so that a GPU that lags behind its host is counted right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph import Timeline, WorkGraph
from gnomon.graph.timeline import union_of_spans
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.profiler_cost import ProfilerCost, default_profiler_cost
from gnomon.sim import replay
from gnomon.sim.trace.graph import HOST_KINDS, TraceGraph
from gnomon.sim.trace.profiler_time import take_profiler_out
from gnomon.sim.trace.steps import step_periods_ms


class UnprofiledStep(msgspec.Struct, frozen=True, eq=False):
    """The step without the profiler.

    Attributes:
        graph: The tasks with the durations they have when nobody profiles.
        timeline: That graph, replayed.
        estimate: Milliseconds per step, in a range meant to hold 80 % of cases: from a replay
            with the host slower by `host_spread`, mirrored, and from `device_spread` and the
            recorded steps' own spread. Exact where it was measured.
        modelled: The same as the model alone has it.
        profiled_ms: The step as recorded.
        removed_ms: Time taken away in a step, by reason; on all threads and ranks together, so
            that it may be more than the step gets shorter.
        bound_by: Whether host or GPU sets the pace without the profiler.
        measured_ms: The step without the profiler as it was measured; None where it was not.
    """

    graph: WorkGraph
    timeline: Timeline
    estimate: Estimate
    modelled: Estimate
    profiled_ms: float
    removed_ms: dict[str, float]
    bound_by: Literal["host", "gpu"]
    measured_ms: float | None = None

    @property
    def factor(self) -> float:
        """The measured step over the modelled one; what-ifs on the graph are multiplied by it."""
        if self.measured_ms is None or not self.modelled.mid:
            return 1.0
        return self.measured_ms / self.modelled.mid


def unprofiled_step(
    trace: KinetoTrace,
    training: TraceGraph,
    cost: ProfilerCost | None = None,
    measured_ms: float | None = None,
) -> UnprofiledStep:
    """Estimates the step of one trace as it is when nobody profiles.

    Args:
        trace: The trace.
        training: Its graph, on the trace's own clock.
        cost: What the profiler costs; as shipped unless given.
        measured_ms: The step without the profiler, where it was measured: then it is the answer.
    """
    return unprofiled_job(
        training, [(trace, training)], lambda graphs: graphs[0], cost, measured_ms
    )


def unprofiled_job(
    training: TraceGraph,
    ranks: Sequence[tuple[KinetoTrace, TraceGraph]],
    link: Callable[[list[WorkGraph]], WorkGraph],
    cost: ProfilerCost | None = None,
    measured_ms: float | None = None,
) -> UnprofiledStep:
    """Estimates the step of a job as it is when nobody profiles.

    The answer is never above the recorded step, and never below the time in which a GPU
    computed: kernels that ran one after the other are not assumed to run side by side for free.

    Args:
        training: The job's graph.
        ranks: Each rank's trace and its own graph, on the trace's own clock.
        link: Makes the job's graph of the ranks' graphs.
        cost: What the profiler costs; as shipped unless given.
        measured_ms: The step without the profiler, where it was measured: then it is the answer.
    """
    if measured_ms is not None and not (math.isfinite(measured_ms) and measured_ms > 0.0):
        raise InputError(f"a measured step of {measured_ms} ms; it has to be above zero")
    cost = cost or default_profiler_cost()
    graphs, removed_ns = _without_profiler(ranks, cost)
    graph = link(graphs)
    profiled = np.asarray(step_periods_ms(training, training.recorded))
    profiled_ms = float(np.mean(profiled))
    least_ms = min(_computing_ms(training), profiled_ms)

    def bounded_ms(timeline: Timeline) -> float:
        step_ms = float(np.mean(step_periods_ms(training, timeline)))
        return min(max(step_ms, least_ms), profiled_ms)

    timeline = replay(graph)
    on_host = graph.is_kind(*HOST_KINDS)
    slower = np.where(on_host, graph.duration_ns * (1.0 + cost.host_spread), graph.duration_ns)
    mid = bounded_ms(timeline)
    slow = bounded_ms(replay(_with_durations(graph, slower), causes=False))
    # How much of a slower host shows in the step: all where it sets the pace, nothing elsewhere.
    share = math.log(slow / mid) / math.log1p(cost.host_spread) if cost.host_spread and mid else 0
    modelled = _range(mid, slow, least_ms, cost, profiled)
    steps = max(len(training.step_names), 1)
    removed = {why: ns / 1e6 / steps for why, ns in removed_ns.items()}
    # Neither shows where the trace's own waits set the pace; then it is not the GPU's.
    bound: Literal["host", "gpu"] = "host" if share > 0.5 or 2 * least_ms < mid else "gpu"
    estimate = modelled if measured_ms is None else Estimate.exact(measured_ms)
    return UnprofiledStep(
        graph, timeline, estimate, modelled, profiled_ms, removed, bound, measured_ms
    )


def _without_profiler(
    ranks: Sequence[tuple[KinetoTrace, TraceGraph]], cost: ProfilerCost
) -> tuple[list[WorkGraph], Counter[str]]:
    """Each rank's graph without the profiler, and what was taken out of all of them."""
    done: dict[int, WorkGraph] = {}
    removed: Counter[str] = Counter()
    for trace, training in ranks:
        # Proxy ranks share a graph: its profiler is taken out once.
        if id(training) not in done:
            cut = take_profiler_out(trace, training, cost)
            done[id(training)] = _with_durations(training.graph, cut.duration_ns)
            removed.update(cut.removed_ns)
    return [done[id(training)] for _, training in ranks], removed


def without_profiler(
    trace: KinetoTrace, training: TraceGraph, cost: ProfilerCost | None = None
) -> WorkGraph:
    """The graph with the durations its tasks have when nobody profiles; all else is shared."""
    cut = take_profiler_out(trace, training, cost or default_profiler_cost())
    return _with_durations(training.graph, cut.duration_ns)


def _with_durations(graph: WorkGraph, duration_ns: NDArray[np.float64]) -> WorkGraph:
    return graph.with_durations(np.rint(duration_ns).astype(np.int64))


def _range(
    mid: float, slow: float, least_ms: float, cost: ProfilerCost, recorded: NDArray[np.float64]
) -> Estimate:
    """Host, device and the steps' own spread are independent: their half-widths add squared."""
    middle = float(np.mean(recorded))
    step_spread = float(np.std(recorded)) / middle / math.sqrt(len(recorded)) if middle else 0.0
    own = math.hypot(cost.device_spread, step_spread) * mid
    # What a slower host adds, a faster one saves, as far as the device lets it.
    fast = max(mid * mid / slow, least_ms) if slow else mid
    return Estimate(
        max(mid - math.hypot(mid - fast, own), 0.0), mid, mid + math.hypot(slow - mid, own)
    )


def _computing_ms(training: TraceGraph) -> float:
    """Time a step in which a device computed or copied, of the rank that did so longest.

    Communication waits, so it is left out. It is a bound because kernels share what they run on:
    streams that overlap more than recorded slow one another.
    """
    graph, line = training.graph, training.recorded
    computes = ~graph.is_kind(*HOST_KINDS, "latency", "communication")
    steps = len(training.step_names)
    chosen = np.flatnonzero(computes & (training.step >= 0) if steps else computes)
    if not len(chosen):
        return 0.0
    rank = np.zeros(len(chosen), np.int32) if graph.rank is None else graph.rank[chosen]
    longest = 0.0
    for number in np.unique(rank).tolist():
        own = chosen[rank == number]
        start, end = union_of_spans(line.start_ns[own], line.end_ns[own])
        longest = max(longest, float((end - start).sum()))
    return longest / 1e6 / max(steps, 1)
