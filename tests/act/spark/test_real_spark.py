"""Agent and plugin on a real standalone Spark: nothing is lost, and nobody is needed."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from gnomon.act.spark import SparkDecision, SparkDriver, SparkPlan, plan
from tests.act.spark.harness import (
    Agent,
    executor_pids,
    running_stage,
    stage_of,
    staying,
    waiting_stage,
)
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_the_handshake_is_for_its_user_alone(application, watcher):
    assert stat.S_IMODE(application.handshake.stat().st_mode) == 0o600
    hello = watcher.hello
    assert hello.capabilities.set_target
    assert hello.capabilities.decommission
    assert hello.capabilities.hold
    assert hello.capabilities.priority
    assert hello.capabilities.barrier
    assert hello.missing == {"dynamic_ceiling": "dynamic allocation is off"}
    assert not watcher.hello.capabilities.quota_only
    assert hello.spark.split(".")[0].isdigit()


def test_cap_moves_the_number_of_executors_with_the_signal(application, watcher):
    """Three, then one, then two, while a job with a shuffle runs; no task fails."""
    quota = {"now": 3}

    def decide(state, _now):
        return plan(SparkDecision(quota=quota["now"], reasons={"quota": "scripted"}), state)

    expected = application.submit("a", tasks=90, ms=150)
    with Agent(application.handshake, decide) as agent:
        until(lambda: watcher.state().finished_tasks > 6, "tasks run")
        assert staying(watcher.state()) == 3
        quota["now"] = 1
        until(lambda: len(watcher.state().executors) == 1, "one executor is left")
        quota["now"] = 2
        until(lambda: len(watcher.state().executors) == 2, "a second one is back")
        assert application.result("a") == expected
        seen = watcher.state()
        assert (seen.failed_tasks, seen.target, seen.asked_for) == (0, 2, 2)
    while_it_ran = [staying(state) for state in agent.states if state.jobs]
    assert {3, 1} <= set(while_it_ran)
    assert all(staying(state) >= 1 for state in agent.states)
    assert [plan["target"] for plan in agent.plans] == [3, 1, 2]
    assert agent.run.ended == "time is up"
    assert watcher.state().target is None  # restored by the agent at its end


def test_pcaps_holds_a_stage_and_lets_it_go(application, watcher):
    """The first job's stage waits in the dirty hours, the second one is served; both are right."""
    expected = [application.submit("a", tasks=60, ms=150)]
    first = running_stage(watcher)
    expected.append(application.submit("b", tasks=40, ms=150))
    second = waiting_stage(watcher, first)
    before = watcher.state().failed_tasks
    is_dirty = {"now": True}

    def decide(state, _now):
        held, other = stage_of(state, first), stage_of(state, second)
        if held and held.held and held.running == 0 and other and other.finished >= 10:
            is_dirty["now"] = False
        hold = frozenset({first}) if is_dirty["now"] else frozenset()
        return plan(
            SparkDecision(hold=hold, order=(second,), reasons={str(first): "dirty"}), state
        )

    with Agent(application.handshake, decide) as agent:
        assert [application.result("a"), application.result("b")] == expected
    pairs = [(stage_of(state, first), stage_of(state, second)) for state in agent.states]
    quiet = [pair for pair in pairs if pair[0] and pair[0].held and pair[0].running == 0]
    assert any(other and other.running > 0 for _, other in quiet)
    assert len({held.finished for held, _ in quiet}) == 1  # nothing of it was begun
    assert quiet[0][0].finished < 60
    held, other = quiet[-1]
    assert other.priority < held.priority
    assert held.mean_task_ms >= 150
    assert held.cpu_ns > 0
    assert agent.plans[0]["hold"] == [first]
    assert agent.plans[0]["reasons"] == {str(first): "dirty"}
    assert any(plan.get("release") == [first] for plan in agent.plans)
    assert watcher.state().failed_tasks == before == 0


def test_when_everything_is_to_be_held_the_driver_runs_one_by_itself(application, watcher):
    before = watcher.state().let_go

    def decide(state, _now):
        return plan(SparkDecision(hold=frozenset(s.stage for s in state.stages)), state)

    with Agent(application.handshake, decide) as agent:
        expected = [application.submit(name, tasks=15, ms=150) for name in ("a", "b")]
        assert [application.result(name) for name in ("a", "b")] == expected
    refusals = [why for line in agent.lines for why in line.get("refused", {}).values()]
    assert "kept: nothing else would run" in refusals
    assert any(stage.held for state in agent.states for stage in state.stages)
    assert watcher.state().let_go > before
    assert watcher.state().failed_tasks == 0


AGENT = """
import sys
from gnomon.act.spark import SparkDecision, SparkDriver, plan, run_agent

def decide(state, now):
    return plan(SparkDecision(quota=2, hold=frozenset({stage})), state)

driver = SparkDriver.connect(sys.argv[1])
print("there", flush=True)
stage = int(sys.stdin.readline())
run_agent(driver, decide, period_s=0.3, emit=lambda line: print(line, flush=True))
"""


