"""Own times of a service from spans: a visit's time without the calls that it waited for."""

from __future__ import annotations

import os
from collections import Counter

from gnomon.errors import InputError
from gnomon.ingest.samples.samples import SampleRows, Samples
from gnomon.ingest.spans.calls import find_visits
from gnomon.ingest.spans.read import read_spans

_LISTED = 8


def read_span_times(path: str | os.PathLike[str], service: str | None = None) -> Samples:
    """Own times of one service, by operation; of the one with most visits unless it is named."""
    where = os.fspath(path)
    spans = read_spans(path)
    traced = set(spans.services)  # stores and queues are known from their callers' spans alone
    visits = [visit for visit in find_visits(spans).visits if visit.service in traced]
    seen = Counter(visit.service for visit in visits)
    listed = ", ".join(f"{name} ({count:,})" for name, count in seen.most_common(_LISTED))
    more = f" and {len(seen) - _LISTED} more" if len(seen) > _LISTED else ""
    chosen = service or seen.most_common(1)[0][0]
    if chosen not in seen:
        hint = f"there are {listed}{more}"
        raise InputError(f"there is no service {chosen!r}", where=where, hint=hint)
    rows = SampleRows(where)
    for visit in visits:
        if visit.service != chosen:
            continue
        if visit.is_error:
            rows.left_out["requests that failed"] += 1
        else:
            rows.add(visit.operation, float(visit.exclusive_ns))
    rows.notes.append(
        f"Own times of {chosen}: without calls of other services, with waits for locks, disks and "
        "cores inside it."
    )
    if len(seen) > 1 and service is None:
        rows.notes.append(f"Services by requests: {listed}{more}; --service chooses another.")
    return rows.build(is_latency=False)
