"""Blocks: what a rank runs in one go, as tapes: a pass through a chunk, the end of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np

from gnomon.errors import InputError
from gnomon.graph import WorkGraph
from gnomon.graph.column_types import Floats, Ints
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.sim import replay
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.placement import members_per_node, stages_share_node
from gnomon.systems.training.prediction.layout.tape import (
    COMPUTE,
    HOST,
    JOIN,
    Sums,
    Tape,
    Words,
    Writer,
    join,
    sum_part,
    write_part,
    write_run,
)
from gnomon.systems.training.prediction.memory import expert_copies
from gnomon.systems.training.prediction.program import Part, Program

GRADIENTS, SEND = "gradients", "send"
_TALK = "communication"
_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0}
_NS = 1e3  # a microsecond
_HOST_LANE = Words().lanes[HOST]


def gradient_buckets(
    program: Program, kinds: Sequence[str], *, experts: bool = False
) -> list[tuple[int, float]]:
    """Where buckets of gradients are full: (items done by then, bytes), in backward order.

    Args:
        kinds: What the backward pass goes through: "head", kinds of layers, "embedding".
        experts: Buckets of the experts' gradients rather than of all others'.
    """
    buckets, held = [], 0.0
    for done, kind in enumerate(kinds, start=1):
        held += _parameters(program, kind, experts) * program.gradient_bytes
        if held > 0 and (held >= program.bucket_bytes or done == len(kinds)):
            buckets.append((done, held))
            held = 0.0
    return buckets


def _parameters(program: Program, kind: str, experts: bool) -> float:
    own = program.expert_parameters.get(kind, 0.0)
    return own if experts else program.parameters.get(kind, 0.0) - own


class LayoutTimes:
    """Times of what ranks communicate in this layout.

    Attributes:
        copies: Ranks that hold the same parameters: of all but experts, and of experts.
    """

    def __init__(self, program: Program, collectives: CollectiveTimes, node_gpus: int) -> None:
        self._program, self._collectives, self._node_gpus = program, collectives, node_gpus
        self._configuration = c = program.configuration
        self.copies = (c.dp * c.cp, expert_copies(c))
        self._per_node = (
            members_per_node(c, "gradients", node_gpus), _experts_per_node(c, node_gpus)
        )  # fmt: skip

    def reduces(self, program: Program) -> bool:
        """Whether any gradients are reduced."""
        return self.copies[0] > 1 or (self.copies[1] > 1 and bool(program.expert_parameters))

    def gradient(self, kind: str, size: float, experts: bool) -> tuple[float, float]:
        """Nanoseconds and spread of a collective among the ranks that hold the same parameters."""
        copies, per_node = self.copies[experts], self._per_node[experts]
        time = self._collectives.time_us(
            kind, size, copies, node_gpus=self._node_gpus, per_node=per_node
        )
        crosses = per_node < copies
        return float(time) * _NS, self._collectives.spread(kind, crosses)

    def sends(self) -> tuple[Floats, Floats]:
        """Nanoseconds and spread of a transfer from each stage to the next (and back)."""
        c = self._configuration
        shares = np.array([stages_share_node(c, s, self._node_gpus) for s in range(c.pp)])
        size = self._program.boundary_bytes
        both = self._collectives.time_us(
            "send", np.full(2, size), 2, node_gpus=self._node_gpus, per_node=np.array([1, 2])
        )
        spread = [self._collectives.spread("send", crosses) for crosses in (True, False)]
        return both[shares.astype(int)] * _NS, np.asarray(spread)[shares.astype(int)]


def _experts_per_node(c: Configuration, node_gpus: int) -> int:
    """How many of the ranks that hold the same experts share a node.

    Ranks that share the experts out are `tp` apart (see `placement`), so the tensor-parallel ranks
    between hold the same ones, unless there are too few others to share them out.
    """
    neighbours = min(c.tp, node_gpus) if c.ep <= c.dp * c.cp else 1
    return min(expert_copies(c), max(neighbours, node_gpus // c.ep))


class Block:
    """A tape with the places that other blocks are linked to."""

    def __init__(self, tape: Tape, send: int = -1) -> None:
        self.tape, self.send, self.first = tape, send, tape.first
        on_host = np.flatnonzero(tape.tasks["lane"] == _HOST_LANE)
        self.first_host = int(on_host[0]) if len(on_host) else -1


class Blocks:
    """Makes each distinct block of a program once."""

    def __init__(
        self, program: Program, times: LayoutTimes, split: Sequence[int], *, fine: bool
    ) -> None:
        self.program, self.times, self.split, self.fine = program, times, split, fine
        self.words = Words()
        self.words.lanes |= {GRADIENTS: 2, SEND: 3}
        self.layer_of = np.concatenate([[0], np.cumsum(split)])
        self._parts: dict[str, Tape] = {}
        self._sums: dict[str, Sums] = {}
        self._runs: dict[tuple[str, int], Tape] = {}
        self._collectives: dict[tuple[str, float, bool], Tape] = {}
        self._made: dict[tuple[object, ...], int] = {}
        self.blocks: list[Block] = []

    @cached_property
    def passes(self) -> Ints:
        """The block of a pass: by chunk, backward or forward, and whether it is the last."""
        table = np.empty((len(self.split), 2, 2), np.int64)
        alike: dict[tuple[object, ...], int] = {}
        last = len(self.split) - 1
        for chunk in range(len(self.split)):
            kinds = self._kinds(chunk)
            same = alike.setdefault((kinds, chunk == 0, chunk == last), chunk)
            if same < chunk:
                table[chunk] = table[same]
                continue
            for is_forward in (False, True):
                for is_last in (False, True):
                    table[chunk, int(is_forward), int(is_last)] = self._number_of_pass(
                        chunk, kinds, is_forward, is_last
                    )
        return table

    @cached_property
    def ends(self) -> Ints:
        """The block of what each rank does after its last backward pass."""
        # After the passes: by then all lanes beside compute are known, and this waits for them.
        assert len(self.passes)
        pp = self.program.configuration.pp
        return np.asarray([self._number_of_end(rank, pp) for rank in range(pp)])

    def _number_of_pass(
        self, chunk: int, kinds: tuple[str, ...], is_forward: bool, is_last: bool
    ) -> int:
        sends = chunk < len(self.split) - 1 if is_forward else chunk > 0
        sends = sends and self.program.configuration.pp > 1
        reduces = self._overlaps and is_last and not is_forward
        key = (kinds, is_forward, sends, reduces)
        if key not in self._made:
            names = _names(kinds, is_forward)
            self._made[key] = self._keep(self._pass(names, sends, reduces))
        return self._made[key]

    def _number_of_end(self, rank: int, pp: int) -> int:
        chunks, first = range(rank, len(self.split), pp), int(self.layer_of[rank])
        held = tuple(
            (kind, layer - first)
            for chunk in chunks
            for kind, layer in zip(self._kinds(chunk), self._numbers(chunk))
        )
        key = ("end", held)
        if key not in self._made:
            self._made[key] = self._keep(Block(self._end(held)))
        return self._made[key]

    @property
    def _overlaps(self) -> bool:
        return self.program.overlap_gradients and self.times.reduces(self.program)

    def _keep(self, block: Block) -> int:
        self.blocks.append(block)
        return len(self.blocks) - 1

    def _kinds(self, chunk: int) -> tuple[str, ...]:
        """Ends of the model and kinds of the layers of a chunk, in forward order."""
        layers = self.program.layer_kinds[self.layer_of[chunk] : self.layer_of[chunk + 1]]
        first = ("embedding",) if chunk == 0 else ()
        last = ("head",) if chunk == len(self.split) - 1 else ()
        return (*first, *layers, *last)

    def _numbers(self, chunk: int) -> list[int]:
        """Layers beside `_kinds`; an end of the model has its neighbour's number."""
        layers = list(range(self.layer_of[chunk], self.layer_of[chunk + 1]))
        first = layers[:1] if chunk == 0 else []
        last = layers[-1:] if chunk == len(self.split) - 1 else []
        return first + layers + last

    def _pass(self, names: tuple[str, ...], sends: bool, reduces: bool) -> Block:
        tapes, layers = [], []
        done = 0
        is_forward = names[0].endswith("forward")
        for stretch, buckets in self._stretches(names, reduces):
            for tape, layer in self._tapes(names, done, stretch, is_forward):
                tapes.append(tape)
                layers.append(layer)
            done += stretch
            for experts, size in buckets:
                tapes.append(self._reduction(size, experts))
                layers.append(0)
        if sends:
            tapes.append(self._send("forward" if is_forward else "backward"))
            layers.append(0)
        tape = join(tapes, layers)
        return Block(tape, len(tape) - 1 if sends else -1)

    def _stretches(
        self, names: Sequence[str], reduces: bool
    ) -> Iterator[tuple[int, list[tuple[bool, float]]]]:
        """Items up to each full bucket, and what is reduced then: whether experts', and bytes."""
        full: dict[int, list[tuple[bool, float]]] = {}
        kinds = [n.split(".")[0] for n in names]
        for experts in (False, True) if reduces else ():
            if self.times.copies[experts] > 1:
                for done, size in gradient_buckets(self.program, kinds, experts=experts):
                    full.setdefault(done, []).append((experts, size))
        before = 0
        for done in sorted(full.keys() | {len(names)}):
            yield done - before, full.get(done, [])
            before = done

    def _tapes(
        self, names: Sequence[str], start: int, count: int, is_forward: bool
    ) -> Iterator[tuple[Tape, int]]:
        """Tapes of some items, each with its layer, counted from the chunk's first."""
        chosen = names[start : start + count]
        if not self.fine:
            for name, run in groupby(chosen):
                yield self._run(name, len(list(run))), 0
            return
        at_first = names[0 if is_forward else -1].startswith("embedding.")
        for i, name in enumerate(chosen, start=start):
            place = i if is_forward else len(names) - 1 - i
            yield self._part(name), place - at_first

    def _part(self, name: str) -> Tape:
        if name not in self._parts:
            self._parts[name] = write_part(self.words, name, self._pieces(name))
        return self._parts[name]

    def _pieces(self, name: str) -> Part:
        if name not in self.program.parts:
            known = ", ".join(self.program.parts)
            raise InputError(f"the program has no part {name!r}; it has {known}")
        return self.program.parts[name]

    def _run(self, name: str, count: int) -> Tape:
        if (name, count) not in self._runs:
            self._runs[name, count] = self._write_run(name, count)
        return self._runs[name, count]

    def _write_run(self, name: str, count: int) -> Tape:
        pieces = self._pieces(name)
        if any(piece.family == "host" and piece.joins for piece in pieces):
            # The host waits for the device in the midst of it: sums would lose that.
            return join([self._part(name)] * count)
        if name not in self._sums:
            self._sums[name] = sum_part(pieces)
        sums = self._sums[name]
        waits = self._waits_ns(name, sums, count) if sums.beside else 0.0
        return write_run(self.words, name, sums, count, waits)

    def _waits_ns(self, name: str, sums: Sums, count: int) -> float:
        """What the compute lane waits for lanes beside it when a part runs often in a row."""
        tape = join([self._part(name)] * count)
        alone = tape.tasks["duration_ns"] * (tape.tasks["lane"] != self.words.lanes[HOST])
        line = replay(_graph_of(tape, alone, len(self.words.lanes)), causes=False)
        end = int(line.end_ns[tape.last]) if tape.last >= 0 else 0
        return max(0.0, end - count * (sums.compute + sums.talk))

    def _reduction(self, size: float, experts: bool) -> Tape:
        kind = "reduce-scatter" if self.program.shard_optimizer else "all-reduce"
        return self._collective(kind, size, experts, "gradients")

    def _collective(self, kind: str, size: float, experts: bool, what: str) -> Tape:
        key = (kind, size, experts)
        if key not in self._collectives:
            whose = f"experts' {what}" if experts else what
            write = Writer(self.words, what)
            time, spread = self.times.gradient(kind, size, experts)
            group = f"{_TALK}, {kind}"
            write.task(GRADIENTS, time, _TALK, f"{kind} of {whose}", group, spread, size)
            self._collectives[key] = write.build(hangs=True)
        return self._collectives[key]

    def _send(self, direction: str) -> Tape:
        # How long depends on who sends: filled in when the blocks are laid.
        write = Writer(self.words, "transfer")
        label = "send activations" if direction == "forward" else "send gradients"
        write.task(SEND, 0.0, _TALK, label, f"{_TALK}, send", 0.0, self.program.boundary_bytes)
        return write.build(hangs=True)

    def _end(self, held: Sequence[tuple[str, int]]) -> Tape:
        program = self.program
        shared_out = self._shared_out(held)
        before: list[Tape] = []
        if shared_out and not program.overlap_gradients:
            before.append(self._backward_done())
            before += [self._reduction(n * program.gradient_bytes, e) for e, n in shared_out]
        before.append(self._wait_beside())
        after: list[Tape] = []
        if shared_out and program.shard_optimizer:
            wide = _BYTES.get(program.configuration.dtype, 2.0)
            after = [
                self._collective("all-gather", n * wide, e, "parameters") for e, n in shared_out
            ]
            after.append(self._wait_beside())
        updates = list(self._optimizer(held))
        layers = [0] * len(before) + [layer for _, layer in updates] + [0] * len(after)
        return join([*before, *(tape for tape, _ in updates), *after], layers)

    def _shared_out(self, held: Sequence[tuple[str, int]]) -> list[tuple[bool, float]]:
        """Parameters that other ranks hold too: whether experts', and how many."""
        found = []
        for experts in (False, True):
            number = sum(_parameters(self.program, kind, experts) for kind, _ in held)
            if number > 0 and self.times.copies[experts] > 1:
                found.append((experts, number))
        return found

    def _optimizer(self, held: Sequence[tuple[str, int]]) -> Iterator[tuple[Tape, int]]:
        """What updates the parameters that a rank holds, with layers from its first."""
        updates = [*((f"optimizer.{kind}", layer) for kind, layer in held), ("optimizer.step", 0)]
        if self.fine:
            yield from ((self._part(name), layer) for name, layer in updates)
            return
        for name, run in groupby(name for name, _ in updates):
            yield self._run(name, len(list(run))), 0

    def _backward_done(self) -> Tape:
        write = Writer(self.words, "wait")
        write.fence(COMPUTE)
        return write.build()

    def _wait_beside(self) -> Tape:
        """Compute goes on after all that runs beside it: gradients and the lanes of pieces."""
        write = Writer(self.words, "wait")
        lanes = [lane for lane in self.words.lanes if lane not in (HOST, COMPUTE, SEND)]
        fences = [write.fence(lane) for lane in lanes]
        done = write.fence(COMPUTE)
        for fence in fences:
            write.edge(fence, done, JOIN)
        return write.build()


def _names(kinds: Sequence[str], is_forward: bool) -> tuple[str, ...]:
    """Parts that a pass runs, in its order."""
    if is_forward:
        return tuple(f"{kind}.forward" for kind in kinds)
    return tuple(f"{kind}.backward" for kind in reversed(kinds))


def _graph_of(tape: Tape, duration_ns: Floats, lanes: int) -> WorkGraph:
    edges = tape.edges
    return WorkGraph.from_columns(
        tape.tasks["lane"], duration_ns, edges=(edges["source"], edges["target"]),
        lanes=[str(lane) for lane in range(lanes)],
    )  # fmt: skip
