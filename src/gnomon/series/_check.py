"""What a signal promises about its fields, and arrays that keep the promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.series import _instant
from gnomon.series._segment import Floats, Ints

if TYPE_CHECKING:
    from gnomon.series.signal import Signal


@overload
def freeze(array: Ints) -> Ints: ...
@overload
def freeze(array: Floats) -> Floats: ...
def freeze(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only array that nobody else can write to: a copy unless it already is one."""
    base = array.base if isinstance(array.base, np.ndarray) else array
    if array.flags.writeable or base.flags.writeable or not base.flags.owndata:
        array = array.copy()
        array.flags.writeable = False
    return array


def check(signal: Signal) -> None:
    where, times, values = f"signal {signal.kind!r}", signal.time_ns, signal.values
    if not signal.kind or signal.shape not in ("step", "linear"):
        raise InputError(
            f"needs a kind, and 'step' or 'linear', not {signal.shape!r}", where=where
        )
    if times.ndim != 1 or times.size == 0 or times.shape != values.shape:
        raise InputError(
            f"needs as many values as breakpoints, not {values.shape} and {times.shape}",
            where=where,
        )
    if (falling := np.flatnonzero(times[1:] <= times[:-1])).size:
        raise InputError(f"breakpoint {falling[0] + 1} does not come after the last", where=where)
    may_end = signal.shape == "linear" and times.size > 1
    if signal.end_ns < times[-1] or (signal.end_ns == times[-1] and not may_end):
        raise InputError("end_ns has to come after the last breakpoint", where=where)
    if max(abs(int(times[0])), abs(signal.end_ns)) > _instant.FARTHEST_NS:
        raise InputError("a time is more than 146 years off zero; are these ns?", where=where)
    if (infinite := np.flatnonzero(np.isinf(values))).size:
        raise InputError(f"value {infinite[0]} is infinite; a gap is NaN", where=where)
    if (signal.low is None) != (signal.high is None):
        raise InputError("a range needs both low and high", where=where)
    if signal.low is not None and signal.high is not None:
        _check_range(values, signal.low, signal.high, where)


def _check_range(values: Floats, low: Floats, high: Floats, where: str) -> None:
    if low.shape != values.shape or high.shape != values.shape:
        raise InputError("low and high need one number per breakpoint", where=where)
    ordered = (low <= values) & (values <= high) & np.isfinite(low) & np.isfinite(high)
    missing = np.isnan(values) & np.isnan(low) & np.isnan(high)
    if (wrong := np.flatnonzero(~(ordered | missing))).size:
        raise InputError(f"value {wrong[0]} is not between its low and high", where=where)
