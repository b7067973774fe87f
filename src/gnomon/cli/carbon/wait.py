"""gnomon carbon wait: start a command when the grid is cleanest."""

from __future__ import annotations

import json as encoder
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gnomon.errors import InputError
from gnomon.ingest.formats import check_input
from gnomon.units import HOUR_NS

if TYPE_CHECKING:
    from gnomon.act.process import Ran
    from gnomon.ingest.intensity.outlook import Outlook
    from gnomon.systems.carbon.wait import WaitPlan


def wait(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    zone: str | None = None,
    within: str | None = None,
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    watts: float | None = None,
    signal: Path | None = None,
    provider: str | None = None,
    scope: Literal["lifecycle", "direct"] = "lifecycle",
    plan: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Start a command at the cleanest time before a deadline, and say what that saved.

    `gnomon carbon wait --zone DE --within 12h --for 2h -- python train.py`. Its exit code is the
    command's. Where nothing is known of the hours to come, the command starts at once.

    Args:
        command: What to run, after `--`.
        zone: The grid: DE, SE, CAISO ...
        within: How long from now until the command has to be done: 12h, 90min.
        for_: How long the command takes: 2h, 45min.
        watts: What it draws, for grams.
        signal: A file of grid intensity: hours to come, or past ones to forecast from.
        provider: A live forecast: electricitymaps, watttime, uk, carbon-aware-sdk. Keys come from
            the environment.
        scope: Life-cycle or direct intensity of the zone.
        plan: Only say when it would start.
        json: Print what is expected and what was saved as JSON.
    """
    from gnomon.act.process import run_command, sleep_until
    from gnomon.systems.carbon.wait import plan_wait
    from gnomon.units import format_duration, parse_duration

    check_input(signal, "carbon wait --signal")
    if not command and not plan:
        raise InputError("which command? Give it after --", hint="or --plan to print the time")
    if within is None or for_ is None:
        raise InputError("--within and --for: by when, and how long does it take?")
    if zone is None and signal is None:
        raise InputError("--zone: which grid?", hint="a name such as DE, or --signal FILE")
    if watts is not None and not 0 <= watts < 1e9:
        raise InputError(f"--watts {watts:g}: it has to be zero or more")
    within_ns, length_ns = parse_duration(within), parse_duration(for_)
    now = time.time_ns()
    outlook = _outlook(zone, now, now + within_ns + HOUR_NS, signal, provider, scope)
    chosen = plan_wait(outlook, now, within_ns=within_ns, length_ns=length_ns)
    if plan:
        (_say if json else print)(chosen.describe(watts))  # it is the answer
    summary: dict[str, Any] = {
        "start_s": chosen.start_ns / 1e9,
        "delay_s": chosen.delay_ns / 1e9,
        "expected_saved_pct": chosen.saved_pct,
        "at_once_g_kwh": chosen.at_once.mid if chosen.at_once else None,
        "then_g_kwh": chosen.then.mid if chosen.then else None,
        "basis": chosen.basis,
    }
    code = 0
    if not plan:
        try:
            _say(chosen.describe(watts))
            sleep_until(
                chosen.start_ns, on_wake=lambda left: _progress(f"{format_duration(left)} to wait")
            )
        except KeyboardInterrupt:
            _say("stopped while waiting; the command was not started")
            return 130
        ran = run_command(command)
        code = ran.code
        summary |= _saved(chosen, outlook, ran, watts, provider, zone, scope)
        summary |= {"ran_s": (ran.end_ns - ran.start_ns) / 1e9, "exit_code": code}
    if json:
        print(encoder.dumps(summary))
    return code


def _saved(
    plan: WaitPlan, outlook: Outlook, ran: Ran, watts: float | None, provider: str | None,
    zone: str | None, scope: Literal["lifecycle", "direct"],
) -> dict[str, Any]:  # fmt: skip
    """What starting later saved: as the service has measured it since, else by the forecast."""
    from gnomon.ingest.intensity.outlook import live_history
    from gnomon.systems.carbon.wait import saved_by

    if outlook.signal is None:
        return {}
    passed = None
    if provider is not None and zone is not None:
        later_ns = max(ran.end_ns, plan.now_ns + ran.end_ns - ran.start_ns)
        passed = live_history(provider, zone, plan.now_ns, later_ns, scope=scope)
    saved = saved_by(
        plan, passed or outlook.signal, ran.start_ns, ran.end_ns, watts=watts,
        measured=passed is not None,
    )  # fmt: skip
    if saved is None:
        _say("it ran beyond the hours that were forecast: what it saved is not known")
        return {}
    _say(saved.describe())
    return {
        "saved_pct": saved.saved_pct, "saved_g": saved.saved_g, "saved_measured": saved.measured,
    }  # fmt: skip


def _outlook(
    zone: str | None, start_ns: int, end_ns: int, signal: Path | None, provider: str | None,
    scope: Literal["lifecycle", "direct"],
) -> Outlook:  # fmt: skip
    """What is known of the hours to come, or why nothing is: a failing forecast is no reason."""
    from gnomon.ingest.intensity.outlook import expected_grid, file_outlook, live_outlook

    if signal is not None:
        return file_outlook(signal, start_ns, end_ns, zone=zone, scope=scope)
    assert zone is not None
    if provider is not None:
        return live_outlook(provider, zone, start_ns, end_ns, scope=scope)
    return expected_grid(zone, start_ns, end_ns, scope=scope)


def _say(text: str) -> None:
    _progress("")
    print(f"gnomon: {text}", file=sys.stderr, flush=True)


def _progress(text: str) -> None:
    """One line that is written over, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
