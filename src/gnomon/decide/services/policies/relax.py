"""Less CPU while the grid is dirty, as long as every SLA has room: a guard around any manager."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policies.static import Static
from gnomon.decide.services.policy import (
    LONGEST_S,
    ServicePolicy,
    bounds,
    check_range,
    is_violated,
    service_policies,
    worst_sla_ratio,
)
from gnomon.decide.services.state import Allocation, Floats, ServiceState, Window
from gnomon.graph.application import Application
from gnomon.series.zones import resolve_zone, zone_profile

#: Windows that must all have had room before anything is taken away.
_WINDOWS = 3
#: There is room while latency over its bound is under this share of `near`.
_ROOM = 0.75
#: Windows over which a cut grows to its full depth: one step at once would be a load test.
_STEPS = 4
#: How often the wait after a failed cut doubles at most.
_DOUBLINGS = 4
#: Orders of the hours among which a placebo finds one that is blind to the grid.
_ORDERS = 1000
#: Cores: runtimes round limits, Kubernetes to a thousandth of a core.
_ROUNDING = 2e-3


@functools.cache
def day_intensity(zone: str) -> Floats:
    """g/kWh by hour of the day (UTC) in a bundled zone: the mean over the months of its profile.

    >>> day = day_intensity("DE")
    >>> len(day), bool(day[12] < day.mean() < day[19])
    (24, True)
    """
    day: Floats = zone_profile(zone).day_shape.mean(axis=0)
    day.flags.writeable = False
    return day


@functools.cache
def placebo_intensity(zone: str) -> Floats:
    """The same 24 values in an order that says nothing about the grid.

    Of a thousand orders drawn from a fixed seed, the one with the least correlation with the real
    day. A shift by 12 hours would still follow the grid, often against it: where nights are dirty
    it relaxes by day.

    >>> real, blind = day_intensity("DE"), placebo_intensity("DE")
    >>> sorted(real) == sorted(blind), bool(abs(np.corrcoef(real, blind)[0, 1]) < 0.01)
    (True, True)
    """
    day = day_intensity(zone)
    rng = np.random.default_rng(0x91ACEB0)
    orders = np.array([rng.permutation(day) for _ in range(_ORDERS)])
    alike = np.abs((orders - day.mean()) @ (day - day.mean()))
    blind: Floats = orders[int(np.argmin(alike))].copy()
    blind.flags.writeable = False
    return blind


def day_cuts(day: Floats, depth: float) -> Floats:
    """Share of a limit to take off in each hour: none up to the mean, `depth` in the dirtiest.

    >>> day_cuts(np.array([100.0, 200.0, 300.0, 400.0]), 0.3).round(3).tolist()
    [0.0, 0.0, 0.1, 0.3]
    """
    above = day - day.mean()
    cuts: Floats = depth * np.maximum(above, 0.0) / max(float(above.max()), 1e-9)
    return cuts


class _Course(msgspec.Struct, frozen=True):
    """How far a guard has gone.

    Attributes:
        level: Of the hour's cut, the share that is in force: 0 to 1.
        ratios: Latency over its bound in the last windows, oldest first.
        wait_until_s: Nothing is taken away before.
        failures: Cuts that had to be given back since the grid was last clean.
    """

    level: float = 0.0
    ratios: tuple[float, ...] = ()
    wait_until_s: float = 0.0
    failures: int = 0


class _Memory(msgspec.Struct, frozen=True, eq=False):
    """What the guard remembers, with the inner manager's memory inside.

    Attributes:
        inner: The inner manager's.
        own: By service: the limit that the inner manager wants.
        given: The limit that was asked for in its place.
        course: How far it has gone.
    """

    inner: Any
    own: Floats
    given: Floats
    course: _Course


@service_policies.register("relax")
class Relax(ServicePolicy, frozen=True):
    """Takes up to `depth` off the limits of a manager while the grid is dirty and SLAs have room.

    `relax?zone=DE&hour=14:autothrottle`, for a run that starts at 14:00 UTC. In hours above the
    day's mean intensity limits shrink, the more the dirtier, over a few windows. Everything is
    given back at once when a latency comes near its bound (`near`, as a share of it), when an SLA
    is violated, when data is missing and when the manager fails. Then nothing is tried for
    `wait_s`, and for longer if that happens again before the grid is clean. In the other hours,
    without a zone and without an SLA, the manager's answer passes unchanged.

    The manager sees the limits that it asked for, in place of those in force, so that cuts do not
    add up. What it measures is not changed: one that steers by throttling (`autothrottle`) asks
    for more when its limits are cut, and may in the end allocate more than without the guard.

    The intensity is the zone's typical day, the mean over its months. `placebo` takes the hours of
    that day in an order that says nothing about the grid: as much is relaxed, at other times. What
    it saves has nothing to do with the grid. `hour_s` is how long an hour of the grid takes, for
    days in fast motion.
    """

    inner: ServicePolicy = Static()
    zone: str = ""
    hour: float = 0.0
    depth: float = 0.2
    near: float = 0.8
    wait_s: float = 120.0
    placebo: bool = False
    hour_s: float = 3600.0

    #: Its cuts follow the grid's hours.
    reads_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.zone:
            resolve_zone(self.zone)
        check_range("relax: hour", self.hour, 0, 24)
        check_range("relax: depth", self.depth, 0, 0.9)
        check_range("relax: near", self.near, 0.01, 1)
        check_range("relax: wait_s", self.wait_s, 0, LONGEST_S)
        check_range("relax: hour_s", self.hour_s, 1, LONGEST_S)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        app, window = state.app, state.window
        past: _Memory | None = state.memory
        own = _own_limit(window, past)
        seen = msgspec.structs.replace(window, cpu_limit=own)
        inner = ServiceState(app, seen, None if past is None else past.inner)
        try:
            asked = self.inner.decide(inner, rng)
        except Exception as error:
            # Whoever called would hold the limits as they are. Cut ones are given back first; if
            # the manager fails again, they are its own.
            if past is None or _equal(own, window.cpu_limit):
                raise
            return self._give_back(window, past, f"{type(error).__name__}: {error}")
        own = np.where(np.isnan(asked.cpu_limit) | (asked.cpu_limit < 0), own, asked.cpu_limit)
        course, why = self._advance(app, window, _Course() if past is None else past.course)
        cut = course.level * self.cut_at(window.now_s)
        given = _lowered(app, own, cut)
        memory = _Memory(asked.memory, own, given, course)
        # Unless a limit differs, the answer is as the manager wrote it: NaN is still 'as it is'.
        is_same = _equal(given, own) and _equal(seen.cpu_limit, window.cpu_limit)
        limit = asked.cpu_limit if is_same else given
        if cut > 0:
            why = f"{cut:.1%} less while the grid is dirty"
        elif not self.zone:
            why = "nothing relaxed: no zone; give relax?zone=DE"
        return msgspec.structs.replace(
            asked, cpu_limit=limit, memory=memory,
            reason="; ".join(part for part in (asked.reason, why) if part),
        )  # fmt: skip

    def _give_back(self, window: Window, past: _Memory, error: str) -> Allocation:
        own = _own_limit(window, past)
        course = _Course(0.0, past.course.ratios, window.now_s + self.wait_s, past.course.failures)
        return Allocation(
            own, np.full(len(own), -1, np.int64), reason=f"the manager failed: {error}",
            memory=_Memory(past.inner, own, own, course),
        )  # fmt: skip

    def cut_at(self, now_s: float) -> float:
        """Share of a limit that may be taken off at this second of the run."""
        if not self.zone:
            return 0.0
        cuts = _cuts(self.zone, self.placebo, self.depth)
        return float(cuts[int(self.hour + now_s / self.hour_s) % 24])

    def _advance(self, app: Application, window: Window, past: _Course) -> tuple[_Course, str]:
        """How far to go after this window, and why not."""
        now_s, is_dirty = window.now_s, self.cut_at(window.now_s) > 0
        ratio = worst_sla_ratio(app, window)
        ratios = (*past.ratios, ratio)[-_WINDOWS:]
        failures = past.failures if is_dirty else 0
        if trouble := self._trouble(app, window, ratio):
            failures += past.level > 0
            # Each cut that fails makes the next one wait twice as long.
            wait_s = self.wait_s * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS)
            until_s = max(past.wait_until_s, now_s + wait_s)
            return _Course(0.0, ratios, until_s, failures), trouble if is_dirty else ""
        level = past.level if is_dirty else 0.0
        has_room = len(ratios) == _WINDOWS and all(r < _ROOM * self.near for r in ratios)
        if is_dirty and has_room and now_s >= past.wait_until_s:
            level = min(level + 1.0 / _STEPS, 1.0)
        return _Course(level, ratios, past.wait_until_s, failures), ""

    def _trouble(self, app: Application, window: Window, ratio: float) -> str:
        """Why limits must be as the manager wants them; empty if they may be lower."""
        if _is_blind(app, window):
            return "nothing relaxed: no data on an SLA"
        if is_violated(app, window):
            return "nothing relaxed: an SLA is violated"
        if ratio > self.near:
            return f"nothing relaxed: a latency is at {ratio:.0%} of its bound"
        return ""


@functools.lru_cache(maxsize=64)
def _cuts(zone: str, placebo: bool, depth: float) -> Floats:
    return day_cuts(placebo_intensity(zone) if placebo else day_intensity(zone), depth)


def _own_limit(window: Window, past: _Memory | None) -> Floats:
    """The limits now, without what was taken off them."""
    if past is None:
        return window.cpu_limit
    now, is_cut = window.cpu_limit, past.given < past.own
    # A cut may still be on its way, or rounded, or slowed down by guard rails.
    is_ours = np.isnan(now) | ((now >= past.given - _ROUNDING) & (now < past.own))
    return np.where(is_cut & is_ours, past.own, now)


def _lowered(app: Application, own: Floats, cut: float) -> Floats:
    """Limits less a share, within what the application allows; no limit stays none."""
    least, most, _ = bounds(app)
    if cut <= 0:
        return own
    lower = np.maximum(np.minimum(own, most) * (1.0 - cut), least)
    return np.where(np.isfinite(own), np.minimum(own, lower), own)


def _equal(one: Floats, other: Floats) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))


def _is_blind(app: Application, window: Window) -> bool:
    """Whether something is missing that tells of an SLA, or what there is to take away from."""
    if np.isnan(window.usage).any() or np.isnan(window.cpu_limit).any():
        return True
    watched = [i for i, one in enumerate(app.classes.values()) if one.sla is not None]
    silent = np.isnan(window.class_ms[:, watched]).any(axis=0)
    busy = np.nan_to_num(window.class_rate[watched], nan=1.0) > 0
    return not watched or bool(np.all(silent)) or bool(np.any(silent & busy))
