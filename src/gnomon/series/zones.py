"""Zones: what a kilowatt-hour emits in a grid, on average."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate

__all__ = ["zone_intensity", "zone_names"]


class _Zone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    low: float
    mid: float
    high: float
    aliases: tuple[str, ...] = ()


class _Zones(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    zone: tuple[_Zone, ...]


@cache
def _zones() -> tuple[_Zone, ...]:
    file = Path(__file__).with_suffix(".toml")
    return msgspec.toml.decode(file.read_bytes(), type=_Zones).zone


def zone_names() -> tuple[str, ...]:
    """The grids that are known by name."""
    return tuple(zone.name for zone in _zones())


def zone_intensity(name: str) -> Estimate:
    """Grams of CO2 equivalent a kilowatt-hour in a grid: mean of a year, and its hours' range.

    A number stands for itself.

    >>> zone_intensity("DE").mid == zone_intensity("DE-LU").mid
    True
    >>> zone_intensity("120")
    Estimate(low=120.0, mid=120.0, high=120.0)
    """
    for zone in _zones():
        if name.upper() in (zone.name, *zone.aliases):
            return Estimate(zone.low, zone.mid, zone.high)
    try:
        grams = float(name)
    except ValueError:
        known = ", ".join(zone_names())
        raise InputError(
            f"no grid zone is called {name!r}", hint=f"give g/kWh as a number, or one of {known}"
        ) from None
    if not 0.0 <= grams < 1e5:
        raise InputError(f"a grid of {name} g/kWh; it has to be zero or more")
    return Estimate.exact(grams)
