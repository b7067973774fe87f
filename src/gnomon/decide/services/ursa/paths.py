"""A request class as the times of its calls: in sequence, in parallel, by queues."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.application import Application, Call, Milliseconds, as_work

Floats = NDArray[np.float64]

#: A network time that varies is taken so far up its distribution.
_HIGH = 0.9999


class Step(msgspec.Struct, frozen=True):
    """One call of a class.

    Attributes:
        service: Who handles it.
        chance: That its caller makes it.
        visits: That a request makes it at all.
        is_queued: The caller does not wait for it.
        stages: Numbers of the calls that it makes, stage by stage.
    """

    service: str
    chance: float
    visits: float
    is_queued: bool
    stages: tuple[tuple[int, ...], ...]


class Route(msgspec.Struct, frozen=True):
    """Calls one after the other: how often each service is called, and the network's time."""

    calls: dict[str, int]
    network_ms: float


class Paths(msgspec.Struct, frozen=True):
    """The calls of a class, the root first, callers before those they call.

    Attributes:
        until_all: Latency counts until queued work is done.
        network_ms: One way.
    """

    name: str
    steps: tuple[Step, ...]
    until_all: bool
    network_ms: float

    @classmethod
    def of(cls, app: Application, name: str) -> Paths:
        about = app.classes[name]
        found: list[Step] = []

        def add(call: Call, visits: float) -> int:
            number = len(found)
            found.append(Step(call.service, call.probability, visits, call.mode == "queue", ()))
            made = ([b for b in stage if b.probability > 0] for stage in call.then)
            stages = tuple(
                tuple(add(b, visits * b.probability) for b in stage) for stage in made if stage
            )
            found[number] = msgspec.structs.replace(found[number], stages=stages)
            return number

        add(about.call, about.call.probability)
        until_all = about.sla is not None and about.sla.until == "all"
        return cls(name, tuple(found), until_all, _high_ms(app.network_ms))

    def counted(self) -> list[int]:
        """Calls whose time can count: without queued work, unless latency includes it."""
        if self.until_all:
            return list(range(len(self.steps)))
        found, left = [], [0]
        while left:
            at = left.pop()
            found.append(at)
            left += [b for stage in self.steps[at].stages for b in stage
                     if not self.steps[b].is_queued]  # fmt: skip
        return sorted(found)

    def routes(self, most: int) -> list[Route] | None:
        """Every way through the calls that latency can be the length of; None if over `most`."""
        counted, way = set(self.counted()), 2 * self.network_ms
        replies: dict[int, list[Route]] = {}
        ends: dict[int, list[Route]] = {}
        for at in sorted(counted, reverse=True):
            routes, late = [Route({self.steps[at].service: 1}, 0.0)], list[Route]()
            for stage in self.steps[at].stages:
                if self.until_all:
                    below = [one for b in stage for one in ends[b]]
                    late += _joined(routes, below, self.network_ms)
                waited = [one for b in stage if b in counted and not self.steps[b].is_queued
                          for one in replies[b]]  # fmt: skip
                if stage:
                    routes = _joined(routes, waited or [Route({}, 0.0)], way)
                routes, late = _longest(routes), _longest(late)
                if len(routes) + len(late) > most:
                    return None
            replies[at] = routes
            ends[at] = _longest(routes + late)
        return _joined(ends[0], [Route({}, 0.0)], way)

    def latency_ms(self, times: Sequence[Floats], made: Sequence[NDArray[np.bool_]]) -> Timing:
        """End-to-end latency of many requests at once, and whose time it is.

        Args:
            times: Of each call: its exclusive time in every request.
            made: Of each call: whether its caller made it.
        """
        count = len(times[0])
        reply: list[Floats] = [np.empty(0)] * len(self.steps)
        whole: list[Floats] = [np.empty(0)] * len(self.steps)
        for at in reversed(range(len(self.steps))):
            step = self.steps[at]
            passed = times[at].copy()
            last = np.zeros(count)
            for stage in step.stages:
                longest = np.zeros(count)
                for below in stage:
                    way = 2 * self.network_ms
                    waits = way if self.steps[below].is_queued else reply[below] + way
                    longest = np.maximum(longest, np.where(made[below], waits, 0.0))
                    if self.until_all:
                        ends = passed + self.network_ms + whole[below]
                        last = np.maximum(last, np.where(made[below], ends, 0.0))
                passed += longest
            reply[at] = passed
            whole[at] = np.maximum(passed, last)
        total = (whole if self.until_all else reply)[0] + 2 * self.network_ms
        return Timing(self, times, made, reply, whole, total)


