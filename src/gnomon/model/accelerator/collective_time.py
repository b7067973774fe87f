"""How long ranks take to communicate, from bytes, ranks and the links between them.

A collective over links of one class takes a time to start, a time per step from rank to rank, and
its bytes over the rate of the links: the alpha-beta model of Thakur, Rabenseifner and Gropp (2005,
section 3) with the bytes and steps of rings, and two things more that tables of NCCL show: what
rate is reached depends on how many ranks there are, and messages past some size pay once for
another protocol.

Over several nodes, data goes inside each node and between nodes with every rank carrying a share.
Libraries pipeline the two, so the slower one counts, and of the other what cannot hide.

Times grow, or stay, with bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import InputError
from gnomon.model.accelerator.gpu import Gpu, Network, find_gpu, find_network
from gnomon.model.accelerator.kernel_time import blend

Array = NDArray[np.float64]
#: A measured collective: kind, bytes, ranks, microseconds.
Sample = tuple[str, float, int, float]

COLLECTIVE_KINDS = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send", "broadcast",
)  # fmt: skip
_COEFFICIENTS = Path(__file__).with_suffix(".toml")
#: The network that stands for ranks on CPUs of one machine: no GPU, no node to leave.
_GLOO = "gloo-loopback"
#: Where no network is named.
#: Up to so many members a collective goes round a ring, beyond it up and down a tree: two steps
#: each way whenever the members double.
_RING, _TREE_STEPS = 8.0, 4.0
USUAL_NETWORK = "ib-ndr"
#: How sharply the slower of two pipelined levels counts.
_PIPELINE_BLEND = 3.0
#: A sample pulls the shipped coefficients this much: few samples leave them nearly as they are.
_PRIOR_SAMPLES = 1.0


class CollectiveModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of one kind of collective over links of one class.

    Attributes:
        kind: One of `COLLECTIVE_KINDS`, or "*" for those without an entry.
        floor_us: What the smallest collective takes beside its steps.
        step_us: What each step from rank to rank adds.
        ranks: Group sizes that were measured, rising...
        gb_s: ...and the rate at which each of their ranks sends, 1e9 bytes per second.
        start_us: What messages pay once for the protocol of large ones...
        start_bytes: ...and the size at which half of that is paid.
        spread: Standard deviation of the logarithm of what is left unexplained.
    """

    link: str
    kind: str
    floor_us: float
    step_us: float
    ranks: tuple[int, ...]
    gb_s: tuple[float, ...]
    spread: float
    source: str
    start_us: float = 0.0
    start_bytes: float = 1e6

    def parts_us(self, kind: str, size: Array, members: Array) -> tuple[Array, Array]:
        """What it takes to start, and what to move the bytes, for groups of so many members."""
        others = np.maximum(members - 1.0, 0.0)
        steps, moved = _ring(kind, size, members)
        # Rings of many members would wait for their latency: libraries turn to trees there.
        turns = np.where(members > _RING, np.log2(np.maximum(members, _RING) / _RING), 0.0)
        ring = _ring(kind, size, np.minimum(members, _RING))[0]
        steps = np.minimum(steps, ring + _TREE_STEPS * turns)
        start_us = self.start_us * moved / (moved + self.start_bytes)
        latency_us = np.where(others > 0.0, self.floor_us + steps * self.step_us + start_us, 0.0)
        return latency_us, moved / (self._rate(members) * 1e3)

    def scaled(self, latency: float, transfer: float) -> CollectiveModel:
        """These coefficients with every start and every byte taking so many times as long."""
        return msgspec.structs.replace(
            self,
            floor_us=self.floor_us * latency,
            step_us=self.step_us * latency,
            start_us=self.start_us * latency,
            gb_s=tuple(rate / transfer for rate in self.gb_s),
        )

    def _rate(self, members: Array) -> Array:
        known = np.log2(np.asarray(self.ranks, dtype=np.float64))
        return np.interp(np.log2(np.maximum(members, 1.0)), known, self.gb_s)


