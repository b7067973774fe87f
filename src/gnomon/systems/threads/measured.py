"""A service as it was measured: its workload, the quanta to try, and how far its sample goes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnomon.ingest.samples.samples import Samples
from gnomon.systems.threads.study import Cell
from gnomon.systems.threads.workload import RequestKind, Workload, weighted_quantile

#: From where most of the short requests are never cut, up to half of the long ones.
_ABOVE_SHORT, _SHORT, _LONG, _BELOW_LONG = 1.3, 0.9, 0.999, 0.5
#: Of a request on average: more preemptions change little and take long to simulate.
_MOST_CUTS = 20
_QUANTA, _LEAST_SPAN = 5, 4.0
_HALVED = 0.5
#: Classes whose means differ by less than this factor do not say who is long.
_APART = 3.0
#: A percentile counts as measured if ten samples lie above it.
_NEEDED = {"p99": 1_000, "p99.9": 10_000}


def workload_of(samples: Samples, name: str) -> Workload:
    """Requests like those measured: by class, or short and long where classes are alike."""
    labels = samples.labels if _are_apart(samples) else None
    return Workload.from_samples(name, samples.time_ns, labels, samples.counts)


def quanta_of(workload: Workload) -> list[float]:
    """Quanta in microseconds worth a try, on a log scale.

    >>> quanta_of(Workload.from_samples("s", np.array([5_000] * 995 + [500_000] * 5)))
    [6.5, 16.0, 40.0, 100.0, 250.0]
    """
    kinds = sorted(workload.phases[0], key=lambda kind: kind.mean_us)
    mean_us = sum(kind.share * kind.mean_us for kind in kinds)
    low = max(_ABOVE_SHORT * _quantile_us(kinds[:1], _SHORT), mean_us / _MOST_CUTS)
    high = max(_BELOW_LONG * _quantile_us(kinds, _LONG), _LEAST_SPAN * low)
    return [float(f"{one:.2g}") for one in np.geomspace(low, high, _QUANTA)]


def best_for_short(cells: Sequence[Cell], base: Cell) -> Cell | None:
    """What at least halves the p99 of the shortest class at the load of a cell, if anything."""
    short = next(iter(base.classes))
    stable = [cell for cell in cells if cell.load == base.load and cell.is_stable]
    best = min([base, *stable], key=lambda cell: cell.classes[short].p99_us)
    return best if best.classes[short].p99_us <= _HALVED * base.classes[short].p99_us else None


def caveats_of(samples: Samples) -> list[str]:
    """What the samples do not support."""
    found = []
    if samples.is_latency:
        found.append(
            "These are latencies: queueing and network time in them overstate service times. "
            "Better are times inside the server, or latencies at low load."
        )
    if len(samples.kinds) > 1 and not _are_apart(samples):
        found.append(
            "Its classes take alike long: requests are classified as short and long instead."
        )
    if few := [name for name, needed in _NEEDED.items() if len(samples) < needed]:
        found.append(f"{len(samples):,} samples are too few for {' and '.join(few)}.")
    return found


def _are_apart(samples: Samples) -> bool:
    spent = np.bincount(samples.kind, samples.time_ns * samples.counts)
    means = spent / np.bincount(samples.kind, samples.counts)
    return bool(means.max() >= _APART * means.min())


def _quantile_us(kinds: list[RequestKind], share: float) -> float:
    values = np.concatenate([np.array(kind.samples_ns) for kind in kinds])
    weights = [np.array(kind.counts or np.ones(len(kind.samples_ns)), float) for kind in kinds]
    return weighted_quantile(values, np.concatenate(weights), share) / 1e3
