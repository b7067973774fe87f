"""One trial: the same jobs from the same hour on, under every policy and its controls."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from gnomon.decide.cluster import ClusterPolicy, cluster_policies, simulate
from gnomon.decide.cluster.policies.cap import FixedQuota
from gnomon.decide.cluster.policy import tighter
from gnomon.errors import InputError
from gnomon.graph.jobs import BatchJobs
from gnomon.sim.cluster import ClusterRun, Executors, Guard
from gnomon.systems.batch.bound import cleanest_mean
from gnomon.systems.batch.grids import Forecast, GridHours, shuffled
from gnomon.systems.batch.measure import PolicyMeasures, Power, measure

#: Runs that find the fixed quota of as much work: it is known to a few per cent then.
_QUOTA_RUNS = 5
#: Hours of the grid beyond which a run is taken to be stuck.
_MOST_HOURS = 24 * 3_660


class JobMaker(Protocol):
    """Makes the jobs of a trial; it has to pickle."""

    def __call__(self, *, rng: np.random.Generator) -> BatchJobs: ...


class Experiment(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What is tried, the same in every trial.

    Attributes:
        hour_ns: How long an hour of the grid takes in the simulation.
        finish_within: Where given, carbon-aware policies are to be done within so many times the
            first policy's time.
        guard: How long carbon-aware policies may keep work waiting, besides what they say.
    """

    policies: tuple[str, ...]
    make_jobs: JobMaker
    executors: Executors
    power: Power = Power()
    hour_ns: int = 60 * 10**9
    forecast: Forecast = "known"
    finish_within: float | None = None
    guard: Guard = Guard()
    controls: bool = True


class Trial(msgspec.Struct, frozen=True, eq=False):
    """Which jobs, from which hour of which grid on."""

    hours: GridHours
    number: int
    seed: int = 0


class PolicyOutcome(msgspec.Struct, frozen=True):
    """A policy in one trial, and its controls where it knows the grid.

    Attributes:
        placebo: Deciding on the same hours in an order of chance.
        quota: Its base policy under a fixed quota that is carbon-blind.
        quota_share: Of the executors, in that control.
        bound: The least mean intensity at which its work could have been done in its time.
    """

    measured: PolicyMeasures
    bound: float
    placebo: PolicyMeasures | None = None
    quota: PolicyMeasures | None = None
    quota_share: float | None = None


class TrialOutcome(msgspec.Struct, frozen=True):
    """All policies in one trial.

    Attributes:
        start: The first hour, counted from the begin of the grid's hours.
        hours: Hours of the grid that the first policy took.
        bound: Least mean intensity of the first policy's work, by how much later it may end.
    """

    grid: str
    start: int
    policies: dict[str, PolicyOutcome]
    hours: float
    bound: dict[str, float]


def parse_policies(text: str | Sequence[str]) -> tuple[str, ...]:
    """Specs of policies, each checked.

    >>> parse_policies("fifo, cap:fair")
    ('fifo', 'cap:fair')
    """
    words = text.split(",") if isinstance(text, str) else text
    specs = tuple(word.strip() for word in words if word.strip())
    if not specs:
        raise InputError("which policies?", hint=f"of {', '.join(cluster_policies.names())}")
    for spec in specs:
        cluster_policies.create(spec)
    if len(set(specs)) < len(specs):
        raise InputError(f"a policy is named twice: {', '.join(specs)}")
    return specs


def run_trial(experiment: Experiment, trial: Trial) -> TrialOutcome:
    """Every policy on one trial's jobs and hours, with its controls."""
    runner = TrialRunner(experiment, trial)
    outcomes = {
        spec: runner.outcome(cluster_policies.create(spec)) for spec in experiment.policies
    }
    first = runner.first
    bound = {
        name: runner.bound(first, round(first.end_ns * later))
        for name, later in (("same_end", 1.0), ("end_10pct_later", 1.1))
    }
    return TrialOutcome(
        trial.hours.name, runner.start, outcomes, first.end_ns / experiment.hour_ns, bound
    )


def _start(hours: GridHours, forecast: Forecast, rng: np.random.Generator) -> int:
    first = hours.first_start(forecast)
    last = hours.count - 24
    if first >= last:
        raise InputError(
            f"{hours.count} hours are too few for a {forecast!r} forecast", where=hours.name,
            hint="--forecast known, or more hours",
        )  # fmt: skip
    return int(rng.integers(first, last))


