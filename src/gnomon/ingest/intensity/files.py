"""Files of a grid's carbon intensity, whoever wrote them, to one checked `Signal`.

A file is recognised by its content: Electricity Maps (exports and API answers), WattTime (v2,
v3), the Carbon Intensity API of Great Britain, the Carbon Aware SDK, CarbonCast, tables that
`write_signal_csv` wrote, and any other table whose columns say what they are. Plain or gzip.
"""

from __future__ import annotations

import os

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.intensity.answers import read_json_rows
from gnomon.ingest.intensity.rows import build_signal, choose_zone
from gnomon.ingest.intensity.tables import read_csv_rows
from gnomon.ingest.metrics.signal_csv import read_signal_csv
from gnomon.ingest.text import read_whole
from gnomon.series import Fill, Signal
from gnomon.series.intensity import (
    Basis,
    Scope,
    check_intensity,
    intensity_identity,
)

_MOST_BYTES = 1 << 30
_MARK = "# gnomon-signal "


class IntensityFile(msgspec.Struct, frozen=True, eq=False):
    """A signal in g/kWh without gaps, its kind saying basis and scope, and notes about it."""

    signal: Signal
    notes: tuple[str, ...]
    format: str


def read_intensity(
    path: str | os.PathLike[str],
    *,
    zone: str | None = None,
    scope: Scope | None = None,
    basis: Basis | None = None,
    fill: Fill | None = None,
) -> IntensityFile:
    """Read a file of grid intensity.

    Gaps, blank and negative values, hours that are there twice with different values and rows out
    of order are refused, each by its row.

    Args:
        path: A .csv or .json, or either compressed by gzip, under any name.
        zone: Which, where the file has several; what it is of, where it does not say.
        scope: Which column, where the file has both; what it is, where it does not say.
        fill: 'hold' or 'interpolate' puts values into gaps and in place of blanks, sorts, and
            drops repeated rows; the notes say what was done where.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "moer.csv"
    ...     _ = path.write_text("timestamp,MOER\\n2024-01-01T00:00Z,1000\\n2024-01-01T00:05Z,900")
    ...     found = read_intensity(path, zone="CAISO_NORTH")
    >>> found.format, found.signal.kind, found.signal.values.round(1).tolist()
    ('watttime-csv', 'carbon-intensity/marginal/direct', [453.6, 408.2])
    """
    where = os.fspath(path)
    text = read_whole(where, _MOST_BYTES, hint="split it by year")
    if text.lstrip()[:1] in (b"{", b"["):
        return intensity_from_json(text, where, zone=zone, scope=scope, basis=basis, fill=fill)
    try:
        table = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not a text file", where=where, hint="expected CSV or JSON") from None
    if table.startswith(_MARK):
        return _read_own(table, where, zone, scope, basis, fill)
    rows = choose_zone(read_csv_rows(table, where, scope=scope), zone)
    signal, notes = build_signal(rows, scope=scope, basis=basis, fill=fill)
    return IntensityFile(signal, tuple(notes), rows.format)


def intensity_from_json(
    text: bytes,
    where: str,
    *,
    zone: str | None = None,
    scope: Scope | None = None,
    basis: Basis | None = None,
    fill: Fill | None = None,
) -> IntensityFile:
    """The intensity in an answer of a service, as `read_intensity` reads a file of it."""
    rows = choose_zone(read_json_rows(text.removeprefix(b"\xef\xbb\xbf"), where), zone)
    signal, notes = build_signal(rows, scope=scope, basis=basis, fill=fill)
    return IntensityFile(signal, tuple(notes), rows.format)


def _read_own(
    table: str, where: str, zone: str | None, scope: Scope | None, basis: Basis | None,
    fill: Fill | None,
) -> IntensityFile:  # fmt: skip
    """A table of our own comes back as it was: with its range, its shape and its own steps."""
    signal = read_signal_csv(where).signal
    rows = read_csv_rows(table, where, scope=scope, unit=signal.unit)
    rows.format, rows.is_stepped, rows.end_ns = "gnomon-csv", False, signal.end_ns
    rows.zone, rows.attribution = signal.zone, signal.attribution
    identity = intensity_identity(signal)
    if identity is not None:
        rows.basis, rows.scope = identity
    rows = choose_zone(rows, zone)
    checked, notes = build_signal(rows, scope=scope, basis=basis, fill=fill)
    grams = check_intensity(signal)
    if fill is not None:
        grams = grams.fill(fill)
    same = grams.replace(kind=checked.kind, zone=rows.zone)
    return IntensityFile(same, tuple(notes), rows.format)
