"""Signals cut, joined, filled and put on another grid."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gnomon.errors import InputError
from gnomon.series import _instant, _repair
from gnomon.series._segment import Floats, Ints

if TYPE_CHECKING:
    from gnomon.series.signal import Fill, GapRule, Signal

_MAX_BINS = 50_000_000


def names_of(signal: Signal) -> tuple[str, ...]:
    """The value arrays a signal has."""
    return ("values", "low", "high") if signal.has_range else ("values",)


def widened(arrays: dict[str, Floats]) -> dict[str, Floats]:
    """Computed ranges that hold their mid: each array is rounded on its own, so the last bit of
    a low may land above the mid it was below.
    """
    if "low" in arrays:
        arrays["low"] = np.minimum(arrays["low"], arrays["values"])
        arrays["high"] = np.maximum(arrays["high"], arrays["values"])
    return arrays


def samples(
    times: Ints, arrays: dict[str, Floats], step_ns: int | None, end_ns: int | None, shape: str
) -> dict[str, Any]:
    """Fields of a signal: samples in order, gaps opened after `step_ns`, and its end."""
    if times.ndim != 1 or not times.size or any(a.shape != times.shape for a in arrays.values()):
        raise InputError("samples have to be lists of one length, and not empty")
    if step_ns is not None and step_ns <= 0:
        raise InputError(f"step_ns has to be above zero, not {step_ns}")
    order = np.argsort(times, kind="stable")
    times, arrays = times[order], {name: array[order] for name, array in arrays.items()}
    distances = np.diff(times)
    if (same := np.flatnonzero(distances == 0)).size:
        raise InputError(f"two samples at {_instant.describe(int(times[same[0]]))}")
    if end_ns is None:
        hold = int(step_ns or (np.median(distances) if distances.size else 0))
        if shape == "linear" and times.size > 1:
            hold = 0
        elif not hold:
            raise InputError("one sample does not say how long it holds", hint="pass end_ns")
        end_ns = int(times[-1]) + hold
    if step_ns is not None:
        late = np.flatnonzero(distances > step_ns)
        arrays = {k: np.insert(v, late + 1, np.nan) for k, v in arrays.items()}
        times = np.insert(times, late + 1, times[late] + step_ns)
    return {"time_ns": times, "end_ns": end_ns, **arrays}


def cut(signal: Signal, start_ns: int, end_ns: int) -> Signal:
    """The part from start to end; a linear one gets breakpoints at both cuts."""
    if (start_ns, end_ns) == (signal.start_ns, signal.end_ns):
        return signal
    times = signal.time_ns
    edges = [start_ns, end_ns] if signal.shape == "linear" else [start_ns]
    inner = times[np.searchsorted(times, start_ns, "right") : np.searchsorted(times, end_ns)]
    kept = np.union1d(np.array(edges, dtype=np.int64), inner)
    arrays = {name: signal.pieces(name).sample(kept) for name in names_of(signal)}
    return signal.replace(time_ns=kept, end_ns=end_ns, **widened(arrays))


def fill(signal: Signal, how: Fill) -> Signal:
    """Values put into gaps where there is something to take them from."""
    if not np.isnan(signal.values).any():
        return signal
    arrays: dict[str, Floats] = {}
    for name in names_of(signal):
        array = getattr(signal, name)
        if how == "hold":
            arrays[name] = _repair.fill_hold(array)
        else:
            arrays[name] = _repair.fill_line(
                signal.time_ns, array, signal.end_ns, is_linear=signal.shape == "linear"
            )
    return signal.replace(**widened(arrays))


def resample(
    signal: Signal, step_ns: int, origin_ns: int | None, gaps: GapRule | Literal["keep"]
) -> Signal:
    """Means over the bins of a grid, as a step signal."""
    if step_ns <= 0:
        raise InputError(f"step_ns has to be above zero, not {step_ns}")
    start, end = signal.start_ns, signal.end_ns
    origin = start if origin_ns is None else origin_ns
    if (end - start) // step_ns > _MAX_BINS:
        raise InputError(f"more than {_MAX_BINS:,} bins of {step_ns} ns", hint="is it in ns?")
    first = origin + ((start - origin) // step_ns + 1) * step_ns
    inner = np.arange(first, end, step_ns, dtype=np.int64)
    edges = np.concatenate([[start], inner, [end]]).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    known = signal._known(starts, ends, "skip" if gaps == "keep" else gaps)
    arrays: dict[str, Floats] = {}
    for name in names_of(signal):
        pieces = known.pieces(name)
        known_ns = pieces.known_ns(starts, ends).astype(np.float64)
        if gaps == "keep":
            known_ns[pieces.touches_gap(starts, ends)] = 0.0
        area = pieces.integrate(starts, ends)
        arrays[name] = np.full(area.size, np.nan)
        np.divide(area, known_ns, out=arrays[name], where=known_ns > 0)
    return signal.replace(time_ns=starts, shape="step", **widened(arrays))


def concat(signals: list[Signal]) -> Signal:
    """End to end, with gaps in between."""
    if not signals:
        raise InputError("nothing to join: the list of signals is empty")
    first = signals[0]
    parts = [first, *(signal.to(first.unit) for signal in signals[1:])]
    for earlier, later in pairwise(parts):
        _check_joint(earlier, later)
    times: list[Ints] = []
    arrays: dict[str, list[Floats]] = {name: [] for name in names_of(first)}
    for part, following in zip(parts, [*parts[1:], None]):
        extra = _joint(part, following)
        times += [part.time_ns, np.array([t for t, _ in extra], dtype=np.int64)]
        for name, chunks in arrays.items():
            array = getattr(part, name)
            chunks += [array, np.array([array[-1] if held else np.nan for _, held in extra])]
    joined_times = np.concatenate(times)
    kept = np.concatenate([[True], np.diff(joined_times) > 0])
    joined = {name: np.concatenate(chunks)[kept] for name, chunks in arrays.items()}
    thanks = "; ".join(dict.fromkeys(p.attribution for p in parts if p.attribution))
    end_ns = parts[-1].end_ns
    return first.replace(time_ns=joined_times[kept], end_ns=end_ns, attribution=thanks, **joined)


def _check_joint(earlier: Signal, later: Signal) -> None:
    for field in ("kind", "zone", "shape", "has_range"):
        if getattr(earlier, field) != getattr(later, field):
            raise InputError(
                f"cannot join signals whose {field} differs: "
                f"{getattr(earlier, field)!r} and {getattr(later, field)!r}"
            )
    if later.start_ns < earlier.end_ns:
        raise InputError(f"{later!r} starts before {earlier!r} ends; slice or sort them first")
    if earlier.shape == "linear" and later.start_ns == earlier.end_ns:
        for name in names_of(earlier):
            a, b = getattr(earlier, name)[-1], getattr(later, name)[0]
            if not np.array_equal(a, b, equal_nan=True):
                raise InputError(f"a linear signal cannot jump from {a} to {b} at the joint")


def _joint(part: Signal, following: Signal | None) -> list[tuple[int, bool]]:
    """Breakpoints to add after a part: each holds the last value (True) or opens a gap."""
    if following is None:
        return []
    end, hole_ns = part.end_ns, following.start_ns - part.end_ns
    if part.shape == "step":
        return [(end, False)] if hole_ns else []
    held = [(end, True)] if end > part.time_ns[-1] else []
    # One nanosecond is the clock's own resolution: no room for a gap in it, and none needed.
    return held + ([(end + 1, False)] if hole_ns > 1 else [])
