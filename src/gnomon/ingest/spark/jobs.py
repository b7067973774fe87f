"""From Spark event logs to jobs that can be run again: graphs, durations by wave, arrivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.ingest.spark.event_log import SparkJob, SparkLog, SparkStage, SparkTasks
from gnomon.ingest.stages.stage_order import parents_first
from gnomon.ingest.stages.trace import BatchTrace
from gnomon.units import MILLISECOND_NS

#: A job that is submitted so soon after another ended, while more of its application run, is by
#: the same thread of the program.
_AT_ONCE_MS = 1000
_MOST_LEVELS = 12
#: A driver is slower than this only if something else held the task back.
_LONGEST_BRINGING_MS = 1000
_Ints = NDArray[np.int64]


def spark_jobs(logs: Sequence[SparkLog], *, think_s: float = 10.0) -> BatchTrace:
    """The jobs of one or more applications, as they arrived.

    Each job of Spark that succeeded is one here, of a kind of its own. Stages whose output was
    there already are left out, and what waited for them waits for what they waited for. A stage's
    tasks are those that succeeded, each once; failed attempts, copies and repeats are counted. A
    task takes from its launch to its end as the driver saw them, less what overlaps with the task
    before it, and with what the driver took to bring it to a slot that was free. It is fresh if it
    is the first of its executor (of one of its slots, if it has several cores) in the application,
    first if it is the first there in its stage, and seen at as many slots as the application held
    when it was launched.

    A job that was submitted within `think_s` after another of its application ended, with nothing
    of the application running in between, waits for that one and then for as long again; so does
    one that was submitted within a second while others ran.

    CPU time is the executors' JVMs': what Python workers burn is not in the log. Of several logs
    of one attempt of an application the one with most tasks counts.

    Args:
        think_s: The longest a program may take from one job's end to its next job.
    """
    counted: Counter[str] = Counter()
    logs = _each_once(logs, counted)
    found = [
        built
        for number, log in enumerate(logs)
        for built in _Application(number, log, counted).jobs(int(think_s * 1000))
    ]
    where = ", ".join(log.where for log in logs[:3]) + (", ..." if len(logs) > 3 else "")
    for log in logs:
        counted.update(log.dropped)
    if not found:
        why = ", ".join(f"{count} {what}" for what, count in (+counted).items())
        raise InputError(f"no job succeeded ({why or 'there is none'})", where=where or "Spark")
    found.sort(key=lambda job: (job.submitted_ms, job.application, job.id))
    jobs = _arrivals(found, logs)
    when_ns, held = _held(logs, found[0].submitted_ms)
    most = int(held.max(initial=0))
    begin_ms = found[0].submitted_ms
    last_ms = max(job.ended_ms for log in logs for job in log.jobs if job.succeeded)
    return BatchTrace(
        where,
        jobs,
        dict(+counted),
        _notes(logs),
        most,
        when_ns,
        held,
        (last_ms - begin_ms) * MILLISECOND_NS,
    )


def _each_once(logs: Sequence[SparkLog], counted: Counter[str]) -> list[SparkLog]:
    """Copies of a log would be more jobs than there were, on more executors."""
    kept: dict[object, SparkLog] = {}
    for number, log in enumerate(logs):
        known = (log.app_id, log.attempt, log.started_ms) if log.app_id else number
        if known in kept:
            counted["logs of an application that has another"] += 1
        if known not in kept or len(log.tasks) > len(kept[known].tasks):
            kept[known] = log
    return list(kept.values())


class _Built(msgspec.Struct, frozen=True):
    application: int
    id: int
    submitted_ms: int
    after: int  # another job's id, or -1
    think_ms: int
    stages: list[Stage]


def _arrivals(found: Sequence[_Built], logs: Sequence[SparkLog]) -> BatchJobs:
    place = {(job.application, job.id): position for position, job in enumerate(found)}
    begin = found[0].submitted_ms
    names = [logs[job.application].app_id or f"application-{job.application}" for job in found]
    kinds: dict[str, list[Stage]] = {}
    for name, job in zip(names, found):
        key = f"{name}-job{job.id}"
        kinds[key if key not in kinds else f"{key}-log{job.application}"] = job.stages
    waits = [place.get((job.application, job.after), -1) for job in found]
    arrival_ms = [
        job.submitted_ms - begin if after < 0 else job.think_ms for job, after in zip(found, waits)
    ]
    return BatchJobs.of(
        JobKinds.build(kinds),
        np.arange(len(found)),
        np.array(arrival_ms, dtype=np.int64) * MILLISECOND_NS,
        after=waits,
        application=[job.application for job in found],
    )


def _notes(logs: Sequence[SparkLog]) -> tuple[str, ...]:
    running = sum(log.in_progress for log in logs)
    if not running:
        return ()
    return (f"{running} of {len(logs)} logs end before their application does.",)


def _held(logs: Sequence[SparkLog], begin_ms: int) -> tuple[_Ints, NDArray[np.int32]]:
    """When the slots of all applications together changed, from the first job on, and to what."""
    changes = np.array([change for log in logs for change in _slot_changes(log)], dtype=np.int64)
    if not changes.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    when_ms = np.maximum(changes[:, 0] - begin_ms, 0)
    times, place = np.unique(when_ms, return_inverse=True)
    by_time = np.zeros(len(times), dtype=np.int64)
    np.add.at(by_time, place, changes[:, 1])
    return times * MILLISECOND_NS, np.cumsum(by_time).astype(np.int32)


def _slot_changes(log: SparkLog) -> list[tuple[int, int]]:
    changes = []
    for executor, slots in zip(log.executors, _slots(log)):
        changes.append((executor.added_ms, slots))
        gone_ms = executor.removed_ms if executor.removed_ms >= 0 else log.ended_ms
        if gone_ms >= executor.added_ms:
            changes.append((gone_ms, -slots))
    return changes


def _slots(log: SparkLog) -> list[int]:
    """Tasks that each executor can run at once; where the log has no cores, the most it ran."""
    return [
        max(1, executor.cores // log.task_cpus)
        if executor.cores
        else _most_at_once(log.tasks, number)
        for number, executor in enumerate(log.executors)
    ]


def _most_at_once(tasks: SparkTasks, executor: int) -> int:
    mine = tasks.executor == executor
    times = np.concatenate([tasks.launch_ms[mine], tasks.finish_ms[mine]])
    change = np.repeat([1, -1], mine.sum())
    order = np.lexsort((change, times))
    return max(1, int(np.cumsum(change[order]).max(initial=0)))


class _Application:
    """One log, and its tasks by stage."""

    def __init__(self, number: int, log: SparkLog, counted: Counter[str]) -> None:
        self.number, self.log, self.counted = number, log, counted
        tasks = log.tasks
        slots = _slots(log)
        order = np.lexsort((tasks.finish_ms, tasks.launch_ms))
        slot, self.taken_ms, self.free_ms = _assign(log, order, slots)
        self.wave = _waves(tasks, order, slot)
        self.level = _levels(tasks, _slot_changes(log))
        self.of_stage = _by_stage(tasks)
        self.counted["copies of slow tasks"] += int(tasks.speculative.sum())
        counted["attempts of tasks that failed or were killed"] += int((~tasks.succeeded).sum())

    def jobs(self, think_ms: int) -> list[_Built]:
        owner = self._owners()
        built = []
        for job in self.log.jobs:
            if job.ended_ms < 0:
                self.counted["jobs that had not ended"] += 1
            elif not job.succeeded:
                self.counted["jobs that failed"] += 1
            elif stages := self._stages(job, owner):
                built.append((job, stages))
            else:
                self.counted["jobs without a task of their own"] += 1
        kept = [job for job, _ in built]
        result = []
        for job, stages in built:
            after, waited_ms = _after(job, kept, think_ms)
            result.append(_Built(self.number, job.id, job.submitted_ms, after, waited_ms, stages))
        return result

    def _owners(self) -> dict[int, int]:
        """The job that each stage ran in: the first that it was planned for and that saw it."""
        owner: dict[int, int] = {}
        first_launch = {
            stage: int(self.log.tasks.launch_ms[rows].min())
            for stage, rows in self.of_stage.items()
        }
        for job in self.log.jobs:
            for stage in job.stages:
                ran = stage.id in first_launch and (
                    job.ended_ms < 0 or first_launch[stage.id] <= job.ended_ms
                )
                if ran and owner.setdefault(stage.id, job.id) != job.id:
                    self.counted["stages that two jobs waited for"] += 1
        return owner

    def _stages(self, job: SparkJob, owner: dict[int, int]) -> list[Stage]:
        planned = {stage.id: stage for stage in job.stages}
        kept = [
            stage for stage in planned
            if owner.get(stage) == job.id and self._successes(stage).size
        ]  # fmt: skip
        self.counted["stages that were skipped"] += sum(s not in owner for s in planned)
        place = {stage: position for position, stage in enumerate(sorted(kept))}
        parents = [
            [place[parent] for parent in _ancestors(stage, planned, place)] for stage in place
        ]
        order = parents_first(parents)
        if order is None:
            self.counted["jobs whose stages wait for one another"] += 1
            return []
        moved = {old: new for new, old in enumerate(order)}
        numbers = list(place)
        return [
            self._stage(
                numbers[old],
                planned[numbers[old]].name,
                [moved[parent] for parent in parents[old]],
                max([job.submitted_ms, *(self._last_end(numbers[p]) for p in parents[old])]),
            )
            for old in order
        ]

    def _successes(self, stage: int) -> _Ints:
        """Rows of a stage's tasks that succeeded, each task once: the first time."""
        rows = self.of_stage.get(stage, np.zeros(0, dtype=np.int64))
        rows = rows[self.log.tasks.succeeded[rows]]
        rows = rows[np.argsort(self.log.tasks.finish_ms[rows], kind="stable")]
        _, once = np.unique(self.log.tasks.index[rows], return_index=True)
        return rows[np.sort(once)]

    def _last_end(self, stage: int) -> int:
        return int(self.log.tasks.finish_ms[self._successes(stage)].max())

    def _stage(self, stage: int, name: str, parents: list[int], ready_ms: int) -> Stage:
        rows = self._successes(stage)
        again = int(self.log.tasks.succeeded[self.of_stage[stage]].sum()) - rows.size
        self.counted["tasks that were run again"] += again
        # From when the stage and the slot were ready: what the driver takes to bring a task there
        # is part of it, as long as it looks like that.
        could_ms = np.maximum(self.free_ms[rows], ready_ms)
        brought_ms = np.clip(self.log.tasks.launch_ms[rows] - could_ms, 0, None)
        brought_ms[brought_ms > _LONGEST_BRINGING_MS] = 0
        taken_ns = (self.taken_ms[rows] + brought_ms) * MILLISECOND_NS
        waves = {}
        for level in np.unique(self.level[rows]).tolist():
            at = self.level[rows] == level
            waves[int(level)] = Waves(
                *(taken_ns[at & (self.wave[rows] == wave)] for wave in range(3))
            )
        cpu_ns = int(self.log.tasks.cpu_ns[rows].mean())
        return Stage(rows.size, waves, tuple(sorted(parents)), cpu_ns=cpu_ns, name=name)


