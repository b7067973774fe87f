"""Which lines of code and data an edge visits in which order, for the reuse distances wanted.

An edge is a path that is the same each time: lines of its own, each visited once, and leaf
functions that are called again and again. A line is chosen by how far down it lies in the stack of
lines visited last (LRU): that depth is its stack distance. What repeats after one pass is
simulated, compared with what is wanted, and the choice corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.systems.clone.recording import BUCKETS, Floats

_ROUNDS = 6
_MOST_LINES = 4
#: Lines of a leaf that goes round them, by the bucket of their distance.
_ROUND_LINES = (1, 2, 3, 6, 12, 24)
_MOST_ROUNDS = 32
#: A leaf with so many times fewer visits than are owed is not called again: a longer one is made.
_FAR = 3.0


def bucket_of(distance: int) -> int:
    """Of a line that was seen before, by its stack distance."""
    return min(distance.bit_length(), BUCKETS - 2)


class LineStack:
    """Lines in the order in which they were visited last."""

    def __init__(self, lines: Sequence[int] = ()) -> None:
        self._lines = list(lines)

    def copy(self) -> LineStack:
        return LineStack(self._lines)

    def visit(self, line: int) -> int:
        """The bucket of the visit; lines never seen have the last."""
        lines = self._lines
        if lines and lines[-1] == line:
            return 0
        try:
            at = len(lines) - 1 - lines[::-1].index(line)
        except ValueError:
            lines.append(line)
            return BUCKETS - 1
        depth = len(lines) - 1 - at
        del lines[at]
        lines.append(line)
        return bucket_of(depth)

    def near(self, bucket: int, allowed: set[int]) -> int | None:
        """An allowed line in a bucket, near its middle, or the nearest outside of it."""
        size = len(self._lines)
        low, high = (1 << bucket - 1, (1 << bucket) - 1) if bucket else (0, 0)
        middle = (low + high) // 2
        for away in range(max(middle + 1, size - middle)):
            for depth in (middle - away, middle + away):
                if 0 <= depth < size and self._lines[size - 1 - depth] in allowed:
                    return (
                        self._lines[size - 1 - depth] if low <= depth <= high or not low else None
                    )
            if away > high - low + 1:
                return None
        return None


class Leaf(msgspec.Struct):
    """A function of some lines that calls nothing and goes round them so many times."""

    lines: list[int]
    rounds: int = 1
    calls: int = 0

    @property
    def executions(self) -> int:
        """Of each of its lines."""
        return self.calls * self.rounds

    def visits(self) -> list[int]:
        return self.lines * self.rounds


class CodePath(msgspec.Struct):
    """The lines of an edge's own code, and for each the leaves that it calls."""

    own: int
    leaves: list[Leaf]
    calls: list[list[int]]  # of each own line

    def visits(self) -> list[int]:
        """Line by line; those of leaves are numbered after the edge's own."""
        found = []
        for line, called in enumerate(self.calls):
            found.append(line)
            for leaf in called:
                found += self.leaves[leaf].visits()
                found.append(line)
        return found

    def reuse(self) -> Floats:
        """Visits by distance when it is executed again and again."""
        stack, counts = LineStack(), np.zeros(BUCKETS)
        visits = self.visits()
        for line in visits:
            stack.visit(line)
        for line in visits:
            counts[stack.visit(line)] += 1
        return counts


def plan_code(wanted: Floats, calls: int, rng: Generator) -> CodePath:
    """A path with about the reuse distances that are wanted of one execution."""
    visits = max(1, round(float(wanted[1:].sum())))
    top = max((b for b in range(1, BUCKETS) if wanted[b:].sum() >= 1 << max(b - 2, 0)), default=1)
    far = max(1, min(visits, round(float(wanted[top:].sum()))))
    calls = max(0, min(calls, (visits - far) // 2))
    own = far
    quotas = wanted.copy()
    quotas[0] = 0
    quotas[top:] = 0
    best: tuple[float, CodePath] | None = None
    target = wanted.copy()
    target[0] = 0
    for _ in range(_ROUNDS):
        lines = (visits - own - calls) / calls if calls else 0.0
        path = _choose(quotas, own, calls, lines, top, rng)
        found = path.reuse()
        found[0] = 0
        off = float(np.abs(np.cumsum(found - target)).sum())
        if best is None or off < best[0]:
            best = off, path
        quotas[1:top] = np.maximum(quotas[1:top] + 0.7 * (target - found)[1:top], 0.0)
        # A line of a leaf, too, is far away the first time in a pass.
        own = max(1, far - sum(len(leaf.lines) for leaf in path.leaves))
    assert best is not None
    return best[1]


def _choose(
    quotas: Floats, own: int, calls: int, lines: float, top: int, rng: Generator
) -> CodePath:
    left = quotas.copy()
    path = CodePath(own, [], [[] for _ in range(own)])
    stack = LineStack()
    leaf_of: dict[int, int] = {}
    next_line, owed = own, 0.0
    sites = np.sort(rng.integers(0, own, calls))
    at = 0
    for line in range(own):
        stack.visit(line)
        while at < calls and sites[at] == line:
            at += 1
            owed += lines
            bucket = int(np.argmax(left[2:top] / np.arange(2, top))) + 2 if top > 2 else 2
            found = stack.near(bucket, set(leaf_of))
            number = len(path.leaves) if found is None else leaf_of[found]
            if found is None or len(path.leaves[number].visits()) < owed / _FAR:
                leaf = _new_leaf(left, owed, next_line)
                number = len(path.leaves)
                leaf_of[leaf.lines[0]] = number
                next_line += len(leaf.lines)
                path.leaves.append(leaf)
            leaf = path.leaves[number]
            owed -= len(leaf.visits())
            leaf.calls += 1
            path.calls[line].append(number)
            for one in leaf.visits():
                left[stack.visit(one)] -= 1
            left[stack.visit(line)] -= 1
    return path


def _new_leaf(left: Floats, owed: float, first: int) -> Leaf:
    """Of so many visits: short ones are straight, longer ones go round at a distance wanted."""
    if owed <= _MOST_LINES:
        size = 1 if left[1] > left[2] else int(np.clip(round(owed), 1, _MOST_LINES))
        return Leaf(list(range(first, first + size)))
    bucket = int(np.argmax(left[1 : len(_ROUND_LINES)])) + 1
    size = _ROUND_LINES[bucket]
    return Leaf(
        list(range(first, first + size)), int(np.clip(round(owed / size), 2, _MOST_ROUNDS))
    )
