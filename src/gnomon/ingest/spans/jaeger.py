"""Jaeger's JSON: what its page and its API export, its storage, one object or a line each.

A file holds `{"data": [trace, ...]}`, a trace, a list of them, or spans as Elasticsearch keeps
them. What its API v3 answers is OpenTelemetry's format.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_KIND_OF = {"server": SERVER, "client": CLIENT, "producer": PRODUCER, "consumer": CONSUMER}


def is_jaeger(head: bytes) -> bool:
    """Whether a file begins as Jaeger's JSON does.

    >>> is_jaeger(b'{"data": [{"traceID": "1a", "spans": [{"spanID": "1"}]}]}')
    True
    """
    return (
        head.lstrip()[:1] in (b"{", b"[")
        and b'"traceID"' in head
        and (b'"spans"' in head or b'"spanID"' in head)
    )


def add_jaeger(rows: SpanRows, document: Any) -> None:
    """Add the spans of one JSON document."""
    for span, processes in _spans(document):
        process = as_table(span.get("process")) or as_table(
            processes.get(str(span.get("processID")))
        )
        tags = _tags(span)
        service, operation = process.get("serviceName"), span.get("operationName")
        kind = _KIND_OF.get(str(tags.get("span.kind")).lower(), INTERNAL)
        start_us, took_us = as_int(span.get("startTime")), as_int(span.get("duration"))
        has_times = start_us is not None and took_us is not None
        rows.add(
            span.get("traceID"), span.get("spanID"), _parent(span), service, operation, kind,
            start_us * 1000 if start_us is not None else None,
            (start_us + took_us) * 1000 if has_times else None,  # type: ignore[operator]
            is_error=str(tags.get("error")).lower() == "true"
            or str(tags.get("otel.status_code")).upper() == "ERROR",
            peer=peer_of(kind, str(service), str(operation), tags), sizes=sizes_of(tags),
        )  # fmt: skip


def _spans(document: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every span with the processes of its trace; deep nesting is walked, not recursed into."""
    left: list[tuple[Any, dict[str, Any]]] = [(document, {})]
    while left:
        value, processes = left.pop()
        if isinstance(value, list):
            left += [(one, processes) for one in reversed(value)]
        elif not isinstance(value, dict):
            continue
        elif "spanID" in value:
            yield value, processes
        elif "spans" in value:
            left.append((value["spans"], as_table(value.get("processes"))))
        else:
            left += [
                (value[key], processes) for key in ("data", "_source", "hits") if key in value
            ]


def _parent(span: dict[str, Any]) -> Any:
    """The parent; a span that follows from another has that one."""
    references = [r for r in as_tables(span.get("references")) if r.get("spanID")]
    own = [r for r in references if r.get("traceID", span.get("traceID")) == span.get("traceID")]
    waited = [r for r in own if r.get("refType") in ("CHILD_OF", None)]
    found = next(iter(waited or own), {})
    return found.get("spanID") or span.get("parentSpanID") or ""


def _tags(span: dict[str, Any]) -> dict[str, Any]:
    tags = span.get("tags")
    if isinstance(tags, dict):
        return tags
    listed = {str(tag.get("key")): _value(tag) for tag in as_tables(tags)}
    return {**as_table(span.get("tag")), **listed}


def _value(tag: dict[str, Any]) -> Any:
    """A tag's value, which protobuf's JSON keeps under the name of its type."""
    return tag.get("value", tag.get("vStr", tag.get("vBool")))
