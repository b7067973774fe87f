from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.datasets import bundled
from gnomon.errors import InputError
from gnomon.ingest.spark.event_log import read_spark_log
from gnomon.ingest.spark.jobs import spark_jobs
from tests.ingest.spark.spark_events import (
    SMALL,
    app_end,
    app_start,
    environment,
    executor,
    job,
    job_end,
    lines,
    removed,
    task,
)

DATA = Path(__file__).parents[2] / "data" / "spark"
MS = 10**6


@pytest.fixture
def trace(tmp_path):
    def build(*logs, **options):
        read = []
        for number, events in enumerate(logs):
            file = tmp_path / f"app-{number}"
            file.write_bytes(lines(events))
            read.append(read_spark_log(file))
        return spark_jobs(read, **options)

    return build


def samples(kinds, stage, level):
    """Samples of a stage in milliseconds, by wave; shared ones are there again."""
    at = kinds.levels.tolist().index(level)
    first = kinds.sample_first.reshape(kinds.stage_count, 3, -1)[stage, :, at]
    count = kinds.sample_count.reshape(kinds.stage_count, 3, -1)[stage, :, at]
    return [(kinds.sample_ns[f : f + c] // MS).tolist() for f, c in zip(first, count)]


def test_waves_skipped_stages_and_think_times(trace):
    found = trace(SMALL)
    kinds = found.kinds
    assert kinds.names == ("app-1-job0", "app-1-job1")
    assert kinds.tasks.tolist() == [3, 1, 2, 2]
    assert [kinds.parents_of(s).tolist() for s in range(4)] == [[], [], [0, 1], []]
    assert kinds.levels.tolist() == [2]
    # Both executors' first tasks are fresh, and took the driver 10 ms to bring. The third was
    # launched 1 ms before the driver heard of the end of the one before it: that millisecond is
    # not its own.
    assert samples(kinds, 0, 2) == [[110, 120], [40], [40]]
    assert samples(kinds, 1, 2)[1] == [31]
    assert samples(kinds, 2, 2)[1] == [29, 39]
    assert found.jobs.after.tolist() == [-1, 0]
    assert (found.jobs.arrival_ns // MS).tolist() == [0, 100]
    assert found.jobs.application.tolist() == [0, 0]
    assert found.left_out == {"stages that were skipped": 1}
    assert found.executors == 2
    assert kinds.cpu_ns.tolist() == [1000] * 4


def test_edges_go_through_stages_that_did_not_run(trace):
    stages = {0: (1, []), 1: (5, [0]), 2: (5, [1]), 3: (1, [2, 0])}
    found = trace(
        [
            app_start(),
            executor(0),
            job(0, 10, stages),
            task(0, 0, 0, 11, 12),
            task(3, 0, 0, 13, 14),
            job_end(0, 15),
        ]
    )
    assert found.kinds.stage_names == ("stage 0", "stage 3")
    assert found.kinds.parents_of(1).tolist() == [0]
    assert found.left_out["stages that were skipped"] == 2


def test_attempts_are_counted_and_each_task_counts_once(trace):
    found = trace(
        [
            executor(0),
            executor(1),
            job(0, 10, {0: (2, [])}),
            task(0, 0, 0, 10, 30, reason="ExceptionFailure"),
            task(0, 0, 0, 30, 50),
            task(0, 1, 1, 10, 60),
            task(0, 0, 1, 60, 90, copy=True),
            task(0, 1, 0, 60, 64, reason="TaskKilled", copy=True),
            job_end(0, 100),
        ]
    )
    assert found.kinds.tasks.tolist() == [2]
    assert found.left_out == {
        "attempts of tasks that failed or were killed": 2,
        "copies of slow tasks": 2,
        "tasks that were run again": 1,
    }
    # Executor 0 was used by what failed, so its next task is not its first.
    assert samples(found.kinds, 0, 2) == [[50], [20], [20]]


def test_executors_of_several_cores_are_several_slots(trace):
    events = [
        environment(**{"spark.task.cpus": "2"}),
        executor(0, cores=4),
        job(0, 10, {0: (5, [])}),
        task(0, 0, 0, 10, 20),
        task(0, 1, 0, 10, 25),
        task(0, 2, 0, 20, 27),
        task(0, 3, 0, 26, 32),
        task(0, 4, 0, 27, 31),
        job_end(0, 40),
    ]
    found = trace(events)
    assert found.executors == 2
    assert found.kinds.levels.tolist() == [2]
    assert samples(found.kinds, 0, 2) == [[10, 15], [7, 4, 7], [7, 4, 7]]


def test_levels_follow_executors_that_come_and_go(trace):
    found = trace(
        [
            executor(0, 0),
            job(0, 10, {0: (4, [])}),
            task(0, 0, 0, 10, 20),
            executor(1, 25),
            task(0, 1, 1, 26, 40),
            task(0, 2, 0, 25, 45),
            removed(1, 50),
            task(0, 3, 0, 60, 70),
            job_end(0, 71),
            app_end(80),
        ]
    )
    assert found.kinds.levels.tolist() == [1, 2]
    assert samples(found.kinds, 0, 1) == [[10], [25], [25]]
    assert samples(found.kinds, 0, 2) == [[15], [25], [25]]
    assert found.executors == 2
    assert (found.held_from_ns // MS).tolist() == [0, 15, 40, 70]
    assert found.held.tolist() == [1, 2, 1, 0]


def test_executors_may_come_after_the_jobs(trace):
    late = [job(0, 10, {0: (1, [])}), executor(0, 500, cores=4), task(0, 0, 0, 510, 520)]
    found = trace([*late, job_end(0, 530)])
    assert (found.held_from_ns // MS).tolist() == [490]
    assert found.held.tolist() == [4]


def test_many_levels_become_a_few(trace):
    events = [job(0, 0, {0: (60, [])})]
    for number in range(60):
        events += [executor(number, 10 * number), task(0, number, number, 10 * number + 1, 10**4)]
    found = trace([*events, job_end(0, 10**5)])
    assert found.kinds.levels.min() == 1
    assert found.kinds.levels.max() == 60
    assert len(found.kinds.levels) <= 12
    assert found.kinds.sample_ns.size == 60


def chain(*jobs):
    """Jobs (submitted, ended) of one executor."""
    events = [executor(0)]
    for number, (submitted, ended) in enumerate(jobs):
        events += [
            job(number, submitted, {number: (1, [])}),
            task(number, 0, 0, submitted, ended),
            job_end(number, ended),
        ]
    return events


@pytest.mark.parametrize(
    ("jobs", "after", "arrival_ms"),
    [
        ([(100, 200), (250, 300)], [-1, 0], [0, 50]),
        ([(100, 200), (20_000, 20_100)], [-1, -1], [0, 19_900]),
        ([(100, 200), (9_000, 9_100)], [-1, 0], [0, 8_800]),
        ([(100, 5000), (150, 400), (900, 950)], [-1, -1, 1], [0, 50, 500]),
        ([(100, 5000), (150, 400), (2900, 2950)], [-1, -1, -1], [0, 50, 2800]),
        ([(100, 200), (200, 300)], [-1, 0], [0, 0]),
        ([(100, 200), (120, 190), (210, 300)], [-1, -1, 0], [0, 20, 10]),
        ([(100, 100), (100, 100)], [-1, 0], [0, 0]),
    ],
    ids=[
        "next",
        "much-later",
        "slow-driver",
        "thread",
        "open",
        "at-once",
        "last-of-two",
        "instant",
    ],
)
def test_what_a_job_waited_for(trace, jobs, after, arrival_ms):
    found = trace(chain(*jobs)).jobs
    assert found.after.tolist() == after
    assert (found.arrival_ns // MS).tolist() == arrival_ms


def test_applications_arrive_together(trace):
    found = trace(
        [app_start("app-1"), *chain((100, 200), (250, 300))],
        [app_start("app-2"), *chain((150, 400), (500, 600))],
    )
    assert found.kinds.names == ("app-1-job0", "app-2-job0", "app-1-job1", "app-2-job1")
    assert found.jobs.application.tolist() == [0, 1, 0, 1]
    assert found.jobs.after.tolist() == [-1, -1, 0, 1]
    assert (found.jobs.arrival_ns // MS).tolist() == [0, 50, 50, 100]
    assert found.executors == 2


def test_the_same_application_twice_keeps_its_jobs_apart(trace):
    found = trace(chain((1, 2)), chain((1, 2)))
    assert len(set(found.kinds.names)) == 2


def test_a_copy_of_a_log_counts_once(trace):
    one = [app_start("app-1"), *chain((100, 200), (250, 300))]
    found = trace(one, one[:-4], one, [app_start("app-2"), *chain((150, 400))])
    assert found.kinds.names == ("app-1-job0", "app-2-job0", "app-1-job1")
    assert found.executors == 2
    assert found.left_out["logs of an application that has another"] == 2


def test_a_stage_of_two_jobs_runs_in_the_first(trace):
    found = trace(
        [
            executor(0),
            job(0, 10, {0: (1, []), 1: (1, [0])}),
            job(1, 11, {0: (1, []), 2: (1, [0])}),
            task(0, 0, 0, 12, 20),
            task(1, 0, 0, 21, 25),
            task(2, 0, 0, 25, 30),
            job_end(0, 26),
            job_end(1, 31),
        ]
    )
    assert [len(found.kinds.stages_of(kind)) for kind in range(2)] == [2, 1]
    assert found.left_out["stages that two jobs waited for"] == 1


def test_jobs_that_did_not_succeed_are_counted(trace):
    events = [
        *chain((100, 200)),
        job(5, 300, {50: (1, [])}),
        task(50, 0, 0, 300, 310),
        job_end(5, 320, "JobFailed"),
        job(6, 400, {60: (2, [])}),
        task(60, 0, 0, 400, 410),
        job(7, 420, {70: (2, [])}),
        job_end(7, 430),
    ]
    found = trace(events)
    assert len(found.jobs) == 1
    assert found.left_out["jobs that failed"] == 1
    assert found.left_out["jobs that had not ended"] == 1
    assert found.left_out["jobs without a task of their own"] == 1
    assert found.notes == ("1 of 1 logs end before their application does.",)


def test_nothing_that_succeeded(trace):
    with pytest.raises(InputError, match="no job succeeded"):
        trace([app_start(), executor(0)])
    with pytest.raises(InputError, match="1 jobs that failed"):
        trace([executor(0), job(5, 300, {}), job_end(5, 320, "JobFailed")])
    with pytest.raises(InputError, match="no job succeeded"):
        spark_jobs([])


def test_stages_that_wait_for_one_another_are_refused_with_their_job(trace):
    odd = [job(9, 500, {90: (1, [91]), 91: (1, [90])}), task(90, 0, 0, 500, 501)]
    odd += [task(91, 0, 0, 502, 503), job_end(9, 510)]
    found = trace([*chain((100, 200)), *odd])
    assert len(found.jobs) == 1
    assert found.left_out["jobs whose stages wait for one another"] == 1


def test_a_real_small_application():
    found = spark_jobs([read_spark_log(DATA / "small.gz")])
    kinds = found.kinds
    assert [len(kinds.stages_of(kind)) for kind in range(6)] == [3, 1, 1, 1, 1, 1]
    assert found.left_out["stages that were skipped"] == 5
    assert found.jobs.after.tolist() == [-1, 0, 1, 2, 3, 4]
    assert found.executors == 2


def test_a_real_run_of_diamonds_keeps_its_work():
    """Three jobs at once, then two more; the driver's clock said 107.5 s on two executors."""
    found = spark_jobs([read_spark_log(bundled("spark-diamonds") / "diamonds.gz")])
    kinds = found.kinds
    assert np.diff(kinds.first_stage).tolist() == [5] * 5
    assert found.jobs.after.tolist() == [-1, -1, -1, 2, 3]
    diamond = [[], [], [0, 1], [2], [3]]
    for kind in range(5):
        begin = int(kinds.first_stage[kind])
        assert [[p - begin for p in kinds.parents_of(s)] for s in kinds.stages_of(kind)] == diamond
    assert found.jobs.task_count == 783
    # Executors were busy nearly all the time: what is kept of it fills two of them for as long.
    assert kinds.sample_ns.sum() / 2 / 1e9 == pytest.approx(107.5, rel=0.02)
    assert kinds.work_ns(2).sum() / 2 / 1e9 == pytest.approx(107.5, rel=0.02)


@st.composite
def random_runs(draw):
    """Tasks of random stages on random executors, in jobs that follow one another."""
    executors = draw(st.integers(1, 4))
    events = [executor(n, 0, cores=draw(st.integers(1, 3))) for n in range(executors)]
    clock, stage = 10, 0
    for number in range(draw(st.integers(1, 4))):
        planned, ran = {}, []
        for _ in range(draw(st.integers(1, 4))):
            tasks = draw(st.integers(1, 5))
            parents = draw(st.sets(st.sampled_from(sorted(planned)))) if planned else set()
            planned[stage] = (tasks, sorted(parents))
            if draw(st.booleans()):
                ran.append((stage, tasks))
            stage += 1
        events.append(job(number, clock, planned))
        for of, tasks in ran:
            for index in range(tasks):
                start = clock + draw(st.integers(0, 30))
                on = draw(st.integers(0, executors - 1))
                events.append(task(of, index, on, start, start + draw(st.integers(0, 50))))
        clock += 100
        events.append(job_end(number, clock))
        clock += draw(st.integers(0, 20_000))
    return events


@settings(max_examples=80)
@given(random_runs())
def test_prop_tasks_and_precedence_survive(tmp_path_factory, events):
    file = tmp_path_factory.mktemp("run") / "app"
    file.write_bytes(lines(events))
    log = read_spark_log(file)
    if not len(log.tasks):
        with pytest.raises(InputError, match="no job succeeded"):
            spark_jobs([log])
        return
    found = spark_jobs([log])
    assert found.jobs.task_count == len(log.tasks)
    assert found.kinds.sample_ns.size == len(log.tasks)
    # A task is as long as it ran, less an overlap, and with at most a second to be brought.
    ran_ms = np.maximum(log.tasks.finish_ms - log.tasks.launch_ms, 1)
    assert found.kinds.sample_ns.sum() <= ((ran_ms + 1000) * MS).sum()
    # Whatever was planned before a stage and ran, it still waits for, at once or through others.
    planned = {s.id: set(s.parents) for j in log.jobs for s in j.stages}
    ran = set(log.tasks.stage.tolist())

    def before(stage):
        direct = planned[stage]
        return direct | {far for near in direct for far in before(near)}

    kinds = found.kinds
    number = [int(name.split()[1]) for name in kinds.stage_names]

    def waits(stage):
        direct = set(kinds.parents_of(stage).tolist())
        return direct | {far for near in direct for far in waits(near)}

    for stage in range(kinds.stage_count):
        assert {number[s] for s in waits(stage)} == before(number[stage]) & ran


def test_what_the_driver_takes_to_bring_a_task_is_part_of_it_but_not_what_held_it_back(trace):
    found = trace(
        [
            executor(0),
            job(0, 100, {0: (2, []), 1: (1, [0])}),
            task(0, 0, 0, 140, 200),  # 40 ms after the job was there
            task(0, 1, 0, 205, 300),  # 5 ms after the slot came free
            task(1, 0, 0, 2000, 2100),  # held for more than a driver takes
            job_end(0, 2100),
        ]
    )
    first, last = samples(found.kinds, 0, 1), samples(found.kinds, 1, 1)
    assert first[0] == [100]
    assert first[2] == [100]
    assert last[1] == [100]