def _ancestors(stage: int, planned: Mapping[int, SparkStage], kept: Mapping[int, int]) -> set[int]:
    found: set[int] = set()
    seen = {stage}
    waiting = [stage]
    while waiting:
        for parent in planned[waiting.pop()].parents:
            if parent in kept and parent != stage:
                found.add(parent)
            elif parent in planned and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return found


def _after(job: SparkJob, others: Sequence[SparkJob], think_ms: int) -> tuple[int, int]:
    ended = [other for other in others if other.ended_ms <= job.submitted_ms and other is not job]
    if not ended:
        return -1, 0
    last = max(ended, key=lambda other: (other.ended_ms, other.submitted_ms, other.id))
    runs = any(
        other.submitted_ms < job.submitted_ms < other.ended_ms
        for other in others
        if other is not job
    )
    waited_ms = job.submitted_ms - last.ended_ms
    longest = min(think_ms, _AT_ONCE_MS) if runs else think_ms
    is_before = (last.submitted_ms, last.id) < (job.submitted_ms, job.id)
    return (last.id, waited_ms) if waited_ms <= longest and is_before else (-1, 0)


def _by_stage(tasks: SparkTasks) -> dict[int, _Ints]:
    order = np.argsort(tasks.stage, kind="stable")
    stages, first = np.unique(tasks.stage[order], return_index=True)
    return dict(zip(stages.tolist(), np.split(order, first[1:]) if stages.size else []))


