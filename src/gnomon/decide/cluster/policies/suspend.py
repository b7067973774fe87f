"""Suspend and resume: nothing starts while the grid is dirty."""

from __future__ import annotations

import numpy as np

from gnomon import _core
from gnomon.decide.cluster.fields import check_hours, check_share
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.decide.cluster.policy import ClusterPolicy, NativeForm, Setting, cluster_policies
from gnomon.sim.cluster import Guard


@cluster_policies.register("suspend")
class SuspendResume(ClusterPolicy, frozen=True):
    """Starts nothing while the grid is dirtier than a quantile of the forecast.

    A job is held no longer than `patience_h`.
    """

    inner: ClusterPolicy = Fifo()
    quantile: float = 0.5
    patience_h: float = 24.0

    def __post_init__(self) -> None:
        check_share("suspend", "quantile", self.quantile)
        check_hours("suspend", "patience_h", self.patience_h)

    def native(self, setting: Setting) -> NativeForm:
        grid, count = setting.grid_for("suspend"), setting.executors.count
        limit = np.quantile(grid.outlook, self.quantile, axis=1)
        quota = np.where(grid.seen <= limit, count, 0).astype(np.int32)
        inner = self.inner.native(setting).with_gate(_core.quota_gate(quota, False))
        return inner.with_guard(Guard(patience_ns=grid.hours_ns(self.patience_h)))

    def live(self, state: LiveCluster) -> LiveDecision:
        """All ready stages held, or none."""
        inner, now = self.inner.live(state).bounded(self.patience_h), state.grid.intensity
        limit = float(np.quantile(np.append(now, state.grid.coming), self.quantile))
        if now <= limit:
            return inner
        why = f"{now:.0f} g/kWh, over {limit:.0f} of the forecast"
        return inner.holding({stage.number: why for stage in state.ready})
