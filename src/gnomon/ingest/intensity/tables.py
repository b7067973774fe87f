"""Intensity as tables have it: exports of Electricity Maps, WattTime, CarbonCast, and others."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Sequence

from gnomon.errors import InputError
from gnomon.ingest.delimited import NUMBER, HeadedTable, header_of
from gnomon.ingest.intensity.rows import POUNDS_PER_MWH, Rows
from gnomon.ingest.intensity.unit import column_unit
from gnomon.ingest.moment import (
    epoch_scale,
    is_time,
    parse_instant,
    refuse_compact_day,
    refuse_slashes,
    with_year_first,
)  # fmt: skip
from gnomon.series.intensity import INTENSITY_UNIT, Basis, Scope
from gnomon.units import Unit, convert, parse

_ZONES = ("zone id", "zone_id", "zoneid", "zone", "region", "location", "ba")
_ESTIMATED = ("data estimated", "estimated", "isestimated", "is_estimated")
_WORDS: dict[Scope, tuple[str, ...]] = {"lifecycle": ("lca", "life"), "direct": ("direct",)}
_OWN = b"# gnomon-signal "
_INTENSITY = re.compile(r"intensity|co2|moer|emission")
_TIME_NAMES = re.compile(r"time|date|epoch")


@dataclasses.dataclass
class _Layout:
    """Which columns are meant, and what the format says of them."""

    format: str
    time: int
    value: int
    factor: float = 1.0
    basis: Basis | None = None
    scope: Scope | None = None
    zone: int | None = None
    estimated: int | None = None
    has_us_dates: bool = False
    attribution: str = ""
    notes: tuple[str, ...] = ()


def looks_like_intensity(head: bytes) -> bool:
    """Whether a file begins with a header that has times and an intensity.

    >>> looks_like_intensity(b"datetime,lca_gco2_kwh\\n"), looks_like_intensity(b"time,power_w\\n")
    (True, False)
    """
    names = [name.lower() for name in header_of(head)]
    if head.startswith(_OWN):
        return b"CO2" in head.split(b"\n", 1)[0]
    has_time = any(_TIME_NAMES.search(name) for name in names)
    is_watttime = {"point_time", "value"} <= set(names)
    return is_watttime or (has_time and any(_INTENSITY.search(name) for name in names))


def read_csv_rows(
    text: str, where: str, *, scope: Scope | None = None, unit: Unit | None = None
) -> Rows:
    """The rows of a table, its columns known by their names.

    Args:
        scope: Which column is meant where there is one of each; life-cycle unless given.
        unit: Of the values, where no column's name says it.
    """
    table = _Lines(text, where)
    layout = _layout(table, scope or "lifecycle", unit)
    rows = Rows(
        where, layout.format, basis=layout.basis, scope=layout.scope,
        attribution=layout.attribution, notes=list(layout.notes),
    )  # fmt: skip
    cells, column = list[str](), table.names[layout.value]
    for row in table.rows():
        cells.append(row[layout.time].strip())
        value = table.value(row[layout.value].strip(), column) * layout.factor
        zone = None if layout.zone is None else row[layout.zone].strip()
        rows.add(table.line, 0, value, zone)
        if layout.estimated is not None:
            rows.estimated.append(row[layout.estimated].strip().lower() in ("true", "1", "yes"))
    rows.times = _times(rows, cells, has_us_dates=layout.has_us_dates)
    if not text.endswith(("\n", "\r")):
        rows.open_number = rows.numbers[-1]
    return rows


class _Lines(HeadedTable):
    """The table, and its columns by their names in lower case."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(io.StringIO(text, newline=""), where)
        self.lower = [name.lower() for name in self.names]

    def find(self, *names: str) -> int | None:
        return next((self.lower.index(name) for name in names if name in self.lower), None)


def _layout(table: _Lines, scope: Scope, unit: Unit | None) -> _Layout:
    at = {name: table.find(name) for name in ("point_time", "value", "timestamp", "moer")}
    for time, value in (("point_time", "value"), ("timestamp", "moer"), ("point_time", "moer")):
        when, what = at[time], at[value]
        if when is not None and what is not None:
            return _Layout(
                "watttime-csv", when, what, POUNDS_PER_MWH, "marginal", "direct",
                table.find("region", "ba"), attribution="WattTime",
            )  # fmt: skip
    when, what = table.find("utc time"), table.find("carbon_intensity")
    if when is not None and what is not None:
        thanks = "CarbonCast (Apache-2.0), from EIA and ENTSO-E"
        return _Layout(
            "carboncast-csv", when, what, basis="average", has_us_dates=True, attribution=thanks
        )
    found = _other(table, scope, unit)
    is_export = table.find("datetime (utc)") is not None and found.zone is not None
    is_reduced = {"direct_gco2_kwh", "lca_gco2_kwh"} <= set(table.lower)
    if is_export or is_reduced:
        found.format, found.basis = "electricitymaps-csv", "average"
        found.attribution = "Electricity Maps, ODbL 1.0"
    return found


