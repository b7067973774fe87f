"""Orders: which stage is served next, whatever the grid does."""

from __future__ import annotations

import msgspec

from gnomon import _core
from gnomon.decide.cluster.policy import Parts, Setting, cluster_policies
from gnomon.errors import InputError
from gnomon.model.decima.network import DecimaWeights, bundled_decima

__all__ = [
    "CriticalPath", "Decima", "Fair", "Fifo", "Kubernetes", "PathSoftmax", "ShortestJob",
    "WeightedFair",
]  # fmt: skip

_ALL = 2**31 - 1


@cluster_policies.register("fifo")
class Fifo(msgspec.Struct, frozen=True):
    """The job that came first takes all executors it can use, as in Spark standalone.

    Executors that come free of a job serve its other stages first: to move them costs time.
    """

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.fifo_order(_ALL, False))


@cluster_policies.register("kubernetes")
class Kubernetes(msgspec.Struct, frozen=True):
    """Spark on Kubernetes by default: first come, `per_job` executors each, kept to the end."""

    per_job: int = 25

    def __post_init__(self) -> None:
        if not 1 <= self.per_job < 2**31:
            raise InputError(f"kubernetes: per_job={self.per_job}", hint="at least 1, below 2^31")

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.fifo_order(self.per_job, True))


@cluster_policies.register("fair")
class Fair(msgspec.Struct, frozen=True):
    """Every job in the system the same share of the executors."""

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.fair_order(0.0))


@cluster_policies.register("weighted-fair")
class WeightedFair(msgspec.Struct, frozen=True):
    """Shares by a job's work to the power of `exponent`: below zero, small jobs get more."""

    exponent: float = -1.0

    def __post_init__(self) -> None:
        if not -8.0 <= self.exponent <= 8.0:
            raise InputError(f"weighted-fair: exponent={self.exponent:g}", hint="from -8 to 8")

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.fair_order(self.exponent))


@cluster_policies.register("shortest-job")
class ShortestJob(msgspec.Struct, frozen=True):
    """The job with the least work left."""

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.shortest_order())


@cluster_policies.register("critical-path")
class CriticalPath(msgspec.Struct, frozen=True):
    """The stage with the longest way to the end of its job."""

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.critical_path_order())


@cluster_policies.register("path-softmax")
class PathSoftmax(msgspec.Struct, frozen=True):
    """Draws a stage, the likelier the longer its way to the end; every job an equal share.

    A stage's chance is exp(sharpness w), w being its way as a share of the longest.
    """

    sharpness: float = 5.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.sharpness <= 700.0:
            raise InputError(f"path-softmax: sharpness={self.sharpness:g}", hint="from 0 to 700")

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.path_softmax_order(self.sharpness))


@cluster_policies.register("decima")
class Decima(msgspec.Struct, frozen=True):
    """The graph network of Mao et al. (SIGCOMM 2019), 4,770 parameters, in native code.

    `model` names a file of weights; the bundled ones were trained here. With `enough`, a limit may
    be no more than a job holds, which then gets none until something changes, and executors that
    are idle because their job waits for another of its stages stay with it; in the authors'
    program a limit is always more, and idle executors have to be given to somebody.
    """

    model: str = ""
    enough: bool = True

    def parts(self, setting: Setting) -> Parts:
        """Native."""
        return Parts(_core.decima_order(self.weights().parameters, False, self.enough))

    def weights(self) -> DecimaWeights:
        """Those of the file, or the bundled ones."""
        return DecimaWeights.load(self.model) if self.model else bundled_decima()
