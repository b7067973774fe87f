"""pcaps+: every stage looks ahead, and waits for the cleanest hours that it still can."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.cluster.fields import check_hours, check_share
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policies.path_softmax import PathSoftmax
from gnomon.decide.cluster.policy import ClusterPolicy, NativeForm, Setting, cluster_policies
from gnomon.decide.cluster.rules import runs_now
from gnomon.errors import InputError
from gnomon.sim.cluster import Guard


@cluster_policies.register("pcaps+")
class PcapsPlus(ClusterPolicy, frozen=True):
    """Every ready stage runs if this hour is among the cleanest that it needs.

    It needs as many hours as its path to end takes by the durations measured, or as all waiting
    work takes on `spread` of the cluster. So the longer its path, the dirtier an hour may be, and
    what would be late is not held. The order and its limits are the inner policy's: executors are
    not narrowed, so that carbon is saved by hours alone.

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

    inner: ClusterPolicy = PathSoftmax()
    window_h: int = 12
    margin: float = 0.02
    caution: float = 0.25
    spread: float = 0.5
    careful: float = 1.0
    waste: float = -1.0

    def __post_init__(self) -> None:
        check_hours("pcaps+", "window_h", self.window_h)
        check_share("pcaps+", "margin", self.margin)
        check_share("pcaps+", "caution", self.caution)
        if not (0.0 < self.spread <= 1.0 and 0.0 < self.careful < 1e3):
            raise InputError("pcaps+: spread lies from 0 to 1, careful is more than nothing")

    def native(self, setting: Setting) -> NativeForm:
        """The inner order, and a look ahead for every stage."""
        grid = setting.grid_for("pcaps+")
        width = _efficient(setting, self.waste) if self.waste >= 0 else np.zeros(0, dtype=np.int32)
        gate = _core.look_ahead_gate(self.window_h, self.margin, self.spread, self.careful, width)
        made = self.inner.native(setting).with_gate(gate)
        made = msgspec.structs.replace(made, caution=self.caution)
        return made.with_guard(Guard(patience_ns=grid.hours_ns(self.window_h)))

    def live(self, state: LiveCluster) -> LiveDecision:
        """Stages by the inner weights; those held for which cleaner hours are expected."""
        grid, held = state.grid, {}
        coming = grid.coming + self.caution * np.maximum(grid.high - grid.coming, 0.0)
        queue_s = state.work_s / max(1.0, self.spread * state.slots)
        for stage in state.ready:
            waited_h = (state.now_s - stage.submitted_s) / state.hour_s
            left = max(0, int(self.window_h - waited_h))
            needed_s = self.careful * max(state.path_s[stage.number], queue_s)
            needed = math.ceil(needed_s / state.hour_s)
            if not runs_now(grid.intensity, coming[:left], needed_h=needed, margin=self.margin):
                held[stage.number] = (
                    f"{grid.intensity:.0f} g/kWh; {needed} cleaner hours are expected within "
                    f"{left} h"
                )
        weights = self.inner.stage_weights(state)
        return self.inner.live(state).ordered_by(weights).holding(held)

    @property
    def orders_stages(self) -> bool:
        return True


def _efficient(setting: Setting, waste: float) -> NDArray[np.int32]:
    """Of each kind the greatest level whose work is within `waste` of the least."""
    levels = setting.kinds.levels
    work = np.array([setting.kinds.work_ns(int(level)) for level in levels])
    within = work <= (1.0 + waste) * work.min(axis=0)
    last = len(levels) - 1 - np.argmax(within[::-1], axis=0)
    return np.ascontiguousarray(levels[last], dtype=np.int32)
