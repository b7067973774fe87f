"""An operator by kopf: a controller for each `ServiceManager` object of a cluster.

    python -m gnomon.act.kubernetes.operator --namespace shop

An object names a ConfigMap with `app.yaml`, and perhaps `metrics.yaml` (a profile) and
`deployments.yaml` (places). A change of either starts its controller anew. Several operators may
run: a Lease for each object decides which of them acts.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import numpy as np

from gnomon.act.kubernetes.cluster import Connection
from gnomon.act.kubernetes.controller import Controller, Round, on_cluster
from gnomon.act.kubernetes.health import serving
from gnomon.act.kubernetes.lease import Lease
from gnomon.act.kubernetes.places import Places, parse_places
from gnomon.act.kubernetes.quota import find_cluster
from gnomon.act.metric_profile import parse_profile, read_profile
from gnomon.decide.services.guard import Guard, Rails, decision_rng
from gnomon.decide.services.policy import service_policies
from gnomon.errors import GnomonError, InputError, MissingExtra
from gnomon.ingest.metrics.prometheus import Prometheus
from gnomon.ingest.services.application_file import parse_application

GROUP, VERSION, PLURAL = "gnomon.dev", "v1alpha1", "servicemanagers"
_RETRY_S = 15.0
#: Objects that one operator manages at a time: a thread each.
_MOST_OBJECTS = 64


class ManagerSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The `spec` of a ServiceManager.

    Attributes:
        config_map: In its namespace, with the application.
        manager: A policy of services, such as `hpa?target=0.7`.
        prometheus: The address.
        profile: Which metrics there are, where the ConfigMap has none of its own.
        apply: Whether to change anything.
        interval_seconds: From one decision to the next.
        window_seconds: What each looks back on.
    """

    config_map: str
    manager: str
    prometheus: str
    profile: str = "istio"
    apply: bool = False
    interval_seconds: float = 15.0
    window_seconds: float = 60.0


class Stopped(Protocol):
    """kopf's way to say that a controller has to end; a `threading.Event` fits as well."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float) -> Any: ...


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class Manager:
    """Runs the controller of each object; `running` holds those that do."""

    def __init__(self, cluster: Connection, log: Callable[[str], None]) -> None:
        self._cluster, self._log = cluster, log
        self._identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.running: dict[str, Controller] = {}

    def manage(
        self, namespace: str, name: str, spec: Callable[[], Mapping[str, Any]], stopped: Stopped
    ) -> None:
        """Runs the controller of an object until `stopped`, anew after each change."""
        key = f"{namespace}/{name}"
        while not stopped.is_set():
            given = dict(spec())
            try:
                data = self._config(namespace, given)
                controller = self._build(namespace, name, given, data)
            except GnomonError as error:
                self._log(f"{key}: {error}")
                self._tell(namespace, name, {"verdict": "held", "reason": str(error)})
                stopped.wait(_RETRY_S)
                continue
            self.running[key] = controller
            with contextlib.ExitStack() as until_changed:
                until_changed.callback(self.running.pop, key)
                until_changed.enter_context(controller.leading())
                while not stopped.is_set() and dict(spec()) == given:
                    round_ = controller.step()
                    if controller.is_leader:
                        self._tell(namespace, name, _status(controller, round_))
                    stopped.wait(controller.interval_s)
                    with contextlib.suppress(GnomonError):  # as it was, then
                        if self._config(namespace, given) != data:
                            break

    def _config(self, namespace: str, given: Mapping[str, Any]) -> dict[str, str]:
        path = f"api/v1/namespaces/{namespace}/configmaps/{given.get('configMap', '')}"
        return self._cluster.request("GET", path).decode(_ConfigMap, "a ConfigMap").data

    def _build(
        self, namespace: str, name: str, given: Mapping[str, Any], data: Mapping[str, str]
    ) -> Controller:
        try:
            spec = msgspec.convert(given, ManagerSpec)
        except msgspec.ValidationError as error:
            raise InputError(str(error), where=f"servicemanager {namespace}/{name}") from None
        if "app.yaml" not in data:
            raise InputError("has no app.yaml", where=f"configmap {namespace}/{spec.config_map}")
        app = parse_application(data["app.yaml"], where="app.yaml", name=name)
        own = data.get("metrics.yaml")
        places = data.get("deployments.yaml")
        policy = service_policies.create(spec.manager)
        return on_cluster(
            self._cluster, app, Guard(app, policy, decision_rng(0), Rails()).decide,
            Prometheus(spec.prometheus),
            parse_profile(own, where="metrics.yaml") if own else read_profile(spec.profile),
            parse_places(places, where="deployments.yaml") if places else Places(namespace),
            name=f"{namespace}/{name}", do_apply=spec.apply, log=self._log,
            lease=Lease(self._cluster, namespace, f"gnomon-{name}", self._identity),
            interval_s=spec.interval_seconds, window_s=spec.window_seconds,
        )  # fmt: skip

    def _tell(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Writes the status back; who reads it can do without, so a failure is logged."""
        path = f"apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}/{name}/status"
        try:
            self._cluster.request(
                "PATCH", path, msgspec.json.encode({"status": status})
            ).decode(_ConfigMap, "its status")  # fmt: skip
        except GnomonError as error:
            self._log(f"{namespace}/{name}: no status: {error}")


def _status(controller: Controller, round_: Round) -> dict[str, Any]:
    return {
        "verdict": round_.verdict, "reason": round_.reason,
        "observedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "trust": None if np.isnan(controller.trust) else round(controller.trust, 3),
        "changes": [one.describe() for one in round_.changes[:20]],
        "problems": [one.describe() for one in round_.outcomes if one.is_error][:20],
        "missing": list(round_.missing[:20]),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Runs the operator until it is stopped."""
    parser = argparse.ArgumentParser("gnomon-operator", description="Manages services by object.")
    parser.add_argument("--namespace", action="append", help="where the objects are; repeatable")
    parser.add_argument("--host", default="127.0.0.1", help="for /healthz, /readyz, /metrics")
    parser.add_argument("--port", type=int, default=9095)
    given = parser.parse_args(arguments)
    try:
        import kopf
    except ImportError:
        raise MissingExtra("kopf", "k8s", "the operator") from None
    manager = Manager(find_cluster(), lambda text: print(f"gnomon: {text}", flush=True))

    def configure(settings: Any, **_: Any) -> None:
        settings.scanning.disabled = True  # else it wants to watch all definitions and namespaces
        settings.execution.max_workers = _MOST_OBJECTS
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
        settings.posting.enabled = False

    def run(
        namespace: str, name: str, spec: Mapping[str, Any], stopped: Stopped, **_: Any
    ) -> None:
        manager.manage(namespace, name, lambda: spec, stopped)

    kopf.on.startup()(configure)
    # No time-out: a round ends by itself, and its object stays until then.
    kopf.daemon(GROUP, VERSION, PLURAL, cancellation_polling=2.0)(run)
    with serving(lambda: tuple(manager.running.values()), given.host, given.port):
        kopf.run(
            standalone=True, namespaces=given.namespace or (), clusterwide=not given.namespace
        )


if __name__ == "__main__":
    main()
