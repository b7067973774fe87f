"""GraphBuilder: a graph task by task, for readers and for hand-made examples."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.errors import GraphError
from gnomon.graph.workgraph import WorkGraph

__all__ = ["GraphBuilder"]


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
        self._lane: list[int] = []
        self._duration: list[int] = []
        self._kind: list[str] = []
        self._name: list[str] = []
        self._bytes: list[int] = []
        self._flops: list[float] = []
        self._rank: list[int] = []
        self._source: list[int] = []
        self._target: list[int] = []
        self._edge_kind: list[str] = []
        self._wait_task: list[int] = []
        self._wait_lane: list[int] = []
        self._group: dict[int, int] = {}
        self._groups = 0

    def __len__(self) -> int:
        return len(self._lane)

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
        self._lane.append(self.lane(lane))
        self._duration.append(duration_ns)
        self._kind.append(kind)
        self._name.append(name)
        self._bytes.append(bytes)
        self._flops.append(flops)
        self._rank.append(rank)
        return len(self._lane) - 1

    def edge(self, source: int, target: int, kind: str = "edge") -> None:
        """The target starts after the source has ended."""
        self._source.append(source)
        self._target.append(target)
        self._edge_kind.append(kind)

    def wait(self, task: int, lane: str) -> None:
        """When it starts, the task waits for what the lane then holds."""
        if lane not in self._lanes:
            raise GraphError(f"task {task} waits for lane {lane!r}, which has no task")
        self._wait_task.append(task)
        self._wait_lane.append(self._lanes[lane])

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
        n = len(self)
        return WorkGraph.from_columns(
            self._lane,
            self._duration,
            self._kind,
            self._name,
            (self._source, self._target, self._edge_kind),
            lanes=list(self._lanes),
            bytes=self._bytes if any(self._bytes) else None,
            flops=self._flops if any(self._flops) else None,
            rank=self._rank if any(self._rank) else None,
            group=[self._group.get(i, -1) for i in range(n)] if self._group else None,
            waits=(self._wait_task, self._wait_lane) if self._wait_task else None,
            meta=meta,
        )