def _other(table: _Lines, scope: Scope, unit: Unit | None) -> _Layout:
    """A table of no known origin: columns that say what they are."""
    time = _time_column(table)
    value = _value_column(table, time, scope)
    name = table.lower[value]
    scopes = [s for s, words in _WORDS.items() if any(word in name for word in words)]
    basis: Basis | None = None
    if "marginal" in name or "moer" in name:
        basis = "marginal"
    elif "average" in name:
        basis = "average"
    notes: tuple[str, ...] = ()
    if unit is None:
        unit, notes = _unit(table, value)
    if not unit.is_convertible(parse(INTENSITY_UNIT)):
        what = f"{unit} of column {table.names[value]!r} is no unit of an intensity"
        raise InputError(what, where=table.where, hint=f"it is measured in {INTENSITY_UNIT}")
    return _Layout(
        "csv", time, value, float(convert(1.0, unit, INTENSITY_UNIT)), basis,
        scopes[0] if len(scopes) == 1 else None, table.find(*_ZONES), table.find(*_ESTIMATED),
        notes=notes,
    )  # fmt: skip


def _time_column(table: _Lines) -> int:
    named = [at for at, name in enumerate(table.lower) if _TIME_NAMES.search(name)]
    for at in named:
        cell = table.first[at].strip()
        if is_time(cell) or NUMBER.fullmatch(cell):
            return at
    if named:
        return named[0]
    for at, cell in enumerate(table.first):
        if is_time(cell.strip()):
            return at
    raise InputError("no column of times", where=table.where, hint=table.listing())


def _value_column(table: _Lines, time: int, scope: Scope) -> int:
    """The column of the scope that is meant, else the one that can be it."""
    others = [at for at in range(len(table.names)) if at != time]
    intensity = [at for at in others if _INTENSITY.search(table.lower[at])]
    for words in (_WORDS[scope], *_WORDS.values()):
        meant = [at for at in intensity if any(word in table.lower[at] for word in words)]
        if len(meant) == 1:
            return meant[0]
    numeric = [at for at in others if table.decimals.is_number(table.first[at].strip())]
    called = [at for at in others if table.lower[at] in ("value", "carbon_intensity")]
    for candidates in (intensity, called, numeric, others):
        if len(candidates) == 1:
            return candidates[0]
    what = (
        "more than one column could be the intensity" if numeric else "no column of an intensity"
    )
    raise InputError(what, where=table.where, hint=table.listing())


def _unit(table: _Lines, value: int) -> tuple[Unit, tuple[str, ...]]:
    """Bare `carbon_intensity` columns are g/kWh by custom; any other name has to say its unit."""
    name = table.names[value]
    if (unit := column_unit(name, table.where)) is not None:
        return unit, ()
    if "intensity" not in table.lower[value]:
        hint = f"name it as in 'carbon_gco2_kwh'; {table.listing()}"
        raise InputError(f"column {name!r} does not say its unit", where=table.where, hint=hint)
    note = f"Column {name!r} does not say its unit; taken as {INTENSITY_UNIT}."
    return parse(INTENSITY_UNIT), (note,)


def _times(rows: Rows, cells: Sequence[str], *, has_us_dates: bool) -> list[int]:
    """Nanoseconds of a column of times; the scale of bare numbers is that of the largest."""
    scale = epoch_scale([float(cell) for cell in cells if NUMBER.fullmatch(cell)])
    times = []
    for number, cell in zip(rows.numbers, cells):
        try:
            refuse_compact_day(cell)
            if has_us_dates and "/" in cell:
                cell = _from_us(cell)
            refuse_slashes(cell)
            times.append(parse_instant(with_year_first(cell), scale=scale))
        except InputError as error:
            raise rows.error(number, error.what, error.hint) from None
    return times


def _from_us(cell: str) -> str:
    match = re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{4})([ T].*)?", cell)
    if match is None:
        return cell
    month, day, year, clock = match.groups()
    return f"{year}-{month:>02}-{day:>02}{clock or ''}"
