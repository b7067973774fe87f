"""Gaps of a signal's arrays: where they are, and values to put there."""

from __future__ import annotations

import numpy as np

from gnomon.series._segment import Floats, Ints, Pieces


def gap_intervals(pieces: Pieces) -> list[tuple[int, int]]:
    """Start and end of each maximal run of unknown pieces."""
    edges = np.diff(np.concatenate([[0], pieces.is_gap.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(pieces.knots[a]), int(pieces.knots[b])) for a, b in zip(starts, ends)]


def fill_hold(values: Floats) -> Floats:
    """Each missing value takes the last known one before it; a leading run stays missing."""
    known = np.where(np.isnan(values), -1, np.arange(values.size))
    source = np.maximum.accumulate(known)
    return np.where(source >= 0, values[np.maximum(source, 0)], np.nan)


def fill_line(time_ns: Ints, values: Floats, end_ns: int, *, is_linear: bool) -> Floats:
    """Missing values on a straight line between the known ones; runs at either end stay missing.

    A linear signal takes the line at its breakpoints. A step signal takes, for each missing step,
    the mean over that step of the line from the start of the gap to its end: the area of the gap
    is then that of the line, however many breakpoints the gap happens to have.
    """
    count = values.size
    missing = np.isnan(values)
    index = np.arange(count)
    before = np.maximum.accumulate(np.where(missing, -1, index))
    after = np.minimum.accumulate(np.where(missing, count, index)[::-1])[::-1]
    holes = np.flatnonzero(missing & (before >= 0) & (after < count))
    known_before, known_after = before[holes], after[holes]
    if is_linear:
        start = time_ns[known_before]
        offset = (time_ns[holes] - start).astype(np.float64)
    else:
        start = time_ns[known_before + 1]
        knots = np.append(time_ns, np.int64(end_ns))
        offset = (knots[holes] - start) + 0.5 * (knots[holes + 1] - knots[holes])
    share = offset / (time_ns[known_after] - start)
    filled = values.copy()
    filled[holes] = values[known_before] * (1 - share) + values[known_after] * share
    return filled
