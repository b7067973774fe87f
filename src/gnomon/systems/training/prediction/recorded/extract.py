"""Extract: a recorded job as parts that can be sized anew and put together differently."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.graph.column_types import Flags, Ints
from gnomon.ingest.profiler.kineto import KinetoTrace
from gnomon.model.accelerator.operator_family import WORK_FAMILIES
from gnomon.model.accelerator.profiler_cost import ProfilerCost
from gnomon.sim.trace.graph import TraceGraph
from gnomon.sim.trace.unprofiled import without_profiler
from gnomon.systems.training.job import RankPart, TrainingJob
from gnomon.systems.training.prediction.analytic.style import width
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.program import Piece
from gnomon.systems.training.prediction.recorded.collectives import (
    TimedCollective,
    model_kind,
    timed_collectives,
    unmet_messages,
)
from gnomon.systems.training.prediction.recorded.cut import (
    CutRank,
    Slot,
    Template,
    cut_rank,
    median_part,
)
from gnomon.systems.training.prediction.recorded.growth import (
    Growth,
    Linear,
    Roles,
    Size,
    gemm_sizes,
    growth_of,
)
from gnomon.systems.training.prediction.recorded.infer import (
    contradictions,
    infer_values,
    linears_of,
)
from gnomon.systems.training.prediction.recorded.units import (
    Phase,
    Shapes,
    Units,
    find_units,
    parse_shapes,
)

#: What stands for the device of a rank without a GPU.
CPU = "cpu"
#: The host stops until the device has done all it was given.
WAIT = Piece(name="wait for the device", family="host", device_ns=0.0, joins=("compute",))
#: More of a pipeline's messages without their other side, and stages are missing.
_MOST_UNMET = 0.5
_COPY = "aten::copy_"
_HALVES = ("c10::BFloat16", "c10::Half")
#: The element type in the name of a kernel that updates weights, or among an operator's types.
_ELEMENT = re.compile(r'(?:Functor<|")(float|c10::BFloat16|c10::Half)\b')
#: Optimisers that keep one number of each weight.
_ONE_STATE = ("rmsprop", "adagrad", "lion", "muon")
#: Less of a step in what repeats, and it is not layers that repeat. A small model with a large
#: vocabulary spends most of its time in its head.
_LEAST_SHARE = 0.1


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
        configuration: Inferred, or as the user gave it.
        parts: By name, as in `Program`; the optimiser is one part, `optimizer`.
        linears: A layer's GEMMs with weights.
        parameters: Parameters of one rank's share of an embedding, a layer, a head.
        step_ns: The host's and the device's time per step that belong to no part.
        overlap_gradients: Gradients were reduced while the backward pass ran; None: not at all.
        collectives: What ranks communicated, with the time it took once all were there.
        steps: How many steps were taken apart.
        on_gpu: Whether it ran on GPUs.
        ends_waiting: The host waited for the device between steps.
        weight_bytes: Bytes of a weight as it is stored.
        state_bytes: Bytes that the optimiser keeps of each weight.
        tied_head: Embedding and head are known to share their matrix.
        notes: Where the user and the trace disagree.
        talks_in_layers: Ranks communicated activations inside layers while it was recorded.
    """

    configuration: Configuration
    parts: Mapping[str, RecordedPart]
    linears: tuple[Linear, ...]
    parameters: Mapping[str, float]
    step_ns: tuple[float, float]
    overlap_gradients: bool | None
    collectives: tuple[TimedCollective, ...]
    steps: int
    on_gpu: bool
    ends_waiting: bool
    weight_bytes: float = 0.0
    state_bytes: float = 0.0
    tied_head: bool = False
    notes: tuple[str, ...] = ()
    talks_in_layers: bool = False


_Runs = list[tuple[int, Ints]]
_Pick = Callable[[CutRank, Slot], Sequence[Ints]]