def _assign(log: SparkLog, order: _Ints, slots: Sequence[int]) -> tuple[_Ints, _Ints, _Ints]:
    """The slot that each attempt ran in, how long it took there, and since when that was free.

    Slots are counted over all executors.

    An executor's lowest free slot is taken. Its last task's end reaches the driver a little after
    the next was launched; that overlap belongs to the first of the two.
    """
    tasks = log.tasks
    begin = np.concatenate([[0], np.cumsum(slots)]).astype(np.int64)
    free_ms = np.zeros(len(tasks), dtype=np.int64)
    free_at = [[-1] * count for count in slots]
    slot = np.zeros(len(tasks), dtype=np.int64)
    taken_ms = np.zeros(len(tasks), dtype=np.int64)
    executor, launch, finish = (
        column.tolist() for column in (tasks.executor, tasks.launch_ms, tasks.finish_ms)
    )
    for row in order.tolist():
        free = free_at[executor[row]]
        mine = next((s for s, at in enumerate(free) if at <= launch[row]), -1)
        if mine < 0:
            mine = min(range(len(free)), key=free.__getitem__)
        free_ms[row] = max(free[mine], log.executors[executor[row]].added_ms)
        taken_ms[row] = max(0, finish[row] - max(launch[row], free[mine]))
        free[mine] = max(free[mine], finish[row])
        slot[row] = begin[executor[row]] + mine
    return slot, taken_ms, free_ms


