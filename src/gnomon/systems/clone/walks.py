"""Executions of edges as visits of blocks, and whether a clone can follow them.

Samples of all processes share their blocks, which are cut where any other begins or ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from gnomon.systems.clone.instructions import CLASSES, Decoded, decode
from gnomon.systems.clone.recording import BLOCK, STORE, Recording, Sample

CALLS = frozenset(("call", "call_indirect"))
_JUMPS = frozenset(("branch", "jmp", "jmp_indirect", "ret", *CALLS))


class Raw(msgspec.Struct, eq=False):
    """A block as it was.

    Attributes:
        skew: Of targets: from the begin of the code that was decoded.
    """

    at: int
    code: list[Decoded]
    bytes: int = 0
    skew: int = 0

    @property
    def ends(self) -> str:
        last = CLASSES[self.code[-1].kind]
        return last if last in _JUMPS else "fall"

    @property
    def is_repeat(self) -> bool:
        return len(self.code) == 1 and CLASSES[self.code[0].kind] == "string"

    @property
    def target(self) -> int | None:
        found = self.code[-1].target
        return None if found is None else self.at + found - self.skew


class Visit(msgspec.Struct, eq=False):
    """One execution of a block."""

    raw: Raw
    accesses: list[tuple[int, int]]  # which instruction, and the entry
    repeats: int = 0


class Chosen(msgspec.Struct, frozen=True):
    """A sample: of which edge, after which kind of request, and its executions a request."""

    edge: int
    kind: int
    recording: Recording
    sample: Sample
    weight: float


class Blocks:
    """Blocks of all processes, cut where any other begins or ends."""

    def __init__(self, chosen: Sequence[Chosen]) -> None:
        self._space: dict[int, int] = {}  # by recording: added to its addresses
        self._parts: dict[
            tuple[int, int], list[tuple[Raw, int]]
        ] = {}  # of a block: with its first instruction
        self._at: dict[int, Raw] = {}
        recordings = list({id(one.recording): one.recording for one in chosen}.values())
        seen: dict[int, bytes] = {}
        for number, recording in enumerate(recordings):
            mine = [one for one in chosen if one.recording is recording]
            blocks = sorted({b for one in mine for b in one.sample.blocks()})
            codes = {int(recording.block[b, 0]): recording.code_of(b) for b in blocks}
            clash = any(seen.get(at, code)[: len(code)] != code[: len(seen.get(at, code))]
                        for at, code in codes.items())  # fmt: skip
            self._space[id(recording)] = number << 44 if clash else 0
            if not clash:
                seen |= codes
        used = {(id(one.recording), b) for one in chosen for b in one.sample.blocks()}
        cuts: set[int] = set()
        place: dict[tuple[int, int], int] = {}
        by_id = {id(one): one for one in recordings}
        decoded = {(who, b): list(decode(by_id[who].code_of(b))) for who, b in used}
        for (who, b), code in decoded.items():
            at = int(by_id[who].block[b, 0]) + self._space[who]
            place[who, b] = at
            cuts |= {at, at + sum(one.bytes for one in code)}
        for key, code in decoded.items():
            self._parts[key] = self._cut(place[key], code, cuts)

    def _cut(self, at: int, code: list[Decoded], cuts: set[int]) -> list[tuple[Raw, int]]:
        parts: list[tuple[Raw, int]] = []
        begin, first, now = at, 0, at
        for i, one in enumerate(code):
            now += one.bytes
            if now in cuts or i + 1 == len(code):
                raw = self._at.get(begin)
                if raw is None or raw.bytes != now - begin:
                    raw = self._at[begin] = Raw(
                        begin, code[first : i + 1], now - begin, begin - at
                    )
                parts.append((raw, first))
                begin, first = now, i + 1
        return parts

    def walk(self, one: Chosen) -> list[Visit]:
        """A sample as visits of blocks."""
        visits: list[Visit] = []
        parts: list[tuple[Raw, int]] = []
        opened: list[Visit] = []
        for entry in one.sample.entries:
            if entry & BLOCK:
                parts = self._parts[id(one.recording), entry & 0xFFFFFFFF]
                opened = [Visit(raw, []) for raw, _ in parts]
                visits += opened
                continue
            number = entry >> 52 & 0x3FF
            for visit, (_, first) in zip(reversed(opened), reversed(parts), strict=True):
                if number >= first:
                    visit.accesses.append((number - first, entry))
                    break
        return _join(visits)


def _join(visits: list[Visit]) -> list[Visit]:
    """Iterations of a repeated instruction are one visit.

    An instruction across two pages is seen twice by the emulator, the first time cut short.
    """
    found: list[Visit] = []
    for one in visits:
        if found and found[-1].raw.at == one.raw.at:
            before = found[-1]
            if before.raw is one.raw and one.raw.is_repeat:
                before.repeats += 1
                continue
            if before.raw is not one.raw:
                found.pop()
        found.append(one)
    return found


def is_legal(visit: Visit, after: Visit) -> bool:
    """It is left in a way that its code leads to."""
    raw, falls = visit.raw, after.raw.at == visit.raw.at + visit.raw.bytes
    match raw.ends:
        case "fall":
            return falls
        case "branch":
            return falls or after.raw.at == raw.target
        case "jmp" | "call":
            return after.raw.at == raw.target
    return True


def learn_moves(walks: Iterable[list[Visit]]) -> dict[int, int]:
    """By how much blocks move the stack pointer where their instructions do not say."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for visits in walks:
        unknown: list[int] = []
        pointer: int | None = None
        for visit in visits:
            entry_of = dict(reversed(visit.accesses))
            for i, one in enumerate(visit.raw.code):
                kind = CLASSES[one.kind]
                if (
                    kind in ("push", "pop", "ret", *CALLS)
                    and i in entry_of
                    and one.stack is not None
                ):
                    is_down = one.stack < 0
                    entry = [e for n, e in visit.accesses if n == i][-1 if is_down else 0]
                    true = (entry & ((1 << 45) - 1)) * 8 + (8 if is_down else 0)
                    if pointer is not None and len(unknown) == 1:
                        seen[unknown[0]][true - pointer] += 1
                    pointer, unknown = true, []
                if one.stack is None:
                    unknown.append(visit.raw.at)
                elif pointer is not None:
                    pointer += one.stack
    return {at: counts.most_common(1)[0][0] for at, counts in seen.items()}


