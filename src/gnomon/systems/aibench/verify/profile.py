"""What one trace shows of a step: what two runs of the same work should have in common."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.estimate import Estimate
from gnomon.graph.timeline import covered_until, union_of_spans
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.kernel_class import classify_kernel
from gnomon.model.accelerator.operator_family import FRAMEWORK, operator_family
from gnomon.sim.trace.events import EventClass, LaidOut, lay_out, step_marks
from gnomon.sim.trace.graph import HOST_KINDS, TraceGraph, build_graph
from gnomon.sim.trace.marks import asked_at, step_of_device_events
from gnomon.sim.trace.steps import steady_window, step_periods_ms

#: How a step's time is known.
StepSource: TypeAlias = Literal["measured", "given", "estimated", "profiled"]

#: Kernels that hold the device for a time in place of others (`torch.cuda._sleep`).
PLACEHOLDER = "placeholder"
#: What a GPU is called that the trace does not name.
UNNAMED = "a GPU"
_SPINS = "spin_kernel"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


class Profile(msgspec.Struct, frozen=True):
    """A step of one run; what is counted by step is the median of the steps that are whole.

    Attributes:
        step_from: How they are known; "profiled": from the trace, the profiler's time included.
        kernel_ms: Device time per step by family; copies are one.
        operator_ms: On a CPU: the operators' own time per step by family; of communication with
            other ranks the whole.
        operator_count: Of a run on a CPU: operators per step by family.
        stream_pct: The share of device time on each stream, largest first.
        busy_ms: Milliseconds per step in which the device did anything; None on a CPU.
        busy_pct: Their share of the steps' span in the trace, the profiler's time included.
        host_ops: Operators that the host calls in a step, those called by others included.
        power_w: The device's median power, where known.
    """

    source: str
    device: str
    on_gpu: bool
    step_ms: Estimate
    step_from: StepSource
    steps: int
    kernels: int
    kernel_ms: dict[str, float]
    kernel_count: dict[str, int]
    operator_ms: dict[str, float]
    operator_count: dict[str, int]
    stream_pct: tuple[float, ...]
    busy_ms: float | None
    busy_pct: float | None
    host_ops: int
    peak_bytes: float | None = None
    power_w: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def family_ms(self) -> dict[str, float]:
        """Time per step by family: of kernels, or of operators on a CPU."""
        return self.kernel_ms if self.on_gpu else self.operator_ms

    @property
    def unprofiled_busy_pct(self) -> float | None:
        """The device's busy share of the step without the profiler; None where neither is known.

        A profiler slows the host and leaves the device alone: where the host sets the pace, the
        share in the trace is that of the profiler's options.
        """
        if self.busy_ms is None or self.step_from == "profiled" or not self.step_ms.mid:
            return None
        return min(100.0 * self.busy_ms / self.step_ms.mid, 100.0)

    @property
    def family_count(self) -> dict[str, int]:
        """How many per step by family: kernels, or operators on a CPU."""
        return self.kernel_count if self.on_gpu else self.operator_count


class _Steps(NamedTuple):
    """Which events count, and in which step; the steps that are whole."""

    step: NDArray[np.int32]
    whole: NDArray[np.int64]


def profile_of(
    trace: KinetoTrace,
    *,
    graph: TraceGraph | None = None,
    step_ms: Estimate | None = None,
    step_from: StepSource = "measured",
    peak_bytes: float | None = None,
    power_w: float | None = None,
) -> Profile:
    """Reads a profile off a trace.

    Kernels belong to the step that launched them, wherever they ran. Where no step is marked the
    whole trace is one.
    """
    laid = lay_out(trace)
    graph = graph or build_graph(trace, laid=laid)
    marks = step_marks(trace)
    on_device = trace.is_category(*_ON_DEVICE)
    on_gpu = bool(on_device.any())
    notes: list[str] = []
    if not len(marks):
        notes.append("no step marks in the trace: the whole of it counts as one step")
    kernels = _device_steps(trace, laid, on_device, marks, notes)
    # The step in which each event of the host begins.
    operators = _Steps(np.zeros(len(trace), np.int32), np.arange(1))
    if len(marks):
        operators = _Steps(_step_at(trace, marks, trace.start_ns), np.arange(len(marks)))
    families = [PLACEHOLDER if _SPINS in n else classify_kernel(n) for n in trace.names]
    rows = np.flatnonzero(on_device & (kernels.step >= 0))
    kernel_ms, kernel_count = _medians(trace, families, kernels, rows, trace.duration_ns)
    operator_ms, operator_count = ({}, {}) if on_gpu else _on_cpu(trace, graph, laid, operators)
    if step_ms is None:
        periods = step_periods_ms(graph, graph.recorded)
        step_ms, step_from = Estimate.from_samples(periods, coverage=1.0), "profiled"
    # What only wraps operators does not count: a clone has no need of it.
    wraps = [code for code, n in enumerate(trace.names) if operator_family(n) == FRAMEWORK]
    is_call = trace.is_category("cpu_op") & ~np.isin(trace.name, wraps)
    calls = np.flatnonzero(is_call & (operators.step >= 0))
    launched = np.flatnonzero(trace.is_category("kernel") & (kernels.step >= 0))
    return Profile(
        trace.source, _device_name(trace, on_device), on_gpu, step_ms, step_from,
        len(kernels.whole if on_gpu else operators.whole), _median_count(launched, kernels),
        kernel_ms, kernel_count, operator_ms, operator_count, _stream_pct(trace, kernels),
        *_busy(trace, graph, on_device), _median_count(calls, operators),
        peak_bytes or None, power_w, tuple(notes),
    )  # fmt: skip


def _device_name(trace: KinetoTrace, on_device: NDArray[np.bool_]) -> str:
    """The GPU that work ran on: a trace names every one of its machine, used or not."""
    used = trace.device[on_device]
    if not len(used):
        return "CPU"
    number = int(np.bincount(np.maximum(used, 0)).argmax())
    own = trace.gpus[number] if number < len(trace.gpus) else ""
    return own or next((name for name in trace.gpus if name), UNNAMED)


def _device_steps(
    trace: KinetoTrace,
    laid: LaidOut,
    on_device: NDArray[np.bool_],
    marks: NDArray[np.int64],
    notes: list[str],
) -> _Steps:
    """The step of each device event, and the steps whose kernels are all in the trace."""
    step = np.full(len(trace), -1, np.int32)
    if not len(marks):
        step[on_device] = 0
        return _Steps(step, np.arange(1))
    asked = asked_at(trace, laid)
    if on_device.any() and not (asked[on_device] >= 0).any():
        # Without runtime calls it is not known what launched which; where it ran is used.
        asked = trace.start_ns
        notes.append("the trace has no launches: kernels count in the step in which they ran")
    step[on_device] = step_of_device_events(trace, asked, marks)[on_device]
    outside = on_device & (step < 0)
    if outside.any():
        share = 100.0 * trace.duration_ns[outside].sum() / trace.duration_ns[on_device].sum()
        notes.append(
            f"{np.count_nonzero(outside):,} device events ({share:.0f} % of device time) were "
            "launched outside the marked steps and are not counted"
        )
    lost = _lost_launches(trace, laid, marks)
    filled = np.bincount(step[step >= 0], minlength=len(marks)) > 0
    candidates = np.flatnonzero(filled) if filled.any() else np.arange(len(marks))
    # Some launches never show a kernel (empty graphs): as few as in the best step are no loss.
    whole = candidates[lost[candidates] == lost[candidates].min()]
    if len(whole) < len(marks):
        notes.append(f"{len(whole)} of {len(marks)} steps have all their kernels in the trace")
    return _Steps(step, whole)


def _lost_launches(
    trace: KinetoTrace, laid: LaidOut, marks: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many launches of each step have nothing on the device that answers them."""
    is_launch = np.asarray(["Launch" in n and "HostFunc" not in n for n in trace.names], bool)
    calls = (laid.event_class == EventClass.CALL) & (laid.correlation > 0)
    rows = np.flatnonzero(calls & is_launch[trace.name])
    answered = laid.correlation[laid.event_class == EventClass.DEVICE]
    rows = rows[~np.isin(laid.correlation[rows], answered)]
    step = _step_at(trace, marks, trace.start_ns[rows])
    return np.bincount(step[step >= 0], minlength=len(marks))


