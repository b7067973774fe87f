"""Policies of a cluster that runs jobs of stages, by name.

    run = simulate("cap:fair", jobs, executors=100, grid=grid)

An order says which stage is next (`fifo`, `fair`, `decima` ...); a carbon-aware policy wraps one
(`cap:fifo`, `pcaps:decima`), or another carbon-aware policy.
"""

from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policy import (
    ClusterPolicy,
    ClusterState,
    NativeForm,
    Order,
    Serve,
    Setting,
    Wait,
    cluster_policies,
)
from gnomon.decide.cluster.simulate import simulate

__all__ = [
    "ClusterPolicy", "ClusterState", "LiveCluster", "LiveDecision", "NativeForm", "Order",
    "Serve", "Setting", "Wait", "cluster_policies", "simulate",
]  # fmt: skip
