"""The union bound's program as arrays for the native search (`native/engine/choice`).

Of every class one row is what its SLA leaves of residuals, and one for each route through its
calls is the SLA's bound; a row is full at 1.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from gnomon import _core
from gnomon.decide.services.ursa.promise import Candidate, Promise, Solution, Target, undominated
from gnomon.errors import Infeasible

#: Of a class with more routes, HiGHS does better: it has variables for the ends of parallel calls.
_MOST_ROUTES = 32
#: Some seconds.
_MOST_NODES = 50_000


class _Part(msgspec.Struct, frozen=True):
    """A class at a service.

    Attributes:
        uses: Rows, and what each unit of residual and of time uses of them.
        most: Residuals above it leave too little for the other services.
    """

    number: int
    name: str
    uses: list[tuple[int, float, float]]
    most: float


def solve(
    services: Mapping[str, Sequence[Candidate]], targets: Sequence[Target], *, gap: float
) -> Solution | None:
    """The cheapest options; None if that takes too long, or classes have too many routes.

    Raises:
        Infeasible: No choice keeps every SLA by this bound.
    """
    began = time.perf_counter()
    rows: list[int] = []
    parts: dict[str, list[_Part]] = {name: [] for name in services}
    for number, target in enumerate(targets):
        if not _add_parts(services, target, number, rows, parts):
            return None
    made = _Arrays()
    for name, options in services.items():
        made.add(options, parts[name])
    found = _core.choose(made.problem(rows), gap=gap, most_nodes=_MOST_NODES)
    if not found.is_proven:
        return None
    if not len(found.option):
        raise Infeasible("no operating points keep every SLA by the union bound")
    chosen: dict[str, int] = {}
    promised: dict[str, dict[str, Promise]] = {}
    at = 0
    for name, option in zip(services, found.option.tolist()):
        chosen[name] = made.places[option]
        promised[name] = {}
        for part in parts[name]:
            promised[name][part.name] = made.promises[found.promise[at]]
            at += 1
    cores = sum(services[name][k].cores for name, k in chosen.items())
    share = max(found.cost - found.bound, 0.0) / found.cost if found.cost else 0.0
    return Solution(chosen, promised, cores, share, time.perf_counter() - began)


def _add_parts(
    services: Mapping[str, Sequence[Candidate]], target: Target, number: int, rows: list[int],
    parts: dict[str, list[_Part]],
) -> bool:  # fmt: skip
    """Rows and parts of a class; False if they cannot be written so."""
    paths, left = target.paths, 100.0 - target.percentile
    routes = paths.routes(_MOST_ROUTES)
    if routes is None or left <= 0 or any(one.network_ms >= target.bound_ms for one in routes):
        return False
    visits: dict[str, float] = {}
    for at in paths.counted():
        step = paths.steps[at]
        visits[step.service] = visits.get(step.service, 0.0) + step.visits
    least = {
        name: weight * min((p.residual for one in services[name]
                            for p in one.promises.get(paths.name, ())), default=0.0)
        for name, weight in visits.items()
    }  # fmt: skip
    uses = {name: [(len(rows), weight / left, 0.0)] for name, weight in visits.items()}
    rows.append(number)
    for one in routes:
        for name, calls in one.calls.items():
            uses[name].append((len(rows), 0.0, calls / (target.bound_ms - one.network_ms)))
        rows.append(number)
    spare = left * (1 + 1e-9) - sum(least.values())
    for name, weight in visits.items():
        most = (spare + least[name]) / weight if weight else np.inf
        parts[name].append(_Part(number, paths.name, uses[name], most))
    return True


class _Arrays:
    """The native problem, service by service."""

    def __init__(self) -> None:
        self.places: list[int] = []  # of each option: among those of its service
        self.promises: list[Promise] = []
        self._cost: list[float] = []
        self._classes: list[int] = []
        self._uses: list[tuple[int, float, float]] = []
        self._first_option, self._first_part = [0], [0]
        self._first_use, self._first_promise = [0], [0]

    def add(self, options: Sequence[Candidate], parts: list[_Part]) -> None:
        """A service; options that cannot promise enough are left out."""
        before = len(self._cost)
        for place in sorted(range(len(options)), key=lambda k: options[k].cores):
            ways = [
                [one for one in undominated(options[place].promises.get(part.name, ()))
                 if one.residual <= part.most]
                for part in parts
            ]  # fmt: skip
            if not all(ways):
                continue
            self.places.append(place)
            self._cost.append(options[place].cores)
            for mine in ways:
                self.promises += mine
                self._first_promise.append(len(self.promises))
        if len(self._cost) == before:
            raise Infeasible("no operating points keep every SLA by the union bound")
        for part in parts:
            self._classes.append(part.number)
            self._uses += part.uses
            self._first_use.append(len(self._uses))
        self._first_option.append(len(self._cost))
        self._first_part.append(len(self._classes))

    def problem(self, rows: list[int]) -> _core.ChoiceProblem:
        row, by_residual, by_time = zip(*self._uses) if self._uses else ((), (), ())
        return _core.ChoiceProblem(
            first_option=np.array(self._first_option, np.int32),
            cost=np.array(self._cost, np.float64),
            first_part=np.array(self._first_part, np.int32),
            part_class=np.array(self._classes, np.int32),
            first_use=np.array(self._first_use, np.int32),
            use_row=np.array(row, np.int32),
            use_residual=np.array(by_residual, np.float64),
            use_time=np.array(by_time, np.float64),
            first_promise=np.array(self._first_promise, np.int32),
            residual=np.array([one.residual for one in self.promises], np.float64),
            time=np.array([one.time_ms for one in self.promises], np.float64),
            row_class=np.array(rows, np.int32),
        )
