"""Assemble: put the parts of a program together into the graph of a step, for its layout.

One rank a pipeline stage is played: ranks that differ only in data, tensor, context or expert
parallelism do the same at the same time, and what they communicate are tasks of modelled length.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import Timeline, WorkGraph
from gnomon.graph.column_types import Codes, Floats, Ints
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.sim import SlowDown, replay, sample_ends
from gnomon.systems.training.operations import FENCE
from gnomon.systems.training.prediction.layout.blocks import (
    Blocks,
    LayoutTimes,
)
from gnomon.systems.training.prediction.layout.schedule import Slots, lay_slots, split_layers
from gnomon.systems.training.prediction.layout.tape import (
    EDGE,
    EDGE_KINDS,
    HOST,
    TRANSFER,
    Laid,
    Records,
    end_to_end,
    lay,
)
from gnomon.systems.training.prediction.program import Program
from gnomon.table import Dictionary

_TALK = "communication"
#: Kinds that neighbours on other lanes do not slow.
_UNSLOWED = (_TALK, HOST, FENCE)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Assembled:
    """A step put together: its graph, and what each task stands for.

    Attributes:
        step: Number of the step a task belongs to.
        part: Code of the part it comes from, in `part_names`.
        spread_group: Code of what its time is wrong together with, in `group_names`.
        spread: Standard deviation of the logarithm of its time.
        slow_down: How much longer compute takes while communication runs beside it.
    """

    graph: WorkGraph
    steps: int
    step: Codes
    part: Codes
    part_names: Sequence[str]
    spread_group: Codes
    group_names: Sequence[str]
    spread: Floats
    slow_down: float = 1.0

    def __repr__(self) -> str:
        return f"Assembled({self.steps} x {self.graph!r})"

    def play(self, *, causes: bool = False) -> Timeline:
        """When each task starts and ends."""
        return replay(self.graph, slow_down=self._slow_down(), causes=causes)

    def _slow_down(self) -> SlowDown | None:
        if self.slow_down == 1.0 or _TALK not in self.graph.kinds:
            return None
        slowed = [kind for kind in self.graph.kinds if kind not in _UNSLOWED]
        return SlowDown({(kind, _TALK): self.slow_down for kind in slowed})

    @cached_property
    def step_ms(self) -> float:
        """Length of a step; of several the last, from the end of the one before it.

        One step alone starts with an idle device and ends with the last of its kernels; in a loop
        the host may run ahead into the next step, and ranks that are done early begin it. Two
        steps show that.
        """
        return self.step_ns(self.play()) / 1e6

    def step_ns(self, line: Timeline) -> int:
        """Length of the last step of a timeline of this graph."""
        ends = self.step_ends(line)
        return int(ends[-1] - (ends[-2] if self.steps > 1 else 0))

    def sample_step_ms(
        self, samples: int, rng: np.random.Generator | int, *, noise: float = 0.0
    ) -> Floats:
        """Lengths the step may have, given how wrong the times of its tasks may be.

        Errors of one group come together; see `gnomon.sim.sample_makespans`.
        """
        ends = sample_ends(
            self.graph, self.spread_group, self.spread, self.step, samples, rng, noise=noise
        )
        step_ns = ends[:, -1] - (ends[:, -2] if self.steps > 1 else 0)
        if self._slow_down() is None:
            return np.asarray(step_ns / 1e6, np.float64)
        # Samples are played without the slow-down; it is taken to stretch all of them alike.
        plain = self.step_ns(replay(self.graph, causes=False))
        return np.asarray(step_ns * (self.step_ms / max(plain, 1)), np.float64)

    def step_ends(self, line: Timeline) -> Ints:
        """End of each step: of the last of its tasks."""
        ends = np.zeros(self.steps, np.int64)
        # Steps are laid one after another, so each is a slice.
        border = np.searchsorted(self.step, np.arange(self.steps + 1))
        for step in range(self.steps):
            ends[step] = line.end_ns[border[step] : border[step + 1]].max(initial=0)
        return ends


def assemble(
    program: Program,
    collectives: CollectiveTimes,
    *,
    fine: bool = True,
    steps: int = 1,
    kind: str = "1f1b",
    node_gpus: int | None = None,
    first_layers: int | None = None,
    last_layers: int | None = None,
    blocking_sends: bool = False,
    slow_down: float = 1.0,
) -> Assembled:
    """The graph of a step of a program, in the layout of its configuration.

    Lanes of a rank: `host`, `compute`, those beside it that pieces name, `gradients` for what
    data-parallel ranks communicate, `send` for what goes to the next or the previous stage.

    Args:
        fine: A task for every kernel and launch; otherwise a few for each part of a pass, which
            say the same about time (within 2 % where parts join the lanes beside them) and build
            in milliseconds.
        steps: How many to lay one after another, see `Assembled.step_ms`.
        kind: Pipeline schedule, see `schedule`.
        node_gpus: GPUs of a node; the catalogue's where not given.
        first_layers, last_layers: Layers of the first and the last stage, see `split_layers`.
        blocking_sends: A stage goes on, host and all, only after what it sent has arrived, and
            its host waits for what it needs.
        slow_down: How much longer compute takes while communication runs beside it.
    """
    options = _Options(steps, kind, blocking_sends, slow_down)
    blocks = _blocks(program, collectives, options, fine, node_gpus, first_layers, last_layers)
    return _lay_steps(blocks, program.configuration.accumulation, options)


def assemble_rounds(
    program: Program,
    collectives: CollectiveTimes,
    accumulations: Iterable[int],
    *,
    blocking_sends: bool = False,
) -> list[Assembled]:
    """The coarse step of a program with other numbers of micro-batches; parts are read once."""
    options = _Options(blocking_sends=blocking_sends)
    blocks = _blocks(program, collectives, options, fine=False)
    return [_lay_steps(blocks, accumulation, options) for accumulation in accumulations]


class _Options(NamedTuple):
    steps: int = 1
    kind: str = "1f1b"
    blocking_sends: bool = False
    slow_down: float = 1.0


def _blocks(
    program: Program,
    collectives: CollectiveTimes,
    options: _Options,
    fine: bool,
    node_gpus: int | None = None,
    first_layers: int | None = None,
    last_layers: int | None = None,
) -> Blocks:
    if options.steps < 1:
        raise InputError(f"steps={options.steps}; give at least 1")
    c = program.configuration
    split = split_layers(c.layers, c.pp, c.interleave, first=first_layers, last=last_layers)
    if len(program.layer_kinds) != c.layers:
        raise InputError(f"{len(program.layer_kinds)} kinds of layers for {c.layers} layers")
    times = LayoutTimes(program, collectives, node_gpus or collectives.node_gpus)
    return Blocks(program, times, split, fine=fine)


# -- laying blocks ---------------------------------------------------------------------------


class _Skeleton(NamedTuple):
    """A laid graph without its times: the same for every program of the same shape."""

    graph: WorkGraph
    pick: Ints
    step: Codes
    part: Codes
    group: Codes
    send: Ints
    border: Ints


#: The skeletons laid last: a search puts many programs of one shape together.
_skeletons: OrderedDict[tuple[object, ...], _Skeleton] = OrderedDict()
_MOST_SKELETONS, _MOST_TASKS = 32, 200_000


def _lay_steps(blocks: Blocks, accumulation: int, options: _Options) -> Assembled:
    c = blocks.program.configuration
    slots = lay_slots(c.pp, accumulation, c.interleave, options.kind)
    tables = blocks.passes, blocks.ends
    records = end_to_end([block.tape.tasks for block in blocks.blocks])
    key = _shape(blocks, tables, records, accumulation, options)
    skeleton = _skeletons.pop(key, None)
    if skeleton is None:
        skeleton = _lay_skeleton(blocks, slots, options)
    if not blocks.fine and len(skeleton.pick) <= _MOST_TASKS:
        _skeletons[key] = skeleton
        while len(_skeletons) > _MOST_SKELETONS:
            _skeletons.popitem(last=False)
    duration = records["duration_ns"][skeleton.pick]
    spread = records["spread"][skeleton.pick]
    if len(skeleton.send):
        time, wrong = blocks.times.sends()
        duration[skeleton.send] = time[skeleton.border]
        spread[skeleton.send] = wrong[skeleton.border]
    words = blocks.words
    played = msgspec.structs.replace(c, accumulation=accumulation)
    meta = {"made_by": "assemble", "configuration": played.short()}
    graph = skeleton.graph.with_durations(duration).replace(meta=meta)
    return Assembled(
        graph, options.steps, skeleton.step, skeleton.part,
        tuple(words.parts), skeleton.group, tuple(words.groups), spread, options.slow_down,
    )  # fmt: skip


def _shape(
    blocks: Blocks,
    tables: tuple[Ints, Ints],
    records: Records,
    accumulation: int,
    options: _Options,
) -> tuple[object, ...]:
    """All that a skeleton depends on."""
    edges = end_to_end([block.tape.edges for block in blocks.blocks], EDGE)
    # Field by field: what lies between the fields of a record is anything.
    fields = [records[name] for name in ("lane", "kind", "label", "layer", "part", "group")]
    fields += [edges[name] for name in ("source", "target", "kind")]
    words = blocks.words
    texts = (words.lanes, words.kinds, words.labels, words.parts, words.groups)
    c = blocks.program.configuration
    return (
        b"".join(field.tobytes() for field in fields),
        tuple(len(block.tape) for block in blocks.blocks),
        tuple(tuple(table) for table in texts),
        tuple(table.tobytes() for table in tables),
        tuple(blocks.split),
        (c.pp, c.interleave, accumulation),
        options._replace(slow_down=1.0),
    )


def _lay_skeleton(blocks: Blocks, slots: Slots, options: _Options) -> _Skeleton:
    steps = options.steps
    which, rank = _which(blocks, slots)
    c = blocks.program.configuration
    laid = lay([block.tape for block in blocks.blocks], np.tile(which, steps))
    base = laid.base.reshape(steps, len(which))
    length = np.asarray([len(block.tape) for block in blocks.blocks])[which]
    links = _links(blocks, slots, which, base, options.blocking_sends)
    tasks = laid.tasks
    # Layers were counted from the first of each chunk; ends count the rank's layers.
    layer_base = np.concatenate(
        [blocks.layer_of[slots.chunk * c.pp + slots.rank], blocks.layer_of[: c.pp]]
    )
    tasks["layer"] += np.where(
        tasks["layer"] >= 0, np.tile(np.repeat(layer_base, length), steps), 0
    ).astype(np.int32)
    send, border = _sends(blocks, slots, which, base)
    return _Skeleton(
        _to_graph(blocks, laid, np.tile(np.repeat(rank, length), steps), links),
        laid.pick,
        np.repeat(np.arange(steps, dtype=np.int32), int(length.sum())),
        np.ascontiguousarray(tasks["part"]),
        np.ascontiguousarray(tasks["group"]),
        send,
        border,
    )


def _which(blocks: Blocks, slots: Slots) -> tuple[Ints, Codes]:
    """The block of every slot and of every rank's end, and their ranks."""
    pp = blocks.program.configuration.pp
    chunk = slots.chunk * pp + slots.rank
    is_last = slots.micro_batch == slots.micro_batch.max()
    passes = blocks.passes[chunk, slots.is_forward.astype(int), is_last.astype(int)]
    ranks = np.concatenate([slots.rank, np.arange(pp, dtype=np.int32)])
    return np.concatenate([passes, blocks.ends]), ranks


