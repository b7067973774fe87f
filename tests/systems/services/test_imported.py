"""Applications from traces, played back beside the recording."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.decide.services import SimTarget, manage
from gnomon.graph.application import Application, Call, RequestClass, Service, Work
from gnomon.ingest.spans.infer import Inferred, infer_application
from gnomon.ingest.spans.read import read_spans
from gnomon.sim.mesh import MeshSim, poisson_requests
from gnomon.systems.services.import_result import to_result
from gnomon.systems.services.imported import assumptions, play_back, with_limits
from gnomon.units import SECOND_NS

APP = Application(
    "shop", {"web": Service(), "cart": Service(), "db": Service()},
    {"get": RequestClass(Call("web", wait_ms=Work(mean=2.0, cv=0.5), then=(
        (Call("cart", wait_ms=Work(mean=5.0, cv=0.8)), Call("db", wait_ms=1.0)),)), correlation=0.6)},
    rate=50.0,
)  # fmt: skip


def test_what_is_played_back_is_what_was_played():
    sim = MeshSim(APP, poisson_requests(APP, [50.0] * 200, seed=3), seed=3, keep_requests=True)
    sim.advance(300 * SECOND_NS)
    recorded = {"get": np.sort(sim.request_latency_ns / 1e6)}
    (one,) = play_back(Inferred(APP, (), recorded, {}, {}), seed=9)
    assert one.recorded == len(recorded["get"])
    assert np.abs(one.errors_pct).max() < 8
    result = to_result(APP, [one], ["a note"])
    assert result.figure("error_pct").number < 8
    assert result.table("classes")["p99_simulated_ms"][0] == pytest.approx(one.simulated_ms[2])


def inferred(recorded=100, rate=50.0, counts=(), **call):
    kind = {"get": RequestClass(Call("web", wait_ms=2.0, **call))}
    app = Application("shop", {"web": Service()}, kind, rate=rate)
    return Inferred(app, (), {"get": np.full(recorded, 2.0)}, dict(counts), {})


def test_what_is_assumed_is_said():
    assert assumptions(inferred()) == []
    (guess,) = assumptions(inferred(recorded=1, rate=1.0))
    assert "The rate of 1/s is a guess" in guess
    (failing,) = assumptions(inferred(error_share=1.0))
    assert "Every recorded request has an error" in failing
    below = Call("web", error_share=1.0, probability=0.8)
    (many,) = assumptions(inferred(then=((below,),)))
    assert "80% of the recorded requests have an error" in many
    (ids,) = assumptions(inferred(counts={"requests of rare classes left out": 900}))
    assert "900 of 1,000 requests were left out" in ids


def test_the_next_step_is_in_the_answer():
    (note,) = to_result(inferred().app, [], [], out="app.yaml").notes
    assert note.startswith("Next: ")
    for key in (
        "sla: {bound_ms",
        "cpu_limit: 1",
        "--cpu-share",
        "gnomon services compare app.yaml",
    ):
        assert key in note
    assert "-o app.yaml" in to_result(inferred().app, [], []).notes[0]


def test_limits_are_suggested_where_cpu_time_is_known():
    assert with_limits(inferred()) == (inferred().app, [])  # nothing is known
    assert with_limits(inferred(recorded=3, cpu_ms=2.0))[1] == []  # no rate

    def limited(**about):
        app, (note,) = with_limits(inferred(**about))
        assert "suggested, not recorded" in note
        return app.services["web"]

    assert limited(cpu_ms=4.0).cpu_limit == pytest.approx(0.4)  # twice 50/s of 4 ms
    assert limited(cpu_ms=0.1).cpu_limit == 0.1  # the least that there is
    # A call of 30 ms ends within one period of 100 ms, one of 3 s computes without a pause.
    assert limited(rate=0.1, cpu_ms=30.0).cpu_limit == pytest.approx(0.3)
    assert limited(rate=0.1, cpu_ms=3000.0).cpu_limit == pytest.approx(1.0)
    busy = limited(rate=10_000.0, cpu_ms=2.0)
    assert (busy.cpu_limit, busy.cpu_max) == (40.0, 80.0)  # managers may go up


def test_a_service_that_only_waits_has_no_limit_and_one_without_time_the_least():
    below = (Call("db", wait_ms=3.0), Call("cache"))
    kind = {"get": RequestClass(Call("web", cpu_ms=4.0, then=(below,)))}
    app = Application("shop", {name: Service() for name in ("web", "db", "cache")}, kind)
    limited, _ = with_limits(Inferred(app, (), {"get": np.full(100, 7.0)}, {}, {}))
    assert [one.cpu_limit for one in limited.services.values()] == [0.8, None, 0.1]


def test_correlation_widens_the_distribution():
    def spread(correlation):
        kind = APP.classes["get"]
        same = {"get": RequestClass(kind.call, correlation=correlation)}
        app = Application("shop", APP.services, same, rate=50.0)
        sim = MeshSim(app, poisson_requests(app, [50.0] * 200, seed=3), seed=3, keep_requests=True)
        sim.advance(300 * SECOND_NS)
        return sim.request_latency_ns.std(), sim.request_latency_ns.mean()

    alone, together = spread(0.0), spread(0.9)
    assert together[0] > 1.1 * alone[0]
    assert together[1] == pytest.approx(alone[1], rel=0.05)


def test_deathstarbench(public_data):
    """20 Jaeger traces of compose-post that nobody here recorded."""
    spans = read_spans(public_data / "services/deathstarbench/jaeger-traces-socialnetwork.json.gz")
    inferred = infer_application(spans, name="social")
    (one,) = play_back(inferred)
    assert one.recorded == 20
    assert abs(one.errors_pct[0]) < 20  # the median; 20 requests have no p99
    # The imported file can be managed like any other.
    target = SimTarget(inferred.app, poisson_requests(inferred.app, [20.0] * 5, seed=1), seed=1)
    assert len(manage(target, "hpa", duration_s=5).decisions) == 5
