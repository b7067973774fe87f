"""Order: which call waits for which thread or stream, and when a register is free again.

Threads run side by side, as they did. One waits for another where it reads what the other made,
or overwrites what the other still reads, and where it was seen to wait: without times, at every
change of threads. Streams wait for one another only where data requires it: for the call that made
the data, or for a later one where the recording shows that it was the later one. Every wait is
written once: what is implied by an earlier one is left out.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gnomon.systems.aibench.program import Call, Signal

#: A thread that was silent for longer than this before a call had waited.
_SILENT_NS = 30_000
#: A stream, and a thread that gives it work.
_Queue = tuple[int, int]
_Lane = TypeVar("_Lane", int, _Queue)


class _Clocks:
    """How far each host thread knows the others to be."""

    def __init__(self) -> None:
        self.known: dict[int, dict[int, int]] = defaultdict(dict)
        self.at_end: dict[int, dict[int, int]] = {}

    def is_known(self, lane: int, other: int, call: int) -> bool:
        return self.known[lane].get(other, -1) >= call

    def learn(self, lane: int, other: int, call: int) -> None:
        _merge(self.known[lane], self.at_end.get(call, {}))
        _merge(self.known[lane], {other: call})

    def end(self, lane: int, call: int) -> None:
        self.at_end[call] = dict(self.known[lane])
        self.known[lane][lane] = call


class _Kernels:
    """What is over on the device when the kernels of a call begin: by queue, up to which call.

    A queue is what one thread gives to one stream. Only its order is certain: between threads that
    give to the same stream it is as certain as they know of one another.
    """

    def __init__(self, hosts: _Clocks) -> None:
        self._hosts = hosts
        self._queues: dict[_Queue, list[int]] = defaultdict(list)
        self._at_end: dict[int, dict[_Queue, int]] = {}

    def known(self, stream: int, lane: int) -> dict[_Queue, int]:
        """What is over when this thread gives the stream something now."""
        known: dict[_Queue, int] = {}
        for queue, calls in self._queues.items():
            given = bisect_right(calls, self._hosts.known[lane].get(queue[1], -1))
            if queue[0] == stream and given:
                self.learn(known, queue, calls[given - 1])
        return known

    def learn(self, known: dict[_Queue, int], queue: _Queue, call: int) -> None:
        """Adds what is over when a call's kernels are."""
        _merge(known, self._at_end.get(call, {}))
        _merge(known, {queue: call})

    def is_after(self, call: int, own: _Queue, queue: _Queue, other: int) -> bool:
        """Whether a call's kernels are over only when another call's are, too."""
        return own == queue or self._at_end.get(call, {}).get(queue, -1) >= other

    def end(self, queue: _Queue, call: int, known: dict[_Queue, int]) -> None:
        self._queues[queue].append(call)
        self._at_end[call] = known


class _Users(Generic[_Lane]):
    """The last who wrote some memory, and who read it since, by lane."""

    def __init__(self) -> None:
        self.writer: dict[int, tuple[_Lane, int]] = {}
        self.readers: dict[int, dict[_Lane, int]] = defaultdict(dict)

    def before(self, call: Call, lane: _Lane) -> Iterator[tuple[_Lane, int]]:
        """Calls on other lanes that have to be over: lane and place."""
        for memory in call.reads | call.writes:
            if memory in self.writer and self.writer[memory][0] != lane:
                yield self.writer[memory]
            if memory in call.writes:
                for other, at in self.readers[memory].items():
                    if other != lane:
                        yield other, at

    def note(self, call: Call, lane: _Lane, at: int) -> None:
        for memory in call.reads:
            self.readers[memory][lane] = at
        for memory in call.writes:
            self.writer[memory] = lane, at
            self.readers[memory] = {lane: at}


def _merge(known: dict[_Lane, int], news: Mapping[_Lane, int]) -> None:
    for who, upto in news.items():
        known[who] = max(known.get(who, -1), upto)


