"""The moves that all edits are made of: take tasks, give edges, lay graphs end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GraphError
from gnomon.graph._columns import build_csr, compact_groups
from gnomon.graph.workgraph import WorkGraph

_OPTIONAL: dict[str, tuple[Any, int]] = {
    "bytes": (np.int64, 0),
    "flops": (np.float64, 0),
    "rank": (np.int32, 0),
    "group": (np.int32, -1),
}


def take_tasks(graph: WorkGraph, index: NDArray[Any]) -> WorkGraph:
    """The tasks of `index` in that order, without edges. Tables of names stay shared."""
    columns: dict[str, Any] = {
        column: None if values is None else values[index]
        for column in ("lane", "duration_ns", "kind", "name", *_OPTIONAL)
        for values in (getattr(graph, column),)
    }
    if columns["group"] is not None:
        columns["group"] = compact_groups(columns["group"])
    columns |= _take_waits(graph, index)
    return graph.replace(
        **columns,
        edge_offset=np.zeros(len(index) + 1, np.int64),
        edge_target=np.empty(0, np.int32),
        edge_kind=np.empty(0, np.uint8),
    )


def _take_waits(graph: WorkGraph, index: NDArray[Any]) -> dict[str, Any]:
    if graph.wait_task is None or graph.wait_lane is None:
        return {}
    count = np.bincount(graph.wait_task, minlength=len(graph))
    first = np.concatenate([[0], np.cumsum(count)])
    taken = count[index]
    if not taken.sum():
        return {"wait_task": None, "wait_lane": None}
    # Ranges first[i] .. first[i] + count[i], laid end to end.
    within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    rows = np.repeat(first[index], taken) + within
    return {
        "wait_task": np.repeat(np.arange(len(index), dtype=np.int32), taken),
        "wait_lane": graph.wait_lane[rows],
    }


def with_edges(
    graph: WorkGraph,
    source: NDArray[Any],
    target: NDArray[Any],
    kind: NDArray[np.uint8],
    kinds: Sequence[str],
) -> WorkGraph:
    """The same tasks with these edges instead of theirs."""
    offset, targets, codes = build_csr(
        source.astype(np.int32, copy=False), target.astype(np.int32, copy=False), kind, len(graph)
    )
    return graph.replace(
        edge_offset=offset, edge_target=targets, edge_kind=codes, edge_kinds=tuple(kinds)
    )


def concatenate(graphs: Sequence[WorkGraph]) -> WorkGraph:
    """Graphs end to end; equal lane, kind and name texts become one, groups stay apart."""
    if not graphs:
        raise GraphError("nothing to merge: give at least one graph")
    starts = np.cumsum([0, *(len(g) for g in graphs)])
    if starts[-1] >= 2**31 - 1:
        raise GraphError(f"{starts[-1]:,} tasks are more than a graph can hold")
    columns: dict[str, Any] = {
        "duration_ns": np.concatenate([g.duration_ns for g in graphs]),
        "edge_target": np.concatenate(
            [g.edge_target + np.int32(start) for g, start in zip(graphs, starts)]
        ),
        "edge_offset": _join_offsets(graphs),
    }
    for column, table, dtype in (
        ("lane", "lanes", np.int32),
        ("kind", "kinds", np.uint8),
        ("name", "names", np.int32),
        ("edge_kind", "edge_kinds", np.uint8),
    ):
        columns[column], columns[table] = _join_codes(graphs, column, table, dtype)
    columns |= _join_optional(graphs) | _join_waits(graphs, starts, columns["lanes"])
    meta = {key: value for g in reversed(graphs) for key, value in g.meta.items()}
    return WorkGraph(**columns, meta=meta)


def _join_offsets(graphs: Sequence[WorkGraph]) -> NDArray[np.int64]:
    edges = np.cumsum([0, *(g.n_edges for g in graphs)])
    parts = [g.edge_offset[:-1] + first for g, first in zip(graphs, edges)]
    return np.concatenate([*parts, edges[-1:]]).astype(np.int64)


def _join_codes(
    graphs: Sequence[WorkGraph], column: str, table: str, dtype: Any
) -> tuple[NDArray[Any], tuple[str, ...]]:
    joined: dict[str, int] = {}
    parts = []
    for graph in graphs:
        codes = [joined.setdefault(text, len(joined)) for text in getattr(graph, table)]
        parts.append(np.asarray(codes, np.int64)[getattr(graph, column)])
    if len(joined) > np.iinfo(dtype).max:
        raise GraphError(f"{len(joined)} distinct {table}; at most {np.iinfo(dtype).max} fit")
    return np.concatenate(parts).astype(dtype), tuple(joined)


def _join_optional(graphs: Sequence[WorkGraph]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for column, (dtype, absent) in _OPTIONAL.items():
        if all(getattr(g, column) is None for g in graphs):
            continue
        parts, groups = [], 0
        for graph in graphs:
            values = getattr(graph, column)
            if values is None:
                parts.append(np.full(len(graph), absent, dtype))
            elif column == "group":
                parts.append(np.where(values >= 0, values + groups, -1).astype(np.int32))
                groups += int(values.max(initial=-1)) + 1
            else:
                parts.append(values)
        joined[column] = np.concatenate(parts)
    return joined


def _join_waits(
    graphs: Sequence[WorkGraph], starts: NDArray[Any], lanes: Sequence[str]
) -> dict[str, Any]:
    code = {lane: i for i, lane in enumerate(lanes)}
    tasks, waited = [], []
    for graph, start in zip(graphs, starts):
        if graph.wait_task is None or graph.wait_lane is None:
            continue
        table = np.asarray([code[lane] for lane in graph.lanes], np.int32)
        tasks.append(graph.wait_task + np.int32(start))
        waited.append(table[graph.wait_lane])
    if not tasks:
        return {}
    return {"wait_task": np.concatenate(tasks), "wait_lane": np.concatenate(waited)}
