"""A controller of services: observe, decide, plan, and apply where it may, again and again.

    controller = on_cluster(cluster, app, decide, prometheus, read_profile("istio"), places)
    controller.run(stop)                      # plans and prints; changes nothing

It fails safe: without measurements, without the lease or without a cluster it leaves everything
as it is, and counts why.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gnomon.act.kubernetes.apply import Outcome, apply
from gnomon.act.kubernetes.cluster import Connection
from gnomon.act.kubernetes.deployments import Change, plan, read_state
from gnomon.act.kubernetes.lease import Lease
from gnomon.act.kubernetes.places import Places
from gnomon.act.metric_profile import Profile
from gnomon.act.prometheus import Observation, observe_window
from gnomon.decide.services.guard import Decision
from gnomon.decide.services.state import Window
from gnomon.errors import ActuationError, GnomonError
from gnomon.graph.application import Application
from gnomon.ingest.metrics.prometheus import Prometheus

#: A round may take so long beyond its interval: queries, then attempts at a silent cluster.
_LONGEST_ROUND_S = 180.0
#: So often a lease is renewed while it lasts.
_RENEWALS = 5


class Round(msgspec.Struct, frozen=True):
    """What one round did.

    Attributes:
        verdict: `decided`, `capped` or `held`.
        reason: Why.
        changes: What was planned.
        outcomes: The result of each; empty where nothing is applied.
        missing: Figures that could not be measured.
    """

    verdict: str
    reason: str
    changes: tuple[Change, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    missing: tuple[str, ...] = ()


class Controller:
    """The loop around a manager of services."""

    def __init__(
        self, name: str, app: Application, *,
        observe: Callable[[], Observation], decide: Callable[[Window], Decision],
        plan: Callable[[Decision], Sequence[Change]],
        apply: Callable[[Sequence[Change]], Sequence[Outcome]] | None = None,
        lease: Lease | None = None, interval_s: float = 15.0,
        log: Callable[[str], None] = print, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Does nothing yet.

        Args:
            name: Of the manager, in metrics and messages.
            app: What is managed.
            observe: Measures the last interval.
            decide: Answers a window: a `Guard`'s `decide`.
            plan: The changes that lead to a decision; reads the cluster, changes nothing.
            apply: Makes them; None: nothing is ever changed.
            lease: Only its holder observes and acts.
            interval_s: From the start of a round to the next.
            log: Takes a line.
            clock: Seconds that never go back.
        """
        self.name, self.app, self.lease, self.interval_s = name, app, lease, interval_s
        self._observe, self._decide, self._plan, self._apply = observe, decide, plan, apply
        self._log, self._clock = log, clock
        self.decisions = 0
        self.holds: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.trust = math.nan
        self.observe_s = math.nan
        self.missing = 0
        self.allocated_cores: dict[str, float] = {}
        self.last: Round | None = None
        self._decided_at_s = math.nan
        self._beat_s = clock()

    @property
    def is_healthy(self) -> bool:
        """Whether rounds go on."""
        return self._clock() - self._beat_s < 3 * self.interval_s + _LONGEST_ROUND_S

    @property
    def is_ready(self) -> bool:
        """Whether the last round had what it needs: measurements and a cluster, or no lease."""
        return self.last is not None and self.last.reason not in (_NO_DATA, _NO_CLUSTER)

    @property
    def is_leader(self) -> bool:
        return self.lease is None or self.lease.is_held

    @property
    def decision_age_s(self) -> float:
        """Since the last decision; NaN before the first."""
        return self._clock() - self._decided_at_s

    def run(self, stop: threading.Event) -> None:
        """Rounds until `stop` is set; then releases the lease."""
        with self.leading():
            while not stop.is_set():
                began_s = self._clock()
                self.step()
                stop.wait(max(self.interval_s - (self._clock() - began_s), 0.0))

    def step(self) -> Round:
        """One round."""
        self._beat_s = self._clock()
        self.last = self._round()
        return self.last

    def _round(self) -> Round:
        if not self.is_leader:
            return self._hold(_STANDBY)
        began_s = self._clock()
        seen = self._observe()
        self.observe_s, self.missing = self._clock() - began_s, len(seen.missing)
        if seen.is_empty:
            return self._hold(_NO_DATA, "; ".join(seen.missing[:3]), seen.missing)
        decision = self._decide(seen.window)
        self.trust = decision.trust
        try:
            changes = tuple(self._plan(decision))
        except ActuationError as error:
            return self._hold(_NO_CLUSTER, str(error), seen.missing)
        self._note(decision)
        for change in changes:
            self._log(f"{self.name}: {change.describe()}")
        outcomes: tuple[Outcome, ...] = ()
        if self._apply is not None and changes:
            outcomes = tuple(self._apply(changes))
        self.outcomes.update(outcome.result for outcome in outcomes)
        for outcome in outcomes:
            if outcome.result != "changed":
                self._log(f"{self.name}: {outcome.describe()}")
        return Round(decision.verdict, decision.reason, changes, outcomes, seen.missing)

    def _hold(self, why: str, detail: str = "", missing: tuple[str, ...] = ()) -> Round:
        self.holds[why] += 1
        if self.last is None or self.last.reason != why:  # once, not in every round
            self._log(f"{self.name}: holds: {why}{': ' * bool(detail)}{detail}")
        return Round("held", why, missing=missing)

    def _note(self, decision: Decision) -> None:
        if decision.verdict == "held":
            self.holds[_GUARD] += 1
        else:
            self.decisions += 1
            self._decided_at_s = self._clock()
        window, wanted = decision.window, decision.allocation
        for index, service in enumerate(self.app.services):
            limit, replicas = wanted.cpu_limit[index], wanted.replicas[index]
            limit = window.cpu_limit[index] if math.isnan(limit) else limit
            replicas = window.replicas[index] if replicas < 0 else replicas
            self.allocated_cores[service] = float(limit * replicas) if replicas >= 0 else math.nan

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Inside, the lease is wanted and renewed; then it is released."""
        if self.lease is None:
            yield
            return
        self._renew(self.lease)
        over = threading.Event()
        renewing = threading.Thread(target=self._keep, args=(self.lease, over))
        renewing.start()
        try:
            yield
        finally:
            over.set()
            renewing.join()
            try:
                self.lease.release()
            except GnomonError as error:
                self._log(f"{self.name}: the lease expires by itself: {error}")

    def _keep(self, lease: Lease, over: threading.Event) -> None:
        while not over.wait(lease.duration_s / _RENEWALS):
            self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        was_held = lease.is_held
        try:
            is_held = lease.renew()
        except ActuationError as error:
            self._log(f"{self.name}: the lease was not renewed: {error}")
            return
        if is_held != was_held:
            self._log(
                f"{self.name}: {'leads' if is_held else 'does not lead'} as {lease.identity}"
            )


#: Why a round holds, as the metric shows it.
_STANDBY, _NO_DATA, _NO_CLUSTER, _GUARD = (
    "another controller leads", "no measurements", "no answer of the cluster", "guard",
)  # fmt: skip


def on_cluster(
    cluster: Connection, app: Application, decide: Callable[[Window], Decision],
    prometheus: Prometheus, profile: Profile, places: Places, *, name: str = "",
    do_apply: bool = False, lease: Lease | None = None, interval_s: float = 15.0,
    window_s: float = 30.0, log: Callable[[str], None] = print,
) -> Controller:  # fmt: skip
    """The controller of an application on Kubernetes that Prometheus measures.

    Args:
        decide: A `Guard`'s `decide`.
        do_apply: Without it, changes are planned and logged, and nothing is changed.
        window_s: What each round looks back on: at least two scrapes.
    """

    def planned(decision: Decision) -> list[Change]:
        state = read_state(cluster, app, places)
        for note in state.notes():
            log(f"{name or app.name}: {note}")
        return plan(app, decision.allocation, state)

    def applied(changes: Sequence[Change]) -> list[Outcome]:
        return apply(cluster, changes, may_act=lambda: lease is None or lease.is_held)

    return Controller(
        name or app.name, app, decide=decide, plan=planned, apply=applied if do_apply else None,
        observe=lambda: observe_window(
            prometheus, app, profile, time.time(), duration_s=window_s,
            timeout_s=min(max(interval_s, 5.0), 10.0),
        ),
        lease=lease, interval_s=interval_s, log=log,
    )  # fmt: skip
