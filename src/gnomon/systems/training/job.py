"""A whole job: every rank's graph side by side, linked where ranks wait for one another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from gnomon.errors import GraphError, InputError, SimulationError
from gnomon.graph import Timeline, WorkGraph, connect, merge, regroup
from gnomon.graph.column_types import Codes, Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.sim import replay
from gnomon.sim.trace.events import lay_out
from gnomon.sim.trace.graph import InferredWait, TraceGraph, build_graph
from gnomon.systems.training.communication import Communication, communications
from gnomon.systems.training.proxy_ranks import ProxyRank, proxy_ranks
from gnomon.systems.training.ranks import (
    Match,
    clock_offsets,
    is_eager,
    is_possible,
    known_groups,
    match,
    resolve_peers,
    transfer_ns,
)

#: Clones of ranks beyond this many tasks in all are left out: the machine would not thank us.
_MOST_TASKS = 50_000_000
#: Replays spent on finding out which communications go round in a circle.
_MOST_ATTEMPTS = 50


class RankPart(msgspec.Struct, frozen=True, eq=False):
    """One rank inside a job.

    Attributes:
        rank: Its number.
        source: The trace it was read from.
        training: Its own graph.
        first_task: Where its tasks begin in the job's graph.
        proxy_of: The traced rank that is used for this one; None where it was traced.
        trace: The columns of its trace; None where the job came from elsewhere.
        shift_ns: How much later the job's clock shows than the trace's own.
    """

    rank: int
    source: str
    training: TraceGraph
    first_task: int
    proxy_of: int | None = None
    trace: KinetoTrace | None = None
    shift_ns: int = 0

    def on_its_own_clock(self) -> TraceGraph:
        """Its graph with the times of its own trace."""
        if not self.shift_ns:
            return self.training
        line = self.training.recorded
        own = Timeline(
            line.graph,
            np.maximum(line.start_ns - self.shift_ns, 0),
            np.maximum(line.end_ns - self.shift_ns, 0),
        )
        return msgspec.structs.replace(self.training, recorded=own)


class Rendezvous(msgspec.Struct, frozen=True, eq=False):
    """Where ranks wait for one another.

    Attributes:
        task: Tasks of the job that meet others.
        group: Which of them meet; -1 for a receive of what had been sent before.
        transfer_ns: What each takes once all are there.
        sent, received: Tasks of messages that were sent before anybody asked for them.
    """

    task: Ints
    group: Ints
    transfer_ns: Ints
    sent: Ints
    received: Ints

    @staticmethod
    def none() -> Rendezvous:
        """Nobody meets anybody."""
        return Rendezvous(*(np.empty(0, np.int64) for _ in range(5)))


class TrainingJob(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a job and the graph of them all.

    Attributes:
        training: All ranks in one graph; a single rank's as it is.
        parts: The ranks, by number.
        rendezvous: How they are linked; None for a single rank.
    """

    training: TraceGraph
    parts: tuple[RankPart, ...]
    rendezvous: Rendezvous | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks' numbers."""
        return tuple(part.rank for part in self.parts)


def build_job(traces: Sequence[KinetoTrace], *, complete: bool = True) -> TrainingJob:
    """Builds the graph of a job from the traces of its ranks.

    Args:
        traces: One a rank; a single one is a job of its own.
        complete: Use traced ranks as proxies for untraced ones of the same stage.
    """
    if len(traces) == 1:
        return _lone_rank(traces[0])
    traced = _by_rank(traces)
    laid = {rank: lay_out(trace) for rank, trace in traced.items()}
    groups = {rank: known_groups(trace) for rank, trace in traced.items()}
    seen = resolve_peers({r: communications(traced[r], laid[r]) for r in traced}, groups)
    origin = {rank: trace.origin_ns for rank, trace in traced.items()}
    matches = match(seen, groups, origin)
    offset = clock_offsets(matches, origin)
    own = {
        rank: build_graph(trace, shift_ns=offset[rank], laid=laid[rank])
        for rank, trace in traced.items()
    }
    missing: dict[int, ProxyRank] = {}
    notes: list[str] = []
    if complete:
        missing, notes = _missing(traced, own, seen, groups, matches)
    if missing:
        for rank, proxy in missing.items():
            seen[rank] = proxy.communications
            groups[rank] = proxy.groups
            offset[rank] = offset[proxy.of]
        matches = match(seen, groups, offset)
    parts = _parts(traced, own, missing, offset)
    possible = [o for o in matches if is_possible(o, offset) or is_eager(o, offset)]
    if len(possible) < len(matches):
        count = len(matches) - len(possible)
        notes.append(f"{count:,} communications contradict the clocks and were left as recorded")
    total = sum(len(found) for found in seen.values())
    linked = sum(len(one.members) for one in possible)
    if linked < total:
        notes.append(
            f"{total - linked:,} of {total:,} communications found no partner in the traces"
        )
    rendezvous, dropped = _without_circles(parts, _rendezvous(parts, possible, offset))
    if dropped:
        notes.append(
            f"{dropped:,} communications would wait for one another and were left as recorded"
        )
    return TrainingJob(_together(parts, rendezvous, notes), tuple(parts), rendezvous)


