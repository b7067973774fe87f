"""Who holds which machines, what that costs, and who carries what nobody holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.model.attribution import Usage, share_idle
from gnomon.model.carbon import Amortisation, embodied_rate_g_h, grid_hours
from gnomon.model.machines.machine import Fleet, MachineGroup, find_machine
from gnomon.model.ranges import Floats, Ints, Ranges
from gnomon.series import Signal
from gnomon.units import HOUR_NS

_ENDS = ("low", "mid", "high")


class JobSums:
    """Columns by job that pieces add to."""

    def __init__(self, rows: int) -> None:
        self.columns = {
            name: np.zeros((3, rows))
            for name in ("energy", "operational", "embodied", "life", "idle_w")
        }

    def add(self, name: str, rows: npt.NDArray[np.intp], amounts: Ranges) -> None:
        for end, column in zip(_ENDS, self.columns[name]):
            column += np.bincount(rows, getattr(amounts, end), column.size)

    def ranges(self, name: str) -> Ranges:
        return Ranges(*self.columns[name])


@dataclass(frozen=True, eq=False)
class Pool:
    """Machines whose units are alike (threads, or accelerators), and who holds them.

    `rows`, `units` and `group` say which job holds how many units of which group; -1 is all of
    them evenly.
    """

    groups: tuple[MachineGroup, ...]
    rates: tuple[tuple[Estimate, Estimate], ...]
    rows: npt.NDArray[np.intp]
    units: Floats
    group: Ints
    start_ns: Ints
    end_ns: Ints

    @property
    def capacity(self) -> Floats:
        return np.array([g.count * g.machine.threads for g in self.groups], dtype=np.float64)

    def _by_unit(self, of_machine: Sequence[Estimate]) -> Ranges:
        capacity = self.capacity
        counts = [group.count for group in self.groups]
        wholes = [value * count for value, count in zip(of_machine, counts)]
        mean = sum(wholes[1:], wholes[0]) / float(capacity.sum())
        each = [whole / float(units) for whole, units in zip(wholes, capacity)]
        return Ranges.gather([*each, mean])

    def charge(self, sums: JobSums, load: Floats, weights: Ranges, hours: Floats) -> None:
        idle, peak, embodied, life = (
            self._by_unit(values).take(self.group.astype(np.intp))
            for values in (
                [group.machine.idle_w for group in self.groups],
                [group.machine.peak_w for group in self.groups],
                [rate for rate, _ in self.rates],
                [rate for _, rate in self.rates],
            )
        )
        busy = load[self.rows]
        kilowatts = (idle * (1 - busy) + peak * busy) * (self.units / 1e3)
        held = self.units * hours[self.rows]
        sums.add("energy", self.rows, kilowatts * hours[self.rows])
        sums.add("operational", self.rows, kilowatts * weights.take(self.rows))
        sums.add("embodied", self.rows, embodied * held)
        sums.add("life", self.rows, life * held)
        least = min(g.machine.idle_w.low / max(1, g.machine.threads) for g in self.groups)
        floor = np.where(self.group < 0, least, idle.low) * self.units
        sums.add("idle_w", self.rows, Ranges.of(floor))


def pools_of(jobs: Jobs, fleet: Fleet, amortise: Amortisation, year: float) -> list[Pool]:
    """Servers with the threads that jobs hold, and accelerators with those that they hold."""
    pools = []
    for is_host, units in ((True, jobs.cores), (False, jobs.gpus)):
        groups = tuple(g for g in fleet.groups if (g.machine.kind != "accelerator") == is_host)
        if not groups:
            _refuse_homeless(jobs, units, is_host)
            continue
        rows, held, group = _assign(jobs, units, groups, fleet, is_host)
        rates = tuple(
            (
                embodied_rate_g_h(g.machine, bought=g.bought, year=year, how=amortise),
                embodied_rate_g_h(g.machine),
            )
            for g in groups
        )
        times = (jobs.start_ns[rows], jobs.end_ns[rows])
        pools.append(Pool(groups, rates, rows, held, group, *times))
    return pools


def _refuse_homeless(jobs: Jobs, units: Floats, is_host: bool) -> None:
    if not (units > 0).any():
        return
    row = int(np.flatnonzero(units > 0)[0])
    what, hint = (
        ("cores", "add its servers")
        if is_host
        else ("accelerators", "add them, such as {machine: A100, count: 8}")
    )
    raise InputError(
        f"the job holds {units[row]:g} {what}, and the fleet has none",
        where=jobs.at(row),
        hint=hint,
    )


def _assign(
    jobs: Jobs, units: Floats, groups: Sequence[MachineGroup], fleet: Fleet, is_host: bool
) -> tuple[npt.NDArray[np.intp], Floats, Ints]:
    """Who holds how much of which group; a name that several groups share is split by size."""
    names = [
        machine if is_host else gpu or machine for machine, gpu in zip(jobs.machine, jobs.gpu)
    ]
    rows = np.flatnonzero(units > 0)
    if rows.size < len(names):
        names = [names[row] for row in rows.tolist()]
    number = {text: code for code, text in enumerate(dict.fromkeys(names))}
    code = np.array([number[text] for text in names], dtype=np.intp)
    here, anywhere = _GroupNames(groups), _GroupNames(fleet.groups)
    # By name: the groups that it means, and how much of a job each of them carries.
    places = [here.find(text) for text in number]
    for text, found in zip(number, places):
        # A machine named for the other half of the job (its accelerators) says nothing here.
        if text and not found and not anywhere.find(text):
            known = ", ".join(dict.fromkeys(g.machine.name for g in fleet.groups))
            what = f"no machine of the fleet is called {text!r}"
            where = jobs.at(int(rows[names.index(text)]))
            raise InputError(what, where=where, hint=f"there are {known}")
    spread = [0] if len(groups) == 1 else [-1]
    places = [found or spread for found in places]
    sizes = np.array([g.count * g.machine.threads for g in groups], dtype=np.float64)
    parts = [sizes[found] / sizes[found].sum() for found in places]
    counts = np.array([len(found) for found in places], dtype=np.intp)
    firsts = np.cumsum(counts) - counts
    many = counts[code]
    job = np.repeat(np.arange(rows.size), many)
    within = np.arange(job.size) - np.repeat(np.cumsum(many) - many, many)
    place = firsts[code[job]] + within
    group = np.array([one for found in places for one in found], dtype=np.int64)
    part = np.concatenate([np.zeros(0), *parts])
    return rows[job], units[rows[job]] * part[place], group[place]


class _GroupNames:
    """Groups by what their machines are called."""

    def __init__(self, groups: Sequence[MachineGroup]) -> None:
        self._by_model: dict[str, list[int]] = {}
        self._by_name: dict[str, list[int]] = {}
        for index, group in enumerate(groups):
            machine = group.machine
            self._by_model.setdefault(machine.name, []).append(index)
            for name in {_plain(name) for name in (machine.name, *machine.aliases)}:
                self._by_name.setdefault(name, []).append(index)

    def find(self, text: str) -> list[int]:
        """The groups that a name means; none where it is empty or unknown."""
        if not text:
            return []
        if found := self._by_name.get(_plain(text)):
            return found
        try:
            return self._by_model.get(find_machine(text).name, [])
        except InputError:
            return []


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@dataclass(frozen=True, eq=False)
class Idle:
    """What idle capacity costs, by job, and what fell into hours in which nothing ran."""

    operational_g: Ranges
    embodied_g: Ranges
    nobody_g: Estimate
    overfull_ns: int


def share_pools(
    pools: Sequence[Pool], intensity: Signal, pue: Estimate, span_ns: tuple[int, int], rows: int
) -> Idle:
    """Share out the idle capacity of all pools over a span."""
    shared = np.zeros((6, rows))
    nobody, overfull = np.zeros(6), 0

    def weigh(starts: Ints, ends: Ints) -> Floats:
        """Idle power by the grid, three ends of it; embodied carbon by hours."""
        grid = grid_hours(intensity, starts, ends)
        hours = (ends - starts) / HOUR_NS
        return np.stack([grid.low, grid.mid, grid.high, hours, hours, hours])

    for pool in pools if span_ns[0] < span_ns[1] else ():
        usage = Usage(pool.start_ns, pool.end_ns, pool.units, pool.group, pool.capacity)
        kilowatts = [g.machine.idle_w * g.count * pue * 1e-3 for g in pool.groups]
        rates = [rate * g.count for (rate, _), g in zip(pool.rates, pool.groups)]
        costs = [[getattr(c, end) for c in cost] for cost in (kilowatts, rates) for end in _ENDS]
        found = share_idle(usage, np.array(costs), weigh, span_ns)
        for column, share in zip(shared, found.jobs):
            column += np.bincount(pool.rows, share, rows)
        nobody += found.nobody
        overfull = max(overfull, found.overfull_ns)
    left = Estimate(*sorted(nobody[:3] + nobody[3:]))
    return Idle(_in_order(*shared[:3]), _in_order(*shared[3:]), left, overfull)


def _in_order(low: Floats, mid: Floats, high: Floats) -> Ranges:
    """Running sums of small differences: what is below zero or out of order is rounding."""
    mid = np.maximum(mid, 0.0)
    return Ranges(np.clip(low, 0.0, mid), mid, np.maximum(mid, high))


def say_age(fleet: Fleet, year: float, amortise: Amortisation) -> list[str]:
    """Notes where machines were bought after the year in which they ran."""
    later = [group.bought for group in fleet.groups if group.bought > year]
    if amortise == "life" or not later:
        return []
    return [
        f"The year is {year:g}, and machines were bought in {min(later)}: they count as new. "
        "Is it that year (--year)?"
    ]
