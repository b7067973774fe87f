"""The same policies beside a real Spark: a grid as it is now, and what that means for its stages.

CAP becomes the number of executors; PCAPS and pcaps+ become stages that wait and an order of those
that run. In a simulation PCAPS draws one stage and tests it; in Spark all ready stages share the
executors, so each is tested.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from gnomon.act.spark import DriverState, SparkDecision, SparkPlan, plan
from gnomon.decide.cluster import (
    Cap,
    ClusterPolicy,
    Guarded,
    Pcaps,
    PcapsPlus,
    PythonPolicy,
    SuspendResume,
    cluster_policies,
)
from gnomon.decide.cluster.orders import Decima, Fair, Fifo, PathSoftmax
from gnomon.decide.cluster.rules import cap_quota, pcaps_threshold, runs_now
from gnomon.errors import InputError
from gnomon.systems.batch.live.grid import GridNow, LiveGrid
from gnomon.systems.batch.live.stages import ReadyStages, decima_chances, path_chances

__all__ = ["LiveRule", "quota_now"]

#: A chance for each stage that could run.
Weigh = Callable[[ReadyStages], dict[int, float]]


class LiveRule:
    """A policy for a running application.

    Args:
        spec: A policy by name: cap:..., pcaps:..., pcaps+:..., suspend:..., guard:... around them.
        grid: Where the grid's hours come from.
        executors: The most that the application may have, which a quota is a share of.

    Raises:
        InputError: The policy has no live form, or is a quota of nobody knows what.
    """

    def __init__(self, spec: str, grid: LiveGrid, executors: int | None) -> None:
        if executors is not None and executors < 1:
            raise InputError(f"{executors} executors", hint="at least one")
        self._layers = _layers(cluster_policies.create(spec), spec)
        if executors is None and any(isinstance(layer, Cap) for layer in self._layers):
            raise InputError(f"{spec}: of how many executors?", hint="give --executors")
        self.spec, self.grid, self._executors = spec, grid, executors
        inner = self._layers[-1]
        self._weigh, self._weighs_by = _weighing(inner)
        # A quota alone leaves the order of stages to Spark.
        self._orders = any(isinstance(layer, Pcaps | PcapsPlus) for layer in self._layers)
        self._held_since: dict[int, float] = {}

    def __call__(self, state: DriverState, now_s: float) -> SparkPlan:
        """The plan that brings the application to where it should be."""
        return plan(self.decide(state, now_s), state)

    def decide(self, state: DriverState, now_s: float) -> SparkDecision:
        """How the application should stand now."""
        # Nothing is set while the grid is not known, so that there is no lease to lose; yet an
        # agent that only waits does not see the application end.
        grid = self.grid.now(now_s, wait_s=state.lease_s / 4)
        quota: int | None = None
        reasons: dict[str, str] = {}
        ready = ReadyStages(state)
        chances = self._weigh(ready) if self._orders else {}
        held: dict[int, str] = {}
        for layer in self._layers:
            if isinstance(layer, Cap):
                allowed = quota_now(layer, grid, self._all)
                reasons["quota"] = _quota_reason(grid, allowed, self._all)
                # All of them is no quota: Spark has what it would have without us.
                if allowed < self._all:
                    quota = allowed if quota is None else min(quota, allowed)
            elif isinstance(layer, Pcaps):
                held |= _hold_pcaps(layer, grid, chances)
            elif isinstance(layer, PcapsPlus):
                held |= self._hold_ahead(layer, grid, ready, now_s)
            elif isinstance(layer, SuspendResume):
                held |= _hold_all(layer, grid, ready)
        held = self._bounded(held, ready, now_s)
        reasons |= {str(stage): why for stage, why in held.items()}
        order = tuple(sorted(chances, key=lambda stage: (-chances[stage], stage)))
        return SparkDecision(quota, frozenset(held), order, reasons)

    def pods(self, now_s: float) -> tuple[int, str]:
        """Executors that the grid allows now, and why: all there is where no driver is asked.

        Raises:
            InputError: The policy is not CAP, or the grid is not known.
        """
        caps = [layer for layer in self._layers if isinstance(layer, Cap)]
        if not caps:
            raise InputError("a quota of pods needs cap", hint="--policy cap:fifo")
        grid = self.grid.now(now_s)
        quota = min(quota_now(layer, grid, self._all) for layer in caps)
        return quota, _quota_reason(grid, quota, self._all)

    @property
    def _all(self) -> int:
        assert self._executors is not None
        return self._executors

    def describe(self) -> str:
        """What it does here, in words."""
        parts = []
        if self._executors is not None:
            parts.append(f"at most {self._executors} executors")
        if self._orders:
            parts.append(f"stages by {self._weighs_by}")
        return ", ".join([self.spec, *parts])

    def _hold_ahead(
        self, layer: PcapsPlus, grid: GridNow, ready: ReadyStages, now_s: float
    ) -> dict[int, str]:
        coming = grid.coming + layer.caution * np.maximum(grid.high - grid.coming, 0.0)
        hour_s = self.grid.hour_s
        held = {}
        for stage in ready.stages:
            waited_h = (now_s - ready.submitted_s[stage.stage]) / hour_s
            left = max(0, int(layer.window_h - waited_h))
            queue_s = ready.work_s / max(1.0, layer.spread * ready.slots)
            needed = math.ceil(layer.careful * max(ready.way_s[stage.stage], queue_s) / hour_s)
            if not runs_now(grid.intensity, coming[:left], needed_h=needed, margin=layer.margin):
                held[stage.stage] = (
                    f"{grid.intensity:.0f} g/kWh; {needed} cleaner hours are expected within "
                    f"{left} h"
                )
        return held

    def _bounded(self, held: dict[int, str], ready: ReadyStages, now_s: float) -> dict[int, str]:
        """What is left of the holds after the guards: a job's patience, a stage's longest hold."""
        for stage in list(self._held_since):
            if stage not in held:
                del self._held_since[stage]
        for stage in held:
            self._held_since.setdefault(stage, now_s)
        hour_s = self.grid.hour_s
        for layer in self._layers:
            patience_h = getattr(layer, "patience_h", 0.0) or math.inf
            longest_h = getattr(layer, "longest_hold_h", 0.0) or math.inf
            held = {
                stage: why
                for stage, why in held.items()
                if now_s - ready.submitted_s[stage] < patience_h * hour_s
                and now_s - self._held_since[stage] < longest_h * hour_s
            }
        return held


def _weighing(inner: ClusterPolicy | PythonPolicy) -> tuple[Weigh, str]:
    """How an order weighs the stages that could run, and in words."""
    if isinstance(inner, Decima):
        return functools.partial(decima_chances, weights=inner.weights()), "Decima's chances"
    sharpness = inner.sharpness if isinstance(inner, PathSoftmax) else PathSoftmax().sharpness
    weigh = functools.partial(path_chances, sharpness=sharpness)
    return weigh, f"their way to the end, sharpness {sharpness:g}"


def _hold_pcaps(layer: Pcaps, grid: GridNow, chances: dict[int, float]) -> dict[int, str]:
    held = {}
    most = max(chances.values(), default=1.0)
    for stage, chance in chances.items():
        importance = chance / most
        allowed = pcaps_threshold(importance, layer.gamma, grid.low_end, grid.high_end)
        if grid.intensity > allowed:
            held[stage] = (
                f"{grid.intensity:.0f} g/kWh; its importance {importance:.2f} allows {allowed:.0f}"
            )
    return held


def _hold_all(layer: SuspendResume, grid: GridNow, ready: ReadyStages) -> dict[int, str]:
    hours = np.append(grid.intensity, grid.coming)
    limit = float(np.quantile(hours, layer.quantile))
    if grid.intensity <= limit:
        return {}
    why = f"{grid.intensity:.0f} g/kWh, over the {limit:.0f} of the hours to come"
    return {stage.stage: why for stage in ready.stages}


def _quota_reason(grid: GridNow, quota: int, executors: int) -> str:
    return (
        f"{grid.intensity:.0f} g/kWh between {grid.low_end:.0f} and {grid.high_end:.0f}: "
        f"{quota} of {executors} executors"
    )


def quota_now(layer: Cap, grid: GridNow, executors: int) -> int:
    """Executors that CAP allows now."""
    least = max(1, round(layer.least * executors))
    quota = cap_quota(
        grid.intensity, grid.low_end, grid.high_end, least=least, executors=executors
    )
    return int(quota[0])


def _layers(policy: ClusterPolicy | PythonPolicy, spec: str) -> list[ClusterPolicy | PythonPolicy]:
    """A policy and what it wraps, outermost first."""
    layers = [policy]
    while (inner := getattr(layers[-1], "inner", None)) is not None:
        layers.append(inner)
    for layer in layers[:-1]:
        if not isinstance(layer, Cap | Pcaps | PcapsPlus | SuspendResume | Guarded):
            raise InputError(
                f"{type(layer).__name__} has no live form", where=spec,
                hint="cap, pcaps, pcaps+, suspend, and guard around them",
            )  # fmt: skip
    inner = layers[-1]
    if len(layers) > 1 and not isinstance(inner, Fifo | Fair | PathSoftmax | Decima):
        raise InputError(
            f"{type(inner).__name__} has no live form", where=spec,
            hint="inside: fifo or fair (Spark's own order), path-softmax or decima",
        )  # fmt: skip
    if len(layers) == 1:
        raise InputError(
            f"{spec} does not look at the grid", hint=f"cap:{spec}, pcaps:path-softmax"
        )
    return layers
