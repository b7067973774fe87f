"""Percentile distributions that HdrHistogram prints (.hgrm), also inside the output of wrk2.

Value   Percentile   TotalCount 1/(1-Percentile)
0.921     0.000000            1         1.00
"""

from __future__ import annotations

import os
import re

from gnomon.errors import InputError
from gnomon.ingest.delimited import read_lines
from gnomon.ingest.samples.samples import UNITS_NS, SampleRows, Samples

_HEADER = re.compile(
    r'[>\s]*"?Value"?[,\s]+"?Percentile"?[,\s]+"?TotalCount"?[,\s]+"?1/\(1-Percentile\)"?\s*'
)
_ROW = re.compile(
    r"\s*(\d{1,20}(?:\.\d{0,12})?)[,\s]+([01]\.\d{1,20})[,\s]+(\d{1,15})(?:[,\s]+[\w.∞]+)?\s*"
)
_TOTAL = re.compile(r"\s*#\[Max\s*=.*Total count\s*=\s*(\d{1,15})\]")
#: Between two values this far apart there may be nothing: what lies between counts as the upper.
_GAP = 1.5


def is_percentiles(head: bytes) -> bool:
    """Whether the first bytes of a file hold the header of a percentile distribution.

    >>> is_percentiles(b"  Value   Percentile   TotalCount 1/(1-Percentile)"), is_percentiles(b"a")
    (True, False)
    """
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_HEADER.fullmatch(line) for line in lines)


def read_percentiles(path: str | os.PathLike[str], unit: str | None = None) -> Samples:
    """The distribution; of several, as wrk2 prints them, the first.

    What lies between two lines is counted at their middle, or at the upper one where they are far
    apart: a distribution with two modes has nothing there.
    """
    where = os.fspath(path)
    rows = SampleRows(where)
    scale = UNITS_NS[unit or "ms"]
    below, counted, total, is_whole = 0.0, 0, None, False
    lines = enumerate(read_lines(where, hint="expected text of HdrHistogram"), 1)
    for _, line in lines:
        if _HEADER.fullmatch(line):
            break
    for number, line in lines:
        if match := _ROW.fullmatch(line):
            value, seen = float(match[1]), int(match[3])
            if value < below or seen < counted:
                what = f"line {number}: values and counts have to rise"
                raise InputError(what, where=where)
            if seen > counted:
                is_near = value <= _GAP * below
                rows.add("", scale * (value + below) / 2 if is_near else scale * value,
                         seen - counted)  # fmt: skip
            below, counted = value, seen
            is_whole = float(match[2]) == 1.0
        elif line.strip():
            total = int(found[1]) if (found := _TOTAL.match(line)) else total
            if total is not None or not line.lstrip().startswith("#[Mean"):
                break
    if not is_whole or (total is not None and total != counted):
        raise InputError("the distribution ends early", where=where, hint="was it cut short?")
    rows.notes.append(
        f"A percentile distribution of HdrHistogram, values in {unit or 'ms'}"
        f"{'' if unit else ' (--unit says otherwise)'}: times between its lines are estimates."
    )
    return rows.build(is_latency=True)
