"""Replay at size: tasks a second and memory, and networkx and rustworkx on the same graph.

    python benchmarks/engine.py [--quick] [--json OUT]

The graph is a stand-in for merged ranks: 8 lanes a rank, two edges a task (one near, on a
neighbouring lane of the rank; one a little further back), 100,000 tasks a rank. Each size runs in
its own process, so that memory is that of the size alone. Times are CPU seconds, the median of
several repeats with their spread. The peers get the same dependencies, lane order as edges, and
must agree on the makespan.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
from peak_memory import peak_mib

LANES_A_RANK = 8
TASKS_A_RANK = 100_000


def build(n: int, seed: int = 7):
    """A forward graph in columns; no Python object a task."""
    from gnomon.graph import WorkGraph

    rng = np.random.default_rng(seed)
    ranks = -(-n // TASKS_A_RANK)
    task = np.arange(n, dtype=np.int64)
    rank = (task // TASKS_A_RANK).astype(np.int32)
    lane = rng.integers(0, LANES_A_RANK, n, dtype=np.int32)
    lane += rank * np.int32(LANES_A_RANK)
    duration = rng.integers(1_000, 200_000, n, dtype=np.int64)
    # Two edges leave each task towards later tasks of its rank (the last ones go to the last).
    target = np.empty((n, 2), np.int32)
    last = np.minimum((rank.astype(np.int64) + 1) * TASKS_A_RANK, n) - 1
    target[:, 0] = np.minimum(task + rng.integers(1, 8, n), last)
    target[:, 1] = np.minimum(task + rng.integers(8, 64, n), last)
    del task
    is_loop = target == np.arange(n, dtype=np.int32)[:, None]
    keep = ~is_loop
    offset = np.zeros(n + 1, np.int64)
    np.cumsum(keep.sum(axis=1), out=offset[1:])
    target = target[keep] if is_loop.any() else target.reshape(-1)
    del keep, is_loop, last, rank
    return WorkGraph(
        lane, duration, np.zeros(n, np.uint8), np.zeros(n, np.int32),
        tuple(f"rank {i // LANES_A_RANK}/lane {i % LANES_A_RANK}" for i in range(ranks * LANES_A_RANK)),
        ("kernel",), ("gemm",), offset, target, np.zeros(len(target), np.uint8), ("data",),
    )  # fmt: skip


def resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def timed(function, repeats: int):
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = function()
        seconds.append(time.process_time() - begin)
    return seconds, result


def measure(n: int, repeats: int, peers: bool) -> dict:
    from gnomon.sim import replay

    graph = build(n)
    resident = resident_mb()
    row: dict = {"tasks": n, "edges": graph.n_edges, "graph_mb": graph.nbytes / 2**20}
    reset_peak()
    for label, causes in (("replay", False), ("replay_with_causes", True)):
        seconds, line = timed(lambda c=causes: replay(graph, causes=c), repeats)
        assert len(line) == n
        row |= {
            f"{label}_s": statistics.median(seconds),
            f"{label}_min_s": min(seconds),
            f"{label}_max_s": max(seconds),
            f"{label}_mtasks_per_s": n / statistics.median(seconds) / 1e6,
        }
        row["makespan_ns"] = int(line.makespan_ns) if n <= 10**7 else None
        row["method"] = line.method
        del line
    row["resident_mb"] = resident
    row["peak_mb"] = peak_mib()
    if peers:
        row["peers"] = {"networkx": networkx(graph), "rustworkx": rustworkx(graph)}
    return row


def reset_peak() -> None:
    """Forget the peak of building the graph: the replay's own is asked for."""
    try:
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")
    except OSError:
        pass


def dependencies(graph):
    """Edges and lane order as weighted arcs: the weight of an arc is its source's duration."""
    source, target, _ = graph.edge_list()
    by_lane = np.argsort(graph.lane, kind="stable")
    same = graph.lane[by_lane[1:]] == graph.lane[by_lane[:-1]]
    u = np.concatenate([source, by_lane[:-1][same].astype(np.int32)])
    v = np.concatenate([target, by_lane[1:][same].astype(np.int32)])
    return u, v, graph.duration_ns[u]


def with_sink(graph):
    """Longest paths end at a sink, so that the last task's own duration counts."""
    u, v, w = dependencies(graph)
    n = len(graph)
    return (
        np.concatenate([u, np.arange(n)]),
        np.concatenate([v, np.full(n, n)]),
        np.concatenate([w, graph.duration_ns]),
    )


def networkx(graph) -> dict:
    import networkx as nx

    u, v, w = with_sink(graph)
    built, dag = timed(lambda: _networkx_graph(nx, u, v, w), 1)
    seconds, length = timed(lambda: nx.dag_longest_path_length(dag), 1)
    return {"build_s": built[0], "longest_path_s": seconds[0], "makespan_ns": int(length)}


def _networkx_graph(nx, u, v, w):
    dag = nx.DiGraph()
    dag.add_weighted_edges_from(zip(u.tolist(), v.tolist(), w.tolist()))
    return dag


def rustworkx(graph) -> dict:
    import rustworkx as rx

    u, v, w = with_sink(graph)
    built, dag = timed(lambda: _rustworkx_graph(rx, len(graph), u, v, w), 1)
    seconds, length = timed(
        lambda: rx.dag_longest_path_length(dag, lambda s, t, weight: weight), 1
    )
    return {"build_s": built[0], "longest_path_s": seconds[0], "makespan_ns": int(length)}


def _rustworkx_graph(rx, n, u, v, w):
    dag = rx.PyDiGraph(multigraph=True)
    dag.add_nodes_from(range(n + 1))
    dag.add_edges_from(list(zip(u.tolist(), v.tolist(), w.tolist())))
    return dag


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1 million tasks only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", help="also write the rows here")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--peers", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.repeats, args.peers)))
        return
    sizes = [10**6] if args.quick else [10**6, 10**7, 5 * 10**7]
    rows = []
    print(
        f"{'tasks':>12} {'edges':>12} {'replay s':>22} {'Mtasks/s':>9} {'with causes s':>22} "
        f"{'Mtasks/s':>9} {'graph MB':>9} {'peak MB':>8}"
    )
    for n in sizes:
        command = [sys.executable, __file__, "--one", str(n), "--repeats", str(args.repeats)]
        out = subprocess.run(
            command + (["--peers"] if n == sizes[0] else []),
            capture_output=True,
            text=True,
            check=True,
        )
        row = json.loads(out.stdout)
        rows.append(row)
        cells = [
            f"{row[f'{k}_s']:.3f} ({row[f'{k}_min_s']:.3f}..{row[f'{k}_max_s']:.3f})"
            for k in ("replay", "replay_with_causes")
        ]
        print(
            f"{n:>12,} {row['edges']:>12,} {cells[0]:>22} {row['replay_mtasks_per_s']:>9.1f} "
            f"{cells[1]:>22} {row['replay_with_causes_mtasks_per_s']:>9.1f} "
            f"{row['graph_mb']:>9.0f} {row['peak_mb']:>8.0f}",
            flush=True,
        )
    first = rows[0]
    print(
        f"\nThe same {first['tasks']:,} tasks, longest path (CPU s; the graph is built beforehand):"
    )
    for name, peer in first["peers"].items():
        assert peer["makespan_ns"] == first["makespan_ns"], f"{name} found another makespan"
        print(
            f"  {name:<10} {peer['longest_path_s']:8.2f} s (and {peer['build_s']:.1f} s to build)  "
            f"gnomon is {peer['longest_path_s'] / first['replay_s']:,.0f}x as fast"
        )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
