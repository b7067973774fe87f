"""Batch jobs of Alibaba's cluster trace of 2018: `batch_task.csv`, plain or compressed.

A row is a task of a job: name, number of instances, job, type, status, start and end in seconds,
CPU and memory asked for. The name says what it waits for: `J3_1_2` is the third task, after the
first and the second; `task_...` and `MergeTask` stand alone. What the trace calls a task is a
stage here, and its instances are the stage's tasks.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.ingest.delimited import Delimited, read_lines
from gnomon.ingest.stages.stage_order import parents_first
from gnomon.ingest.stages.trace import BatchTrace
from gnomon.units import SECOND_NS

_COLUMNS = 9
_LEVEL = 1
#: Names are cut off at so many characters, and the last parent with them.
_LONGEST_NAME = 50
_NUMBERED = re.compile(r"([^_\d]*)(\d+)((?:_\d+)*)(?:_Stg\d+)?")
_ALONE = re.compile(r"task_.*|MergeTask")
_MOST_TASKS = 10**7
_LATEST_S = 10**9
_ROW = re.compile(rb"[^,]*\d[^,]*,\d*,[^,]+,[^,]*,[A-Z][a-z]+,\d*,\d*,[^,\n]*,[^,\n]*\r?")


class _Task(msgspec.Struct, gc=False):
    name: str
    tasks: int
    status: str
    start_s: int
    end_s: int


def looks_like_alibaba(head: bytes) -> bool:
    """Whether a file begins as `batch_task.csv` does, with or without a header.

    >>> looks_like_alibaba(b"R2_1,10,j_7,1,Terminated,86400,86430,100,0.2\\n")
    True
    """
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:2]
    return any(_ROW.fullmatch(line) is not None for line in lines)


def read_alibaba(path: str | os.PathLike[str], *, most_jobs: int | None = None) -> BatchTrace:
    """Reads jobs whose stages all ended well and whose parents are all there.

    Others are counted by why they are left out; nothing is guessed. The trace tells how long a
    stage took, not its tasks: each task is given all of it, which is more than it took where a
    stage had to wait for machines. Less than a second counts as half of one. CPU time is taken to
    be the duration.

    Args:
        path: `batch_task.csv`, with or without a header, plain, .gz or .zst.
        most_jobs: Read this many jobs, in the order in which they are named first; the whole
            trace has four million.
    """
    where = os.fspath(path)
    if most_jobs is not None and most_jobs < 1:
        raise InputError(f"{most_jobs} jobs cannot be read", hint="at least one")
    jobs: dict[str, list[_Task]] = {}
    later, unread = set[str](), Counter[str]()
    for job, task in _rows(where, unread):
        if job not in jobs and most_jobs is not None and len(jobs) >= most_jobs:
            later.add(job)
            continue
        jobs.setdefault(job, []).append(task)
    if later:
        unread["jobs beyond the number asked for"] = len(later)
    return _trace(where, jobs, unread)


def _trace(where: str, jobs: dict[str, list[_Task]], left_out: Counter[str]) -> BatchTrace:
    kinds: dict[str, list[Stage]] = {}
    arrival_s: dict[str, int] = {}
    for name, tasks in jobs.items():
        stages = _stages(tasks)
        if isinstance(stages, str):
            left_out[stages] += 1
            continue
        kinds[name] = stages
        arrival_s[name] = min(task.start_s for task in tasks)
    if not kinds:
        why = ", ".join(f"{count} {what}" for what, count in left_out.items())
        raise InputError(f"no job is whole ({why or 'there are no rows'})", where=where)
    order = sorted(kinds, key=lambda name: (arrival_s[name], name))
    begin = arrival_s[order[0]]
    arrival_ns = np.array(
        [(arrival_s[name] - begin) * SECOND_NS for name in order], dtype=np.int64
    )
    built = JobKinds.build({name: kinds[name] for name in order})
    note = "Tasks are as long as their stages took: the trace does not tell them apart."
    return BatchTrace(
        where, BatchJobs.of(built, np.arange(len(order)), arrival_ns), dict(left_out), (note,)
    )


# -- rows ------------------------------------------------------------------------------------


def _rows(where: str, unread: Counter[str]) -> Iterator[tuple[str, _Task]]:
    table = Delimited(read_lines(where, hint="expected batch_task.csv"), where, separator=",")
    for number, cells in enumerate(table):
        if not number and len(cells) == _COLUMNS and cells[0].strip() == "task_name":
            continue
        if len(cells) != _COLUMNS:
            what = f"line {table.line} has {len(cells)} cells, not {_COLUMNS}"
            hint = "was the file cut short, or is it no batch_task.csv?"
            raise InputError(what, where=where, hint=hint)
        if job := cells[2].strip():
            yield job, _task(cells, f"{where}, line {table.line}")
        else:
            unread["rows without a job"] += 1


def _task(cells: list[str], where: str) -> _Task:
    """What waits or runs has blanks: they count as nothing, which leaves its job out."""
    name, instances, _, _, status, start, end, _, _ = (cell.strip() for cell in cells)
    tasks = _whole(instances or "0", "number of instances", where, _MOST_TASKS)
    times = [_whole(text or "0", "time", where, _LATEST_S) for text in (start, end)]
    return _Task(name, tasks, status, *times)


def _whole(text: str, what: str, where: str, most: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= most or value != int(value):
        hint = "expected batch_task.csv of cluster-trace-v2018"
        raise InputError(f"the {what} is {text[:40]!r}", where=where, hint=hint)
    return int(value)


# -- a job -----------------------------------------------------------------------------------


def _stages(tasks: list[_Task]) -> list[Stage] | str:
    if any(task.status != "Terminated" for task in tasks):
        return "jobs that failed or did not end"
    if any(task.tasks < 1 or task.end_s < task.start_s or not task.end_s for task in tasks):
        return "jobs with a stage without instances, or that ends before it starts"
    number: dict[int, int] = {}
    waits_for: list[list[int]] = []
    for position, task in enumerate(tasks):
        if len(task.name) >= _LONGEST_NAME and not _ALONE.fullmatch(task.name):
            return "jobs with a name that was cut off"
        named = _NUMBERED.fullmatch(task.name)
        if named is None:
            if _ALONE.fullmatch(task.name):
                waits_for.append([])
                continue
            return "jobs with a stage whose name says nothing"
        if int(named[2]) in number:
            return "jobs with two stages of one number"
        number[int(named[2])] = position
        waits_for.append([int(parent) for parent in named[3].split("_")[1:]])
    if any(parent not in number for of_one in waits_for for parent in of_one):
        return "jobs whose parents are missing"
    parents = [[number[parent] for parent in of_one] for of_one in waits_for]
    order = parents_first(parents)
    if order is None:
        return "jobs whose stages wait for one another"
    place = {stage: position for position, stage in enumerate(order)}
    return [_stage(tasks[stage], [place[parent] for parent in parents[stage]]) for stage in order]


def _stage(task: _Task, parents: list[int]) -> Stage:
    duration_ns = max((task.end_s - task.start_s) * SECOND_NS, SECOND_NS // 2)
    waves = {_LEVEL: Waves(first=[duration_ns])}
    return Stage(task.tasks, waves, tuple(sorted(set(parents))), name=task.name)
