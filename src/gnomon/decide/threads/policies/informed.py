"""Policies that know more of a request: its length, its deadline, its class."""

from __future__ import annotations

from gnomon.decide.threads.policy import ThreadPolicy, thread_policies, to_ns
from gnomon.errors import InputError
from gnomon.sim.cores import Scheduling


@thread_policies.register("srpt")
class ShortestRemaining(ThreadPolicy, frozen=True):
    """The shortest remaining time by the hints that requests come with: the best mean there is."""

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("shortest-remaining")


@thread_policies.register("edf")
class EarliestDeadline(ThreadPolicy, frozen=True):
    """The earliest deadline first."""

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("earliest-deadline")


@thread_policies.register("priority")
class ClassPriority(ThreadPolicy, frozen=True):
    """Classes in their order; a more important request cuts a less important one at once."""

    quantum_us: float = 10.0

    def __post_init__(self) -> None:
        self.native()

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("kind-priority", to_ns("priority: quantum_us", self.quantum_us))


@thread_policies.register("reserved")
class Reserved(ThreadPolicy, frozen=True):
    """Some workers run the first class alone, to its end (Persephone, SOSP 2021)."""

    workers: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 4095:
            raise InputError(f"reserved: workers is {self.workers}", hint="1 to 4095")

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("reserved", reserved=self.workers)
