"""No manager at all."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policy import ServicePolicy, at_cap, hold, service_policies
from gnomon.decide.services.state import Allocation, ServiceState


@service_policies.register("static")
class Static(ServicePolicy, frozen=True):
    """What the application file says, all the time; with `cap`, the most that it allows."""

    cap: bool = False

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        if not self.cap:
            return hold(state.window)
        top = at_cap(state.app, state.window)
        return Allocation(top.cpu_limit, np.full_like(top.replicas, -1), reason=top.reason)
