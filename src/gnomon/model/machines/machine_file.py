"""Fleets as people write them down: a YAML file of machines, counts and years.

    name: my cluster
    pue: [1.1, 1.3, 1.5]
    fleet:
      - {machine: Silver-4216, count: 59, bought: 2020}
      - {name: own-server, count: 10, cores: 64, threads: 128, idle_w: 120,
         peak_w: [400, 450, 520], embodied_kg: [900, 1300, 2000], life_years: 6}

A figure is a number or [low, mid, high]. A row with `machine` takes the catalogue's figures and
replaces those that it gives itself. `bundled:mit-740` names a fleet that comes with gnomon.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.machines.machine import (
    Fleet,
    Kind,
    Machine,
    MachineGroup,
    as_figure,
    find_machine,
)

_BUNDLED = "bundled:"
_FOLDER = Path(__file__).with_name("fleets")
_MOST_BYTES = 10_000_000
_YEARS = (1970, 2100)
_Figure = float | tuple[float, ...]


class _FleetRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `fleet`; what is UNSET comes from the catalogue."""

    count: int
    machine: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType = msgspec.UNSET
    bought: int = 0
    kind: Kind | msgspec.UnsetType = msgspec.UNSET
    cores: int | msgspec.UnsetType = msgspec.UNSET
    threads: int | msgspec.UnsetType = msgspec.UNSET
    idle_w: _Figure | msgspec.UnsetType = msgspec.UNSET
    peak_w: _Figure | msgspec.UnsetType = msgspec.UNSET
    embodied_kg: _Figure | msgspec.UnsetType = msgspec.UNSET
    score: float | msgspec.UnsetType = msgspec.UNSET
    score_unit: str | msgspec.UnsetType = msgspec.UNSET
    life_years: float | msgspec.UnsetType = msgspec.UNSET
    year: int | msgspec.UnsetType = msgspec.UNSET
    source: str | dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fleet: tuple[_FleetRow, ...]
    name: str = ""
    pue: _Figure = 1.0


def bundled_fleets() -> tuple[str, ...]:
    """The fleets that come with gnomon.

    >>> bundled_fleets()
    ('mit-740', 'two-servers')
    """
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))


def fleet_path(path: str | os.PathLike[str]) -> Path:
    """Where a fleet lies; `bundled:NAME` is one that comes with gnomon."""
    text = os.fspath(path)
    if not text.startswith(_BUNDLED):
        return Path(text)
    name = text.removeprefix(_BUNDLED)
    if name not in bundled_fleets():
        known = ", ".join(bundled_fleets())
        raise InputError(f"no bundled fleet is called {name!r}", hint=f"known are {known}")
    return _FOLDER / f"{name}.yaml"


def read_fleet(path: str | os.PathLike[str]) -> Fleet:
    """Read a fleet from YAML (or JSON, which is YAML).

    >>> fleet = read_fleet("bundled:mit-740")
    >>> fleet.servers, fleet.cores, fleet.threads, round(fleet.embodied_kg.mid)
    (740, 6204, 11956, 17633)
    """
    file = fleet_path(path)
    places = _YamlPlaces(os.fspath(path), _read_text(file))
    try:
        document = msgspec.convert(places.data, _File)
    except msgspec.ValidationError as error:
        raise places.wrong(*_explain(str(error)), hint=_known_keys(str(error))) from None
    if not document.fleet:
        raise places.wrong("there is no machine in it", "$.fleet")
    pue = places.figure(document.pue, "$.pue")
    if pue.low < 1:
        raise places.wrong(f"a PUE of {pue.low:g}; it is at least 1", "$.pue")
    groups = tuple(_group(places, index, row) for index, row in enumerate(document.fleet))
    return Fleet(groups=groups, pue=pue, name=document.name or file.stem)


def _group(places: _YamlPlaces, index: int, row: _FleetRow) -> MachineGroup:
    at = f"$.fleet[{index}]"
    if row.count < 1:
        raise places.wrong(f"a count of {row.count}; it is 1 or more", f"{at}.count")
    if row.bought and not _YEARS[0] <= row.bought <= _YEARS[1]:
        what = f"{row.bought} is no year of a purchase"
        raise places.wrong(what, f"{at}.bought", f"{_YEARS[0]} to {_YEARS[1]}")
    return MachineGroup(machine=_machine(places, at, row), count=row.count, bought=row.bought)


def _machine(places: _YamlPlaces, at: str, row: _FleetRow) -> Machine:
    given = _given(places, at, row)
    if row.machine is msgspec.UNSET:
        needed = ("name", "idle_w", "peak_w", "embodied_kg")
        if missing := [name for name in needed if name not in given]:
            hint = "or name a machine of the catalogue: machine: ..."
            raise places.wrong(f"a machine of its own needs {', '.join(missing)} too", at, hint)
        fields = {"kind": "server", "source": {"all": "given by the fleet file"}} | given
    else:
        try:
            known = find_machine(row.machine)
        except InputError as error:
            raise places.wrong(error.what, f"{at}.machine", error.hint) from None
        # Where it comes from follows the figure: what the file gives is no longer the source's.
        own = dict.fromkeys(given, "given by the fleet file")
        sources = {"source": {**known.source, **own, **given.get("source", {})}}
        fields = msgspec.structs.asdict(known) | given | sources
    fields = _with_threads(places, at, fields)
    try:
        return Machine(**fields)
    except InputError as error:
        raise places.wrong(error.what, _blame(at, error.what), error.hint) from None


