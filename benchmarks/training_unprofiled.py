"""The step without the profiler, against the truth: fitted constants, each trace left out once.

    python benchmarks/training_unprofiled.py [--data DIR] [--json OUT] [--write]

Reads `h200/` (a profiled trace and the unprofiled step of each of eight workloads), `h200-pairs/`
(workloads profiled with different options) and `ranks/` (CPU ranks; never fitted to). Four
multiples and the kernel's gap are fitted by regularised least squares on the logarithm of
estimated over measured steps; the first guesses come from tight loops around single operators,
launches and frames. Every workload weighs the same, however many traces it has. For each row of
the first table the constants are fitted without that workload, its `h200-pairs` traces included.
`--write` writes the constants fitted to all as the shipped ones.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import msgspec
import numpy as np

from gnomon.ingest.profiler.kineto import read_kineto
from gnomon.model.accelerator import profiler_cost
from gnomon.model.accelerator.profiler_cost import (
    ProfilerCost,
    default_profiler_cost,
    save_profiler_cost,
)
from gnomon.sim.trace.graph import build_graph
from gnomon.sim.trace.unprofiled import unprofiled_step

#: Measured in tight loops on the machine of `h200/`, caches warm: what an operator costs over its
#: own two shortest stretches, and so on. In a training step it is more.
GUESS = {"operator": 1.2, "launch": 0.85, "call": 2.0, "frame": 2.5, "kernel_ns": 300.0}
#: How far, by a factor's logarithm, the guesses may be off, and single traces around the model.
GUESS_SPREAD, TRACE_SPREAD = 1.0, 0.15
#: 80 % of a normal distribution lies within so many standard deviations.
RANGE = 1.2816
FIXED = {
    "lone": 0.85, "unsteady_ns": 20_000.0, "enter_ns": 700.0, "exit_ns": 250.0,
    "launch_ns": 4_500.0, "host_spread": 0.18, "device_spread": 0.03,
}  # fmt: skip
SAME = {"pair-cpubound": "gpt-cpubound", "pair-linear": "linear", "pair-overlap": "overlap"}


class Case:
    """One trace, its graph and the truth."""

    def __init__(self, file: Path) -> None:
        self.folder, self.option = file.parent.name, file.name.split(".")[0]
        self.workload = SAME.get(self.folder, self.folder)
        self.trace = read_kineto(file)
        self.training = build_graph(self.trace)
        meta = json.loads(file.with_name("meta.json").read_text())
        self.truth_ms = float(meta["step_ms_median"])

    def step(self, cost: ProfilerCost):
        return unprofiled_step(self.trace, self.training, cost)

    def error(self, cost: ProfilerCost) -> float:
        """Logarithm of estimated over measured."""
        return float(np.log(self.step(cost).estimate.mid / self.truth_ms))


def cost_at(theta: np.ndarray, **others: float) -> ProfilerCost:
    values = dict(zip(GUESS, (np.asarray(list(GUESS.values())) * np.exp(theta)).tolist()))
    return ProfilerCost(**(FIXED | values | others))


def slopes(cases: list[Case]) -> np.ndarray:
    """How each error answers to each constant, around the guesses."""
    zero, step = np.zeros(len(GUESS)), 0.3
    columns = []
    for k in range(len(GUESS)):
        up, down = zero.copy(), zero.copy()
        up[k], down[k] = step, -step
        ends = [np.asarray([case.error(cost_at(t)) for case in cases]) for t in (up, down)]
        columns.append((ends[0] - ends[1]) / (2 * step))
    return np.stack(columns, axis=1)


def fit(cases: list[Case], slope: np.ndarray, rounds: int = 3) -> ProfilerCost:
    """Least squares with the guesses as a prior; slopes are those at the guesses throughout."""
    share = np.asarray([1 / sum(c.workload == case.workload for c in cases) for case in cases])
    weight = np.sqrt(share) / TRACE_SPREAD
    # What no constant moves has nothing to say about them.
    moved = np.abs(slope).max(axis=1, initial=0.0) > 1e-3
    chosen = [case for case, moves in zip(cases, moved) if moves]
    theta = np.zeros(len(GUESS))
    scaled = slope[moved] * weight[moved, None]
    inverse = np.linalg.inv(scaled.T @ scaled + np.eye(len(theta)) / GUESS_SPREAD**2)
    for _ in range(rounds):
        error = np.asarray([case.error(cost_at(theta)) for case in chosen]) * weight[moved]
        theta = theta - inverse @ (scaled.T @ error + theta / GUESS_SPREAD**2)
    return with_spreads(cost_at(theta), cases)


def with_spreads(cost: ProfilerCost, cases: list[Case]) -> ProfilerCost:
    """How far off the fitted model is where the host sets the pace, and where the device does."""
    steps = [case.step(cost) for case in cases]
    error = np.asarray([np.log(s.estimate.mid / c.truth_ms) for s, c in zip(steps, cases)])
    by_host = np.asarray([s.bound_by == "host" for s in steps])

    def spread(errors: np.ndarray, fitted: int, least: float) -> float:
        free = max(len(errors) - fitted, 1)
        return max(RANGE * float(np.sqrt(np.sum(errors**2) / free)), least)

    # Operators and launches are fitted to what the host bounds, the kernel's gap to the rest.
    return msgspec.structs.replace(
        cost,
        host_spread=spread(error[by_host], 2, 0.1),
        device_spread=spread(error[~by_host], 1, 0.02),
    )


def row(case: Case, cost: ProfilerCost) -> dict[str, object]:
    step = case.step(cost)
    return {
        "trace": case.folder if case.option == "kineto" else f"{case.folder}/{case.option}",
        "unprofiled_ms": case.truth_ms,
        "profiled_ms": step.profiled_ms,
        "estimate_ms": step.estimate.mid,
        "low_ms": step.estimate.low,
        "high_ms": step.estimate.high,
        "error_pct": 100.0 * (step.estimate.mid / case.truth_ms - 1.0),
        "inside": step.estimate.contains(case.truth_ms),
        "bound_by": step.bound_by,
        "removed_ms": step.removed_ms,
    }


def summary(rows: list[dict]) -> dict[str, float]:
    errors = np.abs([r["error_pct"] for r in rows])
    naive = np.abs([100.0 * (r["profiled_ms"] / r["unprofiled_ms"] - 1.0) for r in rows])
    return {
        "traces": len(rows),
        "mean_abs_error_pct": float(errors.mean()),
        "worst_pct": float(errors.max()),
        "inside": int(sum(bool(r["inside"]) for r in rows)),
        "as_recorded_mean_abs_error_pct": float(naive.mean()),
    }


def show(title: str, rows: list[dict]) -> None:
    print(f"\n{title}")
    print(
        f"{'trace':26s} {'without':>9s} {'profiled':>9s} {'estimate':>9s} {'range':>19s} {'error':>7s}  pace"
    )
    for r in rows:
        inside = " " if r["inside"] else "!"
        print(
            f"{r['trace']:26s} {r['unprofiled_ms']:9.2f} {r['profiled_ms']:9.2f} {r['estimate_ms']:9.2f} "
            f"{r['low_ms']:9.2f}-{r['high_ms']:9.2f}{inside} {r['error_pct']:+6.1f}%  {r['bound_by']}"
        )
    s = summary(rows)
    print(
        f"mean {s['mean_abs_error_pct']:.1f} %, worst {s['worst_pct']:.1f} %, "
        f"{s['inside']} of {s['traces']} inside the range (as recorded: mean {s['as_recorded_mean_abs_error_pct']:.1f} %)"
    )


def show_options(rows: list[dict]) -> None:
    print("\nWhat was taken out of a step, in ms on all threads")
    reasons = list(rows[0]["removed_ms"])
    print(f"{'trace':26s} " + " ".join(f"{why:>13s}" for why in reasons))
    for r in rows:
        print(f"{r['trace']:26s} " + " ".join(f"{r['removed_ms'][why]:13.2f}" for why in reasons))


def left_out(cases: list[Case], slope: np.ndarray) -> list[dict]:
    rows = []
    for case in (c for c in cases if c.option == "kineto"):
        kept = [k for k, other in enumerate(cases) if other.workload != case.workload]
        rows.append(row(case, fit([cases[k] for k in kept], slope[kept])))
    return rows


def load_cases(data: Path) -> list[Case]:
    """Every trace whose step without the profiler is known."""
    files = sorted(data.glob("h200/*/kineto.json.gz"))
    files += sorted(data.glob("h200-pairs/*/*.json.gz"))
    return [Case(file) for file in files]


def left_out_rows(data: Path) -> list[dict]:
    """Each workload predicted by constants that were fitted without it."""
    cases = load_cases(data)
    return left_out(cases, slopes(cases))


def data_folder(given: str | None) -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(given or os.environ.get("GNOMON_DATA") or beside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="the data folder; $GNOMON_DATA unless given")
    parser.add_argument(
        "--recordings", help="also a folder of what benchmarks/training_record_gpu.py wrote"
    )
    parser.add_argument("--json", help="write everything there")
    parser.add_argument(
        "--write", action="store_true", help="write the constants as the shipped ones"
    )
    options = parser.parse_args()
    data = data_folder(options.data)
    cases = load_cases(data)
    slope = slopes(cases)
    loo = left_out(cases, slope)
    show("Each workload left out of the fit", loo)
    cost = fit(cases, slope)
    pairs = [row(case, cost) for case in cases if case.option != "kineto"]
    show("By option, fitted to all", pairs)
    show_options([r for r in pairs if str(r["trace"]).startswith("pair-")])
    if options.recordings:
        files = sorted(Path(options.recordings).glob("*/kineto.json.gz"))
        show(
            "Recordings, never fitted",
            [row(Case(file), default_profiler_cost()) for file in files],
        )
    ranks = [row(Case(file), cost) for file in sorted(data.glob("ranks/*/rank0.json.gz"))]
    show("CPU ranks, rank 0 alone", ranks)
    largest = max(cases, key=lambda case: len(case.trace))
    began = time.process_time()
    largest.step(cost)
    cpu_s = time.process_time() - began
    print(f"\n{cpu_s * 1e3:.0f} ms of CPU for {len(largest.trace):,} events, two replays included")
    constants = msgspec.structs.asdict(cost)
    print(", ".join(f"{name} {value:.4g}" for name, value in constants.items()))
    if options.write:
        comment = "What the profiler costs: see ProfilerCost. Fitted by benchmarks/training_unprofiled.py --write."
        save_profiler_cost(cost, Path(profiler_cost.__file__).with_suffix(".toml"), comment)
    if options.json:
        found = {
            "left_out": loo, "by_option": pairs, "ranks": ranks, "constants": constants,
            "summary": {"left_out": summary(loo), "by_option": summary(pairs)}, "cpu_s": cpu_s,
        }  # fmt: skip
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
