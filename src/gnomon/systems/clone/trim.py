"""Leaving out calls from paths, in exchange for what the clone's runtime executes itself.

A clone reads, parses and answers requests, as the original did: both together would be too much,
in instructions and in lines of code and data. A call with all that it leads to is such a piece
of work, so calls are left out until as many instructions are gone from each edge as the runtime
adds to it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

import msgspec
import numpy as np

from gnomon.systems.clone.skeleton import LINE, Block, Op, Path, Skeleton

#: A call may exceed what is left to be taken off an edge by this share of it.
_OVER = 0.1
#: Instructions of one execution: less is not worth a cut.
_LEAST = 12.0
#: Instructions that one of each counts for, beside those that are owed.
_COUNTS_FOR = {"lines": 20.0, "branches": 5.0, "taken": 10.0, "turns": 20.0, "indirect": 150.0}


class Excess(msgspec.Struct, frozen=True):
    """What one execution of an edge has too much: instructions, and lines of code."""

    instructions: float
    lines: float = 0.0


class Jumps(msgspec.Struct, frozen=True):
    """What a request has too many of: conditional branches, those that are taken, and those that
    change, which is to go another way than before. The last two are shares of the original's:
    branches that change, and indirect jumps that do."""

    branches: float = 0.0
    taken: float = 0.0
    changed: float = 0.0
    turns: float = 0.0
    indirect: float = 0.0


Group = tuple[int, int]  # of paths: an edge and a kind of requests


class _Cut(msgspec.Struct):
    """What goes with a call, per request.

    Attributes:
        cost: Instructions, by group.
        lines: Of code, that nothing else on the path touches.
        turns, indirect: Executions of branches and of indirect jumps that go different ways: an
            indirect one is mispredicted whenever it does not go where it went before.
    """

    cost: dict[Group, float]
    lines: float = 0.0
    branches: float = 0.0
    taken: float = 0.0
    turns: float = 0.0
    indirect: float = 0.0

    @property
    def instructions(self) -> float:
        return sum(self.cost.values())

    def count(self, block: Block, follows: int, weight: float, *, turns: bool) -> None:
        """One visit of a block."""
        if block.ends == "branch":
            self.branches += weight
            self.taken += weight * (follows != block.next)
            self.turns += weight * turns
        elif block.ends.endswith("_indirect"):  # returns are known to predictors
            self.indirect += weight * turns


def trim(skeleton: Skeleton, excess: Mapping[int, Excess], jumps: Jumps | None = None) -> Skeleton:
    """Without about so much of one execution of each edge, whatever the request."""
    jumps = jumps or Jumps()
    blocks, paths = list(skeleton.blocks), list(skeleton.paths)
    rate = defaultdict[Group, float](float)
    for path in paths:
        rate[path.edge, path.kind] += path.weight
    left = {group: excess[group[0]].instructions * much for group, much in rate.items()
            if group[0] in excess and excess[group[0]].instructions > 0}  # fmt: skip
    turning = _turning(paths)
    whole = _Cut({})
    for path in paths:
        for b, follows in itertools.pairwise(path.blocks):
            whole.count(blocks[b], follows, path.weight, turns=b in turning)
    wanted = {
        "lines": sum(excess[edge].lines * rate[edge, kind] for edge, kind in left),
        "branches": jumps.branches, "taken": jumps.taken,
        "turns": jumps.turns * whole.turns, "indirect": jumps.indirect * whole.indirect,
    }  # fmt: skip
    while left:
        cuts, barred = _cuts(blocks, paths, turning)
        owed = sum(left.values())
        dense = {what: max(much, 0.0) / owed if owed > 0 else 0.0
                 for what, much in wanted.items()}  # fmt: skip
        found = max(
            (call for call, one in cuts.items()
             if call not in barred and _fits(one.cost, left, rate)),
            key=lambda call: (_worth(cuts[call], dense), call), default=None,
        )  # fmt: skip
        if found is None:
            break
        for group, gone in cuts[found].cost.items():
            if group in left:
                left[group] -= gone
        wanted = {what: much - getattr(cuts[found], what) for what, much in wanted.items()}
        paths = [_without(path, found, blocks) for path in paths]
        old = blocks[found]
        blocks[found] = msgspec.structs.replace(old, ends="fall", target=-1, ops=[*old.ops, Op(0)])
    return msgspec.structs.replace(skeleton, blocks=blocks, paths=paths)


def _turning(paths: list[Path]) -> set[int]:
    """Blocks that are not always followed by the same one."""
    after: dict[int, int] = {}
    found = set()
    for path in paths:
        for a, b in itertools.pairwise(path.blocks):
            if after.setdefault(a, b) != b:
                found.add(a)
    return found


def _worth(cut: _Cut, dense: Mapping[str, float]) -> float:
    """Much at once, and of everything else as much to an instruction as there is too much."""
    size = cut.instructions
    apart = {what: abs(float(getattr(cut, what)) - dense[what] * size) for what in _COUNTS_FOR}
    return size - sum(much * apart[what] for what, much in _COUNTS_FOR.items())


def _fits(
    by_group: Mapping[Group, float], left: Mapping[Group, float], rate: Mapping[Group, float]
) -> bool:
    """It takes off enough, and nowhere too much."""
    total = sum(by_group.values())
    over = sum(max(gone - left.get(group, 0.0), 0.0) for group, gone in by_group.items())
    return over <= _OVER * total and any(
        gone >= _LEAST * rate[group] for group, gone in by_group.items()
    )


def _length(block: Block) -> int:
    return len(block.ops) + (block.ends != "fall")


def _matches(path: Path, blocks: list[Block]) -> dict[int, int]:
    """For each call of a path, by its place: the place of its return, or -1 if it has none."""
    found, open_calls = {}, []
    for i, number in enumerate(path.blocks):
        ends = blocks[number].ends
        if ends in ("call", "call_indirect"):
            open_calls.append(i)
            found[i] = -1
        elif ends == "ret" and open_calls:
            call = open_calls.pop()
            follows = path.blocks[i + 1] if i + 1 < len(path.blocks) else -1
            if follows == blocks[path.blocks[call]].next:
                found[call] = i
    return found


def _cuts(
    blocks: list[Block], paths: list[Path], turning: set[int]
) -> tuple[dict[int, _Cut], set[int]]:
    """Of each direct call, with what it leads to; and the calls that have to stay."""
    cuts: dict[int, _Cut] = defaultdict(lambda: _Cut(defaultdict(float)))
    barred = set()
    for path in paths:
        ends = [0]
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for i, number in enumerate(path.blocks):
            block = blocks[number]
            ends.append(ends[-1] + _length(block))
            for line in range(block.at // LINE, (block.at + block.bytes - 1) // LINE + 1):
                first.setdefault(line, i)
                last[line] = i
        begins, stops = np.array(list(first.values())), np.array([last[line] for line in first])
        for call, back in _matches(path, blocks).items():
            number = path.blocks[call]
            if back < 0 or blocks[number].ends != "call":
                barred.add(number)
                continue
            cut = cuts[number]
            cut.cost[path.edge, path.kind] += path.weight * (ends[back + 1] - ends[call + 1])
            for b, follows in itertools.pairwise(path.blocks[call + 1 : back + 2]):
                cut.count(blocks[b], follows, path.weight, turns=b in turning)
            cut.lines += path.weight * int(((begins > call) & (stops <= back)).sum())
    return cuts, barred


def _without(path: Path, call: int, blocks: list[Block]) -> Path:
    if call not in path.blocks:
        return path
    back = _matches(path, blocks)
    kept, i = [], 0
    while i < len(path.blocks):
        kept.append(path.blocks[i])
        i = back[i] + 1 if path.blocks[i] == call else i + 1
    return msgspec.structs.replace(path, blocks=kept)
