"""Tables of values over time, .csv or .csv.gz, to `Signal` and back.

Reads what grid operators and data portals publish: a header line, one column of times (ISO 8601,
or seconds, milliseconds, microseconds or nanoseconds since 1970), one column of values; and what
spreadsheets make of it: semicolons between cells, decimal commas, 31.12.2024. Nothing is repaired
in silence: what was merged, blank or missing is counted in the result.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
from isal import igzip

from gnomon.errors import InputError
from gnomon.ingest.delimited import HeadedTable, read_lines
from gnomon.ingest.moment import (
    is_slashed,
    is_time,
    moment_of,
    ns_of,
    refuse_compact_day,
    refuse_slashes,
    with_year_first,
)
from gnomon.ingest.text import BAD_JSON
from gnomon.series import Signal
from gnomon.table import atomic_file
from gnomon.units import SECOND_NS, Unit, parse

_MAX_ABS_NS = 2**62
_EPOCH_NUMBER = re.compile(r"([+-]?)(\d{1,19})(?:\.(\d{0,9})\d*)?")
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d{1,9})")
_TIME_NAME = re.compile(r"time|date|timestamp|epoch")
_MARK = "# gnomon-signal "
# 'mw' is absent on purpose: a grid means megawatts by it, a power sensor milliwatts.
_SUFFIXES = {
    **{f"{gas}{join}kwh": "gCO2e/kWh" for gas in ("gco2", "gco2e", "gco2eq") for join in "/_"},
    "g_per_kwh": "gCO2e/kWh",
    "gco2_per_kwh": "gCO2e/kWh",
    "usd_per_kwh": "USD/kWh",
    "usd_per_mwh": "USD/MWh",
    "rps": "req/s",
    "pct": "%",
    **{name.lower(): name for name in ("ms", "s", "ns", "W", "kW", "J", "kWh", "MWh", "percent")},
}
_gzip: Any = igzip  # its own annotations are partly wrong


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    """What a plain table cannot say, in the comment line that we write above ours."""

    unit: str
    kind: str
    zone: str | None
    shape: str
    end_ns: int
    attribution: str


@dataclass(frozen=True, slots=True)
class SignalCsv:
    """A signal read from a table, and what was found on the way.

    Attributes:
        merged_count: Rows dropped because an equal one with the same time was there.
        blank_count: Rows whose value cell was blank; each is a gap.
        missing_count: Rows that the regular step promises and the file lacks; gaps too.
        step_ns: The step found, or None where times follow no regular step.
    """

    signal: Signal
    row_count: int
    merged_count: int
    blank_count: int
    missing_count: int
    step_ns: int | None
    time_column: str
    value_column: str


def looks_like_signal(head: bytes) -> bool:
    """Whether a file begins as a table of values over time, ours or anyone's.

    >>> looks_like_signal(b"when,power_w\\n2024-01-01T00:00Z,3\\n")
    True
    """
    lines = io.StringIO(head.decode("utf-8", "replace"), newline="")
    try:
        table = HeadedTable(lines, "")
        numbers = any(table.decimals.is_number(cell.strip()) for cell in table.first)
    except InputError:
        return False
    named = any(_TIME_NAME.search(name.lower()) for name in table.names)
    return numbers and (named or any(is_time(cell) for cell in table.first))


def read_signal_csv(
    path: str | os.PathLike[str],
    *,
    value_column: str | None = None,
    time_column: str | None = None,
    unit: Unit | str | None = None,
    kind: str | None = None,
    zone: str | None = None,
    step_ns: int | None = None,
    attribution: str = "",
) -> SignalCsv:
    """Read one column of a table as a step signal.

    A time without an offset is UTC. Each value holds for one step and no longer, so that a
    missing hour is a gap; the step is the commonest distance of two rows, if at least half of
    them have it. Files that `write_signal_csv` wrote come back as they were.

    Args:
        time_column: Needed when neither its name nor its first cell shows it.
        unit: Needed when the header does not say it (as in 'gCO₂eq/kWh' or 'power_w').
        step_ns: How long a value speaks, for files whose step is not the commonest distance.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "grid.csv"
    ...     rows = ["datetime,carbon_gco2_kwh", "2024-01-01T00:00Z,400", "2024-01-01T01:00Z,380"]
    ...     _ = path.write_text("\\n".join([*rows, "2024-01-01T03:00Z,300"]))
    ...     found = read_signal_csv(path, kind="carbon-intensity", zone="DE")
    >>> found.missing_count, str(found.signal.unit), found.signal.gaps()[0].start_ns // 10**9
    (1, 'gCO2e/kWh', 1704074400)
    """
    table = _SignalTable(os.fspath(path))
    table.choose(time_column, value_column)
    times, columns = table.read()
    overrides = {"unit": unit, "kind": kind, "zone": zone, "attribution": attribution or None}
    return _build(table, times, columns, step_ns, {k: v for k, v in overrides.items() if v})


class _SignalTable(HeadedTable):
    """One pass over a CSV: the header, then times and values of the chosen columns."""

    def __init__(self, where: str) -> None:
        super().__init__(read_lines(where), where)
        self.header: _Header | None = None
        for number, line in self.comments.items():
            if line.startswith(_MARK):
                self.header = self._decode_mark(number, line)
        self.blank_count = 0

    def _decode_mark(self, number: int, line: str) -> _Header:
        try:
            return msgspec.json.decode(line.removeprefix(_MARK), type=_Header)
        except BAD_JSON as error:
            what = f"damaged '{_MARK.strip()}' line: {error}"
            raise self.error(what, line=number) from None

    def choose(self, time_column: str | None, value_column: str | None) -> None:
        """Settle which columns to read, by what the caller says, else by header and first row."""
        first = dict(zip(self.names, self.first))
        for asked in (time_column, value_column):
            if asked is not None and self.names.count(asked) != 1:
                many = "more than one" if asked in first else "no"
                what = f"{many} column {asked!r}"
                raise InputError(what, where=self.where, hint=self.listing())
        if self.header is not None:
            value_column = value_column or "value"
        self.time_column = time_column or self._find_time(first)
        if value_column is None:
            others = [n for n in first if n and n != self.time_column]
            numeric = [n for n in others if self.decimals.is_number(first[n].strip())]
            candidates = numeric or (others if len(others) == 1 else [])
            if len(candidates) != 1:
                what = "more than one column could be meant" if candidates else "no numeric column"
                raise InputError(what, where=self.where, hint=f"value_column? {self.listing()}")
            value_column = candidates[0]
        self.value_column = value_column

    def _find_time(self, first: dict[str, str]) -> str:
        named = [n for n in first if _TIME_NAME.search(n.lower())]
        for name in named:
            cell = first[name].strip()
            is_epoch = _EPOCH_NUMBER.fullmatch(cell) is not None
            if is_epoch or is_time(cell) or is_slashed(cell):
                return name
        for name, cell in first.items():
            if is_time(cell):
                return name
        raise InputError("no column of times", where=self.where, hint=self.listing())

    def read(self) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]:
        wanted = [self.value_column]
        if self.header is not None:
            wanted += [name for name in ("low", "high") if name in self.names]
        at_time = self.names.index(self.time_column)
        places = [self.names.index(name) for name in wanted]
        clock = _Clock(self)
        numbers: list[list[float]] = [[] for _ in wanted]
        self.row_lines: list[int] = []
        for row in self.rows():
            clock.add(row[at_time].strip())
            for column, place, name in zip(numbers, places, wanted):
                column.append(self.value(row[place].strip(), name))
            self.row_lines.append(self.line)
        arrays = [np.array(column, dtype=np.float64) for column in numbers]
        self.blank_count = int(np.isnan(arrays[0]).sum())
        names = ("values", *wanted[1:])
        return clock.finish(), dict(zip(names, arrays))


class _Clock:
    """Cells of one column to nanoseconds; the column speaks one dialect from top to bottom."""

    def __init__(self, table: _SignalTable) -> None:
        self.table = table
        self.numbers: list[tuple[int, str]] = []
        self.times: list[int] = []
        self.has_offset: bool | None = None

    def add(self, cell: str) -> None:
        number = _EPOCH_NUMBER.fullmatch(cell)
        if number is not None and not self.times:
            self._refuse(refuse_compact_day, cell)
            sign = -1 if number[1] == "-" else 1
            self.numbers.append((sign * int(number[2]), number[3] or ""))
        elif number is None and not self.numbers:
            self.times.append(self._iso(cell))
        else:
            raise self.table.error(f"{cell[:40]!r} is not written like the times above it")

    def _refuse(self, check: Callable[[str], None], cell: str) -> None:
        try:
            check(cell)
        except InputError as error:
            raise self.table.error(error.what, error.hint) from None

    def _iso(self, cell: str) -> int:
        fraction = _FRACTION.search(cell)
        self._refuse(refuse_slashes, cell)
        try:
            moment = datetime.fromisoformat(_FRACTION.sub("", with_year_first(cell)))
        except ValueError:
            hint = "write 2024-03-31T01:00:00Z, or seconds since 1970"
            raise self.table.error(f"{cell[:40]!r} is not a time", hint) from None
        has_offset = moment.tzinfo is not None
        if self.has_offset not in (None, has_offset):
            raise self.table.error("some times have an offset from UTC and some do not")
        self.has_offset = has_offset
        moment = moment if has_offset else moment.replace(tzinfo=UTC)
        subsecond_ns = int(fraction[1].ljust(9, "0")) if fraction else 0
        return self._in_range(ns_of(moment) + subsecond_ns)

    def _in_range(self, t_ns: int) -> int:
        if abs(t_ns) > _MAX_ABS_NS:
            raise self.table.error("the time is more than 146 years from 1970")
        return t_ns

    def finish(self) -> npt.NDArray[np.int64]:
        if self.numbers:
            largest = max(abs(whole) for whole, _ in self.numbers)
            # 1e11 s is the year 5138, 1e11 ms is 1973: the ranges of the scales do not meet.
            digits = next(
                d for d, bound in ((9, 1e11), (6, 1e14), (3, 1e17), (0, 1e99)) if largest < bound
            )
            self.times = [self._in_range(_scale(*number, digits)) for number in self.numbers]
        return np.array(self.times, dtype=np.int64)


def _scale(whole: int, fraction: str, digits: int) -> int:
    below = int(fraction[:digits].ljust(digits, "0")) if digits else 0
    unit: int = 10**digits
    return whole * unit + (below if whole >= 0 else -below)


def _build(
    table: _SignalTable,
    times: npt.NDArray[np.int64],
    columns: dict[str, npt.NDArray[np.float64]],
    step_ns: int | None,
    overrides: dict[str, Any],
) -> SignalCsv:
    order = np.argsort(times, kind="stable")
    times, columns = times[order], {name: array[order] for name, array in columns.items()}
    kept = _merge(table, times, columns, order)
    times, columns = times[kept], {name: array[kept] for name, array in columns.items()}
    fields = {"kind": table.value_column or "value", **overrides}
    missing_count = 0
    if table.header is not None:
        fields = msgspec.structs.asdict(table.header) | overrides
    else:
        if "unit" not in fields:
            fields["unit"] = unit_in(table.value_column, table.where)
        step_ns = step_ns or common_step(times)
        if step_ns is None and times.size == 1:
            what = "one row does not say how long its value holds"
            raise InputError(what, where=table.where, hint="pass step_ns")
        fields["step_ns"] = step_ns
        if step_ns is not None:
            missing_count = int((-(-np.diff(times) // step_ns) - 1).clip(min=0).sum())
    try:
        signal = Signal.from_samples(times, **cast("dict[str, Any]", columns), **fields)
    except InputError as error:
        where = f"{table.where}: {error.where}" if error.where else table.where
        raise InputError(error.what, where=where, hint=error.hint) from None
    return SignalCsv(
        signal=signal,
        row_count=order.size,
        merged_count=int(order.size - kept.sum()),
        blank_count=table.blank_count,
        missing_count=missing_count,
        step_ns=step_ns,
        time_column=table.time_column,
        value_column=table.value_column,
    )


def _merge(
    table: _SignalTable,
    times: npt.NDArray[np.int64],
    columns: dict[str, npt.NDArray[np.float64]],
    order: npt.NDArray[np.intp],
) -> npt.NDArray[np.bool_]:
    """Which rows to keep: the first of equal ones. Two values for one time are refused."""
    repeats = np.diff(times) == 0
    values = columns["values"]
    same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    if (clash := np.flatnonzero(repeats & ~same)).size:
        at = int(clash[0])
        first, second = table.row_lines[int(order[at])], table.row_lines[int(order[at + 1])]
        raise InputError(
            f"{int(repeats.sum()):,} repeated times; lines {first} and {second} give "
            f"{values[at]:g} and {values[at + 1]:g} for the same one",
            where=table.where,
            hint="local times without offset repeat an hour in autumn: export in UTC",
        )
    return np.concatenate([[True], ~repeats])


def common_step(times: npt.NDArray[np.int64]) -> int | None:
    """The distance that at least half of the neighbours have, if there is one."""
    if times.size < 2:
        return None
    steps, counts = np.unique(np.diff(times), return_counts=True)
    best = int(counts.argmax())
    return int(steps[best]) if counts[best] * 2 >= counts.sum() else None


def unit_in(column: str, where: str) -> Unit:
    """The unit in a column's name: in brackets, as a word with a slash, or as its ending."""
    bracketed = re.findall(r"[\[(]([^\])]{1,80})[\])]", column)
    worded = [word for word in column.split() if "/" in word]
    for text in (*bracketed, *worded):
        try:
            return parse(text)
        except InputError:
            continue  # '(direct)' is no unit, and need not be one
    for suffix, name in sorted(_SUFFIXES.items(), key=lambda pair: -len(pair[0])):
        if re.search(rf"(^|[_\s]){re.escape(suffix)}$", column.lower()):
            return parse(name)
    raise InputError(f"column {column!r} does not say its unit", where=where, hint="pass unit=")


