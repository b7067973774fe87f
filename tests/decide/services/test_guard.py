"""Guard rails: bounds, steps, holds, fall back to cap, trust; and the decision log."""

from __future__ import annotations

import math
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.decide.services import (
    BARE,
    PERCENTILES,
    Allocation,
    DecisionLog,
    Guard,
    Rails,
    ServicePolicy,
    SimTarget,
    Window,
    hold,
    manage,
    read_log,
    replay_log,
    service_policies,
)
from gnomon.decide.services.policies.static import Static
from gnomon.decide.services.policy import is_violated
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.sim.mesh import poisson_requests

APP = Application(
    "two", {"web": Service(cpu_limit=1.0, cpu_min=0.1, cpu_max=4.0, replicas_max=5), "db": Service(cpu_limit=2.0)},
    {"get": RequestClass(Call("web", cpu_ms=2.0, then=((Call("db", cpu_ms=1.0),),)), sla=Sla(100.0))},
)  # fmt: skip


def window(now_s=1.0, p99_ms=10.0, **changes):
    fields = dict(
        now_s=now_s, duration_s=1.0, cpu_limit=np.array([1.0, 2.0]), replicas=np.array([1, 1]),
        usage=np.array([0.5, 0.2]), usage_samples=np.full((10, 2), 0.3), throttled=np.zeros(2),
        throttled_samples=np.zeros((10, 2)), queue=np.zeros(2), rate=np.full(2, 100.0),
        service_ms=np.full((len(PERCENTILES), 2), 2.0), class_rate=np.array([100.0]),
        class_ms=np.full((len(PERCENTILES), 1), p99_ms), class_errors=np.zeros(1), class_violations=np.array([0.5 if p99_ms > 100 else 0.0]),
    )  # fmt: skip
    return Window(**(fields | changes))


class Asks(ServicePolicy, frozen=True):
    """Always the same."""

    limits: tuple[float, float] = (0.5, 1.0)
    replicas: tuple[int, int] = (-1, -1)

    def decide(self, state, rng):
        return Allocation(np.array(self.limits), np.array(self.replicas), reason="as always")


def guard(policy=Asks(), rails=Rails()):  # noqa: B008
    return Guard(APP, policy, np.random.default_rng(0), rails)


def test_steps_are_limited_both_ways():
    up = guard(Asks(limits=(4.0, 9.0))).decide(window())
    assert up.allocation.cpu_limit.tolist() == [4.0, 8.0]
    down = guard(Asks(limits=(0.1, 0.1)), Rails(most_down=0.5)).decide(window())
    assert down.allocation.cpu_limit.tolist() == [0.5, 1.0]
    many = guard(Asks(replicas=(100, 0))).decide(window())
    assert many.allocation.replicas.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"usage": np.array([math.nan, 0.2])}, "no CPU figures of web"),
        ({"cpu_limit": np.array([1.0, math.nan])}, "no CPU figures of db"),
        ({"class_ms": np.full((len(PERCENTILES), 1), math.nan)}, "no latency"),
        ({"foreign_cores": 2.0}, "other processes used 2.00 cores"),
    ],
)
def test_bad_windows_change_nothing(bad, why):
    careful = guard(rails=Rails(foreign_cores=1.0))
    careful.decide(window(1.0))
    held = careful.decide(window(2.0, **bad))
    assert held.verdict == "held"
    assert why in held.reason
    assert held.changed == 0


def test_a_first_bad_window_changes_nothing():
    decision = guard().decide(window(usage=np.full(2, math.nan)))
    assert decision.verdict == "held"
    assert decision.changed == 0


def test_an_outage_is_a_violation():
    silent = {
        "class_ms": np.full((len(PERCENTILES), 1), math.nan),
        "class_errors": np.array([10.0]),
    }
    careful = guard(rails=Rails(patience=3))
    assert [careful.decide(window(float(t), **silent)).verdict for t in (1, 2, 3)][-1] == "capped"
    late = guard(rails=Rails(patience=1))
    assert late.decide(window(1.0, class_violations=np.array([0.5]))).verdict == "capped"


