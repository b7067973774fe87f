"""Spans to calls of services: which service handled what for whom, and how long it was its own.

A call is one visit of a service. Spans inside a service belong to the visit that they are in. The
caller's span of a call and the callee's are one call; the difference of their lengths is time on
the network. A call of a store, a queue or a service that was not traced is known from the caller's
span only.
"""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from gnomon.ingest.spans.spans import CLIENT, CONSUMER, INTERNAL, PRODUCER, SERVER, Spans

#: What a path names and a class of requests does not: numbers, UUIDs, long hex.
_KEY = re.compile(
    r"(?<=[/=:])(?:\d+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|[0-9a-f]{16,})(?=[/?&.:]|$)",
    re.IGNORECASE,
)
#: A caller's span often ends a little before that of its last call. So much of a call after its
#: caller's end is no accident: nobody waited for it.
_LATE_SHARE = 0.2


class Visit(msgspec.Struct, gc=False):
    """A service at work on one call.

    Attributes:
        parent: The index of the visit that made the call; -1 for a request of a client.
        start_ns: When the service began.
        end_ns: When it was done.
        call_start_ns: When the caller made the call, by its own span where it has one.
        call_end_ns: When the caller had the answer.
        has_pair: Both ends of the call were traced.
        is_queued: The caller did not wait for the end.
        is_error: It failed, and none of the calls that it made and waited for did.
        is_failed: It failed, whatever the cause.
        sent_ns: When the caller's own span of the call began, also where the caller did not wait
            for its end; `call_start_ns` where it has none.
        request_bytes: Of the call; 0 where not known.
        response_bytes: Of the answer.
        exclusive_ns: Time that was neither in calls that it waited for nor on the network.
    """

    parent: int
    service: str
    operation: str
    start_ns: int
    end_ns: int
    call_start_ns: int
    call_end_ns: int
    has_pair: bool = False
    is_queued: bool = False
    is_error: bool = False
    is_failed: bool = False
    exclusive_ns: int = 0
    sent_ns: int = 0
    request_bytes: int = 0
    response_bytes: int = 0

    @property
    def network_ns(self) -> int:
        """What the call took longer at the caller than at the callee."""
        return (self.call_end_ns - self.call_start_ns) - (self.end_ns - self.start_ns)


class Visits(msgspec.Struct):
    """Visits of services, callers before callees, and what was left out or guessed."""

    visits: list[Visit]
    counts: dict[str, int]


def find_visits(spans: Spans) -> Visits:
    """The visits of services that spans imply."""
    counts: Counter[str] = Counter(spans.counts)
    is_kept = _kept(spans, counts)
    kind, parent, peer = spans.kind.tolist(), spans.parent.tolist(), spans.peer.tolist()
    start_ns, end_ns = spans.start_ns.tolist(), spans.end_ns.tolist()
    asked, answered = spans.request_bytes.tolist(), spans.response_bytes.tolist()
    operations = [_KEY.sub("{id}", name) for name in spans.operations]
    is_first = _first_of_visits(spans.service.tolist(), parent, kind)
    callees = Counter(above for above, first in zip(parent, is_first) if first)
    leads_out = _leads_out(parent, is_first)
    visits: list[Visit] = []
    visit_of = [-1] * len(spans)
    for i, above in enumerate(parent):
        if not is_kept[i]:
            continue
        call, has_pair = (start_ns[i], end_ns[i]), False
        if is_first[i]:
            name = spans.services[spans.service[i]]
            # The caller's own span of the call: inside its visit, and with no other callee.
            if (
                above >= 0
                and callees[above] == 1
                and (not is_first[above] or kind[above] in (CLIENT, PRODUCER))
            ):
                call, has_pair = (start_ns[above], end_ns[above]), True
        else:
            name = spans.peers[peer[i]]
            if not name or leads_out[i] or visits[visit_of[above]].service == name:
                visit_of[i] = visit_of[above]
                continue
            if kind[i] == INTERNAL:
                counts["calls of stores that are known by the name of a span only"] += 1
        visit = Visit(
            parent=visit_of[above] if above >= 0 else -1, service=name,
            operation=operations[spans.operation[i]], start_ns=start_ns[i], end_ns=end_ns[i],
            call_start_ns=call[0], call_end_ns=call[1], has_pair=has_pair,
            is_queued=kind[i] == CONSUMER or (above >= 0 and kind[above] == PRODUCER),
            is_error=bool(spans.is_error[i]), is_failed=bool(spans.is_error[i]), sent_ns=call[0],
            request_bytes=asked[i] or (asked[above] if has_pair else 0),
            response_bytes=answered[i] or (answered[above] if has_pair else 0),
        )  # fmt: skip
        visit_of[i] = len(visits)
        visits.append(visit)
    _settle(visits, counts)
    return Visits(visits, {what: count for what, count in counts.items() if count})


