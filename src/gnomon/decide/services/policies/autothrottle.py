"""Autothrottle: throttle ratios as targets (Wang et al., NSDI 2024).

A *captain* beside each service steers its quota so that the share of throttled CFS periods meets
a target. The *tower* sees the whole application and sets two targets, one for the services that
use much CPU and one for the rest, by a contextual bandit over the request rate.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.decide.services.policy import (
    LONGEST_S,
    ServicePolicy,
    bounds,
    check_range,
    current_limit,
    hold,
    service_policies,
    worst_sla_ratio,
)
from gnomon.decide.services.state import Allocation, Floats, ServiceState, Window

#: Throttle ratios that the tower chooses from, as in the authors' program.
TARGETS = (0.0, 0.02, 0.04, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3)
#: Slices of 100 ms that a captain looks back on, for usage and for throttling.
_USAGE_SLICES, _THROTTLE_SLICES = 50, 10


class _Captains(msgspec.Struct, frozen=True, eq=False):
    """What the captains remember, by service."""

    margin: Floats
    usage: Floats
    throttled: Floats
    cut: Floats  # by how much the limit was cut last time, 0 if it was not


class _Trial(msgspec.Struct, frozen=True):
    """A pair of targets that was tried: the rate then, and its cost."""

    rate: float
    first: int
    second: int
    cost: float


class _Tower(msgspec.Struct, frozen=True, eq=False):
    since_s: float
    is_heavy: NDArray[np.bool_]
    first: int = 0
    second: int = 0
    trials: tuple[_Trial, ...] = ()
    rates: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    cores: tuple[float, ...] = ()


class _Memory(msgspec.Struct, frozen=True, eq=False):
    captains: _Captains
    tower: _Tower


@service_policies.register("autothrottle")
class Autothrottle(ServicePolicy, frozen=True):
    """Autothrottle: captains hold throttle ratios, a tower chooses the ratios.

    With a `target` of 0 to 1 all captains hold that ratio and there is no tower. The tower
    estimates the cost of each pair of targets at a request rate by a kernel average over what it
    has tried, in place of the authors' Vowpal Wabbit, and tries a neighbour of the best pair with
    probability `explore`. Cost: 0 to 1 by allocation where all SLAs hold, 2 to 3 by latency else.
    """

    target: float = -1.0
    every_s: float = 60.0
    explore: float = 0.1

    def __post_init__(self) -> None:
        if self.target != -1:  # the tower chooses
            check_range("autothrottle: target", self.target, 0, 1)
        check_range("autothrottle: explore", self.explore, 0, 1)
        check_range("autothrottle: every_s", self.every_s, 0.1, LONGEST_S)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        window = state.window
        memory = state.memory or _start(state)
        tower = memory.tower if self.target >= 0 else self._govern(state, memory.tower, rng)
        targets = np.where(tower.is_heavy, TARGETS[tower.first], TARGETS[tower.second])
        if self.target >= 0:
            targets = np.full(len(window.usage), self.target)
        captains, limit = _steer(state, memory.captains, targets)
        return Allocation(
            limit, np.full(len(limit), -1, np.int64), memory=_Memory(captains, tower),
            reason=f"throttle ratios {targets.max():.0%} and {targets.min():.0%}",
        )  # fmt: skip

    def _govern(self, state: ServiceState, tower: _Tower, rng: Generator) -> _Tower:
        """The tower: every minute a cost for the pair of targets, and the next pair."""
        window = state.window
        tower = msgspec.structs.replace(
            tower,
            rates=(*tower.rates, float(np.nansum(window.class_rate))),
            ratios=(*tower.ratios, worst_sla_ratio(state.app, window)),
            cores=(*tower.cores, float(np.nansum(window.allocated))),
        )
        if window.now_s - tower.since_s < self.every_s - 1e-9:
            return tower
        most = float(np.sum(bounds(state.app)[1] * np.maximum(window.replicas, 1)))
        rate = float(np.mean(tower.rates))
        cost = _cost(tower, most)
        trials = (*tower.trials, _Trial(rate, tower.first, tower.second, cost))[-2000:]
        first, second = _best_pair(trials, rate)
        if rng.random() < self.explore:
            first = int(np.clip(first + rng.integers(-1, 2), 0, len(TARGETS) - 1))
            second = int(np.clip(second + rng.integers(-1, 2), 0, len(TARGETS) - 1))
        return _Tower(window.now_s, _heavy(window), first, second, trials)


def _start(state: ServiceState) -> _Memory:
    count = len(state.app.services)
    captains = _Captains(
        np.zeros(count), np.empty((0, count)), np.empty((0, count)), np.zeros(count)
    )
    since_s = state.window.now_s - state.window.duration_s
    return _Memory(captains, _Tower(since_s, _heavy(state.window)))


def _heavy(window: Window) -> NDArray[np.bool_]:
    """Two clusters by CPU usage: the split with the least variance within."""
    usage = np.sort(np.nan_to_num(window.usage))
    if len(usage) < 2:
        return np.ones(len(usage), bool)
    within = [
        usage[:i].var() * i + usage[i:].var() * (len(usage) - i) for i in range(1, len(usage))
    ]
    heavy: NDArray[np.bool_] = np.nan_to_num(window.usage) >= usage[1 + int(np.argmin(within))]
    return heavy


def _cost(tower: _Tower, most: float) -> float:
    ratios = np.array([r for r in tower.ratios if not math.isnan(r)])
    # The bandit is paid by the whole minute: its worst window but one in a hundred.
    worst = float(np.percentile(ratios, 99)) if ratios.size else 0.0
    if worst <= 1.0:
        return min(float(np.mean(tower.cores)) / max(most, 1e-9), 1.0)
    return 2.0 + min(1.0 - 1.0 / worst, 1.0)


def _best_pair(trials: tuple[_Trial, ...], rate: float) -> tuple[int, int]:
    """The pair with the least expected cost at a rate, by a kernel average over what was tried.

    A pair that nothing near was tried of costs 1, the most without a violation: so a cheaper one
    is searched step by step from what is known to be safe.
    """
    seen = np.array([(t.rate, t.first, t.second, t.cost) for t in trials])
    grid = np.arange(len(TARGETS))
    spread = np.maximum(0.1 * max(rate, 1e-9), 1e-9)
    near = np.exp(-0.5 * ((seen[:, 0] - rate) / spread) ** 2)
    first = np.exp(-0.5 * (grid[:, None] - seen[:, 1]) ** 2)
    second = np.exp(-0.5 * (grid[:, None] - seen[:, 2]) ** 2)
    weight = np.einsum("n,in,jn->ij", near, first, second)
    paid = np.einsum("n,in,jn->ij", near * seen[:, 3], first, second)
    prior = 0.3
    cost = (paid + prior) / (weight + prior)
    best = np.unravel_index(int(np.argmin(cost)), cost.shape)
    return int(best[0]), int(best[1])


def _steer(state: ServiceState, past: _Captains, targets: Floats) -> tuple[_Captains, Floats]:
    """The captains' law, for all services at once (their section 4.2 and program)."""
    window = state.window
    if np.isnan(window.throttled_samples).any():
        return past, hold(window).cpu_limit
    replicas = np.maximum(window.replicas, 1)
    usage = np.vstack([past.usage, window.usage_samples / replicas])[-_USAGE_SLICES:]
    throttled = np.vstack([past.throttled, window.throttled_samples])[-_THROTTLE_SLICES:]
    limit = current_limit(state.app, window)
    ratio = throttled.mean(axis=0)
    margin = np.maximum(past.margin + ratio - targets, 0.0)
    excess = ratio - 3 * targets
    # Throttled far beyond the target: undo the last cut and as much again, or grow.
    undo = (excess > 0) & (past.cut > 0)
    grow = (excess > 0) & ~undo
    proposed = usage.max(axis=0) + margin * usage.std(axis=0)
    shrink = ~undo & ~grow & (proposed <= 0.9 * limit)
    new = np.select(
        [undo, grow, shrink],
        [limit + 2 * past.cut, limit * (1 + excess), np.maximum(proposed, 0.5 * limit)], limit,
    )  # fmt: skip
    least, most, _ = bounds(state.app)
    new = np.clip(new, least, most)
    return _Captains(margin, usage, throttled, np.maximum(limit - new, 0.0)), new