def write_signal_csv(signal: Signal, path: str | os.PathLike[str]) -> None:
    """Write a signal so that reading gives it back; a name ending in .gz is compressed.

    The first line is a comment with what a table cannot say. The file appears whole or not at
    all, and the same signal gives the same bytes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     signal = Signal.regular(0, 10**9, [1.5, 2.5], unit="W", kind="power")
    ...     write_signal_csv(signal, Path(folder) / "power.csv.gz")
    ...     read_signal_csv(Path(folder) / "power.csv.gz").signal == signal
    True
    """
    target = Path(path)
    header = _Header(
        *(str(signal.unit), signal.kind, signal.zone, signal.shape),
        *(signal.end_ns, signal.attribution),
    )
    text = io.StringIO(newline="")
    text.write(_MARK + msgspec.json.encode(header).decode() + "\n")
    arrays = [signal.values, signal.low, signal.high]
    columns = [[_cell(v) for v in a.tolist()] for a in arrays if a is not None]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["datetime_utc", "value", "low", "high"][: len(columns) + 1])
    writer.writerows(zip(map(_iso_utc, signal.time_ns.tolist()), *columns))
    payload = text.getvalue().encode()
    if target.suffix == ".gz":
        packed = io.BytesIO()
        with _gzip.IGzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as squeezed:
            squeezed.write(payload)
        payload = packed.getvalue()
    with atomic_file(target) as file:
        file.write(payload)


def _cell(value: float) -> str:
    return "" if value != value else repr(value)


def _iso_utc(t_ns: int) -> str:
    seconds, below = divmod(t_ns, SECOND_NS)
    text = moment_of(seconds * SECOND_NS).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{below:09}Z" if below else f"{text}Z"
