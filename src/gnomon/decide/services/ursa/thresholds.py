"""A plan as columns: sizes of all services for a load, without asking any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.graph.application import Application

if TYPE_CHECKING:
    from gnomon.decide.services.ursa.exploration import Option
    from gnomon.decide.services.ursa.plan import Plan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sizes(msgspec.Struct, frozen=True, eq=False):
    """By service.

    Attributes:
        replicas: How many; -1 where no operating point carries the load.
        cpu_limit: Of each, in cores; NaN there.
        utilisation: Of the operating point that it follows.
    """

    replicas: Ints
    cpu_limit: Floats
    utilisation: Floats


class Thresholds(msgspec.Struct, frozen=True, eq=False):
    """Every operating point that a plan allows: a row each, those of a service side by side.

    Attributes:
        visits: Services x classes: calls of one request.
        services: Those that have rows.
        first: Of each of those: its first row.
        service: Of each row.
        load: Rows x classes: calls per second that one replica may get.
        limit: Cores of one replica; `most` is what one may grow to.
        replicas_max: Of its service.
        cpu_min: Of its service.
        utilisation: Where it was explored.
        rank: Among the rows of its service, least utilised first.
    """

    visits: Floats
    services: Ints
    first: Ints
    service: Ints
    load: Floats
    limit: Floats
    most: Floats
    replicas_max: Ints
    cpu_min: Floats
    utilisation: Floats
    rank: Ints

    @classmethod
    def of(cls, app: Application, plan: Plan) -> Thresholds:
        names, classes = list(app.services), list(app.classes)
        rows: list[Option] = []
        service: list[int] = []
        first: list[int] = []
        rank: list[int] = []
        for s, name in enumerate(names):
            if name not in plan.services:
                continue
            mine = [plan.services[name].option, *plan.services[name].also]
            first.append(len(rows))
            order = sorted(range(len(mine)), key=lambda k: mine[k].utilisation)
            rank += [order.index(k) for k in range(len(mine))]
            rows += mine
            service += [s] * len(mine)
        abouts = [app.services[names[s]] for s in service]
        limit = np.array([one.cpu_limit for one in rows])
        # A single thread cannot use more than a core, whatever its limit.
        useful = np.array([min(one.cpu_max, float(one.workers)) for one in abouts])
        return cls(
            np.array([[app.visits()[c].get(name, 0.0) for c in classes] for name in names]),
            np.array([service[at] for at in first], np.int64), np.array(first, np.int64),
            np.array(service, np.int64),
            np.array([[one.load.get(c, 0.0) for c in classes] for one in rows]),
            limit, np.maximum(useful, limit),
            np.array([one.replicas_max for one in abouts], np.int64),
            np.array([one.cpu_min for one in abouts]),
            np.array([one.utilisation for one in rows]), np.array(rank, np.int64),
        )  # fmt: skip

    def sizes(self, class_rate: Floats, now: Ints, trusted: Ints) -> Sizes:
        """The smallest size of each service: `exploration.size_for`, for all at once.

        Args:
            class_rate: Requests per second of each class.
            now: By service: replicas that run.
            trusted: By service: so many of its rows may be used, least utilised first.
        """
        calls = (self.visits * class_rate)[self.service]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(calls > 0, calls / self.load, 0.0).max(axis=1)
        fewest = np.maximum(np.ceil(needed * self.limit / self.most - 1e-9), 1)
        fits = (fewest <= self.replicas_max) & (self.rank < trusted[self.service])
        fewest = np.where(fits, fewest, 1)
        whole = np.floor(np.where(fits, needed, 1.0) + 1e-9)
        count = np.minimum(np.maximum(now[self.service], fewest), np.maximum(fewest, whole))
        grown = self.limit * np.maximum(np.where(fits, needed, 1.0) / count, 1.0)
        limit = np.minimum(np.maximum(grown, self.cpu_min), self.most)
        cores = np.where(fits, count * limit, np.inf)
        best = np.lexsort((cores, self.service))[self.first]
        found = np.isfinite(cores[best])
        replicas, limits, followed = (np.full(len(self.visits), np.nan) for _ in range(3))
        replicas[self.services] = np.where(found, count[best], np.nan)
        limits[self.services] = np.where(found, limit[best], np.nan)
        followed[self.services] = self.utilisation[best]
        return Sizes(np.nan_to_num(replicas, nan=-1).astype(np.int64), limits, followed)
