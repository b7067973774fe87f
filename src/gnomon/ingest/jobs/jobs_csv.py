"""Tables of jobs, .csv or .csv.gz, to `Jobs`.

A header line names the columns, loosely: `start` (or arrival, submit), `end` or `duration`, and
where there are any `id`, `cores`, `gpus`, `machine`, `gpu`, `utilisation`, `energy`, `work`,
`price`, `deadline`. A unit may end a name: `duration_h`, `energy_kwh`, `utilisation_pct`; of MWh
and mWh the capital counts. Times are ISO 8601 or numbers (seconds since 1970 or since the start of
a run; milliseconds and smaller are inferred from their size), durations numbers of seconds or
`2h`. Rows that are wrong are refused by line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo

import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.delimited import BLANK, NUMBER, HeadedTable, header_of, read_lines
from gnomon.ingest.jobs.jobs import Floats, Ints, Jobs
from gnomon.ingest.moment import epoch_scale, parse_instant, parse_length
from gnomon.units import format_duration

#: A column's meaning, by what its name is without its unit; the first that is there counts.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "jobid", "job", "jobname", "name"),
    "start": ("start", "starttime", "started", "startedat", "begin", "arrival", "arrivaltime",
              "arrived", "submit", "submittime", "submitted", "release"),
    "end": ("end", "endtime", "ended", "finish", "finished", "stop", "completed", "completedat"),
    "duration": ("duration", "elapsed", "runtime", "walltime", "dur", "length", "service"),
    "cores": ("cores", "cpus", "ncpus", "alloccpus", "threads", "vcpus", "cpu", "core", "ncores"),
    "gpus": ("gpus", "ngpus", "accelerators", "gpucount", "allocgpus"),
    "gpu": ("gpu", "gpumodel", "gputype", "accelerator"),
    "machine": ("machine", "server", "servermodel", "cpumodel", "cputype", "model"),
    "utilisation": ("utilisation", "utilization", "util", "cpuutilisation", "cpuutilization",
                    "load", "usage"),
    "energy": ("energy", "energyconsumed", "consumedenergy"),
    "work": ("work", "r", "requests", "units", "functionalunits", "items"),
    "price": ("price", "electricityprice", "usdper", "pricekwh", "usd"),
    "deadline": ("deadline", "due", "finishby"),
}  # fmt: skip
_LENGTHS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "secs": 10**9,
            "seconds": 10**9, "min": 60 * 10**9, "minutes": 60 * 10**9, "h": 3600 * 10**9,
            "hours": 3600 * 10**9, "d": 86400 * 10**9, "days": 86400 * 10**9}  # fmt: skip
_KWH = {"kwh": 1.0, "wh": 1e-3, "mwh": 1e3, "j": 1 / 3.6e6, "joules": 1 / 3.6e6, "kj": 1 / 3.6e3,
        "mj": 1 / 3.6}  # fmt: skip
#: Units whose first letter means a million or a thousandth, as it is a capital or not.
_MEGA_OR_MILLI = {"mwh", "mj"}
_MILLI_OF_MEGA = 1e-9
_UNITS: Mapping[str, Mapping[str, float]] = {
    "start": _LENGTHS,
    "end": _LENGTHS,
    "duration": _LENGTHS,
    "deadline": _LENGTHS,
    "energy": _KWH,
    "utilisation": {"pct": 0.01, "percent": 0.01},
    "price": {"usdkwh": 1.0, "kwh": 1.0, "usdmwh": 1e-3, "mwh": 1e-3},
}
_FARTHEST = 2**62
#: How far apart an end and a duration may be and still say the same.
_SAME_NS = 10**9


def looks_like_jobs(head: bytes) -> bool:
    """Whether a file begins with a header that says when jobs ran, and on what.

    >>> looks_like_jobs(b"id,start,duration_h,cores\\n"), looks_like_jobs(b"time,value\\n")
    (True, False)
    """
    found = {meaning for name in header_of(head) for meaning in _meanings(name)}
    return (
        "start" in found and bool(found & {"end", "duration"})
        and bool(found & {"cores", "gpus", "energy"})
    )  # fmt: skip


def read_jobs_csv(path: str | os.PathLike[str], *, zone: tzinfo = UTC) -> Jobs:
    """Read a table of jobs.

    Args:
        zone: Where times without an offset are from.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "jobs.csv")
    ...     with open(file, "w") as out:
    ...         _ = out.write("arrival,duration_h,cores\\n2024-01-01T00:00Z,1.5,8\\n")
    ...     jobs = read_jobs_csv(file)
    >>> len(jobs), (jobs.end_ns - jobs.start_ns)[0] // 10**9, jobs.cores.tolist()
    (1, np.int64(5400), [8.0])
    """
    table = _JobTable(os.fspath(path))
    found = table.columns
    if "start" not in found:
        raise table.wrong("no column says when jobs start", "call one 'start' or 'arrival'")
    if "end" not in found and "duration" not in found:
        raise table.wrong("no column says how long jobs take", "call one 'end' or 'duration'")
    if not ({"cores", "gpus", "energy"} & found.keys()):
        raise table.wrong("no column says what jobs take", "call one 'cores', 'gpus' or 'energy'")
    start = table.times("start", zone)
    length = table.lengths("duration") if "duration" in found else None
    end = table.times("end", zone) if "end" in found else start
    if length is not None and "end" not in found:
        end = start + length
    elif length is not None:
        span = end - start
        table.refuse(
            np.abs(span - length) > _SAME_NS,
            lambda row: (
                f"from start to end it is {format_duration(int(span[row]))}, and the duration "
                f"says {format_duration(int(length[row]))}"
            ),
        )
    table.refuse(end < start, lambda row: "the job ends before it starts")
    jobs = Jobs(
        where=table.where,
        line=np.array(table.lines, dtype=np.int64),
        id=table.texts("id", [str(line) for line in table.lines]),
        start_ns=start,
        end_ns=end,
        cores=table.numbers("cores", 0.0, least=0.0),
        gpus=table.numbers("gpus", 0.0, least=0.0),
        utilisation=table.numbers("utilisation", np.nan, least=0.0, most=1.0),
        energy_kwh=table.numbers("energy", np.nan, least=0.0),
        work=table.numbers("work", np.nan, least=0.0),
        price_usd_kwh=table.numbers("price", np.nan),
        deadline_ns=table.deadlines(start, zone),
        machine=table.texts("machine"),
        gpu=table.texts("gpu"),
        notes=tuple(table.notes),
    )
    due = jobs.deadline_ns
    table.refuse((due != -1) & (due < start), lambda row: "the deadline lies before the start")
    # -1 says that there is none, and what is below zero would be taken for it.
    table.refuse(table.has("deadline") & (due < 0), lambda row: "the deadline lies before 1970")
    table.finish()
    return jobs


class _JobTable:
    """The cells of a file by meaning, and what is wrong with them."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.bad: dict[int, str] = {}
        self.notes: list[str] = []
        # Comments, and rows without a cell that says anything, count as blank lines.
        table = HeadedTable(
            (
                "\n" if line.startswith("#") or not line.strip(",;|\t\r\n ") else line
                for line in read_lines(where)
            ),
            where,
        )
        read = [(row, table.line) for row in table.rows()]
        self.rows, self.lines = [row for row, _ in read], [line for _, line in read]
        self.columns: dict[str, tuple[int, str, float]] = {}
        self._name(table.names)

    def wrong(self, what: str, hint: str | None = None) -> InputError:
        return InputError(what, where=self.where, hint=hint)

    def _name(self, header: list[str]) -> None:
        meanings = [_meanings(name) for name in header]
        for meaning, known in _NAMES.items():
            ranked = sorted(
                (known.index(name), place, unit)
                for place, options in enumerate(meanings)
                for name, unit in options.get(meaning, {}).items()
            )
            if ranked:
                _, place, unit = ranked[0]
                scale = _UNITS.get(meaning, {}).get(unit, 1.0)
                if meaning == "energy" and unit in _MEGA_OR_MILLI:
                    scale *= self._mega_or_milli(header[place], unit)
                self.columns[meaning] = (place, unit, scale)
        used = {place for place, _, _ in self.columns.values()}
        ignored = [name for place, name in enumerate(header) if place not in used and name]
        if ignored:
            shown = ", ".join(ignored[:8]) + (" ..." if len(ignored) > 8 else "")
            self.notes.append(f"Columns not read: {shown}.")
        self.header = header

    def _mega_or_milli(self, name: str, unit: str) -> float:
        """What a unit of mega is to be multiplied with, by how its name is written."""
        written = re.sub(r"[^A-Za-z0-9]", "", name)[-len(unit) :]
        if written[0] == "M":
            return 1.0
        if written == unit:
            stem = unit[1:].replace("wh", "Wh").replace("j", "J")
            what = f"{name!r}: {unit} may be M{stem} or m{stem}"
            raise self.wrong(what, "write it with its capitals")
        return _MILLI_OF_MEGA

    def has(self, meaning: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        if meaning not in self.columns:
            return np.zeros(len(self.rows), dtype=bool)
        return np.array([cell.lower() not in BLANK for cell in self._cells(meaning)])

    def _cells(self, meaning: str) -> list[str]:
        place = self.columns[meaning][0]
        return [row[place].strip() for row in self.rows]

    def refuse(
        self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]], say: Callable[[int], str]
    ) -> None:
        for row in np.flatnonzero(mask).tolist():
            self.bad.setdefault(row, say(row))

    def _each(
        self, meaning: str, parse: Callable[[str], float], blank: float | None
    ) -> list[float]:
        values = []
        name = self.header[self.columns[meaning][0]]
        for row, cell in enumerate(self._cells(meaning)):
            value = 0.0 if blank is None else blank
            if cell.lower() not in BLANK:
                try:
                    value = parse(cell)
                except InputError as error:
                    self.bad.setdefault(row, f"{name}: {error.what}")
            elif blank is None:
                self.bad.setdefault(row, f"{name} is missing")
            values.append(value)
        return values

    def times(self, meaning: str, zone: tzinfo) -> Ints:
        scale = self._time_scale(meaning)
        if (whole := _whole_numbers(self._cells(meaning), scale)) is not None:
            return whole
        parsed = self._each(
            meaning, lambda cell: parse_instant(cell, scale=scale, zone=zone), None
        )
        return np.array(parsed, dtype=np.int64)

    def _time_scale(self, meaning: str) -> int:
        _, unit, factor = self.columns[meaning]
        if unit:
            return int(factor)
        cells = self._cells(meaning)
        plain = _plain_numbers(cells)
        if plain is None:
            plain = np.array([float(cell) for cell in cells if NUMBER.fullmatch(cell)])
        return epoch_scale([float(np.abs(plain).max(initial=0.0))])

    def lengths(self, meaning: str) -> Ints:
        _, unit, factor = self.columns[meaning]
        scale = int(factor) if unit else 10**9
        if not unit and any(NUMBER.fullmatch(cell) for cell in self._cells(meaning)):
            self.notes.append(f"Numbers in column {meaning!r} without a unit count as seconds.")
        if (whole := _whole_numbers(self._cells(meaning), scale)) is not None:
            return whole
        parsed = self._each(meaning, lambda cell: parse_length(cell, scale=scale), None)
        return np.array(parsed, dtype=np.int64)

    def deadlines(self, start: Ints, zone: tzinfo) -> Ints:
        """A time, or how long after the start (`12h`); a number is what it is for the start."""
        if "deadline" not in self.columns:
            return np.full(len(self.rows), -1, dtype=np.int64)
        scale = self._time_scale("deadline")
        after = re.compile(rf"{NUMBER.pattern}\s*(s|m|min|h|d)", re.IGNORECASE)
        relative = np.array([bool(after.fullmatch(cell)) for cell in self._cells("deadline")])

        def parse(cell: str) -> float:
            if after.fullmatch(cell):
                return parse_length(cell.lower())
            return parse_instant(cell, scale=scale, zone=zone)

        times = np.array(self._each("deadline", parse, -1.0), dtype=np.int64)
        return np.where(relative, times + start, times)

    def numbers(self, meaning: str, default: float, least: float | None = None,
                most: float | None = None) -> Floats:  # fmt: skip
        if meaning not in self.columns:
            return np.full(len(self.rows), default)
        scale = self.columns[meaning][2]
        plain = _plain_numbers(self._cells(meaning))
        values = self._each(meaning, _number, default) if plain is None else plain
        values = np.array(values, dtype=np.float64)
        values = np.where(np.isnan(values), values, values * scale)
        name = self.header[self.columns[meaning][0]]
        if least is not None:
            self.refuse(values < least, lambda row: f"{name} is negative")
        if most is not None:
            hint = f"{name} is above {most / scale:g}"
            self.refuse(values > most, lambda row: hint)
        return values

    def texts(self, meaning: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        if meaning not in self.columns:
            return tuple(default) if default is not None else ("",) * len(self.rows)
        return tuple(self._cells(meaning))

    def finish(self) -> None:
        if not self.bad:
            return
        rows = sorted(self.bad)
        lines = [self.lines[row] for row in rows]
        what = f"line {lines[0]}: {self.bad[rows[0]]}"
        if len(rows) > 1:
            others = ", ".join(str(line) for line in lines[1:9]) + (" ..." if lines[9:] else "")
            what += f" ({len(rows) - 1:,} more wrong: line{'s' if lines[2:] else ''} {others})"
        raise self.wrong(what)


def _plain_numbers(cells: list[str]) -> Floats | None:
    """All cells at once, where all are written plainly: a table may have millions."""
    if not set("".join(cells)) <= set("0123456789."):
        return None
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def _whole_numbers(cells: list[str], scale: int) -> Ints | None:
    """Times or lengths in nanoseconds, where all cells are short whole numbers."""
    if not set("".join(cells)) <= set("0123456789") or not all(cells):
        return None
    if max(map(len, cells)) > 18 or int(max(cells, key=lambda c: (len(c), c))) * scale > _FARTHEST:
        return None
    return np.array(cells, dtype=np.int64) * scale


def _number(cell: str) -> float:
    if not NUMBER.fullmatch(cell):
        raise InputError(f"{cell[:40]!r} is not a number")
    return float(cell)


def _meanings(name: str) -> dict[str, dict[str, str]]:
    """What a column's name may mean: meaning -> known name -> unit that ends it."""
    plain = re.sub(r"[^a-z0-9%]+", " ", name.lower().replace("%", " pct ")).split()
    whole = "".join(plain)
    found: dict[str, dict[str, str]] = {}
    for meaning, known in _NAMES.items():
        for unit in ("", *_UNITS.get(meaning, ())):
            stem = whole.removesuffix(unit) if unit else whole
            # A unit counts only as words of its own: 'threads' does not end in seconds.
            apart = not unit or "".join(plain[:-1]) == stem or "".join(plain[:-2]) == stem
            if stem in known and apart and (not unit or stem != whole):
                found.setdefault(meaning, {})[stem] = unit
    return found
