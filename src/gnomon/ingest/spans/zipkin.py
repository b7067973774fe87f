"""Zipkin's JSON, version 2: a list of spans, or of traces that are lists of spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gnomon.ingest.spans.json_lines import as_int, as_table
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

_KIND_OF = {"SERVER": SERVER, "CLIENT": CLIENT, "PRODUCER": PRODUCER, "CONSUMER": CONSUMER}


def is_zipkin(head: bytes) -> bool:
    """Whether a file begins as Zipkin's JSON does.

    >>> is_zipkin(b'[{"traceId": "1", "id": "1", "timestamp": 7, "localEndpoint": {}}]')
    True
    """
    if head.lstrip()[:1] not in (b"[", b"{") or b'"traceId"' not in head:
        return False
    marks = (b'"localEndpoint"', b'"parentId"', b'"timestamp"')
    return re.search(rb'"id"\s*:', head) is not None and any(mark in head for mark in marks)


def add_zipkin(rows: SpanRows, document: Any) -> None:
    """Add the spans of one JSON document."""
    for span in _spans(document):
        if "binaryAnnotations" in span:
            rows.counts["spans of Zipkin's version 1, which is not read"] += 1
            continue
        tags = as_table(span.get("tags"))
        remote = as_table(span.get("remoteEndpoint")).get("serviceName")
        if isinstance(remote, str) and remote:
            tags = {"peer.service": remote, **tags}
        kind = _KIND_OF.get(str(span.get("kind")).upper(), INTERNAL)
        service = as_table(span.get("localEndpoint")).get("serviceName")
        name = span.get("name")
        start_us, took_us = as_int(span.get("timestamp")), as_int(span.get("duration", 0))
        has_times = start_us is not None and took_us is not None
        rows.add(
            span.get("traceId"), span.get("id"), span.get("parentId"), service, name, kind,
            start_us * 1000 if start_us is not None else None,
            (start_us + took_us) * 1000 if has_times else None,  # type: ignore[operator]
            is_error="error" in tags and str(tags["error"]).lower() != "false",
            peer=peer_of(kind, str(service), str(name), tags), sizes=sizes_of(tags),
        )  # fmt: skip


def _spans(document: Any) -> Iterator[dict[str, Any]]:
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += reversed(value)
        elif isinstance(value, dict) and "traceId" in value:
            yield value
