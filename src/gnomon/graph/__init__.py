"""Workloads as graphs: what runs where, what must come before what, and when it ran.

`WorkGraph` holds tasks, lanes and edges as columns; `Timeline` adds starts and ends. Edits return
new graphs; `gnomon.sim.replay` turns a graph into a timeline.
"""

from __future__ import annotations

from gnomon.graph.breakdown import Breakdown
from gnomon.graph.builder import GraphBuilder
from gnomon.graph.compare import TimelineDiff
from gnomon.graph.critical import CriticalPath, Reason
from gnomon.graph.edit import (
    clone,
    connect,
    disconnect,
    drop,
    insert,
    merge,
    regroup,
    reorder,
    scale,
    select,
    splice,
)
from gnomon.graph.timeline import Timeline
from gnomon.graph.workgraph import LAUNCH, WorkGraph

__all__ = [
    "LAUNCH",
    "Breakdown",
    "CriticalPath",
    "GraphBuilder",
    "Reason",
    "Timeline",
    "TimelineDiff",
    "WorkGraph",
    "clone",
    "connect",
    "disconnect",
    "drop",
    "insert",
    "merge",
    "regroup",
    "reorder",
    "scale",
    "select",
    "splice",
]
