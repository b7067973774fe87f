"""Operators: a step's program from a configuration alone, without a trace.

`transformer` lists the operators of a step with their sizes; here each gets a time from the
models of kernels and collectives, and becomes a piece of a `Program`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.systems.training.prediction.analytic.style import Style, last_of, width
from gnomon.systems.training.prediction.analytic.transformer import list_work
from gnomon.systems.training.prediction.analytic.work import Work
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import expert_counts, layer_kinds, parameter_counts
from gnomon.systems.training.prediction.program import Part, Piece, Program

#: How much longer a GEMM takes whose widths are multiples of only so many two-byte numbers:
#: loads of 8, 4 and 2 bytes rather than 16. Inferred from the heads of unpadded vocabularies in
#: vTrain's A100 table (50257 over 1, 4 and 8 ranks).
#: GEMMs of a group run less well than one GEMM of the same work: the median of 32 groups of
#: 20 to 64 experts with up to 1,232 tokens each (forward and input gradients) whose efficiency on
#: a B200 SimuMax publishes, against that of its plain GEMMs.
_SLOWER = {"": 1.0, "4": 1.8, "2": 2.4, "1": 2.9, "grouped": 1.2}
_Key = tuple[str, str, tuple[float, ...]]


def build_program(
    configuration: Configuration, kernels: KernelTimes, collectives: CollectiveTimes, style: Style
) -> Program:
    """The step of a configuration as parts, every kernel timed by a model.

    >>> from gnomon.systems.training.prediction.analytic.style import TORCH
    >>> c = Configuration(layers=2, hidden=512, heads=8, seq=256, batch=2)
    >>> program = build_program(c, KernelTimes.of("H200"), CollectiveTimes.of("H200"), TORCH)
    >>> program.parts["layer.forward"][1].name
    'qkv'
    """
    c = configuration
    work = list_work(c, style)
    times = _Times(c, kernels, collectives)
    times.price({w for works in work.values() for w in works})
    waits = style.blocking_pipeline and c.pp > 1
    return Program(
        configuration=c,
        parts={name: _part(works, times, style, waits) for name, works in work.items()},
        layer_kinds=layer_kinds(c),
        parameters=parameter_counts(c, style),
        expert_parameters=expert_counts(c, style),
        boundary_bytes=_boundary_bytes(c, style),
        gradient_bytes=style.gradient_bytes,
        overlap_gradients=style.overlap_gradients,
        bucket_bytes=style.bucket_bytes,
        shard_optimizer=style.shard_optimizer,
    )


def _boundary_bytes(c: Configuration, style: Style) -> float:
    split = c.tp if style.sequence_parallel else 1
    return width(c.dtype) * c.tokens * c.hidden / split


def _part(works: Iterable[Work], times: _Times, style: Style, waits: bool) -> Part:
    part = tuple(_piece(work, times, style) for work in works)
    return _without_head_start(part) if waits else part


def _without_head_start(part: Part) -> Part:
    """The part as a device runs it whose queue was empty: it waits for the host's launches.

    A host that stops for every transfer between stages cannot launch ahead while the device waits
    for other stages, so what its launches take beyond the device's work is felt in every pass.
    """
    launches_ns = sum(piece.host_ns for piece in part)
    missing_ns = launches_ns - sum(piece.device_ns for piece in part if piece.lane == "compute")
    if missing_ns <= 0.0:
        return part
    return tuple(
        msgspec.structs.replace(
            piece, device_ns=piece.device_ns + missing_ns * piece.host_ns / launches_ns
        )
        for piece in part
    )


def _piece(work: Work, times: _Times, style: Style) -> Piece:
    launch_us, pause_us = _around(work, style)
    bytes_, flops = _amounts(work, times.width)
    model, spread = times.trust(work)
    return Piece(
        name=work.name,
        family=work.family,
        device_ns=1e3 * (times.us(work) + pause_us),
        host_ns=1e3 * launch_us,
        lane=work.lane,
        joins=work.joins,
        model=model,
        spread=spread,
        bytes=bytes_,
        flops=flops,
    )


def _around(work: Work, style: Style) -> tuple[float, float]:
    """What a kernel costs beside its work: the host's launching, the device's pause."""
    if work.family == "communication":
        late = last_of(work.sizes[1])
        return style.host_collective_us * late, style.pause_collective_us * late
    return style.host_us * work.launches, style.pause_us * work.launches + work.wait_us


def _amounts(work: Work, dtype_bytes: int) -> tuple[float, float]:
    """Bytes moved and operations done."""
    if work.family == "gemm":
        m, n, k, batch = work.sizes
        return dtype_bytes * batch * (m * k + k * n + m * n), 2.0 * m * n * k * batch
    if work.family == "attention":
        batch, heads, rows, columns, inner, values, shared = work.sizes
        gemms = 2.5 if work.detail == "backward" else 1.0
        flops = gemms * batch * heads * rows * columns * (inner + values)
        return dtype_bytes * batch * (heads * rows + shared * columns) * (inner + values), flops
    return work.sizes[0], 0.0


class _Times:
    """Times of many operators, asked of the models in few calls."""

    def __init__(
        self, c: Configuration, kernels: KernelTimes, collectives: CollectiveTimes
    ) -> None:
        self.dtype = c.dtype
        self.width = width(c.dtype)
        self._kernels = kernels
        self._collectives = collectives
        self._us: dict[_Key, float] = {}
        self._trust: dict[tuple[str, str], tuple[str, float]] = {}

    def us(self, work: Work) -> float:
        return self._us[work.family, work.detail, work.sizes]

    def price(self, works: Iterable[Work]) -> None:
        """Ask the models: one call per family and kind."""
        groups: Mapping[tuple[str, str], set[tuple[float, ...]]] = defaultdict(set)
        for work in works:
            groups[work.family, work.detail].add(work.sizes)
        for (family, detail), group in groups.items():
            sizes = sorted(group)
            columns = np.asarray(sizes, dtype=np.float64).T
            for key, us in zip(sizes, self._ask(family, detail, columns), strict=True):
                self._us[family, detail, key] = float(us)

    def _ask(self, family: str, detail: str, columns: np.ndarray) -> np.ndarray:
        if family == "gemm":
            m, n, k, batch = columns
            return _SLOWER[detail] * self._kernels.gemm_us(m, n, k, batch, self.dtype)
        if family == "attention":
            batch, heads, rows, keys, inner, values, shared = columns
            return self._kernels.attention_us(
                batch, heads, rows, keys, inner, v_dim=values, kv_heads=shared,
                backward=detail == "backward", dtype=self.dtype,
            )  # fmt: skip
        if family == "communication":
            bytes_, ranks, stride = columns
            fit = np.maximum(self._collectives.node_gpus // stride, 1.0)
            local = np.minimum(fit, ranks)
            return self._collectives.time_us(detail, bytes_, ranks, per_node=local)
        return self._kernels.memory_us(columns[0], kind=family, rows=columns[1])

    def trust(self, work: Work) -> tuple[str, float]:
        """Where a time is from, and how far it may be off."""
        key = (work.family, work.detail)
        if key not in self._trust:
            self._trust[key] = self._look_up(*key)
        return self._trust[key]

    def _look_up(self, family: str, detail: str) -> tuple[str, float]:
        if family == "communication":
            return "alpha-beta", self._collectives.spread(detail)
        source = self._kernels.source(family, self.dtype)
        return source, self._kernels.spread(family, self.dtype)
