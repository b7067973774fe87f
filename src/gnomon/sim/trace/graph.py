"""From a profiler trace to a work graph that replays (Lumos, section 3.2).

Lanes are host threads and GPU streams. Every task carries a recorded duration; every wait the
trace shows becomes an edge or a run-time wait plus what is left of it as a task of its own, so
that nothing recorded is lost and everything can be edited:

- host order: pieces of a thread in order, time between operators as `gap` tasks;
- launch: the runtime call with the same correlation id, up to the instant its kernel started;
- stream order, with the device's own gap before each kernel as a `latency` task;
- synchronise calls: run-time waits for what the streams hold, plus the call's own time;
- a launch call that blocked because the queue was full: an edge from the kernel that made room;
- thread to thread: a long silence of one thread that ends as another's work ends waits for it;
- stream to stream: as recorded where the profiler wrote its sync events; elsewhere, where the host
  used stream-wait calls, inferred from times, with a confidence.

The tasks are made natively (`native/engine/trace/graph.hpp`); here they get their names.
"""

from __future__ import annotations

import msgspec
import numpy as np

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph
from gnomon.graph.column_types import Codes, Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.kernel_class import KERNEL_CLASSES, classify_kernel
from gnomon.sim.trace.events import EventClass, LaidOut, lay_out, step_marks
from gnomon.sim.trace.marks import asked_at, nth_of_its_kind, step_of_device_events
from gnomon.sim.trace.stream_waits import recorded_waits
from gnomon.table import Dictionary

#: Kinds of host tasks, in the native builder's order; everything else runs on a device.
HOST_KINDS = ("host", "gap", "launch", "runtime", "sync", "blocked")
_KINDS = (*HOST_KINDS, "latency", *KERNEL_CLASSES)
_DEVICE = len(HOST_KINDS) + 1
_EDGE_KINDS = ("launch", "queue", "event", "thread", "stream")

