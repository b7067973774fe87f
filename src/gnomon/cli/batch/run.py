"""gnomon batch run and whatif: policies on grids, on made-up jobs or on one's own."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from gnomon.cli.batch.grid import check_draw, find_hours, find_jobs
from gnomon.cli.listing import print_registry
from gnomon.cli.output import Output, show
from gnomon.cli.sources import Source
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.ingest.stages.trace import BatchTrace
    from gnomon.sim.cluster import Executors, Guard
    from gnomon.systems.batch.logs import Replayed
    from gnomon.systems.batch.trial import Experiment

_Flag = Annotated[bool, Parameter(negative=())]
_DEFAULT = "fifo,fair,decima,cap:fifo,pcaps:decima,pcaps+:decima"


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """What runs the jobs, and how long work may wait.

    Attributes:
        executors: How many there are: 100, or those of the log.
        hour: How long an hour of the grid takes in the simulation: 60s, and 1h for logs.
        moving_delay: To bring an executor to another application: 2s; 0s for logs.
        startup: To start one that was off or failed.
        off_after: Executors idle for so long are switched off; all stay on unless given.
        stragglers: Share of tasks that take three times as long.
        failures: Share of tasks that have to be done again.
        executor_failures: Of one executor per hour of work.
        watts: Of a busy executor; 22.6 unless given.
        idle_watts: Of an idle one that is on.
        startup_joules: Of one start.
        pue: Power usage effectiveness of the data centre.
        patience: Hours of the grid after which a job is held no longer.
        longest_hold: Hours of the grid that a stage is held at most.
        finish_within: Those that know the grid end within so many times the first's time: 1.1.
    """

    executors: int | None = None
    hour: str | None = None
    moving_delay: str | None = None
    startup: str = "0s"
    off_after: str | None = None
    stragglers: float = 0.0
    failures: float = 0.0
    executor_failures: float = 0.0
    watts: float | None = None
    idle_watts: float = 0.0
    startup_joules: float = 0.0
    pue: float = 1.0
    patience: float | None = None
    longest_hold: float | None = None
    finish_within: float | None = None


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How often, from which hours, and where it is computed.

    Attributes:
        trials: Start hours on each grid, by chance.
        signal: A file of real hours in place of the grid's profile.
        forecast: What policies know of the hours to come: all, or what a method expects.
        fill: How gaps of the signal are filled.
        controls: Placebo and fixed quota beside every policy that knows the grid.
        seed: Of jobs, start hours and durations.
        on: Where to run: serial, local, local:4, ray, ray://host:port.
        resume: A folder that keeps finished trials; a later call goes on from there.
    """

    trials: int = 10
    signal: Path | None = None
    forecast: Literal["known", "persistence", "seasonal", "fitted"] = "known"
    fill: Literal["hold", "interpolate"] | None = None
    controls: Annotated[bool, Parameter(negative="--no-controls")] = True
    seed: int = 0
    on: str | None = None
    resume: Path | None = None


