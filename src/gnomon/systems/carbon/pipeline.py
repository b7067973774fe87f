"""Carbon as a composition of the layers: what ran, and a grid, to accounts and placements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, tzinfo
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import (
    find_grid_file,
    grid_signal,
    mean_intensity,
    read_grid_file,
    year_of,
)
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.ingest.jobs.jobs_csv import read_jobs_csv
from gnomon.ingest.metrics.power_series import PowerSeries
from gnomon.model.carbon import Amortisation
from gnomon.model.machines.machine import Fleet, find_machine
from gnomon.series import Fill, Signal
from gnomon.series.intensity import Scope
from gnomon.systems.carbon.accounts.account import Accounts, account_jobs
from gnomon.systems.carbon.accounts.account_power import account_power, fill_power
from gnomon.systems.carbon.curves_result import Curves, curves_of
from gnomon.systems.carbon.metric import Metric
from gnomon.systems.carbon.place import Placements, demand_of, place_jobs

#: Times before this are counted from the start of a run, and say no year.
_DATED_NS = 20 * 31_556_952 * 10**9


class GridChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Where the hours of a grid come from: a file, a folder of files by zone, or the profiles.

    Attributes:
        zone: DE, SE ... or g/kWh as a number; with a file, what it is of.
        folder: Files of real hours, each named by its zone.
    """

    zone: str | None
    file: Path | None = None
    folder: str | None = None
    scope: Scope = "lifecycle"
    fill: Fill | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.zone is None and self.file is None:
            raise InputError("--zone: which grid?", hint="a name such as DE, or g/kWh")

    @property
    def own_file(self) -> Path | None:
        if self.file is not None or self.zone is None:
            return self.file
        return find_grid_file(self.folder, self.zone)

    def hours(self, start_ns: int, end_ns: int) -> tuple[Signal, list[str]]:
        if self.file is not None:
            return read_grid_file(self.file, zone=self.zone, scope=self.scope, fill=self.fill)
        return grid_signal(
            self.zone, start_ns, end_ns, scope=self.scope, seed=self.seed, folder=self.folder,
            fill=self.fill if self.own_file is not None else None,
        )  # fmt: skip

    def mean(self, year: int) -> tuple[float, list[str]]:
        return mean_intensity(
            self.zone, year=year, file=self.own_file, scope=self.scope, seed=self.seed,
            fill=self.fill,
        )  # fmt: skip


def account_activity(
    ran: Jobs | Sequence[PowerSeries], grid: GridChoice, fleet: Fleet | None = None, *,
    source: str = "", amortise: Amortisation = "age", utilisation: float = 1.0,
    year: int | None = None, this_year: int, price_usd_kwh: float | None = None,
    reported_kg: float | None = None,
) -> tuple[Accounts, list[str]]:  # fmt: skip
    """What jobs, or measured power, emitted; and notes about gaps and the grid.

    Args:
        fleet: The machines it ran on; measured energy needs none.
        year: The year it is, for the age of machines: that of the first job unless given.
        this_year: Taken where times are counted from the start of a run.
        reported_kg: What rSCI is to add up to; all carbon of the fleet unless given.
    """
    notes: list[str] = []
    reported = None if reported_kg is None else Estimate.exact(reported_kg)
    if isinstance(ran, Jobs):
        span = (int(ran.start_ns.min()), int(ran.end_ns.max()))
    else:
        ran, notes = fill_power(list(ran), grid.fill)
        span = (min(one.signal.start_ns for one in ran), max(one.signal.end_ns for one in ran))
    intensity, grid_notes = grid.hours(*span)
    when = _year(span[0], year, this_year)
    if isinstance(ran, Jobs):
        accounts = account_jobs(
            ran, fleet, intensity, amortise=amortise, utilisation=utilisation, year=when,
            price_usd_kwh=price_usd_kwh, reported_kg=reported,
        )  # fmt: skip
    else:
        accounts = account_power(
            ran, fleet, intensity, source, amortise=amortise, year=when,
            price_usd_kwh=price_usd_kwh, reported_kg=reported,
        )  # fmt: skip
    return accounts, [*notes, *grid_notes]


def place_file(
    jobs: Path, fleet: Fleet, grid: GridChoice, metrics: Sequence[Metric], *,
    amortise: Amortisation = "age", sleep: bool = False, shift: bool = False,
    year: int | None = None, this_year: int, reference: str | None = None,
    timezone: tzinfo = UTC,
) -> tuple[Placements, list[str]]:  # fmt: skip
    """The jobs of a file placed by each metric; durations are those of `reference`."""
    found = read_jobs_csv(jobs, zone=timezone)
    demand = demand_of(found, fleet)
    first = int(demand.arrival_ns.min()) if demand.arrival_ns.size else 0
    named = sum(bool(machine) for machine in found.machine)
    notes = [f"{named:,} jobs name a machine: they are placed anew all the same."] if named else []
    kept = dict.fromkeys([*notes, *found.notes])

    def hours(start_ns: int, end_ns: int) -> Signal:
        line, grid_notes = grid.hours(start_ns, end_ns)
        kept.update(dict.fromkeys(grid_notes))
        return line

    placements = place_jobs(
        fleet, demand, hours, metrics, amortise=amortise, sleep=sleep, shift=shift,
        year=_year(first, year, this_year),
        reference=_points(reference, fleet) if reference else None,
    )  # fmt: skip
    return placements, list(kept)


def added_curves(
    fleet: Fleet, grid: GridChoice, metrics: Sequence[Metric], *, year: int,
    amortise: Amortisation = "age", utilisation: float = 0.5, sleep: bool = False,
) -> tuple[Curves, list[str]]:  # fmt: skip
    """What sorting by each metric adds, without a list of jobs; and notes about the grid."""
    mean, notes = grid.mean(year)
    curves = curves_of(
        fleet, mean, metrics, year=year, amortise=amortise, utilisation=utilisation, sleep=sleep,
        rng=np.random.default_rng(grid.seed),
    )  # fmt: skip
    return curves, notes


def check_not_negative(option: str, value: float | None) -> None:
    """A price or an amount: zero or more, and finite."""
    if value is not None and not 0 <= value < math.inf:
        raise InputError(f"{option} {value:g}: it has to be zero or more")


def _year(first_ns: int, year: int | None, this_year: int) -> int:
    if year is not None:
        return year
    return year_of(first_ns) if first_ns > _DATED_NS else this_year


def _points(name: str, fleet: Fleet) -> float:
    machine = find_machine(name)
    units = {group.machine.score_unit for group in fleet.groups if group.machine.score > 0}
    if machine.points_per_thread <= 0 or machine.score_unit not in units:
        raise InputError(
            f"{machine.name} has no score that the fleet has",
            where="--reference", hint=f"a machine scored in {', '.join(units) or 'nothing'}",
        )  # fmt: skip
    return machine.points_per_thread
