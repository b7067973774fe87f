"""Graphs and timelines on disk: one Arrow file, a row per task, edges as a list in the row.

The list of successors is exactly the CSR of the graph: its offsets are the edge offsets. So the
file maps straight into the engine, and polars or pyarrow show lanes, kinds and names as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.graph.timeline import Timeline
from gnomon.graph.workgraph import WorkGraph
from gnomon.table import Column, Dictionary, ListOf, Table, read_arrow, write_arrow

_FORMAT = "gnomon.graph/1"
_OPTIONAL: dict[str, Any] = {
    "bytes": np.int64, "flops": np.float64, "rank": np.int32, "group": np.int32,
}  # fmt: skip


def save_graph(graph: WorkGraph, path: str | Path) -> None:
    """Writes a graph; a half-written file never carries the name."""
    write_arrow(path, _columns(graph), _metadata(graph))


def save_timeline(timeline: Timeline, path: str | Path) -> None:
    """Writes a graph together with its starts and ends."""
    columns = _columns(timeline.graph)
    columns |= {"start_ns": timeline.start_ns, "end_ns": timeline.end_ns}
    write_arrow(path, columns, _metadata(timeline.graph))


def load_graph(path: str | Path) -> WorkGraph:
    """Reads a graph, maps its columns and validates it."""
    return _read(path)[0]


def load_timeline(path: str | Path) -> Timeline:
    """Reads a timeline."""
    graph, columns = _read(path)
    if "start_ns" not in columns or "end_ns" not in columns:
        raise InputError("holds a graph but no times", where=str(path), hint="replay it first")
    start = _array(columns, "start_ns", np.int64, path)
    end = _array(columns, "end_ns", np.int64, path)
    if np.any(end < start):
        bad = int(np.argmax(end < start))
        raise InputError(f"{graph.describe(bad)} ends before it starts", where=str(path))
    return Timeline(graph, start, end)


def task_table(graph: WorkGraph, **more: Column) -> Table:
    """One row a task, without edges."""
    columns = {k: v for k, v in _columns(graph).items() if not isinstance(v, ListOf)}
    shown = columns | more
    units = {"duration_ns": "ns", "start_ns": "ns", "end_ns": "ns", "bytes": "B", "flops": "FLOP"}
    return Table("tasks", shown, units={k: unit for k, unit in units.items() if k in shown})


def _metadata(graph: WorkGraph) -> dict[str, str]:
    return {"format": _FORMAT, "meta": msgspec.json.encode(dict(graph.meta)).decode()}


def _columns(graph: WorkGraph) -> dict[str, Column]:
    columns: dict[str, Column] = {
        "lane": Dictionary(graph.lane, graph.lanes),
        "duration_ns": graph.duration_ns,
        "kind": Dictionary(graph.kind, graph.kinds),
        "name": Dictionary(graph.name, graph.names),
    }
    for column in _OPTIONAL:
        values = getattr(graph, column)
        if values is not None:
            columns[column] = values
    columns["successors"] = ListOf(
        graph.edge_offset,
        {"task": graph.edge_target, "kind": Dictionary(graph.edge_kind, graph.edge_kinds)},
    )
    if graph.wait_task is not None and graph.wait_lane is not None:
        offset = np.zeros(len(graph) + 1, np.int64)
        np.cumsum(np.bincount(graph.wait_task, minlength=len(graph)), out=offset[1:])
        columns["waits_for"] = ListOf(offset, graph.wait_lane)
    return columns


def _read(path: str | Path) -> tuple[WorkGraph, Mapping[str, Column]]:
    stored = read_arrow(path)
    if stored.metadata.get("format") != _FORMAT:
        raise InputError(
            "is an Arrow file but not a work graph", where=str(path), hint="`gnomon inspect` it"
        )
    columns = stored.columns
    try:
        meta = msgspec.json.decode(stored.metadata.get("meta", "{}"), type=dict[str, str])
        graph = _graph(columns, meta, path)
        graph.validate()
    except msgspec.DecodeError as error:
        raise InputError(f"its metadata is damaged ({error})", where=str(path)) from None
    except InputError as error:
        if error.where is not None:
            raise
        raise type(error)(error.what, where=str(path), hint=error.hint) from None
    return graph, columns


def _graph(columns: Mapping[str, Column], meta: dict[str, str], path: str | Path) -> WorkGraph:
    lane, lanes = _texts(columns, "lane", np.int32, path)
    kind, kinds = _texts(columns, "kind", np.uint8, path)
    name, names = _texts(columns, "name", np.int32, path)
    edges = columns.get("successors")
    if not isinstance(edges, ListOf) or not isinstance(edges.child, Mapping):
        raise InputError("has no column 'successors'", where=str(path))
    edge_kind, edge_kinds = _texts(edges.child, "kind", np.uint8, path)
    waits = columns.get("waits_for")
    wait_task = wait_lane = None
    if isinstance(waits, ListOf):
        wait_task = np.repeat(np.arange(len(lane), dtype=np.int32), np.diff(waits.offsets))
        wait_lane = np.asarray(waits.child, np.int32)
    optional = {
        column: _array(columns, column, dtype, path)
        for column, dtype in _OPTIONAL.items()
        if column in columns
    }
    return WorkGraph(
        lane, _array(columns, "duration_ns", np.int64, path), kind, name, lanes, kinds, names,
        edges.offsets, _array(edges.child, "task", np.int32, path), edge_kind, edge_kinds,
        **optional, wait_task=wait_task, wait_lane=wait_lane, meta=meta,
    )  # fmt: skip


def _texts(
    columns: Mapping[str, Column], name: str, dtype: Any, path: str | Path
) -> tuple[NDArray[Any], tuple[str, ...]]:
    column = columns.get(name)
    if not isinstance(column, Dictionary) or column.codes.dtype != dtype:
        raise InputError(f"has no text column {name!r}", where=str(path))
    return column.codes, tuple(column.values)


def _array(columns: Mapping[str, Column], name: str, dtype: Any, path: str | Path) -> NDArray[Any]:
    column = columns.get(name)
    if not isinstance(column, np.ndarray) or column.dtype != dtype:
        raise InputError(f"has no column {name!r} of {np.dtype(dtype)}", where=str(path))
    return column
