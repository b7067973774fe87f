"""Stage graphs of TPC-H queries with the task durations that the authors of Decima measured.

The file holds 22 queries at 7 sizes of the data. Each stage was run at several numbers of
executors; its durations are lists in milliseconds: of tasks that were the first of their executor
in the query (fresh), the first of their executor in the stage (which the fresh ones are as well),
and all later ones. `read_tpch` takes them as the simulator of those authors does, but settles at
reading what that one settles when it draws a duration.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph.jobs import JobKinds, Stage, Waves
from gnomon.ingest.stages.stage_order import parents_first
from gnomon.ingest.text import BAD_JSON, read_whole
from gnomon.units import MILLISECOND_NS

#: What a fresh executor's first task takes longer where none was measured.
_WARM_UP_MS = 1000
_MOST_BYTES = 1 << 30
_LONGEST_MS = 1 << 40
_QUERY = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{\s*"(edges|stages)"\s*:')
_Durations = Mapping[int, Sequence[int]]


_Count = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Stage(msgspec.Struct):
    num_tasks: _Count
    fresh_durations: dict[_Count, list[int]]
    first_wave: dict[_Count, list[int]]
    rest_wave: dict[_Count, list[int]]


class _Job(msgspec.Struct):
    edges: list[tuple[int, int]]
    stages: list[_Stage]


def looks_like_tpch(head: bytes) -> bool:
    """Whether a file begins with a query of stages.

    >>> looks_like_tpch(b'{"2g-q1": {"edges": [[0, 1]], "stages": [{"num_tasks": 3')
    True
    """
    return _QUERY.match(head) is not None


def read_tpch(path: str | os.PathLike[str]) -> JobKinds:
    """Reads the queries, each a kind called `SIZEg-qNUMBER`, from .json, .json.gz or .json.zst.

    A fresh task is not counted as a first one again. Where no first task is left at a number of
    executors, those at the next smaller number stand for it; where no fresh one was measured, the
    first ones and a second of warm-up do. Where a query never got as many executors as were asked
    for, what it did with the most it had is taken.

    The data say nothing about CPU time. `cpu_ns` of a stage's task is the median of its later
    tasks at the least number of executors, when little stood in their way, or of its first tasks
    where it had no later ones.
    """
    where = os.fspath(path)
    jobs = _decode(read_whole(where, _MOST_BYTES, "is it the right file?"), where)
    levels = _levels(jobs)
    return JobKinds.build(
        {name: _stages(job, levels, f"{where}, {name}") for name, job in jobs.items()}
    )


def _decode(content: bytes, where: str) -> dict[str, _Job]:
    try:
        jobs = msgspec.json.decode(content, type=dict[str, _Job])
    except BAD_JSON as error:
        hint = "expected queries, each with edges and stages"
        raise InputError(f"holds no TPC-H jobs ({error})", where=where, hint=hint) from None
    if not jobs:
        raise InputError("holds no jobs", where=where)
    return jobs


def _levels(jobs: Mapping[str, _Job]) -> list[int]:
    """The numbers of executors asked for.

    A small query that did not get them was measured at others of its own: no levels for all.
    """
    seen = Counter(
        level for job in jobs.values() for stage in job.stages for level in stage.first_wave
    )
    most = max(seen.values(), default=0)
    return sorted(level for level, count in seen.items() if 2 * count >= most)


def _stages(job: _Job, levels: Sequence[int], where: str) -> list[Stage]:
    parents: list[set[int]] = [set() for _ in job.stages]
    for parent, child in job.edges:
        if not (0 <= parent < len(parents) and 0 <= child < len(parents)):
            what = f"an edge goes from stage {parent} to {child}; there are {len(parents)}"
            raise InputError(what, where=where)
        parents[child].add(parent)
    order = parents_first(parents)
    if order is None:
        raise InputError("the stages wait for one another in a circle", where=where)
    place = {stage: position for position, stage in enumerate(order)}
    return [
        _stage(
            job.stages[stage],
            levels,
            tuple(sorted(place[parent] for parent in parents[stage])),
            f"{where}, stage {stage}",
            str(stage),
        )
        for stage in order
    ]


def _stage(
    stage: _Stage, levels: Sequence[int], parents: tuple[int, ...], where: str, name: str
) -> Stage:
    _check(stage, where)
    fresh, rest = stage.fresh_durations, stage.rest_wave
    first = _first_alone(stage.first_wave, fresh)
    measured = [fresh[level] + first[level] + rest[level] for level in first]
    return Stage(
        stage.num_tasks,
        {level: _waves(fresh, first, rest, level if level in first else max(first))
         for level in levels},
        parents,
        cpu_ns=_undisturbed_ns(rest, first, fresh),
        name=name,
        typical_ns=float(np.concatenate(measured).mean()) * MILLISECOND_NS,
    )  # fmt: skip


def _check(stage: _Stage, where: str) -> None:
    waves = (stage.first_wave, stage.fresh_durations, stage.rest_wave)
    if not stage.first_wave or any(wave.keys() != stage.first_wave.keys() for wave in waves):
        raise InputError("waves were measured at different numbers of executors", where=where)
    values = [value for wave in waves for durations in wave.values() for value in durations]
    if not values:
        raise InputError("has no durations", where=where)
    if min(values) < 0 or max(values) > _LONGEST_MS:
        raise InputError("a duration is below zero or longer than a life", where=where)


def _first_alone(first: _Durations, fresh: _Durations) -> dict[int, list[int]]:
    alone: dict[int, list[int]] = {}
    below: list[int] = []
    for level in sorted(first):
        below = list((Counter(first[level]) - Counter(fresh[level])).elements()) or below
        alone[level] = below
    return alone


def _waves(fresh: _Durations, first: _Durations, rest: _Durations, level: int) -> Waves:
    warmed_up = [value + _WARM_UP_MS for value in first[level]]
    waves_ms = (fresh[level] or warmed_up, first[level], rest[level])
    return Waves(*(np.array(wave, dtype=np.int64) * MILLISECOND_NS for wave in waves_ms))


def _undisturbed_ns(*waves: _Durations) -> int:
    for wave in waves:
        for level in sorted(wave):
            if wave[level]:
                return int(np.median(wave[level]) * MILLISECOND_NS)
    raise AssertionError("a stage without durations was refused")
