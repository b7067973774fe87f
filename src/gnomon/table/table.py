"""The table people see: named columns with units, and the ways out of it."""

from __future__ import annotations

import csv
import html
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gnomon.errors import InputError, MissingExtra
from gnomon.table._arrow_stream import arrow_stream
from gnomon.table.arrow_file import read_arrow, write_arrow
from gnomon.table.atomic import atomic_file
from gnomon.table.column import Column, Dictionary, ListOf, equal_columns
from gnomon.table.format import format_column

_META = "gnomon.table"
_SHOWN = 50  # rows in a notebook
_NUMBERS = "biuf"


class _About(msgspec.Struct, frozen=True):
    """What an Arrow file keeps of a table besides its columns."""

    name: str
    units: dict[str, str] = {}
    descriptions: dict[str, str] = {}
    caption: str = ""


class Table(msgspec.Struct, frozen=True, eq=False):
    """Named columns of one length, with a unit and a line of explanation for each.

    A guessed quantity takes three columns: `x`, `x_low`, `x_high`.

    >>> table = Table.from_rows("steps", [
    ...     {"what": "today", "step_ms": 120.5}, {"what": "2x NIC", "step_ms": 101.0}],
    ...     units={"step_ms": "ms"})
    >>> len(table), list(table.columns), table["step_ms"].tolist()
    (2, ['what', 'step_ms'], [120.5, 101.0])
    >>> next(table.rows())
    {'what': 'today', 'step_ms': 120.5}
    """

    name: str
    columns: Mapping[str, Column]
    units: Mapping[str, str] = {}
    descriptions: Mapping[str, str] = {}
    caption: str = ""

    def __post_init__(self) -> None:
        first: str | None = None
        for name, column in self.columns.items():
            if isinstance(column, ListOf):
                raise self._wrong(f"column {name!r} holds lists, a table holds plain values")
            if isinstance(column, np.ndarray) and (
                column.ndim != 1 or column.dtype.kind not in _NUMBERS + "U"
            ):
                raise self._wrong(f"column {name!r} is not a flat array of numbers or text")
            first = name if first is None else first
            if len(column) != len(self.columns[first]):
                raise self._wrong(
                    f"column {name!r} has {len(column)} rows, "
                    f"column {first!r} has {len(self.columns[first])}"
                )
        for name in (*self.units, *self.descriptions):
            if name not in self.columns:
                raise self._wrong(f"a unit or description is given for {name!r}, no such column")

    def _wrong(self, what: str) -> InputError:
        return InputError(what, where=f"table {self.name!r}")

    @classmethod
    def from_rows(
        cls,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        *,
        units: Mapping[str, str] | None = None,
        descriptions: Mapping[str, str] | None = None,
        caption: str = "",
    ) -> Table:
        """Turns records into columns, in the order in which their keys first appear.

        A value with `low`, `mid` and `high` (an Estimate) becomes the three columns of a range.
        A missing number becomes NaN, a missing text the empty string.
        """
        records = [_flatten(row) for row in rows]
        keys = list(dict.fromkeys(key for record in records for key in record))
        columns = {key: _column(name, key, [r.get(key) for r in records]) for key in keys}
        return cls(name, columns, units or {}, descriptions or {}, caption)

    @classmethod
    def from_columns(
        cls, name: str, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]], *,
        units: Mapping[str, str] | None = None, caption: str = "",
    ) -> Table:  # fmt: skip
        """The same from plain lists or arrays, a value per row.

        >>> Table.from_columns("orders", {"machine": ["a", "b"], "rank": [2, 1]})["rank"].tolist()
        [2, 1]
        """
        made = {key: _column(name, key, list(values)) for key, values in columns.items()}
        return cls(name, made, units or {}, {}, caption)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> Any:
        try:
            return self.columns[column]
        except KeyError:
            known = ", ".join(self.columns)
            raise self._wrong(f"no column {column!r}; there are: {known}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return (
            (self.name, self.caption) == (other.name, other.caption)
            and dict(self.units) == dict(other.units)
            and dict(self.descriptions) == dict(other.descriptions)
            and list(self.columns) == list(other.columns)
            and all(equal_columns(c, other.columns[n]) for n, c in self.columns.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def is_number(self, column: str) -> bool:
        values = self[column]
        return isinstance(values, np.ndarray) and values.dtype.kind in _NUMBERS

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        low, high = self.columns.get(f"{column}_low"), self.columns.get(f"{column}_high")
        return None if low is None or high is None else (low, high)

    def heading(self, column: str) -> str:
        """The column's name as words; `step_ms` beside the unit ms need not say it twice.

        >>> Table("t", {"step_ms": np.zeros(1)}, {"step_ms": "ms"}).heading("step_ms")
        'step'
        """
        unit = {"%": "pct"}.get(self.units.get(column, ""), self.units.get(column, "").lower())
        return (column.removesuffix(f"_{unit}") if unit else column).replace("_", " ")

    def rows(self) -> Iterator[dict[str, Any]]:
        names = list(self.columns)
        for values in zip(*(_plain(column) for column in self.columns.values())):
            yield dict(zip(names, values))

    def to_json_rows(self) -> list[dict[str, Any]]:
        """Rows that JSON can hold: what is not a finite number becomes null."""
        return [
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in row.items()
            }
            for row in self.rows()
        ]

    def to_csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows():
            writer.writerow("" if value != value else value for value in row.values())
        return out.getvalue()

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        with atomic_file(path) as file:
            file.write(self.to_csv().encode("utf-8", "replace"))

    def write(self, path: str | os.PathLike[str]) -> None:
        about = _About(self.name, dict(self.units), dict(self.descriptions), self.caption)
        write_arrow(path, self.columns, {_META: msgspec.json.encode(about).decode()})

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Table:
        file = read_arrow(path)
        try:
            text = file.metadata.get(_META)
            about = (
                _About(Path(path).stem) if text is None else msgspec.json.decode(text, type=_About)
            )
            return cls(about.name, file.columns, about.units, about.descriptions, about.caption)
        except msgspec.DecodeError as error:
            what = f"the table's description is damaged ({error})"
            raise InputError(what, where=os.fspath(path)) from None
        except InputError as error:
            raise InputError(str(error), where=os.fspath(path)) from None

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow capsule protocol: polars, pyarrow and duckdb take the table as it is."""
        return arrow_stream(self.columns, len(self)).__arrow_c_stream__()

    def to_polars(self) -> Any:
        """A polars.DataFrame; dictionary columns become Categorical."""
        try:
            import polars as pl
        except ImportError:
            raise MissingExtra("polars", "tables", "to_polars()") from None
        frame = pl.DataFrame(self)
        coded = [name for name, column in self.columns.items() if isinstance(column, Dictionary)]
        return frame.with_columns(pl.col(coded).cast(pl.Categorical)) if coded else frame

    def to_pandas(self) -> Any:
        """A pandas.DataFrame; dictionary columns become categories."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtra("pandas", "tables", "to_pandas()") from None
        return pd.DataFrame(
            {
                name: pd.Categorical.from_codes(column.codes, list(column.values))
                if isinstance(column, Dictionary)
                else column
                for name, column in self.columns.items()
            }
        )

    def cells(self, column: str) -> list[str]:
        values = self[column]
        if isinstance(values, np.ndarray):
            return format_column(values)
        return list(values)

    def _repr_html_(self) -> str:
        heads = "".join(
            f"<th>{html.escape(name)}"
            + (f" <small>{html.escape(self.units[name])}</small>" if name in self.units else "")
            + "</th>"
            for name in self.columns
        )
        shown = Table(self.name, {n: _head(c) for n, c in self.columns.items()})
        texts = [shown.cells(name) for name in self.columns]
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>"
            for row in zip(*texts)
        )
        more = f"<p>… {len(self):,} rows</p>" if len(self) > _SHOWN else ""
        caption = html.escape(self.caption or self.name)
        return (
            f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )


