"""Traces for the Perfetto UI and chrome://tracing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph import LAUNCH, Timeline
from gnomon.table import atomic_file
from gnomon.table.atomic import regular_target, sibling

_BUSY_BINS = 1000


def write_trace(path: str | os.PathLike[str], timelines: Mapping[str, Timeline]) -> None:
    """Writes timelines side by side; the ending says how: .pftrace, .json or .json.gz."""
    name = Path(path).name.lower()
    if name.endswith((".json", ".json.gz")):
        write_chrome_json(path, timelines)
    elif name.endswith((".pftrace", ".perfetto-trace")):
        write_perfetto(path, timelines)
    else:
        raise InputError(
            "the ending does not say which trace to write", where=str(path),
            hint="use .pftrace for Perfetto, .json or .json.gz for chrome://tracing",
        )  # fmt: skip


def write_perfetto(path: str | os.PathLike[str], timelines: Mapping[str, Timeline]) -> None:
    """Writes Perfetto's own format natively: lanes, slices, launch arrows, the critical path.

    Each timeline becomes a process (one a rank when it has ranks), each lane a thread of it.
    """
    target = regular_target(path)
    part = sibling(target)
    try:
        writer = _core.PerfettoWriter(str(part))
        for title, timeline in timelines.items():
            _write_timeline(writer, title, timeline)
        writer.close()
        os.replace(part, target)
    except (RuntimeError, OSError) as error:
        raise InputError(f"cannot be written: {error}", where=str(path)) from None
    finally:
        part.unlink(missing_ok=True)


def _write_timeline(writer: _core.PerfettoWriter, title: str, timeline: Timeline) -> None:
    graph = timeline.graph
    rank_of_lane = _rank_of_lane(timeline)
    process: dict[int, int] = {}
    tracks = np.zeros(len(graph.lanes), np.uint64)
    for lane, name in enumerate(graph.lanes):
        rank = rank_of_lane[lane]
        if rank not in process:
            label = title if graph.rank is None else f"{title}: rank {rank}"
            process[rank] = writer.add_process(label)
        tracks[lane] = writer.add_lane(process[rank], name)
    flow_from, flow_to = _launches(timeline)
    slices = _core.Slices(
        lane=graph.lane, start=_from_zero(timeline, timeline.start_ns),
        end=_from_zero(timeline, timeline.end_ns), name=graph.name, kind=graph.kind,
        critical=_critical(timeline), flow_from=flow_from, flow_to=flow_to,
    )  # fmt: skip
    writer.write_slices(slices, lane_tracks=tracks, names=graph.names, kinds=graph.kinds)
    if len(timeline):
        _write_busy(writer, timeline, process)


def _write_busy(
    writer: _core.PerfettoWriter, timeline: Timeline, process: Mapping[int, int]
) -> None:
    width = max(1, timeline.makespan_ns // _BUSY_BINS)
    rank_of_lane = np.asarray(_rank_of_lane(timeline))
    busy = timeline.utilisation(width)
    time = np.arange(busy.shape[1], dtype=np.int64) * width
    for rank, track in process.items():
        counter = writer.add_counter(track, "busy lanes", "lanes")
        writer.write_counter(counter, time, busy[rank_of_lane == rank].sum(axis=0))


def _from_zero(timeline: Timeline, times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.ascontiguousarray(times - timeline.begin_ns)


def _rank_of_lane(timeline: Timeline) -> list[int]:
    graph = timeline.graph
    ranks = np.zeros(len(graph.lanes), np.int64)
    if graph.rank is not None:
        ranks[graph.lane] = graph.rank
    return [int(r) for r in ranks]


def _launches(timeline: Timeline) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    source, target, kind = timeline.graph.edge_list()
    if LAUNCH not in timeline.graph.edge_kinds:
        return source[:0], target[:0]
    wanted = kind == timeline.graph.edge_kinds.index(LAUNCH)
    return np.ascontiguousarray(source[wanted]), np.ascontiguousarray(target[wanted])


def _critical(timeline: Timeline) -> NDArray[np.uint8] | None:
    if timeline.cause is None or not len(timeline):
        return None
    on_path = np.zeros(len(timeline), np.uint8)
    on_path[timeline.critical_path().tasks] = 1
    return on_path


def write_chrome_json(path: str | os.PathLike[str], timelines: Mapping[str, Timeline]) -> None:
    """Writes the Trace Event Format: the small path, for chrome://tracing and older tools."""
    events: list[dict[str, Any]] = []
    for title, timeline in timelines.items():
        events += _chrome_events(title, timeline, first_pid=len({e["pid"] for e in events}) + 1)
    content = msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns"})
    if str(path).endswith(".gz"):
        from isal import igzip

        # A fixed time stamp in the header: the same timeline gives the same bytes.
        content = igzip.compress(content, mtime=0)
    with atomic_file(path) as file:
        file.write(content)


def _chrome_events(title: str, timeline: Timeline, first_pid: int) -> list[dict[str, Any]]:
    graph = timeline.graph
    ranks = _rank_of_lane(timeline)
    pid_of = {rank: first_pid + i for i, rank in enumerate(sorted(set(ranks)))}
    events = _chrome_metadata(title, graph.lanes, ranks, pid_of, graph.rank is not None)
    critical = _critical(timeline)
    start = (timeline.start_ns - timeline.begin_ns).tolist()
    length = (timeline.end_ns - timeline.start_ns).tolist()
    lane = graph.lane.tolist()
    for i, (name, kind) in enumerate(zip(graph.name.tolist(), graph.kind.tolist())):
        event: dict[str, Any] = {
            "ph": "X", "name": graph.names[name], "cat": graph.kinds[kind],
            "pid": pid_of[ranks[lane[i]]], "tid": lane[i] + 1,
            "ts": start[i] / 1000, "dur": length[i] / 1000,
        }  # fmt: skip
        if critical is not None and critical[i]:
            event["args"] = {"critical path": True}
        events.append(event)
    source, target = (column.tolist() for column in _launches(timeline))
    for number, (u, v) in enumerate(zip(source, target)):
        flow = {"cat": LAUNCH, "name": LAUNCH, "id": first_pid * 2**32 + number}
        for ph, task, at in (("s", u, start[u]), ("f", v, start[v])):
            events.append(
                {**flow, "ph": ph, "bp": "e", "pid": pid_of[ranks[lane[task]]],
                 "tid": lane[task] + 1, "ts": at / 1000}
            )  # fmt: skip
    return events


def _chrome_metadata(
    title: str, lanes: Sequence[str], ranks: Sequence[int], pid_of: Mapping[int, int], ranked: bool
) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0,
         "args": {"name": f"{title}: rank {rank}" if ranked else title}}
        for rank, pid in pid_of.items()
    ]  # fmt: skip
    for number, (lane, rank) in enumerate(zip(lanes, ranks)):
        where = {"pid": pid_of[rank], "tid": number + 1}
        events.append({"ph": "M", "name": "thread_name", **where, "args": {"name": lane}})
        events.append(
            {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": number}}
        )
    return events
