"""Replicas and CPU of Deployments: what they have, and the changes to what they should have.

    state = read_state(cluster, app, places)
    changes = plan(app, allocation, state)
    for change in changes: print(change.describe())

Nothing is changed here; `apply` does that. Where the server resizes pods in place, running pods
get another limit without a restart and the Deployment stays as it is: a pod that starts later is
resized in the next round. Elsewhere the Deployment is patched, and rolls its pods out again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from gnomon.act.kubernetes.cluster import MERGE_PATCH, STRATEGIC_PATCH, Connection
from gnomon.act.kubernetes.objects import (
    ApiResource,
    Container,
    Cpu,
    Deployment,
    Items,
    Metadata,
    Pod,
)
from gnomon.act.kubernetes.places import Place, Places
from gnomon.act.kubernetes.quantity import parse_quantity, print_cpu
from gnomon.decide.services.state import Allocation
from gnomon.errors import InputError
from gnomon.graph.application import Application

T = TypeVar("T")
_LABEL = "app"

Kind = Literal["scale", "resize", "rollout"]


class Managed(NamedTuple):
    """A service on the cluster: its Deployment, the container that counts, its live pods."""

    deployment: Deployment
    container: str
    pods: tuple[Pod, ...] = ()


class ClusterState(msgspec.Struct, frozen=True, eq=False):
    """What the Deployments of an application are.

    Attributes:
        services: Those that were found, by service.
        absent: Why others were not found, by service.
        can_resize: Whether the server resizes pods in place.
    """

    services: dict[str, Managed]
    absent: dict[str, str] = {}
    can_resize: bool = False

    def notes(self) -> list[str]:
        """What a person should know: services without a Deployment, resizes that do not happen."""
        lines = [f"{service}: {why}" for service, why in self.absent.items()]
        return lines + [
            f"{service}: pod {pod.metadata.name} is not resized: {pod.pending_resize}"
            for service, managed in self.services.items()
            for pod in managed.pods
            if pod.pending_resize
        ]


class Change(msgspec.Struct, frozen=True):
    """One patch of a Deployment or of a pod.

    Attributes:
        kind: `scale`: replicas of a Deployment; `resize`: CPU of a running pod; `rollout`: CPU of
            a Deployment, whose pods start again.
        service: For whom.
        namespace: Where.
        name: Of the Deployment or pod.
        before: As it is, in words.
        version: The resourceVersion that it was planned for.
        replicas: For `scale`.
        container: For the others.
        cpu: What it gets.
        reason: Why.

    >>> Change("scale", "web", "shop", "web", "2 replicas", replicas=3, reason="p99").describe()
    'scale deployment shop/web: 2 replicas -> 3 replicas (p99)'
    """

    kind: Kind
    service: str
    namespace: str
    name: str
    before: str
    version: str = ""
    replicas: int = 0
    container: str = ""
    cpu: Cpu = Cpu()
    reason: str = ""

    @property
    def object_path(self) -> str:
        """Where the object is, from the root of the API."""
        name = quote(self.name, safe="")
        if self.kind == "resize":
            return f"api/v1/namespaces/{self.namespace}/pods/{name}"
        return f"apis/apps/v1/namespaces/{self.namespace}/deployments/{name}"

    @property
    def patch_path(self) -> str:
        """Where the patch is sent."""
        return (
            self.object_path + {"scale": "/scale", "resize": "/resize", "rollout": ""}[self.kind]
        )

    def body(self) -> bytes:
        """The patch, as it is sent."""
        metadata = {"resourceVersion": self.version} if self.version else {}
        return msgspec.json.encode({"metadata": metadata, "spec": self._spec()})

    def _spec(self) -> dict[str, Any]:
        if self.kind == "scale":
            return {"replicas": self.replicas}
        limit, request = (None if one is None else print_cpu(one) for one in self.cpu)
        resources = {"limits": {"cpu": limit}, "requests": {"cpu": request}}
        containers = {"containers": [{"name": self.container, "resources": resources}]}
        return containers if self.kind == "resize" else {"template": {"spec": containers}}

    @property
    def content_type(self) -> str:
        """Scale has no lists: it takes a plain merge patch alone."""
        return MERGE_PATCH if self.kind == "scale" else STRATEGIC_PATCH

    def describe(self) -> str:
        """The change in a line."""
        if self.kind == "scale":
            noun = "replica" if self.replicas == 1 else "replicas"
            what, after = (
                f"scale deployment {self.namespace}/{self.name}",
                f"{self.replicas} {noun}",
            )
        else:
            object_ = "resize pod" if self.kind == "resize" else "roll out deployment"
            what = f"{object_} {self.namespace}/{self.name} container {self.container}"
            after = str(self.cpu)
        text = f"{what}: {self.before} -> {after}"
        return f"{text} ({self.reason})" if self.reason else text


def read_state(cluster: Connection, app: Application, places: Places) -> ClusterState:
    """The Deployments and pods of an application.

    Raises:
        ActuationError: The cluster refused or did not answer.
    """
    here = f"namespaces/{places.namespace}"
    deployments = _items(cluster, f"apis/apps/v1/{here}/deployments", Deployment).items
    kinds = _items(cluster, "api/v1", ApiResource).resources
    can_resize = any(one.name == "pods/resize" for one in kinds)
    pods = _items(cluster, f"api/v1/{here}/pods", Pod).items if can_resize else []
    services: dict[str, Managed] = {}
    absent: dict[str, str] = {}
    for service in app.services:
        place = _find(service, places, deployments, pods)
        if isinstance(place, str):
            absent[service] = place
        else:
            services[service] = place
    return ClusterState(services, absent, can_resize)


def _items(cluster: Connection, path: str, kind: type[T]) -> Items[T]:
    listed: type[Items[T]] = Items[kind]  # type: ignore[valid-type]
    return cluster.request("GET", path).decode(listed, f"a list of {kind.__name__}")


def _find(
    service: str, places: Places, deployments: Sequence[Deployment], pods: Iterable[Pod]
) -> Managed | str:
    """The Deployment of a service, or why there is none."""
    place = places.services.get(service, Place())
    named = [one for one in deployments if one.metadata.name == (place.deployment or service)]
    labelled = [one for one in deployments if one.metadata.labels.get(_LABEL) == service]
    fitting = named if place.deployment else labelled or named
    if len(fitting) != 1:
        several = f"{len(fitting)} Deployments have the label {_LABEL}={service}"
        return several if fitting else f"no Deployment in namespace {places.namespace}"
    deployment = fitting[0]
    containers = [one.name for one in deployment.spec.template.spec.containers]
    container = place.container or (containers[0] if len(containers) == 1 else service)
    if container not in containers:
        return f"Deployment {deployment.metadata.name} has no container {container!r}"
    selector = deployment.spec.selector
    mine = (pod for pod in pods if pod.is_live and selector.matches(pod.metadata.labels))
    return Managed(deployment, container, tuple(mine))


def plan(app: Application, allocation: Allocation, observed: ClusterState) -> list[Change]:
    """The changes that lead to an allocation; none where it is reached.

    Services that were not found on the cluster are left out.
    """
    count = len(app.services)
    if len(allocation.cpu_limit) != count or len(allocation.replicas) != count:
        raise InputError(f"the allocation is not for the {count} services of {app.name}")
    changes: list[Change] = []
    for index, service in enumerate(app.services):
        if service not in observed.services:
            continue
        managed = observed.services[service]
        requests = allocation.cpu_request
        wanted = _Wanted(
            service,
            int(allocation.replicas[index]),
            float(allocation.cpu_limit[index]),
            math.nan if requests is None else float(requests[index]),
            allocation.reasons.get(service, allocation.reason),
        )
        changes += _scale(wanted, managed)
        changes += _cpu_changes(wanted, managed, observed.can_resize)
    return changes


class _Wanted(NamedTuple):
    service: str
    replicas: int
    limit: float
    request: float
    reason: str


def _scale(wanted: _Wanted, managed: Managed) -> list[Change]:
    deployment = managed.deployment
    replicas = deployment.spec.replicas
    if wanted.replicas in (-1, replicas):
        return []
    before = f"{replicas} replica{'s' if replicas != 1 else ''}"
    return [_change("scale", wanted, deployment.metadata, before, replicas=wanted.replicas)]


def _cpu_changes(wanted: _Wanted, managed: Managed, can_resize: bool) -> list[Change]:
    if math.isnan(wanted.limit) and math.isnan(wanted.request):
        return []
    # A limit cannot be taken away from a running pod.
    in_place = can_resize and wanted.limit != math.inf
    if not in_place:
        template = managed.deployment.spec.template.spec.container(managed.container)
        return _cpu("rollout", wanted, managed.deployment.metadata, template)
    return [
        change
        for pod in managed.pods
        for change in _cpu("resize", wanted, pod.metadata, pod.spec.container(managed.container))
    ]


def _cpu(
    kind: Kind, wanted: _Wanted, metadata: Metadata, container: Container | None
) -> list[Change]:
    if container is None:
        return []
    after = _after(container.cpu, wanted)
    if after == container.cpu:
        return []
    before = str(container.cpu)
    return [_change(kind, wanted, metadata, before, container=container.name, cpu=after)]


def _after(now: Cpu, wanted: _Wanted) -> Cpu:
    """Limit and request that fit together.

    A request that equals the limit goes with it: with another one, the pod would leave its class
    of service (Guaranteed), which no resize may do. No request may exceed its limit.
    """
    limit = now.limit if math.isnan(wanted.limit) else _cores(wanted.limit, wanted.service)
    if not math.isnan(wanted.request):
        request = _cores(wanted.request, wanted.service)
    else:
        request = limit if now.request == now.limit and limit is not None else now.request
    if limit is not None and request is not None:
        request = min(request, limit)
    return Cpu(limit, request)


def _cores(cores: float, service: str) -> Fraction | None:
    if cores == math.inf:
        return None
    if not 0.001 <= cores < 1e6:
        raise InputError(f"{cores:g} is no number of cores", where=service)
    return parse_quantity(print_cpu(cores))


def _change(kind: Kind, wanted: _Wanted, metadata: Metadata, before: str, **fields: Any) -> Change:
    return Change(
        kind, wanted.service, metadata.namespace, metadata.name, before,
        metadata.resource_version, reason=wanted.reason, **fields,
    )  # fmt: skip
