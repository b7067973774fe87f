"""What every policy of a cluster must keep to: whole runs of it are looked at, task by task."""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from gnomon.checks.equality import is_same
from gnomon.checks.evaluate import from_repr
from gnomon.checks.outcome import Check, Outcome, run_checks
from gnomon.decide.cluster import ClusterPolicy, PythonPolicy, cluster_policies, simulate
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.sim.cluster import ClusterRun, Executors, GridSteps
from gnomon.units import SECOND_NS

__all__ = ["ClusterCase", "cluster_cases", "cluster_policy", "cluster_policy_checks"]

AnyPolicy = ClusterPolicy | PythonPolicy
Maker = Callable[[], AnyPolicy]
Subject = AnyPolicy | Maker | str

_SEED = 20_240_229
_EXTREMES = ("empty", "single", "overloaded")


class ClusterCase(msgspec.Struct, frozen=True, eq=False):
    """Jobs, what runs them, and the grid meanwhile."""

    jobs: BatchJobs
    executors: Executors
    grid: GridSteps


def cluster_policy(
    subject: Subject, *, time_limit_s: float = 20.0, raises: bool = True
) -> list[Outcome]:
    """Run every check that applies to a policy of a cluster.

    Args:
        subject: a policy, something that makes one when called, or a spec such as "cap:fifo".
        time_limit_s: the time one run of a few hundred tasks may take.
        raises: raise the first failure as a CheckFailed, or give all outcomes.

    >>> {outcome.status for outcome in cluster_policy("fair")}
    {'passed'}
    """
    return run_checks(cluster_policy_checks(subject, time_limit_s=time_limit_s), raises=raises)


def cluster_policy_checks(subject: Subject, *, time_limit_s: float = 20.0) -> Iterator[Check]:
    """Yield the checks that apply, for those who run them one by one.

    >>> [check.name for check in cluster_policy_checks("fifo")][:2]
    ['check_time_bounded', 'check_same_seed_same_answer']
    """
    make = _maker(subject)
    cases = cluster_cases()

    def bound(check: Callable[..., None], **arguments: str) -> Check:
        run = functools.partial(check, make, cases, **arguments)
        return Check("_".join([check.__name__, *arguments.values()]), run)

    # First, and vital: a policy that hangs would hang the other checks as well.
    bounded = functools.partial(check_time_bounded, make, cases, time_limit_s)
    yield Check("check_time_bounded", bounded, is_vital=True)
    yield bound(check_same_seed_same_answer)
    yield bound(check_every_task_runs_once)
    yield bound(check_precedence)
    yield bound(check_one_task_at_a_time)
    for case in _EXTREMES:
        yield bound(check_survives, case=case)
    yield bound(check_pickles)
    if isinstance(make(), msgspec.Struct):
        yield bound(check_repr_evaluates_back)


def check_time_bounded(make: Maker, cases: dict[str, ClusterCase], limit_s: float) -> None:
    """Every run ends within the limit, at the second try if the machine was busy."""
    for name, case in cases.items():
        is_quick = any(_run_time_s(make(), case, limit_s) < limit_s for _ in range(2))
        assert is_quick, f"{name!r} was not done within {limit_s:g} s"


def check_same_seed_same_answer(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """Two of the same kind on the same seed run the same tasks at the same times."""
    for name, case in cases.items():
        assert is_same(_tasks(make(), case), _tasks(make(), case)), (
            f"other tasks in {name!r}, same seed"
        )


def check_every_task_runs_once(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """All jobs end, after they came, with as many tasks as they have."""
    for name, case in cases.items():
        run = _run(make(), case)
        assert run.tasks == case.jobs.task_count, (
            f"{run.tasks} of {case.jobs.task_count} tasks in {name!r}"
        )
        assert (run.finish_ns > run.arrival_ns).all(), f"a job ends before it comes in {name!r}"


def check_precedence(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """No stage starts before those that it waits for are done."""
    for name, case in cases.items():
        log, kinds = _run(make(), case).log, case.jobs.kinds
        stage = kinds.first_stage[case.jobs.kind[log.job]] + log.stage
        for parent, child in _edges(kinds):
            for job in np.unique(log.job[stage == child]):
                own = log.job == job
                begun = log.start_ns[own & (stage == child)].min()
                done = log.end_ns[own & (stage == parent)].max()
                assert done <= begun, f"a stage of job {job} in {name!r} starts too early"


def check_one_task_at_a_time(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """No executor runs two tasks at once."""
    for name, case in cases.items():
        log = _run(make(), case).log
        order = np.lexsort((log.start_ns, log.executor))
        same = np.diff(log.executor[order]) == 0
        overlaps = log.end_ns[order][:-1] > log.start_ns[order][1:]
        assert not (same & overlaps).any(), f"an executor runs two tasks in {name!r}"


def check_survives(make: Maker, cases: dict[str, ClusterCase], case: str) -> None:
    """A fresh policy on no job, on one, and on many more than there are executors."""
    run = _run(make(), cases[case])
    assert len(run.finish_ns) == len(cases[case].jobs)


def check_pickles(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """What comes out of a pickle decides as what went in: workers get policies that way."""
    subject = make()
    twin = pickle.loads(pickle.dumps(subject))
    assert type(twin) is type(subject), f"a {type(subject).__name__} became {type(twin).__name__}"
    for name, case in cases.items():
        assert is_same(_tasks(subject, case), _tasks(twin, case)), (
            f"unpickled, other tasks in {name!r}"
        )


def check_repr_evaluates_back(make: Maker, cases: dict[str, ClusterCase]) -> None:
    """The repr is the expression that makes it: what a log shows can be run again."""
    subject = make()
    twin = from_repr(subject)
    assert is_same(twin, subject), f"{subject!r} makes another: {twin!r}"


def cluster_cases(seed: int = _SEED) -> dict[str, ClusterCase]:
    """Clusters: without a job, with one, with far too many, and some by chance.

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
        cases[f"chance-{number}"] = _case(rng, jobs=8, executors=int(rng.integers(2, 12)))
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


def _run(subject: AnyPolicy, case: ClusterCase) -> ClusterRun:
    return simulate(subject, case.jobs, case.executors, grid=case.grid, seed=_SEED, log_tasks=True)


def _tasks(subject: AnyPolicy, case: ClusterCase) -> tuple[list[int], ...]:
    log = _run(subject, case).log
    columns = (log.job, log.stage, log.executor, log.start_ns, log.end_ns)
    return tuple(column.tolist() for column in columns)


def _run_time_s(subject: AnyPolicy, case: ClusterCase, limit_s: float) -> float:
    """The time of one run, given up on at the limit: a thread cannot be ended from here."""
    took_s: list[float] = []

    def run() -> None:
        start_s = time.perf_counter()
        # An error is not slow, and the other checks tell it under their own names.
        with contextlib.suppress(Exception):
            _run(subject, case)
        took_s.append(time.perf_counter() - start_s)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return took_s[0] if took_s else limit_s


def _maker(subject: Subject) -> Maker:
    """Something that makes fresh ones: checks must not see what an earlier check has taught."""
    if isinstance(subject, str):
        return functools.partial(cluster_policies.create, subject)
    if isinstance(subject, ClusterPolicy | PythonPolicy) and not isinstance(subject, type):
        return functools.partial(copy.deepcopy, subject)
    if callable(subject):
        return subject
    raise InputError(
        f"{subject!r} has neither parts() nor decide()", hint="give a policy or what makes one"
    )
