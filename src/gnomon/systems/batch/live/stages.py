"""The stages of a running Spark application: how far each is from its job's end, how likely next.

How long a task takes is what those of its stage took so far, or of all stages if none has ended.
"""

from __future__ import annotations

import math

import numpy as np

from gnomon.act.spark import DriverState
from gnomon.act.spark.state import StageState
from gnomon.model.decima.network import DecimaView, DecimaWeights, decima_probabilities

__all__ = ["ReadyStages", "decima_chances", "decima_view", "path_chances"]

#: Taken for the tasks of an application of which none has ended yet.
_UNSEEN_TASK_S = 1.0


class ReadyStages:
    """Stages that could run, and what stands behind them.

    Attributes:
        state: The application.
        stages: Stages that could run.
        slots: Tasks that can run at once.
        work_s: Of all stages of active jobs, tasks that have not ended times how long one takes.
        way_s: Of each stage, from its start to the end of what waits for it.
        submitted_s: When the first of its jobs came, since 1970.
    """

    def __init__(self, state: DriverState) -> None:
        self.state = state
        timed = [s for s in state.stages if s.timed_tasks]
        count = sum(s.timed_tasks for s in timed)
        total_ms = sum(s.mean_task_ms * s.timed_tasks for s in timed)
        self._usual_s = total_ms / count / 1e3 if count else _UNSEEN_TASK_S
        self.slots = max(1, sum(executor.cores for executor in state.executors))
        self.work_s = sum(stage.remaining * self.task_s(stage) for stage in state.stages)
        self.way_s = self._ways()
        self.stages = [
            stage
            for stage in state.stages
            if stage.submitted and stage.remaining and not stage.done and not stage.skipped
        ]
        begun = {job.job: job.submitted_ms / 1e3 for job in state.jobs}
        self.submitted_s = {
            stage.stage: min(
                (begun[j] for j in stage.jobs if j in begun), default=state.time_ms / 1e3
            )
            for stage in state.stages
        }

    def task_s(self, stage: StageState) -> float:
        """How long one of its tasks takes."""
        return stage.mean_task_ms / 1e3 or self._usual_s

    def _ways(self) -> dict[int, float]:
        stages = {stage.stage: stage for stage in self.state.stages}
        own_s = {
            number: math.ceil(stage.remaining / self.slots) * self.task_s(stage)
            for number, stage in stages.items()
        }
        children: dict[int, list[int]] = {number: [] for number in stages}
        for number, stage in stages.items():
            for parent in stage.parents:
                if parent in children:
                    children[parent].append(number)
        ways: dict[int, float] = {}
        # A stage's number is higher than its parents': Spark numbers them from the sources on.
        for number in sorted(stages, reverse=True):
            ways[number] = own_s[number] + max(
                (ways.get(child, own_s[child]) for child in children[number]), default=0.0
            )
        return ways


def path_chances(ready: ReadyStages, *, sharpness: float) -> dict[int, float]:
    """The likelier the longer the way to the end: a softmax, the likeliest being 1."""
    longest = max((ready.way_s[s.stage] for s in ready.stages), default=0.0) or 1.0
    return {
        s.stage: math.exp(sharpness * (ready.way_s[s.stage] / longest - 1.0)) for s in ready.stages
    }


def decima_chances(ready: ReadyStages, *, weights: DecimaWeights) -> dict[int, float]:
    """What Decima would draw from, if all these stages could be served."""
    view, numbers = decima_view(ready)
    if not numbers:
        return {}
    chances, _ = decima_probabilities(weights, view, job=0, lowest=1, highest=1)
    return {number: float(chance) for number, chance in zip(numbers, chances)}


def decima_view(ready: ReadyStages) -> tuple[DecimaView, list[int]]:
    """The application as Decima sees a cluster, and the stages that it may choose from.

    A slot is an executor there. A stage that several jobs need is the first one's; one whose jobs
    have ended is nobody's, and left out.
    """
    jobs = sorted(ready.state.jobs, key=lambda job: (job.submitted_ms, job.job))
    place = {job.job: number for number, job in enumerate(jobs)}
    by_job: list[list[StageState]] = [[] for _ in jobs]
    for stage in ready.state.stages:
        owners = [place[job] for job in stage.jobs if job in place]
        if stage.remaining and owners:
            by_job[min(owners)].append(stage)
    nodes = [stage for stages in by_job for stage in stages]
    node_of = {stage.stage: node for node, stage in enumerate(nodes)}
    children: list[list[int]] = [[] for _ in nodes]
    for node, stage in enumerate(nodes):
        for parent in stage.parents:
            if parent in node_of:
                children[node_of[parent]].append(node)
    unstarted = [max(0, stage.remaining - stage.running) for stage in nodes]
    running = [sum(stage.running for stage in stages) for stages in by_job]
    choices = [stage.stage for stage in ready.stages if stage.stage in node_of]
    ints, floats = np.int32, np.float32
    view = DecimaView(
        job_first=np.cumsum([0, *map(len, by_job)], dtype=ints),
        job_executors=np.array(running, dtype=floats),
        source_job=-1,
        free_executors=float(max(0, ready.slots - sum(running))),
        work_ms=np.array(
            [left * 1e3 * ready.task_s(stage) for left, stage in zip(unstarted, nodes)],
            dtype=floats,
        ),
        tasks=np.array(unstarted, dtype=floats),
        child_first=np.cumsum([0, *map(len, children)], dtype=ints),
        child=np.array([child for own in children for child in own], dtype=ints),
        ready=np.array([node_of[number] for number in choices], dtype=ints),
    )  # fmt: skip
    return view, choices