def run(
    *,
    jobs: str = "tpch",
    grid: str = "",
    policy: str = _DEFAULT,
    njobs: int = 50,
    arrival: float = 30.0,
    sizes: Annotated[list[float] | None, Parameter(negative=())] = None,
    cluster: ClusterOptions = ClusterOptions(),  # noqa: B008
    trial: TrialOptions = TrialOptions(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
) -> None:
    """Try policies on batch jobs and grids: carbon split into work and hours, with controls.

    `gnomon batch run --grid DE --policy fifo,cap:fifo,pcaps:decima --njobs 50 --trials 10`. The
    first policy is what the others are compared with. `gnomon batch policies` lists them.

    Args:
        jobs: tpch or alibaba (made up), a file of TPC-H kinds as measured for Decima, or
            Alibaba's batch_task.csv.
        grid: Zones, with commas: CAISO,DE,ON.
        policy: Policies, with commas: fifo,cap?min_share=0.1:fair,pcaps:decima.
        njobs: Jobs of a trial.
        arrival: Seconds between two arrivals on average.
        sizes: GB of TPC-H queries; 2, 10 and 50 unless given. Repeatable.
        cluster: What runs them.
        trial: How often.
        output: Where the answer goes.
    """
    from gnomon.systems.batch.trial import parse_policies

    specs = parse_policies(policy)
    hours, notes = find_hours(grid, trial.signal, seed=trial.seed, fill=trial.fill)
    maker, remarks = find_jobs(jobs, njobs, mean_s=arrival, sizes_gb=sizes, seed=trial.seed)
    experiment = _experiment(
        cluster,
        trial,
        specs,
        maker,
        count=_given(cluster.executors, 100),
        hour=_given(cluster.hour, "60s"),
        moving="2s",
    )
    sources = [jobs] if Path(jobs).is_file() else []
    _answer("run", experiment, hours, trial, output, remarks + notes, sources)


def whatif(
    *log: Source,
    grid: str = "",
    policy: str = _DEFAULT,
    njobs: int | None = None,
    arrival: float | None = None,
    cluster: ClusterOptions = ClusterOptions(),  # noqa: B008
    trial: TrialOptions = TrialOptions(),  # noqa: B008
    output: Output = Output(),  # noqa: B008
) -> None:
    """What would your own Spark jobs emit under other policies?

    `gnomon batch whatif /var/spark-events --grid CAISO --policy fifo,cap:fifo`. Event logs are
    read into stages and durations, played again as recorded (is the model right?), then under
    each policy from many hours of the grid.

    Args:
        log: Event logs: files, rolling folders, folders of logs, or bundled:spark-diamonds.
        grid: Zones, with commas: CAISO,DE,ON.
        policy: Policies, with commas; the first is what others are compared with.
        njobs: Draw so many jobs from the logs in place of those in them.
        arrival: With --njobs, seconds between two arrivals on average.
        cluster: What runs them; the executors of the logs unless given.
        trial: How often.
        output: Where the answer goes.
    """
    from gnomon.ingest.spark.event_log import read_spark_logs
    from gnomon.ingest.spark.jobs import spark_jobs
    from gnomon.systems.batch.logs import SameJobs, replay_recorded
    from gnomon.systems.batch.trial import parse_policies

    if not log:
        raise InputError("which event logs?", hint="gnomon batch whatif /var/spark-events ...")
    for path in log:
        check_input(path, "batch whatif")
    if (njobs is None) != (arrival is None):
        raise InputError("--njobs and --arrival belong together")
    if njobs is not None and arrival is not None:
        check_draw(njobs, arrival)
    if len({os.path.realpath(path) for path in log}) < len(log):
        raise InputError("a log is named twice")
    specs = parse_policies(policy)
    hours, notes = find_hours(grid, trial.signal, seed=trial.seed, fill=trial.fill)
    trace = spark_jobs(read_spark_logs(list(log)))
    replayed = replay_recorded(trace, seed=trial.seed) if trace.executors else None
    maker: Any = SameJobs(trace.jobs)
    if njobs is not None and arrival is not None:
        from gnomon.datasets.batch_jobs import sample_jobs

        maker = functools.partial(sample_jobs, trace.kinds, njobs, mean_s=arrival)
    count = _given(cluster.executors, trace.executors)
    if count < 1:
        raise InputError("--executors: the logs do not say how many there were")
    experiment = _experiment(
        cluster, trial, specs, maker, count=count, hour=_given(cluster.hour, "1h"), moving="0s"
    )
    _answer(
        "whatif", experiment, hours, trial, output,
        [*_about(trace, count), *notes], [str(path) for path in log], replayed,
    )  # fmt: skip


def policies(*, json: _Flag = False) -> None:
    """List the policies with their parameters.

    Args:
        json: As JSON, with a schema of each one's parameters.
    """
    from gnomon.decide.cluster import cluster_policies

    print_registry(cluster_policies, json=json)


_T = TypeVar("_T")


def _given(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _about(trace: BatchTrace, count: int) -> list[str]:
    remarks = [f"Jobs: {len(trace.jobs):,} of {trace.where}, {trace.jobs.task_count:,} tasks; "
            f"{count} executors."]  # fmt: skip
    seen = [int(level) for level in trace.kinds.levels]
    if not seen[0] / 1.5 <= count <= 1.5 * seen[-1]:
        known = f"{seen[0]}" if len(seen) == 1 else f"{seen[0]} to {seen[-1]}"
        remarks.append(
            f"The log shows tasks beside {known} executors only: how they take longer or shorter "
            f"with {count} is not known, and is left out."
        )
    remarks += [f"Left out: {many:,} {why}." for why, many in trace.left_out.items()]
    return remarks + list(trace.notes)


def _experiment(
    cluster: ClusterOptions,
    trial: TrialOptions,
    specs: tuple[str, ...],
    maker: Any,
    *,
    count: int,
    hour: str,
    moving: str,
) -> Experiment:
    from gnomon.systems.batch.measure import Power
    from gnomon.systems.batch.trial import Experiment
    from gnomon.units import parse_duration

    if not 1 <= trial.trials <= 100_000:
        raise InputError(f"--trials {trial.trials}: from 1 to 100,000")
    hour_ns = parse_duration(hour)
    if hour_ns < 1:
        raise InputError(f"--hour {hour}: an hour of the grid takes time")
    power = Power(
        idle_w=cluster.idle_watts, startup_j=cluster.startup_joules, pue=cluster.pue,
        **({} if cluster.watts is None else {"busy_w": cluster.watts}),
    )  # fmt: skip
    if cluster.finish_within is not None and not 1.0 <= cluster.finish_within < 100:
        raise InputError(f"--finish-within {cluster.finish_within:g}: 1 or more times")
    return Experiment(
        policies=specs, make_jobs=maker, executors=_executors(cluster, count, moving), power=power,
        hour_ns=hour_ns, forecast=trial.forecast, finish_within=cluster.finish_within,
        guard=_guard(cluster, hour_ns), controls=trial.controls,
    )  # fmt: skip


def _executors(cluster: ClusterOptions, count: int, moving: str) -> Executors:
    from gnomon.sim.cluster import Executors
    from gnomon.units import parse_duration

    if not 1 <= count < 1 << 24:
        raise InputError(f"--executors {count}: at least one")
    for name, chance in (("stragglers", cluster.stragglers), ("failures", cluster.failures)):
        if not 0 <= chance < 1:
            raise InputError(f"--{name} {chance:g}: a share from 0 up to 1")
    if not 0 <= cluster.executor_failures < 1e6:
        raise InputError(
            f"--executor-failures {cluster.executor_failures:g}: zero to a million an hour"
        )
    off = cluster.off_after
    return Executors(
        count=count, moving_delay_ns=parse_duration(_given(cluster.moving_delay, moving)),
        startup_ns=parse_duration(cluster.startup),
        off_after_ns=None if off is None else parse_duration(off),
        straggler_chance=cluster.stragglers, task_failure_chance=cluster.failures,
        failures_per_hour=cluster.executor_failures,
    )  # fmt: skip


def _guard(cluster: ClusterOptions, hour_ns: int) -> Guard:
    from gnomon.sim.cluster import NEVER_NS, Guard

    bounds = {}
    for name in ("patience", "longest_hold"):
        hours = getattr(cluster, name)
        if hours is not None and not 0 < hours < 1e6:
            raise InputError(
                f"--{name.replace('_', '-')} {hours:g}: hours, over 0 and under a million"
            )
        bounds[f"{name}_ns"] = NEVER_NS if hours is None else round(hours * hour_ns)
    return Guard(**bounds)


def _answer(
    verb: str, experiment: Experiment, hours: Any, trial: TrialOptions, output: Output,
    notes: Sequence[str], sources: Sequence[str], replayed: Replayed | None = None,
) -> None:  # fmt: skip
    from gnomon.parallel import RichProgress
    from gnomon.systems.batch.pipeline import run_experiment
    from gnomon.systems.batch.run_result import to_result, to_script

    try:
        answer = run_experiment(
            experiment, hours, trials=trial.trials, seed=trial.seed, on=trial.on,
            resume=trial.resume, progress=RichProgress("trials"),
        )  # fmt: skip
    except KeyboardInterrupt:
        if trial.resume is not None:
            print(f"gnomon: trials that ended are kept in {trial.resume}: the same command goes "
                  "on", file=sys.stderr)  # fmt: skip
        raise
    if trial.signal is not None:
        sources = [*sources, str(trial.signal)]
    result = to_result(
        answer,
        typed_command(),
        verb=verb,
        sources=sources,
        notes=notes,
        replayed=replayed,
    )
    show(result, output, extra=to_script(answer, replayed) if output.json else None)
