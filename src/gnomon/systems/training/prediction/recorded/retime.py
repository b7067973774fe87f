"""Retime: the parts of a recorded job, sized and timed for another configuration.

A kernel that stays as it is keeps its measured time. One that changes takes its measured time
times what a model says of the new size relative to the old one: the model's own error in level
cancels, only its error in slope stays, and it grows with the distance. Pieces that the recorded
job does not have (what tensor parallelism communicates, gradients that accumulate) are the model's
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.systems.training.prediction.analytic.style import Style, width
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.placement import members_per_node
from gnomon.systems.training.prediction.memory import parameter_counts
from gnomon.systems.training.prediction.program import Part, Piece, Program
from gnomon.systems.training.prediction.recorded.extract import WAIT, Extracted, RecordedPart
from gnomon.systems.training.prediction.recorded.growth import Growth

#: A kernel's time varies by this much from one run of a process to the next (log): clocks, and
#: what shares the machine. Seen between the workloads recorded on one H200.
MEASURED_SPREAD = 0.02
#: Of the spread between the runs of a part, what does not average out over a step: neighbours on
#: a shared machine come and go slowly.
_STEADY_SHARE = 0.6
#: Of a model's spread, what remains in the ratio of two of its times a factor of eight apart.
_RATIO_SHARE = 0.6
_FAR = math.log(8.0)
#: Farther away it grows on, up to this many times as much.
_FARTHEST = 2.0
#: Sizes that differ by less than this are the same size.
_SAME = 1e-9


class Retimer:
    """Sizes a recorded job for other configurations.

    Args:
        recorded: The recorded job.
        base: Kernel times of the device it ran on.
        style: How its code keeps its parameters.
        host_scale: What the host's times are multiplied by.
    """

    def __init__(
        self, recorded: Extracted, base: KernelTimes, style: Style, host_scale: float = 1.0
    ) -> None:
        self.recorded = recorded
        self._style = style
        self._host_scale = host_scale
        self._base = base
        self._sized: dict[Configuration, dict[str, Part]] = {}
        self._now_us = {
            name: _model_us(part.growths, recorded.configuration, recorded.configuration, base)
            for name, part in recorded.parts.items()
        }

    def program(
        self, target: Configuration, kernels: KernelTimes, collectives: CollectiveTimes
    ) -> Program:
        """The parts of another configuration on a device."""
        recorded = self.recorded
        parts = dict(self._passes(target, kernels, collectives))
        if target.accumulation > 1 and recorded.configuration.accumulation == 1:
            for what in ("layer", "embedding", "head"):
                parts[f"{what}.backward"] += self._accumulate(what, target, kernels)
        parameters = parameter_counts(target, self._style)
        parts |= self._optimizer(target, kernels, parameters)
        if self._host_scale != 1.0:
            parts = {name: self._paced(part) for name, part in parts.items()}
        return Program(
            configuration=target,
            parts=parts,
            layer_kinds=("layer",) * target.layers,
            parameters=parameters,
            boundary_bytes=float(target.tokens * target.hidden * width(target.dtype)),
            gradient_bytes=self._style.gradient_bytes,
            overlap_gradients=self._overlaps(target),
            bucket_bytes=25 * 2**20,
        )

    def _paced(self, part: Part) -> Part:
        scale = self._host_scale
        return tuple(msgspec.structs.replace(p, host_ns=p.host_ns * scale) for p in part)

    def _overlaps(self, target: Configuration) -> bool:
        """Reductions run beside the backward pass as recorded; where that says nothing, as
        data-parallel wrappers have it: beside it unless there is a pipeline."""
        base, overlaps = self.recorded.configuration, self.recorded.overlap_gradients
        if overlaps is None or (base.pp > 1 and target.pp == 1):
            return target.pp == 1
        return overlaps

    def _passes(
        self, target: Configuration, kernels: KernelTimes, collectives: CollectiveTimes
    ) -> dict[str, Part]:
        """Forward and backward parts. Layouts that only deal them out differently share them."""
        same = msgspec.structs.replace(
            target, dp=1, pp=1, interleave=1, accumulation=1, layers=1, dense_layers=0
        )
        if same not in self._sized:
            self._sized[same] = {
                name: self._with_all_reduces(
                    name, self._part(name, part, same, kernels), part, same, collectives
                )
                for name, part in self.recorded.parts.items()
                if name != "optimizer"
            }
        return self._sized[same]

    def _part(
        self, name: str, part: RecordedPart, target: Configuration, kernels: KernelTimes
    ) -> list[Piece]:
        base = self.recorded.configuration
        then_us = _model_us(part.growths, base, target, kernels)
        own = math.hypot(MEASURED_SPREAD, _STEADY_SHARE * part.spread)
        return [
            self._piece(piece, growth, then / now if now > 0 else 1.0, own, target, kernels)
            for piece, growth, now, then in zip(
                part.pieces, part.growths, self._now_us[name], then_us, strict=True
            )
        ]

    def _piece(
        self,
        piece: Piece,
        growth: Growth,
        ratio: float,
        own_spread: float,
        target: Configuration,
        kernels: KernelTimes,
    ) -> Piece:
        if growth.kind == "fixed" or abs(ratio - 1.0) < _SAME:
            return msgspec.structs.replace(piece, spread=own_spread)
        family = growth.kind if growth.kind != "memory" else growth.family
        spread = kernels.spread(family, target.dtype)
        if kernels.gpu.name == self._base.gpu.name:
            spread *= _RATIO_SHARE * min(abs(math.log(ratio)) / _FAR, _FARTHEST)
        else:
            # Two models of two devices: neither's error in level cancels.
            spread = math.hypot(spread, self._base.spread(family, target.dtype))
        return msgspec.structs.replace(
            piece,
            device_ns=piece.device_ns * ratio,
            model=kernels.source(family, target.dtype),
            spread=math.hypot(spread, own_spread),
        )

    def _with_all_reduces(
        self,
        name: str,
        pieces: Sequence[Piece],
        part: RecordedPart,
        target: Configuration,
        collectives: CollectiveTimes,
    ) -> Part:
        """Adds what tensor parallelism communicates where the recorded job did not."""
        base = self.recorded.configuration
        # One rank's share can be recorded alone: then it has nobody to communicate with.
        alone = base.tp > 1 and target.tp == base.tp and not self.recorded.talks_in_layers
        if target.tp == 1 or alone:
            return tuple(pieces)
        host_ns = float(np.median([p.host_ns for p in pieces])) if pieces else 0.0
        summed = Piece(
            name="tensor-parallel all-reduce", family="communication",
            device_ns=1e3 * float(collectives.time_us(
                "all-reduce", target.tokens * target.hidden * width(target.dtype), target.tp,
                per_node=members_per_node(target, "tp", collectives.node_gpus),
            )),
            host_ns=host_ns, model="alpha-beta",
            spread=collectives.spread("all-reduce", target.tp > collectives.node_gpus),
        )  # fmt: skip
        out: list[Piece] = []
        last = {g.group: i for i, g in enumerate(part.growths) if g.all_reduce}
        if name == "embedding.forward":
            return (*pieces, summed)
        for place, (piece, growth) in enumerate(zip(pieces, part.growths, strict=True)):
            out.append(piece)
            if growth.all_reduce and last[growth.group] == place:
                out.append(summed)
        return tuple(out)

    def _accumulate(self, what: str, target: Configuration, kernels: KernelTimes) -> Part:
        """Gradients added to those of the micro-batches before: read twice, written once."""
        pieces = self.recorded.parts[f"{what}.backward"].pieces
        moved = 3 * self._style.gradient_bytes * parameter_counts(target, self._style)[what]
        share = (target.accumulation - 1) / target.accumulation
        # A launch a tensor: weights, as many biases, and the norms.
        tensors = 1 if what != "layer" else 2 * len(self.recorded.linears) + 4
        host_ns = float(np.median([p.host_ns for p in pieces])) if pieces else 0.0
        return (
            Piece(
                name="accumulate gradients", family="elementwise",
                device_ns=1e3 * float(kernels.memory_us(moved, kind="elementwise")) * share,
                host_ns=tensors * host_ns * share,
                model=kernels.source("elementwise", target.dtype),
                spread=kernels.spread("elementwise", target.dtype),
            ),
        )  # fmt: skip

    def _optimizer(
        self, target: Configuration, kernels: KernelTimes, parameters: Mapping[str, float]
    ) -> dict[str, Part]:
        """The optimiser's time goes with the parameters, its host's with the tensors."""
        recorded = self.recorded
        base = recorded.configuration
        held = parameter_counts(base, self._style)
        everything = held["embedding"] + held["head"] + base.layers * held["layer"]
        device_ns = sum(p.device_ns for p in recorded.parts["optimizer"].pieces)
        host_ns = sum(p.host_ns for p in recorded.parts["optimizer"].pieces)
        everything /= base.pp  # what was recorded is the mean of a pipeline's ranks
        bandwidth = self._base.gpu.memory_gb_s / kernels.gpu.memory_gb_s
        parts: dict[str, Part] = {}
        tensors = {"embedding": 0.1, "head": 0.1, "layer": 1.0}
        units = sum(tensors[k] * (base.layers if k == "layer" else 1) for k in tensors) / base.pp
        for name, count in parameters.items():
            parts[f"optimizer.{name}"] = (
                Piece(
                    name=f"optimizer of {name}", family="optimizer",
                    device_ns=device_ns * count / everything * bandwidth,
                    host_ns=host_ns * tensors[name] / units,
                    model="measured" if bandwidth == 1.0 else "scaled", spread=MEASURED_SPREAD,
                ),
            )  # fmt: skip
        host, device = recorded.step_ns
        parts["optimizer.step"] = (
            Piece(
                name="rest of the step", family="other",
                device_ns=max(device, 0.0), host_ns=max(host, 0.0), spread=MEASURED_SPREAD,
            ),
        )  # fmt: skip
        if recorded.ends_waiting:
            parts["optimizer.step"] += (WAIT,)
        return parts


def _model_us(
    growths: Iterable[Growth], base: Configuration, target: Configuration, kernels: KernelTimes
) -> list[float]:
    """What the models say each piece takes; 0 for what does not change."""
    growths = list(growths)
    sizes = [tuple(size.under(base, target) for size in growth.sizes) for growth in growths]
    out = np.zeros(len(growths))
    gemm = [i for i, g in enumerate(growths) if g.kind == "gemm"]
    if gemm:
        m, n, k, batch = np.asarray([sizes[i] for i in gemm]).T
        out[gemm] = kernels.gemm_us(m, n, k, batch, target.dtype)
    for backward in (False, True):
        chosen = [
            i for i, g in enumerate(growths) if g.kind == "attention" and g.backward is backward
        ]
        if chosen:
            batch, heads, queries, keys, head_dim = np.asarray([sizes[i] for i in chosen]).T
            out[chosen] = kernels.attention_us(
                batch, heads, queries, keys, head_dim, backward=backward, dtype=target.dtype
            )
    for family in sorted({g.family for g in growths if g.kind == "memory"}):
        chosen = [i for i, g in enumerate(growths) if g.kind == "memory" and g.family == family]
        moved = np.asarray([sizes[i][0] for i in chosen])
        out[chosen] = kernels.memory_us(moved, kind=_memory_kind(family))
    return [float(value) for value in out]


def _memory_kind(family: str) -> str:
    known = ("normalisation", "softmax", "optimizer", "reduction", "embedding", "copy")
    return family if family in known else "elementwise"
