"""Predict: how long a step takes in a configuration nobody ran.

The parts of a recorded step (or of a modelled one) are sized and timed for the new configuration,
put together in its layout and replayed. What the recorded job measured stays measured: the
prediction is multiplied by what the base step was measured to take over what the same machinery
makes of it. Ranges come from the models' own residuals, drawn together within a family and played
through the graph.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph import Timeline
from gnomon.model.accelerator.collective_time import USUAL_NETWORK
from gnomon.model.accelerator.gpu import Gpu, canonical_dtype, find_gpu
from gnomon.systems.training.prediction.analytic.style import Style
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import Assembled
from gnomon.systems.training.prediction.memory import Memory, model_parameters
from gnomon.systems.training.prediction.program import Program
from gnomon.systems.training.prediction.recorded.extract import CPU
from gnomon.systems.training.prediction.source import Modelled, Recorded, Source, put_together

_SAMPLES = 200
#: The base put together may differ from the measured one by this much (log) without a word.
_STRANGE = 0.1
#: By such a factor the base put together is not the step that was recorded.
_NONSENSE = 2.0
#: What a far-away target adds to the range at eight times the device's work (log), and the square
#: of it beyond; seen between small and large recordings.
_FAR_SPREAD = 0.035
_VERY_FAR = math.log(8.0)
#: Nothing was measured between nodes.
_NODES_SPREAD = 0.05
#: A share of the device's time that is worth a word.
_MUCH = 0.3
_STYLE_WORDS = {
    "torch": "eager, weights and moments in the model's dtype, ",
    "megatron": "fused attention, sharded optimiser, ",
    "megatron-2022": "half precision, attention as separate kernels, ",
}
#: A host that is busy for this share of the step sets its pace.
_PACE = 0.9
_COVERAGE = 0.8
#: Changes that only make sense together.
_STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("device", ("gpu", "dtype")),
    ("layers", ("layers", "dense_layers")),
    ("shape", ("hidden", "ffn", "heads", "kv_heads", "head_dim", "v_dim", "gated", "experts",
               "top_k", "expert_ffn", "shared_ffn", "q_rank", "kv_rank", "rope_dim")),
    ("vocabulary", ("vocab",)),
    ("sequence", ("seq",)),
    ("batch", ("batch",)),
    ("micro-batches", ("accumulation",)),
    ("tensor parallelism", ("tp", "ep", "cp")),
    ("pipeline", ("pp", "interleave")),
    ("data parallelism", ("dp", "network")),
)  # fmt: skip


class Waterfall(msgspec.Struct, frozen=True):
    """One step from the base to the prediction: what was changed, and what it did."""

    change: str
    what: str
    delta_ms: float
    after_ms: float


class Prediction(msgspec.Struct, frozen=True, eq=False):
    """The step of a configuration nobody ran.

    Attributes:
        base, target: The configurations.
        base_ms: The base step, measured or modelled.
        step: The predicted step in milliseconds, in a range meant to hold it in 80 % of cases.
        memory: The peak of a rank's memory.
        gpu: The target's device.
        waterfall: From base to target, one change after the other.
        retimed: Device time of a step of one rank by family and by what timed it, milliseconds.
        base_line, line: Both steps, replayed.
        factor: What replays are multiplied by to agree with the measured base.
        parameters: Of the whole model; `active_parameters` are those a token is multiplied with.
        seed: Of the samples behind the range.
    """

    base: Configuration
    target: Configuration
    base_ms: float
    step: Estimate
    memory: Memory
    gpu: Gpu
    waterfall: tuple[Waterfall, ...]
    retimed: Mapping[tuple[str, str], float]
    base_line: Timeline
    line: Timeline
    factor: float
    parameters: float
    active_parameters: float
    notes: tuple[str, ...] = ()
    seed: int = 0

    @property
    def fits(self) -> bool:
        """Whether the peak of memory is within the device's."""
        return self.memory.total <= self.gpu.memory_gib * 2**30

    @property
    def over_gib(self) -> float:
        """By how much memory falls short; negative where it fits."""
        return self.memory.total / 2**30 - self.gpu.memory_gib

    @property
    def tflops(self) -> float:
        """Operations of the model (forward and backward, none twice) a second and GPU, in 1e12."""
        c = self.target
        sequences = c.global_batch * c.seq
        scores = 6.0 * c.layers * c.heads * (c.head_dim + c.v_dim) * c.seq  # causal: half
        flops = sequences * (6.0 * self.active_parameters + scores)
        return flops / (self.step.mid / 1e3) / c.world / 1e12

    @property
    def tokens_s(self) -> float:
        """Tokens per second of the whole job."""
        return self.target.global_batch * self.target.seq / (self.step.mid / 1e3)


