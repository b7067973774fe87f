"""GraphBuilder: a graph task by task, for readers and for hand-made examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gnomon.errors import GraphError
from gnomon.graph.workgraph import WorkGraph


class GraphBuilder:
    """Collects tasks, edges, waits and rendezvous, then builds a validated WorkGraph.

    Tasks of a lane run in the order they were added.

    >>> build = GraphBuilder()
    >>> launch = build.task("cpu", 10, kind="runtime", name="launch")
    >>> kernel = build.task("stream", 50, kind="kernel", name="gemm")
    >>> build.edge(launch, kernel, "launch")
    >>> sync = build.task("cpu", 2, kind="sync", name="synchronize")
    >>> build.wait(sync, "stream")
    >>> build.build()
    WorkGraph(3 tasks, 2 lanes, 1 edge, 1 run-time wait)
    """

    def __init__(self) -> None:
        self._lanes: dict[str, int] = {}
        self._tasks: list[tuple[int, int, str, str, int, float, int]] = []
        self._edges: list[tuple[int, int, str]] = []
        self._waits: list[tuple[int, int]] = []
        self._group: dict[int, int] = {}
        self._groups = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def lane(self, name: str) -> int:
        """The number of a lane, made when new."""
        return self._lanes.setdefault(name, len(self._lanes))

    def task(
        self,
        lane: str,
        duration_ns: int,
        *,
        kind: str = "task",
        name: str = "task",
        bytes: int = 0,
        flops: float = 0.0,
        rank: int = 0,
    ) -> int:
        """Adds a task at the end of its lane and returns its index."""
        self._tasks.append((self.lane(lane), duration_ns, kind, name, bytes, flops, rank))
        return len(self) - 1

    def edge(self, source: int, target: int, kind: str = "edge") -> None:
        """The target starts after the source has ended."""
        self._edges.append((source, target, kind))

    def wait(self, task: int, lane: str) -> None:
        """When it starts, the task waits for what the lane then holds."""
        if lane not in self._lanes:
            raise GraphError(f"task {task} waits for lane {lane!r}, which has no task")
        self._waits.append((task, self._lanes[lane]))

    def rendezvous(self, tasks: Iterable[int]) -> int:
        """The tasks start together, when the last of them is ready. Returns the group."""
        for task in tasks:
            if task in self._group:
                raise GraphError(f"task {task} is already in rendezvous group {self._group[task]}")
            self._group[task] = self._groups
        self._groups += 1
        return self._groups - 1

    def build(self, **meta: str) -> WorkGraph:
        """Validates and returns the graph; unused optional columns are left out."""
        lane, duration, kind, name, *optional = _columns(self._tasks, 7)
        bytes, flops, rank = (column if any(column) else None for column in optional)
        source, target, edge_kind = _columns(self._edges, 3)
        waited = _columns(self._waits, 2)
        group = [self._group.get(task, -1) for task in range(len(self))] if self._group else None
        return WorkGraph.from_columns(
            lane, duration, kind, name, (source, target, edge_kind),
            lanes=list(self._lanes), bytes=bytes, flops=flops, rank=rank, group=group,
            waits=(waited[0], waited[1]) if self._waits else None, meta=meta,
        )  # fmt: skip


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows)] or [[] for _ in range(count)]
