"""The loop: without a decision, without an answer, and when it is stopped."""

from __future__ import annotations

import json
import os
import signal

import pytest

from gnomon.act.spark import Applied, DriverGone, SparkPlan, run_agent
from gnomon.errors import ActuationError
from tests.act.spark.states import HELLO, stage, state


class PretendDriver:
    """Returns states one by one, then has ended."""

    def __init__(self, *states):
        self.hello = HELLO
        self.states = list(states)
        self.did = []

    def state(self):
        if not self.states:
            raise DriverGone("app-1 has ended")
        found = self.states.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def apply(self, plan):
        self.did.append(plan)
        return Applied({"target": "not now"})

    def release(self):
        self.did.append("release")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def run(driver, decide, clock=None, **more):
    clock, lines = clock or Clock(), []
    done = run_agent(
        driver, decide, period_s=2, clock=clock, sleep=clock.sleep, emit=lines.append, **more
    )
    return done, [json.loads(line) for line in lines]


def test_what_is_decided_is_applied_and_logged():
    driver = PretendDriver(state(), state(), state(stage(1)))
    plans = iter(
        [SparkPlan(target=2, reasons={"quota": "dirty"}), SparkPlan(), SparkPlan(hold=(1,))]
    )
    done, lines = run(driver, lambda *_: next(plans))
    assert (done.ended, done.looks, done.changes) == ("application ended", 3, 2)
    assert driver.did == [
        SparkPlan(target=2, reasons={"quota": "dirty"}), SparkPlan(hold=(1,)), "release",
    ]  # fmt: skip
    assert [line["event"] for line in lines] == ["attached", "applied", "applied", "ended"]
    assert lines[1] == {
        "time": 0.0, "event": "applied", "plan": {"target": 2, "reasons": {"quota": "dirty"}},
        "refused": {"target": "not now"},
    }  # fmt: skip
    assert lines[2]["time"] == 4.0


def test_when_nothing_can_be_decided_everything_is_released_and_it_goes_on():
    driver = PretendDriver(state(), state(), state())
    answers = iter([SparkPlan(target=1), OSError("the provider is away"), SparkPlan(target=2)])

    def decide(_state, _now):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    done, lines = run(driver, decide)
    assert driver.did == [SparkPlan(target=1), "release", SparkPlan(target=2), "release"]
    assert done.undecided == 1
    assert lines[2]["why"] == "nothing decided: OSError: the provider is away"


def test_a_plan_that_took_long_is_not_for_a_state_that_is_past():
    """The lease ran out meanwhile: all was released, and is requested again."""
    driver, clock = PretendDriver(state(target=3), state(target=None)), Clock()

    def decide(seen, _now):
        if seen.target == 3:
            clock.sleep(11)
            return SparkPlan(hold=(1,))
        return SparkPlan(target=3, hold=(1,))

    done, lines = run(driver, decide, clock)
    assert driver.did == [SparkPlan(target=3, hold=(1,)), "release"]
    assert (done.looks, done.changes, done.undecided) == (2, 1, 0)
    assert lines[1]["event"] == "late"
    assert lines[1]["why"] == "deciding took 11.0 s, of a lease of 10 s"


def test_a_rule_that_is_always_late_leaves_the_application_alone():
    driver, clock = PretendDriver(*[state()] * 4), Clock()

    def decide(_state, _now):
        clock.sleep(5.5)  # more than half of ten
        return SparkPlan(target=3)

    done, lines = run(driver, decide, clock)
    assert driver.did == ["release"] * 3
    assert (done.looks, done.changes, done.undecided) == (4, 0, 2)
    assert [line["event"] for line in lines[1:4]] == ["late", "late", "released"]


def test_half_the_lease_is_in_time():
    driver, clock = PretendDriver(state()), Clock()

    def decide(_state, _now):
        clock.sleep(5)
        return SparkPlan(target=3)

    done, _ = run(driver, decide, clock)
    assert driver.did == [SparkPlan(target=3), "release"]
    assert done.looks == 1


def test_a_degraded_driver_is_left_alone():
    driver = PretendDriver(state(degraded="it broke"))
    done, lines = run(driver, lambda *_: pytest.fail("not asked"))
    assert driver.did == ["release", "release"]
    assert "it broke" in lines[1]["why"]
    assert done.undecided == 1


def test_a_few_timeouts_are_tolerated_and_many_are_not():
    driver = PretendDriver(ActuationError("late"), ActuationError("late"), state())
    done, _ = run(driver, lambda *_: SparkPlan())
    assert (done.timeouts, done.looks, done.ended) == (2, 1, "application ended")
    driver = PretendDriver(*[ActuationError("late")] * 50)
    with pytest.raises(ActuationError, match="late"):
        run(driver, lambda *_: SparkPlan())
    assert driver.did == ["release"]
    assert len(driver.states) == 40


def test_time_is_up():
    driver = PretendDriver(*[state()] * 50)
    done, lines = run(driver, lambda *_: SparkPlan(), until=10.0)
    assert (done.ended, done.looks) == ("time is up", 5)
    assert driver.did == ["release"]
    assert lines[-1]["event"] == "released"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_signals_end_it_with_everything_released(number):
    driver = PretendDriver(*[state()] * 50)

    def decide(_state, now):
        if now >= 4:
            os.kill(os.getpid(), number)
        return SparkPlan(target=1) if now == 0 else SparkPlan()

    before = signal.getsignal(signal.SIGTERM)
    done, _ = run(driver, decide)
    assert done.ended == "stopped"
    assert driver.did == [SparkPlan(target=1), "release"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_not_supported_is_logged_once():
    plans = [SparkPlan(notes=("the number of executors: none to ask for",))] * 3 + [SparkPlan()]
    decided = iter([*plans, *plans[:1]])
    _, lines = run(PretendDriver(*[state()] * 5), lambda *_: next(decided))
    unsupported = [line["why"] for line in lines if line["event"] == "unsupported"]
    assert unsupported == ["the number of executors: none to ask for"] * 2  # it could, in between


def test_the_same_reason_again_is_no_news():
    why = iter(["a", "a", "b", "", "b"])

    def decide(*_):
        if reason := next(why):
            raise ValueError(reason)
        return SparkPlan()

    driver = PretendDriver(*[state()] * 5)
    done, lines = run(driver, decide)
    assert [line["why"][-1] for line in lines if line["event"] == "released"] == ["a", "b", "b"]
    assert (done.undecided, driver.did.count("release")) == (4, 4 + 1)  # and at the end