def _kept(spans: Spans, counts: Counter[str]) -> list[bool]:
    """Which spans are below the top of a request that can be told.

    A trace without its first span begins at the earliest of those whose parent is missing: what is
    in front (a proxy, a mobile app) was not traced. Other pieces of a trace cannot be placed.
    """
    tops: dict[int, list[int]] = {}
    for i in (spans.parent < 0).nonzero()[0].tolist():
        tops.setdefault(int(spans.trace[i]), []).append(i)
    is_kept = [False] * len(spans)
    for rows in tops.values():
        roots = [i for i in rows if not spans.is_orphan[i]]
        if not roots:
            roots = [min(rows, key=lambda i: int(spans.start_ns[i]))]
            counts["traces without their first span, begun at the earliest that is there"] += 1
        for i in roots:
            is_kept[i] = True
    for i, above in enumerate(spans.parent.tolist()):
        if above >= 0:
            is_kept[i] = is_kept[above]
    if left := is_kept.count(False):
        counts["spans of parts of traces whose caller is missing, left out"] += left
    return is_kept


def _first_of_visits(service: list[int], parent: list[int], kind: list[int]) -> list[bool]:
    """Which spans are the first of a service in a call: of another service than their parents.

    Where a service calls itself, the callee's end is a server below a client.
    """
    ends = ((CLIENT, SERVER), (PRODUCER, CONSUMER))
    return [
        above < 0 or service[i] != service[above] or (kind[above], kind[i]) in ends
        for i, above in enumerate(parent)
    ]


def _leads_out(parent: list[int], is_first: list[bool]) -> list[bool]:
    """Which spans have the begin of another visit somewhere below."""
    found = [False] * len(parent)
    for i in range(len(parent) - 1, -1, -1):
        if parent[i] >= 0 and (found[i] or is_first[i]):
            found[parent[i]] = True
    return found


def _settle(visits: list[Visit], counts: Counter[str]) -> None:
    """Which calls are not waited for, errors where they arise, and exclusive time."""
    below: list[list[int]] = [[] for _ in visits]
    for i, visit in enumerate(visits):
        if visit.parent >= 0:
            below[visit.parent].append(i)
            caller = visits[visit.parent]
            late_ns = visit.call_end_ns - caller.end_ns
            visit.is_queued |= late_ns > _LATE_SHARE * (visit.call_end_ns - visit.call_start_ns)
            if (
                visit.has_pair
                and visit.end_ns - visit.start_ns > visit.call_end_ns - visit.call_start_ns
            ):
                if not visit.is_queued:
                    counts["calls that took longer at the callee than at the caller"] += 1
                visit.has_pair = False
                visit.call_start_ns, visit.call_end_ns = visit.start_ns, visit.end_ns
    for visit, calls in zip(visits, below):
        waited = [visits[i] for i in calls if not visits[i].is_queued]
        visit.is_error &= not any(one.is_error for one in waited)
        spans = sorted((one.call_start_ns, one.call_end_ns) for one in waited)
        covered, reached = 0, visit.start_ns
        for begin, end in spans:
            begin, end = max(begin, reached), min(end, visit.end_ns)
            if end > begin:
                covered += end - begin
                reached = end
        visit.exclusive_ns = visit.end_ns - visit.start_ns - covered
