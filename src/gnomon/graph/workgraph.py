"""WorkGraph: a workload as columns. Tasks on in-order lanes, edges between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import GraphError
from gnomon.graph._columns import (
    as_ids,
    as_nanoseconds,
    build_csr,
    compact_groups,
    frozen,
    intern_codes,
)
from gnomon.graph.column_types import Codes, Flags, Floats, Ints
from gnomon.table import Dictionary

#: The edge kind that issues a task onto its lane's queue; run-time waits look at it.
LAUNCH = "launch"

Texts = Sequence[str] | Dictionary | str
Edges = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, Texts]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class WorkGraph:
    """Tasks, the lanes that run them, and what must come before what.

    A lane (a thread, a stream, a link) runs its tasks one by one in index order; that order needs
    no edges. Everything else is an edge with a kind, a rendezvous group (its members start
    together) or a run-time wait (a task waits for whatever a lane holds when it starts).
    Columns are read-only; an edit (`gnomon.graph.edit`) returns a new graph that shares the
    columns it did not change.

    >>> graph = WorkGraph.from_columns(
    ...     lane=["cpu", "gpu", "gpu"],
    ...     duration_ns=[1000, 5000, 2000],
    ...     kind=["launch", "kernel", "kernel"],
    ...     name=["step", "gemm", "relu"],
    ...     edges=([0], [1], "launch"),
    ... )
    >>> graph
    WorkGraph(3 tasks, 2 lanes, 1 edge)
    >>> graph.successors(0).tolist()
    [1]
    """

    lane: Codes
    duration_ns: Ints
    kind: NDArray[np.uint8]
    name: Codes
    lanes: Sequence[str]
    kinds: Sequence[str]
    names: Sequence[str]
    edge_offset: Ints
    edge_target: Codes
    edge_kind: NDArray[np.uint8]
    edge_kinds: Sequence[str]
    bytes: Ints | None = None
    flops: Floats | None = None
    rank: Codes | None = None
    group: Codes | None = None
    wait_task: Codes | None = None
    wait_lane: Codes | None = None
    meta: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, field.name, frozen(value))

    @classmethod
    def from_columns(
        cls,
        lane: ArrayLike | Sequence[str],
        duration_ns: ArrayLike,
        kind: Texts = "task",
        name: Texts = "task",
        edges: Edges | None = None,
        *,
        lanes: Sequence[str] | None = None,
        bytes: ArrayLike | None = None,
        flops: ArrayLike | None = None,
        rank: ArrayLike | None = None,
        group: ArrayLike | None = None,
        waits: tuple[ArrayLike, ArrayLike | Sequence[str]] | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> WorkGraph:
        """Builds and validates a graph from whole columns.

        Args:
            lane: Lane of each task, by name, or by number with `lanes` naming them.
            kind: One word for all, one per task, or codes with their table; `name` likewise.
            edges: `(source, target)` or `(source, target, kind)`; kind is one word or one an edge.
            waits: `(task, lane)` pairs: the task waits for what the lane holds when it starts.
        """
        duration = as_nanoseconds(duration_ns)
        n = len(duration)
        lane_codes, lane_names = _lanes(lane, lanes, n)
        kind_codes, kinds = intern_codes(kind, n, np.uint8, "kind")
        name_codes, names = intern_codes(name, n, np.int32, "name")
        source, target, edge_kind = _edges(edges)
        edge_codes, edge_kinds = intern_codes(edge_kind, len(source), np.uint8, "edge kind")
        offset, targets, codes = build_csr(source, target, edge_codes, n)
        wait_task, wait_lane = _waits(waits, lane_names)
        graph = cls(
            lane_codes, duration, kind_codes, name_codes, lane_names, kinds, names,
            offset, targets, codes, edge_kinds,
            bytes=None if bytes is None else np.array(bytes, np.int64),
            flops=None if flops is None else np.array(flops, np.float64),
            rank=None if rank is None else as_ids(rank, "rank"),
            group=None if group is None else compact_groups(as_ids(group, "group")),
            wait_task=wait_task, wait_lane=wait_lane, meta=dict(meta or {}),
        )  # fmt: skip
        graph.validate()
        return graph

    # -- looking -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.lane)

    @property
    def n_edges(self) -> int:
        """Edges, lane order not counted."""
        return len(self.edge_target)

    @property
    def nbytes(self) -> int:
        """Memory of all numeric columns."""
        return sum(
            value.nbytes
            for value in (getattr(self, f.name) for f in dataclasses.fields(self))
            if isinstance(value, np.ndarray)
        )

    def __repr__(self) -> str:
        def count(n: int, noun: str) -> str:
            return f"{n:,} {noun}{'' if n == 1 else 's'}"

        parts = [count(len(self), "task"), count(len(self.lanes), "lane")]
        parts.append(count(self.n_edges, "edge"))
        if self.group is not None:
            parts.append(count(int(self.group.max(initial=-1)) + 1, "rendezvous group"))
        if self.wait_task is not None:
            parts.append(count(len(self.wait_task), "run-time wait"))
        return f"WorkGraph({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        """Same columns, same meaning; the order of the edges of one task does not matter."""
        if not isinstance(other, WorkGraph):
            return NotImplemented
        return _canonical(self) == _canonical(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: columns come back read-only, and what is cached stays at home.
        return type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def successors(self, task: int) -> Codes:
        """Targets of the edges that leave a task; lane order is not among them."""
        return self.edge_target[self.edge_offset[task] : self.edge_offset[task + 1]]

    def edge_list(self) -> tuple[Codes, Codes, NDArray[np.uint8]]:
        """Edges as source, target and kind columns."""
        counts = np.diff(self.edge_offset)
        source = np.repeat(np.arange(len(self), dtype=np.int32), counts)
        return source, self.edge_target, self.edge_kind

    def is_kind(self, *kinds: str) -> Flags:
        """Which tasks are of one of these kinds; kinds that do not occur are no error."""
        return np.asarray([kind in kinds for kind in self.kinds] or [False], bool)[self.kind]

    def describe(self, task: int) -> str:
        """A task in words, for messages.

        >>> WorkGraph.from_columns(["gpu 0"], [5], "kernel", "gemm").describe(0)
        "task 0 ('gemm' on 'gpu 0')"
        """
        return f"task {task} ({self.names[self.name[task]]!r} on {self.lanes[self.lane[task]]!r})"

    def native(self) -> _core.Graph:
        """The same columns as the engine sees them; nothing is copied."""
        return self._native

    @cached_property
    def _native(self) -> _core.Graph:
        issue = self.edge_kinds.index(LAUNCH) if LAUNCH in self.edge_kinds else -1
        return _core.Graph(
            lane=self.lane, duration=self.duration_ns, edge_offset=self.edge_offset,
            edge_target=self.edge_target, edge_kind=self.edge_kind, lanes=len(self.lanes),
            group=self.group, wait_task=self.wait_task, wait_lane=self.wait_lane,
            issue_kind=issue,
        )  # fmt: skip

    # -- other forms -------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises GraphError at the first thing that is wrong, naming it; cycles by their tasks."""
        from gnomon.graph.validate import validate

        validate(self)

    def replace(self, **columns: Any) -> WorkGraph:
        """The same graph with some columns exchanged; the caller keeps them consistent."""
        return dataclasses.replace(self, **columns)

    def with_durations(self, duration_ns: ArrayLike) -> WorkGraph:
        """The same graph with other durations; everything else is shared."""
        duration = as_nanoseconds(duration_ns)
        if len(duration) != len(self):
            raise GraphError(f"{len(duration)} durations for {len(self)} tasks")
        from gnomon.graph.validate import check_durations

        edited = self.replace(duration_ns=duration)
        check_durations(edited)
        return edited

    def save(self, path: str | Path) -> None:
        """Writes one Arrow file that polars, pyarrow and duckdb also open."""
        from gnomon.graph.store import save_graph

        save_graph(self, path)

    @staticmethod
    def load(path: str | Path) -> WorkGraph:
        """Reads what `save` wrote; columns are mapped from the file, not copied."""
        from gnomon.graph.store import load_graph

        return load_graph(path)


