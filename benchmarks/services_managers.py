"""Ursa and Sinan beside the other managers: SLAs, CPU, what they need to learn, how fast they decide.

    python benchmarks/services_managers.py compare [--folder DIR] [--minutes 10] [--seeds 3] [--rates FILE,...] [--json OUT]
    python benchmarks/services_managers.py decision [--folder DIR]
    python benchmarks/services_managers.py decomposition [--tests 1000]
    python benchmarks/services_managers.py program
    python benchmarks/services_managers.py lab [--minutes 10] [--log DIR]

`compare`: three bundled applications, four rates (files are scaled to the mean of the application), seven
managers and a static maximum; exploration
and training are kept in DIR. `decision`: CPU time of one decision of Ursa and of Sinan, by the manager alone and
with guard rails, and of Ursa's plan. `decomposition`: the union bound and joint samples on log-normal
chains, each drawn anew, and the cores that the second saves. `program`: the integer program on
random instances of three sizes. `lab`: the starter application as real processes with a surge in
the middle, Ursa, AutoScaleCons and a static maximum one after the other; needs root and a machine that does little
else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

APPLICATIONS = ("social-network", "hotel-reservation", "media-pipeline")
RATES = ("diurnal", "bursty", "noisy", "surge")
MANAGERS = (
    "ursa",
    "sinan",
    "autothrottle",
    "autoscale-opt",
    "autoscale-cons",
    "hpa",
    "static",
    "static?cap=true",
)


def prepare(folder: Path, name: str, only: str) -> tuple[Any, dict[str, str]]:
    """An application, and by manager: the same with what it needs to know."""
    from gnomon.decide.services.ursa import Exploration
    from gnomon.ingest.services.application_file import read_application
    from gnomon.systems.services import sinan, ursa

    folder.mkdir(parents=True, exist_ok=True)
    app = read_application(f"bundled:{name}")
    path, model = folder / f"ursa-{name}.json", folder / f"sinan-{name}"
    if not path.exists() and "ursa" in only:
        began = time.process_time()
        ursa.explore(app, ursa.in_simulator(1)).write(path)
        print(f"{name}: explored in {time.process_time() - began:.0f} s of CPU", flush=True)
    if not (model / "model.json").exists() and "sinan" in only:
        found = sinan.prepare(app, model, seed=1)
        print(f"{name}: Sinan's {found.samples:,} samples, {found.hours:.1f} h; collected in "
              f"{found.collect_s:.0f} s, trained in {found.train_s:.0f} s of CPU", flush=True)  # fmt: skip
    if path.exists():
        known = Exploration.read(path)
        print(f"{name}: Ursa's {known.samples} samples, {known.hours:.1f} h", flush=True)
    return app, {"ursa": f"ursa?explored={path}", "sinan": f"sinan?model={model}"}


def compare(
    folder: Path, applications: str, rates: str, minutes: float, seeds: int, only: str
) -> list[dict[str, Any]]:
    from gnomon.systems.services.rates import Rate, find_rate
    from gnomon.systems.services.trial import Setup, simulate

    rows: list[dict[str, Any]] = []
    for name in applications.split(","):
        app, prepared = prepare(folder, name, only)
        for shape in rates.split(","):
            for manager in only.split(","):
                scores = []
                for seed in range(seeds):
                    rate = find_rate(shape, app.rate, duration_s=60 * minutes, seed=seed)
                    rate = Rate(rate.name, rate.per_s * app.rate / rate.per_s.mean())
                    setup = Setup(app, seed=seed, prepared=prepared)
                    scores.append(simulate(setup, manager, rate).score)
                rows.append({
                    "application": name, "rate": rate.name, "manager": manager,
                    "violation_pct": statistics.mean(one.violation_pct for one in scores),
                    "late_pct": statistics.mean(one.late_pct for one in scores),
                    "cpu_mean": statistics.mean(one.cpu_mean for one in scores),
                    "manager_ms": statistics.median(one.manager_ms for one in scores),
                })  # fmt: skip
                print("{application:18} {rate:8} {manager:16} violation {violation_pct:6.2f} %  late {late_pct:6.3f} %  "
                      "cpu {cpu_mean:6.2f}  {manager_ms:.2f} ms".format(**rows[-1]), flush=True)  # fmt: skip
    summarise(rows)
    return rows


def summarise(rows: list[dict[str, Any]]) -> None:
    by = {(r["application"], r["rate"], r["manager"]): r for r in rows}
    rates = list(dict.fromkeys(r["rate"] for r in rows))
    for manager in ("ursa", "sinan"):
        for app in APPLICATIONS:
            mine = [by[app, rate, manager] for rate in rates if (app, rate, manager) in by]
            careful = [
                by[app, rate, "autoscale-cons"]
                for rate in rates
                if (app, rate, "autoscale-cons") in by
            ]
            if mine and len(mine) == len(careful):
                less = [1 - a["cpu_mean"] / b["cpu_mean"] for a, b in zip(mine, careful)]
                print(f"{manager}, {app}: {100 * min(less):.0f} to {100 * max(less):.0f} % less CPU than AutoScaleCons, "
                      f"violations at most {max(one['violation_pct'] for one in mine):.2f} %", flush=True)  # fmt: skip
    for manager in MANAGERS:
        mine = [one for one in rows if one["manager"] == manager]
        if mine:
            over = sum(one["violation_pct"] > 1.0 for one in mine)
            print(f"{manager}: {over} of {len(mine)} cells over 1 % of checks missed")
    for app in APPLICATIONS:
        both = [(by[app, r, "ursa"], by[app, r, "sinan"]) for r in rates
                if (app, r, "ursa") in by and (app, r, "sinan") in by]  # fmt: skip
        if both:
            print(f"{app}: Ursa uses {100 * statistics.mean(1 - a['cpu_mean'] / b['cpu_mean'] for a, b in both):+.0f} % less CPU than "
                  f"Sinan, violations {statistics.mean(a['violation_pct'] - b['violation_pct'] for a, b in both):+.2f} points")  # fmt: skip


# --- a decision ----------------------------------------------------------------------------------


def decision(folder: Path, repeats: int = 5) -> list[dict[str, Any]]:
    """Ten minutes of bursts a repeat, the managers in turn; the first 60 windows are not counted."""
    from gnomon.decide.services import BARE, SimTarget, service_policies
    from gnomon.decide.services.guard import Guard, decision_rng
    from gnomon.decide.services.state import ServiceState
    from gnomon.sim.mesh import poisson_requests
    from gnomon.systems.services.rates import find_rate

    rows = []
    for name in APPLICATIONS:
        app, prepared = prepare(folder, name, "ursa,sinan")
        alone: dict[str, list[float]] = {"ursa": [], "sinan": []}
        railed: dict[str, list[float]] = {"ursa": [], "sinan": []}
        planned: list[float] = []
        for repeat in range(repeats):
            rate = find_rate("bursty", app.rate, duration_s=600, seed=repeat)
            for manager in alone:
                target = SimTarget(
                    app, poisson_requests(app, rate.per_s, seed=repeat), seed=repeat
                )
                policy = service_policies.create(prepared[manager])
                guard, rng, memory = (
                    Guard(app, policy, decision_rng(0), BARE),
                    decision_rng(0),
                    None,
                )
                for second in range(600):
                    window = target.observe(1.0)
                    began = time.process_time_ns()
                    if (
                        second % 2
                    ):  # half of the windows each, so that neither warms the other's caches
                        answer = guard.decide(window)
                        middle = time.process_time_ns()
                        memory = policy.decide(ServiceState(app, window, memory), rng).memory
                    else:
                        memory = policy.decide(ServiceState(app, window, memory), rng).memory
                        middle = time.process_time_ns()
                        answer = guard.decide(window)
                    target.apply(answer.allocation)
                    if second >= 60:
                        (railed if second % 2 else alone)[manager].append((middle - began) / 1e3)
                    elif second == 0 and manager == "ursa":
                        planned.append((middle - began) / 1e9)
        row = {"application": name, "tiers": len(app.services),
               **{f"{m}_us": statistics.median(alone[m]) for m in alone},
               **{f"{m}_railed_us": statistics.median(railed[m]) for m in alone},
               "plan_s": statistics.median(planned)}  # fmt: skip
        rows.append(row)
        print("{application}, {tiers} tiers: Ursa {ursa_us:.0f} us ({ursa_railed_us:.0f} with guard rails), Sinan "
              "{sinan_us:.0f} us ({sinan_railed_us:.0f}): {0:.0f} times ({1:.0f}); Ursa's plan {plan_s:.2f} s".format(
                  row["sinan_us"] / row["ursa_us"], row["sinan_railed_us"] / row["ursa_railed_us"], **row), flush=True)  # fmt: skip
    return rows


# --- decomposition -------------------------------------------------------------------------------


def chain(count: int, bound_ms: float) -> Any:
    from gnomon.graph.application import Application, Call, RequestClass, Service, Sla

    call = None
    for i in reversed(range(count)):
        call = Call(f"s{i}", then=() if call is None else ((call,),))
    services = {f"s{i}": Service(cpu_max=4.0, cpu_min=0.05) for i in range(count)}
    return Application("chain", services, {"get": RequestClass(call, sla=Sla(bound_ms))})  # type: ignore[arg-type]


def lognormal(rng: Any, requests: int, calls: int, sigma: float, correlation: float) -> Any:
    mood, own = rng.standard_normal((requests, 1)), rng.standard_normal((requests, calls))
    return np.exp(sigma * (math.sqrt(correlation) * mood + math.sqrt(1 - correlation) * own))


def decomposition(tests: int) -> list[dict[str, Any]]:
    from gnomon.decide.services.ursa import Exploration, Explored, Latencies, Option, make_plan
    from gnomon.decide.services.ursa.exploration import fingerprint
    from gnomon.decide.services.ursa.joint import Sampled, ranks_of_samples
    from gnomon.decide.services.ursa.paths import Paths
    from gnomon.decide.services.ursa.program import Target

    rows = []
    for count, sigma in ((3, 0.3), (5, 0.6), (10, 0.6)):
        for correlation in (0.0, 0.5):
            truth = float(
                np.quantile(
                    lognormal(np.random.default_rng(0), 2_000_000, count, sigma, correlation).sum(
                        axis=1
                    ),
                    0.99,
                )
            )
            paths = Paths.of(chain(count, 1e6), "get")
            chosen = {f"s{i}": 0 for i in range(count)}
            said: list[float] = []
            union_ms: list[float] = []
            held = union_held = 0
            for test in range(tests):
                rng = np.random.default_rng([1, test])
                times = lognormal(rng, 20_000, count, sigma, correlation)
                seen = [Latencies.from_samples(times[:, i]) for i in range(count)]
                sampled = Sampled.of(Target(paths, 1e6, 99.0), ranks_of_samples(times),
                                     {f"s{i}": [seen[i]] for i in range(count)})  # fmt: skip
                said.append(sampled.percentile_ms(chosen))
                share = 100.0 - 1.0 / count
                union_ms.append(sum(one.quantile_ms(share) for one in seen))
                fresh = float(
                    np.quantile(
                        lognormal(rng, 20_000, count, sigma, correlation).sum(axis=1), 0.99
                    )
                )
                # Valid against fresh requests, and against two million.
                held += said[-1] >= truth and said[-1] >= fresh * 0.999
                union_held += union_ms[-1] >= truth and union_ms[-1] >= fresh
            row = {"services": count, "sigma": sigma, "correlation": correlation, "true_ms": truth,
                   "joint_ms": statistics.median(said), "union_ms": statistics.median(union_ms),
                   "joint_valid_pct": 100 * held / tests, "union_valid_pct": 100 * union_held / tests}  # fmt: skip
            # Cores: services whose times shrink as they get more CPU (utilisations of a queue).
            bound = 1.15 * truth / 0.5
            app = chain(count, bound)
            rng = np.random.default_rng(2)
            base = lognormal(rng, 20_000, count, sigma, correlation)
            services = {}
            for i, name in enumerate(app.services):
                options = tuple(
                    Option(
                        0.1 / u,
                        {"get": 100.0},
                        u,
                        {"get": Latencies.from_samples(base[:, i] / (1 - u))},
                    )
                    for u in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
                )
                services[name] = Explored(fingerprint(app, name), 0.9, options, 1, 1.0)
            found = Exploration("chain", services)
            ranks = {"get": ranks_of_samples(base)}
            plan = make_plan(app, found, {"get": 100.0}, ranks=ranks, explain=False)
            row["joint_cores"], row["union_cores"] = plan.cores, plan.union_cores
            rows.append(row)
            print("{services} services, sigma {sigma}, correlation {correlation}: true {true_ms:.2f}, joint {joint_ms:.2f} "
                  "(valid {joint_valid_pct:.1f} %), union {union_ms:.2f} (valid {union_valid_pct:.1f} %); "
                  "cores {joint_cores:.2f} against {union_cores:.2f}".format(**row), flush=True)  # fmt: skip
    return rows


# --- the integer program -------------------------------------------------------------------------


def instance(services: int, classes: int, options: int, seed: int) -> Any:
    """Each class passes four to eight services; nine percentiles of exponential tails."""
    from gnomon.decide.services.ursa.paths import Paths, Step
    from gnomon.decide.services.ursa.program import Candidate, Promise, Target

    rng = np.random.default_rng(seed)
    slow = 2 * np.exp(rng.normal(0, 1, services))
    passes = {
        c: sorted(rng.choice(services, size=int(rng.integers(4, 9)), replace=False))
        for c in range(classes)
    }
    made: dict[str, list[Candidate]] = {}
    for i in range(services):
        demand = float(np.exp(rng.normal(0, 0.8)))
        made[f"s{i}"] = []
        for k in range(options):
            utilisation = 0.25 + 0.65 * k / (options - 1)
            promises = {}
            for c in range(classes):
                if i in passes[c]:
                    mean = slow[i] / (1 - utilisation) * rng.uniform(0.8, 1.2) / 3
                    promises[f"c{c}"] = tuple(
                        Promise(round(100 - p, 4), float(mean * math.log(100 / (100 - p))))
                        for p in (50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9)
                    )
            made[f"s{i}"].append(Candidate(demand / utilisation, promises))
    targets = []
    for c, passed in passes.items():
        steps = tuple(
            Step(f"s{i}", 1.0, 1.0, False, ((n + 1,),) if n + 1 < len(passed) else ())
            for n, i in enumerate(passed)
        )
        least = sum(slow[i] / 0.75 * math.log(100 * len(passed)) / 3 for i in passed)
        targets.append(
            Target(Paths(f"c{c}", steps, False, 0.0), float(least * rng.uniform(2.0, 3.9)), 99.0)
        )
    return made, targets


def program(repeats: int = 5) -> list[dict[str, Any]]:
    from gnomon.decide.services.ursa.program import solve

    rows = []
    for services, classes, options, gap in (
        (10, 4, 8, 1e-4),
        (20, 6, 10, 1e-4),
        (40, 8, 10, 0.005),
        (80, 10, 10, 0.005),
    ):
        taken, gaps = [], []
        for seed in range(repeats):
            made, targets = instance(services, classes, options, seed)
            began = time.process_time()
            found = solve(made, targets, gap=gap, limit_s=120)
            taken.append(time.process_time() - began)
            gaps.append(found.gap)
        rows.append({"services": services, "classes": classes, "options": options, "gap_asked": gap,
                     "cpu_s": taken, "greatest_gap": max(gaps)})  # fmt: skip
        print(f"{services} services x {classes} classes x {options} options, gap {gap:.2%}: median {statistics.median(taken):.2f} s of CPU "
              f"({min(taken):.2f}..{max(taken):.2f}), greatest gap {max(gaps):.3%}", flush=True)  # fmt: skip
    return rows


# --- the lab -------------------------------------------------------------------------------------


def lab(minutes: float, folder: Path) -> list[dict[str, Any]]:
    from gnomon.decide.services import BARE, DecisionLog
    from gnomon.ingest.services.application_file import read_application
    from gnomon.systems.services import ursa
    from gnomon.systems.services.lab import run_lab
    from gnomon.systems.services.rates import find_rate
    from gnomon.systems.services.trial import Setup
    from gnomon.systems.services.ursa.explore import LAB_PACE

    folder.mkdir(parents=True, exist_ok=True)
    app = read_application("bundled:starter")
    path = folder / "explored-lab.json"
    began = time.monotonic()
    if not path.exists():
        ursa.explore(app, ursa.in_lab(1), rate=100.0, pace=LAB_PACE, levels=(1.0,)).write(path)
        print(f"explored in the lab in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    rate = find_rate("surge", 80.0, duration_s=60 * minutes, seed=1)
    rows = []
    for manager in (f"ursa?explored={path}", "autoscale-cons", "static?cap=true"):
        name = manager.partition("?")[0]
        log = folder / f"{name}.jsonl"
        log.unlink(missing_ok=True)
        with DecisionLog(log, app, manager, seed=1, rails=BARE) as kept:
            found = run_lab(Setup(app, seed=1), manager, rate, rails=BARE, log=kept)
        score = found.outcome.score
        rows.append({"manager": name, "violation_pct": score.violation_pct, "late_pct": score.late_pct,
                     "cpu_mean": score.cpu_mean, "cpu_used": score.cpu_used, "p99_ms": score.classes[0].p99_ms,
                     "noisy_pct": found.noisy_pct})  # fmt: skip
        print("{manager}: violation {violation_pct:.2f} %, late {late_pct:.2f} %, cpu {cpu_mean:.2f} (used {cpu_used:.2f}), "
              "p99 {p99_ms:.0f} ms, noisy windows {noisy_pct:.0f} %".format(**rows[-1]), flush=True)  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["compare", "decision", "decomposition", "program", "lab"])
    parser.add_argument("--folder", type=Path, default=Path("report/managers"))
    parser.add_argument("--applications", default=",".join(APPLICATIONS))
    parser.add_argument("--rates", default=",".join(RATES))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--managers", default=",".join(MANAGERS))
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.part == "compare":
        found: Any = compare(
            given.folder,
            given.applications,
            given.rates,
            given.minutes,
            given.seeds,
            given.managers,
        )
    elif given.part == "decision":
        found = decision(given.folder)
    elif given.part == "decomposition":
        found = decomposition(given.tests)
    elif given.part == "program":
        found = program()
    else:
        found = lab(given.minutes, given.folder)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
