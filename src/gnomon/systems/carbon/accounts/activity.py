"""What ran, from whatever says so: a CSV of jobs, sacct, Prometheus, a timeline of gnomon."""

from __future__ import annotations

import os
import re
from datetime import UTC, tzinfo

import numpy as np

from gnomon.errors import InputError
from gnomon.graph import Timeline
from gnomon.graph.timeline import union_of_spans
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.ingest.jobs.jobs_csv import read_jobs_csv
from gnomon.ingest.jobs.sacct import is_sacct, read_sacct
from gnomon.ingest.metrics.power_series import PowerSeries, is_power_series, read_power_series
from gnomon.ingest.text import read_head

#: A lane of a GPU, as traces of training call it: 'gpu 0 stream 7', 'rank 3/gpu 3 stream 7'.
_BOARD = re.compile(r"(.*/)?gpu \d+")


def read_activity(
    path: str | os.PathLike[str],
    *,
    zone: tzinfo = UTC,
    series: str | None = None,
    unit: str | None = None,
) -> Jobs | list[PowerSeries]:
    """Jobs or power series, by the file's first bytes; `unit` is for series without a name."""
    head = read_head(path)
    if is_sacct(head):
        return read_sacct(path, zone=zone)
    if is_power_series(head):
        return read_power_series(path, metric=series, unit=unit)
    return read_jobs_csv(path, zone=zone)


def timeline_jobs(timeline: Timeline, start_ns: int, where: str) -> Jobs:
    """What ran in a timeline of gnomon, a job a device: held all along, as busy as it was.

    GPUs are accelerators, recognised by the names of their lanes; where there are none, every
    rank (or the one process) is a job on as many threads as were ever busy at once.
    """
    if timeline.makespan_ns <= 0:
        raise InputError("nothing in it took any time", where=where)
    graph = timeline.graph
    boards = [found[0] if (found := _BOARD.match(lane)) else "" for lane in graph.lanes]
    has_boards = any(boards)
    devices = boards if has_boards else [lane.partition("/")[0] for lane in graph.lanes]
    if not has_boards and not any("/" in lane for lane in graph.lanes):
        devices = ["process"] * len(devices)
    names = [name for name in dict.fromkeys(devices) if name]
    held, busy = zip(*(_use(timeline, [d == name for d in devices]) for name in names))
    rows = len(names)
    threads = np.array([0.0 if has_boards else float(most) for most in held])
    unknown = np.full(rows, np.nan)
    # A board is busy or not; threads are so many of those held, on average.
    share = np.array([
        min(area / (1.0 if has_boards else most), 1.0) for most, area in zip(held, busy)
    ])  # fmt: skip
    return Jobs(
        where=where, line=np.arange(1, rows + 1), id=tuple(names),
        start_ns=np.full(rows, start_ns), end_ns=np.full(rows, start_ns + timeline.makespan_ns),
        cores=threads, gpus=np.full(rows, float(has_boards)), utilisation=share,
        energy_kwh=unknown, work=unknown, price_usd_kwh=unknown,
        deadline_ns=np.full(rows, -1), machine=("",) * rows, gpu=("",) * rows,
    )  # fmt: skip


def _use(timeline: Timeline, of_device: list[bool]) -> tuple[int, float]:
    """The most lanes of a device that were busy at once, and how many on average (1: a board)."""
    mine = np.isin(timeline.graph.lane, np.flatnonzero(of_device))
    start, end = timeline.start_ns[mine], timeline.end_ns[mine]
    lanes = timeline.graph.lane[mine]
    spans = [union_of_spans(start[lanes == lane], end[lanes == lane]) for lane in np.unique(lanes)]
    begins = np.concatenate([own[0] for own in spans] or [np.zeros(0, np.int64)])
    ends = np.concatenate([own[1] for own in spans] or [np.zeros(0, np.int64)])
    moments = np.concatenate([begins, ends])
    steps = np.concatenate([np.ones(begins.size), -np.ones(ends.size)])
    # Ends come before begins of the same moment: what follows at once is not at once.
    order = np.lexsort((steps, moments))
    most = int(np.cumsum(steps[order]).max(initial=1.0))
    whole = union_of_spans(begins, ends)
    is_board = any(_BOARD.match(lane) for lane, own in zip(timeline.graph.lanes, of_device) if own)
    area = (whole[1] - whole[0]).sum() if is_board else (ends - begins).sum()
    return max(most, 1), float(area) / timeline.makespan_ns
