from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.datasets._balanced import balanced, even_ranks
from gnomon.datasets._job_parameters import parameters
from gnomon.datasets._tpch_like import scan_tasks
from gnomon.datasets.batch_jobs import (
    alibaba_like,
    fixed_arrivals,
    poisson_arrivals,
    sample_jobs,
    tpch_like,
)
from gnomon.errors import InputError
from gnomon.ingest.stages.decima_tpch import read_tpch

ROOT = Path(__file__).resolve().parents[2]
REAL = "batch/decima-tpch/tpch_decima_154jobs.json.gz"
LEVELS = (5, 20, 50, 100)
#: Executor-seconds of a query at these numbers of executors, as measured, by GB.
MEASURED_S = {2: (64, 109, 195, 375), 10: (187, 248, 383, 631), 50: (818, 905, 1148, 1617)}


def rng(seed=0):
    return np.random.default_rng(seed)


def of_size(kinds, size):
    return np.array([name.startswith(f"{size}g-") for name in kinds.names])


@pytest.mark.parametrize("seed", range(8))
def test_executor_seconds_are_as_measured(seed):
    """With as many queries as TPC-H has, and no more luck than a seed."""
    kinds = tpch_like(rng(seed))
    for size, work_s in MEASURED_S.items():
        for executors, expected in zip(LEVELS, work_s):
            found = kinds.work_ns(executors)[of_size(kinds, size)].mean() / 1e9
            assert found == pytest.approx(expected, rel=0.10), (size, executors)


def test_waves_are_as_measured():
    """Fresh tasks of scans take 2 to 6 s, those of the rest wave of a shuffle far below one."""
    kinds = tpch_like(rng(1), queries=44, sizes_gb=(10,))
    scans = np.array([name in ("lineitem", "orders") for name in kinds.stage_names])
    shuffles = np.array([name in ("join", "aggregate") for name in kinds.stage_names])
    fresh, first, rest = (kinds.mean_ns[:, wave].mean(axis=1) / 1e9 for wave in range(3))
    assert 3.0 < fresh[scans].mean() < 6.0
    assert 1.5 < rest[scans].mean() < 4.0
    assert 0.03 < rest[shuffles].mean() < 0.3
    assert (fresh.mean() > first.mean()) & (first.mean() > rest.mean())
    by_level = kinds.mean_ns[shuffles, 2].mean(axis=0)
    assert by_level[-1] > 1.5 * by_level[0]  # more executors, slower tasks


def test_a_seed_gives_the_same_and_another_something_else():
    a, b, c = (tpch_like(rng(seed), queries=4) for seed in (3, 3, 4))
    assert a.names == b.names
    assert np.array_equal(a.sample_ns, b.sample_ns)
    assert np.array_equal(a.parents, b.parents)
    assert not np.array_equal(a.sample_ns, c.sample_ns)


def test_a_query_keeps_its_shape_at_every_size():
    kinds = tpch_like(rng(5), queries=6, sizes_gb=(2, 100))
    for query in range(1, 7):
        small, large = (kinds.names.index(f"{size}g-q{query}") for size in (2, 100))
        names = [[kinds.stage_names[s] for s in kinds.stages_of(k)] for k in (small, large)]
        assert names[0] == names[1]
        tasks = [kinds.tasks[kinds.stages_of(k)] for k in (small, large)]
        assert (tasks[0] <= tasks[1]).all()


def test_between_measured_sizes_and_beyond():
    kinds = tpch_like(rng(5), queries=22, sizes_gb=(1, 5, 7, 10, 500))
    work = [kinds.work_ns(20)[of_size(kinds, size)].mean() for size in (1, 5, 7, 10, 500)]
    assert work == sorted(work)
    assert work[-1] > 4 * work[-2]
    assert scan_tasks(parameters().tpch.shape, "lineitem", 500) == 2965


