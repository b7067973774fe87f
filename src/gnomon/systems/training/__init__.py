"""Training: how long is the step, why, and what if?

From an ordinary PyTorch profiler trace to a graph that replays (after Lumos, arXiv 2504.09307).

>>> from gnomon.datasets import bundled
>>> from gnomon.systems.training import replay_trace
>>> run = replay_trace(bundled("h200-gpt-l6"))
>>> round(run.timeline.makespan_ns / run.training.recorded.makespan_ns, 3)
1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.systems.training.job import TrainingJob
    from gnomon.systems.training.pipeline import TrainingReplay, read_job, replay_trace
    from gnomon.systems.training.recording.recorder import record
    from gnomon.systems.training.replay_result import to_result
    from gnomon.systems.training.whatif import WhatIf

__all__ = [
    "TrainingJob",
    "TrainingReplay",
    "WhatIf",
    "read_job",
    "record",
    "replay_trace",
    "to_result",
]

# Also because `record` runs in Pythons that have torch and nothing of ours.
_HOME = {
    "job": ["TrainingJob"],
    "pipeline": ["TrainingReplay", "read_job", "replay_trace"],
    "whatif": ["WhatIf"],
    "recording.recorder": ["record"],
    "replay_result": ["to_result"],
}

__getattr__ = lazy_names(__name__, _HOME)
