"""Extract: a recorded job as parts that can be sized anew and put together differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.systems.training.job import TrainingJob
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.cut import CutRank, Slot, Template, cut_rank, median_part
from gnomon.systems.training.prediction.exchanges import Exchange, recorded_exchanges
from gnomon.systems.training.prediction.growth import (
    Growth,
    Linear,
    Roles,
    Size,
    growth_of,
    product_sizes,
)
from gnomon.systems.training.prediction.infer import infer_configuration, linears_of
from gnomon.systems.training.prediction.program import Piece
from gnomon.systems.training.prediction.style import width
from gnomon.systems.training.prediction.units import FAMILIES, Phase, Units, find_units
from gnomon.systems.training.unprofiled import without_profiler

__all__ = ["CPU", "WAIT", "Extracted", "RecordedPart", "extract"]

#: What stands for the device of a rank without a GPU.
CPU = "cpu"
#: The host stops until the device has done all it was given.
WAIT = Piece(name="wait for the device", family="host", device_ns=0.0, joins=("compute",))
#: Less of a step in what repeats, and it is not layers that repeat.
_LEAST_SHARE = 0.3


class RecordedPart(msgspec.Struct, frozen=True):
    """A part as it was recorded: its pieces, and how each grows with the configuration.

    Attributes:
        pieces: Measured pieces.
        growths: One a piece.
        runs: How often it ran in the trace.
        spread: Relative standard deviation of its runs.
    """

    pieces: tuple[Piece, ...]
    growths: tuple[Growth, ...]
    runs: int
    spread: float


class Extracted(msgspec.Struct, frozen=True):
    """A recorded job, taken apart.

    Attributes:
        configuration: Inferred, or as the user said.
        parts: By name, as in `Program`; the optimiser is one part, `optimizer`.
        linears: A layer's products with weights.
        parameters: Parameters of one rank's share of an embedding, a layer, a head.
        step_ns: The host's and the device's time a step that belong to no part.
        overlap_gradients: Gradients were reduced while the backward pass ran; None: not at all.
        exchanges: What ranks exchanged, with the time it took once all were there.
        steps: How many steps were taken apart.
        on_gpu: Whether it ran on GPUs.
        ends_waiting: The host waited for the device between steps.
    """

    configuration: Configuration
    parts: Mapping[str, RecordedPart]
    linears: tuple[Linear, ...]
    parameters: Mapping[str, float]
    step_ns: tuple[float, float]
    overlap_gradients: bool | None
    exchanges: tuple[Exchange, ...]
    steps: int
    on_gpu: bool
    ends_waiting: bool
    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    tied_head: bool = False
    notes: tuple[str, ...] = ()


_Runs = list[tuple[int, NDArray[np.int64]]]
_Pick = Callable[[CutRank, Slot], Sequence[NDArray[np.int64]]]


def extract(job: TrainingJob, overrides: dict[str, Any], where: str, gpu: str) -> Extracted:
    """Takes a recorded job apart.

    Args:
        job: The job.
        overrides: What the user says of its configuration.
        where: The trace, for messages.
        gpu: The device's name; "" for none.

    Raises:
        InputError: Nothing that repeats like layers was found, or shapes were not recorded.
    """
    ranks = [
        _cut(part.trace, part.on_its_own_clock(), part.source) for part in _traced(job, where)
    ]
    units = [rank.units for rank in ranks]
    templates = {name: median_part(units, _runs(ranks, pick)) for name, pick in _PICKS.items()}
    for name in ("layer.forward", "layer.backward"):
        if not templates[name].runs:
            raise InputError(
                f"it shows no {name.split('.')[1]} pass through layers", where=where,
                hint="predictions need whole training steps: forward, backward, optimiser",
            )  # fmt: skip
    _check_share(ranks, where)
    on_gpu = units[0].on_gpu
    configuration = infer_configuration(
        ranks, templates["layer.forward"], templates["embedding.forward"],
        templates["head.forward"], overrides, where, (gpu or CPU) if on_gpu else CPU,
    )  # fmt: skip
    layer = templates["layer.forward"]
    linears = linears_of(units[layer.rank], layer, configuration.hidden)
    end = templates["head.forward"]
    head = _head(units[end.rank], end, configuration)
    parts = {
        name: _recorded(units[template.rank], template, configuration, linears, head, name)
        for name, template in templates.items()
    }
    parameters = _parameters(configuration, linears, ranks)
    parts["optimizer"] = _optimizer(ranks)
    overlap = _overlap(ranks)
    return Extracted(
        configuration=configuration,
        parts=parts,
        linears=tuple(linears),
        parameters=parameters,
        step_ns=_rest(ranks[0], parts, configuration) if len(ranks) == 1 else (0.0, 0.0),
        overlap_gradients=overlap,
        exchanges=recorded_exchanges(job),
        steps=len(ranks[0].steps),
        on_gpu=on_gpu,
        ends_waiting=ranks[0].ends_waiting,
    )


def _check_share(ranks: Sequence[CutRank], where: str) -> None:
    """Layers have to be most of the work: else something else happens to repeat."""
    in_layers = sum(
        float(rank.units.device_ns[place].sum())
        for rank in ranks for slot in rank.slots for place in slot.layers
    )  # fmt: skip
    everything = sum(
        float(rank.units.device_ns[np.isin(rank.units.step, rank.steps)].sum()) for rank in ranks
    )
    if in_layers < _LEAST_SHARE * everything:
        raise InputError(
            f"what repeats in it is only {100 * in_layers / everything:.0f} % of the step's work",
            where=where, hint="predictions need the training steps of a transformer",
        )  # fmt: skip


def _traced(job: TrainingJob, where: str) -> list[Any]:
    parts = [part for part in job.parts if part.trace is not None and part.stands_in is None]
    if not parts:
        raise InputError(
            "it has no operators to take apart", where=where,
            hint="predictions need profiler traces with shapes",
        )  # fmt: skip
    return parts


def _cut(trace: Any, training: Any, where: str) -> CutRank:
    units = find_units(trace, training, without_profiler(trace, training))
    if not len(units):
        raise InputError(
            "no step is marked in it", where=where,
            hint="call the profiler's step() after each training step, or record with "
            "`gnomon training record`",
        )  # fmt: skip
    return cut_rank(units, where, training.counted)


_PICKS: dict[str, _Pick] = {
    "embedding.forward": lambda r, s: [s.before] if s.is_forward and r.holds_embedding else [],
    "layer.forward": lambda r, s: s.layers if s.is_forward else [],
    "head.forward": lambda r, s: [s.after] if s.is_forward and r.holds_head else [],
    "head.backward": lambda r, s: [s.before] if not s.is_forward and r.holds_head else [],
    "layer.backward": lambda r, s: s.layers if not s.is_forward else [],
    "embedding.backward": lambda r, s: [s.after] if not s.is_forward and r.holds_embedding else [],
}


def _runs(ranks: Sequence[CutRank], pick: _Pick) -> _Runs:
    return [
        (number, place)
        for number, rank in enumerate(ranks)
        for slot in rank.slots
        for place in pick(rank, slot)
    ]


def _recorded(
    units: Units,
    template: Template,
    base: Configuration,
    linears: Sequence[Linear],
    head: Linear,
    name: str,
) -> RecordedPart:
    if name.startswith("head"):
        linears = [head]
    roles = Roles(linears, base.tokens)
    pieces, growths = [], []
    for place, unit in enumerate(template.place.tolist()):
        family = FAMILIES[units.family[unit]]
        if template.waits[place] and (place > 0 or name != "embedding.forward"):
            pieces.append(WAIT)
            growths.append(Growth("fixed"))
        operator = units.operator_name(unit)
        growths.append(
            growth_of(
                family,
                operator,
                units.shapes(unit),
                base,
                roles,
                part=name,
                element_bytes=width(base.dtype),
            )
        )
        pieces.append(
            Piece(
                name=_label(operator, units.name[unit]),
                family=family,
                device_ns=float(template.device_ns[place]),
                host_ns=float(template.host_ns[place]),
                lane="side" if units.side[unit] else "compute",
            )
        )
    return RecordedPart(tuple(pieces), tuple(growths), template.runs, template.spread)


def _head(units: Units, forward: Template, base: Configuration) -> Linear:
    """The product onto the vocabulary, or the rank's share of it."""
    out = base.vocab // base.tp
    for unit in forward.place[units.is_family("product")[forward.place]].tolist():
        sizes = product_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None:
            out = sizes[1]
    return Linear(Size(base.hidden, ("hidden",)), Size(out, ("vocab",)), "head", True)