def predict(
    source: Source,
    settings: Mapping[str, Any] | Configuration,
    *,
    samples: int = _SAMPLES,
    seed: int = 0,
    explain: bool = True,
) -> Prediction:
    """Predicts the step of a configuration.

    Args:
        source: A recorded job, or models.
        settings: What is different from the base, or the whole configuration.
        samples: Replays for the range.
        seed: Of their randomness.
        explain: Also find out what each change does.
    """
    base = source.base
    target = settings if isinstance(settings, Configuration) else base.changed(settings)
    target = msgspec.structs.replace(target, gpu=find_gpu(target.gpu).name)
    if target.gpu != base.gpu and CPU in (target.gpu, base.gpu):
        raise InputError("a GPU's kernels say nothing about a CPU, nor the other way round")
    before = put_together(source, base)
    after = before if target == base else put_together(source, target)
    before_line = before.play()
    line = before_line if after is before else after.play()
    own_ms = before.step_ns(before_line) / 1e6
    base_ms = source.base_ms or own_ms
    factor = base_ms / own_ms
    if not 1 / _NONSENSE < factor < _NONSENSE:
        raise InputError(
            f"put together from its parts the recorded step takes {own_ms:.4g} ms, but it took "
            f"{base_ms:.4g}: the trace does not hold whole steps",
            hint="choose whole ones with --steps, or record again",
        )
    mid = after.step_ns(line) / 1e6 * factor
    retimed = _retimed(source.program(target))
    far = _far(source, retimed)
    step = _range(after, source, target, far, mid, samples, seed)
    steps = _waterfall(source, target, own_ms, mid / factor) if explain else ()
    everything, active = model_parameters(target, source.style)
    scaled = tuple(
        msgspec.structs.replace(s, delta_ms=s.delta_ms * factor, after_ms=s.after_ms * factor)
        for s in steps
    )
    return Prediction(
        base=base, target=target, base_ms=base_ms, step=step, memory=source.memory(target),
        gpu=find_gpu(target.gpu), waterfall=scaled,
        retimed=retimed, base_line=_last_step(before, before_line),
        line=_last_step(after, line), factor=factor, parameters=everything,
        active_parameters=active,
        notes=_notes(source, target, own_ms, after, far, retimed), seed=seed,
    )  # fmt: skip


def _notes(
    source: Source,
    target: Configuration,
    own_ms: float,
    after: Assembled,
    far: float,
    retimed: Mapping[tuple[str, str], float],
) -> tuple[str, ...]:
    """What was assumed, and what to be careful about."""
    notes = []
    times, gpu = source.collectives(target), find_gpu(target.gpu)
    if target.world > times.node_gpus and not target.network:
        notes.append(
            f"{target.world} GPUs are more than the {times.node_gpus} of a node: "
            f"{USUAL_NETWORK} is assumed between nodes (--network)"
        )
    if canonical_dtype(target.dtype) not in gpu.tflops:
        notes.append(f"a {gpu.name} has no {target.dtype}: taken to run at the rate of its fp32")
    sheet = sum(ms for (_, model), ms in retimed.items() if model == "roofline")
    if sheet > _MUCH * sum(retimed.values()):
        notes.append(
            f"{100 * sheet / sum(retimed.values()):.0f} % of the device's time comes from the "
            f"data sheet of the {gpu.name}, not from measurements of it"
        )
    if isinstance(source, Recorded):
        notes += _trace_notes(source, own_ms, far)
    elif isinstance(source, Modelled):
        notes.append(_style_note(source.fitting(target)))
    last = after.step == after.steps - 1
    host = after.graph.is_kind("host") & last
    busy = np.bincount(after.graph.lane, after.graph.duration_ns * host).max(initial=0)
    if busy > _PACE * after.step_ms * 1e6:
        notes.append("the host sets the pace: faster kernels would change little")
    return tuple(notes)


def _trace_notes(source: Recorded, own_ms: float, far: float) -> list[str]:
    notes = list(source.extracted.notes)
    if source.base_ms is not None and abs(math.log(own_ms / source.base_ms)) > _STRANGE:
        notes.append(
            f"put together from its parts the base takes {own_ms:.4g} ms, not "
            f"{source.base_ms:.4g}: something in the trace is not understood, and the range does "
            "not know of it"
        )
    if abs(far) > _VERY_FAR:
        more = "more" if far > 0 else "less"
        notes.append(
            f"the device does {math.exp(abs(far)):.0f} times {more} than in the trace: that is "
            "far; a trace of a model nearer in size tells more"
        )
    if not source.extracted.parts["optimizer"].pieces:
        notes.append("the recorded steps have no optimiser, and so the prediction has none")
    return notes


