"""Policies that know nothing of a request but how long it has run."""

from __future__ import annotations

from gnomon.decide.threads.policy import ThreadPolicy, thread_policies, to_ns
from gnomon.sim.cores import Scheduling


@thread_policies.register("fcfs")
class Fcfs(ThreadPolicy, frozen=True):
    """First come, first served, each to its end: no preemption."""

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("fcfs")


@thread_policies.register("rr")
class RoundRobin(ThreadPolicy, frozen=True):
    """A quantum each in turn; nobody is cut while nobody waits."""

    quantum_us: float = 10.0

    def __post_init__(self) -> None:
        self.native()

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("round-robin", to_ns("rr: quantum_us", self.quantum_us))


@thread_policies.register("two-queue")
class TwoQueue(ThreadPolicy, frozen=True):
    """New requests before those that were cut (Aspen, NSDI 2025).

    Attributes:
        quantum_us: After which a request makes way for new ones.
        hard_quantum_us: After which one that was cut makes way for another.
        patience_us: One that was cut so long ago goes before new ones.
    """

    quantum_us: float = 10.0
    hard_quantum_us: float = 500.0
    patience_us: float = 1e9

    def __post_init__(self) -> None:
        self.native()

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling(
            "two-queue", to_ns("two-queue: quantum_us", self.quantum_us),
            to_ns("two-queue: hard_quantum_us", self.hard_quantum_us),
            to_ns("two-queue: patience_us", self.patience_us),
        )  # fmt: skip


@thread_policies.register("las")
class LeastAttained(ThreadPolicy, frozen=True):
    """Whoever has had the least service: for lengths that nobody knows and that differ by much."""

    quantum_us: float = 10.0

    def __post_init__(self) -> None:
        self.native()

    def native(self, setting: object = None) -> Scheduling:
        return Scheduling("least-attained", to_ns("las: quantum_us", self.quantum_us))
