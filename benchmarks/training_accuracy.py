"""How right the training system is: every figure that the documentation claims, measured again.

    python benchmarks/training_accuracy.py [PART ...] [--json]

Parts: replay, ranks, edges, captured, stragglers, unprofiled. Reads the data folder
(`GNOMON_DATA`, or `../shared/data` beside the checkout) and the traces under `tests/data`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.profiler.kineto import KinetoTrace, read_kineto
from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES
from gnomon.sim import replay
from gnomon.sim.trace import build_graph
from gnomon.sim.trace.events import EventClass, LaidOut, lay_out
from gnomon.sim.trace.graph import TraceGraph
from gnomon.sim.trace.marks import asked_at
from gnomon.sim.trace.steps import held_out, step_rows
from gnomon.systems.training.job import build_job
from gnomon.systems.training.whatif import DelayRank, NoHostOverhead, play

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("GNOMON_DATA", ROOT.parent / "shared" / "data"))
OWN = ROOT / "tests" / "data" / "h200"
#: A wait binds when its target could have started so much earlier without it.
BINDING_NS = 5_000
#: Confidences are compared with how often they were right in classes of this width.
CLASSES = (0.25, 0.5, 0.75, 0.95, 1.01)

Rows = list[dict[str, Any]]


def main() -> None:
    """Measures the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help="which parts; all of them unless given")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    found = measure(chosen.part or list(PARTS))
    if chosen.json:
        print(json.dumps(found, indent=1))
        return
    for part, figures in found.items():
        print(f"\n{part}")
        for row in figures.pop("rows"):
            print("  " + "  ".join(f"{key} {_short(value)}" for key, value in row.items()))
        for name, value in figures.items():
            print(f"  {name}: {_short(value)}")


def measure(parts: list[str]) -> dict[str, dict[str, Any]]:
    """The figures of some parts; `rows` has what they are made of."""
    return {part: PARTS[part]() for part in parts}


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


# -- replay ----------------------------------------------------------------------------------


def replay_part() -> dict[str, Any]:
    """Every step of every trace with steps; and with think time from the other steps."""
    rows: Rows = []
    for name, training in _graphs_with_steps():
        line = replay(training.graph)
        steps = [row.error_pct for row in step_rows(training, line)]
        others = [row.error_pct for row in held_out(training)]
        if steps:
            rows.append(
                {"trace": name, "steps": len(training.step_names), "self_pct": _worst(steps),
                 "held_out_pct": _worst(others) if others else None}
            )  # fmt: skip
    held = [abs(row["held_out_pct"]) for row in rows if row["held_out_pct"] is not None]
    return {
        "rows": rows,
        "traces": len(rows),
        "self_worst_pct": max(abs(row["self_pct"]) for row in rows),
        "held_out_worst_pct": max(held),
        "held_out_mean_pct": float(np.mean(held)),
    }


def _graphs_with_steps() -> list[tuple[str, TraceGraph]]:
    found = []
    files = sorted(DATA.glob("h200/*/kineto.json.gz"))
    files += sorted(
        p for f in ("hta", "kineto", "tracelens") for p in _traces(DATA / "public" / f)
    )
    for file in files:
        try:
            training = build_graph(read_kineto(file))
        except InputError:
            continue  # execution traces and counters lie among them
        if training.step_names:
            found.append((f"{file.parent.name}/{file.name[:30]}", training))
    for folder in sorted(DATA.glob("ranks/*/")):
        traces = [read_kineto(file) for file in sorted(folder.glob("rank*"))]
        found.append((f"ranks/{folder.name}", build_job(traces).training))
    return found


def _traces(folder: Path) -> list[Path]:
    return [*folder.rglob("*.json.gz"), *folder.rglob("*.json")]


def _worst(values: list[float]) -> float:
    return max(values, key=abs)


# -- ranks -----------------------------------------------------------------------------------