def _lone_rank(trace: KinetoTrace) -> TrainingJob:
    laid = lay_out(trace)
    training = build_graph(trace, laid=laid)
    if (trace.world_size or 1) > 1 and communications(trace, laid):
        alone = (
            f"one of {trace.world_size} ranks was traced: its communication keeps recorded "
            "durations, waits for the others included"
        )
        training = msgspec.structs.replace(training, notes=(*training.notes, alone))
    part = RankPart(trace.rank or 0, trace.source, training, 0, trace=trace)
    return TrainingJob(training, (part,))


def link_ranks(
    graphs: Sequence[WorkGraph], ranks: Sequence[int], rendezvous: Rendezvous
) -> WorkGraph:
    """Ranks' graphs as one, their communication as rendezvous: waiting is in no duration."""
    merged = merge(graphs, ranks)
    duration = merged.duration_ns.copy()
    duration[rendezvous.task] = rendezvous.transfer_ns
    group = np.full(len(merged), -1, np.int64)
    group[rendezvous.task] = rendezvous.group
    linked = regroup(merged.with_durations(duration), group)
    # What comes before a task on its lane is the gap that waits for it.
    return (
        connect(linked, rendezvous.sent, rendezvous.received - 1, "message")
        if len(rendezvous.sent)
        else linked
    )


def _by_rank(traces: Sequence[KinetoTrace]) -> dict[int, KinetoTrace]:
    """Traces by the rank they name themselves, or that their file's name gives."""
    found: dict[int, KinetoTrace] = {}
    for trace in traces:
        rank = trace.rank if trace.rank is not None else rank_in_name(trace.source)
        if rank is None:
            raise InputError(
                "neither the trace nor its name says which rank it is", where=trace.source,
                hint="several traces are read as one job; name them rank0, rank1 ...",
            )  # fmt: skip
        if rank in found:
            raise InputError(
                f"two traces are of rank {rank}: {found[rank].source} and {trace.source}",
                hint="give the traces of one run of one job",
            )
        found[rank] = trace
    worlds = {trace.world_size for trace in found.values() if trace.world_size}
    if len(worlds) > 1:
        what = f"the traces are of jobs of {' and '.join(str(w) for w in sorted(worlds))} ranks"
        raise InputError(what, hint="give the traces of one run of one job")
    return dict(sorted(found.items()))


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name gives.

    >>> rank_in_name("run/rank3.json.gz"), rank_in_name("worker12_step_3.pt.trace.json")
    (3, 12)
    >>> rank_in_name("kineto.json")
    """
    found = re.search(r"(?:rank|worker)[-_ ]?(\d+)[^/]*$", name)
    return int(found.group(1)) if found else None


def _missing(
    traced: Mapping[int, KinetoTrace],
    own: Mapping[int, TraceGraph],
    seen: Mapping[int, Sequence[Communication]],
    groups: Mapping[int, Sequence[tuple[int, ...]]],
    matches: Sequence[Match],
) -> tuple[dict[int, ProxyRank], list[str]]:
    """The proxies of the ranks that were not traced, and notes about them."""
    world = max((trace.world_size or 0 for trace in traced.values()), default=0)
    absent = [rank for rank in range(world) if rank not in traced]
    if not absent:
        return {}, []
    found = proxy_ranks(absent, seen, groups, matches)
    tasks = sum(len(t.graph) for t in own.values())
    tasks += sum(len(own[proxy.of].graph) for proxy in found.values())
    if tasks > _MOST_TASKS:
        return {}, [f"{len(traced)} of {world} ranks were traced; the others are left out"]
    notes = []
    if found:
        notes.append(f"traced ranks are proxies for {len(found)} that were not traced")
    if len(found) < len(absent):
        count = len(absent) - len(found)
        notes.append(f"{count} ranks were not traced, nor any of their stage; they are left out")
    return found, notes


def _parts(
    traced: Mapping[int, KinetoTrace],
    own: Mapping[int, TraceGraph],
    missing: Mapping[int, ProxyRank],
    offset: Mapping[int, int],
) -> list[RankPart]:
    parts, first = [], 0
    for rank in sorted([*traced, *missing]):
        of = missing[rank].of if rank in missing else rank
        trace, proxy_of = traced[of], of if rank in missing else None
        parts.append(RankPart(rank, trace.source, own[of], first, proxy_of, trace, offset[of]))
        first += len(own[of].graph)
    return parts


def _rendezvous(
    parts: Sequence[RankPart], matches: Sequence[Match], offset: Mapping[int, int]
) -> Rendezvous:
    task_of = {part.rank: _tasks_of_events(part) for part in parts}
    task, group, transfer = [], [], []
    sent, received = [], []
    for number, matched in enumerate(matches):
        tasks = [int(task_of[m.rank][m.seen.event]) for m in matched.members]
        if not is_possible(matched, offset):
            is_send = "send" in matched.members[0].seen.operation
            sent.append(tasks[0 if is_send else 1])
            received.append(tasks[1 if is_send else 0])
            continue
        task += tasks
        group += [number] * len(tasks)
        transfer += transfer_ns(matched, offset).tolist()
    columns = (np.asarray(column, np.int64) for column in (task, group, transfer, sent, received))
    return Rendezvous(*columns)


def _without_circles(parts: Sequence[RankPart], rendezvous: Rendezvous) -> tuple[Rendezvous, int]:
    """The rendezvous without those under which tasks would wait for one another for ever.

    Sides that were matched wrongly may do so, where the recorded run did not. Which of them is
    wrong is not known: those that are stuck go.
    """
    graphs, ranks = [part.training.graph for part in parts], [part.rank for part in parts]
    dropped = 0
    for attempt in range(_MOST_ATTEMPTS):
        try:
            replay(link_ranks(graphs, ranks, rendezvous), causes=False)
            return rendezvous, dropped
        except SimulationError as error:
            stuck = np.unique(rendezvous.group[np.isin(rendezvous.task, error.blocked)])
        except GraphError:
            stuck = np.empty(0, np.int64)
        # Where only others are stuck behind them, or it takes too long, all of them go.
        if not len(stuck) or attempt == _MOST_ATTEMPTS - 1:
            return Rendezvous.none(), dropped + len(np.unique(rendezvous.group)) + len(
                rendezvous.sent
            )
        keep = ~np.isin(rendezvous.group, stuck)
        dropped += len(stuck)
        rendezvous = Rendezvous(
            rendezvous.task[keep], rendezvous.group[keep], rendezvous.transfer_ns[keep],
            rendezvous.sent, rendezvous.received,
        )  # fmt: skip
    return rendezvous, dropped


def _tasks_of_events(part: RankPart) -> Ints:
    """The job's task of each device event of a rank."""
    training = part.training
    assert training.event is not None
    assert part.trace is not None
    found = np.full(len(part.trace), -1, np.int64)
    # Several host tasks share an event; a device event has one, and it comes last.
    rows = np.flatnonzero(training.event >= 0)
    found[training.event[rows]] = rows + part.first_task
    return found


