"""Machines: what they draw, what making them emitted, how much they compute; and fleets of them.

The catalogue holds three kinds. A "cpu" carries the figures of its processor alone, a "server"
those of a whole server, an "accelerator" those of one board: they do not compare, and a fleet
that mixes them has a "cpu" or "server" for the host and "accelerator"s beside it. Where a figure
comes from is in `source`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.machines.embodied import logic_kg, package_kg, storage_kg

Kind = Literal["server", "cpu", "accelerator"]
_CATALOGUE = Path(__file__).with_name("machines.toml")
#: Words that say who sells it or what it is, not which one it is.
_IDLE_WORDS = re.compile(
    r"\((r|tm|c)\)|@.*$|\b\d+-cores?\b|\b(processor|cpu|intel|amd|xeon|ryzen|threadripper|pro|nvidia"
    r"|tesla|instinct|dell|hpe?|lenovo)\b",
    re.IGNORECASE,
)
#: HBM is DRAM; ACT has no figure for it: from low-power DDR4 over DDR4 to the last DDR3.
_HBM = ("lpddr4", "ddr4_10nm", "ddr3_30nm")


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a processor, a server or an accelerator.

    Attributes:
        kind: What the figures cover: one processor, a whole server, one accelerator board.
        cores: Physical cores; 0 where unknown, 1 for an accelerator.
        threads: Hardware threads, which is what a job's cores count against.
        score: Performance of the whole machine; 0 where unknown.
        score_unit: What `score` is measured in.
        source: Where figures come from, by name of the field; "all" speaks for the rest.

    >>> find_machine("Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz").embodied_kg.mid
    24.15
    """

    name: str
    kind: Kind
    cores: int
    threads: int
    idle_w: Estimate
    peak_w: Estimate
    embodied_kg: Estimate
    score: float = 0.0
    score_unit: str = ""
    life_years: float = 5.0
    year: int = 0
    source: Mapping[str, str] = {}
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"machine {self.name!r}"
        for name in ("idle_w", "peak_w", "embodied_kg"):
            if getattr(self, name).low < 0:
                raise InputError(f"{name} cannot be negative", where=where)
        for name in ("cores", "threads", "score", "year"):
            if not 0 <= getattr(self, name) < math.inf:
                what = f"{name} has to be zero or more, not {getattr(self, name)}"
                raise InputError(what, where=where)
        if not 0 < self.life_years < math.inf:
            raise InputError(
                f"life_years has to be above zero, not {self.life_years}", where=where
            )
        for end in ("low", "mid", "high"):
            idle, peak = getattr(self.idle_w, end), getattr(self.peak_w, end)
            if peak < idle:
                what = f"peak_w of {peak:g} W is below idle_w of {idle:g} W"
                raise InputError(
                    what + ("" if end == "mid" else f" at the {end} end"), where=where
                )

    @property
    def points_per_thread(self) -> float:
        """Score of one thread, or of one accelerator; 0 where unknown."""
        return self.score / self.threads if self.threads else 0.0

    def source_of(self, field: str) -> str:
        return self.source.get(field, self.source.get("all", ""))


class MachineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """So many machines of one model, bought in one year (0: unknown)."""

    machine: Machine
    count: int
    bought: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(
                f"count of {self.machine.name!r} has to be 1 or more, not {self.count}"
            )
        if self.bought < 0:
            raise InputError(f"bought of {self.machine.name!r} is a year, not {self.bought}")

    @property
    def threads(self) -> int:
        return self.count * self.machine.threads


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Machines in groups, and the overhead of the building they stand in.

    >>> silver = MachineGroup(machine=find_machine("Silver-4216"), count=59, bought=2020)
    >>> fleet = Fleet(groups=(silver,), pue=Estimate(1.1, 1.3, 1.5))
    >>> fleet.servers, fleet.threads, fleet.embodied_kg.mid
    (59, 1888, 1424.85)
    """

    groups: tuple[MachineGroup, ...]
    pue: Estimate = Estimate(1.0, 1.0, 1.0)
    name: str = ""

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError(
                "a fleet needs at least one group of machines", where=self.name or None
            )
        if self.pue.low < 1:
            raise InputError(
                f"a PUE of {self.pue.low:g}; it is at least 1", where=self.name or None
            )

    @property
    def servers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def cores(self) -> int:
        return sum(g.count * g.machine.cores for g in self.groups if _hosts(g))

    @property
    def threads(self) -> int:
        """Threads of all of them, accelerators left out."""
        return sum(group.threads for group in self.groups if _hosts(group))

    @property
    def accelerators(self) -> int:
        return sum(group.count for group in self.groups if not _hosts(group))

    @property
    def score(self) -> float:
        """Performance of all machines; it adds up only where all have one unit."""
        return sum(group.count * group.machine.score for group in self.groups)

    @property
    def embodied_kg(self) -> Estimate:
        """What making all of them emitted; ends add as if all were wrong the same way."""
        terms = [group.machine.embodied_kg * group.count for group in self.groups]
        return sum(terms[1:], terms[0])


def _hosts(group: MachineGroup) -> bool:
    return group.machine.kind != "accelerator"


def _machine_of(entry: Mapping[str, Any]) -> Machine:
    """A machine as the catalogue writes it: a figure is a number, or low, mid and high."""
    fields = dict(entry, aliases=tuple(entry.get("aliases", ())))
    for name in ("idle_w", "peak_w", "embodied_kg"):
        fields[name] = as_figure(fields[name], f"machine {fields['name']!r}, {name}")
    if isinstance(fields.get("source", ""), str):
        fields["source"] = {"all": fields.get("source", "")}
    return Machine(**fields)


class _Die(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The silicon of a GPU of the catalogue: (area in mm2, node in nm) of each die."""

    gpu: str
    dies: tuple[tuple[float, float], ...]
    stacks: int
    year: int
    source: str
    memory: tuple[str, str, str] = _HBM

    def machine(self) -> Machine:
        gpu = find_gpu(self.gpu)
        silicon = [logic_kg(area, node) for area, node in self.dies]
        stored = (storage_kg(gpu.memory_gib * 1.073741824, process).mid for process in self.memory)
        # One package holds the dies and the stacks; chips of ordinary memory have one each.
        packages = package_kg(1 + self.stacks)
        making = sum(silicon[1:], silicon[0]) + Estimate(*stored) + packages
        dies = " + ".join(f"{area:g} mm2 at {node:g} nm" for area, node in self.dies)
        return Machine(
            name=gpu.name,
            kind="accelerator",
            cores=1,
            threads=1,
            idle_w=Estimate.exact(gpu.idle_w),
            peak_w=Estimate.exact(gpu.power_w),
            embodied_kg=making,
            # What has no units for 16 bits computes in 32: it is compared by what it can do.
            score=gpu.peak_tflops("bf16"),
            score_unit="TFLOP/s, 16-bit dense",
            year=self.year,
            aliases=gpu.aliases,
            source={
                "all": gpu.source,
                "idle_w": "typical board with nothing to do (catalogue of GPUs)",
                "embodied_kg": (
                    f"ACT: {dies}, {gpu.memory_gib:g} GiB as DRAM, packages; die area: "
                    f"{self.source}. Silicon only: board, cooling and chassis are not in it"
                ),
            },
        )


class _MachineCatalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    machine: tuple[dict[str, Any], ...]
    die: tuple[_Die, ...]


def as_figure(value: Any, where: str) -> Estimate:
    """An Estimate from a number, or from low, mid and high.

    >>> as_figure([900, 1300, 2000], "embodied_kg").format("kg")
    '1,300 kgCO2e (900 to 2,000)'
    """
    numbers = value if isinstance(value, list | tuple) else [value]
    if len(numbers) not in (1, 3) or any(
        isinstance(n, bool) or not isinstance(n, int | float) for n in numbers
    ):
        raise InputError(
            f"{value!r} is no figure", where=where, hint="a number or [low, mid, high]"
        )
    try:
        return Estimate(*numbers) if len(numbers) == 3 else Estimate.exact(numbers[0])
    except InputError as error:
        raise InputError(error.what, where=where) from None


def find_machine(name: str) -> Machine:
    """The machine that goes by this name, however its maker, /proc/cpuinfo or a person writes it.

    >>> find_machine("epyc-9334").threads, find_machine("NVIDIA H100 80GB HBM3").kind
    (64, 'accelerator')
    >>> find_machine("W9 3459X")
    Traceback (most recent call last):
    gnomon.errors.InputError: no machine is called 'W9 3459X'; did you mean W9-3495X?
    """
    known = _known()
    wanted = _plain(name)
    if wanted and wanted in known:
        return known[wanted]
    if (board := _board(name)) in known:
        return known[board]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.7) if wanted else []
    names = list(dict.fromkeys(known[key].name for key in close))
    listed = ", ".join(machine_names())
    hint = f"did you mean {' or '.join(names)}?" if names else f"known are {listed}"
    raise InputError(f"no machine is called {name!r}", hint=hint)


def _board(name: str) -> str:
    """A GPU whose driver goes on after the part that matters: "H200 NVL 141GB"."""
    try:
        return _plain(find_gpu(name).name)
    except InputError:
        return ""


def machine_names() -> tuple[str, ...]:
    """The names of all machines of the catalogue."""
    return tuple(machine.name for machine in _machines())


@cache
def _machines() -> tuple[Machine, ...]:
    catalogue = msgspec.toml.decode(_CATALOGUE.read_bytes(), type=_MachineCatalogue)
    computed = tuple(die.machine() for die in catalogue.die)
    return tuple(map(_machine_of, catalogue.machine)) + computed


@cache
def _known() -> dict[str, Machine]:
    found: dict[str, Machine] = {}
    for machine in _machines():
        for name in (machine.name, *machine.aliases):
            key = _plain(name)
            if found.setdefault(key, machine) is not machine:
                raise AssertionError(f"{name!r} names {found[key].name} and {machine.name}")
    return found


def _plain(name: str) -> str:
    """Letters and digits of what tells one machine from another."""
    return re.sub(r"[^a-z0-9]", "", _IDLE_WORDS.sub(" ", name.lower()))
