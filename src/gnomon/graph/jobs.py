"""Batch jobs: stages of tasks that wait for other stages, and how long a task was seen to take.

A *kind* is a job's shape: its stages, what each waits for, and samples of its tasks' durations.
*Jobs* are arrivals of kinds. Both are columns, so that a hundred thousand jobs are a few arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import InputError
from gnomon.graph.column_types import Codes, Floats, Ints

#: What an executor has done before decides how long its next task takes: nothing of this
#: application yet, nothing of this stage yet, or other tasks of the stage.
WAVES = ("fresh", "first", "rest")
_LONGEST_NS = 1 << 60


class Waves(NamedTuple):
    """Durations of a stage's tasks at one number of executors, by what the executor did before.

    A wave without samples is taken from the next one: `rest` from `first`, `first` from `rest`
    or `fresh`, `fresh` from `first`.
    """

    fresh: Sequence[int] | Ints = ()
    first: Sequence[int] | Ints = ()
    rest: Sequence[int] | Ints = ()


class Stage(msgspec.Struct, frozen=True):
    """A stage of a job, for those who build kinds.

    Attributes:
        tasks: How many tasks it has.
        waves: Durations in nanoseconds, by the number of executors they were seen at.
        parents: Positions, in the job, of the stages that have to be done before.
        cpu_ns: CPU time of one task; 0 where it is not known, which counts all of its duration.
        typical_ns: Mean duration of a task; 0 takes it from the samples, which is wrong where
            some of them only stand for what was not measured.
    """

    tasks: int
    waves: Mapping[int, Waves]
    parents: tuple[int, ...] = ()
    cpu_ns: int = 0
    name: str = ""
    typical_ns: float = 0.0


class JobKinds(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Shapes of jobs, one after the other; build them with `JobKinds.build`.

    Attributes:
        names: Of each kind.
        first_stage: Stages of kind k are those from `first_stage[k]` up to `first_stage[k + 1]`.
        tasks: Of each stage.
        first_parent: Parents of stage s are `parents[first_parent[s]:first_parent[s + 1]]`.
        parents: Stages, counted over all kinds; each comes before the stage it is a parent of.
        levels: Numbers of executors that durations were seen at, rising.
        sample_first: Where the samples of (stage, wave, level) begin, in that order.
        sample_count: How many they are: at least one.
        sample_ns: The durations.
        cpu_ns: CPU time of one task of each stage; 0 is all of its duration.
        given_mean_ns: Mean duration of a task of each stage, where it was given; else 0.

    >>> scan = Stage(4, {2: Waves(first=[10, 12], rest=[5])})
    >>> join = Stage(1, {2: Waves(first=[20])}, parents=(0,))
    >>> kinds = JobKinds.build({"q1": [scan, join]})
    >>> len(kinds), kinds.tasks.tolist(), kinds.typical_ns.tolist()
    (1, [4, 1], [9.0, 20.0])
    """

    names: tuple[str, ...]
    first_stage: Ints
    tasks: Codes
    first_parent: Ints
    parents: Codes
    levels: Codes
    sample_first: Ints
    sample_count: Codes
    sample_ns: Ints
    cpu_ns: Ints
    stage_names: tuple[str, ...] = ()
    given_mean_ns: Floats = msgspec.field(default_factory=lambda: np.zeros(0))

    @classmethod
    def build(cls, kinds: Mapping[str, Sequence[Stage]]) -> JobKinds:
        """From stages; a level that a stage was not seen at is taken from its nearest one.

        Raises:
            InputError: A stage has no tasks or no durations, or waits for a later one.
        """
        levels = sorted({level for stages in kinds.values() for s in stages for level in s.waves})
        if levels and levels[0] < 1:
            raise InputError(f"durations at {levels[0]} executors", hint="at least one")
        samples = _Samples(levels)
        first_stage, first_parent, parents = [0], [0], list[int]()
        for name, stages in kinds.items():
            if not stages:
                raise InputError("a job has no stages", where=name)
            start = first_stage[-1]
            for position, stage in enumerate(stages):
                where = f"{name}, stage {position}"
                _check_stage(stage, position, where)
                parents += [start + parent for parent in sorted(set(stage.parents))]
                first_parent.append(len(parents))
                samples.add(stage, where)
            first_stage.append(start + len(stages))
        flat = [stage for stages in kinds.values() for stage in stages]
        return cls(
            tuple(kinds),
            np.array(first_stage, dtype=np.int64),
            np.array([stage.tasks for stage in flat], dtype=np.int32),
            np.array(first_parent, dtype=np.int64),
            np.array(parents, dtype=np.int32),
            np.array(levels, dtype=np.int32),
            np.array(samples.first, dtype=np.int64),
            np.array(samples.count, dtype=np.int32),
            samples.values(),
            np.array([stage.cpu_ns for stage in flat], dtype=np.int64),
            tuple(stage.name for stage in flat),
            np.array([stage.typical_ns for stage in flat], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def stage_count(self) -> int:
        """Stages of all kinds."""
        return len(self.tasks)

    @cached_property
    def kind_of_stage(self) -> Codes:
        """The kind that each stage belongs to."""
        return np.repeat(
            np.arange(len(self), dtype=np.int32), np.diff(self.first_stage).astype(np.int64)
        )

    @cached_property
    def mean_ns(self) -> Floats:
        """Mean duration by (stage, wave, level)."""
        sums = np.append(0.0, np.cumsum(self.sample_ns, dtype=np.float64))
        first, count = self.sample_first, self.sample_count
        mean: Floats = (sums[first + count] - sums[first]) / count
        return mean.reshape(self.stage_count, len(WAVES), len(self.levels))

    @cached_property
    def typical_ns(self) -> Floats:
        """Mean duration of a task of each stage: as given, or over its samples, each once."""
        sums = np.append(0.0, np.cumsum(self.sample_ns, dtype=np.float64))
        typical = np.empty(self.stage_count)
        first = self.sample_first.reshape(self.stage_count, -1)
        count = self.sample_count.reshape(self.stage_count, -1)
        for stage in range(self.stage_count):
            runs = set(zip(first[stage].tolist(), count[stage].tolist()))
            total = sum(sums[begin + many] - sums[begin] for begin, many in runs)
            typical[stage] = total / sum(many for _, many in runs)
        return (
            np.where(self.given_mean_ns > 0.0, self.given_mean_ns, typical)
            if self.given_mean_ns.size
            else typical
        )

    def stages_of(self, kind: int) -> range:
        """The stages of a kind, counted over all kinds."""
        return range(int(self.first_stage[kind]), int(self.first_stage[kind + 1]))

    def parents_of(self, stage: int) -> Codes:
        """What a stage waits for."""
        return self.parents[self.first_parent[stage] : self.first_parent[stage + 1]]

    def work_ns(self, executors: int) -> Floats:
        """Executor time of each kind when that many executors work on it, as measured.

        One task of each executor that a stage can use is its first there, the others are of the
        rest wave. An executor is fresh once in a job: in the first stage wide enough to use it.
        """
        level = int(np.abs(self.levels - executors).argmin())
        fresh, first, rest = (self.mean_ns[:, wave, level] for wave in range(len(WAVES)))
        at_first = np.minimum(self.tasks, executors).astype(np.int64)
        work = at_first * first + (self.tasks - at_first) * rest
        work += self._newly_used(at_first) * np.maximum(fresh - first, 0.0)
        return np.add.reduceat(work, self.first_stage[:-1])

    def _newly_used(self, used: Ints) -> Ints:
        """Executors of each stage that no stage of its job before it could use."""
        apart = self.kind_of_stage * (used.max(initial=0) + 1)  # kinds do not see one another
        most = np.maximum.accumulate(used + apart) - apart
        before = np.append(0, most[:-1])
        before[self.first_stage[:-1]] = 0
        new: Ints = np.maximum(used - before, 0)
        return new

    def path_ns(self, executors: int) -> Floats:
        """From the start of each stage to the end of its job, with that many executors to itself.

        The longest chain of stages, each as many rounds of tasks long as it takes.
        """
        level = int(np.abs(self.levels - executors).argmin())
        first, rest = (self.mean_ns[:, wave, level] for wave in (1, 2))
        rounds = -(-self.tasks // executors)
        own = first + (rounds - 1) * rest
        path = own.copy()
        for stage in range(self.stage_count - 1, -1, -1):  # parents come before children
            parents = self.parents_of(stage)
            path[parents] = np.maximum(path[parents], own[parents] + path[stage])
        return path


class BatchJobs(msgspec.Struct, frozen=True, eq=False):
    """Jobs to be run: which kind arrives when.

    Attributes:
        kinds: Their shapes.
        kind: Of each job.
        arrival_ns: When each arrives, rising; for a job `after` another, the time between the
            other's end and its arrival.
        after: The job that has to end before, or -1.
        application: Jobs of one application share executors, which need not be moved between
            them nor warmed up again.
        deadline_ns: By when it should be done; the greatest int64 where it is not given.
        weight: For policies that share by weight.

    >>> kinds = JobKinds.build({"q1": [Stage(1, {1: Waves(first=[5])})]})
    >>> jobs = BatchJobs.of(kinds, kind=[0, 0], arrival_ns=[0, 10])
    >>> len(jobs), jobs.application.tolist()
    (2, [0, 1])
    """

    kinds: JobKinds
    kind: Codes
    arrival_ns: Ints
    after: Codes
    application: Codes
    deadline_ns: Ints
    weight: Floats

    @classmethod
    def of(
        cls,
        kinds: JobKinds,
        kind: ArrayLike,
        arrival_ns: ArrayLike,
        *,
        after: ArrayLike | None = None,
        application: ArrayLike | None = None,
        deadline_ns: ArrayLike | None = None,
        weight: ArrayLike | None = None,
    ) -> BatchJobs:
        """Checked columns; each job is an application of its own unless set otherwise.

        Raises:
            InputError: Columns differ in length, a kind does not exist, or times go back.
        """
        which = np.ascontiguousarray(kind, dtype=np.int32)
        count = which.size
        never = np.iinfo(np.int64).max

        def column(values: ArrayLike | None, default: ArrayLike, dtype: type) -> NDArray[Any]:
            array: NDArray[Any] = np.ascontiguousarray(
                default if values is None else values, dtype=dtype
            )
            if array.shape != (count,):
                raise InputError(f"{array.size} values for {count} jobs", hint="one for each")
            return array

        jobs = cls(
            kinds,
            which,
            column(arrival_ns, (), np.int64),
            column(after, np.full(count, -1), np.int32),
            column(application, np.arange(count), np.int32),
            column(deadline_ns, np.full(count, never), np.int64),
            column(weight, np.ones(count), np.float64),
        )
        jobs._check()
        return jobs

    def _check(self) -> None:
        if len(self) and not (self.kind.min() >= 0 and self.kind.max() < len(self.kinds)):
            raise InputError(
                f"a job is of a kind that does not exist: there are {len(self.kinds)}"
            )
        alone = self.arrival_ns[self.after < 0]
        if (np.diff(alone) < 0).any():
            raise InputError("jobs have to come in the order of their arrivals")
        if len(self) and (self.arrival_ns.min() < 0 or self.arrival_ns.max() > _LONGEST_NS):
            raise InputError("an arrival lies before zero or in 36 years: are these nanoseconds?")
        if (self.after >= np.arange(len(self))).any() or (len(self) and self.after.min() < -1):
            raise InputError("a job comes after one that is not before it")
        if len(self) and self.application.min() < 0:
            raise InputError("an application has a number below zero")
        if not (self.weight > 0).all():
            raise InputError("a job's weight has to be more than nothing")

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def task_count(self) -> int:
        """Tasks of all jobs."""
        of_kind = np.add.reduceat(self.kinds.tasks.astype(np.int64), self.kinds.first_stage[:-1])
        return int(of_kind[self.kind].sum())


class _Samples:
    """Durations of all stages in one column, each (stage, wave, level) a run of it."""

    def __init__(self, levels: Sequence[int]) -> None:
        self.levels = levels
        self.first: list[int] = []
        self.count: list[int] = []
        self._parts: list[Ints] = []
        self._size = 0

    def add(self, stage: Stage, where: str) -> None:
        runs = {level: self._runs(waves, where) for level, waves in stage.waves.items()}
        seen = sorted(level for level, run in runs.items() if run is not None)
        if not seen:
            raise InputError("a stage has no durations", where=where)
        chosen = [runs[min(seen, key=lambda s: (abs(s - level), s))] for level in self.levels]
        for wave in range(len(WAVES)):
            for run in chosen:
                assert run is not None
                self.first.append(run[wave][0])
                self.count.append(run[wave][1])

    def _runs(self, waves: Waves, where: str) -> list[tuple[int, int]] | None:
        """Where each wave's samples lie; a wave without any shares its neighbour's."""
        found: list[tuple[int, int] | None] = [self._append(wave, where) for wave in waves]
        fresh, first, rest = found
        first = first or rest or fresh
        if first is None:
            return None
        return [fresh or first, first, rest or first]

    def _append(self, durations: Sequence[int] | Ints, where: str) -> tuple[int, int] | None:
        values = np.asarray(durations, dtype=np.int64)
        if values.size == 0:
            return None
        if values.min() < 0 or values.max() > _LONGEST_NS:
            raise InputError("a duration lies below zero or over 36 years", where=where)
        begin = self._size
        self._parts.append(np.maximum(values, 1))
        self._size += values.size
        return begin, values.size

    def values(self) -> Ints:
        return np.concatenate(self._parts) if self._parts else np.zeros(0, dtype=np.int64)


def _check_stage(stage: Stage, position: int, where: str) -> None:
    if stage.tasks < 1:
        raise InputError(f"a stage has {stage.tasks} tasks", where=where)
    if stage.cpu_ns < 0:
        raise InputError("a stage has less than no CPU time", where=where)
    if any(not 0 <= parent < position for parent in stage.parents):
        hint = "give stages in an order where parents come first"
        raise InputError("a stage waits for itself or for a later one", where=where, hint=hint)
