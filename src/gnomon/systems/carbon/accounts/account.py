"""What jobs emitted: energy, operational and embodied carbon, and every metric, each in a range.

A job holds threads of servers, accelerators, or both. Of each it is charged its share of idle
power, what its load adds, and its share of embodied carbon for as long as it holds them; what
nobody held meanwhile is shared out for tSCI (`gnomon.model.attribution`). Where a file says on
which machine a job ran, that one counts; otherwise the job is spread evenly over the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import check_covers, year_of
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.model.carbon import Amortisation, carbon_delay, cci, grid_hours, osci, rsci, sci, tsci
from gnomon.model.machines.machine import Fleet
from gnomon.model.ranges import Floats, Ints, Ranges
from gnomon.series import Signal
from gnomon.systems.carbon.accounts.holdings import JobSums, Pool, pools_of, say_age, share_pools
from gnomon.units import HOUR_NS

#: The metrics of an account, and what a unit of each is; their titles are in `metric`.
METRICS = {
    "sci": "operational + embodied of what the job held, by work",
    "osci": "operational alone, by work: what a scheduler should sort by",
    "tsci": "with the job's share of idle capacity: adds up to the fleet's total",
    "cci": "as if its machines did such work all their life",
    "cdp": "carbon-delay product, gram-seconds",
    "rsci": "operational, scaled so that all jobs add up to what is reported",
}


@dataclass(frozen=True, eq=False)
class Accounts:
    """The carbon of every job, and of the fleet.

    Attributes:
        work: The R of the metrics.
        energy_kwh: With PUE.
        idle_operational_g: Share of idle power, which tSCI adds.
        idle_embodied_g: Share of the embodied carbon of what idles, which tSCI adds.
        life_embodied_g: Embodied carbon by the expected life, whatever the amortisation: for CCI.
        fleet_g: All carbon of the fleet over the span; None without a fleet.
        nobody_g: Of it, what fell into hours in which nothing ran.
    """

    names: tuple[str, ...]
    where: str
    line: Ints
    start_ns: Ints
    end_ns: Ints
    cores: Floats
    gpus: Floats
    work: Floats
    work_unit: str
    energy_kwh: Ranges
    operational_g: Ranges
    embodied_g: Ranges
    idle_operational_g: Ranges
    idle_embodied_g: Ranges
    life_embodied_g: Ranges
    reported_g: Estimate
    fleet_g: Estimate | None
    nobody_g: Estimate
    intensity: Signal
    amortise: Amortisation
    price_usd_kwh: Floats
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def total_g(self) -> Ranges:
        return self.operational_g + self.embodied_g

    @property
    def cost_usd(self) -> Ranges | None:
        if np.isnan(self.price_usd_kwh).any():
            return None
        return self.energy_kwh * self.price_usd_kwh

    def metric(self, name: str) -> Ranges:
        operational, embodied, work = self.operational_g, self.embodied_g, self.work
        if name == "sci":
            return sci(operational, embodied, work)
        if name == "osci":
            return osci(operational, work)
        if name == "tsci":
            return tsci(operational, embodied, self.idle_operational_g, self.idle_embodied_g, work)
        if name == "cci":
            return cci(operational, self.life_embodied_g, work)
        if name == "cdp":
            return carbon_delay(self.total_g, (self.end_ns - self.start_ns) / 1e9)
        if name == "rsci":
            return rsci(operational, work, self.reported_g, operational.total())
        raise InputError(f"no metric is called {name!r}", hint=f"known are {', '.join(METRICS)}")


def account_jobs(
    jobs: Jobs,
    fleet: Fleet | None,
    intensity: Signal,
    *,
    amortise: Amortisation = "age",
    utilisation: float = 1.0,
    year: float | None = None,
    price_usd_kwh: float | None = None,
    reported_kg: Estimate | None = None,
) -> Accounts:
    """The carbon of a table of jobs.

    Args:
        fleet: The machines; None where all jobs come with measured energy.
        intensity: The grid in g/kWh; it has to cover every job, without gaps.
        amortise: How embodied carbon is spread over time; over age where that is longer than
            the life unless given, so that an old machine is not charged twice.
        year: The year it is, for the age of machines; that of the first job unless given.
        reported_kg: What rSCI is to add up to; all carbon of the fleet unless given.
    """
    if not 0 <= utilisation <= 1:
        raise InputError(f"a utilisation of {utilisation:g}; it lies between 0 and 1")
    if not len(jobs):
        raise InputError("there is no job to account for", where=jobs.where or None)
    _check_times(jobs, intensity)
    weights = grid_hours(intensity, jobs.start_ns, jobs.end_ns)
    hours = (jobs.end_ns - jobs.start_ns) / HOUR_NS
    measured = ~np.isnan(jobs.energy_kwh)
    notes = list(jobs.notes)
    pue = fleet.pue if fleet is not None else Estimate.exact(1.0)
    sums = JobSums(len(jobs))
    when = year if year is not None else year_of(int(jobs.start_ns.min()))
    pools: list[Pool] = []
    if fleet is None:
        if not measured.all():
            row = int(np.flatnonzero(~measured)[0])
            what = "the job has no measured energy, and no machines were given"
            raise InputError(what, where=jobs.at(row), hint="give --machines fleet.yaml")
        notes.append("No machines were given: embodied carbon and idle capacity are not counted.")
    else:
        pools = pools_of(jobs, fleet, amortise, when)
        notes += say_age(fleet, when, amortise)
        load = np.where(np.isnan(jobs.utilisation), utilisation, jobs.utilisation)
        for pool in pools:
            pool.charge(sums, load, weights, hours)
        unknown = int((np.isnan(jobs.utilisation) & ~measured).sum())
        if unknown:
            unstated = f"{unknown:,} of {len(jobs):,} jobs do not say how busy they were"
            notes.append(f"{unstated}: counted at {100 * utilisation:g} %.")
    power, grams = sums.ranges("energy"), sums.ranges("operational")
    _check_measured(jobs, sums, hours, measured)
    metered = Ranges.of(np.where(measured, jobs.energy_kwh, 0.0))
    mean = weights * np.where(hours > 0, 1 / np.where(hours > 0, hours, 1.0), 0.0)
    energy = metered.where(measured, power) * pue
    operational = (metered * mean).where(measured, grams) * pue
    span = (int(jobs.start_ns.min()), int(jobs.end_ns.max()))
    idle = share_pools(pools, intensity, pue, span, len(jobs))
    if idle.overfull_ns:
        held = idle.overfull_ns / (span[1] - span[0])
        notes.append(
            f"In {100 * held:.3g} % of the time jobs held more than the fleet has: is it complete?"
        )
    if idle.nobody_g.mid > 0:
        notes.append(
            f"{idle.nobody_g.mid / 1e3:.3g} kg are of machines that idled while nothing of their "
            "kind ran: the fleet's, and nobody's tSCI."
        )
    embodied = sums.ranges("embodied")
    everything = operational.total() + embodied.total() + idle.nobody_g
    everything = everything + idle.operational_g.total() + idle.embodied_g.total()
    return Accounts(
        names=jobs.id, where=jobs.where, line=jobs.line,
        start_ns=jobs.start_ns, end_ns=jobs.end_ns, cores=jobs.cores, gpus=jobs.gpus,
        work=_work(jobs),
        work_unit="job" if np.isnan(jobs.work).all() else "unit of work",
        energy_kwh=energy, operational_g=operational, embodied_g=embodied,
        idle_operational_g=idle.operational_g, idle_embodied_g=idle.embodied_g,
        life_embodied_g=sums.ranges("life"),
        reported_g=reported_kg * 1000.0 if reported_kg is not None else everything,
        fleet_g=everything if fleet is not None else None,
        nobody_g=idle.nobody_g, intensity=intensity, amortise=amortise,
        price_usd_kwh=_prices(jobs, price_usd_kwh), notes=notes,
    )  # fmt: skip


def _check_times(jobs: Jobs, intensity: Signal) -> None:
    outside = (jobs.start_ns < intensity.start_ns) | (jobs.end_ns > intensity.end_ns)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        check_covers(intensity, int(jobs.start_ns[row]), int(jobs.end_ns[row]), jobs.at(row))
    for gap in intensity.gaps():
        met = (jobs.start_ns < gap.end_ns) & (jobs.end_ns > gap.start_ns)
        if met.any():
            what = f"the job runs while the signal has no value: {gap}"
            where = jobs.at(int(np.flatnonzero(met)[0]))
            raise InputError(what, where=where, hint="fill it: --fill hold or interpolate")


def _check_measured(
    jobs: Jobs, sums: JobSums, hours: Floats, measured: npt.NDArray[np.bool_]
) -> None:
    """Power below what the held share of a machine draws when idle is no measurement."""
    floor = sums.columns["idle_w"][0]
    watts = 1e3 * np.where(measured, jobs.energy_kwh, 0.0) / np.where(hours > 0, hours, 1.0)
    stuck = measured & (hours == 0) & (jobs.energy_kwh > 0)
    if stuck.any():
        row = int(np.flatnonzero(stuck)[0])
        raise InputError("the job used energy in no time", where=jobs.at(row))
    below = measured & (hours > 0) & (watts < floor * (1 - 1e-9))
    if below.any():
        row = int(np.flatnonzero(below)[0])
        raise InputError(
            f"its measured power of {watts[row]:.4g} W is below the {floor[row]:.4g} W that its "
            "share of the machine draws when idle",
            where=jobs.at(row), hint="correct idle_w of the fleet, or the measured energy",
        )  # fmt: skip


def _work(jobs: Jobs) -> Floats:
    if np.isnan(jobs.work).all():
        return np.ones(len(jobs))
    bad = ~(jobs.work > 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InputError("work is missing or zero, and others have it", where=jobs.at(row))
    return jobs.work


def _prices(jobs: Jobs, price: float | None) -> Floats:
    default = np.nan if price is None else price
    return np.where(np.isnan(jobs.price_usd_kwh), default, jobs.price_usd_kwh)
