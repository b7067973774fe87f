"""Tables of spans (CSV), such as Nezha's: a span a row, or a call with both of its ends a row.

    TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration

Times are in s, ms, us or ns since 1970, whichever gives a date; a duration is in us.
"""

from __future__ import annotations

import os
import re

from gnomon.errors import InputError
from gnomon.ingest.delimited import Delimited, header_of, read_lines
from gnomon.ingest.spans.spans import INTERNAL, SpanRows, peer_of

#: Columns by what they are called, in lower case and without marks; the first one counts.
_NAMES = {
    "trace": ("traceid",),
    "span": ("spanid", "childid"),
    "parent": ("parentid", "parentspanid"),
    "service": ("servicename", "service", "podname", "childpod", "childms"),
    "operation": ("operationname", "spanname", "childoperation", "operation", "name"),
    "start": ("starttimeunixnano", "starttime", "timestamp", "start"),
    "end": ("endtimeunixnano", "endtime", "end"),
    "duration": ("duration", "childduration"),
    "parent_service": ("parentpod", "parentms"),
    "parent_operation": ("parentoperation",),
    "parent_duration": ("parentduration",),
    "trace_start": ("tracetime",),
}
_TOP = frozenset({"", "root", "none", "null", "nan", "-1", "0"})
#: What Kubernetes hangs on a deployment's or a stateful set's name to name a pod.
_POD = re.compile(r"(-[bcdf-hj-np-tv-xz2456789]{6,10})?-[bcdf-hj-np-tv-xz2456789]{5}$|-\d{1,4}$")


def is_span_table(head: bytes) -> bool:
    """Whether a file begins as a table of spans does.

    >>> is_span_table(b"TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,Duration")
    True
    """
    columns = _columns(header_of(head))
    return {"trace", "span", "parent", "start"} <= columns.keys() and (
        "end" in columns or "duration" in columns
    )


def service_of_pod(pod: str) -> str:
    """The deployment that a pod is of.

    >>> service_of_pod("frontend-579b9bff58-t2dbm"), service_of_pod("user-timeline-redis")
    ('frontend', 'user-timeline-redis')
    """
    return _POD.sub("", pod) or pod


def add_span_table(rows: SpanRows, path: str | os.PathLike[str]) -> None:
    """Add the spans of a table."""
    where = os.fspath(path)
    table = Delimited(read_lines(where), where)
    header = next(table, [])
    columns = _columns(header)
    if missing := [name for name in ("trace", "span", "parent", "start") if name not in columns]:
        hint = "expected TraceID, SpanID, ParentID, StartTimeUnixNano, ..."
        raise InputError(f"there is no column for the {missing[0]}", where=where, hint=hint)
    tops: dict[tuple[str, str], dict[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for row in table:
        table.check_width(row, len(header))
        cells = {name: row[at].strip() for name, at in columns.items()}
        seen.add((cells["trace"], cells["span"]))
        start_ns = _time_ns(cells["start"])
        if "parent_duration" in cells:
            tops.setdefault((cells["trace"], cells["parent"]), cells)
        service, operation = service_of_pod(cells.get("service", "")), cells.get("operation", "")
        parent = "" if cells["parent"].lower() in _TOP else cells["parent"]
        rows.add(
            cells["trace"], cells["span"], parent, service, operation, INTERNAL, start_ns,
            _end_ns(start_ns, cells.get("end", ""), cells.get("duration", "")),
            peer=peer_of(INTERNAL, service, operation, {}),
        )  # fmt: skip
    for (trace, span), cells in tops.items():  # a table of calls has no row for the first caller
        if (trace, span) not in seen:
            start_ns = _time_ns(cells.get("trace_start", ""))
            rows.add(
                trace, span, "", service_of_pod(cells.get("parent_service", "")),
                cells.get("parent_operation", ""), INTERNAL, start_ns,
                _end_ns(start_ns, "", cells["parent_duration"]),
            )  # fmt: skip


def _columns(header: list[str]) -> dict[str, int]:
    plain = [re.sub("[^a-z]", "", name.lower()) for name in header]
    return {
        what: plain.index(name)
        for what, names in _NAMES.items()
        for name in [next((name for name in names if name in plain), "")]
        if name
    }


def _time_ns(cell: str) -> int | None:
    if not re.fullmatch(r"\d{1,19}(\.\d{1,9})?", cell):
        return None
    whole, _, part = cell.partition(".")
    value, scale = int(whole), 1
    while 0 < value * scale < 10**17:  # 1973 in ns
        scale *= 1000
    return value * scale + int(float(f"0.{part or 0}") * scale)


def _end_ns(start_ns: int | None, end: str, duration: str) -> int | None:
    if end or start_ns is None:
        return _time_ns(end)
    return (
        start_ns + round(float(duration) * 1000)
        if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", duration)
        else None
    )
