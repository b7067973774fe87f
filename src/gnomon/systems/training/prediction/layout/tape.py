"""Tape: a stretch of one rank's step as task records, ready to be laid one after another.

A tape refers to lanes by role ("host", "compute", ...), not by rank, so that one tape serves every
rank and micro-batch that runs the same. Tapes need no links to one another: what comes before on a
lane is settled by lane order, and where one lane waits for another a record of no length (a fence)
on the awaited lane stands for all work it was given so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph import LAUNCH
from gnomon.graph.column_types import Ints
from gnomon.systems.training.operations import FENCE
from gnomon.systems.training.prediction.program import Part, Piece

COMPUTE, HOST = "compute", "host"
_COMPUTE_LANE = 1

TASK = np.dtype(
    [
        ("lane", np.int32), ("kind", np.uint8), ("label", np.int32), ("layer", np.int32),
        ("part", np.int32), ("group", np.int32), ("duration_ns", np.float64),
        ("spread", np.float64), ("bytes", np.float64), ("flops", np.float64),
    ],
    align=True,
)  # fmt: skip
EDGE = np.dtype([("source", np.int64), ("target", np.int64), ("kind", np.uint8)], align=True)
Records = NDArray[Any]

#: Edges: a launch, a wait for a lane's work so far, work beside what came before it, a transfer.
EDGE_KINDS = (LAUNCH, "join", "beside", "transfer")
_LAUNCH, JOIN, BESIDE, TRANSFER = range(4)
#: Layer of a record that belongs to none, and of one whose layer is filled in by `join`.
_NO_LAYER, _SOME_LAYER = -1, 0


class Words:
    """The texts of a program, each once: lanes, kinds, labels, parts and groups of errors."""

    def __init__(self) -> None:
        self.lanes: dict[str, int] = {HOST: 0, COMPUTE: _COMPUTE_LANE}
        self.kinds: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.parts: dict[str, int] = {}
        self.groups: dict[str, int] = {}

    @staticmethod
    def code(table: dict[str, int], text: str) -> int:
        """The number of a text, given when it is new."""
        return table.setdefault(text, len(table))


class Tape(msgspec.Struct, frozen=True, eq=False):
    """Records of one stretch, and the edges among them.

    Attributes:
        hangs: The first record starts after the compute record before this tape.
        first, last: Record of the compute lane, -1 for none.
    """

    tasks: Records
    edges: Records
    hangs: bool = False
    first: int = -1
    last: int = -1

    def __post_init__(self) -> None:
        at = (self.tasks["lane"] == _COMPUTE_LANE).nonzero()[0]
        if len(at):
            msgspec.structs.force_setattr(self, "first", int(at[0]))
            msgspec.structs.force_setattr(self, "last", int(at[-1]))

    def __len__(self) -> int:
        return len(self.tasks)


class Writer:
    """Writes a tape record by record."""

    def __init__(self, words: Words, part: str, *, layered: bool = False) -> None:
        self.words = words
        self._part = words.code(words.parts, part)
        self._layer = _SOME_LAYER if layered else _NO_LAYER
        self._tasks: list[tuple[Any, ...]] = []
        self._edges: list[tuple[int, int, int]] = []

    def task(
        self, lane: str, duration_ns: float, kind: str, label: str, group: str = "",
        spread: float = 0.0, bytes: float = 0.0, flops: float = 0.0,
    ) -> int:  # fmt: skip
        """Adds a record and returns its index."""
        words, code = self.words, self.words.code
        self._tasks.append(
            (
                code(words.lanes, lane), code(words.kinds, kind), code(words.labels, label),
                self._layer, self._part, code(words.groups, group or kind), duration_ns, spread,
                bytes, flops,
            )
        )  # fmt: skip
        return len(self._tasks) - 1

    def fence(self, lane: str) -> int:
        """A record without length: what it is linked to waits for the lane's work so far."""
        return self.task(lane, 0.0, FENCE, f"wait for {lane}")

    def edge(self, source: int, target: int, kind: int) -> None:
        """The target starts after the source has ended."""
        self._edges.append((source, target, kind))

    def build(self, *, hangs: bool = False) -> Tape:
        """The tape."""
        return Tape(np.array(self._tasks, TASK), np.array(sorted(self._edges), EDGE), hangs)


