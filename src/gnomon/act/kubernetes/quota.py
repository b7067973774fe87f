"""A limit for a namespace on Kubernetes: a ResourceQuota, patched.

    plan = quota_patch("spark", "executors", pods=4)
    print(plan.describe())
    find_cluster().patch(plan)             # KUBECONFIG, ~/.kube/config or a pod's service account

A quota keeps new pods from starting; running pods are not affected. `held_quota` restores it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from gnomon.act.kubernetes.cluster import NAME, Connection, Gone, Refused, kubeconfig_path
from gnomon.act.kubernetes.quantity import print_cpu
from gnomon.errors import InputError

#: Nothing was changed. After other errors that is not known.
QuotaRefused = Refused
#: There is no such quota.
QuotaGone = Gone


class QuotaPlan(msgspec.Struct, frozen=True):
    """A change of a ResourceQuota's limits.

    Attributes:
        namespace: Where it is.
        name: The quota's name; it must exist.
        hard: Limits to set, as Kubernetes writes them; None removes one. Others stay.
        reason: Why, in words.
        annotations: Annotations to set, or to remove with None.
        version: The resourceVersion that the quota must have; any where empty.
    """

    namespace: str
    name: str
    hard: dict[str, str | None]
    reason: str = ""
    annotations: dict[str, str | None] = {}
    version: str = ""

    def body(self) -> bytes:
        """The merge patch, as it is sent."""
        patch: dict[str, Any] = {"spec": {"hard": self.hard}}
        metadata = {"annotations": self.annotations, "resourceVersion": self.version}
        if given := {key: value for key, value in metadata.items() if value}:
            patch["metadata"] = given
        return msgspec.json.encode(patch)

    def describe(self) -> str:
        """The plan in a line.

        >>> quota_patch("spark", "executors", cpu=1.5, pods=4).describe()
        'quota spark/executors: pods 4, requests.cpu 1500m'
        """
        changes = ", ".join(
            f"{key} without limit" if limit is None else f"{key} {limit}"
            for key, limit in sorted(self.hard.items())
        )
        text = f"quota {self.namespace}/{self.name}: {changes}"
        return f"{text} ({self.reason})" if self.reason else text


class Quota(msgspec.Struct, frozen=True):
    """A ResourceQuota as it is now.

    Attributes:
        hard: Its limits.
        annotations: Its annotations.
        version: Its resourceVersion, another after every change.
    """

    hard: dict[str, str]
    annotations: dict[str, str] = {}
    version: str = ""


def quota_patch(
    namespace: str, name: str, *, cpu: float | None = None, pods: int | None = None,
    reason: str = "",
) -> QuotaPlan:  # fmt: skip
    """The plan that limits a namespace to some cores, some pods, or both.

    Args:
        namespace: Where the quota is.
        name: Its name.
        cpu: Cores that all pods together may request.
        pods: Pods that may exist; the driver counts too.
        reason: Why, in words.

    Raises:
        InputError: An invalid name, or a limit that would leave nothing to run.
    """
    for what, given in (("namespace", namespace), ("name", name)):
        if not NAME.fullmatch(given):
            raise InputError(f"{given!r} is no name in Kubernetes", where=what)
    hard: dict[str, str | None] = {}
    if cpu is not None:
        hard["requests.cpu"] = _cores(cpu)
    if pods is not None:
        if pods < 1:
            raise InputError(f"{pods} would leave nothing to run", where="pods")
        hard["pods"] = str(pods)
    if not hard:
        raise InputError("no limit is named", hint="give cpu or pods")
    return QuotaPlan(namespace, name, hard, reason)


def _cores(cpu: float) -> str:
    if not 0.001 <= cpu < 1e9:
        raise InputError(f"{cpu:g} is no number of cores", where="cpu")
    return print_cpu(cpu)


def find_cluster(kubeconfig: Path | str | None = None, *, context: str | None = None) -> Cluster:
    """The cluster of a kubeconfig, else of `KUBECONFIG`, `~/.kube/config` or this pod.

    Args:
        kubeconfig: The file.
        context: Of the file; its current one unless given.

    Raises:
        InputError: There is none, the login failed, or the connection would not be safe.
        ActuationError: The login took too long.
        MissingExtra: kr8s is not installed.
    """
    cluster = Cluster(kubeconfig_path(kubeconfig), context=context)
    cluster.check_login()
    return cluster


class Cluster(Connection):
    """A Kubernetes cluster whose quotas can be read and patched."""

    def read(self, plan: QuotaPlan) -> Quota:
        """The quota that a plan names.

        Raises:
            ActuationError: The cluster refused or did not answer.
        """
        return self._quota(plan, "GET")

    def patch(self, plan: QuotaPlan) -> Quota:
        """Applies a plan; the quota after it. The same plan again changes nothing.

        Raises:
            ActuationError: The cluster refused or did not answer.
        """
        return self._quota(plan, "PATCH", plan.body())

    def _quota(self, plan: QuotaPlan, method: str, body: bytes | None = None) -> Quota:
        path = f"api/v1/namespaces/{plan.namespace}/resourcequotas/{plan.name}"
        found = self.request(method, path, body).decode(_Answer, "a quota")
        return Quota(found.spec.hard, found.metadata.annotations, found.metadata.resource_version)


class _Spec(msgspec.Struct):
    hard: dict[str, str] = {}


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Answer(msgspec.Struct):
    """A ResourceQuota: the parts that are read."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
