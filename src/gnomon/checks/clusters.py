"""Cases for policies of a cluster, and what holds of every run, task by task."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from gnomon.decide.cluster import ClusterPolicy, simulate
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.sim.cluster import Executors, GridSteps, TaskLog
from gnomon.units import SECOND_NS

_SEED = 20_240_229


class ClusterCase(msgspec.Struct, frozen=True, eq=False):
    """Jobs, what runs them, and the grid meanwhile."""

    jobs: BatchJobs
    executors: Executors
    grid: GridSteps


class ClusterTasks(msgspec.Struct, frozen=True, eq=False):
    """What a run did: its tasks and the end of each job."""

    log: TaskLog
    finish_ns: np.ndarray[tuple[int], np.dtype[np.int64]]


def run_cluster_case(policy: ClusterPolicy, case: ClusterCase) -> ClusterTasks:
    """One case under a policy."""
    run = simulate(policy, case.jobs, case.executors, grid=case.grid, seed=_SEED, log_tasks=True)
    return ClusterTasks(run.log, run.finish_ns)


def every_task_runs_once(case: ClusterCase, run: ClusterTasks) -> None:
    """All jobs end, after they came, with as many tasks as they have."""
    tasks = len(run.log.job)
    assert tasks == case.jobs.task_count, f"{tasks} of {case.jobs.task_count} tasks"
    assert (run.finish_ns > case.jobs.arrival_ns).all(), "a job ends before it comes"


def precedence(case: ClusterCase, run: ClusterTasks) -> None:
    """No stage starts before those that it waits for are done."""
    log, kinds = run.log, case.jobs.kinds
    stage = kinds.first_stage[case.jobs.kind[log.job]] + log.stage
    for parent, child in _edges(kinds):
        for job in np.unique(log.job[stage == child]):
            own = log.job == job
            begun = log.start_ns[own & (stage == child)].min()
            done = log.end_ns[own & (stage == parent)].max()
            assert done <= begun, f"a stage of job {job} starts too early"


def one_task_at_a_time(case: ClusterCase, run: ClusterTasks) -> None:
    """No executor runs two tasks at once."""
    log = run.log
    order = np.lexsort((log.start_ns, log.executor))
    same = np.diff(log.executor[order]) == 0
    overlaps = log.end_ns[order][:-1] > log.start_ns[order][1:]
    assert not (same & overlaps).any(), "an executor runs two tasks"


CLUSTER_INVARIANTS: dict[str, Callable[[ClusterCase, ClusterTasks], None]] = {
    check.__name__: check for check in (every_task_runs_once, precedence, one_task_at_a_time)
}


def cluster_cases(seed: int = _SEED) -> dict[str, ClusterCase]:
    """Clusters: without a job, with one, with far too many, and some at random.

    >>> list(cluster_cases())[:3]
    ['empty', 'single', 'overloaded']
    """
    rng = np.random.default_rng(seed)
    cases = {
        "empty": _case(rng, jobs=0, executors=2),
        "single": _case(rng, jobs=1, executors=1),
        "overloaded": _case(rng, jobs=40, executors=2, apart_s=0.0),
        "alone": _case(rng, jobs=3, executors=50),
    }
    for number in range(3):
        cases[f"random-{number}"] = _case(rng, jobs=8, executors=int(rng.integers(2, 12)))
    return cases


def _case(
    rng: np.random.Generator, jobs: int, executors: int, apart_s: float = 40.0
) -> ClusterCase:
    kinds = JobKinds.build({f"kind {number}": _stages(rng) for number in range(4)})
    arrival_ns = np.cumsum(rng.exponential(apart_s, jobs) * SECOND_NS).astype(np.int64)
    day = 300.0 + 200.0 * np.sin(np.arange(400) * (2 * np.pi / 24)) + rng.normal(0.0, 20.0, 400)
    return ClusterCase(
        BatchJobs.of(kinds, rng.integers(0, len(kinds), jobs), arrival_ns),
        Executors(count=executors),
        GridSteps.known(np.maximum(day, 0.0), 60 * SECOND_NS),
    )


def _stages(rng: np.random.Generator) -> list[Stage]:
    stages = []
    for position in range(int(rng.integers(1, 6))):
        durations = (rng.exponential(8.0, (3, 3)) * SECOND_NS).astype(np.int64) + 1
        parents = rng.choice(position, min(position, int(rng.integers(0, 3))), replace=False)
        waves = {2: Waves(*durations), 8: Waves(*(durations * 3 // 2))}
        stages.append(Stage(int(rng.integers(1, 8)), waves, tuple(parents.tolist())))
    return stages


def _edges(kinds: JobKinds) -> Iterator[tuple[int, int]]:
    for stage in range(kinds.stage_count):
        for parent in kinds.parents_of(stage).tolist():
            yield parent, stage
