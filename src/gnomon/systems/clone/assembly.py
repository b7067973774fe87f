"""Planning the code of a skeleton: the same paths through blocks of the same size, with other
instructions.

A path is replayed: branches and indirect jumps that go different ways on different paths take
their turns from a stream of bits and addresses; all others are constant. Returns find their way
by the stack, as they did. What is planned here is written for each machine in `code`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.systems.clone.code import aarch64, portable, x86_64
from gnomon.systems.clone.code.plan import (
    BASE,
    BITS,
    CONNECTIONS,
    FIRST_LINE,
    NEAR_SLOTS,
    OF_CONNECTION,
    TABLE,
    Group,
    Item,
    Plan,
    Record,
    Turn,
)
from gnomon.systems.clone.instructions import CLASSES
from gnomon.systems.clone.kinds import EVENT_KINDS
from gnomon.systems.clone.recording import BUCKETS, distance_of
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONSTANT,
    FILLER,
    LINE,
    LOAD,
    MODIFY,
    MOVE,
    NEXT,
    PAGE,
    POP,
    PUSH,
    REPEAT,
    SAVE,
    STACK,
    Block,
    Op,
    Path,
    Skeleton,
)  # fmt: skip

_MOST_RING = 1 << 16
_RUNTIME = -(1 << 40)  # stands for a line of the runtime
_FILLERS = ("alu", "mov", "lea", "cmov", "mul", "div", "vector", "nop", "other")
_LOADS, _STORES, _CHANGES = (
    ("load", "alu_load", "vector_load"),
    ("store", "vector_store"),
    ("alu_store", "atomic"),
)
_MOVES = {"call": -8, "call_indirect": -8, "ret": 8}  # of the stack pointer, by ends of blocks
#: Classes that can stand for one another: the others are given by the paths.
EXCHANGEABLE = (_FILLERS, _LOADS, _STORES, _CHANGES)


class Less(msgspec.Struct):
    """Instructions, loads and stores to leave out."""

    instructions: float = 0.0
    loads: float = 0.0
    stores: float = 0.0


class Code(msgspec.Struct):
    """What is generated.

    Attributes:
        assembly: For x86-64.
        aarch64: Assembly for AArch64.
        portable: C code for any other machine.
        memory: C code that sets up the memory on which all of them work.
    """

    assembly: str
    aarch64: str
    portable: str
    memory: str
    data_bytes: int
    edges: list[int]  # that have paths: functions gnc_edge_0 and so on
    lines: dict[int, float]  # of these: lines of data that one execution touches
    mix: Sequence[float]  # per request, of classes that were dealt out
    unpaid: Mapping[int, Less]  # by edge: what could not be left out


class Quota(msgspec.Struct):
    """Per request: instructions by class, and what to leave out: the runtime adds as much.

    Attributes:
        less: By edge.
        runtime_lines: By edge: lines of data that the runtime touches.
    """

    mix: Sequence[float]
    less: Mapping[int, Less] = {}
    runtime_lines: Mapping[int, float] = {}


def generate(
    skeleton: Skeleton, quota: Quota, dependencies: Sequence[float], rng: Generator, *,
    kinds: int = 1, connections: int = 1, waits: Collection[int] = (),
) -> Code:  # fmt: skip
    """The paths of all edges, for so many kinds of requests.

    Args:
        connections: That the original had while it was profiled.
        waits: Edges that begin with a wait: their kinds are those of wake-ups.
    """
    return _Generator(skeleton, quota, dependencies, rng, kinds, connections, waits).code()


class _Generator:
    def __init__(
        self, skeleton: Skeleton, quota: Quota, dependencies: Sequence[float], rng: Generator,
        kinds: int, connections: int, waits: Collection[int],
    ) -> None:  # fmt: skip
        self._rng, self._quota, self._connections, self._waits = rng, quota, connections, waits
        self._dependencies = dependencies
        self._blocks = skeleton.blocks
        self._exits = {one.blocks[-1] for one in skeleton.paths}
        self._kinds = max([kinds, *(1 + one.kind for one in skeleton.paths
                                    if one.edge not in waits)])  # fmt: skip
        self._paths = [
            one for one in skeleton.paths if not self._exits.intersection(one.blocks[:-1])
        ]
        self._weights = defaultdict[int, float](float)
        for path in self._paths:
            for block in path.blocks:
                self._weights[block] += path.weight
        self._next = self._successors()
        self._refills = self._place_refills()
        self._lines = FIRST_LINE + 1 + max(skeleton.lines, default=0)
        self._stack_at = self._plan_stack(LINE * max(-min(skeleton.lines, default=0), 0))
        self._line_at = [
            self._stack_at // LINE + at if at < 0 else FIRST_LINE + at for at in skeleton.lines
        ]
        # An odd number of lines: connections do not meet in the same sets of a cache.
        self._own_lines = skeleton.connection_lines | 1
        self._connections_at = self._take(CONNECTIONS * self._own_lines)
        self._mid, self._ring_of, self._rings = self._plan_data()
        self._more_slots = self._take(-(-max(len(self._rings) - NEAR_SLOTS, 0) // 8))
        self._items = self._deal()

    # --- branches
    # -----------------------------------------------------------------------------------

    def _successors(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = defaultdict(set)
        for path in self._paths:
            for a, b in zip(path.blocks, path.blocks[1:], strict=False):
                found[a].add(b)
        return found

    def _varies(self, block: int) -> bool:
        return self._blocks[block].chance not in (None, 0, 1) or (
            self._blocks[block].ends in ("branch", "jmp_indirect", "call_indirect")
            and len(self._next[block]) > 1
        )

    def _place_refills(self) -> set[int]:
        """Blocks that begin with new bits, so that none runs out of them."""
        bits = {b for b in self._weights if self._blocks[b].ends == "branch" and self._varies(b)}
        found: set[int] = set()
        for path in self._paths:
            at, since, used = 0, 0, 0
            while at < len(path.blocks):
                block = path.blocks[at]
                if block in found:
                    since, used = at, 0
                if block in bits:
                    used += 1
                    if used > BITS:
                        candidates = path.blocks[max(since + 1, (since + at) // 2) : at + 1]
                        found.add(min(candidates, key=lambda b: (self._weights[b], b)))
                        at, used = since, 0
                        continue
                at += 1
        return found

    # --- data
    # ---------------------------------------------------------------------------------------

    def _plan_stack(self, below: int) -> int:
        """Where the highest stack pointer is; at least so much lies below it."""
        low, high = -below, 0
        for path in self._paths:
            pointer = -path.depth
            high = max([high, *(pointer + place for place, _ in path.returns)])
            for number in path.blocks:
                low, high, pointer = _extent(self._blocks[number], low, high, pointer)
        first = self._lines
        at = _round_up(self._lines * LINE) + _round_up(PAGE - low)
        self._lines = (at + _round_up(high + PAGE)) // LINE
        self._stack_lines = range(first, self._lines)
        return at

    def _plan_data(self) -> tuple[dict[int, int], dict[int, int], list[tuple[int, int]]]:
        """Lines for operations of a middle distance, by id, and rings for far ones, by bucket."""
        order = sorted(self._paths, key=lambda one: -one.weight)[:TABLE]
        if not order:
            return {}, {}, []
        one_pass = np.average([one.lines for one in order], weights=[one.weight for one in order])
        stack, mid = _LineStack(), dict[int, int]()
        for k, path in enumerate(order + order):
            for line in range(round(self._quota.runtime_lines.get(path.edge, 0.0))):
                stack.visit(_RUNTIME - line)
            for op, in_stack in self._accesses(path):
                if op.place == CONSTANT:
                    stack.visit(self._line_at[op.value])
                elif op.place in OF_CONNECTION:
                    whose = (k + (op.place == NEXT)) % self._connections
                    stack.visit(-1 - op.value - whose * self._own_lines)
                elif op.place == STACK:
                    stack.visit(in_stack)
                elif op.place == AWAY and distance_of(op.value) < 1.2 * one_pass:
                    if id(op) not in mid and k >= len(order):
                        found = stack.near(int(distance_of(op.value)), self._barred(op))
                        mid[id(op)] = self._take(1) if found is None else found
                    if id(op) in mid:
                        stack.visit(mid[id(op)])
        rates = defaultdict[int, float](float)
        own = set[int]()
        for number, weight in self._weights.items():
            for op in self._blocks[number].ops:
                if op.place == AWAY and id(op) not in mid:
                    rates[op.value] += weight
                elif op.place in OF_CONNECTION:
                    own.add(op.value)
        rings: list[tuple[int, int]] = []
        ring_of: dict[int, int] = {}
        smaller = float(sum(line >= 0 for line in stack.lines))
        left = sum(rates.values())
        for bucket in sorted(rates):
            distance = (
                distance_of(min(bucket, BUCKETS - 2))
                if bucket < BUCKETS - 1
                else float(_MOST_RING)
            )
            # Requests until the ring comes round: so many connections lie between, and no more
            # than there are.
            passes = (distance - smaller) / max(left + len(own), 1e-9)
            if passes > self._connections:
                passes = (distance - smaller - self._connections * len(own)) / max(left, 1e-9)
            lines = int(np.clip(round(max(passes, 1.0) * rates[bucket]), 2, _MOST_RING))
            ring_of[bucket] = len(rings)
            rings.append((self._take(lines), lines))
            smaller += lines
            left -= rates[bucket]
        return mid, ring_of, rings

    def _barred(self, op: Op) -> range:
        """Lines that it must not touch: a store into the stack could hit a return address."""
        return range(0) if op.does == LOAD else self._stack_lines

    def _accesses(self, path: Path) -> Iterator[tuple[Op, int]]:
        """In order; of those to the stack also the line."""
        pointer = self._stack_at - path.depth
        for number in path.blocks:
            begin = pointer
            for op in self._blocks[number].ops:
                if op.does in (PUSH, POP):
                    yield op, (pointer - 8 if op.does == PUSH else pointer) // LINE
                elif op.does in (LOAD, SAVE, MODIFY):
                    yield op, (begin + op.value) // LINE if op.place == STACK else 0
                pointer += op.moves
            pointer += _MOVES.get(self._blocks[number].ends, 0)

    def _lines_by_edge(self) -> dict[int, float]:
        """Different lines of data that one execution touches."""
        found = defaultdict[int, list[tuple[int, float]]](list)
        for path in self._paths:
            touched = set[tuple[int, int]]()
            for i, (op, in_stack) in enumerate(self._accesses(path)):
                if op.place == AWAY:
                    touched.add((0, self._mid[id(op)]) if id(op) in self._mid else (AWAY, i))
                elif op.place != CLOSE:
                    is_line = op.place == CONSTANT
                    touched.add(
                        (0, self._line_at[op.value]) if is_line
                        else (0, in_stack) if op.place == STACK else (op.place, op.value)
                    )  # fmt: skip
            found[path.edge].append((len(touched), path.weight))
        return {edge: float(np.average([n for n, _ in mine], weights=[w for _, w in mine]))
                for edge, mine in found.items()}  # fmt: skip

    def _take(self, lines: int) -> int:
        self._lines += lines
        return self._lines - lines

    # --- instructions
    # -------------------------------------------------------------------------------

    def _deal(self) -> dict[int, list[Item]]:
        """Classes for operations, so that the mix comes out; fewer for what the clone adds."""
        self._unpaid = defaultdict(Less, {edge: msgspec.structs.replace(one)
                                          for edge, one in self._quota.less.items()})  # fmt: skip
        self._dealt = dict.fromkeys(CLASSES, 0.0)
        edge_of = self._edges_of_blocks()
        order = sorted(self._weights, key=lambda b: (-self._weights[b], b))
        found = {number: self._do(number, self._unpaid[edge_of[number]]) for number in order}
        drawn = [(item, self._weights[number]) for number in order for item in found[number]]
        for classes in EXCHANGEABLE:
            self._draw(classes, [(item, weight) for item, weight in drawn
                                 if _classes_of(item) == classes])  # fmt: skip
        return found

    def _do(self, number: int, owed: Less) -> list[Item]:
        """Operations of a block, but for those that are owed."""
        block, weight = self._blocks[number], self._weights[number]
        items = []
        extra = 2 if number in self._refills else 0
        if block.ends == "branch":
            extra += 1
            self._dealt["alu"] += weight
        if self._varies(number) and block.ends != "branch":
            extra += 1
        if number in self._exits:
            extra += 1  # the return in place of the system call
        for op in block.ops:
            item = Item("", op)
            if op.place == CONSTANT:
                item.line = self._line_at[op.value]
            elif op.place == AWAY and id(op) in self._mid:
                item.line = self._mid[id(op)]
            elif op.place == AWAY:
                item.ring = self._ring_of[op.value]
                extra += 3
                owed.loads += 2 * weight
                owed.stores += weight
            items.append(item)
        owed.instructions += extra * weight
        for item in self._rng.permutation(np.array([*items, None], object))[: len(items) + 1]:
            if item is not None and item.op.place == CLOSE:
                self._settle(item, items, owed, weight)
        return items

    def _draw(self, classes: Sequence[str], items: Sequence[tuple[Item, float]]) -> None:
        """Classes for operations of one sort, as often as the quota says: at random among those
        that lack half of the weight or more, the heaviest operations first."""
        mix = dict(zip(CLASSES, self._quota.mix, strict=True))
        wanted = np.array([max(mix[one] - self._dealt[one], 0.0) for one in classes])
        if wanted.sum() <= 0:
            wanted[0] = 1.0
        left = wanted * sum(weight for _, weight in items) / wanted.sum()
        for item, weight in items:
            chances = np.where(left >= weight / 2, left, 0.0)
            if chances.sum() <= 0:
                chances[left.argmax()] = 1.0
            # no wider than what was there: return addresses are near
            is_narrow = item.op.place == STACK and item.op.does == SAVE
            at = 0 if is_narrow else int(
                np.searchsorted(np.cumsum(chances), self._rng.random() * chances.sum())
            )  # fmt: skip
            item.kind = classes[at]
            left[at] -= weight
            self._dealt[item.kind] += weight

    @staticmethod
    def _settle(item: Item, items: list[Item], owed: Less, weight: float) -> None:
        """Leaves an operation out, or has it do something else, if that is owed."""
        does = item.op.does
        if does == LOAD and owed.loads >= weight:
            owed.loads -= weight
            item.op = Op(FILLER)
        elif does == SAVE and owed.stores >= weight:
            owed.stores -= weight
            item.op = Op(FILLER)
        if item.op.does != FILLER:
            return
        if owed.instructions >= weight:
            owed.instructions -= weight
            items.remove(item)
        elif owed.stores <= -weight and does != SAVE:
            owed.stores += weight
            item.op = Op(SAVE)
        elif owed.loads <= -weight and does != LOAD:
            owed.loads += weight
            item.op = Op(LOAD)

    def _edges_of_blocks(self) -> dict[int, int]:
        """For each block: the edge that executes it most."""
        by_block: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for path in self._paths:
            for number in path.blocks:
                by_block[number][path.edge] += path.weight
        return {
            number: max(mine, key=lambda edge: mine[edge]) for number, mine in by_block.items()
        }

    # --- the plan
    # -----------------------------------------------------------------------------------

    def code(self) -> Code:
        plan = self._plan()
        given = plan, self._dependencies, self._rng
        # First x86-64: what it draws at random is then the same whatever others draw.
        assembly, arm, portable_c = (one.write(*given) for one in (x86_64, aarch64, portable))
        return Code(assembly, arm, portable_c, self._memory(plan), LINE * self._lines + 16 * PAGE,
                    sorted({one.edge for one in self._paths}), self._lines_by_edge(),
                    [self._dealt[one] for one in CLASSES], dict(self._unpaid))  # fmt: skip

    def _plan(self) -> Plan:
        order = sorted(self._weights, key=lambda b: (self._blocks[b].at, b))
        for number in order:
            pointer = 0
            for item in self._items[number]:
                item.offset = item.op.value - pointer
                pointer += item.op.moves
                if item.op.does == REPEAT:
                    item.line = self._take(item.op.value // LINE + 1)
        groups = {edge: self._groups(edge) for edge in sorted({one.edge for one in self._paths})}
        records = [
            Record(
                path.edge,
                next(k for k, one in enumerate(groups[path.edge]) if i in one.paths),
                self._stream(path.blocks),
            )
            for i, path in enumerate(self._paths)
        ]
        return Plan(
            self._blocks, order, self._items, self._weights, self._edges_of_blocks(), self._next,
            {b for b in order if self._varies(b)}, self._refills, self._exits, records, groups,
            self._tables(), self._stack_at, self._own_lines, self._connections_at,
            self._more_slots,
        )  # fmt: skip

    def _tables(self) -> dict[int, list[list[int]]]:
        tables: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for i, path in enumerate(self._paths):
            tables[path.edge][path.kind].append(i)
        found: dict[int, list[list[int]]] = {}
        for edge, by_kind in tables.items():
            everything = [i for mine in by_kind.values() for i in mine]
            is_wait = edge in self._waits
            count = max(self._kinds, EVENT_KINDS) if is_wait else self._kinds
            found[edge] = []
            for kind in range(count if len(by_kind) > 1 else 1):
                if is_wait:  # the nearest number of events that was seen
                    _, near = min((abs(one - kind), one) for one in by_kind)
                    found[edge].append(self._table(by_kind[near]))
                else:
                    found[edge].append(self._table(by_kind.get(kind, everything)))
        return found

    def _groups(self, edge: int) -> list[Group]:
        """Paths that begin in the same block, with the same callers in the stack."""
        found: list[Group] = []
        for i, path in enumerate(self._paths):
            if path.edge != edge:
                continue
            mine = dict(path.returns)
            for group in found:
                if (group.entry, group.depth) == (path.blocks[0], path.depth) and all(
                    group.returns.get(place, to) == to for place, to in mine.items()
                ):
                    group.returns |= mine
                    group.paths.add(i)
                    break
            else:
                found.append(Group(path.blocks[0], path.depth, mine, {i}))
        return found

    def _table(self, paths: list[int]) -> list[int]:
        """Paths as often as their weights say."""
        shares = np.array([self._paths[i].weight for i in paths])
        ends = np.round(np.cumsum(shares) / shares.sum() * TABLE).astype(int)
        return [paths[int(np.searchsorted(ends, k, side="right"))] for k in range(TABLE)]

    def _stream(self, blocks: list[int]) -> tuple[Turn, ...]:
        """What the path takes its turns from, in the order in which it does."""
        words: list[list[int]] = [[]]
        turns: list[list[int] | Turn] = [words[0]]
        for k, number in enumerate(blocks):
            if number in self._refills:
                words.append([])
                turns.append(words[-1])
            if k + 1 < len(blocks) and self._varies(number):
                block = self._blocks[number]
                ends = block.ends
                if block.chance is not None:
                    words[-1].append(int(self._rng.random() < block.chance))
                elif ends == "branch":
                    words[-1].append(int(blocks[k + 1] == block.target))
                else:
                    turns.append(Turn(to=blocks[k + 1], is_call=ends == "call_indirect"))
        return tuple(
            one if isinstance(one, Turn)
            else Turn(sum(bit << BITS - 1 - i for i, bit in enumerate(one))) for one in turns
        )  # fmt: skip

    def _memory(self, plan: Plan) -> str:
        rings = ", ".join(
            f"{{{plan.slot(i) + BASE}, {at}, {lines}}}"
            for i, (at, lines) in enumerate(self._rings)
        )
        return _MEMORY.replace("@RINGS@", rings or "{0, 0, 0}").replace(
            "@COUNT@", str(len(self._rings))
        )


_MEMORY = """#include <stddef.h>
#include <stdint.h>

