"""Where a value lies on an axis, and which round numbers stand beside it."""

from __future__ import annotations

import math

import msgspec

_SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """About `most` round numbers, from at or below `low` to at or above `high`.

    >>> round_ticks(0, 117, 6)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
    >>> round_ticks(3, 3, 4)
    [2.0, 2.5, 3.0, 3.5, 4.0]
    """
    apart = high - low
    # Apart by rounding alone, or by so little that a step between them could not be written.
    if apart <= 1e-9 * max(abs(low), abs(high)) or apart < 1e-290:
        pad = abs(low) * 0.1 if abs(low) > 1e-290 else 1.0
        pad = 10.0 ** math.ceil(math.log10(pad))
        low, high = low - pad, high + pad
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Rounding to the step's own digits: 0.1 * 3 would print as 0.30000000000000004.
    digits = max(0, 2 - math.floor(math.log10(step)))
    return [round(i * step, digits) + 0.0 for i in range(first, last + 1)]


def label_ticks(ticks: list[float]) -> list[str]:
    """Tick labels of one form: the same decimals, and k, M, G, T where numbers grow long.

    >>> label_ticks([0.0, 0.5, 1.0]), label_ticks([0.0, 20000.0, 40000.0])
    (['0', '0.5', '1.0'], ['0', '20k', '40k'])
    """
    most = max((abs(tick) for tick in ticks), default=0.0)
    if most and most < 1e-4:
        return ["0" if tick == 0 else f"{tick:.1e}" for tick in ticks]
    size, suffix = next(((s, x) for s, x in _SUFFIXES if most >= max(s, 1e4)), (1.0, ""))
    scaled = [tick / size for tick in ticks]
    decimals = next(d for d in range(8) if d == 7 or all(_is_round(tick, d) for tick in scaled))
    return ["0" if tick == 0 else f"{tick:,.{decimals}f}{suffix}" for tick in scaled]


def _is_round(value: float, decimals: int) -> bool:
    return math.isclose(round(value, decimals), value, rel_tol=1e-9, abs_tol=1e-12)


class Scale(msgspec.Struct, frozen=True):
    """Values to pixels along one axis, from the first tick to the last.

    >>> scale = Scale.over([3, 17], start=0, end=200, most=4)
    >>> scale.ticks, scale(10)
    ([0.0, 5.0, 10.0, 15.0, 20.0], 100.0)
    """

    ticks: list[float]
    start: float
    end: float

    @classmethod
    def over(
        cls, values: list[float], start: float, end: float, most: int, from_zero: bool = False
    ) -> Scale:
        low, high = min(values, default=0.0), max(values, default=1.0)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        return cls(round_ticks(low, high, most), start, end)

    def __call__(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    @property
    def labels(self) -> list[str]:
        return label_ticks(self.ticks)

    def tighten(self, low: float, high: float) -> Scale:
        """Ends at the data instead of at the next tick: a curve should fill its axis.

        >>> Scale.over([3, 17], start=0, end=140, most=4).tighten(3, 17)(17)
        140.0
        """
        inside = [tick for tick in self.ticks if low - 1e-12 <= tick <= high + 1e-12]
        if len(inside) < 2:
            return self
        per_unit = (self.end - self.start) / (high - low)
        start = self.start + (inside[0] - low) * per_unit
        return Scale(inside, start, start + (inside[-1] - inside[0]) * per_unit)
