"""Place: jobs over time onto a fleet, by one metric after the other, with the true total of each.

The true total is operational carbon plus all embodied carbon of the fleet over the horizon, used
or not, counted once. It is what the atmosphere sees; the metrics are what schedulers see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.jobs import Jobs
from gnomon.model.carbon import Amortisation, grid_hours
from gnomon.model.machine import Fleet
from gnomon.series import Signal
from gnomon.sim.placement import Candidate, Groups, Placed, Tasks, cleanest_starts, place
from gnomon.systems.carbon.metric import METRICS, Metric, candidates_of
from gnomon.systems.carbon.supply import End, Floats, Supply, supply_of

__all__ = ["Demand", "Outcome", "Placements", "demand_of", "place_jobs"]

Ints = NDArray[np.int64]
_ENDS: tuple[End, ...] = ("low", "mid", "high")
_HOUR_NS = 3_600 * 10**9
_NEVER = np.iinfo(np.int64).max
#: What is always tried, so that there is something good to compare with.
_COMPARED = ("osci", "tsci")


class Demand(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Jobs over time, in any order.

    Attributes:
        arrival_ns: When each is there.
        cores: Threads it takes, on one server.
        duration_ns: How long it runs on the reference thread.
        deadline_ns: By when it should be over; the largest int64 for none.
        names: Of each, or empty.
        lines: The line of the file each came from, or empty.
        where: The file.
    """

    arrival_ns: Ints
    cores: Ints
    duration_ns: Ints
    deadline_ns: Ints
    names: tuple[str, ...] = ()
    lines: NDArray[np.int64] | None = None
    where: str = "jobs"

    def name(self, job: int) -> str:
        """What to call a job."""
        return self.names[job] if self.names else str(job)

    def place_of(self, job: int) -> str:
        """Where a job came from, for messages."""
        return f"{self.where} line {self.lines[job]}" if self.lines is not None else self.where


def demand_of(jobs: Jobs, fleet: Fleet) -> Demand:
    """Jobs of a file as what is asked of a fleet: cores, or boards where it has only those.

    Raises:
        InputError: A job without length, or without what the fleet has.
    """
    length = jobs.end_ns - jobs.start_ns
    boards = all(group.machine.kind == "accelerator" for group in fleet.groups)
    taken = jobs.gpus if boards else jobs.cores
    cores = np.where(np.isnan(taken), 1.0, taken)
    for wrong, what in (
        ((jobs.start_ns < 0) & (jobs.end_ns < 0), "no times"),
        (length < 0, "an end before its start"),
        (cores <= 0, "no accelerator" if boards else "no cores"),
    ):
        if wrong.any():
            job = int(np.flatnonzero(wrong)[0])
            raise InputError(f"job {jobs.id[job]} has {what}", where=jobs.at(job))
    return Demand(
        arrival_ns=jobs.start_ns, cores=np.ceil(cores).astype(np.int64), duration_ns=length,
        deadline_ns=np.where(jobs.deadline_ns >= 0, jobs.deadline_ns, _NEVER),
        names=jobs.id, lines=jobs.line, where=jobs.where,
    )  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What came of sorting by one metric.

    Attributes:
        metric: The metric.
        order: Machines as it sorts them.
        placed: Where and when each job ran.
        energy_kwh: Of the whole fleet, building included.
        operational_kg: Of that energy, hour by hour.
        embodied_kg: Of the whole fleet over the horizon: the same for every metric.
        core_hours: By group.
        jobs: By group.
        late: Jobs that ended after their deadline.
        wait_s: Mean wait for room, beyond the chosen start.
        longest_wait_s: The longest.
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

    @property
    def total_kg(self) -> Estimate:
        """Operational and embodied together."""
        return self.operational_kg + self.embodied_kg


