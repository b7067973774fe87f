"""An application from what was recorded, played back beside the recording."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.application import Application, Call, as_work
from gnomon.ingest.spans.infer import Inferred
from gnomon.ingest.spans.limits import FEWEST, with_limits
from gnomon.sim.mesh import MeshSim, poisson_requests
from gnomon.units import MILLISECOND_NS, SECOND_NS

__all__ = ["PlayedBack", "assumptions", "play_back", "simulated_latency", "with_limits"]

Floats = NDArray[np.float64]

#: Requests that a play-back simulates: enough for a p99 of classes that are rare.
_REQUESTS = 200_000
_COMPARED = (50.0, 90.0, 99.0)
#: More than this share left out is not a detail.
_LEFT_OUT = 0.2


class PlayedBack(msgspec.Struct, frozen=True):
    """One class: percentiles of the recorded and of the simulated latency, in ms."""

    name: str
    recorded: int
    recorded_ms: list[float]
    simulated_ms: list[float]

    @property
    def errors_pct(self) -> list[float]:
        return [
            100.0 * (simulated / recorded - 1.0) if recorded > 0 else 0.0
            for recorded, simulated in zip(self.recorded_ms, self.simulated_ms)
        ]


def assumptions(inferred: Inferred) -> list[str]:
    """What the recording is too small or too odd for, and what is assumed in its place."""
    notes = []
    kept = sum(map(len, inferred.recorded.values()))
    left = inferred.counts.get("requests of rare classes left out", 0)
    if left > _LEFT_OUT * (kept + left):
        notes.append(
            f"{left:,} of {kept + left:,} requests were left out: each of their operations is "
            "rare. Do the names hold ids (/user/17)? Name spans by their route."
        )
    if kept < FEWEST:
        notes.append(
            f"The rate of {inferred.app.rate:g}/s is a guess from too few requests ({kept}): set "
            "`rate` in the application, or --rps."
        )
    errors = 1.0 - sum(
        share * _no_error(inferred.app.classes[name].call)
        for name, share in inferred.app.shares().items()
    )
    if errors > 0.5:
        many = "Every recorded request has" if errors > 1 - 1e-9 else (
            f"{errors:.0%} of the recorded requests have")  # fmt: skip
        notes.append(f"{many} an error: the application fails as often, and answers are few.")
    return notes


def _no_error(call: Call) -> float:
    """The chance that neither a call nor one below it fails."""
    below = [one for stage in call.then for one in stage]
    return (1.0 - call.error_share) * math.prod(
        1.0 - one.probability * (1.0 - _no_error(one)) for one in below
    )


def play_back(inferred: Inferred, *, seed: int = 0) -> list[PlayedBack]:
    """Simulates an inferred application at its own rate and compares latency with the recording.

    A recording with few requests has no p99: it is compared all the same, and `recorded` shows
    how many there were.
    """
    latency = simulated_latency(inferred.app, seed=seed)
    return [
        PlayedBack(
            name, len(recorded), np.percentile(recorded, _COMPARED).tolist(),
            np.percentile(latency[name], _COMPARED).tolist(),
        )
        for name, recorded in inferred.recorded.items()
        if len(recorded) and latency[name].size
    ]  # fmt: skip


def simulated_latency(app: Application, *, seed: int) -> Mapping[str, Floats]:
    """By class, the latency in ms of what was answered, from the first service's view."""
    rate = min(app.rate, 1e5)
    seconds = int(np.clip(_REQUESTS / rate, 10, 10**7))
    step_s = max(seconds / 1000, 1.0)
    arrivals = poisson_requests(app, [rate] * round(seconds / step_s), step_s=step_s, seed=seed)
    sim = MeshSim(app, arrivals, seed=seed, keep_requests=True)
    sim.advance((seconds + 3600) * SECOND_NS)
    good = sim.request_status == 1
    # A recording begins where the first service does: the client's own network is not in it.
    latency_ms = sim.request_latency_ns / MILLISECOND_NS - 2 * as_work(app.network_ms).average
    return {
        name: np.maximum(latency_ms[good & (arrivals.request_class == c)], 0.0)
        for c, name in enumerate(app.classes)
    }
