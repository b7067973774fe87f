"""Units: what one rank's step is made of, one by one, in the order in which it was asked for.

On a GPU a unit is a kernel with the host's work up to its launch; on a CPU it is an outermost
operator. Each knows the operator it came from with its tensors' shapes, whether it belongs to the
forward pass, the backward pass or the optimiser, and how long it takes when nobody profiles.
"""

from __future__ import annotations

import itertools
from enum import IntEnum
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph import WorkGraph
from gnomon.graph.column_types import Codes, Flags, Floats, Ints
from gnomon.graph.nesting import enclosing
from gnomon.graph.workgraph import LAUNCH
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.operator_family import WORK_FAMILIES, work_family
from gnomon.sim import replay
from gnomon.sim.trace.graph import HOST_KINDS, TraceGraph

#: What stands around whole regions that a compiler made: its shapes are those of all of the model.
_REGIONS = ("CompiledFunction", "Torch-Compiled Region", "## Call CompiledFxGraph")
Shapes = tuple[tuple[int, ...], ...]


class Phase(IntEnum):
    """Which pass of the step a unit belongs to."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Units(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Columns over the units of one rank, all its steps, in the order in which they were asked.

    Attributes:
        trace: Where they are from.
        task: The task of the rank's graph (the longest where a unit has several).
        step: The marked step.
        device_ns: Time on its lane, the pause before it included.
        host_ns: The host's time from the unit before up to this one; 0 on a CPU.
        operator: The event of the operator behind it, with shapes where any has; -1 for none.
        phase: A `Phase`.
        family: A code into `WORK_FAMILIES`.
        like: The event whose name and shapes tell which units do the same; -1 for none.
        side: It runs on a stream beside the one that computes.
        waits: The host waited for the device before it.
        joins: It waited for what other streams compute.
        on_gpu: Whether the rank has a GPU.
    """

    trace: KinetoTrace
    task: Ints
    step: Codes
    device_ns: Floats
    host_ns: Floats
    name: tuple[str, ...]
    operator: Ints
    phase: NDArray[np.int8]
    family: NDArray[np.int8]
    like: Ints
    side: Flags
    waits: Flags
    joins: Flags
    on_gpu: bool

    def __len__(self) -> int:
        return len(self.task)

    def is_family(self, *families: str) -> Flags:
        """Which units belong to one of these families."""
        return np.isin(self.family, [WORK_FAMILIES.index(family) for family in families])

    def operator_name(self, unit: int) -> str:
        """The name of the operator behind a unit."""
        event = int(self.operator[unit])
        return self.trace.name_of(event) if event >= 0 else ""

    def shapes(self, unit: int) -> Shapes:
        """The shapes of the tensors that went in; lists of tensors are one after another."""
        event = int(self.operator[unit])
        return self._parsed[int(self.trace.shape[event])] if event >= 0 else ()

    @cached_property
    def _parsed(self) -> dict[int, Shapes]:
        codes = np.unique(self.trace.shape[np.maximum(self.operator, 0)])
        return {int(code): parse_shapes(self.trace.shapes[code]) for code in codes.tolist()}

    @cached_property
    def token(self) -> Ints:
        """A number that is the same for units that do the same on the same shapes."""
        has = self.like >= 0
        event = np.maximum(self.like, 0)
        # Kernels of no operator are distinguished by their own names.
        own = np.unique(np.asarray(self.name, np.str_), return_inverse=True)[1].reshape(-1)
        name = np.where(has, self.trace.name[event], -1 - own)
        shape = np.where(has, self.trace.shape[event], -1)
        # Several kernels of one operator are distinguished by their place in it.
        nth = np.arange(len(self)) - self._first_of_operator
        rows = np.stack([name, shape, self.phase, nth], axis=1)
        return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1), np.int64)

    @cached_property
    def _first_of_operator(self) -> Ints:
        """The first of the units that came from the same call of an operator."""
        place = np.arange(len(self))
        begins = np.ones(len(self), bool)
        begins[1:] = (self.like[1:] != self.like[:-1]) | (self.like[1:] < 0)
        return np.asarray(np.maximum.accumulate(np.where(begins, place, 0)))


