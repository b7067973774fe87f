"""The process lab as a target of managers, and runs on it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.act.local import Lab, OpenLoop, Reading, Sample, percentiles_ms
from gnomon.act.local.client import OK, PENDING
from gnomon.act.local.reading import bucket_edges_ns
from gnomon.decide.services import (
    PERCENTILES,
    Allocation,
    Decision,
    DecisionLog,
    Rails,
    Window,
    manage,
)
from gnomon.decide.services.target import LatencyCounts
from gnomon.graph.application import Application
from gnomon.sim.mesh import Arrivals, poisson_requests
from gnomon.systems.services.measure import Requests, score
from gnomon.systems.services.rates import Rate
from gnomon.systems.services.trial import Outcome, Setup, series_of
from gnomon.units import MILLISECOND_NS, SECOND_NS

Floats = NDArray[np.float64]

_SLICE_S = 0.1
#: A window in which others used more than this is not acted on: latency is then theirs.
FOREIGN_CORES = 0.25


class LabTarget:
    """A running lab under load, observed window by window.

    Latencies of a window are those of requests that ended in it, as the client saw them from
    their due times.
    """

    def __init__(self, lab: Lab, load: OpenLoop) -> None:
        self.app: Application = lab.app
        self._lab, self._load = lab, load
        self._names = list(lab.app.services)
        self._before = lab.read()
        self._began_ns = self._end_ns = time.monotonic_ns()
        self._seen = np.zeros(len(load.due_ns), bool)

    def observe(self, duration_s: float) -> Window:
        """Waits until the window ends, by the clock and not by this loop's own time."""
        self._end_ns += round(duration_s * SECOND_NS)
        samples = [self._lab.sample_usage()]
        while (left_ns := self._end_ns - time.monotonic_ns()) > 0:
            time.sleep(min(_SLICE_S, left_ns / SECOND_NS))
            samples.append(self._lab.sample_usage())
        now = self._lab.read()
        window = self._window(now.since(self._before), samples)
        self._before = now
        return window

    def apply(self, allocation: Allocation) -> None:
        for name, cores, count in zip(self._names, allocation.cpu_limit, allocation.replicas):
            if not math.isnan(cores):
                self._lab.set_limit(name, None if math.isinf(cores) else float(cores))
            if count >= 0 and count != self._replicas(name):
                self._lab.set_replicas(name, int(count))
        if allocation.cpu_request is not None:
            for name, weight in zip(self._names, allocation.cpu_request):
                if not math.isnan(weight):
                    self._lab.set_request(name, float(weight))

    def latency_counts(self) -> LatencyCounts:
        return LatencyCounts(self._lab.read().exclusive.astype(np.int64), bucket_edges_ns() / 1e6)

    def _replicas(self, name: str) -> int:
        return len(self._lab.tiers[name].replicas)

    def _window(self, passed: Reading, samples: list[Sample]) -> Window:
        elapsed_s = passed.elapsed_ns / SECOND_NS
        usage, throttled = _slices(samples)
        latency = percentiles_ms(passed.exclusive.sum(axis=1), PERCENTILES).T
        class_ms, rate, errors, violations = self._ended(elapsed_s)
        return Window(
            now_s=(self._end_ns - self._began_ns) / SECOND_NS, duration_s=elapsed_s,
            cpu_limit=passed.cpu_limit, replicas=passed.replicas,
            usage=passed.usage_ns / passed.elapsed_ns, usage_samples=usage,
            throttled=passed.throttled / np.maximum(passed.periods, 1),
            throttled_samples=throttled, queue=passed.waiting_ns / passed.elapsed_ns,
            rate=passed.arrived / elapsed_s, service_ms=latency, class_rate=rate,
            class_ms=class_ms, class_errors=errors, class_violations=violations,
            foreign_cores=passed.foreign_ns / passed.elapsed_ns,
        )  # fmt: skip

    def _ended(self, elapsed_s: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Latency percentiles, rates, errors and violations of what ended since the last look."""
        load = self._load
        outcome, latency = np.array(load.outcome), np.array(load.latency_ns)
        fresh = (outcome != PENDING) & ~self._seen
        self._seen |= fresh
        classes = len(self.app.classes)
        latency_ms = np.full((len(PERCENTILES), classes), math.nan)
        rate, errors, violations = (np.zeros(classes) for _ in range(3))
        due_ns = load.start_ns + load.due_ns
        arrived = (due_ns < self._end_ns) & (due_ns >= self._end_ns - elapsed_s * SECOND_NS)
        for c, one in enumerate(self.app.classes.values()):
            of_class = load.class_index == c
            mine = fresh & of_class
            good = latency[mine & (outcome == OK)] / MILLISECOND_NS
            if good.size:
                latency_ms[:, c] = np.percentile(good, PERCENTILES)
            rate[c] = np.count_nonzero(arrived & of_class) / elapsed_s
            failed = int(mine.sum()) - good.size
            errors[c] = failed / elapsed_s
            if one.sla is not None and mine.any():
                late = failed + int(np.count_nonzero(good > one.sla.bound_ms))
                violations[c] = late / int(mine.sum())
        return latency_ms, rate, errors, violations


def _slices(samples: list[Sample]) -> tuple[Floats, Floats]:
    """Cores used and share of periods throttled between each two samples."""
    usage, throttled = [], []
    for before, after in itertools.pairwise(samples):
        length = max(after.now_ns - before.now_ns, 1)
        usage.append((after.usage_ns - before.usage_ns) / length)
        periods = np.maximum(after.periods - before.periods, 1)
        throttled.append((after.throttled - before.throttled) / periods)
    return np.array(usage, float), np.array(throttled, float)


class LabRun:
    """A lab with a load, from start to clean end."""

    def __init__(
        self, app: Application, arrivals: Arrivals, *, seed: int, sample_share: float = 0.0
    ) -> None:
        self.lab = Lab(app, seed=seed, sample_share=sample_share)
        self._arrivals = arrivals

    def __enter__(self) -> Self:
        self.lab.__enter__()
        try:
            self.load = self.lab.load(self._arrivals.time_ns, self._arrivals.request_class)
            self._wait_for_start()
            self.target = LabTarget(self.lab, self.load)
        except BaseException:
            self.lab.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lab.close()

    def _wait_for_start(self) -> None:
        while (left_ns := self.load.start_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns / SECOND_NS)

    def requests(self) -> Requests:
        """Every request as the client saw it."""
        outcome = np.array(self.load.outcome)
        # Of classes whose SLA counts until all queued work is done, that is what is reported.
        whole = [c for c, one in enumerate(self.lab.app.classes.values())
                 if one.sla is not None and one.sla.until == "all"]  # fmt: skip
        latency_ns = np.where(
            np.isin(self.load.class_index, whole), self.load.whole_latency_ns(),
            self.load.latency_ns,
        )  # fmt: skip
        return Requests(
            self.load.due_ns / SECOND_NS, self.load.class_index.astype(np.int32),
            np.where(outcome == OK, latency_ns / MILLISECOND_NS, math.nan), outcome == OK,
        )  # fmt: skip


class LabOutcome(msgspec.Struct, frozen=True, eq=False):
    """A managed run in the lab."""

    outcome: Outcome
    note: str
    noisy_pct: float
    client_late_ms: float


def run_lab(
    setup: Setup, manager: str, rate: Rate, *, rails: Rails, log: DecisionLog | None = None,
    sample_share: float = 0.0, on_window: Callable[[Decision], None] | None = None,
    on_start: Callable[[Lab], None] | None = None, on_end: Callable[[Lab], None] | None = None,
) -> LabOutcome:  # fmt: skip
    """One manager on one rate, with real processes.

    Args:
        on_start: Called with the lab before the first window: to let others scrape it.
        on_end: Called before it ends: to keep its spans.
    """
    setup.check_rate(rate)
    arrivals = poisson_requests(setup.app, rate.per_s, seed=setup.seed)
    with LabRun(setup.app, arrivals, seed=setup.seed, sample_share=sample_share) as run:
        if on_start is not None:
            on_start(run.lab)
        managed = manage(
            run.target, setup.prepared.get(manager, manager), duration_s=len(rate.per_s),
            interval_s=setup.interval_s, seed=setup.seed, rails=rails, log=log,
            on_window=on_window,
        )  # fmt: skip
        run.load.wait()
        measured = score(
            setup.app, run.requests(), managed.decisions, manager=manager, rate=rate.name,
            spent_ms=managed.spent_ms, intensity=setup.intensity, core_w=setup.core_w,
        )  # fmt: skip
        late_ms = float(np.percentile(run.load.lateness_ns, 99)) / MILLISECOND_NS
        if on_end is not None:
            on_end(run.lab)
        note = run.lab.note
    noisy = [decision.window.foreign_cores > FOREIGN_CORES for decision in managed.decisions]
    return LabOutcome(
        Outcome(measured, series_of(managed.decisions), None), note, 100.0 * float(np.mean(noisy)),
        late_ms,
    )  # fmt: skip
