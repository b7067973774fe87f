"""The answer as a Result: figures, tables, charts and the timeline of a replayed trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gnomon.graph import Breakdown, CriticalPath, Timeline
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
from gnomon.systems.training.assemble import HOST_KINDS
from gnomon.systems.training.pipeline import TrainingReplay
from gnomon.systems.training.steps import step_estimate
from gnomon.systems.training.whatif import heaviest_kinds
from gnomon.table import Table
from gnomon.version import __version__

__all__ = ["to_result"]

#: Classes that a breakdown tells apart on their own; the rest share one.
_OWN_CLASSES = 7
_MOST_BINS = 2000


def to_result(run: TrainingReplay, command: str = "") -> Result:
    """Everything there is to say about a replayed trace."""
    window, steps = run.window()
    broken = window.breakdown(_classes(window))
    path = run.timeline.critical_path()
    scales = {change.label: change.factor for change in run.changes}
    return Result(
        "training",
        "replay",
        f"Training step on {_device(run)}",
        "Where does the step go, and what if?",
        figures=_figures(run, broken, steps),
        tables=[_where(run), _what_if(run), _critical(path)],
        charts=_charts(window, broken, steps, run),
        timelines=[_view(run, path)],
        how=_HOW,
        notes=_notes(run),
        manifest=Manifest(command, {"scale": scales}, None, __version__, [hash_input(run.source)]),
    )


def _device(run: TrainingReplay) -> str:
    on_gpu = any(lane.startswith("gpu") for lane in run.training.graph.lanes)
    return run.training.gpu or ("a GPU" if on_gpu else "CPU")


def _notes(run: TrainingReplay) -> list[str]:
    notes = [f"read {Path(run.source).name}"]
    if run.passed_over:
        notes[0] += f", one of {run.passed_over + 1} traces in its folder"
    if not run.training.step_names:
        notes.append("no step marks in the trace: the whole of it counts as one step")
    elif len(run.training.step_names) == 2:
        notes.append("two steps are marked, so one interval between their ends is all there is")
    return notes + list(run.training.notes)


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
    error = run.as_recorded.makespan_ns / recorded - 1.0 if recorded else 0.0
    busy = 1.0 - broken.idle_ns / broken.makespan_ns if broken.makespan_ns else 0.0
    changed = ", ".join(change.label for change in run.changes)
    note = f"with {changed}" if changed else "with the profiler running"
    figures = [
        Figure("step_ms", "Step, replayed", step_estimate(run.training, run.timeline), "ms",
               "lower", note),
        Figure("replay_error", "Replay against record", round(100.0 * error, 4) + 0.0, "%",
               note="a check of the graph, not a prediction"),
        Figure("tasks", "Tasks replayed", len(run.timeline)),
    ]  # fmt: skip
    if any(lane.startswith("gpu") for lane in run.training.graph.lanes):
        marked = len(run.training.step_names) > 0
        over = f"over {steps} steady step{'s' if steps > 1 else ''}" if marked else ""
        figures.insert(
            1, Figure("gpu_busy", "GPU busy", round(100.0 * busy, 2) + 0.0, "%", note=over)
        )
    if run.unprofiled_ms is not None:
        measured = Figure(
            "unprofiled_ms", "Step, measured without profiler", run.unprofiled_ms, "ms",
            note="from meta.json beside the trace",
        )  # fmt: skip
        figures.insert(1, measured)
    return figures


def _where(run: TrainingReplay) -> Table:
    """Time by kind of the tasks that belong to the marked steps, wherever they were run."""
    line, graph = run.timeline, run.timeline.graph
    marked = np.unique(run.training.step[run.training.step >= 0])
    inside = run.training.step >= 0 if len(marked) else np.ones(len(line), bool)
    steps = max(len(marked), 1)
    spent = np.zeros(len(graph.kinds), np.int64)
    np.add.at(spent, graph.kind[inside], (line.end_ns - line.start_ns)[inside])
    count = np.bincount(graph.kind[inside], minlength=len(graph.kinds))
    step_ms = step_estimate(run.training, line).mid
    rows = []
    for code, kind in enumerate(graph.kinds):
        if not count[code]:
            continue
        time_ms = spent[code] / steps / 1e6
        rows.append(
            {
                "kind": kind,
                "side": "host" if kind in HOST_KINDS else "gpu",
                "time_ms": round(time_ms, 4),
                "share_pct": round(100.0 * time_ms / step_ms, 2) if step_ms else 0.0,
                "tasks": round(count[code] / steps, 1),
            }
        )
    rows.sort(key=lambda row: (str(row["side"]), -float(str(row["time_ms"]))))
    return Table.from_rows(
        "Where the step goes",
        rows,
        units={"time_ms": "ms", "share_pct": "%"} if rows else {},
        caption="Mean of a step. Lanes run side by side, so shares add up to more than 100 %.",
    )


def _what_if(run: TrainingReplay) -> Table:
    base = step_estimate(run.training, run.as_recorded).mid
    answers = [("as recorded", base), *((row.label, row.step_ms) for row in run.what_ifs)]
    if len(run.changes) > 1:
        answers.append(("all of these", step_estimate(run.training, run.timeline).mid))
    rows = [
        {
            "what_if": label,
            "step_ms": round(step_ms, 4),
            "change_pct": round(100.0 * (step_ms / base - 1.0), 2) + 0.0 if base else 0.0,
            "speed_up": round(base / step_ms, 3) if step_ms else 1.0,
        }
        for label, step_ms in answers
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
        "Critical path of the whole trace",
        rows,
        units={"time_ms": "ms", "share_pct": "%"} if rows else {},
        caption=f"{len(path):,} tasks, tied {links}.",
    )


def _charts(window: Timeline, broken: Breakdown, steps: int, run: TrainingReplay) -> list[Chart]:
    parts = [(name, broken.exposed_ns(name)) for name in broken.classes]
    parts += [("several at once", broken.overlapped_ns), ("GPU idle", broken.idle_ns)]
    shown = [Bars(label, [ns / steps / 1e6]) for label, ns in parts if ns > 0]
    answers = _what_if(run)
    charts: list[Chart] = [
        BarChart("The step in parts", ["one step"], shown, unit="ms"),
        BarChart(
            "What if",
            list(answers["what_if"]),
            [Bars("step", answers["step_ms"].tolist())],
            unit="ms",
        ),
    ]
    # A millisecond a bin, as the literature has it, unless the page would drown in bins.
    bin_ms = max(1, -(-window.makespan_ns // (_MOST_BINS * 1_000_000)))
    on_gpu = window.graph.is_kind(*KERNEL_CLASSES)
    busy = 100.0 * window.busy_fraction(on_gpu, bin_ms * 1_000_000)
    time_ms = [float(b * bin_ms) for b in range(len(busy))]
    charts.append(
        LineChart(
            f"GPU busy, by {bin_ms} ms" if bin_ms > 1 else "GPU busy, by millisecond",
            [Line("busy", time_ms, busy.tolist(), step=True)],
            x_label="time",
            x_unit="ms",
            y_label="busy",
            y_unit="%",
        )
    )
    return charts


def _view(run: TrainingReplay, path: CriticalPath) -> TimelineView:
    critical = np.zeros(len(run.timeline), bool)
    critical[path.tasks] = True
    return timeline_view(run.timeline, "Replayed steps", critical, hide=("gap", "latency"))
