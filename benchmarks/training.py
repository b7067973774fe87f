"""Traces to critical paths beside HolisticTraceAnalysis, and the replay of whole jobs.

    python benchmarks/training.py [--hta-python PATH] [--quick] [--json OUT] [--data FOLDER]

First part: the same trace files, from file to critical path, by us and by HTA 0.5.0 (all steps in
one window). CPU seconds (user and system, children too) are medians over fresh processes, imports
apart; memory is the peak of the whole process. `cached` is the second reading of the same file, from
the copy in columns that the first one left. `path` is the length of the critical path found, against
the span from the first start to the last end of the tasks it was sought among. Ours keeps recorded
gaps and waits as tasks, so it comes back whole by construction: that checks the graph, it predicts
nothing. HTA gives gaps no weight.

HTA needs a Python of its own: python -m venv hta && hta/bin/pip install HolisticTraceAnalysis==0.5.0
"pandas<3"; then --hta-python hta/bin/python. Without it its columns are left out. Traces: the public
ones below $GNOMON_DATA or ../shared/data; those that are not there are named.

Second part: a job of 512 ranks, four lanes each, launches, events between streams, and collectives
that meet across ranks, replayed at three sizes, each in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from peak_memory import peak_mib

# Nothing heavy up here: HTA's Python runs this file too, and a child's memory is measured.

#: Name and where it lies below the data folder; `archive!member` for what is packed.
TRACES = {
    "df_index_resolver": "public/hta/df_index_resolver/df_index_resolver.json.gz",
    "trace_diff control": "public/hta/trace_diff/control/control.json.gz",
    "trace_diff test": "public/hta/trace_diff/test*/*.json.gz",
    "ns_resolution": "public/hta/ns_resolution_trace/*.json.gz",
    "nccl_data": "public/hta/*nccl*/**/*.json.gz",
    "mi300 resnet": "public/tracelens/mi300/*resnet*.json.gz",
    "dlrm rank 0": "public/param/dlrm_kineto.tar.gz!dlrm_kineto/worker0_*.json",
    "h200 gpt-base": "h200/gpt-base/kineto.json.gz",
    "h200 gpt-cpubound": "h200/gpt-cpubound/kineto.json.gz",
    "h200 overlap": "h200/overlap/kineto.json.gz",
    "h200 resnet50": "h200/resnet50/kineto.json.gz",
    "h200 linear": "h200/linear/kineto.json.gz",
}
QUICK = ("ns_resolution", "h200 gpt-cpubound")
RANKS = 512
SIZES = (2 * 10**6, 10**7, 5 * 10**7)


def cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


# ----- children: one reading each, a line of JSON on stdout


def run_ours(path: str) -> dict:
    from gnomon.ingest.profiler.kineto import read_kineto
    from gnomon.sim import replay
    from gnomon.sim.trace import build_graph

    imported = cpu_s()
    trace = read_kineto(path)
    read = cpu_s()
    training = build_graph(trace)
    built = cpu_s()
    line = replay(training.graph)
    length = line.critical_path().length_ns
    done = cpu_s()
    span = training.recorded.makespan_ns
    return {
        "import_s": imported, "read_s": read - imported, "build_s": built - read,
        "replay_s": done - built, "work_s": done - imported, "peak_mb": peak_mib(),
        "events": len(trace.start_ns), "tasks": len(training.graph),
        "path_ms": length / 1e6, "span_ms": span / 1e6,
    }  # fmt: skip


def run_hta(path: str) -> dict:
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis

    imported = cpu_s()
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
    loaded = cpu_s()
    names = [n for n in analysis.t.symbol_table.get_sym_table() if n.startswith("ProfilerStep")]
    # A step may also be marked on the GPU: more instances than names, and a range may be too long.
    window = ("ProfilerStep", (0, 10**6)) if names else ("", None)
    graph, found = analysis.critical_path_analysis(0, *window)
    done = cpu_s()
    if not found:
        raise RuntimeError("HTA found no critical path")
    clipped = graph.trace_df if hasattr(graph, "trace_df") else graph.t.get_trace(0)
    span_us = float((clipped.ts + clipped.dur).max() - clipped.ts.min())
    length_us = sum(edge.weight for edge in graph.critical_path_edges_set)
    return {
        "import_s": imported, "read_s": loaded - imported, "build_s": done - loaded,
        "work_s": done - imported, "peak_mb": peak_mib(), "events": len(analysis.t.get_trace(0)),
        "path_ms": float(length_us) / 1e3, "span_ms": span_us / 1e3,
    }  # fmt: skip


def run_job(size: str) -> dict:
    """A job replayed; raises when a collective's members did not start together."""
    import numpy as np
    from engine import reset_peak, resident_mb, timed

    from gnomon.sim import replay

    begin = time.process_time()
    graph = job_graph(int(size))
    built = time.process_time() - begin
    row = {
        "tasks": len(graph), "edges": graph.n_edges, "lanes": len(graph.lanes),
        "groups": int(graph.group.max()) + 1, "graph_mb": graph.nbytes / 2**20, "build_s": built,
        "resident_mb": resident_mb(),
    }  # fmt: skip
    reset_peak()
    for label, causes in (("replay", False), ("replay_with_causes", True)):
        seconds, line = timed(lambda c=causes: replay(graph, causes=c), 3)
        row |= {
            f"{label}_s": statistics.median(seconds), f"{label}_min_s": min(seconds),
            f"{label}_max_s": max(seconds),
            f"{label}_mtasks_per_s": len(graph) / statistics.median(seconds) / 1e6,
        }  # fmt: skip
        row |= {"method": line.method}
    row["peak_mb"] = peak_mib()
    begin = time.process_time()
    path = line.critical_path()
    row |= {"path_s": time.process_time() - begin, "path_tasks": len(path)}
    row |= {"makespan_ms": line.makespan_ns / 1e6}
    assert path.length_ns == line.makespan_ns
    rendezvous = np.flatnonzero(graph.group >= 0)
    groups, starts = graph.group[rendezvous], line.start_ns[rendezvous]
    latest = np.zeros(row["groups"], np.int64)
    np.maximum.at(latest, groups, starts)
    assert np.array_equal(latest[groups], starts), "members of a collective start together"
    return row