def extract(
    job: TrainingJob, overrides: dict[str, Any], where: str, gpu: str,
    cost: ProfilerCost | None = None,
) -> Extracted:  # fmt: skip
    """Takes a recorded job apart.

    Args:
        job: The job; its steps are taken apart that its graph counts.
        overrides: What the user says of its configuration.
        where: The trace, for messages.
        gpu: The device's name; "" for none.
        cost: Profiler overhead to subtract, in place of the default.

    Raises:
        InputError: Nothing that repeats like layers was found, shapes were not recorded, or the
            job does something that predictions do not understand.
    """
    ranks = _cut_ranks(job, where, cost)
    units = [rank.units for rank in ranks]
    templates = {name: median_part(units, _runs(ranks, pick)) for name, pick in _PICKS.items()}
    for name in ("layer.forward", "layer.backward"):
        if not templates[name].runs:
            raise InputError(
                f"it shows no {name.split('.')[1]} pass through layers", where=where,
                hint="predictions need whole training steps: forward, backward, optimiser",
            )  # fmt: skip
    _check_share(ranks, where)
    layer, end = templates["layer.forward"], templates["head.forward"]
    inferred = infer_values(ranks, layer, templates["embedding.forward"], end, overrides, where)
    _check_layer_collectives(ranks, inferred, overrides, where)
    inferred["gpu"] = _device(units[0].on_gpu, gpu, overrides, where)
    configuration = Configuration(**(inferred | overrides))
    linears = linears_of(units[layer.rank], layer, configuration.hidden)
    head = _head(units[end.rank], end, configuration)
    parts = {
        name: _recorded(units[template.rank], template, configuration, linears, head, name)
        for name, template in templates.items()
    }
    weight = _weight_bytes(units, linears, configuration.dtype)
    rest = _rest(ranks, parts)
    parts["optimizer"] = _optimizer(ranks)
    return Extracted(
        configuration=configuration,
        parts=parts,
        linears=tuple(linears),
        parameters=_parameters(configuration, linears),
        step_ns=rest,
        overlap_gradients=_overlap(ranks),
        collectives=timed_collectives(job),
        steps=len(ranks[0].steps),
        on_gpu=units[0].on_gpu,
        ends_waiting=ranks[0].ends_waiting,
        weight_bytes=weight,
        state_bytes=weight * _states(units),
        notes=contradictions(inferred, overrides),
        talks_in_layers=any(len(rank.in_layers) for rank in ranks),
    )


def _cut_ranks(job: TrainingJob, where: str, cost: ProfilerCost | None) -> list[CutRank]:
    """The traced ranks, taken apart: of each the steps that the job counts."""
    names = {job.training.step_names[step] for step in job.training.counted}
    ranks = []
    for part in _traced(job, where):
        training = part.on_its_own_clock()
        own = training.step_names
        steps = [step for step, name in enumerate(own) if not names or name in names]
        if not steps and own:
            raise InputError("none of the steps to look at is in it", where=part.source)
        ranks.append(_cut(part, training, steps, cost))
    if unmet_messages(job) > _MOST_UNMET:
        raise InputError(
            "it sends to stages of a pipeline, or receives from some, that were not given",
            where=where, hint="give the folder with the traces of all ranks of a pipeline",
        )  # fmt: skip
    return ranks


def _check_share(ranks: Sequence[CutRank], where: str) -> None:
    """Layers have to be most of what is computed: else something else happens to repeat."""
    in_layers = sum(
        float(rank.units.device_ns[place].sum())
        for rank in ranks for slot in rank.slots for place in slot.layers
    )  # fmt: skip
    everything = sum(float(rank.units.device_ns[_computes(rank)].sum()) for rank in ranks)
    if in_layers < _LEAST_SHARE * everything:
        raise InputError(
            f"what repeats in it is only {100 * in_layers / everything:.0f} % of the step's work",
            where=where, hint="predictions need the training steps of a transformer",
        )  # fmt: skip


def _computes(rank: CutRank) -> Flags:
    """The units of the steps that do not talk: communication waits for others besides."""
    talks = rank.units.is_family("communication")
    return np.asarray(np.isin(rank.units.step, rank.steps) & ~talks)


def _check_layer_collectives(
    ranks: Sequence[CutRank], inferred: Mapping[str, Any], given: Mapping[str, Any], where: str
) -> None:
    """Inside layers only tensor parallelism may communicate, and shapes have to show it."""
    kinds = {
        model_kind(f"{rank.units.name[unit]} {rank.units.operator_name(unit)}")
        for rank in ranks
        for unit in rank.in_layers.tolist()
    }
    if "all-to-all" in kinds:
        raise InputError(
            "tokens are communicated inside its layers (all-to-all), which predictions do not "
            "understand yet", where=where, hint="give a job without expert or context parallelism",
        )  # fmt: skip
    if not kinds or int(given.get("tp", inferred["tp"])) > 1:
        return
    if kinds & {"all-gather", "reduce-scatter", "broadcast"}:
        raise InputError(
            "its parameters are gathered layer by layer (FSDP), which predictions do not "
            "understand yet", where=where, hint="give a job that holds its layers whole (DDP)",
        )  # fmt: skip
    raise InputError(
        "its ranks communicate inside layers, but shapes do not tell how many share one",
        where=where, hint="say how many: --base tp=2",
    )  # fmt: skip