def shape_is_sound(kinds):
    for kind in range(len(kinds)):
        stages = kinds.stages_of(kind)
        parents = [kinds.parents_of(stage) for stage in stages]
        used = {int(parent) for of_one in parents for parent in of_one}
        ends = [stage for stage in stages if stage not in used]
        yield parents, ends, stages


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_prop_queries_end_in_one_stage_and_read_a_large_table(seed, queries):
    kinds = tpch_like(rng(seed), queries=queries, sizes_gb=(10,))
    assert len(kinds) == queries
    for parents, ends, stages in shape_is_sound(kinds):
        assert ends == [stages[-1]]
        roots = [kinds.stage_names[s] for s, of_one in zip(stages, parents) if not len(of_one)]
        assert set(roots) <= {"lineitem", "orders", "partsupp", "part", "small"}
        assert set(roots) - {"small"}
        assert 2 <= len(stages) <= 40


def test_published_means_of_alibaba():
    kinds = alibaba_like(rng(2), kinds=1000)
    assert kinds.stage_count / len(kinds) == pytest.approx(66, rel=0.03)
    assert kinds.work_ns(1).mean() / 1e9 == pytest.approx(7989, rel=0.05)
    scaled = alibaba_like(rng(2), kinds=1000, time_scale=1 / 60)
    assert scaled.work_ns(1).mean() / 1e9 == pytest.approx(7989 / 60, rel=0.05)
    assert np.array_equal(kinds.tasks, scaled.tasks)
    assert np.percentile(kinds.tasks, 50) < 10
    assert kinds.tasks.max() > 100
    roots = np.diff(kinds.first_parent) == 0
    assert 0.3 < roots.mean() < 0.42


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_prop_alibaba_jobs_are_graphs(seed, count):
    kinds = alibaba_like(rng(seed), kinds=count)
    assert len(kinds) == count
    assert (kinds.sample_ns >= 1).all()
    for parents, _, stages in shape_is_sound(kinds):
        assert len(parents[0]) == 0
        for stage, of_one in zip(stages, parents):
            assert all(stages[0] <= parent < stage for parent in of_one)


def test_arrivals():
    times = poisson_arrivals(rng(), 20_000, 30.0)
    apart = np.diff(times) / 1e9
    assert times[0] == 0
    assert apart.mean() == pytest.approx(30.0, rel=0.03)
    assert apart.std() == pytest.approx(30.0, rel=0.05)
    assert (np.diff(fixed_arrivals(5, 2.0)) == 2 * 10**9).all()
    assert poisson_arrivals(rng(), 0, 1.0).size == 0
    assert poisson_arrivals(rng(), 1, 1.0).tolist() == [0]


def test_jobs_are_drawn_from_kinds_and_sizes():
    kinds = tpch_like(rng(), queries=5)
    jobs = sample_jobs(kinds, 500, mean_s=30.0, rng=rng(1))
    assert len(jobs) == 500
    assert len(np.unique(jobs.kind)) == len(kinds)
    assert (np.diff(jobs.arrival_ns) >= 0).all()
    small = sample_jobs(kinds, 50, mean_s=0.0, rng=rng(1), sizes_gb=[2], arrivals="fixed")
    assert {kinds.names[kind][:3] for kind in small.kind} == {"2g-"}
    assert (small.arrival_ns == 0).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tpch_like(rng(), queries=0), "no queries"),
        (lambda: tpch_like(rng(), sizes_gb=()), "no queries"),
        (lambda: tpch_like(rng(), sizes_gb=(0,)), "sizes are"),
        (lambda: tpch_like(rng(), sizes_gb=(2, 2)), "different"),
        (lambda: alibaba_like(rng(), kinds=0), "no jobs"),
        (lambda: alibaba_like(rng(), time_scale=0), "multiplied"),
        (lambda: poisson_arrivals(rng(), -1, 1.0), "number of jobs"),
        (lambda: fixed_arrivals(2, float("nan")), "seconds between"),
        (
            lambda: sample_jobs(tpch_like(rng(), queries=1), 1, mean_s=1, rng=rng(), sizes_gb=[3]),
            "no kind",
        ),
        (
            lambda: sample_jobs(
                tpch_like(rng(), queries=1), 1, mean_s=1, rng=rng(), arrivals="often"
            ),
            "'often'",
        ),
    ],
    ids=["none", "sizes", "zero", "twice", "jobs", "scale", "count", "nan", "size", "arrivals"],
)
def test_wrong_wishes(call, says):
    with pytest.raises(InputError, match=says):
        call()


