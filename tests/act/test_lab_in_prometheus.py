"""The process lab, scraped by a real Prometheus: a window agrees with what was sent."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from gnomon.act.local.lab import Lab
from gnomon.act.local.telemetry import MetricsServer
from gnomon.act.metric_profile import read_profile
from gnomon.act.prometheus import observe_window
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
