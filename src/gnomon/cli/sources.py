"""Whatever a user points at, as a Result: saved results, traces, graphs, timelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gnomon.cli.typed import typed_command
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.graph import Timeline
    from gnomon.report import Result

_BUNDLED = "bundled:"
_STORED = ("graph", "timeline", "arrow")
_REPLAYED = ("kineto", "chrome-trace", "recording", "folder", "operation-log")
#: Formats that a timeline is made of.
WITH_TIMELINE = (*_STORED, *_REPLAYED)


def _resolve(type_: Any, tokens: Sequence[Any]) -> Path:
    text: str = tokens[0].value
    if not text.strip():
        raise InputError("an empty path names nothing")
    if not text.startswith(_BUNDLED):
        return Path(text)
    from gnomon.datasets import bundled

    return bundled(text.removeprefix(_BUNDLED))


#: What a user points at: a path, or `bundled:NAME` for an input that comes with gnomon.
Source = Annotated[Path, Parameter(converter=_resolve)]


def load_result(path: Path, command: str = "report") -> Result:
    """Loads a saved result, or computes the one that fits the file."""
    from gnomon.ingest.formats import check_input, identify

    check_input(path, command)
    format = identify(path).format
    if format == "result":
        from gnomon import report

        return report.load(path)
    if format in _STORED:
        return timeline_result(load_arrow(path), path)
    _check_replayed(path, format, "result")
    from gnomon.systems.training import replay_trace, to_result

    return to_result(replay_trace(path, []))


def load_timelines(path: Path, command: str = "export") -> dict[str, Timeline]:
    """The timelines of a trace, a graph or a timeline file."""
    from gnomon.ingest.formats import check_input, identify

    check_input(path, command)
    format = identify(path).format
    if format in _STORED:
        return {path.stem: load_arrow(path)}
    _check_replayed(path, format, "timeline")
    from gnomon.systems.training import replay_trace

    run = replay_trace(path, [])
    return {"recorded": run.training.recorded, "replayed": run.timeline}


def _check_replayed(path: Path, format: str, wanted: str) -> None:
    if format not in _REPLAYED:
        raise InputError(
            f"it has no {wanted}", where=str(path),
            hint="give a saved result, a profiler trace, a graph or a timeline",
        )  # fmt: skip


def load_arrow(path: Path) -> Timeline:
    """A timeline file as it is, a graph file replayed."""
    from gnomon.graph import Timeline, WorkGraph
    from gnomon.sim import replay
    from gnomon.table import read_arrow

    if "start_ns" in read_arrow(path).columns:
        return Timeline.load(path)
    return replay(WorkGraph.load(path))


def timeline_result(timeline: Timeline, path: Path) -> Result:
    """A timeline of any origin: its length, and time by kind."""
    import numpy as np

    from gnomon.report import Figure, Manifest, Result
    from gnomon.report.views import timeline_view
    from gnomon.table import Table

    graph = timeline.graph
    spent = timeline.end_ns - timeline.start_ns
    total = np.zeros(len(graph.kinds), np.int64)
    np.add.at(total, graph.kind, spent)
    count = np.bincount(graph.kind, minlength=len(graph.kinds))
    rows = [
        {"kind": kind, "time_ms": total[k] / 1e6, "tasks": int(count[k])}
        for k, kind in enumerate(graph.kinds)
    ]
    return Result(
        "graph",
        "replay" if timeline.method != "recorded" else "show",
        path.name,
        figures=[
            Figure("makespan_ms", "Makespan", timeline.makespan_ns / 1e6, "ms", "lower"),
            Figure("tasks", "Tasks", len(timeline)),
        ],
        tables=[Table.from_rows("Time by kind", rows, units={"time_ms": "ms"})] if rows else [],
        timelines=[timeline_view(timeline, path.stem)],
        manifest=Manifest.of(typed_command(), [path]),
    )
