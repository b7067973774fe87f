"""Place: jobs over time onto a fleet, by one metric after the other, with the true total of each.

The true total is operational carbon plus all embodied carbon of the fleet over the horizon, used
or not, counted once. It is what the atmosphere sees; the metrics are what schedulers see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import day_of
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.model.carbon import Amortisation, grid_hours
from gnomon.model.machines.machine import Fleet
from gnomon.series import Signal
from gnomon.sim.placement import Candidate, Groups, Placed, Tasks, cleanest_starts, place
from gnomon.systems.carbon.metric import METRICS, Metric, candidates_of
from gnomon.systems.carbon.supply import End, Floats, Supply, check_alike, supply_of
from gnomon.units import HOUR_NS

Ints = NDArray[np.int64]
_ENDS: tuple[End, ...] = ("low", "mid", "high")
_NEVER = np.iinfo(np.int64).max
_MOST_CORES = 2**20
#: What is always tried, so that there is something good to compare with.
_COMPARED = ("osci", "tsci")


class Demand(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Jobs over time, in any order.

    Attributes:
        duration_ns: How long it runs on the reference thread.
        deadline_ns: By when it should be over; the largest int64 for none.
        load: How busy it keeps its threads, 0 to 1; all the time unless given.
    """

    arrival_ns: Ints
    cores: Ints
    duration_ns: Ints
    deadline_ns: Ints
    load: Floats | None = None
    names: tuple[str, ...] = ()
    lines: NDArray[np.int64] | None = None
    where: str = "jobs"

    def name(self, job: int) -> str:
        return self.names[job] if self.names else str(job)

    def place_of(self, job: int) -> str:
        return f"{self.where} line {self.lines[job]}" if self.lines is not None else self.where


def demand_of(jobs: Jobs, fleet: Fleet) -> Demand:
    """Jobs of a file as what is asked of a fleet: cores, or boards where it has only those."""
    length = jobs.end_ns - jobs.start_ns
    boards = check_alike(fleet)
    taken = jobs.gpus if boards else jobs.cores
    cores = np.where(np.isnan(taken), 1.0, taken)
    for wrong, what in (
        (~np.isnan(jobs.gpus) & (jobs.gpus > 0) & (not boards), "accelerators, the fleet none"),
        (length < 0, "an end before its start"),
        (cores <= 0, "no accelerator" if boards else "no cores"),
        (cores > _MOST_CORES, "more cores than any machine"),
    ):
        if wrong.any():
            job = int(np.flatnonzero(wrong)[0])
            raise InputError(f"job {jobs.id[job]} has {what}", where=jobs.at(job))
    return Demand(
        arrival_ns=jobs.start_ns, cores=np.ceil(cores).astype(np.int64), duration_ns=length,
        deadline_ns=np.where(jobs.deadline_ns >= 0, jobs.deadline_ns, _NEVER),
        load=np.where(np.isnan(jobs.utilisation), 1.0, jobs.utilisation),
        names=jobs.id, lines=jobs.line, where=jobs.where,
    )  # fmt: skip


