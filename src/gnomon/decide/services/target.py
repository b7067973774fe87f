"""What a manager works on: the simulator, the process lab, or a Kubernetes cluster."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.services.state import PERCENTILES, Allocation, Window
from gnomon.graph.application import Application
from gnomon.sim.mesh import Arrivals, MeshSim
from gnomon.units import MILLISECOND_NS, SECOND_NS


class Target(Protocol):
    """Something that can be measured and changed."""

    app: Application

    def observe(self, duration_s: float) -> Window:
        """Waits for so long, then reports that window."""

    def apply(self, allocation: Allocation) -> None:
        """Changes what differs; NaN and -1 stay as they are."""


class LatencyCounts(NamedTuple):
    """Calls so far, by service, class and bucket of their exclusive latency.

    Attributes:
        counts: Services x classes x buckets.
        edges_ms: Of the buckets; one more than there are buckets.
    """

    counts: NDArray[np.int64]
    edges_ms: NDArray[np.float64]


class CountingTarget(Target, Protocol):
    """A target that knows how long the calls of each class took at each service."""

    def latency_counts(self) -> LatencyCounts:
        """Since the start."""


class SimTarget:
    """An application in the simulator.

    >>> from gnomon.graph.application import Call, RequestClass, Service
    >>> from gnomon.sim.mesh import poisson_requests
    >>> app = Application("one", {"web": Service(cpu_limit=0.5)},
    ...                   {"get": RequestClass(Call("web", cpu_ms=2.0))})
    >>> target = SimTarget(app, poisson_requests(app, [100.0] * 10, seed=1), seed=1)
    >>> window = target.observe(10.0)
    >>> round(float(window.usage[0]), 1), round(float(window.utilisation[0]), 1)
    (0.2, 0.4)
    """

    def __init__(
        self,
        app: Application,
        arrivals: Arrivals,
        *,
        seed: int = 0,
        most_events: int | None = None,
    ) -> None:
        self.app = app
        bounded = {} if most_events is None else {"most_events": most_events}
        self.sim = MeshSim(app, arrivals, seed=seed, keep_requests=True, **bounded)
        services = app.services.values()
        self._limit = np.array(
            [math.inf if one.cpu_limit is None else one.cpu_limit for one in services], float
        )
        self._wanted = np.array([one.replicas for one in services], np.int64)

    def observe(self, duration_s: float) -> Window:
        until_ns = self.sim.now_ns + round(duration_s * SECOND_NS)
        self.sim.advance(until_ns)
        return window_of(
            self.sim.observe(), self.app, until_ns / SECOND_NS, duration_s, self._limit
        )

    def apply(self, allocation: Allocation) -> None:
        for s, (cores, count) in enumerate(zip(allocation.cpu_limit, allocation.replicas)):
            if not math.isnan(cores) and cores != self._limit[s]:
                self._limit[s] = cores
                self.sim.set_limit(s, float(cores))
            if count >= 0 and count != self._wanted[s]:
                self._wanted[s] = count
                self.sim.set_replicas(s, int(count))
        if allocation.cpu_request is not None:
            for s, weight in enumerate(allocation.cpu_request):
                if not math.isnan(weight):
                    self.sim.set_request(s, float(weight))

    def latency_counts(self) -> LatencyCounts:
        spent = self.sim.spent()
        counts = np.zeros(
            (len(self.app.services), len(self.app.classes), spent.counts.shape[1]), np.int64
        )
        counts[spent.service, spent.request_class] = spent.counts
        return LatencyCounts(counts, spent.bucket_ms)


def window_of(
    seen: _core.MeshObservation, app: Application, now_s: float, duration_s: float,
    limit: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Window:  # fmt: skip
    """What the simulator saw, in the units of managers."""
    services, classes = len(app.services), len(app.classes)
    length_ns = duration_s * SECOND_NS
    slice_ns = min(app.period_ms * MILLISECOND_NS, length_ns)
    periods = np.maximum(seen.periods, 1)
    per_slice = np.maximum(seen.replicas, 1)
    arrived = np.maximum(seen.answered + seen.failed, 1)
    return Window(
        now_s=now_s, duration_s=duration_s, cpu_limit=limit.copy(),
        replicas=seen.replicas.copy(), usage=seen.used / length_ns,
        usage_samples=seen.used_slices.reshape(-1, services) / slice_ns,
        throttled=np.minimum(seen.throttled / periods, 1.0),
        throttled_samples=np.minimum(seen.throttled_slices.reshape(-1, services) / per_slice, 1.0),
        queue=seen.queue / length_ns, rate=seen.calls / duration_s,
        service_ms=seen.service_latency.reshape(len(PERCENTILES), services) / MILLISECOND_NS,
        class_rate=seen.arrived / duration_s,
        class_ms=seen.class_latency.reshape(len(PERCENTILES), classes) / MILLISECOND_NS,
        class_errors=seen.failed / duration_s, class_violations=seen.violated / arrived,
    )  # fmt: skip