def _lanes(
    lane: ArrayLike | Sequence[str], lanes: Sequence[str] | None, n: int
) -> tuple[Codes, Sequence[str]]:
    if lanes is None and n and isinstance(np.asarray(lane).flat[0], str):
        return intern_codes(list(np.asarray(lane)), n, np.int32, "lane")
    codes = as_ids(lane, "lane")
    if lanes is None:
        lanes = [f"lane {i}" for i in range(int(codes.max(initial=-1)) + 1)]
    return codes, tuple(lanes)


def _edges(edges: Edges | None) -> tuple[Codes, Codes, Texts]:
    if edges is None:
        return np.empty(0, np.int32), np.empty(0, np.int32), "edge"
    source, target = as_ids(edges[0], "edge source"), as_ids(edges[1], "edge target")
    if len(source) != len(target):
        raise GraphError(f"{len(source)} edge sources but {len(target)} edge targets")
    return source, target, edges[2] if len(edges) == 3 else "edge"


def _waits(
    waits: tuple[ArrayLike, ArrayLike | Sequence[str]] | None, lanes: Sequence[str]
) -> tuple[Codes | None, Codes | None]:
    if waits is None:
        return None, None
    task = as_ids(waits[0], "waiting task")
    if not len(task):
        return None, None
    on = np.asarray(waits[1])
    if on.dtype.kind in "UO":
        index = {name: code for code, name in enumerate(lanes)}
        for name in on.tolist():
            if name not in index:
                raise GraphError(f"a task waits for lane {name!r}, which does not exist")
        on = np.asarray([index[name] for name in on.tolist()])
    lane = as_ids(on, "waited lane")
    if len(task) != len(lane):
        raise GraphError(f"{len(task)} waiting tasks but {len(lane)} waited lanes")
    order = np.lexsort((lane, task))
    return task[order], lane[order]


def _canonical(graph: WorkGraph) -> list[object]:
    source, target, kind = graph.edge_list()
    edge_names = [graph.edge_kinds[k] for k in kind.tolist()]
    optional = (graph.bytes, graph.flops, graph.rank, graph.group, graph.wait_task)
    waited = graph.wait_lane
    return [
        [graph.lanes[i] for i in graph.lane.tolist()],
        graph.duration_ns.tolist(),
        [graph.kinds[i] for i in graph.kind.tolist()],
        [graph.names[i] for i in graph.name.tolist()],
        sorted(zip(source.tolist(), target.tolist(), edge_names)),
        [None if column is None else column.tolist() for column in optional],
        None if waited is None else [graph.lanes[i] for i in waited.tolist()],
        dict(graph.meta),
    ]
