"""Measured power from Prometheus: Kepler, Scaphandre, and whatever else says watts or joules.

Reads the answer of a range query (`/api/v1/query_range`, JSON) and the text format with time
stamps (a federation dump, `promtool tsdb dump-openmetrics`). A name says its unit: `..._watts`,
`..._microwatts`, `..._joules_total`. Counters of energy become power by differences, and a
counter that falls has been reset: it counts from zero.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.jobs.jobs import Floats, Ints
from gnomon.ingest.metrics.prometheus import parse_answer
from gnomon.ingest.text import read_pieces
from gnomon.series import Signal

_PREFIX = {"": 1.0, "nano": 1e-9, "micro": 1e-6, "milli": 1e-3, "kilo": 1e3, "mega": 1e6}
_UNIT = re.compile(
    r"(?P<prefix>nano|micro|milli|kilo|mega|)(?P<unit>watt|joule)s?(?P<total>_total)?$"
)
_LINE = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+(?P<time>\S+))?"
)
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
#: What tells one consumer from another, most telling first.
_NAMING = ("pod_name", "pod", "kubernetes_pod_name", "container_name", "container", "vm_name",
           "exe", "comm", "process", "pid", "node_name", "node", "instance", "host")  # fmt: skip
_SPACES = ("container_namespace", "pod_namespace", "kubernetes_pod_namespace", "namespace")
#: Domains of Intel's RAPL that lie inside others.
_INSIDE = {"psys": {"package", "core", "uncore", "dram"}, "package": {"core", "uncore"}}
_HOSTS = re.compile(r"_(node|host|socket|platform)_|^node_")
#: Seconds to either side of 1970 that fit into nanoseconds: 146 years.
_FARTHEST_S = 2**62 / 1e9


@dataclass(frozen=True, eq=False, slots=True)
class PowerSeries:
    """The power of one consumer over time.

    Attributes:
        signal: Watts; missing scrapes of a gauge are gaps.
        is_host: Whether it speaks of a whole machine, not of something that runs on one.
    """

    metric: str
    labels: Mapping[str, str]
    signal: Signal
    resets: int
    is_host: bool

    @property
    def name(self) -> str:
        """What consumes: `namespace/pod`, a process, a node."""
        found = next((self.labels[key] for key in _NAMING if self.labels.get(key)), self.metric)
        space = next((self.labels[key] for key in _SPACES if self.labels.get(key)), "")
        return f"{space}/{found}" if space and not self.is_host else found


def is_power_series(head: bytes) -> bool:
    """Whether a file begins as Prometheus answers or writes.

    >>> is_power_series(b'{"data":{"resultType":"matrix"'), is_power_series(b"a,b")
    (True, False)
    """
    text = head.decode("utf-8", "replace").lstrip()
    if text.startswith("{"):
        return '"resultType"' in text or '"metric"' in text
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first.startswith(("# HELP", "# TYPE")) or bool(
        (match := _LINE.fullmatch(first)) and _is_number(match["value"])
    )


def read_power_series(
    path: str | os.PathLike[str], *, metric: str | None = None, unit: str | None = None
) -> list[PowerSeries]:
    """The power series of a file.

    Args:
        path: A range query's JSON or text with time stamps, plain or compressed.
        metric: The metric to read; needed where the file has several that speak of power.
        unit: 'W', or 'J' for a counter, where the name is gone, as after `rate(...)`.
    """
    where = os.fspath(path)
    raw = b"".join(read_pieces(where))
    found = _parse_json(raw, where) if raw.lstrip()[:1] == b"{" else _parse_text(raw, where)
    speaking = [series for series in found if _scale_of(series.metric, unit) is not None]
    names = list(dict.fromkeys(one.metric for one in speaking))
    if metric is not None:
        speaking = [series for series in found if series.metric == metric]
        if not speaking:
            listed = ", ".join(names[:8]) or "none"
            raise InputError(f"no series of {metric!r}", where=where, hint=f"there are {listed}")
        if _scale_of(metric, unit) is None:
            what = f"{metric!r} does not say whether it is watts or joules"
            raise InputError(what, where=where, hint="say the unit: W, kW, mW or J (--unit)")
    elif len(names) > 1:
        hint = f"name one of {', '.join(names[:8])}: they may count the same energy"
        raise InputError(f"{len(names)} metrics speak of power", where=where, hint=hint)
    if not speaking:
        seen = ", ".join(dict.fromkeys(series.metric or "(no name)" for series in found))
        hint = f"there are {seen[:200]}; say the unit if it is power"
        raise InputError("no series of watts or joules", where=where, hint=hint)
    return [_to_power(series, unit, where) for series in _outermost(speaking)]


@dataclass(slots=True)
class _SeriesSamples:
    metric: str
    labels: dict[str, str]
    times: list[float]
    values: list[float]
    place: str


def _parse_json(raw: bytes, where: str) -> list[_SeriesSamples]:
    answer = parse_answer(raw, where)
    if answer.kind != "matrix":
        hint = "ask /api/v1/query_range with start, end and step"
        raise InputError("holds single values, not series over time", where=where, hint=hint)
    if not answer.series:
        raise InputError("the answer holds no series", where=where, hint="widen the query")
    return [
        _SeriesSamples(one.metric, one.labels, one.times_s, one.values, f"$.data.result[{index}]")
        for index, one in enumerate(answer.series)
    ]


def _parse_text(raw: bytes, where: str) -> list[_SeriesSamples]:
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=where) from None
    series: dict[tuple[str, str], _SeriesSamples] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or not _is_number(match["value"]):
            hint = "expected name{labels} value timestamp"
            raise InputError(f"line {number}: no sample", where=where, hint=hint)
        if match["time"] is None or not _is_number(match["time"]):
            hint = "a scrape alone has no time: export a range query, or with time stamps"
            raise InputError(f"line {number}: the sample has no time", where=where, hint=hint)
        key = (match["name"], match["labels"] or "")
        if key not in series:
            labels = _parse_labels(match["labels"] or "", f"{where} line {number}")
            series[key] = _SeriesSamples(match["name"], labels, [], [], f"line {number}")
        # The text format counts milliseconds, OpenMetrics seconds; their size shows which.
        stamp = float(match["time"])
        stamp = stamp / 1e3 if stamp > 1e11 else stamp
        if not _is_time(stamp):
            raise InputError(f"line {number}: {_no_time(match['time'])}", where=where)
        series[key].times.append(stamp)
        series[key].values.append(float(match["value"]))
    if not series:
        raise InputError("there is no sample in it", where=where)
    return list(series.values())


def _parse_labels(text: str, at: str) -> dict[str, str]:
    labels, position = {}, 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            raise InputError(f"labels {text[:60]!r} cannot be read", where=at)
        labels[match[1]] = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])
        position = match.end()
    return labels


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_time(seconds: float) -> bool:
    return abs(seconds) < _FARTHEST_S  # NaN is not


def _no_time(shown: object) -> str:
    return f"{shown} is no time within 146 years of 1970"


def _scale_of(metric: str, unit: str | None) -> tuple[float, bool] | None:
    """Watts (or joules) of one, and whether it counts energy; None where it is neither."""
    match = _UNIT.search(metric)
    if match is not None:
        return _PREFIX[match["prefix"]], match["unit"] == "joule"
    if unit is None:
        return None
    known = {"W": (1.0, False), "kW": (1e3, False), "mW": (1e-3, False), "J": (1.0, True)}
    if unit not in known:
        raise InputError(f"no unit of power or energy {unit!r}", hint="W, kW, mW or J")
    return known[unit]


def _outermost(series: Sequence[_SeriesSamples]) -> list[_SeriesSamples]:
    """Without domains that are part of others: a package holds its cores."""
    present: dict[tuple[tuple[str, str], ...], set[str]] = {}
    for one in series:
        present.setdefault(_but_zone(one.labels), set()).add(one.labels.get("zone", "").lower())
    kept = []
    for one in series:
        zone = one.labels.get("zone", "").lower()
        zones = present[_but_zone(one.labels)]
        if not any(zone in inner and outer in zones for outer, inner in _INSIDE.items()):
            kept.append(one)
    return kept


def _but_zone(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    hidden = ("zone", "path", "index")
    return tuple(sorted((k, v) for k, v in labels.items() if k not in hidden))


def _to_power(series: _SeriesSamples, unit: str | None, where: str) -> PowerSeries:
    at = f"{where} {series.place}"
    times, values = _arrays(series, at)
    scaled = _scale_of(series.metric, unit)
    assert scaled is not None
    scale, is_energy = scaled
    resets = 0
    if is_energy:
        known = np.isfinite(values)
        times, values = times[known], values[known]
        if times.size < 2:
            raise InputError("a counter needs two samples to say a power", where=at)
        if (values < 0).any():
            raise InputError(f"a counter of {values[values < 0][0]:g}, below zero", where=at)
        power, resets = _rates(times, values * scale)
        signal = Signal(times[:-1], power, end_ns=int(times[-1]), unit="W", kind="power")
    else:
        if (values < 0).any():
            row = int(np.flatnonzero(values < 0)[0])
            raise InputError(f"sample {row}: a power of {values[row] * scale:g} W", where=at)
        step = int(np.median(np.diff(times))) if times.size > 1 else None
        if step is None:
            raise InputError("one sample does not say how long its power lasted", where=at)
        # A scrape may come late: half a step more is no gap.
        late = np.diff(times) <= 1.5 * step
        ends = np.append(np.where(late, times[1:], times[:-1] + step), times[-1] + step)
        signal = _with_gaps(times, values * scale, ends)
    return PowerSeries(
        series.metric, series.labels, signal, resets, bool(_HOSTS.search(series.metric))
    )


def _arrays(series: _SeriesSamples, at: str) -> tuple[Ints, Floats]:
    for row, seconds in enumerate(series.times):
        if not _is_time(seconds):
            raise InputError(f"sample {row}: {_no_time(seconds)}", where=at)
    times = np.array([round(t * 1e3) * 10**6 for t in series.times], dtype=np.int64)
    values = np.array(series.values)
    if not times.size:
        raise InputError("the series is empty", where=at)
    if (np.diff(times) <= 0).any():
        row = int(np.flatnonzero(np.diff(times) <= 0)[0]) + 1
        what = (
            "repeats the time before it" if times[row] == times[row - 1] else "goes back in time"
        )
        raise InputError(f"sample {row} {what}", where=at)
    return times, np.where(np.isfinite(values), values, np.nan)


def _rates(times: Ints, joules: Floats) -> tuple[Floats, int]:
    grown = np.diff(joules)
    reset = grown < 0
    grown = np.where(reset, joules[1:], grown)
    return grown / (np.diff(times) / 1e9), int(reset.sum())


def _with_gaps(times: Ints, values: Floats, ends: Ints) -> Signal:
    opens = np.flatnonzero(ends[:-1] < times[1:])
    all_times = np.insert(times, opens + 1, ends[opens])
    all_values = np.insert(values, opens + 1, np.nan)
    return Signal(all_times, all_values, end_ns=int(ends[-1]), unit="W", kind="power")
