"""Requests to schedule: classes of service times, named workloads, measured samples."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.sim.cores import CoreRequests

Ints = NDArray[np.int64]

#: Deadlines: so many times the mean service time of the class after arrival.
_SLACK = 10.0
#: In samples without classes: a request is long from so many times the median on.
_LONG = 10.0


class RequestKind(msgspec.Struct, frozen=True):
    """A class of requests.

    Attributes:
        share: Of all requests.
        mean_us: Of its service times.
        shape: How they are spread; `samples` draws from those that were measured.
    """

    name: str
    share: float
    mean_us: float
    shape: Literal["constant", "exponential", "samples"] = "constant"
    samples_ns: tuple[int, ...] = ()

    def draw(self, count: int, rng: Generator) -> NDArray[np.float64]:
        if self.shape == "constant":
            return np.full(count, self.mean_us * 1e3)
        if self.shape == "exponential":
            return rng.exponential(self.mean_us * 1e3, count)
        return rng.choice(np.array(self.samples_ns, float), count)


class Workload(msgspec.Struct, frozen=True):
    """Classes of requests; in `phases` one mix follows another, each for the same number."""

    name: str
    phases: tuple[tuple[RequestKind, ...], ...]

    @property
    def kinds(self) -> list[str]:
        """Names of the classes, those with the shortest requests first."""
        means: dict[str, float] = {}
        for phase in self.phases:
            for one in phase:
                means[one.name] = min(one.mean_us, means.get(one.name, np.inf))
        return sorted(means, key=lambda name: means[name])

    def requests(
        self, load: float, *, count: int, workers: int = 1, seed: int = 0
    ) -> CoreRequests:
        """Poisson arrivals that keep so much of the workers busy, in every phase.

        Hints are the true service times, deadlines ten times the mean of the class.
        """
        if not 0 < load < 100 or not 1 <= count <= 10**9 or workers < 1:
            raise InputError(f"a load of {load:g} by {count:,} requests on {workers} workers")
        rng = np.random.default_rng([seed, 0x7452])
        kinds = self.kinds
        service, kind, gap, mean = [], [], [], []
        for at, phase in enumerate(self.phases):
            size = count // len(self.phases) + (at < count % len(self.phases))
            shares = np.array([one.share for one in phase])
            which = rng.choice(len(phase), size, p=shares / shares.sum())
            times = np.zeros(size)
            for k, one in enumerate(phase):
                times[which == k] = one.draw(int(np.count_nonzero(which == k)), rng)
            means = np.array([one.mean_us * 1e3 for one in phase])
            busy = float(shares @ means / shares.sum()) / (load * workers)
            service.append(np.maximum(np.round(times), 1))
            gap.append(rng.exponential(busy, size))
            kind.append(np.array([kinds.index(one.name) for one in phase])[which])
            mean.append(means[which])
        arrival = np.cumsum(np.concatenate(gap)).astype(np.int64)
        whole = np.concatenate(service).astype(np.int64)
        deadline = arrival + (_SLACK * np.concatenate(mean)).astype(np.int64)
        return CoreRequests(arrival, whole, np.concatenate(kind).astype(np.int32), whole, deadline)

    @classmethod
    def from_samples(
        cls, name: str, service_ns: Ints, kinds: NDArray[np.str_] | None = None
    ) -> Workload:
        """What was measured: drawn from again, class by class.

        Without classes, requests that take over ten times the median are `long`.
        """
        if len(service_ns) < 2 or np.any(service_ns <= 0):
            raise InputError("service times are positive, two at least", where=name)
        if kinds is None:
            is_long = service_ns > _LONG * np.median(service_ns)
            kinds = np.where(is_long, "long", "short")
        made = [
            RequestKind(str(one), float(np.mean(kinds == one)),
                        float(service_ns[kinds == one].mean()) / 1e3, "samples",
                        tuple(service_ns[kinds == one].tolist()))
            for one in np.unique(kinds)
        ]  # fmt: skip
        return cls(name, (tuple(made),))


def _bimodal(short_us: float) -> tuple[RequestKind, ...]:
    return RequestKind("short", 0.995, short_us), RequestKind("long", 0.005, 500.0)


_LIGHT = (RequestKind("short", 1.0, 5.0, "exponential"),)

#: Those of LibPreemptible's evaluation.
WORKLOADS = {
    "A1": Workload("A1", (_bimodal(0.5),)),
    "A2": Workload("A2", (_bimodal(5.0),)),
    "B": Workload("B", (_LIGHT,)),
    "C": Workload("C", (_bimodal(5.0), _LIGHT)),
}


def find_workload(name: str) -> Workload:
    """One of `WORKLOADS`."""
    if name not in WORKLOADS:
        raise InputError(f"there is no workload {name!r}", hint=f"{', '.join(WORKLOADS)}")
    return WORKLOADS[name]
