"""Ursa: thresholds of load per replica from an analytical plan (Zhang et al., HPCA 2024)."""

from __future__ import annotations

import functools
import math
import os

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.decide.services.policy import (
    ServicePolicy,
    at_cap,
    bounds,
    service_policies,
    worst_sla_ratio,
)
from gnomon.decide.services.state import PERCENTILES, Allocation, Floats, ServiceState, Window
from gnomon.decide.services.ursa.exploration import Exploration
from gnomon.decide.services.ursa.plan import Plan, make_plan
from gnomon.decide.services.ursa.thresholds import Thresholds
from gnomon.errors import Infeasible, InputError
from gnomon.graph.application import Application

#: A mix is another one if a class's share of the load has moved by more than this factor.
_MIX = 1.5
#: Windows with an SLA missed, out of the last ten, after which a service is explored again.
_PERSISTENT = 5
#: Standard deviations of a Poisson count that a rise in load must exceed.
_CHANCE = 1.5
#: However steady load has been, it may rise by this share.
_LEAST_RISE = 0.15
#: Windows until a mean is worth comparing with.
_SETTLED = 5
#: What waits is worked off in so many seconds.
_DRAIN_S = 1.0
_P99 = PERCENTILES.index(99.0)


class _Memory(msgspec.Struct, frozen=True, eq=False):
    """What the scaler remembers.

    Attributes:
        plan: In force; `allowed` are its thresholds.
        rates: Class rates of the last windows, oldest first.
        misses: Whether an SLA was missed, window by window.
        doubted: By service: since when, and how many of its options are trusted.
        solved_s: When the plan was made.
        rise: By what share load may rise until the next decision.
    """

    plan: Plan | None
    rise: float
    allowed: Thresholds | None = None
    rates: tuple[tuple[float, ...], ...] = ()
    misses: tuple[bool, ...] = ()
    doubted: dict[str, tuple[float, int]] = {}
    solved_s: float = 0.0


@service_policies.register("ursa")
class Ursa(ServicePolicy, frozen=True):
    """Ursa: every service carries at most the load per replica that a plan allows.

    The plan comes from an exploration (`explored`, a file of `gnomon services explore`). Between
    plans no model is asked: loads are compared with thresholds. The program is solved again when
    the mix of classes has moved, and a service whose latency is not what was explored while SLAs
    are missed is taken back to safe operating points and tried step by step again.

    Load is the greatest of its means over the last windows, up to `memory_s`, so that it rises
    quickly and falls slowly. On top comes what it may rise by before the next decision: the
    greatest rise seen, which is forgotten with a half-life of `rise_s` seconds. `rise` is what is
    assumed at the start, 1 for a load that may double. What waits at a service is worked off
    within about a second: it gets the CPU for that, too.
    """

    explored: str = ""
    decomposition: str = "joint"
    memory_s: float = 30.0
    rise: float = 1.0
    rise_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.decomposition not in ("joint", "union"):
            raise InputError(f"ursa: decomposition {self.decomposition!r} is not known",
                             hint="joint or union")  # fmt: skip
        if not 0 < self.memory_s <= 86400 or not self.rise_s > 0 or not 0 <= self.rise <= 100:
            raise InputError("ursa: memory_s and rise_s are positive, rise is 0 to 100")
        if self.explored:
            _exploration(self.explored)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        app, window = state.app, state.window
        if not self.explored:
            why = "no exploration: all at their cap; give ursa?explored=FILE"
            return msgspec.structs.replace(at_cap(app, window), reason=why)
        exploration = _exploration(self.explored)
        memory = _remember(self, state)
        level = self._load(memory, window.duration_s)
        load = dict(zip(app.classes, level.tolist()))
        unknown = [
            name for name, rate in load.items() if rate > 0 and not _is_known(exploration, name)
        ]
        if unknown:
            cap = at_cap(app, window)
            return msgspec.structs.replace(
                cap,
                memory=memory,
                reason=f"class {unknown[0]} was never explored: all at their cap",
            )
        memory, reason = self._plan(app, exploration, memory, load, window.now_s)
        plan, allowed = memory.plan, memory.allowed
        if plan is None or allowed is None:
            cap = at_cap(app, window)
            return msgspec.structs.replace(cap, memory=memory, reason=reason)
        memory, doubts = _doubt(app, exploration, memory, plan, window)
        found = allocation_of(app, allowed, level, window=window, doubted=memory.doubted)
        return msgspec.structs.replace(
            found, memory=memory, reason=doubts or reason or found.reason
        )

    def _load(self, memory: _Memory, window_s: float) -> Floats:
        """Requests per second of each class to be ready for."""
        rates = np.array(memory.rates)
        level = rates.mean(axis=0)
        # A short mean is noisy: it counts as far as it is above what chance explains.
        for count in (1, 2, 4, 8, 16):
            mean = rates[-count:].mean(axis=0)
            level = np.maximum(level, mean - _CHANCE * np.sqrt(mean / (count * window_s)))
        ready: Floats = level * (1.0 + memory.rise)
        return ready

    def _plan(
        self, app: Application, exploration: Exploration, memory: _Memory,
        load: dict[str, float], now_s: float,
    ) -> tuple[_Memory, str]:  # fmt: skip
        """The plan in force; a new one at the start and when the mix has moved."""
        reason = ""
        if memory.plan is not None and not _has_moved(memory.plan.class_rate, load):
            return memory, ""
        if memory.plan is not None:
            if now_s - memory.solved_s < self.memory_s:  # let the mix settle
                return memory, ""
            reason = "the mix of classes has moved: a new plan"
        try:
            plan = make_plan(
                app, exploration, load, explain=False,
                decomposition="union" if self.decomposition == "union" else "joint",
            )  # fmt: skip
        except (Infeasible, InputError) as error:
            return msgspec.structs.replace(memory, solved_s=now_s), f"{error}: all at their cap"
        found = msgspec.structs.replace(
            memory, plan=plan, allowed=Thresholds.of(app, plan), solved_s=now_s
        )
        return found, reason