def write_part(words: Words, name: str, part: Part) -> Tape:
    """Every piece of a part: one record on the host, one on its lane of the device."""
    label, layered = _label(name)
    write = Writer(words, name, layered=layered)
    host = compute = -1
    launched: set[str] = set()
    for piece in part:
        fences = [write.fence(lane) for lane in piece.joins]
        if piece.host_ns > 0 or piece.family == "host":
            host = write.task(HOST, piece.host_ns, HOST, f"{label} · launch {piece.name}")
            launched.clear()
        if piece.family == "host":
            for fence in fences:
                write.edge(fence, host, JOIN)
            continue
        if piece.lane != COMPUTE and compute < 0:
            compute = write.fence(COMPUTE)
        at = write.task(
            piece.lane, piece.device_ns, piece.family, f"{label} · {_title(piece)}",
            f"{piece.family}, {piece.model}", piece.spread, piece.bytes, piece.flops,
        )  # fmt: skip
        if host >= 0 and piece.lane not in launched:
            write.edge(host, at, _LAUNCH)
            launched.add(piece.lane)
        for fence in fences:
            write.edge(fence, at, JOIN)
        if piece.lane == COMPUTE:
            compute = at
        else:
            write.edge(compute, at, BESIDE)
    return write.build()


def _title(piece: Piece) -> str:
    return piece.name if piece.name.startswith(piece.family) else f"{piece.family} {piece.name}"


def _label(part: str) -> tuple[str, bool]:
    """How a part is called in names, and whether it belongs to a layer (then with its number).

    >>> _label("layer.forward"), _label("optimizer.dense"), _label("head.backward")
    (('layer {} forward', True), ('dense layer {} optimizer', True), ('head backward', False))
    """
    first, _, second = part.partition(".")
    if first == "optimizer":
        first, second = second, first
    if first in ("embedding", "head", "step"):
        return f"{first} {second}", False
    kind = "layer" if first == "layer" else f"{first} layer"
    return f"{kind} {{}} {second}", True


# -- a part many times, as few records -------------------------------------------------------


class Sums(NamedTuple):
    """What a part adds up to; times in nanoseconds.

    `alone` is how long the part takes when host and device start it idle; `beside` has the time
    and spread of the work on other lanes, by lane and kind.
    """

    host: float
    alone: float
    compute: float
    talk: float
    compute_spread: float
    talk_spread: float
    beside: Mapping[tuple[str, str], tuple[float, float]]
    flops: float


def sum_part(part: Part) -> Sums:
    """Adds the pieces of a part up.

    Spreads of one family and model add, those of different ones add as squares.
    """
    host = flops = ahead = 0.0
    time = {False: 0.0, True: 0.0}
    wrong: dict[bool, dict[tuple[str, str], float]] = {False: {}, True: {}}
    beside: dict[tuple[str, str], tuple[float, float]] = {}
    for piece in part:
        host += piece.host_ns
        if piece.family == "host":
            continue
        flops += piece.flops
        talks = piece.family == "communication"
        if piece.lane != COMPUTE:
            key = (piece.lane, "communication" if talks else COMPUTE)
            sofar, spread = beside.get(key, (0.0, 0.0))
            beside[key] = (sofar + piece.device_ns, max(spread, piece.spread))
            continue
        # The device is never further than the launches: how far it is behind its own work.
        ahead = max(ahead, host - time[False] - time[True])
        time[talks] += piece.device_ns
        of, group = wrong[talks], (piece.family, piece.model)
        of[group] = of.get(group, 0.0) + piece.spread * piece.device_ns
    spreads = [
        float(np.sqrt(sum(w * w for w in wrong[talks].values()))) / time[talks]
        if time[talks] else 0.0
        for talks in (False, True)
    ]  # fmt: skip
    return Sums(
        host, max(host, ahead + time[False] + time[True]), time[False], time[True],
        spreads[0], spreads[1], beside, flops,
    )  # fmt: skip


def write_run(words: Words, name: str, sums: Sums, count: int, waits_ns: float = 0.0) -> Tape:
    """A part run `count` times in a row, as few records with the same sums.

    From a start with host and device idle the run takes `(count - 1) max(host, device)` and the
    time of the part alone: there is one slowest way from launches to kernels in every part. So the
    device waits for a first launch of `alone - device`, and what follows the last launch is
    `alone - host`.

    Args:
        waits_ns: Time the compute lane spends waiting for lanes beside it.
    """
    label, _ = _label(name)
    label = label.replace("layer {}", "layers" if count > 1 else "layer")
    if count > 1:
        label += f" x {count}"
    write = Writer(words, name)
    talk, compute = count * sums.talk, count * sums.compute + waits_ns
    has_host = sums.host > 0
    launch = begin = -1
    tail, tail_kind = 0.0, COMPUTE
    if has_host:
        first = max(0.0, sums.alone - sums.compute - sums.talk)
        launch = write.task(HOST, first, HOST, f"{label} · first launch")
        tail_kind = COMPUTE if compute >= talk else "communication"
        tail = min(sums.alone - sums.host, max(compute, talk))
        compute, talk = (compute - tail, talk) if compute >= talk else (compute, talk - tail)
    if sums.beside:
        begin = write.fence(COMPUTE)
    main = write.task(
        COMPUTE, compute, COMPUTE, f"{label} · compute", "", sums.compute_spread, 0.0,
        count * sums.flops,
    )  # fmt: skip
    if has_host:
        write.edge(launch, main, _LAUNCH)
    for (lane, kind), (time, spread) in sums.beside.items():
        at = write.task(lane, count * time, kind, f"{label} · {lane}", "", spread)
        write.edge(begin, at, BESIDE)
        if has_host:
            write.edge(launch, at, _LAUNCH)
    if talk > 0:
        write.task(
            COMPUTE, talk, "communication", f"{label} · communication", "", sums.talk_spread
        )
    if has_host:
        rest = write.task(HOST, count * sums.host - first, HOST, f"{label} · launches")
        spread = sums.compute_spread if tail_kind == COMPUTE else sums.talk_spread
        end = write.task(COMPUTE, tail, tail_kind, f"{label} · last kernels", "", spread)
        write.edge(rest, end, _LAUNCH)
    return write.build()


