"""Policies and quanta on a workload: latencies by class, what preemption costs, what to choose."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import numpy as np

from gnomon.decide.threads import thread_policies
from gnomon.errors import InputError
from gnomon.parallel import Progress, pmap
from gnomon.sim.cores import CoreRequests, CoreRun, Mechanism, run_cores
from gnomon.systems.threads.workload import Workload

#: The first requests find an empty process: this share is not counted.
_WARM_UP = 0.1
#: An improvement of the p99 below this factor is not worth a changed server.
_WORTH = 1.25
#: No policy without preemption is better with more of its time lost.
BASE = "fcfs"

#: Cost and lateness of ways to preempt, in ns, as measured on a virtual machine with two cores:
#: a flag that the request polls, a signal from a spinning thread, a timer of the kernel.
SOURCES = {
    "none": Mechanism(),
    "safepoint": Mechanism(cost_ns=250, late_ns=(200,)),
    "clock": Mechanism(cost_ns=100, late_ns=(40,)),
    "signal": Mechanism(cost_ns=11_000, late_ns=(15_000,)),
    "sleeper": Mechanism(cost_ns=12_000, late_ns=(35_000,)),
    "posix_timer": Mechanism(cost_ns=26_000, late_ns=(16_000,)),
}


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of the latency of a class, or of all; in microseconds."""

    requests: int
    p50_us: float
    p99_us: float
    p999_us: float


class Cell(msgspec.Struct, frozen=True):
    """One policy with one quantum at one load.

    Attributes:
        quantum_us: None where the policy has none.
        classes: By name.
        preemptions: Of a request, on average.
        lost_pct: Of the workers' time: to preemptions.
        is_stable: Whether requests and what preempting them costs fit into the workers' time.
    """

    policy: str
    quantum_us: float | None
    load: float
    overall: Latency
    classes: dict[str, Latency]
    preemptions: float
    lost_pct: float
    is_stable: bool


class Advice(msgspec.Struct, frozen=True):
    """What to do at a load.

    Attributes:
        best: The stable cell with the least p99; that of `fcfs` if preemption is not worth it.
        base: The cell of `fcfs`.
        gain: p99 of `fcfs` over that of the best.
        price: By class: its p99 over that under `fcfs`.
    """

    load: float
    best: Cell
    base: Cell
    gain: float
    price: dict[str, float]

    @property
    def is_worth_it(self) -> bool:
        return self.best.policy != self.base.policy

    @property
    def is_overloaded(self) -> bool:
        """Whether the requests alone are more than the workers can do."""
        return not self.base.is_stable


class Setting(msgspec.Struct, frozen=True):
    """What all cells of a sweep share."""

    workload: Workload
    workers: int = 1
    mechanism: Mechanism = SOURCES["safepoint"]
    requests: int = 1_000_000
    seed: int = 0


def sweep(
    setting: Setting, policies: Sequence[str], loads: Sequence[float], quanta_us: Sequence[float],
    *, on: str | None = None, progress: Progress | None = None,
) -> list[Cell]:  # fmt: skip
    """Every policy at every load, those that have a quantum with each of them; same requests."""
    specs = [spec for name in policies for spec in with_quanta(name, quanta_us)]
    items = [(load, tuple(specs)) for load in loads]
    where = on or ("serial" if len(items) == 1 else "local")
    found = pmap(functools.partial(_column, setting), items, on=where, progress=progress)
    return [cell for column in found for cell in column]


def advise(cells: Sequence[Cell]) -> list[Advice]:
    """At each load: the least p99 of all requests, what it takes, and who pays for it."""
    advice = []
    for load in dict.fromkeys(cell.load for cell in cells):
        mine = [cell for cell in cells if cell.load == load]
        base = next((cell for cell in mine if cell.policy == BASE), None)
        if base is None:
            raise InputError("nothing to compare with", hint=f"add {BASE} to the policies")
        stable = [cell for cell in mine if cell.is_stable] or [base]
        best = min(stable, key=lambda cell: cell.overall.p99_us)
        if base.overall.p99_us < _WORTH * best.overall.p99_us:
            best = base
        price = {
            name: best.classes[name].p99_us / one.p99_us for name, one in base.classes.items()
        }
        gain = base.overall.p99_us / best.overall.p99_us
        advice.append(Advice(load, best, base, gain, price))
    return advice


def with_quanta(name: str, quanta_us: Sequence[float]) -> list[str]:
    """A policy with each quantum, if it has one and names none."""
    policy = thread_policies.create(name)
    given = {one.partition("=")[0] for one in name.partition("?")[2].split("&")}
    if not policy.has_quantum or "quantum_us" in given or not quanta_us:
        return [name]
    return [f"{name}{'&' if '?' in name else '?'}quantum_us={one:g}" for one in quanta_us]


def without_quantum(spec: str) -> str:
    """A policy with its other parameters: cells tell the quantum apart.

    >>> without_quantum("two-queue?hard_quantum_us=100&quantum_us=5")
    'two-queue?hard_quantum_us=100'
    """
    name, _, given = spec.partition("?")
    others = [one for one in given.split("&") if one and not one.startswith("quantum_us=")]
    return "?".join([name, *(["&".join(others)] if others else [])])


def _column(setting: Setting, item: tuple[float, tuple[str, ...]]) -> list[Cell]:
    load, specs = item
    requests = setting.workload.requests(
        load, count=setting.requests, workers=setting.workers, seed=setting.seed
    )
    return [_cell(setting, requests, load, spec) for spec in specs]


def _cell(setting: Setting, requests: CoreRequests, load: float, spec: str) -> Cell:
    policy = thread_policies.create(spec)
    run = run_cores(
        requests, policy.native(None), workers=setting.workers, mechanism=setting.mechanism,
        is_shared=False, seed=setting.seed,
    )  # fmt: skip
    assert requests.kind is not None
    counted = slice(int(_WARM_UP * len(requests)), None)
    kind, latency = requests.kind[counted], run.latency_ns[counted]
    classes = {
        name: latency_of(latency[kind == k])
        for k, name in enumerate(setting.workload.kinds)
        if np.any(kind == k)
    }
    offered = int(requests.service_ns.sum()) + run.lost_ns
    room = setting.workers * int(requests.arrival_ns[-1] + 1)
    return Cell(
        without_quantum(spec), getattr(policy, "quantum_us", None), load,
        latency_of(latency), classes, float(run.preemptions.mean()), _lost_pct(run, room),
        offered < room,
    )  # fmt: skip


def _lost_pct(run: CoreRun, room_ns: int) -> float:
    return 100.0 * run.lost_ns / max(room_ns, 1)


def latency_of(values_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Latency:
    """Percentiles of latencies."""
    p50, p99, p999 = np.percentile(values_ns, [50, 99, 99.9]) / 1e3
    return Latency(len(values_ns), float(p50), float(p99), float(p999))
