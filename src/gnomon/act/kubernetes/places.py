"""Where the services of an application run: namespace, Deployment, container.

    namespace: shop
    services:
      web: {deployment: web-v2, container: nginx}

What is not listed is found by the label `app` of the Deployment, else by its name; its container
is the only one, else the one that has the name of the service.
"""

from __future__ import annotations

import os

import msgspec

from gnomon.act.kubernetes.cluster import NAME
from gnomon.act.metric_profile import converted
from gnomon.errors import InputError
from gnomon.ingest.services.strict_yaml import YamlDocument
from gnomon.ingest.text import read_whole

_MOST_BYTES = 1 << 20


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a service runs; empty: as the labels say."""

    deployment: str = ""
    container: str = ""


class Places(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where services run.

    >>> parse_places("services: {web: {deployment: web-v2}}").services["web"].deployment
    'web-v2'
    """

    namespace: str = "default"
    services: dict[str, Place] = {}

    def __post_init__(self) -> None:
        names = [self.namespace]
        names += [
            one for place in self.services.values() for one in msgspec.structs.astuple(place)
        ]
        for name in names:
            if name and not NAME.fullmatch(name):
                raise InputError(f"{name!r} is no name in Kubernetes")


def read_places(path: str | os.PathLike[str]) -> Places:
    """Places from a YAML file."""
    content = read_whole(path, _MOST_BYTES, "is it a list of Deployments?")
    return parse_places(content.decode("utf-8-sig", "replace"), where=os.fspath(path))


def parse_places(text: str, *, where: str = "") -> Places:
    """Places from the text of their file."""
    document = YamlDocument(text, where)
    root = dict(document.table(document.data, "$"))
    services = document.table(root.get("services", {}), "$.services")
    root["services"] = {
        name: converted(document, place, Place, f"$.services.{name}")
        for name, place in services.items()
    }
    return converted(document, root, Places, "$")
