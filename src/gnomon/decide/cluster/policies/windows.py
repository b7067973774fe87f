"""Policies that plan each job when it arrives, within a window of hours."""

from __future__ import annotations

from gnomon import _core
from gnomon.decide.cluster.fields import check_hours
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.decide.cluster.policy import ClusterPolicy, NativeForm, Setting, cluster_policies
from gnomon.sim.cluster import Guard


@cluster_policies.register("wait-awhile")
class WaitAwhile(ClusterPolicy, frozen=True):
    """Each job waits for the cleanest hours of its window (Wiesner et al., Middleware 2021).

    In one piece (`whole`), or in as many as the cleanest hours make.
    """

    inner: ClusterPolicy = Fifo()
    window_h: int = 24
    whole: bool = True

    def __post_init__(self) -> None:
        check_hours("wait-awhile", "window_h", self.window_h)

    def native(self, setting: Setting) -> NativeForm:
        grid = setting.grid_for("wait-awhile")
        inner = self.inner.native(setting).with_gate(_core.window_gate(self.window_h, self.whole))
        return inner.with_guard(Guard(patience_ns=grid.hours_ns(self.window_h)))


@cluster_policies.register("carbon-scaler")
class CarbonScaler(ClusterPolicy, frozen=True):
    """Each job has more executors where one more does most work per gram.

    After CarbonScaler (Hanafy et al., SIGMETRICS 2024): how much faster a job is with more
    executors comes from the durations measured.
    """

    inner: ClusterPolicy = Fifo()
    window_h: int = 24

    def __post_init__(self) -> None:
        check_hours("carbon-scaler", "window_h", self.window_h)

    def native(self, setting: Setting) -> NativeForm:
        grid = setting.grid_for("carbon-scaler")
        inner = self.inner.native(setting).with_gate(_core.scaler_gate(self.window_h))
        return inner.with_guard(Guard(patience_ns=grid.hours_ns(self.window_h)))
