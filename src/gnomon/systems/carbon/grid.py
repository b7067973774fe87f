"""Which grid: a zone's name, a number, or a file of real hours; the one place that chooses."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gnomon.errors import InputError
from gnomon.ingest.signal_csv import read_signal_csv
from gnomon.ingest.text import read_head
from gnomon.series import Fill, Signal
from gnomon.series.intensity import (
    Scope,
    check_intensity,
    describe_intensity,
    intensity_identity,
    intensity_kind,
)
from gnomon.series.zones import constant_intensity, zone_intensity, zone_signal
from gnomon.units import format_duration

__all__ = [
    "check_covers",
    "day_of",
    "grid_signal",
    "mean_intensity",
    "read_grid_file",
    "year_of",
]

_HOUR_NS = 3600 * 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def grid_signal(
    zone: str | None,
    start_ns: int,
    end_ns: int,
    *,
    file: str | os.PathLike[str] | None = None,
    scope: Scope = "lifecycle",
    seed: int = 0,
    fill: Fill | None = None,
) -> tuple[Signal, list[str]]:
    """Grid intensity over a span in g/kWh, and what has to be said about it.

    Args:
        zone: A zone that has a profile, or grams a kWh as a number; with a file, what it is of.
        start_ns: Begin of the span.
        end_ns: End of the span.
        file: Real hours; they have to cover the span.
        scope: Life-cycle or direct; with a file, which column is meant.
        seed: Of the hours that are generated from a profile.
        fill: How gaps of a file are filled; without it a gap is refused where it matters.

    >>> hour_ns = 3600 * 10**9
    >>> grid_signal("120", 0, hour_ns)[0].values
    array([120.])
    """
    if file is not None:
        signal, notes = read_grid_file(file, zone=zone, scope=scope, fill=fill)
        check_covers(signal, start_ns, end_ns, os.fspath(file), "what is asked for")
        return signal, notes
    if zone is None:
        raise InputError("which grid?", hint="name a zone such as DE, or give grams a kWh")
    if fill is not None:
        raise InputError("there is nothing to fill in a zone's profile", hint="it is for files")
    first = start_ns // _HOUR_NS * _HOUR_NS
    last = max(-(-end_ns // _HOUR_NS) * _HOUR_NS, first + _HOUR_NS)
    try:
        grams = float(zone)
    except ValueError:
        signal = zone_signal(zone, first, last, scope=scope, seed=seed)
        note = f"Grid: {describe_intensity(signal)}; seed {seed}."
        return signal, [note]
    zone_intensity(zone)  # refuses what is no intensity
    signal = constant_intensity(grams, first, last)
    return signal, [f"Grid: {grams:g} gCO2e/kWh at all times, as given."]


def read_grid_file(
    file: str | os.PathLike[str],
    *,
    zone: str | None = None,
    scope: Scope = "lifecycle",
    fill: Fill | None = None,
) -> tuple[Signal, list[str]]:
    """All hours of a file, gaps filled where that was asked for, and what was."""
    where = os.fspath(file)
    kind = intensity_kind("average", scope)
    found = read_signal_csv(
        where, value_column=_column(Path(where), scope), kind=kind, zone=zone, unit=_unit(where)
    )
    try:
        signal = check_intensity(found.signal)
    except InputError as error:
        raise InputError(error.what, where=where, hint=error.hint) from None
    notes = [f"Grid: {describe_intensity(signal)}; hours of {Path(where).name}."]
    if intensity_identity(signal) is None:
        notes.append("The file does not say whether it is average or marginal, direct or not.")
    if found.merged_count:
        notes.append(f"{found.merged_count:,} repeated rows with the same value were merged.")
    gaps = signal.gaps()
    if fill is not None and gaps:
        missing = sum(gap.end_ns - gap.start_ns for gap in gaps)
        how = {"hold": "the last value before", "interpolate": "a straight line across"}[fill]
        notes.append(
            f"Filled {len(gaps):,} gap{'s' if len(gaps) > 1 else ''}, {format_duration(missing)} "
            f"in all, with {how}; the first is {gaps[0]}."
        )
        signal = signal.fill(fill)
    return signal, notes


def mean_intensity(
    zone: str | None,
    *,
    year: int,
    file: str | os.PathLike[str] | None = None,
    scope: Scope = "lifecycle",
    seed: int = 0,
    fill: Fill | None = None,
) -> tuple[float, list[str]]:
    """Grams a kWh: the mean of a year of a zone, or of all of a file."""
    if file is not None:
        signal, notes = read_grid_file(file, zone=zone, scope=scope, fill=fill)
        return signal.mean(), notes
    start, end = (_new_year_ns(y) for y in (year, year + 1))
    signal, notes = grid_signal(zone, start, end, scope=scope, seed=seed, fill=fill)
    return signal.mean(), notes


def _new_year_ns(year: int) -> int:
    moment = datetime(year, 1, 1, tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9


def _column(path: Path, scope: Scope) -> str | None:
    """The column of the scope that is meant, where a table has one of each."""
    head = read_head(path).decode("utf-8", "replace").splitlines()
    first = next((line for line in head if line.strip() and not line.startswith("#")), "")
    names = [name.strip().strip('"') for name in first.replace(";", ",").split(",")]
    words = {"lifecycle": ("lca", "life"), "direct": ("direct",)}[scope]
    meant = [name for name in names if any(word in name.lower() for word in words)]
    if len(meant) == 1:
        return meant[0]
    intensity = [name for name in names if "intensity" in name.lower()]
    return intensity[0] if len(intensity) == 1 else None


def _unit(where: str) -> str | None:
    """Bare `carbon_intensity` columns are g/kWh by custom; any other header says its unit."""
    column = _column(Path(where), "lifecycle") or ""
    return "gCO2e/kWh" if column.lower() == "carbon_intensity" else None


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
    return _moment(t_ns).strftime("%Y-%m-%d %H:%M")


def year_of(t_ns: int) -> int:
    """The year of a time, in UTC."""
    return _moment(t_ns).year


def _moment(t_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=t_ns // 1000)
