"""Instants: whole nanoseconds, from and to what people write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError
from gnomon.series._segment import Ints
from gnomon.units import format_duration

FARTHEST_NS = 2**62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_ns(times: npt.ArrayLike) -> Ints:
    """Times as int64; a float is refused, for it cannot hold today's nanoseconds."""
    array = np.asarray(times)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"times are whole nanoseconds (int), not {array.dtype}")
    if array.size and (int(array.max()) > FARTHEST_NS or int(array.min()) < -FARTHEST_NS):
        raise InputError("a time is more than 146 years off zero", hint="are these nanoseconds?")
    return array.astype(np.int64, copy=False)


def from_datetime(moment: datetime) -> int:
    """Nanoseconds since 1970; exact, where a detour over a float timestamp is not."""
    if moment.utcoffset() is None:
        raise InputError(
            f"{moment.isoformat()} does not say its offset from UTC",
            hint="in local time an hour of autumn comes twice; pass tzinfo=datetime.UTC",
        )
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def describe(t_ns: int) -> str:
    """A date where the time can be one (after 1973), else the distance from zero."""
    if t_ns < 10**17:
        return format_duration(t_ns)
    moment = _EPOCH + timedelta(microseconds=t_ns // 1000)
    return moment.replace(tzinfo=None).isoformat() + "Z"
