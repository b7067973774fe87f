"""The carbon guard: less than the manager asks for, only while the grid is dirty and SLAs hold."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decide.services.test_guard import APP, Asks, window

from gnomon import checks
from gnomon.checks import SERVICES
from gnomon.decide.services import (
    PERCENTILES,
    Allocation,
    Rails,
    ServicePolicy,
    ServiceState,
    SimTarget,
    manage,
    service_policies,
)
from gnomon.decide.services.policies.relax import (
    Relax,
    day_cuts,
    day_intensity,
    placebo_intensity,
)
from gnomon.decide.services.policies.static import Static
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service
from gnomon.sim.mesh import poisson_requests

DAY = day_intensity("DE")
DIRTY, CLEAN = float(np.argmax(DAY)), float(np.argmin(DAY))
NO_DATA = np.full((len(PERCENTILES), 1), math.nan)


class Counts(ServicePolicy, frozen=True):
    """Remembers how often it was asked, and which limits it saw last."""

    def decide(self, state, rng):
        count = (state.memory or (0,))[0] + 1
        limits = state.window.cpu_limit.copy()
        return Allocation(limits, np.array([-1, -1]), memory=(count, limits))


class Fails(ServicePolicy, frozen=True):
    """Fails from a second on."""

    after_s: float

    def decide(self, state, rng):
        if state.window.now_s > self.after_s:
            raise RuntimeError("no idea")
        return Asks().decide(state, rng)


def rounds(policy, windows, limits=(1.0, 2.0)):
    """Answers to windows, one after the other; what is asked for is applied."""
    rng, memory, now, answers = np.random.default_rng(0), None, np.array(limits), []
    for seen in windows:
        seen = msgspec.structs.replace(seen, cpu_limit=now)
        answer = policy.decide(ServiceState(APP, seen, memory), rng)
        memory = answer.memory
        now = np.where(np.isnan(answer.cpu_limit), now, answer.cpu_limit)
        answers.append(answer)
    return answers


def good(count, start_s=0.0):
    return [window(start_s + 10.0 * i, duration_s=10.0) for i in range(1, count + 1)]


def test_it_relaxes_step_by_step_to_its_depth_and_no_further():
    answers = rounds(Relax(Asks(), zone="DE", hour=DIRTY, depth=0.2), good(20))
    web = [float(answer.cpu_limit[0]) for answer in answers]
    assert web[:2] == [0.5, 0.5]  # three windows with room come first
    assert web[2:7] == pytest.approx([0.475, 0.45, 0.425, 0.4, 0.4])
    assert web[-1] == pytest.approx(0.4)
    assert "20.0% less" in answers[-1].reason
    assert "as always" in answers[-1].reason


def test_cuts_do_not_add_up_on_a_manager_that_keeps_what_it_sees():
    answers = rounds(Relax(Counts(), zone="DE", hour=DIRTY), good(50))
    assert answers[-1].cpu_limit == pytest.approx([0.8, 1.6])
    count, seen = answers[-1].memory.inner
    assert count == 50
    assert seen.tolist() == [1.0, 2.0]


def test_limits_that_a_runtime_has_rounded_are_still_cut_ones():
    policy, rng = Relax(Counts(), zone="DE", hour=DIRTY), np.random.default_rng(0)
    memory, now = None, np.array([1.0, 2.0])
    for seen in good(50):
        seen = msgspec.structs.replace(seen, cpu_limit=np.floor(now * 1000) / 1000)
        answer = policy.decide(ServiceState(APP, seen, memory), rng)
        memory, now = answer.memory, answer.cpu_limit
    assert answer.cpu_limit == pytest.approx([0.8, 1.6])


def test_what_static_leaves_as_it_is_comes_back_to_what_it_was():
    policy = Relax(Static(), zone="DE", hour=DIRTY)
    answers = rounds(policy, [*good(10), window(110.0, p99_ms=90.0), *good(2, 110.0)])
    assert answers[9].cpu_limit == pytest.approx([0.8, 1.6])
    assert answers[10].cpu_limit.tolist() == [1.0, 2.0]
    assert np.isnan(answers[11].cpu_limit).all()


TROUBLE = {
    "near": dict(p99_ms=85.0),
    "violated": dict(p99_ms=150.0),
    "late": dict(class_violations=np.array([0.5])),
    "no latency": dict(class_ms=NO_DATA),
    "no usage": dict(usage=np.array([math.nan, 0.2])),
    "unknown rate": dict(class_ms=NO_DATA, class_rate=np.array([math.nan])),
}


@pytest.mark.parametrize("what", TROUBLE)
def test_everything_is_given_back_at_once_and_then_it_waits(what):
    policy = Relax(Asks(), zone="DE", hour=DIRTY, wait_s=100.0)
    bad = window(110.0, duration_s=10.0, **TROUBLE[what])
    answers = rounds(policy, [*good(10), bad, *good(15, 110.0)])
    limits = [answer.cpu_limit.tolist() for answer in answers]
    assert limits[9] == pytest.approx([0.4, 0.8])
    # 110 s to 200 s: as the manager wants.
    assert limits[10:20] == [[0.5, 1.0]] * 10
    assert "nothing relaxed" in answers[10].reason
    assert limits[20][0] < 0.5


def test_a_limit_that_cannot_be_read_is_given_back():
    policy, rng = Relax(Asks(), zone="DE", hour=DIRTY), np.random.default_rng(0)
    memory = rounds(policy, good(10))[-1].memory
    blind = window(110.0, cpu_limit=np.full(2, math.nan))
    assert policy.decide(ServiceState(APP, blind, memory), rng).cpu_limit.tolist() == [0.5, 1.0]


def test_a_cut_that_fails_again_waits_twice_as_long():
    policy = Relax(Asks(), zone="DE", hour=DIRTY, wait_s=50.0)
    memory, waits = None, []
    for i in range(1, 100):
        is_cut = memory is not None and memory.course.level > 0
        seen = window(10.0 * i, p99_ms=90.0 if is_cut else 10.0, duration_s=10.0)
        answer = policy.decide(ServiceState(APP, seen, memory), np.random.default_rng(0))
        memory = answer.memory
        if is_cut:
            waits.append(memory.course.wait_until_s - seen.now_s)
    assert waits[:4] == [50.0, 100.0, 200.0, 400.0]


def test_a_manager_that_fails_gets_its_limits_back_first():
    policy = Relax(Fails(100.0), zone="DE", hour=DIRTY)
    answers = rounds(policy, good(11))
    assert answers[9].cpu_limit == pytest.approx([0.4, 0.8])
    assert answers[10].cpu_limit.tolist() == [0.5, 1.0]
    assert answers[10].reason == "the manager failed: RuntimeError: no idea"
    with pytest.raises(RuntimeError):
        rounds(policy, good(12))


def as_always(policy, windows):
    """Whether the manager's answer passes, each time, object for object."""
    return all(
        answer.cpu_limit.tolist() == [0.5, 1.0] and answer.replicas.tolist() == [-1, -1]
        for answer in rounds(policy, windows)
    )


