"""A policy beside a running Spark application, or as a limit on pods."""

from __future__ import annotations

import numpy as np

from gnomon.act.spark import DriverState, SparkDecision, SparkPlan, plan
from gnomon.decide.cluster import LiveCluster, LiveDecision, cluster_policies
from gnomon.decide.cluster.live import GridNow
from gnomon.errors import InputError
from gnomon.systems.batch.live.grid import LiveGrid
from gnomon.systems.batch.live.stages import live_cluster

DRY_RUN = "dry run: --apply applies it"

_UNKNOWN = GridNow(0.0, np.zeros(0), np.zeros(0))


class LivePolicy:
    """The live form of a policy, with the memory that its bounds on holds need.

    Args:
        spec: A carbon-aware policy by name: cap:..., pcaps:..., guard:... around them.
        grid: The source of the grid's hours.
        executors: The maximum for the application, which a quota is a share of.

    Raises:
        InputError: The policy has no live form, or its quota is a share of an unknown number.
    """

    def __init__(self, spec: str, grid: LiveGrid, executors: int | None) -> None:
        if executors is not None and executors < 1:
            raise InputError(f"{executors} executors", hint="at least one")
        self.spec, self.grid, self._executors = spec, grid, executors
        self._policy = cluster_policies.create(spec)
        if not self._policy.is_carbon_aware:
            hint = f"cap:{spec}, pcaps:path-softmax"
            raise InputError(f"{spec} does not look at the grid", hint=hint)
        # A policy without a live form is refused here, not at the first look.
        idle = LiveCluster(now_s=0.0, hour_s=grid.hour_s, grid=_UNKNOWN, executors=executors)
        self._sets_quota = self._policy.live(idle).quota is not None
        self._held_since: dict[int, float] = {}

    def __call__(self, state: DriverState, now_s: float) -> SparkPlan:
        """The changes that lead to the desired state."""
        return plan(self.decide(state, now_s), state)

    def decide(self, state: DriverState, now_s: float) -> SparkDecision:
        """The desired state of the application."""
        # Not the whole lease: an agent that waits for the grid must still see the application end.
        grid = self.grid.now(now_s, wait_s=state.lease_s / 4)
        cluster = live_cluster(
            state, grid, now_s=now_s, hour_s=self.grid.hour_s, executors=self._executors
        )
        decision = self._policy.live(cluster)
        hold = self._bounded(decision, cluster)
        reasons = {"quota": decision.quota_reason} if decision.quota_reason else {}
        reasons |= {str(stage): why for stage, why in hold.items()}
        # All executors are no quota: Spark has what it would have without gnomon.
        quota = None if decision.quota == self._executors else decision.quota
        return SparkDecision(quota, frozenset(hold), decision.order, reasons)

    def pods(self, now_s: float) -> tuple[int, str]:
        """Executors that the grid allows now, and why, without a driver.

        Raises:
            InputError: The policy sets no quota, or the grid is not known.
        """
        if not self._sets_quota:
            raise InputError("a quota of pods needs cap", hint="--policy cap:fifo")
        decision = self._policy.live(
            LiveCluster(
                now_s=now_s, hour_s=self.grid.hour_s, grid=self.grid.now(now_s),
                executors=self._executors,
            )
        )  # fmt: skip
        assert decision.quota is not None
        return decision.quota, decision.quota_reason

    def describe(self) -> str:
        """The policy and what it works with here."""
        parts = [self.spec]
        if self._executors is not None:
            parts.append(f"at most {self._executors} executors")
        if self._policy.orders_stages:
            parts.append(f"stages by {self._policy.weighs_by}")
        return ", ".join(parts)

    def _bounded(self, decision: LiveDecision, cluster: LiveCluster) -> dict[int, str]:
        """The holds within the bounds: a job's patience, a stage's longest hold."""
        now_s, hour_s = cluster.now_s, cluster.hour_s
        self._held_since = {s: self._held_since.get(s, now_s) for s in decision.hold}
        submitted_s = {stage.number: stage.submitted_s for stage in cluster.stages}
        return {
            stage: why
            for stage, why in decision.hold.items()
            if now_s - submitted_s[stage] < decision.patience_h * hour_s
            and now_s - self._held_since[stage] < decision.longest_hold_h * hour_s
        }
