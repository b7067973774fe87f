"""The same on a real kube-apiserver with etcd, under the rights of our manifests.

Both have to be on PATH; docs/howto/services-on-kubernetes.md says where they come from.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml

from gnomon.act.kubernetes.apply import apply
from gnomon.act.kubernetes.cluster import Connection
from gnomon.act.kubernetes.deployments import plan, read_state
from gnomon.act.kubernetes.lease import Lease
from gnomon.act.kubernetes.places import Places
from gnomon.decide.services.state import Allocation
from gnomon.graph.application import Application, Call, RequestClass, Service
from tests.act.kubernetes import fake_api, real_server
from tests.act.kubernetes.test_manifests import APPLY, BASE
from tests.act.kubernetes.test_operator import prometheus  # noqa: F401
from tests.waiting import until

pytestmark = pytest.mark.slow
APP = Application("shop", {"web": Service()}, {"get": RequestClass(Call("web"))})
HERE = "namespaces/gnomon"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with the base manifests, but for the controller itself."""
    with real_server.serving(tmp_path_factory.mktemp("server")) as server:
        for name in ("namespace", "crd", "rbac", "configmap"):
            for one in yaml.safe_load_all((BASE / f"{name}.yaml").read_text()):
                server.create(one)
        yield server


@pytest.fixture
def cluster(server, tmp_path):
    return Connection(str(server.kubeconfig(tmp_path / "config", "gnomon-token")))


@pytest.fixture
def web(server):
    one = fake_api.deployment("web", replicas=2, cpu="1", request="500m")
    one["metadata"]["namespace"] = "gnomon"
    server.create(one)
    yield lambda: server.ask("GET", f"apis/apps/v1/{HERE}/deployments/web")
    server.ask("DELETE", f"apis/apps/v1/{HERE}/deployments/web")


@pytest.fixture
def may_apply(server):
    """The rights of the overlay."""
    for one in yaml.safe_load_all((APPLY / "rbac.yaml").read_text()):
        server.create(one)
    yield
    server.ask("DELETE", f"apis/rbac.authorization.k8s.io/v1/{HERE}/rolebindings/gnomon-apply")
    server.ask("DELETE", f"apis/rbac.authorization.k8s.io/v1/{HERE}/roles/gnomon-apply")


def changes(cluster, limit=0.25, replicas=5):
    wanted = Allocation(np.array([limit]), np.array([replicas]))
    return plan(APP, wanted, read_state(cluster, APP, Places("gnomon")))


def test_the_base_can_plan_and_not_apply(cluster, web):
    found = changes(cluster)
    assert [one.kind for one in found] == ["scale", "rollout"]  # this server has no resize
    outcomes = apply(cluster, found)
    assert [one.result for one in outcomes] == ["refused", "refused"]
    assert "403" in outcomes[0].detail
    assert web()["spec"]["replicas"] == 2


def test_the_overlay_can_apply(cluster, web, may_apply):
    found = changes(cluster)
    until(
        lambda: {one.result for one in apply(cluster, found)} <= {"changed", "reached"}, "rights"
    )
    after = web()["spec"]
    assert after["replicas"] == 5
    assert after["template"]["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"},
    }  # fmt: skip
    assert changes(cluster) == []


def test_a_conflict_and_a_deletion(server, cluster, web, may_apply):
    until(lambda: apply(cluster, changes(cluster, replicas=4))[0].result == "changed", "rights")
    found = changes(cluster, limit=np.inf, replicas=7)
    other = web()
    other["metadata"]["labels"]["touched"] = "yes"
    server.ask("PUT", f"apis/apps/v1/{HERE}/deployments/web", other)
    assert [one.result for one in apply(cluster, found)] == ["changed", "changed"]
    assert "cpu" not in web()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    gone = changes(cluster, replicas=9)
    server.ask("DELETE", f"apis/apps/v1/{HERE}/deployments/web")
    assert {one.result for one in apply(cluster, gone)} == {"gone"}
    server.create(
        {**fake_api.deployment("web"), "metadata": {"name": "web", "namespace": "gnomon"}}
    )


def test_leases(server, cluster):
    a, b = (Lease(cluster, "gnomon", "lead", who) for who in "ab")
    assert (a.renew(), b.renew(), a.renew()) == (True, False, True)
    a.release()
    assert b.renew()
    assert (
        server.ask("GET", f"apis/coordination.k8s.io/v1/{HERE}/leases/lead")["spec"][
            "leaseTransitions"
        ]
        == 2
    )


def test_the_operator(server, web, may_apply, prometheus, tmp_path):  # noqa: F811
    """A ServiceManager is followed, changed, and left alone after it is deleted."""
    config = server.kubeconfig(tmp_path / "config", "gnomon-token")
    app = "services: {web: {cpu_limit: 1, cpu_max: 2}}\nclasses: {get: {call: {service: web}}}"
    data = {
        "app.yaml": app,
        "metrics.yaml": "extends: kubernetes",
        "deployments.yaml": "namespace: gnomon",
    }
    server.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": data}
    )
    spec = {
        "configMap": "mine",
        "manager": "static?cap=true",
        "prometheus": prometheus,
        "intervalSeconds": 1,
    }
    path = f"apis/gnomon.dev/v1alpha1/{HERE}/servicemanagers"

    def found():
        return server.ask("GET", f"{path}/mine")

    with open(tmp_path / "log", "wb") as log:
        operator = subprocess.Popen(
            [sys.executable, "-m", "gnomon.act.kubernetes.operator", "--namespace=gnomon", "--port=0"],
            env={"KUBECONFIG": str(config), "PATH": "/usr/bin", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)},
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        server.create(
            {
                "apiVersion": "gnomon.dev/v1alpha1",
                "kind": "ServiceManager",
                "metadata": {"name": "mine"},
                "spec": spec,
            }
        )

        def running():
            assert operator.poll() is None, (tmp_path / "log").read_text()[-3000:]
            return found().get("status", {}).get("verdict") == "decided"

        until(running, "a decision", 120)
        assert "cpu limit 1, request 500m -> cpu limit 2" in found()["status"]["changes"][0]
        assert (
            web()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"
        )
        changed = found()
        changed["spec"]["apply"] = True
        server.ask("PUT", f"{path}/mine", changed)

        def limit():
            return web()["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]

        until(lambda: limit() == "2", "the change", 120)
        server.ask("DELETE", f"{path}/mine")
        until(lambda: not server.ask("GET", path)["items"], "its end", 120)
        until(
            lambda: (
                not server.ask("GET", f"apis/coordination.k8s.io/v1/{HERE}/leases/gnomon-mine")[
                    "spec"
                ].get("holderIdentity")
            ),
            "the release",
        )
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.wait(120)
    assert "Traceback" not in (tmp_path / "log").read_text()
