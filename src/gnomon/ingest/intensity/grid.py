"""Which grid: a zone's name, a number, or a file of real hours; the one place that chooses."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.intensity.files import read_intensity
from gnomon.ingest.moment import moment_of, ns_of
from gnomon.series import Fill, Signal
from gnomon.series.intensity import Scope, describe_intensity
from gnomon.series.zones import (
    ZONE_ALIASES,
    constant_intensity,
    resolve_zone,
    zone_intensity,
    zone_profile,
    zone_signal,
)
from gnomon.units import HOUR_NS

#: Grids change: years farther than this from a profile's get a note.
_FAR_NS = 5 * 366 * 24 * HOUR_NS
_ENDINGS = (".csv", ".csv.gz", ".json", ".json.gz")


def grid_signal(
    zone: str | None,
    start_ns: int,
    end_ns: int,
    *,
    file: str | os.PathLike[str] | None = None,
    scope: Scope = "lifecycle",
    seed: int = 0,
    fill: Fill | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[Signal, list[str]]:
    """Grid intensity over a span in g/kWh, and notes about it.

    Args:
        zone: A zone that has a profile, or g/kWh as a number; with a file, what it is of.
        scope: Life-cycle or direct; with a file, which column is meant.
        fill: How gaps of a file are filled; without it a gap is refused.
        folder: Where files of real hours are, each named by its zone: DE.csv. One that covers
            the span is taken in place of the profile.

    >>> hour_ns = 3600 * 10**9
    >>> grid_signal("120", 0, hour_ns)[0].values
    array([120.])
    """
    if file is not None:
        signal, notes = read_grid_file(file, zone=zone, scope=scope, fill=fill)
        check_covers(signal, start_ns, end_ns, os.fspath(file), "what is asked for")
        return signal, notes
    if zone is None:
        raise InputError("which grid?", hint="name a zone such as DE, or give g/kWh")
    notes = []
    if (own := find_grid_file(folder, zone)) is not None:
        signal, notes = read_grid_file(own, zone=zone, scope=scope, fill=fill)
        if signal.start_ns <= start_ns and end_ns <= signal.end_ns:
            return signal, notes
        covered = f"{day_of(signal.start_ns)} to {day_of(signal.end_ns)}"
        notes = [f"{own.name} runs from {covered} and does not cover what is asked for."]
    elif fill is not None:
        raise InputError("there is nothing to fill in a zone's profile", hint="it is for files")
    first = start_ns // HOUR_NS * HOUR_NS
    last = max(-(-end_ns // HOUR_NS) * HOUR_NS, first + HOUR_NS)
    if not is_number(zone):
        signal = zone_signal(zone, first, last, scope=scope, seed=seed)
        notes.append(f"Grid: {describe_intensity(signal)}; seed {seed}.")
        return signal, notes + notes_on_distance(zone, start_ns, end_ns, scope=scope)
    grams = zone_intensity(zone).mid  # refuses what is no intensity
    signal = constant_intensity(grams, first, last)
    return signal, [f"Grid: {grams:g} gCO2e/kWh at all times, as given."]


def is_number(zone: str) -> bool:
    """Whether a grid is named by its g/kWh, the same at all hours."""
    try:
        float(zone)
    except ValueError:
        return False
    return True


def notes_on_distance(
    zone: str, start_ns: int, end_ns: int, *, scope: Scope = "lifecycle"
) -> list[str]:
    """A note where hours are generated for years far from those that a zone's profile is of.

    >>> notes_on_distance("DE", _new_year_ns(1900), _new_year_ns(1901))
    ['The profile of DE-LU is of 2021-2024; 1900 is generated as if nothing had changed.']
    """
    profile = zone_profile(zone, scope=scope)
    years = []
    if start_ns < profile.start_ns - _FAR_NS:
        years.append(year_of(start_ns))
    if end_ns > profile.end_ns + _FAR_NS:
        years.append(year_of(end_ns - 1))
    if not years:
        return []
    known = f"{year_of(profile.start_ns)}-{year_of(profile.end_ns - 1)}"
    far = " and ".join(dict.fromkeys(map(str, years)))
    are = "is" if " " not in far else "are"
    what = f"{far} {are} generated as if nothing had changed."
    return [f"The profile of {profile.zone} is of {known}; {what}"]


def find_grid_file(folder: str | os.PathLike[str] | None, zone: str) -> Path | None:
    """The file of real hours that a folder has of a zone, by any name of the zone's."""
    if folder is None:
        return None
    place = Path(folder)
    if not place.is_dir():
        raise InputError("no such folder", where=os.fspath(folder), hint="GNOMON_CARBON names it")
    names = {zone.casefold()}
    with contextlib.suppress(InputError):
        meant = resolve_zone(zone)
        names |= {name.casefold() for name in (meant, *ZONE_ALIASES.get(meant, ()))}
    found = sorted(
        entry
        for entry in place.iterdir()
        if entry.name.casefold() in {f"{name}{ending}" for name in names for ending in _ENDINGS}
    )
    if len(found) > 1:
        listed = ", ".join(entry.name for entry in found)
        raise InputError(f"more than one file of {zone}: {listed}", where=os.fspath(folder))
    return found[0] if found else None


def read_grid_file(
    file: str | os.PathLike[str],
    *,
    zone: str | None = None,
    scope: Scope = "lifecycle",
    fill: Fill | None = None,
) -> tuple[Signal, list[str]]:
    """All hours of a file, gaps filled where that was asked for, and what was."""
    if zone is not None and is_number(zone):
        what = f"{zone} is no zone of a file: a number is a grid that is the same at all hours"
        raise InputError(what, where=os.fspath(file), hint="give the file or the number")
    found = read_intensity(file, zone=zone, scope=scope, fill=fill)
    name = Path(file).name
    notes = [f"Grid: {describe_intensity(found.signal)}; hours of {name}."]
    return found.signal, notes + [f"{name}: {note}" for note in found.notes]


def mean_intensity(
    zone: str | None,
    *,
    year: int,
    file: str | os.PathLike[str] | None = None,
    scope: Scope = "lifecycle",
    seed: int = 0,
    fill: Fill | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[float, list[str]]:
    """Mean g/kWh of a year of a zone, or of all of a file."""
    if file is not None:
        signal, notes = read_grid_file(file, zone=zone, scope=scope, fill=fill)
        return signal.mean(), notes
    start, end = (_new_year_ns(y) for y in (year, year + 1))
    signal, notes = grid_signal(zone, start, end, scope=scope, seed=seed, fill=fill, folder=folder)
    return signal.mean(start, end), notes


def _new_year_ns(year: int) -> int:
    return ns_of(datetime(year, 1, 1, tzinfo=UTC))


def check_covers(
    signal: Signal, start_ns: int, end_ns: int, where: str, what: str = "the job"
) -> None:
    """Refuse what runs outside of a signal, naming where it stands."""
    if start_ns < signal.start_ns or end_ns > signal.end_ns:
        raise InputError(
            f"{what} runs from {day_of(start_ns)} to {day_of(end_ns)}, and the signal from "
            f"{day_of(signal.start_ns)} to {day_of(signal.end_ns)}",
            where=where, hint="get more hours, or leave the file out to use a zone's profile",
        )  # fmt: skip


def day_of(t_ns: int) -> str:
    """A time in UTC, to the minute."""
    return moment_of(t_ns).strftime("%Y-%m-%d %H:%M")


def year_of(t_ns: int) -> int:
    """The year of a time, in UTC."""
    return moment_of(t_ns).year