def _sends(blocks: Blocks, slots: Slots, which: Ints, base: Ints) -> tuple[Ints, Ints]:
    """Tasks that send, and the border between stages that each crosses."""
    pp = blocks.program.configuration.pp
    send = np.asarray([block.send for block in blocks.blocks])[which]
    sending = np.flatnonzero(send >= 0)
    rank = slots.rank[sending].astype(np.int64)
    border = np.where(slots.is_forward[sending], rank, (rank - 1) % pp)
    return (base[:, sending] + send[sending]).reshape(-1), np.tile(border, len(base))


def _links(
    blocks: Blocks, slots: Slots, which: Ints, base: Ints, blocking_sends: bool
) -> tuple[Ints, Ints]:
    """Edges from what was sent to the pass that needs it."""
    send = np.asarray([block.send for block in blocks.blocks])[which]
    first = np.asarray([block.first for block in blocks.blocks])[which]
    needs = np.flatnonzero(slots.sender >= 0)
    sender = slots.sender[needs]
    across = slots.rank[sender] != slots.rank[needs]
    sender, needs = sender[across], needs[across]
    target = first[needs]
    if blocking_sends:
        after, before = _next_of_rank(slots, len(which))
        sends = send[before] >= 0
        sender = np.concatenate([sender, before[sends]])
        needs = np.concatenate([needs, after[sends]])
        first_host = np.asarray([block.first_host for block in blocks.blocks])[which]
        target = np.concatenate([first[needs], first_host[needs]])
        sender, needs = np.tile(sender, 2), np.tile(needs, 2)
    is_there = target >= 0
    sender, needs, target = sender[is_there], needs[is_there], target[is_there]
    return (base[:, sender] + send[sender]).reshape(-1), (base[:, needs] + target).reshape(-1)


