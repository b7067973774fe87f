"""From executions to their shape: they lose what they compute.

Of each edge some executions are kept whole. Where their accesses go is found by comparing them:
the same line each time, one for each connection, or as far away as they were.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from gnomon.systems.clone.instructions import CLASSES, Decoded
from gnomon.systems.clone.recording import STORE, bucket_of
from gnomon.systems.clone.skeleton import (
    AWAY,
    CLOSE,
    CONNECTION,
    CONSTANT,
    FILLER,
    LINE,
    LOAD,
    MODIFY,
    MOVE,
    NEAR,
    NEXT,
    PAGE,
    PAGE_COLOURS,
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
from gnomon.systems.clone.walks import (
    Blocks,
    Chosen,
    Visit,
    Walked,
    follow,
    is_legal,
    learn_moves,
)  # fmt: skip

_LINES = PAGE // LINE
#: Accesses of an instruction that go to one line, so that the line is its own.
_SAME = 0.8
#: Connections, and accesses a connection, from which on lines are taken to belong to one.
_FEWEST_CONNECTIONS, _OFTEN = 3, 1.7
#: Of the connections, so many have a line of their own: what they take in turns is not theirs.
_DIFFER = 0.7
_MOST_STACK = 1024  # lines below the highest stack pointer
_MOST_LOST = 0.2  # of all work, on paths that cannot be followed call by call

#: An instruction: the block that it is in, and its place there.
Where = tuple[int, int]
Weights = defaultdict[int, float]


def make_skeleton(chosen: Sequence[Chosen]) -> Skeleton:
    """From executions of edges.

    Where many cannot be followed call by call, none is: signals, coroutines and other ways of
    changing the stack leave functions otherwise than through their returns. Calls and returns are
    then jumps to where they went.
    """
    raws = Blocks(chosen)
    walks = [raws.walk(one) for one in chosen]
    moves = learn_moves(walks)
    kept: list[tuple[Chosen, list[Visit], Walked]] = []
    work = lost = 0.0
    for one, visits in zip(chosen, walks, strict=True):
        walked = follow(visits, moves) if all(map(is_legal, visits, visits[1:])) else None
        work += one.weight * len(visits)
        if walked is None:
            lost += one.weight * len(visits)
        else:
            kept.append((one, visits, walked))
    if lost <= _MOST_LOST * work:
        return _assemble(kept, moves, lost / max(work, 1e-9))
    free = [(one, visits, Walked(0, 0, [], set()))
            for one, visits in zip(chosen, walks, strict=True)]  # fmt: skip
    return _assemble(free, {}, 0.0, is_free=True)


def _assemble(
    kept: list[tuple[Chosen, list[Visit], Walked]], moves: dict[int, int], left_out: float,
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


def _ends_of(kept: list[tuple[Chosen, list[Visit], Walked]]) -> dict[int, str]:
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
    kept: list[tuple[Chosen, list[Visit], Walked]],
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
