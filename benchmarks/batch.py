"""Speed of the cluster simulator, of its policies, and of Decima's network.

    python benchmarks/batch.py speed [--quick] [--json OUT]
    python benchmarks/batch.py events | peer | decima | large     one part of it

`events`: simulated events a second on one core, by policy: 500 jobs like TPC-H's on 100 executors.
`peer`: the same jobs in the straightforward Python simulator (`tests/sim/reference_cluster.py`),
decision by decision; both have to end every job at the same nanosecond.
`decima`: microseconds a decision with 50 jobs in the system: of whole runs, simulator included,
and of the network alone on views taken from such a run.
`large`: 100,000 jobs on 10,000 executors, each policy in a process of its own: time and memory.

Times are CPU seconds, the median of several repeats with their spread; every run has to have done
all tasks.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from peak_memory import peak_mib

ROOT = Path(__file__).resolve().parents[1]
EXECUTORS = 100
POLICIES = ("fifo", "fair", "weighted-fair", "critical-path", "cap:fifo")
#: At this pace 10,000 executors are busy for about half of the time.
LARGE_MEAN_S = 0.3
#: Stages of 50 jobs that have just come.
NODES = 460
HOUR_NS = 60 * 10**9


def reference() -> Any:
    """The straightforward simulator, which tests hold the native one against."""
    path = ROOT / "tests" / "sim" / "reference_cluster.py"
    spec = importlib.util.spec_from_file_location("reference_cluster", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def tpch_jobs(count: int, mean_s: float, seed: int = 1) -> Any:
    from gnomon.datasets.batch_jobs import sample_jobs, tpch_like

    rng = np.random.default_rng(seed)
    return sample_jobs(tpch_like(rng), count, mean_s=mean_s, rng=rng)


def year_of_germany() -> Any:
    from gnomon.series.zones import zone_profile, zone_signal
    from gnomon.sim.cluster import GridSteps

    start_ns = zone_profile("DE").start_ns
    signal = zone_signal("DE", start_ns, start_ns + 8_760 * 3_600 * 10**9, seed=0)
    return GridSteps.known(signal.values, HOUR_NS)


def timed(function: Any, repeats: int) -> tuple[list[float], Any]:
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds.append(time.process_time() - begin)
    return seconds, result


def spread(seconds: list[float]) -> str:
    return f"{min(seconds):.3g}..{max(seconds):.3g}"


def measure_events(*, quick: bool = False) -> dict[str, Any]:
    from gnomon.decide.cluster import simulate

    jobs, grid = tpch_jobs(100 if quick else 500, 30.0), year_of_germany()
    rows = []
    for policy in POLICIES:
        seconds, run = timed(
            lambda name=policy: simulate(name, jobs, EXECUTORS, grid=grid), 3 if quick else 7
        )
        assert run.tasks == jobs.task_count
        took = statistics.median(seconds)
        rows.append(
            {
                "policy": policy, "events": run.events, "tasks": run.tasks,
                "decisions": run.decisions, "s": took, "spread_s": spread(seconds),
                "mevents_per_s": run.events / took / 1e6,
            }
        )  # fmt: skip
        print(_line(rows[-1]), flush=True)
    return {"rows": rows, "least_mevents_per_s": min(row["mevents_per_s"] for row in rows)}


def measure_peer(*, quick: bool = False) -> dict[str, Any]:
    from gnomon.decide.cluster import simulate
    from gnomon.sim.cluster import Executors

    python = reference()
    rules = {
        "fifo": python.Rules(),
        "fair": python.Rules(order="fair"),
        "weighted-fair": python.Rules(order="fair", exponent=-1.0),
        "critical-path": python.Rules(order="critical-path"),
    }
    jobs = tpch_jobs(20 if quick else 50, 30.0)
    many = Executors(count=EXECUTORS)
    rows = []
    for policy, rule in rules.items():
        seconds, run = timed(lambda name=policy: simulate(name, jobs, many), 5 if quick else 15)
        theirs, slow = timed(
            lambda r=rule: python.ReferenceCluster(jobs, many, r).run(), 1 if quick else 3
        )
        assert run.finish_ns.tolist() == [slow.finish_ns[job] for job in range(len(jobs))]
        assert run.decisions == slow.decisions
        assert run.tasks == len(slow.log) == jobs.task_count
        took, python_s = statistics.median(seconds), statistics.median(theirs)
        rows.append(
            {
                "policy": policy, "decisions": run.decisions, "s": took,
                "spread_s": spread(seconds), "decisions_per_s": run.decisions / took,
                "python_s": python_s, "python_spread_s": spread(theirs),
                "python_decisions_per_s": run.decisions / python_s, "ratio": python_s / took,
            }
        )  # fmt: skip
        print(_line(rows[-1]), flush=True)
    return {"rows": rows, "least_ratio": min(row["ratio"] for row in rows)}


def chains(count: int, length: int, seed: int = 1) -> Any:
    """Jobs that come one after the other in so many chains: that many are in the system."""
    from gnomon.datasets.batch_jobs import tpch_like
    from gnomon.graph.jobs import BatchJobs

    rng = np.random.default_rng(seed)
    kinds = tpch_like(rng)
    number = np.arange(count * length)
    return BatchJobs.of(
        kinds, rng.integers(0, len(kinds), number.size), np.zeros(number.size, np.int64),
        after=np.where(number < count, -1, number - count),
    )  # fmt: skip


def decima_weights() -> Any:
    from gnomon.errors import InputError
    from gnomon.model.decima.network import DecimaWeights, bundled_decima

    try:
        return bundled_decima()
    except InputError:  # what the numbers are does not matter for the time
        return DecimaWeights.initial(np.random.default_rng(0))


def measure_decima(*, quick: bool = False) -> dict[str, Any]:
    from gnomon import _core
    from gnomon.sim.cluster import Executors, run_cluster

    parameters, jobs = decima_weights().parameters, chains(50, 1 if quick else 4)
    many = Executors(count=EXECUTORS)
    seconds, run = timed(
        lambda: run_cluster(jobs, many, _core.decima_order(parameters)), 3 if quick else 7
    )
    assert run.tasks == jobs.task_count
    order = _core.decima_order(parameters, True)
    run_cluster(jobs, many, order)
    record = order.record()
    decisions = decisions_of(record)
    in_system, nodes = np.diff(record["first_job"]), np.diff(record["first_node"])
    full = [decision for decision, many_jobs in zip(decisions, in_system) if many_jobs == 50]
    full.sort(key=lambda decision: abs(decision["nodes"] - NODES))
    chosen = full[: 20 if quick else 100]
    alone = [network_us(parameters, decision, 20 if quick else 200) for decision in chosen]
    per_decision = [1e6 * took / run.decisions for took in seconds]
    found = {
        "decisions": run.decisions, "jobs_mean": float(in_system.mean()),
        "nodes_mean": float(nodes.mean()),
        "run_us_per_decision": statistics.median(per_decision),
        "run_spread_us": spread(per_decision),
        "views": len(chosen),
        "view_nodes_median": statistics.median(decision["nodes"] for decision in chosen),
        "network_us": statistics.median(alone), "network_spread_us": spread(alone),
    }  # fmt: skip
    print(_line(found), flush=True)
    return found


def decisions_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What the network was shown and asked at each decision, as it takes it."""
    from gnomon import _core

    decisions = []
    for d in range(len(record["chosen"])):

        def part(name: str, first: str, d: int = d) -> Any:
            return record[name][record[first][d] : record[first][d + 1]]

        job_nodes = part("job_nodes", "first_job")
        nodes = int(job_nodes.sum())
        parent = part("edge_parent", "first_edge")  # rising: written node by node
        view = _core.DecimaView(
            job_first=np.append(0, np.cumsum(job_nodes)).astype(np.int32),
            job_executors=part("job_executors", "first_job").copy(),
            source_job=int(record["source_job"][d]),
            free_executors=float(record["free_executors"][d]),
            work_ms=part("work_ms", "first_node").copy(),
            tasks=part("tasks", "first_node").copy(),
            child_first=np.searchsorted(parent, np.arange(nodes + 1)).astype(np.int32),
            child=part("edge_child", "first_edge").copy(),
            height=part("height", "first_node").copy(),
            ready=part("ready", "first_ready").copy(),
        )
        asked = {name: int(record[name][d]) for name in ("job", "lowest", "highest")}
        decisions.append({"view": view, "nodes": nodes, **asked})
    return decisions