# -- laying tapes ----------------------------------------------------------------------------


def join(tapes: Sequence[Tape], layers: Sequence[int] | None = None) -> Tape:
    """Tapes one after another as one; `layers` gives the number of each that belongs to one."""
    if not tapes:
        return Tape(np.empty(0, TASK), np.empty(0, EDGE))
    tasks = end_to_end([tape.tasks for tape in tapes], TASK)
    edges = end_to_end([tape.edges for tape in tapes], EDGE)
    base = np.cumsum([0, *(len(tape) for tape in tapes[:-1])])
    shift = np.repeat(base, [len(tape.edges) for tape in tapes])
    edges["source"] += shift
    edges["target"] += shift
    if layers is not None:
        number = np.repeat(np.asarray(layers, np.int32), [len(tape) for tape in tapes])
        tasks["layer"] = np.where(tasks["layer"] == _NO_LAYER, _NO_LAYER, number)
    hanging = [pair for pair in _hangs(tapes, base.tolist()) if pair[0] >= 0]
    if hanging:
        more = np.array([(source, target, BESIDE) for source, target in hanging], EDGE)
        edges = end_to_end([edges, more], EDGE)
        edges = edges[np.argsort(edges["source"], kind="stable")]
    return Tape(tasks, edges)


def _hangs(tapes: Sequence[Tape], bases: Sequence[int]) -> Iterable[tuple[int, int]]:
    before = -1
    for tape, base in zip(tapes, bases):
        if tape.hangs:
            yield before, base
        last = tape.last
        if last >= 0:
            before = base + last


class Laid(NamedTuple):
    """Tapes laid one after another.

    `base` is where each begins, `pick` the row of each record in all tapes end to end.
    """

    tasks: Records
    edges: Records
    base: Ints
    pick: Ints


def lay(tapes: Sequence[Tape], which: NDArray[Any]) -> Laid:
    """Lays tapes by number, each as often as it is named; no Python work a record."""
    tasks = end_to_end([tape.tasks for tape in tapes], TASK)
    edges = end_to_end([tape.edges for tape in tapes], EDGE)
    pick, base, _ = _spread_out([len(tape.tasks) for tape in tapes], which)
    edge_pick, _, edge_count = _spread_out([len(tape.edges) for tape in tapes], which)
    laid_edges = _rows(edges, edge_pick)
    shift = np.repeat(base, edge_count)
    laid_edges["source"] += shift
    laid_edges["target"] += shift
    return Laid(_rows(tasks, pick), laid_edges, base, pick)


def _rows(records: Records, pick: Ints) -> Records:
    """Rows of records. As plain bytes: numpy copies records field by field, ten times slower."""
    whole = records.view(np.dtype((np.void, records.dtype.itemsize)))
    return np.take(whole, pick).view(records.dtype)


def end_to_end(arrays: Sequence[Records], dtype: np.dtype[Any] = TASK) -> Records:
    """Records one after another; numpy's own way compares the fields of every two arrays."""
    whole = np.empty(sum(map(len, arrays)), dtype)
    begin = 0
    for array in arrays:
        whole[begin : begin + len(array)] = array
        begin += len(array)
    return whole


def _spread_out(lengths: Sequence[int], which: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Rows to pick so that stretches of a column come one after another, and where each begins."""
    length = np.asarray(lengths, np.int64)
    start = np.cumsum(length) - length
    count = length[which]
    base = np.cumsum(count) - count
    pick = np.arange(int(count.sum()), dtype=np.int64)
    pick += np.repeat(start[which] - base, count)
    return pick, base, count
