"""The shape of the paths that a service takes: blocks without their instructions.

Of each edge some executions are kept whole. Here they lose what they compute: a block keeps its
place, its length, what it does to the stack, how many loads and stores it has, and how it ends.
Where an access goes is said by kind: to the stack, to a line that is always the same, near to
what was touched before, or as far away as it was.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.systems.clone.instructions import CLASSES, Decoded, decode
from gnomon.systems.clone.recording import BLOCK, STORE, Recording, Sample, bucket_of
from gnomon.table import Dictionary, ListOf, read_arrow, write_arrow

PAGE, LINE = 4096, 64
_LINES = PAGE // LINE
#: Pages keep their number modulo this: caches of up to this many pages a way see the same
#: conflicts.
PAGE_COLOURS = 16
#: Accesses of an instruction that go to one line, so that the line is its own.
_SAME = 0.8
#: Connections, and accesses a connection, from which on lines are told to belong to one.
_FEWEST_CONNECTIONS, _OFTEN = 3, 1.7
#: Of the connections, so many have a line of their own: what they take in turns is not theirs.
_DIFFER = 0.7
#: Lines: nearer ones are in every cache.
NEAR = 16
_MOST_STACK = 1024  # lines below the highest stack pointer
_MOST_LOST = 0.2  # of all work, on paths that cannot be followed call by call
_CALLS = frozenset(("call", "call_indirect"))
_JUMPS = frozenset(("branch", "jmp", "jmp_indirect", "ret", *_CALLS))

#: Places of an access. The last two are lines that each connection has of its own: the one of
#: the call before, and the one of the call that follows.
STACK, CONSTANT, CLOSE, AWAY, CONNECTION, NEXT = range(6)
FILLER, PUSH, POP, MOVE, LOAD, SAVE, MODIFY, REPEAT = range(8)  # what an operation does


class Op(msgspec.Struct):
    """One instruction of a block, but for the last: what it does, and where.

    Attributes:
        value: Of a move of the stack pointer, the bytes; of an access to the stack, from the
            stack pointer at
            the begin of the block; of one to a line of its own, its number; of one far away, the
            bucket.
    """

    does: int
    place: int = CLOSE
    value: int = 0


class Block(msgspec.Struct):
    """Straight code.

    Attributes:
        at: Where it begins, in bytes.
        ends: `fall`, or the class of its last instruction.
        target, next: Of a jump and of what comes after it in memory; -1: never executed.
        chance: That it jumps, of a branch to what comes after it.
    """

    at: int
    bytes: int
    ops: list[Op]
    ends: str
    target: int = -1
    next: int = -1
    chance: float | None = None


class Path(msgspec.Struct):
    """One way through an edge: blocks, one after the other.

    Attributes:
        kind: Of the request that was read before.
        depth: Of the stack pointer at its begin, below the highest of all paths.
        returns: For each return that the path has no call for: where in the stack, from its
            begin, and the block that follows.
        lines: Different lines of data that it touches.
    """

    edge: int
    kind: int
    weight: float
    depth: int
    blocks: list[int]
    returns: list[tuple[int, int]]
    lines: int = 0


class Skeleton(msgspec.Struct):
    """Blocks, paths through them, and the lines of data that are touched in the same place each
    time.

    Attributes:
        lines: By number: where, in lines; below 0: so many below the highest stack pointer.
        left_out: Share of the work in samples that could not be followed.
        connection_lines: That each connection has of its own.
    """

    blocks: list[Block]
    paths: list[Path]
    lines: list[int]
    left_out: float = 0.0
    connection_lines: int = 0


#: An instruction: the block that it is in, and its place there.
Where = tuple[int, int]
Weights = defaultdict[int, float]


class _Raw(msgspec.Struct, eq=False):
    """A block as it was."""

    at: int
    code: list[Decoded]
    bytes: int = 0

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

    skew: int = 0  # of targets: from the begin of the code that was decoded


class _Visit(msgspec.Struct, eq=False):
    raw: _Raw
    accesses: list[tuple[int, int]]  # which instruction, and the entry
    repeats: int = 0


class Chosen(msgspec.Struct, frozen=True):
    """A sample: of which edge, after which kind of request, and its executions a request."""

    edge: int
    kind: int
    recording: Recording
    sample: Sample
    weight: float


def make_skeleton(chosen: Sequence[Chosen]) -> Skeleton:
    """From executions of edges.

    Where many cannot be followed call by call, none is: signals, coroutines and other ways of
    changing the stack leave functions otherwise than through their returns. Calls and returns are
    then jumps to where they went.
    """
    raws = _Blocks(chosen)
    walks = [raws.walk(one) for one in chosen]
    moves = _learn_moves(walks)
    kept: list[tuple[Chosen, list[_Visit], _Walked]] = []
    work = lost = 0.0
    for one, visits in zip(chosen, walks, strict=True):
        is_legal = all(map(_is_legal, visits, visits[1:]))
        walked = _follow(visits, moves) if is_legal else None
        work += one.weight * len(visits)
        if walked is None:
            lost += one.weight * len(visits)
        else:
            kept.append((one, visits, walked))
    if lost <= _MOST_LOST * work:
        return _assemble(kept, moves, lost / max(work, 1e-9))
    free = [(one, visits, _Walked(0, 0, [], set()))
            for one, visits in zip(chosen, walks, strict=True)]  # fmt: skip
    return _assemble(free, {}, 0.0, is_free=True)


class _Blocks:
    """Blocks of all processes, cut where any other begins or ends."""

    def __init__(self, chosen: Sequence[Chosen]) -> None:
        self._space: dict[int, int] = {}  # by recording: added to its addresses
        self._parts: dict[
            tuple[int, int], list[tuple[_Raw, int]]
        ] = {}  # of a block: with its first instruction
        self._at: dict[int, _Raw] = {}
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

    def _cut(self, at: int, code: list[Decoded], cuts: set[int]) -> list[tuple[_Raw, int]]:
        parts: list[tuple[_Raw, int]] = []
        begin, first, now = at, 0, at
        for i, one in enumerate(code):
            now += one.bytes
            if now in cuts or i + 1 == len(code):
                raw = self._at.get(begin)
                if raw is None or raw.bytes != now - begin:
                    raw = self._at[begin] = _Raw(
                        begin, code[first : i + 1], now - begin, begin - at
                    )
                parts.append((raw, first))
                begin, first = now, i + 1
        return parts

    def walk(self, one: Chosen) -> list[_Visit]:
        """A sample as visits of blocks."""
        visits: list[_Visit] = []
        parts: list[tuple[_Raw, int]] = []
        opened: list[_Visit] = []
        for entry in one.sample.entries:
            if entry & BLOCK:
                parts = self._parts[id(one.recording), entry & 0xFFFFFFFF]
                opened = [_Visit(raw, []) for raw, _ in parts]
                visits += opened
                continue
            number = entry >> 52 & 0x3FF
            for visit, (_, first) in zip(reversed(opened), reversed(parts), strict=True):
                if number >= first:
                    visit.accesses.append((number - first, entry))
                    break
        return _join(visits)


def _join(visits: list[_Visit]) -> list[_Visit]:
    """Iterations of a repeated instruction are one visit.

    An instruction across two pages is seen twice by the emulator, the first time cut short.
    """
    found: list[_Visit] = []
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


def _is_legal(visit: _Visit, after: _Visit) -> bool:
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


def _learn_moves(walks: Iterable[list[_Visit]]) -> dict[int, int]:
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
                    kind in ("push", "pop", "ret", *_CALLS)
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


class _Walked(msgspec.Struct):
    entry: int  # the true stack pointer at its begin; 0: not known
    depth: int  # lowest stack pointer, from the begin
    returns: list[tuple[int, int]]  # place, and the address that follows
    unsafe: set[tuple[int, int]]  # block and instruction: stores that would hit a return address


def _follow(visits: list[_Visit], moves: dict[int, int]) -> _Walked | None:
    """Executes a path as its clone will: does every return find its way?"""
    slots: dict[int, int] = {}  # return addresses in the stack
    dead: set[int] = set()  # places that were overwritten
    found = _Walked(0, 0, [], set())
    pointer = 0
    for k, visit in enumerate(visits):
        follows = visits[k + 1].raw.at if k + 1 < len(visits) else -1
        entry_of = dict(visit.accesses)
        for i, one in enumerate(visit.raw.code):
            kind = CLASSES[one.kind]
            if found.entry == 0 and i in entry_of and kind in ("push", "pop", "ret", *_CALLS):
                down = 8 if kind in ("push", *_CALLS) else 0
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
            if kind in ("push", *_CALLS):
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


def _assemble(
    kept: list[tuple[Chosen, list[_Visit], _Walked]], moves: dict[int, int], left_out: float,
    *, is_free: bool = False,
) -> Skeleton:  # fmt: skip
    """With `is_free` calls and returns are jumps."""
    top, main = _tops(kept)
    lines: dict[Where, Weights] = defaultdict(_weights)
    buckets: dict[Where, Weights] = defaultdict(_weights)
    shared: dict[int, dict[Where, dict[int, Weights]]] = {
        place: defaultdict(lambda: defaultdict(_weights)) for place in (CONNECTION, NEXT)
    }
    sides: dict[tuple[int, int], int] = defaultdict(int)
    repeats: dict[int, list[int]] = defaultdict(list)
    unsafe: set[tuple[int, int]] = set()
    # What each thread has of its own is one thing: lines are those of the thread that does most.
    for one, visits, walked in sorted(kept, key=lambda each: _thread(each[0]) != main):
        unsafe |= walked.unsafe
        highest = top[_thread(one)] // LINE
        others = {} if _thread(one) == main else dict.fromkeys(lines)
        for visit in visits:
            if visit.repeats:
                repeats[visit.raw.at].append(visit.repeats + 1)
            for number, entry in visit.accesses:
                key = visit.raw.at, number
                line = (entry & ((1 << 45) - 1)) >> 3
                if 0 <= highest - line < _MOST_STACK:
                    line -= highest + 1  # below 0: in the stack
                if key not in others:
                    lines[key][line] += one.weight
                    shared[CONNECTION][key][one.sample.connection][line] += 1
                    shared[NEXT][key][one.sample.next][line] += 1
                buckets[key][entry >> 45 & 0x7F] += one.weight
                sides[key] |= 2 if entry & STORE else 1
    raws = {visit.raw.at: visit.raw for _, visits, _ in kept for visit in visits}
    order = sorted(raws)
    number_of = {at: i for i, at in enumerate(order)}
    of_connection = _find_connection_lines(lines, shared)
    away: dict[tuple[int, int], int] = {}
    for side in (1, 2, 3):
        mine = {key: counts for key, counts in buckets.items()
                if sides[key] == side and key not in of_connection}  # fmt: skip
        away |= _deal_away(lines, mine)
    place_of_page = _colour(sorted({at // PAGE for at in order}))
    own = sorted({_most(counts) for counts in lines.values() if _is_own(counts)})
    data_page = _colour(sorted({line * LINE // PAGE for line in own if line >= 0}))
    line_number = {line: i for i, line in enumerate(own)}
    ends = _ends_of(kept) if is_free else {at: raw.ends for at, raw in raws.items()}
    blocks = []
    for at in order:
        raw, ops, pointer = raws[at], [], 0
        body = raw.code if ends[at] == "fall" else raw.code[:-1]
        for i, code in enumerate(body):
            ops.append(
                _op(code, pointer, (at, i), sides, lines, away, line_number, unsafe, repeats)
            )
            if (at, i) in of_connection and ops[-1].does in (LOAD, SAVE, MODIFY):
                ops[-1] = Op(ops[-1].does, *of_connection[at, i])
            if is_free:  # nothing would bring the stack pointer back
                ops[-1] = {PUSH: Op(SAVE), POP: Op(LOAD)}.get(ops[-1].does, ops[-1])
                continue
            step = moves.get(at, 0) if code.stack is None else code.stack
            if step and ops[-1].does not in (PUSH, POP):
                ops[-1] = Op(MOVE, STACK, step)
            pointer += step
        target = raw.target
        blocks.append(Block(
            place_of_page[at // PAGE] * PAGE + at % PAGE, raw.bytes, ops, ends[at],
            -1 if target is None else number_of.get(target, -1), number_of.get(at + raw.bytes, -1),
        ))  # fmt: skip
    paths = [
        Path(one.edge, one.kind, one.weight, top[_thread(one)] - walked.entry,
             [number_of[v.raw.at] for v in visits],
             [(place, number_of[to]) for place, to in walked.returns], len(one.sample.lines()))
        for one, visits, walked in kept
    ]  # fmt: skip
    return Skeleton(
        blocks, paths,
        [line if line < 0 else data_page[line // _LINES] * _LINES + line % _LINES for line in own],
        left_out, 1 + max((line for _, line in of_connection.values()), default=-1),
    )  # fmt: skip


def _find_connection_lines(
    lines: dict[Where, Weights], shared: dict[int, dict[Where, dict[int, Weights]]]
) -> dict[Where, tuple[int, int]]:
    """Instructions that go to one line for one connection and to others for others.

    Lines of different connections that the same instruction goes to are one line of a connection.
    Returns the place, whose connection it is, and the line.
    """
    number_of: dict[tuple[int, int], int] = {}
    found: dict[Where, tuple[int, int]] = {}
    count = 0
    for key in sorted(lines):
        if _is_own(lines[key]):
            continue
        best: tuple[float, int, dict[int, int]] = 0.0, -1, {}
        for place, by_key in shared.items():
            by_connection = by_key[key]
            usual = {fd: _most(counts) for fd, counts in by_connection.items() if fd >= 0}
            seen = sum(sum(counts.values()) for counts in by_connection.values())
            same = sum(by_connection[fd][line] for fd, line in usual.items()) / seen
            if (
                min(usual.values(), default=-1) >= 0
                and len(set(usual.values())) >= max(_FEWEST_CONNECTIONS, _DIFFER * len(usual))
                and seen >= _OFTEN * len(usual)
            ):
                best = max(best, (same, place, usual), key=lambda one: one[0])
        same, place, usual = best
        if same >= _SAME:
            known = [number_of[one] for one in usual.items() if one in number_of]
            number = known[0] if known else count
            count = max(count, number + 1)
            for one in usual.items():
                number_of.setdefault(one, number)
            found[key] = place, number
    return found


def _thread(one: Chosen) -> tuple[int, int]:
    return id(one.recording), one.sample.thread


def _ends_of(kept: list[tuple[Chosen, list[_Visit], _Walked]]) -> dict[int, str]:
    """How blocks end that no function returns to: as they do, or with a jump to what follows."""
    after: dict[int, set[int]] = defaultdict(set)
    raws = {visit.raw.at: visit.raw for _, visits, _ in kept for visit in visits}
    for _, visits, _ in kept:
        for visit, follows in itertools.pairwise(visits):
            after[visit.raw.at].add(follows.raw.at)
    found = {}
    for at, raw in raws.items():
        falls = {at + raw.bytes}
        to = set() if raw.target is None else {raw.target}
        ways = {"fall": falls, "branch": to | falls}.get(raw.ends, to)
        plain = {"call": "jmp"}.get(raw.ends, raw.ends)
        found[at] = plain if after[at] <= ways else "jmp_indirect"
    return found


def _tops(
    kept: list[tuple[Chosen, list[_Visit], _Walked]],
) -> tuple[dict[tuple[int, int], int], tuple[int, int]]:
    """The highest stack pointer of each thread, and the thread that does most."""
    top: dict[tuple[int, int], int] = {}
    weight: dict[tuple[int, int], float] = defaultdict(float)
    for one, visits, walked in kept:
        key = _thread(one)
        top[key] = max(
            top.get(key, 0), walked.entry + max((p for p, _ in walked.returns), default=0)
        )
        weight[key] += one.weight * len(visits)
    return top, max(weight, key=lambda key: weight[key], default=(0, 0))


def _weights() -> Weights:
    return defaultdict(float)


def _most(counts: Weights) -> int:
    return max(counts, key=lambda one: counts[one])


def _is_own(counts: Weights) -> bool:
    return counts[_most(counts)] >= _SAME * sum(counts.values())


def _op(
    code: Decoded, pointer: int, key: tuple[int, int], sides: dict[tuple[int, int], int],
    lines: dict[tuple[int, int], Weights], away: dict[tuple[int, int], int],
    line_number: dict[int, int], unsafe: set[tuple[int, int]], repeats: dict[int, list[int]],
) -> Op:  # fmt: skip
    kind = CLASSES[code.kind]
    if kind == "push":
        return Op(PUSH, STACK)
    if kind == "pop" and code.stack == 8:
        return Op(POP, STACK)
    side = sides.get(key, 0)
    if kind == "string" and repeats.get(key[0]):
        return Op(REPEAT, CLOSE, round(float(np.mean(repeats[key[0]]))))
    if side == 0:
        return Op(FILLER)
    does = (FILLER, LOAD, SAVE, MODIFY)[side]
    if code.frame is not None and key not in unsafe:
        return Op(does, STACK, pointer + code.frame & ~7)
    if code.frame is not None:
        return Op(does, CLOSE)
    if key in away:
        return Op(does, AWAY, away[key])
    line = _most(lines[key])
    if _is_own(lines[key]) and (line >= 0 or does == LOAD):  # a store could hit a return address
        return Op(does, CONSTANT, line_number[line])
    return Op(does, CLOSE)


def _deal_away(
    lines: dict[Where, Weights], buckets: dict[Where, Weights]
) -> dict[tuple[int, int], int]:
    """Which instructions go how far, so that as many accesses do as did."""
    near = bucket_of(NEAR)
    weight_of = {key: sum(counts.values()) for key, counts in buckets.items()}
    wanted = _weights()
    share = {}
    for key, counts in buckets.items():
        if _is_own(lines[key]):
            continue
        far = {b: w for b, w in counts.items() if b >= near}
        for b, w in far.items():
            wanted[b] += w
        share[key] = sum(far.values()) / weight_of[key]
    picked, owed = [], sum(wanted.values())
    for key in sorted(share, key=lambda one: (-share[one], one)):
        if weight_of[key] > 1.5 * owed:
            continue
        owed -= weight_of[key]
        picked.append(key)
        if owed <= 0:
            break
    middle = {
        key: _median({b: w for b, w in buckets[key].items() if b >= near}) for key in picked
        if share[key] > 0
    }  # fmt: skip
    if not middle:
        return {}
    ladder = sorted(wanted)
    ends = np.cumsum([wanted[bucket] for bucket in ladder])
    order = sorted(middle, key=lambda one: (middle[one], one))
    weights = np.array([weight_of[key] for key in order])
    middles = (np.cumsum(weights) - weights / 2) / weights.sum() * ends[-1]
    return {
        key: ladder[int(np.searchsorted(ends, at))] for key, at in zip(order, middles, strict=True)
    }


def _median(counts: dict[int, float]) -> int:
    half, total = sum(counts.values()) / 2, 0.0
    for bucket, weight in sorted(counts.items()):
        total += weight
        if total >= half:
            return bucket
    return 0


def _colour(pages: list[int]) -> dict[int, int]:
    """New numbers for pages, in their order, equal modulo the number of colours."""
    found, now = {}, 0
    for page in pages:
        now += (page - now) % PAGE_COLOURS
        found[page] = now
        now += 1
    return found


# --- on disk -------------------------------------------------------------------------------------


FILES = ("blocks.arrow", "paths.arrow", "lines.arrow")


def write_skeleton(skeleton: Skeleton, folder: FilePath) -> list[str]:
    """Arrow files; returns their names."""
    blocks, paths = skeleton.blocks, skeleton.paths
    write_arrow(folder / "blocks.arrow", {
        "at": np.array([one.at for one in blocks], np.int64),
        "bytes": np.array([one.bytes for one in blocks], np.int32),
        "ends": Dictionary.of([one.ends for one in blocks]),
        "target": np.array([one.target for one in blocks], np.int32),
        "next": np.array([one.next for one in blocks], np.int32),
        "operations": _lists([one.ops for one in blocks], {
            "does": lambda op: op.does, "place": lambda op: op.place,
            "value": lambda op: op.value}),
    }, {"left_out": repr(skeleton.left_out),
        "connection_lines": str(skeleton.connection_lines)})  # fmt: skip
    write_arrow(folder / "paths.arrow", {
        "edge": np.array([one.edge for one in paths], np.int32),
        "kind": np.array([one.kind for one in paths], np.int32),
        "weight": np.array([one.weight for one in paths], np.float64),
        "depth": np.array([one.depth for one in paths], np.int64),
        "lines": np.array([one.lines for one in paths], np.int32),
        "blocks": _lists([one.blocks for one in paths], {"block": lambda one: one}),
        "returns": _lists([one.returns for one in paths], {
            "place": lambda one: one[0], "block": lambda one: one[1]}),
    })  # fmt: skip
    write_arrow(folder / "lines.arrow", {"line": np.array(skeleton.lines, np.int64)})
    return list(FILES)


def _lists(rows: Sequence[Sequence[Any]], parts: dict[str, Callable[[Any], int]]) -> ListOf:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = [one for row in rows for one in row]
    return ListOf(offsets, {name: np.array([of(one) for one in flat], np.int64)
                            for name, of in parts.items()})  # fmt: skip


def read_skeleton(folder: FilePath) -> Skeleton:
    """What `write_skeleton` wrote."""
    blocks, paths, lines = (
        read_arrow(folder / f"{name}.arrow") for name in ("blocks", "paths", "lines")
    )
    try:
        ops = _rows(blocks["operations"], "does", "place", "value")
        made = [
            Block(at, size, [Op(*one) for one in mine], ends, target, after)
            for at, size, ends, target, after, mine in zip(
                blocks["at"].tolist(), blocks["bytes"].tolist(), blocks["ends"],
                blocks["target"].tolist(), blocks["next"].tolist(), ops, strict=True)
        ]  # fmt: skip
        walks = [
            Path(edge, kind, weight, depth, [one for one, in mine], returns, touched)
            for edge, kind, weight, depth, touched, mine, returns in zip(
                *(paths[name].tolist() for name in ("edge", "kind", "weight", "depth", "lines")),
                _rows(paths["blocks"], "block"), _rows(paths["returns"], "place", "block"),
                strict=True)
        ]  # fmt: skip
        return Skeleton(
            made, walks, lines["line"].tolist(), float(blocks.metadata["left_out"]),
            int(blocks.metadata["connection_lines"]),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"its paths cannot be read: {error}", where=str(folder)) from None


def _rows(lists: ListOf, *names: str) -> list[list[Any]]:
    assert isinstance(lists.child, Mapping)
    parts = [np.asarray(lists.child[name]).tolist() for name in names]
    flat = list(zip(*parts, strict=True))
    return [
        flat[a:b] for a, b in zip(lists.offsets.tolist(), lists.offsets[1:].tolist(), strict=False)
    ]
