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

    The range is that of the steps. One marked step counts from its first start to its last end;
    without any, the whole trace does.
    """
    ends = step_ends(training, timeline)
    periods = np.diff(ends) / 1e6
    if not len(periods):
        inside = training.step >= 0 if len(ends) else np.ones(len(timeline), bool)
        begin = int(timeline.start_ns[inside].min()) if inside.any() else 0
        end = int(timeline.end_ns[inside].max()) if inside.any() else 0
        return Estimate.exact((end - begin) / 1e6)
    middle = float(np.median(periods))
    return Estimate(float(periods.min()), middle, float(periods.max()))


def steady_window(training: TrainingGraph, timeline: Timeline) -> tuple[int, int, int]:
    """Start, end and number of the steps that lie wholly inside the trace."""
    ends = step_ends(training, timeline)
    if len(ends) < 2:
        return timeline.begin_ns, timeline.begin_ns + timeline.makespan_ns, 1
    return int(ends[0]), int(ends[-1]), len(ends) - 1
