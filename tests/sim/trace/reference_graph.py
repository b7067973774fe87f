"""The slow, obvious builder of training graphs: an event at a time, in plain lists.

The native builder is held against it. Outside its scope: waits between streams (recorded or
inferred), and what CPU backends communication.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import NamedTuple

import numpy as np

from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.kernel_class import classify_kernel

#: Owner of a piece in which the profiler saw nothing: time between operators.
GAP = -1
#: A silent host gap shorter than this is the thread's own time, not a wait for another thread.
_SHORTEST_WAIT_NS = 20_000
#: How long after another's end a start may come and still count as waiting for it.
_REACTION_NS = 50_000
#: A launch call this much longer than the median one was blocked by a full queue.
_BLOCKED_LAUNCH = 10
_SHORTEST_BLOCK_NS = 100_000
#: Calls that return when the copy is done.
_BLOCKING_COPIES = ("cudaMemcpy", "hipMemcpy", "hipMemcpyWithStream")
#: Host and device clocks may disagree by so much.
_CLOCK_JITTER_NS = 10_000


class Piece(NamedTuple):
    """A stretch of a thread inside one innermost event (or a gap)."""

    start_ns: int
    end_ns: int
    owner: int


class Task(NamedTuple):
    """`sized_ns` is what a replay charges: of a wait, only what is its own."""

    lane: str
    kind: str
    name: str
    start_ns: int
    end_ns: int
    sized_ns: int
    bytes: int


class ReferenceGraph(NamedTuple):
    tasks: list[Task]
    edges: list[tuple[int, int, str]]
    waits: list[tuple[int, str]]
    step: list[int]
    step_names: tuple[str, ...]
    notes: list[str]


def flatten(start: list[int], end: list[int], events: list[int], calls: set[int]) -> list[Piece]:
    """One thread's events, nested as they are, as pieces that touch and never overlap.

    Each piece belongs to the innermost event; time outside all events becomes gaps. A call that is
    all covered, or recorded without length, still gets an empty piece.
    """
    pieces: list[Piece] = []
    stack: list[int] = []
    seen: set[int] = set()
    cursor = 0

    def emit(until: int, owner: int) -> None:
        nonlocal cursor
        if until > cursor:
            pieces.append(Piece(cursor, until, owner))
            seen.add(owner)
            cursor = until

    def close() -> None:
        event = stack.pop()
        emit(end[event], event)
        if event in calls and event not in seen:
            pieces.append(Piece(cursor, cursor, event))

    for event in events:
        while stack and end[stack[-1]] <= start[event]:
            close()
        emit(start[event], stack[-1] if stack else GAP)
        stack.append(event)
    while stack:
        close()
    return pieces


def step_marks(trace: KinetoTrace) -> list[int]:
    """The events that mark the profiler's steps."""
    marks = np.flatnonzero(trace.is_category("user_annotation")).tolist()
    return [event for event in marks if trace.name_of(event).startswith("ProfilerStep#")]


def host_events(trace: KinetoTrace) -> dict[int, list[int]]:
    """Events of each host thread, in order. Python frames and annotations hold others' time.

    Marks of steps on a thread that works are among them: what lies in one and in no other event is
    a gap of its own.
    """
    works = np.flatnonzero(trace.is_category("cpu_op", "cuda_runtime", "cuda_driver")).tolist()
    working = {int(trace.thread[event]) for event in works}
    marks = [event for event in step_marks(trace) if int(trace.thread[event]) in working]
    threads: dict[int, list[int]] = {}
    for event in sorted(works + marks):
        threads.setdefault(int(trace.thread[event]), []).append(event)
    return threads


def reference_graph(trace: KinetoTrace) -> ReferenceGraph:
    """The tasks of one trace, lane after lane, and what ties them."""
    return _Builder(trace).build()


