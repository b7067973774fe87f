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
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.graph import Timeline
from gnomon.model.collective_time import USUAL_NETWORK, CollectiveTimes
from gnomon.model.gpu import Gpu, canonical_dtype, find_gpu
from gnomon.model.profiler_cost import ProfilerCost
from gnomon.systems.training.pipeline import replay_trace
from gnomon.systems.training.prediction.assemble import Assembled, assemble
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.extract import Extracted, extract
from gnomon.systems.training.prediction.memory import (
    Memory,
    least_recompute,
    model_parameters,
    stage_memory,
)
from gnomon.systems.training.prediction.operators import build_program
from gnomon.systems.training.prediction.program import Program
from gnomon.systems.training.prediction.retime import Machine, Retimer
from gnomon.systems.training.prediction.style import MEGATRON, MEGATRON_2022, TORCH, Style, width
from gnomon.systems.training.sources import measured_peak_bytes

__all__ = [
    "Modelled", "Prediction", "Recorded", "Source", "Waterfall", "factor_of", "predict",
    "read_recorded", "usual_style",
]  # fmt: skip

#: The host's pace varies by this much (log) from one process to the next on a shared machine, as
#: the plain steps of host-bound recordings did; a profiler hides some of it besides.
HOST_SPREAD = 0.3
#: What no model knows: clocks under another load, a library's other choice of kernel.
MODEL_SPREAD = 0.02
#: The same without any trace: how the code was written, which kernels it uses.
UNSEEN_SPREAD = 0.08
#: Styles whose code can recompute activations in the backward pass.
_RECOMPUTING = (MEGATRON.name, MEGATRON_2022.name)
#: Settings that a trace has no kernels for.
_AS_RECORDED = (
    "experts", "top_k", "expert_ffn", "shared_ffn", "dense_layers", "q_rank", "kv_rank",
    "rope_dim", "gated", "cp", "ep", "dtype",
)  # fmt: skip
#: Tries at the host's pace, and how near (log) is near enough.
_PACE_TRIES, _ON_PACE = 6, 0.005
_SAMPLES = 200
#: The base put together may differ from the measured one by this much (log) without a word.
_STRANGE = 0.1
#: By such a factor the base put together is not the step that was recorded.
_NONSENSE = 2.0
#: A host that is busy for this share of the step sets its pace.
_PACE = 0.97
#: A measured peak that would need less of what is kept than this is of something else.
_LEAST_KEPT = 0.05
#: A loss that is fused with its gradient still has the logits themselves, a fifth of what eager
#: code needs around them.
_LEAST_LOGITS = 0.2
#: A normal variable lies within so many deviations in 80 % of cases.
_TAIL = 1.2816
_COVERAGE = 0.8
#: Graphs with more tasks than this are played coarsely.
_MOST_TASKS = 1_500_000
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


class Source(Protocol):
    """Where parts come from: a recorded job, or models alone."""

    style: Style

    @property
    def base(self) -> Configuration:
        """The configuration that predictions start from."""

    def program(self, configuration: Configuration) -> Program:
        """The parts of a configuration."""

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """How long its ranks take to exchange something."""

    def memory(self, configuration: Configuration) -> Memory:
        """The peak of its memory."""

    @property
    def blocking_sends(self) -> bool:
        """Whether a pipeline's stages wait for what they send."""

    @property
    def base_ms(self) -> float | None:
        """The base step as it was measured, or told from its trace; None where nobody ran it."""

    @property
    def spread(self) -> tuple[float, float]:
        """How wrong the host's pace and the whole may be (standard deviation of the log)."""


