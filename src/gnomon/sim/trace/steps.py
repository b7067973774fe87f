"""How long a step takes, from the ends of steps; and how well one step predicts another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph import Timeline
from gnomon.graph.column_types import Codes, Flags, Ints
from gnomon.graph.repeats import count_within
from gnomon.sim import replay
from gnomon.sim.trace.graph import TraceGraph


class StepRow(msgspec.Struct, frozen=True):
    """One step, recorded and replayed.

    Attributes:
        step: Its mark.
        rank: Of one rank; None for the job as a whole.
        recorded_ms: From the end of the step before (of the first: from its own start).
        replayed_ms: The same, replayed.
    """

    step: str
    rank: int | None
    recorded_ms: float
    replayed_ms: float

    @property
    def error_pct(self) -> float:
        """How far the replay is off."""
        return 100.0 * (self.replayed_ms / self.recorded_ms - 1.0) if self.recorded_ms else 0.0


class _Span(NamedTuple):
    """From the first start to the last end of a step."""

    step: int
    begin_ns: int
    end_ns: int


class _Borders(NamedTuple):
    """Begin and end of each step, a row per rank; end -1 where the rank did nothing in it."""

    ranks: list[int]
    begin_ns: Ints
    end_ns: Ints

    def spans(self, row: int | None = None) -> list[_Span]:
        """The steps of one rank, or of all together."""
        begin, end = self.begin_ns.min(axis=0), self.end_ns.max(axis=0)
        if row is not None:
            begin, end = self.begin_ns[row], self.end_ns[row]
        # What one step leaves behind may outlast the next, which then ends no earlier.
        latest = np.maximum.accumulate(end)
        return [
            _Span(step, int(min(begin[step], latest[step])), int(latest[step]))
            for step in np.flatnonzero(end >= 0).tolist()
        ]


def _borders(training: TraceGraph, timeline: Timeline) -> _Borders:
    """Where the steps begin and end on each rank.

    A step begins where it is marked to, with a gap there or with its first work; it ends with its
    last. A silent thread may stay silent from one step into the next: that is neither's work. And
    a replayed wait starts only when what it waits for has ended.
    """
    graph, step = training.graph, training.step
    steps = len(training.step_names)
    ranks, row = [0], np.zeros(len(graph), np.int64)
    if graph.rank is not None:
        found, row = np.unique(graph.rank, return_inverse=True)
        ranks = found.tolist()
    works = (step >= 0) & ~graph.is_kind("gap", "latency")
    begins = works & ~graph.is_kind("sync", "blocked")
    if training.marked_ns is not None:
        gaps = np.flatnonzero(graph.is_kind("gap") & (step >= 0))
        marked = training.marked_ns[row[gaps], step[gaps]]
        begins[gaps[training.recorded.start_ns[gaps] == marked]] = True
    begin = np.full(len(ranks) * steps, np.iinfo(np.int64).max)
    end = np.full(len(ranks) * steps, -1, np.int64)
    place = row * steps + step
    np.minimum.at(begin, place[begins], timeline.start_ns[begins])
    np.maximum.at(end, place[works], timeline.end_ns[works])
    return _Borders(ranks, begin.reshape(-1, steps), end.reshape(-1, steps))


def _spans(training: TraceGraph, timeline: Timeline) -> list[_Span]:
    """Begin and end of each step that has work, of all ranks together."""
    return _borders(training, timeline).spans() if training.step_names else []


def _periods(spans: Sequence[_Span]) -> list[float]:
    """Milliseconds from the end of one step to the end of the next; the first from its start."""
    begins = [spans[0].begin_ns, *(span.end_ns for span in spans)] if spans else []
    return [(span.end_ns - begin) / 1e6 for begin, span in zip(begins, spans)]


def step_rows(training: TraceGraph, timeline: Timeline) -> list[StepRow]:
    """Every step of every rank; of a job of several also the job as a whole."""
    if not training.step_names:
        return []
    recorded, replayed = _borders(training, training.recorded), _borders(training, timeline)
    rows: list[int | None] = [None]
    if training.graph.rank is not None:
        rows += range(len(recorded.ranks))
    found = []
    for row in rows:
        spans = recorded.spans(row)
        rank = None if row is None else recorded.ranks[row]
        found += [
            StepRow(training.step_names[span.step], rank, one, other)
            for span, one, other in zip(spans, _periods(spans), _periods(replayed.spans(row)))
            if not training.counted or span.step in training.counted
        ]
    return found


def step_estimate(training: TraceGraph, timeline: Timeline) -> Estimate:
    """Milliseconds per step, from end to end: a GPU that lags behind its host is counted right.

    The mean, so that the parts of a step add up to it; the range is that of the steps. The first
    of several is left out unless it was asked for: what came before it was not seen. One marked
    step counts from its first start to its last end; without any, the whole trace does.
    """
    periods = step_periods_ms(training, timeline)
    # Rounding must not push the mean of equals out of their range.
    mean = min(max(float(np.mean(periods)), min(periods)), max(periods))
    return Estimate(min(periods), mean, max(periods))


def step_periods_ms(training: TraceGraph, timeline: Timeline) -> list[float]:
    """Milliseconds of each step that answers are about; of the whole where none is marked."""
    spans = _spans(training, timeline)
    every = _periods(spans)
    periods = [every[place] for place in _counted(training, spans)]
    return periods or [timeline.makespan_ns / 1e6]


def _counted(training: TraceGraph, spans: Sequence[_Span]) -> list[int]:
    """The places, among steps that have tasks, of those that answers are about."""
    if training.counted:
        return [place for place, span in enumerate(spans) if span.step in training.counted]
    return list(range(1, len(spans))) if len(spans) > 1 else list(range(len(spans)))


def steady_window(training: TraceGraph, timeline: Timeline) -> tuple[int, int, int]:
    """Start, end and number of the steps that answers are about."""
    spans = _spans(training, timeline)
    counted = _counted(training, spans)
    if not counted:
        return timeline.begin_ns, timeline.begin_ns + timeline.makespan_ns, 1
    first, last = min(counted), max(counted)
    begin = spans[first - 1].end_ns if first else spans[0].begin_ns
    return begin, spans[last].end_ns, last - first + 1


def count_only(training: TraceGraph, wanted: str) -> TraceGraph:
    """Lets answers be about some steps: `12`, `12-14`, `12,14` by the number in their mark."""
    known = {name.rpartition("#")[2]: number for number, name in enumerate(training.step_names)}
    counted: set[int] = set()
    for part in wanted.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        missing = next((end for end in (first, last) if end not in known), None)
        if missing is not None:
            there = f"there are {', '.join(known)}" if known else "the trace marks none"
            raise InputError(f"no step {missing!r}; {there}", hint="try --steps 3 or --steps 3-5")
        if known[first] > known[last]:
            raise InputError(f"steps {part.strip()!r} end before they begin")
        counted.update(range(known[first], known[last] + 1))
    return msgspec.structs.replace(training, counted=tuple(sorted(counted)))


# -- one step foretold by the others ---------------------------------------------------------


def held_out(training: TraceGraph, kinds: Sequence[str] = ("gap",)) -> list[StepRow]:
    """Each step replayed with its think time taken from the *other* steps of the trace.

    Replaying what was recorded proves little; this asks whether the host's time between operators
    is the job's or an accident of one step. A gap is known by its thread and by what comes before
    and after it, and gets the median of what the same gap took in the other steps.

    Args:
        training: A trace with at least two steps.
        kinds: Which tasks to take from other steps.
    """
    graph, step = training.graph, training.step
    spans = _spans(training, training.recorded)
    if len(spans) < 2:
        return []
    recorded = _periods(spans)
    chosen = np.flatnonzero(graph.is_kind(*kinds) & (step >= 0))
    place, occurrence = _places(training, chosen)
    rows = []
    for place_of_step, span in enumerate(spans):
        duration = graph.duration_ns.copy()
        mine = step[chosen] == span.step
        foretold = _from_others(place, occurrence, step[chosen], duration[chosen], mine)
        duration[chosen[mine]] = np.where(foretold >= 0, foretold, duration[chosen[mine]])
        line = replay(graph.with_durations(duration), causes=False)
        replayed = _periods(_spans(training, line))[place_of_step]
        name = training.step_names[span.step]
        rows.append(StepRow(name, None, recorded[place_of_step], replayed))
    return rows


def _places(training: TraceGraph, chosen: Ints) -> tuple[Ints, Ints]:
    """What each chosen task is (lane, itself, neighbours), and which of its like in its step."""
    graph = training.graph
    name = graph.name.astype(np.int64)
    same_lane = np.concatenate([[False], graph.lane[1:] == graph.lane[:-1], [False]])
    before = np.where(same_lane[chosen], name[chosen - 1], -1)
    after = np.where(same_lane[chosen + 1], name[np.minimum(chosen + 1, len(graph) - 1)], -1)
    key = np.stack([graph.lane[chosen], name[chosen], before, after])
    place = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1)
    both = place.astype(np.int64) * (len(training.step_names) + 1) + training.step[chosen]
    return place.astype(np.int64), count_within(both)


def _from_others(place: Ints, occurrence: Ints, step: Codes, duration: Ints, mine: Flags) -> Ints:
    """For each of mine the median of the others: of the same occurrence, else of the place."""
    most = int(occurrence.max(initial=0)) + 1
    exact = _medians(place * most + occurrence, duration, ~mine)
    anywhere = _medians(place, duration, ~mine)
    return np.asarray(
        [
            exact.get(p * most + o, anywhere.get(p, -1))
            for p, o in zip(place[mine].tolist(), occurrence[mine].tolist())
        ],
        np.int64,
    )


def _medians(key: Ints, value: Ints, where: Flags) -> dict[int, int]:
    rows = np.flatnonzero(where)
    order = rows[np.lexsort((value[rows], key[rows]))]
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    low, high = value[order][first + (count - 1) // 2], value[order][first + count // 2]
    return dict(zip(keys.tolist(), ((low + high) // 2).tolist()))
