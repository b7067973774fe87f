"""Sinan: the cheapest allocation whose predicted latency is safe (Zhang et al., ASPLOS 2021)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from gnomon.decide.services.load import LEAST_RISE, class_rates, greatest_rise
from gnomon.decide.services.policy import (
    LONGEST_S,
    ServicePolicy,
    bounds,
    check_range,
    hold,
    service_policies,
)
from gnomon.decide.services.sinan_model import (
    PAST,
    Forecast,
    History,
    SinanModel,
    Subject,
    load_model,
    read_card,
)
from gnomon.decide.services.state import Allocation, Floats, ServiceState
from gnomon.graph.application import Application

#: Factors on limits: of one tier or all, up; of one, some or all, down.
_UP, _DOWN = (1.1, 1.3, 1.6), (0.9, 0.7)
#: A tier that used so much of its limit was held back by it.
_FULL = 0.75
#: And with so much of it in use it still keeps up with what comes.
_KEEPS_UP = 0.85
#: What a missed violation lifts all tiers by.
_RESCUE = 1.5
#: A rate has moved if it changed by this share and by so many standard deviations of a Poisson
#: count: 2 % of 100 requests in a second is a fifth of one deviation, which is noise.
_MOVED, _DEVIATIONS = 0.02, 3.0


class _Memory(msgspec.Struct, frozen=True, eq=False):
    """What Sinan remembers.

    Attributes:
        history: The last windows.
        seen: Windows since the start.
        trust: In the model; halves with each violation that it did not expect.
        is_safe: Whether it expected no violation of what it last allocated.
        shrunk: Tiers that each of the last reductions shrank, oldest first.
        rise: By what share load may rise until the next decision.
    """

    history: History
    rise: float
    seen: int = 1
    trust: float = 1.0
    is_safe: bool = False
    shrunk: tuple[NDArray[np.bool_], ...] = ()


class _Menu(NamedTuple):
    """Allocations to choose from, a row each; the first holds, the last is the cap."""

    limits: Floats
    cores: Floats


@service_policies.register("sinan")
class Sinan(ServicePolicy, frozen=True):
    """Sinan: a network and trees predict what comes of each candidate; the cheapest safe one wins.

    Sets CPU limits; replicas stay. `gnomon services collect` and `train` make the folder `model`,
    from windows of a second: decide every second with it. Without a model everything stays at its
    cap, which is safe and dear.

    Attributes:
        model: A model folder.
        caution: Factor on the margin under the bound, and divisor of the thresholds of violation
            probability.
        saturated: Tiers over this utilisation are lifted in every candidate.
        rise: What load may rise by until the next decision, 1 if it may double: no model sees a
            jump coming, so every candidate has room for it. This is assumed at the start, then
            the greatest rise seen counts, forgotten with a half-life of `rise_s` seconds. The
            paper has none: 0.
        least_trust: Under this, nothing is reduced. Trust in the model halves with each violation
            that it did not expect, and recovers by a twentieth of what is missing with each
            window in which SLAs were met.
    """

    model: str = ""
    caution: float = 1.0
    saturated: float = 0.75
    least_trust: float = 0.3
    rise: float = 1.0
    rise_s: float = 1800.0

    def __post_init__(self) -> None:
        check_range("sinan: caution", self.caution, 0.01, 100)
        check_range("sinan: saturated", self.saturated, 0.01, 1)
        check_range("sinan: least_trust", self.least_trust, 0, 1)
        check_range("sinan: rise", self.rise, 0, 100)
        check_range("sinan: rise_s", self.rise_s, 1, LONGEST_S)
        if self.model:
            read_card(self.model)

    def check(self, app: Application) -> None:
        """That the model can be read and is for these services and SLAs."""
        if self.model:
            subject, model = Subject.of(app), load_model(self.model)
            if not subject.new_classes(model.card.subject):
                subject.check(model.card.subject, self.model)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        most = bounds(state.app)[1]
        if not self.model:
            return _allocate(most, "no model: all at their cap; give sinan?model=FOLDER", None)
        model = load_model(self.model)
        subject = Subject.of(state.app)
        if new := subject.new_classes(model.card.subject):
            return _allocate(most, f"no model has seen class {new[0]}: all at their cap", None)
        subject.check(model.card.subject, self.model)
        seen = History.of(state.app, state.window)
        if state.memory is None:
            return _allocate(most, "the first windows run at the cap", _Memory(seen, self.rise))
        memory: _Memory = state.memory
        rise = greatest_rise(
            memory.rise, memory.history.class_rate,
            class_rates(state.window, memory.history.class_rate),
            state.window.duration_s, self.rise_s,
        )  # fmt: skip
        memory = msgspec.structs.replace(
            memory, history=memory.history.then(seen), seen=memory.seen + 1,
            rise=max(rise, min(self.rise, LEAST_RISE)),
        )  # fmt: skip
        if memory.seen <= PAST:
            return _allocate(most, "the first windows run at the cap", memory)
        return self._choose(state, model, memory)

    def _choose(self, state: ServiceState, model: SinanModel, memory: _Memory) -> Allocation:
        history = memory.history
        is_violated = bool(history.violated(model.card.subject.classes)[-1])
        if not is_violated:
            memory = _with(memory, trust=memory.trust + (1.0 - memory.trust) / 20)
        elif memory.is_safe and history.class_late[-1].any():
            memory = _with(memory, trust=memory.trust / 2, is_safe=False)
            least, most, _ = bounds(state.app)
            lifted = np.clip(history.limit[-1] * _RESCUE, least, most)
            return _allocate(lifted, "an unexpected violation: all tiers up", memory)
        menu = self._menu(state, memory)
        forecast = model.predict(history, menu.limits)
        now = float((history.limit[-1] * history.replicas[-1]).sum())
        is_calm = not is_violated and not _has_moved(history, state)
        may_reduce = is_calm and memory.trust >= self.least_trust
        row, passes = self._pick(model, menu, forecast, now, may_reduce=may_reduce)
        limits = menu.limits[row]
        down = limits < history.limit[-1] * (1 - 1e-9)
        shrunk = (*memory.shrunk, down)[-PAST:] if down.any() else memory.shrunk
        memory = _with(memory, is_safe=passes, shrunk=shrunk)
        reason = (f"{menu.cores[row]:.2f} of {now:.2f} cores: p99 at {forecast.ratio[row]:.0%} of "
                  f"its bound, {forecast.probability[row]:.1%} to violate")  # fmt: skip
        if np.array_equal(limits, history.limit[-1]):
            return hold(state.window, reason, memory)
        return _allocate(limits, reason if passes else "nothing is safe: all at their cap", memory)

    def _pick(
        self, model: SinanModel, menu: _Menu, forecast: Forecast, now: float, *, may_reduce: bool
    ) -> tuple[int, bool]:
        """The rule of section 4.3: the cheapest reduction, else hold, else the cheapest growth."""
        card = model.card
        is_low = forecast.ratio < 1.0 - min(card.margin * self.caution, 0.9)
        fits_down = is_low & (forecast.probability <= card.p_down / self.caution)
        fits_up = is_low & (forecast.probability <= card.p_up / self.caution)
        is_less = menu.cores < now * (1 - 1e-9)
        for fits in (fits_down & is_less & may_reduce, fits_up & (np.arange(len(is_low)) == 0),
                     fits_up & ~is_less):  # fmt: skip
            rows = np.flatnonzero(fits)
            if len(rows):
                return int(rows[np.lexsort((forecast.ratio[rows], menu.cores[rows]))[0]]), True
        return len(menu.cores) - 1, False

    def _menu(self, state: ServiceState, memory: _Memory) -> _Menu:
        """Every candidate, within bounds and with saturated tiers lifted."""
        history, (least, most, _) = memory.history, bounds(state.app)
        now, replicas, usage = history.limit[-1], history.replicas[-1], history.usage[-1]
        factors = candidate_factors(usage / (now * replicas), memory.shrunk)
        limits = np.clip(now * factors, least, most)
        # After a rise a tier may be as full as it can be without falling behind.
        room = max(1.0 / self.saturated, (1.0 + memory.rise) / _KEEPS_UP)
        floor = np.minimum(_demand(history, state) / replicas * room, most)
        limits = np.vstack([np.maximum(limits, floor), most])
        return _Menu(limits, limits @ replicas)


def candidate_factors(utilisation: Floats, shrunk: tuple[NDArray[np.bool_], ...]) -> Floats:
    """Factors on the limits now, a row a candidate; the first row holds (section 4.3).

    One tier up, all up, those up that were lately shrunk (from either end of that log), all
    down, one tier down, and the least utilised down for every number of them.

    >>> candidate_factors(np.array([0.2, 0.5]), ()).shape
    (16, 2)
    """
    tiers = len(utilisation)
    one = np.eye(tiers, dtype=bool)
    order = np.argsort(utilisation, kind="stable")
    least_used = np.zeros((max(tiers - 2, 0), tiers), bool)
    for k in range(len(least_used)):
        least_used[k, order[: k + 2]] = True
    everyone = np.ones((1, tiers), bool)
    rows = [np.ones((1, tiers))]
    for factor in _UP:
        rows.append(np.where(np.vstack([one, everyone]), factor, 1.0))
    for log in (shrunk, shrunk[::-1]):
        if log:
            grown = np.logical_or.accumulate(np.array(log), axis=0)
            rows.append(np.where(grown, _UP[1], 1.0))
    for factor in _DOWN:
        rows.append(np.where(np.vstack([one, least_used, everyone]), factor, 1.0))
    return np.vstack(rows)


def _demand(history: History, state: ServiceState) -> Floats:
    """Cores that each tier needs: its mean usage, more where it was held back or the rate jumped.

    A tier that used most of its limit would have used more. After a jump, what the windows before
    it used grows with the rate.
    """
    back = history.last(PAST)
    mean = back.usage.mean(axis=0)
    if _has_moved(history, state):
        rate = back.class_rate.sum(axis=1)
        mean = np.maximum(mean, back.usage[:-1].mean(axis=0) * rate[-1] / max(rate[:-1].mean(), 1))
    allocated = back.limit[-1] * back.replicas[-1]
    is_full = back.usage[-1] > _FULL * allocated
    demand: Floats = np.where(is_full, np.maximum(mean, back.usage[-1]), mean)
    return demand


def _has_moved(history: History, state: ServiceState) -> bool:
    """Whether the rate of the last window differs from those before by more than noise."""
    rate = history.last(PAST).class_rate.sum(axis=1)
    before = rate[:-1].mean()
    change = abs(rate[-1] - before)
    noise = np.sqrt((rate[-1] + before / (len(rate) - 1)) / state.window.duration_s)
    return bool(change > max(_MOVED * before, _DEVIATIONS * noise))


def _allocate(limits: Floats, reason: str, memory: _Memory | None) -> Allocation:
    return Allocation(limits, np.full(len(limits), -1, np.int64), reason=reason, memory=memory)


def _with(memory: _Memory, **changes: object) -> _Memory:
    return msgspec.structs.replace(memory, **changes)