def order(
    calls: list[Call],
    times: dict[int, tuple[int, int]],
    seen: Mapping[int, Collection[int]] | None = None,
) -> tuple[list[list[Call | Signal]], int, int]:
    """One step as threads of calls and signals; also how many signals and events it has.

    Args:
        calls: In the order in which they started.
        times: Start and end of a call by its node, where they are known.
        seen: By node, nodes on other streams whose kernels it was seen to wait for.
    """
    place_of = {call.at: place for place, call in enumerate(calls)}
    threads = sorted({call.thread for call in calls})
    lane_of = {thread: lane for lane, thread in enumerate(threads)}
    before: dict[int, list[Signal]] = defaultdict(list)
    after: dict[int, list[Signal]] = defaultdict(list)
    signals = events = 0
    hosts = _Clocks()
    kernels = _Kernels(hosts)
    host_users: _Users[int] = _Users()
    queue_users: _Users[_Queue] = _Users()
    queues = [(call.stream, lane_of[call.thread]) for call in calls]
    last_of: dict[int, int] = {}
    readers = _other_readers(calls, lane_of)
    for at, call in enumerate(calls):
        lane = lane_of[call.thread]
        needs = set(host_users.before(call, lane)) | readers[at]
        needs |= set(_seen_to_wait(calls, at, lane, lane_of, last_of, times))
        for other, source in sorted(needs, key=lambda need: -need[1]):
            if not hosts.is_known(lane, other, source):
                hosts.learn(lane, other, source)
                after[source].append(Signal("post", signals))
                before[at].append(Signal("need", signals))
                signals += 1
        # What was seen to launch nothing needs no stream; of the others nothing is known.
        if call.device_ns or call.at not in times or call.role == "wait":
            known = kernels.known(call.stream, lane)
            waits = [place_of[node] for node in (seen or {}).get(call.at, ()) if node in place_of]
            for queue, source in sorted(
                queue_users.before(call, queues[at]), key=lambda need: -need[1]
            ):
                later = [
                    place
                    for place in waits
                    if place > source
                    and hosts.is_known(lane, queues[place][1], place)
                    and kernels.is_after(place, queues[place], queue, source)
                ]
                last = max(later, default=source)
                if known.get(queues[last], -1) < last:
                    kernels.learn(known, queues[last], last)
                    # The event is recorded before other threads may go on to wait for it.
                    after[last].insert(0, Signal("mark", events))
                    before[at].append(Signal("hold", events))
                    events += 1
            queue_users.note(call, queues[at], at)
            kernels.end(queues[at], at, known)
        host_users.note(call, lane, at)
        hosts.end(lane, at)
        last_of[lane] = at
    rows: list[list[Call | Signal]] = [[] for _ in threads]
    for at, call in enumerate(calls):
        rows[lane_of[call.thread]] += [*before[at], call, *after[at]]
    return rows, signals, events


def _other_readers(calls: list[Call], lane_of: dict[int, int]) -> dict[int, set[tuple[int, int]]]:
    """Who else read a register on another thread before its last reader frees it."""
    by_lane: dict[int, dict[int, int]] = defaultdict(dict)
    for at, call in enumerate(calls):
        for register in _read(call):
            by_lane[register][lane_of[call.thread]] = at
    needs: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for lanes in by_lane.values():
        last = max(lanes.values())
        needs[last] |= {(lane, at) for lane, at in lanes.items() if at != last}
    return needs


def _seen_to_wait(
    calls: list[Call], at: int, lane: int, lane_of: dict[int, int], last_of: dict[int, int],
    times: dict[int, tuple[int, int]],
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Calls on other threads that were over when this one began, where its thread was silent."""
    mine = times.get(calls[at].at)
    own = last_of.get(lane)
    if at and mine is None:
        if calls[at - 1].thread != calls[at].thread:
            yield lane_of[calls[at - 1].thread], at - 1
        return
    if mine is None:
        return
    own_end = times.get(calls[own].at, (0, 0))[1] if own is not None else None
    if own_end is not None and mine[0] - own_end < _SILENT_NS:
        return
    for other, last in last_of.items():
        if other == lane:
            continue
        # The last one begun may still run: then the one before it was over.
        for source in range(last, max(last - 8, -1), -1):
            if lane_of[calls[source].thread] != other:
                continue
            span = times.get(calls[source].at)
            if span is None or span[1] <= mine[0]:
                yield other, source
                break


def number_registers(calls: list[Call]) -> None:
    """Drops unused results, sets when registers are free, and renumbers them.

    A thread uses the numbers again that it freed itself: no other may still mean the old one.
    """
    last: dict[int, int] = {}
    for at, call in enumerate(calls):
        for register in _read(call):
            last[register] = at
    ends: dict[int, list[int]] = defaultdict(list)
    for register, at in last.items():
        ends[at].append(register)
    numbers: dict[int, int] = {}
    free: dict[int, list[int]] = defaultdict(list)
    fresh = itertools.count()
    for at, call in enumerate(calls):
        call.args = [_renamed(arg, numbers) for arg in call.args]
        call.kwargs = {name: _renamed(arg, numbers) for name, arg in call.kwargs.items()}
        call.frees = sorted(numbers.pop(register) for register in ends[at])
        own = free[call.thread]
        used = [register in last for register in registers_in(call.outs)]
        for register in (r for r in registers_in(call.outs) if r in last):
            numbers[register] = own.pop() if own else next(fresh)
        call.outs = _kept(call.outs, numbers)
        call.metas = [meta for meta, is_used in zip(call.metas, used) if is_used]
        own += call.frees
        own.sort(reverse=True)


def registers_in(outs: Any) -> list[int]:
    """Registers of results, in order."""
    if isinstance(outs, list):
        return [register for out in outs for register in registers_in(out)]
    return [] if outs is None else [outs]


def _kept(outs: Any, numbers: dict[int, int]) -> Any:
    """Results with new numbers; None where all are unused."""
    if isinstance(outs, list):
        kept = [_kept(out, numbers) for out in outs]
        return kept if any(part is not None for part in kept) else None
    return None if outs is None else numbers.get(outs)


def _read(call: Call) -> Iterator[int]:
    waiting = [*call.args, *call.kwargs.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list) and value:
            if value[0] == "r":
                yield value[1]
            elif value[0] == "L":
                waiting += value[1:]


def _renamed(value: Any, numbers: dict[int, int]) -> Any:
    if not isinstance(value, list) or not value:
        return value
    if value[0] == "r":
        return ["r", numbers[value[1]]]
    return ["L", *(_renamed(part, numbers) for part in value[1:])] if value[0] == "L" else value
