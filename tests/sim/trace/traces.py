"""Small traces made by hand, in microseconds, and what the tests ask of their graphs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gnomon.ingest.profiler.kineto import KinetoTrace, read_kineto
from gnomon.sim.trace import TraceGraph, build_graph

Event = dict[str, Any]


def us(name: str, cat: str, tid: int, ts: float, dur: float, **args: Any) -> Event:
    return {
        "ph": "X", "name": name, "cat": cat, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
        "args": args,
    }  # fmt: skip


def op(ts: float, dur: float, name: str = "aten::mm", tid: int = 1, **args: Any) -> Event:
    return us(name, "cpu_op", tid, ts, dur, **args)


def call(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> Event:
    return us(name, "cuda_runtime", tid, ts, dur, **args)


def launch(ts: float, dur: float, correlation: int, tid: int = 1) -> Event:
    return call("cudaLaunchKernel", ts, dur, tid, correlation=correlation)


def kernel(
    ts: float, dur: float, correlation: int, stream: int = 7, name: str = "gemm", **args: Any
) -> Event:
    return us(
        name, "kernel", stream, ts, dur, correlation=correlation, stream=stream, device=0, **args
    )


def mark(number: int, ts: float, dur: float, tid: int = 1) -> Event:
    return us(f"ProfilerStep#{number}", "user_annotation", tid, ts, dur)


def write_trace(path: Path, *events: Event, **top: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**top, "traceEvents": list(events)}))
    return path


def trace_of(*events: Event, **top: Any) -> KinetoTrace:
    with tempfile.TemporaryDirectory() as folder:
        return read_kineto(write_trace(Path(folder) / "t.json", *events, **top))


def graph_of(*events: Event, **top: Any) -> TraceGraph:
    return build_graph(trace_of(*events, **top))


def names_of(training: TraceGraph) -> list[str]:
    return [training.graph.names[code] for code in training.graph.name.tolist()]


def kinds_of(training: TraceGraph) -> list[str]:
    return [training.graph.kinds[code] for code in training.graph.kind.tolist()]


def edges_of(training: TraceGraph, kind: str) -> list[tuple[str, str]]:
    """Edges of a kind, by the names of their ends."""
    name = names_of(training)
    source, target, kinds = training.graph.edge_list()
    return [
        (name[a], name[b])
        for a, b, code in zip(source.tolist(), target.tolist(), kinds.tolist())
        if training.graph.edge_kinds[code] == kind
    ]


def task_named(training: TraceGraph, name: str, kind: str | None = None) -> int:
    """The only task of this name (and kind)."""
    found = [
        task
        for task, (own, own_kind) in enumerate(zip(names_of(training), kinds_of(training)))
        if own == name and kind in (None, own_kind)
    ]
    (task,) = found
    return task


def collective(
    ts: float, dur: float, correlation: int, ranks: Any = "[0, 1]", *, stream: int = 20,
    operation: str = "allreduce", elements: int = 1024, group: str = "0", **more: Any,
) -> Event:  # fmt: skip
    """An NCCL kernel as profilers describe it today."""
    about = {
        "Collective name": operation, "dtype": "Float", "In msg nelems": elements,
        "Out msg nelems": elements, "Group size": 2, "Process Group Name": group,
        "Process Group Ranks": ranks,
    }  # fmt: skip
    return kernel(ts, dur, correlation, stream, "ncclDevKernel_Generic", **about, **more)


def post(ts: float, dur: float, name: str, peer: int | None = None, tid: int = 1) -> Event:
    """The call that asks a CPU backend for a communication."""
    if peer is None:
        return op(ts, dur, f"c10d::{name}", tid)
    values = {"Concrete Inputs": ["", "", str(peer), "0"], "Input type": ["", "", "", ""],
              "Input Dims": [[[2, 8]], [], [], []]}  # fmt: skip
    return op(ts, dur, f"c10d::{name}", tid, **values)


def backend_event(ts: float, dur: float, name: str, tid: int = 5, size: int = 8) -> Event:
    """What a CPU backend shows of a communication, on the thread that saw it end."""
    return us(name, "user_annotation", tid, ts, dur, **{"Input Dims": [[size]]})


def rank_trace(
    rank: int, computes: float, ends: float, *, world: int = 2, steps: int = 1, at: float = 0.0,
    groups: list[dict[str, Any]] | None = None, **more: Any,
) -> KinetoTrace:  # fmt: skip
    """A rank that multiplies, then meets the other; all of it again in every step.

    Args:
        rank: Its number.
        computes: How long the GEMM takes.
        ends: When the reduction ends, counted from the step's start; on all ranks the same.
        world: How many ranks there are.
        steps: How many steps.
        at: What the rank's clock shows when the others' show zero.
        groups: Process groups, where the trace is to name them.
        more: Said of each reduction.
    """
    return trace_of(
        *rank_events(computes, ends, steps, at, **more), distributedInfo=_info(rank, world, groups)
    )


def rank_events(
    computes: float, ends: float, steps: int = 1, at: float = 0.0, **more: Any
) -> list[Event]:
    events = []
    for step in range(steps):
        begin, arrives = at + step * (ends + 10), 10 + computes
        events += [
            mark(step, begin, 10),
            launch(begin, 5, 2 * step + 1),
            kernel(begin + 10, computes, 2 * step + 1),
            launch(begin + 6, 4, 2 * step + 2),
            collective(begin + arrives, ends - arrives, 2 * step + 2, stream=7, **more),
        ]
    return events


def _info(rank: int, world: int, groups: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"rank": rank, "world_size": world} | ({"pg_config": groups} if groups else {})


def write_job(folder: Path, ranks: int = 2, **more: Any) -> Path:
    """A folder of ranks of which the last computes longest: 10 ms, 20 ms ..."""
    for rank in range(ranks):
        events = rank_events(10_000 * (rank + 1), 10_000 * ranks + 30, **more)
        info = {"rank": rank, "world_size": ranks}
        write_trace(folder / f"rank{rank}.json", *events, distributedInfo=info)
    return folder
