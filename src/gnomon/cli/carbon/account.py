"""gnomon carbon account: what jobs emitted, from a CSV, sacct or a Prometheus power series."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gnomon.cli.carbon.grid import check_per_cent, files_of, own_folder
from gnomon.cli.output import Output, show
from gnomon.cli.sources import WITH_TIMELINE, Source
from gnomon.cli.typed import typed_command
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.ingest.jobs.jobs import Jobs
    from gnomon.ingest.metrics.power_series import PowerSeries


def account(
    path: Source,
    /,
    *,
    zone: str | None = None,
    machines: str | None = None,
    metric: str = "all",
    amortise: Literal["life", "age", "sunk"] = "age",
    signal: Path | None = None,
    fill: Literal["hold", "interpolate"] | None = None,
    scope: Literal["lifecycle", "direct"] = "lifecycle",
    utilisation: float = 100.0,
    timezone: str = "UTC",
    start: str | None = None,
    series: str | None = None,
    unit: Annotated[Literal["W", "kW", "mW", "J"] | None, Parameter()] = None,
    year: int | None = None,
    price: float | None = None,
    reported: float | None = None,
    seed: int = 0,
    top: int = 20,
    output: Output = Output(),  # noqa: B008
) -> None:
    """What did jobs emit? Energy, operational and embodied carbon, SCI, tSCI, oSCI and the rest.

    Args:
        path: A CSV of jobs (start, end or duration, cores ...), the output of sacct -P, measured
            power from Prometheus (Kepler, Scaphandre), or what gnomon has a timeline of: a trace,
            a folder of ranks, a graph, a timeline, bundled:h200-gpt-l6.
        zone: The grid: DE, SE, CAISO ... or g/kWh.
        machines: A fleet in YAML, or bundled:mit-740. Jobs with measured energy need none.
        metric: sci, osci, tsci, cci, cdp, rsci, with commas; or all.
        amortise: Embodied carbon over the expected life, over age where that is longer (the
            default, as in place), or nothing once the life is over (sunk).
        signal: A file of grid intensity in place of the zone's profile.
        fill: How gaps of the signal, or of measured power, are filled: hold the last value, or
            interpolate.
        scope: Life-cycle or direct intensity of the zone.
        utilisation: Per cent, of jobs that do not say theirs.
        start: When a trace, graph or timeline began, in UTC; now unless given.
        timezone: Of times without an offset, as sacct writes them: UTC, +01:00, Europe/Berlin.
        series: The metric to read, where a Prometheus file has several.
        unit: What a series counts that has lost its name: W, kW, mW or J.
        year: The year it is, for the age of machines: that of the first job unless given, or
            today's where times are counted from the start of a run.
        price: USD/kWh.
        reported: Kilograms that rSCI is to add up to; all carbon of the fleet unless given.
        seed: Of the zone's generated hours.
        top: How many jobs the table shows.
        output: Where the answer goes.
    """
    from gnomon.ingest.moment import find_timezone
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.systems.carbon.accounts.account import METRICS
    from gnomon.systems.carbon.accounts.account_result import to_result, to_script
    from gnomon.systems.carbon.accounts.activity import read_activity
    from gnomon.systems.carbon.metric import parse_names
    from gnomon.systems.carbon.pipeline import GridChoice, account_activity, check_not_negative

    check_input(path, "carbon account")
    check_input(signal, "carbon account --signal")
    check_input(machines, "carbon account --machines")
    grid = GridChoice(
        zone=zone, file=signal, folder=own_folder(), scope=scope, fill=fill, seed=seed
    )
    check_per_cent("--utilisation", utilisation)
    names = parse_names(metric, METRICS)
    check_not_negative("--price", price)
    check_not_negative("--reported", reported)
    fleet = read_fleet(machines) if machines is not None else None
    notes: list[str] = []
    ran: Jobs | list[PowerSeries]
    if _has_timeline(path):
        ran, notes = _timeline(path, start)
    else:
        ran = read_activity(path, zone=find_timezone(timezone), series=series, unit=unit)
    accounts, more = account_activity(
        ran, grid, fleet, source=str(path), amortise=amortise, utilisation=utilisation / 100,
        year=year, this_year=time.gmtime().tm_year, price_usd_kwh=price, reported_kg=reported,
    )  # fmt: skip
    result = to_result(
        accounts, names, typed_command(), sources=files_of(path, signal, machines),
        notes=[*notes, *more], seed=seed, top=top,
    )  # fmt: skip
    show(result, output, extra=to_script(accounts, names) if output.json else None)


def _has_timeline(path: Path) -> bool:
    from gnomon.ingest.formats import identify

    return path.exists() and identify(path).format in WITH_TIMELINE


def _timeline(path: Path, start: str | None) -> tuple[Jobs, list[str]]:
    """What ran in a trace, graph or timeline, as it was replayed."""
    from gnomon.cli.sources import load_timelines
    from gnomon.ingest.intensity.grid import day_of
    from gnomon.ingest.moment import parse_instant
    from gnomon.systems.carbon.accounts.activity import timeline_jobs

    start_ns = time.time_ns() if start is None else int(parse_instant(start))
    line = list(load_timelines(path).values())[-1]
    note = f"Counted as if it had run from {day_of(start_ns)} UTC on; --start says when it did."
    return timeline_jobs(line, start_ns, path.name), [note] if start is None else []
