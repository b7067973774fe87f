"""From the state to the desired one: only the difference, and only what is supported."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gnomon.act.spark import Capabilities, SparkDecision, SparkPlan, plan
from tests.act.spark.states import stage, state

QUOTA_ONLY = Capabilities(set_target=True)
WHY = {"hold": "switched off", "priority": "switched off"}


def test_nothing_to_change():
    done = plan(SparkDecision(), state(stage(1)))
    assert done.is_empty
    assert done.describe() == "nothing to change"


def test_only_the_difference():
    now = state(
        stage(1, held=True, hold_requested=True, schedulable=False), stage(2), stage(3, done=True),
        stage(4, skipped=True), target=4,
    )  # fmt: skip
    changes = plan(SparkDecision(quota=4, hold=frozenset({2, 3, 4, 99})), now)
    assert changes.target is UNSET
    assert changes.hold == (2,)
    assert changes.release == (1,)


def test_a_quota_is_restored():
    changes = plan(SparkDecision(quota=None), state(target=2))
    assert changes.target is None
    assert not changes.is_empty
    assert changes.describe() == "restore the number of executors"


def test_an_order_comes_before_sparks_own_and_is_restored():
    now = state(stage(1, priority=0), stage(2, priority=1), stage(3, priority=2))
    changes = plan(SparkDecision(order=(3, 1, 3)), now)
    assert changes.priority[3] < changes.priority[1] < 0
    assert 2 not in changes.priority
    then = state(
        stage(1, priority=changes.priority[1]),
        stage(2, priority=1),
        stage(3, priority=changes.priority[3]),
    )
    assert plan(SparkDecision(order=(3, 1)), then).is_empty
    assert plan(SparkDecision(), then).priority == {1: None, 3: None}
    assert plan(SparkDecision(order=(3, 1)), now).describe() == "serve stage 3, then stage 1"


def test_what_is_not_supported_is_noted():
    now = state(stage(1), capabilities=QUOTA_ONLY, missing=WHY)
    changes = plan(SparkDecision(quota=1, hold=frozenset({1}), order=(1,)), now)
    assert changes.target == 1
    assert (changes.hold, changes.priority) == ((), {})
    assert changes.notes == ("holding stages: switched off", "the order of stages: switched off")
    assert "unsupported: holding stages: switched off" in changes.describe()
    nothing = state(capabilities=Capabilities(), missing={"set_target": "no executors"})
    assert plan(SparkDecision(quota=1), nothing).notes == (
        "the number of executors: no executors",
    )


def test_reasons_are_shown():
    changes = SparkPlan(
        target=1, hold=(7,), release=(8,), reasons={"quota": "dirty", "7": "long", "8": "short"}
    )
    assert changes.describe().splitlines() == [
        "ask for 1 executor: dirty", "hold stage 7: long", "release stage 8: short",
    ]  # fmt: skip


def test_what_is_left_as_it_is_is_not_sent():
    assert msgspec.to_builtins(SparkPlan(hold=(1,))) == {"hold": (1,)}
    assert msgspec.to_builtins(SparkPlan(target=None)) == {"target": None}


stages = st.builds(
    lambda number, held, done, priority: stage(
        number, held=held and not done, hold_requested=held and not done,
        schedulable=not held and not done, done=done, priority=None if done else priority,
    ),
    st.integers(0, 9), st.booleans(), st.booleans(), st.integers(0, 5),
)  # fmt: skip
states = st.builds(
    lambda found, target: state(*found, target=target),
    st.lists(stages, max_size=8, unique_by=lambda each: each.stage),
    st.none() | st.integers(1, 5),
)
decisions = st.builds(
    SparkDecision, st.none() | st.integers(1, 5), st.frozensets(st.integers(0, 12)),
    st.lists(st.integers(0, 12)).map(tuple),
)  # fmt: skip


def carried_out(now, changes):
    """The state after a plan, were the driver to do all of it."""
    target = now.target if changes.target is UNSET else changes.target
    found = []
    for each in now.stages:
        held = (each.held or each.stage in changes.hold) and each.stage not in changes.release
        priority = changes.priority.get(each.stage, each.priority)
        found.append(msgspec.structs.replace(
            each, held=held, hold_requested=held, schedulable=not held and not each.done,
            priority=0 if priority is None and not each.done else priority,
        ))  # fmt: skip
    return msgspec.structs.replace(now, stages=tuple(found), target=target)


@given(states, decisions)
def test_prop_a_plan_carried_out_leaves_nothing_to_change(now, decision):
    then = carried_out(now, plan(decision, now))
    assert plan(decision, then).is_empty
    assert then.target == decision.quota
    assert {each.stage for each in then.stages if each.held} <= decision.hold
