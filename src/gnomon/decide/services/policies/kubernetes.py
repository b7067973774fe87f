"""The autoscalers of Kubernetes, horizontal and vertical, as far as they decide about CPU."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.decide.services.policy import (
    LONGEST_S,
    ServicePolicy,
    bounds,
    check_range,
    hold,
    service_policies,
)
from gnomon.decide.services.state import Allocation, Floats, ServiceState


class _Seen(NamedTuple):
    """Windows since the last decision, and what was recommended in the past."""

    since_s: float
    usage: tuple[Floats, ...]
    recommended: tuple[tuple[float, NDArray[np.int64]], ...] = ()


@service_policies.register("hpa")
class Hpa(ServicePolicy, frozen=True):
    """HPA-like: replicas follow the ratio of utilisation to a target.

    As in autoscaling/v2 with its defaults: a decision every `sync_s`; nothing within `tolerance`
    of the target; up to twice as many or four more at once; fewer only if all recommendations of
    the last `stabilisation_s` say so.
    """

    target: float = 0.6
    sync_s: float = 15.0
    stabilisation_s: float = 300.0
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        check_range("hpa: target", self.target, 0.01, 1)
        check_range("hpa: sync_s", self.sync_s, 0.1, LONGEST_S)
        check_range("hpa: stabilisation_s", self.stabilisation_s, 0, LONGEST_S)
        check_range("hpa: tolerance", self.tolerance, 0, 1)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        window = state.window
        seen = state.memory or _Seen(window.now_s - window.duration_s, ())
        seen = seen._replace(usage=(*seen.usage, window.usage))
        if window.now_s - seen.since_s < self.sync_s - 1e-9:
            return hold(window, memory=seen)
        limit = np.where(np.isfinite(window.cpu_limit), window.cpu_limit, bounds(state.app)[1])
        ready = np.maximum(window.replicas, 1)
        ratio = np.mean(seen.usage, axis=0) / (limit * ready) / self.target
        wanted = np.where(
            np.abs(ratio - 1.0) <= self.tolerance, ready, np.ceil(ready * ratio - 1e-9)
        ).astype(np.int64)
        wanted = np.minimum(wanted, np.maximum(2 * ready, ready + 4))
        past = [
            (when, what) for when, what in seen.recommended
            if window.now_s - when < self.stabilisation_s
        ] + [(window.now_s, wanted)]  # fmt: skip
        stable = np.max([what for _, what in past], axis=0)
        count = np.where(wanted >= ready, wanted, np.minimum(stable, ready))
        count = np.clip(count, 1, bounds(state.app)[2])
        return Allocation(
            np.full(len(count), math.nan), count,
            reason=f"utilisation {np.nanmax(ratio) * self.target:.0%} at most, "
            f"target {self.target:.0%}",
            memory=_Seen(window.now_s, (), tuple(past)),
        )  # fmt: skip


@service_policies.register("vpa")
class Vpa(ServicePolicy, frozen=True):
    """VPA-like: the limit is a percentile of the usage seen so far, plus a margin.

    The recommender of the Vertical Pod Autoscaler: usage of a replica, the 90th percentile, 15 %
    on top. Samples of the last `window_s` count alike; its histograms decay over a day. What it
    sees is cut off at the limit, so that it grows by the margin at each decision.
    """

    percentile: float = 90.0
    margin: float = 0.15
    window_s: float = 300.0
    every_s: float = 60.0

    def __post_init__(self) -> None:
        check_range("vpa: percentile", self.percentile, 0, 100)
        check_range("vpa: margin", self.margin, 0, 10)
        check_range("vpa: window_s", self.window_s, 0.1, LONGEST_S)
        check_range("vpa: every_s", self.every_s, 0.1, LONGEST_S)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        window = state.window
        seen = state.memory or _Seen(window.now_s - window.duration_s, ())
        keep = max(1, math.ceil(self.window_s / window.duration_s))
        usage = (*seen.usage, window.usage / np.maximum(window.replicas, 1))[-keep:]
        if window.now_s - seen.since_s < self.every_s - 1e-9:
            return hold(window, memory=seen._replace(usage=usage))
        target = np.percentile(usage, self.percentile, axis=0) * (1 + self.margin)
        least, most, _ = bounds(state.app)
        return Allocation(
            np.clip(target, least, most), np.full(len(target), -1, np.int64),
            reason=f"p{self.percentile:g} of {len(usage) * window.duration_s:.0f} s of usage "
            f"plus {self.margin:.0%}",
            memory=_Seen(window.now_s, usage),
        )  # fmt: skip
