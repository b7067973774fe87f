"""States of a driver, made up."""

from __future__ import annotations

import msgspec

from gnomon.act.spark.state import Capabilities, DriverState, ExecutorState, Hello, StageState

ALL = Capabilities(set_target=True, decommission=True, priority=True, hold=True)
HELLO = Hello("app-1", lease_s=10.0, protocol=1, capabilities=ALL, spark="4.3.0")


def stage(number: int, **changes) -> StageState:
    plain = StageState(
        stage=number, name="map", attempt=0, jobs=(0,), parents=(), tasks=10, running=0,
        finished=0, failed=0, submitted=True, done=False, skipped=False, held=False,
        hold_requested=False, schedulable=True, priority=0, mean_task_ms=0.0, timed_tasks=0, cpu_ns=0,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)


def state(*stages: StageState, **changes) -> DriverState:
    plain = DriverState(
        application="app-1", time_ms=0, capabilities=ALL, missing={}, target=None, asked_for=None,
        executors=(ExecutorState("0", "h", 1, 0, False),), jobs=(), stages=stages, lease_s=10.0,
        lease_expiries=0, let_go=0, degraded="", finished_tasks=0, failed_tasks=0,
    )  # fmt: skip
    return msgspec.structs.replace(plain, **changes)
