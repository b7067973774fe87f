"""Search: which layout trains this model fastest, cheapest, or with the least energy?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

import msgspec
import numpy as np

from gnomon.errors import Infeasible, InputError
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.gpu import Gpu, find_gpu
from gnomon.parallel import MapOptions, pmap
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import Assembled, assemble_rounds
from gnomon.systems.training.prediction.program import Program
from gnomon.systems.training.prediction.source import Source

_GIB = 2.0**30
#: What rows can be ranked by; more tokens are better, less of all else.
RANKS = ("step_ms", "tokens_s", "cost_usd", "energy_j", "carbon_g")
#: Candidates a worker takes at once: they share what was laid for the shape before.
_BATCH = 16
#: Fewer are done before worker processes have started.
_FEW = 400
#: Longer accumulations are extrapolated from two shorter ones, of so many rounds of the pipeline.
_ROUNDS = (3, 4)


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Layouts to look at.

    Attributes:
        gpus: Sizes of the job.
        global_batch: Sequences of a step, the same for all.
        node_gpus: Tensor parallelism stays inside a node of so many.
        micro_batch: Sizes of a micro-batch.
        interleave: Chunks a pipeline rank holds.
        tp, pp: Only these; empty: all that fit.
    """

    gpus: tuple[int, ...]
    global_batch: int
    node_gpus: int = 8
    micro_batch: tuple[int, ...] = (1, 2, 4, 8, 16)
    interleave: tuple[int, ...] = (1,)
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()


class Row(msgspec.Struct, frozen=True, gc=False):
    """One layout that fits; cost, energy and carbon are those of one step of the whole job.

    Attributes:
        utilisation: Share of the step in which a GPU computes, mean of the stages.
    """

    configuration: Configuration
    step_ms: float
    tokens_s: float
    memory_bytes: float
    utilisation: float
    cost_usd: float
    energy_j: float
    carbon_g: float


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """One layout that does not fit, and by how much."""

    configuration: Configuration
    reason: str
    over_bytes: float


class Found(msgspec.Struct, frozen=True):
    """What a search found.

    Attributes:
        evaluated: Layouts whose step was predicted.
        rows: Those, best first.
        dropped: Layouts that do not fit into memory.
        impossible: Combinations that are no layout, counted by reason.
        pareto: Rows that no other beats in step time, cost and energy at once.
    """

    evaluated: int
    rows: tuple[Row, ...]
    dropped: tuple[Dropped, ...]
    impossible: Mapping[str, int]
    pareto: tuple[int, ...]

    @property
    def best(self) -> Row:
        """The first row; raises where nothing fits."""
        if self.rows:
            return self.rows[0]
        if not self.dropped:
            raise Infeasible("no layout divides the GPUs, the layers and the global batch")
        nearest = min(self.dropped, key=lambda one: one.over_bytes)
        raise Infeasible(
            f"none of {len(self.dropped)} layouts fits; the nearest is over by "
            f"{nearest.over_bytes / _GIB:.1f} GiB ({nearest.configuration.short()})"
        )


class _Judge(msgspec.Struct, frozen=True):
    """Predicts layouts, and what they cost."""

    source: Source
    collectives: CollectiveTimes
    factor: float
    memory_bytes: float
    price_usd_h: float
    power_w: float
    idle_w: float
    carbon_g_per_kwh: float

    def __call__(self, layouts: Sequence[Configuration]) -> list[Row | Dropped]:
        return [self._one(layout) for layout in layouts]

    def _one(self, layout: Configuration) -> Row | Dropped:
        needs = self.source.memory(layout).total
        if needs > self.memory_bytes:
            over = needs - self.memory_bytes
            reason = f"needs {needs / _GIB:.1f} GiB, {over / _GIB:.1f} too many"
            return Dropped(layout, reason, over)
        blocking = self.source.style.blocking_pipeline
        step = quick_step(self.source.program(layout), self.collectives, blocking_sends=blocking)
        step_ms = step.step_ms * self.factor
        seconds = step_ms / 1e3
        utilisation = step.utilisation * min(1.0, step.step_ms / step_ms) if step_ms else 0.0
        power_w = self.idle_w + utilisation * (self.power_w - self.idle_w)
        energy_j = layout.world * power_w * seconds
        return Row(
            layout,
            step_ms,
            layout.global_batch * layout.seq / seconds if seconds else 0.0,
            needs,
            utilisation,
            layout.world * seconds / 3600.0 * self.price_usd_h,
            energy_j,
            energy_j / 3.6e6 * self.carbon_g_per_kwh,
        )


