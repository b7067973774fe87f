"""An execution trace beside a profiler trace of the same job: when, where and how long.

An execution trace has no times. A profiler that watched the same code wrote down the same calls in
the same order, thread by thread, so the two are laid side by side, step by step; where one saw a
call that the other did not, the rest still finds its partner. From the pairs come, for every
chosen node: the time of the kernels it launched and their stream, the host's time until the next
call with the profiler's own time taken out, and whether the host waited for the device.

Kernels that no chosen node launched are not forgotten: they come back as `Uncovered`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.nesting import enclosing
from gnomon.ingest.execution.trace import ExecutionTrace
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.profiler_cost import default_profiler_cost
from gnomon.sim.trace.events import step_marks
from gnomon.sim.trace.graph import TraceGraph, build_graph
from gnomon.sim.trace.unprofiled import without_profiler
from gnomon.systems.aibench.builder.pairing import pair_up

_USER_SCOPE = 7
_STEP = "ProfilerStep#"
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
#: Host time that passes in waiting for others; the benchmark waits by itself.
_WAITS = ("sync", "blocked")
#: Waits that were inferred from times count from this confidence on.
_LIKELY = 0.5
#: Of a trace without marks so many repeats are used.
_MOST_WINDOWS = 16
#: A process that records an execution trace calls a second observer at every operator, also while
#: it is profiled: fitted to five recordings whose steps were measured without either.
_OBSERVER = 1.25


class Timing(msgspec.Struct):
    """What is known of one chosen node, mean per step."""

    device_ns: float = 0.0
    streams: tuple[int, ...] = ()
    host_ns: float = 0.0
    start_ns: int | None = None
    end_ns: int | None = None
    blocks: bool = False
    kernels: tuple[str, ...] = ()


class Uncovered(msgspec.Struct, frozen=True):
    """Kernels of one launch that none of the chosen made.

    Attributes:
        beside: A chosen node of the same thread, None where it has none.
        before: The chosen node that comes next on that thread, None at the end.
        name: The longest of the kernels.
    """

    step: int
    beside: int | None
    before: int | None
    name: str
    device_ns: float
    stream: int


class Alignment(msgspec.Struct, frozen=True):
    """Timings by node, what was left over, and how well the two traces fit.

    Attributes:
        timings: By place of the chosen node.
        uncovered: Kernels of no chosen node.
        matched: Share of the execution trace's calls that have a partner.
        known: Share of the profiler's calls, on the same threads, that have one.
        on_gpu: Whether there is a device.
        notes: What the reader should know.
        slowdown: How many times as long the host's work took under the profiler.
        waits: By node, nodes whose kernels its own were seen to wait for on another stream.
    """

    timings: dict[int, Timing]
    uncovered: tuple[Uncovered, ...]
    matched: float
    known: float
    on_gpu: bool
    notes: tuple[str, ...]
    slowdown: float = 1.0
    waits: dict[int, set[int]] = {}

    @property
    def spans(self) -> dict[int, tuple[int, int]]:
        """Start and end by node, where they are known."""
        return {
            at: (timing.start_ns, timing.end_ns) for at, timing in self.timings.items()
            if timing.start_ns is not None and timing.end_ns is not None
        }  # fmt: skip


def steps_of(trace: ExecutionTrace) -> list[int]:
    """The step of each node: the profiler's marks where the trace has them, else one step."""
    marks = [at for at, node in enumerate(trace.nodes) if node.name.startswith(_STEP)]
    if len(marks) < 2:
        return [0] * len(trace.nodes)
    return [max(bisect_right(marks, at) - 1, 0) for at in range(len(trace.nodes))]


def align(trace: ExecutionTrace, kineto: KinetoTrace, chosen: Sequence[int]) -> Alignment:
    """Lays two traces of one job side by side."""
    side = _ProfilerSide(kineto, _called(trace))
    return _Timer(trace, side, chosen, _pair(trace, side)).run()


#: By step of the trace and window of the profiler: nodes by event.
_Pairs = dict[tuple[int, int], dict[int, int]]
#: Calls of a thread: start, node, event.
_Begun = dict[int, list[tuple[int, int, int]]]