def ranks_part() -> dict[str, Any]:
    """Eight DLRM ranks: waits apart from transfers, and one of them late."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(DATA / "public" / "param" / "dlrm_kineto.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        traces = [read_kineto(file) for file in sorted(Path(folder).rglob("*.json"))]
    job = build_job(traces)
    training = job.training
    base = replay(training.graph)
    rows = [
        {"rank": row.rank, "recorded_ms": row.recorded_ms, "error_pct": row.error_pct}
        for row in step_rows(training, base)
        if row.rank is not None
    ]
    assert job.rendezvous is not None
    first = job.rendezvous.task[job.rendezvous.group == job.rendezvous.group[0]]
    recorded = training.recorded.end_ns[first] - training.recorded.start_ns[first]
    moved = {}
    for rank in (1, 7):
        late = play(training, [DelayRank(rank, 5.0)], training.graph, base)[0].timeline
        moved[rank] = [
            after.replayed_ms - before.replayed_ms
            for before, after in zip(step_rows(training, base), step_rows(training, late))
            if before.rank not in (None, rank)
        ]
    return {
        "rows": rows,
        "worst_rank_pct": _worst([row["error_pct"] for row in rows]),
        "communications": int(job.rendezvous.group.max()) + 1,
        "first_all_to_all_recorded_us": [int(recorded.min()) // 1000, int(recorded.max()) // 1000],
        "first_all_to_all_transfer_us": int(training.graph.duration_ns[first].max()) / 1000,
        "last_rank_5_ms_late_moves_others_ms": [min(moved[7]), max(moved[7])],
        "first_rank_5_ms_late_moves_others_ms": [min(moved[1]), max(moved[1])],
    }


# -- edges between streams -------------------------------------------------------------------


class Exam:
    """A trace of GEMMs on streams whose true waits are known."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.truth = json.loads((folder / "truth.json").read_text())["tasks"]
        self.trace = read_kineto(folder / f"{variant}.json.gz")
        self.training = build_graph(self.trace)
        self.gemm_of = self._gemms(self.trace, lay_out(self.trace))
        self.ancestors = self._ancestors()

    def _gemms(self, trace: KinetoTrace, laid: LaidOut) -> dict[int, tuple[int, int]]:
        """The step and GEMM of each device task: a GEMM may clear its output first."""
        is_gemm = (trace.name == trace.names.index("aten::mm")) & trace.is_category("cpu_op")
        gemms = np.flatnonzero(is_gemm)
        asked = asked_at(trace, laid)
        event = self.training.event
        assert event is not None
        found = {}
        for task in np.flatnonzero(event >= 0).tolist():
            row = int(event[task])
            if laid.event_class[row] != EventClass.DEVICE or asked[row] < 0:
                continue
            at = int(np.searchsorted(trace.start_ns[gemms], asked[row], side="right")) - 1
            if at >= 0 and asked[row] <= trace.end_ns[gemms[at]]:
                found[task] = divmod(at, len(self.truth))
        return found

    def _ancestors(self) -> list[set[int]]:
        """What must come before each GEMM: what it waits for, and its own stream."""
        ancestors: list[set[int]] = []
        last: dict[int, int] = {}
        for number, task in enumerate(self.truth):
            before = {*task["deps"]} | (
                {last[task["stream"]]} if task["stream"] in last else set()
            )
            ancestors.append(before.union(*(ancestors[other] for other in before)))
            last[task["stream"]] = number
        return ancestors

    def edges(self) -> dict[tuple[tuple[int, int], tuple[int, int]], float]:
        """The waits between streams that the graph has, with their confidence."""
        graph = self.training.graph
        source, target, kind = graph.edge_list()
        sure = {(w.source, w.target): w.confidence for w in self.training.inferred}
        found = {}
        for a, b, code in zip(source.tolist(), (target + 1).tolist(), kind.tolist()):
            if graph.edge_kinds[code] == "stream" and {a, b} <= set(self.gemm_of):
                found[self.gemm_of[a], self.gemm_of[b]] = sure.get((a, b), 1.0)
        return found

    def is_right(self, source: tuple[int, int], target: tuple[int, int]) -> bool:
        """Whether the target does come after the source."""
        return source[0] < target[0] or source[1] in self.ancestors[target[1]]

    def true_waits(self) -> list[tuple[tuple[int, int], tuple[int, int], bool]]:
        """Waits between streams, and whether they bind."""
        line = self.training.recorded
        first: dict[tuple[int, int], int] = {}
        last: dict[tuple[int, int], int] = {}
        for task, gemm in self.gemm_of.items():
            first[gemm] = min(first.get(gemm, task), task)
            last[gemm] = max(last.get(gemm, task), task)
        waits = []
        for gemm, task in first.items():
            step, number = gemm
            deps = [dep for dep in self.truth[number]["deps"] if (step, dep) in last]
            ends = {dep: int(line.end_ns[last[step, dep]]) for dep in deps}
            for dep in deps:
                if self.truth[dep]["stream"] == self.truth[number]["stream"]:
                    continue
                # What else holds it back: its launch, its own stream, what else it waits for.
                other = max(
                    [int(line.start_ns[task - 1]), *(e for d, e in ends.items() if d != dep)]
                )
                binds = int(line.start_ns[task]) - other >= BINDING_NS and ends[dep] > other
                waits.append(((step, dep), gemm, binds))
        return waits


