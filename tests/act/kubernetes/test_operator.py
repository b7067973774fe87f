"""The operator's part per object: a controller from its spec and ConfigMap, and its status."""

from __future__ import annotations

import json
import sys
import threading
import time

import pytest

from gnomon.act.kubernetes import operator
from gnomon.act.kubernetes.operator import Manager
from gnomon.errors import MissingExtra
from tests.act.kubernetes import fake_api
from tests.act.real_prometheus import Exporter, exporting
from tests.waiting import until

APP = """
name: shop
services: {web: {cpu_limit: 1, cpu_max: 2}}
classes: {get: {call: {service: web}}}
"""


def config_map(**data):
    metadata = {"name": "shop", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def prometheus():
    """Answers every query with one core of web."""

    def answer():
        found = [{"metric": {"deployment": "web"}, "value": [time.time(), "1"]}]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": found}})

    with exporting(Exporter(answer)) as address:
        yield f"http://{address}"


@pytest.fixture
def managed(api, cluster, prometheus):
    """An object in charge of one Deployment, its spec, and what stops it."""
    api.put(fake_api.deployment("web", cpu="1"))
    api.put(fake_api.pod("web-a", "web", cpu="1"))
    api.put(config_map(**{"app.yaml": APP, "metrics.yaml": "extends: kubernetes"}))
    api.put(
        {
            "apiVersion": "gnomon.dev/v1alpha1",
            "kind": "ServiceManager",
            "metadata": {"name": "shop", "namespace": "shop"},
        }
    )
    log, stop = [], threading.Event()
    manager = Manager(cluster, log.append)
    spec = {
        "configMap": "shop",
        "manager": "static?cap=true",
        "prometheus": prometheus,
        "intervalSeconds": 0.05,
    }
    thread = threading.Thread(target=manager.manage, args=("shop", "shop", lambda: spec, stop))
    thread.start()
    try:
        yield manager, spec, log
    finally:
        stop.set()
        thread.join()
    assert manager.running == {}


def status(api):
    return api.get("servicemanagers", "shop").get("status", {})


def test_an_object_gets_a_controller_and_its_status(api, managed):
    manager, *_ = managed
    until(lambda: status(api).get("verdict") == "decided", "a status")
    assert status(api)["trust"] == 1
    (line,) = status(api)["changes"]
    assert (
        line
        == "resize pod shop/web-a container web: cpu limit 1, request none -> cpu limit 2, request none (all at their cap)"
    )
    assert "queue: the profile has no query" in status(api)["missing"]
    assert list(manager.running) == ["shop/shop"]
    assert api.get("leases", "gnomon-shop")["spec"]["holderIdentity"]
    assert {kind for kind, *_ in api.patches} == {"servicemanagers"}  # read only


def test_a_change_of_spec_or_application_starts_it_anew(api, managed):
    manager, spec, _ = managed
    first = until(lambda: manager.running.get("shop/shop"), "a controller")
    spec["intervalSeconds"] = 0.1
    second = until(lambda: (c := manager.running.get("shop/shop")) is not first and c, "another")
    assert second.interval_s == 0.1
    with api.lock:
        api.put(config_map(**{"app.yaml": APP.replace("name: shop", "name: other")}))
    until(lambda: (c := manager.running.get("shop/shop")) and c.app.name == "other", "the change")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"manager": "nobody"}, "nobody"),
        ({"prometheus": "here"}, "is no address of Prometheus"),
        ({"configMap": "none"}, 'configmaps "none" not found'),
        ({"oops": 1}, "unknown field `oops`"),
    ],
)
def test_what_is_wrong_with_an_object_is_in_its_status(api, managed, monkeypatch, wrong, words):
    monkeypatch.setattr(operator, "_RETRY_S", 0.01)
    manager, spec, _ = managed
    until(lambda: manager.running, "a controller")
    spec |= wrong
    until(lambda: words in status(api).get("reason", ""), "the reason")
    assert manager.running == {}


def test_an_application_that_is_missing_or_wrong(api, managed, monkeypatch):
    monkeypatch.setattr(operator, "_RETRY_S", 0.01)
    with api.lock:
        api.put(config_map(other="x"))
    until(
        lambda: "configmap shop/shop: has no app.yaml" in status(api).get("reason", ""),
        "the reason",
    )
    with api.lock:
        api.put(config_map(**{"app.yaml": "services: 3"}))
    until(lambda: "app.yaml line 1" in status(api).get("reason", ""), "the reason")


def test_a_status_that_cannot_be_written_is_logged(api, managed):
    _, _, log = managed
    api.instead = lambda method, path: (
        (403, {"message": "no"}) if path.endswith("/status") else None
    )
    until(lambda: any("shop/shop: no status: " in line for line in log), "the line")


def test_without_kopf(monkeypatch):
    monkeypatch.setitem(sys.modules, "kopf", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gnomon\[k8s\]'"):
        operator.main([])