def search(
    source: Source,
    configuration: Configuration,
    space: Space,
    *,
    gpu: Gpu | None = None,
    memory_gib: float | None = None,
    price_usd_h: float | None = None,
    carbon_g_per_kwh: float = 0.0,
    rank_by: str = "step_ms",
    factor: float = 1.0,
    **options: Unpack[MapOptions],
) -> Found:
    """Predicts every layout of a space, and ranks those that fit.

    A GPU draws its idle power all the time, and the rest up to its limit in the share of the step
    in which it computes.

    Args:
        source: Gives the program, the collectives and the memory of a layout. It has to pickle.
        configuration: The model; its own layout does not matter, save context and expert
            parallelism, which stay.
        gpu: The catalogue's entry of `configuration.gpu` where not given; memory, price and power
            come from it.
        carbon_g_per_kwh: Of the electricity.
        rank_by: One of `RANKS`.
        factor: What replayed steps are multiplied by, to agree with a measured base.
        options: How the map over candidates runs, see `gnomon.parallel.pmap`. Few candidates stay
            in this process unless `on` is given.
    """
    if rank_by not in RANKS:
        raise InputError(f"cannot rank by {rank_by!r}; there are {', '.join(RANKS)}")
    machine = gpu or find_gpu(configuration.gpu)
    judge = _Judge(
        source, source.collectives(configuration), factor,
        _GIB * (machine.memory_gib if memory_gib is None else memory_gib),
        machine.price_usd_h if price_usd_h is None else price_usd_h,
        machine.power_w, machine.idle_w, carbon_g_per_kwh,
    )  # fmt: skip
    layouts, impossible = enumerate_layouts(configuration, space)
    # Neighbours share a program, or a shape and what was laid for it. Long pipelines take longest
    # and come first, so that workers end together.
    layouts.sort(key=lambda c: (-c.pp, c.tp, c.batch, c.dp, c.interleave))
    batches = [layouts[i : i + _BATCH] for i in range(0, len(layouts), _BATCH)]
    if len(layouts) < _FEW:
        options.setdefault("on", "serial")
    judged = [one for batch in pmap(judge, batches, **options) for one in batch]
    rows = [one for one in judged if isinstance(one, Row)]
    sign = -1.0 if rank_by == "tokens_s" else 1.0
    rows.sort(key=lambda row: (sign * getattr(row, rank_by), row.configuration.short()))
    return Found(
        len(rows),
        tuple(rows),
        tuple(one for one in judged if isinstance(one, Dropped)),
        impossible,
        tuple(pareto_front([(row.step_ms, row.cost_usd, row.energy_j) for row in rows])),
    )


# -- what there is ---------------------------------------------------------------------------


def enumerate_layouts(
    configuration: Configuration, space: Space
) -> tuple[list[Configuration], dict[str, int]]:
    """Every layout of a space, and how many combinations are none, by reason.

    >>> gpt = Configuration(layers=4, hidden=64, heads=4, seq=8, batch=1)
    >>> layouts, impossible = enumerate_layouts(
    ...     gpt, Space(gpus=(8,), global_batch=4, micro_batch=(1, 2)))
    >>> sorted({(c.tp, c.pp, c.dp) for c in layouts})
    [(1, 2, 4), (1, 4, 2), (2, 1, 4), (2, 2, 2), (2, 4, 1), (4, 1, 2), (4, 2, 1)]
    >>> impossible["the global batch does not divide over dp and micro-batch"]
    4
    """
    found: list[Configuration] = []
    impossible: Counter[str] = Counter()
    for gpus in space.gpus:
        for settings in _combinations(configuration, space, gpus):
            layout = _layout(configuration, space, gpus, settings)
            if isinstance(layout, str):
                impossible[layout] += 1
            else:
                found.append(layout)
    return found, dict(impossible)


