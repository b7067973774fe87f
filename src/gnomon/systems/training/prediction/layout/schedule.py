"""Schedule: in which order the ranks of a pipeline run their micro-batches."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph import WorkGraph
from gnomon.graph.column_types import Codes, Flags, Ints
from gnomon.sim import replay

#: One forward, one backward (interleaved when a rank has several chunks), and all forward first.
KINDS = ("1f1b", "gpipe")


class Order(msgspec.Struct, frozen=True, eq=False):
    """What one pipeline rank runs, first to last; a row a pass of one micro-batch through a chunk.

    Attributes:
        is_forward: Forward or backward pass.
        micro_batch: Of which micro-batch.
        chunk: Through which of the rank's chunks of layers.
    """

    is_forward: Flags
    micro_batch: Codes
    chunk: Codes

    def __len__(self) -> int:
        return len(self.is_forward)


class Slots(msgspec.Struct, frozen=True, eq=False):
    """The passes of all ranks in one order in which each comes after what it needs.

    Attributes:
        rank, is_forward, micro_batch, chunk: What runs in the slot.
        sender: The slot whose result the pass needs from another rank, -1 for none.
        sends: Whether another rank needs the result of this one.
    """

    rank: Codes
    is_forward: Flags
    micro_batch: Codes
    chunk: Codes
    sender: Ints
    sends: Flags

    def __len__(self) -> int:
        return len(self.rank)


def schedule(pp: int, micro_batches: int, interleave: int = 1, kind: str = "1f1b") -> list[Order]:
    """The order of each pipeline rank.

    `1f1b` warms up with as many forward passes as there are ranks after it, then takes turns.
    With several chunks a rank it is the interleaved schedule of Narayanan et al. (SC 2021,
    section 2.2): micro-batches go through in groups of `pp`, chunk after chunk, and the warm-up is
    `2 (pp - rank - 1) + (interleave - 1) pp` passes. `gpipe` runs all forward passes first.

    >>> first, last = schedule(2, 3)
    >>> "".join("F" if f else "B" for f in first.is_forward), first.micro_batch.tolist()
    ('FFBFBB', [0, 1, 0, 2, 1, 2])
    >>> "".join("F" if f else "B" for f in last.is_forward)
    'FBFBFB'
    """
    _check(pp, micro_batches, interleave, kind)
    return [_order(pp, micro_batches, interleave, kind, rank) for rank in range(pp)]


def _check(pp: int, micro_batches: int, interleave: int, kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f"no schedule {kind!r}; there are {', '.join(KINDS)}")
    for name, value in (("pp", pp), ("micro_batches", micro_batches), ("interleave", interleave)):
        if value < 1:
            raise InputError(f"{name} has to be at least 1, not {value}")
    if interleave > 1 and kind != "1f1b":
        raise InputError(f"interleave={interleave} needs the 1f1b schedule, not {kind}")
    if interleave > 1 and micro_batches % pp:
        raise InputError(
            f"interleave={interleave} needs micro-batches in groups of pp={pp}, "
            f"and {micro_batches} are not",
            hint="change the accumulation, or set interleave to 1",
        )


def _warm_up(pp: int, micro_batches: int, rank: int, interleave: int, kind: str) -> int:
    """Forward passes before the first backward one, the one just before it not counted."""
    passes = micro_batches * interleave
    if kind == "gpipe":
        return passes
    after = pp - rank - 1
    warm_up = after if interleave == 1 else 2 * after + (interleave - 1) * pp
    return min(warm_up, passes)


def _order(pp: int, micro_batches: int, interleave: int, kind: str, rank: int) -> Order:
    passes = micro_batches * interleave
    warm_up = _warm_up(pp, micro_batches, rank, interleave, kind)
    # Forward pass k comes at position k while warming up, then at every second one.
    k = np.arange(passes, dtype=np.int64)
    at_forward = np.where(k < warm_up, k, 2 * k - warm_up)
    at_backward = np.where(k < passes - warm_up, warm_up + 2 * k + 1, passes + k)
    is_forward = np.zeros(2 * passes, bool)
    is_forward[at_forward] = True
    micro_batch = np.empty(2 * passes, np.int32)
    chunk = np.empty(2 * passes, np.int32)
    # One chunk a rank: groups do not matter, and micro-batches need not fill them.
    group = pp if interleave > 1 else 1
    of_pass = (k // (group * interleave) * group + k % group).astype(np.int32)
    chunk_of = (k % (group * interleave) // group).astype(np.int32)
    micro_batch[at_forward], micro_batch[at_backward] = of_pass, of_pass
    chunk[at_forward], chunk[at_backward] = chunk_of, interleave - 1 - chunk_of
    return Order(is_forward, micro_batch, chunk)


def in_flight(
    pp: int, micro_batches: int, stage: int, interleave: int = 1, kind: str = "1f1b"
) -> int:
    """Forward passes whose activations a rank holds at most at once.

    A pass is a micro-batch through one chunk, `1 / interleave` of the rank's layers; without
    interleaving it is a micro-batch.

    >>> [in_flight(4, 8, stage) for stage in range(4)]
    [4, 3, 2, 1]
    >>> in_flight(4, 8, 0, interleave=2)
    11
    """
    _check(pp, micro_batches, interleave, kind)
    if not 0 <= stage < pp:
        raise InputError(f"stage {stage} of a pipeline of {pp}; they count from 0")
    return min(
        _warm_up(pp, micro_batches, stage, interleave, kind) + 1, micro_batches * interleave
    )


def split_layers(
    layers: int, pp: int, interleave: int = 1, *, first: int | None = None, last: int | None = None
) -> tuple[int, ...]:
    """Layers of each chunk in the order of the model; chunk `i` is on rank `i % pp`.

    As even as possible. What is left over goes one each to the chunks in the middle, then to the
    first, and to the last at last: those two also hold the embedding and the head. `first` and
    `last` fix the layers of the first and the last rank, spread over their chunks.

    >>> split_layers(10, 4), split_layers(9, 4, first=2, last=1)
    ((2, 3, 3, 2), (2, 3, 3, 1))
    """
    chunks = pp * interleave
    fixed: dict[int, int] = {}
    for rank, held in ((0, first), (pp - 1, last)):
        if held is not None:
            own = range(rank, chunks, pp)
            fixed |= dict(zip(own, _evenly(held, len(own))))
    free = [chunk for chunk in range(chunks) if chunk not in fixed]
    left = layers - sum(fixed.values())
    counts = dict(zip(free, _evenly(left, len(free), shy_ends=not fixed)))
    split = tuple((fixed | counts)[chunk] for chunk in range(chunks)) if free or not left else ()
    if not split or min(split) < 1:
        raise InputError(
            f"{layers} layers cannot fill {chunks} chunks of a pipeline of {pp}"
            + (f" with first={first}, last={last}" if fixed else "")
        )
    return split


def _evenly(total: int, shares: int, *, shy_ends: bool = False) -> list[int]:
    if not shares:
        return []
    base, more = divmod(total, shares)
    takers = list(range(shares))
    if shy_ends and shares > 2:
        takers = [*range(1, shares - 1), 0, shares - 1]
    counts = [base] * shares
    for share in takers[:more]:
        counts[share] += 1
    return counts


@lru_cache(maxsize=256)
def lay_slots(pp: int, micro_batches: int, interleave: int = 1, kind: str = "1f1b") -> Slots:
    """All passes of all ranks, each after those it needs; raises where they wait in a circle."""
    orders = schedule(pp, micro_batches, interleave, kind)
    length = len(orders[0])
    rank = np.repeat(np.arange(pp, dtype=np.int32), length)
    is_forward = np.concatenate([order.is_forward for order in orders])
    micro_batch = np.concatenate([order.micro_batch for order in orders])
    chunk = np.concatenate([order.chunk for order in orders])
    sender = _senders(pp, interleave, rank, is_forward, micro_batch, chunk)
    needs = np.flatnonzero(sender >= 0)
    # Passes of equal length, played: what needs another starts later, so starts give an order.
    even = WorkGraph.from_columns(
        rank,
        np.ones(len(rank), np.int64),
        edges=(sender[needs], needs),
        lanes=[f"rank {r}" for r in range(pp)],
    )
    start = replay(even, causes=False).start_ns
    order = np.argsort(start, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sends = np.zeros(len(order), bool)
    sends[sender[needs]] = rank[sender[needs]] != rank[needs]
    moved = sender[order]
    moved = np.where(moved >= 0, place[np.maximum(moved, 0)], -1)
    slots = Slots(
        rank[order], is_forward[order], micro_batch[order], chunk[order], moved, sends[order]
    )
    for column in msgspec.structs.astuple(slots):
        column.flags.writeable = False
    return slots


def _senders(
    pp: int, interleave: int, rank: Codes, is_forward: Flags, micro_batch: Codes, chunk: Codes
) -> Ints:
    """For each pass the one before it in the model: forward the chunk below, backward above."""
    chunks = pp * interleave
    at = chunk.astype(np.int64) * pp + rank
    micro_batches = int(micro_batch.max()) + 1
    index = np.empty((2, chunks, micro_batches), np.int64)
    index[is_forward.astype(int), at, micro_batch] = np.arange(len(rank))
    before = np.where(is_forward, at - 1, at + 1)
    inside = (before >= 0) & (before < chunks)
    sender = np.full(len(rank), -1, np.int64)
    sender[inside] = index[is_forward.astype(int), np.clip(before, 0, chunks - 1), micro_batch][
        inside
    ]
    # The last chunk turns round: its backward pass needs its own forward one.
    turns = ~is_forward & (at == chunks - 1)
    sender[turns] = index[1, chunks - 1, micro_batch[turns]]
    return sender