class _ProfilerSide:
    """The profiler's events as a forest, the windows of its steps, and who launched what."""

    def __init__(self, kineto: KinetoTrace, called: list[str]) -> None:
        self.kineto = kineto
        self.start, self.end = kineto.start_ns, kineto.end_ns
        is_operator = kineto.is_category("cpu_op")
        is_call = kineto.is_category(*_CALLS)
        self.parent = _parents(kineto, np.flatnonzero(is_operator | is_call), is_operator)
        self.operators = np.flatnonzero(is_operator)
        self.windows = _windows(kineto, self.operators, called)
        #: Where calls that nothing holds begin, by thread.
        self.tops: dict[int, list[int]] = defaultdict(list)
        for event in self.operators[np.argsort(self.start[self.operators])].tolist():
            if self.parent[event] < 0:
                self.tops[int(kineto.thread[event])].append(int(self.start[event]))
        self.device = np.flatnonzero(kineto.is_category(*_DEVICE))
        self.on_gpu = len(self.device) > 0
        self.calls: list[int] = np.flatnonzero(is_call).tolist()
        number = kineto.correlation
        by_correlation = {int(number[call]): call for call in self.calls if number[call] > 0}
        self.launched: dict[int, list[int]] = defaultdict(list)
        for event in self.device.tolist():
            if (call := by_correlation.get(int(number[event]))) is not None:
                self.launched[call].append(event)
        self.waits = {
            code for code, name in enumerate(kineto.names)
            if "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")
        }  # fmt: skip

    def window_of(self, event: int) -> int:
        """The step in which an event began, -1 for none."""
        at = bisect_right(self.windows, int(self.start[event])) - 1
        return at if at < len(self.windows) - 1 else -1


def _called(trace: ExecutionTrace) -> list[str]:
    """What the thread that began first called, in order."""
    steps = steps_of(trace)
    seen = [
        (steps[at], node)
        for at, node in enumerate(trace.nodes)
        if node.scope != _USER_SCOPE and not node.name.startswith("[")
    ]
    if not seen:
        return []
    first, begun = seen[0]
    return [n.name for step, n in seen if step == first and n.thread == begun.thread]


def _windows(kineto: KinetoTrace, operators: NDArray[np.int64], called: list[str]) -> list[int]:
    """Where steps begin, and where the last ends."""
    marks = step_marks(kineto)
    if len(marks):
        # Marks are repeated on the device's side: one per name, the earliest.
        first: dict[str, int] = {}
        last = 0
        for mark in marks.tolist():
            name = kineto.name_of(mark)
            first[name] = min(first.get(name, 2**62), int(kineto.start_ns[mark]))
            last = max(last, int(kineto.end_ns[mark]))
        return [*sorted(first.values()), last]
    if not len(operators):
        return [0, 0]
    begin, end = int(kineto.start_ns[operators].min()), int(kineto.end_ns[operators].max()) + 1
    begins = _repeats(kineto, operators, called) or [begin]
    return [*begins, end][: _MOST_WINDOWS + 1]


