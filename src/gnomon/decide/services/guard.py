"""Guard rails around any manager: bounds, step limits, holds, fall back to cap, trust.

Every decision of a live manager goes through a `Guard`. It never raises for what a manager or a
measurement does: the answer is then to hold the last safe allocation, and the reason is recorded.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policy import ServicePolicy, at_cap, bounds, hold, is_violated
from gnomon.decide.services.state import Allocation, Floats, ServiceState, Window
from gnomon.graph.application import Application

Verdict = Literal["decided", "held", "capped"]


class Rails(msgspec.Struct, frozen=True):
    """How far a manager is trusted.

    Attributes:
        most_up: A limit or a count grows by at most this factor in one decision.
        most_down: And shrinks by at most this one.
        foreign_cores: A window in which other processes used more than this is not acted on.
        needs_latency: Nor is one without the latency of a class that has an SLA and requests.
        patience: Windows in violation of an SLA after which everything goes to its cap.
        cap_s: For how long, and for two windows at least. Then what the manager does not set is
            as it was before.
        least_trust: Under this, a manager may only allocate more. Trust halves with each fall
            back or failure, and recovers by a twentieth of what is missing with each good window.
    """

    most_up: float = 4.0
    most_down: float = 0.5
    foreign_cores: float = math.inf
    needs_latency: bool = True
    patience: int = 5
    cap_s: float = 10.0
    least_trust: float = 0.3


#: Only bounds: what managers are compared with.
BARE = Rails(
    most_up=1e9, most_down=0.0, needs_latency=False, patience=2**31, least_trust=0.0,
)  # fmt: skip


class Decision(msgspec.Struct, frozen=True, eq=False):
    """One answer of a guard.

    Attributes:
        window: What was measured.
        allocation: What to apply: always within bounds.
        verdict: `decided` by the manager, `held` for want of good data or a working manager, or
            `capped` because an SLA was violated for too long.
        reason: Why.
        trust: In the manager, after this decision: 0 to 1.
        changed: Services whose limit or replicas differ from before.
    """

    window: Window
    allocation: Allocation
    verdict: Verdict
    reason: str
    trust: float
    changed: int


def decision_rng(seed: int) -> Generator:
    """What a manager draws from, live and when its log is replayed."""
    return np.random.default_rng([seed, 0xDEC1DE])


class Guard:
    """A manager behind guard rails; one guard a run.

    >>> from gnomon.decide.services import service_policies
    >>> from gnomon.graph.application import Call, RequestClass, Service
    >>> app = Application("one", {"web": Service(cpu_limit=0.5)},
    ...                   {"get": RequestClass(Call("web", cpu_ms=2.0))})
    >>> guard = Guard(app, service_policies.create("static"), np.random.default_rng(0))
    >>> guard.trust
    1.0
    """

    def __init__(
        self, app: Application, policy: ServicePolicy, rng: Generator, rails: Rails = BARE
    ) -> None:
        policy.check(app)
        self.app, self.policy, self.rails, self._rng = app, policy, rails, rng
        self._bounds = bounds(app)
        self._watched = np.array([one.sla is not None for one in app.classes.values()], bool)
        self.trust = 1.0
        self._memory: object = None
        self._violations = 0
        self._capped_until_s = -math.inf
        self._before: Window | None = None  # what there was before the cap

    def decide(self, window: Window) -> Decision:
        """What to apply after this window."""
        is_capped = window.now_s < self._capped_until_s
        if trouble := self._trouble(window):
            kept = at_cap(self.app, window) if is_capped else hold(window)
            return self._answer(window, kept, "held", trouble)
        if self._is_overdue(window):
            if not is_capped and self._before is None:
                self._before = window
            self._capped_until_s = window.now_s + max(self.rails.cap_s, 2 * window.duration_s)
            self._violations = 0
            self.trust /= 2
            is_capped = True
        asked = self._ask(window)
        if is_capped:
            cap = at_cap(self.app, window)
            return self._answer(window, cap, "capped", "an SLA was violated for too long")
        if isinstance(asked, str):
            return self._answer(window, hold(window), "held", asked)
        return self._answer(
            window, self._bounded(window, self._taken_back(window, asked)), "decided", asked.reason
        )

    def _taken_back(self, window: Window, asked: Allocation) -> Allocation:
        """After a cap: what the manager leaves as it is goes back to what it was."""
        before = self._before
        if before is None:
            return asked
        limit = np.where(np.isnan(asked.cpu_limit), before.cpu_limit, asked.cpu_limit)
        count = np.where(asked.replicas < 0, before.replicas, asked.replicas)
        if np.array_equal(limit, window.cpu_limit) and np.array_equal(count, window.replicas):
            self._before = None
        return msgspec.structs.replace(asked, cpu_limit=limit, replicas=count)

    def _trouble(self, window: Window) -> str:
        """Why a window is not fit to act on; empty if it is."""
        missing = np.isnan(window.usage) | np.isnan(window.cpu_limit) | (window.replicas < 0)
        if missing.any():
            names = [name for name, lacks in zip(self.app.services, missing) if lacks]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            return f"no CPU figures of {', '.join(names[:3])}{more}"
        if self.rails.needs_latency:
            silent = self._watched & np.isnan(window.class_ms).all(axis=0)
            has_requests = ~(window.class_rate <= 0) & ~(window.class_errors > 0)
            if (silent & has_requests).any():
                return "no latency of a class that gets requests"
        if window.foreign_cores > self.rails.foreign_cores:
            return f"other processes used {window.foreign_cores:.2f} cores"
        return ""

    def _is_overdue(self, window: Window) -> bool:
        is_good = not is_violated(self.app, window)
        self._violations = 0 if is_good else self._violations + 1
        if is_good:
            self.trust += (1.0 - self.trust) / 20
        return self._violations >= self.rails.patience

    def _ask(self, window: Window) -> Allocation | str:
        state = ServiceState(self.app, window, self._memory)
        try:
            asked = self.policy.decide(state, self._rng)
            shape = (len(self.app.services),)
            if asked.cpu_limit.shape != shape or asked.replicas.shape != shape:
                raise ValueError(f"an allocation for {asked.cpu_limit.shape} services")
        except Exception as error:  # a manager that fails must not take the services with it
            self.trust /= 2
            return f"the manager failed: {type(error).__name__}: {error}"
        self._memory = asked.memory
        return asked

    def _bounded(self, window: Window, asked: Allocation) -> Allocation:
        least, most, replicas_max = self._bounds
        now = window.cpu_limit
        limit = np.where(asked.cpu_limit >= 0, asked.cpu_limit, now)
        # Without a limit now there is no step to measure.
        up = now * self.rails.most_up
        down = np.where(np.isfinite(now), now, 0.0) * self.rails.most_down
        bounded = np.minimum(np.maximum(np.minimum(np.maximum(limit, down), up), least), most)
        limit = np.where(limit != now, bounded, limit)
        count = np.where(asked.replicas < 0, window.replicas, asked.replicas)
        fewest = np.ceil(window.replicas * self.rails.most_down)
        greatest = np.maximum(np.floor(window.replicas * self.rails.most_up), 1)
        steps = np.minimum(np.maximum(count, fewest), greatest)
        count = np.minimum(np.maximum(steps, 1), np.maximum(replicas_max, 1)).astype(np.int64)
        if self.trust < self.rails.least_trust:
            limit, count = np.maximum(limit, now), np.maximum(count, window.replicas)
        count = np.where(asked.replicas < 0, -1, count)
        return msgspec.structs.replace(asked, cpu_limit=_keep(limit, now), replicas=count)

    def _answer(
        self, window: Window, allocation: Allocation, verdict: Verdict, reason: str
    ) -> Decision:
        limits = ~np.isnan(allocation.cpu_limit) & (allocation.cpu_limit != window.cpu_limit)
        counts = (allocation.replicas >= 0) & (allocation.replicas != window.replicas)
        changed = int(np.count_nonzero(limits | counts))
        return Decision(window, allocation, verdict, reason, self.trust, changed)


def _keep(limit: Floats, now: Floats) -> Floats:
    """NaN where nothing changes, so that appliers need not compare."""
    return np.where(limit == now, math.nan, limit)
