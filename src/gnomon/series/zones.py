"""Zones: grids known by name, each with a profile of what a kilowatt-hour emits there.

The profiles were computed from public hourly data (`tools/make_profiles.py`); whose, each of them
says. They stand in for real hours where there are none: a signal of one's own is always better.
"""

from __future__ import annotations

import gzip
import math
import zlib
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.series.intensity import INTENSITY_UNIT, Scope, intensity_kind
from gnomon.series.profile import Profile
from gnomon.series.signal import Signal

#: What else a zone is called; names are compared without regard to case.
ZONE_ALIASES = {
    "AU-NSW": ("NSW",),
    "AU-VIC": ("VIC",),
    "BR-SP": ("BR", "BR-SUDESTE"),
    "CA-ON": ("ON", "IESO", "ONTARIO"),
    "CL-SIC": ("CL", "CL-SEN"),
    "DE-LU": ("DE", "GERMANY"),
    "ES": ("SPAIN",),
    "GB": ("UK", "BRITAIN"),
    "IN-WE": ("IN",),
    "JP-TK": ("JP", "TOKYO", "TEPCO"),
    "KR": ("KOREA",),
    "NL": ("NETHERLANDS",),
    "PL": ("POLAND",),
    "SE": ("SWEDEN",),
    "SG": ("SINGAPORE",),
    "US-CAL-CISO": ("CAISO", "CISO", "CAL", "CALIFORNIA"),
    "US-FLA-FPL": ("FPL", "FLORIDA"),
    "US-MIDA-PJM": ("PJM",),
    "US-NE-ISNE": ("ISNE", "ISO-NE", "ISONE", "NEW-ENGLAND"),
    "US-NW-BPAT": ("BPAT", "BPA"),
    "US-NY-NYIS": ("NYISO", "NYIS", "NEW-YORK"),
    "US-TEX-ERCO": ("ERCOT", "ERCO", "TEXAS"),
    "ZA": ("SOUTH-AFRICA",),
}


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What profiles.json.gz holds: profiles, and under which terms."""

    notice: str
    profiles: tuple[Profile, ...]


@cache
def _profiles() -> dict[tuple[str, str], Profile]:
    path = Path(__file__).with_name("profiles.json.gz")
    file = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=ProfileFile)
    return {(profile.zone, profile.kind): profile for profile in file.profiles}


def zone_names() -> tuple[str, ...]:
    """The grids that are known by name.

    >>> "DE-LU" in zone_names(), len(zone_names()) >= 20
    (True, True)
    """
    return tuple(sorted({zone for zone, _ in _profiles()}))


def _with_short_name(zone: str) -> str:
    shorter = [alias for alias in ZONE_ALIASES.get(zone, ()) if len(alias) < len(zone)]
    return f"{zone} ({shorter[0]})" if shorter else zone


def resolve_zone(name: str) -> str:
    """The name under which a zone is kept, from any name it is known by.

    >>> resolve_zone("caiso"), resolve_zone("de")
    ('US-CAL-CISO', 'DE-LU')
    """
    known = {name: name for name in zone_names()}
    known |= {alias: zone for zone, aliases in ZONE_ALIASES.items() for alias in aliases}
    asked = name.strip().upper().replace("_", "-").replace(" ", "-")
    if asked in known:
        return known[asked]
    hint = f"one of {', '.join(map(_with_short_name, zone_names()))}"
    near = get_close_matches(asked, known, n=1, cutoff=0.6)
    if near:
        meant = known[near[0]]
        hint = f"did you mean {near[0]}{f' ({meant})' if meant != near[0] else ''}? {hint}"
    raise InputError(f"no grid zone is called {name!r}", hint=hint)


def zone_profile(name: str, *, scope: Scope = "lifecycle") -> Profile:
    """The profile of a grid's average intensity."""
    return _profiles()[resolve_zone(name), intensity_kind("average", scope)]


def zone_signal(
    name: str, start_ns: int, end_ns: int, *, scope: Scope = "lifecycle", seed: int = 0
) -> Signal:
    """Hours of a grid's intensity as they might have been, generated from its profile.

    The same seed gives the same hours in every span that holds them, and life-cycle and direct
    hours that belong together. Zones are drawn independently: real neighbours share weather.

    >>> day_ns = 24 * 3600 * 10**9
    >>> week = zone_signal("DE", 0, 7 * day_ns)
    >>> len(week), week.kind, week == zone_signal("DE-LU", 0, 7 * day_ns)
    (168, 'carbon-intensity/average/lifecycle', True)

    Args:
        seed: Which of all possible histories.
    """
    if seed < 0:
        raise InputError(f"a seed of {seed}; it has to be zero or more")
    profile = zone_profile(name, scope=scope)
    rng = np.random.default_rng([seed, zlib.crc32(profile.zone.encode())])
    return profile.generate(start_ns, end_ns, rng)


def zone_intensity(name: str) -> Estimate:
    """gCO2e/kWh of a grid: mean of a year, and its hours' range.

    Average, life-cycle; 80 % of the hours of the newest year lie in the range. A number stands
    for itself.

    >>> zone_intensity("DE").mid == zone_intensity("DE-LU").mid
    True
    >>> zone_intensity("120")
    Estimate(low=120.0, mid=120.0, high=120.0)
    """
    try:
        grams = float(name)
    except ValueError:
        return _named_intensity(name)
    if not 0.0 <= grams < 1e5:
        raise InputError(f"a grid of {name} g/kWh; it has to be zero or more")
    return Estimate.exact(grams)


def _named_intensity(name: str) -> Estimate:
    try:
        return zone_profile(name).hours
    except InputError as error:
        hint = f"give g/kWh as a number, or {error.hint}"
        raise InputError(error.what, where=error.where, hint=hint) from None


def constant_intensity(grams_kwh: float, start_ns: int, end_ns: int) -> Signal:
    """A grid that never changes, for those who know one number."""
    if not (math.isfinite(grams_kwh) and grams_kwh >= 0):
        raise InputError(f"a grid of {grams_kwh} g/kWh; it has to be zero or more")
    return Signal.constant(
        grams_kwh, start_ns, end_ns, unit=INTENSITY_UNIT, kind=intensity_kind(),
        attribution="a number given by the user",
    )  # fmt: skip
