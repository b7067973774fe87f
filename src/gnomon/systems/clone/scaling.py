"""Skeletons with less data, and with less or more code.

More data is no other skeleton: requests of a clone take turns with several memories (turns.c).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gnomon.systems.clone.morph import Parts
from gnomon.systems.clone.recording import BUCKETS, bucket_of, distance_of
from gnomon.systems.clone.skeleton import (
    AWAY,
    CONNECTION,
    CONSTANT,
    FILLER,
    LINE,
    MOVE,
    NEAR,
    NEXT,
    PAGE,
    POP,
    PUSH,
    STACK,
    Block,
    Path,
    Skeleton,
)  # fmt: skip

_FALLS = frozenset(("fall", "branch", "call", "call_indirect"))
#: Bytes of the shortest encodings, about: by what an operation does, where, and how a block ends.
_DOES = {PUSH: 1, POP: 1, MOVE: 4, FILLER: 2}
_PLACE = {STACK: 4, CONSTANT: 6, AWAY: 10, CONNECTION: 6}
_ENDS = {"fall": 0, "branch": 5, "jmp": 3, "ret": 1, "call": 5}
_CLOSE, _INDIRECT = 4, 6
_ROUNDS = 12
#: Of a weight: not to be counted.
_NOTHING = 1e-9


def scaled(skeleton: Skeleton, parts: Parts, kinds: int) -> Skeleton:
    """What a recipe makes of it."""
    if parts.data < 1:
        skeleton = with_less_data(skeleton, parts.data)
    if parts.code < 1:
        skeleton = packed(skeleton, parts.code)
    return copied(skeleton, parts.copies, kinds)


def with_less_data(skeleton: Skeleton, factor: float) -> Skeleton:
    """Lines that are touched by the same requests become one; what goes away goes less far."""
    number = _folded(skeleton, factor)
    own = math.ceil(factor * skeleton.connection_lines)
    blocks = []
    for block in skeleton.blocks:
        ops = [msgspec.structs.replace(op) for op in block.ops]
        for op in ops:
            if op.place == AWAY and op.value < BUCKETS - 1:
                op.value = bucket_of(max(round(factor * distance_of(op.value)), NEAR))
            elif op.place == CONSTANT:
                op.value = number[op.value]
            elif op.place in (CONNECTION, NEXT):
                op.value %= own
        blocks.append(msgspec.structs.replace(block, ops=ops))
    paths = [msgspec.structs.replace(one, lines=round(factor * one.lines))
             for one in skeleton.paths]  # fmt: skip
    return msgspec.structs.replace(skeleton, blocks=blocks, paths=paths, connection_lines=own)


def _folded(skeleton: Skeleton, factor: float) -> list[int]:
    """For each line the one that takes its place.

    Lines that are touched half a pass apart become one, which is then touched twice a pass, at
    half the distance. Neighbours in time would become hits of the nearest cache.
    """
    often, first = defaultdict[int, float](float), dict[int, None]()
    for path in skeleton.paths:
        touched = dict.fromkeys(op.value for b in path.blocks for op in skeleton.blocks[b].ops
                                if op.place == CONSTANT)  # fmt: skip
        for line in touched:
            often[line] += path.weight
        first |= touched
    groups = defaultdict[int, list[int]](list)
    for line in first:
        if skeleton.lines[line] >= 0:  # those of the stack stay where they are
            groups[round(math.log2(max(often[line], 1e-6)))].append(line)
    found = list(range(len(skeleton.lines)))
    for mine in groups.values():
        for i, line in enumerate(mine):
            found[line] = mine[i % max(round(factor * len(mine)), 1)]
    return found


def code_lines(skeleton: Skeleton) -> float:
    """Lines of code that a request touches; those of two edges count twice."""
    return _lines(skeleton, [one.at for one in skeleton.blocks],
                  [one.bytes for one in skeleton.blocks])  # fmt: skip


def _lines(skeleton: Skeleton, at: Sequence[int], size: Sequence[int]) -> float:
    total = 0.0
    for path in skeleton.paths:
        touched: set[int] = set()
        for b in set(path.blocks):
            touched.update(range(at[b] // LINE, (at[b] + max(size[b], 1) - 1) // LINE + 1))
        total += path.weight * len(touched)
    return total


def packed(skeleton: Skeleton, factor: float) -> Skeleton:
    """With so much of the lines of code that a request touches, or as little as can be.

    Between the blocks that a service executes lie those that it does not: half of each line of
    code that a request touches, in Redis. Moved together, as a compiler does that knows the
    profile, the same blocks take fewer lines. Instructions, branches and the order of blocks stay.
    The blocks that most requests execute move together first. If all have and that is not enough,
    instructions get shorter encodings.
    """
    own, pieces = code_lines(skeleton), _pieces(skeleton)

    def laid_out(how: float) -> tuple[int, list[int], list[int]]:
        """Up to 1, so many pieces move; up to 2, instructions get shorter, too."""
        count, by = round(min(how, 1.0) * len(pieces)), 2 - max(how, 1.0)
        sizes = [max(math.floor(one.bytes * by), min(_least(one), one.bytes))
                 for one in skeleton.blocks]  # fmt: skip
        return count, sizes, _placed(skeleton, pieces, count, sizes)

    low, high = 0.0, 2.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        _, sizes, at = laid_out(middle)
        if _lines(skeleton, at, sizes) > factor * own:
            low = middle
        else:
            high = middle
    count, sizes, at = laid_out(high)
    if _lines(skeleton, at, sizes) > own:  # a few blocks, which lie well
        return skeleton
    moved = {b for piece in pieces[:count] for b in piece}
    blocks = [
        msgspec.structs.replace(
            one, at=at[b], bytes=sizes[b],
            # What lay behind a jump need not any more.
            next=one.next if b not in moved or one.ends in _FALLS else -1,
        ) for b, one in enumerate(skeleton.blocks)
    ]  # fmt: skip
    return msgspec.structs.replace(skeleton, blocks=blocks)


def _least(block: Block) -> int:
    ops = sum(_DOES.get(op.does, _PLACE.get(op.place, _CLOSE)) for op in block.ops)
    return ops + _ENDS.get(block.ends, _INDIRECT)


def _pieces(skeleton: Skeleton) -> list[list[int]]:
    """Blocks that have to stay together, those first that most requests execute.

    Last those with indirect jumps: predictors know them by where they are.
    """
    heat = defaultdict[int, float](float)
    for path in skeleton.paths:
        for b in set(path.blocks):
            heat[b] += path.weight
    exits = {path.blocks[-1] for path in skeleton.paths}
    pieces: list[list[int]] = []
    for b in sorted(heat, key=lambda one: (skeleton.blocks[one].at, one)):
        before = pieces[-1][-1] if pieces else -1
        goes_on = before >= 0 and skeleton.blocks[before].ends in _FALLS and before not in exits
        if goes_on and skeleton.blocks[before].next == b:
            pieces[-1].append(b)
        else:
            pieces.append([b])

    def rank(piece: list[int]) -> tuple[bool, int, int]:
        hottest = max(heat[b] for b in piece)
        jumps = any(skeleton.blocks[b].ends.endswith("_indirect") for b in piece)
        return jumps, -round(2 * math.log2(max(hottest, 1e-9))), skeleton.blocks[piece[0]].at

    return sorted(pieces, key=rank)


def _placed(
    skeleton: Skeleton, pieces: list[list[int]], count: int, size: Sequence[int]
) -> list[int]:
    """Where blocks begin if the first pieces lie together, behind all others."""
    at = [one.at for one in skeleton.blocks]
    stay = [b for piece in pieces[count:] for b in piece]
    now = _pages(max((at[b] + skeleton.blocks[b].bytes for b in stay), default=0)) * PAGE
    for piece in pieces[:count]:
        for b in piece:
            at[b] = now
            now += size[b]
    return at


def copied(skeleton: Skeleton, copies: int, kinds: int) -> Skeleton:
    """Every block and every path so many times; kind `k` of copy `c` becomes `c * kinds + k`."""
    if copies == 1:
        return skeleton
    count = len(skeleton.blocks)
    # An odd number of pages: copies do not meet in the same sets of larger caches. Twice as many
    # as there are: code may come out longer than it was.
    span = PAGE * (2 * _pages(max((one.at + one.bytes for one in skeleton.blocks), default=0)) + 1)
    of_all = _with_all_kinds(skeleton.paths, kinds)
    blocks, paths = [], []
    for c in range(copies):

        def shifted(number: int, first: int = c * count) -> int:
            return number + first if number >= 0 else number

        # Operations are shared: a copy works on the same lines of data.
        blocks += [
            msgspec.structs.replace(one, at=one.at + c * span, target=shifted(one.target),
                                    next=shifted(one.next))
            for one in skeleton.blocks
        ]  # fmt: skip
        paths += [
            msgspec.structs.replace(
                one, kind=one.kind + c * kinds, weight=one.weight / copies,
                blocks=list(map(shifted, one.blocks)),
                returns=[(place, shifted(b)) for place, b in one.returns])
            for one in of_all
        ]  # fmt: skip
    return msgspec.structs.replace(skeleton, blocks=blocks, paths=paths)


def _with_all_kinds(paths: list[Path], kinds: int) -> list[Path]:
    """Kinds without a path of their own on an edge take those of others: of the same copy."""
    found = list(paths)
    for edge in {one.edge for one in paths}:
        mine = [one for one in paths if one.edge == edge]
        found += [msgspec.structs.replace(one, kind=kind, weight=_NOTHING * one.weight)
                  for kind in set(range(kinds)).difference(one.kind for one in mine)
                  for one in mine]  # fmt: skip
    return found


def _pages(size: int) -> int:
    return -(-size // PAGE)
