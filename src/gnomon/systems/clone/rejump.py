"""Conditional branches that always or never jump, exchanged for jumps and for no jump at all.

What the runtime adds and what is left out with calls shift the share of branches that are taken.
Exchanges leave every path through the code as it is.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec
from numpy.random import Generator

from gnomon.systems.clone.skeleton import FILLER, Block, Op, Skeleton

#: Executions a request of a branch that may be exchanged: those of loops are too many at once.
_MOST = 2.0
#: Bytes of a comparison and a branch, and of most other instructions.
_BRANCH, _OTHER = 8, 3


def rejump(skeleton: Skeleton, always: float, never: float, rng: Generator) -> Skeleton:
    """With so many more branches a request that always, or never, jump; below 0: with fewer."""
    weights = defaultdict[int, float](float)
    after = defaultdict[int, set[int]](set)
    ends = set[int]()
    for path in skeleton.paths:
        ends.add(path.blocks[-1])
        for number in path.blocks:
            weights[number] += path.weight
        for number, follows in itertools.pairwise(path.blocks):
            after[number].add(follows)
    numbers = [number for number in sorted(after) if number not in ends]
    order = [numbers[i] for i in rng.permutation(len(numbers))]
    blocks = list(skeleton.blocks)

    def jumps_always(number: int) -> bool:
        block = blocks[number]
        return after[number] == {block.target} and block.target != block.next

    def exchange(much: float, which: Iterable[int], by: Callable[[Block], Block]) -> None:
        for number in which:
            if weights[number] <= min(much, _MOST):
                blocks[number] = by(blocks[number])
                much -= weights[number]

    branches = [n for n in order if blocks[n].ends == "branch"]
    if always > 0:
        exchange(always, (n for n in order if blocks[n].ends == "jmp" and jumps_always(n)
                          and _has_room(blocks[n])), _to_branch)  # fmt: skip
    else:
        exchange(-always, filter(jumps_always, branches), _to_jump)
    if never > 0:
        exchange(never, (n for n in order if _may_branch(blocks[n])), _from_filler)
    else:
        exchange(-never, (n for n in branches if blocks[n].target not in after[n]), _to_filler)
    return msgspec.structs.replace(skeleton, blocks=blocks)


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
    return msgspec.structs.replace(block, ends="fall", target=-1, ops=[*block.ops, Op(FILLER)])
