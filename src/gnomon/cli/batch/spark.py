"""gnomon batch spark-agent and spark-conf: a policy beside a real Spark."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from gnomon.errors import InputError
from gnomon.ingest.formats import check_input
from gnomon.units import HOUR_NS

if TYPE_CHECKING:
    from gnomon.act.kubernetes import QuotaPlan
    from gnomon.act.spark import DriverState, SparkDriver, SparkPlan
    from gnomon.ingest.intensity.outlook import Outlook
    from gnomon.systems.batch.live.grid import LiveGrid
    from gnomon.systems.batch.live.policy import LivePolicy

_Flag = Annotated[bool, Parameter(negative=())]


def spark_conf(
    *,
    handshake: Path,
    lease: str = "10s",
    decommission: Annotated[bool, Parameter(negative="--no-decommission")] = True,
    spark_home: Path | None = None,
    properties: _Flag = False,
) -> None:
    """Print the settings that let `gnomon batch spark-agent` attach to an application.

    `spark-submit $(gnomon batch spark-conf --handshake /run/app.json) job.py`. A small jar is
    compiled for the Spark that is installed, and kept.

    Args:
        handshake: A file that the driver will write its port and a secret into.
        lease: After that long without a heartbeat of the agent everything is released.
        decommission: Executors above a quota leave once their tasks are done.
        spark_home: Where Spark is; PySpark's own, or SPARK_HOME, unless given.
        properties: As lines of spark-defaults.conf in place of options.
    """
    from gnomon.act.spark import build_plugin
    from gnomon.act.spark import spark_conf as settings
    from gnomon.units import parse_duration

    if not handshake.name or any(c.isspace() for c in str(handshake)):
        raise InputError(f"--handshake {str(handshake)!r}: a file, without spaces in its path")
    plugin = build_plugin(spark_home)
    conf = settings(
        handshake=handshake, plugin=plugin, lease_s=parse_duration(lease) / 1e9,
        decommission=decommission,
    )  # fmt: skip
    for name, value in conf.items():
        print(f"{name} {value}" if properties else f"--conf {name}={value}")


def spark_agent(
    *,
    policy: str = "cap:fifo",
    zone: str | None = None,
    handshake: Path | None = None,
    executors: int | None = None,
    drivers: int = 1,
    signal: Path | None = None,
    provider: str | None = None,
    scope: Literal["lifecycle", "direct"] = "lifecycle",
    hour: str = "1h",
    start: str | None = None,
    period: str = "5s",
    for_: Annotated[str | None, Parameter(name="--for")] = None,
    wait: str = "60s",
    apply: _Flag = False,
    kubernetes: str | None = None,
) -> int:
    """Run a policy beside a Spark application: executors and stages follow the grid.

    `gnomon batch spark-agent --policy cap:fifo --zone DE --handshake /run/app.json --executors 8
    --apply`. Without --apply it only prints what it would do. With it, each change is a line of
    JSON on stdout. If it dies, or the grid is not known, Spark goes on as if it had never been
    there.

    Args:
        policy: cap:..., pcaps:..., pcaps+:..., suspend:..., guard:... around them.
        zone: The grid: DE, CAISO ...
        handshake: The file that the application's driver writes (`gnomon batch spark-conf`).
        executors: The maximum for the application; cap needs it, with Kubernetes too.
        drivers: With --kubernetes, other pods in the namespace.
        signal: A file with a forecast, or with past hours to forecast from.
        provider: A live forecast: electricitymaps, watttime, uk, carbon-aware-sdk.
        scope: Life-cycle or direct intensity of the zone.
        hour: How long an hour of the grid takes: 1h; less plays a signal faster.
        start: With --signal, the time in it to start at; where --hour is not 1h, its first hour
            unless given.
        period: Time between two looks, such as 5s.
        for: End after so long; with the application unless given.
        wait: How long to wait for the handshake.
        apply: Apply it; otherwise only print it.
        kubernetes: NAMESPACE/NAME of a ResourceQuota whose pods follow CAP, in place of a driver.
    """
    from gnomon.systems.batch.live.policy import LivePolicy
    from gnomon.units import parse_duration

    if zone is None and signal is None:
        raise InputError("--zone: which grid?", hint="a name such as DE, or --signal FILE")
    grid = _grid(zone, signal, provider, scope, parse_duration(hour) / 1e9, start)
    period_s = parse_duration(period) / 1e9
    if period_s <= 0:
        raise InputError(f"--period {period}: more than nothing")
    until = None if for_ is None else time.time() + parse_duration(for_) / 1e9
    if kubernetes is not None:
        if handshake is not None:
            raise InputError("--handshake and --kubernetes: one of them")
        if executors is None:
            raise InputError("--executors: how many pods at most?")
        return _on_kubernetes(
            LivePolicy(policy, grid, executors), kubernetes, drivers, period_s, until, apply=apply
        )
    if handshake is None:
        raise InputError(
            "--handshake: which application?", hint="gnomon batch spark-conf --handshake FILE"
        )
    live = LivePolicy(policy, grid, executors)
    return _on_spark(live, handshake, parse_duration(wait) / 1e9, period_s, until, apply=apply)


def _on_spark(
    policy: LivePolicy, handshake: Path, wait_s: float, period_s: float, until: float | None, *,
    apply: bool,
) -> int:  # fmt: skip
    from gnomon.act.spark import DriverGone, SparkDriver, run_agent
    from gnomon.systems.batch.live.policy import DRY_RUN

    try:
        attached = SparkDriver.connect(handshake, wait_s=wait_s, watch=not apply)
    except DriverGone as error:
        hint = "has the application ended? The next one writes the file again"
        raise InputError(str(error), where=str(handshake), hint=hint) from None
    with attached as driver:
        if period_s > driver.hello.lease_s / 2:
            raise InputError(
                f"--period {period_s:g}s: the driver releases everything after "
                f"{driver.hello.lease_s:g}s without a heartbeat", hint="at most half of that",
            )  # fmt: skip
        _log(f"{driver.hello.describe()}; {policy.describe()}")
        if not apply:
            _log(DRY_RUN)
            return _dry_run(driver, policy, period_s, until)
        run = run_agent(driver, policy, period_s=period_s, until=until, emit=_print_line)
    summary = f"{run.ended}; {run.looks} looks, {run.changes} changes"
    if run.undecided:
        summary += f", {run.undecided} times everything was released"
    _log(summary)
    return 0


def _dry_run(driver: SparkDriver, policy: LivePolicy, period_s: float, until: float | None) -> int:
    """What the policy would do, printed when it changes."""
    from gnomon.act.spark import DriverGone

    last = ""
    while until is None or time.time() < until:
        try:
            state: DriverState = driver.state()
        except DriverGone:
            break
        try:
            planned: SparkPlan = policy(state, time.time())
            text = planned.describe()
        except InputError as error:
            text = f"everything released: {error}"
        if text != last:
            print(text, flush=True)
            last = text
        time.sleep(period_s)
    return 0


def _on_kubernetes(
    policy: LivePolicy, place: str, drivers: int, period_s: float, until: float | None, *,
    apply: bool,
) -> int:  # fmt: skip
    from gnomon.systems.batch.live.pods import limit_pods

    namespace, _, name = place.partition("/")
    if not name:
        raise InputError(f"--kubernetes {place}: write NAMESPACE/NAME")
    if drivers < 0:
        raise InputError(f"--drivers {drivers}: zero or more")
    limit_pods(
        policy, namespace, name, drivers=drivers, period_s=period_s, until=until, apply=apply,
        on_change=_print_quota, log=_log,
    )  # fmt: skip
    return 0


def _print_quota(event: str, plan: QuotaPlan) -> None:
    if event == "planned":
        print(plan.describe(), flush=True)
        return
    line = {"event": event, "quota": f"{plan.namespace}/{plan.name}", "hard": plan.hard,
            "reason": plan.reason}  # fmt: skip
    _print_line(json.dumps(line))


def _grid(
    zone: str | None, signal: Path | None, provider: str | None,
    scope: Literal["lifecycle", "direct"], hour_s: float, start: str | None,
) -> LiveGrid:  # fmt: skip
    """The source of the grid's hours."""
    from gnomon.ingest.intensity.grid import read_grid_file
    from gnomon.ingest.intensity.live import provider as known_provider
    from gnomon.ingest.intensity.outlook import Outlook, expected_grid, file_outlook, live_outlook
    from gnomon.ingest.moment import parse_instant
    from gnomon.systems.batch.live.grid import LiveGrid

    check_input(signal, "batch spark-agent --signal")
    if hour_s <= 0:
        raise InputError("--hour: more than nothing")
    start_ns: int | None = parse_instant(start) if start is not None else None
    if signal is not None and (hour_s != 3600.0 or start_ns is not None):
        line, _ = read_grid_file(signal, zone=zone, scope=scope)
        begin = line.start_ns if start_ns is None else start_ns
        played = Outlook(line, f"hours of {signal.name}, played")
        return LiveGrid(lambda a, b: played, hour_s=hour_s, start_ns=begin)

    def ask(start_ns: int, end_ns: int) -> Outlook:
        if signal is not None:
            return file_outlook(signal, start_ns, end_ns, zone=zone, scope=scope)
        assert zone is not None
        if provider is not None:
            return live_outlook(provider, zone, start_ns, end_ns, scope=scope)
        return expected_grid(zone, start_ns, end_ns, scope=scope)

    if signal is not None:
        read_grid_file(signal, zone=zone, scope=scope)
    elif provider is not None:
        known_provider(provider, scope=scope)  # whether it answers is seen at each look
    else:
        ask(0, HOUR_NS)
    return LiveGrid(ask, hour_s=hour_s, start_ns=start_ns)


def _print_line(line: str) -> None:
    print(line, flush=True)


def _log(text: str) -> None:
    print(f"gnomon: {text}", file=sys.stderr)