BLOCK = 16  # tasks: eight launches by the host, seven kernels and one collective
LANES = ("forward thread", "autograd thread", "compute stream", "communication stream")


def job_graph(n: int, seed: int = 7):
    """512 ranks, rank by rank as merging gives them; columns only, no Python object a task.

    The host alternates between two threads, block by block. Every eighth launch is that of a
    collective, which waits for the kernel before it and is waited for two blocks later, so that
    communication overlaps. Blocks meet in turn among 8 neighbours and among the 64 ranks that are
    8 apart, as tensor- and data-parallel groups do.
    """
    import numpy as np

    from gnomon.graph import WorkGraph

    blocks = max(n // RANKS // BLOCK, 3)
    per_rank = blocks * BLOCK
    n = RANKS * per_rank
    rng = np.random.default_rng(seed)
    place = np.arange(per_rank, dtype=np.int64)
    block, slot = place // BLOCK, place % BLOCK
    is_kernel = slot % 2 == 1
    is_collective = slot == BLOCK - 1

    # One rank's columns, then all of them side by side.
    lane_of_rank = np.where(is_collective, 3, np.where(is_kernel, 2, block % 2)).astype(np.int32)
    kind_of_rank = np.where(is_collective, 2, is_kernel).astype(np.uint8)
    rank = np.repeat(np.arange(RANKS, dtype=np.int32), per_rank)
    lane = np.tile(lane_of_rank, RANKS)
    lane += rank * np.int32(len(LANES))
    duration = rng.integers(2_000, 60_000, n, dtype=np.int64)

    edges = _edges_of_rank(place, block, is_kernel, is_collective, per_rank)
    offset, target, kind = _side_by_side(edges, per_rank)
    group = np.full(n, -1, np.int32)
    ranks, turn = np.arange(RANKS)[:, None], (block[is_collective])[None, :]
    in_turn = np.where(turn % 2 == 0, ranks // 8, RANKS // 8 + ranks % 8)
    groups = (turn // 2) * (RANKS // 8 + 8) + in_turn
    group[np.tile(is_collective, RANKS)] = groups.reshape(-1)
    names = tuple(f"rank {r}/{lane_name}" for r in range(RANKS) for lane_name in LANES)
    kinds = ("launch", "compute", "communication")
    return WorkGraph(
        lane, duration, np.tile(kind_of_rank, RANKS), np.zeros(n, np.int32), names, kinds,
        ("task",), offset, target, kind, ("launch", "event"), rank=rank, group=group,
    )  # fmt: skip


def _edges_of_rank(place, block, is_kernel, is_collective, per_rank):
    """Sources, targets and kinds (0 launch, 1 event) of one rank's edges, by source."""
    import numpy as np

    launches = place[~is_kernel]
    collectives = place[is_collective]
    waited = collectives[collectives + 2 * BLOCK < per_rank]
    # The first kernel of the block after next: its slot is 1, the collective's is the last.
    source = np.concatenate([launches, collectives - 2, waited])
    target = np.concatenate([launches + 1, collectives, waited + BLOCK + 2])
    kind = np.repeat(np.array([0, 1, 1], np.uint8), [len(launches), len(collectives), len(waited)])
    order = np.argsort(source, kind="stable")
    return source[order], target[order], kind[order]


def _side_by_side(edges, per_rank):
    """The same edges for every rank, as offsets by source."""
    import numpy as np

    source, target, kind = edges
    degree = np.tile(np.bincount(source, minlength=per_rank), RANKS)
    offset = np.zeros(RANKS * per_rank + 1, np.int64)
    np.cumsum(degree, out=offset[1:])
    shift = np.repeat(np.arange(RANKS, dtype=np.int32) * np.int32(per_rank), len(target))
    return offset, np.tile(target.astype(np.int32), RANKS) + shift, np.tile(kind, RANKS)


CHILDREN = {"ours": run_ours, "hta": run_hta, "job": run_job}


# ----- the parent


def child(python: str, what: str, argument: str, **environment: str) -> dict:
    done = subprocess.run(
        [python, __file__, "--child", what, argument], capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"error": last[:200]}
    return json.loads(done.stdout.splitlines()[-1])


def several(repeats: int, *arguments: str, **environment: str) -> dict:
    """Medians over fresh processes; figures that cannot vary are taken from the last."""
    rows = [child(*arguments, **environment) for _ in range(repeats)]
    if failed := [row for row in rows if "error" in row]:
        return failed[0]
    timed = [key for key in rows[0] if key.endswith("_s") or key == "peak_mb"]
    spread = {
        f"{key}_range": [min(r[key] for r in rows), max(r[key] for r in rows)] for key in timed
    }
    return rows[-1] | {key: statistics.median(r[key] for r in rows) for key in timed} | spread


@contextlib.contextmanager
def unpacked(folder: Path, place: str) -> Iterator[Path | None]:
    """The file of a trace, out of its archive if it is in one; None where there is none."""
    archive, _, member = place.partition("!")
    found = sorted(folder.glob(archive))
    if not found:
        yield None
    elif not member:
        yield found[0]
    else:
        with tempfile.TemporaryDirectory() as away, tarfile.open(found[0]) as tar:
            wanted = next((m for m in tar.getmembers() if Path(m.name).match(member)), None)
            if wanted is None:
                yield None
                return
            tar.extract(wanted, away, filter="data")
            yield Path(away) / wanted.name


def compare(name: str, path: Path, hta_python: str | None, repeats: int) -> dict:
    row: dict = {"trace": name, "file_mb": path.stat().st_size / 1e6}
    row["ours"] = several(repeats, sys.executable, "ours", str(path), GNOMON_CACHE="off")
    with tempfile.TemporaryDirectory() as cache:
        child(sys.executable, "ours", str(path), GNOMON_CACHE=cache)
        row["cached"] = several(repeats, sys.executable, "ours", str(path), GNOMON_CACHE=cache)
    if hta_python:
        row["hta"] = several(repeats, hta_python, "hta", str(path))
    return row


def path_error(side: dict) -> float:
    return 100 * (side["path_ms"] / side["span_ms"] - 1)


def print_comparison(row: dict) -> None:
    ours, cached, hta = row["ours"], row["cached"], row.get("hta")
    if "error" in ours:
        print(f"{row['trace']:<20} ours failed: {ours['error']}", flush=True)
        return
    cells = [
        f"{row['trace']:<20} {ours['events']:>9,}",
        f"{ours['work_s']:7.3f} {cached['work_s']:7.3f} {ours['peak_mb']:6.0f} {path_error(ours):+7.2f}",
    ]
    if hta and "error" in hta:
        cells.append(f"HTA failed: {hta['error']}")
    elif hta:
        cells.append(f"{hta['work_s']:7.2f} {hta['peak_mb']:6.0f} {path_error(hta):+7.2f}")
        whole = (hta["work_s"] + hta["import_s"]) / (ours["work_s"] + ours["import_s"])
        cells.append(
            f"{hta['work_s'] / ours['work_s']:6.1f}x {hta['work_s'] / cached['work_s']:6.1f}x "
            f"{whole:6.1f}x {hta['peak_mb'] / ours['peak_mb']:5.1f}x"
        )
    print(" | ".join(cells), flush=True)


def compare_traces(args: argparse.Namespace) -> list[dict]:
    if not args.hta_python:
        print("HTA is left out: give --hta-python (the top of this file says how to make one)")
    print(
        f"{'trace':<20} {'events':>9} | {'CPU s':>7} {'cached':>7} {'MB':>6} {'path %':>7}"
        + f" | {'HTA s':>7} {'MB':>6} {'path %':>7} | as fast, cached, with imports, memory"
        * bool(args.hta_python)
    )
    rows, absent = [], []
    for name, place in TRACES.items():
        if args.quick and name not in QUICK:
            continue
        with unpacked(args.data, place) as path:
            if path is None:
                absent.append(name)
                continue
            rows.append(compare(name, path, args.hta_python, 1 if args.quick else args.repeats))
            print_comparison(rows[-1])
    if absent:
        print(f"not there: {', '.join(absent)}")
    for side in ("ours", "hta"):
        imports = [r[side]["import_s"] for r in rows if side in r and "error" not in r[side]]
        if imports:
            print(f"imports, {side}: {statistics.median(imports):.2f} CPU s")
    return rows


def replay_jobs(args: argparse.Namespace) -> list[dict]:
    print(
        f"\n{'tasks':>12} {'edges':>12} {'groups':>9} {'replay s':>22} {'Mtasks/s':>9} "
        f"{'with causes s':>22} {'path s':>7} {'graph MB':>9} {'peak MB':>8}"
    )
    rows = []
    for size in SIZES[:1] if args.quick else SIZES:
        row = child(sys.executable, "job", str(size))
        rows.append(row)
        if "error" in row:
            print(f"{size:>12,} failed: {row['error']}", flush=True)
            continue
        cells = [
            f"{row[f'{k}_s']:.3f} ({row[f'{k}_min_s']:.3f}..{row[f'{k}_max_s']:.3f})"
            for k in ("replay", "replay_with_causes")
        ]
        print(
            f"{row['tasks']:>12,} {row['edges']:>12,} {row['groups']:>9,} {cells[0]:>22} "
            f"{row['replay_mtasks_per_s']:>9.1f} {cells[1]:>22} {row['path_s']:>7.2f} "
            f"{row['graph_mb']:>9.0f} {row['peak_mb']:>8.0f}",
            flush=True,
        )
    return rows


def default_data() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("GNOMON_DATA") or beside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hta-python", help="a Python that has HolisticTraceAnalysis 0.5.0")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--quick", action="store_true", help="two traces once, the smallest job")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["traces", "jobs"], help="one part alone")
    parser.add_argument("--json", help="also write the rows here")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        what, argument = args.child
        print(json.dumps(CHILDREN[what](argument)))
        return 0
    traces = compare_traces(args) if args.only != "jobs" else []
    jobs = replay_jobs(args) if args.only != "traces" else []
    if args.json:
        Path(args.json).write_text(json.dumps({"traces": traces, "jobs": jobs}, indent=1))
    sides = [row.get(side, {}) for row in traces for side in ("ours", "cached")]
    return 1 if any("error" in row for row in [*sides, *jobs]) else 0


if __name__ == "__main__":
    sys.exit(main())
