"""Estimate: a number that is a guess, carried and shown with its range."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import ClassVar, cast

import msgspec
import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.units import Unit, as_unit, choose_si, format_si


class Estimate(msgspec.Struct, frozen=True):
    """A best guess `mid` inside a range: `low <= mid <= high`, all finite.

    Arithmetic is interval arithmetic: the range of a result covers every combination of values
    from the ranges of the operands, as if they conspired. That is conservative: the true range is
    never wider, and is narrower when the operands are independent (`sum_independent`) or are the
    same quantity twice (`x - x` is not zero here). `mid` is computed from the mids alone.

    >>> power_w = Estimate(180.0, 200.0, 260.0)
    >>> power_w * 2 + 10
    Estimate(low=370.0, mid=410.0, high=530.0)
    >>> power_w.format("W")
    '200 W (180 to 260)'
    >>> msgspec.json.encode(power_w)
    b'{"low":180.0,"mid":200.0,"high":260.0}'
    """

    low: float
    mid: float
    high: float

    # numpy must hand `np.float64(2) * estimate` over to us rather than wrap it in an object array.
    __array_ufunc__: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name in ("low", "mid", "high"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not math.isfinite(value):
                raise InputError(f"{name} of an estimate has to be a finite number, not {value!r}")
            msgspec.structs.force_setattr(self, name, float(value))
        if not self.low <= self.mid <= self.high:
            raise InputError(
                f"an estimate needs low <= mid <= high, not {self.low}, {self.mid}, {self.high}"
            )

    @classmethod
    def exact(cls, value: float) -> Estimate:
        return cls(value, value, value)

    @classmethod
    def from_samples(cls, samples: npt.ArrayLike, coverage: float = 0.8) -> Estimate:
        """The median, and the quantiles between which a `coverage` share of the samples lies.

        >>> Estimate.from_samples(range(101), coverage=0.8)
        Estimate(low=10.0, mid=50.0, high=90.0)
        """
        if not 0 <= coverage <= 1:
            raise InputError(f"coverage has to lie between 0 and 1, not {coverage}")
        values = np.asarray(samples, dtype=np.float64).ravel()
        if values.size == 0 or not np.isfinite(values).all():
            raise InputError("an estimate needs at least one sample, and finite ones only")
        tail = round((1 - coverage) / 2, 12)  # 0.1, not 0.09999999999999998, for 0.8
        low, mid, high = np.quantile(values, [tail, 0.5, 1 - tail])
        # Interpolation may round the outer quantiles past the median when samples are equal.
        return cls(float(min(low, mid)), float(mid), float(max(mid, high)))

    @classmethod
    def sum_independent(cls, estimates: Iterable[Estimate]) -> Estimate:
        """The sum of independent guesses: half-widths add as root of the sum of squares, per side.

        >>> Estimate.sum_independent([Estimate(7, 10, 16), Estimate(6, 10, 18)])
        Estimate(low=15.0, mid=20.0, high=30.0)
        """
        terms = list(estimates)
        mid = math.fsum(term.mid for term in terms)
        below = math.hypot(*(term.mid - term.low for term in terms))
        above = math.hypot(*(term.high - term.mid for term in terms))
        return cls(mid - below, mid, mid + above)

    @property
    def is_exact(self) -> bool:
        return self.low == self.high

    @property
    def width(self) -> float:
        return self.high - self.low

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high

    def overlaps(self, other: Estimate) -> bool:
        """Whether some value lies in both ranges, so that the order of the two is not settled."""
        return self.low <= other.high and other.low <= self.high

    def is_surely_below(self, other: Estimate | float) -> bool:
        """Whether every value here is less than every value there.

        >>> Estimate(1, 2, 3).is_surely_below(4), Estimate(1, 2, 3).is_surely_below(2.5)
        (True, False)
        """
        return self.high < _coerce(other).low

    def is_surely_above(self, other: Estimate | float) -> bool:
        """Whether every value here is greater than every value there."""
        return self.low > _coerce(other).high

    def scale(self, factor: float) -> Estimate:
        """The same guess in another measure; a negative factor swaps the ends."""
        return self * factor

    def format(self, unit: Unit | str = "1") -> str:
        """The guess and its range with one prefix for all three; an exact one shows no range.

        >>> Estimate(900, 1200, 1500).format("W"), Estimate.exact(0.5).format()
        ('1.2 kW (0.9 to 1.5)', '0.5')
        """
        if self.is_exact:
            return format_si(self.mid, unit)
        factor, label = choose_si(self.mid or max(-self.low, self.high), as_unit(unit))
        low, mid, high = (format_si(x * factor, "1") for x in (self.low, self.mid, self.high))
        return f"{mid}{'' if label == '1' else f' {label}'} ({low} to {high})"

    def __str__(self) -> str:
        return self.format()

    def __neg__(self) -> Estimate:
        return Estimate(-self.high, -self.mid, -self.low)

    def __add__(self, other: Estimate | float) -> Estimate:
        return _combine(self, other, lambda a, b: a + b)

    def __sub__(self, other: Estimate | float) -> Estimate:
        return _combine(self, other, lambda a, b: a - b)

    def __mul__(self, other: Estimate | float) -> Estimate:
        return _combine(self, other, lambda a, b: a * b)

    def __truediv__(self, other: Estimate | float) -> Estimate:
        return _combine(self, other, _divide)

    def __radd__(self, other: float) -> Estimate:
        return _combine(other, self, lambda a, b: a + b)

    def __rsub__(self, other: float) -> Estimate:
        return _combine(other, self, lambda a, b: a - b)

    def __rmul__(self, other: float) -> Estimate:
        return _combine(other, self, lambda a, b: a * b)

    def __rtruediv__(self, other: float) -> Estimate:
        return _combine(other, self, _divide)


def _divide(a: float, b: float) -> float:
    return a / b


def _coerce(value: Estimate | float) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate.exact(value)


def _combine(
    left: Estimate | float, right: Estimate | float, operation: Callable[[float, float], float]
) -> Estimate:
    """Apply an operation monotone in each operand: its extremes lie at the corners."""
    if not isinstance(left, Estimate | Real) or not isinstance(right, Estimate | Real):
        return cast("Estimate", NotImplemented)
    a, b = _coerce(left), _coerce(right)
    if operation is _divide and b.contains(0):
        raise InputError(f"cannot divide by an estimate whose range holds zero: {b!r}")
    corners = [operation(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Estimate(min(corners), operation(a.mid, b.mid), max(corners))
