"""A running Spark application as policies see it."""

from __future__ import annotations

from gnomon.act.spark import DriverState
from gnomon.act.spark.state import StageState
from gnomon.decide.cluster.live import GridNow, LiveCluster, LiveStage

#: Assumed for the tasks of an application while none has finished.
_UNSEEN_TASK_S = 1.0


def live_cluster(
    state: DriverState, grid: GridNow, *, now_s: float, hour_s: float, executors: int | None
) -> LiveCluster:
    """The application with its grid.

    How long a task takes is the mean of the finished tasks of its stage, or of all stages while
    the stage has none.
    """
    timed = [stage for stage in state.stages if stage.timed_tasks]
    count = sum(stage.timed_tasks for stage in timed)
    total_ms = sum(stage.mean_task_ms * stage.timed_tasks for stage in timed)
    usual_s = total_ms / count / 1e3 if count else _UNSEEN_TASK_S
    jobs = sorted(state.jobs, key=lambda job: (job.submitted_ms, job.job))
    submitted_s = {job.job: job.submitted_ms / 1e3 for job in jobs}

    def live_stage(stage: StageState) -> LiveStage:
        begun = [submitted_s[job] for job in stage.jobs if job in submitted_s]
        return LiveStage(
            stage.stage, stage.jobs, stage.parents, stage.remaining, stage.running,
            task_s=stage.mean_task_ms / 1e3 or usual_s,
            submitted_s=min(begun, default=state.time_ms / 1e3),
            is_ready=stage.submitted and stage.remaining > 0,
        )  # fmt: skip

    return LiveCluster(
        now_s=now_s, hour_s=hour_s, grid=grid, executors=executors,
        slots=max(1, sum(executor.cores for executor in state.executors)),
        jobs=tuple(job.job for job in jobs),
        stages=tuple(live_stage(stage) for stage in state.stages),
    )  # fmt: skip
