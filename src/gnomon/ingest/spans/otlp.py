"""OpenTelemetry's spans in JSON: what collectors write to files and what OTLP/HTTP carries.

`resourceSpans` at the top, in `result` (Jaeger's API v3), or as Tempo's `batches`; one document or
one a line. Names are in camelCase or snake_case, ids in hex or base64, times are numbers or texts.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from gnomon.ingest.spans.json_lines import as_int, as_table, as_tables
from gnomon.ingest.spans.spans import (
    CLIENT,
    CONSUMER,
    INTERNAL,
    PRODUCER,
    SERVER,
    SpanRows,
    peer_of,
    sizes_of,
)

_KINDS = (INTERNAL, INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER)
_KIND_OF = {"SERVER": SERVER, "CLIENT": CLIENT, "PRODUCER": PRODUCER, "CONSUMER": CONSUMER}
_ERROR = 2


def is_otlp(head: bytes) -> bool:
    """Whether a file begins as OpenTelemetry's JSON of spans does.

    >>> is_otlp(b'{"resourceSpans": []}'), is_otlp(b'{"resourceMetrics": []}')
    (True, False)
    """
    marks = rb'"(resourceSpans|resource_spans|scopeSpans|scope_spans|instrumentationLibrarySpans)"'
    return head.lstrip()[:1] in (b"{", b"[") and re.search(marks, head) is not None


def add_otlp(rows: SpanRows, document: Any) -> None:
    """Add the spans of one JSON document."""
    if isinstance(document, list):
        for one in as_tables(document):
            add_otlp(rows, one)
        return
    table = as_table(document)
    table = as_table(table.get("result")) or as_table(table.get("trace")) or table
    for resource in as_tables(_get(table, "resourceSpans") or table.get("batches")):
        attributes = attributes_of(as_table(resource.get("resource")).get("attributes"))
        scopes = _get(resource, "scopeSpans") or _get(resource, "instrumentationLibrarySpans")
        for scope in as_tables(scopes):
            for span in as_tables(scope.get("spans")):
                _add_span(rows, span, attributes.get("service.name"))


def _add_span(rows: SpanRows, span: dict[str, Any], service: Any) -> None:
    status = as_table(span.get("status")).get("code")
    add_span(
        rows, service=service, name=span.get("name"), trace=_id(_get(span, "traceId"), 32),
        span=_id(_get(span, "spanId"), 16), parent=_id(_get(span, "parentSpanId"), 16),
        kind=kind_of(span.get("kind")), start_ns=as_int(_get(span, "startTimeUnixNano")),
        end_ns=as_int(_get(span, "endTimeUnixNano")),
        is_error=status == _ERROR or str(status).upper().endswith("ERROR"),
        attributes=attributes_of(span.get("attributes")),
    )  # fmt: skip


def add_span(
    rows: SpanRows, *, service: Any, name: Any, trace: str, span: str, parent: str, kind: int,
    start_ns: int | None, end_ns: int | None, is_error: bool, attributes: dict[str, Any],
) -> None:  # fmt: skip
    """Add one span of OpenTelemetry; a time of 0 is one that was never set."""
    rows.add(
        trace, span, parent, service, name, kind, start_ns or None, end_ns or None,
        is_error=is_error, peer=peer_of(kind, str(service), str(name), attributes),
        sizes=sizes_of(attributes),
    )  # fmt: skip


def kind_of(kind: Any) -> int:
    """A kind by its number, or by its name with or without `SPAN_KIND_`."""
    number = as_int(kind)
    if number is not None:
        return _KINDS[number] if 0 <= number < len(_KINDS) else INTERNAL
    return _KIND_OF.get(str(kind).upper().removeprefix("SPAN_KIND_"), INTERNAL)


def attributes_of(listed: Any) -> dict[str, Any]:
    """Attributes by name; only texts, numbers and truths are of use here."""
    found = {}
    for one in as_tables(listed):
        value = as_table(one.get("value"))
        for name in ("stringValue", "intValue", "boolValue", "doubleValue"):
            if (own := _get(value, name)) is not None:
                found[str(one.get("key"))] = own
    return found


def _get(table: dict[str, Any], name: str) -> Any:
    """A field by its name in camelCase, or the same in snake_case."""
    if name in table:
        return table[name]
    return table.get(re.sub("[A-Z]", lambda match: "_" + match[0].lower(), name))


def _id(id: Any, digits: int) -> str:
    """An id in hex; protobuf's own JSON has it in base64."""
    if not isinstance(id, str) or (re.fullmatch("[0-9a-fA-F]*", id) and len(id) in (0, digits)):
        return id if isinstance(id, str) else ""
    try:
        raw = base64.b64decode(id, validate=True)
    except (binascii.Error, ValueError):
        return id
    return raw.hex() if len(raw) * 2 == digits else id