class Placements(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Outcomes of several metrics over the same jobs, fleet and horizon.

    Attributes:
        outcomes: Of the metrics asked for.
        compared: Of those that were tried besides.
        bound_kg: No placement that ends every job by the time it ended here can have a smaller
            operational carbon (mid).
        utilisation: Share of the fleet's thread-hours in use, on the reference thread.
    """

    outcomes: tuple[Outcome, ...]
    compared: tuple[Outcome, ...]
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
    def best(self) -> Outcome:
        """The least total of all that were tried; of equals one that leaves embodied out."""
        return min(
            (*self.outcomes, *self.compared),
            key=lambda o: (round(o.total_kg.mid, 9), o.metric.name not in _COMPARED),
        )

    def added_pct(self, outcome: Outcome) -> tuple[float, float]:
        """Operational and total carbon above the best, in per cent."""
        return (
            _above(outcome.operational_kg.mid, self.best.operational_kg.mid),
            _above(outcome.total_kg.mid, self.best.total_kg.mid),
        )


def _above(mine: float, least: float) -> float:
    return 100.0 * (mine / least - 1.0) if least > 0 else 0.0


def place_jobs(
    fleet: Fleet, jobs: Demand, grid: Callable[[int, int], Signal], metrics: Sequence[Metric], *,
    year: int, amortise: Amortisation = "life", sleep: bool = False, shift: bool = False,
    reference: float | None = None,
) -> Placements:  # fmt: skip
    """Places jobs by each metric and counts what each placement truly emits.

    Args:
        fleet: The servers.
        jobs: The jobs.
        grid: Grams a kilowatt-hour between two times; a file may have less than is asked for.
        metrics: What to sort by.
        year: For the age of servers.
        amortise: How embodied carbon is spread over time.
        sleep: Whether empty servers are switched off.
        shift: Whether jobs with a deadline wait for cleaner hours.
        reference: Points of the thread that durations were measured on; the fleet's mean unless
            given. A thread with twice the points takes half the time.

    Raises:
        InputError: A job that fits on no server, or runs beyond the grid's signal.
    """
    supply = supply_of(fleet, year=year, amortise=amortise)
    _check(jobs, supply)
    per_thread = supply.points / supply.threads
    threads = float((supply.servers * supply.threads).sum())
    known = reference or float(supply.capacity.sum() / threads)
    groups = Groups.of(supply.servers, supply.threads, per_thread / known)
    tried = [*metrics, *(METRICS[name] for name in _COMPARED if METRICS[name] not in metrics)]
    span = _Span.of(jobs, groups)
    intensity = grid(span.start_ns, span.latest_ns if shift else span.last_ns)
    _check_begin(jobs, intensity)
    mean = intensity.mean(span.start_ns, min(span.last_ns, intensity.end_ns))
    orders = [candidates_of(metric, supply, mean, sleep=sleep) for metric in tried]
    run = _Run(jobs, groups, intensity, sleep, shift)
    releases = [run.release(order) for order in orders]
    placed = [run.place(order, release) for order, release in zip(orders, releases)]
    end_ns = max(int(one.end_ns.max()) for one in placed)
    if end_ns > intensity.end_ns:
        intensity = grid(span.start_ns, end_ns)
        _check_end(jobs, placed, intensity)
    ends = {end: supply_of(fleet, year=year, amortise=amortise, end=end) for end in _ENDS}
    account = _Account(jobs, ends, intensity, span.start_ns, end_ns, sleep)
    outcomes = [
        account.outcome(metric, one, order, release)
        for metric, one, order, release in zip(tried, placed, orders, releases)
    ]
    work = jobs.cores * (jobs.duration_ns / _HOUR_NS)
    return Placements(
        outcomes=tuple(outcomes[: len(metrics)]), compared=tuple(outcomes[len(metrics) :]),
        jobs=jobs, fleet=fleet, supply=supply, intensity=intensity,
        start_ns=span.start_ns, end_ns=end_ns,
        bound_kg=account.bound_kg(work * known, placed),
        utilisation=float(work.sum() / (threads * (end_ns - span.start_ns) / _HOUR_NS)),
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


def _check_begin(jobs: Demand, intensity: Signal) -> None:
    early = (jobs.arrival_ns < intensity.start_ns) | (jobs.arrival_ns >= intensity.end_ns)
    if early.any():
        job = int(np.flatnonzero(early)[0])
        raise InputError(
            f"job {jobs.name(job)} arrives outside of the grid's hours, {intensity!r}",
            where=jobs.place_of(job), hint="get more hours, or use a zone's profile",
        )  # fmt: skip


def _check_end(jobs: Demand, placed: Sequence[Placed], intensity: Signal) -> None:
    last = np.maximum.reduce([one.end_ns for one in placed])
    if (last > intensity.end_ns).any():
        job = int(np.flatnonzero(last > intensity.end_ns)[0])
        raise InputError(
            f"job {jobs.name(job)} runs beyond the grid's hours, {intensity!r}",
            where=jobs.place_of(job), hint="get more hours, or use a zone's profile",
        )  # fmt: skip


class _Span(msgspec.Struct, frozen=True):
    """The horizon: from the first arrival on; until jobs end if none has to wait, and at most."""

    start_ns: int
    last_ns: int
    latest_ns: int

    @classmethod
    def of(cls, jobs: Demand, groups: Groups) -> _Span:
        longest = np.rint(jobs.duration_ns / groups.speed.min()).astype(np.int64)
        last = jobs.arrival_ns + longest
        with_deadline = jobs.deadline_ns < _NEVER
        latest = np.where(with_deadline, np.maximum(jobs.deadline_ns, last), last)
        start = int(jobs.arrival_ns.min())
        return cls(start, max(int(last.max()), start + 1), max(int(latest.max()), start + 1))


class _Run:
    """Jobs in order of their release, played onto the groups."""

    def __init__(
        self, jobs: Demand, groups: Groups, intensity: Signal, sleep: bool, shift: bool
    ) -> None:
        self.jobs, self.groups, self.intensity = jobs, groups, intensity
        self.sleep, self.shift = sleep, shift

    def release(self, order: Sequence[Candidate]) -> Ints:
        """When each job is meant to begin."""
        return self._shifted(order[0].group) if self.shift else self.jobs.arrival_ns

    def place(self, order: Sequence[Candidate], release: Ints) -> Placed:
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

    def _shifted(self, group: int) -> Ints:
        """Each job's cleanest start before its deadline, on the machine it would like best."""
        jobs = self.jobs
        length = np.rint(jobs.duration_ns / self.groups.speed[group]).astype(np.int64)
        latest = np.minimum(jobs.deadline_ns, self.intensity.end_ns) - length
        latest = np.where(
            jobs.deadline_ns < _NEVER, np.maximum(latest, jobs.arrival_ns),
            jobs.arrival_ns,
        )  # fmt: skip
        return cleanest_starts(self.intensity, jobs.arrival_ns, latest, length)


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
        """Of the horizon."""
        return (self.end_ns - self.start_ns) / _HOUR_NS

    def outcome(
        self, metric: Metric, placed: Placed, order: Sequence[Candidate], release: Ints
    ) -> Outcome:
        """Everything that is counted of one placement."""
        names = self.supplies["mid"].names
        waits = (placed.start_ns - release) / 1e9
        hours = self._loads(placed, Estimate.exact(1.0))
        threads = self.supplies["mid"].threads
        return Outcome(
            metric=metric,
            order=tuple(dict.fromkeys(names[candidate.group] for candidate in order)),
            placed=placed,
            energy_kwh=self._drawn(hours),
            operational_kg=self._drawn(self._loads(placed, self.intensity)) * 1e-3,
            embodied_kg=_estimate(
                [s.embodied_total_g_h * self.hours / 1000.0 for s in self.supplies.values()]
            ),
            core_hours=hours["mid"][0] * threads,
            jobs=np.bincount(placed.group, minlength=len(names)),
            late=int((placed.end_ns > self.jobs.deadline_ns).sum()),
            wait_s=float(waits.mean()),
            longest_wait_s=float(waits.max()),
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
        rate = supply.operational_g(1.0) if self.sleep else supply.marginal_g(1.0)
        order = np.argsort(rate, kind="stable")
        hours = self.hours
        room = np.concatenate([[0.0], np.cumsum((supply.capacity * hours)[order])])
        grams = np.concatenate([[0.0], np.cumsum((supply.capacity * hours * rate)[order])])
        dirtiest = np.argsort(-least, kind="stable")
        filled = np.concatenate([[0.0], np.cumsum(work[dirtiest])])
        spent = np.diff(np.interp(filled, room, grams))
        dynamic = float((spent * least[dirtiest]).sum())
        idle = 0.0
        if not self.sleep:
            weighed = float(grid_hours(line, [self.start_ns], [self.end_ns]).mid[0])
            idle = float((supply.servers * supply.idle_w).sum()) * supply.pue * weighed / 1e3
        return (dynamic + idle) / 1e3


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
