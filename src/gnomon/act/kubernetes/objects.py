"""Deployments and pods as the API of Kubernetes answers: the parts that are read."""

from __future__ import annotations

from fractions import Fraction
from typing import Generic, NamedTuple, TypeVar

import msgspec

from gnomon.act.kubernetes.quantity import parse_quantity, print_cpu
from gnomon.errors import ActuationError, InputError

T = TypeVar("T")
_ENDED = ("Succeeded", "Failed")


class Cpu(NamedTuple):
    """CPU of a container in cores, exactly; None where it has no limit or no request.

    >>> str(Cpu(Fraction(1, 2), None))
    'cpu limit 500m, request none'
    """

    limit: Fraction | None = None
    request: Fraction | None = None

    def __str__(self) -> str:
        limit, request = ("none" if one is None else print_cpu(one) for one in self)
        return f"cpu limit {limit}, request {request}"


class Metadata(msgspec.Struct, rename="camel"):
    """Name, labels and version of an object."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Resources(msgspec.Struct):
    """Limits and requests, as written."""

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class Container(msgspec.Struct):
    """A container of a pod."""

    name: str
    resources: Resources = msgspec.field(default_factory=Resources)

    @property
    def cpu(self) -> Cpu:
        try:
            return Cpu(*(
                None if (text := part.get("cpu")) is None else parse_quantity(text)
                for part in (self.resources.limits, self.resources.requests)
            ))  # fmt: skip
        except InputError as error:
            raise ActuationError(f"container {self.name}: {error}") from None


class PodSpec(msgspec.Struct):
    """What a pod runs."""

    containers: list[Container]

    def container(self, name: str) -> Container | None:
        return next((one for one in self.containers if one.name == name), None)


class Requirement(msgspec.Struct):
    """One expression of a selector."""

    key: str
    operator: str
    values: list[str] = []

    def matches(self, labels: dict[str, str]) -> bool:
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        return (labels.get(self.key) in self.values) == (self.operator == "In")


class Selector(msgspec.Struct, rename="camel"):
    """Which pods are of a Deployment."""

    match_labels: dict[str, str] = {}
    match_expressions: list[Requirement] = []

    def matches(self, labels: dict[str, str]) -> bool:
        return self.match_labels.items() <= labels.items() and all(
            one.matches(labels) for one in self.match_expressions
        )


class Template(msgspec.Struct):
    """What the pods of a Deployment are made from."""

    spec: PodSpec


class DeploymentSpec(msgspec.Struct):
    """What a Deployment should be."""

    template: Template
    selector: Selector
    replicas: int = 1


class Deployment(msgspec.Struct):
    """A Deployment."""

    metadata: Metadata
    spec: DeploymentSpec


class Condition(msgspec.Struct):
    """What is the case with a pod."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(msgspec.Struct):
    """What a pod does."""

    phase: str = ""
    conditions: list[Condition] = []


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def is_live(self) -> bool:
        return self.metadata.deletion_timestamp is None and self.status.phase not in _ENDED

    @property
    def pending_resize(self) -> str:
        """Why the node has not resized it; empty where nothing is pending."""
        for one in self.status.conditions:
            if one.type == "PodResizePending" and one.status == "True":
                return " ".join(f"{one.reason} {one.message}".split())
        return ""


class ApiResource(msgspec.Struct):
    """A kind of object that the server has."""

    name: str


class Items(msgspec.Struct, Generic[T]):
    """A list of objects; that of kinds calls them resources."""

    items: list[T] = []
    resources: list[T] = []
