"""gnomon carbon place: jobs, or a level of use, onto a fleet by one metric or another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gnomon.cli.carbon.grid import own_file, year_of_jobs, zone_hours
from gnomon.cli.output import Output, show
from gnomon.cli.sources import spell_options
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input

if TYPE_CHECKING:
    from gnomon.model.machines.machine import Fleet

__all__ = ["place"]


def place(
    *,
    fleet: str | None = None,
    zone: str | None = None,
    jobs: Path | None = None,
    metric: str = "sci,tsci,osci",
    signal: Path | None = None,
    amortise: Literal["life", "age", "sunk"] = "age",
    utilisation: float | None = None,
    year: int | None = None,
    sleep: Annotated[bool, Parameter(negative=())] = False,
    shift: Annotated[bool, Parameter(negative=())] = False,
    reference: str | None = None,
    scope: Literal["lifecycle", "direct"] = "lifecycle",
    fill: Literal["hold", "interpolate"] | None = None,
    timezone: str = "UTC",
    price: float | None = None,
    seed: int = 0,
    output: Output = Output(),  # noqa: B008
) -> None:
    """Place work on servers by SCI, oSCI, tSCI ..., and count what each choice truly emits.

    With `--jobs`, jobs are placed one after the other over time. Without, servers are filled to
    `--utilisation`, and curves show what each metric adds by utilisation, embodied share, life,
    grid and idle power.

    Args:
        fleet: A fleet in YAML, or bundled:mit-740, bundled:two-servers.
        zone: The grid: DE, SE, CAISO ... or g/kWh.
        jobs: A table of jobs: arrival, duration or end, cores, and perhaps a deadline.
        metric: What to sort servers by, with commas: sci, tsci, osci, cdp, rsci, embodied,
            fastest; or all.
        signal: A file of grid intensity in place of the zone's profile.
        amortise: Embodied carbon over the expected life, over age where that is longer, or
            nothing once the life is over (sunk).
        utilisation: Per cent of the fleet's capacity, without jobs; 50 unless given.
        year: The year it is, for the age of servers: that of the first job, or today's.
        sleep: Servers without work are switched off.
        shift: Jobs with a deadline wait for their cleanest hours.
        reference: The machine that durations were measured on; the fleet's mean unless given.
        scope: Life-cycle or direct intensity of the zone.
        fill: How gaps of the signal are filled: hold the last value, or interpolate.
        timezone: Of jobs' times without an offset: UTC, +01:00, Europe/Berlin.
        price: USD/kWh.
        seed: Of the zone's generated year.
        output: Where the answer goes.
    """
    check_input(fleet, "carbon place --fleet")
    check_input(jobs, "carbon place --jobs")
    check_input(signal, "carbon place --signal")
    if fleet is None:
        raise InputError("--fleet: which servers?", hint="a fleet in YAML, or bundled:mit-740")
    if zone is None and signal is None:
        raise InputError("--zone: which grid?", hint="a name such as DE, or g/kWh")
    if price is not None and not 0 <= price < float("inf"):
        raise InputError(f"--price {price:g}: it has to be zero or more")
    command = " ".join(
        [
            "gnomon carbon place",
            *spell_options(
                {
                    "fleet": fleet if fleet.startswith("bundled:") else Path(fleet),
                    "zone": zone, "jobs": jobs, "metric": metric, "signal": signal,
                    "amortise": amortise, "utilisation": utilisation, "year": year,
                    "sleep": sleep, "shift": shift, "reference": reference,
                    "scope": scope if scope != "lifecycle" else None, "fill": fill,
                    "timezone": timezone if timezone != "UTC" else None,
                    "price": price, "seed": seed or None,
                }
            ),
        ]
    )  # fmt: skip
    sources = [str(path) for path in (Path(fleet), jobs, signal) if path and path.is_file()]
    if jobs is None:
        if shift or reference:
            raise InputError("--shift and --reference are about jobs: give --jobs")
        _curves(
            fleet, zone, metric, signal, amortise, 50.0 if utilisation is None else utilisation,
            year or time.gmtime().tm_year, sleep, scope, fill, seed, command, sources, output,
        )  # fmt: skip
        return
    if utilisation is not None:
        raise InputError("--utilisation follows from --jobs: give one or the other")
    from gnomon.ingest.intensity.grid import read_grid_file
    from gnomon.ingest.jobs.jobs_csv import read_jobs_csv
    from gnomon.ingest.moment import find_timezone
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.series import Signal
    from gnomon.systems.carbon.metric import parse_metrics
    from gnomon.systems.carbon.place import demand_of, place_jobs
    from gnomon.systems.carbon.place_result import to_result, to_script

    metrics = parse_metrics(metric)
    servers = read_fleet(fleet)
    found = read_jobs_csv(jobs, zone=find_timezone(timezone))
    asked = demand_of(found, servers)
    first = int(asked.arrival_ns.min()) if asked.arrival_ns.size else 0
    notes: dict[str, None] = dict.fromkeys([*_unused(found.machine), *found.notes])

    hours = read_grid_file(signal, zone=zone, scope=scope, fill=fill) if signal else None

    def grid(start_ns: int, end_ns: int) -> Signal:
        line, grid_notes = hours or zone_hours(
            zone, start_ns, end_ns, scope=scope, seed=seed, fill=fill
        )
        notes.update(dict.fromkeys(grid_notes))
        return line

    placements = place_jobs(
        servers, asked, grid, metrics, amortise=amortise, sleep=sleep, shift=shift,
        year=year_of_jobs(first, year),
        reference=_points(reference, servers) if reference else None,
    )  # fmt: skip
    result = to_result(
        placements, command, price_usd_kwh=price, sources=sources, notes=list(notes)
    )
    show(result, output, extra=to_script(placements) if output.json else None)


def _unused(machines: Sequence[str]) -> list[str]:
    named = sum(bool(machine) for machine in machines)
    return [f"{named:,} jobs name a machine: they are placed anew all the same."] if named else []


def _points(name: str, servers: Fleet) -> float:
    """Points of one thread of the machine that durations were measured on."""
    from gnomon.model.machines.machine import find_machine

    machine = find_machine(name)
    units = {group.machine.score_unit for group in servers.groups if group.machine.score > 0}
    if machine.points_per_thread <= 0 or machine.score_unit not in units:
        raise InputError(
            f"{machine.name} has no score that the fleet has",
            where="--reference", hint=f"a machine scored in {', '.join(units) or 'nothing'}",
        )  # fmt: skip
    return machine.points_per_thread


def _curves(
    fleet: str, zone: str | None, metric: str, signal: Path | None,
    amortise: Literal["life", "age", "sunk"], utilisation: float, year: int, sleep: bool,
    scope: Literal["lifecycle", "direct"], fill: Literal["hold", "interpolate"] | None, seed: int,
    command: str, sources: list[str], output: Output,
) -> None:  # fmt: skip
    import numpy as np

    from gnomon.ingest.intensity.grid import mean_intensity
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.systems.carbon.curves_result import curves_of, to_result, to_script
    from gnomon.systems.carbon.metric import parse_metrics

    if not 0 <= utilisation <= 100:
        raise InputError(f"--utilisation {utilisation:g}: between 0 and 100 per cent")
    file = signal or own_file(zone)
    mean, notes = mean_intensity(zone, year=year, file=file, scope=scope, seed=seed, fill=fill)
    curves = curves_of(
        read_fleet(fleet), mean, parse_metrics(metric), year=year, amortise=amortise,
        utilisation=utilisation / 100, sleep=sleep, rng=np.random.default_rng(seed),
    )  # fmt: skip
    result = to_result(curves, command, sources=sources, notes=notes)
    show(result, output, extra=to_script(curves) if output.json else None)