class TrialRunner:
    """Runs policies on one trial; hours are added where a run needs more."""

    def __init__(self, experiment: Experiment, trial: Trial) -> None:
        self.experiment, self.hours = experiment, trial.hours
        rng = np.random.default_rng([trial.seed, trial.number])
        # The same jobs in every grid; the hour they start at is the grid's own.
        self.jobs = experiment.make_jobs(rng=rng)
        self.start = _start(trial.hours, experiment.forecast, rng)
        self.seed = trial.seed * 1_000_003 + trial.number
        last = int(self.jobs.arrival_ns.max()) if len(self.jobs) else 0
        self._reach(max(96, 2 * -(-last // experiment.hour_ns) + 48))

    @functools.cached_property
    def first(self) -> ClusterRun:
        policy = cluster_policies.create(self.experiment.policies[0])
        return self._run(policy, self.experiment.guard)

    def _reach(self, count: int) -> None:
        if count > _MOST_HOURS:
            raise InputError(
                f"the jobs take more than {_MOST_HOURS // 24} days of the grid's hours",
                hint="fewer jobs, or more time for an hour of the grid (--hour)",
            )
        self.count = count
        experiment = self.experiment
        self.grid = self.hours.steps(self.start, count, experiment.hour_ns, experiment.forecast)

    def outcome(self, policy: ClusterPolicy) -> PolicyOutcome:
        run = self.first if self._is_first(policy) else self.run(policy)
        measured = self.measured(run)
        # Tasks could have run in the cleanest hours; what idles and starts is left as it was.
        least_g = self.bound(run, run.end_ns) * measured.busy_kwh
        bound = (least_g + measured.carbon_g - measured.busy_g) / measured.energy_kwh
        if not self.experiment.controls or not policy.is_carbon_aware:
            return PolicyOutcome(measured, bound)
        placebo = self.measured(self.run(policy, shuffle_hours=self._hours_of(run.end_ns)))
        share, quota = self._fixed_quota(policy, measured)
        return PolicyOutcome(measured, bound, placebo, quota, share)

    def _is_first(self, policy: ClusterPolicy) -> bool:
        return policy == cluster_policies.create(self.experiment.policies[0])

    def _hours_of(self, end_ns: int) -> int:
        return -(-end_ns // self.experiment.hour_ns)

    def measured(self, run: ClusterRun) -> PolicyMeasures:
        experiment = self.experiment
        return measure(run, self.grid.steps, experiment.power, experiment.executors.count)

    def bound(self, run: ClusterRun, end_ns: int) -> float:
        if self._hours_of(end_ns) > self.count:
            self._reach(self._hours_of(end_ns))
        return cleanest_mean(
            run, self.jobs, self.grid.steps, self.experiment.executors.count, end_ns
        )

    def run(
        self, policy: ClusterPolicy, *, shuffle_hours: int = 0,
        log_holds: bool = False,
    ) -> ClusterRun:  # fmt: skip
        """A policy to the end, the first without a deadline; a placebo sees shuffled hours."""
        within, guard = self.experiment.finish_within, self.experiment.guard
        if within is not None and not self._is_first(policy):
            guard = tighter(guard, Guard(finish_by_ns=round(self.first.end_ns * within)))
        return self._run(policy, guard, shuffle_hours=shuffle_hours, log_holds=log_holds)

    def _run(
        self, policy: ClusterPolicy, guard: Guard, *, shuffle_hours: int = 0,
        log_holds: bool = False,
    ) -> ClusterRun:  # fmt: skip
        while True:
            known = self.grid
            if shuffle_hours:
                known = shuffled(known, shuffle_hours, np.random.default_rng([self.seed, 1]))
            run = simulate(
                policy, self.jobs, self.experiment.executors, grid=known.steps,
                outlook_high=known.high, guard=guard, seed=self.seed, log_holds=log_holds,
            )  # fmt: skip
            if run.end_ns <= self.count * self.experiment.hour_ns:
                return run
            self._reach(2 * max(self.count, self._hours_of(run.end_ns)))

    def _fixed_quota(
        self, policy: ClusterPolicy, measured: PolicyMeasures
    ) -> tuple[float, PolicyMeasures]:
        """Its base under a fixed quota: of the same mean, or that costs as much executor time."""
        terms = msgspec.structs.asdict(policy.quota_terms)
        like = functools.partial(FixedQuota, policy.innermost, **terms)
        if measured.quota_share < 1.0:
            share = measured.quota_share
            return share, self.measured(self.run(like(share=share)))
        # All executors cost what the base does; fewer usually less, as tasks share less.
        count = self.experiment.executors.count
        best = 1.0, self.measured(self.run(like(share=1.0)))
        low, high = 1, count
        for _ in range(_QUOTA_RUNS):
            if low >= high or best[1].work_s == measured.work_s:
                break
            middle = (low + high) // 2
            share = middle / count
            found = share, self.measured(self.run(like(share=share)))
            if abs(found[1].work_s - measured.work_s) < abs(best[1].work_s - measured.work_s):
                best = found
            low, high = (middle + 1, high) if found[1].work_s < measured.work_s else (low, middle)
        return best
