"""Costs that an application file does not know: what the lab's processes add to a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gnomon.act.local import Reading
from gnomon.graph.application import Application, as_work
from gnomon.sim.mesh import MeshSim, poisson_requests
from gnomon.units import MILLISECOND_NS, SECOND_NS

#: Rounds of adjusting the network to the measured median.
_ROUNDS = 6


def calibrated(
    app: Application, readings: Sequence[Reading], limit: float | None, service: str, rate: float,
    p50_ms: float,
) -> Application:  # fmt: skip
    """The application with overheads and network time as measured at one limit.

    Overhead: CPU time that a call cost on average, less what its work draws. Network: what makes
    the simulated median that of the client, one hop after the other.
    """
    used_ms = np.sum([one.usage_ns for one in readings], axis=0) / MILLISECOND_NS
    calls = np.sum([one.arrived for one in readings], axis=0)
    services = {}
    for s, (name, about) in enumerate(app.services.items()):
        drawn_ms = _drawn_ms(app, name)
        measured_ms = used_ms[s] / calls[s] if calls[s] else drawn_ms
        overhead_ms = round(max(float(measured_ms - drawn_ms), 0.0), 4)
        services[name] = msgspec.structs.replace(about, overhead_ms=overhead_ms)
    tuned = msgspec.structs.replace(app, services=services, network_ms=0.0)
    network_ms = 0.0
    for _ in range(_ROUNDS):
        tuned = msgspec.structs.replace(tuned, network_ms=round(network_ms, 4))
        hops = _hops(app)
        network_ms = max(
            network_ms + (p50_ms - _median_ms(tuned, service, limit, rate)) / hops, 0.0
        )
    return tuned


def _drawn_ms(app: Application, service: str) -> float:
    """What the file says that a call of a service costs on average."""
    visits = sum(
        app.shares()[name] * found.get(service, 0.0) for name, found in app.visits().items()
    )
    overhead = as_work(app.services[service].overhead_ms).average
    return app.cpu_demand(service, 1000.0) / visits - overhead if visits else 0.0


def _hops(app: Application) -> float:
    """Crossings of the network on the way of a typical request, there and back."""
    shares = app.shares()
    return 2 * sum(shares[name] * sum(found.values()) for name, found in app.visits().items())


def _median_ms(app: Application, service: str, limit: float | None, rate: float) -> float:
    sim = MeshSim(app, poisson_requests(app, [rate] * 60, seed=7), seed=7, keep_requests=True)
    if limit is not None:
        sim.set_limit(list(app.services).index(service), limit)
    sim.advance(90 * SECOND_NS)
    latency = sim.request_latency_ns
    return float(np.median(latency[latency >= 0])) / MILLISECOND_NS
