"""Costs that an application file does not know: what the lab's processes add to a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.act.local import Reading
from gnomon.graph.application import Application, RequestClass, Work, as_work
from gnomon.sim.mesh import MeshSim, poisson_requests
from gnomon.units import MILLISECOND_NS, SECOND_NS

Floats = NDArray[np.float64]

#: Rounds of adjusting the network to the measured median.
_ROUNDS = 6
#: Where the measured latency is compared with the simulated one.
_PERCENTILES = (0.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 100.0)
#: Requests that a class needs before its tail says anything.
_FEWEST = 100


def calibrated(
    app: Application, readings: Sequence[Reading], latency_ms: Sequence[Sequence[Floats]], *,
    limit: float | None, service: str, rate: float,
) -> Application:  # fmt: skip
    """The application with costs as measured at one limit.

    - Overhead: CPU time that a call cost on average, less what its work draws.
    - Network: what makes the simulated median that of the client, one hop after the other.
    - Jitter: what the client saw in the tail beyond that (the scheduler, a hypervisor that takes
      the CPU away): time off the CPU at the first service.

    Args:
        app: As it ran in the lab.
        readings: Counters of each pass at this limit.
        latency_ms: Of each pass, by class: what the client saw.
        limit: Of the service; so it is simulated.
    """
    # Medians over the passes: one that was disturbed must not count.
    each_ms = [one.usage_ns / np.maximum(one.arrived, 1) / MILLISECOND_NS for one in readings]
    measured_ms = np.median(each_ms, axis=0)
    services = {}
    for s, (name, about) in enumerate(app.services.items()):
        overhead_ms = round(max(float(measured_ms[s]) - _drawn_ms(app, name), 0.0), 4)
        services[name] = msgspec.structs.replace(about, overhead_ms=overhead_ms)
    cap = msgspec.structs.replace(services[service], cpu_limit=limit)
    tuned = msgspec.structs.replace(app, services=services | {service: cap}, network_ms=0.0)
    median_ms = float(np.median([np.median(np.concatenate(one)) for one in latency_ms]))
    tuned = _with_network(tuned, median_ms, rate)
    tuned = _with_jitter(tuned, latency_ms, rate)
    # Jitter moves the median a little: the network gives that back.
    return _with_network(tuned, median_ms, rate)


def _with_network(app: Application, median_ms: float, rate: float) -> Application:
    """The same with the network that gives this median latency."""
    network_ms = as_work(app.network_ms).average
    for _ in range(_ROUNDS):
        app = msgspec.structs.replace(app, network_ms=round(network_ms, 4))
        missing_ms = median_ms - float(np.median(np.concatenate(_simulated(app, rate))))
        network_ms = max(network_ms + missing_ms / _hops(app), 0.0)
    return app


def _with_jitter(
    app: Application, latency_ms: Sequence[Sequence[Floats]], rate: float
) -> Application:
    """The same with the tail that the client saw, over all classes and the median pass.

    A time that is drawn by itself does not add up percentile by percentile, so it is adjusted
    until the simulated percentiles are the measured ones.
    """
    passes = [np.concatenate(one) for one in latency_ms]
    full = [one for one in passes if len(one) >= _FEWEST]
    if not full:
        return app
    measured = np.median([np.percentile(one, _PERCENTILES) for one in full], axis=0)
    jitter_ms = np.zeros(len(_PERCENTILES))
    tuned = app
    for _ in range(_ROUNDS):
        simulated = np.percentile(np.concatenate(_simulated(tuned, rate)), _PERCENTILES)
        jitter_ms = np.maximum.accumulate(np.maximum(jitter_ms + measured - simulated, 0.0))
        jitter = Work(quantiles=dict(zip(_PERCENTILES, jitter_ms.round(4).tolist())))
        classes = {name: _waiting(one, jitter) for name, one in app.classes.items()}
        tuned = msgspec.structs.replace(app, classes=classes)
    return tuned


def _waiting(one: RequestClass, jitter: Work) -> RequestClass:
    """The class with a time off the CPU at its first service, unless it has one already."""
    if as_work(one.call.wait_ms) != Work():
        return one
    return msgspec.structs.replace(one, call=msgspec.structs.replace(one.call, wait_ms=jitter))


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


def _simulated(app: Application, rate: float) -> list[Floats]:
    """Latency by class, in ms."""
    arrivals = poisson_requests(app, [rate] * 60, seed=7)
    sim = MeshSim(app, arrivals, seed=7, keep_requests=True)
    sim.advance(90 * SECOND_NS)
    latency = sim.request_latency_ns
    return [
        latency[(latency >= 0) & (arrivals.request_class == c)] / MILLISECOND_NS
        for c in range(len(app.classes))
    ]
