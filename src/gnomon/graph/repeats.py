"""Repeats: stretches of a row that come again and again, back to back, as layers do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnomon.graph.column_types import Codes, Flags, Ints

#: A layer is launched as no more kernels than this.
_LONGEST = 600


class Repeat(NamedTuple):
    """`times` equal stretches of `period` places, the first at `start`.

    What follows goes on with `slack` places of one more stretch, so that stretches may as well
    begin up to so many places later.
    """

    start: int
    period: int
    times: int
    slack: int = 0

    @property
    def stop(self) -> int:
        """The place after the last."""
        return self.start + self.period * self.times


def find_repeats(token: Ints, anchor: Flags, longest: int = _LONGEST) -> list[Repeat]:
    """Stretches that follow one another unchanged, each with at least one anchor in it.

    Anchors keep short patterns out: three GEMMs in a row are no layers, but what holds an
    attention may be one. Short periods are looked for first, and what they cover is not
    looked at again, so that a layer is found rather than two of them.

    >>> row = np.array([9, 1, 2, 2, 1, 2, 2, 1, 2, 2, 7])
    >>> find_repeats(row, row == 1)
    [Repeat(start=1, period=3, times=3, slack=0)]

    Args:
        token: What stands at each place; equal numbers are equal things.
        anchor: Places of which every repeat must hold one.
        longest: Periods longer than this are not looked for.
    """
    free = np.ones(len(token), bool)
    anchors = np.concatenate([[0], np.cumsum(anchor)])
    found: list[Repeat] = []
    for period in range(1, min(longest, len(token) // 2) + 1):
        same = (token[:-period] == token[period:]) & free[:-period] & free[period:]
        start, length = _runs(same)
        is_long = length >= period
        for first, run in zip(start[is_long].tolist(), length[is_long].tolist()):
            repeat = Repeat(first, period, run // period + 1)
            # Any rotation repeats as often. Which one is asked for does not matter to a sum, but
            # a first stretch without an anchor is not a repeat of the ones that have it.
            held = np.diff(anchors[first : repeat.stop + 1 : period])
            if held.min() >= 1 and free[first : repeat.stop].all():
                found.append(repeat)
                free[first : repeat.stop] = False
    return sorted(found)


def longest_repeat(token: Codes) -> Repeat | None:
    """The repetition that covers most places; of several the shortest period, then the first.

    >>> longest_repeat(np.array([9, 1, 2, 1, 2, 1, 2, 1, 7], np.int32))
    Repeat(start=1, period=2, times=3, slack=1)
    """
    best: Repeat | None = None
    most = 0
    for period in range(1, len(token) // 2 + 1):
        same = token[:-period] == token[period:]
        if np.count_nonzero(same) < max(period, most - period + 1):
            continue
        start, length = _runs(same)
        covered = np.where(length < period, 0, (length + period) // period * period)
        at = int(np.argmax(covered))
        if covered[at] > most:
            most = int(covered[at])
            slack = int(length[at]) + period - most
            best = Repeat(int(start[at]), period, most // period, slack)
    return best


def _runs(same: Flags) -> tuple[Ints, Ints]:
    """Where `same` holds for some places in a row: first places and lengths."""
    edge = np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))
    start = np.flatnonzero(edge == 1)
    return start, np.flatnonzero(edge == -1) - start


def count_within(key: Ints) -> Ints:
    """How many rows before each have the same key.

    >>> count_within(np.array([7, 7, 3, 7, 3])).tolist()
    [0, 1, 0, 2, 1]
    """
    order = np.argsort(key, kind="stable")
    first = np.searchsorted(key[order], key[order])
    nth = np.empty(len(key), np.int64)
    nth[order] = np.arange(len(key)) - first
    return nth
