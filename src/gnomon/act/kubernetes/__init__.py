"""Acting on Kubernetes: quotas of namespaces, CPU and replicas of Deployments.

`quota` limits what a namespace may use. `deployments` plans replicas and CPU limits of services,
`apply` makes the changes, `controller` does both in a loop, and `operator` runs a controller for
each `ServiceManager` object of a cluster.
"""

from gnomon.act.kubernetes.cluster import REQUEST_TIMEOUT_S
from gnomon.act.kubernetes.quota import (
    Cluster,
    Quota,
    QuotaGone,
    QuotaPlan,
    QuotaRefused,
    find_cluster,
    quota_patch,
)

__all__ = [
    "REQUEST_TIMEOUT_S", "Cluster", "Quota", "QuotaGone", "QuotaPlan", "QuotaRefused",
    "find_cluster", "quota_patch",
]  # fmt: skip
