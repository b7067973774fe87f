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
    from gnomon.systems.batch.live.rule import LiveRule

__all__ = ["spark_agent", "spark_conf"]

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
        lease: Everything is given back when the agent is not heard for so long.
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
    --apply`. Without --apply it only says what it would do. With it, one line of JSON a change
    goes to stdout. If it dies, or the grid is not known, Spark goes on as if it had never been
    there.

    Args:
        policy: cap:..., pcaps:..., pcaps+:..., suspend:..., guard:... around them.
        zone: The grid: DE, CAISO ...
        handshake: The file that the application's driver writes (`gnomon batch spark-conf`).
        executors: The most that the application may have; cap needs it, with Kubernetes too.
        drivers: With --kubernetes, pods of the namespace that are no executors.
        signal: A file of hours to come, or past ones to forecast from.
        provider: A live forecast: electricitymaps, watttime, uk, carbon-aware-sdk.
        scope: Life-cycle or direct intensity of the zone.
        hour: How long an hour of the grid takes: 1h; less plays a signal faster.
        start: With --signal, the time in it to start at; its begin unless given, where --hour
            is not an hour.
        period: Time between two looks, such as 5s.
        for: End after so long; with the application unless given.
        wait: How long to wait for the handshake.
        apply: Do it, and not only say it.
        kubernetes: NAMESPACE/NAME of a ResourceQuota whose pods follow CAP, in place of a driver.
    """
    from gnomon.systems.batch.live.rule import LiveRule
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
            LiveRule(policy, grid, executors), kubernetes, drivers, period_s, until, apply=apply
        )
    if handshake is None:
        raise InputError(
            "--handshake: which application?", hint="gnomon batch spark-conf --handshake FILE"
        )
    rule = LiveRule(policy, grid, executors)
    return _on_spark(rule, handshake, parse_duration(wait) / 1e9, period_s, until, apply=apply)


def _on_spark(
    rule: LiveRule, handshake: Path, wait_s: float, period_s: float, until: float | None, *,
    apply: bool,
) -> int:  # fmt: skip
    from gnomon.act.spark import DriverGone, SparkDriver, run_agent

    try:
        attached = SparkDriver.connect(handshake, wait_s=wait_s, watch=not apply)
    except DriverGone as error:
        hint = "has the application ended? A later one writes the file anew"
        raise InputError(str(error), where=str(handshake), hint=hint) from None
    with attached as driver:
        if period_s > driver.hello.lease_s / 2:
            raise InputError(
                f"--period {period_s:g}s: the driver gives all back after "
                f"{driver.hello.lease_s:g}s of silence", hint="look at least twice in that time",
            )  # fmt: skip
        print(f"gnomon: {driver.hello.describe()}; {rule.describe()}", file=sys.stderr)
        if not apply:
            print("gnomon: only saying what would be done; --apply does it", file=sys.stderr)
            return _only_say(driver, rule, period_s, until)
        run = run_agent(driver, rule, period_s=period_s, until=until, tell=_tell)
    told = f"{run.ended}; {run.looks} looks, {run.changes} changes"
    if run.undecided:
        told += f", {run.undecided} times everything was given back"
    print(f"gnomon: {told}", file=sys.stderr)
    return 0


def _only_say(driver: SparkDriver, rule: LiveRule, period_s: float, until: float | None) -> int:
    """Looks on: what the rule would do, told when it changes."""
    from gnomon.act.spark import DriverGone

    last = ""
    while until is None or time.time() < until:
        try:
            state: DriverState = driver.state()
        except DriverGone:
            break
        try:
            wish: SparkPlan = rule(state, time.time())
            text = wish.describe()
        except InputError as error:
            text = f"everything stays with Spark: {error}"
        if text != last:
            print(text, flush=True)
            last = text
        time.sleep(period_s)
    return 0


def _on_kubernetes(
    rule: LiveRule, place: str, drivers: int, period_s: float, until: float | None, *, apply: bool
) -> int:
    """CAP as a limit on pods: what runs runs on, and no more start."""
    from gnomon.act.kubernetes import find_cluster, quota_patch
    from gnomon.act.process import interrupted_by_signals
    from gnomon.errors import ActuationError

    namespace, _, name = place.partition("/")
    if not name:
        raise InputError(f"--kubernetes {place}: write NAMESPACE/NAME")
    if drivers < 0:
        raise InputError(f"--drivers {drivers}: zero or more")
    # Refused before anything is set: names, a policy that is no quota, no way to a cluster.
    quota_patch(namespace, name, pods=drivers)
    rule.pods(time.time())
    if apply:
        find_cluster()
    else:
        print("gnomon: only saying what would be done; --apply does it", file=sys.stderr)
    limit, refused = _PodLimit(apply), None
    try:
        with interrupted_by_signals():
            while until is None or time.time() < until:
                try:
                    pods, why = rule.pods(time.time())
                    limit.set(quota_patch(namespace, name, pods=pods + drivers, reason=why))
                except InputError as error:  # the grid is not known: as if nobody had been there
                    print(f"gnomon: {error}", file=sys.stderr)
                    limit.give_back()
                except ActuationError as error:
                    refused = error
                    print(f"gnomon: not set, tried again: {error}", file=sys.stderr)
                time.sleep(period_s)
    except KeyboardInterrupt:
        pass
    finally:
        limit.give_back()
    if refused is not None and not limit.was_set:
        raise refused
    return 0


class _PodLimit:
    """A quota that is set when it changes, and given back as it was found."""

    def __init__(self, apply: bool) -> None:
        from gnomon.act.held_quota import HeldQuota

        self._held = HeldQuota() if apply else None
        self._said = ""
        self.was_set = False

    def set(self, wish: QuotaPlan) -> None:
        if (text := wish.describe()) == self._said:
            return
        if self._held is None:
            print(text, flush=True)
        else:
            self._held.set(wish)
            self.was_set = True
            _tell_quota("applied", wish)
        self._said = text

    def give_back(self) -> None:
        from gnomon.errors import ActuationError

        self._said = ""
        if self._held is None:
            return
        try:
            if given := self._held.give_back():
                _tell_quota("given back", given)
        except ActuationError as error:
            print(f"gnomon: the quota was not given back: {error}", file=sys.stderr)


def _tell_quota(event: str, plan: QuotaPlan) -> None:
    line = {"event": event, "quota": f"{plan.namespace}/{plan.name}", "hard": plan.hard,
            "reason": plan.reason}  # fmt: skip
    _tell(json.dumps(line))


def _grid(
    zone: str | None, signal: Path | None, provider: str | None,
    scope: Literal["lifecycle", "direct"], hour_s: float, start: str | None,
) -> LiveGrid:  # fmt: skip
    """Where the grid's hours come from, asked for again as they grow old."""
    from gnomon.ingest.intensity.grid import read_grid_file
    from gnomon.ingest.intensity.live import provider as known_provider
    from gnomon.ingest.intensity.outlook import Outlook, expected_grid, file_outlook, live_outlook
    from gnomon.ingest.moment import parse_instant
    from gnomon.systems.batch.live.grid import LiveGrid

    check_input(signal, "batch spark-agent --signal")
    if hour_s <= 0:
        raise InputError("--hour: an hour of the grid takes time")
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


def _tell(line: str) -> None:
    print(line, flush=True)
