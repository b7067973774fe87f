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
#: Of a run, so that its nanoseconds fit into 63 bits with room for queues.
_LONGEST_US = 2**59 / 1e3


class RequestKind(msgspec.Struct, frozen=True):
    """A class of requests.

    Attributes:
        share: Of all requests.
        mean_us: Of its service times.
        shape: How they are spread; `samples` draws from those that were measured.
        counts: How often each of the samples was seen; empty where each was seen once.
    """

    name: str
    share: float
    mean_us: float
    shape: Literal["constant", "exponential", "samples"] = "constant"
    samples_ns: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()

    def draw(self, count: int, rng: Generator) -> NDArray[np.float64]:
        if self.shape == "constant":
            return np.full(count, self.mean_us * 1e3)
        if self.shape == "exponential":
            return rng.exponential(self.mean_us * 1e3, count)
        shares = np.array(self.counts) / sum(self.counts) if self.counts else None
        return rng.choice(np.array(self.samples_ns, float), count, p=shares)


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

    @property
    def mean_us(self) -> float:
        """Of all service times."""
        means = [
            sum(one.share * one.mean_us for one in phase) / sum(one.share for one in phase)
            for phase in self.phases
        ]
        return sum(means) / len(means)

    def requests(
        self, load: float, *, count: int, workers: int = 1, seed: int = 0
    ) -> CoreRequests:
        """Poisson arrivals that keep so much of the workers busy, in every phase.

        Hints are the true service times, deadlines ten times the mean of the class.
        """
        if not 0 < load < 100 or not 1 <= count <= 10**9 or workers < 1:
            raise InputError(f"a load of {load:g} by {count:,} requests on {workers} workers")
        mean_us = max(sum(one.share * one.mean_us for one in phase) for phase in self.phases)
        if count * mean_us / min(load * workers, 1.0) > _LONGEST_US:
            what = f"{count:,} requests of {mean_us / 1e6:.3g} s last for centuries"
            raise InputError(what, where=self.name, hint="simulate fewer: --requests 10000")
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
        cls, name: str, service_ns: Ints, kinds: NDArray[np.str_] | None = None,
        counts: Ints | None = None,
    ) -> Workload:  # fmt: skip
        """What was measured: drawn from again, class by class.

        Without classes, requests that take over ten times the median are `long`.

        Args:
            counts: How often each was seen, once unless given.
        """
        if len(service_ns) < 1 + (counts is None) or np.any(service_ns <= 0):
            raise InputError("service times are positive, two at least", where=name)
        weights = np.ones(len(service_ns)) if counts is None else counts.astype(float)
        if kinds is None:
            is_long = service_ns > _LONG * weighted_quantile(service_ns, weights, 0.5)
            kinds = np.where(is_long, "long", "short")
        made = []
        for one in np.unique(kinds):
            mine = kinds == one
            seen = () if counts is None else tuple(counts[mine].tolist())
            mean_us = float(np.average(service_ns[mine], weights=weights[mine])) / 1e3
            made.append(
                RequestKind(str(one), float(weights[mine].sum() / weights.sum()), mean_us,
                            "samples", tuple(service_ns[mine].tolist()), seen)
            )  # fmt: skip
        return cls(name, (tuple(made),))


def weighted_quantile(values: Ints, weights: NDArray[np.float64], share: float) -> float:
    """The least value that so much of the weight is at or below.

    >>> weighted_quantile(np.array([30, 10, 20]), np.array([1.0, 8.0, 1.0]), 0.85)
    20.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = int(np.searchsorted(reached, share * reached[-1]))
    return float(values[order[min(at, len(order) - 1)]])


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