class Timing(msgspec.Struct, frozen=True, eq=False):
    """Requests of a class, timed."""

    paths: Paths
    times: Sequence[Floats]
    made: Sequence[NDArray[np.bool_]]
    reply: list[Floats]
    whole: list[Floats]
    total_ms: Floats

    def is_critical(self) -> list[NDArray[np.bool_]]:
        """Of each call: in which requests its own time is part of the latency."""
        paths, count = self.paths, len(self.total_ms)
        critical = [np.zeros(count, bool) for _ in paths.steps]
        # Of each call: whether what matters is its reply, or the end of all below it.
        for_reply = [np.zeros(count, bool) for _ in paths.steps]
        for_whole = [np.zeros(count, bool) for _ in paths.steps]
        (for_whole if paths.until_all else for_reply)[0][:] = True
        for at, step in enumerate(paths.steps):
            late = for_whole[at] & (self.whole[at] > self.reply[at] + 1e-12)
            upto = for_reply[at] | (for_whole[at] & ~late)
            critical[at] |= upto | late
            if not step.stages:
                continue
            self._stages(at, upto, late, for_reply, for_whole)
        return critical

    def _waited(self, below: int, way: float) -> Floats:
        """How long its caller waits for a call."""
        is_queued = self.paths.steps[below].is_queued
        return np.where(self.made[below], way if is_queued else self.reply[below] + way, 0.0)

    def _stages(
        self, at: int, upto: NDArray[np.bool_], late: NDArray[np.bool_],
        for_reply: list[NDArray[np.bool_]], for_whole: list[NDArray[np.bool_]],
    ) -> None:  # fmt: skip
        """Hands on what matters of a call to the calls that it makes."""
        paths, way = self.paths, 2 * self.paths.network_ms
        passed = self.times[at].copy()
        slowest: list[tuple[tuple[int, ...], NDArray[np.int64], NDArray[np.bool_]]] = []
        open_ = late.copy()
        for stage in paths.steps[at].stages:
            waits = np.stack([self._waited(b, way) for b in stage])
            if open_.any():  # the call whose end is the end of all: the stages before it count
                for below in stage:
                    ends = passed + paths.network_ms + self.whole[below]
                    hit = open_ & self.made[below] & (ends >= self.whole[at] - 1e-9)
                    for_whole[below] |= hit
                    for before, who, _ in slowest:
                        for j, b in enumerate(before):
                            if not paths.steps[b].is_queued:
                                for_reply[b] |= hit & (who == j) & self.made[b]
                    open_ &= ~hit
            who = waits.argmax(axis=0)
            slowest.append((stage, who, waits.max(axis=0) > 0))
            passed += waits.max(axis=0)
        for stage, who, any_made in slowest:
            for j, b in enumerate(stage):
                if not paths.steps[b].is_queued:
                    for_reply[b] |= upto & any_made & (who == j) & self.made[b]


def _joined(first: list[Route], then: list[Route], between_ms: float) -> list[Route]:
    """Each of one followed by each of the other."""
    return [
        Route(
            {name: a.calls.get(name, 0) + b.calls.get(name, 0) for name in a.calls | b.calls},
            a.network_ms + between_ms + b.network_ms,
        )
        for a in first
        for b in then
    ]


def _longest(routes: list[Route]) -> list[Route]:
    """Without those that another is never shorter than."""
    kept: list[Route] = []
    for one in sorted(routes, key=lambda r: (-sum(r.calls.values()), -r.network_ms)):
        if not any(
            long.network_ms >= one.network_ms
            and all(long.calls.get(name, 0) >= calls for name, calls in one.calls.items())
            for long in kept
        ):
            kept.append(one)
    return kept


def _high_ms(time: Milliseconds) -> float:
    """A time that is rarely exceeded."""
    work = as_work(time)
    if work.quantiles:
        return max(work.quantiles.values())
    if work.shape == "exponential":
        return -work.mean * math.log(1.0 - _HIGH)
    if work.cv == 0 or work.mean == 0:
        return work.mean
    variance = math.log1p(work.cv**2)
    return math.exp(math.log(work.mean) - variance / 2 + 3.719 * math.sqrt(variance))
