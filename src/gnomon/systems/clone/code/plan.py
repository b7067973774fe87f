"""What is to be written, for no machine in particular.

Blocks in their order, with instructions by class and where these go; for each path the bits and
blocks that its branches take their turns from; where things are in a worker's memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from numpy.random import Generator

from gnomon.systems.clone.skeleton import CONNECTION, FILLER, LINE, NEXT, Block, Op

BASE = 128  # of the pointer to a worker's memory: four lines before it are reached by one byte
FIRST_LINE = 4  # of that memory, that paths may use
NEAR_SLOTS = 16  # of rings, in the first two lines
SAVED, RANDOM = 0, 8  # the stack pointer of the caller; the state of the generator
FACTOR, ADDEND, DRAWN = 0x27BB2EE7, 0x3779B97F, 37  # of that generator, and the bit it draws from
TABLE = 64  # paths of an edge, for each kind of request; 2^6
BITS = 32  # of a word of a stream
CONNECTIONS = 1024  # with memory of their own; beyond, some share it
OF_CONNECTION = (CONNECTION, NEXT)
_SLOTS = 128  # of the rings, from there down to the begin
_GOES_ON = frozenset(("fall", "branch", "call", "call_indirect"))


class Item(msgspec.Struct, eq=False):
    """An instruction to be written."""

    kind: str
    op: Op
    line: int = -1  # of the worker's memory
    ring: int = -1
    offset: int = 0  # from the stack pointer


class Turn(msgspec.Struct, frozen=True):
    """What a path takes from its stream: bits, or the block that follows."""

    bits: int = 0
    to: int = -1
    is_call: bool = False


class Group(msgspec.Struct):
    """Paths of an edge that begin alike.

    Attributes:
        depth: Of the stack pointer, below the highest of all.
        returns: Blocks, by where in the stack their addresses have to be.
    """

    entry: int
    depth: int
    returns: dict[int, int]
    paths: set[int]


class Record(msgspec.Struct, frozen=True):
    """What a path is replayed from: its edge, its group there, and its stream."""

    edge: int
    group: int
    stream: tuple[Turn, ...]


class Plan(msgspec.Struct):
    """All that a writer needs.

    Attributes:
        order: Blocks that are executed, by where they were.
        weights: Executions a request.
        edge_of: The edge that executes a block most.
        next: Blocks that follow on paths.
        varying: Blocks whose end goes different ways.
        refills: Blocks that begin with new bits.
        exits: Blocks that paths end with.
        records: Of the paths; some are the same.
        groups: By edge.
        tables: By edge: for each kind of request, or once for all, paths as often as they are to
            be drawn.
        more_slots: The line where pointers of further rings are.
    """

    blocks: Sequence[Block]
    order: list[int]
    items: dict[int, list[Item]]
    weights: Mapping[int, float]
    edge_of: Mapping[int, int]
    next: Mapping[int, set[int]]
    varying: set[int]
    refills: set[int]
    exits: set[int]
    records: list[Record]
    groups: dict[int, list[Group]]
    tables: dict[int, list[list[int]]]
    stack_at: int
    own_lines: int
    connections_at: int
    more_slots: int

    def is_taken(self, number: int) -> bool:
        """Its branch, at least at times."""
        block = self.blocks[number]
        return block.chance == 1 or (
            block.target >= 0 and block.target != block.next and block.target in self.next[number]
        )

    def jumps_over(self, number: int) -> bool:
        """Its branch goes where execution would fall: it has to jump over something."""
        return self.blocks[number].chance not in (None, 0)

    def follows(self, number: int) -> int | None:
        """The block that execution falls into, if there is one."""
        block = self.blocks[number]
        goes_on = block.ends in _GOES_ON and number not in self.exits
        return block.next if goes_on and block.next in self.weights else None

    def begins_anew(self, k: int) -> bool:
        """It does not lie where the one before it ends."""
        return k == 0 or self.blocks[self.order[k - 1]].next != self.order[k]

    def unique(self) -> Iterator[tuple[int, int]]:
        """Each path, and the first one with the same record."""
        first: dict[Record, int] = {}
        for i, record in enumerate(self.records):
            yield i, first.setdefault(record, i)

    def left_out(self, excess: Callable[[int], int], rng: Generator) -> set[int]:
        """Items that only compute, by id: as many as other instructions of an edge are too many.

        Args:
            excess: Of a block, over the instructions that there are on x86-64.
        """
        debts, found = defaultdict[int, float](float), set[int]()
        for number in sorted(self.order, key=lambda b: (-self.weights[b], b)):
            weight, edge = self.weights[number], self.edge_of[number]
            debts[edge] += weight * excess(number)
            fillers = [one for one in self.items[number] if one.op.does == FILLER]
            for i in rng.permutation(len(fillers)):
                if debts[edge] >= weight:
                    debts[edge] -= weight
                    found.add(id(fillers[i]))
        return found

    def has_kinds(self, edge: int) -> bool:
        """Paths differ by the kind of the request."""
        return len(self.tables[edge]) > 1

    def slot(self, ring: int) -> int:
        """Of its pointer, from that to the memory."""
        if ring < NEAR_SLOTS:
            return 8 * ring - _SLOTS
        return LINE * self.more_slots + 8 * (ring - NEAR_SLOTS) - BASE
