"""The answer as a Result: figures, tables, charts and the timeline of a replayed job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.graph import Breakdown, CriticalPath, Timeline, WorkGraph
from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES
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
from gnomon.sim.trace.graph import HOST_KINDS
from gnomon.sim.trace.steps import step_estimate
from gnomon.systems.training.operations import FENCE, RENDEZVOUS
from gnomon.systems.training.pipeline import TrainingReplay, as_shown
from gnomon.systems.training.sides import compute_and_communication
from gnomon.systems.training.whatif import heaviest_kinds, on_gpu
from gnomon.table import Table
from gnomon.version import __version__

#: Classes that a breakdown tells apart on their own; the rest share one.
_OWN_CLASSES = 7
_MOST_BINS = 2000


def to_result(run: TrainingReplay, command: str = "", *, settings: Path | None = None) -> Result:
    """Everything there is to say about a replayed job.

    Args:
        run: The job.
        command: What asked for it.
        settings: A file of the profiler's cost that was read besides the traces.
    """
    window, steps = run.window()
    sides = compute_and_communication(window)
    parts, answers = _by_rank(run, sides, steps), _what_if(run)
    path = run.timeline.critical_path()
    return Result(
        "training",
        "replay",
        f"Training step on {_device(run)}",
        "Where does the step go, and what if?",
        figures=_figures(run, window, sides, steps),
        tables=[_steps(run), parts, _where(run), answers, _critical(path), _dependencies(run)],
        charts=_charts(window, sides, steps, run, answers),
        timelines=[_view(run, path)],
        how=_HOW,
        notes=_notes(run),
        manifest=Manifest(
            command,
            {"changes": [change.label for change in run.changes]},
            None,
            __version__,
            [hash_input(file) for file in (*run.sources, settings) if file],
        ),
    )


def to_script(run: TrainingReplay) -> dict[str, Any]:
    """The figures that scripts ask for, as plain values."""
    window, steps = run.window()
    parts = _parts_ms(run, compute_and_communication(window), steps)
    unprofiled = run.unprofiled.estimate if run.unprofiled else None
    whole = [row for row in run.steps if row.rank is None]
    return {
        "ranks": _rank_count(run.training.graph),
        "tasks": len(run.timeline),
        "load_s": round(run.load_s, 6),
        "replay_s": round(run.replay_s, 6),
        "steps": [_step_row(row) for row in whole],
        "rank_steps": [_step_row(row) for row in run.steps if row.rank is not None],
        "unprofiled_ms": unprofiled.mid if unprofiled else None,
        "unprofiled_low_ms": unprofiled.low if unprofiled else None,
        "unprofiled_high_ms": unprofiled.high if unprofiled else None,
        "unprofiled_is_measured": bool(run.unprofiled and run.unprofiled.measured_ms),
        "unprofiled_model_ms": run.unprofiled.modelled.mid if run.unprofiled else None,
        "breakdown_ms": {key: round(float(np.mean(ms)), 6) for key, ms in parts.items()},
        "edges": _edge_counts(run),
        "what_if": _what_if(run).to_json_rows(),
    }


def _step_row(row: Any) -> dict[str, Any]:
    known = {"step": row.step} | ({} if row.rank is None else {"rank": row.rank})
    return known | {
        "recorded_ms": round(row.recorded_ms, 6),
        "replayed_ms": round(row.replayed_ms, 6),
        "error_pct": round(row.error_pct, 4) + 0.0,
    }


def _rank_count(graph: WorkGraph) -> int:
    return len(np.unique(graph.rank)) if graph.rank is not None else 1


def _device(run: TrainingReplay) -> str:
    graph = run.training.graph
    device = run.training.gpu or ("a GPU" if on_gpu(graph) else "CPU")
    ranks = _rank_count(graph)
    if not graph.is_kind("host").any() and not on_gpu(graph):
        return f"{ranks} ranks"  # an operation log does not say on what
    return f"{ranks} ranks, {device}" if ranks > 1 else device


def _notes(run: TrainingReplay) -> list[str]:
    names = sorted(Path(source).name for source in run.sources)
    notes = [f"read {names[0]}"]
    if len(names) > 1:
        notes[0] = f"read {len(names)} traces, {names[0]} to {names[-1]}"
    if run.passed_over:
        notes[0] += f", {len(names)} of {run.passed_over + len(names)} traces in its folder"
    if run.training.step_names and not run.steps:
        notes.append("nothing ran in the marked steps: the whole of the trace counts")
    if not run.training.step_names:
        notes.append("no step marks in the trace: the whole of it counts as one step")
    elif len(run.training.step_names) == 2:
        notes.append("two steps are marked, so one interval between their ends is all there is")
    return notes + list(run.training.notes)


# -- parts of the step -----------------------------------------------------------------------


def _parts_ms(run: TrainingReplay, sides: Breakdown, steps: int) -> dict[str, list[float]]:
    """Milliseconds per step of each rank, by what it was spent on."""
    none = np.zeros(len(sides.idle_by_rank()))

    def exposed(name: str) -> Any:
        return sides.exposed_by_rank(name) if name in sides.classes else none

    parts = {
        "exposed_compute": exposed("compute") / steps,
        "exposed_communication": exposed("communication") / steps,
        "overlapped": sides.overlapped_by_rank() / steps,
        "idle": sides.idle_by_rank() / steps,
        "waiting_for_ranks": run.waiting_ns() / steps,
    }
    return {name: (np.asarray(ns) / 1e6).tolist() for name, ns in parts.items()}


_HOW = [
    "The trace is rebuilt as a **graph**: host threads and GPU streams are lanes, every recorded "
    "stretch of time is a task, launches, synchronise calls and hand-overs between threads are "
    "edges or run-time waits (`gnomon.sim.trace.graph`).",
    "The graph is **replayed** by the native engine (`gnomon.sim.replay`). Replaying it unchanged "
    "gives the recorded time back; that is a check of the graph, not a prediction.",
    "Communication of several ranks is a **rendezvous**: they start when the last has come, and "
    "only the transfer after that is charged, so no rank's lateness hides in another's duration.",
    "**Without the profiler**: what the profiler costs an event of each kind is taken out of the "
    "host's tasks and the graph replayed; where unprofiled steps were "
    "measured, that measurement stands, and what-ifs are scaled to it.",
    "A step is measured **from the end of one step to the end of the next**, so that a GPU that "
    "lags behind its host is counted right; the range is that of the recorded steps.",
    "A **what-if** scales the tasks it names and replays: other lanes, launches and waits then "
    "fall where they fall. Kernels do not slow one another in these answers.",
]


def _figures(run: TrainingReplay, window: Timeline, sides: Breakdown, steps: int) -> list[Figure]:
    worst = max((row.error_pct for row in run.steps), key=abs, default=_whole_error_pct(run))
    changed = ", ".join(change.label for change in run.changes)
    note = "with the profiler running" if run.unprofiled else ""
    if changed:
        note = f"{changed}; {note}" if note else changed
    step = step_estimate(run.training, run.timeline)
    figures = [Figure("step_ms", "Step, replayed", step, "ms", "lower", note)]
    if run.changed_step is not None and run.unprofiled is not None:
        note = f"{changed}; without the profiler"
        figures.insert(
            0, Figure("what_if_ms", "Step, what if", run.changed_step, "ms", "lower", note)
        )
    if run.unprofiled is not None:
        measured = run.unprofiled.measured_ms is not None
        note = "measured; from meta.json beside the trace" if measured else "estimated"
        name = f"Step, {'measured' if measured else 'estimated'} without profiler"
        figures.append(Figure("unprofiled_ms", name, run.unprofiled.estimate, "ms", "lower", note))
    if on_gpu(window.graph) and window.makespan_ns:
        marked = len(run.training.step_names) > 0
        over = f"over {steps} steady step{'s' if steps > 1 else ''}" if marked else ""
        busy = 100.0 * (1.0 - sides.idle_ns / sides.makespan_ns)
        figures.append(Figure("gpu_busy", "GPU busy", round(busy, 2) + 0.0, "%", note=over))
    if len(sides.ranks) > 1:
        waiting = float(np.mean(_parts_ms(run, sides, steps)["waiting_for_ranks"]))
        figures.append(
            Figure("waiting_ms", "Waiting for other ranks", round(waiting, 4), "ms", "lower",
                   "per step, mean of the ranks")
        )  # fmt: skip
    figures += [
        Figure("replay_error", "Replay error", round(worst, 4) + 0.0, "%",
               note="worst step; a check of the graph, not a prediction"),
        Figure("tasks", "Tasks replayed", len(run.timeline)),
    ]  # fmt: skip
    return figures


def _whole_error_pct(run: TrainingReplay) -> float:
    recorded = run.training.recorded.makespan_ns
    return 100.0 * (run.as_recorded.makespan_ns / recorded - 1.0) if recorded else 0.0


def _steps(run: TrainingReplay) -> Table:
    rows = [_step_row(row) for row in run.steps if row.rank is None]
    return Table.from_rows(
        "Steps",
        rows,
        units={"recorded_ms": "ms", "replayed_ms": "ms", "error_pct": "%"} if rows else {},
        caption="From the end of the step before; the first from its own start.",
    )


def _rank_name(run: TrainingReplay, rank: int) -> str:
    """A rank's number; with its proxy, and of a lone trace the one it names itself."""
    parts = run.job.parts
    if len(parts) == 1:
        return str(parts[0].rank)
    of = next((part.proxy_of for part in parts if part.rank == rank), None)
    return str(rank) if of is None else f"{rank} (proxy {of})"


