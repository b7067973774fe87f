"""PowerChief: a fixed budget follows the bottleneck (Yang et al., ISCA 2017)."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policy import (
    ServicePolicy,
    bounds,
    check_range,
    current_limit,
    service_policies,
)
from gnomon.decide.services.state import Allocation, ServiceState


@service_policies.register("powerchief")
class PowerChief(ServicePolicy, frozen=True):
    """PowerChief-like: cores move from the service with the shortest delay to the longest.

    The expected delay of a service is its queue times its median exclusive latency, plus that
    latency. The sum of all limits stays that of the start. A queue is a poor sign of who is slow
    where callers wait for callees, which is what Sinan showed of it.
    """

    step: float = 0.1

    def __post_init__(self) -> None:
        check_range("powerchief: step", self.step, 0.001, 1)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        window, limit = state.window, current_limit(state.app, state.window)
        least, most, _ = bounds(state.app)
        own_ms = np.nan_to_num(window.service_ms[0], nan=0.0)
        delay = (1.0 + window.queue / np.maximum(window.replicas, 1)) * own_ms
        whole = limit * np.maximum(window.replicas, 1)
        can_grow, can_give = limit < most - 1e-9, limit > least + 1e-9
        if not can_grow.any() or not can_give.any() or not delay.any():
            return Allocation(limit, np.full(len(limit), -1, np.int64), reason="nothing to move")
        slow = int(np.argmax(np.where(can_grow, delay, -np.inf)))
        can_give[slow] = False
        # As much as the bottleneck should get, from those with the shortest delays.
        wanted = min(self.step * whole[slow], (most - limit)[slow] * max(window.replicas[slow], 1))
        moved = 0.0
        changed = whole.copy()
        for giver in np.argsort(np.where(can_give, delay, np.inf), kind="stable"):
            if not can_give[giver] or moved >= wanted - 1e-12:
                break
            spare = min((limit - least)[giver] * max(window.replicas[giver], 1),
                        self.step * whole[giver], wanted - moved)  # fmt: skip
            changed[giver] -= spare
            moved += spare
        changed[slow] += moved
        name = list(state.app.services)[slow]
        return Allocation(
            np.clip(changed / np.maximum(window.replicas, 1), least, most),
            np.full(len(limit), -1, np.int64),
            reason=f"{moved:.2f} cores to {name}: {delay[slow]:.1f} ms expected",
        )  # fmt: skip
