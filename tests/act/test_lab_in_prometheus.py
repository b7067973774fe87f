"""The process lab, scraped by a real Prometheus: a window agrees with what was sent."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from gnomon.act.kubernetes.controller import Controller
from gnomon.act.kubernetes.deployments import Change
from gnomon.act.kubernetes.health import serving
from gnomon.act.local.lab import Lab
from gnomon.act.local.telemetry import MetricsServer
from gnomon.act.metric_profile import read_profile
from gnomon.act.prometheus import observe_window
from gnomon.decide.services import Guard, Rails, service_policies
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.ingest.metrics.prometheus import Prometheus
from tests.act.kubernetes.test_manifests import LAB
from tests.act.real_prometheus import scraping
from tests.waiting import until

APP = Application(
    "pair", {"web": Service(cpu_limit=0.8), "store": Service()},
    {"get": RequestClass(Call("web", cpu_ms=1.0, then=((Call("store", cpu_ms=0.5),),)), sla=Sla(1e4))},
)  # fmt: skip
RATE = 50.0
WINDOW_S = 4.0


def test_a_window_of_the_lab(tmp_path):
    with Lab(APP) as lab, MetricsServer(lab) as server:
        cells = {name: lab.addresses(name) for name in APP.services}
        with scraping(tmp_path, f"127.0.0.1:{server.port}", **cells) as url:
            client = Prometheus(url, environ={})
            due_ns = (np.arange(0, 60, 1 / RATE) * 1e9).astype(np.int64)
            load = lab.load(due_ns, np.zeros(len(due_ns)))

            def look():
                return observe_window(
                    client,
                    APP,
                    read_profile("lab"),
                    time.time(),
                    duration_s=WINDOW_S,
                    timeout_s=60.0,
                )

            def is_full():
                seen = look()
                return (
                    not seen.missing
                    and abs(seen.window.class_rate[0] - RATE) < 0.1 * RATE
                    and seen
                )

            window = until(is_full, "a full window").window
            assert not load.is_done()  # else the rates would be of another load
            assert window.cpu_limit.tolist() == [0.8, math.inf]
            assert window.replicas.tolist() == [1, 1]
            assert window.rate == pytest.approx([RATE, RATE], rel=0.2)
            # A request takes 1.5 ms of CPU time, and the programs a little of their own.
            assert 0.04 < window.usage[0] < 0.4
            assert 0 <= window.throttled[0] <= 1
            assert window.throttled[1] == 0
            assert window.class_errors.tolist() == [0]
            assert window.class_violations.tolist() == [0]
            assert (np.diff(window.class_ms[:, 0]) >= 0).all()
            assert (window.class_ms[:, 0] >= window.service_ms[:, 0]).all()
            scraped = {one.metric for one in client.query('{__name__=~"gnomon_.*"}').series}
            assert scraped >= LAB
            load.close()


def test_a_manager_runs_on_what_prometheus_answers(tmp_path):
    """The lab and the controller are scraped; when the measurements go stale, the limits stay."""
    tight = Application("tight", {"web": Service(cpu_limit=0.15, cpu_max=2.0)},
                        {"get": RequestClass(Call("web", cpu_ms=2.0), sla=Sla(1e5))})  # fmt: skip
    guard = Guard(
        tight, service_policies.create("autoscale-cons"), np.random.default_rng(0), Rails()
    )
    with Lab(tight) as lab, MetricsServer(lab) as server:

        def plan(decision):
            asked = float(decision.allocation.cpu_limit[0])
            cores = None if math.isnan(asked) else asked
            return (
                []
                if cores is None
                else [Change("resize", "web", "lab", "web", "", reason=str(cores))]
            )

        def apply(changes):
            for change in changes:
                lab.set_limit(change.service, float(change.reason))
            return []

        controller = Controller(
            "lab", tight, decide=guard.decide, plan=plan, apply=apply,
            observe=lambda: observe_window(client, tight, read_profile("lab"), time.time(), duration_s=WINDOW_S,
                                           timeout_s=60.0),
        )  # fmt: skip
        with serving(lambda: (controller,), port=0) as port:
            targets = (f"127.0.0.1:{server.port}", f"127.0.0.1:{port}")
            with scraping(tmp_path, *targets, web=lab.addresses("web")) as url:
                client = Prometheus(url, environ={})
                due_ns = (np.arange(0, 120, 1 / RATE) * 1e9).astype(np.int64)
                load = lab.load(due_ns, np.zeros(len(due_ns)))
                until(lambda: controller.step().verdict == "decided" and lab.read().cpu_limit[0] > 0.15,
                      "a limit that grew")  # fmt: skip
                until(lambda: [one for one in client.query("gnomon_controller_decisions_total").series
                               if one.values[-1] >= 1], "the controller's own metrics")  # fmt: skip
                load.close()
                server.close()  # from now on nothing of the control groups is scraped
                until(lambda: controller.step().verdict == "held", "a hold on stale figures")
                before = lab.read().cpu_limit.tolist()
                for _ in range(3):
                    assert controller.step().verdict == "held"
                assert lab.read().cpu_limit.tolist() == before
