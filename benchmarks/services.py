"""Speed of the simulator of services, and how near it comes to recordings of others.

    python benchmarks/services.py speed [--quick] [--json OUT]
    python benchmarks/services.py recorded --data FOLDER [--json OUT]
    python benchmarks/services.py lab [--repeats 3] [--json OUT]

`speed`: simulated events per second on one core; a tandem of three stations beside SimPy, whose
mean latency has to agree; the 28-tier social network at 1,000 requests/s against real time; growth
with tiers and with load.

`recorded`: applications inferred from other people's spans (DeathStarBench's Jaeger traces, Nezha's
Online Boutique and Train Ticket), simulated and compared with the recorded latency; and Cilantro's
measurements of Hotel Reservation, predicted from the rate and the cores of each row. FOLDER is the
public data, `services` below it.

`lab`: the starter application as real processes, the limit of one service at seven values, and what
the simulator predicts after a calibration at the first (`gnomon services lab --sweep`). Needs root, and
a machine that does little else.

Times are CPU seconds, medians of repeats with their spread; every run has to have answered all
requests.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

SECOND_NS = 10**9


def timed(function: Any, repeats: int) -> tuple[list[float], Any]:
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds.append(time.process_time() - begin)
    return seconds, result


def spread(values: list[float]) -> str:
    return f"{min(values):.3g}..{max(values):.3g}"


def play(app: Any, rate: float, seconds: int, seed: int = 1) -> Any:
    """A simulator that has played so much, and the CPU time of that alone."""
    from gnomon.sim.mesh import MeshSim, poisson_requests

    sim = MeshSim(
        app, poisson_requests(app, [rate] * seconds, seed=seed), seed=seed, keep_requests=True
    )
    begin = time.process_time()
    sim.advance((seconds + 60) * SECOND_NS)
    took = time.process_time() - begin
    assert sim.pending == 0, f"{sim.pending} requests of {app.name} were not answered"
    return sim, took


def tandem() -> Any:
    from gnomon.graph.application import Application, Call, RequestClass, Service, Work

    cpu = Work(mean=1.0, shape="exponential")
    stages = tuple((Call(name, cpu_ms=cpu),) for name in "abc")
    return Application(
        "tandem", {"door": Service(), **{name: Service(workers=1) for name in "abc"}},
        {"get": RequestClass(Call("door", then=stages))},
    )  # fmt: skip


def simpy_tandem(rate: float, seconds: int, seed: int = 1) -> float:
    """The same network as SimPy users write it; the mean latency in ms."""
    import simpy

    rng = np.random.default_rng(seed)
    env = simpy.Environment()
    stations = [simpy.Resource(env, 1) for _ in range(3)]
    latency: list[float] = []

    def request(env: Any) -> Any:
        begin = env.now
        for station in stations:
            with station.request() as mine:
                yield mine
                yield env.timeout(rng.exponential(1.0))
        latency.append(env.now - begin)

    def source(env: Any) -> Any:
        while env.now < seconds * 1e3:
            yield env.timeout(rng.exponential(1e3 / rate))
            env.process(request(env))

    env.process(source(env))
    env.run()
    return float(np.mean(latency))


def measure_tandem(*, quick: bool) -> dict[str, Any]:
    rate, seconds, repeats = 600.0, 20 if quick else 60, 5 if quick else 9
    ours, theirs, sims, mean_ms = [], [], [], 0.0
    for _ in range(repeats):  # in turn, so that both meet the same noise
        sim, took = play(tandem(), rate, seconds)
        ours.append(took)
        sims.append(sim)
        (their_s,), mean_ms = timed(lambda: simpy_tandem(rate, seconds), 1)
        theirs.append(their_s)
    own_ms = float(sims[0].request_latency_ns.mean()) / 1e6
    expected = 3 / (1 - rate / 1e3)
    assert abs(own_ms / expected - 1) < 0.25, own_ms
    assert abs(mean_ms / expected - 1) < 0.25, mean_ms
    row = {
        "requests": len(sims[0].arrivals.time_ns), "events": sims[0].events,
        "gnomon_s": statistics.median(ours), "gnomon_spread_s": spread(ours),
        "simpy_s": statistics.median(theirs), "simpy_spread_s": spread(theirs),
        "times": statistics.median(theirs) / statistics.median(ours),
        "least_times": min(theirs) / min(ours),
        "mevents_per_s": sims[0].events / statistics.median(ours) / 1e6,
        "mean_ms": own_ms, "simpy_mean_ms": mean_ms, "expected_ms": expected,
    }  # fmt: skip
    print(f"tandem: {row['times']:.0f} x SimPy by medians, {row['least_times']:.0f} x by minima ({row['gnomon_s']:.3f} s, {row['gnomon_spread_s']}; "
          f"{row['simpy_s']:.2f} s, {row['simpy_spread_s']}), {row['mevents_per_s']:.1f} M events/s, "
          f"mean {own_ms:.2f} and {mean_ms:.2f} ms ({expected:.2f} expected)", flush=True)  # fmt: skip
    return row


def scaled(name: str, rate: float) -> Any:
    """A bundled application with limits for another rate."""
    from gnomon.ingest.services.application_file import read_application

    app = read_application(f"bundled:{name}")
    factor = rate / app.rate
    services = {
        key: msgspec.structs.replace(
            one,
            cpu_limit=None if one.cpu_limit is None else one.cpu_limit * max(factor, 1.0),
            cpu_max=one.cpu_max * max(factor, 1.0),
        )
        for key, one in app.services.items()
    }
    return msgspec.structs.replace(app, services=services)


def measure_apps(*, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for name in ("starter", "hotel-reservation", "social-network", "media-pipeline"):
        rates = (100.0, 300.0, 1000.0, 3000.0) if name == "social-network" else (None,)
        for rate in rates:
            app = scaled(name, rate or 1.0)
            rate = rate or app.rate
            seconds = 20 if quick else 60
            runs = [play(app, rate, seconds) for _ in range(3 if quick else 5)]
            took = statistics.median(t for _, t in runs)
            row = {
                "application": name, "tiers": len(app.services), "rate": rate,
                "events": runs[0][0].events, "mevents_per_s": runs[0][0].events / took / 1e6,
                "times_real_time": seconds / took, "s": took,
                "spread_s": spread([t for _, t in runs]),
            }  # fmt: skip
            rows.append(row)
            print(f"{name} ({row['tiers']} tiers) at {rate:g}/s: {row['mevents_per_s']:.1f} M events/s, "
                  f"{row['times_real_time']:.0f} x real time ({row['spread_s']} s for {seconds} s)",
                  flush=True)  # fmt: skip
    return rows


def measure_tiers(*, quick: bool) -> list[dict[str, Any]]:
    """A chain of more and more tiers at one rate."""
    from gnomon.graph.application import Application, Call, RequestClass, Service, Work

    rows = []
    for tiers in (4, 16, 64, 150):
        call = None
        for i in reversed(range(tiers)):
            cpu = Work(mean=0.3, cv=0.5)
            call = Call(f"s{i}", cpu_ms=cpu, then=() if call is None else ((call,),))
        assert call is not None
        app = Application(
            "chain", {f"s{i}": Service(cpu_limit=1.0) for i in range(tiers)}, {"get": RequestClass(call)},
            network_ms=0.05,
        )  # fmt: skip
        sim, took = play(app, 500.0, 5 if quick else 20)
        rows.append(
            {
                "tiers": tiers,
                "events": sim.events,
                "mevents_per_s": sim.events / took / 1e6,
                "s": took,
            }
        )
        print(
            f"chain of {tiers}: {sim.events:,} events, {rows[-1]['mevents_per_s']:.1f} M events/s",
            flush=True,
        )
    return rows


def speed(*, quick: bool) -> dict[str, Any]:
    return {
        "tandem": measure_tandem(quick=quick), "applications": measure_apps(quick=quick),
        "tiers": measure_tiers(quick=quick),
    }  # fmt: skip


# --- recordings of others ------------------------------------------------------------------------


def compare_spans(name: str, spans: Any, cores: Any = None) -> list[dict[str, Any]]:
    from gnomon.ingest.spans.infer import infer_application
    from gnomon.systems.services.imported import play_back

    inferred = infer_application(spans, name=name, cores=cores)
    rows = []
    for one in play_back(inferred):
        rows.append({
            "recording": name, "class": one.name, "requests": one.recorded,
            "recorded_ms": one.recorded_ms, "simulated_ms": one.simulated_ms,
            "errors_pct": one.errors_pct,
        })  # fmt: skip
        shown = ", ".join(
            f"p{p} {a:.1f}/{b:.1f} ms ({e:+.0f} %)"
            for p, a, b, e in zip((50, 90, 99), one.recorded_ms, one.simulated_ms, one.errors_pct)
        )
        print(f"{name}, {one.name} ({one.recorded}): {shown}", flush=True)
    errors = [abs(e) for row in rows for e in row["errors_pct"]]
    print(f"{name}: median error {statistics.median(errors):.1f} %", flush=True)
    return rows


def recorded_spans(folder: Path) -> list[dict[str, Any]]:
    from gnomon.ingest.services.pod_metrics import read_pod_metrics
    from gnomon.ingest.spans.read import read_spans

    rows = compare_spans(
        "DeathStarBench social network",
        read_spans(folder / "deathstarbench/jaeger-traces-socialnetwork.json.gz"),
    )
    for day, name in (("2022-08-22", "Online Boutique, 22 August"), ("2022-08-23", "Online Boutique, 23 August"),
                      ("2023-01-29", "Train Ticket, 29 January")):  # fmt: skip
        with tempfile.TemporaryDirectory() as scratch:
            with tarfile.open(folder / f"nezha/{day}.tar.xz") as archive:
                archive.extractall(scratch, filter="data")
            cores = read_pod_metrics(Path(scratch, day, "metric")).cores
            rows += compare_spans(name, read_spans(f"{scratch}/{day}/trace/*.csv"), cores)
    return rows


def hotel_row(app: Any, log: Any, row: int, wait: Any, seconds: int = 8) -> tuple[float, float]:
    """Mean and p99 in ms of one interval: its rate, its cores."""
    from gnomon.sim.mesh import MeshSim, poisson_requests

    services = {
        name: msgspec.structs.replace(
            one, cpu_limit=float(log.cores[row, log.services.index(name)]), workers=256
        )
        for name, one in app.services.items()
    }
    classes = {
        name: msgspec.structs.replace(one, call=msgspec.structs.replace(one.call, wait_ms=wait))
        for name, one in app.classes.items()
    }
    here = msgspec.structs.replace(app, services=services, classes=classes)
    sim = MeshSim(
        here,
        poisson_requests(here, [log.rate[row]] * seconds, seed=row),
        seed=row,
        keep_requests=True,
    )
    sim.advance((seconds + 60) * SECOND_NS)
    latency = sim.request_latency_ns[sim.request_status == 1] / 1e6
    return float(latency.mean()), float(np.percentile(latency, 99))


def recorded_hotel(folder: Path, rows_each: int = 40) -> list[dict[str, Any]]:
    """Cilantro's Hotel Reservation on EKS, 30 s a row: mean and p99 under known rates and cores.

    The bundled application, its CPU times as they are. What requests wait besides is fitted to the
    mean and the p99 of the first half of one policy's rows (ucbopt): a log-normal time at the
    frontend. The rest is predicted.
    """
    from gnomon.graph.application import Work
    from gnomon.ingest.services.application_file import read_application
    from gnomon.ingest.services.cilantro import read_cilantro

    app = read_application("bundled:hotel-reservation")
    logs = {
        path.name.partition("_")[0]: read_cilantro(path)
        for path in (folder / "cilantro").glob("*.csv.gz")
    }
    known = logs["ucbopt"]
    first = [i for i in range(len(known) // 2) if known.p99_ms[i] > 0 and known.rate[i] > 100]
    target = float(np.median(known.mean_ms[first])), float(np.median(known.p99_ms[first]))
    own_ms, _ = hotel_row(app, known, first[len(first) // 2], 0.0)
    mean = target[0] - own_ms
    cvs = np.arange(0.05, 1.5, 0.02)
    tails = [float(np.exp(2.326 * np.sqrt(np.log1p(c * c)) - np.log1p(c * c) / 2)) for c in cvs]
    cv = float(cvs[np.argmin(np.abs(np.array(tails) * mean + own_ms - target[1]))])
    wait = Work(mean=mean, cv=cv)
    found = []
    for policy, log in sorted(logs.items()):
        usable = [i for i in range(len(log)) if log.p99_ms[i] > 0 and log.rate[i] > 100]
        if policy == "ucbopt":
            usable = [i for i in usable if i >= len(log) // 2]
        chosen = [usable[int(i)] for i in np.linspace(0, len(usable) - 1, rows_each)]
        predicted = np.array([hotel_row(app, log, i, wait) for i in chosen])
        measured = np.stack([log.mean_ms[chosen], log.p99_ms[chosen]], axis=1)
        errors = 100 * np.abs(predicted / measured - 1)
        row = {
            "policy": policy, "rows": len(chosen),
            "measured_ms": np.median(measured, axis=0).tolist(),
            "predicted_ms": np.median(predicted, axis=0).tolist(),
            "median_error_pct": np.median(errors, axis=0).tolist(),
            "cores": float(np.median(log.cores[chosen].sum(axis=1))),
        }  # fmt: skip
        found.append(row)
        print(f"Hotel Reservation, {policy}: {row['cores']:.0f} cores; mean {row['measured_ms'][0]:.0f} / "
              f"{row['predicted_ms'][0]:.0f} ms, p99 {row['measured_ms'][1]:.0f} / {row['predicted_ms'][1]:.0f} ms; "
              f"median errors {row['median_error_pct'][0]:.0f} and {row['median_error_pct'][1]:.0f} %",
              flush=True)  # fmt: skip
    return found


def lab(repeats: int) -> dict[str, Any]:
    from gnomon import report
    from gnomon.ingest.services.application_file import read_application
    from gnomon.systems.services.lab_result import sweep_to_result, sweep_to_script
    from gnomon.systems.services.sweep import sweep

    found = sweep(
        read_application("bundled:starter"), "logic", [None, 1.0, 0.6, 0.5, 0.42, 0.33, 1.0], repeats=repeats,
        cores=os.cpu_count() or 1,
    )  # fmt: skip
    report.print_result(sweep_to_result(found))
    return sweep_to_script(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["speed", "recorded", "lab"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.part == "speed":
        found: Any = speed(quick=given.quick)
    elif given.part == "lab":
        found = lab(given.repeats)
    else:
        found = {
            "spans": recorded_spans(given.data / "services"),
            "hotel": recorded_hotel(given.data / "services"),
        }
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
