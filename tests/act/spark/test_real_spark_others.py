"""Contexts of another kind: dynamic allocation, missing capabilities, fair pools, no cluster."""

from __future__ import annotations

import pytest

from gnomon.act.spark import DriverGone, SparkDecision, SparkDriver, SparkPlan, plan
from tests.act.spark.harness import (
    Agent,
    running_stage,
    stage_of,
    staying,
    waiting_stage,
)
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]
OFF = "switched off by spark.gnomon.disable"


def test_the_ceiling_of_dynamic_allocation_and_a_spark_that_only_knows_quotas(process, master_url):
    process.start(
        master_url, disable=("hold", "priority"), spark__dynamicAllocation__enabled="true",
        spark__dynamicAllocation__shuffleTracking__enabled="true",
        spark__dynamicAllocation__minExecutors="0", spark__dynamicAllocation__maxExecutors="3",
        spark__dynamicAllocation__executorIdleTimeout="120s",
        spark__dynamicAllocation__schedulerBacklogTimeout="1s",
    )  # fmt: skip
    quota = {"now": 1}

    def decide(state, _now):
        return plan(SparkDecision(quota=quota["now"], hold=frozenset({0}), order=(0,)), state)

    with SparkDriver.connect(process.handshake, wait_s=20, watch=True) as watcher:
        assert watcher.hello.capabilities.quota_only
        assert watcher.hello.capabilities.dynamic_ceiling
        assert not watcher.hello.capabilities.set_target
        assert f"quota only (hold: {OFF}; priority: {OFF})" in watcher.hello.describe()
        with Agent(process.handshake, decide) as agent:
            until(lambda: watcher.state().target == 1, "the ceiling is one")
            expected = process.submit("a", tasks=80, ms=150)
            until(lambda: watcher.state().finished_tasks > 8, "tasks run", 60)
            # More would have been asked for after a second of backlog.
            assert watcher.state().asked_for == 1
            assert len(watcher.state().executors) == 1
            quota["now"] = 2
            until(lambda: staying(watcher.state()) == 2, "a second one comes up")
            quota["now"] = 1
            until(lambda: len(watcher.state().executors) == 1, "and leaves again")
            assert process.result("a") == expected
            assert watcher.state().failed_tasks == 0
        assert max(len(state.executors) for state in agent.states) == 2
        assert not any(stage.held for state in agent.states for stage in state.stages)
        assert f"holding stages: {OFF}" in agent.plans[0]["notes"]
        with SparkDriver.connect(process.handshake) as driver:
            expected = process.submit("b", tasks=3, ms=500)
            first = running_stage(driver)
            refused = driver.apply(SparkPlan(hold=(first,), priority={first: -1})).refused
            assert refused == {f"hold {first}": OFF, f"priority {first}": OFF}
            assert process.result("b") == expected
    process.stop()


def test_fair_pools_without_a_cluster(process):
    """Stages return to the pool they came from; executors cannot be asked for, which is logged."""
    process.start("local[2]", spark__scheduler__mode="FAIR")
    with SparkDriver.connect(process.handshake, wait_s=20) as driver:
        assert not driver.hello.capabilities.can_scale
        assert driver.hello.missing["set_target"] == "this scheduler has no executors to ask for"
        expected = [process.submit("a", tasks=16, ms=150, pool="left")]
        first = running_stage(driver)
        expected.append(process.submit("b", tasks=16, ms=150, pool="right"))
        waiting_stage(driver, first)
        applied = driver.apply(SparkPlan(target=2, hold=(first,)))
        assert applied.refused == {"target": "this scheduler has no executors to ask for"}
        assert stage_of(driver.state(), first).held
        until(lambda: stage_of(driver.state(), first).running == 0, "its tasks run out")
        driver.release()
        assert not stage_of(driver.state(), first).held
        assert [process.result("a"), process.result("b")] == expected
        assert driver.state().failed_tasks == 0
        process.stop()
        with pytest.raises(DriverGone, match="has ended"):
            driver.state()
    assert not process.handshake.exists()