class PlacementOutcome(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The result of sorting by one metric.

    Attributes:
        energy_kwh: Of the whole fleet, building included.
        embodied_kg: Of the whole fleet over the horizon: the same for every metric.
        core_hours: By group.
        jobs: By group.
        wait_s: Mean wait for room, beyond the chosen start.
        longest_wait_s: The longest.
        unshifted_kg: Operational carbon had no job waited for cleaner hours.
        shifted: Whether jobs waited for cleaner hours. They do not where that makes more of them
            late, or emits more because many want the same hour and stand in line for it.
    """

    metric: Metric
    order: tuple[str, ...]
    placed: Placed
    energy_kwh: Estimate
    operational_kg: Estimate
    embodied_kg: Estimate
    core_hours: Floats
    jobs: Ints
    late: int
    wait_s: float
    longest_wait_s: float
    shifted: bool = False
    unshifted_kg: float | None = None

    @property
    def total_kg(self) -> Estimate:
        return self.operational_kg + self.embodied_kg


class Placements(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Outcomes of several metrics over the same jobs, fleet and horizon.

    Attributes:
        compared: Of those that were tried besides.
        bound_kg: No placement that ends every job by the time it ended here can have a smaller
            operational carbon (mid).
        utilisation: Share of the fleet's thread-hours in use, on the reference thread.
    """

    outcomes: tuple[PlacementOutcome, ...]
    compared: tuple[PlacementOutcome, ...]
    jobs: Demand
    fleet: Fleet
    supply: Supply
    intensity: Signal
    start_ns: int
    end_ns: int
    bound_kg: float
    utilisation: float
    sleep: bool
    shift: bool

    @property
    def best(self) -> PlacementOutcome:
        """The least total of all that were tried; of equals one that leaves embodied out."""
        return min(
            (*self.outcomes, *self.compared),
            key=lambda o: (round(o.total_kg.mid, 9), _preferred(o.metric)),
        )

    def added_pct(self, outcome: PlacementOutcome) -> tuple[float, float]:
        return (
            _above(outcome.operational_kg.mid, self.best.operational_kg.mid),
            _above(outcome.total_kg.mid, self.best.total_kg.mid),
        )


def _preferred(metric: Metric) -> int:
    """Of equals, one that leaves embodied carbon out."""
    return _COMPARED.index(metric.name) if metric.name in _COMPARED else len(_COMPARED)


def _above(mine: float, least: float) -> float:
    """In per cent; infinite where the best emits nothing and this does."""
    if least > 0:
        return 100.0 * (mine / least - 1.0)
    return math.inf if mine > 0 else 0.0


def place_jobs(
    fleet: Fleet, jobs: Demand, grid: Callable[[int, int], Signal], metrics: Sequence[Metric], *,
    year: int, amortise: Amortisation = "life", sleep: bool = False, shift: bool = False,
    reference: float | None = None,
) -> Placements:  # fmt: skip
    """Places jobs by each metric and counts what each placement truly emits.

    Args:
        grid: g/kWh between two times; a file may have less than is asked for.
        reference: Points of the thread that durations were measured on; the fleet's mean unless
            given. A thread with twice the points takes half the time.
    """
    supply = supply_of(fleet, year=year, amortise=amortise)
    _check(jobs, supply)
    per_thread = supply.points / supply.threads
    known = reference or float(supply.capacity.sum() / (supply.servers * supply.threads).sum())
    groups = Groups.of(supply.servers, supply.threads, per_thread / known)
    tried = [*metrics, *(METRICS[name] for name in _COMPARED if METRICS[name] not in metrics)]
    span = _Horizon.of(jobs, groups)
    intensity = grid(span.start_ns, span.latest_ns if shift else span.last_ns)
    _check_begin(jobs, intensity)
    mean = intensity.mean(span.start_ns, min(span.last_ns, intensity.end_ns))
    run = _Run(jobs, groups, intensity, sleep, shift)
    ways = [run.ways(candidates_of(metric, supply, mean, sleep=sleep)) for metric in tried]
    placed = [way.placed for several in ways for way in several]
    if (end_ns := _end_of(placed)) > intensity.end_ns:
        intensity = grid(span.start_ns, end_ns)
        _check_end(jobs, placed, intensity)
    ends = {end: supply_of(fleet, year=year, amortise=amortise, end=end) for end in _ENDS}
    account = _Account(jobs, ends, intensity, span.start_ns, end_ns, sleep)
    chosen = [account.choose(several) for several in ways]
    # The horizon is that of what is shown: ways that were only tried must not lengthen it.
    end_ns = _end_of([way.placed for both in chosen for way in both])
    account = _Account(jobs, ends, intensity, span.start_ns, end_ns, sleep)
    outcomes = [account.outcome(metric, *both) for metric, both in zip(tried, chosen)]
    work = jobs.cores * (jobs.duration_ns / HOUR_NS) * known
    return Placements(
        outcomes=tuple(outcomes[: len(metrics)]), compared=tuple(outcomes[len(metrics) :]),
        jobs=jobs, fleet=fleet, supply=supply, intensity=intensity,
        start_ns=span.start_ns, end_ns=end_ns,
        bound_kg=account.bound_kg(work, [outcome.placed for outcome in outcomes]),
        utilisation=float(work.sum() / (supply.capacity.sum() * account.hours)),
        sleep=sleep, shift=shift,
    )  # fmt: skip


def _check(jobs: Demand, supply: Supply) -> None:
    if not jobs.arrival_ns.size:
        raise InputError("there are no jobs", where=jobs.where)
    most = int(supply.threads.max())
    if (jobs.cores > most).any():
        job = int(np.flatnonzero(jobs.cores > most)[0])
        raise InputError(
            f"job {jobs.name(job)} takes {jobs.cores[job]} cores, the largest server has {most}",
            where=jobs.place_of(job), hint="split it, or add a larger machine to the fleet",
        )  # fmt: skip


def _end_of(placed: Sequence[Placed]) -> int:
    """When the last job ends; a moment later than never beginning."""
    return max(max(int(one.end_ns.max()), int(one.start_ns.min()) + 1) for one in placed)


def _check_begin(jobs: Demand, intensity: Signal) -> None:
    early = (jobs.arrival_ns < intensity.start_ns) | (jobs.arrival_ns >= intensity.end_ns)
    if early.any():
        job = int(np.flatnonzero(early)[0])
        raise InputError(
            f"job {jobs.name(job)} arrives outside of the grid's hours, which run from "
            f"{day_of(intensity.start_ns)} to {day_of(intensity.end_ns)}",
            where=jobs.place_of(job), hint="get more hours, or use a zone's profile",
        )  # fmt: skip


def _check_end(jobs: Demand, placed: Sequence[Placed], intensity: Signal) -> None:
    last = np.maximum.reduce([one.end_ns for one in placed])
    if (last > intensity.end_ns).any():
        raise _beyond(jobs, int(np.flatnonzero(last > intensity.end_ns)[0]), intensity)


def _beyond(jobs: Demand, job: int, intensity: Signal) -> InputError:
    return InputError(
        f"job {jobs.name(job)} runs beyond the grid's hours, which end {day_of(intensity.end_ns)}",
        where=jobs.place_of(job), hint="get more hours, or use a zone's profile",
    )  # fmt: skip


class _Horizon(msgspec.Struct, frozen=True):
    """The horizon: from the first arrival on; until jobs end if none has to wait, and at most."""

    start_ns: int
    last_ns: int
    latest_ns: int

    @classmethod
    def of(cls, jobs: Demand, groups: Groups) -> _Horizon:
        longest = np.rint(jobs.duration_ns / groups.speed.min()).astype(np.int64)
        last = jobs.arrival_ns + longest
        with_deadline = jobs.deadline_ns < _NEVER
        latest = np.where(with_deadline, np.maximum(jobs.deadline_ns, last), last)
        start = int(jobs.arrival_ns.min())
        return cls(start, max(int(last.max()), start + 1), max(int(latest.max()), start + 1))


class _Way(NamedTuple):
    """One way to place the jobs."""

    order: Sequence[Candidate]
    release_ns: Ints
    placed: Placed
    shifted: bool


class _Run:
    """Jobs in order of their release, played onto the groups."""

    def __init__(
        self, jobs: Demand, groups: Groups, intensity: Signal, sleep: bool, shift: bool
    ) -> None:
        self.jobs, self.groups, self.intensity = jobs, groups, intensity
        self.sleep, self.shift = sleep, shift
        self._known: dict[tuple[Candidate, ...], list[_Way]] = {}

    def ways(self, orders: Sequence[Sequence[Candidate]]) -> list[_Way]:
        """The jobs placed in each order; with shifts also without them, to see what they do.

        Several metrics may have the same order: it is played once.
        """
        found = []
        for order in orders:
            key = tuple(order)
            if key not in self._known:
                releases = [(self.jobs.arrival_ns, False)]
                if self.shift:
                    releases.append((self._shifted(order), True))
                self._known[key] = [
                    _Way(order, release, self._place(order, release), shifted)
                    for release, shifted in releases
                ]
            found += self._known[key]
        return found

    def _place(self, order: Sequence[Candidate], release: Ints) -> Placed:
        jobs = self.jobs
        turn = np.argsort(release, kind="stable")
        tasks = Tasks.of(release[turn], jobs.cores[turn], jobs.duration_ns[turn])
        placed = place(self.groups, order, tasks, empty_servers_sleep=self.sleep)
        back = np.empty_like(turn)
        back[turn] = np.arange(turn.size)
        return msgspec.structs.replace(
            placed, start_ns=placed.start_ns[back], end_ns=placed.end_ns[back],
            group=placed.group[back], server=placed.server[back],
        )  # fmt: skip

    def _shifted(self, order: Sequence[Candidate]) -> Ints:
        """Each job's cleanest start before its deadline, on the machine it would like best."""
        jobs = self.jobs
        length = np.rint(jobs.duration_ns / self._liked_speed(order)).astype(np.int64)
        beyond = jobs.arrival_ns + length > self.intensity.end_ns
        if beyond.any():
            raise _beyond(jobs, int(np.flatnonzero(beyond)[0]), self.intensity)
        latest = np.minimum(jobs.deadline_ns, self.intensity.end_ns) - length
        latest = np.where(
            jobs.deadline_ns < _NEVER, np.maximum(latest, jobs.arrival_ns), jobs.arrival_ns
        )
        return cleanest_starts(self.intensity, jobs.arrival_ns, latest, length)

    def _liked_speed(self, order: Sequence[Candidate]) -> Floats:
        speed = np.empty(self.jobs.cores.size)
        left = np.ones(speed.size, dtype=bool)
        for candidate in order:
            fits = left & (self.jobs.cores <= self.groups.slots[candidate.group])
            speed[fits] = self.groups.speed[candidate.group]
            left &= ~fits
        return speed


class _Account:
    """What a placement emits, at every end of every range."""

    def __init__(
        self, jobs: Demand, supplies: dict[End, Supply], intensity: Signal, start_ns: int,
        end_ns: int, sleep: bool,
    ) -> None:  # fmt: skip
        self.jobs, self.supplies, self.sleep = jobs, supplies, sleep
        self.intensity, self.start_ns, self.end_ns = intensity, start_ns, end_ns

    @property
    def hours(self) -> float:
        return (self.end_ns - self.start_ns) / HOUR_NS

    def choose(self, ways: Sequence[_Way]) -> tuple[_Way, _Way]:
        """The way that emits least and makes no more jobs late; and the same without shifts."""
        late = [int((way.placed.end_ns > self.jobs.deadline_ns).sum()) for way in ways]
        grams = [self._drawn(self._loads(way.placed, self.intensity)).mid for way in ways]
        numbers = range(len(ways))
        plain = min((n for n in numbers if not ways[n].shifted), key=lambda n: grams[n])
        good = [n for n in numbers if late[n] <= late[plain]]
        return ways[min(good, key=lambda n: (grams[n], ways[n].shifted))], ways[plain]

    def outcome(self, metric: Metric, way: _Way, plain: _Way) -> PlacementOutcome:
        placed, order = way.placed, way.order
        names = self.supplies["mid"].names
        waits = (placed.start_ns - way.release_ns) / 1e9
        hours = self._loads(placed, Estimate.exact(1.0))
        held = self.jobs.cores * ((placed.end_ns - placed.start_ns) / HOUR_NS)
        return PlacementOutcome(
            metric=metric,
            order=tuple(dict.fromkeys(names[candidate.group] for candidate in order)),
            placed=placed,
            energy_kwh=self._drawn(hours),
            operational_kg=self._drawn(self._loads(placed, self.intensity)) * 1e-3,
            embodied_kg=_estimate(
                [s.embodied_total_g_h * self.hours / 1000.0 for s in self.supplies.values()]
            ),
            core_hours=self._by_group(placed.group, held),
            jobs=np.bincount(placed.group, minlength=len(names)),
            late=int((placed.end_ns > self.jobs.deadline_ns).sum()),
            wait_s=float(waits.mean()),
            longest_wait_s=float(waits.max()),
            shifted=way.shifted,
            unshifted_kg=self._drawn(self._loads(plain.placed, self.intensity)).mid / 1e3,
        )

    def _drawn(self, loads: dict[End, tuple[Floats, Floats]]) -> Estimate:
        """Kilowatts of the fleet, building included, times what the hours were weighed with."""
        return _estimate(
            [
                float((supply.dynamic_w * loads[end][0] + supply.idle_w * loads[end][1]).sum())
                * supply.pue / 1e3
                for end, supply in self.supplies.items()
            ]
        )  # fmt: skip

    def _loads(
        self, placed: Placed, weight: Signal | Estimate
    ) -> dict[End, tuple[Floats, Floats]]:
        """By group: servers' hours of full load, and of being awake, weighed by the grid."""
        supply = self.supplies["mid"]
        busy = grid_hours(weight, placed.start_ns, placed.end_ns)
        if self.sleep:
            awake = grid_hours(weight, placed.awake_from_ns, placed.awake_until_ns)
            awake_group = placed.awake_group
        else:
            awake = grid_hours(weight, [self.start_ns], [self.end_ns])
            awake_group = np.zeros(1, dtype=np.int32)
        share = self.jobs.cores / supply.threads[placed.group]
        if self.jobs.load is not None:
            share = share * self.jobs.load
        found: dict[End, tuple[Floats, Floats]] = {}
        for end in _ENDS:
            # Without a range all ends are one array: it is summed once.
            if end != "low" and getattr(busy, end) is busy.low:
                found[end] = found["low"]
                continue
            on = getattr(awake, end)
            found[end] = (
                self._by_group(placed.group, share * getattr(busy, end)),
                self._by_group(awake_group, on) if self.sleep else supply.servers * on[0],
            )
        return found

    def _by_group(self, group: NDArray[np.int32], weights: Floats) -> Floats:
        size = len(self.supplies["mid"].names)
        return np.asarray(np.bincount(group, weights, minlength=size), dtype=np.float64)

    def bound_kg(self, work: Floats, placed: Sequence[Placed]) -> float:
        """Operational carbon that no placement can go below, mid.

        Each job at the cleanest moment between its arrival and its last end here, jobs of dirty
        hours on efficient servers, every server as busy as the horizon allows.
        """
        supply, line = self.supplies["mid"], self.intensity
        last = np.maximum.reduce([one.end_ns for one in placed])
        least = _least_between(line, self.jobs.arrival_ns, last)
        busy = least if self.jobs.load is None else least * self.jobs.load
        grams = self._least_sum(work, busy, supply.marginal_g(1.0))
        if self.sleep:
            # A server is awake at least as long as its slots are taken, all of them together.
            grams += self._least_sum(
                work, least, supply.operational_g(1.0) - supply.marginal_g(1.0)
            )
        else:
            weighed = float(grid_hours(line, [self.start_ns], [self.end_ns]).mid[0])
            idle_w = float((supply.servers * supply.idle_w).sum())
            grams += idle_w * supply.pue * weighed / 1e3
        return grams / 1e3

    def _least_sum(self, work: Floats, weight: Floats, rate: Floats) -> float:
        """The least sum of work x weight x rate: heavy work where the rate is small.

        Which is the least there is, as sums of products are when one falls as the other rises;
        every group takes at most what the horizon allows.
        """
        supply = self.supplies["mid"]
        order = np.argsort(rate, kind="stable")
        room = np.concatenate([[0.0], np.cumsum((supply.capacity * self.hours)[order])])
        spent = np.concatenate([[0.0], np.cumsum((supply.capacity * self.hours * rate)[order])])
        heaviest = np.argsort(-weight, kind="stable")
        filled = np.concatenate([[0.0], np.cumsum(work[heaviest])])
        return float((np.diff(np.interp(filled, room, spent)) * weight[heaviest]).sum())


def _least_between(line: Signal, start_ns: Ints, end_ns: Ints) -> Floats:
    """The least value of a step signal in each interval: minima of ever longer runs of steps."""
    first = np.searchsorted(line.time_ns, start_ns, side="right") - 1
    last = np.maximum(np.searchsorted(line.time_ns, end_ns, side="left") - 1, first)
    runs = [line.values]
    while (length := 1 << len(runs)) <= len(line):
        before = runs[-1]
        runs.append(np.minimum(before[: before.size - length // 2], before[length // 2 :]))
    level = np.floor(np.log2(last - first + 1)).astype(np.int64)
    least = np.empty(start_ns.size)
    for depth, run in enumerate(runs):
        mine = level == depth
        least[mine] = np.minimum(run[first[mine]], run[last[mine] - (1 << depth) + 1])
    return least


def _estimate(values: Sequence[float]) -> Estimate:
    """From low, mid and high ends; a range that crosses over is put right."""
    low, mid, high = values
    return Estimate(min(low, mid), mid, max(mid, high))
