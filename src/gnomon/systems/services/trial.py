"""One manager on one rate in the simulator, and all of them on all."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services import (
    BARE,
    PERCENTILES,
    Decision,
    DecisionLog,
    Rails,
    SimTarget,
    manage,
    service_policies,
)
from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph.application import Application
from gnomon.parallel import Progress, pmap
from gnomon.sim.mesh import MeshSim, Spent, poisson_requests
from gnomon.systems.services.measure import CORE_W, Requests, Score, score
from gnomon.systems.services.rates import Rate
from gnomon.units import MILLISECOND_NS, SECOND_NS

Floats = NDArray[np.float64]

#: After the last arrival: long enough for what is under way, unless it is stuck.
DRAIN_S = 30.0


def check_seed(seed: int) -> None:
    """Refuses what generators of random numbers do not take."""
    if not 0 <= seed < 2**32:
        raise InputError(f"a seed of {seed}", hint="from 0 on, under 2^32")


class Setup(msgspec.Struct, frozen=True, eq=False):
    """What all runs of a comparison share.

    Attributes:
        interval_s: From decision to decision.
        rails: Guard rails around every manager.
        intensity: Of the grid, in g/kWh.
        prepared: By manager as it was named: the same with what it needs to know.
    """

    app: Application
    interval_s: float = 1.0
    rails: Rails = BARE
    seed: int = 0
    intensity: Estimate | None = None
    core_w: Estimate = CORE_W
    prepared: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not 0.1 <= self.interval_s <= 3600:
            raise InputError(f"a decision every {self.interval_s:g} s",
                             hint="0.1 s to an hour")  # fmt: skip
        check_seed(self.seed)

    def check_rate(self, rate: Rate) -> None:
        """Refuses a run that ends before its first decision."""
        if self.interval_s > len(rate.per_s):
            raise InputError(
                f"a decision every {self.interval_s:g} s in a run of {len(rate.per_s)} s",
                hint="give a shorter --interval or a longer --duration",
            )


class Series(msgspec.Struct, frozen=True, eq=False):
    """A run over time: a value a window, of each class one row."""

    end_s: Floats
    rate: Floats
    allocated: Floats
    used: Floats
    p99_ms: Floats
    limits: Floats  # windows x services: cores allocated


class Outcome(msgspec.Struct, frozen=True, eq=False):
    """A run, measured."""

    score: Score
    series: Series
    spent: Spent | None
    events: int = 0


def series_of(decisions: Sequence[Decision]) -> Series:
    """What charts show of a run."""
    windows = [decision.window for decision in decisions]
    return Series(
        np.array([w.now_s for w in windows]), np.array([w.class_rate.sum() for w in windows]),
        np.array([w.allocated.sum() for w in windows]), np.array([w.usage.sum() for w in windows]),
        np.array([w.class_ms[PERCENTILES.index(99.0)] for w in windows]).T,
        np.array([w.allocated for w in windows]),
    )  # fmt: skip


def simulate(
    setup: Setup, manager: str, rate: Rate, *, log: str | os.PathLike[str] | None = None
) -> Outcome:
    """One manager on one rate.

    >>> from gnomon.graph.application import Call, RequestClass, Service, Sla
    >>> app = Application("one", {"web": Service(cpu_limit=0.5)},
    ...                   {"get": RequestClass(Call("web", cpu_ms=2.0), sla=Sla(50.0))})
    >>> outcome = simulate(Setup(app), "static", Rate("low", np.full(20, 50.0)))
    >>> outcome.score.cpu_mean, outcome.score.violation_pct
    (0.5, 0.0)
    """
    setup.check_rate(rate)
    whole = setup.prepared.get(manager, manager)
    target = SimTarget(
        setup.app, poisson_requests(setup.app, rate.per_s, seed=setup.seed), seed=setup.seed
    )
    with contextlib.ExitStack() as stack:
        kept = None
        if log is not None:
            kept = stack.enter_context(
                DecisionLog(log, setup.app, whole, seed=setup.seed, rails=setup.rails)
            )
        run = manage(
            target, whole, duration_s=len(rate.per_s), interval_s=setup.interval_s,
            seed=setup.seed, rails=setup.rails, log=kept,
        )  # fmt: skip
    target.sim.advance(target.sim.now_ns + round(DRAIN_S * SECOND_NS))
    measured = score(
        setup.app, requests_of(target.sim), run.decisions, manager=manager, rate=rate.name,
        spent_ms=run.spent_ms, intensity=setup.intensity, core_w=setup.core_w,
    )  # fmt: skip
    return Outcome(measured, series_of(run.decisions), target.sim.spent(), target.sim.events)


def requests_of(sim: MeshSim) -> Requests:
    """What the simulator kept of every request."""
    latency = sim.request_latency_ns
    return Requests(
        sim.arrivals.time_ns / SECOND_NS, sim.arrivals.request_class,
        np.where(latency < 0, np.nan, latency / MILLISECOND_NS), sim.request_status == 1,
    )  # fmt: skip


def parse_managers(text: str) -> tuple[str, ...]:
    """Managers by name, with commas; each is made once, so that mistakes show at once.

    >>> parse_managers("static, hpa?target=0.7")
    ('static', 'hpa?target=0.7')
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise InputError(
            "which managers?", hint=f"there are: {', '.join(service_policies.names())}"
        )
    if len(set(names)) < len(names):
        raise InputError(f"a manager is named twice: {text}")
    for name in names:
        service_policies.create(name)
    return names


def compare(
    setup: Setup, managers: Sequence[str], rates: Sequence[Rate], *, on: str | None = None,
    resume: str | os.PathLike[str] | None = None, progress: Progress | None = None,
) -> list[Outcome]:  # fmt: skip
    """Every manager on every rate; all get the same requests."""
    for rate in rates:
        setup.check_rate(rate)
    items = [(manager, rate) for rate in rates for manager in managers]
    work = functools.partial(_one, setup)
    where = on or ("serial" if len(items) == 1 else "local")
    return list(pmap(work, items, on=where, resume=resume, progress=progress))


def _one(setup: Setup, item: tuple[str, Rate]) -> Outcome:
    return simulate(setup, *item)
