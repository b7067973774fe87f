"""A result as JSON for scripts: flat figures, tables as columns or rows, the manifest."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.report.result import Result, flat_figures
from gnomon.table import Table, atomic_file
from gnomon.table.column import Column, Dictionary

SCHEMA = "gnomon.result/1"


def to_json(
    result: Result,
    tables: Literal["columns", "rows"] = "columns",
    extra: Mapping[str, Any] | None = None,
) -> str:
    """JSON that stays the same for the same result, key order included.

    Figures are flat keys under `figures`, ranges as `_low` and `_high`; what is not a finite
    number is null. Timelines are counted, not written: a folder holds them. What `extra` holds
    comes first: what a command promises its scripts by name.

    >>> from gnomon.report import Figure
    >>> text = to_json(Result("training", "replay", "8 ranks", figures=[
    ...     Figure("step_ms", "Step time", 120.5, "ms")]))
    >>> msgspec.json.decode(text)["figures"]
    {'step_ms': 120.5}
    """
    data = {
        "schema": SCHEMA,
        "system": result.system,
        "verb": result.verb,
        "title": result.title,
        "question": result.question,
        "figures": flat_figures(result),
        "units": {figure.name: figure.unit for figure in result.figures if figure.unit},
        "better": {figure.name: figure.better for figure in result.figures if figure.better},
        "tables": {table.name: _table(table, tables) for table in result.tables},
        "timelines": [
            {"title": view.title, "lanes": len(view.lanes), "spans": len(view)}
            for view in result.timelines
        ],
        "notes": result.notes,
        "how": result.how,
        "manifest": result.manifest,
    }
    if twice := sorted(set(data) & set(extra or ())):
        raise InputError(f"{twice[0]!r} is a key that every result has", where=result.title)
    return encode_pretty({**(extra or {}), **data}, result.title).decode()


def encode_pretty(data: object, where: str) -> bytes:
    """Indented JSON with a last newline."""
    try:
        return msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n"
    except UnicodeEncodeError:
        what = "a text holds half a surrogate pair, which has no UTF-8"
        raise InputError(
            what, where=where, hint="decode the source with errors='replace'"
        ) from None


def write_json(
    result: Result,
    path: str | os.PathLike[str],
    tables: Literal["columns", "rows"] = "columns",
) -> None:
    """Writes `to_json`, whole or not at all."""
    with atomic_file(path) as file:
        file.write(to_json(result, tables).encode())


def _table(table: Table, form: str) -> dict[str, Any]:
    about: dict[str, Any] = {"units": dict(table.units)} if table.units else {}
    if form == "rows":
        return about | {"rows": table.to_json_rows()}
    return about | {"columns": {name: _plain(column) for name, column in table.columns.items()}}


def _plain(column: Column) -> list[Any]:
    if isinstance(column, Dictionary):
        return column.decode()
    if not isinstance(column, np.ndarray):
        return [*column]  # type: ignore[misc]
    values: list[Any] = column.tolist()
    if column.dtype.kind == "f":
        return [value if math.isfinite(value) else None for value in values]
    return values