#: What becomes a task, and what only describes others: frames, marks, the profiler's own time.
_KNOWN_CATEGORIES = frozenset(
    {
        *("cpu_op", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset"),
        *("python_function", "user_annotation", "gpu_user_annotation", "overhead", "Trace"),
        *("cuda_sync", "cpu_instant_event", "fwdbwd", "ac2g", ""),
    }
)


class InferredWait(msgspec.Struct, frozen=True):
    """Task `target` waited for task `source`, with this confidence (0 to 1)."""

    source: int
    target: int
    confidence: float


class TraceGraph(msgspec.Struct, frozen=True, eq=False):
    """A graph with its recorded timeline, and which step each task belongs to (-1: none).

    Attributes:
        graph: The tasks; what a replay charges for each is its duration.
        recorded: When each ran.
        step: The marked step of each task, -1 for none.
        step_names: The marks.
        notes: What was cut, left out or inferred.
        gpu: The device's name.
        inferred: Waits between streams that were inferred from times, with a confidence each.
        event: The trace's event behind each task, -1 for gaps; None without a trace.
        counted: The steps that answers are about; empty for all.
        marked_ns: When each step was marked to begin, a row per rank (by number), -1 where it was
            not; None where nothing is marked.
    """

    graph: WorkGraph
    recorded: Timeline
    step: Codes
    step_names: tuple[str, ...]
    notes: tuple[str, ...]
    gpu: str
    inferred: tuple[InferredWait, ...] = ()
    event: Codes | None = None
    counted: tuple[int, ...] = ()
    marked_ns: Ints | None = None


def build_graph(
    trace: KinetoTrace, *, shift_ns: int = 0, laid: LaidOut | None = None
) -> TraceGraph:
    """Builds the graph of one rank's trace.

    Raises:
        InputError: The trace has nothing to replay, or holds several processes that train.

    Args:
        trace: The trace.
        shift_ns: Added to all times: what its clock lies behind that of other ranks.
        laid: The trace laid out, where it was already.
    """
    laid = laid or lay_out(trace)
    if np.isin(laid.event_class, (EventClass.IGNORED, EventClass.MARK)).all():
        raise InputError(
            "the trace has neither operators nor kernels", where=trace.source,
            hint="profile with CPU and CUDA activities",
        )  # fmt: skip
    asked, marks = asked_at(trace, laid), step_marks(trace)
    if len({trace.threads[thread][0] for thread in trace.thread[marks].tolist()}) > 1:
        raise InputError(
            "several processes mark steps in it", where=trace.source,
            hint="give a trace a rank, not a merged one",
        )  # fmt: skip
    step_of_event = step_of_device_events(trace, asked, marks)
    source, target = recorded_waits(trace, laid)
    events = _core.TraceEvents(
        start=trace.start_ns + shift_ns, end=trace.end_ns + shift_ns,
        event_class=laid.event_class, flags=laid.flags, lane=laid.lane,
        correlation=laid.correlation, host_lanes=laid.host_lanes, lanes=len(laid.lanes),
        known_source=source, known_target=target,
        identity=nth_of_its_kind(trace, asked, step_of_event), step=step_of_event,
    )  # fmt: skip
    built = _core.build_trace_graph(events)
    event = built.take_event()
    graph = _graph(trace, laid, built, event)
    recorded = Timeline(graph, built.take_start(), built.take_end())
    inferred = _inferred(built)
    step = _steps(trace, recorded, event, step_of_event, marks, shift_ns)
    return TraceGraph(
        graph, recorded, step, tuple(trace.name_of(mark) for mark in marks.tolist()),
        tuple(_notes(trace, laid, built, asked, inferred, len(source))),
        trace.gpus[0] if trace.gpus else "", inferred, event,
        marked_ns=(trace.start_ns[marks] + shift_ns)[np.newaxis] if len(marks) else None,
    )  # fmt: skip


def _graph(trace: KinetoTrace, laid: LaidOut, built: _core.TraceGraph, event: Codes) -> WorkGraph:
    kind = built.take_kind()
    on_device = kind == _DEVICE
    class_of = np.zeros(len(trace.names), np.uint8)
    is_kernel = np.zeros(len(trace.names), bool)
    is_kernel[trace.name[event[on_device]]] = True
    for code in np.flatnonzero(is_kernel).tolist():
        class_of[code] = _DEVICE + KERNEL_CLASSES.index(classify_kernel(trace.names[code]))
    kind[on_device] = class_of[trace.name[event[on_device]]]
    kind[np.isin(event, [row for row, _ in laid.communications])] = _DEVICE + KERNEL_CLASSES.index(
        "communication"
    )
    gap = len(trace.names) + (kind == _KINDS.index("latency"))
    name = np.where(event >= 0, trace.name[event], gap)
    bytes = np.where(on_device, trace.bytes[event], 0)
    edge_kinds = Dictionary(built.take_edge_kind(), _EDGE_KINDS)
    return WorkGraph.from_columns(
        built.take_lane(), built.take_sized(), Dictionary(kind, _KINDS),
        Dictionary(name, (*trace.names, "host gap", "device gap")),
        (built.take_source(), built.take_target(), edge_kinds), lanes=laid.lanes,
        bytes=bytes if bytes.any() else None,
        waits=(built.take_wait_task(), built.take_wait_lane()),
        meta={"source": trace.source},
    )  # fmt: skip


def _inferred(built: _core.TraceGraph) -> tuple[InferredWait, ...]:
    columns = (
        built.take_inferred_source(), built.take_inferred_target(), built.take_confidence(),
    )  # fmt: skip
    return tuple(
        InferredWait(source, target, round(confidence, 3))
        for source, target, confidence in zip(*(column.tolist() for column in columns))
    )


def _steps(
    trace: KinetoTrace,
    recorded: Timeline,
    event: Codes,
    step_of_event: Codes,
    marks: Ints,
    shift_ns: int,
) -> Codes:
    """The profiler's step of each task: of a host task by its start, of a kernel by launch."""
    step = np.full(len(recorded), -1, np.int32)
    if not len(marks):
        return step
    begun = recorded.start_ns - shift_ns
    at = np.searchsorted(trace.start_ns[marks], begun, side="right") - 1
    inside = (at >= 0) & (begun < trace.end_ns[marks][at])
    step[inside] = at[inside]
    # A kernel belongs to the step that launched it, wherever it ran, and its gap with it.
    kernels = np.flatnonzero(recorded.graph.is_kind(*KERNEL_CLASSES))
    step[kernels] = step[kernels - 1] = step_of_event[event[kernels]]
    return step


def _notes(
    trace: KinetoTrace,
    laid: LaidOut,
    built: _core.TraceGraph,
    asked: Ints,
    inferred: tuple[InferredWait, ...],
    recorded_waits: int,
) -> list[str]:
    without = int(np.count_nonzero(asked[laid.event_class == EventClass.DEVICE] < 0))
    counted = [
        (without, "kernels were launched before the window; they keep their place"),
        (built.overlapping, "kernels overlapped the next one of their stream and were cut"),
        (built.before_launch, "kernels seem to start before their launch; clocks disagree"),
        (recorded_waits, "waits between streams were recorded by the profiler"),
        (built.refuted, "recorded waits between streams contradict the times and were left out"),
        *((count, what) for what, count in trace.dropped.items()),
        *_unused(trace),
    ]
    notes = [f"{count:,} {what}" for count, what in counted if count]
    if inferred:
        sure = sum(wait.confidence for wait in inferred) / len(inferred)
        notes.append(
            f"{len(inferred):,} waits between streams were inferred from times, "
            f"mean confidence {sure:.2f}"
        )
    return notes


def _unused(trace: KinetoTrace) -> list[tuple[int, str]]:
    """Events of kinds that the graph does not know, counted by category."""
    count = np.bincount(trace.category, minlength=len(trace.categories))
    return [
        (int(count[code]), f"events of category {name!r} are not part of the graph")
        for code, name in enumerate(trace.categories)
        if name not in _KNOWN_CATEGORIES
    ]
