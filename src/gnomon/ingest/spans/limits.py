"""CPU limits to start from, for an application that was inferred from spans."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from gnomon.graph.application import Application, Call, as_work
from gnomon.ingest.spans.infer import Inferred

#: Fewer requests have no rate.
FEWEST = 10
#: A limit to start with: so many times the cores in use. Bundled applications have about as much.
_ROOM = 2.0


def with_limits(inferred: Inferred) -> tuple[Application, list[str]]:
    """The application with CPU limits to start from, and a note of them.

    Twice the cores that a service uses at the recorded rate; at least what its longest call needs
    to end within a CFS period. None where no CPU time is known, or no rate.
    """
    app = inferred.app
    used = {name: app.cpu_demand(name) for name in app.services}
    if sum(map(len, inferred.recorded.values())) < FEWEST or not any(used.values()):
        return app, []
    calls = [call for one in app.classes.values() for call in one.call.walk()]
    waits = {call.service for call in calls if as_work(call.wait_ms).average > 0}
    services = dict(app.services)
    for name, about in app.services.items():
        if not used[name] and name in waits:
            continue  # how much of that is CPU time is not known
        cores = max(_ROOM * used[name], min(_longest_ms(calls, name) / app.period_ms, 1.0))
        limit = max(math.ceil(100 * cores) / 100, about.cpu_min)
        services[name] = msgspec.structs.replace(
            about, cpu_limit=limit, cpu_max=max(about.cpu_max, _ROOM * limit)
        )
    note = (f"CPU limits are suggested, not recorded: {_ROOM:g} times the cores in use at the "
            "recorded rate. The play-back has none.")  # fmt: skip
    return msgspec.structs.replace(app, services=services), [note]


def _longest_ms(calls: Sequence[Call], service: str) -> float:
    """CPU time of the longest call that was recorded."""
    works = (as_work(call.cpu_ms) for call in calls if call.service == service)
    return max(max(work.quantiles.values(), default=work.mean) for work in works)
