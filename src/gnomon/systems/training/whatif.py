"""What if: change the graph, replay it, and see what the step gains and what then holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError, SimulationError
from gnomon.graph import Timeline, WorkGraph, connect, disconnect, scale
from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES
from gnomon.sim import replay
from gnomon.sim.trace.graph import HOST_KINDS, TraceGraph
from gnomon.sim.trace.steps import step_estimate
from gnomon.systems.training.operations import COLLECTIVES, TRANSFERS

#: Between kernels of one captured graph: what a step takes over the sum of its kernels, a kernel.
#: On an H200 0.4 to 0.5 us (`benchmarks/training_accuracy.py captured` prints it).
CAPTURED_GAP_NS = 500
#: An hour; nobody waits longer for a straggler.
_LONGEST_DELAY_MS = 3.6e6
_HOST_WORK = ("host", "gap", "launch", "runtime")


class Change(Protocol):
    """A question: what would the step take if the graph were changed so?"""

    @property
    def label(self) -> str:
        """The question in words."""

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The changed graph. `graph` has the tasks of `training`, perhaps changed already."""


class WhatIf(msgspec.Struct, frozen=True):
    """These kinds of task take `factor` times as long.

    >>> WhatIf("GEMMs twice as fast", ("gemm",), 0.5).label
    'GEMMs twice as fast'
    """

    label: str
    kinds: tuple[str, ...]
    factor: float

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        unknown = [kind for kind in self.kinds if kind not in graph.kinds]
        if unknown:
            known = ", ".join(sorted(graph.kinds))
            raise InputError(f"the trace has no {unknown[0]!r} tasks; there are {known}")
        return scale(graph, graph.is_kind(*self.kinds), self.factor)


class ScaleNamed(msgspec.Struct, frozen=True):
    """Tasks whose name or kind fits a pattern take `factor` times as long; 0 removes them.

    Small and capital letters count as equal: `nccl*`, `*gemm*`, `aten::layer_norm`, `gemm`.
    """

    pattern: str
    factor: float

    @property
    def label(self) -> str:
        """The question in words."""
        gone = self.factor == 0
        return f"without {self.pattern}" if gone else f"{self.pattern} x {self.factor:g}"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        fits = np.asarray([self._fits(name) for name in graph.names], bool)
        kinds = np.asarray([self._fits(kind) for kind in graph.kinds], bool)
        chosen = fits[graph.name] | kinds[graph.kind]
        if not chosen.any():
            hint = "patterns match whole names: put * around a part; kinds are "
            raise InputError(
                f"no task is called {self.pattern!r}", hint=hint + ", ".join(sorted(graph.kinds))
            )
        return scale(graph, chosen, self.factor)

    def _fits(self, name: str) -> bool:
        return fnmatchcase(name.lower(), self.pattern.lower())


class NoHostOverhead(msgspec.Struct, frozen=True):
    """The step captured as a CUDA graph: the host takes no time, kernels follow closely."""

    label: str = "no host overhead (captured as a CUDA graph)"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not on_gpu(graph):
            raise InputError("without a GPU there is nothing to capture: the host is all there is")
        duration = graph.duration_ns.copy()
        duration[graph.is_kind(*_HOST_WORK, "sync")] = 0
        # Inside a graph a kernel starts when those before it have ended, also on other streams.
        gap = graph.is_kind("latency")
        duration[gap] = np.minimum(duration[gap], CAPTURED_GAP_NS)
        return graph.with_durations(duration)


class IdealNetwork(msgspec.Struct, frozen=True):
    """Transfers take no time; ranks still wait for one another."""

    label: str = "ideal network"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        return scale(graph, _communication(graph), 0.0)