class Walked(msgspec.Struct):
    """What a path does to the stack.

    Attributes:
        entry: The true stack pointer at its begin; 0: not known.
        depth: Lowest stack pointer, from the begin.
        returns: To callers before it: the place in the stack, and the address that follows.
        unsafe: Stores that would hit a return address: block and instruction.
    """

    entry: int
    depth: int
    returns: list[tuple[int, int]]
    unsafe: set[tuple[int, int]]


def follow(visits: list[Visit], moves: dict[int, int]) -> Walked | None:
    """Executes a path as its clone will: does every return find its way?"""
    slots: dict[int, int] = {}  # return addresses in the stack
    dead: set[int] = set()  # places that were overwritten
    found = Walked(0, 0, [], set())
    pointer = 0
    for k, visit in enumerate(visits):
        follows = visits[k + 1].raw.at if k + 1 < len(visits) else -1
        entry_of = dict(visit.accesses)
        for i, one in enumerate(visit.raw.code):
            kind = CLASSES[one.kind]
            if found.entry == 0 and i in entry_of and kind in ("push", "pop", "ret", *CALLS):
                down = 8 if kind in ("push", *CALLS) else 0
                found.entry = (entry_of[i] & ((1 << 45) - 1)) * 8 + down - pointer
            if kind == "ret":
                there = slots.pop(pointer, None)
                if there is None and (pointer in dead or pointer < 0):
                    return None
                if there is None:
                    if dict(found.returns).get(pointer, follows) != follows:
                        return None
                    found.returns.append((pointer, follows))
                elif there != follows:
                    return None
            if kind in ("push", *CALLS):
                slots.pop(pointer - 8, None)
                dead.add(pointer - 8)
                if kind != "push":
                    slots[pointer - 8] = visit.raw.at + visit.raw.bytes
                    dead.discard(pointer - 8)
            elif one.frame is not None and i in entry_of and entry_of[i] & STORE:
                place = pointer + one.frame & ~7
                if place in slots or place >= 0:
                    found.unsafe.add((visit.raw.at, i))
            pointer += moves.get(visit.raw.at, 0) if one.stack is None else one.stack
            found.depth = min(found.depth, pointer)
    return found if visits[-1].raw.ends == "fall" and found.entry else None
