"""Policies that everything else is compared with: who is next in a queue of ready items."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from gnomon.decide.policy import Policy, tell
from gnomon.decide.registry import policies
from gnomon.errors import InputError

__all__ = ["Fifo", "Hold", "Lifo", "Patient", "Pick", "Random", "ReadyQueue", "Shortest"]


class ReadyQueue(msgspec.Struct, frozen=True, eq=False):
    """Items that could start now, and how many may.

    The arrays are int64, of one length, and cannot be written through the queue. `size_ns` is the
    service time, known or expected.

    >>> queue = ReadyQueue([0, 5], [30, 10], now_ns=20)
    >>> len(queue), queue.can_start, queue.wait_ns.tolist()
    (2, True, [20, 15])
    """

    arrival_ns: NDArray[np.int64]
    size_ns: NDArray[np.int64]
    now_ns: int = 0
    free: int = 1

    def __post_init__(self) -> None:
        arrival_ns, size_ns = _column(self.arrival_ns), _column(self.size_ns)
        if len(arrival_ns) != len(size_ns):
            raise InputError(
                f"a queue has {len(arrival_ns)} arrivals and {len(size_ns)} sizes",
                hint="give one of each for every item",
            )
        if self.free < 0:
            raise InputError(f"a queue has {self.free} free slots", hint="give 0 or more")
        msgspec.structs.force_setattr(self, "arrival_ns", arrival_ns)
        msgspec.structs.force_setattr(self, "size_ns", size_ns)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReadyQueue):
            return NotImplemented
        return (
            (self.now_ns, self.free) == (other.now_ns, other.free)
            and np.array_equal(self.arrival_ns, other.arrival_ns)
            and np.array_equal(self.size_ns, other.size_ns)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def can_start(self) -> bool:
        """Whether there is both something to start and room for it."""
        return self.free > 0 and len(self.arrival_ns) > 0

    @property
    def wait_ns(self) -> NDArray[np.int64]:
        """How long each item has waited."""
        return self.now_ns - self.arrival_ns


class Pick(msgspec.Struct, frozen=True):
    """Start the item at this position of the queue.

    >>> Pick(0)
    Pick(index=0)
    """

    index: int


class Hold(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Start nothing now; ask again at the next arrival or departure, or at `until_ns`.

    >>> Hold(), Hold(until_ns=500)
    (Hold(), Hold(until_ns=500))
    """

    until_ns: int | None = None


@policies.register("fifo")
class Fifo(msgspec.Struct, frozen=True):
    """First come, first served.

    >>> Fifo().decide(ReadyQueue([7, 3], [1, 1]), np.random.default_rng(0))
    Pick(index=1)
    """

    def decide(self, state: ReadyQueue, rng: Generator) -> Pick | Hold:
        """The item that came first."""
        return Pick(int(np.argmin(state.arrival_ns))) if state.can_start else Hold()


@policies.register("lifo")
class Lifo(msgspec.Struct, frozen=True):
    """Last come, first served.

    >>> Lifo().decide(ReadyQueue([7, 3], [1, 1]), np.random.default_rng(0))
    Pick(index=0)
    """

    def decide(self, state: ReadyQueue, rng: Generator) -> Pick | Hold:
        """The item that came last; of those that came together, the last in the queue."""
        if not state.can_start:
            return Hold()
        return Pick(len(state) - 1 - int(np.argmax(state.arrival_ns[::-1])))


@policies.register("shortest")
class Shortest(msgspec.Struct, frozen=True):
    """Smallest first; of equal ones, the one that came first.

    >>> Shortest().decide(ReadyQueue([7, 3, 5], [9, 2, 2]), np.random.default_rng(0))
    Pick(index=1)
    """

    def decide(self, state: ReadyQueue, rng: Generator) -> Pick | Hold:
        """The item with the smallest size."""
        if not state.can_start:
            return Hold()
        smallest = np.flatnonzero(state.size_ns == state.size_ns.min())
        return Pick(int(smallest[np.argmin(state.arrival_ns[smallest])]))


@policies.register("random")
class Random(msgspec.Struct, frozen=True):
    """Any item, with equal chance.

    >>> Random().decide(ReadyQueue([7], [1]), np.random.default_rng(0))
    Pick(index=0)
    """

    def decide(self, state: ReadyQueue, rng: Generator) -> Pick | Hold:
        """An item drawn with `rng`."""
        return Pick(int(rng.integers(len(state)))) if state.can_start else Hold()


@policies.register("patient")
class Patient(msgspec.Struct, frozen=True):
    """Wait until enough items are there, or one has waited too long; then ask another policy.

    >>> patient = policies.create("patient?min_queue=3&max_wait_s=60:fifo")
    >>> patient.decide(ReadyQueue([0, 1], [1, 1], now_ns=10), np.random.default_rng(0))
    Hold(until_ns=60000000000)
    >>> patient.decide(ReadyQueue([0, 1], [1, 1], now_ns=60_000_000_000), np.random.default_rng(0))
    Pick(index=0)
    """

    inner: Policy[ReadyQueue, Pick | Hold]
    min_queue: int = 2
    max_wait_s: float = 1.0

    def __post_init__(self) -> None:
        if self.min_queue < 0 or not 0 <= self.max_wait_s < 1e9:
            raise InputError(
                f"patient: min_queue={self.min_queue}, max_wait_s={self.max_wait_s}",
                hint="give 0 or more, and less than thirty years",
            )

    def decide(self, state: ReadyQueue, rng: Generator) -> Pick | Hold:
        """Hold, or what the inner policy says."""
        if not state.can_start:
            return Hold()
        latest_ns = int(state.arrival_ns.min()) + round(self.max_wait_s * 1e9)
        if len(state) < self.min_queue and state.now_ns < latest_ns:
            return Hold(until_ns=latest_ns)
        return self.inner.decide(state, rng)

    def observe(self, outcome: Any) -> None:
        """Pass on what happened: the inner policy may learn."""
        tell(self.inner, outcome)


def _column(values: ArrayLike) -> NDArray[np.int64]:
    """A view that cannot be written, so that a policy cannot change the queue by accident."""
    column = np.asarray(values, dtype=np.int64).view()
    if column.ndim != 1:
        raise InputError(f"a queue's column has {column.ndim} dimensions", hint="give one")
    column.flags.writeable = False
    return column
