"""Decima's network: its weights, where they come from, and what it thinks of a cluster.

Decima (Mao et al., "Learning scheduling algorithms for data processing clusters", SIGCOMM 2019)
chooses the stage that free executors go to, and how many its job may hold. The network and its
gradient are native (`native/engine/decima/`); the tests have the same in PyTorch.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gnomon import _core
from gnomon.errors import InputError
from gnomon.table.atomic import atomic_file

PARAMETERS = _core.DECIMA_PARAMETERS

#: Sizes of the layers of each net, inputs first. All layers but a head's last are followed by a
#: leaky ReLU (slope 0.2). Nodes have 5 inputs: executors of the job / 20, +2 or -2 for whether the
#: free executor was its own, free executors / 20, remaining work in ms / 100,000, unstarted tasks
#: / 200; jobs have the first three.
NETS: dict[str, tuple[int, ...]] = {
    "prepare": (5, 16, 8, 8),
    "process": (8, 16, 8, 8),
    "aggregate": (8, 16, 8, 8),
    "summarize_job": (13, 16, 8, 8),  # inputs, embedding
    "summarize_all": (8, 16, 8, 8),
    "stage_head": (29, 32, 16, 8, 1),  # inputs, embedding, both summaries
    "limit_head": (20, 32, 16, 8, 1),  # inputs of the job, both summaries, limit / 50
}

_BUNDLED = Path(__file__).with_name("decima.npz")
_MOST_BYTES = 10_000_000
_Floats = npt.NDArray[np.float32]
_Ints = npt.NDArray[np.int32]


class Layer(NamedTuple):
    """Views into the parameters: weights are inputs x outputs."""

    net: str
    weight: _Floats
    bias: _Floats


class DecimaWeights(msgspec.Struct, frozen=True, eq=False):
    """Parameters of one trained network.

    Attributes:
        parameters: float32, 4,770 of them: net after net as in `NETS`, of each layer the weights
            (inputs x outputs, row by row), then the biases.

    >>> weights = DecimaWeights.initial(np.random.default_rng(0))
    >>> [(layer.net, layer.weight.shape) for layer in weights.layers()][:2]
    [('prepare', (5, 16)), ('prepare', (16, 8))]
    """

    parameters: _Floats
    about: str = ""

    def __post_init__(self) -> None:
        parameters = self.parameters
        if parameters.dtype != np.float32 or parameters.shape != (PARAMETERS,):
            what = f"{parameters.dtype} of shape {parameters.shape}"
            raise InputError(f"Decima has {PARAMETERS} parameters in float32, not {what}")
        if not np.isfinite(parameters).all():
            raise InputError("a parameter of Decima is not a number")
        parameters.flags.writeable = False

    @classmethod
    def initial(cls, rng: np.random.Generator) -> DecimaWeights:
        """Untrained: weights uniform after Glorot and Bengio (2010), biases zero."""
        parts = []
        for sizes in NETS.values():
            for inputs, outputs in pairwise(sizes):
                reach = np.sqrt(6.0 / (inputs + outputs))
                parts += [rng.uniform(-reach, reach, inputs * outputs), np.zeros(outputs)]
        return cls(np.concatenate(parts).astype(np.float32), "untrained")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DecimaWeights:
        where, hint = os.fspath(path), "`gnomon batch train-decima` writes such files"
        try:
            if os.stat(path).st_size > _MOST_BYTES:
                raise InputError("too large for Decima's weights", where=where, hint=hint)
            with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
                return cls(np.array(file["parameters"]), str(file["about"]))
        except InputError as error:
            raise InputError(error.what, where=where, hint=hint) from None
        except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or "not a file of Decima's weights"
            raise InputError(reason, where=where, hint=hint) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        with atomic_file(path) as file:
            np.savez(file, parameters=self.parameters, about=np.array(self.about))

    def layers(self) -> Iterator[Layer]:
        at = 0
        for net, sizes in NETS.items():
            for inputs, outputs in pairwise(sizes):
                bias_at = at + inputs * outputs
                weight = self.parameters[at:bias_at].reshape(inputs, outputs)
                at = bias_at + outputs
                yield Layer(net, weight, self.parameters[bias_at:at])


@cache
def bundled_decima() -> DecimaWeights:
    """The network that comes with gnomon, trained on jobs like TPC-H's."""
    return DecimaWeights.load(_BUNDLED)


class DecimaView(msgspec.Struct, frozen=True, eq=False):
    """What a decision sees: unfinished stages ("nodes") of all jobs in the system.

    Attributes:
        job_first: Nodes of job j are those from `job_first[j]` up to `job_first[j + 1]`.
        source_job: The job whose executor became free; -1 for none.
        work_ms: Of each node: unstarted tasks x the typical duration of one.
        tasks: Of each node: unstarted tasks.
        child_first: Children of node i are `child[child_first[i]:child_first[i + 1]]`.
        child: Nodes that wait for the node.
    """

    job_first: _Ints
    job_executors: _Floats
    source_job: int
    free_executors: float
    work_ms: _Floats
    tasks: _Floats
    child_first: _Ints
    child: _Ints
    ready: _Ints

    def heights(self) -> _Ints:
        """Of each node the longest path to a node without children.

        >>> f, i = np.float32, np.int32
        >>> chain = DecimaView(
        ...     np.array([0, 3], i), np.array([0], f), -1, 5.0,
        ...     np.ones(3, f), np.ones(3, f),
        ...     np.array([0, 1, 2, 2], i), np.array([1, 2], i), np.array([0], i),
        ... )
        >>> chain.heights().tolist()
        [2, 1, 0]
        """
        parents = np.repeat(np.arange(len(self.tasks)), np.diff(self.child_first))
        height = np.zeros(len(self.tasks), dtype=np.int32)
        for _ in range(len(height)):
            before = height.copy()
            np.maximum.at(height, parents, before[self.child] + 1)
            if np.array_equal(before, height):
                return height
        if len(height):
            raise InputError("stages wait for one another in a circle")
        return height


def decima_probabilities(
    weights: DecimaWeights, view: DecimaView, job: int, lowest: int, highest: int
) -> tuple[_Floats, _Floats]:
    """Probability of each ready node, and of each limit on the executors of a job."""
    seen = _core.DecimaView(
        job_first=view.job_first,
        job_executors=view.job_executors,
        source_job=view.source_job,
        free_executors=view.free_executors,
        work_ms=view.work_ms,
        tasks=view.tasks,
        child_first=view.child_first,
        child=view.child,
        height=view.heights(),
        ready=view.ready,
    )
    return _core.decima_probabilities(
        weights.parameters, seen, job=job, lowest=lowest, highest=highest
    )
