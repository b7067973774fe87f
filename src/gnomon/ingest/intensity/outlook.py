"""What the grid will do, from a file or a live service; where nobody knows, why."""

from __future__ import annotations

import os

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.intensity.files import read_intensity
from gnomon.ingest.intensity.grid import day_of
from gnomon.ingest.intensity.live import provider
from gnomon.series import Signal
from gnomon.series.forecast import choose_method, forecast
from gnomon.series.intensity import Scope, describe_intensity
from gnomon.series.zones import zone_signal
from gnomon.units import HOUR_NS, format_duration

#: Older history says little of the hours to come.
_OLDEST_NS = 48 * HOUR_NS
#: Histories that usual hours are the mean of.
_HISTORIES = 64


class Outlook(msgspec.Struct, frozen=True, eq=False):
    """What the grid is expected to do.

    Attributes:
        signal: g/kWh from now on; None where nobody knows.
        basis: Where it comes from, or why there is none, in words.
    """

    signal: Signal | None
    basis: str


def expected_grid(zone: str, start_ns: int, end_ns: int, *, scope: Scope = "lifecycle") -> Outlook:
    """What a zone's profile expects of the hours to come, without knowing today's weather.

    >>> outlook = expected_grid("DE", 0, 24 * 3600 * 10**9)
    >>> outlook.signal.has_range, outlook.basis.split(":")[0]
    (True, 'usual hours of DE-LU')
    """
    drawn = [
        zone_signal(zone, start_ns, end_ns, scope=scope, seed=seed) for seed in range(_HISTORIES)
    ]
    values = np.array([signal.values for signal in drawn])
    low, high = np.quantile(values, [0.1, 0.9], axis=0)
    mean = values.mean(axis=0)
    usual = drawn[0].replace(values=mean, low=np.minimum(low, mean), high=np.maximum(high, mean))
    return Outlook(usual, f"usual hours of {usual.zone}: {describe_intensity(usual)}")


def file_outlook(
    path: str | os.PathLike[str],
    start_ns: int,
    end_ns: int,
    *,
    zone: str | None = None,
    scope: Scope = "lifecycle",
) -> Outlook:
    """Hours to come from a file: as they stand in it, or forecast from those before."""
    signal = read_intensity(path, zone=zone, scope=scope).signal
    name = os.path.basename(os.fspath(path))
    if signal.start_ns > start_ns:
        return Outlook(None, f"{name} begins only at {day_of(signal.start_ns)}")
    if signal.end_ns > start_ns:
        return Outlook(signal, f"{name}: {describe_intensity(signal)}")
    age_ns = start_ns - signal.end_ns
    if age_ns > _OLDEST_NS:
        return Outlook(None, f"{name} ends {format_duration(age_ns)} ago, too long to go by")
    try:
        choice = choose_method(signal.duration_ns)
        ahead = forecast(signal, end_ns - signal.end_ns, choice.method)
    except InputError as error:
        return Outlook(None, f"no forecast from {name}: {error}")
    return Outlook(ahead, f"forecast ({choice.method}) from {name}, {describe_intensity(signal)}")


def live_outlook(
    name: str, zone: str, start_ns: int, end_ns: int, *, scope: Scope = "lifecycle"
) -> Outlook:
    """Hours to come as a live service has them; where it fails, why."""
    service = provider(name, scope=scope)
    try:
        answer = service.forecast(zone)
    except InputError as error:
        return Outlook(None, f"no forecast: {error}")
    signal = answer.signal
    basis = f"forecast of {name}, {describe_intensity(signal)}"
    if answer.is_stale:
        age = format_duration(round(answer.age_s * 1e9))
        basis += f"; {age} old, as {answer.reason}"
    if signal.end_ns <= start_ns:
        return Outlook(None, f"{basis}; it ends before now")
    begin = signal.start_ns
    if start_ns < begin <= start_ns + HOUR_NS:
        signal = _hold_back(signal, start_ns)
        basis += "; its first value is taken to hold until it begins"
    return Outlook(signal, basis)


def _hold_back(signal: Signal, start_ns: int) -> Signal:
    first = Signal.constant(
        float(signal.values[0]), start_ns, signal.start_ns, unit=signal.unit, kind=signal.kind,
        zone=signal.zone, attribution=signal.attribution,
        low=None if signal.low is None else [float(signal.low[0])],
        high=None if signal.high is None else [float(signal.high[0])],
    )  # fmt: skip
    return Signal.concat([first, signal])


def live_history(
    name: str, zone: str, start_ns: int, end_ns: int, *, scope: Scope = "lifecycle"
) -> Signal | None:
    """What a service has measured between two times; None where it has not, or fails."""
    try:
        answer = provider(name, scope=scope).history(zone, start_ns - HOUR_NS, end_ns + HOUR_NS)
    except InputError:
        return None
    signal = answer.signal
    covers = signal.start_ns <= start_ns and end_ns <= signal.end_ns and not signal.gaps()
    return signal if covers and not answer.is_stale else None
