"""Interval logs of HdrHistogram (.hlog): an encoded histogram a line, with a tag or without.

    #[StartTime: 1441812279.474 (seconds since epoch), Wed Sep 09 08:24:39 PDT 2015]
    Tag=READ,0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAAB...

A log does not name the unit of its values. Libraries write them in nanoseconds and their maximum
in milliseconds, so the factor between the two tells the unit.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections import Counter

from gnomon.errors import InputError
from gnomon.ingest.delimited import read_lines
from gnomon.ingest.samples.hdr_histogram import Histogram, decode_histogram
from gnomon.ingest.samples.samples import UNIT_HINT, UNITS_NS, SampleRows, Samples

_NUMBER = r"\d{1,20}(?:\.\d{0,20})?"
_INTERVAL = re.compile(
    rf"(?:Tag=(?P<tag>[^,\s]*)[,\s]+)?(?P<start>-?{_NUMBER})[,\s]+{_NUMBER}[,\s]+"
    rf"(?P<top>{_NUMBER})[,\s]+(?P<coded>[\w+/]+=*)", re.ASCII,
)  # fmt: skip
_LEGEND = re.compile(r'"?(Start)?Timestamp"?\s*,', re.IGNORECASE)
_MARK = re.compile(rb"^#\[Histogram log format version|,\s*HIST[\w+/]{12}", re.MULTILINE)
#: Tags of cassandra-stress for service, wait and response time.
_SERVICE, _PARTS = "-st", ("-st", "-wt", "-rt")
_YCSB = "#[Logging for:"


def is_hdr_log(head: bytes) -> bool:
    """Whether a file begins as a log of HdrHistogram does.

    >>> is_hdr_log(b"#[Histogram log format version 1.3]"), is_hdr_log(b"a,b")
    (True, False)
    """
    return _MARK.search(head) is not None


def read_hdr_log(path: str | os.PathLike[str], unit: str | None = None) -> Samples:
    """The times of all intervals; tags are classes."""
    where = os.fspath(path)
    found: dict[str, Counter[float]] = {}
    intervals, most, shown, is_ycsb = 0, 0.0, 0.0, False
    for number, line in enumerate(read_lines(where, hint="expected a log of HdrHistogram"), 1):
        is_ycsb |= line.startswith(_YCSB)
        if line.startswith("#") or not line.strip() or _LEGEND.match(line):
            continue
        tag, top, histogram = _interval(line.strip(), number, where)
        seen = found.setdefault(tag, Counter())
        for value, count in zip(histogram.value.tolist(), histogram.counts.tolist()):
            seen[value] += count
        intervals += 1
        if len(histogram.top) and float(histogram.top[-1]) > most:
            most, shown = float(histogram.top[-1]), top
    if not any(found.values()):
        raise InputError("the log holds no time", where=where, hint="was it cut short?")
    chosen = unit or ("us" if is_ycsb else _unit_of(most, shown, where))
    why = "as YCSB writes them" if is_ycsb else "judged by the column of their maximum"
    rows = SampleRows(where)
    rows.notes.append(f"HdrHistogram log of {intervals:,} intervals, values in {chosen}"
                      f"{'' if unit else f' ({why}; --unit says otherwise)'}.")  # fmt: skip
    has_parts = all(tag.endswith(_PARTS) for tag in found)
    service = {tag: seen for tag, seen in found.items() if has_parts and tag.endswith(_SERVICE)}
    if service:
        rows.notes.append("Tags are those of cassandra-stress: service times (-st) alone count.")
    for tag, seen in (service or found).items():
        for value, count in seen.items():
            name = tag.removesuffix(_SERVICE) if service else tag
            rows.add(name, value * UNITS_NS[chosen], count)
    return rows.build(is_latency=not service)


def _interval(line: str, number: int, where: str) -> tuple[str, float, Histogram]:
    match = _INTERVAL.fullmatch(line)
    if match is None:
        what = f"line {number}: no interval of a log (start, length, maximum, histogram)"
        raise InputError(what, where=where, hint="was the file cut short?")
    try:
        histogram = decode_histogram(base64.b64decode(match["coded"], validate=True))
    except binascii.Error:
        what = f"line {number}: the histogram is no base64"
        raise InputError(what, where=where, hint="was the line cut short?") from None
    except InputError as error:
        raise InputError(f"line {number}: {error.what}", where=where, hint=error.hint) from None
    return match["tag"] or "", float(match["top"]), histogram


def _unit_of(most: float, shown: float, where: str) -> str:
    """The unit of values whose maximum is shown in milliseconds."""
    for unit, factor in (("ns", 1e6), ("us", 1e3)):
        if shown and 0.7 < most / shown / factor < 1.4:
            return unit
    what = f"nothing says the unit of its values (the greatest is {most:g}, shown as {shown:g})"
    raise InputError(what, where=where, hint=UNIT_HINT)