class Recorded:
    """Parts from a recorded job.

    Args:
        extracted: The job, taken apart.
        base_ms: Its step without the profiler.
        style: How its code runs it; told from its kernels unless given.
        spread: How wrong `base_ms` may be (standard deviation of the log); 0 if measured.
        peak_bytes: Its peak of memory, where it was measured: what is kept for the backward pass
            is then scaled to it.
        host_bound: The host sets its pace: then it is the host's times, not the device's, that
            are brought to `base_ms`.
    """

    def __init__(
        self,
        extracted: Extracted,
        base_ms: float,
        style: Style | None = None,
        spread: float = 0.0,
        peak_bytes: float | None = None,
        host_bound: bool = False,
    ) -> None:
        known = find_gpu(extracted.configuration.gpu).name
        configuration = msgspec.structs.replace(extracted.configuration, gpu=known)
        self.extracted = msgspec.structs.replace(extracted, configuration=configuration)
        self.style = style or style_of(extracted)
        self._base_ms = base_ms
        self._spread = spread
        self._kept = _kept_shares(stage_memory(configuration, self.style), peak_bytes)
        self._machines: dict[str, Machine] = {}
        self._times: dict[tuple[str, str], CollectiveTimes] = {}
        self._retimer = Retimer(self.extracted, self._machine(known), self.style)
        if host_bound:
            self._keep_pace()

    @property
    def base(self) -> Configuration:
        """The recorded configuration."""
        return self.extracted.configuration

    @property
    def blocking_sends(self) -> bool:
        """As the style has it."""
        return self.style.blocking_pipeline

    @property
    def base_ms(self) -> float | None:
        """The recorded step without the profiler."""
        return self._base_ms

    @property
    def spread(self) -> tuple[float, float]:
        """The host is the recorded one; the whole is as wrong as the base is."""
        return HOST_SPREAD, math.hypot(MODEL_SPREAD, self._spread)

    def _keep_pace(self) -> None:
        """Scales the host's times until the base takes what was measured."""
        scale = 1.0
        for _ in range(_PACE_TRIES):
            own_ms = _put_together(self, self.base).step_ms
            if abs(math.log(own_ms / self._base_ms)) < _ON_PACE:
                break
            scale *= self._base_ms / own_ms
            machine = self._machine(self.base.gpu)
            self._retimer = Retimer(self.extracted, machine, self.style, scale)

    def program(self, configuration: Configuration) -> Program:
        """The recorded parts, sized and timed for a configuration."""
        fixed = [name for name in _AS_RECORDED if name in self.base.differences(configuration)]
        if fixed:
            raise InputError(
                f"{fixed[0]} cannot be changed from a trace: what it would run is not in it",
                hint="predict without one: --model ... --gpu ...",
            )
        return self._retimer.program(
            configuration, self._machine(configuration.gpu), self.collectives(configuration)
        )

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """Modelled, and fitted to what the recorded job exchanged where the device is the same."""
        key = (configuration.gpu, configuration.network)
        if key not in self._times:
            times = CollectiveTimes.of(find_gpu(configuration.gpu), configuration.network or None)
            if configuration.gpu == self.base.gpu:
                # Groups that span nodes say nothing about the links inside one.
                rows = [
                    (e.kind, e.bytes, e.ranks, e.us)
                    for e in self.extracted.exchanges
                    if e.ranks <= times.node_gpus
                ]
                times = times.calibrated(rows)
            self._times[key] = times
        return self._times[key]

    def memory(self, configuration: Configuration) -> Memory:
        """Derived from what is kept, and scaled to the recorded peak where that is known."""
        told = stage_memory(configuration, self.style)
        activations, logits = self._kept
        return msgspec.structs.replace(
            told,
            activations=told.activations * activations,
            logits=told.logits * logits,
            temporary=told.temporary * activations,
        )

    def _machine(self, gpu: str) -> Machine:
        if gpu not in self._machines:
            self._machines[gpu] = Machine.of(find_gpu(gpu))
        return self._machines[gpu]


def _kept_shares(base: Memory, peak_bytes: float | None) -> tuple[float, float]:
    """What code keeps of activations and of logits, relative to what we think it does.

    Compilers spare the loss's temporaries before anything else, so that a peak below ours is
    first of all fewer logits.
    """
    if peak_bytes is None:
        return 1.0, 1.0
    activations = base.activations + base.temporary
    logits = 1.0
    missing = base.total - peak_bytes
    if missing > 0 and base.logits > 0:
        logits = max(1.0 - missing / base.logits, _LEAST_LOGITS)
        missing -= (1.0 - logits) * base.logits
    share = 1.0 - missing / activations if activations > 0 else 1.0
    return (share, logits) if _LEAST_KEPT < share < 1 / _LEAST_KEPT else (1.0, 1.0)


