"""Made-up batch jobs with a seed: queries like TPC-H's, jobs like Alibaba's, and their arrivals.

The parameters were fitted on public measurements (`tools/fit_batch_jobs.py`); no measurement is
in them. Draws are spread evenly over what was seen, so that twenty queries have the mix of tables,
lengths and slow stages that two thousand have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.datasets._alibaba_like import draw_job, stage_counts
from gnomon.datasets._job_parameters import parameters
from gnomon.datasets._tpch_like import draw_durations, draw_queries
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs, JobKinds
from gnomon.units import SECOND_NS

_MEASURED_GB = (2, 5, 10, 20, 50, 80, 100)


def tpch_like(
    rng: np.random.Generator, *, queries: int = 22, sizes_gb: Sequence[float] = (2, 10, 50)
) -> JobKinds:
    """Queries like TPC-H's on Spark, each at each size of the data.

    Joins of scans of a few tables, with aggregations and a last stage behind them. Durations
    depend on the size, on how many executors a query holds (from 2 to 100) and on what an
    executor did before. A kind is called `SIZEg-qNUMBER`.

    Args:
        sizes_gb: From 2 to 100 as measured; beyond that scans get more tasks, none gets longer.

    >>> kinds = tpch_like(np.random.default_rng(7), queries=3, sizes_gb=(2, 50))
    >>> kinds.names
    ('2g-q1', '50g-q1', '2g-q2', '50g-q2', '2g-q3', '50g-q3')
    """
    if queries < 1 or not sizes_gb:
        raise InputError("there are no queries to make", hint="at least one, of one size")
    if not all(0.1 <= size <= 10_000 for size in sizes_gb) or len(set(sizes_gb)) < len(sizes_gb):
        raise InputError("sizes are different numbers of GB, from 0.1 to 10,000")
    given = parameters()
    shapes = draw_queries(rng, given.tpch.shape, queries)
    drawn = draw_durations(rng, given.tpch, given.quantiles, shapes, sizes_gb)
    return JobKinds.build(
        {
            f"{size:g}g-q{number}": stages
            for number, by_size in enumerate(drawn, 1)
            for size, stages in zip(sizes_gb, by_size)
        }
    )


def tpch_like_sets(seed: int, count: int = 8) -> list[JobKinds]:
    """Several sets at all sizes that were measured: what Decima learns on should not be one set's.

    >>> [len(kinds) for kinds in tpch_like_sets(0, count=2)]
    [154, 154]
    """
    return [
        tpch_like(np.random.default_rng([seed, number]), sizes_gb=_MEASURED_GB)
        for number in range(count)
    ]


def alibaba_like(
    rng: np.random.Generator, *, kinds: int = 100, time_scale: float = 1.0
) -> JobKinds:
    """Jobs like those of Alibaba's cluster trace of 2018, as PCAPS was tried on them.

    66 stages and 7,989 s of executor time on average, as published. How sizes, durations, tasks
    and distances between stages spread is from a public sample that keeps each task name once: it
    says little about whole jobs. So the share of stages that wait for nothing is assumed, and
    depths were compared with nothing.

    Args:
        time_scale: Durations are multiplied with this; the authors of PCAPS took 1/60.

    >>> kinds = alibaba_like(np.random.default_rng(7), kinds=50)
    >>> len(kinds), 50 < kinds.stage_count / len(kinds) < 80
    (50, True)
    """
    if kinds < 1:
        raise InputError("there are no jobs to make", hint="at least one")
    if not 0.0 < time_scale < 1e6:
        raise InputError(f"durations cannot be multiplied with {time_scale:g}")
    given = parameters()
    counts = stage_counts(rng, given.alibaba, given.quantiles, kinds)
    return JobKinds.build(
        {
            f"j{number}": draw_job(rng, given.alibaba, given.quantiles, int(count), time_scale)
            for number, count in enumerate(counts, 1)
        }
    )


def poisson_arrivals(rng: np.random.Generator, count: int, mean_s: float) -> NDArray[np.int64]:
    """Arrivals in nanoseconds, the first at zero, with `mean_s` between two on average.

    >>> poisson_arrivals(np.random.default_rng(1), 3, 30.0).tolist()[0]
    0
    """
    _check_arrivals(count, mean_s)
    apart = rng.exponential(mean_s, max(count - 1, 0)) * SECOND_NS
    times: NDArray[np.int64] = np.zeros(count, dtype=np.int64)
    times[1:] = np.cumsum(apart)
    return times


def fixed_arrivals(count: int, every_s: float) -> NDArray[np.int64]:
    """Arrivals in nanoseconds, one every so many seconds, the first at zero.

    >>> fixed_arrivals(3, 0.5).tolist()
    [0, 500000000, 1000000000]
    """
    _check_arrivals(count, every_s)
    return np.asarray(np.rint(np.arange(count) * every_s * SECOND_NS), dtype=np.int64)


def _check_arrivals(count: int, mean_s: float) -> None:
    if count < 0 or not 0.0 <= mean_s < 1e9:
        raise InputError("arrivals are a number of jobs and the seconds between them")


def sample_jobs(
    kinds: JobKinds,
    count: int,
    *,
    mean_s: float,
    rng: np.random.Generator,
    sizes_gb: Sequence[float] | None = None,
    arrivals: str = "poisson",
) -> BatchJobs:
    """Jobs of random kinds, one after the other.

    Args:
        sizes_gb: Only kinds of these sizes, by the beginning of their names (`10g-...`).
        arrivals: `poisson`, or `fixed` for the same time between any two.

    >>> rng = np.random.default_rng(7)
    >>> jobs = sample_jobs(tpch_like(rng, queries=4), 5, mean_s=30.0, rng=rng, sizes_gb=[10])
    >>> {jobs.kinds.names[kind].split("-")[0] for kind in jobs.kind}
    {'10g'}
    """
    which = np.arange(len(kinds))
    if sizes_gb is not None:
        wanted = {f"{size:g}g" for size in sizes_gb}
        which = np.array([i for i in which if kinds.names[i].split("-")[0] in wanted], np.int64)
    if not which.size:
        raise InputError("no kind of job is left to draw from", hint="other sizes?")
    if arrivals not in ("poisson", "fixed"):
        raise InputError(f"arrivals are 'poisson' or 'fixed', not {arrivals!r}")
    is_fixed = arrivals == "fixed"
    times = fixed_arrivals(count, mean_s) if is_fixed else poisson_arrivals(rng, count, mean_s)
    return BatchJobs.of(kinds, which[rng.integers(len(which), size=count)], times)
