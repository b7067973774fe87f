"""The shape of a manager of services: limits, shares and replicas from what was measured."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.decide.policy import Policy
from gnomon.decide.services.state import (
    PERCENTILES,
    Allocation,
    Floats,
    ServiceState,
    Window,
)
from gnomon.errors import InputError
from gnomon.graph.application import Application, Sla
from gnomon.registry import Registry


class ServicePolicy(Policy, frozen=True):
    """What every service should have, decided after each window of measurements.

    A manager keeps nothing in itself: what it wants to remember is the `memory` of its answer,
    which comes back with the next state. So a decision can be replayed from its log.
    """

    def check(self, app: Application) -> None:
        """Before a run: raises an InputError if it cannot manage this application.

        Wrappers pass it on.
        """
        if self.wrapped is not None:
            self.wrapped.check(app)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        """What to allocate now."""
        self._lacks("Python")

    def live(self, state: ServiceState) -> Allocation:
        """The same as in simulation."""
        return self.decide(state, np.random.default_rng(round(state.window.now_s * 1e3)))


#: The longest time that a parameter of a manager may be, in seconds.
LONGEST_S = 1e7

#: Managers by name: `static`, `hpa?target=0.7`. Others bring theirs by entry point.
service_policies: Registry[ServicePolicy] = Registry(
    "manager", group="gnomon.service_policies", package="gnomon.decide.services.policies"
)


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Refuses a parameter of a manager that is out of range, or no number.

    >>> check_range("hpa: target", float("nan"), 0.01, 1)
    Traceback (most recent call last):
        ...
    gnomon.errors.InputError: hpa: target is nan; it is 0.01 to 1
    """
    if not least <= value <= most:
        raise InputError(f"{name} is {value:g}", hint=f"it is {least:g} to {most:g}")


def hold(window: Window, reason: str = "", memory: object = None) -> Allocation:
    """Everything as it is."""
    return Allocation(
        np.full(len(window.cpu_limit), math.nan), np.full(len(window.replicas), -1, np.int64),
        reason=reason, memory=memory,
    )  # fmt: skip


def bounds(app: Application) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """The least and the greatest limit of a replica, and the most replicas, by service."""
    services = app.services.values()
    return (
        np.array([one.cpu_min for one in services]),
        np.array([one.cpu_max for one in services]),
        np.array([one.replicas_max for one in services], np.int64),
    )


def current_limit(app: Application, window: Window) -> Floats:
    """The limit of a replica now; where there is none, the greatest that it could get."""
    return np.where(np.isfinite(window.cpu_limit), window.cpu_limit, bounds(app)[1])


def at_cap(app: Application, window: Window) -> Allocation:
    """The most that managers may allocate: what is safe when nothing else is."""
    _, most, replicas = bounds(app)
    return Allocation(most, np.maximum(replicas, window.replicas), reason="all at their cap")


def worst_sla_ratio(app: Application, window: Window) -> float:
    """The greatest latency over its bound among the SLAs; NaN if none could be measured.

    The percentile is the nearest measured one that is not below the SLA's.
    """
    worst = math.nan
    for c, one in enumerate(app.classes.values()):
        if one.sla is None:
            continue
        ratio = float(window.class_ms[_measured(one.sla), c]) / one.sla.bound_ms
        if ratio > worst or math.isnan(worst):
            worst = ratio
    return worst


def is_violated(app: Application, window: Window) -> bool:
    """Whether an SLA was missed: by late requests, or because nothing was answered.

    Where nobody counted late requests, by the nearest percentile that is not below the SLA's.
    """
    for c, one in enumerate(app.classes.values()):
        if one.sla is None:
            continue
        late = window.class_violations[c]
        if late > 1.0 - one.sla.percentile / 100.0 + 1e-9:
            return True
        if math.isnan(late) and window.class_ms[_measured(one.sla), c] > one.sla.bound_ms:
            return True
        if window.class_errors[c] > 0 and np.isnan(window.class_ms[:, c]).all():
            return True
    return False


def _measured(sla: Sla) -> int:
    """The place of the nearest measured percentile that is not below the SLA's."""
    return min(bisect_left(PERCENTILES, sla.percentile), len(PERCENTILES) - 1)