def _given(places: _YamlPlaces, at: str, row: _FleetRow) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    skipped = ("machine", "count", "bought")
    given = {k: v for k, v in values.items() if k not in skipped and v is not msgspec.UNSET}
    for name in ("idle_w", "peak_w", "embodied_kg"):
        if name in given:
            given[name] = places.figure(given[name], f"{at}.{name}")
    if isinstance(given.get("source"), str):
        given["source"] = {"all": given["source"]}
    return given


def _with_threads(places: _YamlPlaces, at: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Cores and threads, one of which may stand for the other; an accelerator is one of each."""
    if fields["kind"] == "accelerator":
        return {"cores": 1, "threads": 1} | fields
    cores, threads = fields.get("cores", 0), fields.get("threads", 0)
    if not (cores or threads):
        what = f"{fields['name']!r} does not say how many cores it has"
        raise places.wrong(what, at, "give cores, and threads where they differ")
    if cores and threads and threads < cores:
        raise places.wrong(f"{threads} threads on {cores} cores", f"{at}.threads")
    return fields | {"cores": cores or threads, "threads": threads or cores}


def _blame(at: str, what: str) -> str:
    """The field that a machine's own complaint begins with."""
    match = re.match(r"(idle_w|peak_w|embodied_kg|cores|threads|score|year|life_years)\b", what)
    return f"{at}.{match[1]}" if match else at


def _explain(message: str) -> tuple[str, str]:
    what, _, rest = message.partition(" - at `")
    path = rest.rstrip("`") or "$"
    if unknown := re.search("unknown field `(.*)`", what):
        path = f"{path}.{unknown[1]}"
    renamed = (
        ("Object contains unknown field", "unknown key"),
        ("Object missing required field", "there is no"),
        ("Expected `array`", "expected a list"),
        ("Expected `object`", "expected a table of keys and values"),
    )
    for theirs, ours in renamed:
        what = what.replace(theirs, ours)
    what = what.replace("`", "'").replace("| unset", "").replace("float | array", "a figure")
    return what[0].lower() + what[1:], path


def _known_keys(message: str) -> str | None:
    if (unknown := re.search("unknown field `(.*?)`", message)) is None:
        return None
    keys = (_FleetRow if "$.fleet[" in message else _File).__struct_fields__
    close = difflib.get_close_matches(unknown[1], keys, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(keys))}"


def _read_text(path: Path) -> str:
    where = str(path)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError("is too large to be a list of machines", where=where)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=where, hint="expected YAML") from None
    except OSError as error:
        hint = "check the path" if isinstance(error, FileNotFoundError) else None
        what = f"cannot be read: {error.strerror or error}"
        raise InputError(what, where=where, hint=hint) from None


class _YamlPlaces:
    """A YAML document, and the line that each of its values stands in."""

    def __init__(self, where: str, text: str) -> None:
        self.where = where
        try:
            loader = yaml.SafeLoader(text)
            root = loader.get_single_node()
            self.data: Any = loader.construct_document(root) if root is not None else None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" line {mark.line + 1}" if mark is not None else ""
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            what = f"is no YAML: {problem}"
            raise InputError(what, where=f"{where}{line}") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"is no YAML: {error}", where=where) from None
        if root is None:
            raise InputError("is empty", where=where, hint="expected a table with 'fleet'")
        self.lines: dict[str, int] = {}
        for at, found, key in _walk(root, "$", set()):
            if at in self.lines and key:
                raise InputError(f"{key!r} is given twice", where=f"{where} line {found}, {at}")
            self.lines[at] = found

    def wrong(self, what: str, at: str, hint: str | None = None) -> InputError:
        line = next((self.lines[p] for p in _upwards(at) if p in self.lines), 1)
        return InputError(what, where=f"{self.where} line {line}, {at}", hint=hint)

    def figure(self, value: object, at: str) -> Estimate:
        try:
            return as_figure(value, "")
        except InputError as error:
            raise self.wrong(error.what, at, error.hint) from None


def _walk(node: yaml.Node, at: str, seen: set[int]) -> Iterator[tuple[str, int, str]]:
    """Path, line and key of every value; an anchor is followed once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = str(key.value)
            yield f"{at}.{name}", key.start_mark.line + 1, name
            yield from _walk(value, f"{at}.{name}", seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{at}[{index}]", value.start_mark.line + 1, ""
            yield from _walk(value, f"{at}[{index}]", seen)


def _upwards(at: str) -> Iterator[str]:
    while at:
        yield at
        shorter = re.sub(r"(\.[^.\[\]]+|\[\d+\])$", "", at)
        if shorter == at:
            return
        at = shorter