def _style_note(style: Style) -> str:
    again = f", recomputing {style.recompute}" if style.recompute != "none" else ""
    words = _STYLE_WORDS.get(style.name, "")
    return (
        f"no trace: the code is taken to run as {style.name}{again} ({words}"
        f"{style.state_bytes:g} bytes of optimiser state a parameter); --style says otherwise"
    )


def _far(source: Source, retimed: Mapping[tuple[str, str], float]) -> float:
    """How much more (log) a rank's device does in the target than in what was recorded."""
    if source.base_ms is None:
        return 0.0
    before = sum(_retimed(source.program(source.base)).values())
    after = sum(retimed.values())
    return math.log(after / before) if before > 0 and after > 0 else 0.0


def _range(
    after: Assembled,
    source: Source,
    target: Configuration,
    far: float,
    mid: float,
    samples: int,
    seed: int,
) -> Estimate:
    host_spread, whole = source.spread
    whole = math.hypot(whole, _FAR_SPREAD * (far / math.log(8.0)) ** 2)
    if target.world > source.collectives(target).node_gpus:
        whole = math.hypot(whole, _NODES_SPREAD)
    spread = np.where(after.graph.is_kind("host"), host_spread, after.spread)
    wrong = dataclasses.replace(after, spread=spread)
    rng = np.random.default_rng(seed)
    drawn = wrong.sample_step_ms(samples, rng) / after.step_ms
    drawn = drawn * np.exp(whole * rng.standard_normal(samples))
    relative = Estimate.from_samples(drawn, _COVERAGE)
    return Estimate(min(relative.low, 1.0) * mid, mid, max(relative.high, 1.0) * mid)


def _waterfall(
    source: Source, target: Configuration, base_ms: float, end_ms: float
) -> tuple[Waterfall, ...]:
    """The changes one after the other, each on top of those before it."""
    now, now_ms = source.base, base_ms
    rows: list[Waterfall] = []
    pending: dict[str, Any] = {}
    for name, fields in _STAGES:
        pending |= {f: getattr(target, f) for f in fields if getattr(now, f) != getattr(target, f)}
        if not pending:
            continue
        then = _merged(now, pending)
        if then is None:
            continue  # only whole together with what comes later
        try:
            then_ms = end_ms if then == target else put_together(source, then).step_ms
        except InputError:
            continue  # a layout that only what comes later makes whole
        rows.append(Waterfall(name, _words(now, then), then_ms - now_ms, then_ms))
        now, now_ms, pending = then, then_ms, {}
    return tuple(rows)


def _merged(now: Configuration, changes: Mapping[str, Any]) -> Configuration | None:
    try:
        return Configuration(**(msgspec.structs.asdict(now) | dict(changes)))
    except InputError:
        return None


def _words(now: Configuration, then: Configuration) -> str:
    """What a change does to the graph."""
    differences = now.differences(then)
    changed = ", ".join(f"{k} {a or '-'} → {b or '-'}" for k, (a, b) in differences.items())
    does = [
        words
        for fields, words in _DOES
        if any(field in differences for field in fields)
    ]  # fmt: skip
    return changed + (f": {'; '.join(does)}" if does else "")


_DOES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gpu",), "every kernel re-timed for the other device"),
    (("layers",), "layers cloned or dropped"),
    (("hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "seq", "batch"),
     "kernels sized and timed anew"),
    (("accumulation",), "passes through the layers repeated"),
    (("tp",), "GEMMs split, all-reduces added"),
    (("pp", "interleave"), "layers dealt out to stages, transfers and bubbles added"),
    (("dp", "network"), "gradients reduced over other ranks or links"),
)  # fmt: skip


def _retimed(program: Program) -> dict[tuple[str, str], float]:
    """Milliseconds of device time that one rank's share of a step takes, by family and model."""
    c = program.configuration
    count = {kind: n / c.pp for kind, n in Counter(program.layer_kinds).items()}
    count |= {"embedding": 1.0 / c.pp, "head": 1.0 / c.pp, "step": 1.0}
    total: dict[tuple[str, str], float] = {}
    for name, part in program.parts.items():
        what, _, which = name.partition(".")
        many = count[which] if what == "optimizer" else count[what] * c.accumulation
        for piece in part:
            key = (piece.family, piece.model)
            total[key] = total.get(key, 0.0) + many * piece.device_ns / 1e6
    return {key: total[key] for key in sorted(total, key=lambda k: -total[k])}


def _last_step(assembled: Assembled, line: Timeline) -> Timeline:
    ends = assembled.step_ends(line)
    begin = int(ends[-2]) if assembled.steps > 1 else 0
    return line.cut(begin, int(ends[-1]))