def edges_part() -> dict[str, Any]:
    """Waits between streams, inferred and recorded, against the truth."""
    rows: Rows = []
    judged: list[tuple[float, bool]] = []
    folders = [DATA / "h200-pairs" / "streams-a", *sorted(OWN.glob("streams-*"))]
    for folder in folders:
        for variant in ("plain", "sync"):
            exam = Exam(folder, variant)
            edges = exam.edges()
            right = {pair: exam.is_right(*pair) for pair in edges}
            if variant == "plain":
                judged += [(sure, right[pair]) for pair, sure in edges.items()]
            waits = exam.true_waits()
            asked = [w for w in waits if w[2]] if variant == "plain" else waits
            hit = sum(any(b == target and (a == source or (a[0] == source[0] and
                          source[1] in exam.ancestors[a[1]])) for a, b in edges)
                      for source, target, _ in asked)  # fmt: skip
            rows.append(
                {"case": folder.name, "events": variant, "found": len(edges),
                 "right": sum(right.values()), "asked": len(asked), "hit": hit}
            )  # fmt: skip

    def share(variant: str, case: str | None, part: str, whole: str) -> float:
        those = [r for r in rows if r["events"] == variant and case in (None, r["case"])]
        return 100.0 * sum(r[part] for r in those) / max(sum(r[whole] for r in those), 1)

    calibration = []
    for low, high in pairwise(CLASSES):
        those = [(sure, ok) for sure, ok in judged if low <= sure < high]
        if those:
            calibration.append(
                {"confidence": f"{low:.2f} to {min(high, 1.0):.2f}", "edges": len(those),
                 "mean_confidence": float(np.mean([sure for sure, _ in those])),
                 "right": float(np.mean([ok for _, ok in those]))}
            )  # fmt: skip
    return {
        "rows": rows + calibration,
        "streams_a_recall_pct": share("plain", "streams-a", "hit", "asked"),
        "streams_a_precision_pct": share("plain", "streams-a", "right", "found"),
        "all_recall_pct": share("plain", None, "hit", "asked"),
        "all_precision_pct": share("plain", None, "right", "found"),
        "sync_recall_pct": share("sync", None, "hit", "asked"),
        "sync_precision_pct": share("sync", None, "right", "found"),
    }


# -- captured steps --------------------------------------------------------------------------


