"""A clone beside its original, on settings that it was tuned to and on others."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gnomon.errors import GnomonError, InputError
from gnomon.systems.clone.bundle import Bundle, make_bundle
from gnomon.systems.clone.calls import WAITS, Calls, count_calls
from gnomon.systems.clone.client import Load
from gnomon.systems.clone.counters import why_no_counters
from gnomon.systems.clone.judge import HELD_OUT, Caches, Counts, judge, machine_caches
from gnomon.systems.clone.launch import fill, find_port, naming
from gnomon.systems.clone.native import take_turns
from gnomon.systems.clone.profile import Progress, record
from gnomon.systems.clone.tune import build, mix_distance

#: Calls that are made less often a request are left out.
_RARE = 0.05
#: In the simulator, too: with fewer requests some services have less data to look at.
_PROFILED_REQUESTS = 8000
_SIMULATED_RUNS = 3  # of the original


class Row(msgspec.Struct, frozen=True):
    """One metric of both at one setting; every value is of a run of its own.

    A row without values was not measured, and its setting says why.

    Attributes:
        limit_pct: That the error may have; none where the metric is there to explain others.
        slack: A difference up to which it does not matter, in the metric's unit: of two caches
            that hardly ever miss, one can miss twice as often and cost nothing.
        held_out: The clone was not tuned to this setting.

    >>> Row("instructions", "16 connections", (100.0, 104.0), (105.0,), limit_pct=2.0).error_pct
    2.9411764705882355
    """

    metric: str
    setting: str
    originals: tuple[float, ...] = ()
    clones: tuple[float, ...] = ()
    limit_pct: float | None = None
    held_out: bool = False
    slack: float = 0.0
    is_distance: bool = False

    @property
    def original(self) -> float | None:
        return statistics.median(self.originals) if self.originals else None

    @property
    def clone(self) -> float | None:
        return statistics.median(self.clones) if self.clones else None

    @property
    def error_pct(self) -> float | None:
        """Of the medians; a distance is an error by itself. None of an original that is zero."""
        if self.original is None or self.clone is None:
            return None
        if self.is_distance:
            return self.clone
        off = self.clone - self.original
        return 100.0 * off / self.original if self.original else None if off else 0.0

    @property
    def within(self) -> bool | None:
        """The limit; None where there is none, or nothing was measured."""
        if self.limit_pct is None or self.original is None or self.clone is None:
            return None
        if not self.is_distance and abs(self.clone - self.original) <= self.slack:
            return True
        return self.error_pct is not None and abs(self.error_pct) <= self.limit_pct


class _Sides(msgspec.Struct, frozen=True):
    original: str
    clone: str
    load: Load
    connections: int


def validate(
    folder: Path,
    original: str,
    load: str | None = None,
    *,
    connections: int = 16,
    runs: int = 5,
    caches: Sequence[Caches] = HELD_OUT,
    other_connections: Sequence[int] = (1, 4, 64),
    requests: int = _PROFILED_REQUESTS,
    progress: Progress = lambda _: None,
) -> list[Row]:
    """Measures a clone and its original in turns: natively, traced, simulated and profiled.

    Args:
        folder: The clone's project.
        original: The command of the service; `{port}` is filled in.
        load: As of `Load`; the project's own load generator if None.
        connections: That the clone was tuned to.
        runs: Of each, natively.
        caches: That are simulated besides this machine's.
        other_connections: That are tried in the simulator besides.
        requests: That are counted in the simulator.

    Raises:
        GnomonError: One of the two does not start or does not answer. What else cannot be
            measured gets a row that says why.
    """
    program = build(folder)
    generator = folder / "build" / "load"
    if load is None and not generator.exists():
        raise InputError("has no load generator", where=str(folder), hint="name a load: --load")
    own = f"{shlex.quote(str(generator.absolute()))} --port {{port}} --connections {{connections}}"
    own += " --requests {requests} --json"
    sent = Load(load or own)
    rated = None
    if generator.exists():
        is_own = Path(shlex.split(sent.text)[0]).absolute() == generator.absolute()
        rated = Load((sent.text if is_own else own) + " --rate {rate}")
    sides = _Sides(
        original, f"{shlex.quote(str(program.absolute()))} --port {{port}}", sent, connections
    )
    rows = _natively(sides, rated, runs, progress)
    rows += _or_why("system calls", _traced, sides, progress)
    rows += _or_why("mix and branches", _profiled, sides, progress)
    machine = machine_caches()
    settings = [(machine, connections), *((one, connections) for one in caches),
                *((machine, one) for one in other_connections if one != connections)]  # fmt: skip
    for one, count in settings:
        name = f"caches {one.name}, {_connections(count)}"
        held_out = (one, count) != settings[0]
        progress(f"simulated: {name}")
        rows += _or_why("counts", _simulated, sides, one, count, requests, name, held_out)
    return rows


def _connections(count: int) -> str:
    return f"{count} connection{'s' if count > 1 else ''}"


def _or_why(what: str, measure: Callable[..., list[Row]], *given: object) -> list[Row]:
    try:
        return measure(*given)
    except GnomonError as error:
        return [Row(what, f"not measured: {error}")]


def _natively(sides: _Sides, rated: Load | None, runs: int, progress: Progress) -> list[Row]:
    seen = take_turns(
        sides.original, sides.clone, sides.load, rated, connections=sides.connections, runs=runs,
        progress=progress,
    )  # fmt: skip
    at = f"native, {_connections(sides.connections)}"
    below = f"native, open loop of {seen.rate:.0f} a second" if rated else f"{at}, closed loop"
    rows = []
    for metric, field, limit in (
        ("requests per second", "rps", 5.0), ("CPU time (us)", "cpu_us", 10.0),
        ("user time (us)", "user_us", None), ("system time (us)", "system_us", None),
        ("p50 (ms)", "p50_ms", 10.0), ("p99 (ms)", "p99_ms", 20.0),
        ("instructions per cycle", "ipc", None),
        ("last-level misses per 1,000 instructions", "cache_mpki", None),
    ):  # fmt: skip
        values = [[getattr(one, field) for one in runs] for runs in (seen.originals, seen.clones)]
        if None in (*values[0], *values[1]):
            why = "the load does not print it, and the clone has no load generator"
            if field in ("ipc", "cache_mpki"):
                why = why_no_counters() or "perf may not count in these processes"
            rows.append(Row(metric, f"not measured: {why}"))
        else:
            setting = below if field in ("p50_ms", "p99_ms") else at
            rows.append(Row(metric, setting, tuple(values[0]), tuple(values[1]), limit))
    return rows


def _traced(sides: _Sides, progress: Progress) -> list[Row]:
    progress("system calls")
    with naming("original"):
        originals = [
            count_calls(sides.original, sides.load, connections=sides.connections)
            for _ in range(2)
        ]
    with naming("clone"):
        clone = count_calls(sides.clone, sides.load, connections=sides.connections)
    return call_rows(originals, clone, f"traced, {_connections(sides.connections)}")


def call_rows(originals: Sequence[Calls], clone: Calls, setting: str) -> list[Row]:
    """Calls that either makes for at least one in twenty requests, and bytes.

    Calls that wait are left out: how many there are depends on how requests come together.
    """
    names = sorted(
        {name for one in (*originals, clone) for name, count in one.by_name.items()
         if count >= _RARE and name not in WAITS}
    )  # fmt: skip
    rows = [
        Row(f"calls of {name}", setting, tuple(one.by_name.get(name, 0.0) for one in originals),
            (clone.by_name.get(name, 0.0),), 1.0)
        for name in names
    ]  # fmt: skip
    for metric, field in (("bytes received", "received_bytes"), ("bytes sent", "sent_bytes")):
        values = tuple(getattr(one, field) for one in originals)
        rows.append(Row(metric, setting, values, (getattr(clone, field),), 1.0))
    return rows


def _profiled(sides: _Sides, progress: Progress) -> list[Row]:
    def observe(command: str) -> Bundle:
        port = find_port(command)
        words = sides.load.words(
            port=port, connections=sides.connections, requests=_PROFILED_REQUESTS, seconds=4
        )
        recordings, seconds = record(shlex.split(fill(command, port=port)), shlex.join(words))
        return make_bundle(recordings, seconds=seconds, with_paths=False)

    progress("profiled: the original")
    with naming("original"):
        originals = [observe(sides.original) for _ in range(2)]
    progress("profiled: the clone")
    with naming("clone"):
        clone = observe(sides.clone)
    setting = f"profiled, {_connections(sides.connections)}"
    mix, again = (mix_distance(originals[0], one) for one in (clone, originals[1]))
    return [
        Row("mix, total variation (%)", setting, (again,), (mix,), 5.0, is_distance=True),
        Row("branches taken (%)", setting, tuple(100 * one.taken for one in originals),
            (100 * clone.taken,), 5.0),
        Row("branches that change (%)", setting, tuple(100 * one.changed for one in originals),
            (100 * clone.changed,), 5.0),
        Row("wake-ups", setting, tuple(one.server.wakeups for one in originals),
            (clone.server.wakeups,)),
    ]  # fmt: skip


def _simulated(
    sides: _Sides, caches: Caches, connections: int, requests: int, setting: str, held_out: bool
) -> list[Row]:
    def counts(command: str) -> Counts:
        return judge(
            command, sides.load, caches=caches, connections=connections, requests=requests
        )

    with naming("original"):
        originals = [counts(sides.original) for _ in range(_SIMULATED_RUNS)]
    with naming("clone"):
        clone = counts(sides.clone)
    return count_rows(originals, clone, setting, held_out)


def count_rows(
    originals: Sequence[Counts], clone: Counts, setting: str, held_out: bool
) -> list[Row]:
    """Counts a request, and rates in percent."""
    misses = 20.0 if held_out else 10.0
    metrics: list[tuple[str, Callable[[Counts], float], float | None, float]] = [
        ("instructions", lambda one: one.instructions, 2.0, 0.0),
        ("loads", lambda one: one.loads, None, 0.0),
        ("stores", lambda one: one.stores, None, 0.0),
        ("conditional branches", lambda one: one.branches, 5.0, 0.0),
        ("mispredicted (%)", lambda one: one.mispredicted_pct, 10.0, 0.05),
        ("indirect mispredicted (%)", lambda one: one.indirect_mispredicted_pct, 10.0, 0.05),
        ("L1 code misses (%)", lambda one: one.l1i_miss_pct, misses, 0.05),
        ("L1 data misses (%)", lambda one: one.l1d_miss_pct, misses, 0.05),
        ("L2 misses (%)", lambda one: one.l2_miss_pct, misses, 0.01),
    ]
    return [
        Row(name, setting, tuple(of(one) for one in originals), (of(clone),), limit, held_out,
            slack)
        for name, of, limit, slack in metrics
    ]  # fmt: skip