class _Builder:
    def __init__(self, trace: KinetoTrace) -> None:
        self.trace = trace
        self.start: list[int] = trace.start_ns.tolist()
        self.end: list[int] = trace.end_ns.tolist()
        self.correlation: list[int] = trace.correlation.tolist()
        self.calls = set(np.flatnonzero(trace.is_category("cuda_runtime", "cuda_driver")).tolist())
        self.first_call: dict[int, int] = {}
        for call in sorted(self.calls):
            self.first_call.setdefault(self.correlation[call], call)
        self.marks = set(step_marks(trace))
        self.tasks: list[Task] = []
        self.edges: list[tuple[int, int, str]] = []
        self.waits: list[tuple[int, str]] = []
        self.syncs: list[int] = []
        self.queue_waits: list[tuple[int, int]] = []  # kernel event that made room, host task
        self.copy_waits: list[tuple[int, int]] = []  # copy, host task that waits for it
        self.launch_task: dict[int, int] = {}  # kernel event -> host task that launched it
        self.task_of_kernel: dict[int, int] = {}
        self.streams: dict[str, list[int]] = {}
        self.kernels_of: dict[int, list[int]] = {}
        for event in np.flatnonzero(
            trace.is_category("kernel", "gpu_memcpy", "gpu_memset")
        ).tolist():
            self.streams.setdefault(self._stream_of(event), []).append(event)
            if self.correlation[event] > 0:
                self.kernels_of.setdefault(self.correlation[event], []).append(event)
        self.end_on_stream = {
            lane: self._serial_ends(events) for lane, events in self.streams.items()
        }
        self.serial_end = {
            event: end
            for lane, events in self.streams.items()
            for event, end in zip(events, self.end_on_stream[lane])
        }
        self.overlapping = self.before_launch = 0

    def build(self) -> ReferenceGraph:
        lengths = sorted(
            self.end[call] - self.start[call] for call in self.calls if self._kernels(call)
        )
        self.median_launch_ns = lengths[len(lengths) // 2] if lengths else 0
        threads = host_events(self.trace)
        for thread, name in self._thread_names(list(threads)).items():
            self._add_thread(name, threads[thread])
        self.host_tasks = range(len(self.tasks))
        for lane, events in self.streams.items():
            self._add_stream(lane, events)
        self._tie_launches()
        self._tie_synchronise_calls()
        self._tie_threads()
        step, names = self._steps()
        return ReferenceGraph(self.tasks, self.edges, self.waits, step, names, self._notes())

    # -- small words -------------------------------------------------------------------------

    def _stream_of(self, event: int) -> str:
        return f"gpu {self.trace.device[event]} stream {self.trace.stream[event]}"

    def _serial_ends(self, events: list[int]) -> list[int]:
        """Overlap on one stream (dependent launch, clock jitter) is cut: a lane is serial."""
        followed_at = [self.start[event] for event in events[1:]]
        return [
            *(min(self.end[event], at) for event, at in zip(events, followed_at)),
            *(self.end[event] for event in events[-1:]),
        ]

    def _kernels(self, call: int) -> list[int]:
        return self.kernels_of.get(self.correlation[call], [])

    def _first_call(self, kernel: int) -> int | None:
        """The earliest call with a kernel's correlation."""
        correlation = self.correlation[kernel]
        return self.first_call.get(correlation) if correlation > 0 else None

    def _thread_names(self, threads: list[int]) -> dict[int, str]:
        keys = {thread: self.trace.threads[thread] for thread in threads}
        twice = Counter(tid for _, tid in keys.values())
        return {
            thread: f"process {pid} thread {tid}" if twice[tid] > 1 else f"thread {tid}"
            for thread, (pid, tid) in keys.items()
        }

    def _add(
        self, lane: str, start: int, end: int, kind: str, name: str, sized: int | None = None,
        bytes: int = 0,
    ) -> int:  # fmt: skip
        sized = end - start if sized is None else sized
        self.tasks.append(Task(lane, kind, name, start, end, sized, bytes))
        return len(self.tasks) - 1

    def _charge(self, task: int, sized: int) -> None:
        self.tasks[task] = self.tasks[task]._replace(sized_ns=sized)

    # -- host --------------------------------------------------------------------------------

    def _add_thread(self, lane: str, events: list[int]) -> None:
        pieces = flatten(self.start, self.end, events, self.calls)
        acting = self._acting_pieces(pieces)
        for number, piece in enumerate(pieces):
            if piece.owner == GAP or piece.owner in self.marks:
                self._add(lane, piece.start_ns, piece.end_ns, "gap", "host gap")
            elif acting.get(piece.owner) == number:
                self._add_call(lane, piece)
            else:
                kind = "runtime" if piece.owner in self.calls else "host"
                name = self.trace.name_of(piece.owner)
                self._add(lane, piece.start_ns, piece.end_ns, kind, name)

    def _acting_pieces(self, pieces: list[Piece]) -> dict[int, int]:
        """The piece in which each call does its work: others may be nested inside the call.

        A launch acts in the piece in which its kernel starts, or in its last; others in their
        longest.
        """
        acting: dict[int, int] = {}
        for number, piece in enumerate(pieces):
            call = piece.owner
            if call not in self.calls:
                continue
            if call not in acting:
                acting[call] = number
                continue
            before = pieces[acting[call]]
            if kernels := self._kernels(call):
                is_better = before.end_ns < min(self.start[k] for k in kernels)
            else:
                is_better = piece.end_ns - piece.start_ns > before.end_ns - before.start_ns
            if is_better:
                acting[call] = number
        return acting

    def _add_call(self, lane: str, piece: Piece) -> None:
        name = self.trace.name_of(piece.owner)
        if "Synchronize" in name:
            self.syncs.append(self._add(lane, piece.start_ns, piece.end_ns, "sync", name))
            return
        kernels = self._kernels(piece.owner)
        if not kernels:
            self._add(lane, piece.start_ns, piece.end_ns, "runtime", name)
            return
        # The kernel may start before the call returns: only what came before can hold it back.
        first = min(self.start[k] for k in kernels)
        if first < piece.start_ns:
            self.before_launch += 1
            self._add_launch_after_start(lane, piece, kernels)
            return
        if (copied := self._blocking_copy(piece, kernels)) is not None:
            self._add_blocking_copy(lane, piece, kernels, copied)
            return
        room = self._room_made(piece, kernels[0])
        begin = piece.start_ns
        if room is not None:
            begin = room[1]
            self._add(lane, piece.start_ns, begin, "blocked", name, sized=0)
        cut = min(max(first, begin), piece.end_ns)
        task = self._add(lane, begin, cut, "launch", name)
        if room is not None:
            self.queue_waits.append((room[0], task))
        if cut < piece.end_ns:
            self._add(lane, cut, piece.end_ns, "runtime", name)
        for kernel in kernels:
            self.launch_task[kernel] = task

    def _add_launch_after_start(self, lane: str, piece: Piece, kernels: list[int]) -> None:
        """A kernel that seems to start before its launch.

        By a little it is the clocks: it was launched as the call began, and is a little shorter.
        """
        name, begin = self.trace.name_of(piece.owner), piece.start_ns
        if begin - min(self.start[kernel] for kernel in kernels) > _CLOCK_JITTER_NS or any(
            self.serial_end[kernel] < begin for kernel in kernels
        ):
            self._add(lane, begin, piece.end_ns, "launch", name)
            return
        task = self._add(lane, begin, begin, "launch", name)
        if piece.end_ns > begin:
            self._add(lane, begin, piece.end_ns, "runtime", name)
        for kernel in kernels:
            self.launch_task[kernel] = task

    def _blocking_copy(self, piece: Piece, kernels: list[int]) -> int | None:
        """The copy that a call waited for: it ends inside the call.

        Calls that always wait are known by name; of others, one that is longer than most.
        """
        last = max(kernels, key=lambda kernel: self.end[kernel])
        if self.end[last] > piece.end_ns:
            return None
        if self.trace.name_of(piece.owner) in _BLOCKING_COPIES:
            return last
        name = self.trace.name_of(last)
        is_copy = name.startswith(("Memcpy", "Copy")) and ("Pageable" in name or "Host" in name)
        length = piece.end_ns - piece.start_ns
        is_long = length >= max(_SHORTEST_WAIT_NS, 3 * self.median_launch_ns)
        return last if is_copy and is_long else None

    def _add_blocking_copy(self, lane: str, piece: Piece, kernels: list[int], copied: int) -> None:
        """A short launch, then a wait for the copy."""
        name = self.trace.name_of(piece.owner)
        first = min(self.start[kernel] for kernel in kernels)
        cut = min(first, piece.start_ns + self.median_launch_ns)
        task = self._add(lane, piece.start_ns, cut, "launch", name)
        for kernel in kernels:
            self.launch_task[kernel] = task
        self.copy_waits.append((copied, self._add(lane, cut, piece.end_ns, "sync", name)))

    def _room_made(self, piece: Piece, kernel: int) -> tuple[int, int] | None:
        """The kernel whose end let a blocked launch go on, and when."""
        length = piece.end_ns - piece.start_ns
        if length < max(_SHORTEST_BLOCK_NS, _BLOCKED_LAUNCH * self.median_launch_ns):
            return None
        stream = self._stream_of(kernel)
        events, ends = self.streams[stream], self.end_on_stream[stream]
        # Before the call's very end: what follows the call must not come before what it waits for.
        at = bisect_left(ends, piece.end_ns) - 1
        if at < 0 or ends[at] <= piece.start_ns or self.start[kernel] <= ends[at]:
            return None
        return events[at], ends[at]

    # -- device ------------------------------------------------------------------------------

    def _add_stream(self, lane: str, events: list[int]) -> None:
        free = 0
        for event, end in zip(events, self.end_on_stream[lane]):
            self.overlapping += end < self.end[event]
            launch = self.launch_task.get(event)
            ready = max(free, self.tasks[launch].end_ns if launch is not None else 0)
            start = max(self.start[event], ready)
            self._add(lane, ready, start, "latency", "device gap")
            name = self.trace.name_of(event)
            self.task_of_kernel[event] = self._add(
                lane, start, end, classify_kernel(name), name, bytes=int(self.trace.bytes[event])
            )
            free = end

    # -- what ties lanes together ------------------------------------------------------------

    def _tie_launches(self) -> None:
        for kernel, launch in self.launch_task.items():
            self.edges.append((launch, self.task_of_kernel[kernel] - 1, "launch"))
        for kernel, target in self.queue_waits:
            self.edges.append((self.task_of_kernel[kernel], target, "queue"))
        for copy, wait in self.copy_waits:
            if self.launch_task[copy] != wait - 1:  # another call claims to have launched it
                continue
            copied = self.tasks[self.task_of_kernel[copy]]
            self.edges.append((self.task_of_kernel[copy], wait, "event"))
            begin, end = self.tasks[wait].start_ns, self.tasks[wait].end_ns
            self._charge(wait, end - max(begin, copied.end_ns))

    def _tie_synchronise_calls(self) -> None:
        issued = {lane: self._issue_order(events) for lane, events in self.streams.items()}
        launched_onto = {
            (self.tasks[launch].lane, self._stream_of(kernel))
            for kernel, launch in self.launch_task.items()
        }
        for task in self.syncs:
            thread, _, name, begin, end, *_ = self.tasks[task]
            of_device = "Device" in name or "Ctx" in name
            # A thread that launched onto some streams waits for one of those.
            own = {lane for on, lane in launched_onto if on == thread}
            held: dict[str, int] = {}
            for lane, (times, ends) in issued.items():
                if not of_device and own and lane not in own:
                    continue
                at = bisect_right(times, begin) - 1
                if at >= 0 and ends[at] <= end:
                    held[lane] = ends[at]
            if not held or "Event" in name:
                self._tie_event_wait(task, issued)
                continue
            if not of_device:
                held = dict([max(held.items(), key=lambda item: item[1])])
            self.waits += [(task, lane) for lane in held]
            self._charge(task, end - max(begin, *held.values()))

    def _issue_order(self, events: list[int]) -> tuple[list[int], list[int]]:
        """When each prefix of a stream had been issued, and when its last kernel ended."""
        times, ends, latest = [], [], 0
        for event in events:
            launch = self.launch_task.get(event)
            latest = max(latest, self.tasks[launch].end_ns if launch is not None else 0)
            times.append(latest)
            ends.append(self.tasks[self.task_of_kernel[event]].end_ns)
        return times, ends

    def _tie_event_wait(self, task: int, issued: dict[str, tuple[list[int], list[int]]]) -> None:
        """An event wait: for the kernel that ended last inside the call, if any did.

        Of those that had been asked for: what another thread asked for meanwhile is none of the
        call's business.
        """
        begin, end = self.tasks[task].start_ns, self.tasks[task].end_ns
        inside = [
            (ended, self.task_of_kernel[kernel])
            for lane, (times, ends) in issued.items()
            for kernel, asked, ended in zip(self.streams[lane], times, ends)
            if asked <= begin < ended <= end
        ]
        if inside:
            ended, kernel = max(inside)
            self.edges.append((kernel, task, "event"))
            self._charge(task, end - ended)

    def _tie_threads(self) -> None:
        # A blocked call does nothing that another thread could wait for.
        idle = ("gap", "blocked")
        working = [task for task in self.host_tasks if self.tasks[task].kind not in idle]
        by_end = sorted((self.tasks[task].end_ns, task) for task in working)
        for task in self.host_tasks:
            begin, end = self.tasks[task].start_ns, self.tasks[task].end_ns
            if self.tasks[task].kind != "gap" or end - begin < _SHORTEST_WAIT_NS:
                continue
            # The gap's own thread was silent: whatever ended inside it, ended on another. Not at
            # its very end: calls without length there could come to wait for one another.
            at = bisect_left(by_end, (end, -1)) - 1
            # The longer the silence, the longer it may take to come back from it.
            reaction = max(_REACTION_NS, (end - begin) // 5)
            if at >= 0 and by_end[at][0] > begin and by_end[at][0] >= end - reaction:
                self.edges.append((by_end[at][1], task, "thread"))
                self._charge(task, end - by_end[at][0])

    # -- the rest ----------------------------------------------------------------------------

    def _steps(self) -> tuple[list[int], tuple[str, ...]]:
        """The profiler's step of each task: of a host task by its start, of a kernel by launch."""
        marks = step_marks(self.trace)
        begins = [self.start[event] for event in marks]

        def step_at(instant: int) -> int:
            at = bisect_right(begins, instant) - 1
            return at if at >= 0 and instant < self.end[marks[at]] else -1

        step = [-1] * len(self.tasks)
        for task in self.host_tasks:
            step[task] = step_at(self.tasks[task].start_ns)
        for kernel, task in self.task_of_kernel.items():
            call = self._first_call(kernel)
            step[task] = step[task - 1] = -1 if call is None else step_at(self.start[call])
        return step, tuple(self.trace.name_of(event) for event in marks)

    def _notes(self) -> list[str]:
        without = sum(self._first_call(kernel) is None for kernel in self.task_of_kernel)
        counted = (
            (without, "kernels were launched before the window; they keep their place"),
            (self.overlapping, "kernels overlapped the next one of their stream and were cut"),
            (self.before_launch, "kernels seem to start before their launch; clocks disagree"),
        )
        return [f"{count:,} {what}" for count, what in counted if count]