def _head(column: Column) -> Column:
    if isinstance(column, Dictionary):
        return Dictionary(column.codes[:_SHOWN], column.values)
    assert not isinstance(column, ListOf)
    return column[:_SHOWN]


def _plain(column: Column) -> Sequence[Any]:
    if isinstance(column, Dictionary):
        return column.decode()
    if isinstance(column, np.ndarray):
        return column.tolist()  # type: ignore[no-any-return]
    assert not isinstance(column, ListOf)
    return column


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if all(hasattr(value, part) for part in ("low", "mid", "high")):
            flat |= {key: value.mid, f"{key}_low": value.low, f"{key}_high": value.high}
        else:
            flat[key] = value
    return flat


def _column(table: str, name: str, values: list[Any]) -> Column:
    present = [value for value in values if value is not None]
    kinds = {_kind(value) for value in present}
    if kinds == {"bool"} and len(present) == len(values):
        return np.array(values, np.bool_)
    if kinds == {"int"} and len(present) == len(values):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            return np.array(values, np.float64)
    if kinds <= {"int", "float"} and kinds:
        return np.array([math.nan if v is None else v for v in values], np.float64)
    if kinds <= {"text"}:
        return ["" if value is None else str(value) for value in values]
    raise InputError(
        f"column {name!r} mixes {' and '.join(sorted(kinds))}, a column holds one kind",
        where=f"table {table!r}",
    )


def _kind(value: object) -> str:
    for kind, types in (
        ("bool", bool | np.bool_),
        ("int", int | np.integer),
        ("float", float | np.floating),
        ("text", str),
    ):
        if isinstance(value, types):
            return kind
    return type(value).__name__
