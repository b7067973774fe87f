"""Spans in columns, put together from what any tracer exports.

Readers add rows by the tracer's own ids. Building resolves them: parents come before children,
clocks that disagree are aligned, and whatever is dropped or repaired is counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.spans.json_lines import as_int

Ints = NDArray[np.int64]

KINDS = ("internal", "server", "client", "producer", "consumer")
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(5)
#: Later than this (the year 2116) or longer than this is no time of a span.
_LATEST_NS, _LONGEST_NS = 1 << 62, 7 * 86_400 * 10**9
#: Sizes of messages: OpenTelemetry's names, new and old, then Envoy's. A larger one is a mistake.
_REQUEST_SIZE = (
    "http.request.body.size", "http.request.size", "http.request_content_length",
    "http.request_content_length_uncompressed", "messaging.message.body.size",
    "messaging.message.payload_size_bytes", "messaging.message_payload_size_bytes", "request_size",
)  # fmt: skip
_RESPONSE_SIZE = (
    "http.response.body.size", "http.response.size", "http.response_content_length",
    "http.response_content_length_uncompressed", "response_size",
)  # fmt: skip
_MOST_BYTES = 1 << 40
#: Stores by what spans are called where no attribute says it.
_STORE = re.compile(
    r"(?:^|[^a-z])(mongo(?=db|[^a-z]|$)|redis|memcached?|mysql|postgres|cassandra|elasticsearch|"
    r"rabbitmq|kafka|sql(?=[._ ]))|^(?:select|insert|update|delete) [a-z_]", re.IGNORECASE,
)  # fmt: skip


class Spans(msgspec.Struct, frozen=True, eq=False):
    """Spans of traces. Rows are sorted so that a parent comes before its children.

    Attributes:
        trace: Which trace a span is of, from 0.
        parent: The row of its parent; -1 at the top.
        is_orphan: It names a parent that was not recorded.
        service: An index of `services`.
        operation: An index of `operations`.
        kind: An index of KINDS.
        start_ns: Since 1970, as far as the tracer knew.
        end_ns: When it ended.
        is_error: Whether it is marked as failed.
        peer: An index of `peers`: the store, queue or service that a call went to; 0, which is
            empty, where nothing says so.
        request_bytes: Size of what was asked with; 0 where nothing says so.
        response_bytes: Size of the answer.
        counts: What was dropped or repaired, and how often.

    >>> rows = SpanRows()
    >>> rows.add("t", "1", "", "web", "GET /", SERVER, 1_000, 9_000)
    >>> rows.add("t", "2", "1", "cart", "get", SERVER, 500, 2_500)  # its clock is behind
    >>> spans = rows.build("traces.json")
    >>> spans.parent.tolist(), spans.start_ns.tolist(), spans.counts
    ([-1, 0], [1000, 1000], {'spans moved, for clocks that disagree': 1})
    """

    trace: Ints
    parent: Ints
    is_orphan: NDArray[np.bool_]
    service: Ints
    operation: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    is_error: NDArray[np.bool_]
    peer: Ints
    request_bytes: Ints
    response_bytes: Ints
    services: tuple[str, ...]
    operations: tuple[str, ...]
    peers: tuple[str, ...]
    counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def traces(self) -> int:
        return int(self.trace[-1]) + 1 if len(self) else 0


class _Row(msgspec.Struct, gc=False):
    trace: str
    id: str
    parent_id: str
    service: str
    operation: str
    kind: int
    start_ns: int
    end_ns: int
    is_error: bool
    peer: str
    sizes: tuple[int, int]
    parent: int = -1
    depth: int = -1


class SpanRows:
    """Spans as they are read, by the tracer's own ids."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.counts: Counter[str] = Counter()

    def add(
        self, trace: Any, span: Any, parent: Any, service: Any, operation: Any, kind: int,
        start_ns: int | None, end_ns: int | None, *, is_error: bool = False, peer: str = "",
        sizes: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        """One span; what cannot be one is counted instead."""
        trace_id, span_id, parent_id = _plain_id(trace), _plain_id(span), _plain_id(parent)
        if not trace_id or not span_id:
            self.counts["spans without an id"] += 1
        elif start_ns is None or end_ns is None:
            self.counts["spans without times"] += 1
        elif not 0 <= start_ns < _LATEST_NS or not end_ns < start_ns + _LONGEST_NS:
            self.counts["spans with times that cannot be"] += 1
        else:
            if end_ns < start_ns:
                self.counts["spans that ended before they began, taken as instants"] += 1
                end_ns = start_ns
            if not isinstance(service, str) or not service.strip():
                self.counts["spans without a service"] += 1
                service = "unknown"
            name = operation if isinstance(operation, str) else ""
            row = _Row(trace_id, span_id, parent_id, _plain_name(service), name[:200], kind,
                       start_ns, end_ns, is_error, _plain_name(peer) if peer else "",
                       sizes)  # fmt: skip
            self.rows.append(row)

    def build(self, where: str) -> Spans:
        """All of them in columns."""
        if not self.rows:
            why = "; ".join(f"{count:,} {what}" for what, count in self.counts.items())
            raise InputError("there is no span in it", where=where, hint=why or None)
        rows = self._resolve()
        order = sorted(range(len(rows)), key=lambda i: _order(rows[i]))
        place = np.empty(len(rows) + 1, dtype=np.int64)
        place[order] = np.arange(len(rows))
        place[-1] = -1
        rows_in_order = [rows[i] for i in order]
        parent = place[[row.parent for row in rows_in_order]]
        start_ns, end_ns, moved = _align_clocks(rows_in_order, parent.tolist())
        if moved:
            self.counts["spans moved, for clocks that disagree"] += moved
        codes = [_codes([getattr(row, field) for row in rows_in_order], first)
                 for field, first in (("trace", ()), ("service", ()), ("operation", ()),
                                      ("peer", ("",)))]  # fmt: skip
        (trace, _), (service, services), (operation, operations), (peer, peers) = codes
        is_top = parent < 0
        sizes = np.array([row.sizes for row in rows_in_order], dtype=np.int64)
        return Spans(
            trace=trace, parent=parent,
            is_orphan=is_top & np.array([row.parent_id != "" for row in rows_in_order]),
            service=service, operation=operation,
            kind=np.array([row.kind for row in rows_in_order], dtype=np.int64),
            start_ns=start_ns, end_ns=end_ns,
            is_error=np.array([row.is_error for row in rows_in_order]), peer=peer,
            request_bytes=sizes[:, 0], response_bytes=sizes[:, 1],
            services=services, operations=operations, peers=peers,
            counts={what: count for what, count in self.counts.items() if count},
        )  # fmt: skip

    def _resolve(self) -> list[_Row]:
        """Rows with the index of their parent and their depth; repeated ones are left out."""
        by_id: dict[tuple[str, str], list[int]] = {}
        rows: list[_Row] = []
        for row in self.rows:
            same = by_id.setdefault((row.trace, row.id), [])
            # Zipkin gives both ends of a call one id: they are two spans, of two services.
            if any(_is_repeat(row, rows[i]) for i in same):
                self.counts["spans that repeat another"] += 1
                continue
            same.append(len(rows))
            rows.append(row)
        for i, row in enumerate(rows):
            shared = by_id[row.trace, row.id]
            client = next((j for j in shared if rows[j].kind == CLIENT), None)
            if row.kind == SERVER and client is not None and client != i:
                row.parent = client
                row.parent_id = row.id
            elif found := by_id.get((row.trace, row.parent_id)) if row.parent_id else None:
                own = [
                    j for j in found if rows[j].service == row.service and rows[j].kind != CLIENT
                ]
                row.parent = (own or [j for j in found if rows[j].kind != CLIENT] or found)[0]
        for i in range(len(rows)):
            self._settle_depth(rows, i)
        return rows

    def _settle_depth(self, rows: list[_Row], i: int) -> None:
        path, at = [], i
        while at >= 0 and rows[at].depth == -1:
            rows[at].depth = -2
            path.append(at)
            at = rows[at].parent
        if at >= 0 and rows[at].depth == -2:  # the way up came back: a span is its own ancestor
            self.counts["spans that are their own ancestors, taken as tops of partial traces"] += 1
            rows[path[-1]].parent = at = -1
        depth = rows[at].depth if at >= 0 else -1
        for one in reversed(path):
            depth += 1
            rows[one].depth = depth


def sizes_of(attributes: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of the request and of the answer; 0 where nothing says so.

    >>> sizes_of({"http.request_content_length": "512", "response_size": 2048})
    (512, 2048)
    """

    def first(names: tuple[str, ...]) -> int:
        found = (as_int(attributes[name]) for name in names if name in attributes)
        return next((size for size in found if size is not None and 0 < size < _MOST_BYTES), 0)

    return first(_REQUEST_SIZE), first(_RESPONSE_SIZE)


def peer_of(kind: int, service: str, operation: str, attributes: Mapping[str, Any]) -> str:
    """What a call went to: a store, a queue or another service; empty where nothing says so.

    >>> peer_of(CLIENT, "cart", "GET", {"db.system": "redis", "server.address": "10.0.0.7"})
    'cart-redis'
    >>> peer_of(CLIENT, "cart", "pay", {"peer.service": "payment"})
    'payment'
    """

    def first(*names: str) -> str:
        return next((str(attributes[n]) for n in names if attributes.get(n) not in (None, "")), "")

    store = first("db.system.name", "db.system", "db.type")
    queue = first("messaging.system")
    if kind in (SERVER, CONSUMER):  # a server's peer is who called it
        return ""
    if named := first("peer.service", "net.peer.service"):
        return named
    if queue and kind != INTERNAL:
        topic = first(
            "messaging.destination.name", "messaging.destination", "message_bus.destination"
        )
        return f"{queue}-{topic}" if topic else queue
    host = first("server.address", "net.peer.name", "peer.hostname", "net.sock.peer.name")
    host = host.partition(":")[0]
    is_named = re.search("[a-z]", host, re.IGNORECASE) and host.lower() != "localhost"
    if store:
        if is_named:
            return host
        name = first("db.namespace", "db.name", "db.instance")
        return f"{store}-{name}" if name else f"{service}-{store}"
    if kind == CLIENT and is_named:
        return host
    if kind in (CLIENT, INTERNAL) and (match := _STORE.search(operation)) is not None:
        return f"{service}-{(match[1] or 'sql').lower()}"
    return ""


def _plain_id(id: Any) -> str:
    """Without case and leading zeros: the same trace is written with 64 and with 128 bits."""
    if isinstance(id, int) and not isinstance(id, bool):
        return f"{id:x}"
    return id.strip().lower().lstrip("0") if isinstance(id, str) else ""


def _plain_name(name: str) -> str:
    return re.sub(r'[\x00-\x20"\\/\x7f]+', "_", name.strip())[:100]


def _is_repeat(row: _Row, other: _Row) -> bool:
    return row.kind == other.kind or not {row.kind, other.kind} <= {CLIENT, SERVER}


def _order(row: _Row) -> tuple[str, int, int, str]:
    return row.trace, row.depth, row.start_ns, row.id


def _codes(values: list[str], first: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    known = {value: code for code, value in enumerate(first)}
    codes = [known.setdefault(value, len(known)) for value in values]
    return np.array(codes, dtype=np.int64), tuple(known)


def _align_clocks(rows: list[_Row], parent: list[int]) -> tuple[Ints, Ints, int]:
    """Times on the clock of each trace's top, and how many spans were moved.

    A call cannot begin before it was made, and where the caller's own span of the call is known,
    it cannot end after that. The callee is then moved into the middle, as its whole subtree on the
    same clock is. A span that ends late only may be work that nobody waits for: it stays.
    """
    start = [row.start_ns for row in rows]
    end = [row.end_ns for row in rows]
    shift, moved = [0] * len(rows), 0
    for i, row in enumerate(rows):
        if (above := parent[i]) < 0:
            continue
        if row.service == rows[above].service:
            shift[i] = shift[above]
            start[i] += shift[i]
            end[i] += shift[i]
            continue
        slack = (end[above] - start[above]) - (end[i] - start[i])
        is_waited = rows[above].kind == CLIENT and row.kind in (SERVER, INTERNAL)
        if start[i] < start[above] or (is_waited and slack >= 0 and end[i] > end[above]):
            wanted = start[above]
            if slack >= 0 and row.kind != CONSUMER and is_waited:
                wanted += slack // 2
            shift[i] = wanted - start[i]
            start[i] += shift[i]
            end[i] += shift[i]
            moved += 1
    return np.array(start, dtype=np.int64), np.array(end, dtype=np.int64), moved
