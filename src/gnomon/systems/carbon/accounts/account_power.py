"""What measured power emitted: series of Kepler, Scaphandre and their like."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import check_covers, day_of, year_of
from gnomon.ingest.metrics.power_series import PowerSeries
from gnomon.model.carbon import Amortisation, embodied_rate_g_h, power_grams
from gnomon.model.machines.machine import Fleet
from gnomon.model.ranges import Ranges
from gnomon.series import Fill, Signal
from gnomon.systems.carbon.accounts.account import Accounts
from gnomon.systems.carbon.accounts.holdings import say_age
from gnomon.units import HOUR_NS, format_duration


def account_power(
    series: Sequence[PowerSeries],
    fleet: Fleet | None,
    intensity: Signal,
    where: str = "",
    *,
    amortise: Amortisation = "age",
    year: float | None = None,
    price_usd_kwh: float | None = None,
    reported_kg: Estimate | None = None,
) -> Accounts:
    """The carbon of measured power series; what the fleet embodies is shared by energy.

    Series of one name (a pod's packages and modes) add up. See `account_jobs` for the arguments.
    """
    if not series:
        raise InputError("there is no power to account for", where=where or None)
    pue = fleet.pue if fleet is not None else Estimate.exact(1.0)
    parts: dict[str, list[PowerSeries]] = {}
    for one in series:
        parts.setdefault(one.name, []).append(one)
    energy, grams = [], []
    for name, alike in parts.items():
        at = f"{where} {name}"
        for one in alike:
            check_covers(intensity, one.signal.start_ns, one.signal.end_ns, at)
            _check_gaps(one, at)
        energy.append(_sum(one.signal.integrate_estimate(unit="kWh") * pue for one in alike))
        grams.append(_sum(power_grams(one.signal, intensity, pue) for one in alike))
    firsts = [min(one.signal.start_ns for one in alike) for alike in parts.values()]
    lasts = [max(one.signal.end_ns for one in alike) for alike in parts.values()]
    start, end = min(firsts), max(lasts)
    rows = len(parts)
    energies = Ranges.gather(energy)
    notes = _power_notes(series)
    share = energies.mid / max(float(energies.mid.sum()), 1e-300)
    embodied = life = Ranges.of(np.zeros(rows))
    if fleet is None:
        notes.append("No machines were given: embodied carbon is not counted.")
    else:
        _check_hosts(series, fleet, where)
        when = year if year is not None else year_of(start)
        hours = (end - start) / HOUR_NS
        embodied, life = (
            Ranges.of(_fleet_rate(fleet, when, how) * hours, rows) * share
            for how in (amortise, "life")
        )
        notes += say_age(fleet, when, amortise)
        notes.append("Embodied carbon of the whole fleet is shared by energy.")
    operational = Ranges.gather(grams)
    everything = operational.total() + embodied.total()
    price = np.nan if price_usd_kwh is None else price_usd_kwh
    nothing = np.zeros(rows)
    return Accounts(
        names=tuple(parts), where=where, line=np.zeros(rows, dtype=np.int64),
        start_ns=np.array(firsts), end_ns=np.array(lasts),
        cores=nothing, gpus=nothing, work=np.ones(rows), work_unit="series",
        energy_kwh=energies, operational_g=operational, embodied_g=embodied,
        idle_operational_g=Ranges.of(nothing), idle_embodied_g=Ranges.of(nothing),
        life_embodied_g=life,
        reported_g=reported_kg * 1000.0 if reported_kg is not None else everything,
        fleet_g=everything if fleet is not None else None, nobody_g=Estimate.exact(0.0),
        intensity=intensity, amortise=amortise, price_usd_kwh=np.full(rows, price), notes=notes,
    )  # fmt: skip


def _fleet_rate(fleet: Fleet, year: float, how: Amortisation) -> Estimate:
    return _sum(
        embodied_rate_g_h(g.machine, bought=g.bought, year=year, how=how) * g.count
        for g in fleet.groups
    )


def _sum(estimates: Iterable[Estimate]) -> Estimate:
    return sum(estimates, Estimate.exact(0.0))


def _check_gaps(one: PowerSeries, at: str) -> None:
    if gaps := one.signal.gaps():
        what = f"no power from {gaps[0]}"
        raise InputError(what, where=at, hint="fill it: --fill hold")


def _check_hosts(series: Sequence[PowerSeries], fleet: Fleet, where: str) -> None:
    machines = {group.machine.name: group.machine for group in fleet.groups}
    if len(machines) != 1:
        return
    machine = next(iter(machines.values()))
    if machine.kind != "server":
        return
    for one in series:
        whole = one.is_host and ("platform" in one.metric or "host_power" in one.metric)
        if not whole or "mode" in one.labels:
            continue
        least = int(np.nanargmin(one.signal.values))
        if one.signal.values[least] < machine.idle_w.low * (1 - 1e-9):
            raise InputError(
                f"{one.signal.values[least]:.4g} W at {day_of(int(one.signal.time_ns[least]))} is "
                f"below the {machine.idle_w.low:.4g} W that a {machine.name} draws when idle",
                where=f"{where} {one.name}", hint="correct idle_w of the fleet",
            )  # fmt: skip


def _power_notes(series: Sequence[PowerSeries]) -> list[str]:
    metrics = ", ".join(dict.fromkeys(one.metric or "(no name)" for one in series))
    notes = [f"Power of {len(series):,} series of {metrics}."]
    resets = sum(one.resets for one in series)
    if resets:
        notes.append(f"Counters began again {resets:,} times; each counts from zero there.")
    if not any(one.is_host for one in series):
        notes.append("What the machines drew beyond these series is not in it.")
    return notes


def fill_power(
    series: Sequence[PowerSeries], fill: Fill | None
) -> tuple[list[PowerSeries], list[str]]:
    """The same series with their gaps filled where that was asked for, and what was."""
    if fill is None:
        return list(series), []
    gaps = [gap for one in series for gap in one.signal.gaps()]
    filled = [dataclasses.replace(one, signal=one.signal.fill(fill)) for one in series]
    if not gaps:
        return filled, []
    missing = format_duration(sum(gap.end_ns - gap.start_ns for gap in gaps))
    note = f"Filled {len(gaps):,} gaps of measured power, {missing} in all ({fill})."
    return filled, [note]
