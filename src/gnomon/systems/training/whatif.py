"""What if: replay the graph with some tasks faster, and see what the step gains."""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph, scale
from gnomon.sim import replay
from gnomon.systems.training.graph import TrainingGraph
from gnomon.systems.training.steps import step_estimate

__all__ = ["WhatIf", "WhatIfRow", "play", "usual_questions"]

#: Kinds of host tasks; everything else ran on a GPU.
HOST_KINDS = ("host", "gap", "launch", "runtime", "sync", "blocked")


class WhatIf(msgspec.Struct, frozen=True):
    """A question: these kinds of task take `factor` times as long.

    >>> WhatIf("products twice as fast", ("product",), 0.5).label
    'products twice as fast'
    """

    label: str
    kinds: tuple[str, ...]
    factor: float

    def apply(self, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        unknown = [kind for kind in self.kinds if kind not in graph.kinds]
        if unknown:
            known = ", ".join(sorted(graph.kinds))
            raise InputError(f"the trace has no {unknown[0]!r} tasks; there are {known}")
        return scale(graph, graph.is_kind(*self.kinds), self.factor)


class WhatIfRow(msgspec.Struct, frozen=True):
    """The answer to one question."""

    label: str
    step_ms: float
    change: float
    timeline: Timeline


def play(training: TrainingGraph, questions: list[WhatIf], base: Timeline) -> list[WhatIfRow]:
    """Replays the graph once a question."""
    base_ms = step_estimate(training, base).mid
    rows = []
    for question in questions:
        line = replay(question.apply(training.graph))
        step_ms = step_estimate(training, line).mid
        rows.append(WhatIfRow(question.label, step_ms, step_ms / base_ms - 1.0, line))
    return rows


def usual_questions(training: TrainingGraph, most: int = 3) -> list[WhatIf]:
    """The questions worth asking of any trace: its heaviest kernels, the host, the gaps."""
    graph = training.graph
    total = np.zeros(len(graph.kinds), np.int64)
    np.add.at(total, graph.kind, graph.duration_ns)
    on_gpu = [k for k in np.argsort(-total).tolist() if graph.kinds[k] not in (*HOST_KINDS, "latency")]
    questions = [
        WhatIf(f"{graph.kinds[k]} kernels twice as fast", (graph.kinds[k],), 0.5)
        for k in on_gpu[:most]
        if total[k] > 0
    ]
    if on_gpu:
        every = tuple(graph.kinds[k] for k in on_gpu)
        questions.append(WhatIf("all kernels twice as fast", every, 0.5))
    host = tuple(k for k in ("host", "gap", "launch", "runtime") if k in graph.kinds)
    if host:
        questions.append(WhatIf("host twice as fast", host, 0.5))
    if "latency" in graph.kinds:
        questions.append(WhatIf("no gaps between kernels", ("latency",), 0.0))
    return questions
