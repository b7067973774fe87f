"""Signal: one line of values over time, with unit, kind, zone, gaps and ranges."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, NamedTuple, cast, get_args, overload

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.series import _algebra, _check, _instant, _repair, _reshape
from gnomon.series._segment import Floats, Ints, Pieces
from gnomon.units import Unit, as_unit, convert, format_duration, parse

Shape = Literal["step", "linear"]
Fill = Literal["hold", "interpolate"]
GapRule = Literal["raise", "skip", "hold", "interpolate"]
Times = npt.NDArray[np.int64] | Sequence[int]

integrate_product = _algebra.integrate_product


class Gap(NamedTuple):
    """An interval without a value, from `start_ns` up to `end_ns`."""

    start_ns: int
    end_ns: int

    def __str__(self) -> str:
        length = format_duration(self.end_ns - self.start_ns)
        return f"{_instant.describe(self.start_ns)} to {_instant.describe(self.end_ns)} ({length})"


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class Signal:
    """A frozen time series over `[start_ns, end_ns)`; NaN marks a gap.

    A 'step' signal holds each value until the next breakpoint; a 'linear' one is interpolated
    between breakpoints and may end on its last one. Both hold the last value until `end_ns`. A
    missing breakpoint of a linear signal leaves both neighbouring intervals unknown.

    Times are whole nanoseconds within 146 years of the epoch, so that differences of any two fit
    int64; whether zero is 1970 or the start of a run is the caller's affair.

    >>> hour_ns = 3600 * 10**9
    >>> power = Signal.regular(0, hour_ns, [200.0, 100.0], unit="W", kind="power")
    >>> grid = Signal.constant(400.0, 0, 2 * hour_ns, unit="gCO2e/kWh", kind="carbon", zone="DE")
    >>> power.integrate(unit="kWh"), (power * grid).integrate()
    (0.3, 120.0)
    >>> power.at(hour_ns), power.mean(hour_ns // 2, 3 * hour_ns // 2)
    (100.0, 150.0)
    >>> power * grid
    Signal('power * carbon', mgCO2e/h, zone 'DE', step, 2 breakpoints from 0 s to 2 h 0 min)

    Attributes:
        values: One value per breakpoint, finite or NaN.
        end_ns: Where the last value stops holding.
        kind: What the values are, such as 'carbon-intensity/average/lifecycle'. Signals of
            different kinds do not add.
        attribution: Whom to thank and under which licence; carried through every operation.
    """

    time_ns: Ints
    values: Floats
    end_ns: int
    unit: Unit
    kind: str
    zone: str | None
    shape: Shape
    low: Floats | None
    high: Floats | None
    attribution: str
    _cache: dict[str, Any]

    # numpy must leave `array * signal` to us instead of multiplying element by element.
    __array_ufunc__: ClassVar[None] = None

    def __init__(
        self,
        time_ns: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        end_ns: int,
        unit: Unit | str,
        kind: str,
        zone: str | None = None,
        shape: Shape = "step",
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
        attribution: str = "",
    ) -> None:
        fields = {
            "time_ns": _check.freeze(_instant.as_ns(time_ns)),
            "values": _check.freeze(np.asarray(values, dtype=np.float64)),
            "end_ns": int(end_ns),
            "unit": as_unit(unit),
            "kind": kind,
            "zone": zone,
            "shape": shape,
            "low": None if low is None else _check.freeze(np.asarray(low, dtype=np.float64)),
            "high": None if high is None else _check.freeze(np.asarray(high, dtype=np.float64)),
            "attribution": attribution,
            "_cache": {},
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check.check(self)

    @classmethod
    def from_samples(
        cls,
        time_ns: npt.ArrayLike,
        values: npt.ArrayLike,
        *,
        unit: Unit | str,
        kind: str,
        step_ns: int | None = None,
        end_ns: int | None = None,
        shape: Shape = "step",
        **fields: Any,
    ) -> Signal:
        """A signal from samples in any order; times may not repeat.

        Args:
            step_ns: How long a sample speaks at most: where the next one comes later, a gap opens
                after `step_ns`. Without it every sample holds until the next.
            end_ns: Without it, the last sample of a step signal holds for `step_ns`, or else for
                the median distance of samples; a linear signal ends on its last sample.

        >>> s = Signal.from_samples([60, 0, 20, 40], [4.0, 1.0, 2.0, 3.0], unit="W", kind="power")
        >>> s.end_ns, Signal.from_samples([0, 9], [1, 2], step_ns=3, unit="W", kind="power").gaps()
        (80, [Gap(start_ns=3, end_ns=9)])
        """
        given = {"values": values} | {k: fields.pop(k, None) for k in ("low", "high")}
        arrays = {k: np.asarray(v, dtype=np.float64) for k, v in given.items() if v is not None}
        fields |= {"unit": unit, "kind": kind, "shape": shape}
        times = _instant.as_ns(time_ns)
        return cls(**fields, **_reshape.samples(times, arrays, step_ns, end_ns, shape))

    @classmethod
    def regular(
        cls,
        start_ns: int,
        step_ns: int,
        values: npt.ArrayLike,
        *,
        unit: Unit | str,
        kind: str,
        **fields: Any,
    ) -> Signal:
        """A signal with a breakpoint every `step_ns`; a linear one ends on its last breakpoint."""
        numbers = np.asarray(values, dtype=np.float64)
        if step_ns <= 0 or numbers.ndim != 1 or numbers.size == 0:
            raise InputError("a regular signal needs a step above zero and a list of values")
        if abs(start_ns) + step_ns * numbers.size > _instant.FARTHEST_NS:
            raise InputError("the signal would leave the range of times", hint="is step_ns in ns?")
        times = start_ns + step_ns * np.arange(numbers.size, dtype=np.int64)
        steps = numbers.size - (fields.get("shape") == "linear" and numbers.size > 1)
        fields.setdefault("end_ns", start_ns + step_ns * steps)
        return cls(times, numbers, unit=unit, kind=kind, **fields)

    @classmethod
    def constant(
        cls,
        value: float,
        start_ns: int,
        end_ns: int,
        *,
        unit: Unit | str,
        kind: str,
        **fields: Any,
    ) -> Signal:
        return cls([start_ns], [value], end_ns=end_ns, unit=unit, kind=kind, **fields)

    @classmethod
    def from_datetimes(
        cls,
        datetimes: Sequence[datetime],
        values: npt.ArrayLike,
        *,
        unit: Unit | str,
        kind: str,
        **fields: Any,
    ) -> Signal:
        """A signal from samples at datetimes, which must know their offset from UTC.

        >>> from datetime import UTC
        >>> days = [datetime(2024, 3, 31, tzinfo=UTC), datetime(2024, 4, 1, tzinfo=UTC)]
        >>> Signal.from_datetimes(days, [1.0, 2.0], unit="W", kind="power").time_ns.tolist()
        [1711843200000000000, 1711929600000000000]
        """
        times = [_instant.from_datetime(moment) for moment in datetimes]
        return cls.from_samples(times, values, unit=unit, kind=kind, **fields)

    @staticmethod
    def concat(signals: Sequence[Signal]) -> Signal:
        """Signals of one kind end to end; what lies between two of them becomes a gap.

        >>> early = Signal.constant(1.0, 0, 10, unit="W", kind="power")
        >>> Signal.concat([early, early.shift(15)]).gaps()
        [Gap(start_ns=10, end_ns=15)]
        """
        return _reshape.concat(list(signals))

    @property
    def start_ns(self) -> int:
        return int(self.time_ns[0])

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def has_range(self) -> bool:
        return self.low is not None

    @property
    def integral_unit(self) -> Unit:
        """What `integrate` answers in unless set otherwise: J for kW, gCO2e for kg/h."""
        return (self.unit * parse("s")).base

    def __len__(self) -> int:
        return int(self.time_ns.size)

    @overload
    def at(self, t_ns: int) -> float: ...
    @overload
    def at(self, t_ns: Times) -> Floats: ...
    def at(self, t_ns: int | Times) -> float | Floats:
        """Values at times of the domain, NaN inside gaps; outside it, InputError."""
        times = _instant.as_ns(t_ns)
        outside = (times < self.start_ns) | (times > self.end_ns)
        if self.shape == "step":
            outside |= times == self.end_ns
        if outside.any():
            raise self._outside(int(times[outside].flat[0]))
        return _unwrap(self.pieces("values").sample(times), t_ns)

    @overload
    def integrate(
        self,
        start_ns: int | None = None,
        end_ns: int | None = None,
        *,
        gaps: GapRule = "raise",
        unit: Unit | str | None = None,
    ) -> float: ...
    @overload
    def integrate(
        self,
        start_ns: Times,
        end_ns: Times,
        *,
        gaps: GapRule = "raise",
        unit: Unit | str | None = None,
    ) -> Floats: ...
    def integrate(
        self,
        start_ns: int | Times | None = None,
        end_ns: int | Times | None = None,
        *,
        gaps: GapRule = "raise",
        unit: Unit | str | None = None,
    ) -> float | Floats:
        """Value times seconds over one interval or many, exact for both shapes.

        Args:
            start_ns: One time or an array; the start of the signal if None.
            end_ns: One time or an array; the end of the signal if None.
            gaps: 'raise' names the first gap met; 'skip' counts gaps as nothing; 'hold' and
                'interpolate' integrate what `fill` would give.
        """
        starts, ends = self._intervals(start_ns, end_ns)
        area = self._known(starts, ends, gaps).pieces("values").integrate(starts, ends)
        return _unwrap(self._in_unit(area, unit), start_ns, end_ns)

    def integrate_estimate(
        self,
        start_ns: int | None = None,
        end_ns: int | None = None,
        *,
        gaps: GapRule = "raise",
        unit: Unit | str | None = None,
    ) -> Estimate:
        """The integral with its range; exact when the signal has no range.

        >>> s = Signal.constant(10.0, 0, 10**9, unit="W", kind="power", low=[8.0], high=[15.0])
        >>> s.integrate_estimate().format("J")
        '10 J (8 to 15)'
        """
        starts, ends = self._intervals(start_ns, end_ns)
        known = self._known(starts, ends, gaps)
        low, mid, high = (
            float(self._in_unit(known.pieces(name).integrate(starts, ends), unit))
            for name in (("low", "values", "high") if self.has_range else ("values",) * 3)
        )
        return Estimate(min(low, mid), mid, max(mid, high))

    @overload
    def mean(
        self, start_ns: int | None = None, end_ns: int | None = None, *, gaps: GapRule = "raise"
    ) -> float: ...
    @overload
    def mean(self, start_ns: Times, end_ns: Times, *, gaps: GapRule = "raise") -> Floats: ...
    def mean(
        self,
        start_ns: int | Times | None = None,
        end_ns: int | Times | None = None,
        *,
        gaps: GapRule = "raise",
    ) -> float | Floats:
        """Time-weighted mean in the signal's unit; with gaps='skip', of what is known."""
        starts, ends = self._intervals(start_ns, end_ns)
        pieces = self._known(starts, ends, gaps).pieces("values")
        known_ns = pieces.known_ns(starts, ends)
        if (known_ns == 0).any():
            raise InputError("an empty or wholly unknown interval has no mean", where=repr(self))
        return _unwrap(pieces.integrate(starts, ends) / known_ns, start_ns, end_ns)

    def resample(
        self,
        step_ns: int,
        origin_ns: int | None = None,
        *,
        gaps: GapRule | Literal["keep"] = "raise",
    ) -> Signal:
        """A step signal of means over a grid through `origin_ns` (the start if None).

        The integral over the whole signal and between any two grid points is preserved; bins cut
        off by the start or the end stay shorter. With gaps='keep' a bin that touches a gap is a
        gap; with 'skip' it takes the mean of what is known, which does not preserve the integral.

        >>> Signal.regular(0, 10, [1, 3, 5, 7], unit="W", kind="power").resample(20).values
        array([2., 6.])
        """
        return _reshape.resample(self, step_ns, origin_ns, gaps)

    def gaps(self) -> list[Gap]:
        return [Gap(*interval) for interval in _repair.gap_intervals(self.pieces("values"))]

    def fill(self, how: Fill) -> Signal:
        """Put values into gaps: the last known one ('hold'), or a straight line ('interpolate').

        The line of a step signal runs from the start of the gap to its end, each missing step
        taking its mean. A gap with nothing known on the side that is needed stays a gap.

        >>> s = Signal.regular(0, 10, [1, np.nan, 5], unit="W", kind="power")
        >>> s.fill("hold").values, s.fill("interpolate").values
        (array([1., 1., 5.]), array([1., 3., 5.]))
        """
        if how not in get_args(Fill):
            raise InputError(f"unknown way to fill a gap {how!r}", hint="'hold' or 'interpolate'")
        if how not in self._cache:
            self._cache[how] = _reshape.fill(self, how)
        return cast("Signal", self._cache[how])

    def slice(self, start_ns: int, end_ns: int) -> Signal:
        starts, ends = self._intervals(start_ns, end_ns)
        if starts == ends:
            raise InputError("a slice cannot be empty", where=repr(self))
        return _reshape.cut(self, int(starts), int(ends))

    def shift(self, by_ns: int) -> Signal:
        if max(abs(self.start_ns + by_ns), abs(self.end_ns + by_ns)) > _instant.FARTHEST_NS:
            raise InputError(f"a shift by {by_ns} ns leaves the range of times", where=repr(self))
        return self.replace(time_ns=self.time_ns + by_ns, end_ns=self.end_ns + by_ns)

    def to(self, unit: Unit | str) -> Signal:
        names = _reshape.names_of(self)
        converted = {name: convert(getattr(self, name), self.unit, unit) for name in names}
        return self.replace(unit=unit, **converted)

    def replace(self, **changes: Any) -> Signal:
        """The same signal with other fields, such as `kind`, `zone` or `attribution`."""
        return Signal(**self._fields() | changes)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "_cache"}

    def pieces(self, name: str) -> Pieces:
        """The straight pieces of 'values', 'low' or 'high', kept once computed."""
        if name not in self._cache:
            array = getattr(self, name)
            is_linear = self.shape == "linear"
            self._cache[name] = Pieces.of(self.time_ns, array, self.end_ns, is_linear=is_linear)
        return cast("Pieces", self._cache[name])

    def _in_unit(self, area: Floats, unit: Unit | str | None) -> Floats:
        return convert(area, self.unit * parse("ns"), unit or self.integral_unit)

    def _outside(self, t_ns: int) -> InputError:
        return InputError(
            f"{_instant.describe(t_ns)} is outside of the signal, which runs from "
            f"{_instant.describe(self.start_ns)} to {_instant.describe(self.end_ns)}"
        )

    def _intervals(
        self, start_ns: int | Times | None, end_ns: int | Times | None
    ) -> tuple[Ints, Ints]:
        start = _instant.as_ns(self.start_ns if start_ns is None else start_ns)
        end = _instant.as_ns(self.end_ns if end_ns is None else end_ns)
        starts, ends = np.broadcast_arrays(start, end)
        if (backward := starts > ends).any():
            first = int(np.flatnonzero(backward)[0])
            raise InputError(f"interval {first} ends before it starts")
        for times in (starts[starts < self.start_ns], ends[ends > self.end_ns]):
            if times.size:
                raise self._outside(int(times.flat[0]))
        return starts, ends

    def _known(self, starts: Ints, ends: Ints, gaps: GapRule) -> Signal:
        """The signal with gaps treated; raises where one stays in the way."""
        if gaps not in get_args(GapRule):
            raise InputError(
                f"unknown rule {gaps!r}", hint=f"one of {', '.join(get_args(GapRule))}"
            )
        if gaps == "skip":
            return self
        treated = self if gaps == "raise" else self.fill(gaps)
        touched = treated.pieces("values").touches_gap(starts, ends)
        if touched.any():
            index = int(np.flatnonzero(touched)[0])
            start, end = int(starts.flat[index]), int(ends.flat[index])
            gap = next(g for g in treated.gaps() if g.start_ns < end and g.end_ns > start)
            hint = "pass gaps='skip', 'hold' or 'interpolate'"
            if gaps != "raise":
                hint = f"at the edge of the signal there is nothing to {gaps}: ask for less"
            raise InputError(f"no value from {gap}", where=f"signal {self.kind!r}", hint=hint)
        return treated

    def __add__(self, other: Signal | float) -> Signal:
        return _algebra.combine(self, other, "+")

    def __sub__(self, other: Signal | float) -> Signal:
        return _algebra.combine(self, other, "-")

    def __mul__(self, other: Signal | float) -> Signal:
        return _algebra.combine(self, other, "*")

    def __truediv__(self, other: Signal | float) -> Signal:
        return _algebra.combine(self, other, "/")

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Signal:
        return _algebra.combine(-self, other, "+")

    def __neg__(self) -> Signal:
        return _algebra.combine(self, -1.0, "*")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Signal):
            return NotImplemented
        plain = ("end_ns", "unit", "kind", "zone", "shape", "attribution", "has_range")
        arrays = ("time_ns", "values") + (("low", "high") if self.has_range else ())
        return all(getattr(self, k) == getattr(other, k) for k in plain) and all(
            np.array_equal(getattr(self, k), getattr(other, k), equal_nan=k != "time_ns")
            for k in arrays
        )

    def __hash__(self) -> int:
        return hash((self.start_ns, self.end_ns, len(self), self.unit, self.kind, self.zone))

    def __reduce__(self) -> tuple[object, ...]:
        # Through the constructor: plain unpickling would hand back arrays that can be written to.
        return (functools.partial(Signal, **self._fields()), ())

    def __repr__(self) -> str:
        zone = f", zone {self.zone!r}" if self.zone is not None else ""
        count = f"{len(self):,} breakpoint{'s' if len(self) > 1 else ''}"
        when = f"from {_instant.describe(self.start_ns)} to {_instant.describe(self.end_ns)}"
        gap_count = len(self.gaps())
        gaps = f", {gap_count:,} gap{'s' if gap_count > 1 else ''}" if gap_count else ""
        spread = ", with range" if self.has_range else ""
        return (
            f"Signal({self.kind!r}, {self.unit}{zone}, {self.shape}, {count} {when}{gaps}{spread})"
        )


def _unwrap(result: Floats, *asked: int | Times | None) -> float | Floats:
    return float(result) if all(np.ndim(0 if a is None else a) == 0 for a in asked) else result
