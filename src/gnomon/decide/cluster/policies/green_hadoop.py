"""GreenHadoop: green capacity first, brown as the queue needs it."""

from __future__ import annotations

from gnomon import _core
from gnomon.decide.cluster.fields import check_share
from gnomon.decide.cluster.policies.orders import Fifo
from gnomon.decide.cluster.policy import ClusterPolicy, NativeForm, Setting, cluster_policies


@cluster_policies.register("green-hadoop")
class GreenHadoop(ClusterPolicy, frozen=True):
    """Green capacity now, and as much brown as the queue needs (Goiri et al., EuroSys 2012).

    Adapted to a grid as PCAPS' authors did: an hour's green share is where it lies between the
    dirtiest and the cleanest to come; the window is a mix of how long the queue would take on
    green capacity alone (`theta` 0) and at full speed (1).
    """

    inner: ClusterPolicy = Fifo()
    theta: float = 0.5

    def __post_init__(self) -> None:
        check_share("green-hadoop", "theta", self.theta)

    def native(self, setting: Setting) -> NativeForm:
        setting.grid_for("green-hadoop")
        return self.inner.native(setting).with_gate(_core.green_hadoop_gate(self.theta))