def _by_rank(run: TrainingReplay, sides: Breakdown, steps: int) -> Table:
    parts = _parts_ms(run, sides, steps)
    rows: list[dict[str, Any]] = [
        {"rank": _rank_name(run, rank)}
        | {f"{key}_ms": round(ms[i], 4) for key, ms in parts.items()}
        for i, rank in enumerate(sides.ranks)
    ]
    if len(rows) > 1:
        worst: dict[int | None, float] = {}
        for one in run.steps:
            worst[one.rank] = max(worst.get(one.rank, 0.0), one.error_pct, key=abs)
        for rank, row in zip(sides.ranks, rows):
            row["replay_error_pct"] = round(worst.get(rank, 0.0), 4) + 0.0
        mean = {f"{key}_ms": round(float(np.mean(ms)), 4) for key, ms in parts.items()}
        error = max((row["replay_error_pct"] for row in rows), key=abs)
        rows.insert(0, {"rank": "mean", **mean, "replay_error_pct": error})
    return Table.from_rows(
        "Step breakdown by rank", rows,
        units={key: "ms" if key.endswith("ms") else "%" for key in rows[0] if key != "rank"},
        caption="Exposed: nothing of the other kind ran beside it. Waiting for ranks is part of "
        "communication.",
    )  # fmt: skip


