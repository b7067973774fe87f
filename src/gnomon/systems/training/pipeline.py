"""The system as a composition of the layers: read, build, replay, ask, report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import Breakdown, CriticalPath, Timeline
from gnomon.ingest.kineto import read_kineto
from gnomon.model.kernel_class import KERNEL_CLASSES
from gnomon.report import (
    BarChart,
    Bars,
    Chart,
    Figure,
    Line,
    LineChart,
    Manifest,
    Result,
    TimelineView,
    hash_input,
)
from gnomon.report.views import timeline_view
from gnomon.sim import replay
from gnomon.systems.training.graph import TrainingGraph, build_graph
from gnomon.systems.training.steps import steady_window, step_estimate
from gnomon.systems.training.whatif import WhatIf, WhatIfRow, heaviest_kinds, play, usual_questions
from gnomon.table import Table
from gnomon.version import __version__

__all__ = ["TrainingReplay", "replay_trace", "to_result"]

#: Classes that a breakdown tells apart on their own; the rest share one.
_OWN_CLASSES = 7
_BIN_NS = 1_000_000


class TrainingReplay(msgspec.Struct, frozen=True, eq=False):
    """A trace, replayed: the graph, its timeline, and the answers to what-ifs."""

    source: str
    training: TrainingGraph
    timeline: Timeline
    what_ifs: tuple[WhatIfRow, ...]
    unprofiled_ms: float | None

    def window(self) -> tuple[Timeline, int]:
        """The steady steps of the replay, and how many they are."""
        begin, end, steps = steady_window(self.training, self.timeline)
        return self.timeline.cut(begin, end), steps


def replay_trace(
    path: str | os.PathLike[str], questions: Sequence[WhatIf] | None = None
) -> TrainingReplay:
    """Reads a profiler trace, rebuilds its graph and plays it.

    Args:
        path: A trace file, or a folder with `kineto.json.gz` and perhaps `meta.json`.
        questions: What-ifs to answer; the usual ones unless given.
    """
    file = trace_file(Path(path))
    training = build_graph(read_kineto(file))
    timeline = replay(training.graph)
    asked = usual_questions(training) if questions is None else list(questions)
    rows = play(training, asked, timeline)
    return TrainingReplay(str(file), training, timeline, tuple(rows), _unprofiled_ms(file))


def trace_file(path: Path) -> Path:
    """The trace itself, or the one inside a folder."""
    if not path.is_dir():
        return path
    for pattern in ("kineto.json*", "*.pt.trace.json*", "*.json.gz", "*.json"):
        found = sorted(p for p in path.glob(pattern) if p.name != "meta.json")
        if found:
            return found[0]
    raise InputError("no profiler trace in this folder", where=str(path))


class _Meta(msgspec.Struct):
    step_ms_median: float | None = None


def _unprofiled_ms(file: Path) -> float | None:
    meta = file.with_name("meta.json")
    if not meta.is_file():
        return None
    try:
        return msgspec.json.decode(meta.read_bytes(), type=_Meta).step_ms_median
    except msgspec.DecodeError as error:
        raise InputError(f"is not what record() writes: {error}", where=str(meta)) from None


# -- the answer as a Result ----------------------------------------------------------------------


def to_result(run: TrainingReplay, command: str = "") -> Result:
    """Figures, tables, charts and the timeline of a replayed trace."""
    window, steps = run.window()
    broken = window.breakdown(_classes(window))
    path = run.timeline.critical_path()
    return Result(
        "training",
        "replay",
        f"Training step on {run.training.gpu or 'CPU'}",
        "Where does the step go, and what if?",
        figures=_figures(run, broken, steps),
        tables=[_where(window, steps), _what_if(run), _critical(path)],
        charts=_charts(window, broken, steps, run),
        timelines=[_view(run, path)],
        how=_HOW,
        notes=list(run.training.notes),
        manifest=Manifest(
            command, {"bin_ns": _BIN_NS}, None, __version__, [hash_input(run.source)]
        ),
    )


def _classes(window: Timeline) -> dict[str, Sequence[str]]:
    """Communication always on its own, then the heaviest kernel classes, then all others."""
    found = heaviest_kinds(window.graph)
    first = [kind for kind in found if kind == "communication"]
    telling = [kind for kind in found if kind not in (*first, "other")]
    own = first + telling[: _OWN_CLASSES - len(first)]
    classes: dict[str, Sequence[str]] = {kind: (kind,) for kind in own}
    rest = [kind for kind in found if kind not in own]
    return classes | ({"other kernels": rest} if rest else {})


_HOW = [
    "The trace is rebuilt as a **graph**: host threads and GPU streams are lanes, every recorded "
    "stretch of time is a task, launches, synchronise calls and hand-overs between threads are "
    "edges or run-time waits (`gnomon.systems.training.graph`).",
    "The graph is **replayed** by the native engine (`gnomon.sim.replay`). Replaying it unchanged "
    "gives the recorded time back; that is a check of the graph, not a prediction.",
    "A step is measured **from the end of one step to the end of the next**, so that a GPU that "
    "lags behind its host is counted right; the range is that of the recorded steps.",
    "A **what-if** scales the tasks it names and replays: other lanes, launches and waits then "
    "fall where they fall. Kernels do not slow one another in these answers.",
]


def _figures(run: TrainingReplay, broken: Breakdown, steps: int) -> list[Figure]:
    recorded = run.training.recorded.makespan_ns
    error = run.timeline.makespan_ns / recorded - 1.0 if recorded else 0.0
    busy = 1.0 - broken.idle_ns / broken.makespan_ns if broken.makespan_ns else 0.0
    figures = [
        Figure(
            "step_ms",
            "Step, replayed",
            step_estimate(run.training, run.timeline),
            "ms",
            "lower",
            "with the profiler running",
        ),
        Figure("gpu_busy", "GPU busy", 100.0 * busy, "%", "higher", f"over {steps} steady steps"),
        Figure(
            "replay_error",
            "Replay against record",
            100.0 * error,
            "%",
            note="a check of the graph, not a prediction",
        ),
        Figure("tasks", "Tasks replayed", len(run.timeline)),
    ]
    if run.unprofiled_ms is not None:
        figures.insert(
            1,
            Figure(
                "unprofiled_ms",
                "Step, measured without profiler",
                run.unprofiled_ms,
                "ms",
                note="from meta.json beside the trace",
            ),
        )
    return figures


def _where(window: Timeline, steps: int) -> Table:
    graph = window.graph
    spent = (window.end_ns - window.start_ns).astype(np.float64)
    time_ms = np.bincount(graph.kind, spent, len(graph.kinds)) / steps / 1e6
    count = np.bincount(graph.kind, minlength=len(graph.kinds)) / steps
    whole_ms = window.makespan_ns / steps / 1e6
    rows = [
        {
            "kind": kind,
            "side": "gpu" if kind in (*KERNEL_CLASSES, "latency") else "host",
            "time_ms": round(float(time_ms[k]), 4),
            "share_pct": round(100.0 * float(time_ms[k]) / whole_ms, 2) if whole_ms else 0.0,
            "tasks": round(float(count[k]), 1),
        }
        for k, kind in enumerate(graph.kinds)
        if count[k] > 0
    ]
    rows.sort(key=lambda row: (str(row["side"]), -float(str(row["time_ms"]))))
    return Table.from_rows(
        "Where the step goes",
        rows,
        units={"time_ms": "ms", "share_pct": "%"},
        caption="By what ran. Lanes run side by side, so shares add up to more than the step.",
    )


def _what_if(run: TrainingReplay) -> Table:
    base = step_estimate(run.training, run.timeline).mid
    rows = [
        {"what_if": "as recorded", "step_ms": round(base, 4), "change_pct": 0.0, "speed_up": 1.0}
    ]
    rows += [
        {
            "what_if": row.label,
            "step_ms": round(row.step_ms, 4),
            "change_pct": round(100.0 * row.change, 2),
            "speed_up": round(base / row.step_ms, 3) if row.step_ms else 0.0,
        }
        for row in run.what_ifs
    ]
    return Table.from_rows(
        "What if", rows, units={"step_ms": "ms", "change_pct": "%", "speed_up": "x"}
    )


def _critical(path: CriticalPath) -> Table:
    whole = max(path.length_ns, 1)
    rows = [
        {"kind": kind, "time_ms": round(ns / 1e6, 4), "share_pct": round(100.0 * ns / whole, 2)}
        for kind, ns in sorted(path.by_kind_ns.items(), key=lambda item: -item[1])
    ]
    links = ", ".join(f"{count:,} by {link}" for link, count in sorted(path.by_link.items()))
    return Table.from_rows(
        "Critical path",
        rows,
        units={"time_ms": "ms", "share_pct": "%"},
        caption=f"{len(path):,} tasks over the whole trace; tied {links}.",
    )


def _charts(window: Timeline, broken: Breakdown, steps: int, run: TrainingReplay) -> list[Chart]:
    parts = [(name, broken.exposed_ns(name)) for name in broken.classes]
    parts += [("several at once", broken.overlapped_ns), ("GPU idle", broken.idle_ns)]
    on_gpu = window.graph.is_kind(*KERNEL_CLASSES)
    busy = 100.0 * window.busy_fraction(on_gpu, _BIN_NS)
    base = step_estimate(run.training, run.timeline).mid
    return [
        BarChart(
            "The step in parts",
            ["one step"],
            [Bars(label, [ns / steps / 1e6]) for label, ns in parts if ns > 0],
            unit="ms",
            stacked=True,
            horizontal=True,
        ),
        BarChart(
            "What if",
            ["as recorded", *(row.label for row in run.what_ifs)],
            [Bars("step", [base, *(row.step_ms for row in run.what_ifs)])],
            unit="ms",
            horizontal=True,
        ),
        LineChart(
            "GPU busy, by millisecond",
            [Line("busy", [float(b) for b in range(len(busy))], busy.tolist(), step=True)],
            x_label="time",
            x_unit="ms",
            y_label="busy",
            y_unit="%",
        ),
    ]


def _view(run: TrainingReplay, path: CriticalPath) -> TimelineView:
    critical = np.zeros(len(run.timeline), bool)
    critical[path.tasks] = True
    return timeline_view(run.timeline, "Replayed steps", critical, hide=("gap", "latency"))
