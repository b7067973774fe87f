"""The shape of a scheduling policy: which request runs next on a worker, and for how long."""

from __future__ import annotations

from typing import Any

from gnomon.decide.policy import Policy
from gnomon.errors import InputError
from gnomon.registry import Registry
from gnomon.sim.cores import Scheduling


class ThreadPolicy(Policy, frozen=True):
    """Which request runs next on a worker, and for how long.

    Its code is native (`native/policy/policy.hpp`), the same in the simulator and in the runtime.
    A field `quantum_us` makes it one of those that a quantum can be chosen for.
    """

    def native(self, setting: Any = None) -> Scheduling:
        """What the simulator runs."""
        self._lacks("native")

    @property
    def has_quantum(self) -> bool:
        return "quantum_us" in self.__struct_fields__


#: Scheduling policies by name: `fcfs`, `rr?quantum_us=10`.
thread_policies: Registry[ThreadPolicy] = Registry(
    "scheduling policy", group="gnomon.thread_policies", package="gnomon.decide.threads.policies"
)


def to_ns(name: str, time_us: float) -> int:
    """A time of a policy; refused where it is none.

    >>> to_ns("rr: quantum_us", 2.5)
    2500
    """
    if not 0.001 <= time_us <= 1e9:
        raise InputError(f"{name} is {time_us:g}", hint="microseconds, 0.001 to 1e9")
    return round(time_us * 1e3)