def _device(on_gpu: bool, gpu: str, given: Mapping[str, Any], where: str) -> str:
    if not on_gpu:
        return CPU
    if not gpu and "gpu" not in given:
        raise InputError(
            "it has kernels, but does not name the GPU that they ran on", where=where,
            hint="say which: --base gpu=H200",
        )  # fmt: skip
    return gpu


def _traced(job: TrainingJob, where: str) -> list[RankPart]:
    parts = [part for part in job.parts if part.trace is not None and part.proxy_of is None]
    if not parts:
        raise InputError(
            "it has no operators to take apart", where=where,
            hint="predictions need profiler traces with shapes",
        )  # fmt: skip
    return parts


def _cut(
    part: RankPart, training: TraceGraph, steps: Sequence[int], cost: ProfilerCost | None
) -> CutRank:
    assert part.trace is not None
    units = find_units(part.trace, training, without_profiler(part.trace, training, cost))
    if not len(units):
        raise InputError(
            "no step is marked in it", where=part.source,
            hint="call the profiler's step() after each training step, or record with "
            "`gnomon training record`",
        )  # fmt: skip
    return cut_rank(units, part.source, steps)


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
        family = WORK_FAMILIES[units.family[unit]]
        if template.waits[place] and (place > 0 or name != "embedding.forward"):
            pieces.append(WAIT)
            growths.append(Growth("fixed"))
        operator = units.operator_name(unit)
        growths.append(
            growth_of(
                family,
                operator,
                units.shapes(unit) or _usual_shapes(units, unit, name, base),
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
                joins=("side",) if template.joins[place] else (),
            )
        )
    return RecordedPart(tuple(pieces), tuple(growths), template.runs, template.spread)


