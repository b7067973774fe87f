"""From the operation log of a whole job to a work graph that replays, waits apart from transfers.

Every operation is a task on a lane of its rank. What it waited for is inferred, so
that no rank's lateness hides in another's duration:

- program order: operations of a rank that never run beside its compute block it, one after the
  other; those launched together (a send with a receive) form a batch that ends as a whole. Others
  run beside the compute, linked to it by their data and by what had ended when they were launched;
- rendezvous: a send and its receive, the ranks of a collective. They start together once the last
  has come; what is left of the time, from then to the end, is the transfer;
- hidden rendezvous: where the ranks of a stage go on together although they got there at different
  times, they waited for one another (for the mean of the loss, say);
- what remains between the last thing waited for and the start is a `gap` task: host time, launch
  delay. Steps follow one another at fences, so each is replayed as if alone.

Nothing here loops over operations: a job of a hundred thousand takes a fifth of a second.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.graph import Timeline, WorkGraph
from gnomon.graph.column_types import Codes, Flags, Ints
from gnomon.graph.repeats import count_within
from gnomon.graph.timeline import covered_until, union_of_spans
from gnomon.ingest.profiler.operation_log import OperationLog
from gnomon.sim.trace.graph import TraceGraph

COMPUTE = ("forward-compute", "backward-compute")
#: Sends and receives: the compute whose data they carry, and over which of its borders: that to
#: the chunk behind it (0) or that to the chunk before it (-1).
TRANSFERS = {
    "forward-send": ("forward-compute", 0),
    "forward-recv": ("forward-compute", -1),
    "backward-send": ("backward-compute", -1),
    "backward-recv": ("backward-compute", 0),
}
#: Collectives and who meets: data-parallel ranks of a stage, stages of a pipeline, everybody.
COLLECTIVES = {
    "params-all-gather": "stage",
    "grads-reduce-scatter": "stage",
    "grads-all-reduce": "stage",
    "separate-grads-all-reduce": "stage",
    "embedding-grads-all-reduce": "pipeline",
    "optimizer-clip-main-grad": "job",
}
#: Operations of one rank alone, as far as a log can tell (one rank stands for its tensor group).
_LOCAL = ("layernorm-grads-all-reduce", "optimizer", "gc")
#: Beside compute for more than this share of its time: a kind of operation does not block.
_BESIDE = 0.1
#: How far clocks are trusted, of one rank and of two; never less than to a share of a compute.
_JITTER_NS, _JITTER_SHARE = 1_000_000, 0.01
_SKEW_NS, _SKEW_SHARE = 10_000_000, 0.1
#: A rendezvous that the log does not name is kept in so many steps, and explains so much silence.
_KEPT, _EXPLAINED = 0.95, 0.5
#: Rounds in which the times of operations that clocks have out of order must settle.
_ROUNDS = 20
#: Kinds of task that are not operations.
FENCE, RENDEZVOUS, GAP = "fence", "rendezvous", "gap"


def build_operations_graph(log: OperationLog) -> TraceGraph:
    """Builds the graph of a whole job; steps follow one another."""
    return _Builder(log).build()


def fence_tasks(training: TraceGraph) -> Ints:
    """The fences between steps: the begin of each, and the end of the last."""
    return np.flatnonzero(training.graph.is_kind(FENCE))


class _Edges:
    """What comes before what, in rows of the log; fences and hidden rendezvous lie behind them."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, str]] = []

    def add(self, source: Ints, target: Ints, kind: str) -> None:
        self._parts.append((source, target, kind))

    def all(self) -> tuple[Ints, Ints]:
        source, target, _ = zip(*self._parts)
        return np.concatenate(source), np.concatenate(target)

    def kinds(self) -> list[str]:
        return [kind for source, _, kind in self._parts for _ in range(len(source))]


class _HiddenRendezvous(msgspec.Struct, frozen=True, eq=False):
    """A rendezvous that the log does not name; rows are a line per step and a column per rank.

    Attributes:
        place: Whose it is.
        rows: The operations before which its ranks wait for one another.
        after: Those of other ranks that come after it, though nobody waits for them.
    """

    place: str
    rows: Ints
    after: Ints


