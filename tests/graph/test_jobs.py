from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.graph.jobs import WAVES, BatchJobs, JobKinds, Stage, Waves


def one(**waves):
    return JobKinds.build({"a": [Stage(3, {4: Waves(**waves)})]})


@pytest.mark.parametrize(
    ("given_waves", "means"),
    [
        (dict(fresh=[9], first=[5, 7], rest=[2]), [9, 6, 2]),
        (dict(first=[5, 7]), [6, 6, 6]),
        (dict(rest=[2]), [2, 2, 2]),
        (dict(fresh=[9]), [9, 9, 9]),
        (dict(fresh=[9], rest=[2]), [9, 2, 2]),
    ],
    ids=["all", "first", "rest", "fresh", "without-first"],
)
def test_a_wave_without_samples_takes_its_neighbours(given_waves, means):
    assert one(**given_waves).mean_ns[0, :, 0].tolist() == means


def test_levels_come_from_the_nearest():
    few = Stage(1, {2: Waves(first=[10])})
    many = Stage(1, {8: Waves(first=[30]), 20: Waves(first=[70])})
    kinds = JobKinds.build({"a": [few], "b": [many]})
    assert kinds.levels.tolist() == [2, 8, 20]
    assert kinds.mean_ns[:, 1].tolist() == [[10, 10, 10], [30, 30, 70]]
    assert kinds.sample_ns.tolist() == [10, 30, 70]  # nothing is kept twice


def test_stages_and_parents_count_over_all_kinds():
    a, b = Stage(2, {1: Waves(first=[1])}), Stage(3, {1: Waves(first=[1])}, parents=(0, 0))
    kinds = JobKinds.build({"x": [a, b], "y": [a, b]})
    assert kinds.kind_of_stage.tolist() == [0, 0, 1, 1]
    assert [kinds.parents_of(stage).tolist() for stage in range(4)] == [[], [0], [], [2]]
    assert list(kinds.stages_of(1)) == [2, 3]


def test_what_is_told_of_a_task_counts_more_than_its_samples():
    told = Stage(1, {1: Waves(fresh=[1010], first=[10])}, typical_ns=10.0)
    kinds = JobKinds.build({"a": [told, Stage(1, {1: Waves(fresh=[1010], first=[10])})]})
    assert kinds.typical_ns.tolist() == [10.0, 510.0]


def test_an_executor_is_fresh_once_in_a_job():
    narrow = Stage(2, {4: Waves(fresh=[100], first=[10], rest=[1])})
    wide = Stage(6, {4: Waves(fresh=[50], first=[20], rest=[2])}, parents=(0,))
    kinds = JobKinds.build({"a": [narrow, wide], "b": [wide_alone := Stage(6, wide.waves)]})
    assert wide_alone.parents == ()
    # Two fresh; then two of four that the wide one uses are fresh, four first, two of the rest.
    a = 2 * 100 + (4 * 20 + 2 * 2 + 2 * (50 - 20))
    b = 4 * 50 + 2 * 2
    assert kinds.work_ns(4).tolist() == [a, b]


