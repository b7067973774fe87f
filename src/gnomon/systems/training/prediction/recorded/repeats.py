"""Repeats: stretches of a row that come again and again, back to back, as layers do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Repeat", "find_repeats"]

#: A layer is launched as no more kernels than this.
_LONGEST = 600


class Repeat(NamedTuple):
    """`times` equal stretches of `period` places, the first at `start`."""

    start: int
    period: int
    times: int

    @property
    def stop(self) -> int:
        """The place after the last."""
        return self.start + self.period * self.times


def find_repeats(
    token: NDArray[np.int64], anchor: NDArray[np.bool_], longest: int = _LONGEST
) -> list[Repeat]:
    """Stretches that follow one another unchanged, each with at least one anchor in it.

    Anchors keep short patterns out: three GEMMs in a row are no layers, but what holds an
    attention may be one. Short periods are looked for first, and what they cover is not
    looked at again, so that a layer is found rather than two of them.

    >>> row = np.array([9, 1, 2, 2, 1, 2, 2, 1, 2, 2, 7])
    >>> find_repeats(row, row == 1)
    [Repeat(start=1, period=3, times=3)]

    Args:
        token: What stands at each place; equal numbers are equal things.
        anchor: Places of which every repeat must hold one.
        longest: Periods longer than this are not looked for.
    """
    n = len(token)
    free = np.ones(n, bool)
    anchors = np.concatenate([[0], np.cumsum(anchor)])
    found: list[Repeat] = []
    for period in range(1, min(longest, n // 2) + 1):
        same = (token[:-period] == token[period:]) & free[:-period] & free[period:]
        for start, stop in _runs(same, period):
            times = (stop - start) // period + 1
            length = times * period
            # Any rotation repeats as often. Which one is asked for does not matter to a sum, but
            # a first stretch without an anchor is not a repeat of the ones that have it.
            held = (
                anchors[start + period * np.arange(1, times + 1)]
                - anchors[start + period * np.arange(times)]
            )
            if held.min() < 1 or not free[start : start + length].all():
                continue
            found.append(Repeat(start, period, times))
            free[start : start + length] = False
    return sorted(found)


def _runs(same: NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    """Where `same` holds for at least so many places in a row."""
    edge = np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))
    start, stop = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)
    long = stop - start >= least
    return list(zip(start[long].tolist(), stop[long].tolist(), strict=True))
