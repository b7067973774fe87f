"""Applications, simulated request by request: quotas, workers, pools, queues, retries.

    sim = MeshSim(app, poisson_requests(app, [100.0] * 60, step_s=1.0, seed=1), seed=1)
    sim.advance(60 * SECOND_NS)
    seen = sim.observe()

`native/engine/mesh/mesh.hpp` states the rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError, SimulationError
from gnomon.graph.application import Application, Call, Milliseconds, as_work
from gnomon.units import MILLISECOND_NS, SECOND_NS

#: More events than this are a mistake, such as retries of retries.
MOST_EVENTS = 5_000_000_000
#: Requests of one run: what their columns take in memory is bounded.
MOST_REQUESTS = 500_000_000
STATUS = ("pending", "answered", "failed", "timed out")
_SHAPES = {"constant": 0, "exponential": 1, "lognormal": 2, "quantiles": 3}


class Arrivals(NamedTuple):
    """When requests arrive, in order, and of which class of the application each is."""

    time_ns: NDArray[np.int64]
    request_class: NDArray[np.int32]


class Spent(msgspec.Struct, frozen=True, eq=False):
    """Where the time of requests went over a run: a row for each class at each service.

    Attributes:
        request_class: Number of the class.
        service: Number of the service.
        calls: Calls that ended there.
        exclusive_ms: Mean latency there without the calls below; so `cpu_ms`, and `queued_ms`
            waiting for a worker.
        counts: Calls by bucket of exclusive latency; `bucket_ms` are the buckets' edges.
    """

    request_class: NDArray[np.int32]
    service: NDArray[np.int32]
    calls: NDArray[np.int64]
    exclusive_ms: NDArray[np.float64]
    cpu_ms: NDArray[np.float64]
    queued_ms: NDArray[np.float64]
    counts: NDArray[np.int32]
    bucket_ms: NDArray[np.float64]

    def quantile_ms(self, row: int, percentile: float) -> float:
        """A percentile of the exclusive latency of one row; NaN without calls."""
        below = np.cumsum(self.counts[row])
        if below[-1] == 0:
            return math.nan
        at = int(np.searchsorted(below, percentile / 100 * below[-1]))
        return float(self.bucket_ms[at] + self.bucket_ms[at + 1]) / 2


class MeshSim:
    """An application at work on given arrivals; the same seed gives the same answer.

    >>> from gnomon.graph.application import RequestClass, Service
    >>> app = Application("one", {"web": Service(workers=1)},
    ...                   {"get": RequestClass(Call("web", cpu_ms=2.0))})
    >>> sim = MeshSim(app, Arrivals(np.array([0, 1_000_000]), np.array([0, 0], np.int32)),
    ...               keep_requests=True)
    >>> sim.advance(SECOND_NS)
    >>> sim.request_latency_ns.tolist()
    [2000000, 3000000]
    """

    def __init__(
        self, app: Application, arrivals: Arrivals, *, seed: int = 0,
        keep_requests: bool = False, most_events: int = MOST_EVENTS,
    ) -> None:  # fmt: skip
        self.app, self.arrivals = app, arrivals
        self.now_ns = 0
        columns = _Columns(app)
        self._mesh = _core.Mesh(
            _core.MeshInput(
                **columns.build(), arrival_time=arrivals.time_ns,
                arrival_class=arrivals.request_class, network=columns.draw(app.network_ms),
                period=round(app.period_ms * MILLISECOND_NS),
                tick=round(app.tick_ms * MILLISECOND_NS), seed=seed,
                most_events=most_events, keeps_requests=keep_requests,
            )
        )  # fmt: skip

    def advance(self, until_ns: int) -> None:
        """Plays everything up to a time.

        Raises:
            SimulationError: More events than a run may have.
        """
        try:
            self._mesh.advance(until_ns)
        except ValueError as error:  # std::length_error
            raise SimulationError(
                f"{self.app.name}: {error}; do calls retry calls that retry?", at_ns=self.now_ns
            ) from None
        self.now_ns = max(self.now_ns, until_ns)

    def observe(self) -> _core.MeshObservation:
        """What happened since the last look, in ns."""
        return self._mesh.observe()

    def set_limit(self, service: int, cores: float) -> None:
        """Cores of each replica from now on; inf: no limit."""
        self._mesh.set_limit(service, cores)

    def set_request(self, service: int, weight: float) -> None:
        self._mesh.set_request(service, weight)

    def set_replicas(self, service: int, count: int) -> None:
        self._mesh.set_replicas(service, count)

    @property
    def events(self) -> int:
        return self._mesh.events

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return self._mesh.pending

    @property
    def request_latency_ns(self) -> NDArray[np.int64]:
        """Of every request in order of arrival, if kept; -1 while pending."""
        return self._mesh.request_latency()

    @property
    def request_status(self) -> NDArray[np.uint8]:
        """Places in `STATUS`, if kept."""
        return self._mesh.request_status()

    def spent(self) -> Spent:
        """Where the time went so far."""
        raw, edges = self._mesh.spent(), _core.mesh_buckets()
        each = np.maximum(raw.calls, 1) * float(MILLISECOND_NS)
        return Spent(
            raw.request_class, raw.service, raw.calls, raw.exclusive / each, raw.cpu / each,
            raw.queued / each, raw.counts.reshape(len(raw.calls), -1), edges / MILLISECOND_NS,
        )  # fmt: skip


def poisson_requests(
    app: Application, rates: ArrayLike, *, step_s: float = 1.0, seed: int = 0
) -> Arrivals:
    """Requests of a Poisson process whose rate (per second) changes from step to step.

    Classes are drawn by their shares.

    >>> from gnomon.graph.application import RequestClass, Service
    >>> app = Application("one", {"web": Service()}, {"get": RequestClass(Call("web"))})
    >>> 90 < len(poisson_requests(app, [10.0] * 10, seed=1).time_ns) < 110
    True
    """
    levels = np.asarray(rates, float).reshape(-1)
    if levels.size == 0 or not np.all(np.isfinite(levels) & (levels >= 0)) or not step_s > 0:
        raise InputError("rates are numbers of requests per second, 0 or more")
    expected = float(levels.sum()) * step_s
    if expected > MOST_REQUESTS:
        raise InputError(f"{expected:,.0f} requests are too many for one run",
                         hint="shorten the run or lower the rate")  # fmt: skip
    rng = np.random.default_rng([seed, 0x5EED])
    counts = rng.poisson(levels * step_s)
    step = np.repeat(np.arange(levels.size), counts)
    times = np.sort((step + rng.random(step.size)) * (step_s * SECOND_NS))
    shares = np.array(list(app.shares().values()))
    classes = np.searchsorted(np.cumsum(shares), rng.random(step.size), side="right")
    return Arrivals(times.astype(np.int64), np.minimum(classes, len(shares) - 1).astype(np.int32))


class _Columns:
    """An application as the columns of the simulator."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._draws: dict[tuple[Any, ...], int] = {}
        self._shape: list[int] = []
        self._mean: list[float] = []
        self._cv: list[float] = []
        self._points = [0]
        self._share: list[float] = []
        self._value: list[float] = []

    def draw(self, time: Milliseconds) -> int:
        """The number of a time that varies; equal ones share it."""
        work = as_work(time)
        key = (work.mean, work.cv, work.shape, tuple(sorted(work.quantiles.items())))
        if key in self._draws:
            return self._draws[key]
        if work.quantiles:
            shape = "quantiles"
            for percentile, value in sorted(work.quantiles.items()):
                self._share.append(percentile / 100)
                self._value.append(value * MILLISECOND_NS)
        elif work.mean == 0 or (work.shape == "lognormal" and work.cv == 0):
            shape = "constant"
        else:
            shape = work.shape
        self._shape.append(_SHAPES[shape])
        self._mean.append(work.mean * MILLISECOND_NS)
        self._cv.append(work.cv)
        self._points.append(len(self._share))
        return self._draws.setdefault(key, len(self._draws))

    def build(self) -> dict[str, NDArray[Any]]:
        columns = {**self._services(), **self._calls()}
        self.draw(self.app.network_ms)
        return columns | {
            "draw_shape": np.array(self._shape, np.uint8), "draw_mean": np.array(self._mean),
            "draw_cv": np.array(self._cv), "draw_points": np.array(self._points, np.int32),
            "share": np.array(self._share, float), "value": np.array(self._value, float),
        }  # fmt: skip

    def _services(self) -> dict[str, NDArray[Any]]:
        app = self.app
        services = list(app.services.values())
        number = {name: i for i, name in enumerate(app.services)}
        host = {name: i for i, name in enumerate(app.hosts)}
        hosts = list(app.hosts.values())
        pools = [
            (number[name], number[callee], size)
            for name, service in app.services.items()
            for callee, size in service.pools.items()
        ]
        limits = [math.inf if s.cpu_limit is None else s.cpu_limit for s in services]
        waiting = [-1 if s.queue_limit is None else s.queue_limit for s in services]
        return {
            "service_replicas": np.array([s.replicas for s in services], np.int32),
            "service_workers": np.array([s.workers for s in services], np.int32),
            "service_host": np.array([host.get(s.host, -1) for s in services], np.int32),
            "service_overhead": np.array([self.draw(s.overhead_ms) for s in services], np.int32),
            "service_queue_limit": np.array(waiting, np.int64),
            "service_startup": _ns([s.startup_s * 1e3 for s in services]),
            "service_is_blocking": np.array([s.blocking for s in services], np.uint8),
            "service_limit": np.array(limits, float),
            "service_request": np.array([s.cpu_request for s in services], float),
            "pool_service": np.array([pool[0] for pool in pools], np.int32),
            "pool_callee": np.array([pool[1] for pool in pools], np.int32),
            "pool_size": np.array([pool[2] for pool in pools], np.int32),
            "host_cores": np.array([h.cores for h in hosts], float),
            "host_noise_cores": np.array([h.noise_cores for h in hosts], float),
            "host_noise_on": np.array([h.noise_on_s * SECOND_NS for h in hosts], float),
            "host_noise_off": np.array([h.noise_off_s * SECOND_NS for h in hosts], float),
        }

    def _calls(self) -> dict[str, NDArray[Any]]:
        """Calls level by level, so that the calls of a stage stand side by side."""
        app = self.app
        number = {name: i for i, name in enumerate(app.services)}
        classes = list(app.classes.values())
        calls: list[Call] = [one.call for one in classes]
        call_stage, stage_call = [0], [len(calls)]
        for call in calls:  # grows while it is walked
            for stage in call.then:
                if stage:
                    calls += stage
                    stage_call.append(len(calls))
            call_stage.append(len(stage_call) - 1)
        bounds = [-1.0 if c.sla is None else c.sla.bound_ms for c in classes]
        until_all = [c.sla is not None and c.sla.until == "all" for c in classes]
        return {
            "call_service": np.array([number[c.service] for c in calls], np.int32),
            "call_cpu": np.array([self.draw(c.cpu_ms) for c in calls], np.int32),
            "call_wait": np.array([self.draw(c.wait_ms) for c in calls], np.int32),
            "call_stage": np.array(call_stage, np.int32),
            "call_retries": np.array([c.retries for c in calls], np.int32),
            "call_timeout": _ns([-1 if c.timeout_ms is None else c.timeout_ms for c in calls]),
            "call_is_queued": np.array([c.mode == "queue" for c in calls], np.uint8),
            "call_probability": np.array([c.probability for c in calls], float),
            "call_error_share": np.array([c.error_share for c in calls], float),
            "stage_call": np.array(stage_call, np.int32),
            "class_call": np.arange(len(classes), dtype=np.int32),
            "class_priority": np.array([c.priority for c in classes], np.int32),
            "class_timeout": _ns([-1 if c.timeout_ms is None else c.timeout_ms for c in classes]),
            "class_bound": _ns(bounds),
            "class_until_all": np.array(until_all, np.uint8),
            "class_correlation": np.array([c.correlation for c in classes], float),
        }


def _ns(milliseconds: Sequence[float]) -> NDArray[np.int64]:
    """-1 stays -1: none."""
    return np.array([-1 if t < 0 else round(t * MILLISECOND_NS) for t in milliseconds], np.int64)
