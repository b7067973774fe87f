"""Ursa on the simulator: thresholds, exploration, the scaler, and faults that it survives."""

from __future__ import annotations

import contextlib
import math

import msgspec
import numpy as np
import pytest

from gnomon.decide.services import PERCENTILES, Allocation, ServiceState, SimTarget, manage
from gnomon.decide.services.guard import Guard, decision_rng
from gnomon.decide.services.policies.ursa import Ursa, _slower_than_explored
from gnomon.decide.services.ursa import Exploration, Latencies, make_plan
from gnomon.errors import InputError
from gnomon.graph.application import Application, Call, RequestClass, Service, Sla, Work
from gnomon.ingest.services.application_file import read_application
from gnomon.sim.mesh import Arrivals, poisson_requests
from gnomon.systems.services.rates import Rate, find_rate
from gnomon.systems.services.trial import Setup, simulate
from gnomon.systems.services.ursa import Pace, backpressure_threshold, explore, in_simulator
from gnomon.systems.services.ursa.backpressure import FREE, proxy_application
from gnomon.systems.services.ursa.explore import explore_service
from gnomon.systems.services.ursa.result import (
    explored_to_result,
    plan_to_result,
    plan_to_script,
)
from tests.systems.services.faults import FAULTS, survives, target_of

QUICK = Pace(settle_s=2.0, window_s=4.0, calls=800, longest_s=16.0, threshold_s=5.0)


def small():
    """Web calls logic over few connections; two classes, one heavy."""
    light = Call("web", cpu_ms=1.0, then=((Call("logic", cpu_ms=Work(2.0, cv=0.5)),),))
    heavy = Call("web", cpu_ms=1.0, then=((Call("logic", cpu_ms=Work(6.0, cv=0.5)),),))
    return Application(
        "small",
        {"web": Service(cpu_limit=0.5, workers=2, pools={"logic": 4}, cpu_min=0.05, cpu_max=2.0),
         "logic": Service(cpu_limit=1.0, workers=2, cpu_min=0.05, cpu_max=2.0, replicas_max=4)},
        {"light": RequestClass(light, share=3, sla=Sla(150.0)),
         "heavy": RequestClass(heavy, share=1, sla=Sla(250.0))},
    )  # fmt: skip


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    path = tmp_path_factory.mktemp("ursa") / "explored.json"
    explore(small(), in_simulator(1), pace=QUICK).write(path)
    return path


# --- thresholds ----------------------------------------------------------------------------------


def test_callers_wait_from_a_threshold_on():
    found = backpressure_threshold(small(), "logic", 100.0, in_simulator(1))
    assert 0.6 < found < 0.99
    # Behind many connections callers wait later, if at all.
    about = small().services
    web = msgspec.structs.replace(about["web"], pools={"logic": 1})
    narrow = msgspec.structs.replace(small(), services=about | {"web": web})
    assert backpressure_threshold(narrow, "logic", 100.0, in_simulator(1)) < found


def test_nobody_waits_for_queues_and_entries():
    queued = Call("web", cpu_ms=1.0, then=((Call("logic", cpu_ms=2.0, mode="queue"),),))
    app = msgspec.structs.replace(small(), classes={"put": RequestClass(queued)})
    assert proxy_application(app, "logic") is None
    assert backpressure_threshold(app, "logic", 100.0, in_simulator(1)) == FREE
    assert backpressure_threshold(app, "web", 100.0, in_simulator(1)) == FREE


# --- exploration ---------------------------------------------------------------------------------


def test_exploration_goes_down_the_ladder_and_stops_in_time(known):
    found = Exploration.read(known)
    assert set(found.services) == {"web", "logic"}
    for one in found.services.values():
        assert len(one.options) >= 5
        assert all(option.utilisation <= one.threshold * 1.05 for option in one.options)
        assert one.ended
    p99 = [option.latencies["heavy"].quantile_ms(99) for option in found.services["logic"].options]
    assert max(p99) > 1.5 * min(p99)
    assert found.samples < 60


def test_an_sla_at_risk_gives_the_cpu_back():
    tight = {
        name: msgspec.structs.replace(one, sla=Sla(40.0)) for name, one in small().classes.items()
    }
    app = msgspec.structs.replace(small(), classes=tight)
    one = explore_service(
        app, "logic", in_simulator(1), rate=100.0, levels=[1.0], pace=QUICK
    )  # fmt: skip
    assert "SLA" in one.ended
    loose = explore_service(
        small(), "logic", in_simulator(1), rate=100.0, levels=[1.0], pace=QUICK
    )  # fmt: skip
    assert len(one.options) < len(loose.options)


