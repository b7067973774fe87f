"""Plans for Deployments, and what comes of them on a server that changes meanwhile."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.act.kubernetes.apply import apply
from gnomon.act.kubernetes.deployments import ClusterState, Managed, plan, read_state
from gnomon.act.kubernetes.objects import Deployment, Pod
from gnomon.act.kubernetes.places import Place, Places, parse_places, read_places
from gnomon.decide.services.state import Allocation
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Application, Call, RequestClass, Service
from tests.act.fake_cluster import TOKEN
from tests.act.kubernetes import fake_api

SHOP = Places("shop")
NAN, INF = math.nan, math.inf


def application(*names):
    return Application(
        "shop", {name: Service() for name in names}, {"get": RequestClass(Call(names[0]))}
    )


def allocation(limits, replicas, requests=None, **more):
    return Allocation(
        np.array(limits, float), np.array(replicas, np.int64),
        None if requests is None else np.array(requests, float), **more,
    )  # fmt: skip


def planned(cluster, app, wanted, places=SHOP):
    return plan(app, wanted, read_state(cluster, app, places))


def lines(changes):
    return [one.describe() for one in changes]


def results(outcomes):
    return [one.result for one in outcomes]


def no_sleep(_):
    pass


def cpu_of(object_, name):
    spec = object_["spec"].get("template", object_)["spec"]
    found = next(one for one in spec["containers"] if one["name"] == name)["resources"]
    return found["limits"].get("cpu"), found["requests"].get("cpu")


def test_running_pods_are_resized_and_the_deployment_stays(api, cluster):
    api.put(fake_api.deployment("web", replicas=2, cpu="1", request="500m"))
    for name in ("web-a", "web-b"):
        api.put(fake_api.pod(name, "web", cpu="1", request="500m"))
    api.put(fake_api.pod("web-old", "web", cpu="1", phase="Succeeded"))
    api.put(fake_api.pod("db-a", "db", cpu="1"))
    app, wanted = application("web"), allocation([0.25], [3], reason="p99 under its bound")
    changes = planned(cluster, app, wanted)
    assert lines(changes) == [
        "scale deployment shop/web: 2 replicas -> 3 replicas (p99 under its bound)",
        "resize pod shop/web-a container web: cpu limit 1, request 500m -> cpu limit 250m, request 250m (p99 under its bound)",
        "resize pod shop/web-b container web: cpu limit 1, request 500m -> cpu limit 250m, request 250m (p99 under its bound)",
    ]  # fmt: skip
    assert api.patches == []  # a plan sends nothing
    assert results(apply(cluster, changes)) == ["changed"] * 3
    assert api.get("deployments", "web")["spec"]["replicas"] == 3
    assert cpu_of(api.get("deployments", "web"), "web") == ("1", "500m")
    assert cpu_of(api.get("pods", "web-b"), "web") == ("250m", "250m")
    assert planned(cluster, app, wanted) == []  # reached
    assert results(apply(cluster, changes)) == ["reached"] * 3  # the same plan again


def test_without_resize_the_deployment_rolls_out(api, cluster):
    api.can_resize = False
    api.put(fake_api.deployment("web", replicas=1, cpu="1", container="nginx", more=["sidecar"]))
    app = application("web")
    places = Places("shop", {"web": Place(container="nginx")})
    changes = planned(cluster, app, allocation([1.5], [2], [1.0]), places)
    assert lines(changes) == [
        "scale deployment shop/web: 1 replica -> 2 replicas",
        "roll out deployment shop/web container nginx: cpu limit 1, request none -> cpu limit 1500m, request 1",
    ]  # fmt: skip
    # The second change was planned for the version before the first.
    assert results(apply(cluster, changes)) == ["changed"] * 2
    assert [method for method, _ in api.seen].count("PATCH") == 2
    after = api.get("deployments", "web")
    assert cpu_of(after, "nginx") == ("1500m", "1")
    assert (
        after["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
        == "64Mi"
    )
    assert len(after["spec"]["template"]["spec"]["containers"]) == 2


def test_a_limit_is_taken_away_by_a_rollout_alone(api, cluster):
    api.put(fake_api.deployment("web", cpu="1", request="1"))
    api.put(fake_api.pod("web-a", "web", cpu="1", request="1"))
    changes = planned(cluster, application("web"), allocation([INF], [-1]))
    assert [one.kind for one in changes] == ["rollout"]
    assert results(apply(cluster, changes)) == ["changed"]
    assert cpu_of(api.get("deployments", "web"), "web") == (None, "1")


def test_what_is_to_stay_stays(api, cluster):
    api.put(fake_api.deployment("web", replicas=2, cpu="1500m"))
    api.put(fake_api.pod("web-a", "web", cpu="1.5"))
    app = application("web")
    assert planned(cluster, app, allocation([NAN], [-1])) == []
    assert planned(cluster, app, allocation([1.5], [2])) == []  # 1500m is 1.5
    assert planned(cluster, app, allocation([1.50004], [2])) == []  # there is no finer step


def test_the_class_of_service_is_kept(api, cluster):
    """Guaranteed pods have limit = request; no resize may change that."""
    api.put(fake_api.deployment("web"))
    api.put(fake_api.pod("web-a", "web", cpu="1", request="1"))
    (change,) = planned(cluster, application("web"), allocation([2.0], [-1]))
    assert str(change.cpu) == "cpu limit 2, request 2"


def test_services_that_are_not_on_the_cluster_are_named_and_left_out(api, cluster):
    api.put(fake_api.deployment("web"))
    api.put(fake_api.deployment("a", labels={"app": "cart"}))
    api.put(fake_api.deployment("b", labels={"app": "cart"}))
    api.put(fake_api.deployment("db", container="x", more=["y"]))
    app = application("web", "cart", "db", "mail")
    state = read_state(cluster, app, SHOP)
    assert state.notes() == [
        "cart: 2 Deployments have the label app=cart",
        "db: Deployment db has no container 'db'",
        "mail: no Deployment in namespace shop",
    ]
    wanted = allocation([1.0] * 4, [3] * 4)
    assert {one.service for one in plan(app, wanted, state)} == {"web"}
    named = Places("shop", {"cart": Place("b"), "db": Place(container="y")})
    assert read_state(cluster, app, named).absent == {"mail": "no Deployment in namespace shop"}


def test_pods_are_found_by_any_selector(api, cluster):
    one = fake_api.deployment("web")
    one["spec"]["selector"] = {"matchExpressions": [
        {"key": "pod-of", "operator": "In", "values": ["web"]}, {"key": "old", "operator": "DoesNotExist"},
        {"key": "pod-of", "operator": "Exists"}, {"key": "tier", "operator": "NotIn", "values": ["x"]},
    ]}  # fmt: skip
    api.put(one)
    api.put(fake_api.pod("web-a", "web"))
    api.put(fake_api.pod("web-b", "web", labels={"pod-of": "web", "old": "1"}))
    api.put(fake_api.pod("web-c", "web", labels={"pod-of": "web", "tier": "x"}))
    pods = read_state(cluster, application("web"), SHOP).services["web"].pods
    assert [one.metadata.name for one in pods] == ["web-a"]


def test_a_resize_that_the_node_cannot_make_is_shown(api, cluster):
    api.put(fake_api.deployment("web"))
    waiting = fake_api.pod("web-a", "web")
    waiting["status"]["conditions"] = [
        {
            "type": "PodResizePending",
            "status": "True",
            "reason": "Infeasible",
            "message": "Node has\n2 cores",
        }
    ]
    api.put(waiting)
    notes = read_state(cluster, application("web"), SHOP).notes()
    assert notes == ["web: pod web-a is not resized: Infeasible Node has 2 cores"]


def test_a_conflict_is_planned_anew(api, cluster):
    api.put(fake_api.deployment("web", replicas=2))
    changes = planned(cluster, application("web"), allocation([NAN], [4]))
    touched = []

    def someone_else(method, path):
        if method == "PATCH" and len(touched) < 2:
            touched.append(path)
            api.get("deployments", "web")["spec"]["replicas"] = 3
            api.touch(api.get("deployments", "web"))

    api.before = someone_else
    (outcome,) = apply(cluster, changes, sleep=pytest.fail)  # a conflict needs no pause
    assert outcome.describe() == "changed: scale deployment shop/web: 3 replicas -> 4 replicas"
    assert api.get("deployments", "web")["spec"]["replicas"] == 4


def test_a_conflict_that_does_not_end(api, cluster):
    api.put(fake_api.deployment("web", replicas=2))
    changes = planned(cluster, application("web"), allocation([NAN], [4]))
    api.before = lambda method, path: (
        api.touch(api.get("deployments", "web")) if method == "PATCH" else None
    )
    (outcome,) = apply(cluster, changes, sleep=no_sleep)
    assert outcome.result == "refused"
    assert "409 the object has been modified (5 attempts)" in outcome.detail


def test_a_conflict_after_which_nothing_is_left_to_do(api, cluster):
    api.put(fake_api.deployment("web", replicas=2))
    changes = planned(cluster, application("web"), allocation([NAN], [4]))
    api.get("deployments", "web")["spec"]["replicas"] = 4
    api.touch(api.get("deployments", "web"))
    assert results(apply(cluster, changes)) == ["reached"]


def test_deleted_ones_are_reported_and_skipped(api, cluster):
    for name in ("web", "db"):
        api.put(fake_api.deployment(name))
    api.put(fake_api.pod("web-a", "web", cpu="1"))
    changes = planned(cluster, application("web", "db"), allocation([2.0, NAN], [2, 2]))
    api.delete("deployments", "web")
    api.delete("pods", "web-a")
    outcomes = apply(cluster, changes)
    assert results(outcomes) == ["gone", "gone", "changed"]
    assert "not found" in outcomes[0].detail


def test_one_deleted_during_a_conflict(api, cluster):
    api.put(fake_api.deployment("web"))
    changes = planned(cluster, application("web"), allocation([NAN], [2]))
    api.touch(api.get("deployments", "web"))
    api.before = lambda method, path: api.objects.clear() if method == "GET" else None
    assert results(apply(cluster, changes)) == ["gone"]


def test_a_container_that_went_away(api, cluster):
    api.can_resize = False
    api.put(fake_api.deployment("web"))
    changes = planned(cluster, application("web"), allocation([2.0], [-1]))
    api.put(fake_api.deployment("web", container="other"))
    (outcome,) = apply(cluster, changes)
    assert outcome.result == "refused"
    assert "has no container 'web' any more" in outcome.detail


@pytest.mark.parametrize("how", ["drop", "lose"])
def test_a_connection_that_breaks(api, cluster, how):
    """Whether the change was made before it broke or not: it is made once, and known in the end."""
    api.put(fake_api.deployment("web", replicas=2))
    changes = planned(cluster, application("web"), allocation([NAN], [4]))
    broken, pauses = [], []

    def instead(method, path):
        if method == "PATCH" and len(broken) < 2:
            broken.append(path)
            return how
        return None

    api.instead = instead
    (outcome,) = apply(cluster, changes, sleep=pauses.append)
    assert outcome.result == ("changed" if how == "drop" else "reached")
    assert pauses == ([0.5, 1.0] if how == "drop" else [0.5])
    assert api.get("deployments", "web")["spec"]["replicas"] == 4


def test_a_cluster_that_stays_away(api, cluster):
    for name in ("web", "db"):
        api.put(fake_api.deployment(name))
    changes = planned(cluster, application("web", "db"), allocation([NAN] * 2, [2] * 2))
    api.instead = lambda method, path: "drop"
    pauses = []
    first, second = apply(cluster, changes, sleep=pauses.append)
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert first.result == second.result == "failed"
    assert "(5 attempts)" in first.detail
    assert second.detail.startswith("not tried, after: ")
    assert first.is_error
    assert TOKEN not in first.describe()


@pytest.mark.parametrize(
    ("code", "result", "tries"),
    [(403, "refused", 1), (422, "refused", 1), (429, "refused", 5), (503, "failed", 5)],
)
def test_refusals(api, cluster, code, result, tries):
    api.put(fake_api.deployment("web"))
    changes = planned(cluster, application("web"), allocation([NAN], [2]))
    api.instead = lambda method, path: (code, {"message": "no"}) if method == "PATCH" else None
    (outcome,) = apply(cluster, changes, sleep=no_sleep)
    assert (outcome.result, [method for method, _ in api.seen].count("PATCH")) == (result, tries)
    assert f"refused: {code} no" in outcome.detail


def test_a_lost_lease_stops_before_the_next_patch(api, cluster):
    for name in ("web", "db"):
        api.put(fake_api.deployment(name))
    changes = planned(cluster, application("web", "db"), allocation([NAN] * 2, [2] * 2))
    left = [True]
    outcomes = apply(cluster, changes, may_act=lambda: left.pop() if left else False)
    assert results(outcomes) == ["changed", "stopped"]
    assert len(api.patches) == 1


def test_a_state_that_cannot_be_read(api, cluster):
    api.instead = lambda method, path: (403, {"message": "may not list"})
    with pytest.raises(ActuationError, match="403 may not list"):
        read_state(cluster, application("web"), SHOP)
    odd = fake_api.deployment("web", cpu="1 core")
    api.instead = lambda method, path: None
    api.objects["deployments", "shop", "web"] = odd
    api.can_resize = False
    with pytest.raises(ActuationError, match="container web: '1 core' is no quantity"):
        planned(cluster, application("web"), allocation([1.0], [-1]))


def test_allocations_that_make_no_sense(api, cluster):
    api.put(fake_api.deployment("web"))
    api.put(fake_api.pod("web-a", "web"))
    with pytest.raises(InputError, match="not for the 1 services of shop"):
        planned(cluster, application("web"), allocation([1, 1], [1, 1]))
    with pytest.raises(InputError, match="web: -1 is no number of cores"):
        planned(cluster, application("web"), allocation([-1.0], [-1]))
    with pytest.raises(InputError, match="0 is no number of cores"):
        planned(cluster, application("web"), allocation([0.0], [-1]))


def test_places(tmp_path):
    file = tmp_path / "deployments.yaml"
    file.write_text("namespace: shop\nservices:\n  web: {deployment: web-v2, container: nginx}\n")
    assert read_places(file) == Places("shop", {"web": Place("web-v2", "nginx")})
    with pytest.raises(InputError, match="'Shop!' is no name in Kubernetes"):
        parse_places("namespace: Shop!")
    with pytest.raises(
        InputError, match=r"x line 2, \$\.services.*: Object contains unknown field `pod`"
    ):
        parse_places("services:\n  web: {pod: a}", where="x")


CORES = st.one_of(st.none(), st.integers(1, 64_000).map(lambda m: f"{m}m"))


@given(CORES, CORES, st.integers(0, 20), st.sampled_from([NAN, INF, 0.1, 0.25, 1.0, 7.5]),
       st.sampled_from([NAN, 0.1, 2.0]), st.sampled_from([-1, 0, 1, 5]), st.booleans())  # fmt: skip
def test_prop_a_plan_leads_to_its_end(limit, request, replicas, cores, weight, count, can_resize):
    """What the changes say, applied, leaves nothing to change; and no request is over its limit."""
    app = application("web")
    deployment = msgspec.convert(
        fake_api.deployment("web", replicas=replicas, cpu=limit, request=request), Deployment
    )
    pod = msgspec.convert(fake_api.pod("web-a", "web", cpu=limit, request=request), Pod)
    wanted = allocation([cores], [count], [weight])
    state = ClusterState({"web": Managed(deployment, "web", (pod,))}, {}, can_resize)
    for change in plan(app, wanted, state):
        body = msgspec.json.decode(change.body())
        target = pod if change.kind == "resize" else deployment
        merged = msgspec.to_builtins(target)
        fake_api.strategic_merge(merged, body)
        if change.kind == "resize":
            pod = msgspec.convert(merged, Pod)
        else:
            deployment = msgspec.convert(merged, Deployment)
        if change.kind != "scale" and change.cpu.limit is not None and not math.isnan(cores):
            assert change.cpu.request is None or change.cpu.request <= change.cpu.limit
    after = ClusterState({"web": Managed(deployment, "web", (pod,))}, {}, can_resize)
    assert plan(app, wanted, after) == []
