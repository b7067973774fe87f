"""Ursa: thresholds of load per replica from an analytical plan (Zhang et al., HPCA 2024)."""

from __future__ import annotations

import functools
import math
import os

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.decide.services.load import (
    LEAST_RISE,
    appended,
    class_rates,
    greatest_rise,
    ready_for,
)
from gnomon.decide.services.policy import (
    LONGEST_S,
    ServicePolicy,
    at_cap,
    check_range,
    is_violated,
    service_policies,
)
from gnomon.decide.services.state import PERCENTILES, Allocation, Floats, ServiceState, Window
from gnomon.decide.services.ursa.exploration import Exploration
from gnomon.decide.services.ursa.plan import Plan, make_plan
from gnomon.decide.services.ursa.thresholds import Thresholds
from gnomon.errors import Infeasible, InputError
from gnomon.graph.application import Application

#: A mix is another one if a class's share of the load has moved by more than this factor.
_MIX = 1.5
#: What a class without requests is planned with, of its usual share.
_QUIET = 0.01
#: Windows with an SLA missed, out of the last ten, after which a service is explored again.
_PERSISTENT = 5
_P99 = PERCENTILES.index(99.0)


class _Memory(msgspec.Struct, frozen=True, eq=False):
    """What the scaler remembers.

    Attributes:
        rise: By what share load may rise until the next decision.
        rates: Class rates of the last windows, a row each.
        misses: Whether an SLA was missed, window by window.
        plan: In force; `allowed` are its thresholds.
        explored: Classes that were explored.
        solved_s: When the plan was made, or there was none.
        lacks: Why there is no plan.
        doubted: By service: since when, and how many of its options are trusted.
    """

    rise: float
    rates: Floats | None = None
    misses: tuple[bool, ...] = ()
    plan: Plan | None = None
    allowed: Thresholds | None = None
    explored: frozenset[str] = frozenset()
    solved_s: float = -math.inf
    lacks: str = ""
    doubted: dict[str, tuple[float, int]] = {}


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
        check_range("ursa: memory_s", self.memory_s, 0.1, 86400)
        check_range("ursa: rise_s", self.rise_s, 1, LONGEST_S)
        check_range("ursa: rise", self.rise, 0, 100)
        if self.explored:
            _exploration(self.explored)

    def check(self, app: Application) -> None:
        """That every service was explored."""
        if self.explored:
            _exploration(self.explored).check(app)

    def decide(self, state: ServiceState, rng: Generator) -> Allocation:
        app, window = state.app, state.window
        if not self.explored:
            why = "no exploration: all at their cap; give ursa?explored=FILE"
            return msgspec.structs.replace(at_cap(app, window), reason=why)
        memory = self._remember(state)
        assert memory.rates is not None
        level = ready_for(memory.rates, memory.rise, window.duration_s)
        memory, reason = self._plan(app, memory, level, window.now_s)
        plan, allowed = memory.plan, memory.allowed
        unknown = [name for name, rate in zip(app.classes, level)
                   if rate > 0 and name not in memory.explored]  # fmt: skip
        if unknown:
            reason = f"class {unknown[0]} was never explored: all at their cap"
        if unknown or plan is None or allowed is None:
            cap = at_cap(app, window)
            return msgspec.structs.replace(cap, memory=memory, reason=reason)
        memory, doubts = self._doubt(app, memory, plan, window)
        found = allocation_of(app, allowed, level, window=window, doubted=memory.doubted)
        return msgspec.structs.replace(
            found, memory=memory, reason=doubts or reason or found.reason
        )

    def _remember(self, state: ServiceState) -> _Memory:
        window = state.window
        memory: _Memory = state.memory or _Memory(self.rise)
        now = class_rates(window, memory.rates)
        rise = greatest_rise(memory.rise, memory.rates, now, window.duration_s, self.rise_s)
        missed = is_violated(state.app, window)
        return msgspec.structs.replace(
            memory, rise=max(rise, min(self.rise, LEAST_RISE)),
            rates=appended(memory.rates, now, max(round(self.memory_s / window.duration_s), 1)),
            misses=(*memory.misses[-9:], missed),
        )  # fmt: skip

    def _plan(
        self, app: Application, memory: _Memory, level: Floats, now_s: float
    ) -> tuple[_Memory, str]:
        """The plan in force; a new one at the start and when the mix has moved."""
        load = dict(zip(app.classes, level.tolist()))
        reason = ""
        if memory.plan is not None and not _has_moved(memory.plan.class_rate, load):
            return memory, ""
        if now_s - memory.solved_s < self.memory_s:  # let the mix settle
            return memory, memory.lacks
        if memory.plan is not None:
            reason = "the mix of classes has moved: a new plan"
        exploration = _exploration(self.explored)
        memory = msgspec.structs.replace(memory, solved_s=now_s, explored=_classes(exploration))
        if any(rate > 0 and name not in memory.explored for name, rate in load.items()):
            return msgspec.structs.replace(memory, solved_s=-math.inf), ""
        try:
            plan = make_plan(
                app, exploration, _with_quiet(app, memory.explored, load), explain=False,
                decomposition="union" if self.decomposition == "union" else "joint",
            )  # fmt: skip
        except (Infeasible, InputError) as error:
            lacks = f"{error}: all at their cap"
            return msgspec.structs.replace(memory, plan=None, allowed=None, lacks=lacks), lacks
        allowed = Thresholds.of(app, plan)
        return msgspec.structs.replace(memory, plan=plan, allowed=allowed, lacks=""), reason

    def _doubt(
        self, app: Application, memory: _Memory, plan: Plan, window: Window
    ) -> tuple[_Memory, str]:
        """Explores a service again when SLAs stay missed and it is slower than was explored."""
        if sum(memory.misses) >= _PERSISTENT:
            excess = _slower_than_explored(app, plan, window)
            for name in memory.doubted:
                excess.pop(name, None)
            if excess:
                worst = max(excess, key=lambda name: excess[name])
                doubted = {**memory.doubted, worst: (window.now_s, 1)}
                return (
                    msgspec.structs.replace(memory, doubted=doubted, misses=()),
                    f"SLAs stay missed and {worst} is {excess[worst]:.1f} times slower than "
                    "explored: explored again",
                )
        if not memory.doubted or any(memory.misses):
            return memory, ""
        # Every half minute without a miss a doubted service may take one step more.
        services = _exploration(self.explored).services
        doubted = {}
        for name, (since_s, trusted) in memory.doubted.items():
            step = window.now_s - since_s >= 30.0
            if trusted + step < len(services[name].options):
                doubted[name] = (window.now_s, trusted + 1) if step else (since_s, trusted)
        return msgspec.structs.replace(memory, doubted=doubted), ""


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


