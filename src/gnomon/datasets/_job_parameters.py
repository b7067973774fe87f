"""What the generators of batch jobs were fitted to: `tools/fit_batch_jobs.py` writes it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec

#: Where quantile functions are kept.
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class QueryShape(msgspec.Struct, frozen=True):
    """How the stages of a query hang together; weights are counts over the queries seen.

    Attributes:
        largest: Weights of the largest table that a query reads.
        more_scans: Weights of the number of further tables, from none.
        other: Weights of those tables.
        tasks_per_gb: Of a scan of a table.
        least_tasks: Of any scan.
        shuffle_tasks: Of a join or an aggregation.
        scan_aggregated: Aggregations before a join, for each scan.
        bushy: Share of joins that are off the longest chain of joins, in queries that read many
            tables.
        many: Tables that are many.
        shared: Further joins that a scan goes into.
        collected: Share of queries that wait for one value before they read on.
        tail: Weights of the number of aggregations at the end, from none.
        last_tasks: Weights of the number of tasks of the last stage.
    """

    largest: dict[str, float]
    more_scans: tuple[float, ...]
    other: dict[str, float]
    tasks_per_gb: dict[str, float]
    least_tasks: int
    shuffle_tasks: int
    scan_aggregated: float
    bushy: float
    many: int
    three_way: float
    shared: float
    collected: float
    tail: tuple[float, ...]
    last_tasks: dict[int, float]


class Durations(msgspec.Struct, frozen=True):
    """Durations of one class of stages; the outer tuples go by wave: fresh, first, rest.

    Attributes:
        mean_ms: By size of the data, then by number of executors.
        spread: By size: how far stages of the class lie apart, as the deviation of logarithms.
        between: Quantiles of a stage's mean, as deviations of logarithms over `spread`.
        within: Quantiles of a task's duration over the mean of its stage.
    """

    mean_ms: tuple[tuple[tuple[float, ...], ...], ...]
    spread: tuple[tuple[float, ...], ...]
    between: tuple[tuple[float, ...], ...]
    within: tuple[tuple[float, ...], ...]


class TpchParameters(msgspec.Struct, frozen=True):
    """Of queries like TPC-H's on Spark.

    Attributes:
        likeness: How much stages of one query are slow or fast together, from 0 to 1.
        classes: Durations by class of stage: a table's name, `join`, `aggregate`, `last`.
    """

    sizes_gb: tuple[float, ...]
    executors: tuple[int, ...]
    shape: QueryShape
    likeness: float
    classes: dict[str, Durations]


class AlibabaParameters(msgspec.Struct, frozen=True):
    """Of jobs like those of Alibaba's trace of 2018.

    Attributes:
        mean_stages: Of a job, as published for the jobs that PCAPS was tried on.
        mean_work_s: Executor time of a job, as published there.
        stages: Quantiles of a job's stages over their mean.
        roots: Share of stages that wait for nothing. Assumed: the sample keeps each task name
            once, so that nearly all of `M1`, `M2` and so on are gone from it.
        parents: Weights of the number of parents, from one, of a stage that has any.
        distance: Quantiles of how many stages before it a parent was numbered.
        seconds: Quantiles of a stage's time over their mean.
        likeness: Of the time and the tasks of a stage, by rank.
    """

    mean_stages: float
    mean_work_s: float
    stages: tuple[float, ...]
    roots: float
    parents: tuple[float, ...]
    distance: tuple[float, ...]
    seconds: tuple[float, ...]
    instances: tuple[float, ...]
    likeness: float


class JobParameters(msgspec.Struct, frozen=True):
    """All of them, and where they are from."""

    notice: str
    quantiles: tuple[float, ...]
    tpch: TpchParameters
    alibaba: AlibabaParameters


@cache
def parameters() -> JobParameters:
    """The shipped parameters."""
    content = (files("gnomon.datasets") / "batch_jobs.json").read_bytes()
    return msgspec.json.decode(content, type=JobParameters)