def parse_shapes(text: str) -> Shapes:
    """The shapes in a trace's column: `[[2, 3], [], [[4], [5]]]` before the first tab.

    >>> parse_shapes('[[2, 3], [], [[4], [5]]]')
    ((2, 3), (4,), (5,))
    """
    first = text.split("\t", 1)[0]
    if not first:
        return ()
    try:
        return tuple(_flat(msgspec.json.decode(first)))
    except msgspec.DecodeError:
        return ()


def _flat(value: object) -> list[tuple[int, ...]]:
    if not isinstance(value, list) or not value:
        return []
    if all(isinstance(item, int) for item in value):
        return [tuple(value)]
    return [shape for item in value for shape in _flat(item)]


def find_units(trace: KinetoTrace, training: TraceGraph, graph: WorkGraph) -> Units:
    """The units of one rank.

    Args:
        trace: Its trace.
        training: Its graph, on the trace's own clock.
        graph: The same with the durations that its tasks have when nobody profiles.
    """
    parent = _parents(trace)
    device = ~graph.is_kind(*HOST_KINDS, "latency")
    if (device & ~graph.is_kind("communication")).any():
        return _kernels(trace, training, graph, parent, device)
    return _operators(trace, training, graph, parent)


def _parents(trace: KinetoTrace) -> Ints:
    """The event around each operator, annotation and runtime call; -1 for none."""
    kinds = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
    rows = np.flatnonzero(trace.is_category(*kinds))
    around = enclosing(trace.start_ns[rows], trace.end_ns[rows], trace.thread[rows])
    parent = np.full(len(trace), -1, np.int64)
    parent[rows] = np.where(around >= 0, rows[around], -1)
    return parent


class _Chain:
    """What stands above an event: remembered, since many events share it."""

    def __init__(self, trace: KinetoTrace, parent: Ints) -> None:
        self._trace = trace
        self._parent = parent.tolist()
        self._shape = trace.shape.tolist()
        self._is_operator = trace.is_category("cpu_op").tolist()
        self._phase: dict[int, tuple[int, int]] = {-1: (Phase.FORWARD, -1)}

    def above(self, event: int) -> list[int]:
        """The event and all around it, innermost first."""
        chain = []
        while event >= 0:
            chain.append(event)
            event = self._parent[event]
        return chain

    def operator(self, event: int) -> int:
        """The innermost operator with shapes, else the innermost; -1 for none.

        A compiled region is no operator: its shapes say nothing of a kernel inside it.
        """
        operators = self._operators_of(event)
        shaped = (e for e in operators if self._has_sizes(e))
        return next(shaped, operators[0] if operators else -1)

    def attention(self, event: int) -> int:
        """The innermost attention with shapes around an event; -1 for none."""
        for e in self._operators_of(event):
            if self._has_sizes(e) and work_family(self._trace.name_of(e), "") == "attention":
                return e
        return -1

    def _operators_of(self, event: int) -> list[int]:
        operators = (e for e in self.above(event) if self._is_operator[e])
        return list(
            itertools.takewhile(lambda e: not _is_region(self._trace.name_of(e)), operators)
        )

    def _has_sizes(self, event: int) -> bool:
        first = self._trace.shapes[self._shape[event]].split("\t", 1)[0]
        return any(c.isdigit() for c in first)

    def outermost(self, event: int) -> int:
        """The outermost operator around an event, the event itself where there is none."""
        operators = [e for e in self.above(event) if self._is_operator[e]]
        return operators[-1] if operators else event

    def phase(self, event: int) -> tuple[int, int]:
        """The phase that the names around an event give, and the event that gave it (-1: none)."""
        known = self._phase.get(event)
        if known is None:
            name = self._trace.name_of(event)
            if name.startswith("Optimizer.step"):
                known = (Phase.OPTIMIZER, event)
            elif name.startswith("autograd::") or name.endswith(("Backward0", "Backward")):
                known = (Phase.BACKWARD, event)
            else:
                known = self.phase(self._parent[event])
            self._phase[event] = known
        return known


def _is_region(name: str) -> bool:
    return name.startswith(_REGIONS) or name.endswith("CompiledFunctionBackward")