class Modelled:
    """Parts from models alone.

    Args:
        base: The configuration that predictions start from.
        style: How the code runs it. One that may recompute activations recomputes as little as
            fits into the GPU.
        memory_gib: Of a GPU; the catalogue's unless given.
    """

    def __init__(
        self, base: Configuration, style: Style = TORCH, memory_gib: float | None = None
    ) -> None:
        self._base = base
        self.style = style
        self._memory_gib = memory_gib
        self._machines: dict[str, Machine] = {}

    @property
    def base(self) -> Configuration:
        """The configuration that was given."""
        return self._base

    @property
    def blocking_sends(self) -> bool:
        """As the style has it."""
        return self.style.blocking_pipeline

    @property
    def base_ms(self) -> float | None:
        """Nobody ran it."""
        return None

    @property
    def spread(self) -> tuple[float, float]:
        """Neither host nor code was seen."""
        return 2 * HOST_SPREAD, max(UNSEEN_SPREAD, self.style.spread)

    def program(self, configuration: Configuration) -> Program:
        """The parts of a configuration, every kernel timed by a model."""
        return build_program(
            configuration,
            self._machine(configuration.gpu).kernels,
            self.collectives(configuration),
            self._fitting(configuration),
        )

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """Modelled."""
        return CollectiveTimes.of(find_gpu(configuration.gpu), configuration.network or None)

    def memory(self, configuration: Configuration) -> Memory:
        """Derived from what is kept."""
        return stage_memory(configuration, self._fitting(configuration))

    def _fitting(self, configuration: Configuration) -> Style:
        if self.style.name not in _RECOMPUTING:
            return self.style
        room_gib = self._memory_gib or self._machine(configuration.gpu).gpu.memory_gib
        return least_recompute(configuration, self.style, room_gib * 2**30)

    def _machine(self, gpu: str) -> Machine:
        if gpu not in self._machines:
            self._machines[gpu] = Machine.of(find_gpu(gpu))
        return self._machines[gpu]


def usual_style(gpu: str, *, splits_layers: bool) -> Style:
    """How a job is most likely run: eager PyTorch has no tensor or pipeline ranks.

    Jobs that have them run on Megatron; on GPUs before Hopper mostly that of 2022.
    """
    if not splits_layers:
        return TORCH
    return MEGATRON if "fp8" in find_gpu(gpu).tflops else MEGATRON_2022


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
        """Tokens a second of the whole job."""
        return self.target.global_batch * self.target.seq / (self.step.mid / 1e3)


def read_recorded(
    path: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    cost: ProfilerCost | None = None,
    steps: str | None = None,
) -> tuple[Recorded, tuple[str, ...]]:
    """A recorded job, ready to predict from, and the traces it was read from.

    Args:
        path: A trace, a folder of ranks, or a pattern.
        overrides: What the user says of its configuration.
        cost: What the profiler costs, in place of what comes with gnomon.
        steps: Which steps to take apart, by the numbers of their marks.
    """
    run = replay_trace(path, [], cost=cost, complete=False, steps=steps)
    if run.unprofiled is None:
        raise InputError(
            "an operation log has no kernels to size anew", where=run.source,
            hint="predictions need profiler traces with shapes",
        )  # fmt: skip
    extracted = extract(run.job, dict(overrides or {}), run.source, run.training.gpu)
    step = run.unprofiled.estimate
    told = run.unprofiled.measured_ms is None
    wrong = math.log(step.high / step.low) / (2 * _TAIL) if told and step.low > 0 else 0.0
    peak = measured_peak_bytes(Path(run.source))
    source = Recorded(
        extracted, step.mid, spread=wrong, peak_bytes=peak,
        host_bound=extracted.on_gpu and run.unprofiled.bound_by == "host",
    )  # fmt: skip
    return source, run.sources


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
    before = _put_together(source, base)
    after = before if target == base else _put_together(source, target)
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
    step = _range(after, source, mid, samples, seed)
    steps = _waterfall(source, target, own_ms, mid / factor) if explain else ()
    everything, active = model_parameters(target, source.style)
    scaled = tuple(
        msgspec.structs.replace(s, delta_ms=s.delta_ms * factor, after_ms=s.after_ms * factor)
        for s in steps
    )
    return Prediction(
        base=base, target=target, base_ms=base_ms, step=step, memory=source.memory(target),
        gpu=find_gpu(target.gpu), waterfall=scaled,
        retimed=_retimed(source.program(target)), base_line=_last_step(before, before_line),
        line=_last_step(after, line), factor=factor, parameters=everything,
        active_parameters=active,
        notes=_notes(source, target, own_ms, after, line),
    )  # fmt: skip


