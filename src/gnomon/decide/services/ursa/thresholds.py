"""A plan as columns: sizes of all services for a load, without asking any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon import _core
from gnomon.decide.services.policy import bounds
from gnomon.decide.services.state import Window
from gnomon.graph.application import Application

if TYPE_CHECKING:
    from gnomon.decide.services.ursa.plan import Plan

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Thresholds(msgspec.Struct, frozen=True, eq=False):
    """Every operating point that a plan allows; those of a service side by side."""

    points: _core.OperatingPoints

    @classmethod
    def of(cls, app: Application, plan: Plan) -> Thresholds:
        calls, (cpu_min, cpu_max, replicas_max) = app.visits(), bounds(app)
        first, limit, most, load = [0], [], [], []
        rank: list[int] = []
        for name, about in app.services.items():
            given = plan.services.get(name)
            mine = () if given is None else (given.option, *given.also)
            mine = tuple(one for one in mine if one.cpu_limit <= about.cpu_max * (1 + 1e-9))
            order = sorted(range(len(mine)), key=lambda k: mine[k].utilisation)
            rank += [order.index(k) for k in range(len(mine))]
            for one in mine:
                limit.append(one.cpu_limit)
                # A single thread cannot use more than a core, whatever its limit.
                most.append(max(min(about.cpu_max, float(about.workers)), one.cpu_limit))
                load += [one.load.get(c, 0.0) for c in app.classes]
            first.append(len(limit))
        visits = [calls[c].get(name, 0.0) for name in app.services for c in app.classes]
        return cls(_core.OperatingPoints(
            first=np.array(first, np.int32), cpu_min=cpu_min, cpu_max=cpu_max,
            replicas_max=replicas_max, visits=np.array(visits), limit=np.array(limit, float),
            most=np.array(most, float), rank=np.array(rank, np.int64), load=np.array(load, float),
        ))  # fmt: skip

    def sizes(
        self, class_rate: Floats, replicas: Ints, *, trusted: Ints | None = None,
        window: Window | None = None,
    ) -> _core.ServiceSizes:  # fmt: skip
        """The smallest size of each service: `exploration.size_for`, for all at once.

        Args:
            class_rate: Requests per second of each class.
            replicas: By service: those that run.
            trusted: By service: so many of its points may be used, least utilised first.
            window: What waits in it is worked off on top.
        """
        waiting = {}
        if window is not None:
            columns = {"queue": window.queue, "usage": window.usage, "rate": window.rate}
            waiting = {k: np.ascontiguousarray(v, np.float64) for k, v in columns.items()}
        now = _core.ServiceLoad(
            class_rate=class_rate, replicas=replicas, trusted=trusted, **waiting
        )
        return _core.sizes_for(self.points, now)