class DelayRank(msgspec.Struct, frozen=True):
    """One rank begins each step later."""

    rank: int
    delay_ms: float

    @property
    def label(self) -> str:
        """The question in words."""
        return f"rank {self.rank} {self.delay_ms:g} ms late"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not 0 <= self.delay_ms <= _LONGEST_DELAY_MS:
            raise InputError(
                f"a delay of {self.delay_ms:g} ms; it has to be between 0 and an hour"
            )
        duration = graph.duration_ns.copy()
        works = _of_rank(graph, self.rank) & ~graph.is_kind("latency", "gap")
        for number in np.unique(training.step[works]).tolist():
            if number < 0 and len(training.step_names):
                continue
            tasks = np.flatnonzero(works & (training.step == number))
            first = tasks[np.argmin(training.recorded.start_ns[tasks])]
            duration[first] += round(self.delay_ms * 1e6)
        return graph.with_durations(duration)


class SlowRank(msgspec.Struct, frozen=True):
    """Everything that one rank computes, on host and GPU, takes `factor` times as long."""

    rank: int
    factor: float

    @property
    def label(self) -> str:
        """The question in words."""
        return f"rank {self.rank} {self.factor:g} times as slow"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not self.factor > 0.0:
            raise InputError(f"rank {self.rank} cannot be {self.factor:g} times as slow")
        talks = graph.is_kind("communication", *TRANSFERS, *COLLECTIVES)
        return scale(graph, _of_rank(graph, self.rank) & ~talks, self.factor)


class NoOverlap(msgspec.Struct, frozen=True):
    """Communication and computation take turns on each GPU, in the order of their starts."""

    label: str = "no overlap of communication"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not on_gpu(graph):
            raise InputError("overlap needs GPU streams, and there are none", where=self.label)
        on_device = np.flatnonzero(graph.is_kind(*KERNEL_CLASSES))
        rank = graph.rank if graph.rank is not None else np.zeros(len(graph), np.int32)
        talks = _communication(graph)
        # Communication has its turn when its last member has come, at the same moment on all
        # ranks: turns then never go round in a circle.
        line = training.recorded
        met = line.end_ns - training.graph.duration_ns
        turn = np.where(talks, met, line.start_ns)
        order = on_device[np.lexsort((turn[on_device], rank[on_device]))]
        before, after = order[:-1], order[1:]
        turns = (talks[before] != talks[after]) & (rank[before] == rank[after])
        turns &= graph.lane[before] != graph.lane[after]
        # What comes before a kernel on its lane is the device's own gap: that is what waits.
        return connect(graph, before[turns], after[turns] - 1, "turn")


class FullOverlap(msgspec.Struct, frozen=True):
    """Computation never waits for communication on another stream."""

    label: str = "communication wholly overlapped"

    def apply(self, training: TraceGraph, graph: WorkGraph) -> WorkGraph:
        """The graph under this question."""
        if not on_gpu(graph):
            raise InputError("overlap needs GPU streams, and there are none", where=self.label)
        source, target, kind = graph.edge_list()
        streams = [code for code, name in enumerate(graph.edge_kinds) if name == "stream"]
        talks = _communication(graph)
        dropped = np.flatnonzero(np.isin(kind, streams) & talks[source] & ~talks[target + 1])
        return disconnect(graph, dropped) if len(dropped) else graph


def on_gpu(graph: WorkGraph) -> bool:
    """Whether any lane is a GPU's."""
    return any(lane.startswith("gpu") or "/gpu" in lane for lane in graph.lanes)


def _communication(graph: WorkGraph) -> NDArray[np.bool_]:
    found = graph.is_kind("communication", *TRANSFERS, *COLLECTIVES)
    if not found.any():
        raise InputError(
            "the trace has no communication to change",
            hint="leave --ideal-network, --no-overlap and --full-overlap out",
        )
    return found


def _of_rank(graph: WorkGraph, rank: int) -> NDArray[np.bool_]:
    if graph.rank is None:
        if rank == 0:
            return np.ones(len(graph), bool)
        raise InputError(f"there is no rank {rank}: one trace was read")
    chosen = graph.rank == rank
    if not chosen.any():
        known = np.unique(graph.rank)
        raise InputError(f"there is no rank {rank}: there are {known[0]} to {known[-1]}")
    return np.asarray(chosen)


