"""Where Ursa tries things out: an application under a constant load, simulated or real."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from gnomon.decide.services.target import CountingTarget, SimTarget
from gnomon.graph.application import Application
from gnomon.sim.mesh import poisson_requests

#: Starts an application under so many requests per second, for at least so many seconds.
Stage = Callable[[Application, float, float], AbstractContextManager[CountingTarget]]


def in_simulator(seed: int = 0) -> Stage:
    """In the simulator."""

    @contextlib.contextmanager
    def start(app: Application, rate: float, seconds: float) -> Iterator[CountingTarget]:
        arrivals = poisson_requests(app, [rate] * (int(seconds) + 1), seed=seed)
        yield SimTarget(app, arrivals, seed=seed)

    return start


def in_lab(seed: int = 0) -> Stage:
    """As real processes."""

    @contextlib.contextmanager
    def start(app: Application, rate: float, seconds: float) -> Iterator[CountingTarget]:
        from gnomon.systems.services.lab import LabRun

        arrivals = poisson_requests(app, [rate] * (int(seconds) + 1), seed=seed)
        with LabRun(app, arrivals, seed=seed) as run:
            yield run.target

    return start
