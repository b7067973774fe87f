"""The loop beside an application: observe, decide, apply, until it ends.

Whatever happens to the agent, the application finishes by itself. Without a decision everything is
released, and the driver releases everything when the agent's lease runs out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from gnomon.act.process import interrupted_by_signals
from gnomon.act.spark.driver import DriverGone, SparkDriver
from gnomon.act.spark.plan import SparkPlan
from gnomon.act.spark.state import DriverState
from gnomon.errors import ActuationError

#: Timeouts in a row that are tolerated: a long garbage collection is no end.
_MAX_TIMEOUTS = 10
#: Looks for one plan: the first decision may take long, where something has to be loaded for it.
_MAX_LOOKS = 2

Decide: TypeAlias = Callable[[DriverState, float], SparkPlan]


class AgentRun(msgspec.Struct):
    """What an agent did.

    Attributes:
        ended: Why it ended: `application ended`, `time is up` or `stopped`.
        looks: States that it read.
        changes: Plans that it applied.
        undecided: Times without a decision, or without one in time: everything was released.
        timeouts: Requests without an answer.
    """

    ended: str = ""
    looks: int = 0
    changes: int = 0
    undecided: int = 0
    timeouts: int = 0


def run_agent(
    driver: SparkDriver, decide: Decide, *, period_s: float = 2.0, until: float | None = None,
    clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
    emit: Callable[[str], None] = print,
) -> AgentRun:  # fmt: skip
    """Observes an application again and again, and applies what is decided.

    Args:
        driver: The application's driver.
        decide: Maps a state and the time to what to change. When it raises, everything is
            released until the next look. It must not take half the lease: its plan would be for a
            state that is past, and it is called again with a new one.
        period_s: Seconds between two looks; shorter than the lease, or all is released between.
        until: When to end, by the clock; None goes on until the application ends.
        clock: The time now, in seconds.
        sleep: Waits seconds.
        emit: Takes one line of JSON for each change and each failure.

    Raises:
        ActuationError: The driver is there and does not answer any more.
    """
    agent = _Agent(driver, decide, clock, emit)
    run = agent.run
    agent.log("attached", hello=driver.hello.describe())
    try:
        with interrupted_by_signals():
            while until is None or clock() < until:
                agent.step()
                sleep(period_s)
        run.ended = "time is up"
    except DriverGone as gone:
        run.ended = "application ended"
        agent.log("ended", why=str(gone))
        return run
    except KeyboardInterrupt:
        run.ended = "stopped"
    finally:
        # A driver that is gone has nothing to release; one that hangs releases by itself.
        with contextlib.suppress(ActuationError):
            driver.release()
    agent.log("released", why=run.ended)
    return run


class _Agent:
    """One look after the other, and what was logged last."""

    def __init__(
        self, driver: SparkDriver, decide: Decide, clock: Callable[[], float],
        emit: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._driver, self._decide, self._clock, self._emit = driver, decide, clock, emit
        self.run = AgentRun()
        self._timeouts_in_a_row = 0
        self._last_why = ""
        self._last_notes: tuple[str, ...] = ()

    def log(self, event: str, **more: object) -> None:
        """Emits a line of JSON."""
        self._emit(msgspec.json.encode({"time": self._clock(), "event": event, **more}).decode())

    def step(self) -> None:
        """One look, one decision, one change."""
        try:
            plan = self._plan_in_time()
            if plan is None:
                self._driver.release()
            else:
                self._apply(plan)
            self._timeouts_in_a_row = 0
        except DriverGone:
            raise
        except ActuationError as timeout:
            self.run.timeouts += 1
            self._timeouts_in_a_row += 1
            self.log("timeout", why=str(timeout))
            if self._timeouts_in_a_row >= _MAX_TIMEOUTS:
                raise

    def _plan_in_time(self) -> SparkPlan | None:
        """A plan for the application as it is now; None where there is none.

        A plan is the difference to a state. If the lease has run out since, everything was
        released, and what the plan leaves unchanged is no longer so.
        """
        for _ in range(_MAX_LOOKS):
            state = self._driver.state()
            self.run.looks += 1
            began = self._clock()
            plan = self._plan(state, began)
            took_s = self._clock() - began
            if plan is None or took_s <= state.lease_s / 2:
                return plan
            why = f"deciding took {took_s:.1f} s, of a lease of {state.lease_s:g} s"
            self.log("late", why=why)
        self.run.undecided += 1
        self.log("released", why=f"nothing decided in time: {why}")
        return None

    def _plan(self, state: DriverState, now: float) -> SparkPlan | None:
        """The plan; None where there is none, whatever the reason: releasing is always safe."""
        if state.degraded:
            why = f"the driver is degraded: {state.degraded}"
        else:
            try:
                plan = self._decide(state, now)
            except Exception as error:
                why = f"nothing decided: {type(error).__name__}: {error}"
            else:
                self._last_why = ""
                return plan
        self.run.undecided += 1
        if why != self._last_why:  # each reason once
            self.log("released", why=why)
        self._last_why = why
        return None

    def _apply(self, plan: SparkPlan) -> None:
        if plan.notes != self._last_notes:
            self._last_notes = plan.notes
            if plan.notes:
                self.log("unsupported", why="; ".join(plan.notes))
        if plan.is_empty:
            return
        applied = self._driver.apply(plan)
        self.run.changes += 1
        changes = msgspec.to_builtins(plan, str_keys=True)
        self.log("applied", plan=changes, refused=applied.refused)