def test_a_bad_window_does_not_undo_a_cap():
    steady = guard(rails=Rails(patience=1, cap_s=5.0))
    steady.decide(window(1.0, p99_ms=150.0))
    held = steady.decide(window(2.0, usage=np.array([math.nan, 0.2])))
    assert held.verdict == "held"
    assert held.allocation.cpu_limit.tolist() == [4.0, 8.0]


def test_after_a_cap_what_the_manager_leaves_alone_is_as_before():
    steady = guard(Static(), Rails(patience=1, cap_s=1.0))
    steady.decide(window(1.0, p99_ms=150.0))
    high = {"cpu_limit": np.array([4.0, 8.0]), "replicas": np.array([10, 10])}
    limits = []
    for t in range(4, 12):
        answer = steady.decide(window(float(t), **high)).allocation
        high["cpu_limit"] = np.where(
            np.isnan(answer.cpu_limit), high["cpu_limit"], answer.cpu_limit
        )
        high["replicas"] = np.where(answer.replicas < 0, high["replicas"], answer.replicas)
        limits.append(high["cpu_limit"].tolist())
    assert limits[0] == [2.0, 4.0]  # half at most in one step
    assert limits[-1] == [1.0, 2.0]
    assert high["replicas"].tolist() == [1, 1]


@pytest.mark.parametrize(("late", "is_so"), [(0.15, False), (0.3, True), (math.nan, True)])
def test_late_requests_decide_at_percentiles_that_are_not_measured(late, is_so):
    get = RequestClass(Call("web", cpu_ms=2.0), sla=Sla(100.0, percentile=75.0))
    app = msgspec.structs.replace(APP, classes={"get": get})
    seen = window(class_ms=np.array([[50.0], [150], [150], [150], [150], [150]]),
                  class_violations=np.array([late]))  # fmt: skip
    assert is_violated(app, seen) == is_so


def test_long_violations_go_to_cap_and_cost_trust():
    steady = guard(rails=Rails(patience=3, cap_s=5.0))
    verdicts = [steady.decide(window(float(t), p99_ms=150.0)).verdict for t in range(1, 6)]
    assert verdicts == ["decided", "decided", "capped", "capped", "capped"]
    assert steady.trust == 0.5
    capped = steady.decide(window(6.0))
    assert capped.allocation.cpu_limit.tolist() == [4.0, 8.0]
    assert steady.decide(window(30.0)).verdict == "decided"


def test_without_trust_only_growth_is_allowed():
    doubted = guard(Asks(limits=(0.5, 3.0)), Rails(least_trust=0.9, patience=1, cap_s=0.0))
    doubted.decide(window(1.0, p99_ms=150.0))
    decision = doubted.decide(window(4.0))
    assert decision.allocation.cpu_limit[1] == 3.0
    assert math.isnan(decision.allocation.cpu_limit[0])
    for t in range(5, 200):
        doubted.decide(window(float(t)))
    assert doubted.trust > 0.99


def test_a_failing_manager_holds():
    class Broken(ServicePolicy, frozen=True):
        """Divides by zero."""

        def decide(self, state, rng):
            return 1 / 0

    decision = guard(Broken()).decide(window())
    assert decision.verdict == "held"
    assert "ZeroDivisionError" in decision.reason
    assert decision.trust == 0.5


floats = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=200, deadline=None)
@given(
    limits=st.tuples(floats, floats),
    replicas=st.tuples(st.integers(-5, 10**9), st.integers(-5, 10**9)),
)
def test_prop_whatever_is_asked_stays_within_bounds(limits, replicas):
    for rails in (Rails(), BARE):
        decision = guard(Asks(limits, replicas), rails).decide(window())
        for asked, service in zip(decision.allocation.cpu_limit, APP.services.values()):
            assert math.isnan(asked) or service.cpu_min <= asked <= service.cpu_max
        assert np.all((decision.allocation.replicas == -1) | (decision.allocation.replicas >= 1))
        assert np.all(decision.allocation.replicas <= [5, 10])


