"""Ranges: many Estimates as three columns, for quantities that cannot be negative."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.estimate import Estimate

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_ENDS = ("low", "mid", "high")


@dataclass(frozen=True, eq=False, slots=True)
class Ranges:
    """A column of Estimates: `low <= mid <= high`, all finite and zero or more.

    Nothing negative means that ends go with ends: interval arithmetic without looking for
    corners.

    >>> energy_kwh = Ranges.of([1.0, 2.0])
    >>> (energy_kwh * Estimate(300, 400, 500))[1]
    Estimate(low=600.0, mid=800.0, high=1000.0)
    >>> (energy_kwh * Estimate(300, 400, 500)).total().mid
    1200.0
    """

    low: Floats
    mid: Floats
    high: Floats

    # numpy must leave `array * ranges` to us instead of going through it element by element.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name in _ENDS:
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if not self.low.shape == self.mid.shape == self.high.shape or self.mid.ndim != 1:
            raise InputError("ends of ranges have to be lists of one length")
        fine = (self.low >= 0) & (self.low <= self.mid) & (self.mid <= self.high)
        if not (fine & np.isfinite(self.high)).all():
            row = int(np.flatnonzero(~(fine & np.isfinite(self.high)))[0])
            ends = ", ".join(str(getattr(self, name)[row]) for name in _ENDS)
            raise InputError(f"ranges need 0 <= low <= mid <= high, not {ends} in row {row}")

    @classmethod
    def of(cls, values: npt.ArrayLike | Estimate, size: int | None = None) -> Ranges:
        """Known numbers, or one Estimate `size` times."""
        if isinstance(values, Estimate):
            return cls(*(np.full(size or 1, getattr(values, name)) for name in _ENDS))
        column = np.asarray(values, dtype=np.float64)
        column = np.full(size, column) if column.ndim == 0 and size is not None else column
        return cls(column, column, column)

    @classmethod
    def gather(cls, estimates: list[Estimate]) -> Ranges:
        return cls(*(np.array([getattr(e, name) for e in estimates]) for name in _ENDS))

    def __len__(self) -> int:
        return int(self.mid.size)

    def __getitem__(self, row: int) -> Estimate:
        return Estimate(float(self.low[row]), float(self.mid[row]), float(self.high[row]))

    def __iter__(self) -> Iterator[Estimate]:
        return (self[row] for row in range(len(self)))

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Ranges:
        return Ranges(self.low[rows], self.mid[rows], self.high[rows])

    def where(self, mask: npt.NDArray[np.bool_], other: Ranges) -> Ranges:
        pairs = ((getattr(self, name), getattr(other, name)) for name in _ENDS)
        return Ranges(*(np.where(mask, mine, theirs) for mine, theirs in pairs))

    def total(self) -> Estimate:
        """The sum; ends add as if all were wrong the same way."""
        low, mid, high = (math.fsum(getattr(self, name).tolist()) for name in _ENDS)
        return Estimate(min(low, mid), mid, max(mid, high))

    def __add__(self, other: Ranges | Estimate | Floats | float) -> Ranges:
        theirs = self._matching(other)
        return Ranges(self.low + theirs.low, self.mid + theirs.mid, self.high + theirs.high)

    def __mul__(self, other: Ranges | Estimate | Floats | float) -> Ranges:
        theirs = self._matching(other)
        return Ranges(self.low * theirs.low, self.mid * theirs.mid, self.high * theirs.high)

    def __truediv__(self, other: Ranges | Estimate | Floats | float) -> Ranges:
        theirs = self._matching(other)
        if not (theirs.low > 0).all():
            raise InputError("cannot divide by ranges that hold zero")
        return Ranges(self.low / theirs.high, self.mid / theirs.mid, self.high / theirs.low)

    __radd__ = __add__
    __rmul__ = __mul__

    def _matching(self, other: Ranges | Estimate | Floats | float) -> Ranges:
        return other if isinstance(other, Ranges) else Ranges.of(other, len(self))