def test_a_clean_grid_changes_nothing():
    assert as_always(Relax(Asks(), zone="DE", hour=CLEAN), good(20))
    answer = rounds(Relax(Asks(), zone="DE", hour=CLEAN), good(1))[0]
    assert answer.reason == "as always"


def test_without_a_zone_or_an_sla_nothing_is_relaxed():
    assert as_always(Relax(Asks(), hour=DIRTY), good(20))
    assert "no zone" in rounds(Relax(Asks(), hour=DIRTY), good(1))[0].reason
    free = Application("free", {"web": Service(cpu_limit=0.5)}, {"get": RequestClass(Call("web"))})
    target = SimTarget(free, poisson_requests(free, [20.0] * 60, seed=1), seed=1)
    run = manage(target, Relax(zone="DE", hour=DIRTY), duration_s=60.0)
    assert not any(decision.changed for decision in run.decisions)


def test_the_hour_follows_the_run():
    policy = Relax(zone="DE", hour=23.0)
    cuts = day_cuts(DAY, 0.2)
    assert policy.cut_at(10.0) == cuts[23]
    assert policy.cut_at(3600.0) == cuts[0]
    assert Relax(zone="DE", hour=23.0, hour_s=60.0).cut_at(60.0 * 20) == cuts[19]


@given(
    limits=st.lists(st.floats(0.001, 50.0) | st.just(math.inf) | st.just(math.nan), min_size=2,
                    max_size=2),
    latencies=st.lists(st.floats(1.0, 150.0) | st.just(math.nan), min_size=1, max_size=12),
    hour=st.floats(0, 24), depth=st.floats(0, 0.9), zone=st.sampled_from(["DE", "CAISO", "ON"]),
    placebo=st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_prop_never_more_than_the_manager_and_never_less_than_the_depth(
    limits, latencies, hour, depth, zone, placebo
):
    policy = Relax(Asks(tuple(limits)), zone=zone, hour=hour, depth=depth, placebo=placebo)
    seen = [window(10.0 * i, p99_ms=ms, duration_s=10.0) for i, ms in enumerate(latencies, 1)]
    wanted = np.where(np.isnan(limits), [1.0, 2.0], limits)
    least = np.array([one.cpu_min for one in APP.services.values()])
    most = np.array([one.cpu_max for one in APP.services.values()])
    for answer, ms in zip(rounds(policy, seen), latencies):
        got = np.where(np.isnan(answer.cpu_limit), wanted, answer.cpu_limit)
        assert np.all(got <= wanted + 1e-12)
        floor = np.minimum(np.maximum(np.minimum(wanted, most) * (1 - depth), least), wanted)
        assert np.all((got >= floor - 1e-9) | np.isinf(wanted))
        if math.isnan(ms) or ms > 80.0:
            assert np.array_equal(got, wanted)


@pytest.mark.parametrize("zone", ["DE", "CAISO", "ON", "SE"])
def test_a_placebo_relaxes_as_much_and_knows_nothing_of_the_grid(zone):
    real, blind = day_intensity(zone), placebo_intensity(zone)
    assert day_cuts(blind, 0.2).sum() == pytest.approx(day_cuts(real, 0.2).sum())
    assert sorted(blind) == sorted(real)
    assert abs(np.corrcoef(real, blind)[0, 1]) < 0.01
    # So what it relaxes is, on average, in hours as dirty as the day.
    cuts = day_cuts(blind, 0.2)
    assert cuts @ real / cuts.sum() == pytest.approx(real.mean(), rel=0.08)
    assert day_cuts(real, 0.2) @ real / cuts.sum() > real.mean()


def test_a_flat_grid_is_never_dirty():
    assert day_cuts(np.full(24, 300.0), 0.2).tolist() == [0.0] * 24


@pytest.mark.parametrize(
    "spec", ["relax?zone=nowhere", "relax?depth=1", "relax?hour=25", "relax?near=0",
             "relax?wait_s=-1", "relax?hour_s=nan"],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(spec):
    with pytest.raises(InputError):
        service_policies.create(spec)


def test_it_is_a_wrapper_that_reads_the_grid():
    policy = service_policies.create("relax?zone=DE:autothrottle?target=0.1")
    assert policy.is_carbon_aware
    assert policy.innermost.target == 0.1
    assert service_policies.describe("relax").is_wrapper


def test_around_a_manager_it_keeps_the_contract():
    checks.policy("relax?zone=DE&hour_s=5&wait_s=5:autothrottle", SERVICES)


def test_behind_rails_it_relaxes_too():
    target = SimTarget(APP, poisson_requests(APP, [50.0] * 60, seed=1), seed=1)
    run = manage(target, Relax(zone="DE", hour=DIRTY), duration_s=60.0, rails=Rails())
    assert run.decisions[-1].window.cpu_limit == pytest.approx([0.8, 1.6])
