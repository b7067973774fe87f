"""What if: replay the graph with some tasks faster, and see what the step gains."""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph, scale
from gnomon.sim import replay
from gnomon.systems.training.assemble import HOST_KINDS
from gnomon.systems.training.graph import TrainingGraph
from gnomon.systems.training.steps import step_estimate

__all__ = ["WhatIf", "WhatIfRow", "heaviest_kinds", "parse_scale", "play", "usual_questions"]


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
        change = step_ms / base_ms - 1.0 if base_ms else 0.0
        rows.append(WhatIfRow(question.label, step_ms, change, line))
    return rows


def parse_scale(text: str) -> WhatIf:
    """`product=0.5` as a question.

    >>> parse_scale("product=0.5").label
    'product x 0.5'
    """
    kind, equals, factor = text.partition("=")
    try:
        if not equals or not kind:
            raise ValueError
        return WhatIf(f"{kind} x {float(factor):g}", (kind,), float(factor))
    except ValueError:
        raise InputError(f"{text!r} is not KIND=FACTOR", hint="try product=0.5") from None


def heaviest_kinds(graph: WorkGraph, most: int | None = None) -> list[str]:
    """Kinds of GPU task by total time, the heaviest first."""
    total = np.zeros(len(graph.kinds), np.int64)
    np.add.at(total, graph.kind, graph.duration_ns)
    order = [graph.kinds[k] for k in np.argsort(-total, kind="stable").tolist() if total[k] > 0]
    return [kind for kind in order if kind not in (*HOST_KINDS, "latency")][:most]


def usual_questions(training: TrainingGraph, most: int = 3) -> list[WhatIf]:
    """The questions worth asking of any trace: its heaviest kernels, the host, the gaps."""
    graph = training.graph
    on_gpu = heaviest_kinds(graph)
    questions = [WhatIf(f"{kind} kernels twice as fast", (kind,), 0.5) for kind in on_gpu[:most]]
    if on_gpu:
        questions.append(WhatIf("all kernels twice as fast", tuple(on_gpu), 0.5))
    host = tuple(k for k in ("host", "gap", "launch", "runtime") if k in graph.kinds)
    if host:
        questions.append(WhatIf("host twice as fast, gaps too", host, 0.5))
    if "latency" in graph.kinds:
        questions.append(WhatIf("no gaps between kernels", ("latency",), 0.0))
    return questions
