"""Sensitivity: how the step answers when one kind of task becomes faster or slower."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.graph import scale
from gnomon.ingest.kineto import read_kineto
from gnomon.parallel import Progress, pmap
from gnomon.report import Figure, Line, LineChart, Manifest, Result, hash_input
from gnomon.sim import replay
from gnomon.systems.training.graph import TrainingGraph, build_graph
from gnomon.systems.training.pipeline import find_trace
from gnomon.systems.training.steps import step_estimate
from gnomon.systems.training.whatif import heaviest_kinds
from gnomon.table import Table
from gnomon.version import __version__

__all__ = ["Point", "step_at", "sweep_trace"]

_FACTORS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


class Point(msgspec.Struct, frozen=True):
    """One replay: this kind of task takes `factor` times as long."""

    kind: str
    factor: float


def step_at(training: TrainingGraph, point: Point) -> float:
    """Milliseconds a step at this point."""
    changed = scale(training.graph, training.graph.is_kind(point.kind), point.factor)
    return step_estimate(training, replay(changed)).mid


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
    file, _ = find_trace(Path(path))
    training = build_graph(read_kineto(file))
    chosen = list(kinds) if kinds else heaviest_kinds(training.graph, 4)
    unknown = [kind for kind in chosen if kind not in training.graph.kinds]
    if unknown:
        known = ", ".join(sorted(training.graph.kinds))
        raise InputError(f"the trace has no {unknown[0]!r} tasks; there are {known}")
    steps = sorted(set(factors or _FACTORS))
    points = [Point(kind, factor) for kind in chosen for factor in steps]
    # The graph travels with the function, once a worker: a cluster need not see the file.
    play = functools.partial(step_at, training)
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
        how=["Each point replays the whole graph with the tasks of one kind scaled."],
        manifest=Manifest(
            command, {"kinds": chosen, "factors": steps}, None, __version__, [hash_input(file)]
        ),
    )  # fmt: skip


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
            "slope_ms", "One per cent of it is worth", spread[first] / span / 100.0, "ms a step"
        )
        figures = [Figure("most_worth", "Most worth making faster", first), slope, *figures]
    return figures
