"""A result as a folder that any tracker can store: two JSON files and an Arrow file a table."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.report.charts.chart import Chart
from gnomon.report.charts.timeline import TimelineView
from gnomon.report.json import SCHEMA, encode_pretty
from gnomon.report.result import Figure, Manifest, Result
from gnomon.table import Column, Dictionary, Table, read_arrow, write_arrow
from gnomon.table.atomic import make_folder, sibling, unused_path

_T = TypeVar("_T")
_PARTS = {"manifest.json", "result.json", "tables", "timelines"}


class _ManifestFile(msgspec.Struct):
    schema: str
    manifest: Manifest


class _ResultFile(msgspec.Struct):
    schema: str
    system: str
    verb: str
    title: str
    question: str
    figures: list[Figure]
    charts: list[Chart]
    how: list[str]
    notes: list[str]
    tables: list[str]
    timelines: list[str]


def save(result: Result, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Writes the folder, whole or not at all.

    Args:
        folder: Where; what is there must be nothing or an empty folder.
        overwrite: Replaces an older result. A folder that holds anything else is never touched.

    >>> import tempfile
    >>> place = tempfile.TemporaryDirectory()
    >>> result = Result("training", "replay", "8 ranks")
    >>> save(result, Path(place.name) / "run")
    >>> load(Path(place.name) / "run") == result
    True
    >>> place.cleanup()
    """
    folder = Path(os.path.abspath(folder))
    check_place(folder, overwrite)
    fresh, old = sibling(folder), sibling(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write(result, fresh)
        # A folder cannot be renamed onto a full one: the old one steps aside, and is only then
        # thrown away.
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        what = f"cannot be written: {error.strerror or error}"
        raise InputError(what, where=str(folder)) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def check_place(folder: Path, overwrite: bool) -> None:
    """Refuses a folder that a result may not be saved to."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError("is a file, a result needs a folder", where=str(folder))
    there = {entry.name for entry in folder.iterdir()}
    if not there:
        return
    if not {"manifest.json", "result.json"} <= there <= _PARTS:
        other = min(there - _PARTS, default="no result.json")
        what = f"is not a result folder ({other})"
        raise InputError(what, where=str(folder), hint="choose another folder")
    if not overwrite:
        raise InputError(
            "holds a result already",
            where=str(folder),
            hint="choose another folder, or replace it with --overwrite",
        )


def _write(result: Result, folder: Path) -> None:
    folder.mkdir()
    tables = [f"{i:02d}-{_slug(table.name)}.arrow" for i, table in enumerate(result.tables)]
    views = [f"{i:02d}-{_slug(view.title)}.arrow" for i, view in enumerate(result.timelines)]
    index = _ResultFile(
        SCHEMA, result.system, result.verb, result.title, result.question, result.figures,
        result.charts, result.how, result.notes, tables, views,
    )  # fmt: skip
    for name, data in (
        ("manifest.json", _ManifestFile(SCHEMA, result.manifest)),
        ("result.json", index),
    ):
        (folder / name).write_bytes(encode_pretty(data, result.title))
    for sub, names in (("tables", tables), ("timelines", views)):
        if names:
            (folder / sub).mkdir()
    for name, table in zip(tables, result.tables):
        table.write(folder / "tables" / name)
    for name, view in zip(views, result.timelines):
        _write_timeline(view, folder / "timelines" / name)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "unnamed"


def _write_timeline(view: TimelineView, path: Path) -> None:
    columns: dict[str, Column] = {
        "lane": Dictionary(view.lane, view.lanes),
        "kind": Dictionary(view.kind, view.kinds),
        "name": Dictionary(view.name, view.names),
        "start_ns": view.start_ns,
        "end_ns": view.end_ns,
    }
    if view.critical is not None:
        columns["critical"] = view.critical
    if view.count is not None:
        columns["count"] = view.count
    if view.busy_ns is not None:
        columns["busy_ns"] = view.busy_ns
    write_arrow(path, columns, {"title": view.title})


def load(folder: str | os.PathLike[str]) -> Result:
    """Reads what `save` wrote; equal to what was saved."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("is not a folder", where=str(folder), hint="name a saved result")
    manifest = _decode(folder / "manifest.json", _ManifestFile)
    index = _decode(folder / "result.json", _ResultFile)
    tables = [Table.read(_inside(folder, "tables", name)) for name in index.tables]
    views = [_read_timeline(_inside(folder, "timelines", name)) for name in index.timelines]
    try:
        return Result(
            index.system, index.verb, index.title, index.question, index.figures, tables,
            index.charts, views, index.how, index.notes, manifest.manifest,
        )  # fmt: skip
    except InputError as error:
        raise InputError(str(error), where=str(folder / "result.json")) from None


def _decode(path: Path, kind: type[_T]) -> _T:
    try:
        data = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        hint = "is this a saved result?" if isinstance(error, FileNotFoundError) else None
        what = f"cannot be read: {error.strerror or error}"
        raise InputError(what, where=str(path), hint=hint) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"is damaged ({error})", where=str(path)) from None
    schema = getattr(data, "schema", None)
    if schema != SCHEMA:
        hint = f"this version reads {SCHEMA!r}"
        raise InputError(f"has the unknown schema {schema!r}", where=str(path), hint=hint)
    return data


def _inside(folder: Path, sub: str, name: str) -> Path:
    if Path(name).name != name:
        raise InputError(f"{name!r} is not a name inside the result", where=str(folder))
    return folder / sub / name


def _read_timeline(path: Path) -> TimelineView:
    file = read_arrow(path)
    columns: dict[str, Any] = dict(file.columns)
    coded = {key: columns.pop(key, None) for key in ("lane", "kind", "name")}
    numbers = {"start_ns", "end_ns"}
    if (
        not all(isinstance(column, Dictionary) for column in coded.values())
        or not numbers <= set(columns) <= numbers | {"critical", "count", "busy_ns"}
        or not all(isinstance(column, np.ndarray) for column in columns.values())
    ):
        raise InputError("is not a timeline", where=str(path))
    lists = {f"{key}s": list(column.values) for key, column in coded.items() if column is not None}
    codes = {key: column.codes for key, column in coded.items() if column is not None}
    try:
        return TimelineView(file.metadata.get("title", ""), **lists, **codes, **columns)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(str(error), where=str(path)) from None


def write_csv(result: Result, folder: str | os.PathLike[str]) -> list[Path]:
    """One CSV file a table, named after it; returns their paths."""
    folder = make_folder(folder)
    paths: list[Path] = []
    for table in result.tables:
        paths.append(unused_path(folder / f"{_slug(table.name)}.csv", paths))
        table.write_csv(paths[-1])
    return paths
