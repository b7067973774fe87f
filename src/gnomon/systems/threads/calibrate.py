"""What preempting costs on this machine: every source that it has, measured."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from gnomon import _core
from gnomon.errors import InputError
from gnomon.sim.cores import CoreRequests, Mechanism, Scheduling

#: SCHED_FIFO priority of measured threads: above everything that is not real time.
_PRIORITY = 10
#: A measurement of a source, and how many turns their repeats are split into.
_RUN_NS = 10_000_000
_TURNS = 3
#: Samples of lateness that are kept: quantiles of those that were measured.
_SAMPLES = 200
#: Longer ones are stalls of the machine: a burst that has one is dropped, not modelled.
STALL_NS = 300_000


#: Ranges of what a file may say, so that sums of nanoseconds fit into 63 bits.
_CostUs = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
_WholeNs = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_Ns = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_PerSecond = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class SourceCost(msgspec.Struct, frozen=True):
    """A preemption source on this machine.

    Attributes:
        what: How it works.
        is_polled: Whether functions have to poll.
        burns_core: Whether a thread of its own spins.
        why_not: Why it cannot be had; empty if it can.
        cost_us: That a worker loses each time: median of the repeats, least and greatest.
        late_us: From the end of a slice to the preemption: p50 and p99.
        per_s: Preemptions per second at the quantum.
        slowdown_pct: Of functions that poll the clock every 60 ns or so.
        late_ns: Quantiles of the lateness, for the simulator.
    """

    name: str
    what: str
    is_polled: bool
    burns_core: bool
    why_not: str = ""
    quantum_us: float = 0.0
    cost_us: _CostUs = 0.0
    cost_low_us: float = 0.0
    cost_high_us: float = 0.0
    late_p50_us: float = 0.0
    late_p99_us: float = 0.0
    per_s: float = 0.0
    slowdown_pct: float = 0.0
    late_ns: tuple[_WholeNs, ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """For the simulator."""
        return Mechanism(round(1e3 * self.cost_us), 0, self.late_ns)


class Interruptions(msgspec.Struct, frozen=True):
    """How often something else takes the core away, and for how long."""

    per_s: _PerSecond = 0.0
    length_ns: tuple[_WholeNs, ...] = ()

    def extend(self, requests: CoreRequests, seed: int = 0) -> CoreRequests:
        """Requests as long as they would be with these interruptions."""
        if self.per_s <= 0 or not self.length_ns:
            return requests
        rng = np.random.default_rng([seed, 0x1217])
        service = requests.service_ns.astype(np.float64)
        count = rng.poisson(service * self.per_s / 1e9)
        whose = np.repeat(np.arange(len(service)), count)
        longer = np.bincount(
            whose, rng.choice(np.array(self.length_ns, float), len(whose)), minlength=len(service)
        )
        return msgspec.structs.replace(requests, service_ns=(service + longer).astype(np.int64))


class Machine(msgspec.Struct, frozen=True):
    """What `gnomon threads calibrate` found.

    Attributes:
        switch_ns: From one stack to another, without preemption.
        dispatch_ns: What a worker needs to take up a request, beside the request itself.
        chosen: The source that `auto` takes for functions that poll.
        chosen_unpolled: And for those that do not.
        is_realtime: Whether threads were given SCHED_FIFO: without it figures are worse.
    """

    sources: tuple[SourceCost, ...]
    switch_ns: _Ns
    dispatch_ns: _Ns
    interruptions: Interruptions
    chosen: str
    chosen_unpolled: str
    is_realtime: bool
    cpus: int

    def source(self, name: str) -> SourceCost:
        """One that was measured; `auto` is the one chosen for functions that poll."""
        wanted = self.chosen if name == "auto" else name
        found = next((one for one in self.sources if one.name == wanted), None)
        if found is None:
            known = ", ".join(one.name for one in self.sources)
            raise InputError(f"there is no preemption source {name!r}", hint=f"auto, {known}")
        if found.why_not:
            raise InputError(f"{name}: {found.why_not}")
        return found


class Cores(msgspec.Struct, frozen=True):
    """Where measured threads run."""

    workers: tuple[int, ...]
    timer: int
    realtime: int = 0

    @classmethod
    def choose(cls, workers: int = 1) -> Cores:
        """The last cores for the workers, one before them for the timer, as far as there are any.

        Real-time priorities only where nobody is then left without a core.
        """
        mine = sorted(os.sched_getaffinity(0))
        if len(mine) <= workers:
            return cls((), -1)
        return cls(tuple(mine[-workers:]), mine[-workers - 1], _allowed_priority())

    @classmethod
    def demand(cls, workers: int) -> Cores:
        """As `choose`, with a core for each: threads that spin would take turns on fewer."""
        has = len(os.sched_getaffinity(0))
        if has <= workers:
            what = f"{workers} worker{'s' * (workers > 1)} and a timer need {workers + 1} cores"
            raise InputError(f"{what}, there {'is' if has == 1 else 'are'} {has}",
                             hint="fewer --workers" if workers > 1 else None)  # fmt: skip
        return cls.choose(workers)


def _allowed_priority() -> int:
    try:
        before = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
        os.sched_setscheduler(0, *before)
    except OSError:
        return 0
    return _PRIORITY


def source_names() -> list[str]:
    """All that the library knows, whether this machine has them or not."""
    return [str(one[0]) for one in _core.thread_sources()]


def measure_source(
    name: str, cores: Cores, *, quantum_us: float = 0.0, repeats: int = 9
) -> SourceCost:
    """Cost and lateness of one source, median of repeats."""
    return measure_sources([name], cores, quantum_us=quantum_us, repeats=repeats)[0]


def measure_sources(
    names: Sequence[str], cores: Cores, *, quantum_us: float = 0.0, repeats: int = 9
) -> tuple[SourceCost, ...]:
    """Cost and lateness of sources, medians of repeats.

    They take turns, so that a moment in which the machine is busy does not fall on one of them.
    """
    known = {str(one[0]): one for one in _core.thread_sources()}
    for name in names:
        if name not in known:
            raise InputError(f"there is no preemption source {name!r}", hint=", ".join(known))
    runs: dict[str, list[_core.Calibration]] = {name: [] for name in names}
    for turn in range(_TURNS):
        share = (repeats + turn) // _TURNS
        for name in names if share else ():
            runs[name].append(_core.calibrate_source(
                name=name, worker_cpu=cores.workers[0] if cores.workers else -1,
                timer_cpu=cores.timer, realtime=cores.realtime, quantum=round(1e3 * quantum_us),
                duration=_RUN_NS, repeats=share,
            ))  # fmt: skip
    return tuple(_cost(SourceCost(*known[name]), runs[name]) for name in names)


def _cost(plain: SourceCost, runs: Sequence[_core.Calibration]) -> SourceCost:
    if plain.why_not or plain.name == "none":
        return plain
    good = [one for one in runs if not one.why_not]
    if not good:
        return msgspec.structs.replace(plain, why_not=runs[0].why_not)
    late = np.sort(np.maximum(np.concatenate([one.late_ns for one in good]), 0))
    late = late[late < STALL_NS] if np.any(late < STALL_NS) else late
    at = np.linspace(0, len(late) - 1, min(_SAMPLES, len(late))).astype(np.int64)
    cost = np.sort(np.concatenate([one.cost_runs for one in good])) / 1e3
    return msgspec.structs.replace(
        plain, quantum_us=good[0].quantum_ns / 1e3, cost_us=max(float(np.median(cost)), 0.0),
        cost_low_us=float(cost[0]), cost_high_us=float(cost[-1]),
        late_p50_us=float(np.percentile(late, 50)) / 1e3,
        late_p99_us=float(np.percentile(late, 99)) / 1e3,
        per_s=float(np.median([one.per_s for one in good])),
        slowdown_pct=100 * float(np.median([one.slowdown for one in good])),
        late_ns=tuple(late[at].tolist()),
    )  # fmt: skip


def measure_interruptions(cores: Cores, *, duration_ms: float = 300.0) -> Interruptions:
    """By a thread that does nothing but read the clock, in short turns with rests."""
    lengths: list[int] = []
    watched = 0
    for _ in range(max(1, round(duration_ms / 50))):
        found = _core.measure_interruptions(
            cpu=cores.workers[0] if cores.workers else -1, realtime=cores.realtime,
            duration=50_000_000,
        )  # fmt: skip
        lengths += [int(one) for one in found.length_ns if one < STALL_NS]
        watched += found.watched_ns
    kept = sorted(lengths)[:: max(1, len(lengths) // 2000)]
    return Interruptions(1e9 * len(lengths) / max(watched, 1), tuple(kept))


def measure_dispatch_ns(cores: Cores, *, repeats: int = 7) -> float:
    """By requests of 2 us that are all there at once: what a worker needs above that."""
    count, service_ns = 2000, 2000
    at_once = CoreRequests(np.zeros(count, np.int64), np.full(count, service_ns)).to_native()
    spent = [
        _core.run_burst(
            source="clock", requests=at_once, scheduling=Scheduling("fcfs").to_native(), workers=1,
            cpus=list(cores.workers), timer_cpu=cores.timer, realtime=cores.realtime,
        ).take_latency().max()
        for _ in range(repeats)
    ]  # fmt: skip
    return max(float(np.min(spent)) / count - service_ns, 0.0)  # stalls only add


def calibrate(names: Sequence[str] = (), *, repeats: int = 9) -> Machine:
    """Every source of this machine, or those that are named."""
    cores = Cores.choose()
    found = measure_sources(names or source_names(), cores, repeats=repeats)
    switch_ns = _core.measure_switch_ns(
        cpu=cores.workers[0] if cores.workers else -1, realtime=cores.realtime
    )
    return Machine(
        found, switch_ns, measure_dispatch_ns(cores), measure_interruptions(cores),
        _cheapest(found, polls=True), _cheapest(found, polls=False), cores.realtime > 0,
        len(os.sched_getaffinity(0)),
    )  # fmt: skip


def _cheapest(sources: Sequence[SourceCost], *, polls: bool) -> str:
    """By cost, lateness, and what polling the clock takes of a quantum of 10 us."""
    possible = [
        one for one in sources
        if not one.why_not and one.name != "none" and (polls or not one.is_polled)
    ]  # fmt: skip
    if not possible:
        return "none"
    return min(
        possible, key=lambda one: one.cost_us + one.late_p50_us + 10.0 * one.slowdown_pct / 100
    ).name
