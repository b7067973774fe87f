"""A cluster under `manage`, as the simulator and the lab are."""

from __future__ import annotations

import pytest

from gnomon.act.kubernetes.places import Places
from gnomon.act.kubernetes.target import ClusterTarget
from gnomon.act.metric_profile import read_profile
from gnomon.decide.services.loop import manage
from gnomon.errors import ActuationError
from gnomon.graph.application import Application, Call, RequestClass, Service
from tests.act.kubernetes import fake_api
from tests.act.kubernetes.test_controller import Alive

APP = Application("shop", {"web": Service(cpu_max=2.0)}, {"get": RequestClass(Call("web"))})
MEASURED = {
    "kube_pod_container_resource_limits": [({"deployment": "web"}, "1")],
    "kube_deployment_status_replicas_ready": [({"deployment": "web"}, "1")],
    "container_cpu_usage_seconds_total": [({"deployment": "web"}, "0.9")],
}


@pytest.fixture
def target(api, cluster):
    api.put(fake_api.deployment("web", cpu="1"))
    api.put(fake_api.pod("web-a", "web", cpu="1"))
    slept = []
    target = ClusterTarget(
        APP, cluster, Alive(MEASURED), read_profile("istio"), Places("shop"), sleep=slept.append
    )
    target.slept = slept
    return target


def test_a_manager_on_a_cluster(api, target):
    done = manage(target, "static?cap=true", duration_s=2.0, interval_s=1.0)
    assert target.slept == [1.0, 1.0]
    assert done.decisions[0].window.usage.tolist() == [0.9]
    assert "queue: the profile has no query" in target.seen.missing
    assert api.get("pods", "web-a")["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2"
    assert target.outcomes == []  # the second decision was reached already


def test_a_dry_run_changes_nothing(api, target):
    manage(target, "static?cap=true", duration_s=1.0, apply=False)
    assert api.patches == []


def test_a_cluster_that_cannot_be_read(api, target):
    api.instead = lambda method, path: (403, {"message": "no"})
    with pytest.raises(ActuationError, match="403"):
        manage(target, "static?cap=true", duration_s=1.0)
