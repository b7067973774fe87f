"""gnomon carbon buy: keep servers, or replace them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gnomon.cli.carbon.grid import check_per_cent, files_of
from gnomon.cli.output import Output, show
from gnomon.cli.typed import typed_command
from gnomon.errors import InputError
from gnomon.ingest.formats import check_input


def buy(
    *,
    fleet: str | None = None,
    candidate: str | None = None,
    zone: str | None = None,
    utilisation: float = 50.0,
    years: float | None = None,
    grid_change: float = 0.0,
    sleep: Annotated[bool, Parameter(negative=())] = False,
    price: float | None = None,
    output: Output = Output(),  # noqa: B008
) -> int:
    """Keep servers or replace them: does making new ones pay off in carbon, and when?

    `gnomon carbon buy --fleet bundled:mit-740 --candidate 'EPYC 9334' --zone SE`. Exits with 3
    when the answer is to keep all.

    Args:
        fleet: A fleet in YAML, or bundled:mit-740.
        candidate: A machine of the catalogue, or a fleet file whose first machine is meant.
        zone: The grid: DE, SE, CAISO ... or g/kWh.
        utilisation: Per cent of the fleet's capacity that is in use.
        years: How long new servers will be used; their life unless given.
        grid_change: Per cent a year by which the grid changes: -5 gets cleaner.
        sleep: Servers without work are switched off.
        price: USD/kWh.
        output: Where the answer goes.
    """
    from gnomon.model.machines.machine import find_machine
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.series.zones import zone_intensity
    from gnomon.systems.carbon.buy import weigh_purchase
    from gnomon.systems.carbon.buy_result import to_result, to_script
    from gnomon.systems.carbon.pipeline import check_not_negative

    check_input(fleet, "carbon buy --fleet")
    check_input(candidate, "carbon buy --candidate")
    if fleet is None or candidate is None or zone is None:
        raise InputError(
            "--fleet, --candidate and --zone: which servers, what instead, and where?"
        )
    check_not_negative("--price", price)
    check_per_cent("--utilisation", utilisation)
    is_file = Path(candidate).suffix.lower() in (".yaml", ".yml")
    machine = read_fleet(candidate).groups[0].machine if is_file else find_machine(candidate)
    purchase = weigh_purchase(
        read_fleet(fleet), machine, zone_intensity(zone),
        utilisation=utilisation / 100, years=years, change_pct_y=grid_change, sleep=sleep,
    )  # fmt: skip
    result = to_result(
        purchase, typed_command(), price_usd_kwh=price, sources=files_of(fleet, candidate)
    )
    show(result, output, extra=to_script(purchase) if output.json else None)
    return 0 if purchase.best is not None else 3
