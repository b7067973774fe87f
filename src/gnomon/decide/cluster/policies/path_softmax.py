"""A random order in which stages with a longer path to end are likelier."""

from __future__ import annotations

import math

from gnomon import _core
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policy import NativeForm, Order, Setting, cluster_policies
from gnomon.errors import InputError


@cluster_policies.register("path-softmax")
class PathSoftmax(Order, frozen=True):
    """Draws a stage, the likelier the longer its path to end; every job an equal share.

    A stage's probability is proportional to exp(sharpness w), w being its path to end as a share
    of the longest.
    """

    sharpness: float = 5.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.sharpness <= 700.0:
            raise InputError(f"path-softmax: sharpness={self.sharpness:g}", hint="from 0 to 700")

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.path_softmax_order(self.sharpness))

    def live(self, state: LiveCluster) -> LiveDecision:
        """Nothing by itself: wrappers ask for the weights."""
        return LiveDecision()

    def stage_weights(self, state: LiveCluster) -> dict[int, float]:
        """The softmax, scaled so that the likeliest has 1."""
        path_s = {stage.number: state.path_s[stage.number] for stage in state.ready}
        longest = max(path_s.values(), default=0.0) or 1.0
        return {
            stage: math.exp(self.sharpness * (path / longest - 1.0))
            for stage, path in path_s.items()
        }

    @property
    def weighs_by(self) -> str:
        return f"path to end, sharpness {self.sharpness:g}"
