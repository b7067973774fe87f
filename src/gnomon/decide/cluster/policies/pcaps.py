"""PCAPS: stages that matter run at any hour, the others wait for cleaner ones."""

from __future__ import annotations

import msgspec

from gnomon import _core
from gnomon.decide.cluster.fields import check_share
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policies.path_softmax import PathSoftmax
from gnomon.decide.cluster.policy import (
    ClusterPolicy,
    NativeForm,
    QuotaTerms,
    Setting,
    cluster_policies,
)
from gnomon.decide.cluster.rules import NARROWINGS, Narrowing, pcaps_threshold
from gnomon.errors import InputError


@cluster_policies.register("pcaps")
class Pcaps(ClusterPolicy, frozen=True):
    """PCAPS: of the stages that a probabilistic policy draws, important ones run (Algorithm 1).

    A drawn stage runs if the grid is no dirtier than its importance allows, or if nothing else
    runs; else all wait for the next event. `narrowing` says how its job's limit shrinks:
    'literal' as printed, 'released' as in the authors' simulator, 'dimensionless' with the
    exponent over the range, 'none'.
    """

    inner: ClusterPolicy = PathSoftmax()
    gamma: float = 0.5
    narrowing: Narrowing = "dimensionless"

    def __post_init__(self) -> None:
        check_share("pcaps", "gamma", self.gamma)

    def native(self, setting: Setting) -> NativeForm:
        """The inner order, tested."""
        setting.grid_for("pcaps")
        inner = self.inner.native(setting)
        if not isinstance(inner.order, _core.ProbabilisticOrder):
            raise InputError(
                f"pcaps needs a policy that draws, not {type(self.inner).__name__}",
                hint="pcaps:decima, pcaps:path-softmax",
            )
        how = NARROWINGS.index(self.narrowing)
        return msgspec.structs.replace(
            inner, order=_core.pcaps_order(inner.order, self.gamma, how)
        )

    def live(self, state: LiveCluster) -> LiveDecision:
        """Stages by their weights; those held whose importance does not allow this hour."""
        weights, grid = self.inner.stage_weights(state), state.grid
        held, most = {}, max(weights.values(), default=1.0)
        for stage, weight in weights.items():
            importance = weight / most
            allowed = pcaps_threshold(importance, self.gamma, grid.low_end, grid.high_end)
            if grid.intensity > allowed:
                held[stage] = (
                    f"{grid.intensity:.0f} g/kWh; "
                    f"its importance {importance:.2f} allows {allowed:.0f}"
                )
        return self.inner.live(state).ordered_by(weights).holding(held)

    @property
    def orders_stages(self) -> bool:
        return True

    @property
    def quota_terms(self) -> QuotaTerms:
        """Limits shrink; the rest is as inside."""
        return msgspec.structs.replace(self.inner.quota_terms, narrows=True)