def _exploration(path: str) -> Exploration:
    """The file, read once as long as it stays the same."""
    try:
        changed_ns = os.stat(path).st_mtime_ns
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}",
                         hint="`gnomon services explore` writes it") from None  # fmt: skip
    return _read(path, changed_ns)


@functools.lru_cache(maxsize=8)
def _read(path: str, changed_ns: int) -> Exploration:
    return Exploration.read(path)


def _is_known(exploration: Exploration, request_class: str) -> bool:
    return any(
        request_class in option.load
        for one in exploration.services.values()
        for option in one.options
    )


def _remember(policy: Ursa, state: ServiceState) -> _Memory:
    window = state.window
    memory: _Memory = state.memory or _Memory(None, policy.rise)
    kept = max(round(policy.memory_s / window.duration_s), 1)
    rates = tuple(np.nan_to_num(window.class_rate).tolist())
    ratio = worst_sla_ratio(state.app, window)
    forgotten = 0.5 ** (window.duration_s / policy.rise_s)
    return msgspec.structs.replace(
        memory, rates=(*memory.rates, rates)[-kept:],
        misses=(*memory.misses, ratio > 1.0)[-10:],
        rise=max(memory.rise * forgotten, _rise(memory.rates, rates, window.duration_s),
                 min(policy.rise, _LEAST_RISE)),
    )  # fmt: skip


def _rise(past: tuple[tuple[float, ...], ...], now: tuple[float, ...], window_s: float) -> float:
    """By what share all requests rose above their mean, less what chance explains."""
    if len(past) < _SETTLED:
        return 0.0
    before, after = float(np.mean([sum(one) for one in past])), sum(now)
    if before <= 0:
        return 0.0
    return max((after - _CHANCE * math.sqrt(after / window_s)) / before - 1.0, 0.0)


def _has_moved(planned: dict[str, float], load: dict[str, float]) -> bool:
    """Whether the shares of the classes differ by much."""
    before, now = sum(planned.values()), sum(load.values())
    if before <= 0 or now <= 0:
        return now > 0
    for name, rate in load.items():
        share, was = rate / now, planned.get(name, 0.0) / before
        if share > 0.01 and (was == 0 or not 1 / _MIX < share / was < _MIX):
            return True
    return False


def _doubt(
    app: Application, exploration: Exploration, memory: _Memory, plan: Plan, window: Window
) -> tuple[_Memory, str]:
    """Explores a service again when SLAs stay missed and it is slower than was explored."""
    doubted = dict(memory.doubted)
    if sum(memory.misses) >= _PERSISTENT:
        excess = {}
        for s, name in enumerate(app.services):
            if name not in plan.services or name in doubted:
                continue
            seen = float(window.service_ms[_P99, s])
            expected = max(
                one.quantile_ms(99.0) for one in plan.services[name].option.latencies.values()
            )
            if seen > 1.2 * expected:
                excess[name] = seen / expected
        if excess:
            worst = max(excess, key=lambda name: excess[name])
            doubted[worst] = (window.now_s, 1)
            return (
                msgspec.structs.replace(memory, doubted=doubted, misses=()),
                f"SLAs stay missed and {worst} is {excess[worst]:.1f} times slower than explored: "
                "explored again",
            )
    # Every half minute without a miss a doubted service may take one step more.
    for name, (since_s, trusted) in list(doubted.items()):
        if window.now_s - since_s >= 30.0 and not any(memory.misses):
            if trusted + 1 >= len(exploration.services[name].options):
                del doubted[name]
            else:
                doubted[name] = (window.now_s, trusted + 1)
    return msgspec.structs.replace(memory, doubted=doubted), ""


def allocation_of(
    app: Application, allowed: Thresholds, load: Floats, *, window: Window | None = None,
    doubted: dict[str, tuple[float, int]] | None = None,
) -> Allocation:  # fmt: skip
    """The smallest sizes that a plan allows at a load (by class); the cap where it has none."""
    least, most, replicas_max = bounds(app)
    if window is None:
        now = np.array([one.replicas for one in app.services.values()], np.int64)
    else:
        now = np.maximum(window.replicas, 1)
    trusted = np.full(len(now), 2**31)
    for name, (_, steps) in (doubted or {}).items():
        trusted[list(app.services).index(name)] = steps
    sizes = allowed.sizes(load, now, trusted)
    is_idle = ~((allowed.visits * load).sum(axis=1) > 0)
    lacks = (sizes.replicas < 0) & ~is_idle
    counts = np.where(is_idle, 1, np.where(lacks, replicas_max, sizes.replicas))
    limits: Floats = np.where(is_idle, least, np.where(lacks, most, sizes.cpu_limit))
    if window is not None:
        limits = limits + _to_drain(window) / counts
    names = list(app.services)
    bounded: Floats = np.minimum(limits, most).round(4)
    return Allocation(
        bounded, counts,
        reasons={names[s]: "no explored operating point carries this load: its cap"
                 for s in np.flatnonzero(lacks)},
        reason=f"{load.sum():.0f} requests/s against the thresholds of the plan",
    )  # fmt: skip


def _to_drain(window: Window) -> Floats:
    """By service: cores that work off what waits."""
    waits = (window.queue > 1) & (window.rate > 0)
    each = np.divide(window.usage, window.rate, out=np.zeros(len(waits)), where=waits)
    return np.where(waits, window.queue, 0.0) * each / _DRAIN_S
