"""A profiler trace as a graph that replays, and what it takes when nobody profiles.

`events` sorts a trace, `graph` makes its work graph, `steps` counts in its steps, and
`unprofiled` cuts the profiler's own time out. Systems that start from a trace start here.
"""

from __future__ import annotations

from gnomon.sim.trace.graph import HOST_KINDS, InferredWait, TraceGraph, build_graph

__all__ = ["HOST_KINDS", "InferredWait", "TraceGraph", "build_graph"]
