"""The two step rules that Sinan was compared with (Zhang et al., ASPLOS 2021, section 5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policy import ServicePolicy, bounds, current_limit, service_policies
from gnomon.decide.services.state import Allocation, Floats, ServiceState


class _Step(NamedTuple):
    """Under this utilisation, change the limit by this factor."""

    below: float
    factor: float


def _step(state: ServiceState, steps: tuple[_Step, ...]) -> Allocation:
    window, now = state.window, current_limit(state.app, state.window)
    used = window.usage / np.maximum(now * window.replicas, 1e-9)
    factors: Floats = np.select([used < step.below for step in steps], [s.factor for s in steps])
    least, most, _ = bounds(state.app)
    return Allocation(
        np.clip(now * factors, least, most), np.full(len(now), -1, np.int64),
        reason=f"{np.count_nonzero(factors > 1)} up, {np.count_nonzero(factors < 1)} down",
    )  # fmt: skip


@service_policies.register("autoscale-opt")
class AutoScaleOpt(ServicePolicy, frozen=True):
    """AutoScaleOpt: thresholds that cloud providers recommend, at every decision.

    +10 % at 60 to 70 % utilisation, +30 % above; -10 % at 30 to 40 %, -30 % below.
    """

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        return _step(state, (_Step(0.3, 0.7), _Step(0.4, 0.9), _Step(0.6, 1.0), _Step(0.7, 1.1),
                             _Step(np.inf, 1.3)))  # fmt: skip


@service_policies.register("autoscale-cons")
class AutoScaleCons(ServicePolicy, frozen=True):
    """AutoScaleCons: conservative thresholds, tuned until no SLA was violated.

    +10 % at 30 to 50 % utilisation, +30 % above; -10 % below 10 %.
    """

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        return _step(state, (_Step(0.1, 0.9), _Step(0.3, 1.0), _Step(0.5, 1.1),
                             _Step(np.inf, 1.3)))  # fmt: skip
