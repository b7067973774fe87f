"""The system as a composition of the layers: read, build, replay, ask."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.estimate import Estimate
from gnomon.graph import Timeline, WorkGraph
from gnomon.ingest.profiler.measured import read_measured
from gnomon.ingest.profiler.operation_log import looks_like_operation_log, read_operation_log
from gnomon.model.accelerator.profiler_cost import ProfilerCost
from gnomon.sim import replay
from gnomon.sim.trace.graph import TraceGraph
from gnomon.sim.trace.steps import StepRow, count_only, steady_window, step_estimate, step_rows
from gnomon.sim.trace.unprofiled import UnprofiledStep, unprofiled_job
from gnomon.systems.training.job import TrainingJob, build_job, link_ranks
from gnomon.systems.training.operations import build_operations_graph
from gnomon.systems.training.sources import find_traces, read_traces
from gnomon.systems.training.whatif import Change, WhatIfRow, play, usual_questions


class TrainingReplay(msgspec.Struct, frozen=True, eq=False):
    """A job, replayed: the graph, its timelines, and the answers to what-ifs.

    Attributes:
        sources: The traces that were read.
        passed_over: How many other traces lay in the same folder.
        job: The ranks and the graph of them all.
        as_recorded: The unchanged graph, replayed.
        unprofiled: The same without the profiler; None for a log no profiler wrote.
        changes: What was changed, all together.
        timeline: With the changes, replayed; `as_recorded` when there are none.
        changed: The same without the profiler; None when there are no changes.
        what_ifs: Questions and their answers, each on its own, without the profiler.
        steps: Each step recorded and replayed.
        load_s: Seconds to read and build; `replay_s`: to replay once.
    """

    sources: tuple[str, ...]
    passed_over: int
    job: TrainingJob
    as_recorded: Timeline
    unprofiled: UnprofiledStep | None
    changes: tuple[Change, ...]
    timeline: Timeline
    what_ifs: tuple[WhatIfRow, ...]
    steps: tuple[StepRow, ...]
    load_s: float
    replay_s: float
    changed: Timeline | None = None

    @property
    def training(self) -> TraceGraph:
        """The graph of all ranks and what was recorded."""
        return self.job.training

    @property
    def source(self) -> str:
        """The first trace that was read."""
        return self.sources[0]

    @property
    def base(self) -> tuple[WorkGraph, Timeline, float]:
        """What what-ifs start from: a graph, its replay, and what to multiply their steps by."""
        if self.unprofiled is None:
            return self.training.graph, self.as_recorded, 1.0
        return self.unprofiled.graph, self.unprofiled.timeline, self.unprofiled.factor

    @property
    def changed_step(self) -> Estimate | None:
        """The step with all changes, in milliseconds, without the profiler; None without any."""
        if self.changed is None:
            return None
        return step_estimate(self.training, self.changed) * self.base[2]

    def window(self) -> tuple[Timeline, int]:
        """The steady steps of the replay as a profiler would show them, and how many they are."""
        line = as_shown(self.timeline)
        begin, end, steps = steady_window(self.training, self.timeline)
        return (line.cut(begin, end) if end > begin else line), steps

    def waiting_ns(self) -> NDArray[np.int64]:
        """How long each rank waited for others in communication, over the steady steps."""
        begin, end, _ = steady_window(self.training, self.timeline)
        arrived = np.clip(as_shown(self.timeline).start_ns, begin, end)
        met = np.clip(self.timeline.start_ns, begin, end)
        waited = np.flatnonzero(met > arrived)
        rank = self.training.graph.rank
        if rank is None:
            return np.zeros(1, np.int64)
        ranks, place = np.unique(rank, return_inverse=True)
        # A send and a receive may wait side by side: that is one wait.
        spent = _core.class_overlap(
            arrived[waited], met[waited], np.zeros(len(waited), np.uint8),
            place[waited].astype(np.int32), len(ranks), 1,
        ).reshape(len(ranks), -1)  # fmt: skip
        return np.asarray(spent[:, 1], np.int64)


def read_job(
    path: str | os.PathLike[str], *, complete: bool = True
) -> tuple[TrainingJob, tuple[str, ...], int]:
    """The job at a path, the files it was read from, and how many others were passed over.

    Args:
        path: A trace, a folder of ranks, a pattern, or an operation log (.parquet, .csv).
        complete: Use traced ranks as proxies for untraced ones of the same stage.
    """
    files, passed_over = find_traces(Path(path))
    if len(files) == 1 and looks_like_operation_log(files[0]):
        training = build_operations_graph(read_operation_log(files[0]))
        return TrainingJob(training, ()), (str(files[0]),), 0
    job = build_job(read_traces(files), complete=complete)
    return job, tuple(str(file) for file in files), passed_over


def replay_trace(
    path: str | os.PathLike[str],
    questions: Sequence[Change] | None = None,
    changes: Sequence[Change] = (),
    *,
    cost: ProfilerCost | None = None,
    complete: bool = True,
    steps: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> TrainingReplay:
    """Reads profiler traces, rebuilds their graph and plays it.

    Args:
        path: A trace, a folder that holds one or one per rank, a pattern, or an operation log;
            perhaps with `meta.json` beside it.
        questions: What-ifs to answer one by one; unless given, the changes, or the usual ones.
        changes: Made to the graph all together before it is played.
        cost: What the profiler costs, in place of what comes with gnomon.
        complete: Use traced ranks as proxies for untraced ones of the same stage.
        steps: Which steps the answer is about, by the numbers of their marks: `12-14`.
        clock: Tells how long reading and replaying took.
    """
    begun = clock()
    job, sources, passed_over = read_job(path, complete=complete)
    loaded = clock()
    if steps is not None:
        job = msgspec.structs.replace(job, training=count_only(job.training, steps))
    training = job.training
    as_recorded = replay(training.graph)
    replayed = clock()
    unprofiled = _unprofiled(job, read_measured(Path(sources[0])).step_ms, cost)
    is_usual = questions is None and not changes
    if questions is None:
        questions = list(changes) or usual_questions(training)
    run = TrainingReplay(
        sources, passed_over, job, as_recorded, unprofiled, tuple(changes), as_recorded, (),
        tuple(step_rows(training, as_recorded)), loaded - begun, replayed - loaded,
    )  # fmt: skip
    graph, base, factor = run.base
    if changes:
        timeline = replay_changed(training, training.graph, changes)
        changed = timeline if unprofiled is None else replay_changed(training, graph, changes)
        run = msgspec.structs.replace(run, timeline=timeline, changed=changed)
    answers = play(training, questions, graph, base, skip_stuck=is_usual)
    anchored = [msgspec.structs.replace(a, step_ms=a.step_ms * factor) for a in answers]
    return msgspec.structs.replace(run, what_ifs=tuple(anchored))


def replay_changed(training: TraceGraph, graph: WorkGraph, changes: Sequence[Change]) -> Timeline:
    """Replays a graph with changes made one after the other."""
    for change in changes:
        graph = change.apply(training, graph)
    return replay(graph)


def _unprofiled(
    job: TrainingJob, measured: float | None, cost: ProfilerCost | None
) -> UnprofiledStep | None:
    own: dict[int, TraceGraph] = {}
    ranks = []
    for part in job.parts:
        if part.trace is None:
            return None
        # Proxy ranks share a graph, and have to go on sharing it.
        training = own.setdefault(id(part.training), part.on_its_own_clock())
        ranks.append((part.trace, training))
    if not ranks:
        return None
    rendezvous = job.rendezvous

    def link(graphs: list[WorkGraph]) -> WorkGraph:
        return graphs[0] if rendezvous is None else link_ranks(graphs, job.ranks, rendezvous)

    return unprofiled_job(job.training, ranks, link, cost, measured)


def as_shown(timeline: Timeline) -> Timeline:
    """The timeline as a profiler would show it: who waits for others at a rendezvous is there.

    In a replay the members of a rendezvous start together. A profiler shows each from the moment
    it arrived: a kernel that waits for other ranks occupies its stream.
    """
    group = timeline.graph.group
    if group is None:
        return timeline
    members = np.flatnonzero(group >= 0)
    lane = timeline.graph.lane
    follows = members[(members > 0) & (lane[members] == lane[members - 1])]
    start = timeline.start_ns.copy()
    start[follows] = np.minimum(start[follows], timeline.end_ns[follows - 1])
    return Timeline(
        timeline.graph, start, timeline.end_ns, timeline.cause, timeline.reason, timeline.method
    )