def test_an_agent_that_is_killed_leaves_spark_finishing_by_itself(application, watcher):
    before = watcher.state()
    with subprocess.Popen(
        [sys.executable, "-c", AGENT, str(application.handshake)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as agent:  # fmt: skip
        try:
            assert agent.stdout.readline() == "there\n"
            expected = [application.submit("a", tasks=120, ms=150)]
            first = running_stage(watcher)
            expected.append(application.submit("b", tasks=12, ms=150))
            second = waiting_stage(watcher, first)
            print(second, file=agent.stdin, flush=True)
            until(lambda: json.loads(agent.stdout.readline())["event"] == "applied", "it applies")
            seen = watcher.state()
            assert stage_of(seen, second).held
            assert (seen.target, seen.lease_expiries) == (2, before.lease_expiries)
        finally:
            os.kill(agent.pid, signal.SIGKILL)
    after = until(
        lambda: (s := watcher.state()).lease_expiries > before.lease_expiries and s,
        "the lease runs out",
    )
    assert after.lease_expiries == before.lease_expiries + 1
    assert after.target is None
    assert not any(stage.held or stage.hold_requested for stage in after.stages)
    assert [application.result("a"), application.result("b")] == expected
    assert watcher.state().failed_tasks == before.failed_tasks
    until(lambda: staying(watcher.state()) == 3, "all executors are back")


def test_an_executor_that_dies_while_a_stage_is_held_costs_no_result(application, watcher):
    """A held stage hears of the loss: its task there runs once more, after it is let go."""
    expected = [application.submit("a", tasks=3, ms=5000)]
    first = running_stage(watcher)
    until(lambda: stage_of(watcher.state(), first).running == 3, "everywhere")
    expected.append(application.submit("b", tasks=3, ms=100))
    waiting_stage(watcher, first)
    with SparkDriver.connect(application.handshake) as driver:
        assert driver.apply(SparkPlan(hold=(first,))).refused == {}
        seen = stage_of(driver.state(), first)
        assert seen.held
        assert seen.running == 3
        pids = executor_pids(driver.hello.application)
        assert len(pids) == 3
        os.kill(min(pids.values()), signal.SIGKILL)
        until(lambda: driver.state().failed_tasks, "the loss is known")
        # The one that was lost waits again: two have ended or will, none runs where nobody is.
        until(lambda: stage_of(driver.state(), first).finished == 2, "the others end")
        assert stage_of(driver.state(), first).running == 0
        assert application.result("b") == expected[1]
        driver.apply(SparkPlan(release=(first,)))
        assert application.result("a") == expected[0]


def test_rubbish_on_the_wire(application, watcher):
    facts = json.loads(application.handshake.read_text())
    for line, message in (
        (b"hello\n", "no JSON"),
        (b"[]\n", "a request is an object"),
        (b'{"op": "state"}\n', "the token is wrong"),
        (json.dumps({"op": "state", "token": "x" * 64}).encode() + b"\n", "the token is wrong"),
        (json.dumps({"op": "fly", "token": facts["token"]}).encode() + b"\n", "no such request"),
    ):
        with socket.create_connection((facts["host"], facts["port"]), timeout=5) as wire:
            wire.sendall(line)
            with wire.makefile("rb") as answers:
                answer = json.loads(answers.readline())
                assert (answer["ok"], message in answer["error"]) == (False, True)
                if "token" in message:
                    assert answers.readline() == b""  # and hung up
    assert watcher.state().degraded == ""


def test_a_barrier_stage_finds_its_slots_under_a_quota(application, watcher):
    """Spark would fail the job: the quota gives way while it must, and is met again after."""
    until(lambda: staying(watcher.state()) == 3, "all executors are there")
    failed = watcher.state().failed_tasks

    def decide(state, _now):
        return plan(SparkDecision(quota=2), state)

    with Agent(application.handshake, decide) as agent:
        until(lambda: staying(watcher.state()) == 2, "two executors are left")
        expected = application.submit("a", tasks=3, ms=2000, reducers=1, barrier=True)
        first = running_stage(watcher)
        assert stage_of(watcher.state(), first).running == 3  # all at once
        until(lambda: watcher.state().above_target.startswith("3 exec"), "no more than it needs")
        assert watcher.state().asked_for == 3
        with SparkDriver.connect(application.handshake) as driver:
            refused = driver.apply(SparkPlan(target=2)).refused
        assert refused == {
            "target": "3 executors are left to a barrier stage that starts 3 tasks at once"
        }
        assert application.result("a") == expected
        until(lambda: watcher.state().asked_for == 2, "the quota is met again")
        assert watcher.state().above_target == ""
    reasons = {state.above_target for state in agent.states}
    assert "all executors are left to a job whose barrier stage waits for slots" in reasons
    assert watcher.state().failed_tasks == failed