def run_logged(path, manager="autothrottle", rails=Rails()):  # noqa: B008
    target = SimTarget(APP, poisson_requests(APP, [100.0] * 80, seed=4), seed=4)
    with DecisionLog(path, APP, manager, seed=9, rails=rails) as log:
        return manage(target, manager, duration_s=80, seed=9, rails=rails, log=log)


@pytest.mark.parametrize("manager", ["autothrottle", "hpa", "autoscale-opt", "vpa?every_s=10"])
def test_a_log_is_replayed_to_the_same_decisions(tmp_path, manager):
    path = tmp_path / "log.jsonl"
    run = run_logged(path, manager)
    rows = replay_log(path, APP, service_policies.create(manager))
    assert len(rows) == len(run.decisions) == 80
    for (row, again), first in zip(rows, run.decisions):
        assert row.verdict == again.verdict
        assert row.reason == again.reason
        np.testing.assert_array_equal(again.allocation.cpu_limit, first.allocation.cpu_limit)
        np.testing.assert_array_equal(again.allocation.replicas, first.allocation.replicas)


def test_a_log_survives_a_crash_and_a_restart(tmp_path):
    path = tmp_path / "log.jsonl"
    run_logged(path)
    path.write_bytes(path.read_bytes()[:-30])
    assert len(read_log(path).decisions) == 79
    run_logged(path)  # begins a new line
    again = read_log(path)
    assert (len(again.decisions), again.torn) == (159, 1)
    assert len(replay_log(path, APP, service_policies.create("autothrottle"))) == 159


def test_a_head_behind_a_torn_line_is_found(tmp_path):
    path = tmp_path / "log.jsonl"
    run_logged(path, "hpa")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30] + whole.replace(b'"hpa"', b'"vpa"', 1))
    found = read_log(path)
    assert (len(found.decisions), found.torn) == (159, 1)
    assert [head.manager for head, _ in found][78:80] == ["hpa", "vpa"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r'"window":\{.*\},"cpu_limit"', b'"window":{},"cpu_limit"', "lacks"),
        (r'"usage":\[[^,]*,', b'"usage":[', "window.usage"),
        (r'"now_s":[^,]*,', b'"now_s":null,', "line 2"),
        (r'"queue":\[[^]]*\]', b'"queue":["a","b"]', "line 2"),
        (r'"class_ms":\[\[[^]]*\],', b'"class_ms":[', "window.class_ms"),
    ],
)
def test_a_damaged_row_gets_a_line(tmp_path, old, new, says):
    path = tmp_path / "log.jsonl"
    run_logged(path)
    text, count = re.subn(old.encode(), new, path.read_bytes(), count=1)
    assert count == 1
    path.write_bytes(text)
    with pytest.raises(InputError, match=says):
        read_log(path)


@pytest.mark.parametrize("content", [b"{}\n", b"rubbish\n", b'{"window": 3}\n'])
def test_what_is_no_log_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError):
        list(read_log(tmp_path / "x"))


def test_a_dry_run_changes_nothing():
    target = SimTarget(APP, poisson_requests(APP, [100.0] * 10, seed=4), seed=4)
    run = manage(target, Asks(), duration_s=10, apply=False)
    assert {tuple(d.window.cpu_limit) for d in run.decisions} == {(1.0, 2.0)}
    assert all(d.allocation.cpu_limit[0] == 0.5 for d in run.decisions)


def test_hold_is_empty():
    assert hold(window()).replicas.tolist() == [-1, -1]
    assert msgspec.structs.asdict(Rails())["patience"] == 5
