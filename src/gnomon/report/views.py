"""From a graph's timeline to what a page shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.graph import Timeline
from gnomon.report.charts.timeline import TimelineView


def timeline_view(
    timeline: Timeline,
    title: str,
    critical: NDArray[np.bool_] | None = None,
    *,
    hide: Sequence[str] = (),
) -> TimelineView:
    """The spans of a timeline, without the kinds that only fill (gaps)."""
    graph = timeline.graph
    shown = ~graph.is_kind(*hide) & (timeline.end_ns > timeline.start_ns)
    used, kind = np.unique(graph.kind[shown], return_inverse=True)
    return TimelineView(
        title,
        list(graph.lanes),
        [graph.kinds[code] for code in used.tolist()],
        list(graph.names),
        graph.lane[shown],
        kind.astype(np.int32),
        graph.name[shown],
        timeline.start_ns[shown],
        timeline.end_ns[shown],
        None if critical is None else critical[shown],
    )
