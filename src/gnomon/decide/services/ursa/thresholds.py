"""A plan as columns: sizes of all services for a load, without asking any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.decide.services.policy import bounds
from gnomon.graph.application import Application

if TYPE_CHECKING:
    from gnomon.decide.services.ursa.plan import Plan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Replicas that a class needs for which a service was never explored. Finite, so that a class
#: without requests needs none of them.
_NEVER = 1e300


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
    """Every operating point that a plan allows: a row a service, padded to the longest.

    A decision is a dozen operations on these arrays, whatever the number of services.

    Attributes:
        visits: Classes x services: calls of one request.
        needed: Classes x services x points: replicas for one request per second.
        limit: Cores of one replica; `most` is what one may grow to.
        grown: The one over the other.
        replicas_max: Of its service; 0 where a row is padded.
        cpu_min: Of its service.
        utilisation: Where it was explored.
        rank: Among the points of its service, least utilised first.
        bounds: By service: cpu_min, cpu_max, replicas_max.
    """

    visits: Floats
    needed: Floats
    limit: Floats
    most: Floats
    grown: Floats
    replicas_max: Floats
    cpu_min: Floats
    utilisation: Floats
    rank: Ints
    bounds: tuple[Floats, Floats, Ints]

    @classmethod
    def of(cls, app: Application, plan: Plan) -> Thresholds:
        calls = app.visits()
        points = {name: (one.option, *one.also) for name, one in plan.services.items()}
        shape = (len(app.services), max((len(mine) for mine in points.values()), default=1))
        visits = np.array(
            [[calls[c].get(name, 0.0) for name in app.services] for c in app.classes]
        )
        needed = np.zeros((len(app.classes), *shape))
        limit, most, replicas_max, cpu_min, utilisation = (np.zeros(shape) for _ in range(5))
        rank = np.zeros(shape, np.int64)
        for s, (name, about) in enumerate(app.services.items()):
            mine = points.get(name, ())
            order = sorted(range(len(mine)), key=lambda k: mine[k].utilisation)
            for k, one in enumerate(mine):
                for c, request_class in enumerate(app.classes):
                    known = one.load.get(request_class, 0.0)
                    if visits[c, s] > 0:
                        needed[c, s, k] = visits[c, s] / known if known > 0 else _NEVER
                limit[s, k], utilisation[s, k] = one.cpu_limit, one.utilisation
                # A single thread cannot use more than a core, whatever its limit.
                most[s, k] = max(min(about.cpu_max, float(about.workers)), one.cpu_limit)
                replicas_max[s, k], cpu_min[s, k] = about.replicas_max, about.cpu_min
                rank[s, k] = order.index(k)
        grown = np.divide(limit, most, out=np.zeros(shape), where=most > 0)
        return cls(visits, needed, limit, most, grown, replicas_max, cpu_min, utilisation, rank,
                   bounds(app))  # fmt: skip

    def sizes(self, class_rate: Floats, now: Ints, trusted: Ints | None = None) -> Sizes:
        """The smallest size of each service: `exploration.size_for`, for all at once.

        Args:
            class_rate: Requests per second of each class.
            now: By service: replicas that run.
            trusted: By service: so many of its points may be used, least utilised first.
        """
        needed = (self.needed * class_rate[:, None, None]).max(axis=0)
        fewest = np.maximum(np.ceil(needed * self.grown - 1e-9), 1.0)
        fits = fewest <= self.replicas_max
        if trusted is not None:
            fits &= self.rank < trusted[:, None]
        whole = np.maximum(fewest, np.floor(needed + 1e-9))
        count = np.minimum(np.maximum(now[:, None], fewest), whole)
        wanted = np.maximum(self.limit * np.maximum(needed / count, 1.0), self.cpu_min)
        limit = np.minimum(wanted, self.most)
        cores = np.where(fits, count * limit, np.inf)
        at = np.arange(len(cores)), cores.argmin(axis=1)
        found = fits[at]
        return Sizes(
            np.where(found, count[at], -1.0).astype(np.int64), np.where(found, limit[at], np.nan),
            self.utilisation[at],
        )  # fmt: skip
