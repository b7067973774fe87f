"""The arithmetic under `Signal`: straight pieces between knots, their values and their areas.

Both shapes are the same thing here: piece k runs from `left[k]` at `knots[k]` to `right[k]` at
`knots[k + 1]`. A step has equal ends; a piece with a NaN end is a gap.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Pieces:
    """Straight pieces over `[knots[0], knots[-1]]`; areas are value times nanoseconds."""

    def __init__(self, knots: Ints, left: Floats, right: Floats) -> None:
        self.knots, self.left, self.right = knots, left, right
        self.is_gap = np.isnan(left) | np.isnan(right)

    @classmethod
    def of(cls, time_ns: Ints, values: Floats, end_ns: int, *, is_linear: bool) -> Pieces:
        """The pieces of a signal; after its last breakpoint a signal holds until `end_ns`."""
        if is_linear and end_ns == time_ns[-1]:
            return cls(time_ns, values[:-1], values[1:])
        knots = np.append(time_ns, np.int64(end_ns))
        return cls(knots, values, np.append(values[1:], values[-1]) if is_linear else values)

    @cached_property
    def _prefix(self) -> tuple[Floats, Floats]:
        half = 0.5 * self.left + 0.5 * self.right
        areas = np.where(self.is_gap, 0.0, half * np.diff(self.knots).astype(np.float64))
        return compensated_prefix(areas)

    @cached_property
    def _known_ns(self) -> Ints:
        known = np.where(self.is_gap, 0, np.diff(self.knots))
        return np.concatenate([[0], np.cumsum(known)]).astype(np.int64)

    @cached_property
    def _gap_count(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.is_gap)]).astype(np.int64)

    def value(self, piece: Ints, t_ns: Ints) -> Floats:
        left, right = self.left[piece], self.right[piece]
        length = (self.knots[piece + 1] - self.knots[piece]).astype(np.float64)
        after = (t_ns - self.knots[piece]).astype(np.float64) / length
        before = (self.knots[piece + 1] - t_ns).astype(np.float64) / length
        # Both weights come from integers: left + (right - left) * after would lose the digits of
        # a value that ramps down to zero. The clip keeps flat pieces exact.
        mixed = left * before + right * after
        return np.clip(mixed, np.minimum(left, right), np.maximum(left, right))

    def sample(self, t_ns: Ints) -> Floats:
        piece = np.clip(np.searchsorted(self.knots, t_ns, side="right") - 1, 0, self.left.size - 1)
        # A known breakpoint beside a gap is known, though the piece it opens or closes is not.
        inner = np.where(t_ns == self.knots[-1], self.right[-1], self.value(piece, t_ns))
        return np.where(t_ns == self.knots[piece], self.left[piece], inner)

    def area(self, piece: Ints, start_ns: Ints, end_ns: Ints) -> Floats:
        mean = 0.5 * self.value(piece, start_ns) + 0.5 * self.value(piece, end_ns)
        return np.where(self.is_gap[piece], 0.0, mean * (end_ns - start_ns).astype(np.float64))

    def locate(self, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
        last = self.left.size - 1
        first = np.clip(np.searchsorted(self.knots, start_ns, side="right") - 1, 0, last)
        final = np.clip(np.searchsorted(self.knots, end_ns, side="left") - 1, 0, last)
        return first.astype(np.int64), np.maximum(first, final).astype(np.int64)

    def integrate(self, start_ns: Ints, end_ns: Ints) -> Floats:
        """Areas of many intervals at once; gaps count as nothing."""
        first, final = self.locate(start_ns, end_ns)
        inside = first == final
        head_end = np.where(inside, end_ns, self.knots[first + 1])
        head = self.area(first, start_ns, head_end)
        tail_start = np.minimum(self.knots[final], end_ns)
        tail = np.where(inside, 0.0, self.area(final, tail_start, end_ns))
        high, low = self._prefix
        body_first = np.where(inside, first, first + 1)
        body, error = _two_sum(high[final], -high[body_first])
        body += error + (low[final] - low[body_first])
        return head + np.where(inside, 0.0, body) + tail

    def known_ns(self, start_ns: Ints, end_ns: Ints) -> Ints:
        first, final = self.locate(start_ns, end_ns)
        before = np.where(self.is_gap[first], 0, start_ns - self.knots[first])
        upto = np.where(self.is_gap[final], 0, end_ns - self.knots[final])
        return (self._known_ns[final] + upto) - (self._known_ns[first] + before)

    def touches_gap(self, start_ns: Ints, end_ns: Ints) -> npt.NDArray[np.bool_]:
        first, final = self.locate(start_ns, end_ns)
        return (start_ns < end_ns) & (self._gap_count[final + 1] > self._gap_count[first])


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and what the rounding lost, exactly (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def compensated_prefix(values: Floats) -> tuple[Floats, Floats]:
    """Prefix sums in twice the working precision, as a sum and its remainder; one longer.

    An hour's area is a difference of two prefix sums that may cover years. In plain float64 the
    difference loses as many digits as the ratio has, and an integral over a short interval would
    depend on how much history precedes it. A Python loop over all values would be as exact;
    walking the columns of a square is several times as fast.

    >>> high, low = compensated_prefix(np.array([1e16, 1.0, -1e16]))
    >>> float(high[3] + low[3])
    1.0
    """
    count = values.size
    width = max(1, int(np.ceil(np.sqrt(count))))
    square = np.zeros((-(-max(count, 1) // width), width))
    square.ravel()[:count] = values
    highs, lows = np.empty_like(square), np.empty_like(square)
    high, low = np.zeros(square.shape[0]), np.zeros(square.shape[0])
    for column in range(width):
        high, lost = _two_sum(high, square[:, column])
        low = low + lost
        highs[:, column], lows[:, column] = high, low
    base_high, base_low = np.zeros(square.shape[0]), np.zeros(square.shape[0])
    for row in range(1, square.shape[0]):
        above = slice(row - 1, row)
        total, lost = _two_sum(base_high[above], high[above])
        base_high[row], base_low[row] = total[0], base_low[row - 1] + lost[0] + low[row - 1]
    total, lost = _two_sum(base_high[:, None], highs)
    rest = lost + base_low[:, None] + lows
    zero = np.zeros(1)
    return (
        np.concatenate([zero, total.ravel()[:count]]),
        np.concatenate([zero, rest.ravel()[:count]]),
    )
