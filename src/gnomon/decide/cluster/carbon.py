"""Policies that know the grid: around an order, or around one another.

Hours are hours of the grid. `GridSteps` says how long one takes in the simulation.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.cluster.orders import Fifo, PathSoftmax
from gnomon.decide.cluster.policy import (
    ClusterPolicy,
    Parts,
    PythonPolicy,
    Setting,
    cluster_policies,
    tighter,
)
from gnomon.decide.cluster.rules import NARROWINGS, Narrowing, cap_quota
from gnomon.errors import InputError
from gnomon.sim.cluster import NEVER_NS, GridSteps, Guard

__all__ = [
    "Binding", "Cap", "CarbonScaler", "Counts", "FixedQuota", "GreenHadoop", "Guarded", "Pcaps",
    "PcapsPlus", "SuspendResume", "WaitAwhile",
]  # fmt: skip

#: When a quota holds: for every task that starts, or before a decision, whatever that gives.
Binding = Literal["task", "decision"]
#: What a quota is of: executors that run a task, or all that applications hold.
Counts = Literal["busy", "held"]


@cluster_policies.register("cap")
class Cap(msgspec.Struct, frozen=True):
    """CAP: as many executors as the grid is clean, at least a share of `least` (section 4.2).

    Nothing is stopped: while more are busy than may be, none starts. A job's limit shrinks by as
    much as the quota did (`narrows`). That holds for every `task` that starts, as the paper says.
    In the authors' program limits do not shrink on Decima, and the quota is tested before a
    `decision` alone, which may then go beyond it: `narrows=false&binding=decision`.

    The quota `counts` executors that are `busy`, as in the paper's model, or all that applications
    hold (`held`): so do a limit on pods and the target that an agent sets. Idle ones beyond it are
    then sent away, unless the order keeps them.
    """

    inner: ClusterPolicy | PythonPolicy
    least: float = 0.2
    narrows: bool = True
    binding: Binding = "task"
    counts: Counts = "busy"

    def __post_init__(self) -> None:
        _check_share("cap", "least", self.least)
        _check_word("cap", "binding", self.binding, Binding)
        _check_word("cap", "counts", self.counts, Counts)

    def parts(self, setting: Setting) -> Parts:
        """A quota for every hour."""
        grid, count = _grid_of("cap", setting), setting.executors.count
        least = max(1, round(self.least * count))
        quota = cap_quota(grid.seen, grid.low, grid.high, least=least, executors=count)
        return _with_quota(self, setting, quota)


@cluster_policies.register("quota")
class FixedQuota(msgspec.Struct, frozen=True):
    """A share of the executors at all hours: what CAP saves without knowing the grid.

    At least one executor. A share that is no whole number of them is kept over time: 2.5 are two
    in one hour and three in the next. With `narrows`, a job's limit shrinks by as much, as CAP's
    does.
    """

    inner: ClusterPolicy | PythonPolicy
    share: float = 0.5
    narrows: bool = True
    binding: Binding = "task"
    counts: Counts = "busy"

    def __post_init__(self) -> None:
        _check_share("quota", "share", self.share)
        _check_word("quota", "binding", self.binding, Binding)
        _check_word("quota", "counts", self.counts, Counts)

    def parts(self, setting: Setting) -> Parts:
        """The same quota for every hour."""
        grid, count = _grid_of("quota", setting), setting.executors.count
        # Rounded, since 0.29 x 100 is a little less than 29.
        whole = np.floor(np.round(self.share * count * np.arange(grid.seen.size + 1), 6))
        quota = np.maximum(np.diff(whole), 1).astype(np.int32)
        return _with_quota(self, setting, quota)


@cluster_policies.register("suspend")
class SuspendResume(msgspec.Struct, frozen=True):
    """Starts nothing while the grid is dirtier than a quantile of the hours to come.

    A job is held no longer than `patience_h`.
    """

    inner: ClusterPolicy | PythonPolicy = Fifo()
    quantile: float = 0.5
    patience_h: float = 24.0

    def __post_init__(self) -> None:
        _check_share("suspend", "quantile", self.quantile)
        _check_hours("suspend", "patience_h", self.patience_h)

    def parts(self, setting: Setting) -> Parts:
        """All executors or none."""
        grid, count = _grid_of("suspend", setting), setting.executors.count
        limit = np.quantile(grid.outlook, self.quantile, axis=1)
        quota = np.where(grid.seen <= limit, count, 0).astype(np.int32)
        parts = _with_gate(_parts_of(self.inner, setting), _core.quota_gate(quota, False))
        return _guarded(parts, Guard(patience_ns=_hours(grid, self.patience_h)))


@cluster_policies.register("green-hadoop")
class GreenHadoop(msgspec.Struct, frozen=True):
    """Green capacity now, and as much brown as the queue needs (Goiri et al., EuroSys 2012).

    Adapted to a grid as PCAPS' authors did: an hour's green share is where it lies between the
    dirtiest and the cleanest to come; the window is a mix of how long the queue would take on
    green capacity alone (`theta` 0) and at full speed (1).
    """

    inner: ClusterPolicy | PythonPolicy = Fifo()
    theta: float = 0.5

    def __post_init__(self) -> None:
        _check_share("green-hadoop", "theta", self.theta)

    def parts(self, setting: Setting) -> Parts:
        """A quota that follows grid and queue."""
        _grid_of("green-hadoop", setting)
        return _with_gate(_parts_of(self.inner, setting), _core.green_hadoop_gate(self.theta))


@cluster_policies.register("wait-awhile")
class WaitAwhile(msgspec.Struct, frozen=True):
    """Each job waits for the cleanest hours of its window (Wiesner et al., Middleware 2021).

    In one piece (`whole`), or in as many as the cleanest hours make.
    """

    inner: ClusterPolicy | PythonPolicy = Fifo()
    window_h: int = 24
    whole: bool = True

    def __post_init__(self) -> None:
        _check_hours("wait-awhile", "window_h", self.window_h)

    def parts(self, setting: Setting) -> Parts:
        """A plan for each job when it comes."""
        grid = _grid_of("wait-awhile", setting)
        gate = _core.window_gate(self.window_h, self.whole)
        return _guarded(
            _with_gate(_parts_of(self.inner, setting), gate),
            Guard(patience_ns=_hours(grid, self.window_h)),
        )


@cluster_policies.register("carbon-scaler")
class CarbonScaler(msgspec.Struct, frozen=True):
    """Each job has more executors where one more does most work a gram.

    After CarbonScaler (Hanafy et al., SIGMETRICS 2024): how much faster a job is with more
    executors comes from the durations measured.
    """

    inner: ClusterPolicy | PythonPolicy = Fifo()
    window_h: int = 24

    def __post_init__(self) -> None:
        _check_hours("carbon-scaler", "window_h", self.window_h)

    def parts(self, setting: Setting) -> Parts:
        """A plan of executors for each job when it comes."""
        grid = _grid_of("carbon-scaler", setting)
        gate = _core.scaler_gate(self.window_h)
        return _guarded(
            _with_gate(_parts_of(self.inner, setting), gate),
            Guard(patience_ns=_hours(grid, self.window_h)),
        )


@cluster_policies.register("pcaps")
class Pcaps(msgspec.Struct, frozen=True):
    """PCAPS: of the stages that a probabilistic policy draws, important ones run (Algorithm 1).

    A drawn stage runs if the grid is no dirtier than its importance allows, or if nothing else
    runs; else all wait for the next event. `narrowing` says how its job's limit shrinks:
    'literal' as printed, 'released' as in the authors' simulator, 'dimensionless' with the
    exponent over the range, 'none'.
    """

    inner: ClusterPolicy | PythonPolicy = PathSoftmax()
    gamma: float = 0.5
    narrowing: Narrowing = "dimensionless"

    def __post_init__(self) -> None:
        _check_share("pcaps", "gamma", self.gamma)

    def parts(self, setting: Setting) -> Parts:
        """The inner order, tested."""
        _grid_of("pcaps", setting)
        inner = _parts_of(self.inner, setting)
        if not isinstance(inner.order, _core.ProbabilisticOrder):
            raise InputError(
                f"pcaps needs a policy that draws, not {type(self.inner).__name__}",
                hint="pcaps:decima, pcaps:path-softmax",
            )
        how = NARROWINGS.index(self.narrowing)
        return msgspec.structs.replace(
            inner, order=_core.pcaps_order(inner.order, self.gamma, how)
        )


@cluster_policies.register("pcaps+")
class PcapsPlus(msgspec.Struct, frozen=True):
    """Every ready stage runs if this hour is among the cleanest that it needs.

    It needs as many hours as its way to the end of the job takes by the durations measured, or
    as all waiting work takes on `spread` of the cluster. So the longer its way, the dirtier an
    hour may be, and what would be late is not held. The order and its limits are the inner
    policy's: executors are not narrowed, so that carbon is saved by hours alone.

    Attributes:
        window_h: How long after its arrival a job may be held.
        margin: By which share an hour has to be cleaner to be worth waiting for.
        caution: Coming hours are taken to be this far from the middle of the forecast towards
            its upper end.
        spread: How much of the cluster waiting work is planned to take.
        careful: Hours needed, times this.
        waste: Where not below zero, a job is given no more executors than its work grows by this
            share with; by default the inner policy's limit stands.
    """

    inner: ClusterPolicy | PythonPolicy = PathSoftmax()
    window_h: int = 12
    margin: float = 0.02
    caution: float = 0.25
    spread: float = 0.5
    careful: float = 1.0
    waste: float = -1.0

    def __post_init__(self) -> None:
        _check_hours("pcaps+", "window_h", self.window_h)
        _check_share("pcaps+", "margin", self.margin)
        _check_share("pcaps+", "caution", self.caution)
        if not (0.0 < self.spread <= 1.0 and 0.0 < self.careful < 1e3):
            raise InputError("pcaps+: spread lies from 0 to 1, careful is more than nothing")

    def parts(self, setting: Setting) -> Parts:
        """The inner order, and a look ahead for every stage."""
        grid = _grid_of("pcaps+", setting)
        width = _efficient(setting, self.waste) if self.waste >= 0 else np.zeros(0, dtype=np.int32)
        gate = _core.look_ahead_gate(self.window_h, self.margin, self.spread, self.careful, width)
        made = _with_gate(_parts_of(self.inner, setting), gate)
        made = msgspec.structs.replace(made, caution=self.caution)
        return _guarded(made, Guard(patience_ns=_hours(grid, self.window_h)))


@cluster_policies.register("guard")
class Guarded(msgspec.Struct, frozen=True):
    """Bounds on how long whatever is inside may hold: a job, and a stage.

    A job that has been in the system for `patience_h` runs whatever the grid does; so does a stage
    that was held for `longest_hold_h`. 0 is no bound.
    """

    inner: ClusterPolicy | PythonPolicy
    patience_h: float = 24.0
    longest_hold_h: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (
            ("patience_h", self.patience_h),
            ("longest_hold_h", self.longest_hold_h),
        ):
            if not 0.0 <= value < 1e6:
                raise InputError(f"guard: {name}={value:g}", hint="zero to a million hours")
        if not (self.patience_h or self.longest_hold_h):
            raise InputError("guard without a bound", hint="guard?patience_h=24:...")

    def parts(self, setting: Setting) -> Parts:
        """The same, with a tighter guard."""
        grid = _grid_of("guard", setting)
        bounds = Guard(
            patience_ns=_hours(grid, self.patience_h) if self.patience_h else NEVER_NS,
            longest_hold_ns=_hours(grid, self.longest_hold_h) if self.longest_hold_h else NEVER_NS,
        )
        return _guarded(_parts_of(self.inner, setting), bounds)


def _parts_of(policy: ClusterPolicy | PythonPolicy, setting: Setting) -> Parts:
    if isinstance(policy, ClusterPolicy):
        return policy.parts(setting)
    raise InputError(
        f"{type(policy).__name__} decides in Python and cannot be wrapped",
        hint="let it look at the grid itself",
    )


def _with_gate(parts: Parts, gate: Any) -> Parts:
    return msgspec.structs.replace(parts, gates=(*parts.gates, gate))


def _with_quota(policy: Cap | FixedQuota, setting: Setting, quota: NDArray[np.int32]) -> Parts:
    gate = _core.quota_gate(
        quota, policy.narrows, policy.binding == "task", policy.counts == "held"
    )
    return _with_gate(_parts_of(policy.inner, setting), gate)


def _guarded(parts: Parts, guard: Guard) -> Parts:
    return msgspec.structs.replace(parts, guard=tighter(parts.guard, guard))


def _efficient(setting: Setting, waste: float) -> NDArray[np.int32]:
    """Of each kind the greatest level whose work is within `waste` of the least."""
    levels = setting.kinds.levels
    work = np.array([setting.kinds.work_ns(int(level)) for level in levels])
    within = work <= (1.0 + waste) * work.min(axis=0)
    last = len(levels) - 1 - np.argmax(within[::-1], axis=0)
    return np.ascontiguousarray(levels[last], dtype=np.int32)


def _grid_of(name: str, setting: Setting) -> GridSteps:
    if setting.grid is None:
        raise InputError(f"{name} needs a grid", hint="name a zone, or give a signal")
    return setting.grid


def _hours(grid: GridSteps, hours: float) -> int:
    return round(hours * grid.step_ns)


def _check_word(name: str, field: str, value: str, words: Any) -> None:
    if value not in get_args(words):
        raise InputError(f"{name}: {field} is {' or '.join(get_args(words))}, not {value}")


def _check_share(name: str, field: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name}: {field}={value:g}", hint="it lies from 0 to 1")


def _check_hours(name: str, field: str, value: float) -> None:
    if not 0.0 < value < 1e6:
        raise InputError(f"{name}: {field}={value:g}", hint="over 0 and under a million hours")
