"""Jobs like those of Alibaba's trace of 2018: many small stages, few of them very wide or long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.datasets._balanced import even_ranks, normal_cdf, quantile
from gnomon.datasets._job_parameters import AlibabaParameters
from gnomon.graph.jobs import Stage, Waves

#: The trace tells time in seconds: no task is given less.
_LEAST_S = 1.0
_NS = 1e9
#: Tasks of a stage differ by about so much, as the deviation of logarithms.
_SPREAD = 0.3
_SAMPLES = 16
_LEVEL = 1


def stage_counts(
    rng: np.random.Generator, given: AlibabaParameters, at: Sequence[float], jobs: int
) -> NDArray[np.int64]:
    """How many stages each job has."""
    relative = quantile(at, given.stages, even_ranks(rng, rng.random(jobs)))
    return np.maximum(1, np.rint(relative * given.mean_stages / _mean(at, given.stages))).astype(
        np.int64
    )


def _mean(at: Sequence[float], values: Sequence[float]) -> float:
    return float(np.trapezoid(values, at))


def draw_job(
    rng: np.random.Generator,
    given: AlibabaParameters,
    at: Sequence[float],
    stages: int,
    time_scale: float,
) -> list[Stage]:
    """Stages of one job, parents first."""
    parents = _parents(rng, given, at, stages)
    together = rng.standard_normal(stages)
    apart = rng.standard_normal(stages)
    likeness = given.likeness
    seconds = quantile(at, given.seconds, normal_cdf(together))
    seconds *= given.mean_work_s / given.mean_stages / _mean(at, given.seconds)
    width = likeness * together + np.sqrt(1.0 - likeness**2) * apart
    instances = quantile(at, given.instances, normal_cdf(width))
    most = np.maximum(1.0, seconds // _LEAST_S)
    tasks = np.maximum(1, np.rint(np.minimum(instances, most))).astype(np.int64)
    task_ns = np.maximum(seconds / tasks * time_scale * _NS, 1.0)
    return [
        Stage(
            int(tasks[stage]),
            {_LEVEL: Waves(first=_durations_ns(rng, float(task_ns[stage]), int(tasks[stage])))},
            parents[stage],
            name=f"{'MRJ'[min(len(parents[stage]), 2)]}{stage + 1}",
        )
        for stage in range(stages)
    ]


def _parents(
    rng: np.random.Generator, given: AlibabaParameters, at: Sequence[float], stages: int
) -> list[tuple[int, ...]]:
    weights = np.asarray(given.parents) / np.sum(given.parents)
    is_root = rng.random(stages) < given.roots
    is_root[0] = True
    wanted = 1 + rng.choice(len(weights), size=stages, p=weights)
    found: list[tuple[int, ...]] = []
    for stage in range(stages):
        if is_root[stage]:
            found.append(())
            continue
        away = quantile(at, given.distance, rng.random(wanted[stage]))
        nearest = np.maximum(0, stage - np.maximum(1, np.rint(away).astype(np.int64)))
        found.append(tuple(np.unique(nearest).tolist()))
    return found


def _durations_ns(rng: np.random.Generator, mean_ns: float, tasks: int) -> NDArray[np.int64]:
    count = min(tasks, _SAMPLES)
    if count == 1:
        return np.array([int(mean_ns)])
    drawn = np.exp(_SPREAD * rng.standard_normal(count))
    return np.asarray(drawn / drawn.mean() * mean_ns).astype(np.int64)
