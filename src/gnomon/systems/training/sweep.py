"""Sensitivity: how the step answers when one kind of task becomes faster or slower."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph, scale
from gnomon.parallel import Progress, pmap
from gnomon.report import Figure, Line, LineChart, Manifest, Result, hash_input
from gnomon.sim import replay
from gnomon.sim.trace.graph import TraceGraph
from gnomon.sim.trace.steps import step_estimate
from gnomon.systems.training.pipeline import replay_trace
from gnomon.table import Table
from gnomon.version import __version__

_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
#: Kinds that are varied unless some are named.
_MOST_KINDS = 4


class Point(msgspec.Struct, frozen=True):
    """One replay: this kind of task takes `factor` times as long."""

    kind: str
    factor: float


def step_at(training: TraceGraph, graph: WorkGraph, anchor: float, point: Point) -> float:
    """Milliseconds per step at this point, of a graph of the training's tasks."""
    changed = scale(graph, graph.is_kind(point.kind), point.factor)
    return step_estimate(training, replay(changed, causes=False)).mid * anchor


def sweep_trace(
    path: str | os.PathLike[str],
    kinds: Sequence[str] | None = None,
    factors: Sequence[float] | None = None,
    *,
    on: str = "local",
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    command: str = "",
) -> Result:
    """Replays every kind at every factor, in parallel."""
    run = replay_trace(path, [])
    training = run.training
    graph, base, anchor = run.base
    chosen = list(kinds) if kinds else _critical_kinds(base)
    unknown = [kind for kind in chosen if kind not in training.graph.kinds]
    if unknown:
        known = ", ".join(sorted(training.graph.kinds))
        raise InputError(f"the trace has no {unknown[0]!r} tasks; there are {known}")
    steps = sorted(set(factors or _FACTORS))
    points = [Point(kind, factor) for kind in chosen for factor in steps]
    # The graph travels with the function, once a worker: a cluster need not see the file.
    play = functools.partial(step_at, training, graph, anchor)
    times = pmap(play, points, on=on, resume=resume, progress=progress)
    table = Table.from_rows(
        "Step by kind and factor",
        [
            {"kind": p.kind, "factor": p.factor, "step_ms": round(ms, 4)}
            for p, ms in zip(points, times)
        ],
        units={"step_ms": "ms"},
    )
    lines = [
        Line(kind, list(steps), times[i * len(steps) : (i + 1) * len(steps)])
        for i, kind in enumerate(chosen)
    ]
    return Result(
        "training",
        "sweep",
        f"Sensitivity of the step on {training.gpu or 'CPU'}",
        "Which kind of task is worth making faster?",
        figures=_figures(chosen, steps, times),
        tables=[table],
        charts=[
            LineChart("Step against duration of one kind", lines, x_label="duration",
                      x_unit="x", y_label="step", y_unit="ms", from_zero=False)
        ],
        how=["Each point replays the whole graph with the tasks of one kind scaled"
             + (", without the profiler's own time." if run.unprofiled else ".")],
        manifest=Manifest(
            command, {"kinds": chosen, "factors": steps}, None, __version__,
            [hash_input(source) for source in run.sources],
        ),
    )  # fmt: skip


def _critical_kinds(base: Timeline) -> list[str]:
    """The kinds that make up most of the critical path: only these can be worth it."""
    spent = base.critical_path().by_kind_ns
    heavy = sorted(spent, key=lambda kind: -spent[kind])
    return [kind for kind in heavy if spent[kind] > 0][:_MOST_KINDS]


def _figures(
    kinds: Sequence[str], factors: Sequence[float], times: Sequence[float]
) -> list[Figure]:
    """Which kind moves the step most between the smallest and the largest factor."""
    spread = {
        kind: times[(i + 1) * len(factors) - 1] - times[i * len(factors)]
        for i, kind in enumerate(kinds)
    }
    first = max(spread, key=lambda kind: spread[kind])
    span = factors[-1] - factors[0]
    figures = [Figure("points", "Replays", len(times))]
    if span > 0:
        slope = Figure(
            "slope_ms", "One per cent of it is worth", spread[first] / span / 100.0, "ms per step"
        )
        worth = first if spread[first] > 0 else "none of these"
        figures = [Figure("most_worth", "Most worth making faster", worth), slope, *figures]
    return figures
