"""The loop beside an application: look, decide, apply, until it ends.

Whatever happens to the agent, the application finishes by itself: what cannot be decided is given
back, and an agent that is gone is noticed by the driver, which gives everything back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from gnomon.act.process import interrupted_by_signals
from gnomon.act.spark.driver import Applied, DriverGone
from gnomon.act.spark.plan import SparkPlan
from gnomon.act.spark.state import DriverState, Hello
from gnomon.errors import ActuationError

__all__ = ["AgentRun", "Driver", "run_agent"]

#: Answers that may be missing in a row: a long collection of garbage is no end.
_MOST_SILENCES = 10
#: Looks for one plan: the first decision may take long, where something is to be loaded for it.
_MOST_LOOKS = 2


class Driver(Protocol):
    """What the loop needs of a driver."""

    hello: Hello

    def state(self) -> DriverState:
        """The application as it is now."""

    def apply(self, plan: SparkPlan) -> Applied:
        """Carries a plan out."""

    def release(self) -> None:
        """Gives everything back."""


class AgentRun(msgspec.Struct, frozen=True):
    """What an agent did.

    Attributes:
        ended: Why it ended: `application ended`, `time is up` or `stopped`.
        looks: States that it saw.
        changes: Plans that it carried out.
        undecided: Times that nothing could be decided, or not in time, and everything was given
            back.
        silences: Requests that were not answered.
    """

    ended: str
    looks: int
    changes: int
    undecided: int
    silences: int


class _Counts:
    """What happened so far."""

    def __init__(self) -> None:
        self.looks = self.changes = self.undecided = self.silences = 0
        self.silent_now = 0
        self.undecided_why = ""
        self.cannot: tuple[str, ...] = ()

    def close(self, ended: str) -> AgentRun:
        return AgentRun(ended, self.looks, self.changes, self.undecided, self.silences)


def run_agent(
    driver: Driver, decide: Callable[[DriverState, float], SparkPlan], *, period_s: float = 2.0,
    until: float | None = None, clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep, emit: Callable[[str], None] = print,
) -> AgentRun:  # fmt: skip
    """Looks at an application again and again, and does what is decided.

    Args:
        driver: The application's driver.
        decide: Answers a state and the time with what to change. When it raises, everything is
            given back, and it is asked again at the next look. It must not take half the lease:
            what it says then is of a state that is past, and it is asked again for another.
        period_s: Seconds between two looks; shorter than the lease, or all is given back between.
        until: When to end, by the clock; None goes on until the application ends.
        clock: The time now, in seconds.
        sleep: Waits seconds.
        emit: Takes one line of JSON for each change and each failure.

    Raises:
        ActuationError: The driver is there and does not answer any more.
    """
    counts = _Counts()
    _say(emit, clock(), "attached", hello=driver.hello.describe())
    try:
        with interrupted_by_signals():
            while until is None or clock() < until:
                _step(driver, decide, counts, clock, emit)
                sleep(period_s)
        ended = "time is up"
    except DriverGone as gone:
        _say(emit, clock(), "ended", why=str(gone))
        return counts.close("application ended")
    except KeyboardInterrupt:
        ended = "stopped"
    finally:
        # A driver that has gone has nothing to give back; one that is silent does it by itself.
        with contextlib.suppress(ActuationError):
            driver.release()
    _say(emit, clock(), "released", why=ended)
    return counts.close(ended)


def _step(
    driver: Driver, decide: Callable[[DriverState, float], SparkPlan], counts: _Counts,
    clock: Callable[[], float], emit: Callable[[str], None],
) -> None:  # fmt: skip
    try:
        wish = _decided_in_time(driver, decide, counts, clock, emit)
        if wish is None:
            driver.release()
        else:
            _carry_out(driver, wish, counts, clock, emit)
        counts.silent_now = 0
    except DriverGone:
        raise
    except ActuationError as silence:
        counts.silences += 1
        counts.silent_now += 1
        _say(emit, clock(), "no answer", why=str(silence))
        if counts.silent_now >= _MOST_SILENCES:
            raise


def _decided_in_time(
    driver: Driver, decide: Callable[[DriverState, float], SparkPlan], counts: _Counts,
    clock: Callable[[], float], emit: Callable[[str], None],
) -> SparkPlan | None:  # fmt: skip
    """A plan for the application as it is; None where there is none.

    A plan is what is missing of a state. When the lease has run out since, everything has been
    given back, and what the plan leaves as it was is not so any more.
    """
    for _ in range(_MOST_LOOKS):
        state = driver.state()
        counts.looks += 1
        seen = clock()
        wish = _decided(decide, state, seen, counts, emit)
        took_s = clock() - seen
        if wish is None or took_s <= state.lease_s / 2:
            return wish
        why = f"deciding took {took_s:.1f} s, of a lease of {state.lease_s:g} s"
        _say(emit, clock(), "late", why=why)
    counts.undecided += 1
    _say(emit, clock(), "released", why=f"nothing decided in time: {why}")
    return None


def _decided(
    decide: Callable[[DriverState, float], SparkPlan], state: DriverState, now: float,
    counts: _Counts, emit: Callable[[str], None],
) -> SparkPlan | None:  # fmt: skip
    """The plan; None where there is none, whatever the reason: nobody is hurt by giving back."""
    if state.degraded:
        why = f"the driver is degraded: {state.degraded}"
    else:
        try:
            plan = decide(state, now)
        except Exception as error:
            why = f"nothing decided: {type(error).__name__}: {error}"
        else:
            counts.undecided_why = ""
            return plan
    counts.undecided += 1
    if why != counts.undecided_why:  # the same again is no news
        _say(emit, now, "released", why=why)
    counts.undecided_why = why
    return None


def _carry_out(
    driver: Driver, wish: SparkPlan, counts: _Counts, clock: Callable[[], float],
    emit: Callable[[str], None],
) -> None:  # fmt: skip
    if wish.notes != counts.cannot:
        counts.cannot = wish.notes
        if wish.notes:
            _say(emit, clock(), "cannot", why="; ".join(wish.notes))
    if wish.is_empty:
        return
    applied = driver.apply(wish)
    counts.changes += 1
    _say(
        emit, clock(), "applied", plan=msgspec.to_builtins(wish, str_keys=True),
        refused=applied.refused,
    )  # fmt: skip


def _say(emit: Callable[[str], None], now: float, event: str, **more: object) -> None:
    emit(msgspec.json.encode({"time": now, "event": event, **more}).decode())