def _classes(exploration: Exploration) -> frozenset[str]:
    """Those that were explored."""
    options = (option for one in exploration.services.values() for option in one.options)
    return frozenset(name for option in options for name in option.load)


def _with_quiet(
    app: Application, explored: frozenset[str], load: dict[str, float]
) -> dict[str, float]:
    """The load to plan for: classes that are quiet now have a little, so that their SLAs count."""
    total = sum(load.values()) or app.rate
    shares = {name: share for name, share in app.shares().items() if name in explored}
    return {name: max(load[name], _QUIET * total * share) for name, share in shares.items()}


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


def _slower_than_explored(app: Application, plan: Plan, window: Window) -> dict[str, float]:
    """How many times slower services are than at the operating points of the plan."""
    excess = {}
    for s, name in enumerate(app.services):
        if name in plan.services:
            seen = float(window.service_ms[_P99, s])
            latencies = plan.services[name].option.latencies.values()
            timed = (one.quantile_ms(99.0) for one in latencies if one.count)
            expected = max(timed, default=math.inf)
            if seen > 1.2 * expected:
                excess[name] = seen / expected
    return excess


def allocation_of(
    app: Application, allowed: Thresholds, load: Floats, *, window: Window | None = None,
    doubted: dict[str, tuple[float, int]] | None = None,
) -> Allocation:  # fmt: skip
    """The smallest sizes that a plan allows at a load (by class); the cap where it has none."""
    if window is None:
        now = np.array([one.replicas for one in app.services.values()], np.int64)
    else:
        now = window.replicas
    trusted = None
    if doubted:
        trusted = np.full(len(now), 2**31, np.int64)
        for name, (_, steps) in doubted.items():
            trusted[list(app.services).index(name)] = steps
    sizes = allowed.sizes(load, now, trusted=trusted, window=window)
    reasons = {}
    if sizes.is_lacking.any():
        why = "no explored operating point carries this load: its cap"
        reasons = {name: why for name, lacks in zip(app.services, sizes.is_lacking) if lacks}
    reason = f"{load.sum():.0f} requests/s against the thresholds of the plan"
    return Allocation(sizes.cpu_limit, sizes.replicas, reason=reason, reasons=reasons)