def _together(
    parts: Sequence[RankPart], rendezvous: Rendezvous, notes: Sequence[str]
) -> TraceGraph:
    graph = link_ranks(
        [part.training.graph for part in parts], [p.rank for p in parts], rendezvous
    )
    start = np.concatenate([part.training.recorded.start_ns for part in parts])
    end = np.concatenate([part.training.recorded.end_ns for part in parts])
    names = _step_names(parts)
    step = np.concatenate([_renumbered(part.training, names) for part in parts])
    inferred = tuple(
        InferredWait(w.source + part.first_task, w.target + part.first_task, w.confidence)
        for part in parts
        for w in part.training.inferred
    )
    event = [part.training.event for part in parts if part.training.event is not None]
    return TraceGraph(
        graph, Timeline(graph, start, end), step, names,
        (*notes, *_notes_of_ranks(parts)), parts[0].training.gpu, inferred,
        np.concatenate(event) if len(event) == len(parts) else None,
        marked_ns=_marked(parts, names),
    )  # fmt: skip


def _step_names(parts: Sequence[RankPart]) -> tuple[str, ...]:
    names = {name for part in parts for name in part.training.step_names}

    def number(name: str) -> tuple[int, str]:
        digits = name.rpartition("#")[2]
        return (int(digits) if digits.isdigit() else -1, name)

    return tuple(sorted(names, key=number))


def _marked(parts: Sequence[RankPart], names: Sequence[str]) -> Ints | None:
    """When each rank's steps were marked to begin."""
    if not names:
        return None
    marked = np.full((len(parts), len(names)), -1, np.int64)
    for row, part in enumerate(parts):
        own = part.training
        if own.marked_ns is not None:
            marked[row, [names.index(name) for name in own.step_names]] = own.marked_ns[0]
    return marked


def _renumbered(training: TraceGraph, names: Sequence[str]) -> Codes:
    number = np.asarray([names.index(name) for name in training.step_names] or [-1], np.int32)
    return np.where(training.step >= 0, number[training.step], np.int32(-1)).astype(np.int32)


def _notes_of_ranks(parts: Sequence[RankPart]) -> list[str]:
    """What the ranks' own graphs note, each thing once, with how many ranks say it."""
    counts_of: dict[str, list[int]] = {}
    for part in parts:
        if part.proxy_of is not None:
            continue
        for note in part.training.notes:
            count, _, what = note.partition(" ")
            counts_of.setdefault(what, []).append(int(count.replace(",", "")))
    return [f"{sum(counts):,} {what}" for what, counts in counts_of.items()]
