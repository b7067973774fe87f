"""Random small clusters for property tests: jobs, what runs them, and a grid."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gnomon.graph.jobs import BatchJobs, JobKinds, Stage, Waves
from gnomon.sim.cluster import NEVER_NS, ClusterRun, Executors, GridSteps

#: Few and short, so that much happens at one time.
LENGTHS = (0, 1, 2, 3, 5, 8, 13)

# How many of each thing is Hypothesis' choice, what is in them a generator's: a tenth of the time,
# and what fails is still small.


def durations(rng: np.random.Generator, least: int = 1) -> list[int]:
    return rng.choice(LENGTHS, rng.integers(least, 4)).tolist()


def waves(rng: np.random.Generator) -> Waves:
    parts = [durations(rng, least=0) for _ in range(3)]
    return Waves(*parts) if any(parts) else Waves(first=durations(rng))


def stage(rng: np.random.Generator, position: int) -> Stage:
    levels = rng.choice([1, 2, 4], rng.integers(1, 4), replace=False).tolist()
    parents = rng.choice(position, min(position, int(rng.integers(0, 4))), replace=False)
    return Stage(
        int(rng.integers(1, 7)), {level: waves(rng) for level in levels}, tuple(parents.tolist()),
        cpu_ns=int(rng.choice([0, 0, 2, 30])),
    )  # fmt: skip


def job_kinds(rng: np.random.Generator, most_stages: int) -> JobKinds:
    return JobKinds.build(
        {
            f"k{kind}": [stage(rng, n) for n in range(rng.integers(1, most_stages + 1))]
            for kind in range(rng.integers(1, 4))
        }
    )


@st.composite
def batches(
    draw, max_jobs: int = 6, min_jobs: int = 0, max_stages: int = 5, with_after: bool = True
) -> BatchJobs:
    count = draw(st.integers(min_jobs, max_jobs))
    most_stages = draw(st.integers(1, max_stages))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kinds = job_kinds(rng, most_stages)
    is_after = (rng.random(count) < 0.25) & with_after
    return BatchJobs.of(
        kinds,
        rng.integers(0, len(kinds), count),
        np.sort(rng.integers(0, draw(st.sampled_from([1, 40])), count)),
        after=[int(rng.integers(-1, job)) if later else -1 for job, later in enumerate(is_after)],
        application=rng.integers(0, 3, count) if draw(st.booleans()) else None,
        deadline_ns=rng.choice([0, 30, 100, NEVER_NS], count) if draw(st.booleans()) else None,
        weight=rng.choice([1, 2, 3], count) if draw(st.booleans()) else None,
    )


@st.composite
def executors(draw, *, faults: bool = True, all_there: bool = False) -> Executors:
    count = draw(st.integers(1, 6))
    settings = {
        "moving_delay_ns": draw(st.integers(0, 4)),
        "startup_ns": draw(st.integers(0, 4)),
        "off_after_ns": draw(st.none() | st.integers(0, 8)),
    }
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()):
        settings["speed"] = tuple(rng.choice([0.5, 1.0, 1.5, 3.0], count).tolist())
    if not all_there and draw(st.booleans()):
        comes = rng.choice([0, 5, 40], count)
        settings["from_ns"] = tuple(comes.tolist())
        # The first one stays, so that all jobs end.
        until = np.where(rng.random(count) < 0.5, comes + rng.choice([1, 20], count), NEVER_NS)
        settings["until_ns"] = (NEVER_NS, *until[1:].tolist())
    if faults and draw(st.booleans()):
        settings["straggler_chance"] = draw(st.sampled_from([0.0, 0.3]))
        settings["straggler_factor"] = draw(st.sampled_from([0.2, 2.5]))
        settings["task_failure_chance"] = draw(st.sampled_from([0.0, 0.3]))
        # Once in fifty nanoseconds: tasks take some five.
        settings["failures_per_hour"] = draw(st.sampled_from([0.0, 3.6e12 / 50]))
    return Executors(count=count, **settings)


@st.composite
def grids(draw, max_steps: int = 12) -> GridSteps:
    values = draw(
        st.lists(st.sampled_from([0, 20, 100, 300, 500]), min_size=1, max_size=max_steps)
    )
    return GridSteps.known(values, draw(st.integers(1, 15)), horizon=draw(st.integers(1, 6)))


def log_of(run: ClusterRun) -> list[tuple[int, ...]]:
    """Every task: job, stage, executor, wave, failed, start, end."""
    log = run.log
    columns = (log.job, log.stage, log.executor, log.wave, log.failed, log.start_ns, log.end_ns)
    return list(zip(*(column.tolist() for column in columns)))


def check_run(jobs: BatchJobs, many: int, run: ClusterRun) -> None:
    """What holds of every run, whoever decided."""
    log = log_of(run)
    done = {}
    by_executor: dict[int, list[tuple[int, int]]] = {}
    for job, stage, executor, _, failed, start, end in log:
        assert 0 <= executor < many
        assert start >= run.arrival_ns[job]
        by_executor.setdefault(executor, []).append((start, end))
        if not failed:
            done.setdefault((job, stage), []).append(end)
    for spans in by_executor.values():
        ordered = sorted(spans)
        assert all(a[1] <= b[0] for a, b in zip(ordered, ordered[1:])), "an executor ran two"
    of = jobs.kinds
    for job, kind in enumerate(jobs.kind.tolist()):
        stages = of.stages_of(kind)
        counts = [len(done.get((job, s - stages.start), [])) for s in stages]
        assert counts == of.tasks[stages.start : stages.stop].tolist(), "a task ran twice or never"
        assert run.finish_ns[job] == max(max(done[job, s - stages.start]) for s in stages)
    ended = {key: max(ends) for key, ends in done.items()}
    for job, stage, *_, start, _ in log:
        first = int(of.first_stage[jobs.kind[job]])
        for parent in of.parents_of(first + stage).tolist():
            assert ended[job, parent - first] <= start, "a stage ran before one it waits for"
    for job, after in enumerate(jobs.after.tolist()):
        if after >= 0:
            assert run.arrival_ns[job] == run.finish_ns[after] + jobs.arrival_ns[job]


def busy_between(run: ClusterRun, step_ns: int, steps: int) -> np.ndarray:
    """Executor time by step, from the log alone."""
    edges = np.arange(steps + 1) * step_ns
    start, end = run.log.start_ns[:, None], run.log.end_ns[:, None]
    inside = np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1])
    return np.maximum(inside, 0)
