"""A policy at work: it chooses who is served next, in the native queue simulator."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.decide.baselines import Hold, Pick, ReadyQueue
from gnomon.decide.policy import Policy
from gnomon.decide.registry import policies
from gnomon.errors import InputError, SimulationError
from gnomon.sim.queueing import Served, serve, whole_nanoseconds

__all__ = ["dispatch"]


def dispatch(
    policy: str | Policy[ReadyQueue, Pick | Hold],
    arrival_ns: ArrayLike,
    size_ns: ArrayLike,
    servers: int = 1,
    *,
    seed: int = 0,
) -> Served:
    """Plays jobs through a queue whose server asks the policy.

    Args:
        policy: A policy, or the name of one: `shortest`, `patient?min_queue=4:shortest`.
        arrival_ns: Arrival times in order.
        size_ns: Service times; the policy sees them.

    Raises:
        SimulationError: The policy held on with jobs waiting and nothing more to come.

    >>> dispatch("shortest", [0, 1, 2], [10, 10, 1]).start_ns.tolist()
    [0, 11, 10]
    """
    chosen = policies.create(policy) if isinstance(policy, str) else policy
    rng = np.random.default_rng(seed)
    arrival = whole_nanoseconds(arrival_ns, "arrival")
    size = whole_nanoseconds(size_ns, "size")

    def choose(now_ns: int, waiting: NDArray[np.int64]) -> int:
        action = chosen.decide(ReadyQueue(arrival[waiting], size[waiting], now_ns), rng)
        if isinstance(action, Hold):
            return ~(action.until_ns or 0)
        if not isinstance(action, Pick) or action.index < 0:
            raise InputError(f"{chosen!r} answered {action!r}; a queue takes Pick or Hold")
        return action.index

    served = serve(arrival, size, servers, choose=choose)
    left = np.flatnonzero(~served.is_served)
    if len(left):
        raise SimulationError(
            f"{chosen!r} left {len(left)} of {len(arrival)} jobs waiting for ever; "
            f"the first is job {left[0]}",
            blocked=left[:8].tolist(),
        )
    return served
