"""Wait: the best time to start something before a deadline, and what starting then saved.

As in Let's Wait Awhile (Wiesner et al., Middleware 2021), work that need not be done at once is
started where a forecast has the cleanest stretch. A missing forecast starts it at once: waiting
without knowing why saves nothing.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, ParamSpec, TypeVar

import msgspec

from gnomon.act.process import sleep_until
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.ingest.intensity.outlook import Outlook, expected_grid
from gnomon.series import Signal
from gnomon.sim.placement import cleanest_starts
from gnomon.units import HOUR_NS, format_duration, parse, parse_duration

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WaitPlan(msgspec.Struct, frozen=True):
    """When to start.

    Attributes:
        at_once: g/kWh on average, started now.
        then: The same, started then.
    """

    now_ns: int
    start_ns: int
    length_ns: int
    deadline_ns: int
    at_once: Estimate | None
    then: Estimate | None
    basis: str

    @property
    def delay_ns(self) -> int:
        return self.start_ns - self.now_ns

    @property
    def saved_pct(self) -> float:
        if self.at_once is None or self.then is None or self.at_once.mid <= 0:
            return 0.0
        return 100.0 * (1.0 - self.then.mid / self.at_once.mid)

    def describe(self, watts: float | None = None) -> str:
        if self.at_once is None or self.then is None:
            return f"starting at once: {self.basis}"
        if self.delay_ns == 0:
            return (
                f"starting at once: no start before the deadline is cleaner than now "
                f"({self.at_once.mid:.0f} g/kWh; {self.basis})"
            )
        moment = datetime.fromtimestamp(self.start_ns // 10**9, UTC)
        text = (
            f"starting at {moment:%Y-%m-%d %H:%M:%S} UTC, in {format_duration(self.delay_ns)}: "
            f"{self.then.mid:.0f} "
            f"({self.then.low:.0f} to {self.then.high:.0f}) instead of {self.at_once.mid:.0f} "
            f"g/kWh, {self.saved_pct:.0f} % less; {self.basis}"
        )
        if watts is not None:
            grams = watts / 1e3 * self.length_ns / HOUR_NS * (self.at_once.mid - self.then.mid)
            text += f"; {grams:.0f} g at {watts:g} W"
        return text


class Saved(msgspec.Struct, frozen=True):
    """What starting later saved.

    Attributes:
        at_once: g/kWh on average, over as long from when it was asked.
        then: The same while it ran.
        saved_pct: In per cent of starting at once.
        saved_g: Where power is known.
        measured: Whether hours that have passed are behind it, or the forecast still.
    """

    at_once: float
    then: float
    saved_pct: float
    saved_g: float | None
    measured: bool

    def describe(self) -> str:
        behind = "as measured" if self.measured else "by the forecast"
        grams = f", {self.saved_g:.0f} g" if self.saved_g is not None else ""
        return (
            f"ran at {self.then:.0f} g/kWh, {self.at_once:.0f} had it started at once: "
            f"{self.saved_pct:.0f} % saved{grams} ({behind})"
        )


def plan_wait(outlook: Outlook, now_ns: int, *, within_ns: int, length_ns: int) -> WaitPlan:
    """The cleanest start of work that has to be done `within_ns` from now."""
    if length_ns <= 0:
        raise InputError("how long does it take? It has to be more than nothing")
    if length_ns > within_ns:
        raise InputError(
            f"{format_duration(length_ns)} of work do not fit into {format_duration(within_ns)}",
            hint="more time, or less work",
        )
    deadline = now_ns + within_ns
    unknown = WaitPlan(now_ns, now_ns, length_ns, deadline, None, None, outlook.basis)
    signal = outlook.signal
    if signal is None:
        return unknown
    if signal.start_ns > now_ns or signal.end_ns < now_ns + length_ns or signal.gaps():
        lacking = "the forecast does not cover the hours to come"
        return msgspec.structs.replace(unknown, basis=f"{lacking} ({outlook.basis})")
    latest = min(deadline, signal.end_ns) - length_ns
    start = int(cleanest_starts(signal, [now_ns], [latest], [length_ns])[0])
    return WaitPlan(
        now_ns, start, length_ns, deadline, _mean(signal, now_ns, length_ns),
        _mean(signal, start, length_ns), outlook.basis,
    )  # fmt: skip


def _mean(signal: Signal, start_ns: int, length_ns: int) -> Estimate:
    seconds = length_ns / 1e9
    unit = signal.unit * parse("s")
    area = signal.integrate_estimate(start_ns, start_ns + length_ns, unit=unit)
    return area * (1.0 / seconds)


def saved_by(
    plan: WaitPlan, signal: Signal, start_ns: int, end_ns: int, *, watts: float | None = None,
    measured: bool = False,
) -> Saved | None:  # fmt: skip
    """What a run saved against one of the same length from the time it was asked for.

    None where the signal does not cover both.
    """
    length = max(end_ns - start_ns, 1)
    covered = (
        signal.start_ns <= plan.now_ns
        and max(end_ns, plan.now_ns + length) <= signal.end_ns
        and not signal.gaps()
    )
    if not covered:
        return None
    at_once = signal.mean(plan.now_ns, plan.now_ns + length)
    then = signal.mean(start_ns, start_ns + length)
    kwh = None if watts is None else watts / 1e3 * length / HOUR_NS
    return Saved(
        at_once, then, 100.0 * (1.0 - then / at_once) if at_once > 0 else 0.0,
        None if kwh is None else kwh * (at_once - then), measured,
    )  # fmt: skip


def start_clean(
    zone: str, *, within: str, length: str, scope: Literal["lifecycle", "direct"] = "lifecycle",
    outlook: Callable[[int, int], Outlook] | None = None, now_ns: Callable[[], int] = time.time_ns,
    sleep: Callable[[float], None] = time.sleep, log: Callable[[str], None] | None = None,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:  # fmt: skip
    """A decorator: each call of the function waits for its cleanest start.

    Args:
        within: How long from the call until all has to be done, as '12h'.
        outlook: A forecast between two times, in place of the zone's usual hours. Where it
            fails, the function starts at once.
        log: Notified of what is expected and then of what was saved; stderr unless given.

    >>> @start_clean("DE", within="3h", length="1h", sleep=lambda s: None, log=lambda text: None,
    ...              now_ns=iter(range(0, 10**15, 10**13)).__next__)
    ... def train():
    ...     return "trained"
    >>> train()
    'trained'
    """
    within_ns, length_ns = parse_duration(within), parse_duration(length)
    say = log or (lambda text: print(f"gnomon: {text}", file=sys.stderr))

    def ask(start_ns: int, end_ns: int) -> Outlook:
        if outlook is None:
            return expected_grid(zone, start_ns, end_ns, scope=scope)
        try:
            return outlook(start_ns, end_ns)
        except Exception as error:  # a forecast that fails must not keep work from being done
            return Outlook(None, f"no forecast: {error}")

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def later(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            now = now_ns()
            expected = ask(now, now + within_ns + HOUR_NS)
            plan = plan_wait(expected, now, within_ns=within_ns, length_ns=length_ns)
            say(plan.describe())
            sleep_until(plan.start_ns, now_ns=now_ns, sleep=sleep)
            began = now_ns()
            answer = function(*args, **kwargs)
            if expected.signal is not None:
                saved = saved_by(plan, expected.signal, began, now_ns())
                if saved is not None:
                    say(saved.describe())
            return answer

        return later

    return decorate
