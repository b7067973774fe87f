"""Training: how long is the step, why, and what if?

From an ordinary PyTorch profiler trace to a graph that replays (after Lumos, arXiv 2504.09307).

>>> from gnomon.datasets import bundled
>>> run = replay_trace(bundled("h200-gpt-l6"))
>>> round(run.timeline.makespan_ns / run.training.recorded.makespan_ns, 3)
1.0
"""

from __future__ import annotations

from gnomon.systems.training.answer import to_result
from gnomon.systems.training.graph import TrainingGraph, build_graph
from gnomon.systems.training.pipeline import TrainingReplay, replay_trace
from gnomon.systems.training.whatif import WhatIf

__all__ = ["TrainingGraph", "TrainingReplay", "WhatIf", "build_graph", "replay_trace", "to_result"]
