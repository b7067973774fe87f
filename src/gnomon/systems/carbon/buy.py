"""Buy: keep servers or replace them, the one question where embodied carbon does count.

What stands in the hall has been emitted, whatever is decided; what is bought will be. So new
servers pay for themselves when the operational carbon they save exceeds what making them emits.
The demand stays what it is: the fleet before and after is filled to it in its best order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.carbon import YEAR_H
from gnomon.model.machines.machine import Fleet, Machine, MachineGroup
from gnomon.systems.carbon.curves import best_order, filled_g_h
from gnomon.systems.carbon.supply import End, supply_of

_ENDS: tuple[End, ...] = ("low", "mid", "high")
#: A grid that changes by less does not change.
_STEADY_PCT = 1e-6
#: With more groups than this, sets of them are not tried one against all others.
_MOST_TRIED = 40


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """Some groups replaced by new servers of the same performance.

    Attributes:
        saved_kwh_y: Electricity saved in a year, building included.
        saved_kg_y: Carbon of it, in the first year.
        years: After so many years the new ones have paid for themselves; None where they do not.
        years_best: The same with the least embodied carbon and the largest saving.
        years_worst: The same the other way round; None for never.
        breakeven_g_kwh: On a dirtier grid than this they pay for themselves within their life.
        net_kg: Over the life of the new ones, what is emitted more (or, below zero, less).
    """

    replaced: tuple[str, ...]
    servers_out: int
    servers_in: int
    embodied_kg: Estimate
    saved_kwh_y: Estimate
    saved_kg_y: Estimate
    years: float | None
    years_best: float | None
    years_worst: float | None
    breakeven_g_kwh: float | None
    net_kg: Estimate

    @property
    def pays(self) -> bool:
        return self.net_kg.mid < 0


class Purchase(msgspec.Struct, frozen=True, kw_only=True):
    """Keep or replace.

    Attributes:
        ladder: The worst group replaced, the two worst, and so on, up to all of them.
        best: What emits least over the new servers' use, of the ladder, of single groups, and of a
            set grown from the best one; None to keep all.
        kept_kg_y: Operational carbon of the fleet as it is, in the first year.
    """

    fleet: Fleet
    candidate: Machine
    g_kwh: Estimate
    change_pct_y: float
    utilisation: float
    years: float
    sleep: bool
    singles: tuple[Offer, ...]
    ladder: tuple[Offer, ...]
    best: Offer | None
    kept_kwh_y: Estimate
    kept_kg_y: Estimate


def years_to_pay_back(
    embodied_kg: float, saved_kg_y: float, change_pct_y: float = 0.0
) -> float | None:
    """When savings have added up to what was emitted first; None for never.

    Args:
        embodied_kg: What was emitted first.
        saved_kg_y: Saved in the first year, at its beginning's rate.
        change_pct_y: By how much the grid, and so the saving, changes in a year.

    >>> years_to_pay_back(100.0, 50.0), years_to_pay_back(100.0, 0.0)
    (2.0, None)
    >>> round(years_to_pay_back(100.0, 50.0, -10.0), 2), years_to_pay_back(100.0, 10.0, -20.0)
    (2.25, None)
    """
    if embodied_kg <= 0:
        return 0.0
    if saved_kg_y <= 0:
        return None
    if abs(change_pct_y) < _STEADY_PCT:
        return embodied_kg / saved_kg_y
    rate = math.log1p(change_pct_y / 100.0)
    grown = embodied_kg * rate / saved_kg_y
    return math.log1p(grown) / rate if grown > -1.0 else None


def _grown(years: float, change_pct_y: float) -> float:
    """Years' worth of first years' savings when the grid changes."""
    if abs(change_pct_y) < _STEADY_PCT:
        return years
    rate = math.log1p(change_pct_y / 100.0)
    return math.expm1(rate * years) / rate


def weigh_purchase(
    fleet: Fleet, candidate: Machine, g_kwh: Estimate, *, utilisation: float = 0.5,
    years: float | None = None, change_pct_y: float = 0.0, sleep: bool = False,
) -> Purchase:  # fmt: skip
    """Weighs replacing groups of a fleet by a candidate.

    Args:
        utilisation: Share of the fleet's points that is in use, before and after.
        years: How long the new ones will be used; their life unless given.
        change_pct_y: By how many per cent a year the grid changes; below zero it gets cleaner.
    """
    if not -99.0 < change_pct_y < 100.0:
        raise InputError(f"a grid that changes by {change_pct_y:g} % a year")
    horizon = candidate.life_years if years is None else years
    if not 0 < horizon <= 100:
        raise InputError(f"{horizon:g} years of use; it has to be more than none")
    beside = (*fleet.groups, MachineGroup(machine=candidate, count=1))
    supply_of(msgspec.structs.replace(fleet, groups=beside), year=0)  # whether they compare
    weigh = _Weigh(fleet, candidate, g_kwh, utilisation, horizon, change_pct_y, sleep)
    groups = range(len(fleet.groups))
    # By what a point-hour draws: those that draw most go first.
    drawn = [-g.machine.peak_w.mid / (g.machine.score or g.machine.threads) for g in fleet.groups]
    hungriest = [int(group) for group in np.argsort(drawn, kind="stable")]
    ladder = tuple(weigh.offer(hungriest[: step + 1]) for step in groups)
    singles = tuple(weigh.offer([group]) for group in groups)
    paying = [offer for offer in (*ladder, *singles, *_grown_set(weigh, singles)) if offer.pays]
    kept = weigh.kept
    return Purchase(
        fleet=fleet, candidate=candidate, g_kwh=g_kwh, change_pct_y=change_pct_y,
        utilisation=utilisation, years=horizon, sleep=sleep, singles=singles, ladder=ladder,
        best=min(paying, key=lambda offer: offer.net_kg.mid) if paying else None,
        kept_kwh_y=kept, kept_kg_y=kept * g_kwh * 1e-3,
    )  # fmt: skip


def _grown_set(weigh: _Weigh, singles: Sequence[Offer]) -> list[Offer]:
    """The best single group, and with it whichever group lowers the sum most, as long as one does.

    Groups are tried one against all others, which is too much where there are very many.
    """
    if len(singles) > _MOST_TRIED:
        return []
    chosen: list[int] = []
    found: list[Offer] = []
    while len(chosen) < len(singles):
        rest = [group for group in range(len(singles)) if group not in chosen]
        offers = {group: weigh.offer([*chosen, group]) for group in rest}
        group = min(offers, key=lambda one: offers[one].net_kg.mid)
        if found and offers[group].net_kg.mid >= found[-1].net_kg.mid:
            break
        chosen.append(group)
        found.append(offers[group])
    return found


class _Weigh:
    """The fleet before, and with some groups replaced."""

    def __init__(
        self, fleet: Fleet, candidate: Machine, g_kwh: Estimate, utilisation: float,
        horizon: float, change_pct_y: float, sleep: bool,
    ) -> None:  # fmt: skip
        self.fleet, self.candidate, self.g_kwh = fleet, candidate, g_kwh
        self.horizon, self.change_pct_y, self.sleep = horizon, change_pct_y, sleep
        self.demand = utilisation * float(supply_of(fleet, year=0).capacity.sum())
        everyone = range(len(fleet.groups))
        self.kept = _ordered([self._kwh_y(_at_end(fleet, everyone, end), end) for end in _ENDS])

    def offer(self, groups: Sequence[int]) -> Offer:
        out = [self.fleet.groups[group] for group in groups]
        points = sum(group.count * (group.machine.score or group.machine.threads) for group in out)
        each = self.candidate.score or self.candidate.threads
        count = max(1, math.ceil(points / each - 1e-9))
        saved_kwh = _ordered([self._saved_kwh_y(groups, count, end) for end in _ENDS])
        saved_kg = saved_kwh * self.g_kwh * 1e-3
        embodied = self.candidate.embodied_kg * count
        grown = _grown(self.horizon, self.change_pct_y)
        return Offer(
            replaced=tuple(group.machine.name for group in out),
            servers_out=sum(group.count for group in out),
            servers_in=count,
            embodied_kg=embodied,
            saved_kwh_y=saved_kwh,
            saved_kg_y=saved_kg,
            years=self._years(embodied.mid, saved_kg.mid),
            years_best=self._years(embodied.low, saved_kg.high),
            years_worst=self._years(embodied.high, saved_kg.low),
            breakeven_g_kwh=(
                embodied.mid * 1e3 / (saved_kwh.mid * grown) if saved_kwh.mid > 0 else None
            ),
            net_kg=embodied - saved_kg * grown,
        )

    def _years(self, embodied_kg: float, saved_kg_y: float) -> float | None:
        return years_to_pay_back(embodied_kg, saved_kg_y, self.change_pct_y)

    def _saved_kwh_y(self, groups: Sequence[int], count: int, end: End) -> float:
        """Electricity saved, little (`low`) where old ones draw least and new ones most."""
        other: End = {"low": "high", "mid": "mid", "high": "low"}[end]  # type: ignore[assignment]
        before = _at_end(self.fleet, groups, end)
        new = MachineGroup(machine=_machine_at(self.candidate, other), count=count)
        stay = tuple(g for number, g in enumerate(self.fleet.groups) if number not in groups)
        after = msgspec.structs.replace(self.fleet, groups=(*stay, new))
        return self._kwh_y(before, "mid") - self._kwh_y(after, "mid")

    def _kwh_y(self, fleet: Fleet, end: End) -> float:
        supply = supply_of(fleet, year=0)
        supply = msgspec.structs.replace(supply, pue=float(getattr(fleet.pue, end)))
        share = min(self.demand / float(supply.capacity.sum()), 1.0)
        order = best_order(supply, 1.0, sleep=self.sleep)
        # At 1 g/kWh, g/h are kilowatts.
        kilowatts = filled_g_h(supply, order, [share], 1.0, sleep=self.sleep)[0]
        return float(kilowatts) * YEAR_H


def _at_end(fleet: Fleet, groups: Iterable[int], end: End) -> Fleet:
    """The fleet with the power of some groups at one end of what is known of it."""
    ended = set(groups)
    changed = tuple(
        msgspec.structs.replace(group, machine=_machine_at(group.machine, end))
        if number in ended
        else group
        for number, group in enumerate(fleet.groups)
    )
    return msgspec.structs.replace(fleet, groups=changed)


def _machine_at(machine: Machine, end: End) -> Machine:
    idle, peak = (Estimate.exact(getattr(w, end)) for w in (machine.idle_w, machine.peak_w))
    return msgspec.structs.replace(machine, idle_w=idle, peak_w=peak)


def _ordered(values: Sequence[float]) -> Estimate:
    return Estimate(min(values), values[1], max(values))