static const struct {
    uint32_t slot, at, lines;
} rings[] = {@RINGS@};

/* Rings in an order that no prefetcher follows. */
static void link_rings(unsigned char *base) {
    const size_t count = @COUNT@;
    for (size_t r = 0; r < count; ++r) {
        uint32_t n = rings[r].lines, step = n * 5 / 13 | 1;
        for (;; step += 2) {
            uint32_t a = n, b = step;
            while (b) {
                uint32_t t = a % b;
                a = b;
                b = t;
            }
            if (a == 1) break;
        }
        unsigned char *ring = base + 64 * (size_t)rings[r].at;
        for (uint32_t i = 0; i < n; ++i)
            *(void **)(ring + 64 * (size_t)i) = ring + 64 * (size_t)((i + step) % n);
        *(void **)(base + rings[r].slot) = ring;
    }
}

_Thread_local unsigned char *gnc_memory;

void gnc_edges_begin(void *memory) {
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + 0xffff) & ~(uintptr_t)0xffff);
    gnc_memory = base + 128;
    ((uint64_t *)gnc_memory)[1] = 0x9e3779b97f4a7c15u;
    link_rings(base);
}
"""


def _classes_of(item: Item) -> Sequence[str]:
    """That it can be of; none if the operation says which."""
    by = {FILLER: _FILLERS, LOAD: _LOADS, SAVE: _STORES, MODIFY: _CHANGES}
    return by.get(item.op.does, ())


class _LineStack:
    """Lines of data in the order in which they were touched last."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def visit(self, line: int) -> None:
        if line in self.lines:
            self.lines.remove(line)
        self.lines.append(line)

    def near(self, depth: int, barred: range) -> int | None:
        """The line nearest to a depth; none below 0, which are not to be had."""
        order = self.lines[::-1]
        for away in range(len(order) // 4 if depth < len(order) else 0):
            for line in (*order[depth + away :][:1], *order[max(depth - away, 0) :][:1]):
                if line >= 0 and line not in barred:
                    return line
        return None


def _extent(block: Block, low: int, high: int, pointer: int) -> tuple[int, int, int]:
    begin = pointer
    for op in block.ops:
        if op.place == STACK and op.does not in (PUSH, POP, MOVE):
            low, high = min(low, begin + op.value), max(high, begin + op.value)
        pointer += op.moves
        low = min(low, pointer)
    pointer += _MOVES.get(block.ends, 0)
    return min(low, pointer), max(high, pointer), pointer


def _round_up(value: int) -> int:
    return -(-value // PAGE) * PAGE