def _where(run: TrainingReplay) -> Table:
    """Time by kind of the tasks that belong to the marked steps, wherever they were run."""
    line, graph = run.timeline, run.timeline.graph
    marked = np.unique(run.training.step[run.training.step >= 0])
    inside = run.training.step >= 0 if len(marked) else np.ones(len(line), bool)
    steps = max(len(marked), 1) * _rank_count(graph)
    other_side = "gpu" if on_gpu(graph) else "rank"
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
                "side": "host" if kind in HOST_KINDS else other_side,
                "time_ms": round(time_ms, 4),
                "share_pct": round(100.0 * time_ms / step_ms, 2) if step_ms else 0.0,
                "tasks": round(count[code] / steps, 1),
            }
        )
    rows.sort(key=lambda row: (str(row["side"]), -float(str(row["time_ms"]))))
    return Table.from_rows(
        "Time by kind of task",
        rows,
        units={"time_ms": "ms", "share_pct": "%"} if rows else {},
        caption="Mean of a step and rank. Lanes run side by side: shares pass 100 %.",
    )


def _what_if(run: TrainingReplay) -> Table:
    _, base, factor = run.base
    base_ms = step_estimate(run.training, base).mid
    base_ms *= factor
    answers = [("baseline", base_ms, base)]
    answers += [(row.label, row.step_ms, row.timeline) for row in run.what_ifs]
    if len(run.changes) > 1 and run.changed is not None and run.changed_step is not None:
        answers.append(("all of these", run.changed_step.mid, run.changed))
    rows = [
        {
            "what_if": label,
            "step_ms": round(step_ms, 4),
            "change_pct": round(100.0 * (step_ms / base_ms - 1.0), 2) + 0.0 if base_ms else 0.0,
            "speed_up": round(base_ms / step_ms, 3) if step_ms else 1.0,
            "then_bound_by": _bound_by(line.critical_path()),
        }
        for label, step_ms, line in answers
    ]
    return Table.from_rows(
        "What if",
        rows,
        units={"step_ms": "ms", "change_pct": "%", "speed_up": "x"},
        caption="Without the profiler's own time." if run.unprofiled else "",
    )