class _Sizes(msgspec.Struct, frozen=True, eq=False):
    """Times of each row from the start of its step; of fences and hidden rendezvous as well.

    Attributes:
        ready: When the last thing it waits for on its rank had ended.
        came: When it had come to its rendezvous.
        began: When all had come.
        took: What it took from then on: the transfer, or all of an operation that meets nobody.
        met: When each fence and hidden rendezvous was.
    """

    ready: Ints
    came: Ints
    began: Ints
    took: Ints
    met: Ints


class _Builder:
    def __init__(self, log: OperationLog) -> None:
        self.log, self.n, self.steps = log, len(log), len(log.steps)
        self.start, self.end = log.start_ns, log.end_ns
        self.is_compute = log.is_operation(*COMPUTE)
        self.is_transfer = log.is_operation(*TRANSFERS)
        self.is_collective = log.is_operation(*COLLECTIVES)
        usual = float(np.median(log.duration_ns[self.is_compute])) if self.is_compute.any() else 0
        self.jitter_ns = int(min(_JITTER_NS, _JITTER_SHARE * usual))
        self.skew_ns = int(min(_SKEW_NS, _SKEW_SHARE * usual))
        # A unit is one rank in one step: its rows lie together, in order of their start. On one
        # clock on which units follow one another, all are sorted and searched at once.
        fresh = (np.diff(log.step) != 0) | (np.diff(log.rank) != 0)
        self.unit: Ints = np.concatenate([[0], np.cumsum(fresh)]).astype(np.int64)
        self.units = int(self.unit[-1]) + 1
        shift = self.unit * (int(self.end.max()) + 2 * _SKEW_NS)
        self.clock_start, self.clock_end = self.start + shift, self.end + shift
        self.edges = _Edges()
        self.eager = np.empty(0, np.int64), np.empty(0, np.int64)
        self.unmatched = self.alone = self.broken = self.cut = 0

    def build(self) -> TraceGraph:
        self.blocks = self._blocking()
        self.lane, self.lanes = self._lanes()
        self.program = np.flatnonzero(self.blocks)
        self.batch = self._order_program()
        self._order_others()
        self.group = self._believed(self._collective_keys(self._link_transfers()))
        self._link_parameters()
        self.rendezvous = self._hidden_rendezvous()
        self.extra = self.steps + 1 + self.steps * len(self.rendezvous)
        self._link_rendezvous()
        self._link_fences()
        return self._assemble(self._sizes())

    # -- order on one rank -------------------------------------------------------------------

    def _blocking(self) -> Flags:
        """Rows of the program itself: compute, and kinds that do not run beside compute."""
        log, compute = self.log, self.is_compute
        begin, end = union_of_spans(self.clock_start[compute], self.clock_end[compute])
        beside = covered_until(begin, end, self.clock_end)
        beside -= covered_until(begin, end, self.clock_start)
        count = len(log.operations)
        total = np.bincount(log.operation, weights=log.duration_ns, minlength=count)
        shared = np.bincount(log.operation, weights=beside, minlength=count)
        return compute | (shared <= _BESIDE * total)[log.operation]

    def _lanes(self) -> tuple[Codes, list[str]]:
        """Compute, each way of transfer, collectives; what does not block has its own."""
        log = self.log
        labels = ["compute", "collectives", *(o.replace("-", " ") for o in log.operations)]
        label = np.where(self.blocks & self.is_collective, 1, log.operation + 2)
        label = np.where(self.blocks & ~self.is_collective & ~self.is_transfer, 0, label)
        used, lane = np.unique(log.rank * np.int64(len(labels)) + label, return_inverse=True)
        names = [f"rank {u // len(labels)}/{labels[u % len(labels)]}" for u in used.tolist()]
        return lane.astype(np.int32), names

    def _order_program(self) -> Ints:
        """Batches follow one another on each rank. Returns the batch of each row, or -1."""
        rows = self.program
        start, end = self.clock_start[rows], self.clock_end[rows]
        free = np.maximum.accumulate(end)
        is_late = start[1:] >= free[:-1] - np.minimum(self.jitter_ns, (end - start)[1:] // 2)
        alone = self.is_compute[rows]
        opens = np.concatenate([[True], is_late | alone[1:] | alone[:-1]])
        number = np.cumsum(opens) - 1
        first = np.append(np.flatnonzero(opens), len(rows))
        # Each row comes after all rows of the batch before its own, if that is of its unit.
        before = number - 1
        target = np.flatnonzero(before >= 0)
        target = target[self.unit[rows[first[before[target]]]] == self.unit[rows[target]]]
        low, high = first[before[target]], first[before[target] + 1]
        count = high - low
        source = np.repeat(high - np.cumsum(count), count) + np.arange(count.sum())
        self.edges.add(rows[source], rows[np.repeat(target, count)], "program")
        batch = np.full(self.n, -1, np.int64)
        batch[rows] = number
        return batch

    def _order_others(self) -> None:
        """Rows beside the program: launched when some of it had ended, and awaited by some."""
        rows = np.flatnonzero(~self.blocks)
        by_end = self.program[np.argsort(self.clock_end[self.program], kind="stable")]
        at = self.clock_start[rows] + self.jitter_ns
        found = np.searchsorted(self.clock_end[by_end], at, side="right") - 1
        self._link_seen(by_end[found[found >= 0]], rows[found >= 0], "program")
        # A collective is awaited behind the compute, by the first operation after its end.
        rows = rows[~self.is_transfer[rows]]
        waiting = self.program[~(self.is_compute | self.is_transfer)[self.program]]
        found = np.searchsorted(self.clock_start[waiting], self.clock_end[rows] - self.jitter_ns)
        inside = found < len(waiting)
        self._link_seen(rows[inside], waiting[found[inside]], "program")

    def _link_seen(self, source: Ints, target: Ints, kind: str) -> None:
        """Adds those edges inside a unit that the recorded times bear out.

        They lead forward in the order of the log, as all others of a unit do: within the jitter,
        operations without length could come to wait for one another.
        """
        seen = (self.unit[source] == self.unit[target]) & (source < target)
        seen &= self.end[source] <= self.start[target] + self.jitter_ns
        self.edges.add(source[seen], target[seen], kind)

    # -- what meets whom ---------------------------------------------------------------------

    def _link_transfers(self) -> Ints:
        """Ties each send and receive to its compute; returns what the two ends have in common.

        That is -1 where nobody can be at the other end: logs also hold sends of the last chunk
        and receives of the first that were never launched.
        """
        log = self.log
        chunk = np.maximum(log.chunk, 0) * log.layout.pp_size + log.stage
        chunk = np.where(log.global_chunk >= 0, log.global_chunk, chunk).astype(np.int64)
        chunks = max(log.layout.vpp_size * log.layout.pp_size, int(chunk.max()) + 1)
        nth = count_within((self.unit * len(log.operations) + log.operation) * chunks + chunk)
        micro = np.where(log.micro_batch >= 0, log.micro_batch, nth)
        pipeline = log.step_index * log.layout.dp_size + log.dp_rank
        key = np.full(self.n, -1, np.int64)
        for name, (compute, side) in TRANSFERS.items():
            border = chunk + side
            is_inner = (border >= 0) & (border < chunks - 1)
            made = np.flatnonzero(log.is_operation(compute))
            rows, match = self._match(name, made, is_inner[made])
            source, target = (match, rows) if name.endswith("send") else (rows, match)
            self._link_seen(source, target, "data")
            way = COMPUTE.index(compute)
            code = ((pipeline * chunks + border) * 2 + way) * (int(micro.max()) + 1) + micro
            key[rows] = np.where(is_inner, code, -1)[match]
        return key

    def _match(self, name: str, made: Ints, is_inner: Flags) -> tuple[Ints, Ints]:
        """The transfers of one kind that have a compute, and the compute of each.

        Both come in the same order. A log has a transfer for each compute that needs one, or for
        each compute at all, or for all but the first (a first receive that is not logged).
        """
        rows = np.flatnonzero(self.log.is_operation(name))
        rows = rows[self._is_launched(name, rows, made)]
        inner, unit = made[is_inner], self.unit[rows]
        count, every, needed = (
            np.bincount(self.unit[chosen], minlength=self.units) for chosen in (rows, made, inner)
        )
        is_short = (count == every - 1) & name.endswith("recv")
        by_need = (count == needed)[unit]
        fits = by_need | (count == every)[unit] | is_short[unit]
        self.unmatched += int(np.count_nonzero(~fits))
        nth = count_within(unit)
        among_needed = (np.cumsum(needed) - needed)[unit] + nth
        among_all = (np.cumsum(every) - every)[unit] + nth + is_short[unit]
        match = np.empty(len(rows), np.int64)
        match[by_need] = inner[among_needed[by_need]]
        match[fits & ~by_need] = made[among_all[fits & ~by_need]]
        return rows[fits], match[fits]

    def _is_launched(self, name: str, rows: Ints, made: Ints) -> Flags:
        """Neither a receive after all compute has begun, nor a send before any has ended."""
        if name.endswith("recv"):
            last = np.full(self.units, -(2**62))
            np.maximum.at(last, self.unit[made], self.start[made])
            return np.asarray(self.start[rows] <= last[self.unit[rows]] + self.jitter_ns)
        first = np.full(self.units, 2**62)
        np.minimum.at(first, self.unit[made], self.end[made])
        return np.asarray(self.end[rows] >= first[self.unit[rows]] - self.jitter_ns)

    def _collective_keys(self, key: Ints) -> Ints:
        """What the ranks of each collective have in common, beside the keys that there are."""
        log = self.log
        scopes = {
            "stage": log.step_index * log.layout.pp_size + log.stage,
            "pipeline": log.step_index * log.layout.dp_size + log.dp_rank,
            "job": log.step_index,
        }
        for name, scope in COLLECTIVES.items():
            rows = np.flatnonzero(log.is_operation(name))
            code = scopes[scope][rows] * (int(log.sequence.max()) + 2) + log.sequence[rows] + 1
            key[rows] = int(key.max()) + 1 + code
        return key

    def _believed(self, key: Ints) -> Ints:
        """Numbers the rendezvous that the times bear out: nobody leaves before all have come."""
        rows = np.flatnonzero(key >= 0)
        _, number, size = np.unique(key[rows], return_inverse=True, return_counts=True)
        came, left = np.zeros(len(size), np.int64), np.full(len(size), 2**62)
        np.maximum.at(came, number, self.start[rows])
        np.minimum.at(left, number, self.end[rows])
        is_broken = left < came - self.skew_ns
        self.alone = int(np.count_nonzero(self.is_transfer[rows] & (size[number] == 1)))
        self.broken = int(np.count_nonzero(is_broken[number]))
        self._link_eager(rows[is_broken[number] & self.is_transfer[rows]], key)
        group = np.full(self.n, -1, np.int64)
        group[rows] = np.where(is_broken | (size == 1), -1, np.arange(len(size)))[number]
        return group

    def _link_eager(self, rows: Ints, key: Ints) -> None:
        """A send that did not wait for its receive: the receive, once launched, waits for it."""
        is_send = self.log.is_operation("forward-send", "backward-send")[rows]
        send, receive = rows[is_send], rows[~is_send]
        send, receive = send[np.argsort(key[send])], receive[np.argsort(key[receive])]
        if np.array_equal(key[send], key[receive]):
            in_order = self.end[send] <= self.end[receive] + self.skew_ns
            self.eager = send[in_order], receive[in_order]

    def _link_parameters(self) -> None:
        """Parameters come before the first forward of their chunk, gradients after its last."""
        log = self.log
        key: Ints = self.unit * (int(log.chunk.max()) + 2) + log.chunk.astype(np.int64) + 1
        forward, backward = (np.flatnonzero(log.is_operation(name)) for name in COMPUTE)
        gather = np.flatnonzero(log.is_operation("params-all-gather"))
        key = np.unique(key, return_inverse=True)[1].reshape(-1)  # numbers of chunks may be huge
        first = _any_with(key, forward[::-1])[key[gather]]
        self._link_seen(gather[first >= 0], first[first >= 0], "data")
        reduce = np.flatnonzero(log.is_operation("grads-reduce-scatter", "grads-all-reduce"))
        last = _any_with(key, backward)[key[reduce]]
        self._link_seen(last[last >= 0], reduce[last >= 0], "data")

    # -- rendezvous that the log does not name -------------------------------------------------

    def _hidden_rendezvous(self) -> list[_HiddenRendezvous]:
        """Of ranks that leave their compute at different times, yet go on together."""
        turn = self._turns()
        if turn is None:
            return []
        source, target = self.edges.all()
        ready = np.zeros(self.n, np.int64)
        np.maximum.at(ready, target, self.end[source])
        stage = self.log.stage[turn[0]]
        everybody = self._rendezvous("job", np.full(len(stage), True), turn, ready)
        if everybody is not None:
            return [everybody]
        each = (self._rendezvous(f"stage {s}", stage == s, turn, ready) for s in np.unique(stage))
        return [rendezvous for rendezvous in each if rendezvous is not None]

    def _turns(self) -> Ints | None:
        """The first row of each rank behind all its compute and transfers, step by step."""
        program = self.program[~self.log.is_operation("gc")[self.program]]
        unit, at = self.unit[program], np.arange(len(program))
        last = np.full(self.units, -1)
        np.maximum.at(last, unit, np.where((self.is_compute | self.is_transfer)[program], at, -1))
        turn = np.minimum(last + 1, len(program) - 1)
        ranks = len(np.unique(self.log.rank))
        if np.any(last < 0) or self.units != self.steps * ranks:
            return None  # some rank is not in every step: no columns to compare
        if np.any(unit[turn] != np.arange(self.units)):
            return None  # some rank ends with compute
        return np.asarray(program[turn].reshape(self.steps, ranks), np.int64)

    def _rendezvous(
        self, place: str, ranks: Flags, turn: Ints, ready: Ints
    ) -> _HiddenRendezvous | None:
        latest = ready[turn[:, ranks]].max(axis=1, keepdims=True)
        if np.count_nonzero(ranks) < 2 or not self._waits(turn[:, ranks], ready, latest):
            return None
        after = [r for r in np.flatnonzero(~ranks) if self._waits(turn[:, [r]], ready, latest)]
        return _HiddenRendezvous(place, turn[:, ranks], turn[:, np.asarray(after, np.int64)])

    def _waits(self, rows: Ints, ready: Ints, latest: Ints) -> bool:
        """Whether these go on only after `latest`, and waiting for it explains their silence."""
        start = self.start[rows]
        kept = np.mean(np.all(start >= latest - self.jitter_ns, axis=1))
        silent = np.maximum(start - ready[rows], 0).sum()
        left = np.maximum(start - np.maximum(ready[rows], latest), 0).sum()
        return bool(kept >= _KEPT and silent > 0 and left <= (1.0 - _EXPLAINED) * silent)

    def _link_rendezvous(self) -> None:
        """What the ranks of a hidden rendezvous wait for comes before it, they come after it."""
        source, target = self.edges.all()
        step = self.log.step_index
        for number, rendezvous in enumerate(self.rendezvous):
            first = self.n + self.steps + 1 + number * self.steps
            before = np.isin(target, rendezvous.rows)
            self.edges.add(source[before], first + step[target[before]], RENDEZVOUS)
            rows = np.concatenate([rendezvous.rows.ravel(), rendezvous.after.ravel()])
            self.edges.add(first + step[rows], rows, RENDEZVOUS)

    def _link_fences(self) -> None:
        """A step begins when everything of the one before has ended."""
        source, target = self.edges.all()
        is_first, is_last = np.ones((2, self.n + self.extra), bool)
        is_first[target] = is_last[source] = False
        first, last = np.flatnonzero(is_first[: self.n]), np.flatnonzero(is_last[: self.n])
        step = self.log.step_index
        self.edges.add(self.n + step[first], first, FENCE)
        self.edges.add(last, self.n + step[last] + 1, FENCE)

    # -- times and tasks ---------------------------------------------------------------------

    def _sizes(self) -> _Sizes:
        # Where clocks disagree an operation seems to end before all have come: then it ends as it
        # begins, and what follows is ready no sooner. That settles in a round or two.
        when = np.zeros(self.n + self.extra, np.int64)
        when[: self.n] = self.end
        before = self._before_on_lane()
        for _ in range(_ROUNDS):
            ready = self._ready(when, before)
            came = np.maximum(self.start, ready)
            began = _latest(self.group, came)
            np.maximum.at(began, self.eager[1], when[self.eager[0]])
            if np.all(began <= when[: self.n]):
                break
            when[: self.n] = np.maximum(self.end, began)
        is_cut = (self.start < ready - self.jitter_ns) & (self.end > self.start)
        self.cut = int(np.count_nonzero(is_cut))
        # A batch ends as a whole: all its transfers count from the last of its rendezvous.
        took = np.maximum(self.end - _latest(self.batch, began), 0)
        return _Sizes(ready, came, began, took, when[self.n :])

    def _ready(self, when: Ints, before: Ints) -> Ints:
        """When the last thing each row waits for had ended; also sets times of rendezvous."""
        source, target = self.edges.all()
        to_rendezvous, to_row = target > self.n + self.steps, target < self.n
        np.maximum.at(when, target[to_rendezvous], when[source[to_rendezvous]])
        ready = np.zeros(self.n, np.int64)
        np.maximum.at(ready, target[to_row], when[source[to_row]])
        return np.maximum(ready, np.where(before >= 0, when[before], 0))

    def _before_on_lane(self) -> Ints:
        """The row before each on its lane in the same step, or -1."""
        order = np.argsort(self.lane, kind="stable")
        same = (np.diff(self.lane[order]) == 0) & (np.diff(self.log.step[order]) == 0)
        before = np.full(self.n, -1, np.int64)
        before[order[1:][same]] = order[:-1][same]
        return before

    def _assemble(self, sizes: _Sizes) -> TraceGraph:
        log, places = self.log, _Places(self.extra, sizes.came > sizes.ready)
        # Of fences and hidden rendezvous: one fence before each step and one behind the last.
        every = np.arange(self.steps)
        step = np.concatenate([every, [-1], np.tile(every, len(self.rendezvous))])
        begin = np.concatenate([[0], np.cumsum(log.step_ns)])
        met, at = begin[step] + sizes.met, begin[log.step_index]
        graph = self._graph(places, sizes)
        start = places.column(met, sizes.began + at, sizes.ready + at)
        end = places.column(met, np.maximum(self.end, sizes.began) + at, sizes.came + at)
        return TraceGraph(
            graph,
            Timeline(graph, start, end),
            places.column(step, log.step_index).astype(np.int32),
            tuple(f"step {number}" for number in log.steps.tolist()),
            self._notes(),
            "",
        )

    def _graph(self, places: _Places, sizes: _Sizes) -> WorkGraph:
        log, rendezvous = self.log, len(self.rendezvous)
        lanes = [
            "job/steps",
            *(f"{rendezvous.place}/rendezvous" for rendezvous in self.rendezvous),
        ]
        lane = np.repeat(np.arange(rendezvous + 1), [self.steps + 1, *[self.steps] * rendezvous])
        kinds, names, name = [FENCE, RENDEZVOUS, GAP, *log.operations], *self._names()
        kind = np.minimum(lane, 1)
        source, target = self.edges.all()
        leaves = places.leaves[np.concatenate([source, self.eager[0]])]
        enters = np.concatenate([places.enters[target], places.task[self.eager[1]]])
        return WorkGraph.from_columns(
            places.column(lane, self.lane + len(lanes)),
            places.column(0, sizes.took, sizes.came - sizes.ready),
            _spell(kinds, places.column(kind, log.operation + 3, 2)),
            _spell(names, places.column(kind, name, 2)),
            (leaves, enters, [*self.edges.kinds(), *["data"] * len(self.eager[0])]),
            lanes=[*lanes, *self.lanes],
            rank=places.column(log.rank.min(), log.rank),
            group=places.column(-1, self.group, -1),
            meta={"source": log.source, "job": log.layout.name},
        )

    def _names(self) -> tuple[list[str], Ints]:
        """Names of tasks, and which of them each row has."""
        log = self.log
        span = int(log.sequence.max()) + 2
        code = log.operation * np.int64(span) + log.sequence + 1
        used, name = np.unique(code, return_inverse=True)
        spelled = [f"{log.operations[u // span]} {u % span - 1}" for u in used.tolist()]
        return ["step fence", "wait for one another", "host gap", *spelled], name + 3

    def _notes(self) -> tuple[str, ...]:
        log = self.log
        known = {*COMPUTE, *TRANSFERS, *COLLECTIVES, *_LOCAL}
        seats = log.layout.dp_size * log.layout.pp_size - len(np.unique(log.rank))
        counted = [
            (seats, "places of the layout have no rank in the log"),
            (self.unmatched, "sends and receives could not be matched to compute"),
            (self.alone, "sends and receives have nobody at the other end in the log"),
            (
                self.broken,
                "operations left their rendezvous before all had come, so they do not wait there",
            ),
            (self.cut, "operations began before what they follow had ended, and were cut"),
        ]
        for name in sorted(set(log.operations) - known):
            count = int(np.count_nonzero(log.is_operation(name)))
            counted.append(
                (count, f"operations {name!r} are of an unknown kind; they meet nobody")
            )
        notes = [f"{count:,} {what}" for count, what in counted if count]
        for rendezvous in self.rendezvous:
            after = rendezvous.after.shape[1]
            more = f" ({after} more wait for them)" if after else ""
            notes.append(
                f"behind the compute, the ranks of {rendezvous.place} wait for one another{more}: "
                "inferred from times"
            )
        return tuple(notes)


class _Places:
    """Where rows are among the tasks: fences and rendezvous, then each row behind its gap.

    `enters` and `leaves` are the tasks at which edges to and from a row (or fence) begin and end.
    """

    def __init__(self, extra: int, has_gap: Flags) -> None:
        self.extra, self.total = extra, extra + len(has_gap) + int(np.count_nonzero(has_gap))
        self.rows = np.flatnonzero(has_gap)
        self.task = extra + np.arange(len(has_gap)) + np.cumsum(has_gap)
        self.gap = self.task[self.rows] - 1
        self.leaves = np.concatenate([self.task, np.arange(extra)])
        self.enters = np.concatenate([self.task - has_gap, np.arange(extra)])

    def column(
        self, of_extra: ArrayLike, of_rows: NDArray[np.integer], of_gaps: ArrayLike | None = None
    ) -> Ints:
        """A column over all tasks; gaps take after their row unless set otherwise."""
        values = np.empty(self.total, np.int64)
        values[: self.extra] = of_extra
        values[self.task] = of_rows
        gaps = np.asarray(of_rows if of_gaps is None else of_gaps)
        values[self.gap] = gaps[self.rows] if gaps.ndim else gaps
        return values


def _spell(texts: list[str], codes: Ints) -> list[str]:
    spelled: list[str] = np.asarray(texts, object)[codes].tolist()
    return spelled


def _any_with(key: Ints, rows: Ints) -> Ints:
    """The last of the chosen rows with each key, -1 where there is none."""
    found = np.full(int(key.max()) + 1, -1, np.int64)
    found[key[rows]] = rows
    return found


def _latest(group: Ints, when: Ints) -> Ints:
    """The latest time in each row's group; its own where it is in none."""
    rows = np.flatnonzero(group >= 0)
    latest = np.full(int(group.max(initial=-1)) + 1, -(2**62))
    np.maximum.at(latest, group[rows], when[rows])
    answer = when.copy()
    answer[rows] = latest[group[rows]]
    return answer