def test_path_counts_rounds():
    first = Stage(5, {2: Waves(first=[10], rest=[3])})
    last = Stage(1, {2: Waves(first=[7])}, parents=(0,))
    kinds = JobKinds.build({"a": [first, last]})
    assert kinds.path_ns(2).tolist() == [10 + 2 * 3 + 7, 7]


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ([], "no stages"),
        ([Stage(0, {1: Waves(first=[1])})], "0 tasks"),
        ([Stage(1, {1: Waves()})], "no durations"),
        ([Stage(1, {})], "no durations"),
        ([Stage(1, {0: Waves(first=[1])})], "0 executors"),
        ([Stage(1, {1: Waves(first=[-1])})], "below zero"),
        ([Stage(1, {1: Waves(first=[1 << 61])})], "36 years"),
        ([Stage(1, {1: Waves(first=[1])}, parents=(0,))], "waits for itself"),
        ([Stage(1, {1: Waves(first=[1])}, cpu_ns=-1)], "CPU"),
    ],
    ids=["empty", "tasks", "samples", "levels", "level", "negative", "long", "cycle", "cpu"],
)
def test_wrong_stages_are_refused(stages, says):
    with pytest.raises(InputError, match=says):
        JobKinds.build({"a": stages})


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (dict(kind=[1], arrival_ns=[0]), "does not exist"),
        (dict(kind=[-1], arrival_ns=[0]), "does not exist"),
        (dict(kind=[0, 0], arrival_ns=[0]), "1 values for 2 jobs"),
        (dict(kind=[0, 0], arrival_ns=[5, 4]), "order of their arrivals"),
        (dict(kind=[0], arrival_ns=[-1]), "before zero"),
        (dict(kind=[0, 0], arrival_ns=[0, 0], after=[1, -1]), "not before it"),
        (dict(kind=[0], arrival_ns=[0], after=[-2]), "not before it"),
        (dict(kind=[0], arrival_ns=[0], application=[-1]), "below zero"),
        (dict(kind=[0], arrival_ns=[0], weight=[0.0]), "weight"),
    ],
    ids=["kind", "below", "length", "order", "early", "itself", "odd", "application", "weight"],
)
def test_wrong_jobs_are_refused(columns, says):
    with pytest.raises(InputError, match=says):
        BatchJobs.of(one(first=[1]), **columns)


def test_think_times_need_not_rise():
    jobs = BatchJobs.of(one(first=[1]), [0, 0, 0], [0, 9, 4], after=[-1, 0, -1])
    assert jobs.after.tolist() == [-1, 0, -1]
    assert jobs.task_count == 9


durations = st.lists(st.integers(0, 10**12), max_size=5)


@st.composite
def stages_of_a_job(draw):
    stages = []
    for position in range(draw(st.integers(1, 5))):
        waves = draw(
            st.dictionaries(
                st.integers(1, 200),
                st.builds(Waves, durations, durations, durations),
                min_size=1,
                max_size=3,
            ).filter(lambda found: any(sum(map(len, w)) for w in found.values()))
        )
        parents = draw(st.sets(st.integers(0, position - 1))) if position else set()
        stages.append(Stage(draw(st.integers(1, 300)), waves, tuple(parents)))
    return stages


@given(st.lists(stages_of_a_job(), min_size=1, max_size=3))
def test_prop_every_stage_has_durations_in_every_wave_and_level(jobs):
    kinds = JobKinds.build({f"k{number}": stages for number, stages in enumerate(jobs)})
    flat = [stage for stages in jobs for stage in stages]
    assert kinds.stage_count == len(flat)
    assert kinds.sample_count.min() >= 1
    assert (kinds.sample_first + kinds.sample_count).max() <= kinds.sample_ns.size
    # Nothing measured is lost, nothing is made up.
    given_ns = [max(v, 1) for s in flat for w in s.waves.values() for run in w for v in run]
    assert sorted(kinds.sample_ns.tolist()) == sorted(given_ns)
    assert kinds.mean_ns.shape == (len(flat), len(WAVES), len(kinds.levels))
    for stage, built in enumerate(flat):
        assert all(parent < stage for parent in kinds.parents_of(stage))
        assert len(kinds.parents_of(stage)) == len(set(built.parents))
        for level, waves in built.waves.items():
            at = kinds.levels.tolist().index(level)
            for wave, run in enumerate(waves):
                if len(run):
                    expected = np.maximum(run, 1).mean()
                    assert kinds.mean_ns[stage, wave, at] == pytest.approx(expected)


@given(st.lists(stages_of_a_job(), min_size=1, max_size=3), st.integers(1, 150))
def test_prop_work_lies_between_all_rest_and_all_slowest(jobs, executors):
    kinds = JobKinds.build({f"k{number}": stages for number, stages in enumerate(jobs)})
    level = int(np.abs(kinds.levels - executors).argmin())
    at_level = kinds.mean_ns[:, :, level] * kinds.tasks[:, None]
    low = np.add.reduceat(at_level.min(axis=1), kinds.first_stage[:-1])
    high = np.add.reduceat(at_level.max(axis=1), kinds.first_stage[:-1])
    work = kinds.work_ns(executors)
    assert (work >= low * (1 - 1e-9) - 1e-3).all()
    assert (work <= high * (1 + 1e-9) + 1e-3).all()