def captured_part() -> dict[str, Any]:
    """Captured steps: their own replay, and foretold from the same step run eagerly."""
    rows: Rows = []
    for folder, name in ((DATA / "h200-pairs", "cudagraph"), (OWN, "cg-small")):
        measured = json.loads((folder / name / "meta.json").read_text())["step_ms_median"]
        captured = build_graph(read_kineto(folder / name / "shapes.json.gz"))
        own = [row.error_pct for row in step_rows(captured, replay(captured.graph))]
        eager = build_graph(read_kineto(folder / f"{name}-eager" / "shapes.json.gz"))
        base = replay(eager.graph)
        foretold = play(eager, [NoHostOverhead()], eager.graph, base)[0].step_ms
        rows.append(
            {"case": name, "replay_pct": _worst(own), "measured_ms": measured,
             "gap_us": _gap_us(captured, measured), "foretold_ms": foretold, "error_pct": 100.0 * (foretold / measured - 1.0)}
        )  # fmt: skip
    return {
        "rows": rows,
        "replay_worst_pct": max(abs(row["replay_pct"]) for row in rows),
        "foretold_worst_pct": max(abs(row["error_pct"]) for row in rows),
    }


def _gap_us(captured: TraceGraph, measured_ms: float) -> float:
    """What a step takes over the sum of its kernels, a kernel."""
    kernels = captured.graph.is_kind(*KERNEL_CLASSES) & (captured.step >= 0)
    steps = len(np.unique(captured.step[kernels]))
    summed_ms = float(captured.graph.duration_ns[kernels].sum()) / 1e6 / steps
    return 1e3 * (measured_ms - summed_ms) / (np.count_nonzero(kernels) / steps)


# -- measured elsewhere ----------------------------------------------------------------------


def stragglers_part() -> dict[str, Any]:
    """Operation logs of whole jobs; see `benchmarks/training_straggler.py` for all of it."""
    from gnomon.ingest.profiler.operation_log import read_operation_log
    from gnomon.systems.training.straggler import straggler_report

    rows: Rows = []
    for log in sorted((DATA / "public" / "straggler").glob("trace-*.parquet")):
        report = straggler_report(read_operation_log(log))
        shipped = _shipped(log)
        ideal = np.mean([shipped["step_t_noblk"][str(step)] for step in report.steps.tolist()])
        rows.append(
            {"job": log.stem, "error_pct": 100.0 * report.replay_error,
             "without_gaps_pct": 100.0 * report.no_delay_error,
             "ideal_against_shipped_pct": 100.0 * float(report.ideal_s.mean() / ideal - 1.0),
             "slowdown_against_shipped_pct":
                 100.0 * (report.straggler_slowdown / shipped["blocking_slowdown"] - 1.0)}
        )  # fmt: skip
    keys = ("error_pct", "ideal_against_shipped_pct", "slowdown_against_shipped_pct")
    return {"rows": rows, **{f"worst_{k}": max(abs(row[k]) for row in rows) for k in keys}}


def _shipped(log: Path) -> dict[str, Any]:
    import gzip

    beside = log.with_name(log.name.replace("trace-", "result-").replace(".parquet", ".json.gz"))
    shipped: dict[str, Any] = json.loads(gzip.decompress(beside.read_bytes()))
    return shipped


def unprofiled_part() -> dict[str, Any]:
    """The step without the profiler; see `benchmarks/training_unprofiled.py` for all of it."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import training_unprofiled  # type: ignore[import-not-found]

    rows = training_unprofiled.left_out_rows(DATA)
    errors = [abs(row["error_pct"]) for row in rows]
    return {"rows": rows, "mean_pct": float(np.mean(errors)), "worst_pct": max(errors)}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "replay": replay_part,
    "ranks": ranks_part,
    "edges": edges_part,
    "captured": captured_part,
    "stragglers": stragglers_part,
    "unprofiled": unprofiled_part,
}

if __name__ == "__main__":
    main()
