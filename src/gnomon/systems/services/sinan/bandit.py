"""How training data is collected: a bandit for each tier that hunts the border of the SLA.

Section 4.2 of Sinan (Zhang et al., ASPLOS 2021) and the authors' program. Data from an autoscaler
has few violations, data from random allocations little else; the border is what models need.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.decide.services import Allocation, ServicePolicy, ServiceState, hold
from gnomon.decide.services.policy import bounds, current_limit
from gnomon.decide.services.sinan_model import JUDGED, History, Subject

Floats = NDArray[np.float64]
_State = tuple[int, int, int]

#: Limits are powers of this: a step is a tenth, where the authors step by tenths of the cap. Caps
#: here are up to a hundred times what a tier uses, and a border would fall between two such steps.
_STEP = 1.1
#: What a tier may do, in steps: a third less, a tenth less, hold, and three sizes of more.
_MOVES = np.array([-4, -1, 0, 1, 3, 6])
#: How much each is favoured; those of the authors for Social Network.
_BIAS = np.array([4.1, 4.0, 2.0, 0.05, 0.05, 0.025])
_PRIOR = 0.1
_BUSY = 0.8
_BLAMED = 5
_HOLD_AFTER = 3
#: Random allocations: times usage for all tiers, and how far tiers are apart (of the logarithm).
_ROOM, _APART = (1.2, 4.0), 0.3


class _Taken(msgspec.Struct, frozen=True, eq=False):
    """The amounts of all tiers after one decision, and the state it was taken in."""

    state: _State
    steps: NDArray[np.int64]


class BanditMemory(msgspec.Struct, frozen=True, eq=False):
    """What the bandit has learned.

    Attributes:
        counts: By state: tiers x amounts x (met, violated).
        violated_s: For how long an SLA has been violated without a break.
        held: Windows to hold still after a recovery.
        idle: Windows until the next action.
    """

    counts: dict[_State, Floats] = {}
    taken: tuple[_Taken, ...] = ()
    history: History | None = None
    ratio: float = 0.0
    violated_s: float = 0.0
    held: int = 0
    idle: int = 0


class Bandit(ServicePolicy, frozen=True):
    """A bandit for each tier: try what says most about where the SLA breaks.

    The score of an action is how much one more sample is expected to narrow the confidence
    interval of the probability to meet the SLA at the resulting amount. It is greatest where that
    probability is near one half. Two slips of the published program are not repeated: predicted
    utilisation dampens reductions only, and nothing adapts thresholds that are not used.

    Attributes:
        rate_bin: Width of a bin of request rates, as a share of the application's rate.
        ratio_bin: Width of a bin of latency over its bound.
        region: Past this latency over its bound only growth is allowed.
        every: Windows from action to action; between them the allocation is held, so that some
            data shows what comes of one that stays.
        explore: Share of actions that draw an allocation at random, around a multiple of usage,
            which is then held until its outcome is known. The authors draw 1 % from all there
            is; most of that is far from any border.
        rest: Share of windows in which everything holds.
    """

    rate_bin: float = 0.04
    ratio_bin: float = 0.2
    region: float = 1.2
    every: int = 1
    explore: float = 0.05
    rest: float = 0.05

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        memory = self._learn(state, state.memory or BanditMemory())
        window, least_most = state.window, bounds(state.app)[:2]
        now = current_limit(state.app, window)
        replicas = np.maximum(window.replicas, 1)
        usage = np.nan_to_num(window.usage) / replicas
        draws = rng.random(3)
        if memory.ratio <= self.region and (memory.held or memory.idle):
            memory = msgspec.structs.replace(
                memory, held=max(memory.held - 1, 0), idle=max(memory.idle - 1, 0)
            )
            return hold(window, "a pause", memory)
        steps = _steps(now)
        if memory.ratio > self.region:
            steps, reason = self._move(state, memory, usage, steps, np.arange(6) > 2), "recover"
        elif draws[0] < self.explore:
            spread = rng.lognormal(np.log(rng.uniform(*_ROOM)), _APART, len(now))
            steps = _steps(np.clip(usage * spread, *least_most))
            reason = "a random allocation"
        elif draws[1] < self.rest:
            reason = "hold"
        else:
            steps = self._move(state, memory, usage, steps, np.ones(6, bool))
            reason = "explore"
        wanted = np.clip(_STEP ** steps.astype(float), *least_most)
        busy = usage > _BUSY * now
        wanted = np.where(
            busy, np.maximum(wanted, np.minimum(usage / _BUSY, least_most[1])), wanted
        )
        taken = _Taken(self._state(state, memory), _steps(wanted))
        is_random = reason == "a random allocation"
        memory = msgspec.structs.replace(
            memory, taken=(*memory.taken, taken), idle=_BLAMED if is_random else self.every - 1,
            held=_HOLD_AFTER if memory.ratio > self.region else 0,
        )  # fmt: skip
        return Allocation(wanted, np.full(len(now), -1, np.int64), reason=reason, memory=memory)

    def _learn(self, state: ServiceState, memory: BanditMemory) -> BanditMemory:
        """A violation blames every action of the last windows, a success the oldest alone."""
        seen = History.of(state.app, state.window)
        history = seen if memory.history is None else memory.history.then(seen)
        ratio = float(history.ratios(Subject.of(state.app).classes)[-1, JUDGED])
        is_met = ratio <= 1.0
        taken, counts = memory.taken, memory.counts
        if not is_met:
            counts, taken = _count(state, counts, taken, 1), ()
        elif len(taken) >= _BLAMED:
            counts, taken = _count(state, counts, taken[:1], 0), taken[1:]
        violated_s = 0.0 if is_met else memory.violated_s + state.window.duration_s
        return msgspec.structs.replace(
            memory, counts=counts, taken=taken, history=history, ratio=ratio,
            violated_s=violated_s,
        )  # fmt: skip

    def _state(self, state: ServiceState, memory: BanditMemory) -> _State:
        history = memory.history
        assert history is not None
        ratios = history.ratios(Subject.of(state.app).classes)[-2:, JUDGED]
        now, before = (int(min(ratio, 2.0) / self.ratio_bin) for ratio in (ratios[-1], ratios[0]))
        rate = float(history.class_rate[-1].sum())
        return int(rate / (self.rate_bin * state.app.rate)), now, before

    def _move(
        self, state: ServiceState, memory: BanditMemory, usage: Floats,
        steps: NDArray[np.int64], allowed: NDArray[np.bool_],
    ) -> NDArray[np.int64]:  # fmt: skip
        """For every tier the step whose outcome says most."""
        low, top = (_steps(one)[:, None] for one in bounds(state.app)[:2])
        reached = np.clip(steps[:, None] + _MOVES, low, top)
        counts = memory.counts.get(self._state(state, memory))
        tiers = np.arange(len(steps))[:, None]
        known = np.full((*reached.shape, 2), _PRIOR)
        if counts is not None:
            known = counts[tiers, reached - low]
        met, violated = known[..., 0], known[..., 1]
        chance = met / (met + violated)
        narrower = chance * _width(met + 1, violated) + (1 - chance) * _width(met, violated + 1)
        score = (_width(met, violated) - narrower) * _BIAS * np.where(violated > met, 0.8, 1.0)
        used = usage[:, None] / _STEP ** reached.astype(float)
        score = np.where(_MOVES < 0, score * np.exp(-0.99 * used), score)
        banned = (_MOVES < 0) & (
            (used > 1.0) | (usage > _BUSY * _STEP ** steps.astype(float))[:, None]
        )
        score = np.where(banned | ~allowed, -1.0, score)
        return np.take_along_axis(reached, score.argmax(axis=1)[:, None], axis=1)[:, 0]


def _count(
    state: ServiceState, counts: dict[_State, Floats], taken: tuple[_Taken, ...], which: int
) -> dict[_State, Floats]:
    low, top = (_steps(one) for one in bounds(state.app)[:2])
    counts = dict(counts)
    for one in taken:
        shape = (len(low), int((top - low).max()) + 1, 2)
        new = counts.get(one.state, np.full(shape, _PRIOR)).copy()
        new[np.arange(len(low)), np.clip(one.steps, low, top) - low, which] += 1
        counts[one.state] = new
    return counts


def _width(met: Floats, violated: Floats) -> Floats:
    """Of the confidence interval of the probability to meet the SLA."""
    count = met + violated
    width: Floats = np.sqrt(met * violated / count**3)
    return width


def _steps(limit: Floats) -> NDArray[np.int64]:
    steps: NDArray[np.int64] = np.round(np.log(limit) / np.log(_STEP)).astype(np.int64)
    return steps
