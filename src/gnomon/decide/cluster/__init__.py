"""Policies of a cluster that runs jobs of stages: by name, or as classes.

    run = simulate("cap:fair", jobs, executors=100, grid=grid)

An order says which stage is next (`fifo`, `fair`, `decima` ...); what knows the grid wraps one
(`cap:fifo`, `pcaps:decima`), and one another.
"""

from gnomon.decide.cluster.carbon import (
    Cap,
    CarbonScaler,
    FixedQuota,
    GreenHadoop,
    Guarded,
    Pcaps,
    PcapsPlus,
    SuspendResume,
    WaitAwhile,
)
from gnomon.decide.cluster.orders import (
    CriticalPath,
    Decima,
    Fair,
    Fifo,
    Kubernetes,
    PathSoftmax,
    ShortestJob,
    WeightedFair,
)
from gnomon.decide.cluster.policy import (
    ClusterPolicy,
    ClusterView,
    Parts,
    PythonPolicy,
    Serve,
    Setting,
    Wait,
    cluster_policies,
)
from gnomon.decide.cluster.simulate import simulate

__all__ = [
    "Cap", "CarbonScaler", "ClusterPolicy", "ClusterView", "CriticalPath", "Decima", "Fair",
    "Fifo", "FixedQuota", "GreenHadoop", "Guarded", "Kubernetes", "Parts", "PathSoftmax", "Pcaps",
    "PcapsPlus", "PythonPolicy", "Serve", "Setting", "ShortestJob", "SuspendResume", "Wait",
    "WaitAwhile", "WeightedFair", "cluster_policies", "simulate",
]  # fmt: skip
