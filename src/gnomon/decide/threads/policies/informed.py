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


@thread_policies.register("best-effort")
class BestEffort(ThreadPolicy, frozen=True):
    """The first class as under `two-queue`, the others in the time that is left.

    Attributes:
        quantum_us: After which a request of the first class makes way for new ones of it.
        hard_quantum_us: After which one that was cut makes way for another.
        share: Of the time that the others get while they wait, however busy the first class is.
    """

    quantum_us: float = 10.0
    hard_quantum_us: float = 500.0
    share: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InputError(f"best-effort: share is {self.share:g}", hint="0 to 1")
        self.native()

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling(
            "best-effort", to_ns("best-effort: quantum_us", self.quantum_us),
            to_ns("best-effort: hard_quantum_us", self.hard_quantum_us), share=self.share,
        )  # fmt: skip
