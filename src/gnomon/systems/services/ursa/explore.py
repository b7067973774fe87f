"""Exploration: one service at a time is given less and less CPU while the others have plenty.

Every step is an operating point: the load of a replica, its limit, and the whole distribution of
its latency for each class. A service is given back its CPU at once when an SLA is at risk, and is
not taken beyond the utilisation at which its callers begin to wait. In the end the plan that comes
out is put to the test, and times that turn out to be slow together are noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services import Allocation, Window
from gnomon.decide.services.policies.ursa import allocation_of
from gnomon.decide.services.policy import bounds
from gnomon.decide.services.target import CountingTarget
from gnomon.decide.services.ursa.exploration import (
    Exploration,
    Explored,
    Option,
    fingerprint,
    service_loads,
)
from gnomon.decide.services.ursa.latencies import Latencies
from gnomon.decide.services.ursa.plan import make_plan
from gnomon.decide.services.ursa.thresholds import Thresholds
from gnomon.errors import Infeasible
from gnomon.graph.application import Application
from gnomon.systems.services.ursa.backpressure import FREE, backpressure_threshold
from gnomon.systems.services.ursa.stage import Stage

Ints = NDArray[np.int64]

#: Utilisations that a service is taken to, until its threshold.
LADDER = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)
#: Loads that are explored, as shares of the application's rate.
LEVELS = (0.5, 1.25)
#: Correlations that are tried until the measured latency is explained.
_CORRELATIONS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
_TRIALS = 3
#: A service that is hardly used may get so many times the load that was measured.
_MOST_SPARE = 10.0
#: Of steps that somebody else disturbed: so many are not counted as tries.
_DISTURBED = 6
#: A class with fewer calls than this has no distribution of its own.
_FEWEST = 50


class Pace(msgspec.Struct, frozen=True):
    """How long things take.

    Attributes:
        settle_s: After each change, before measuring.
        window_s: Of one look at the SLAs.
        calls: Of each class that a sample should have.
        longest_s: A sample takes no longer, whatever the rate.
        threshold_s: Windows of the search for backpressure.
        tries: A step that puts an SLA at risk is taken so often before it is believed: a machine
            that stalls for a moment does the same.
        quiet_cores: And more often while others use more of the machine than this.
    """

    settle_s: float = 5.0
    window_s: float = 5.0
    calls: int = 2000
    longest_s: float = 60.0
    threshold_s: float = 10.0
    tries: int = 1
    quiet_cores: float = math.inf


#: In the lab, seconds are real ones.
LAB_PACE = Pace(settle_s=1.0, window_s=2.0, calls=1000, longest_s=10.0, threshold_s=2.0, tries=3,
                quiet_cores=0.1)  # fmt: skip

#: Called after each service: its name, what was found, how many are done, of how many.
OnService = Callable[[str, Explored, int, int], None]


def explore(
    app: Application, stage: Stage, *, rate: float | None = None,
    levels: Sequence[float] = LEVELS, pace: Pace | None = None, known: Exploration | None = None,
    only: Sequence[str] = (), on_service: OnService | None = None,
    keep: Callable[[Exploration], None] | None = None,
) -> Exploration:  # fmt: skip
    """The operating points of every service.

    Args:
        app: The application.
        stage: Where it runs.
        rate: Requests per second; the application's unless given.
        levels: Loads to explore at, as shares of that.
        pace: How long to measure.
        known: What was explored before: services that have not changed are not explored again.
        only: These are explored again in any case, the others not unless unknown.
        on_service: Called after each service.
        keep: Called with all that is known after each service, so that a run can be resumed.
    """
    rate, pace = app.rate if rate is None else rate, pace or Pace()
    called = [name for name in app.services if any(name in v for v in app.visits().values())]
    done = dict(known.services) if known is not None else {}
    wanted = [
        name
        for name in called
        if name in only
        or name not in done
        or not done[name].options
        or done[name].fingerprint != fingerprint(app, name)
    ]
    found = Exploration(app.name, done, known.correlation if known is not None else {})
    for number, name in enumerate(wanted):
        one = explore_service(app, name, stage, rate=rate, levels=levels, pace=pace)
        found = msgspec.structs.replace(found, services={**found.services, name: one})
        if on_service is not None:
            on_service(name, one, number + 1, len(wanted))
        if keep is not None:
            keep(found)
    if wanted or not found.correlation:
        found = _with_correlation(app, stage, found, rate * max(levels), pace)
    if keep is not None:
        keep(found)
    return found


def explore_service(
    app: Application, service: str, stage: Stage, *, rate: float, levels: Sequence[float],
    pace: Pace,
) -> Explored:  # fmt: skip
    """The operating points of one service, at each level of load."""
    threshold = backpressure_threshold(
        app, service, rate * max(levels), stage, window_s=pace.threshold_s
    )
    options: list[Option] = []
    samples, seconds, ended = 0, 0.0, ""
    disturbed = 0 if math.isinf(pace.quiet_cores) else _DISTURBED
    most = (pace.tries + disturbed) * (len(LADDER) + 1)
    longest_s = most * (3 * pace.settle_s + pace.longest_s)
    for level in levels:
        with stage(app, rate * level, longest_s) as target:
            steps = _Steps(target, service, threshold, pace)
            ended = steps.go()
            options += steps.options
            samples, seconds = samples + steps.samples, seconds + steps.seconds
    return Explored(
        fingerprint(app, service), round(threshold, 4), tuple(options), samples, seconds, ended
    )


class _Steps:
    """One service on its way down the ladder."""

    def __init__(self, target: CountingTarget, service: str, threshold: float, pace: Pace) -> None:
        self._target, self._pace, self._threshold = target, pace, threshold
        self._at = list(target.app.services).index(service)
        self._about = target.app.services[service]
        self.options: list[Option] = []
        self.samples = 0
        self.seconds = 0.0
        self._foreign_cores = 0.0  # the most in a window of this sample

    def go(self) -> str:
        """Steps down until something says stop; why."""
        self._give_all()
        self._observe(self._pace.settle_s)
        usage = float(np.mean([self._observe(self._pace.window_s).usage[self._at]
                               for _ in range(3)]))  # fmt: skip
        tried: tuple[int, float] | None = None
        for utilisation in LADDER:
            if utilisation > self._threshold:
                return self._at_threshold()
            size = self._size(usage / utilisation)
            if size == tried:
                continue
            tried = size
            sample = self._try(size)
            if isinstance(sample, str):
                return sample
            if sample.utilisation > self._threshold and self.options:
                return self._at_threshold()
            self.options.append(sample)
        return "the end of the ladder"

    def _at_threshold(self) -> str:
        if self._threshold >= FREE:
            return f"{FREE:.0%} is the most that is explored"
        return f"callers begin to wait at {self._threshold:.0%}"

    def _try(self, size: tuple[int, float]) -> Option | str:
        """An operating point; what was taken is given back at once when an SLA is at risk."""
        left, disturbed = self._pace.tries, _DISTURBED
        while True:
            self._give(*size)
            self._observe(self._pace.settle_s)
            self._foreign_cores = 0.0
            sample = self._sample(size)
            if isinstance(sample, Option):
                return sample
            self._give_all()
            self._observe(2 * self._pace.settle_s)
            if disturbed and self._foreign_cores > self._pace.quiet_cores:
                disturbed -= 1
            else:
                left -= 1
            if left <= 0:
                return sample

    def _size(self, cores: float) -> tuple[int, float]:
        """Replicas and a limit for so many cores: first smaller replicas, then fewer."""
        about = self._about
        count = max(min(about.replicas, int(cores / about.cpu_min)), 1)
        return count, round(min(max(cores / count, about.cpu_min), about.cpu_max), 4)

    def _observe(self, seconds: float) -> Window:
        self.seconds += seconds
        return self._target.observe(seconds)

    def _give(self, replicas: int, limit: float) -> None:
        count = len(self._target.app.services)
        limits, counts = np.full(count, math.nan), np.full(count, -1, np.int64)
        limits[self._at], counts[self._at] = limit, replicas
        self._target.apply(Allocation(limits, counts))

    def _give_all(self) -> None:
        _, most, _ = bounds(self._target.app)
        replicas = [max(one.replicas, 1) for one in self._target.app.services.values()]
        self._target.apply(Allocation(most, np.array(replicas, np.int64)))

    def _sample(self, size: tuple[int, float]) -> Option | str:
        """One operating point, or why it must not be one."""
        app, pace = self._target.app, self._pace
        name = list(app.services)[self._at]
        passing = [c for c, visits in enumerate(app.visits().values()) if visits.get(name, 0) > 0]
        before = self._target.latency_counts()
        watch = SlaWatch(app)
        used = seconds = 0.0
        requests = np.zeros(len(app.classes))
        self.samples += 1
        while True:
            window = self._observe(pace.window_s)
            self._foreign_cores = max(self._foreign_cores, window.foreign_cores)
            used += float(window.usage[self._at]) * window.duration_s
            seconds += window.duration_s
            requests += np.nan_to_num(window.class_rate) * window.duration_s
            if late := watch.at_risk(window):
                return f"the SLA of {late} is at risk"
            after = self._target.latency_counts()
            counts = after.counts[self._at] - before.counts[self._at]
            is_enough = bool(np.all(counts[passing].sum(axis=1) >= pace.calls))
            if is_enough or seconds + pace.window_s > pace.longest_s:
                break
        if late := watch.is_missed():
            return f"the SLA of {late} is missed"
        replicas, limit = size
        rates = dict(zip(app.classes, (requests / seconds).tolist()))
        load = service_loads(app, rates)[name]
        names = list(app.classes)
        # Of a class that hardly ever calls, what all classes saw.
        seen = {which: counts[names.index(which)] for which in load}
        known = {
            which: mine if mine.sum() >= _FEWEST else counts.sum(axis=0)
            for which, mine in seen.items()
        }
        utilisation = used / seconds / (replicas * limit)
        spare = self._spare(limit, utilisation)
        return Option(
            limit, {which: round(spare * calls / replicas, 4) for which, calls in load.items()},
            round(spare * utilisation, 4),
            {which: Latencies.of(mine, after.edges_ms) for which, mine in known.items()},
        )  # fmt: skip

    def _spare(self, limit: float, utilisation: float) -> float:
        """How much more load the least limit carries where it is hardly used.

        Under the first step of the ladder latency is not due to load: what would use as much as
        that step is no slower.
        """
        if limit > self._about.cpu_min * (1 + 1e-9) or utilisation <= 0:
            return 1.0
        return min(max(LADDER[0] / utilisation, 1.0), _MOST_SPARE)


class SlaWatch:
    """Counts late requests of each class over the windows of a sample."""

    def __init__(self, app: Application) -> None:
        self._slas = {
            c: (name, (100.0 - one.sla.percentile) / 100.0)
            for c, (name, one) in enumerate(app.classes.items())
            if one.sla is not None
        }
        self._late = dict.fromkeys(self._slas, 0.0)
        self._all = dict.fromkeys(self._slas, 0.0)

    def at_risk(self, window: Window) -> str:
        """The class that has more late requests than chance explains; empty if none has."""
        for c, (name, share) in self._slas.items():
            count = float(window.class_rate[c]) * window.duration_s
            self._all[c] += count
            self._late[c] += float(np.nan_to_num(window.class_violations[c])) * count
            allowed = share * self._all[c]
            if self._late[c] > allowed + 2.0 * math.sqrt(allowed) + 1.0:
                return name
        return ""

    def is_missed(self) -> str:
        """The class that has more late requests than its SLA allows."""
        for c, (name, share) in self._slas.items():
            if self._late[c] > share * self._all[c] + 1.0:
                return name
        return ""


def _with_correlation(
    app: Application, stage: Stage, found: Exploration, rate: float, pace: Pace
) -> Exploration:
    """Puts the plan to the test; raises the correlation of classes that come out too slow."""
    class_rate = {name: rate * share for name, share in app.shares().items()}
    correlation = {
        name: max(one.correlation, found.correlation.get(name, 0.0))
        for name, one in app.classes.items()
    }
    found = msgspec.structs.replace(found, correlation=correlation)
    for _ in range(_TRIALS):
        try:
            plan = make_plan(app, found, class_rate, explain=False)
        except Infeasible:
            return found
        loads = np.array([class_rate[name] for name in app.classes])
        allocation = allocation_of(app, Thresholds.of(app, plan), loads)
        with stage(app, rate, 4 * pace.longest_s + 2 * pace.settle_s) as target:
            target.apply(allocation)
            target.observe(pace.settle_s)
            watch = SlaWatch(app)
            for _ in range(round(3 * pace.longest_s / pace.window_s)):
                watch.at_risk(target.observe(pace.window_s))
            late = watch.is_missed()
        higher = [one for one in _CORRELATIONS if one > found.correlation.get(late, 0.0)]
        if not late or not higher:
            return found
        found = msgspec.structs.replace(found, correlation=found.correlation | {late: higher[0]})
    return found
