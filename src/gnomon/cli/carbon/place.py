"""gnomon carbon place: jobs, or a level of use, onto a fleet by one metric or another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from gnomon.cli.carbon.grid import check_per_cent, files_of, own_folder
from gnomon.cli.output import Output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input


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
    from gnomon.ingest.moment import find_timezone
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.systems.carbon import curves_result, place_result
    from gnomon.systems.carbon.metric import parse_metrics
    from gnomon.systems.carbon.pipeline import (
        GridChoice,
        added_curves,
        check_not_negative,
        place_file,
    )

    if fleet is None:
        raise InputError("--fleet: which servers?", hint="a fleet in YAML, or bundled:mit-740")
    grid = GridChoice(
        zone=zone, file=signal, folder=own_folder(), scope=scope, fill=fill, seed=seed
    )
    check_not_negative("--price", price)
    sources, this_year = files_of(fleet, jobs, signal), time.gmtime().tm_year
    if jobs is None:
        if shift or reference:
            raise InputError("--shift and --reference are about jobs: give --jobs")
        use = 50.0 if utilisation is None else utilisation
        check_per_cent("--utilisation", use)
        curves, notes = added_curves(
            read_fleet(fleet), grid, parse_metrics(metric), year=year or this_year,
            amortise=amortise, utilisation=use / 100, sleep=sleep,
        )  # fmt: skip
        result = curves_result.to_result(
            curves, typed_command(), sources=sources, notes=notes, seed=seed
        )
        show(result, output, extra=curves_result.to_script(curves) if output.json else None)
        return
    if utilisation is not None:
        raise InputError("--utilisation follows from --jobs: give one or the other")
    metrics, servers = parse_metrics(metric), read_fleet(fleet)
    placements, notes = place_file(
        jobs, servers, grid, metrics, amortise=amortise, sleep=sleep, shift=shift, year=year,
        this_year=this_year, reference=reference, timezone=find_timezone(timezone),
    )  # fmt: skip
    result = place_result.to_result(
        placements, typed_command(), price_usd_kwh=price, sources=sources, notes=notes, seed=seed
    )
    show(result, output, extra=place_result.to_script(placements) if output.json else None)
