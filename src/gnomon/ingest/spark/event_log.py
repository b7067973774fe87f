"""Spark event logs: what an application ran, task by task.

Spark writes them where `spark.eventLog.enabled` is set: a line of JSON for every event. Versions
2.4, 3.x and 4.x are read; compressed (gzip, zstd, lz4, snappy), rolling, or of an application
that still runs. A log is read line by line, and only events that matter are decoded.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.spark.log_files import find_spark_logs, is_in_progress, log_lines
from gnomon.ingest.text import BAD_JSON

_NAME = re.compile(rb'\s*\{\s*"Event"\s*:\s*"([^"]{1,200})"')
_NEVER = -1
_LONGEST_MS = 1 << 43  # the year 2248
_NOT_JSON = "lines that are no event"
_ODD = "events with missing or impossible values"
_LOOK_AT = 50


#: As wide as Java's: what does not fit is no value of Spark's.
_Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]


class SparkStage(msgspec.Struct, frozen=True):
    """A stage as planned; `tasks` is its number of partitions."""

    id: int
    name: str
    tasks: int
    parents: tuple[int, ...]


class SparkJob(msgspec.Struct, frozen=True):
    """A job: what one action of the program asked for. Times are milliseconds since 1970.

    Attributes:
        ended_ms: -1 while it runs.
        stages: All that it was planned with; those whose output was there already never run.
    """

    id: int
    name: str
    submitted_ms: int
    stages: tuple[SparkStage, ...]
    ended_ms: int = _NEVER
    succeeded: bool = False


class SparkExecutor(msgspec.Struct, frozen=True):
    """An executor; `cores` is 0 where the log does not say, `removed_ms` -1 if it stayed."""

    id: str
    cores: int
    added_ms: int
    removed_ms: int = _NEVER


class SparkTasks(msgspec.Struct, frozen=True, eq=False):
    """Attempts of tasks that ended, as columns.

    Attributes:
        executor: Position in the log's `executors`.
        finish_ms: When the driver heard of its end.
        cpu_ns: CPU time on the executor's JVM; 0 where the log has none.
    """

    stage: NDArray[np.int64]
    attempt: NDArray[np.int64]
    index: NDArray[np.int64]
    executor: NDArray[np.int64]
    launch_ms: NDArray[np.int64]
    finish_ms: NDArray[np.int64]
    cpu_ns: NDArray[np.int64]
    succeeded: NDArray[np.bool_]
    speculative: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.stage)


class SparkLog(msgspec.Struct, frozen=True, eq=False):
    """One application.

    Attributes:
        started_ms: Milliseconds since 1970; -1 where the log does not say.
        dropped: How many lines, events or files could not be used, by why.
    """

    where: str
    app_name: str
    app_id: str
    attempt: str
    version: str
    started_ms: int
    ended_ms: int
    in_progress: bool
    task_cpus: int
    jobs: tuple[SparkJob, ...]
    tasks: SparkTasks
    executors: tuple[SparkExecutor, ...]
    dropped: Mapping[str, int]


def read_spark_logs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[SparkLog]:
    """All logs at a path or several: files, rolling folders, folders of logs."""
    many = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return [read_spark_log(log) for path in many for log in find_spark_logs(path)]


def read_spark_log(path: str | os.PathLike[str]) -> SparkLog:
    """Reads the log of one application: a file or a rolling folder.

    Events of kinds that are not known are passed over. Lines that are cut off are counted, and
    what stands before them is kept.
    """
    place = Path(path)
    reading = _Reading(str(path))
    unknown = 0
    for line in log_lines(place, reading.dropped):
        if not reading.take(line):
            unknown += 1
            if unknown >= _LOOK_AT and not reading.events:
                break
    if not reading.events:
        hint = 'each line of one is JSON that begins with an "Event"'
        raise InputError("is no Spark event log", where=str(path), hint=hint)
    return reading.log(is_in_progress(place))


# -- events, as far as they matter -----------------------------------------------------------


def _at(name: str, **default: Any) -> Any:
    return msgspec.field(name=name, **default)


class _LogStart(msgspec.Struct):
    version: str = _at("Spark Version", default="")


class _Environment(msgspec.Struct):
    properties: dict[str, Any] = _at("Spark Properties", default_factory=dict)


class _AppStart(msgspec.Struct):
    name: str = _at("App Name", default="")
    id: str | None = _at("App ID", default=None)
    timestamp: _Long = _at("Timestamp", default=_NEVER)
    attempt: str | None = _at("App Attempt ID", default=None)


class _AppEnd(msgspec.Struct):
    timestamp: _Long = _at("Timestamp", default=_NEVER)


class _StageInfo(msgspec.Struct):
    id: _Int = _at("Stage ID")
    name: str = _at("Stage Name", default="")
    tasks: _Int = _at("Number of Tasks", default=0)
    parents: list[_Int] = _at("Parent IDs", default_factory=list)


class _JobStart(msgspec.Struct):
    id: _Int = _at("Job ID")
    submitted: _Long = _at("Submission Time")
    stages: list[_StageInfo] = _at("Stage Infos", default_factory=list)
    properties: dict[str, Any] | None = _at("Properties", default=None)


class _JobResult(msgspec.Struct):
    result: str = _at("Result", default="")


class _JobEnd(msgspec.Struct):
    id: _Int = _at("Job ID")
    completed: _Long = _at("Completion Time")
    result: _JobResult = _at("Job Result", default_factory=_JobResult)


class _ExecutorInfo(msgspec.Struct):
    cores: _Int = _at("Total Cores", default=0)


class _ExecutorAdded(msgspec.Struct):
    timestamp: _Long = _at("Timestamp")
    id: str = _at("Executor ID")
    info: _ExecutorInfo = _at("Executor Info", default_factory=_ExecutorInfo)


class _ExecutorRemoved(msgspec.Struct):
    timestamp: _Long = _at("Timestamp")
    id: str = _at("Executor ID")


class _TaskInfo(msgspec.Struct):
    index: _Int = _at("Index")
    launch: _Long = _at("Launch Time")
    executor: str = _at("Executor ID")
    finish: _Long = _at("Finish Time")
    failed: bool = _at("Failed", default=False)
    killed: bool = _at("Killed", default=False)
    speculative: bool = _at("Speculative", default=False)


class _TaskMetrics(msgspec.Struct):
    cpu_ns: _Long = _at("Executor CPU Time", default=0)
    unpack_cpu_ns: _Long = _at("Executor Deserialize CPU Time", default=0)


class _EndReason(msgspec.Struct):
    reason: str = _at("Reason", default="Success")


class _TaskEnd(msgspec.Struct):
    stage: _Int = _at("Stage ID")
    info: _TaskInfo = _at("Task Info")
    attempt: _Int = _at("Stage Attempt ID", default=0)
    reason: _EndReason = _at("Task End Reason", default_factory=_EndReason)
    metrics: _TaskMetrics | None = _at("Task Metrics", default=None)


# -- reading ---------------------------------------------------------------------------------


class _Reading:
    """What has been found in a log so far."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.dropped: Counter[str] = Counter()
        self.events = 0
        self.version = self.app_name = self.app_id = self.attempt = ""
        self.started_ms = self.ended_ms = _NEVER
        self.task_cpus = 1
        self.jobs: dict[int, SparkJob] = {}
        self.executors: list[SparkExecutor] = []
        self.executor_place: dict[str, int] = {}
        self.columns = {name: array("q") for name in SparkTasks.__struct_fields__}
        readers: dict[bytes, tuple[type[Any], Callable[[Any], None]]] = {
            b"SparkListenerTaskEnd": (_TaskEnd, self._task_end),
            b"SparkListenerJobStart": (_JobStart, self._job_start),
            b"SparkListenerJobEnd": (_JobEnd, self._job_end),
            b"SparkListenerExecutorAdded": (_ExecutorAdded, self._executor_added),
            b"SparkListenerExecutorRemoved": (_ExecutorRemoved, self._executor_removed),
            b"SparkListenerLogStart": (_LogStart, self._log_start),
            b"SparkListenerEnvironmentUpdate": (_Environment, self._environment),
            b"SparkListenerApplicationStart": (_AppStart, self._app_start),
            b"SparkListenerApplicationEnd": (_AppEnd, self._app_end),
        }
        self.readers = {
            name: (msgspec.json.Decoder(kind), take) for name, (kind, take) in readers.items()
        }

    def take(self, line: bytes) -> bool:
        name = _NAME.match(line)
        if name is None:
            if line.strip():
                self.dropped[_NOT_JSON] += 1
                return False
            return True
        if (reader := self.readers.get(name[1])) is None:
            self.events += 1
            return True
        try:
            event = reader[0].decode(line)
        except msgspec.ValidationError:
            self.dropped[_ODD] += 1
        except BAD_JSON:
            self.dropped[_NOT_JSON] += 1
            return False
        else:
            reader[1](event)
            self.events += 1
        return True

    def _log_start(self, event: _LogStart) -> None:
        self.version = event.version

    def _environment(self, event: _Environment) -> None:
        cpus = str(event.properties.get("spark.task.cpus", "1"))
        if cpus.isdecimal() and 1 <= int(cpus) <= 10_000:
            self.task_cpus = int(cpus)

    def _app_start(self, event: _AppStart) -> None:
        self.app_name, self.app_id = event.name, event.id or ""
        self.attempt, self.started_ms = event.attempt or "", event.timestamp

    def _app_end(self, event: _AppEnd) -> None:
        self.ended_ms = event.timestamp

    def _executor_added(self, event: _ExecutorAdded) -> None:
        if self._is_odd(event.timestamp) or not 0 <= event.info.cores <= 1 << 20:
            return
        self.executor_place[event.id] = len(self.executors)
        self.executors.append(SparkExecutor(event.id, event.info.cores, event.timestamp))

    def _executor_removed(self, event: _ExecutorRemoved) -> None:
        if (place := self.executor_place.get(event.id)) is not None:
            gone = msgspec.structs.replace(self.executors[place], removed_ms=event.timestamp)
            self.executors[place] = gone

    def _job_start(self, event: _JobStart) -> None:
        if self._is_odd(event.submitted):
            return
        if event.id in self.jobs:
            self.dropped["jobs of a number that was there"] += 1
            return
        stages = tuple(
            SparkStage(info.id, info.name, info.tasks, tuple(info.parents))
            for info in event.stages
        )
        called = event.properties or {}
        name = called.get("spark.job.description") or called.get("callSite.short") or ""
        self.jobs[event.id] = SparkJob(event.id, str(name), event.submitted, stages)

    def _job_end(self, event: _JobEnd) -> None:
        if (job := self.jobs.get(event.id)) is None:
            self.dropped["ends of jobs whose start is not there"] += 1
        elif not self._is_odd(event.completed):
            self.jobs[event.id] = msgspec.structs.replace(
                job, ended_ms=event.completed, succeeded=event.result.result == "JobSucceeded"
            )

    def _task_end(self, event: _TaskEnd) -> None:
        info = event.info
        if self._is_odd(info.launch, info.finish) or info.finish < info.launch:
            if info.finish < info.launch:
                self.dropped[_ODD] += 1
            return
        if (executor := self.executor_place.get(info.executor)) is None:
            # Its start lies in a part of the log that is gone: it was there by now.
            executor = self.executor_place[info.executor] = len(self.executors)
            self.executors.append(SparkExecutor(info.executor, 0, info.launch))
        metrics = event.metrics or _TaskMetrics()
        values = (
            event.stage, event.attempt, info.index, executor, info.launch, info.finish,
            _within(metrics.cpu_ns) + _within(metrics.unpack_cpu_ns),
            event.reason.reason == "Success" and not (info.failed or info.killed),
            info.speculative,
        )  # fmt: skip
        for column, value in zip(self.columns.values(), values):
            column.append(value)

    def _is_odd(self, *times_ms: int) -> bool:
        odd = any(not 0 <= time <= _LONGEST_MS for time in times_ms)
        self.dropped[_ODD] += odd
        return odd

    def log(self, in_progress: bool) -> SparkLog:
        columns: dict[str, Any] = {
            name: np.array(column, np.bool_ if name in ("succeeded", "speculative") else np.int64)
            for name, column in self.columns.items()
        }
        return SparkLog(
            self.where,
            self.app_name,
            self.app_id,
            self.attempt,
            self.version,
            self.started_ms,
            self.ended_ms,
            in_progress or self.ended_ms < 0,
            self.task_cpus,
            tuple(sorted(self.jobs.values(), key=lambda job: (job.submitted_ms, job.id))),
            SparkTasks(**columns),
            tuple(self.executors),
            dict(+self.dropped),
        )


def _within(cpu_ns: int) -> int:
    return cpu_ns if 0 <= cpu_ns < 1 << 60 else 0
