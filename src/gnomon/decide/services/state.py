"""What a manager of services sees and answers: one window of measurements, one allocation."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.graph.application import Application

Floats = NDArray[np.float64]

#: Percentiles of latency in every window, by class and by service: what the simulator counts.
PERCENTILES: tuple[float, ...] = _core.MESH_PERCENTILES


class Window(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What was measured in one control interval. NaN is what could not be measured.

    Attributes:
        now_s: The end of the interval, in seconds of the run.
        duration_s: Its length.
        cpu_limit: By service: cores of one replica; inf without a limit.
        replicas: By service: those that answer requests.
        usage: By service: cores used by all replicas, on average.
        usage_samples: The same in slices of the interval (100 ms where the source has them):
            one row a slice, one column a service.
        throttled: By service: share of CFS periods in which a replica was throttled.
        throttled_samples: The same in slices.
        queue: By service: requests that wait for a worker, on average.
        rate: By service: calls per second that it handled.
        service_ms: Exclusive latency at each service (its own queueing and work, without the
            calls below): a row a percentile of PERCENTILES.
        class_rate: By class: requests per second that arrived.
        class_ms: By class: end-to-end latency, a row a percentile of PERCENTILES.
        class_errors: By class: failed requests per second.
        class_violations: By class: share of requests over the bound of their SLA.
        foreign_cores: What other processes of the machine used, or other virtual machines.
    """

    now_s: float
    duration_s: float
    cpu_limit: Floats
    replicas: NDArray[np.int64]
    usage: Floats
    usage_samples: Floats
    throttled: Floats
    throttled_samples: Floats
    queue: Floats
    rate: Floats
    service_ms: Floats
    class_rate: Floats
    class_ms: Floats
    class_errors: Floats
    class_violations: Floats
    foreign_cores: float = 0.0

    @property
    def allocated(self) -> Floats:
        """Cores that each service may use, by its limits; what it uses where it has none."""
        limited: Floats = self.cpu_limit * np.maximum(self.replicas, 0)
        return np.where(np.isfinite(limited), limited, self.usage)

    @property
    def utilisation(self) -> Floats:
        """Usage over allocation, by service; NaN where nothing is allocated."""
        whole = self.allocated
        known: Floats = np.full(len(whole), np.nan)
        np.divide(self.usage, whole, out=known, where=whole > 0)
        return known


class ServiceState(msgspec.Struct, frozen=True, eq=False):
    """What `decide` gets.

    Attributes:
        app: The application; columns of a window are in the order of its services and classes.
        window: The last interval.
        memory: What the policy returned as `memory` last time; None at the start.
    """

    app: Application
    window: Window
    memory: Any = None


class Allocation(msgspec.Struct, frozen=True, eq=False):
    """What every service should have from now on.

    Attributes:
        cpu_limit: Cores of one replica, by service; inf: no limit; NaN: as it is.
        replicas: How many, by service; -1: as it is.
        cpu_request: Weight of one replica under contention, by service; NaN: as it is. None: all
            as they are.
        reason: Why, in a line.
        memory: What the policy wants to see again next time.
        reasons: Why, by service, where there is more to say.
    """

    cpu_limit: Floats
    replicas: NDArray[np.int64]
    cpu_request: Floats | None = None
    reason: str = ""
    memory: Any = None
    reasons: dict[str, str] = {}
