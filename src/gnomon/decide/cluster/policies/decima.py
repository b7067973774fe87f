"""Decima: a graph network chooses the stage and how many executors its job may have."""

from __future__ import annotations

import functools

from gnomon import _core
from gnomon.decide.cluster.live import LiveCluster, LiveDecision, decima_view
from gnomon.decide.cluster.policy import NativeForm, Order, Setting, cluster_policies
from gnomon.model.decima.network import DecimaWeights, bundled_decima, decima_probabilities


@cluster_policies.register("decima")
class Decima(Order, frozen=True):
    """The graph network of Mao et al. (SIGCOMM 2019), 4,770 parameters, in native code.

    `model` names a file of weights; the bundled ones were trained here. With `enough`, a limit may
    be no more than a job holds, which then gets none until something changes, and executors that
    are idle because their job waits for another of its stages stay with it; in the authors'
    program a limit is always more, and idle executors have to be given to somebody.
    """

    model: str = ""
    enough: bool = True

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.decima_order(self.weights().parameters, False, self.enough))

    def live(self, state: LiveCluster) -> LiveDecision:
        """Nothing by itself: wrappers ask for the weights."""
        return LiveDecision()

    def stage_weights(self, state: LiveCluster) -> dict[int, float]:
        """The probabilities that Decima would draw from, if all ready stages could be served."""
        weights = _read_once(self.model)  # before all else: a wrong file is reported at once
        view, numbers = decima_view(state)
        if not numbers:
            return {}
        chances, _ = decima_probabilities(weights, view, job=0, lowest=1, highest=1)
        return {number: float(chance) for number, chance in zip(numbers, chances)}

    @property
    def weighs_by(self) -> str:
        return "Decima's probabilities"

    def weights(self) -> DecimaWeights:
        """Those of the file, or the bundled ones."""
        return DecimaWeights.load(self.model) if self.model else bundled_decima()


@functools.cache
def _read_once(model: str) -> DecimaWeights:
    """An agent keeps the weights it started with, whatever becomes of the file."""
    return Decima(model).weights()
