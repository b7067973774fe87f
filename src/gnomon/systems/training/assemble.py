"""The half-built graph: tasks with recorded times, edges that may point anywhere."""

from __future__ import annotations

import numpy as np

from gnomon.graph import WorkGraph

__all__ = ["HOST_KINDS", "Assembly"]

#: Kinds of host tasks; everything else runs on a GPU.
HOST_KINDS = ("host", "gap", "launch", "runtime", "sync", "blocked")


class Assembly:
    """Tasks in lane order with recorded start and end; `sized` is what a replay will charge.

    A wait lasts from `start` to `end` in the record, but only what of it is its own is charged:
    the rest follows from what it waits for.
    """

    def __init__(self) -> None:
        self.lane: list[str] = []
        self.start: list[int] = []
        self.end: list[int] = []
        self.sized: list[int] = []
        self.kind: list[str] = []
        self.name: list[str] = []
        self.bytes: list[int] = []
        self.edges: list[tuple[int, int, str]] = []
        self.waits: list[tuple[int, str]] = []
        self.syncs: list[tuple[int, str]] = []
        self.queue_waits: list[tuple[int, int]] = []  # kernel event that made room, host task
        self.latency_of: dict[int, int] = {}

    def add(
        self, lane: str, start: int, end: int, kind: str, name: str, *,
        sized: int | None = None, bytes: int = 0,
    ) -> int:  # fmt: skip
        """Adds a task at the end of its lane."""
        self.lane.append(lane)
        self.start.append(start)
        self.end.append(end)
        self.sized.append(end - start if sized is None else sized)
        self.kind.append(kind)
        self.name.append(name)
        self.bytes.append(bytes)
        return len(self.lane) - 1

    def edge(self, source: int, target: int, kind: str) -> None:
        """The target comes after the source."""
        self.edges.append((source, target, kind))

    def host_tasks(self) -> list[int]:
        """Tasks of all host lanes."""
        return [task for task, kind in enumerate(self.kind) if kind in HOST_KINDS]

    def graph(self, meta: dict[str, str]) -> WorkGraph:
        """The finished graph; an edge or a wait that a replay could not honour raises."""
        source, target, kind = zip(*self.edges) if self.edges else ((), (), ())
        tasks, lanes = zip(*self.waits) if self.waits else ((), ())
        return WorkGraph.from_columns(
            np.asarray(self.lane, object), self.sized, self.kind, self.name,
            (source, target, kind),
            bytes=self.bytes if any(self.bytes) else None,
            waits=(tasks, list(lanes)) if tasks else None,
            meta=meta,
        )  # fmt: skip