def _step_at(
    trace: KinetoTrace, marks: NDArray[np.int64], at_ns: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The marked step of each instant, as its place among the marks; -1 for none."""
    place = np.searchsorted(trace.start_ns[marks], at_ns, side="right") - 1
    inside = (place >= 0) & (at_ns < trace.end_ns[marks][place])
    return np.where(inside, place, -1).astype(np.int32)


def _medians(
    trace: KinetoTrace, families: list[str], steps: _Steps, rows: NDArray[np.int64],
    spent_ns: NDArray[np.int64],
) -> tuple[dict[str, float], dict[str, int]]:  # fmt: skip
    """The median over the whole steps of time and number of events, heaviest family first.

    `families` are those of the trace's names.
    """
    time_ns: Counter[tuple[str, int]] = Counter()
    number: Counter[tuple[str, int]] = Counter()
    codes, step = trace.name[rows].tolist(), steps.step[rows].tolist()
    for code, at, ns in zip(codes, step, spent_ns[rows].tolist()):
        time_ns[families[code], at] += ns
        number[families[code], at] += 1
    names = sorted({name for name, _ in number})
    whole = steps.whole.tolist()
    spent = {n: float(np.median([time_ns[n, s] for s in whole])) / 1e6 for n in names}
    count = {n: round(float(np.median([number[n, s] for s in whole]))) for n in names}
    order = sorted(names, key=lambda name: -spent[name])
    return {n: spent[n] for n in order if count[n]}, {n: count[n] for n in order if count[n]}


def _on_cpu(
    trace: KinetoTrace, graph: TraceGraph, laid: LaidOut, steps: _Steps
) -> tuple[dict[str, float], dict[str, int]]:
    collectives = [collective for collective, _ in laid.communications]
    rows = np.flatnonzero(trace.is_category("cpu_op"))
    rows = np.union1d(rows, np.asarray(collectives, np.int64))
    own_ns = _own_ns(trace, graph)
    own_ns[collectives] = trace.duration_ns[collectives]
    families = [operator_family(name) for name in trace.names]
    return _medians(trace, families, steps, rows[steps.step[rows] >= 0], own_ns)


def _own_ns(trace: KinetoTrace, graph: TraceGraph) -> NDArray[np.int64]:
    """Of each event the time in which its thread was in none that it called.

    The graph's host tasks are these pieces: of nested operators only the innermost is charged.
    """
    own = np.zeros(len(trace), np.int64)
    if graph.event is not None:
        pieces = graph.graph.is_kind(*HOST_KINDS) & (graph.event >= 0)
        spent = graph.recorded.end_ns - graph.recorded.start_ns
        np.add.at(own, graph.event[pieces], spent[pieces])
    return own


def _median_count(rows: NDArray[np.int64], steps: _Steps) -> int:
    count = np.bincount(steps.step[rows], minlength=int(steps.whole.max(initial=0)) + 1)
    return round(float(np.median(count[steps.whole])))


def _stream_pct(trace: KinetoTrace, steps: _Steps) -> tuple[float, ...]:
    """The share of each stream in the device time of the whole steps, largest first."""
    rows = np.flatnonzero(np.isin(steps.step, steps.whole))
    if not len(rows):
        return ()
    pairs = np.stack([trace.device[rows], trace.stream[rows]])
    which = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    spent = np.bincount(which, weights=trace.duration_ns[rows].astype(np.float64))
    whole = float(spent.sum())
    return tuple((100.0 * np.sort(spent)[::-1] / whole).tolist()) if whole else ()


def _busy(
    trace: KinetoTrace, graph: TraceGraph, on_device: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    """How long in a steady step a device did something, in ms and %; of several the mean."""
    begin, end, steps = steady_window(graph, graph.recorded)
    devices = np.unique(trace.device[on_device]).tolist()
    if end <= begin or not devices:
        return None, None
    busy_ns = []
    for device in devices:
        own = on_device & (trace.device == device)
        spans = union_of_spans(trace.start_ns[own], trace.end_ns[own])
        until = covered_until(*spans, np.asarray([begin, end]))
        busy_ns.append(int(until[1] - until[0]))
    mean_ns = float(np.mean(busy_ns))
    return mean_ns / steps / 1e6, 100.0 * mean_ns / (end - begin)