def test_only_changed_services_are_explored_again(known):
    found, told = Exploration.read(known), []
    slower = Call("web", cpu_ms=1.0, then=((Call("logic", cpu_ms=Work(3.0, cv=0.5)),),))
    classes = small().classes | {
        "light": msgspec.structs.replace(small().classes["light"], call=slower)
    }
    app = msgspec.structs.replace(small(), classes=classes)
    again = explore(
        app,
        in_simulator(1),
        pace=QUICK,
        known=found,
        on_service=lambda name, *_: told.append(name),
    )
    assert told == ["logic"]
    assert again.services["web"] == found.services["web"]
    told.clear()
    explore(
        app, in_simulator(1), pace=QUICK, known=again, only=["web"],
        on_service=lambda name, *_: told.append(name),
    )  # fmt: skip
    assert told == ["web"]


class Disturbed:
    """The simulator on a machine that others use: requests of some windows are late, whatever is given."""

    def __init__(self, target, windows, foreign_cores):
        self.app, self._inner, self._windows = target.app, target, windows
        self._foreign_cores, self._seen = foreign_cores, 0
        self.apply, self.latency_counts = target.apply, target.latency_counts

    def observe(self, duration_s):
        window = self._inner.observe(duration_s)
        self._seen += 1
        if self._seen not in self._windows:
            return window
        late = np.ones_like(window.class_violations)
        return msgspec.structs.replace(
            window, class_violations=late, foreign_cores=self._foreign_cores
        )


@pytest.mark.parametrize(("foreign_cores", "quiet_cores", "goes_on"),
                         [(0.5, 0.1, True), (0.0, 0.1, False), (0.5, math.inf, False)])  # fmt: skip
def test_what_others_disturb_is_tried_again(foreign_cores, quiet_cores, goes_on):
    @contextlib.contextmanager
    def stage(app, rate, seconds):
        with in_simulator(1)(app, rate, seconds) as target:
            yield Disturbed(target, range(5, 13), foreign_cores)

    pace = msgspec.structs.replace(QUICK, quiet_cores=quiet_cores)
    one = explore_service(small(), "web", stage, rate=100.0, levels=[1.0], pace=pace)
    assert (len(one.options) > 4) == goes_on
    assert goes_on or one.ended == "the SLA of light is at risk"


def test_a_service_without_operating_points_is_explored_again(known):
    found, told = Exploration.read(known), []
    none = msgspec.structs.replace(found.services["web"], options=(), ended="at risk")
    lacking = msgspec.structs.replace(found, services={**found.services, "web": none})
    again = explore(small(), in_simulator(1), pace=QUICK, known=lacking,
                    on_service=lambda name, *_: told.append(name))  # fmt: skip
    assert told == ["web"]
    assert again.services["web"].options
    notes = explored_to_result(small(), lacking, where="lab").notes
    assert any("web: no operating point" in note for note in notes)


def test_an_interrupted_exploration_goes_on(tmp_path):
    path, kept = tmp_path / "explored.json", []

    def keep(found):
        found.write(path)
        kept.append(list(found.services))
        if len(kept) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(small(), in_simulator(1), pace=QUICK, keep=keep)
    told = []
    explore(small(), in_simulator(1), pace=QUICK, known=Exploration.read(path),
            on_service=lambda name, *_: told.append(name))  # fmt: skip
    assert kept == [["web"]]
    assert told == ["logic"]


# --- the scaler ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["diurnal", "surge"])
def test_it_keeps_the_sla_with_less_than_a_careful_autoscaler(known, shape):
    rate = find_rate(shape, 100.0, duration_s=240, seed=1)
    ours = simulate(Setup(small()), f"ursa?explored={known}", rate).score
    careful = simulate(Setup(small()), "autoscale-cons", rate).score
    assert ours.violation_pct <= 2.1  # a check of 48
    assert ours.cpu_mean < 0.75 * careful.cpu_mean


def test_a_class_that_was_never_explored_gets_the_cap(known):
    app = small()
    more = app.classes | {"new": RequestClass(Call("web", cpu_ms=1.0), share=1)}
    grown = msgspec.structs.replace(app, classes=more)
    run = manage(target_of(grown, 100.0, 5), Ursa(explored=str(known)), duration_s=5)
    last = run.decisions[-1]
    assert "new was never explored" in last.reason
    assert last.window.cpu_limit.tolist() == [2.0, 2.0]


