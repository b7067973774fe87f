"""Samples: when does a graph end, if its durations are only known within a range?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon import _core
from gnomon.errors import InputError
from gnomon.graph import WorkGraph
from gnomon.sim.replay import replay

#: Factors handed over at once; more samples go in several calls.
_MOST_FACTORS = 1 << 22
#: Whole nanoseconds are exact in the engine below this: 26 days.
_LONGEST_NS = 2.0**51


def sample_makespans(
    graph: WorkGraph,
    group: ArrayLike,
    spread: ArrayLike,
    samples: int,
    rng: np.random.Generator | int,
    *,
    noise: float = 0.0,
) -> NDArray[np.int64]:
    """Makespans of a graph whose durations are wrong together, one a sample.

    Every sample draws one standard normal `z` a group, and a task takes `exp(spread * z)` times
    as long: errors of one group do not average out over its tasks, those of different groups do.

    Args:
        group: Group of each task, from 0; -1 for tasks that are known.
        spread: Standard deviation of the logarithm of each task's duration, or one for all.
        noise: Deviation of the logarithm of a factor that each task draws for itself besides.

    >>> graph = WorkGraph.from_columns(["gpu", "gpu"], [1000, 3000])
    >>> sample_makespans(graph, [0, 0], 0.0, 3, 1).tolist()
    [4000, 4000, 4000]
    >>> spans = sample_makespans(graph, [0, 0], 0.1, 1000, 1)
    >>> bool(abs(np.log(spans / 4000).std() - 0.1) < 0.01)
    True
    """
    return sample_ends(graph, group, spread, None, samples, rng, noise=noise)[:, 0]


def sample_ends(
    graph: WorkGraph,
    group: ArrayLike,
    spread: ArrayLike,
    mark: ArrayLike | None,
    samples: int,
    rng: np.random.Generator | int,
    *,
    noise: float = 0.0,
) -> NDArray[np.int64]:
    """Like `sample_makespans`, with the latest end of the tasks of each mark: samples by marks.

    Args:
        mark: What each task counts towards, from 0: its step, say. None: one mark for all.
    """
    if samples < 0:
        raise InputError(f"samples={samples}; give 0 or more")
    if not np.isfinite(noise) or noise < 0:
        raise InputError(f"noise={noise}; give 0 or more")
    groups, spreads = _columns(graph, group, spread)
    marks = None if mark is None else _marks(graph, mark)
    width = 1 if marks is None or not len(marks) else int(marks.max()) + 1
    random = np.random.default_rng(rng)
    if not samples or not len(graph):
        return np.zeros((samples, width), np.int64)
    cell, cell_group, cell_spread = _cells(groups, spreads)
    deviate = random.standard_normal((samples, int(groups.max()) + 1))
    seed = int(random.integers(2**63))
    rows = max(1, _MOST_FACTORS // len(cell_group))
    ends = [
        _play(
            graph, cell, _factors(deviate[first : first + rows], cell_group, cell_spread),
            marks, width, noise, seed, first,
        )
        for first in range(0, samples, rows)
    ]  # fmt: skip
    return np.concatenate(ends)


def _columns(
    graph: WorkGraph, group: ArrayLike, spread: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    groups = np.asarray(group)
    if groups.shape != (len(graph),) or (groups.size and groups.dtype.kind not in "iu"):
        raise InputError(f"groups have to be whole numbers, one for each of {len(graph)} tasks")
    if groups.size and groups.min() < -1:
        raise InputError(f"group {groups.min()}; groups count from 0, -1 stands for none")
    spreads = np.asarray(spread, np.float64)
    if spreads.ndim and spreads.shape != (len(graph),):
        raise InputError(f"{len(spreads)} spreads for {len(graph)} tasks")
    if not np.all(np.isfinite(spreads)) or np.any(spreads < 0):
        raise InputError("spreads have to be finite, 0 or more")
    return groups.astype(np.int64), np.broadcast_to(spreads, (len(graph),))


def _marks(graph: WorkGraph, mark: ArrayLike) -> NDArray[np.int32]:
    marks = np.asarray(mark)
    if marks.shape != (len(graph),) or (marks.size and marks.dtype.kind not in "iu"):
        raise InputError(f"marks have to be whole numbers, one for each of {len(graph)} tasks")
    if marks.size and not 0 <= int(marks.min()) <= int(marks.max()) < len(graph):
        raise InputError("marks count from 0 and are fewer than the tasks")
    return np.ascontiguousarray(marks, np.int32)


def _cells(
    group: NDArray[np.int64], spread: NDArray[np.float64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Tasks of one group and spread share a factor: few exponentials instead of one a task."""
    spreads, of_spread = np.unique(np.where(group < 0, 0.0, spread), return_inverse=True)
    # A spread of zero is a factor of one, whatever the group.
    known = spreads[of_spread] == 0.0
    pair = np.where(known, -1, group * len(spreads) + of_spread)
    pairs, cell = np.unique(pair, return_inverse=True)
    fixed = pairs < 0
    cell_group = np.where(fixed, 0, pairs // len(spreads))
    cell_spread = np.where(fixed, 0.0, spreads[np.where(fixed, 0, pairs % len(spreads))])
    return cell.astype(np.int32), cell_group, cell_spread


def _factors(
    deviate: NDArray[np.float64], group: NDArray[np.int64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    if not deviate.shape[1]:  # nobody is in a group
        return np.ones((len(deviate), len(group)))
    return np.exp(deviate[:, group] * spread)


def _play(
    graph: WorkGraph,
    cell: NDArray[np.int32],
    factor: NDArray[np.float64],
    mark: NDArray[np.int32] | None,
    marks: int,
    noise: float,
    seed: int,
    first: int,
) -> NDArray[np.int64]:
    longest = float(graph.duration_ns.sum(dtype=np.float64)) * float(factor.max())
    # A task's own factor of more than 12 deviations does not come up.
    if longest * np.exp(12 * noise) >= _LONGEST_NS:
        raise InputError(
            "stretched durations may add up to more than 26 days",
            hint="are durations in nanoseconds, and spreads of their logarithm?",
        )
    stretch = _core.Stretch(
        cell=cell, factor=factor.reshape(-1), cells=factor.shape[1], mark=mark, marks=marks,
        noise=noise, seed=seed, first=first,
    )  # fmt: skip
    ends = _core.replay_samples(graph.native(), stretch)
    if not len(ends):
        replay(graph, causes=False)  # says what is stuck
        raise InputError("the graph is stuck with other durations than its own")
    return ends.reshape(len(factor), marks)
