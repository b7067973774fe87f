"""The state of a driver: its executors, its jobs and their stages, and its capabilities."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """What can be done to this application.

    Attributes:
        set_target: The number of executors can be set.
        decommission: A busy executor can be decommissioned after its tasks.
        dynamic_ceiling: Dynamic allocation is on, and its maximum can be set.
        priority: Stages can be served in another order.
        hold: Stages can be held.
        barrier: Jobs that wait for the slots of a barrier stage are known, and a quota leaves
            them enough executors.
    """

    set_target: bool = False
    decommission: bool = False
    dynamic_ceiling: bool = False
    priority: bool = False
    hold: bool = False
    barrier: bool = False

    @property
    def can_scale(self) -> bool:
        """True when the number of executors can be set at all."""
        return self.set_target or self.dynamic_ceiling

    @property
    def quota_only(self) -> bool:
        """True when executors can be scaled, and stages neither held nor ordered."""
        return self.can_scale and not (self.hold or self.priority)


class Hello(msgspec.Struct, frozen=True):
    """The answer of a driver to the first request.

    Attributes:
        application: The application's id.
        spark: The version of Spark.
        lease_s: After that long without a heartbeat everything is released.
        capabilities: What can be done.
        missing: Why the rest cannot.
    """

    application: str
    lease_s: float
    protocol: int
    capabilities: Capabilities
    missing: dict[str, str] = {}
    spark: str = ""

    def describe(self) -> str:
        """The capabilities in a line."""
        abilities = msgspec.structs.asdict(self.capabilities)
        can = ", ".join(name for name, able in abilities.items() if able) or "nothing"
        text = f"{self.application} on Spark {self.spark or 'of an unknown version'} can: {can}"
        if self.capabilities.quota_only:
            why = "; ".join(f"{name}: {self.missing[name]}" for name in ("hold", "priority"))
            text += f"; quota only ({why})"
        return text


class ExecutorState(msgspec.Struct, frozen=True):
    """An executor and its tasks."""

    id: str
    host: str
    cores: int
    running: int
    decommissioning: bool


class JobState(msgspec.Struct, frozen=True):
    """An active job and its stages."""

    job: int
    submitted_ms: int
    stages: tuple[int, ...]


class StageState(msgspec.Struct, frozen=True):
    """A stage of an active job.

    Attributes:
        stage: Its number in the application.
        name: What the program calls it.
        attempt: Which attempt the counts are of, from 0 on.
        jobs: Active jobs that need it.
        parents: Stages whose output it reads.
        tasks: Tasks of this attempt.
        running: Of these, running now.
        finished: Of these, done.
        failed: Tasks that failed, over all attempts.
        submitted: Its parents are done and its tasks are with the scheduler.
        done: It has ended well.
        skipped: Its output exists already: it will not run.
        held: It waits because of a hold.
        hold_requested: A hold was requested; the driver may run it nonetheless.
        schedulable: Its tasks start when executors are free.
        priority: Lower is served first; None where it is not submitted.
        mean_task_ms: Mean time of its finished tasks; 0 where none has finished.
        timed_tasks: Tasks in that mean.
        cpu_ns: CPU time of its tasks so far.
    """

    stage: int
    name: str
    attempt: int
    jobs: tuple[int, ...]
    parents: tuple[int, ...]
    tasks: int
    running: int
    finished: int
    failed: int
    submitted: bool
    done: bool
    skipped: bool
    held: bool
    hold_requested: bool
    schedulable: bool
    priority: int | None
    mean_task_ms: float
    timed_tasks: int
    cpu_ns: int

    @property
    def remaining(self) -> int:
        """Tasks that have not finished; none where it is done or will not run."""
        return 0 if self.done or self.skipped else max(0, self.tasks - self.finished)


class DriverState(msgspec.Struct, frozen=True):
    """An application at a moment.

    Attributes:
        application: Its id.
        time_ms: The driver's clock, since 1970.
        capabilities: What can be done to it.
        missing: Why the rest cannot.
        target: Executors that the agent has asked for; None where it has not.
        asked_for: Executors that Spark asks its cluster for; None where that is not known.
        executors: Those that are up.
        jobs: Active jobs.
        stages: Stages of active jobs, by number.
        lease_s: After that long without a heartbeat everything is released.
        lease_expiries: How often that has happened.
        let_go: How often a held stage was released because nothing else ran.
        degraded: What failed in the driver, if anything; everything was released then.
        finished_tasks: Tasks that ended well, since the application began.
        failed_tasks: Tasks that failed.
        above_target: Why there are more executors than the target, if there are.
        owed: There is no target any more, and the one before it is not yet restored: the cluster
            manager has not answered, or has refused and is asked again.
    """

    application: str
    time_ms: int
    capabilities: Capabilities
    missing: dict[str, str]
    target: int | None
    asked_for: int | None
    executors: tuple[ExecutorState, ...]
    jobs: tuple[JobState, ...]
    stages: tuple[StageState, ...]
    lease_s: float
    lease_expiries: int
    let_go: int
    degraded: str
    finished_tasks: int
    failed_tasks: int
    above_target: str = ""
    owed: bool = False

    def why_missing(self, capability: str) -> str:
        """Why a capability is missing, in the driver's words."""
        return self.missing.get(capability, "this driver does not support it")
