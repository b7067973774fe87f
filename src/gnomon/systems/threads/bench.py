"""Policies and quanta on real threads of this machine, beside what the simulator says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.threads import thread_policies
from gnomon.errors import GnomonError, InputError
from gnomon.sim.cores import NEVER_NS, CoreRequests, Mechanism, run_cores
from gnomon.systems.threads.calibrate import STALL_NS, Cores, Machine
from gnomon.systems.threads.study import BASE, Latency, latency_of, with_quanta, without_quantum
from gnomon.systems.threads.workload import Workload

Ints = NDArray[np.int64]

#: A burst is tried so many times for each that is wanted.
_TRIES = 8


class BenchCell(msgspec.Struct, frozen=True):
    """One policy with one quantum from one source at one load: medians over bursts.

    Attributes:
        quantum_us: None where the policy has none, or the controller said 'no preemption'.
        preemptions: Of a request, on average.
        p99_low_us, p99_high_us: Least and greatest p99 of a burst.
        simulated_p99_us: By the simulator, with the cost, lateness and interruptions of this
            machine; by class in `simulated_classes`.
        reason: Of the controller; empty without one.
    """

    policy: str
    source: str
    quantum_us: float | None
    load: float
    overall: Latency
    classes: dict[str, Latency]
    preemptions: float
    bursts_kept: int
    bursts_dropped: int
    p99_low_us: float
    p99_high_us: float
    simulated_p99_us: float
    simulated_classes: dict[str, float]
    reason: str = ""


class BenchSetting(msgspec.Struct, frozen=True):
    """What all cells share.

    Attributes:
        bursts: That are wanted of each cell; disturbed ones are dropped and tried again.
        burst_ms: How long requests arrive in a burst.
    """

    workload: Workload
    machine: Machine
    workers: int = 1
    bursts: int = 20
    burst_ms: float = 100.0
    seed: int = 0

    def requests(self, load: float, burst: int) -> CoreRequests:
        """Of one burst: the same for every policy."""
        rate = load * self.workers / (self.workload.mean_us * 1e-6)
        count = max(200, round(rate * self.burst_ms / 1e3))
        return self.workload.requests(
            load, count=count, workers=self.workers, seed=self.seed * 10_000 + burst
        )


class _Plan(msgspec.Struct):
    """A cell that is being measured."""

    spec: str
    source: str
    load: float
    is_adaptive: bool
    kept: list[tuple[Latency, dict[str, Latency], float]]
    dropped: int = 0
    controller: _core.QuantumController | None = None
    quantum_ns: int | None = None
    reason: str = ""


def bench(
    setting: BenchSetting, policies: Sequence[str], loads: Sequence[float],
    quanta_us: Sequence[float], sources: Sequence[str], *, is_adaptive: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[BenchCell]:  # fmt: skip
    """Every policy at every load from every source, in turns, with the same requests.

    Args:
        is_adaptive: The cost-aware controller chooses the quantum after each burst.
    """
    cores = Cores.demand(setting.workers)
    specs = [
        one for name in policies for one in with_quanta(name, () if is_adaptive else quanta_us)
    ]
    names = [setting.machine.source(one).name for one in sources]
    plans = [
        _Plan(spec, source, load, is_adaptive and thread_policies.create(spec).has_quantum, [])
        for load in loads for source in names for spec in specs
    ]  # fmt: skip
    total = setting.bursts * len(plans)
    for burst in range(setting.bursts * _TRIES):
        wanting = [one for one in plans if len(one.kept) < setting.bursts]
        if not wanting:
            break
        for plan in wanting:
            _measure(setting, cores, plan, burst)
        if progress is not None:
            progress(sum(len(one.kept) for one in plans), total)
    return [_cell(setting, one) for one in plans]


def _measure(setting: BenchSetting, cores: Cores, plan: _Plan, number: int) -> None:
    requests = setting.requests(plan.load, number)
    scheduling = thread_policies.create(plan.spec).native(None)
    if plan.quantum_ns is not None:
        scheduling = msgspec.structs.replace(scheduling, quantum_ns=plan.quantum_ns)
    try:
        burst = _core.run_burst(
            source=plan.source, requests=requests.to_native(), scheduling=scheduling.to_native(),
            workers=setting.workers, cpus=list(cores.workers), timer_cpu=cores.timer,
            realtime=cores.realtime,
        )  # fmt: skip
    except ValueError as error:
        raise InputError(str(error)) from None
    except RuntimeError as error:
        raise GnomonError(f"{plan.spec} at a load of {plan.load:g}: {error}") from None
    latency, preemptions = burst.take_latency(), burst.take_preemptions()
    if max(burst.longest_gap, burst.longest_stall) > STALL_NS:
        plan.dropped += 1
        return
    # A stall looks like a long request: only undisturbed bursts are learnt from.
    if plan.is_adaptive:
        cost_ns = setting.machine.source(plan.source).mechanism.cost_ns
        _adapt(
            setting, plan, requests, np.maximum(burst.take_attained() - cost_ns * preemptions, 1)
        )
    assert requests.kind is not None
    plan.kept.append((
        latency_of(latency), latency_by_class(setting.workload, requests.kind, latency),
        float(preemptions.mean()),
    ))  # fmt: skip


def _adapt(setting: BenchSetting, plan: _Plan, requests: CoreRequests, service_ns: Ints) -> None:
    if plan.controller is None:
        plan.controller = _core.QuantumController(
            is_paper=False, scheduling=thread_policies.create(plan.spec).native(None).to_native(),
            mechanism=setting.machine.source(plan.source).mechanism.to_native(),
        )  # fmt: skip
        plan.kept.clear()
    plan.quantum_ns, _, plan.reason = plan.controller.decide(
        period=int(requests.arrival_ns[-1]), arrivals=len(requests), in_hand=0,
        workers=setting.workers, service=np.ascontiguousarray(service_ns),
    )  # fmt: skip
    plan.quantum_ns = min(plan.quantum_ns, NEVER_NS)


def latency_by_class(
    workload: Workload, kind: NDArray[np.int32], latency_ns: Ints
) -> dict[str, Latency]:
    """Percentiles of each class that has requests."""
    return {
        name: latency_of(latency_ns[kind == k])
        for k, name in enumerate(workload.kinds)
        if np.any(kind == k)
    }


def _median(of: Sequence[Latency]) -> Latency:
    return Latency(
        sum(one.requests for one in of),
        *(float(np.median([getattr(one, name) for one in of]))
          for name in ("p50_us", "p99_us", "p999_us")),
    )  # fmt: skip


def _cell(setting: BenchSetting, plan: _Plan) -> BenchCell:
    if not plan.kept:
        raise GnomonError(
            f"{plan.spec}: every one of {plan.dropped} bursts was disturbed by something else; "
            "try again when the machine does less",
        )
    names = dict.fromkeys(name for _, classes, _ in plan.kept for name in classes)
    p99 = [one.p99_us for one, _, _ in plan.kept]
    policy = thread_policies.create(plan.spec)
    quantum_us = getattr(policy, "quantum_us", None)
    if plan.quantum_ns is not None:
        quantum_us = None if plan.quantum_ns >= NEVER_NS else plan.quantum_ns / 1e3
    simulated, classes = predict(setting, plan.spec, plan.source, plan.load, plan.quantum_ns)
    return BenchCell(
        without_quantum(plan.spec), plan.source, quantum_us, plan.load,
        _median([one for one, _, _ in plan.kept]),
        {name: _median([c[name] for _, c, _ in plan.kept if name in c]) for name in names},
        float(np.mean([one for _, _, one in plan.kept])), len(plan.kept), plan.dropped,
        min(p99), max(p99), simulated, classes, plan.reason,
    )  # fmt: skip


def predict(
    setting: BenchSetting, spec: str, source: str, load: float, quantum_ns: int | None = None
) -> tuple[float, dict[str, float]]:
    """p99 by the simulator on the same bursts, with what was measured of this machine."""
    scheduling = thread_policies.create(spec).native(None)
    if source == "none":  # whatever the quantum, nobody is cut
        quantum_ns = NEVER_NS
    if quantum_ns is not None:
        scheduling = msgspec.structs.replace(scheduling, quantum_ns=quantum_ns)
    found = setting.machine.source(source)
    how = Mechanism(
        found.mechanism.cost_ns, round(setting.machine.dispatch_ns), found.mechanism.late_ns
    )
    p99, classes = [], []
    for burst in range(min(setting.bursts, 20)):
        asked = setting.requests(load, burst)
        longer = setting.machine.interruptions.extend(asked, seed=burst)
        run = run_cores(
            longer, scheduling, workers=setting.workers, mechanism=how, is_shared=False, seed=burst
        )
        assert asked.kind is not None
        p99.append(latency_of(run.latency_ns).p99_us)
        classes.append(latency_by_class(setting.workload, asked.kind, run.latency_ns))
    names = dict.fromkeys(name for one in classes for name in one)
    return float(np.median(p99)), {
        name: float(np.median([one[name].p99_us for one in classes if name in one]))
        for name in names
    }


class BenchAdvice(msgspec.Struct, frozen=True):
    """A cell beside first come, first served from the same source at the same load."""

    cell: BenchCell
    gain: float
    price: dict[str, float]


def compare_with_base(cells: Sequence[BenchCell]) -> list[BenchAdvice]:
    """How much better the p99 of all requests is, and what each class pays."""
    found = []
    for cell in cells:
        base = next(
            (one for one in cells
             if (one.policy, one.load, one.source) == (BASE, cell.load, cell.source)), None,
        )  # fmt: skip
        if base is None or cell is base:
            continue
        price = {name: cell.classes[name].p99_us / base.classes[name].p99_us
                 for name in cell.classes if name in base.classes}  # fmt: skip
        found.append(BenchAdvice(cell, base.overall.p99_us / cell.overall.p99_us, price))
    return found