def network_us(parameters: Any, decision: dict[str, Any], repeat: int) -> float:
    """Of one decision of the bare network: a call with many repeats, less one with one."""
    from gnomon import _core

    asked = {name: decision[name] for name in ("view", "job", "lowest", "highest")}

    def once(times: int) -> float:
        begin = time.process_time_ns()
        stages, limits = _core.decima_probabilities(parameters, **asked, repeat=times)
        took = time.process_time_ns() - begin
        assert all(abs(float(part.sum()) - 1) < 1e-3 for part in (stages, limits))
        return took

    return (once(repeat + 1) - once(1)) / repeat / 1e3


def measure_large(*, quick: bool = False) -> dict[str, Any]:
    scale = 20 if quick else 1
    rows = []
    for policy in ("fifo", "fair"):
        command = [
            sys.executable, __file__, "one-large", "--policy", policy,
            "--jobs", str(100_000 // scale), "--executors", str(10_000 // scale),
            "--mean-s", str(LARGE_MEAN_S * scale),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(_line(rows[-1]), flush=True)
    return {"rows": rows, "largest_s": max(row["s"] for row in rows),
            "peak_mib": max(row["peak_mib"] for row in rows)}  # fmt: skip


def one_large(policy: str, jobs: int, executors: int, mean_s: float) -> dict[str, Any]:
    from gnomon.decide.cluster import simulate

    made = tpch_jobs(jobs, mean_s)
    before = peak_mib()
    begin = time.process_time()
    run = simulate(policy, made, executors)
    took = time.process_time() - begin
    assert run.tasks == made.task_count
    assert (run.finish_ns > 0).all()
    in_system = run.completion_ns.sum() / run.end_ns
    return {
        "policy": policy, "jobs": jobs, "executors": executors, "tasks": run.tasks,
        "events": run.events, "decisions": run.decisions, "s": took,
        "mevents_per_s": run.events / took / 1e6, "simulated_s": run.end_ns / 1e9,
        "jobs_in_system_mean": float(in_system),
        "busy_share": run.work_ns / run.end_ns / executors,
        "inputs_mib": before, "peak_mib": peak_mib(),
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in row.items()
        if not isinstance(value, list)
    )


PARTS = {
    "events": measure_events,
    "peer": measure_peer,
    "decima": measure_decima,
    "large": measure_large,
}


def measure(parts: list[str], *, quick: bool = False) -> dict[str, dict[str, Any]]:
    """For `tests/claims`."""
    return {name: PARTS[name](quick=quick) for name in parts}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("verb", choices=["speed", *PARTS, "one-large"])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it work at all")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--policy", default="fifo", help="of one-large; so the next three")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--executors", type=int, default=10_000)
    parser.add_argument("--mean-s", type=float, default=LARGE_MEAN_S)
    given = parser.parse_args()
    if given.verb == "one-large":
        print(json.dumps(one_large(given.policy, given.jobs, given.executors, given.mean_s)))
        return
    found = measure(list(PARTS) if given.verb == "speed" else [given.verb], quick=given.quick)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