def states(app, rates, **columns):
    """Windows of the simulator with rates of our own."""
    window = target_of(app, 50.0, 2).observe(1.0)
    memory = None
    for second, rate in enumerate(rates):
        seen = msgspec.structs.replace(
            window, now_s=float(second + 1), class_rate=np.array(rate, float), **columns
        )
        answer = yield seen, memory
        memory = answer.memory


def decisions(policy, app, rates, **columns):
    found, steps = [], states(app, rates, **columns)
    seen, memory = next(steps)
    while True:
        found.append(policy.decide(ServiceState(app, seen, memory), np.random.default_rng(0)))
        try:
            seen, memory = steps.send(found[-1])
        except StopIteration:
            return found


def test_a_plan_that_cannot_be_is_the_cap_until_there_is_one(known):
    tight = {**small().classes}
    tight["heavy"] = msgspec.structs.replace(tight["heavy"], sla=Sla(5.0))
    app = msgspec.structs.replace(small(), classes=tight)
    found = decisions(Ursa(explored=str(known)), app, [(75, 25)] * 40)
    for one in found:
        assert "keep the SLA of heavy" in one.reason
        assert one.cpu_limit.tolist() == [2.0, 2.0]


def test_quiet_classes_are_planned_for(known):
    policy = Ursa(explored=str(known))
    for rates in ([(100, 0)] * 3, [(0, 0)] * 3):
        plan = decisions(policy, small(), rates)[-1].memory.plan
        assert set(plan.classes) == {"light", "heavy"}


def test_rates_that_cannot_be_measured_are_those_before(known):
    nothing = (math.nan, math.nan)
    found = decisions(Ursa(explored=str(known)), small(), [(75, 25)] * 40 + [nothing] * 5)
    np.testing.assert_allclose(found[-1].cpu_limit, found[39].cpu_limit, rtol=0.01)


def test_a_jump_from_hardly_any_load_costs_little_for_long(known):
    rate = Rate("night", np.array([4.0] * 120 + [100.0] * 600))
    ours = simulate(Setup(small()), f"ursa?explored={known}", rate)
    steady = simulate(Setup(small()), f"ursa?explored={known}", Rate("day", np.full(720, 100.0)))
    assert ours.score.violation_pct < 1
    assert ours.series.allocated[-60:].mean() < 1.5 * steady.series.allocated[-60:].mean()


def test_what_cannot_be_managed_is_refused_before_the_run(known, tmp_path):
    other = msgspec.structs.replace(small(), services={**small().services, "new": Service()},
        classes={"get": RequestClass(Call("new", cpu_ms=1.0), sla=Sla(50.0))})  # fmt: skip
    for manager in (f"ursa?explored={known}", f"relax?zone=DE:ursa?explored={known}"):
        with pytest.raises(InputError, match="new of small was not explored"):
            simulate(Setup(other), manager, Rate("flat", np.full(5, 10.0)))


def test_calls_that_are_never_made_do_not_matter(known):
    never = Call("never", cpu_ms=1.0, probability=0.0)
    below = (Call("logic", cpu_ms=2.0), never)
    app = Application(
        "never", {**small().services, "never": Service()},
        {"get": RequestClass(Call("web", cpu_ms=1.0, then=(below, (never,))), sla=Sla(100.0))},
    )  # fmt: skip
    found = explore(app, in_simulator(1), pace=QUICK, rate=50.0)
    assert make_plan(app, found, {"get": 50.0}).cores > 0


def test_points_above_the_greatest_limit_are_not_used(known):
    less = {
        name: msgspec.structs.replace(one, cpu_max=0.3) for name, one in small().services.items()
    }
    app, found = msgspec.structs.replace(small(), services=less), Exploration.read(known)
    plan = make_plan(app, found, {"light": 30.0, "heavy": 10.0})
    assert all(one.option.cpu_limit <= 0.3 for one in plan.services.values())
    assert set(found.changed(app)) == {"web", "logic"}
    assert found.changed(small()) == []


def test_a_new_mix_gets_a_new_plan(known):
    app = small()
    before = poisson_requests(app, [100.0] * 60, seed=1)
    other = msgspec.structs.replace(
        app, classes={name: msgspec.structs.replace(one, share={"light": 1, "heavy": 3}[name])
                      for name, one in app.classes.items()}
    )  # fmt: skip
    after = poisson_requests(other, [100.0] * 120, seed=2)
    mixed = Arrivals(
        np.concatenate([before.time_ns, after.time_ns + 60 * 10**9]),
        np.concatenate([before.request_class, after.request_class]),
    )
    run = manage(SimTarget(app, mixed, seed=1), Ursa(explored=str(known)), duration_s=180)
    replanned = [d.window.now_s for d in run.decisions if "mix" in d.reason]
    assert replanned
    assert replanned[0] > 60
    late = [d.window.class_violations.max() for d in run.decisions[-60:]]
    assert np.mean(np.array(late) > 0.01) < 0.1