def _next_of_rank(slots: Slots, blocks: int) -> tuple[Ints, Ints]:
    """Pairs of blocks that follow one another on a rank, ends of ranks included."""
    pp = blocks - len(slots)
    rank = np.concatenate([slots.rank, np.arange(pp)])
    order = np.argsort(rank, kind="stable")
    same = rank[order][1:] == rank[order][:-1]
    return order[1:][same], order[:-1][same]


class _Names(Sequence[str]):
    """Names of tasks by label and layer, made when somebody looks."""

    def __init__(self, labels: Sequence[str], layers: int) -> None:
        self._labels, self._layers = labels, layers

    def __len__(self) -> int:
        return len(self._labels) * (self._layers + 1)

    def __getitem__(self, code: Any) -> Any:
        label, layer = divmod(code, self._layers + 1)
        # Names of kernels may hold braces of their own: only the first are ours.
        return self._labels[label].replace("{}", str(layer - 1), 1 if layer else 0)


def _to_graph(blocks: Blocks, laid: Laid, ranks: Codes, links: tuple[Ints, Ints]) -> WorkGraph:
    words, tasks, edges = blocks.words, laid.tasks, laid.edges
    c = blocks.program.configuration
    lanes = [f"rank {r}/{_lane_name(lane)}" for r in range(c.pp) for lane in words.lanes]
    edge_kind = np.concatenate([edges["kind"], np.full(len(links[0]), TRANSFER, np.uint8)])
    names = _Names(list(words.labels), c.layers)
    code = tasks["label"].astype(np.int64) * (c.layers + 1) + tasks["layer"] + 1
    return WorkGraph.from_columns(
        tasks["lane"] + ranks * np.int32(len(words.lanes)),
        np.zeros(len(tasks), np.int64),
        Dictionary(tasks["kind"], list(words.kinds)),
        Dictionary(code, names),
        (
            np.concatenate([edges["source"], links[0]]),
            np.concatenate([edges["target"], links[1]]),
            Dictionary(edge_kind, EDGE_KINDS),
        ),
        lanes=lanes,
        bytes=tasks["bytes"] if blocks.fine else None,
        flops=tasks["flops"] if blocks.fine else None,
        rank=ranks,
    )


def _lane_name(lane: str) -> str:
    return lane if lane == HOST else f"gpu {lane}"
