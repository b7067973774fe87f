"""The loop of a controller: what it does, what it shows, and when it leaves everything alone."""

from __future__ import annotations

import contextlib
import math
import re
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from gnomon.act.kubernetes.controller import Controller, on_cluster
from gnomon.act.kubernetes.health import metric_names, serving, to_metrics
from gnomon.act.kubernetes.lease import Lease
from gnomon.act.kubernetes.places import Places
from gnomon.act.metric_profile import read_profile
from gnomon.act.prometheus import Observation
from gnomon.decide.services.guard import Decision
from gnomon.decide.services.state import PERCENTILES, Allocation, Window
from gnomon.errors import ActuationError, InputError
from gnomon.graph.application import Application, Call, RequestClass, Service
from tests.act.kubernetes import fake_api
from tests.act.test_prometheus import Told
from tests.waiting import until

APP = Application("shop", {"web": Service()}, {"get": RequestClass(Call("web"))})


def window(usage=0.4):
    one, nan = np.array([usage]), np.full(1, math.nan)
    return Window(
        now_s=0.0, duration_s=30.0, cpu_limit=np.array([1.0]), replicas=np.array([2]), usage=one,
        usage_samples=one[None], throttled=nan, throttled_samples=nan[None], queue=nan, rate=nan,
        service_ms=np.full((len(PERCENTILES), 1), math.nan), class_rate=nan,
        class_ms=np.full((len(PERCENTILES), 1), math.nan), class_errors=nan, class_violations=nan,
    )  # fmt: skip


def decide(seen, limit=0.5, replicas=3, verdict="decided"):
    wanted = Allocation(np.array([limit]), np.array([replicas]), reason="less is enough")
    return Decision(seen, wanted, verdict, wanted.reason, 0.75, 1)


class Alive(Told):
    """Answers with the time that it is asked for."""

    def query(self, promql, at_s, *, timeout_s):
        self.at_s = at_s
        return super().query(promql, at_s, timeout_s=timeout_s)


@pytest.fixture
def log():
    return []


@pytest.fixture
def shop(api, cluster, log):
    api.put(fake_api.deployment("web", replicas=2, cpu="1"))
    api.put(fake_api.pod("web-a", "web", cpu="1"))
    client = Alive({"container_cpu_usage_seconds_total": [({"deployment": "web"}, "0.4")]})

    def build(**more):
        return on_cluster(
            cluster, APP, decide, client, read_profile("istio"), Places("shop"), log=log.append,
            interval_s=0.05, **more,
        )  # fmt: skip

    build.client = client
    return build


def test_without_apply_nothing_is_changed(api, shop, log):
    controller = shop()
    found = controller.step()
    assert [one.kind for one in found.changes] == ["scale", "resize"]
    assert found.outcomes == ()
    assert api.patches == []
    assert log == [
        "shop: scale deployment shop/web: 2 replicas -> 3 replicas (less is enough)",
        "shop: resize pod shop/web-a container web: cpu limit 1, request none -> cpu limit 500m, request none (less is enough)",
    ]  # fmt: skip
    assert (controller.decisions, controller.allocated_cores, controller.trust) == (
        1,
        {"web": 1.5},
        0.75,
    )


def test_with_apply_the_cluster_follows(api, shop):
    controller = shop(do_apply=True)
    assert [one.result for one in controller.step().outcomes] == ["changed", "changed"]
    assert api.get("deployments", "web")["spec"]["replicas"] == 3
    assert controller.step().changes == ()  # reached
    assert controller.outcomes == {"changed": 2}


def test_without_measurements_it_holds(api, shop, log):
    controller = shop(do_apply=True)
    shop.client.answers = {}
    assert not controller.is_ready
    assert controller.step().reason == "no measurements"
    controller.step()
    assert controller.holds == {"no measurements": 2}
    assert len(log) == 1  # told once, not in every round
    assert not controller.is_ready
    assert api.seen == []


def test_without_a_cluster_it_holds(api, shop):
    controller = shop(do_apply=True)
    api.instead = lambda method, path: (503, {})
    assert controller.step().reason == "no answer of the cluster"
    assert not controller.is_ready
    api.instead = lambda method, path: None
    assert controller.step().verdict == "decided"
    assert controller.is_ready


def test_refused_changes_are_counted_and_shown(api, shop, log):
    controller = shop(do_apply=True)
    api.instead = lambda method, path: (
        (403, {"message": "read only"}) if method == "PATCH" else None
    )
    assert [one.result for one in controller.step().outcomes] == ["refused", "refused"]
    assert 'gnomon_controller_apply_errors_total{manager="shop"} 2\n' in to_metrics([controller])
    assert any("403 read only" in line for line in log)


