"""Sources: where the parts of a step come from, a recorded job or models alone."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.profiler.measured import read_measured
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.model.accelerator.profiler_cost import ProfilerCost
from gnomon.systems.training.pipeline import replay_trace
from gnomon.systems.training.prediction.analytic.operators import build_program
from gnomon.systems.training.prediction.analytic.style import (
    MEGATRON,
    MEGATRON_2022,
    TORCH,
    Style,
    width,
)
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import Assembled, assemble
from gnomon.systems.training.prediction.memory import Memory, least_recompute, stage_memory
from gnomon.systems.training.prediction.program import Program
from gnomon.systems.training.prediction.recorded.extract import Extracted, extract
from gnomon.systems.training.prediction.recorded.retime import Retimer

#: The host's pace varies by this much (log) from one process to the next on a shared machine, as
#: the unprofiled steps of host-bound recordings did; a profiler hides some of it besides.
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
#: A measured peak that would need less of what is kept than this is of something else.
_LEAST_KEPT = 0.05
#: A loss that is fused with its gradient still has the logits themselves, a fifth of what eager
#: code needs around them.
_LEAST_LOGITS = 0.2
#: A normal variable lies within so many deviations in 80 % of cases.
_TAIL = 1.2816
#: Graphs with more tasks than this are played coarsely.
_MOST_TASKS = 1_500_000


class Source(Protocol):
    """Where parts come from: a recorded job, or models alone.

    Attributes:
        style: How the code runs the model.
        base: The configuration that predictions start from.
        base_ms: The base step, measured or estimated from its trace; None where nobody ran it.
        spread: How wrong the host's pace and the whole may be (standard deviation of the log).
    """

    style: Style
    base: Configuration
    base_ms: float | None
    spread: tuple[float, float]

    def program(self, configuration: Configuration) -> Program:
        """The parts of a configuration."""

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """How long its ranks take to communicate."""

    def memory(self, configuration: Configuration) -> Memory:
        """The peak of its memory."""


class Recorded:
    """Parts from a recorded job.

    Args:
        extracted: The job, taken apart.
        base_ms: Its step without the profiler.
        style: How its code runs it; inferred from its kernels unless given.
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
        self.base = msgspec.structs.replace(extracted.configuration, gpu=known)
        self.base_ms: float | None = base_ms
        self.extracted = msgspec.structs.replace(extracted, configuration=self.base)
        self.style = style or style_of(extracted)
        # The host is the recorded one; the whole is as wrong as the base is.
        self.spread = (HOST_SPREAD, math.hypot(MODEL_SPREAD, spread))
        self._kept = _kept_shares(stage_memory(self.base, self.style), peak_bytes)
        self._times: dict[tuple[str, str], CollectiveTimes] = {}
        self._retimer = Retimer(self.extracted, KernelTimes.of(known), self.style)
        if host_bound:
            self._keep_pace(base_ms)

    def _keep_pace(self, base_ms: float) -> None:
        """Scales the host's times until the base takes what was measured."""
        scale = 1.0
        for _ in range(_PACE_TRIES):
            own_ms = put_together(self, self.base).step_ms
            if abs(math.log(own_ms / base_ms)) < _ON_PACE:
                break
            scale *= base_ms / own_ms
            kernels = KernelTimes.of(self.base.gpu)
            self._retimer = Retimer(self.extracted, kernels, self.style, scale)

    def program(self, configuration: Configuration) -> Program:
        """The recorded parts, sized and timed for a configuration."""
        fixed = [name for name in _AS_RECORDED if name in self.base.differences(configuration)]
        if fixed:
            raise InputError(
                f"{fixed[0]} cannot be changed from a trace: what it would run is not in it",
                hint="predict without one: --model ... --gpu ...",
            )
        return self._retimer.program(
            configuration, KernelTimes.of(configuration.gpu), self.collectives(configuration)
        )

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """Modelled, and fitted to the recorded collectives where the device is the same."""
        key = (configuration.gpu, configuration.network)
        if key not in self._times:
            times = CollectiveTimes.of(find_gpu(configuration.gpu), configuration.network or None)
            if configuration.gpu == self.base.gpu:
                # Groups that span nodes say nothing about the links inside one.
                rows = [
                    (e.kind, e.bytes, e.ranks, e.us)
                    for e in self.extracted.collectives
                    if e.ranks <= times.node_gpus
                ]
                times = times.calibrated(rows)
            self._times[key] = times
        return self._times[key]

    def memory(self, configuration: Configuration) -> Memory:
        """Derived from what is kept, and scaled to the recorded peak where that is known."""
        memory = stage_memory(configuration, self.style)
        activations, logits = self._kept
        return msgspec.structs.replace(
            memory,
            activations=memory.activations * activations,
            logits=memory.logits * logits,
            temporary=memory.temporary * activations,
        )


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
        state_bytes=extracted.state_bytes,
        tied_head=extracted.tied_head,
    )


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
        self.base = msgspec.structs.replace(base, gpu=find_gpu(base.gpu).name)
        self.base_ms: float | None = None
        self.style = style
        # Neither host nor code was seen.
        self.spread = (2 * HOST_SPREAD, max(UNSEEN_SPREAD, style.spread))
        self._memory_gib = memory_gib

    def program(self, configuration: Configuration) -> Program:
        """The parts of a configuration, every kernel timed by a model."""
        return build_program(
            configuration,
            KernelTimes.of(configuration.gpu),
            self.collectives(configuration),
            self.fitting(configuration),
        )

    def collectives(self, configuration: Configuration) -> CollectiveTimes:
        """Modelled."""
        return CollectiveTimes.of(find_gpu(configuration.gpu), configuration.network or None)

    def memory(self, configuration: Configuration) -> Memory:
        """Derived from what is kept."""
        return stage_memory(configuration, self.fitting(configuration))

    def fitting(self, configuration: Configuration) -> Style:
        """The style with as little recomputed as fits, where it may recompute."""
        if self.style.name not in _RECOMPUTING:
            return self.style
        room_gib = self._memory_gib or find_gpu(configuration.gpu).memory_gib
        return least_recompute(configuration, self.style, room_gib * 2**30)