class WhatIfRow(msgspec.Struct, frozen=True, eq=False):
    """The answer to one question.

    Attributes:
        label: The question.
        step_ms: The step then.
        change: Against the unchanged graph, as a fraction.
        timeline: The replay.
    """

    label: str
    step_ms: float
    change: float
    timeline: Timeline


def play(
    training: TraceGraph,
    questions: Sequence[Change],
    graph: WorkGraph,
    base: Timeline,
    *,
    skip_stuck: bool = False,
) -> list[WhatIfRow]:
    """Replays a graph of the training's tasks once a question.

    Args:
        training: What was recorded.
        questions: The changes to make, each on its own.
        graph: The tasks that are changed.
        base: Its replay.
        skip_stuck: Leave out a question under which tasks would wait for one another for ever,
            instead of failing.
    """
    base_ms = step_estimate(training, base).mid
    rows = []
    for question in questions:
        try:
            line = replay(question.apply(training, graph))
        except SimulationError:
            if skip_stuck:
                continue
            raise
        step_ms = step_estimate(training, line).mid
        change = step_ms / base_ms - 1.0 if base_ms else 0.0
        rows.append(WhatIfRow(question.label, step_ms, change, line))
    return rows


def parse_scale(text: str) -> ScaleNamed:
    """`nccl*=0.5` or `gemm=0.5` as a question.

    >>> parse_scale("gemm=0.5").label
    'gemm x 0.5'
    """
    pattern, equals, factor = text.rpartition("=")
    try:
        if not equals or not pattern:
            raise ValueError
        return ScaleNamed(pattern, float(factor))
    except ValueError:
        what = f"{text!r} is not PATTERN=FACTOR"
        raise InputError(what, hint="try gemm=0.5 or 'nccl*=0.5'") from None


def parse_rank(text: str) -> tuple[int, float]:
    """`3=5`: a rank and a number.

    >>> parse_rank("3=1.2")
    (3, 1.2)
    """
    rank, _, number = text.partition("=")
    try:
        return int(rank), float(number)
    except ValueError:
        raise InputError(f"{text!r} is not RANK=NUMBER", hint="try 3=5") from None


def heaviest_kinds(graph: WorkGraph, most: int | None = None) -> list[str]:
    """Kinds of GPU task by total time, the heaviest first."""
    total = np.zeros(len(graph.kinds), np.int64)
    np.add.at(total, graph.kind, graph.duration_ns)
    order = [graph.kinds[k] for k in np.argsort(-total, kind="stable").tolist() if total[k] > 0]
    return [kind for kind in order if kind not in (*HOST_KINDS, "latency")][:most]


def usual_questions(training: TraceGraph, most: int = 3) -> list[Change]:
    """The questions worth asking of any trace: its heaviest kernels, the host, the network."""
    graph = training.graph
    heavy = heaviest_kinds(graph)
    kernels = " kernels" if on_gpu(graph) else ""
    questions: list[Change] = [
        WhatIf(f"{kind}{kernels} twice as fast", (kind,), 0.5)
        for kind in heavy[:most]
        if kind not in ("communication", *TRANSFERS, *COLLECTIVES)
    ]
    if on_gpu(graph):
        questions.append(WhatIf("all kernels twice as fast", tuple(heavy), 0.5))
    host = tuple(kind for kind in _HOST_WORK if kind in graph.kinds)
    if host:
        questions.append(WhatIf("host twice as fast, gaps too", host, 0.5))
    if host and on_gpu(graph):
        questions.append(NoHostOverhead())
    if graph.is_kind("communication", *TRANSFERS, *COLLECTIVES).any():
        questions.append(IdealNetwork())
        questions += [NoOverlap()] if on_gpu(graph) else []
    return questions