def _combinations(
    configuration: Configuration, space: Space, gpus: int
) -> Iterator[tuple[int, int, int, int]]:
    """Degrees of tensor and pipeline parallelism that divide the GPUs, and what goes with them."""
    if gpus < 1:
        raise InputError(f"{gpus} GPUs; give at least 1")
    powers = [1 << power for power in range(max(space.node_gpus, 1).bit_length())]
    for tp in space.tp or powers:
        for pp in space.pp or range(1, configuration.layers + 1):
            if configuration.heads % tp or gpus % (tp * pp * configuration.cp):
                continue
            for batch in space.micro_batch:
                for interleave in space.interleave:
                    if interleave == 1 or pp > 1:
                        yield tp, pp, batch, interleave


def _layout(
    configuration: Configuration, space: Space, gpus: int, settings: tuple[int, int, int, int]
) -> Configuration | str:
    """The layout, or why it is none."""
    tp, pp, batch, interleave = settings
    dp = gpus // (tp * pp * configuration.cp)
    if space.global_batch % (dp * batch):
        return "the global batch does not divide over dp and micro-batch"
    micro_batches = space.global_batch // (dp * batch)
    if interleave > 1 and micro_batches % pp:
        return "interleaving needs micro-batches in groups of pp"
    if interleave > 1 and configuration.layers % (pp * interleave):
        return "chunks of an interleaved pipeline would not be equal"
    sizes = {"tp": tp, "pp": pp, "dp": dp, "batch": batch, "accumulation": micro_batches,
             "interleave": interleave}  # fmt: skip
    try:
        return configuration.changed(sizes)
    except InputError as error:
        return str(error)


# -- one layout ------------------------------------------------------------------------------


class QuickStep(msgspec.Struct, frozen=True):
    """A step's length, and the share of it in which a GPU computes."""

    step_ms: float
    utilisation: float


def quick_step(
    program: Program, collectives: CollectiveTimes, *, blocking_sends: bool = False
) -> QuickStep:
    """A step from the coarse graph; of a long accumulation only the first rounds are played.

    Once a pipeline runs steadily every further micro-batch takes as long as the one before, or as
    long as the busiest lane needs for it, whichever is more.
    """
    c = program.configuration
    short, long = (rounds * c.pp for rounds in _ROUNDS)
    rounds = [short, long] if c.accumulation > long else [c.accumulation]
    played = [
        _Played(assembled)
        for assembled in assemble_rounds(
            program, collectives, rounds, blocking_sends=blocking_sends
        )
    ]
    last = played[-1]
    step_ms, computes_ms = last.step_ms, last.computes_ms
    if len(played) > 1:
        more = (c.accumulation - long) / (long - short)
        busiest = float(np.max(last.busy_ms - played[0].busy_ms))
        step_ms += more * max(step_ms - played[0].step_ms, busiest)
        computes_ms += more * (computes_ms - played[0].computes_ms)
    return QuickStep(step_ms, min(1.0, computes_ms / c.pp / step_ms) if step_ms else 0.0)


class _Played:
    """Sums of a played graph: the step, the work of each lane, the work that computes."""

    def __init__(self, assembled: Assembled) -> None:
        graph = assembled.graph
        self.step_ms = assembled.step_ms
        self.busy_ms = np.bincount(graph.lane, graph.duration_ns, minlength=len(graph.lanes)) / 1e6
        computes = ~graph.is_kind("communication", "host", "fence")
        self.computes_ms = float(graph.duration_ns[computes].sum()) / 1e6


def pareto_front(costs: Iterable[Sequence[float]]) -> list[int]:
    """Rows of costs that no other row is below or equal to in all columns and below in one.

    >>> pareto_front([(1, 5), (2, 2), (3, 3), (5, 1), (2, 2)])
    [0, 1, 3, 4]
    """
    table = np.asarray(list(costs), np.float64)
    front = []
    for at, row in enumerate(table):
        no_worse = np.all(table <= row, axis=1)
        if not np.any(no_worse & np.any(table < row, axis=1)):
            front.append(at)
    return front
