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
- stream to stream, where the host used stream-wait calls: inferred from times, with a confidence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph
from gnomon.ingest.kineto import KinetoTrace
from gnomon.model.kernel_class import classify_kernel
from gnomon.systems.training.assemble import Assembly
from gnomon.systems.training.host import GAP, Piece, flatten, host_events
from gnomon.systems.training.streams import InferredWait, Span, infer_waits

__all__ = ["TrainingGraph", "build_graph"]

#: What becomes a task, and what only describes others: frames, marks, the profiler's own time.
_KNOWN_CATEGORIES = frozenset(
    {
        *("cpu_op", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset"),
        *("python_function", "user_annotation", "gpu_user_annotation", "overhead", "Trace"),
        *("cuda_sync", "cpu_instant_event", "fwdbwd", "ac2g", ""),
    }
)
#: A silent host gap shorter than this is the thread's own time, not a wait for another thread.
_SHORTEST_WAIT_NS = 20_000
#: How long after another's end a start may come and still count as waiting for it.
_REACTION_NS = 50_000
#: A launch call this much longer than the median one was blocked by a full queue.
_BLOCKED_LAUNCH = 10
_SHORTEST_BLOCK_NS = 100_000


class TrainingGraph(msgspec.Struct, frozen=True, eq=False):
    """A graph with its recorded timeline, and which step each task belongs to (-1: none).

    `inferred` lists the waits between streams that were told from times, with a confidence each.
    """

    graph: WorkGraph
    recorded: Timeline
    step: NDArray[np.int32]
    step_names: tuple[str, ...]
    notes: tuple[str, ...]
    gpu: str
    inferred: tuple[InferredWait, ...] = ()


def build_graph(trace: KinetoTrace) -> TrainingGraph:
    """Builds the graph of one rank's trace."""
    builder = _Builder(trace)
    return builder.build()


class _Builder:
    def __init__(self, trace: KinetoTrace) -> None:
        self.trace = trace
        self.out = Assembly()
        # Plain lists: looking one number up in an array costs more than the work done with it.
        self.start: list[int] = trace.start_ns.tolist()
        self.end: list[int] = trace.end_ns.tolist()
        self.correlation: list[int] = trace.correlation.tolist()
        self.name_code: list[int] = trace.name.tolist()
        self.gpu_events = np.flatnonzero(trace.is_category("kernel", "gpu_memcpy", "gpu_memset"))
        self.kernel_of = self._kernels_by_correlation()
        self.task_of_kernel: dict[int, int] = {}
        self.launch_task: dict[int, int] = {}  # kernel event -> host task that launched it
        self.inferred: list[InferredWait] = []
        self.clipped = self.skewed = 0

    def name_of(self, event: int) -> str:
        return self.trace.names[self.name_code[event]]

    def _kernels_by_correlation(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for event in self.gpu_events.tolist():
            correlation = self.correlation[event]
            if correlation > 0:
                found.setdefault(correlation, []).append(event)
        return found

    def build(self) -> TrainingGraph:
        threads = host_events(self.trace)
        if not threads and not len(self.gpu_events):
            raise InputError(
                "the trace has neither operators nor kernels", where=self.trace.source,
                hint="profile with CPU and CUDA activities",
            )  # fmt: skip
        self.streams = self._stream_order()
        # In order even where clocks jitter: a later kernel of a stream cannot make room earlier.
        self.stream_ends = {
            lane: np.maximum.accumulate([self.end[e] for e in events]).tolist()
            for lane, events in self.streams.items()
        }
        self.median_launch_ns = self._median_launch()
        names = self._thread_names(list(threads))
        for thread, events in threads.items():
            self._add_thread(names[thread], events)
        for lane, events in self.streams.items():
            self._add_stream(lane, events)
        self._tie_launches()
        self._tie_waits()
        self._tie_threads()
        self._tie_streams()
        return self._finish()

    # -- host --------------------------------------------------------------------------------

    def _median_launch(self) -> int:
        launches = [
            self.end[e] - self.start[e]
            for e in np.flatnonzero(self.trace.is_category("cuda_runtime", "cuda_driver")).tolist()
            if self.correlation[e] in self.kernel_of
        ]
        return int(np.median(launches)) if launches else 0

    def _thread_names(self, threads: list[int]) -> dict[int, str]:
        """Lanes by thread id; with the process in front where two processes share one."""
        keys = {thread: self.trace.threads[thread] for thread in threads}
        twice = Counter(tid for _, tid in keys.values())
        return {
            thread: f"process {pid} thread {tid}" if twice[tid] > 1 else f"thread {tid}"
            for thread, (pid, tid) in keys.items()
        }

    def _add_thread(self, lane: str, events: list[int]) -> None:
        runtime = self.trace.is_category("cuda_runtime", "cuda_driver")
        calls = {event for event in events if runtime[event]}
        pieces = flatten(self.start, self.end, events, 0, calls)
        acting = self._acting_pieces(pieces, calls)
        for number, piece in enumerate(pieces):
            if piece.owner == GAP:
                self.out.add(lane, piece.start_ns, piece.end_ns, "gap", "host gap")
            elif acting.get(piece.owner) == number:
                self._add_call(lane, piece)
            else:
                kind = "runtime" if piece.owner in calls else "host"
                name = self.name_of(piece.owner)
                self.out.add(lane, piece.start_ns, piece.end_ns, kind, name)

    def _acting_pieces(self, pieces: list[Piece], calls: set[int]) -> dict[int, int]:
        """The piece in which each call does its work: others may be nested inside the call.

        A launch acts in the piece in which its kernel starts, or in its last; a synchronise call
        in its longest.
        """
        acting: dict[int, int] = {}
        for number, piece in enumerate(pieces):
            call = piece.owner
            if call not in calls:
                continue
            if call not in acting:
                acting[call] = number
                continue
            kernels = self.kernel_of.get(self.correlation[call], [])
            before = pieces[acting[call]]
            if kernels:
                is_better = before.end_ns < min(self.start[k] for k in kernels)
            else:
                is_better = piece.end_ns - piece.start_ns > before.end_ns - before.start_ns
            if is_better:
                acting[call] = number
        return acting

    def _add_call(self, lane: str, piece: Piece) -> None:
        name = self.name_of(piece.owner)
        if "Synchronize" in name or name in ("cudaMemcpy", "hipMemcpy"):
            task = self.out.add(lane, piece.start_ns, piece.end_ns, "sync", name)
            self.out.syncs.append((task, name))
            return
        kernels = self.kernel_of.get(self.correlation[piece.owner], [])
        if not kernels:
            self.out.add(lane, piece.start_ns, piece.end_ns, "runtime", name)
            return
        # The kernel may start before the call returns: only what came before can hold it back.
        first = min(self.start[k] for k in kernels)
        if first < piece.start_ns:
            self.skewed += 1
            self.out.add(lane, piece.start_ns, piece.end_ns, "launch", name)
            return
        blocked_until = self._room_made(piece, kernels[0])
        if blocked_until is not None:
            at = blocked_until[1]
            self.out.add(lane, piece.start_ns, at, "blocked", name, sized=0)
            piece = Piece(at, piece.end_ns, piece.owner)
        cut = min(max(first, piece.start_ns), piece.end_ns)
        task = self.out.add(lane, piece.start_ns, cut, "launch", name)
        if blocked_until is not None:
            self.out.queue_waits.append((blocked_until[0], task))
        if cut < piece.end_ns:
            self.out.add(lane, cut, piece.end_ns, "runtime", name)
        for kernel in kernels:
            self.launch_task[kernel] = task

    def _room_made(self, piece: Piece, kernel: int) -> tuple[int, int] | None:
        """The kernel whose end let a blocked launch go on, and when."""
        length = piece.end_ns - piece.start_ns
        if length < max(_SHORTEST_BLOCK_NS, _BLOCKED_LAUNCH * self.median_launch_ns):
            return None
        stream = self._stream_of(kernel)
        events, ends = self.streams[stream], self.stream_ends[stream]
        at = bisect_right(ends, piece.end_ns) - 1
        if at < 0 or ends[at] <= piece.start_ns or self.start[kernel] <= ends[at]:
            return None
        return events[at], ends[at]

    # -- device ------------------------------------------------------------------------------

    def _stream_of(self, event: int) -> str:
        return f"gpu {self.trace.device[event]} stream {self.trace.stream[event]}"

    def _stream_order(self) -> dict[str, list[int]]:
        streams: dict[str, list[int]] = {}
        for event in self.gpu_events.tolist():
            streams.setdefault(self._stream_of(event), []).append(event)
        return streams

    def _add_stream(self, lane: str, events: list[int]) -> None:
        free = 0
        for i, event in enumerate(events):
            start, end = self.start[event], self.end[event]
            if i + 1 < len(events) and end > self.start[events[i + 1]]:
                # Overlap on one stream (dependent launch, clock jitter): a lane is serial.
                end = max(start, self.start[events[i + 1]])
                self.clipped += 1
            launch = self.launch_task.get(event)
            issued = self.out.end[launch] if launch is not None else 0
            ready = max(free, issued)
            latency = self.out.add(lane, ready, max(start, ready), "latency", "device gap")
            name = self.name_of(event)
            task = self.out.add(
                lane, start, end, classify_kernel(name), name, bytes=int(self.trace.bytes[event])
            )
            self.task_of_kernel[event] = task
            self.out.latency_of[task] = latency
            free = end

    # -- what ties lanes together ------------------------------------------------------------

    def _tie_launches(self) -> None:
        for kernel, launch in self.launch_task.items():
            task = self.task_of_kernel[kernel]
            self.out.edge(launch, self.out.latency_of[task], "launch")
        for kernel, target in self.out.queue_waits:
            self.out.edge(self.task_of_kernel[kernel], target, "queue")

    def _tie_waits(self) -> None:
        by_end = sorted((self.out.end[task], task) for task in self.task_of_kernel.values())
        issued = {lane: self._issue_order(events) for lane, events in self.streams.items()}
        for task, name in self.out.syncs:
            begin, end = self.out.start[task], self.out.end[task]
            held: dict[str, int] = {}
            for lane, (times, ends) in issued.items():
                at = bisect_right(times, begin) - 1
                if at >= 0 and ends[at] <= end:
                    held[lane] = ends[at]
            if not held or "Event" in name:
                self._tie_event_wait(task, by_end)
                continue
            if "Device" not in name:
                held = dict([max(held.items(), key=lambda item: item[1])])
            for lane in held:
                self.out.waits.append((task, lane))
            self.out.sized[task] = end - max(begin, *held.values())

    def _issue_order(self, events: list[int]) -> tuple[list[int], list[int]]:
        """When each prefix of a stream had been issued, and when its last kernel ended."""
        times, ends, latest = [], [], 0
        for event in events:
            launch = self.launch_task.get(event)
            latest = max(latest, self.out.end[launch] if launch is not None else 0)
            times.append(latest)
            ends.append(self.out.end[self.task_of_kernel[event]])
        return times, ends

    def _tie_event_wait(self, task: int, by_end: list[tuple[int, int]]) -> None:
        """An event wait: for the kernel that ended last inside the call, if any did."""
        begin, end = self.out.start[task], self.out.end[task]
        at = bisect_right(by_end, (end, len(self.out.end))) - 1
        if at >= 0 and by_end[at][0] > begin:
            self.out.edge(by_end[at][1], task, "event")
            self.out.sized[task] = end - by_end[at][0]

    def _tie_threads(self) -> None:
        working = [t for t in self.out.host_tasks() if self.out.kind[t] != "gap"]
        by_end = sorted((self.out.end[task], task) for task in working)
        for task in self.out.host_tasks():
            begin, end = self.out.start[task], self.out.end[task]
            if self.out.kind[task] != "gap" or end - begin < _SHORTEST_WAIT_NS:
                continue
            # The gap's own thread was silent: whatever ended inside it, ended on another. Not at
            # its very end: calls without length there could come to wait for one another.
            at = bisect_left(by_end, (end, -1)) - 1
            # The longer the silence, the longer it may take to come back from it.
            reaction = max(_REACTION_NS, (end - begin) // 5)
            if at >= 0 and by_end[at][0] > begin and by_end[at][0] >= end - reaction:
                self.out.edge(by_end[at][1], task, "thread")
                self.out.sized[task] = end - by_end[at][0]

    def _tie_streams(self) -> None:
        behind_waits = self._behind_stream_waits()
        if len(self.streams) < 2 or not behind_waits:
            return
        kernels = list(self.task_of_kernel.items())
        spans = []
        for event, task in kernels:
            launch = self.launch_task.get(event)
            spans.append(
                Span(
                    self.out.lane[task], self.out.start[task], self.out.end[task],
                    self.out.start[self.out.latency_of[task]],
                    self.out.start[launch] if launch is not None else -1,
                    event in behind_waits,
                )
            )  # fmt: skip
        for wait in infer_waits(spans):
            source, target = kernels[wait.source][1], kernels[wait.target][1]
            gap = self.out.latency_of[target]
            self.out.edge(source, gap, "stream")
            self.out.sized[gap] = self.out.start[target] - self.out.end[source]
            self.inferred.append(InferredWait(source, target, wait.confidence))

    def _behind_stream_waits(self) -> set[int]:
        """Kernels launched right after the host asked a stream to wait for an event."""
        behind: set[int] = set()
        waits = {code for code, name in enumerate(self.trace.names) if "StreamWaitEvent" in name}
        if not waits:
            return behind
        for events in host_events(self.trace).values():
            asked = False
            for event in events:
                if self.name_code[event] in waits:
                    asked = True
                elif kernels := self.kernel_of.get(self.correlation[event]):
                    if asked:
                        behind.update(kernels)
                    asked = False
        return behind

    # -- the end -----------------------------------------------------------------------------

    def _finish(self) -> TrainingGraph:
        graph = self.out.graph({"source": self.trace.source})
        recorded = Timeline(graph, np.asarray(self.out.start), np.asarray(self.out.end))
        step, names = self._steps()
        notes = []
        without = sum(1 for e in self.task_of_kernel if e not in self.launch_task)
        for count, what in (
            (without, "kernels were launched before the window; they keep their place"),
            (self.clipped, "kernels overlapped the next one of their stream and were cut"),
            (self.skewed, "kernels seem to start before their launch; clocks disagree"),
            *((count, what) for what, count in self.trace.dropped.items()),
            *self._unused(),
        ):
            if count:
                notes.append(f"{count:,} {what}")
        gpu = self.trace.gpus[0] if self.trace.gpus else ""
        if self.inferred:
            sure = sum(wait.confidence for wait in self.inferred) / len(self.inferred)
            notes.append(
                f"{len(self.inferred):,} waits between streams were inferred from times, "
                f"mean confidence {sure:.2f}"
            )
        return TrainingGraph(graph, recorded, step, names, tuple(notes), gpu, tuple(self.inferred))

    def _unused(self) -> list[tuple[int, str]]:
        """Events of kinds that the graph does not know, counted by category."""
        count = np.bincount(self.trace.category, minlength=len(self.trace.categories))
        return [
            (int(count[code]), f"events of category {name!r} are not part of the graph")
            for code, name in enumerate(self.trace.categories)
            if name not in _KNOWN_CATEGORIES
        ]

    def _steps(self) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """The profiler's step of each task: of a host task by its start, of a kernel by launch."""
        annotations = np.flatnonzero(self.trace.is_category("user_annotation")).tolist()
        marks = [e for e in annotations if self.name_of(e).startswith("ProfilerStep#")]
        step = np.full(len(self.out.start), -1, np.int32)
        if not marks:
            return step, ()
        begins = np.asarray([self.start[e] for e in marks])
        ends = np.asarray([self.end[e] for e in marks])
        starts = np.asarray(self.out.start)
        at = np.searchsorted(begins, starts, side="right") - 1
        inside = (at >= 0) & (starts < ends[at])
        step[inside] = at[inside]
        for kernel, task in self.task_of_kernel.items():
            launch = self.launch_task.get(kernel)
            own = step[launch] if launch is not None else -1
            step[task] = step[self.out.latency_of[task]] = own
        return step, tuple(self.name_of(e) for e in marks)