def _kernels(
    trace: KinetoTrace, training: TraceGraph, graph: WorkGraph, parent: Ints, device: Flags
) -> Units:
    assert training.event is not None
    launcher = _launchers(graph)
    task = np.flatnonzero(device & (training.step >= 0) & (launcher >= 0))
    asked_ns = _host_alone(graph, device)[launcher[task]]
    order = np.lexsort((task, asked_ns))
    task, asked_ns = task[order], asked_ns[order]
    host_ns = np.diff(asked_ns, prepend=asked_ns[:1]).astype(np.float64)
    chain = _Chain(trace, parent)
    call = training.event[launcher[task]]
    operator = np.asarray([chain.operator(c) for c in call.tolist()], np.int64)
    phase = np.asarray([chain.phase(c)[0] for c in call.tolist()], np.int8)
    names = tuple(str(graph.names[n]) for n in graph.name[task].tolist())
    family = [
        work_family(trace.name_of(op) if op >= 0 else "", name)
        for op, name in zip(operator.tolist(), names, strict=True)
    ]
    step = training.step[task]
    return Units(
        trace, task, step, _with_pause(graph, task), host_ns, names, operator,
        _settle_phases(phase, step), np.asarray([WORK_FAMILIES.index(f) for f in family], np.int8),
        operator, _beside(graph, task), _after_waits(graph, training, launcher[task]),
        _after_others(graph, task, device), True,
    )  # fmt: skip


def _launchers(graph: WorkGraph) -> Ints:
    """The host task that launched each task; -1 for none."""
    launcher = np.full(len(graph), -1, np.int64)
    if LAUNCH in graph.edge_kinds:
        launches = graph.edge_kind == list(graph.edge_kinds).index(LAUNCH)
        source = np.repeat(np.arange(len(graph)), np.diff(graph.edge_offset))
        launcher[graph.edge_target[launches]] = source[launches]
    # Where a pause precedes a kernel on its lane, the pause is what was launched.
    pause = graph.is_kind("latency")
    follows = np.flatnonzero(pause[:-1] & (graph.lane[:-1] == graph.lane[1:]))
    fill = follows[launcher[follows + 1] < 0]
    launcher[fill + 1] = launcher[fill]
    return launcher


def _host_alone(graph: WorkGraph, device: Flags) -> Ints:
    """When each host task would end if the device took no time: the pace of the host alone."""
    at_once = np.where(device | graph.is_kind("latency"), 0, graph.duration_ns)
    line = replay(graph.with_durations(at_once), causes=False)
    return line.end_ns


def _with_pause(graph: WorkGraph, task: Ints) -> Floats:
    before = np.maximum(task - 1, 0)
    pause = graph.is_kind("latency")[before] & (graph.lane[before] == graph.lane[task])
    return (graph.duration_ns[task] + np.where(pause, graph.duration_ns[before], 0)).astype(float)


def _beside(graph: WorkGraph, task: Ints) -> Flags:
    """Whether a task lies on another lane than the one with the most work."""
    lane = graph.lane[task]
    if not len(task):
        return np.zeros(0, bool)
    computes = ~graph.is_kind("communication")[task]
    busy = np.bincount(lane, graph.duration_ns[task] * computes, minlength=len(graph.lanes))
    return np.asarray(lane != int(np.argmax(busy)))


def _after_waits(graph: WorkGraph, training: TraceGraph, launcher: Ints) -> Flags:
    """Whether the host waited for the device since the unit before."""
    waits = np.zeros(len(launcher), bool)
    if graph.wait_task is None or not len(graph.wait_task):
        return waits
    asked = training.recorded.start_ns[launcher]
    waited = training.recorded.start_ns[np.unique(graph.wait_task)]
    at = np.searchsorted(asked, waited)
    waits[at[at < len(waits)]] = True
    return waits


def _after_others(graph: WorkGraph, task: Ints, device: Flags) -> Flags:
    """Whether a task of the lane that computes waited for work of another one.

    Communication does not count: what ranks communicate is put together anew.
    """
    source = np.repeat(np.arange(len(graph)), np.diff(graph.edge_offset))
    target = graph.edge_target
    works = device & ~graph.is_kind("communication")
    across = works[source] & (graph.lane[source] != graph.lane[target])
    waited = np.zeros(len(graph), bool)
    waited[target[across]] = True
    # The pause before a kernel is what waits, where there is one.
    before = np.maximum(task - 1, 0)
    paused = graph.is_kind("latency")[before] & (graph.lane[before] == graph.lane[task])
    waits = waited[task] | (waited[before] & paused)
    return np.asarray(waits & ~_beside(graph, task))