def _repeats(kineto: KinetoTrace, operators: NDArray[np.int64], called: list[str]) -> list[int]:
    """When a thread began to call just what the execution trace has, each time it did."""
    codes = {name: code for code, name in enumerate(kineto.names)}
    wanted = np.asarray([codes.get(name, -1) for name in called], np.int32).tobytes()
    found: list[int] = []
    for thread in np.unique(kineto.thread[operators]).tolist() if wanted else []:
        own = operators[kineto.thread[operators] == thread]
        own = own[np.lexsort((-kineto.end_ns[own], kineto.start_ns[own]))]
        seen = kineto.name[own].astype(np.int32).tobytes()
        at, begins = seen.find(wanted), list[int]()
        while at >= 0:
            if at % 4 == 0:  # between the bytes of a code there is nothing to find
                begins.append(int(kineto.start_ns[own[at // 4]]))
            at = seen.find(wanted, at + (len(wanted) if at % 4 == 0 else 1))
        found = max(found, begins, key=len)
    return found


def _parents(
    kineto: KinetoTrace, events: NDArray[np.int64], is_operator: NDArray[np.bool_]
) -> dict[int, int]:
    """The operator around each operator and runtime call, -1 for none."""
    around = enclosing(
        kineto.start_ns[events], kineto.end_ns[events], kineto.thread[events], is_operator[events]
    )
    return dict(zip(events.tolist(), np.where(around >= 0, events[around], -1).tolist()))


# -- who is who ------------------------------------------------------------------------------


def _pair(trace: ExecutionTrace, side: _ProfilerSide) -> _Pairs:
    """For each step of the trace and each window of the profiler: node by event."""
    steps = steps_of(trace)
    nodes: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, node in enumerate(trace.nodes):
        if node.scope != _USER_SCOPE and node.name and not node.name.startswith("["):
            nodes[steps[at], node.thread].append(at)
    kineto = side.kineto
    events: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in side.operators.tolist():
        window = side.window_of(event)
        if window >= 0:
            events[window, int(kineto.thread[event])].append(event)
    for own in events.values():
        own.sort(key=lambda e: (int(kineto.start_ns[e]), -int(kineto.end_ns[e])))
    windows = len(side.windows) - 1
    counted = sorted({step for step, _ in nodes})
    pairs: _Pairs = {}
    for step in counted:
        # As many steps on both sides are the same steps; else every window is a step like this.
        chosen = [step] if len(counted) == windows else list(range(windows))
        threads = [thread for number, thread in nodes if number == step]
        for window in chosen:
            partner = _threads(trace, kineto, nodes, events, step, window, threads)
            found: dict[int, int] = {}
            for thread, other in partner.items():
                own, seen = nodes[step, thread], events[window, other]
                names = [trace.nodes[at].name for at in own]
                for left, right in pair_up(names, [kineto.name_of(e) for e in seen]):
                    found[seen[right]] = own[left]
            pairs[step, window] = found
    return pairs


def _threads(
    trace: ExecutionTrace, kineto: KinetoTrace, nodes: dict[tuple[int, int], list[int]],
    events: dict[tuple[int, int], list[int]], step: int, window: int, threads: list[int],
) -> dict[int, int]:  # fmt: skip
    """The profiler's thread of each thread: the one that calls the same, most first."""
    counts = {t: Counter(trace.nodes[at].name for at in nodes[step, t]) for t in threads}
    others = {
        other: Counter(kineto.name_of(e) for e in events[window, other])
        for number, other in list(events)
        if number == window
    }
    ranked = sorted(
        ((sum((mine & theirs).values()), t, o)
         for t, mine in counts.items() for o, theirs in others.items()),
        reverse=True,
    )  # fmt: skip
    partner: dict[int, int] = {}
    for shared, thread, other in ranked:
        if shared and thread not in partner and other not in partner.values():
            partner[thread] = other
    return partner


# -- times -----------------------------------------------------------------------------------


class _Timer:
    def __init__(
        self, trace: ExecutionTrace, side: _ProfilerSide, chosen: Sequence[int],
        pairs: _Pairs,
    ) -> None:  # fmt: skip
        self.trace, self.side, self.pairs = trace, side, pairs
        self.notes: list[str] = []
        self.chosen = list(chosen)
        self.owner = _owners(trace, self.chosen)
        self.timings = {at: Timing() for at in self.chosen}
        self.uncovered: list[Uncovered] = []
        #: The node of each kernel, in the steps whose order is kept.
        self.made_by: dict[int, int] = {}

    def run(self) -> Alignment:
        streams: dict[int, Counter[int]] = defaultdict(Counter)
        names: dict[int, Counter[str]] = defaultdict(Counter)
        by_step: dict[int, int] = Counter(step for step, _ in self.pairs)
        built = build_graph(self.side.kineto)
        pace = _Pace(*_work_of_lanes(self.side.kineto, built))
        middle = {
            s: sorted(w for x, w in self.pairs if x == s)[n // 2] for s, n in by_step.items()
        }
        for (step, window), found in self.pairs.items():
            share = 1.0 / by_step[step]
            begun = self._begun(found)
            self._device(found, step, window, share, window == middle[step], streams, names, begun)
            self._host(found, window, share, pace, begun, window == middle[step])
        for at, timing in self.timings.items():
            timing.streams = tuple(stream for stream, _ in streams[at].most_common())
            timing.kernels = tuple(names[at])
        paired = {node for found in self.pairs.values() for node in found.values()}
        covered = sum(at in paired for at in self.chosen)
        # Profilers do not watch threads that a program starts by itself.
        watched = {self.trace.nodes[at].thread for at in paired}
        wanted = sum(self.trace.nodes[at].thread in watched for at in self.chosen)
        if wanted < len(self.chosen):
            self.notes.append(
                f"{len(self.chosen) - wanted} calls are on threads that the profiler did not "
                "watch: nothing is known of their times"
            )
        self._note_unlaunched()
        return Alignment(
            self.timings, tuple(self.uncovered), covered / max(wanted, 1), self._known(),
            self.side.on_gpu,
            tuple(self.notes), pace.slowdown, self._waits(built),
        )  # fmt: skip

    def _known(self) -> float:
        """Share of the profiler's calls in the steps used, on paired threads, with a partner."""
        side, partners, seen = self.side, 0, 0
        for (_, window), found in self.pairs.items():
            threads = {int(side.kineto.thread[event]) for event in found}
            partners += len(found)
            seen += sum(
                side.window_of(event) == window and int(side.kineto.thread[event]) in threads
                for event in side.operators.tolist()
            )
        return partners / max(seen, 1)

    def _note_unlaunched(self) -> None:
        """Kernels whose launch is not in the trace belong to no call."""
        side = self.side
        own = {kernel for kernels in side.launched.values() for kernel in kernels}
        lost = [kernel for kernel in side.device.tolist() if kernel not in own]
        if lost:
            took = side.kineto.duration_ns
            share = 100.0 * float(took[lost].sum()) / max(float(took[side.device].sum()), 1.0)
            self.notes.append(
                f"{len(lost)} kernels ({share:.0f} % of the trace's device time) have no launch "
                "in the trace, as those have that were launched before it began; they are not "
                "counted"
            )

    def _begun(self, found: dict[int, int]) -> _Begun:
        """The chosen by the profiler's thread: start, node, event; in order."""
        is_chosen = set(self.chosen)
        begun: _Begun = defaultdict(list)
        for event, node in found.items():
            if node in is_chosen:
                thread = int(self.side.kineto.thread[event])
                begun[thread].append((int(self.side.start[event]), node, event))
        for own in begun.values():
            own.sort()
        return begun

    def _device(
        self, found: dict[int, int], step: int, window: int, share: float, is_middle: bool,
        streams: dict[int, Counter[int]], names: dict[int, Counter[str]],
        begun: _Begun,
    ) -> None:  # fmt: skip
        side = self.side
        if not side.on_gpu:
            self._cpu(found, window, share)
            return
        for call, kernels in side.launched.items():
            if side.window_of(call) != window:
                continue
            node = self._who(call, found)
            if node is None and is_middle:
                self._nobody(call, kernels, step, begun)
            for kernel in kernels:
                took = float(side.kineto.duration_ns[kernel])
                if node is not None:
                    self.timings[node].device_ns += took * share
                    streams[node][int(side.kineto.stream[kernel])] += 1
                    names[node][side.kineto.name_of(kernel)] += 1
                    if is_middle:
                        self.made_by[kernel] = node

    def _waits(self, built: TraceGraph) -> dict[int, set[int]]:
        """Who was seen to wait for whom, of the calls whose kernels are known."""
        waits: dict[int, set[int]] = defaultdict(set)
        assert built.event is not None
        for wait in built.inferred:
            source = self.made_by.get(int(built.event[wait.source]))
            target = self.made_by.get(int(built.event[wait.target]))
            if source is not None and target is not None and wait.confidence >= _LIKELY:
                waits[target].add(source)
        return dict(waits)

    def _who(self, call: int, found: dict[int, int]) -> int | None:
        event = self.side.parent[call]
        while event >= 0:
            if event in found and (owner := self.owner[found[event]]) >= 0:
                return owner
            event = self.side.parent[event]
        return None

    def _nobody(
        self, call: int, kernels: list[int], step: int,
        begun: _Begun,
    ) -> None:  # fmt: skip
        """Notes the kernels of one launch that no chosen node made; a graph launch has many."""
        side = self.side
        own = begun.get(int(side.kineto.thread[call]), [])
        at = bisect_right(own, (int(side.start[call]), 2**62, 0))
        before = own[at][1] if at < len(own) else None
        neighbour = own[at - 1][1] if before is None and at else before
        by_stream: dict[int, list[int]] = defaultdict(list)
        for kernel in kernels:
            by_stream[int(side.kineto.stream[kernel])].append(kernel)
        for stream, together in by_stream.items():
            took = float(side.kineto.duration_ns[together].sum())
            name = side.kineto.name_of(
                max(together, key=lambda k: int(side.kineto.duration_ns[k]))
            )
            self.uncovered.append(Uncovered(step, neighbour, before, name, took, stream))

    def _cpu(self, found: dict[int, int], window: int, share: float) -> None:
        """Without a device, an operator's own time is what counts."""
        side = self.side
        for event, node in found.items():
            if node in self.timings:
                self.timings[node].device_ns += float(side.kineto.duration_ns[event]) * share

    def _host(
        self, found: dict[int, int], window: int, share: float, pace: _Pace,
        begun: _Begun, is_middle: bool,
    ) -> None:  # fmt: skip
        side = self.side
        begins, ends = side.windows[window], side.windows[window + 1]
        for thread, own in begun.items():
            last = max(int(side.end[own[-1][2]]), own[-1][0])
            if own[0][0] < (begins + ends) // 2:  # a thread that has a step from its beginning
                # has it until it begins the next one
                after = side.tops[thread]
                at = bisect_right(after, ends - 1)
                last = after[at] if at < len(after) else max(last, ends)
            # Where a device works, a call's own host time counts until the next begins; a CPU
            # works in the call itself, and what counts is the time after it.
            starts = [start for start, _, _ in own]
            begun_at = starts if side.on_gpu else [int(side.end[event]) for _, _, event in own]
            worked = pace.between(thread, begun_at, [*starts[1:], last])
            for (start, node, event), took in zip(own, worked):
                timing = self.timings[node]
                timing.host_ns += share * took
                if is_middle:
                    timing.start_ns, timing.end_ns = start, int(side.end[event])
        for call in side.calls if is_middle else []:
            is_wait = int(side.kineto.name[call]) in side.waits and side.window_of(call) == window
            if is_wait and (waiting := self._who(call, found)) is not None:
                self.timings[waiting].blocks = True


def _owners(trace: ExecutionTrace, chosen: Sequence[int]) -> list[int]:
    """The chosen node at or above each node, -1 for none; parents come before their children."""
    owner = [-1] * len(trace.nodes)
    is_chosen = set(chosen)
    for at, parent in enumerate(trace.parent_at):
        if at in is_chosen:
            owner[at] = at
        elif parent >= 0:
            owner[at] = owner[parent] if parent < at else -1
    return owner


class _Pace:
    """How much a host thread works, without profiler and waits, between two recorded instants."""

    def __init__(
        self, lanes: dict[int, tuple[NDArray[Any], NDArray[Any]]], profiled_ns: float
    ) -> None:
        self._lanes = lanes
        alone_ns = sum(float(work[-1]) for _, work in lanes.values() if len(work))
        self.slowdown = max(profiled_ns / alone_ns, 1.0) if alone_ns else 1.0

    def between(self, thread: int, from_ns: list[int], until_ns: list[int]) -> list[float]:
        times, work = self._lanes[thread]
        spent = np.interp(until_ns, times, work) - np.interp(from_ns, times, work)
        return [max(ns, 0.0) for ns in spent.tolist()]


def _work_of_lanes(
    kineto: KinetoTrace, built: TraceGraph
) -> tuple[dict[int, tuple[NDArray[Any], NDArray[Any]]], float]:
    """By thread: instants on the recorded clock, and the work done until each.

    Beside it the same work of all of them as it was recorded, with the profiler's part in it.
    """
    cost = default_profiler_cost()
    # The execution trace's observer watches every call too.
    more = {name: getattr(cost, name) * _OBSERVER for name in ("operator", "launch", "call")}
    graph = without_profiler(kineto, built, msgspec.structs.replace(cost, **more))
    duration = np.where(graph.is_kind(*_WAITS), 0, graph.duration_ns)
    recorded = np.where(graph.is_kind(*_WAITS), 0, built.graph.duration_ns)
    profiled_ns = 0.0
    lanes: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
    assert built.event is not None
    for lane in np.unique(graph.lane).tolist():
        tasks = np.flatnonzero(graph.lane == lane)
        events = built.event[tasks]
        events = events[events >= 0]
        if not len(events) or not np.isin(
            kineto.category[events[0]],
            [i for i, c in enumerate(kineto.categories) if c in ("cpu_op", *_CALLS)],
        ):
            continue
        profiled_ns += float(recorded[tasks].sum())
        tasks = tasks[np.argsort(built.recorded.start_ns[tasks], kind="stable")]
        start, end = built.recorded.start_ns[tasks], built.recorded.end_ns[tasks]
        done = np.concatenate(([0], np.cumsum(duration[tasks])))
        times = np.column_stack((start, end)).ravel()
        work = np.column_stack((done[:-1], done[1:])).ravel()
        keep = np.concatenate(([True], np.diff(np.maximum.accumulate(times)) >= 0))
        thread = int(kineto.thread[events[0]])
        lanes[thread] = (np.maximum.accumulate(times)[keep], work[keep])
    return lanes, profiled_ns
