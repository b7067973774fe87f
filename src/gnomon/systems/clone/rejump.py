"""Conditional branches, as many as there were, that jump as often and change as often.

What the runtime adds and what is left out with calls shift all three. Branches that always or
never jump are exchanged for jumps and for no jump at all, and where that does not do, blocks are
split by a branch to the second half. Every path through the code stays as it is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec
from numpy.random import Generator

from gnomon.systems.clone.skeleton import (
    FILLER,
    MOVE,
    POP,
    PUSH,
    STACK,
    Block,
    Op,
    Path,
    Skeleton,
)

#: Executions a request of a branch that may be exchanged: those of loops are too many at once.
_MOST = 2.0
#: Bytes of a comparison and a branch, and of most other instructions.
_BRANCH, _OTHER = 8, 3
#: Of a branch that jumps at random: as often mispredicted for each change as others are, which
#: an even one would be in each.
_AT_RANDOM = 0.25
#: Changes in an execution of such a branch.
_CHANGES = 2 * _AT_RANDOM * (1 - _AT_RANDOM)


def rejump(
    skeleton: Skeleton, always: float, never: float, rng: Generator, *, changing: float = 0.0,
    edges: Collection[int] | None = None,
) -> Skeleton:  # fmt: skip
    """With so many more branches a request that always, or never, jump; below 0: with fewer.

    Args:
        changing: So many more that go another way than the time before.
        edges: Whose blocks may be changed; all unless given.
    """
    one = _Exchange(skeleton, rng, edges)
    at_random = changing / _CHANGES
    one.jump_at_random(at_random)
    one.jump_always(always - _AT_RANDOM * at_random)
    one.jump_never(never - (1 - _AT_RANDOM) * at_random)
    return one.skeleton()


class _Exchange:
    def __init__(self, skeleton: Skeleton, rng: Generator, edges: Collection[int] | None) -> None:
        self._skeleton, self._rng = skeleton, rng
        self._blocks = list(skeleton.blocks)
        self._weights = defaultdict[int, float](float)
        self._after = defaultdict[int, set[int]](set)
        self._halves: dict[int, int] = {}
        mine, ends = set[int](), set[int]()
        for path in skeleton.paths:
            ends.add(path.blocks[-1])
            if edges is None or path.edge in edges:
                mine.update(path.blocks)
            for number in path.blocks:
                self._weights[number] += path.weight
            for number, follows in itertools.pairwise(path.blocks):
                self._after[number].add(follows)
        numbers = [number for number in sorted(self._after) if number in mine - ends]
        self._order = [numbers[i] for i in rng.permutation(len(numbers))]

    def skeleton(self) -> Skeleton:
        return msgspec.structs.replace(
            self._skeleton, blocks=self._blocks, paths=list(map(self._with_halves,
                                                                self._skeleton.paths)),
        )  # fmt: skip

    def jump_at_random(self, much: float) -> None:
        if much > 0:
            self._split(much, _AT_RANDOM)
        else:
            self._exchange(-much, self._of_chance(_AT_RANDOM), _to_filler)

    def jump_always(self, much: float) -> None:
        if much > 0:
            jumps = (n for n in self._order if self._blocks[n].ends == "jmp"
                     and self._jumps_always(n) and _has_room(self._blocks[n]))  # fmt: skip
            self._split(self._exchange(much, jumps, _to_branch), 1.0)
        else:
            left = self._exchange(-much, self._of_chance(1.0), _to_filler)
            self._exchange(left, filter(self._jumps_always, self._branches()), _to_jump)

    def jump_never(self, much: float) -> None:
        if much > 0:
            falls = (n for n in self._order if _may_branch(self._blocks[n]))
            self._split(self._exchange(much, falls, _from_filler), 0.0)
        else:
            left = self._exchange(-much, self._of_chance(0.0), _to_filler)
            never = (n for n in self._branches() if self._blocks[n].target not in self._after[n])
            self._exchange(left, never, _to_filler)

    def _branches(self) -> Iterator[int]:
        return (n for n in self._order if self._blocks[n].ends == "branch")

    def _of_chance(self, chance: float) -> Iterator[int]:
        return (n for n in self._branches() if self._blocks[n].chance == chance)

    def _jumps_always(self, number: int) -> bool:
        block = self._blocks[number]
        return self._after[number] == {block.target} and block.target != block.next

    def _exchange(self, much: float, which: Iterable[int], by: Callable[[Block], Block]) -> float:
        """How much is left."""
        for number in which:
            if self._weights[number] <= min(much, _MOST):
                self._blocks[number] = by(self._blocks[number])
                much -= self._weights[number]
        return much

    def _split(self, much: float, chance: float) -> None:
        """Blocks in two, with a branch in between that jumps with this chance."""
        for number in self._order:
            block, weight = self._blocks[number], self._weights[number]
            fillers = [i for i, op in enumerate(block.ops) if op.does == FILLER]
            if (weight > min(much, _MOST) or number in self._halves or not fillers
                    or not _has_room(block)):  # fmt: skip
                continue
            at, new = fillers[len(fillers) // 2], len(self._blocks)
            first, second = _halves(block, at, new, chance)
            self._blocks[number] = first
            self._blocks.append(second)
            self._halves[number] = new
            much -= weight

    def _with_halves(self, path: Path) -> Path:
        blocks: list[int] = []
        for number in path.blocks:
            blocks += [number, self._halves[number]] if number in self._halves else [number]
        return msgspec.structs.replace(path, blocks=blocks)


def _halves(block: Block, at: int, new: int, chance: float) -> tuple[Block, Block]:
    """Operations before and after a filler, in whose place there is a branch to the second."""
    pointer = sum(op.moves for op in block.ops[:at])
    after = [
        msgspec.structs.replace(op, value=op.value - pointer)
        if op.place == STACK and op.does not in (PUSH, POP, MOVE) else op
        for op in block.ops[at + 1 :]
    ]  # fmt: skip
    bytes_ = _BRANCH // 2 + (block.bytes - _BRANCH) * at // len(block.ops)
    return (
        Block(block.at, bytes_, block.ops[:at], "branch", new, new, chance),
        msgspec.structs.replace(
            block, at=block.at + bytes_, bytes=block.bytes - bytes_, ops=after
        ),
    )


def _has_room(block: Block) -> bool:
    return block.bytes >= _BRANCH + _OTHER * len(block.ops)


def _may_branch(block: Block) -> bool:
    is_filler = bool(block.ops) and block.ops[-1].does == FILLER
    return block.ends == "fall" and is_filler and _has_room(block)


def _to_branch(block: Block) -> Block:
    return msgspec.structs.replace(block, ends="branch")


def _to_jump(block: Block) -> Block:
    return msgspec.structs.replace(block, ends="jmp")


def _from_filler(block: Block) -> Block:
    return msgspec.structs.replace(block, ends="branch", ops=block.ops[:-1])


def _to_filler(block: Block) -> Block:
    return msgspec.structs.replace(
        block, ends="fall", target=-1, chance=None, ops=[*block.ops, Op(FILLER)]
    )