def _settle_phases(phase: NDArray[np.int8], step: Codes) -> NDArray[np.int8]:
    """What no name gives: after the last backward unit of a step comes the optimiser."""
    settled = phase.copy()
    for number in np.unique(step).tolist():
        own = np.flatnonzero(step == number)
        backward = own[phase[own] == Phase.BACKWARD]
        if not len(backward):
            continue
        after = own[(own > backward[-1]) & (phase[own] == Phase.FORWARD)]
        settled[after] = Phase.OPTIMIZER
    return settled


def _operators(trace: KinetoTrace, training: TraceGraph, graph: WorkGraph, parent: Ints) -> Units:
    """On a CPU: outermost operators, with the gaps before them."""
    assert training.event is not None
    if not len(graph):
        return _no_units(trace)
    main = np.bincount(graph.lane, graph.duration_ns * graph.is_kind("host")).argmax()
    tasks = np.flatnonzero((graph.lane == main) & (training.step >= 0))
    if not len(tasks):
        return _no_units(trace)
    chain = _Chain(trace, parent)
    event = training.event[tasks]
    outer = np.asarray([chain.outermost(e) if e >= 0 else -1 for e in event.tolist()], np.int64)
    # A gap belongs to what comes after it.
    for place in range(len(outer) - 2, -1, -1):
        if outer[place] < 0:
            outer[place] = outer[place + 1]
    first = np.flatnonzero(np.concatenate([[True], outer[1:] != outer[:-1]]))
    duration = graph.duration_ns[tasks].astype(np.float64)
    whole = np.add.reduceat(duration, first)
    longest = _longest(duration, first, event)
    operator = np.asarray([_behind(chain, int(event[p])) for p in longest], np.int64)
    phase = np.asarray([chain.phase(int(o))[0] if o >= 0 else 0 for o in outer[first]], np.int8)
    names = tuple(trace.name_of(o) if o >= 0 else "host gap" for o in outer[first].tolist())
    family = [
        _operator_family(trace.name_of(op) if op >= 0 else "", name)
        for op, name in zip(operator.tolist(), names, strict=True)
    ]
    step = training.step[tasks[first]]
    none = np.zeros(len(first), bool)
    return Units(
        trace, tasks[longest], step, whole, np.zeros(len(first)), names, operator,
        _settle_phases(phase, step), np.asarray([WORK_FAMILIES.index(f) for f in family], np.int8),
        outer[first], none, none, none, False,
    )  # fmt: skip


def _behind(chain: _Chain, event: int) -> int:
    """The operator that tells what a unit of the host does: an attention as a whole, if it is one.

    Without a kernel of its own an attention is GEMMs and a softmax, which belong together.
    """
    if event < 0:
        return -1
    attention = chain.attention(event)
    return attention if attention >= 0 else chain.operator(event)


def _no_units(trace: KinetoTrace) -> Units:
    none, places = np.zeros(0), np.zeros(0, np.int64)
    code, flag = np.zeros(0, np.int8), np.zeros(0, bool)
    return Units(
        trace, places, np.zeros(0, np.int32), none, none, (), places, code, code, places, flag,
        flag, flag, False,
    )  # fmt: skip


def _operator_family(operator: str, outer: str) -> str:
    if work_family(outer, "") == "communication":
        return "communication"
    return work_family(operator, "")


def _longest(duration: Floats, first: Ints, event: Codes) -> Ints:
    """The longest task of each stretch that has an event, else its first."""
    weight = np.where(event >= 0, duration, -1.0)
    stretch = np.zeros(len(duration), np.int64)
    stretch[first[1:]] = 1
    stretch = np.cumsum(stretch)
    order = np.lexsort((weight, stretch))
    last = np.concatenate([np.flatnonzero(np.diff(stretch[order])), [len(order) - 1]])
    return np.asarray(order[last], np.int64)