def _waves(tasks: SparkTasks, order: _Ints, slot: _Ints) -> _Ints:
    """0 for the first attempt of a slot, 1 for its first in a stage, 2 for others."""
    used: set[int] = set()
    seen: set[tuple[int, int]] = set()
    wave = np.full(len(tasks), 2, dtype=np.int64)
    for row in order.tolist():
        mine, stage = int(slot[row]), int(tasks.stage[row])
        if mine not in used:
            wave[row] = 0
        elif (mine, stage) not in seen:
            wave[row] = 1
        used.add(mine)
        seen.add((mine, stage))
    return wave


def _levels(tasks: SparkTasks, changes: Sequence[tuple[int, int]]) -> _Ints:
    """Slots that the application held when each attempt was launched; a few numbers at most."""
    if not len(tasks):
        return np.zeros(0, dtype=np.int64)
    times = np.array([time for time, _ in sorted(changes)], dtype=np.int64)
    held = np.cumsum([change for _, change in sorted(changes)])
    at = np.searchsorted(times, tasks.launch_ms, side="right") - 1
    level = np.maximum(np.where(at >= 0, held[at.clip(min=0)], 1), 1)
    if np.unique(level).size <= _MOST_LEVELS:
        return level.astype(np.int64)
    steps = np.unique(np.rint(np.geomspace(level.min(), level.max(), _MOST_LEVELS)))
    nearest = np.abs(np.log(level)[:, None] - np.log(steps)[None, :]).argmin(axis=1)
    return np.asarray(steps[nearest], dtype=np.int64)
