"""Which of several controllers acts: the one that holds a Lease.

A lease is taken where nobody has renewed it for as long as it lasts, by this process's own clock:
clocks of machines differ. Whoever cannot renew in time stops acting before another may begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from gnomon.act.kubernetes.cluster import Connection, Gone, Refused

#: Of a lease's duration: how long the holder acts without a renewal. The rest is for what is
#: under way when that time is over.
_SAFE_SHARE = 2 / 3
_CONFLICT = 409


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Lease:
    """A Lease of the cluster, from the view of one who wants to hold it."""

    def __init__(
        self, cluster: Connection, namespace: str, name: str, identity: str, *,
        duration_s: int = 15, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Asks nothing yet.

        Args:
            identity: Who this is, different for every process.
            duration_s: After so long without a renewal others may take it.
            clock: Seconds that never go back.
        """
        self.identity, self.duration_s = identity, duration_s
        self._cluster, self._clock = cluster, clock
        self._path = f"apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace, self._name = namespace, name
        self._held_until_s = float("-inf")
        #: The version of another's lease, and when it was first seen.
        self._seen: tuple[str, float] = ("", 0.0)

    @property
    def is_held(self) -> bool:
        """Whether this process may act now."""
        return self._clock() < self._held_until_s

    def renew(self) -> bool:
        """Takes or renews the lease; whether it is held.

        Raises:
            ActuationError: The cluster did not answer; `is_held` ends by itself.
        """
        began_s = self._clock()
        try:
            lease = self._read()
        except Gone:
            return self._write("POST", self._path, _Lease(), began_s)
        holder = lease.spec.holder_identity or ""
        if holder not in ("", self.identity) and not self._has_expired(lease, began_s):
            self._held_until_s = float("-inf")
            return False
        return self._write("PUT", f"{self._path}/{self._name}", lease, began_s)

    def release(self) -> None:
        """Lets others take the lease at once, if it is held.

        Raises:
            ActuationError: The cluster did not answer; others wait until the lease has expired.
        """
        self._held_until_s = float("-inf")
        try:
            lease = self._read()
        except Gone:
            return
        if lease.spec.holder_identity != self.identity:
            return
        body = self._body(lease, "", lease.spec.acquire_time or _now())
        answer = self._cluster.request(
            "PUT", f"{self._path}/{self._name}", body, content_type="application/json"
        )
        if answer.code != _CONFLICT:  # somebody else has it already
            answer.decode(_Lease, "a Lease")

    def _read(self) -> _Lease:
        return self._cluster.request("GET", f"{self._path}/{self._name}").decode(_Lease, "a Lease")

    def _has_expired(self, lease: _Lease, now_s: float) -> bool:
        version = lease.metadata.resource_version
        if self._seen[0] != version:
            self._seen = (version, now_s)
        return now_s - self._seen[1] > (lease.spec.lease_duration_seconds or self.duration_s)

    def _write(self, method: str, path: str, lease: _Lease, began_s: float) -> bool:
        spec = lease.spec
        is_ours = spec.holder_identity == self.identity
        acquired = spec.acquire_time if is_ours and spec.acquire_time else _now()
        body = self._body(lease, self.identity, acquired)
        answer = self._cluster.request(method, path, body, content_type="application/json")
        try:
            answer.decode(_Lease, "a Lease")
        except Refused as error:
            self._held_until_s = float("-inf")
            if error.code == _CONFLICT:  # somebody else was faster
                return False
            raise
        # From before the request: others count from when it arrived.
        self._held_until_s = began_s + self.duration_s * _SAFE_SHARE
        return True

    def _body(self, lease: _Lease, holder: str, acquired: str) -> bytes:
        is_new_holder = holder not in ("", lease.spec.holder_identity)
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if lease.metadata.resource_version:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return msgspec.json.encode({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": self.duration_s,
                "acquireTime": acquired, "renewTime": _now(),
                "leaseTransitions": (lease.spec.lease_transitions or 0) + is_new_holder,
            },
        })  # fmt: skip


def _now() -> str:
    """As Kubernetes writes times with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