def _bound_by(path: CriticalPath, most: int = 3) -> str:
    """The kinds that make up most of a critical path."""
    whole = max(path.length_ns, 1)
    heavy = sorted(path.by_kind_ns.items(), key=lambda item: -item[1])[:most]
    return ", ".join(f"{kind} {100.0 * ns / whole:.0f} %" for kind, ns in heavy if ns > 0)


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
        caption=f"{len(path):,} tasks, linked {links}.",
    )


def _dependencies(run: TrainingReplay) -> Table:
    rows = [{"dependency": name, "count": count} for name, count in _edge_counts(run).items()]
    return Table.from_rows(
        "Dependencies between lanes", rows,
        caption="stream: recorded by the profiler; inferred: from times, with a confidence.",
    )  # fmt: skip


def _edge_counts(run: TrainingReplay) -> dict[str, int]:
    graph = run.training.graph
    _, _, kind = graph.edge_list()
    count = np.bincount(kind, minlength=len(graph.edge_kinds))
    counts = {name: int(count[code]) for code, name in enumerate(graph.edge_kinds) if count[code]}
    inferred = len(run.training.inferred)
    if inferred:
        counts["stream"] = counts.get("stream", 0) - inferred
        counts["inferred"] = inferred
    if graph.wait_task is not None:
        counts["synchronise"] = len(graph.wait_task)
    if graph.group is not None:
        counts["communication"] = int(graph.group.max(initial=-1)) + 1
    return {name: n for name, n in counts.items() if n}


def _charts(
    window: Timeline, sides: Breakdown, steps: int, run: TrainingReplay, answers: Table
) -> list[Chart]:
    charts: list[Chart] = [
        _step_in_parts(window, sides, steps, run),
        BarChart(
            "What if",
            list(answers["what_if"]),
            [Bars("step", answers["step_ms"].tolist())],
            unit="ms",
        ),
    ]
    if on_gpu(window.graph):
        charts.append(_busy(window))
    return charts


def _step_in_parts(
    window: Timeline, sides: Breakdown, steps: int, run: TrainingReplay
) -> BarChart:
    """Of one rank by class of kernel; of several by compute and communication, rank by rank."""
    if len(sides.ranks) > 1:
        parts = _parts_ms(run, sides, steps)
        shown = [
            Bars(name.replace("_", " "), ms) for name, ms in parts.items()
            if name != "waiting_for_ranks" and any(ms)
        ]  # fmt: skip
        return BarChart("Step breakdown", [f"rank {r}" for r in sides.ranks], shown, unit="ms")
    broken = window.breakdown(_classes(window))
    named = [(name, broken.exposed_ns(name)) for name in broken.classes]
    named += [("overlapped", broken.overlapped_ns), ("GPU idle", broken.idle_ns)]
    bars = [Bars(label, [ns / steps / 1e6]) for label, ns in named if ns > 0]
    return BarChart("Step breakdown", ["one step"], bars, unit="ms")


def _classes(window: Timeline) -> dict[str, Sequence[str]]:
    """Communication always on its own, then the heaviest kernel classes, then all others."""
    found = heaviest_kinds(window.graph)
    first = [kind for kind in found if kind == "communication"]
    telling = [kind for kind in found if kind not in (*first, "other")]
    own = first + telling[: _OWN_CLASSES - len(first)]
    classes: dict[str, Sequence[str]] = {kind: (kind,) for kind in own}
    rest = [kind for kind in found if kind not in own]
    return classes | ({"other kernels": rest} if rest else {})


def _busy(window: Timeline) -> LineChart:
    # A millisecond a bin, as the literature has it, unless the page would drown in bins.
    bin_ms = max(1, -(-window.makespan_ns // (_MOST_BINS * 1_000_000)))
    on_gpu = window.graph.is_kind(*KERNEL_CLASSES)
    busy = 100.0 * window.busy_fraction(on_gpu, bin_ms * 1_000_000)
    time_ms = [float(b * bin_ms) for b in range(len(busy))]
    return LineChart(
        f"GPU busy, by {bin_ms} ms" if bin_ms > 1 else "GPU busy, by millisecond",
        [Line("busy", time_ms, busy.tolist(), step=True)],
        x_label="time",
        x_unit="ms",
        y_label="busy",
        y_unit="%",
    )


def _view(run: TrainingReplay, path: CriticalPath) -> TimelineView:
    critical = np.zeros(len(run.timeline), bool)
    critical[path.tasks] = True
    shown = as_shown(run.timeline)
    return timeline_view(
        shown, "Replayed steps", critical, hide=("gap", "latency", FENCE, RENDEZVOUS)
    )
