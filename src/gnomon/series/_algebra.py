"""Arithmetic of signals: values, ranges, units, kinds and zones together.

Two signals meet where both are defined, on the union of their breakpoints. The answer has to be
a step or a linear signal again, exactly. A product of two sloping signals is a parabola between
breakpoints, and a sloping signal plus one with steps jumps: neither can be represented,
so both are refused rather than bent. `integrate_product` integrates any product exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from gnomon.errors import InputError
from gnomon.series import _instant
from gnomon.series._reshape import names_of, widened
from gnomon.series._segment import Floats, Ints, Pieces
from gnomon.units import Unit, convert, parse

if TYPE_CHECKING:
    from gnomon.series.signal import GapRule, Signal

Operation = Literal["+", "-", "*", "/"]
_FUNCTIONS: dict[Operation, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}


def combine(a: Signal, b: object, operation: Operation) -> Signal:
    """`a operation b`; a number is taken in a's own unit for + and -, as plain for * and /."""
    if isinstance(b, type(a)):
        return _combine_signals(a, b, operation)
    if not isinstance(b, Real):
        return cast("Signal", NotImplemented)
    number = float(b)
    if not math.isfinite(number) or (operation == "/" and number == 0):
        raise InputError(f"cannot apply '{operation} {number}' to a signal")
    ours = {name: getattr(a, name) for name in names_of(a)}
    theirs = {"values": np.full(len(a), number)}
    return a.replace(**_apply(ours, theirs, operation))


def _combine_signals(a: Signal, b: Signal, operation: Operation) -> Signal:
    if operation in "+-":
        if a.kind != b.kind:
            raise InputError(
                f"cannot apply '{operation}' to signals of kinds {a.kind!r} and {b.kind!r}",
                hint="if they do measure the same thing, say so with replace(kind=...)",
            )
        b = b.to(a.unit)
    a, b = _overlap(a, b)
    shape = _shape_of(a, b, operation)
    times = np.union1d(a.time_ns, b.time_ns)
    times = times[times < a.end_ns] if shape == "step" else times
    ours = {name: a.pieces(name).sample(times) for name in names_of(a)}
    theirs = {name: b.pieces(name).sample(times) for name in names_of(b)}
    if operation == "/":
        _refuse_zero(theirs, times)
    unit, kind = a.unit, a.kind
    if operation == "*":
        unit, kind = a.unit * b.unit, f"{a.kind} * {b.kind}"
    elif operation == "/":
        unit, kind = a.unit / b.unit, f"{a.kind} per {b.kind}"
    return a.replace(
        time_ns=times,
        unit=unit,
        kind=kind,
        zone=_zone_of(a, b, operation),
        shape=shape,
        attribution="; ".join(dict.fromkeys(x for x in (a.attribution, b.attribution) if x)),
        **({"low": None, "high": None} | _apply(ours, theirs, operation)),
    )


def _apply(a: dict[str, Floats], b: dict[str, Floats], operation: Operation) -> dict[str, Floats]:
    """The operation on mids, and on the corners of the ranges where there are any."""
    function = _FUNCTIONS[operation]
    result = {"values": function(a["values"], b["values"])}
    if len(a) > 1 or len(b) > 1:
        ends = [(x.get("low", x["values"]), x.get("high", x["values"])) for x in (a, b)]
        corners = [function(x, y) for x in ends[0] for y in ends[1]]
        result["low"] = np.minimum.reduce(corners)
        result["high"] = np.maximum.reduce(corners)
    return widened(result)


def _overlap(a: Signal, b: Signal) -> tuple[Signal, Signal]:
    start_ns, end_ns = max(a.start_ns, b.start_ns), min(a.end_ns, b.end_ns)
    if start_ns >= end_ns:
        raise InputError(f"{a!r} and {b!r} do not overlap", hint="shift or extend one of them")
    return a.slice(start_ns, end_ns), b.slice(start_ns, end_ns)


def _is_flat(signal: Signal) -> bool:
    arrays = (getattr(signal, name) for name in names_of(signal))
    return all(bool((array == array[0]).all()) for array in arrays)


def _shape_of(a: Signal, b: Signal, operation: Operation) -> Literal["step", "linear"]:
    """The shape of the answer; a signal without change passes for either shape."""
    moving = [signal for signal in (a, b) if not _is_flat(signal)]
    shapes = {signal.shape for signal in moving}
    if "linear" not in shapes:
        return "linear" if a.shape == b.shape == "linear" else "step"
    curved = (operation == "*" and len(moving) == 2) or (operation == "/" and not _is_flat(b))
    if curved or len(shapes) == 2:
        names = f"{a.shape} '{a.kind}' {operation} {b.shape} '{b.kind}'"
        hint = "resample the linear one first"
        if operation == "*":
            hint += ", or call integrate_product if the integral is all you need"
        raise InputError(f"{names} is neither a step nor a linear signal", hint=hint)
    return "linear"


def _zone_of(a: Signal, b: Signal, operation: Operation) -> str | None:
    """Kept when equal. A factor without a zone (a server's power) does not take the zone away."""
    if operation in "*/" and (a.zone is None or b.zone is None):
        return a.zone or b.zone
    return a.zone if a.zone == b.zone else None


def _refuse_zero(divisor: dict[str, Floats], times: Ints) -> None:
    low, high = divisor.get("low", divisor["values"]), divisor.get("high", divisor["values"])
    if (zero := np.flatnonzero((low <= 0) & (high >= 0))).size:
        when = _instant.describe(int(times[zero[0]]))
        raise InputError(f"the divisor, or its range, holds zero at {when}")


def integrate_product(
    a: Signal,
    b: Signal,
    start_ns: int | None = None,
    end_ns: int | None = None,
    *,
    gaps: GapRule = "raise",
    unit: Unit | str | None = None,
) -> float:
    """The integral of `a * b`, exact for all shapes: ramping power on a stepping grid, say.

    Over where both are defined unless set otherwise; in base units unless set otherwise.

    >>> from gnomon.series import Signal
    >>> hour_ns = 3600 * 10**9
    >>> ramp = Signal.regular(0, hour_ns, [0, 600], unit="W", kind="power", shape="linear")
    >>> grid = Signal.regular(0, hour_ns // 2, [400, 200], unit="gCO2e/kWh", kind="carbon")
    >>> integrate_product(ramp, grid)
    75.0
    """
    a, b = _overlap(a, b)
    start = a.start_ns if start_ns is None else start_ns
    end = a.end_ns if end_ns is None else end_ns
    starts, ends = a._intervals(start, end)
    first, second = (s._known(starts, ends, gaps).pieces("values") for s in (a, b))
    knots = np.union1d(np.union1d(first.knots, second.knots), np.array([start, end]))
    knots = knots[(knots >= start) & (knots <= end)]
    (p, q), (r, s) = _ends(first, knots), _ends(second, knots)
    # Simpson's rule is exact on a parabola; this is it with the middle written out.
    areas = (2 * p * r + p * s + q * r + 2 * q * s) / 6 * np.diff(knots)
    area = math.fsum(areas[~np.isnan(areas)])
    product_unit = a.unit * b.unit
    return convert(area, product_unit * parse("ns"), unit or (product_unit * parse("s")).base)


def _ends(pieces: Pieces, knots: Ints) -> tuple[Floats, Floats]:
    piece = np.searchsorted(pieces.knots, knots[:-1], side="right").astype(np.int64) - 1
    return pieces.value(piece, knots[:-1]), pieces.value(piece, knots[1:])