def usual_style(gpu: str, *, splits_layers: bool) -> Style:
    """How a job is most likely run: eager PyTorch has no tensor or pipeline ranks.

    Jobs that have them run on Megatron; on GPUs before Hopper mostly that of 2022.
    """
    if not splits_layers:
        return TORCH
    return MEGATRON if "fp8" in find_gpu(gpu).tflops else MEGATRON_2022


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
    extracted = extract(run.job, dict(overrides or {}), run.source, run.training.gpu, cost)
    step = run.unprofiled.estimate
    is_guess = run.unprofiled.measured_ms is None and step.low > 0
    wrong = math.log(step.high / step.low) / (2 * _TAIL) if is_guess else 0.0
    peak = read_measured(Path(run.source)).peak_bytes
    source = Recorded(
        extracted, step.mid, spread=wrong, peak_bytes=peak,
        host_bound=extracted.on_gpu and run.unprofiled.bound_by == "host",
    )  # fmt: skip
    return source, run.sources


def put_together(source: Source, configuration: Configuration) -> Assembled:
    """Two steps of a configuration, from the source's parts."""
    program = source.program(configuration)
    pieces = sum(len(program.parts[f"{k}.{p}"]) for k in program.layer_kinds
                 for p in ("forward", "backward"))  # fmt: skip
    fine = 4 * pieces * configuration.accumulation < _MOST_TASKS
    return assemble(
        program, source.collectives(configuration), fine=fine, steps=2,
        blocking_sends=source.style.blocking_pipeline,
    )  # fmt: skip


def factor_of(source: Source) -> float:
    """What replays are multiplied by, so that the base comes out as it was measured."""
    if source.base_ms is None:
        return 1.0
    return source.base_ms / put_together(source, source.base).step_ms