def _notes(
    source: Source, target: Configuration, own_ms: float, after: Assembled, line: Timeline
) -> tuple[str, ...]:
    """What was assumed, and what to be careful about."""
    notes = []
    times = source.collectives(target)
    if target.world > times.node_gpus and not target.network:
        notes.append(
            f"{target.world} GPUs are more than the {times.node_gpus} of a node: "
            f"{USUAL_NETWORK} is assumed between nodes (--network)"
        )
    if source.base_ms is not None and abs(math.log(own_ms / source.base_ms)) > _STRANGE:
        notes.append(
            f"put together from its parts the base takes {own_ms:.4g} ms, not "
            f"{source.base_ms:.4g}: something in the trace is not understood, and the range does "
            "not know of it"
        )
    gpu = find_gpu(target.gpu)
    if canonical_dtype(target.dtype) not in gpu.tflops:
        notes.append(f"a {gpu.name} has no {target.dtype}: taken to run at the rate of its fp32")
    if isinstance(source, Recorded):
        notes += source.extracted.notes
    if isinstance(source, Modelled):
        style = source._fitting(target)
        again = f", recomputing {style.recompute}" if style.recompute != "none" else ""
        kept = f"{style.state_bytes:g} bytes of optimiser state a parameter"
        notes.append(
            f"no trace: the code is taken to run as {style.name}{again}, {kept} (--style)"
        )
    graph = line.graph
    host = np.bincount(graph.lane, graph.duration_ns * graph.is_kind("host")).max(initial=0)
    if host > _PACE * line.makespan_ns:
        notes.append("the host sets the pace: faster kernels would change little")
    return tuple(notes)


def _put_together(source: Source, configuration: Configuration) -> Assembled:
    program = source.program(configuration)
    pieces = sum(len(program.parts[f"{k}.{p}"]) for k in program.layer_kinds
                 for p in ("forward", "backward"))  # fmt: skip
    fine = 4 * pieces * configuration.accumulation < _MOST_TASKS
    return assemble(
        program, source.collectives(configuration), fine=fine, steps=2,
        blocking_sends=source.blocking_sends,
    )  # fmt: skip


def factor_of(source: Source) -> float:
    """What replays are multiplied by, so that the base comes out as it was measured."""
    if source.base_ms is None:
        return 1.0
    return source.base_ms / _put_together(source, source.base).step_ms


def _range(after: Assembled, source: Source, mid: float, samples: int, seed: int) -> Estimate:
    host_spread, whole = source.spread
    spread = np.where(after.graph.is_kind("host"), host_spread, after.spread)
    wrong = dataclasses.replace(after, spread=spread)
    rng = np.random.default_rng(seed)
    drawn = wrong.sample_step_ms(samples, rng) / after.step_ms
    drawn = drawn * np.exp(whole * rng.standard_normal(samples))
    told = Estimate.from_samples(drawn, _COVERAGE)
    return Estimate(min(told.low, 1.0) * mid, mid, max(told.high, 1.0) * mid)


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
            then_ms = end_ms if then == target else _put_together(source, then).step_ms
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
    (("tp",), "products split, all-reduces added"),
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


def style_of(extracted: Extracted) -> Style:
    """How the recorded code runs its model, as far as its kernels tell."""
    forward = extracted.parts["layer.forward"]
    names = [piece.name for piece in forward.pieces]
    families = {piece.family for piece in forward.pieces}
    weight = extracted.weight_bytes or width(extracted.configuration.dtype)
    again = any(
        growth.kind == "attention" and not growth.backward
        for growth in extracted.parts["layer.backward"].growths
    )
    return msgspec.structs.replace(
        TORCH,
        recompute="full" if again else "none",
        fused_attention="attention" in families,
        bias=any("addmm" in name for name in names),
        rms_norm=any("rms" in name for name in names),
        weight_bytes=weight,
        gradient_bytes=weight,
        state_bytes=extracted.state_bytes or 2 * weight,
        tied_head=extracted.tied_head,
    )