def test_a_guard_that_holds_is_no_decision(shop):
    controller = shop()
    controller._decide = lambda seen: decide(seen, math.nan, -1, "held")
    controller.step()
    assert (controller.decisions, controller.holds) == (0, {"guard": 1})
    assert math.isnan(controller.decision_age_s)


@contextlib.contextmanager
def running(controller):
    """Rounds in a thread of their own."""
    stop = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_only_the_leader_acts_and_another_takes_over(api, cluster, shop):
    leases = [Lease(cluster, "shop", "gnomon-shop", who, duration_s=15) for who in "ab"]
    first, second = (shop(do_apply=True, lease=lease) for lease in leases)
    with running(first):
        until(lambda: first.decisions > 0, "a decision")
        with second.leading():
            assert second.step().reason == "another controller leads"
            assert second.is_ready
    assert api.get("leases", "gnomon-shop")["spec"]["holderIdentity"] == ""
    with second.leading():
        assert second.step().verdict == "decided"


def test_a_lost_lease_stops_it(api, cluster, shop, log):
    lease = Lease(cluster, "shop", "gnomon-shop", "a", duration_s=15)
    controller = shop(do_apply=True, lease=lease)
    with running(controller):
        until(lambda: controller.decisions > 0, "a decision")
        with api.lock:
            stolen = api.get("leases", "gnomon-shop")
            stolen["spec"]["holderIdentity"] = "thief"
            api.touch(stolen)
        until(lambda: controller.holds["another controller leads"], "standby", 60)
        patches = len(api.patches)
        until(lambda: controller.holds["another controller leads"] > 3, "more rounds")
        assert len(api.patches) == patches
        assert any("does not lead" in line for line in log)
    assert api.get("leases", "gnomon-shop")["spec"]["holderIdentity"] == "thief"


def controller_at(clock, **more):
    return Controller(
        "shop", APP, observe=lambda: Observation(window()), decide=decide, plan=lambda decision: [],
        log=lambda text: None, clock=clock, interval_s=10.0, **more,
    )  # fmt: skip


def test_a_manager_that_breaks_ends_the_process_and_not_the_services():
    def broken(seen):
        raise ZeroDivisionError

    controller = controller_at(lambda: 0.0)
    controller._decide = broken
    with pytest.raises(ZeroDivisionError):
        controller.run(threading.Event())


def fetch(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_readiness_and_metrics_on_one_port():
    now = [0.0]
    controller = controller_at(lambda: now[0])
    with serving(lambda: [controller], port=0) as port:
        assert fetch(port, "/readyz") == (503, "not shop\n")  # no round yet
        assert fetch(port, "/healthz") == (200, "ok\n")
        controller.step()
        assert fetch(port, "/readyz") == (200, "ok\n")
        now[0] += 300
        assert fetch(port, "/healthz") == (503, "not shop\n")  # no round for long
        code, text = fetch(port, "/metrics")
        assert code == 200
        assert 'gnomon_controller_last_decision_age_seconds{manager="shop"} 300\n' in text
        assert 'gnomon_controller_allocated_cores{manager="shop",service="web"} 1.5\n' in text
        assert {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")} == set(
            metric_names()
        )
        assert all(
            re.fullmatch(r"\w+\{[^}]*\} (NaN|[0-9.e+-]+)", line)
            for line in text.splitlines()
            if line[0] != "#"
        )
        assert fetch(port, "/")[0] == 404
        with (
            pytest.raises(InputError, match="Address already in use"),
            serving(list, port=port),
        ):
            pass


def test_labels_are_escaped():
    controller = controller_at(lambda: 0.0)
    controller.name = 'a"b\\c\nd'
    assert 'trust{manager="a\\"b\\\\c\\nd"} NaN\n' in to_metrics([controller])


def test_the_lease_that_cannot_be_renewed_is_told(api, cluster, shop, log):
    api.instead = lambda method, path: (503, {"message": "away"}) if "leases" in path else None
    controller = shop(lease=Lease(cluster, "shop", "gnomon-shop", "a"))
    with controller.leading():
        assert controller.step().reason == "another controller leads"
    assert "the lease was not renewed" in log[0]
    assert "the lease expires by itself" in log[-1]


def test_a_plan_for_another_application_is_our_mistake(shop):
    controller = shop()
    controller._plan = lambda decision: (_ for _ in ()).throw(ActuationError("gone"))
    assert controller.step().verdict == "held"
