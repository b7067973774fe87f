"""One result, whatever system it comes from: figures, tables, charts, timelines, and how."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.report.charts.chart import Chart
from gnomon.report.charts.timeline import TimelineView
from gnomon.table import Table, format_range, format_value
from gnomon.version import __version__

__all__ = ["Figure", "InputFile", "Manifest", "Result", "TimelineView", "hash_input"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_Named = TypeVar("_Named", "Figure", Table)


class Figure(msgspec.Struct, frozen=True):
    """One number the reader came for, its unit, and which way is good.

    >>> Figure("step_ms", "Step time", 120.456, "ms", better="lower").text
    '120.5 ms'
    >>> Figure("carbon_g", "Carbon", Estimate(90, 100, 130), "gCO2e").range_text
    '90 – 130'
    """

    name: str
    label: str
    value: float | int | str | Estimate
    unit: str = ""
    better: Literal["lower", "higher"] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        where = f"figure {self.name!r}"
        if not _NAME.fullmatch(self.name):
            what = "a name is made of small letters, digits and underscores"
            raise InputError(what, where=where)
        value: Any = self.value
        if isinstance(value, bool | np.bool_):
            value = "yes" if value else "no"
        elif isinstance(value, np.integer):
            value = int(value)
        elif isinstance(value, np.floating):
            value = float(value)
        if isinstance(value, float) and not math.isfinite(value):
            hint = "say it in words, a value may be text"
            raise InputError(f"{value} is not a finite number", where=where, hint=hint)
        if not isinstance(value, float | int | str | Estimate):
            raise InputError(f"{type(value).__name__} is no value of a figure", where=where)
        msgspec.structs.force_setattr(self, "value", value)

    @property
    def number(self) -> float | None:
        if isinstance(self.value, Estimate):
            return self.value.mid
        return None if isinstance(self.value, str) else float(self.value)

    @property
    def value_text(self) -> str:
        return format_value(self.value.mid if isinstance(self.value, Estimate) else self.value)

    @property
    def text(self) -> str:
        return f"{self.value_text} {self.unit}".strip()

    @property
    def range_text(self) -> str:
        if not isinstance(self.value, Estimate):
            return ""
        return format_range(self.value.low, self.value.high)


class InputFile(msgspec.Struct, frozen=True):
    """What went in: enough to know the same bytes again."""

    name: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What it takes to compute the same result again.

    >>> Manifest("gnomon training replay run", config={"ranks": (0, 1)}, seed=7).config
    {'ranks': [0, 1]}
    """

    command: str = ""
    config: dict[str, Any] = {}
    seed: int | None = None
    version: str = ""
    inputs: list[InputFile] = []

    @classmethod
    def of(
        cls, command: str, sources: Iterable[str | os.PathLike[str]] = (), *,
        seed: int | None = None, **config: Any,
    ) -> Manifest:  # fmt: skip
        """With this version of gnomon, and the hashes of the files that were read."""
        return cls(command, config, seed, __version__, [hash_input(path) for path in sources])

    def __post_init__(self) -> None:
        # As JSON would give it back, so that a saved manifest equals the one that was saved.
        try:
            plain = msgspec.json.decode(msgspec.json.encode(self.config, enc_hook=str))
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"cannot be kept as JSON ({error})", where="config") from None
        msgspec.structs.force_setattr(self, "config", plain)


def hash_input(path: str | os.PathLike[str], name: str | None = None) -> InputFile:
    """Size and SHA-256 of a file; of a folder, those of all its files by relative name.

    Args:
        path: The input; a folder is walked in the order of names.
        name: What to call it in the report; the last part of the path unless given.
    """
    path = Path(path)
    try:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file())
            whole, size = hashlib.sha256(), 0
            for part in files:
                count, digest = _hash_file(part)
                whole.update(f"{part.relative_to(path).as_posix()}\0{digest}\n".encode())
                size += count
            return InputFile(name or path.resolve().name, size, whole.hexdigest())
        size, digest = _hash_file(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return InputFile(name or path.name, size, digest)


def _hash_file(path: Path) -> tuple[int, str]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


class Result(msgspec.Struct, frozen=True):
    """The answer of one run, in the one shape that every output knows.

    No output reads the clock: the same inputs and seed give the same bytes.

    >>> result = Result("training", "replay", "Step of 8 ranks", figures=[
    ...     Figure("step_ms", "Step time", 120.5, "ms", better="lower")])
    >>> result.figure("step_ms").text
    '120.5 ms'
    """

    system: str
    verb: str
    title: str
    question: str = ""
    figures: list[Figure] = []
    tables: list[Table] = []
    charts: list[Chart] = []
    timelines: list[TimelineView] = []
    how: list[str] = []
    notes: list[str] = []
    manifest: Manifest = Manifest()

    def __post_init__(self) -> None:
        for kind, word in (("system", self.system), ("verb", self.verb)):
            if not re.fullmatch(r"[a-z][a-z0-9_-]*", word):
                raise InputError(
                    f"{word!r} is no name of a {kind}", hint="small letters, digits, - and _"
                )
        keys = [key for figure in self.figures for key in _keys(figure)]
        for what, names in (("figures", keys), ("tables", [t.name for t in self.tables])):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise InputError(f"two {what} are called {min(twice)!r}", where=self.title)

    def figure(self, name: str) -> Figure:
        return self._find("figure", self.figures, name)

    def table(self, name: str) -> Table:
        return self._find("table", self.tables, name)

    def _find(self, kind: str, parts: Sequence[_Named], name: str) -> _Named:
        by_name = {part.name: part for part in parts}
        if name not in by_name:
            known = ", ".join(by_name)
            raise InputError(f"no {kind} {name!r}; there are: {known}", where=self.title)
        return by_name[name]

    def to_polars(self, table: str) -> Any:
        return self.table(table).to_polars()

    def to_pandas(self, table: str) -> Any:
        return self.table(table).to_pandas()

    def _repr_html_(self) -> str:
        from gnomon.report.notebook import render_fragment

        return render_fragment(self)


def _keys(figure: Figure) -> list[str]:
    """The flat names a figure takes in JSON and Prometheus text."""
    if isinstance(figure.value, Estimate):
        return [figure.name, f"{figure.name}_low", f"{figure.name}_high"]
    return [figure.name]


def flat_figures(result: Result) -> dict[str, float | int | str]:
    """Figures as flat keys; a range adds `_low` and `_high`.

    >>> flat_figures(Result("carbon", "account", "t", figures=[
    ...     Figure("carbon_g", "Carbon", Estimate(1, 2, 4))]))
    {'carbon_g': 2.0, 'carbon_g_low': 1.0, 'carbon_g_high': 4.0}
    """
    flat: dict[str, float | int | str] = {}
    for figure in result.figures:
        if isinstance(figure.value, Estimate):
            values = (figure.value.mid, figure.value.low, figure.value.high)
            flat.update(zip(_keys(figure), values))
        else:
            flat[figure.name] = figure.value
    return flat
