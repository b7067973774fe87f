"""A fleet as columns: what each group of servers can do, draws and has cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.carbon import Amortisation, embodied_rate_g_h
from gnomon.model.machines.machine import Fleet, Machine

Floats = NDArray[np.float64]
#: Which end of every range.
End = Literal["low", "mid", "high"]


class Supply(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Groups of equal servers; every array has an entry a group.

    Attributes:
        names: The machines; accelerators come in nodes.
        servers: How many of each.
        threads: Of one server; of a node of accelerators, its boards.
        points: Performance of one server, in the score's unit.
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
        return self.peak_w - self.idle_w

    @property
    def capacity(self) -> Floats:
        return self.servers * self.points

    @property
    def embodied_total_g_h(self) -> float:
        """Of the whole fleet, in use or not: it is counted once."""
        return float((self.servers * self.embodied_g_h).sum())

    def operational_g(self, g_kwh: float) -> Floats:
        """Grams per point-hour at full load, as oSCI has it: idle power shared by what runs."""
        return self.peak_w * self.pue * g_kwh / 1000.0 / self.points

    def marginal_g(self, g_kwh: float) -> Floats:
        """Grams that one more point-hour adds on a server that is on anyway."""
        return self.dynamic_w * self.pue * g_kwh / 1000.0 / self.points

    def embodied_g(self) -> Floats:
        """Grams of embodied carbon per point-hour at full load, as SCI has it."""
        return self.embodied_g_h / self.points


def supply_of(
    fleet: Fleet, *, year: int, amortise: Amortisation = "life", end: End = "mid"
) -> Supply:
    """The columns of a fleet in some year, from which follows the age of each server."""
    check_alike(fleet)
    groups = _servers(fleet)
    unit = _score_unit(fleet)
    machines = [group.machine for group in groups]
    boards = np.array([group.boards for group in groups], dtype=float)
    points = [machine.score if unit else machine.threads for machine in machines]
    return Supply(
        names=tuple(_name(group) for group in groups),
        servers=np.array([group.number for group in groups], dtype=np.int64),
        threads=np.array([g.boards * g.machine.threads for g in groups], dtype=np.int64),
        points=boards * np.array(points, dtype=float),
        idle_w=boards * _ends([machine.idle_w for machine in machines], end),
        peak_w=boards * _ends([machine.peak_w for machine in machines], end),
        embodied_g_h=boards
        * _ends(
            [
                embodied_rate_g_h(group.machine, bought=group.bought, year=year, how=amortise)
                for group in groups
            ],
            end,
        ),
        pue=float(getattr(fleet.pue, end)),
        score_unit=unit or "threads",
    )


def check_alike(fleet: Fleet) -> bool:
    """Whether it is a fleet of accelerators; refuses one that mixes them with hosts."""
    kinds = {group.machine.kind == "accelerator" for group in fleet.groups}
    if len(kinds) > 1:
        raise InputError(
            "hosts and accelerators cannot be compared: one job's cores are not another's boards",
            where=fleet.name, hint="place them apart: a fleet of each",
        )  # fmt: skip
    return kinds == {True}


class _Servers(NamedTuple):
    """Equal servers: one machine each, or a node of accelerators."""

    machine: Machine
    number: int
    boards: int
    bought: int


def _servers(fleet: Fleet) -> list[_Servers]:
    """Groups as servers; accelerators stand in nodes of the usual size, the rest in one more."""
    found = []
    for group in fleet.groups:
        machine, count = group.machine, group.count
        is_board = machine.kind == "accelerator" and machine.threads == 1
        boards = min(_node_boards(machine), count) if is_board else 1
        found.append(_Servers(machine, count // boards, boards, group.bought))
        if count % boards:
            found.append(_Servers(machine, 1, count % boards, group.bought))
    return found


def _node_boards(machine: Machine) -> int:
    try:
        return find_gpu(machine.name).node_gpus
    except InputError:  # one of the user's own
        return 1


def _name(servers: _Servers) -> str:
    name = servers.machine.name
    return name if servers.boards == 1 else f"{servers.boards} x {name}"


def _score_unit(fleet: Fleet) -> str:
    scored = [group.machine for group in fleet.groups if group.machine.score > 0]
    units = sorted({machine.score_unit or "points" for machine in scored})
    if not scored or (len(scored) == len(fleet.groups) and len(units) == 1):
        return units[0] if units else ""
    if len(units) > 1:
        what = f"scores of different kinds: {', '.join(units)}"
    else:
        odd = next(group.machine for group in fleet.groups if group.machine.score <= 0)
        what = f"{odd.name} has no score that the others have"
    raise InputError(
        f"machines cannot be compared: {what}",
        where=fleet.name,
        hint="give `score` and `score_unit` for every machine of the fleet, from one benchmark",
    )


def _ends(estimates: Sequence[Estimate], end: End) -> Floats:
    return np.array([getattr(estimate, end) for estimate in estimates], dtype=float)
