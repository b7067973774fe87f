"""A guard rail: bounds on how long a policy may keep work waiting."""

from __future__ import annotations

import math
from typing import ClassVar

from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policy import ClusterPolicy, NativeForm, Setting, cluster_policies
from gnomon.errors import InputError
from gnomon.sim.cluster import NEVER_NS, Guard


@cluster_policies.register("guard")
class Guarded(ClusterPolicy, frozen=True):
    """Bounds on how long the policy inside may hold: a job, and a stage.

    A job that has been in the system for `patience_h` runs whatever the grid does; so does a stage
    that was held for `longest_hold_h`. 0 is no bound.
    """

    reads_grid: ClassVar[bool] = False

    inner: ClusterPolicy
    patience_h: float = 24.0
    longest_hold_h: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (
            ("patience_h", self.patience_h),
            ("longest_hold_h", self.longest_hold_h),
        ):
            if not 0.0 <= value < 1e6:
                raise InputError(f"guard: {name}={value:g}", hint="zero to a million hours")
        if not (self.patience_h or self.longest_hold_h):
            raise InputError("guard without a bound", hint="guard?patience_h=24:...")

    def native(self, setting: Setting) -> NativeForm:
        grid = setting.grid_for("guard")
        bounds = Guard(
            patience_ns=grid.hours_ns(self.patience_h) if self.patience_h else NEVER_NS,
            longest_hold_ns=grid.hours_ns(self.longest_hold_h)
            if self.longest_hold_h
            else NEVER_NS,
        )
        return self.inner.native(setting).with_guard(bounds)

    def live(self, state: LiveCluster) -> LiveDecision:
        return self.inner.live(state).bounded(
            self.patience_h or math.inf, self.longest_hold_h or math.inf
        )
