"""Code that takes less room, or more: blocks moved together, and copies of all blocks.

Between the blocks that a service executes lie those that it does not: half of each line of code
that a request touches, in Redis. Moved together, as a compiler does that knows the profile, the
same blocks take fewer lines. Instructions, branches and the order of blocks stay.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gnomon.systems.clone.skeleton import (
    AWAY,
    CONNECTION,
    CONSTANT,
    FILLER,
    LINE,
    MOVE,
    PAGE,
    POP,
    PUSH,
    STACK,
    Block,
    Skeleton,
)  # fmt: skip

_FALLS = frozenset(("fall", "branch", "call", "call_indirect"))
#: Bytes of the shortest encodings, about: by what an operation does, where, and how a block ends.
_DOES = {PUSH: 1, POP: 1, MOVE: 4, FILLER: 2}
_PLACE = {STACK: 4, CONSTANT: 6, AWAY: 10, CONNECTION: 6}
_ENDS = {"fall": 0, "branch": 5, "jmp": 3, "ret": 1, "call": 5}
_CLOSE, _INDIRECT = 4, 6
_ROUNDS = 12


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

    The blocks that most requests execute move together first. If all have and that is not enough,
    instructions get shorter encodings.
    """
    wanted = factor * code_lines(skeleton)
    pieces = _pieces(skeleton)
    least, size = [_least(one) for one in skeleton.blocks], [one.bytes for one in skeleton.blocks]

    def shorter(by: float) -> list[int]:
        return [max(math.floor(full * by), min(low, full))
                for full, low in zip(size, least, strict=True)]  # fmt: skip

    low, high = 0.0, 2.0  # up to 1: pieces that move; from there on: shorter encodings
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        count, sizes = round(min(middle, 1.0) * len(pieces)), shorter(2 - max(middle, 1.0))
        if _lines(skeleton, _placed(skeleton, pieces, count, sizes), sizes) > wanted:
            low = middle
        else:
            high = middle
    count, sizes = round(min(high, 1.0) * len(pieces)), shorter(2 - max(high, 1.0))
    at = _placed(skeleton, pieces, count, sizes)
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
    """Blocks that have to stay together, those first that most requests execute."""
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

    def rank(piece: list[int]) -> tuple[int, int]:
        hottest = max(heat[b] for b in piece)
        return -round(2 * math.log2(max(hottest, 1e-9))), skeleton.blocks[piece[0]].at

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


def copied(skeleton: Skeleton, copies: int) -> Skeleton:
    """Every block and every path so many times; path `p` of copy `c` has its kind times copies,
    plus `c`."""
    if copies == 1:
        return skeleton
    count = len(skeleton.blocks)
    # An odd number of pages: copies do not meet in the same sets of larger caches.
    span = PAGE * (_pages(max((one.at + one.bytes for one in skeleton.blocks), default=0)) | 1)
    span += PAGE * 2 * math.ceil(count / 256)  # code may come out longer than it was
    blocks, paths = [], []
    for c in range(copies):
        first = c * count

        def shifted(number: int, first: int = first) -> int:
            return number + first if number >= 0 else number

        # Operations are shared: a copy works on the same lines of data.
        blocks += [
            msgspec.structs.replace(one, at=one.at + c * span, target=shifted(one.target),
                                    next=shifted(one.next))
            for one in skeleton.blocks
        ]  # fmt: skip
        paths += [
            msgspec.structs.replace(
                one, kind=one.kind * copies + c, weight=one.weight / copies,
                blocks=[b + first for b in one.blocks],
                returns=[(place, b + first) for place, b in one.returns])
            for one in skeleton.paths
        ]  # fmt: skip
    return msgspec.structs.replace(skeleton, blocks=blocks, paths=paths)


def _pages(size: int) -> int:
    return -(-size // PAGE)
