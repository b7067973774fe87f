"""Preemptive threads: the simulator's speed, what a preemption costs, what policies gain on real threads.

    python benchmarks/threads.py simulator [--requests 2000000] [--repeats 5]
    python benchmarks/threads.py primitives [--repeats 15]
    python benchmarks/threads.py policies [--load 0.7] [--bursts 20]
    python benchmarks/threads.py compare [--bursts 12]
    python benchmarks/threads.py controller [--bursts 20]

`simulator`: requests per second of CPU time, workload A2 at a load of 0.7, one worker and sixteen; medians of repeats.
`primitives`: a switch of stacks, and cost, lateness and rate of every source; the rate of safepoints at a quantum of 5 us.
`policies`: p99 of A2 on one worker, from safepoints and signals, against first come, first served in the same run.
`compare`: 20 cells, measured and simulated. `controller`: which quantum it chooses on A1, A2, B, and how that compares with
every quantum of a grid in the simulator. All but the first need two cores that do little else; they use SCHED_FIFO where
that is allowed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any


def simulator(requests: int, repeats: int) -> None:
    from gnomon.decide.threads import thread_policies
    from gnomon.sim.cores import run_cores
    from gnomon.systems.threads import SOURCES, find_workload

    for workers in (1, 16):
        made = find_workload("A2").requests(0.7, count=requests, workers=workers)
        for name in thread_policies.names():
            if name == "reserved" and workers == 1:
                continue
            scheduling = thread_policies.create(name).native(None)
            spent = []
            for _ in range(repeats):
                began = time.process_time()
                run = run_cores(made, scheduling, workers=workers, mechanism=SOURCES["safepoint"])
                spent.append(time.process_time() - began)
                assert len(run.latency_ns) == requests
                assert run.latency_ns.min() > 0
            speed = [requests / one / 1e6 for one in spent]
            print(f"{workers:2} workers, {name:11} {statistics.median(speed):5.1f} million requests/s "
                  f"({min(speed):.1f} to {max(speed):.1f})", flush=True)  # fmt: skip


def primitives(repeats: int) -> None:
    from gnomon.systems.threads.calibrate import Cores, calibrate, measure_source

    machine = calibrate(repeats=repeats)
    print(f"switch of stacks {machine.switch_ns:.1f} ns; taking up a request {machine.dispatch_ns:.0f} ns; "
          f"interrupted {machine.interruptions.per_s:.0f} times/s; SCHED_FIFO {machine.is_realtime}")  # fmt: skip
    fast = measure_source("safepoint", Cores.choose(), quantum_us=5.0, repeats=repeats)
    for one in (*machine.sources, fast):
        if one.why_not or one.name == "none":
            print(f"{one.name}: {one.why_not or 'preempts nothing'}")
            continue
        print(f"{one.name:11} quantum {one.quantum_us:g} us: {one.cost_us:6.2f} us each ({one.cost_low_us:.2f} to "
              f"{one.cost_high_us:.2f}), late {one.late_p50_us:.2f} us (p99 {one.late_p99_us:.1f}), "
              f"{one.per_s / 1e3:.0f} k/s, polls slow down by {one.slowdown_pct:.0f} %")  # fmt: skip
    print(f"auto: {machine.chosen}, without polls {machine.chosen_unpolled}")


def show(cells: list[Any]) -> None:
    from gnomon.systems.threads.bench import compare_with_base

    gains = {id(one.cell): one for one in compare_with_base(cells)}
    for one in cells:
        better = gains.get(id(one))
        price = "" if better is None else (f"  {better.gain:5.1f} x better than fcfs; " + ", ".join(
            f"{name} x {x:.2f}" for name, x in better.price.items()))  # fmt: skip
        quantum = "   –" if one.quantum_us is None else f"{one.quantum_us:4g}"
        print(f"load {one.load:g} {one.policy:10} {one.source:10} {quantum} us  p99 {one.overall.p99_us:7.0f} us "
              f"({one.p99_low_us:.0f} to {one.p99_high_us:.0f})  p99.9 {one.overall.p999_us:7.0f}  simulated "
              f"{one.simulated_p99_us:7.0f}  bursts {one.bursts_kept}/{one.bursts_kept + one.bursts_dropped}{price}"
              f"{'  ' + one.reason if one.reason else ''}", flush=True)  # fmt: skip


def policies(load: float, bursts: int) -> None:
    from gnomon.systems.threads import find_workload
    from gnomon.systems.threads.bench import BenchSetting, bench
    from gnomon.systems.threads.calibrate import calibrate

    setting = BenchSetting(find_workload("A2"), calibrate(), bursts=bursts)
    show(bench(setting, ["fcfs", "rr", "two-queue"], [load], [10.0], ["safepoint"]))
    show(bench(setting, ["fcfs", "two-queue"], [load], [20.0], ["signal"]))


def compare(bursts: int) -> None:
    """p99 of all requests, by loads and policies: how far the simulator is off, and the order."""
    from gnomon.systems.threads import find_workload
    from gnomon.systems.threads.bench import BenchSetting, bench
    from gnomon.systems.threads.calibrate import calibrate

    setting = BenchSetting(find_workload("A2"), calibrate(), bursts=bursts)
    loads = [0.3, 0.5, 0.7, 0.8]
    cells = bench(setting, ["fcfs", "rr", "two-queue"], loads, [10.0], ["safepoint"])
    cells += bench(setting, ["rr", "two-queue"], loads, [20.0], ["signal"])
    show(cells)
    ratios = [one.simulated_p99_us / one.overall.p99_us for one in cells]
    within = sum(0.5 <= one <= 2.0 for one in ratios)
    print(f"{within} of {len(cells)} cells within a factor of 2; simulated over measured {min(ratios):.2f} to "
          f"{max(ratios):.2f}, median {statistics.median(ratios):.2f}")  # fmt: skip
    right = total = 0
    for load in loads:
        mine = [one for one in cells if one.load == load]
        for i, a in enumerate(mine):
            for b in mine[i + 1 :]:
                if max(a.overall.p99_us, b.overall.p99_us) < 1.25 * min(
                    a.overall.p99_us, b.overall.p99_us
                ):
                    continue  # as good as equal
                total += 1
                right += (a.overall.p99_us < b.overall.p99_us) == (a.simulated_p99_us < b.simulated_p99_us)  # fmt: skip
    print(
        f"of {total} pairs of policies at one load that differ by a quarter, {right} are in the right order"
    )


def controller(bursts: int, names: str) -> None:
    from gnomon.sim.cores import NEVER_NS
    from gnomon.systems.threads import find_workload
    from gnomon.systems.threads.bench import BenchSetting, bench, predict
    from gnomon.systems.threads.calibrate import calibrate

    machine = calibrate()
    grid = (3, 5, 7, 10, 14, 20, 30, 50, 70, 100, 200, 500)
    for name in names.split(","):
        setting = BenchSetting(find_workload(name), machine, bursts=bursts)
        for source in ("safepoint", "signal"):
            cells = bench(setting, ["fcfs", "two-queue"], [0.7], [], [source], is_adaptive=True)
            print(name)
            show(cells)
            chosen = cells[-1].quantum_us
            tried = {
                one: predict(setting, "two-queue", source, 0.7, 1000 * one)[0] for one in grid
            }
            tried[None] = predict(setting, "two-queue", source, 0.7, NEVER_NS)[0]
            ours = predict(
                setting,
                "two-queue",
                source,
                0.7,
                NEVER_NS if chosen is None else round(1000 * chosen),
            )[0]
            best = min(tried, key=lambda one: tried[one])
            print(f"   chosen {chosen or 'no preemption'}; simulated p99 {ours:.0f} us, best of the grid {tried[best]:.0f} us "
                  f"at {best or 'no preemption'}: {ours / tried[best]:.2f} times", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "part", choices=["simulator", "primitives", "policies", "compare", "controller"]
    )
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--load", type=float, default=0.7)
    parser.add_argument("--bursts", type=int)
    parser.add_argument("--workloads", default="A1,A2,B")
    given = parser.parse_args()
    if given.part == "simulator":
        simulator(given.requests, given.repeats or 5)
    elif given.part == "primitives":
        primitives(given.repeats or 15)
    elif given.part == "policies":
        policies(given.load, given.bursts or 20)
    elif given.part == "compare":
        compare(given.bursts or 12)
    else:
        controller(given.bursts or 20, given.workloads)


if __name__ == "__main__":
    main()
