"""Orders by simple rules: who came first, equal shares, least work, longest path."""

from __future__ import annotations

from gnomon import _core
from gnomon.decide.cluster.live import LiveCluster, LiveDecision
from gnomon.decide.cluster.policies.path_softmax import PathSoftmax
from gnomon.decide.cluster.policy import NativeForm, Order, Setting, cluster_policies
from gnomon.errors import InputError

_ALL = 2**31 - 1


class SparkOrder(Order, frozen=True):
    """An order that Spark has itself: live, stages are weighed only where a wrapper needs it."""

    def live(self, state: LiveCluster) -> LiveDecision:
        return LiveDecision()

    def stage_weights(self, state: LiveCluster) -> dict[int, float]:
        return PathSoftmax().stage_weights(state)

    @property
    def weighs_by(self) -> str:
        return PathSoftmax().weighs_by


@cluster_policies.register("fifo")
class Fifo(SparkOrder, frozen=True):
    """The job that came first takes all executors it can use, as in Spark standalone.

    Executors that come free of a job serve its other stages first: to move them costs time.
    """

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.fifo_order(_ALL, False))


@cluster_policies.register("kubernetes")
class Kubernetes(Order, frozen=True):
    """Spark on Kubernetes by default: first come, `per_job` executors each, kept to the end."""

    per_job: int = 25

    def __post_init__(self) -> None:
        if not 1 <= self.per_job < 2**31:
            raise InputError(f"kubernetes: per_job={self.per_job}", hint="at least 1, below 2^31")

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.fifo_order(self.per_job, True))


@cluster_policies.register("fair")
class Fair(SparkOrder, frozen=True):
    """Every job in the system the same share of the executors."""

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.fair_order(0.0))


@cluster_policies.register("weighted-fair")
class WeightedFair(Order, frozen=True):
    """Shares by a job's work to the power of `exponent`: below zero, small jobs get more."""

    exponent: float = -1.0

    def __post_init__(self) -> None:
        if not -8.0 <= self.exponent <= 8.0:
            raise InputError(f"weighted-fair: exponent={self.exponent:g}", hint="from -8 to 8")

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.fair_order(self.exponent))


@cluster_policies.register("shortest-job")
class ShortestJob(Order, frozen=True):
    """The job with the least work left."""

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.shortest_order())


@cluster_policies.register("critical-path")
class CriticalPath(Order, frozen=True):
    """The stage with the longest path to end."""

    def native(self, setting: Setting) -> NativeForm:
        return NativeForm(_core.critical_path_order())
