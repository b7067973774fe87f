"""Where batch commands find jobs and the hours of a grid."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gnomon.cli.carbon.grid import own_file
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.graph.jobs import JobKinds
    from gnomon.systems.batch.grids import GridHours
    from gnomon.systems.batch.trial import JobMaker

#: Kinds that made-up jobs are drawn from; enough for the means to be steady.
_TPCH_QUERIES = 22
_TPCH_SIZES = (2.0, 10.0, 50.0)
_ALIBABA_KINDS = 100


def find_hours(
    names: str, signal: Path | None, *, seed: int, fill: Literal["hold", "interpolate"] | None
) -> tuple[list[GridHours], list[str]]:
    """The grids that are asked for, and notes about their hours."""
    from gnomon.ingest.intensity.grid import is_number, read_grid_file
    from gnomon.series.intensity import describe_intensity
    from gnomon.systems.batch.grids import GridHours, hours_of_zone

    check_input(signal, "batch run --signal")
    zones = [name.strip() for name in names.split(",") if name.strip()]
    if signal is not None and len(zones) > 1:
        raise InputError("--signal is of one grid", hint="name one with --grid")
    if not zones and signal is None:
        raise InputError("--grid: which grid?", hint="DE, or several: CAISO,DE,ON")
    if len(set(zones)) < len(zones):
        raise InputError(f"--grid {names}: a grid is named twice")
    found, notes = [], list[str]()
    for zone in zones or [""]:
        file = signal or own_file(zone)
        if file is None and is_number(zone):
            raise InputError(
                f"--grid {zone}: a grid that is the same at all hours leaves nothing to decide",
                hint="a zone such as DE",
            )
        if file is None:
            hours = hours_of_zone(zone, seed=seed)
            notes.append(f"Grid: {describe_intensity(hours.signal)}; seed {seed}.")
        else:
            line, remarks = read_grid_file(file, zone=zone or None, fill=fill)
            hours = GridHours.of(zone or file.name, line)
            notes += remarks
        found.append(hours)
    return found, notes


def find_jobs(
    jobs: str, count: int, *, mean_s: float, sizes_gb: Sequence[float] | None, seed: int
) -> tuple[JobMaker, list[str]]:
    """Jobs of a trial: made up, or drawn from a file of kinds."""
    from gnomon.datasets.batch_jobs import sample_jobs

    check_draw(count, mean_s)
    if jobs == "tpch":
        sizes = tuple(sizes_gb) if sizes_gb else _TPCH_SIZES
        kinds, remarks = _like_tpch(sizes, seed)
        sizes_gb = None
    else:
        kinds, remarks = read_kinds(jobs, seed)
    maker = functools.partial(sample_jobs, kinds, count, mean_s=mean_s, sizes_gb=sizes_gb)
    return maker, [remarks]


def check_draw(count: int, mean_s: float) -> None:
    """Refuse a number of jobs or a time between them that is none."""
    if not 1 <= count <= 10_000_000:
        raise InputError(f"--njobs {count}: at least one, at most ten million")
    if not 0 < mean_s < 1e9:
        raise InputError(f"--arrival {mean_s:g}: seconds between jobs, over 0 and under a billion")


def read_kinds(jobs: str, seed: int) -> tuple[JobKinds, str]:
    """Shapes of jobs by a name or a path, and notes about them."""
    import numpy as np

    from gnomon.datasets.batch_jobs import alibaba_like

    if jobs == "tpch":
        return _like_tpch(_TPCH_SIZES, seed)
    if jobs == "alibaba":
        rng = np.random.default_rng(seed)
        made = alibaba_like(rng, kinds=_ALIBABA_KINDS, time_scale=1 / 60)
        return made, "Jobs: made up, like Alibaba's of 2018, sixty times as fast."
    return _kinds_of_file(Path(jobs))


def _like_tpch(sizes_gb: tuple[float, ...], seed: int) -> tuple[JobKinds, str]:
    import numpy as np

    from gnomon.datasets.batch_jobs import tpch_like

    made = tpch_like(np.random.default_rng(seed), queries=_TPCH_QUERIES, sizes_gb=sizes_gb)
    listed = ", ".join(f"{size:g}" for size in sizes_gb)
    return made, f"Jobs: made up, like TPC-H on Spark at {listed} GB."


def _kinds_of_file(path: Path) -> tuple[JobKinds, str]:
    from gnomon.ingest.spark.event_log import read_spark_logs
    from gnomon.ingest.spark.jobs import spark_jobs
    from gnomon.ingest.spark.log_files import looks_like_spark_log
    from gnomon.ingest.stages.alibaba_dag import looks_like_alibaba, read_alibaba
    from gnomon.ingest.stages.decima_tpch import read_tpch
    from gnomon.ingest.text import read_head

    if not path.exists():
        raise InputError(
            "no such file", where=str(path), hint="--jobs tpch, alibaba, or a file of jobs"
        )
    check_input(path, "batch run --jobs")
    if path.is_dir() or looks_like_spark_log(path):
        kinds = spark_jobs(read_spark_logs(path)).kinds
    elif looks_like_alibaba(read_head(path)):
        kinds = read_alibaba(path).kinds
    else:
        kinds = read_tpch(path)
    return kinds, f"Jobs: drawn from {len(kinds):,} kinds of {path.name}."