def _usual_shapes(units: Units, unit: int, part: str, base: Configuration) -> Shapes:
    """What a kernel of no operator works on, most likely: a compiler's are all activations."""
    if units.operator[unit] >= 0 or not units.on_gpu:
        return ()
    of_logits = part.startswith("head") and WORK_FAMILIES[units.family[unit]] == "softmax"
    return ((base.tokens, base.vocab // base.tp if of_logits else base.hidden),)


def _head(units: Units, forward: Template, base: Configuration) -> Linear:
    """The GEMM onto the vocabulary, or the rank's share of it."""
    out = base.vocab // base.tp
    for unit in forward.place[units.is_family("gemm")[forward.place]].tolist():
        sizes = gemm_sizes(units.operator_name(unit), units.shapes(unit))
        if sizes is not None:
            out = sizes[1]
    return Linear(Size(base.hidden, ("hidden",)), Size(out, ("vocab",)), "head", True)


def _label(operator: str, kernel: str) -> str:
    name = operator.removeprefix("aten::").lstrip("_")
    return name if name else kernel[:40]


def _parameters(base: Configuration, linears: Sequence[Linear]) -> dict[str, float]:
    matrices = sum(linear.into.value * linear.out.value for linear in linears)
    vectors = sum(linear.out.value for linear in linears) + 4 * base.hidden
    table = base.vocab * base.hidden / base.tp
    return {"embedding": table, "layer": matrices + vectors, "head": table + 2 * base.hidden}


def _optimizer(ranks: Sequence[CutRank]) -> RecordedPart:
    """The optimiser of a rank, as one piece per family: the mean over ranks and steps."""
    shares: dict[str, list[float]] = {}
    for rank in ranks:
        units = rank.units
        for place in rank.optimizer:
            for unit in place.tolist():
                row = shares.setdefault(WORK_FAMILIES[units.family[unit]], [0.0, 0.0])
                row[0] += float(units.device_ns[unit])
                row[1] += float(units.host_ns[unit])
    runs = sum(len(rank.optimizer) for rank in ranks)
    pieces = tuple(
        Piece(name=f"optimizer {family}", family="optimizer", device_ns=d / runs, host_ns=h / runs)
        for family, (d, h) in shares.items()
    )
    return RecordedPart(pieces, tuple(Growth("fixed") for _ in pieces), runs, 0.0)


def _overlap(ranks: Sequence[CutRank]) -> bool | None:
    if not any(len(rank.gradients) for rank in ranks):
        return None
    phases = np.concatenate([rank.units.phase[rank.gradients] for rank in ranks])
    return bool((phases == Phase.BACKWARD).any())


def _rest(ranks: Sequence[CutRank], parts: Mapping[str, RecordedPart]) -> tuple[float, float]:
    """Host and device time of a step that no part holds, in the mean over ranks.

    Negative where the parts hold too much: their medians are those of all runs together.
    """
    rest = np.asarray([_rest_of(rank, parts) for rank in ranks]).mean(axis=0)
    return float(rest[0]), float(rest[1])


def _rest_of(rank: CutRank, parts: Mapping[str, RecordedPart]) -> tuple[float, float]:
    units = rank.units
    own = _computes(rank)
    own[np.concatenate(rank.optimizer)] = False
    host = float(units.host_ns[own].sum())
    device = float(units.device_ns[own & ~units.side].sum())
    for name, pick in _PICKS.items():
        runs = sum(len(pick(rank, slot)) for slot in rank.slots)
        host -= runs * sum(piece.host_ns for piece in parts[name].pieces)
        device -= runs * sum(p.device_ns for p in parts[name].pieces if p.lane == "compute")
    return host / len(rank.steps), device / len(rank.steps)


def _weight_bytes(units: Sequence[Units], linears: Sequence[Linear], dtype: str) -> float:
    """Bytes of a weight: those of a GEMM's operands, unless weights are cast for it."""
    if any(_casts_weights(one, linears) or _updates_floats(one) for one in units):
        return 4.0
    return float(width(dtype))


def _casts_weights(units: Units, linears: Sequence[Linear]) -> bool:
    """Whether every matrix of a layer is copied from float to half, as autocast does."""
    trace = units.trace
    copies = np.flatnonzero(trace.is_category("cpu_op") & (trace.name == _code(trace, _COPY)))
    cast: set[frozenset[int]] = set()
    for code in np.unique(trace.shape[copies]).tolist():
        shapes, _, types = str(trace.shapes[code]).partition("\t")
        if '"float"' in types and any(f'"{half}"' in types for half in _HALVES):
            cast |= {frozenset(shape) for shape in parse_shapes(shapes) if len(shape) == 2}
    matrices = {frozenset((int(one.into.value), int(one.out.value))) for one in linears}
    return bool(matrices) and matrices <= cast


def _code(trace: KinetoTrace, name: str) -> int:
    return list(trace.names).index(name) if name in trace.names else -1


def _updates_floats(units: Units) -> bool:
    """Whether most of the optimiser's time goes to tensors of floats."""
    time_ns = {True: 0.0, False: 0.0}
    for unit in np.flatnonzero(units.phase == Phase.OPTIMIZER).tolist():
        event = int(units.operator[unit])
        text = units.trace.shapes[units.trace.shape[event]] if event >= 0 else ""
        types = text.split("\t")[1] if "\t" in text else ""
        found = _ELEMENT.search(units.name[unit]) or _ELEMENT.search(types)
        if found:
            time_ns[found.group(1) == "float"] += float(units.device_ns[unit])
    return time_ns[True] > time_ns[False]


def _states(units: Sequence[Units]) -> float:
    """How many numbers the optimiser keeps of each weight; as Adam does unless names tell."""
    trace = units[0].trace
    names = {name.lower() for name in trace.names if name.startswith("Optimizer.step")}
    at = np.flatnonzero(units[0].phase == Phase.OPTIMIZER)
    operators = {units[0].operator_name(unit).lower() for unit in at.tolist()}
    if not any("sgd" in name for name in names | operators):
        return 1.0 if any(one in name for name in names for one in _ONE_STATE) else 2.0
    # Momentum multiplies what was kept; without it a step only adds.
    fused = any("sgd" in name for name in operators)
    return 1.0 if fused or any("mul" in name for name in operators) else 0.0