@given(
    st.lists(st.floats(0.0, 9.0), min_size=1, max_size=6).filter(lambda w: sum(w) > 0.1),
    st.integers(0, 60),
    st.integers(0, 1000),
)
def test_prop_balanced_draws_keep_to_their_weights(weights, count, seed):
    drawn = np.bincount(balanced(rng(seed), weights, count), minlength=len(weights))
    expected = np.array(weights) / sum(weights) * count
    assert drawn.sum() == count
    assert (np.abs(drawn - expected) < 2).all()


@given(st.lists(st.floats(-9, 9), max_size=30), st.integers(0, 1000))
def test_prop_even_ranks_keep_the_order(values, seed):
    places = even_ranks(rng(seed), np.array(values, dtype=np.float64))
    assert sorted((places * max(len(values), 1)).astype(int)) == list(range(len(values)))
    order = np.argsort(values, kind="stable")
    assert (np.diff(places[order]) > 0).all()


# -- beside the real queries -----------------------------------------------------------------


def distance(left, right):
    """The largest gap between two distribution functions (Kolmogorov and Smirnov's)."""
    at = np.concatenate([left, right])
    below = [np.searchsorted(np.sort(x), at, side="right") / len(x) for x in (left, right)]
    return float(np.abs(below[0] - below[1]).max())


def describe(kinds, chosen):
    """What jobs and stages of a size look like, each as a distribution."""
    stages = chosen[kinds.kind_of_stage]
    last = kinds.first_stage[:-1]
    path = np.maximum.reduceat(kinds.path_ns(20), last)
    return {
        "stages": np.diff(kinds.first_stage)[chosen],
        "work at 5": kinds.work_ns(5)[chosen],
        "work at 100": kinds.work_ns(100)[chosen],
        "path at 20": path[chosen],
        "tasks": kinds.tasks[stages],
        "parents": np.diff(kinds.first_parent)[stages],
        "first at 20": kinds.mean_ns[stages, 1, 3],
        "rest at 20": kinds.mean_ns[stages, 2, 3],
    }


@pytest.mark.data
@pytest.mark.parametrize("size", [2, 10, 50])
def test_generated_queries_look_like_the_real_ones(public_data, size):
    real = read_tpch(public_data / REAL)
    made = tpch_like(rng(11), queries=220, sizes_gb=(size,))
    of_real = describe(real, of_size(real, size))
    of_made = describe(made, of_size(made, size))
    far = {what: distance(of_real[what], of_made[what]) for what in of_real}
    # 22 queries lie 0.30 from 220 of the same distribution in one case of twenty, 202 stages 0.10;
    # stages of one query go together, so they may be further.
    per_query = {"stages", "work at 5", "work at 100", "path at 20"}
    assert all(far[what] < 0.30 for what in per_query), far
    assert all(far[what] < 0.15 for what in far.keys() - per_query), far


@pytest.mark.data
def test_the_shipped_parameters_come_from_the_data(public_data):
    spec = importlib.util.spec_from_file_location("fit", ROOT / "tools" / "fit_batch_jobs.py")
    fit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fit)
    fitted = msgspec.json.encode(fit.fit(public_data / "batch"))
    shipped = (ROOT / "src" / "gnomon" / "datasets" / "batch_jobs.json").read_bytes()
    assert fitted + b"\n" == shipped