def _ring(kind: str, size: Array, members: Array) -> tuple[Array, Array]:
    """Steps in a row, and bytes through each rank's link, among so many members."""
    others = np.maximum(members - 1.0, 0.0)
    any_ = np.minimum(others, 1.0)
    if kind == "send":
        return any_, size * any_
    if kind == "broadcast":
        return others, size * any_
    share = others / np.maximum(members, 1.0)
    if kind == "all-reduce":
        return 2.0 * others, 2.0 * size * share
    if kind == "all-to-all":
        return any_ * np.log2(np.maximum(members, 2.0)), size * share
    return others, size * share


class _NetworkUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What collectives make of a network: the share of its line rate, and how sure that is."""

    efficiency: float
    floor_us: float
    spread: float
    source: str


class _Coefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    collective: tuple[CollectiveModel, ...]
    network: _NetworkUse

    def of_link(self, link: str) -> dict[str, CollectiveModel]:
        found = {m.kind: m for m in self.collective if m.link == link}
        if not found:
            known = ", ".join(sorted({m.link for m in self.collective}))
            raise InputError(f"no coefficients for links of class {link!r}",
                             hint=f"known are {known}")  # fmt: skip
        return found


class CollectiveTimes(msgspec.Struct, frozen=True):
    """Times of collectives among GPUs of one kind, inside a node and between nodes.

    >>> times = CollectiveTimes.of("A100", "ib-hdr")
    >>> inside = times.time_us("all-reduce", 1e9, 8)
    >>> across = times.time_us("all-reduce", 1e9, 16, per_node=8)
    >>> bool(across > inside)
    True

    Attributes:
        node_gpus: Ranks of a node, where a question does not say.
        inside: Coefficients inside a node, by kind; "*" for kinds without their own.
        between: Likewise between nodes.
    """

    node_gpus: int
    inside: Mapping[str, CollectiveModel]
    between: Mapping[str, CollectiveModel]

    @classmethod
    def of(
        cls, gpu: Gpu | str | None = None, network: Network | str | None = None
    ) -> CollectiveTimes:
        """Collectives among GPUs, and over a network where they span nodes.

        Without a GPU, or over `gloo-loopback`, ranks are CPU processes of one machine.
        """
        shipped = _load()
        wire = _named_network(network, with_gpu=bool(gpu))
        if wire.name == _GLOO or not gpu:
            gloo = shipped.of_link(_GLOO)
            return cls(2**20, gloo, gloo)
        machine = find_gpu(gpu) if isinstance(gpu, str) else gpu
        return cls(machine.node_gpus, shipped.of_link(machine.link), _over(wire, shipped.network))

    def time_us(
        self, kind: str, bytes: ArrayLike, ranks: ArrayLike, *,
        node_gpus: int | None = None, per_node: ArrayLike | None = None,
    ) -> Array:  # fmt: skip
        """Time of a collective.

        Args:
            kind: One of `COLLECTIVE_KINDS`.
            bytes: The whole: what each rank puts into an all-reduce, a reduce-scatter or an
                all-to-all, what each has after an all-gather or a broadcast, a message.
            ranks: Members of the group.
            node_gpus: Ranks of a node; the catalogue's where not given.
            per_node: How many members share a node; as many as fit where not given.
        """
        size = np.maximum(np.asarray(bytes, dtype=np.float64), 0.0)
        members = np.maximum(np.asarray(ranks, dtype=np.float64), 1.0)
        room = np.asarray(node_gpus or self.node_gpus if per_node is None else per_node, float)
        local = np.clip(room, 1.0, members)
        nodes = np.ceil(members / local)
        inside, between = _find(self.inside, kind), _find(self.between, kind)
        if kind == "send":
            here, there = (m.parts_us(kind, size, np.asarray(2.0)) for m in (inside, between))
            alone = np.where(nodes > 1.0, sum(there), sum(here))
            return np.asarray(np.where(members > 1.0, alone, 0.0), dtype=np.float64)
        # A broadcast is not shared out: all of it goes to every node.
        share = size if kind == "broadcast" else size / local
        inside_us, carried_us = inside.parts_us(kind, size, local)
        between_us, crossed_us = between.parts_us(kind, share, nodes)
        return inside_us + between_us + blend(carried_us, crossed_us, _PIPELINE_BLEND)

    def spread(self, kind: str, crosses_nodes: bool = False) -> float:
        """Standard deviation of the logarithm of times about the model."""
        return _find(self.between if crosses_nodes else self.inside, kind).spread

    def calibrated(
        self, samples: Iterable[Sample], *, crosses_nodes: bool = False
    ) -> CollectiveTimes:
        """These times with one level's starts and rates brought to measured collectives.

        Args:
            samples: Kind, bytes, ranks and microseconds of each. All kinds share two factors, so
                that kinds and sizes which were not measured move along.
            crosses_nodes: The samples are of groups with one rank per node, between nodes.
        """
        level = self.between if crosses_nodes else self.inside
        rows = [row for row in samples if row[3] > 0.0 and row[2] > 1]
        if not rows:
            return self
        parts = [
            _find(level, kind).parts_us(kind, np.asarray(float(size)), np.asarray(float(ranks)))
            for kind, size, ranks, _ in rows
        ]
        latency = np.array([float(p[0]) for p in parts])
        transfer = np.array([float(p[1]) for p in parts])
        factors = _fit_factors(latency, transfer, np.array([row[3] for row in rows]))
        moved = {kind: model.scaled(*factors) for kind, model in level.items()}
        return msgspec.structs.replace(self, **{"between" if crosses_nodes else "inside": moved})


def _fit_factors(latency_us: Array, transfer_us: Array, measured_us: Array) -> tuple[float, float]:
    """Factors on starts and on bytes that make log errors small, near one where data is thin."""

    def loss(point: tuple[float, float]) -> float:
        predicted_us = latency_us * math.exp(point[0]) + transfer_us * math.exp(point[1])
        off = np.abs(np.log(np.maximum(predicted_us, 1e-9) / measured_us))
        # The prior is weak and smooth: it decides only what the samples leave open.
        return float(off.sum() + _PRIOR_SAMPLES * 0.05 * (point[0] ** 2 + point[1] ** 2))

    best, step = (0.0, 0.0), 1.0
    while step > 1e-3:
        trials = [(best[0] + a * step, best[1] + b * step) for a in (-1, 0, 1) for b in (-1, 0, 1)]
        nearest = min(trials, key=loss)
        if nearest == best:
            step /= 2.0
        best = nearest
    return math.exp(best[0]), math.exp(best[1])


def _find(level: Mapping[str, CollectiveModel], kind: str) -> CollectiveModel:
    if kind not in COLLECTIVE_KINDS:
        known = ", ".join(COLLECTIVE_KINDS)
        raise InputError(f"no collective is called {kind!r}", hint=f"known are {known}")
    # A message and a broadcast run at the rate at which pieces go round a ring.
    for name in (kind, "*", "all-gather"):
        if name in level:
            return level[name]
    raise InputError(f"no coefficients for {kind}", where=str(_COEFFICIENTS))


def _named_network(network: Network | str | None, *, with_gpu: bool) -> Network:
    if isinstance(network, Network):
        return network
    return find_network(network or (USUAL_NETWORK if with_gpu else _GLOO))


def _over(wire: Network, use: _NetworkUse) -> dict[str, CollectiveModel]:
    model = CollectiveModel(
        link=wire.name, kind="*", floor_us=use.floor_us, step_us=wire.latency_us, ranks=(2,),
        gb_s=(wire.gb_s * use.efficiency,), spread=use.spread, source=use.source,
    )  # fmt: skip
    return {"*": model}


@cache
def _load() -> _Coefficients:
    return msgspec.toml.decode(_COEFFICIENTS.read_bytes(), type=_Coefficients)
