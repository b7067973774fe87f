"""Two records of the same calls, set side by side although each saw what the other did not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: Differences up to which the best pairing is looked for; beyond, the rest stays unpaired.
_MOST = 1_500


def pair_up(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of equal names in the longest run of pairs that keeps the order of both.

    Myers' greedy method: the time grows with the differences, not with the product of lengths.

    >>> list(pair_up(["a", "b", "c"], ["a", "x", "b", "c"]))
    [(0, 0), (1, 2), (2, 3)]
    """
    head = 0
    while head < len(left) and head < len(right) and left[head] == right[head]:
        yield head, head
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    inner = _differ(left[head : len(left) - tail], right[head : len(right) - tail])
    for one, other in inner:
        yield head + one, head + other
    for back in range(tail, 0, -1):
        yield len(left) - back, len(right) - back


def _differ(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The pairs of two sequences that differ at both ends."""
    if not left or not right:
        return []
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    found = False
    for edits in range(min(len(left) + len(right), _MOST) + 1):
        trail.append(reach.copy())
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]
            )
            x = reach[diagonal + 1] if down else reach[diagonal - 1] + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= len(left) and y >= len(right):
                found = True
                break
        if found:
            break
    return _walk_back(trail, len(left), len(right)) if found else []


def _walk_back(trail: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trail) - 1, -1, -1):
        reach, diagonal = trail[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]
        )
        before = diagonal + 1 if down else diagonal - 1
        before_x = reach[before] if edits else 0
        before_y = before_x - before if edits else 0
        while x > before_x and y > before_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = before_x, before_y
    return pairs[::-1]
