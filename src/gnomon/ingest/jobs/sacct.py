"""Slurm's accounting, as `sacct -P` (or `--parsable2`, `-p`) prints it, to `Jobs`.

The header says which fields there are; JobID, Start, and End or Elapsed, with AllocCPUS, NCPUS or
AllocTRES are needed. A good line to export:

    sacct -a -P -S 2024-01-01 -E 2024-02-01 -o JobID,State,Start,End,Elapsed,AllocCPUS,\\
        CPUTimeRAW,TotalCPU,ConsumedEnergyRaw,AllocTRES,NodeList

Steps (`123.batch`, `123.0`) are folded into their job; the runs of a job that was requeued
(`sacct -D`) are rows of their own. Slurm prints the cluster's local time without an offset: say
which zone that is. Where a row has Elapsed, the job ended that long after its Start, for local
times repeat in autumn.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.delimited import Delimited, read_lines
from gnomon.ingest.jobs.jobs import Jobs
from gnomon.ingest.moment import parse_clock, parse_instant
from gnomon.units import SECOND_NS

_UNKNOWN = {"", "unknown", "none", "n/a"}
#: What Slurm writes where a duration came out negative.
_INVALID = "invalid"
_CLOCKS = ("elapsed", "elapsedraw", "totalcpu", "cputimeraw")
_JOULES_PER_KWH = 3.6e6


def is_sacct(head: bytes) -> bool:
    """Whether a file begins as sacct's parsable output does.

    >>> is_sacct(b"JobID|State|Start|End"), is_sacct(b"id,start,end")
    (True, False)
    """
    names = head.splitlines()[0].decode("utf-8", "replace").split("|") if head.strip() else []
    return len(names) > 1 and any(name.strip().lower() in ("jobid", "jobidraw") for name in names)


def read_sacct(path: str | os.PathLike[str], *, zone: tzinfo = UTC) -> Jobs:
    """Read jobs from sacct's output, whose times are those of the cluster's `zone`."""
    where = os.fspath(path)
    table = _read_rows(where)
    kept, notes = _settle(_fold(table.rows), table, zone)
    if not kept:
        raise InputError("no job in it has run", where=where, hint="; ".join(notes) or None)
    return Jobs(
        where=where,
        line=np.array([job.line for job in kept], dtype=np.int64),
        id=tuple(job.name for job in kept),
        start_ns=np.array([job.start_ns for job in kept], dtype=np.int64),
        end_ns=np.array([job.end_ns for job in kept], dtype=np.int64),
        cores=np.array([job.cores for job in kept]),
        gpus=np.array([job.gpus for job in kept]),
        utilisation=np.array([job.utilisation for job in kept]),
        energy_kwh=np.array([job.energy_kwh for job in kept]),
        work=np.full(len(kept), np.nan),
        price_usd_kwh=np.full(len(kept), np.nan),
        deadline_ns=np.full(len(kept), -1, dtype=np.int64),
        machine=("",) * len(kept),
        gpu=tuple(job.gpu for job in kept),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _SacctRow:
    """One line of sacct: a job or a step of one."""

    where: str
    line: int
    cells: Mapping[str, str]

    @property
    def full_id(self) -> str:
        return self.cells.get("jobid") or self.cells.get("jobidraw", "")

    @property
    def job(self) -> str:
        return self.full_id.partition(".")[0]

    @property
    def is_step(self) -> bool:
        return "." in self.full_id

    def wrong(self, what: str, hint: str | None = None) -> InputError:
        return InputError(f"line {self.line}: {what}", where=self.where, hint=hint)

    def text(self, *names: str) -> str:
        for name in names:
            cell = self.cells.get(name, "")
            if cell.lower() not in _UNKNOWN:
                return cell
        return ""

    def time_ns(self, name: str, zone: tzinfo) -> int | None:
        cell = self.text(name)
        try:
            return parse_instant(cell, zone=zone) if cell else None
        except InputError as error:
            raise self.wrong(f"{name}: {error.what}", error.hint) from None

    def clock_ns(self, name: str) -> int | None:
        cell = self.text(name)
        try:
            if cell.isdecimal():
                return int(cell) * SECOND_NS
            return parse_clock(cell) if cell and cell.lower() != _INVALID else None
        except InputError as error:
            raise self.wrong(f"{name}: {error.what}", error.hint) from None

    @property
    def is_invalid(self) -> bool:
        return any(self.cells.get(name, "").lower() == _INVALID for name in _CLOCKS)

    def number(self, *names: str) -> float | None:
        cell = self.text(*names)
        if not cell:
            return None
        try:
            return _scaled(cell)
        except ValueError:
            raise self.wrong(f"{cell[:40]!r} is not a number") from None

    def tres(self) -> dict[str, float]:
        """What was allocated: `cpu=32,gres/gpu=4,gres/gpu:a100=4,mem=100G`."""
        parts = (part.partition("=") for part in self.text("alloctres").split(",") if "=" in part)
        found = {}
        for name, _, amount in parts:
            try:
                found[name.strip().lower()] = _scaled(amount)
            except ValueError:
                raise self.wrong(f"AllocTRES: {amount!r} is not an amount") from None
        return found


@dataclass(frozen=True, slots=True)
class _Rows:
    rows: list[_SacctRow]
    names: set[str]


@dataclass(slots=True)
class _JobRun:
    """One run of a job with its steps, and what they say together."""

    id: str
    run: int = 1
    own: _SacctRow | None = None
    by_step: dict[str, _SacctRow] = field(default_factory=dict)
    repeats: int = 0
    line: int = 0
    start_ns: int = 0
    end_ns: int = 0
    cores: float = 0.0
    gpus: float = 0.0
    gpu: str = ""
    utilisation: float = np.nan
    energy_kwh: float = np.nan

    @property
    def name(self) -> str:
        return self.id if self.run == 1 else f"{self.id} run {self.run}"

    @property
    def own_rows(self) -> list[_SacctRow]:
        return [self.own] if self.own is not None else []

    @property
    def steps(self) -> list[_SacctRow]:
        return list(self.by_step.values())

    @property
    def all_rows(self) -> list[_SacctRow]:
        return self.own_rows or self.steps


def _fold(rows: list[_SacctRow]) -> list[_JobRun]:
    """Runs of jobs with the steps that follow them.

    A row of the same job with another Start is another run of it; with the same Start it is the
    same run again, as where two exports overlap, and the later row counts.
    """
    runs: dict[str, dict[str, _JobRun]] = {}
    current: dict[str, _JobRun] = {}
    for row in rows:
        if row.is_step:
            if row.job not in current:
                current[row.job] = runs.setdefault(row.job, {})[""] = _JobRun(row.job)
            current[row.job].by_step[row.full_id] = row
            continue
        of_job = runs.setdefault(row.job, {})
        start = row.text("start")
        if "" in of_job and of_job[""].own is None:  # its steps came first
            of_job[start] = of_job.pop("")
        run = of_job.setdefault(start, _JobRun(row.job))
        run.repeats += run.own is not None
        run.own = row
        current[row.job] = run
    return [run for of_job in runs.values() for run in of_job.values()]


def _read_rows(where: str) -> _Rows:
    table = Delimited(
        read_lines(where, hint="expected sacct -P"), where, separator="|", is_quoted=False
    )
    first = next(table, None)
    if first is None:
        raise InputError("is empty", where=where)
    header = [name.strip().lower().partition("%")[0] for name in first]
    names = set(header) - {""}
    if not names & {"jobid", "jobidraw"}:
        hint = "export with sacct -P -o JobID,Start,End,AllocCPUS,..., header included"
        raise InputError("there is no field JobID in the first line", where=where, hint=hint)
    if "start" not in names or not names & {"end", "elapsed", "elapsedraw"}:
        hint = "export Start, and End or Elapsed"
        raise InputError("the fields do not say when jobs ran", where=where, hint=hint)
    if not names & {"alloccpus", "ncpus", "alloctres"}:
        hint = "export AllocCPUS or AllocTRES"
        raise InputError("the fields do not say what jobs held", where=where, hint=hint)
    rows = []
    for written in table:
        table.check_width(written, len(header))
        cells = [cell.strip() for cell in written]
        row = _SacctRow(where, table.line, dict(zip(header, cells)))
        if not row.job:
            raise row.wrong("JobID is missing")
        rows.append(row)
    if not rows:
        raise InputError("there is a header and no job below it", where=where)
    return _Rows(rows, names)


def _settle(jobs: list[_JobRun], table: _Rows, zone: tzinfo) -> tuple[list[_JobRun], list[str]]:
    kept: list[_JobRun] = []
    pending = running = empty = stepless = differ = 0
    for job in jobs:
        stepless += job.own is None
        span = _span(job, zone)
        if span is None:
            pending += 1
            continue
        running += span.is_open
        differ += span.differs
        if span.end_ns == span.start_ns:
            empty += 1
            continue
        job.start_ns, job.end_ns = span.start_ns, span.end_ns
        _fill(job)
        kept.append(job)
    ran: Counter[str] = Counter()
    for job in kept:
        ran[job.id] += 1
        job.run = ran[job.id]
    invalid = sum(any(row.is_invalid for row in (*job.own_rows, *job.steps)) for job in kept)
    notes = []
    if zone is UTC and any(_is_bare(job) for job in kept):
        notes.append("sacct prints local time; it was read as UTC.")
    counts = (
        (pending, "Not started, left out"),
        (empty, "Ran for no time, left out"),
        (running, "Still running, counted up to their Elapsed"),
        (stepless, "Without a row of their own, put together from their steps"),
        (sum(job.run > 1 for job in kept), "Further runs of jobs that were requeued, each a row"),
        (sum(job.repeats for job in jobs), "Rows that repeat a run, of which the last counts"),
        (differ, "Whose End is not Start + Elapsed (suspended, or the clock was set), by Elapsed"),
        (invalid, "With a time that Slurm calls INVALID, taken as unknown"),
    )
    notes += [f"{what}: {count:,}." for count, what in counts if count]
    if kept and table.names & {"consumedenergyraw", "consumedenergy"}:
        measured = sum(not np.isnan(job.energy_kwh) for job in kept)
        notes.append(
            f"Slurm measured the energy of {measured:,} of {len(kept):,} jobs; it meters whole "
            "nodes, so a job that shared one carries its neighbours' too."
        )
    return kept, notes


def _is_bare(job: _JobRun) -> bool:
    start = job.all_rows[0].text("start")
    return not start.isdecimal() and not re.search(r"(Z|[+-]\d\d:?\d\d)$", start)


@dataclass(frozen=True, slots=True)
class _RunSpan:
    """When a run began and ended, whether it had, and whether End and Elapsed differ."""

    start_ns: int
    end_ns: int
    is_open: bool
    differs: bool


def _span(job: _JobRun, zone: tzinfo) -> _RunSpan | None:
    starts, ends, is_open, differs = [], [], False, False
    for row in job.all_rows:
        start = row.time_ns("start", zone)
        if start is None:
            continue
        end = row.time_ns("end", zone)
        elapsed = row.clock_ns("elapsedraw")
        if elapsed is None:
            elapsed = row.clock_ns("elapsed")
        if elapsed is not None:
            is_open |= end is None and "end" in row.cells
            differs |= end is not None and abs(end - start - elapsed) > SECOND_NS
            end = start + elapsed
        elif end is None:
            raise row.wrong("the job has no End and no Elapsed", "export Elapsed")
        elif end < start:
            hint = "export Elapsed: local times repeat when the clock is set back"
            raise row.wrong("the job ends before it starts", hint)
        starts.append(start)
        ends.append(end)
        job.line = job.line or row.line
    return _RunSpan(min(starts), max(ends), is_open, differs) if starts else None


def _fill(job: _JobRun) -> None:
    rows = job.all_rows
    tres = [row.tres() for row in rows]
    counts = [
        row.number("alloccpus", "ncpus") or t.get("cpu") or 0.0 for row, t in zip(rows, tres)
    ]
    job.cores = max(counts)
    job.gpus, job.gpu = max((_gpus(t) for t in tres), default=(0.0, ""))
    job.utilisation = _utilisation(job)
    job.energy_kwh = _energy_kwh(job)


def _gpus(tres: Mapping[str, float]) -> tuple[float, str]:
    """How many, and their model where Slurm knows one."""
    typed = {n.partition(":")[2]: c for n, c in tres.items() if n.startswith("gres/gpu:")}
    count = tres.get("gres/gpu", sum(typed.values()))
    return count, next(iter(typed)) if len(typed) == 1 else ""


def _utilisation(job: _JobRun) -> float:
    """TotalCPU over what was held; unknown where Slurm counted nothing."""
    own = job.own_rows
    used = [t for row in own if (t := row.clock_ns("totalcpu"))]
    if not used:
        used = [t for row in job.steps if (t := row.clock_ns("totalcpu"))]
    held = next((t for row in own if (t := row.clock_ns("cputimeraw"))), 0)
    held = held or round(job.cores * (job.end_ns - job.start_ns))
    return min(1.0, sum(used) / held) if used and held else np.nan


def _energy_kwh(job: _JobRun) -> float:
    """Joules of the job's own row; else of its steps, which overlap the batch step."""
    fields = ("consumedenergyraw", "consumedenergy")
    own = [j for row in job.own_rows if (j := row.number(*fields))]
    if own:
        return own[0] / _JOULES_PER_KWH
    named = {row.full_id.partition(".")[2]: row.number(*fields) or 0.0 for row in job.steps}
    around = [named.pop(name, 0.0) for name in ("batch", "extern")]
    joules = max(*around, sum(named.values()))
    return joules / _JOULES_PER_KWH if joules else np.nan


def _scaled(text: str) -> float:
    """A number with Slurm's suffix: 1.5K, 2M, 100Gn (by node), 4Gc (by core)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)([KMGTP]?)[nc]?", text.strip())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * 1e3 ** " KMGTP".index(match[2] or " ")