def _label(operator: str, kernel: str) -> str:
    name = operator.removeprefix("aten::").lstrip("_")
    return name if name else kernel[:40]


def _parameters(
    base: Configuration, linears: Sequence[Linear], ranks: Sequence[CutRank]
) -> dict[str, float]:
    matrices = sum(linear.into.value * linear.out.value for linear in linears)
    vectors = sum(linear.out.value for linear in linears) + 4 * base.hidden
    table = base.vocab * base.hidden / base.tp
    return {"embedding": table, "layer": matrices + vectors, "head": table + 2 * base.hidden}


def _optimizer(ranks: Sequence[CutRank]) -> RecordedPart:
    """The optimiser of the whole model, as one piece a family: summed over a pipeline's ranks."""
    shares: dict[str, list[float]] = {}
    for rank in ranks:
        units = rank.units
        for place in rank.optimizer:
            for unit in place.tolist():
                row = shares.setdefault(FAMILIES[units.family[unit]], [0.0, 0.0, 0])
                row[0] += float(units.device_ns[unit])
                row[1] += float(units.host_ns[unit])
                row[2] += 1
    runs = sum(len(rank.optimizer) for rank in ranks)
    pieces = tuple(
        Piece(name=f"optimizer {family}", family="optimizer", device_ns=d / runs, host_ns=h / runs)
        for family, (d, h, _) in shares.items()
    )
    fixed = tuple(Growth("fixed") for _ in pieces)
    return RecordedPart(pieces, fixed, runs, 0.0)


def _overlap(ranks: Sequence[CutRank]) -> bool | None:
    if not any(len(rank.gradients) for rank in ranks):
        return None
    phases = np.concatenate([rank.units.phase[rank.gradients] for rank in ranks])
    return bool((phases == Phase.BACKWARD).any())


def _rest(
    rank: CutRank, parts: Mapping[str, RecordedPart], base: Configuration
) -> tuple[float, float]:
    """Host and device time of a step that the parts do not hold (negative: they hold too much)."""
    steps = len(rank.steps)
    own = np.isin(rank.units.step, rank.steps)
    own[rank.gradients] = False
    count = {"layer.forward": base.accumulation * rank.layers,
             "layer.backward": base.accumulation * rank.layers, "optimizer": 1}  # fmt: skip
    host = float(rank.units.host_ns[own].sum()) / steps
    device = float(rank.units.device_ns[own & ~rank.units.side].sum()) / steps
    for name, part in parts.items():
        times = count.get(name, base.accumulation)
        host -= times * sum(piece.host_ns for piece in part.pieces)
        device -= times * sum(p.device_ns for p in part.pieces if p.lane == "compute")
    return host, device
