"""A fleet as columns: what each group of servers can do, draws and has cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.carbon import Amortisation, embodied_rate_g_h
from gnomon.model.machine import Fleet

__all__ = ["End", "Supply", "supply_of"]

Floats = NDArray[np.float64]
#: Which end of every range.
End = Literal["low", "mid", "high"]


class Supply(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Groups of equal servers; every array has an entry a group.

    Attributes:
        names: The machines.
        servers: How many of each.
        threads: Of one server.
        points: Performance of one server, in the score's unit.
        idle_w: Drawn by one server with nothing to do.
        peak_w: Drawn by one server at full load, idle power included.
        embodied_g_h: Embodied carbon that one server is charged for an hour, whatever it does.
        pue: What the building draws for one watt of a server.
        score_unit: What points are; 'threads' where no score is known.
    """

    names: tuple[str, ...]
    servers: NDArray[np.int64]
    threads: NDArray[np.int64]
    points: Floats
    idle_w: Floats
    peak_w: Floats
    embodied_g_h: Floats
    pue: float = 1.0
    score_unit: str = "points"

    @property
    def dynamic_w(self) -> Floats:
        """What full load draws above idle."""
        return self.peak_w - self.idle_w

    @property
    def capacity(self) -> Floats:
        """Points of all servers of a group."""
        return self.servers * self.points

    @property
    def embodied_total_g_h(self) -> float:
        """Of the whole fleet, in use or not: it is counted once."""
        return float((self.servers * self.embodied_g_h).sum())

    def operational_g(self, g_kwh: float) -> Floats:
        """Grams a point-hour at full load, as oSCI has it: idle power shared by what runs."""
        return self.peak_w * self.pue * g_kwh / 1000.0 / self.points

    def marginal_g(self, g_kwh: float) -> Floats:
        """Grams that one more point-hour adds on a server that is on anyway."""
        return self.dynamic_w * self.pue * g_kwh / 1000.0 / self.points

    def embodied_g(self) -> Floats:
        """Grams of embodied carbon a point-hour at full load, as SCI has it."""
        return self.embodied_g_h / self.points


def supply_of(
    fleet: Fleet, *, year: int, amortise: Amortisation = "life", end: End = "mid"
) -> Supply:
    """The columns of a fleet in some year.

    Args:
        fleet: The servers.
        year: When; the age of a server follows from when it was bought.
        amortise: How embodied carbon is spread over time.
        end: Which end of every range to take.

    Raises:
        InputError: Some machines have a score and some do not, or scores of different kinds.
    """
    groups = fleet.groups
    scored = [group.machine.score > 0 for group in groups]
    units = {group.machine.score_unit for group, has in zip(groups, scored) if has}
    if any(scored) and (not all(scored) or len(units) > 1):
        odd = next(
            (g.machine.name for g, has in zip(groups, scored) if not has),
            " and ".join(sorted(units)),
        )
        raise InputError(
            f"machines cannot be compared: {odd} has no score that the others have",
            where=fleet.name,
            hint="give `score` for every machine of the fleet, from one benchmark",
        )
    machines = [group.machine for group in groups]
    return Supply(
        names=tuple(machine.name for machine in machines),
        servers=np.array([group.count for group in groups], dtype=np.int64),
        threads=np.array([machine.threads for machine in machines], dtype=np.int64),
        points=np.array([m.score if any(scored) else m.threads for m in machines], dtype=float),
        idle_w=_ends([machine.idle_w for machine in machines], end),
        peak_w=_ends([machine.peak_w for machine in machines], end),
        embodied_g_h=_ends(
            [
                embodied_rate_g_h(g.machine, bought=g.bought, year=year, how=amortise)
                for g in groups
            ],
            end,
        ),
        pue=float(getattr(fleet.pue, end)),
        score_unit=next(iter(units), "threads"),
    )


def _ends(estimates: Sequence[Estimate], end: End) -> Floats:
    return np.array([getattr(estimate, end) for estimate in estimates], dtype=float)
