"""Whole pipeline jobs replayed from operation logs, beside what was published about them.

    python benchmarks/training_straggler.py [LOG ...] [--steps] [--json OUT]

Without LOG, the published logs of $GNOMON_DATA (or ../shared/data). Where `result-NAME.json[.gz]`,
`ms-NAME.json` and `mw-NAME.json` lie beside `trace-NAME.parquet`, every figure in them is compared.

Three errors against the recorded steps, because the first alone says little: the graph as it is
keeps every gap that it recorded and gives the step back by construction; with the gaps of the
*other* steps (the median of the same place) it is a prediction; without gaps it is what
dependencies and durations alone explain, which is also what the published replay does.
Times are CPU seconds of this process, the least of three.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from gnomon.ingest.profiler.operation_log import read_operation_log
from gnomon.sim import replay
from gnomon.systems.training.operations import build_operations_graph, fence_tasks
from gnomon.systems.training.straggler import straggler_report


def timed(function, repeats=3):
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def mean_error(seconds, recorded):
    return float(np.mean(np.abs(seconds / recorded - 1.0)))


def with_gaps_of_other_steps(training):
    """Each gap as the median of the same place in all other steps; a place: rank and operation."""
    graph, steps = training.graph, len(training.step_names)
    gap = np.flatnonzero(graph.is_kind("gap"))
    place = graph.rank[gap + 1].astype(np.int64) * len(graph.names) + graph.name[gap + 1]
    used, index = np.unique(place, return_inverse=True)
    table = np.zeros((len(used), steps))
    table[index, training.step[gap]] = graph.duration_ns[gap]
    duration = graph.duration_ns.copy()
    for step in range(steps):
        usual = np.median(np.delete(table, step, axis=1), axis=1) if steps > 1 else table[:, 0]
        here = training.step[gap] == step
        duration[gap[here]] = np.rint(usual[index[here]])
    line = replay(graph.with_durations(duration), causes=False)
    return np.diff(line.start_ns[fence_tasks(training)]) / 1e9


def published(path: Path, kind: str):
    name = path.name.split(".")[0].removeprefix("trace-")
    for ending in (".json", ".json.gz"):
        file = path.with_name(f"{kind}-{name}{ending}")
        if file.is_file():
            raw = file.read_bytes()
            return json.loads(gzip.decompress(raw) if ending == ".json.gz" else raw)
    return None


def largest(ours, theirs):
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(theirs) - 1.0)))


def disagreement(path: Path, report) -> dict[str, float]:
    """The largest relative difference from each published figure."""
    result, last, worst = (published(path, kind) for kind in ("result", "ms", "mw"))
    if result is None:
        return {}

    def per_step(table):
        return [table[str(step)] for step in report.steps.tolist()]

    found = {
        "step_t_base": largest(report.recorded_s, per_step(result["step_t_base"])),
        "step_t_nodelay": largest(report.no_delay_s, per_step(result["step_t_nodelay"])),
        "step_t_noblk": largest(report.ideal_s, per_step(result["step_t_noblk"])),
        "launch_slowdown": largest(report.delay_slowdown, result["launch_slowdown"]),
        "blocking_slowdown": largest(report.straggler_slowdown, result["blocking_slowdown"]),
        "blocking_step_slowdown": largest(
            report.no_delay_s / report.ideal_s, per_step(result["blocking_step_slowdown"])
        ),
    }
    for ours, name in (
        (report.by_dp_rank, "blocking_decompose_by_dp_rank"),
        (report.by_stage, "blocking_decompose_by_stage"),
        (report.by_operation, "blocking_decompose_by_optype"),
    ):
        if result.get(name):
            found[name] = largest(ours.slowdown, [result[name][label] for label in ours.labels])
            each = result[f"{name}_per_step"]
            theirs = [
                [each[str(s)][label] for s in report.steps.tolist()] for label in ours.labels
            ]
            found[f"{name}_per_step"] = largest(ours.by_step, theirs)
    for share, theirs, name in (
        (report.last_stage, last, "Ms"),
        (report.worst_share, worst, "Mw"),
    ):
        if theirs is not None:
            found[f"{name}: trem"] = largest(share.removed_s, theirs["trem"])
            found[f"{name}: tadd"] = largest(share.added_s, theirs["tadd"])
            found[name] = largest(share.removed, theirs["rem"])
    return found


def measure(path: Path) -> dict:
    read_s, log = timed(lambda: read_operation_log(path))
    build_s, training = timed(lambda: build_operations_graph(log))
    replay_s, line = timed(lambda: replay(training.graph, causes=False))
    report_s, report = timed(lambda: straggler_report(log, training))
    assert len(line) == len(training.graph)
    assert len(log) < len(line)  # every row is a task, and there are gaps
    theirs = published(path, "result")
    their_error = None
    if theirs is not None:
        their_steps = [theirs["step_t_nodelay"][str(step)] for step in report.steps.tolist()]
        their_error = mean_error(np.asarray(their_steps), report.recorded_s)
    return {
        "job": log.layout.name,
        "layout": f"DP{log.layout.dp_size} PP{log.layout.pp_size}x{log.layout.vpp_size}",
        "rows": len(log),
        "steps": len(log.steps),
        "tasks": len(training.graph),
        "edges": training.graph.n_edges,
        "recorded_s": float(report.recorded_s.mean()),
        "error_as_recorded": report.replay_error,
        "worst_step_as_recorded": largest(report.replayed_s, report.recorded_s),
        "error_gaps_of_other_steps": mean_error(
            with_gaps_of_other_steps(training), report.recorded_s
        ),
        "error_without_gaps": report.no_delay_error,
        "published_error": their_error,
        "ideal_s": float(report.ideal_s.mean()),
        "straggler_slowdown": report.straggler_slowdown,
        "last_stage_share": report.last_stage.removed,
        "worst_ranks": list(report.worst_ranks),
        "worst_share": report.worst_share.removed,
        "disagreement": disagreement(path, report),
        "notes": list(training.notes),
        "cpu_s": {"read": read_s, "build": build_s, "replay": replay_s, "what_ifs": report_s},
        "per_step": [
            {
                "step": int(step),
                "recorded_ms": 1e3 * a,
                "replayed_ms": 1e3 * b,
                "error": b / a - 1.0,
            }
            for step, a, b in zip(
                report.steps, report.recorded_s.tolist(), report.replayed_s.tolist()
            )
        ],
    }


def show(row: dict, steps: bool) -> None:
    print(f"{row['job']}: {row['layout']}, {row['rows']:,} rows, {row['steps']} steps, "
          f"{row['tasks']:,} tasks, {row['edges']:,} edges; step {row['recorded_s']:.3f} s")  # fmt: skip
    for label, key in (
        ("replayed as recorded", "error_as_recorded"),
        ("with the gaps of other steps", "error_gaps_of_other_steps"),
        ("without gaps", "error_without_gaps"),
        ("published replay", "published_error"),
    ):
        if row[key] is not None:
            print(f"  mean |step error|, {label:<30} {100 * row[key]:9.5f} %")
    print(f"  no stragglers: {row['ideal_s']:.3f} s, slow-down {row['straggler_slowdown']:.4f}; "
          f"last stage explains {row['last_stage_share']:.3f}, "
          f"ranks {row['worst_ranks']} {row['worst_share']:.3f}")  # fmt: skip
    for name, value in row["disagreement"].items():
        print(f"  largest difference from published {name:<40} {100 * value:7.3f} %")
    for note in row["notes"]:
        print(f"  note: {note}")
    spent = ", ".join(f"{name} {value:.3f}" for name, value in row["cpu_s"].items())
    print(f"  CPU s: {spent}")
    if steps:
        for each in row["per_step"]:
            print(f"    step {each['step']:>6}  {each['recorded_ms']:12.3f} ms recorded "
                  f"{each['replayed_ms']:12.3f} ms replayed  {100 * each['error']:+.5f} %")  # fmt: skip


def published_logs() -> list[Path]:
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GNOMON_DATA") or shared) / "public" / "straggler"
    found = sorted(folder.glob("trace-*.parquet"))
    if not found:
        sys.exit(f"no logs in {folder}; set GNOMON_DATA or name them")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--steps", action="store_true", help="also print every step")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    rows = [measure(path) for path in options.logs or published_logs()]
    for row in rows:
        show(row, options.steps)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
