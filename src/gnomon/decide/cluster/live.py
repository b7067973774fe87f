"""A running application as policies see it, and what they answer.

How long a task takes is the mean of the tasks of its stage so far, or of all stages while none has
finished.
"""

from __future__ import annotations

import functools
import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.model.decima.network import DecimaView


class GridNow(msgspec.Struct, frozen=True, eq=False):
    """The grid at a moment.

    Attributes:
        intensity: g/kWh now.
        coming: Forecast of the hours after this one; with `high`, its upper end.
    """

    intensity: float
    coming: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def low_end(self) -> float:
        """The lowest intensity from now to the end of the forecast."""
        return float(min(self.intensity, self.coming.min(initial=math.inf)))

    @property
    def high_end(self) -> float:
        """The highest."""
        return float(max(self.intensity, self.coming.max(initial=0.0)))


class LiveStage(msgspec.Struct, frozen=True):
    """A stage of a running application.

    Attributes:
        jobs: Jobs that need it.
        parents: Stages that it waits for.
        remaining: Tasks that have not finished, the running ones included.
        task_s: How long one takes.
        submitted_s: When the first of its jobs was submitted, since 1970.
    """

    number: int
    jobs: tuple[int, ...]
    parents: tuple[int, ...]
    remaining: int
    running: int
    task_s: float
    submitted_s: float
    is_ready: bool


class LiveCluster(msgspec.Struct, frozen=True, eq=False, dict=True, kw_only=True):
    """An application and its grid at a moment.

    Attributes:
        now_s: The time, since 1970.
        hour_s: How long an hour of the grid takes here.
        executors: The most that it may have; None where nobody set that.
        slots: Tasks that can run at once.
        jobs: Active jobs, in order of submission.
    """

    now_s: float
    hour_s: float
    grid: GridNow
    executors: int | None = None
    slots: int = 1
    jobs: tuple[int, ...] = ()
    stages: tuple[LiveStage, ...] = ()

    @functools.cached_property
    def ready(self) -> list[LiveStage]:
        """Stages that could run."""
        return [stage for stage in self.stages if stage.is_ready]

    @functools.cached_property
    def work_s(self) -> float:
        """Of all stages, tasks that have not finished times how long one takes."""
        return sum(stage.remaining * stage.task_s for stage in self.stages)

    @functools.cached_property
    def path_s(self) -> dict[int, float]:
        """Path to end of each stage: from its start to the end of what waits for it."""
        own_s = {s.number: math.ceil(s.remaining / self.slots) * s.task_s for s in self.stages}
        children: dict[int, list[int]] = {number: [] for number in own_s}
        for stage in self.stages:
            for parent in stage.parents:
                if parent in children:
                    children[parent].append(stage.number)
        path_s: dict[int, float] = {}
        # A stage's number is higher than its parents': Spark numbers them from the sources on.
        for number in sorted(own_s, reverse=True):
            path_s[number] = own_s[number] + max(
                (path_s.get(child, own_s[child]) for child in children[number]), default=0.0
            )
        return path_s


class LiveDecision(msgspec.Struct, frozen=True):
    """What a policy wants of a running application.

    Attributes:
        quota: Executors that it may have; None where the policy sets none.
        hold: Stages to keep waiting, and why.
        order: Ready stages, first in line first; empty leaves the order to Spark.
        patience_h: Hours after its job's submission until which a stage may be held.
        longest_hold_h: Hours for which a stage may be held.
        quota_reason: Why this quota.
    """

    quota: int | None = None
    hold: dict[int, str] = {}
    order: tuple[int, ...] = ()
    patience_h: float = math.inf
    longest_hold_h: float = math.inf
    quota_reason: str = ""

    def holding(self, hold: dict[int, str]) -> LiveDecision:
        """The same with more stages held; a stage that is held already keeps its reason."""
        return msgspec.structs.replace(self, hold=hold | self.hold)

    def ordered_by(self, weights: dict[int, float]) -> LiveDecision:
        """The same with stages in the order of their weights."""
        order = tuple(sorted(weights, key=lambda stage: (-weights[stage], stage)))
        return msgspec.structs.replace(self, order=order)

    def at_most(self, quota: int, reason: str) -> LiveDecision:
        """The same with a quota; the lower of two holds."""
        if self.quota is not None:
            quota = min(quota, self.quota)
        return msgspec.structs.replace(self, quota=quota, quota_reason=self.quota_reason or reason)

    def bounded(self, patience_h: float, longest_hold_h: float = math.inf) -> LiveDecision:
        """The same with holds at least as short."""
        return msgspec.structs.replace(
            self,
            patience_h=min(self.patience_h, patience_h),
            longest_hold_h=min(self.longest_hold_h, longest_hold_h),
        )


def decima_view(cluster: LiveCluster) -> tuple[DecimaView, list[int]]:
    """The application as Decima sees a cluster, and the stages that it may choose from.

    A slot is an executor there. A stage that several jobs need belongs to the first; one whose
    jobs have all ended is left out.
    """
    place = {job: number for number, job in enumerate(cluster.jobs)}
    by_job: list[list[LiveStage]] = [[] for _ in cluster.jobs]
    for stage in cluster.stages:
        owners = [place[job] for job in stage.jobs if job in place]
        if stage.remaining and owners:
            by_job[min(owners)].append(stage)
    nodes = [stage for stages in by_job for stage in stages]
    node_of = {stage.number: node for node, stage in enumerate(nodes)}
    children: list[list[int]] = [[] for _ in nodes]
    for node, stage in enumerate(nodes):
        for parent in stage.parents:
            if parent in node_of:
                children[node_of[parent]].append(node)
    unstarted = [max(0, stage.remaining - stage.running) for stage in nodes]
    running = [sum(stage.running for stage in stages) for stages in by_job]
    choices = [stage.number for stage in cluster.ready if stage.number in node_of]
    ints, floats = np.int32, np.float32
    view = DecimaView(
        job_first=np.cumsum([0, *map(len, by_job)], dtype=ints),
        job_executors=np.array(running, dtype=floats),
        source_job=-1,
        free_executors=float(max(0, cluster.slots - sum(running))),
        work_ms=np.array(
            [left * 1e3 * stage.task_s for left, stage in zip(unstarted, nodes)], dtype=floats
        ),
        tasks=np.array(unstarted, dtype=floats),
        child_first=np.cumsum([0, *map(len, children)], dtype=ints),
        child=np.array([child for own in children for child in own], dtype=ints),
        ready=np.array([node_of[number] for number in choices], dtype=ints),
    )
    return view, choices
