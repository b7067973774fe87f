"""How long a step takes, told from where steps end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnomon.estimate import Estimate
from gnomon.graph import Timeline
from gnomon.systems.training.graph import TrainingGraph

__all__ = ["steady_window", "step_ends", "step_estimate"]


def step_ends(training: TrainingGraph, timeline: Timeline) -> NDArray[np.int64]:
    """When the last task of each marked step ended, on host or GPU."""
    ends = [
        int(timeline.end_ns[training.step == number].max())
        for number in range(len(training.step_names))
        if np.any(training.step == number)
    ]
    return np.asarray(ends, np.int64)


def step_estimate(training: TrainingGraph, timeline: Timeline) -> Estimate:
    """Milliseconds a step, from end to end: a GPU that lags behind its host is counted right.

    The range is that of the steps. With fewer than two marked steps the whole span counts as one.
    """
    periods = np.diff(step_ends(training, timeline)) / 1e6
    if not len(periods):
        return Estimate.exact(timeline.makespan_ns / 1e6)
    middle = float(np.median(periods))
    return Estimate(float(periods.min()), middle, float(periods.max()))


def steady_window(training: TrainingGraph, timeline: Timeline) -> tuple[int, int, int]:
    """Start, end and number of the steps that lie wholly inside the trace."""
    ends = step_ends(training, timeline)
    if len(ends) < 2:
        return timeline.begin_ns, timeline.begin_ns + timeline.makespan_ns, 1
    return int(ends[0]), int(ends[-1]), len(ends) - 1