def test_a_service_that_became_slower_is_explored_again(known):
    app = small()
    slower = {
        name: msgspec.structs.replace(one, call=msgspec.structs.replace(one.call, then=tuple(
            tuple(msgspec.structs.replace(c, wait_ms=Work(60.0, cv=1.0)) for c in stage)
            for stage in one.call.then)))
        for name, one in app.classes.items()
    }  # fmt: skip
    changed = msgspec.structs.replace(app, classes=slower)
    run = manage(target_of(changed, 100.0, 90), Ursa(explored=str(known), rise=0.0), duration_s=90)
    assert any("logic" in d.reason and "explored again" in d.reason for d in run.decisions)


@pytest.mark.parametrize("spoil", FAULTS)
@pytest.mark.parametrize("manager", ["ursa", "autoscale-opt", "autothrottle"])
def test_faults_are_survived_with_a_reason(known, spoil, manager):
    survives(small(), f"ursa?explored={known}" if manager == "ursa" else manager, spoil)


def test_without_an_exploration_everything_is_at_its_cap():
    run = manage(target_of(small(), 50.0, 3), "ursa", duration_s=3)
    assert "no exploration" in run.decisions[-1].reason
    assert run.decisions[-1].window.cpu_limit.tolist() == [2.0, 2.0]


def test_a_plan_is_carried_out_as_planned(known):
    app, found = small(), Exploration.read(known)
    plan = make_plan(app, found, {"light": 75.0, "heavy": 25.0})
    policy = Ursa(explored=str(known), rise=0.0)
    guard = Guard(app, policy, decision_rng(0))
    target = target_of(app, 100.0, 40)
    for _ in range(40):
        decision = guard.decide(target.observe(1.0))
        target.apply(decision.allocation)
    assert decision.window.allocated.sum() == pytest.approx(plan.cores, rel=0.35)
    assert isinstance(decision.allocation, Allocation)
    assert PERCENTILES[4] == 99.0


def test_a_plan_is_shown_where_the_union_bound_has_no_answer(known):
    plan = make_plan(small(), Exploration.read(known), {"light": 75.0, "heavy": 25.0})
    classes = {
        name: msgspec.structs.replace(one, union_ms=math.inf) for name, one in plan.classes.items()
    }
    lacking = msgspec.structs.replace(plan, union_cores=math.inf, classes=classes)
    shown = {one.name: one.value for one in plan_to_result(small(), lacking).figures}
    assert shown["union_cores"] == "no answer"
    assert plan_to_script(lacking)["union_cores"] is None


def test_a_class_that_was_never_timed_is_named_and_hides_no_slow_service(known):
    app = small()
    plan = make_plan(app, Exploration.read(known), {"light": 75.0, "heavy": 25.0})
    given = plan.services["logic"]
    seen = {"light": Latencies(), "heavy": given.option.latencies["heavy"]}
    option = msgspec.structs.replace(given.option, latencies=seen)
    given = msgspec.structs.replace(given, option=option)
    plan = msgspec.structs.replace(plan, services={**plan.services, "logic": given})
    assert any("light to logic were never timed" in n for n in plan_to_result(app, plan).notes)
    window = target_of(app, 50.0, 3).observe(1.0)
    slow = msgspec.structs.replace(window, service_ms=np.full_like(window.service_ms, 1e4))
    assert set(_slower_than_explored(app, plan, slow)) == {"web", "logic"}


@pytest.mark.slow
def test_bundled_applications_keep_their_slas_with_less_cpu(tmp_path):
    for name in ("hotel-reservation", "media-pipeline", "social-network"):
        app = read_application(f"bundled:{name}")
        path = tmp_path / f"{name}.json"
        explore(app, in_simulator(1)).write(path)
        for shape in ("diurnal", "bursty", "noisy", "surge"):
            rate: Rate = find_rate(shape, app.rate, seed=1)
            ours = simulate(Setup(app), f"ursa?explored={path}", rate).score
            careful = simulate(Setup(app), "autoscale-cons", rate).score
            assert ours.violation_pct <= 1.0, (name, shape)
            assert ours.cpu_mean < 0.75 * careful.cpu_mean, (name, shape)
