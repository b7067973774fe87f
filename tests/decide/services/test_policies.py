"""Baselines decide as their papers and documents say."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from tests.decide.services.test_guard import APP, window

from gnomon.decide.services import ServiceState, SimTarget, manage, service_policies
from gnomon.decide.services.policies.autothrottle import TARGETS, _best_pair, _heavy, _Trial
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla
from gnomon.sim.mesh import poisson_requests

RNG = np.random.default_rng(0)


def decide(spec, seen, memory=None, app=APP):
    return service_policies.create(spec).decide(ServiceState(app, seen, memory), RNG)


def test_static_holds_or_goes_to_cap():
    assert np.isnan(decide("static", window()).cpu_limit).all()
    assert decide("static?cap=true", window()).cpu_limit.tolist() == [4.0, 8.0]


@pytest.mark.parametrize(
    ("spec", "used", "factor"),
    [
        ("autoscale-opt", 0.25, 0.7), ("autoscale-opt", 0.35, 0.9), ("autoscale-opt", 0.5, 1.0),
        ("autoscale-opt", 0.65, 1.1), ("autoscale-opt", 0.9, 1.3),
        ("autoscale-cons", 0.05, 0.9), ("autoscale-cons", 0.2, 1.0), ("autoscale-cons", 0.4, 1.1),
        ("autoscale-cons", 0.6, 1.3),
    ],
)  # fmt: skip
def test_step_rules_of_sinan(spec, used, factor):
    asked = decide(spec, window(usage=np.array([used, 0.5])))
    assert asked.cpu_limit[0] == pytest.approx(factor)


def rounds(spec, usages, replicas=2, interval_s=15.0, app=APP):
    """Decisions of a manager that is shown one usage of `web` after the other."""
    policy, memory, asked = service_policies.create(spec), None, []
    for i, usage in enumerate(usages, 1):
        seen = window(
            interval_s * i, usage=np.array([usage, 0.1]), duration_s=interval_s,
            replicas=np.array([replicas, 1]),
        )  # fmt: skip
        answer = policy.decide(ServiceState(app, seen, memory), RNG)
        memory = answer.memory
        asked.append(int(answer.replicas[0]))
        replicas = asked[-1] if asked[-1] >= 0 else replicas
    return asked


def test_hpa_follows_the_ratio_of_utilisation():
    # 2 replicas of 1 core, target 60 %: ceil(2 x 0.9 / 0.6) = 3, and nothing within 10 %.
    assert rounds("hpa", [1.8]) == [3]
    assert rounds("hpa", [1.26]) == [2]
    # At most twice as many or four more at once.
    assert rounds("hpa?target=0.1", [2.0], replicas=1) == [5]


def test_hpa_shrinks_only_after_its_window():
    asked = rounds("hpa", [2.0] + [0.3] * 30)
    assert asked[0] == 4
    assert asked[1:19] == [4] * 18
    assert asked[20] == 1


def test_vpa_takes_a_percentile_and_a_margin():
    policy, memory = service_policies.create("vpa?every_s=10"), None
    for t in range(1, 11):
        seen = window(float(t), usage=np.array([0.1 * t, 0.1]))
        asked = policy.decide(ServiceState(APP, seen, memory), RNG)
        memory = asked.memory
    assert asked.cpu_limit[0] == pytest.approx(1.15 * np.percentile(np.arange(1, 11) * 0.1, 90))


def test_powerchief_moves_cores_and_keeps_the_sum():
    seen = window(queue=np.array([9.0, 0.0]))
    asked = decide("powerchief", seen)
    assert asked.cpu_limit[0] > 1.0
    assert asked.cpu_limit.sum() == pytest.approx(3.0)
    assert "web" in asked.reason


def chain(limit):
    return Application(
        "chain", {"web": Service(cpu_limit=limit, workers=4)},
        {"get": RequestClass(Call("web", cpu_ms=3.0), sla=Sla(200.0))}, rate=100.0,
    )  # fmt: skip


@pytest.mark.parametrize("target", [0.0, 0.1, 0.25])
def test_captains_hold_their_throttle_ratio(target):
    app = chain(2.0)
    sim = SimTarget(app, poisson_requests(app, [100.0] * 400, seed=2), seed=2)
    run = manage(sim, f"autothrottle?target={target}", duration_s=400)
    late = run.decisions[100:]
    ratio = np.mean([d.window.throttled[0] for d in late])
    limit = np.mean([d.window.cpu_limit[0] for d in late])
    assert 0.3 <= limit < 1.0  # from 2 cores down to a little more than it uses
    assert ratio <= 3 * target + 0.08


def test_captains_grow_when_they_are_throttled():
    app = chain(0.2)
    sim = SimTarget(app, poisson_requests(app, [100.0] * 30, seed=2), seed=2)
    run = manage(sim, "autothrottle?target=0.1", duration_s=30)
    assert run.decisions[-1].window.cpu_limit[0] > 0.3


def test_the_tower_prefers_what_was_cheap_and_met_the_sla():
    trials = tuple(
        _Trial(100.0, first, second, 0.2 + 0.05 * (8 - first) if first < 5 else 2.5)
        for first in range(9)
        for second in range(9)
    )
    first, _ = _best_pair(trials, 100.0)
    assert 2 <= first <= 4  # the cheapest that holds, less what its neighbours' violations warn of
    assert TARGETS[first] > 0
    assert _best_pair((_Trial(100.0, 4, 4, 2.9),), 100.0) != (4, 4)


def test_services_are_parted_by_their_use():
    seen = window(usage=np.array([2.0, 0.1]))
    assert _heavy(seen).tolist() == [True, False]


def test_autothrottle_holds_without_throttling_figures():
    seen = window(throttled_samples=np.full((1, 2), math.nan))
    assert np.isnan(decide("autothrottle", seen).cpu_limit).all()


BASELINES = (
    "static", "hpa", "vpa", "autoscale-opt", "autoscale-cons", "autothrottle", "powerchief"
)  # fmt: skip
NUMBERS = [
    (name, parameter.name)
    for name in BASELINES
    for parameter in service_policies.describe(name).parameters
    if parameter.type is float
]


@pytest.mark.parametrize(("name", "parameter"), NUMBERS)
@pytest.mark.parametrize("value", ["nan", "-2", "inf", "-inf"])
def test_numbers_out_of_range_get_a_line(name, parameter, value):
    with pytest.raises(InputError, match=f"{name}: {parameter} is"):
        service_policies.create(f"{name}?{parameter}={value}")


@pytest.mark.parametrize(
    "spec",
    [
        "hpa?target=0", "hpa?target=1.5", "hpa?sync_s=0", "vpa?percentile=101", "vpa?every_s=0",
        "autothrottle?target=2", "autothrottle?target=-0.5", "powerchief?step=0", "powerchief?step=2",
        "hap",
    ],
)  # fmt: skip
def test_bad_parameters_get_a_line(spec):
    with pytest.raises(InputError):
        service_policies.create(spec)


def test_managers_work_without_any_limit():
    free = msgspec.structs.replace(APP, services={name: Service() for name in APP.services})
    for spec in BASELINES:
        sim = SimTarget(free, poisson_requests(free, [50.0] * 20, seed=1), seed=1)
        assert all("failed" not in d.reason for d in manage(sim, spec, duration_s=20).decisions)
