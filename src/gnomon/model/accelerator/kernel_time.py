"""How long a kernel takes on a GPU, from its sizes.

Three families do nearly all of a training step's work on the device: matrix multiplications, fused
attention, and kernels that only move memory. Each has a model of few coefficients, fitted where
measurements of a GPU exist (`source` says "table") and borrowed with a wider `spread` where only
its data sheet is known ("roofline").

Times are of the device: what a kernel takes on a busy stream, without the launch that hides
behind the kernel before it. `isolated=True` adds what a lone call measured between two events
pays: a launch that hides behind nothing.

Every time grows, or stays, when a size grows: a search over layouts must not be led astray by
the noise of a table. What the models are made of keeps that by construction (sums, products,
minima, maxima and roundings-up of what grows).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import InputError
from gnomon.model.accelerator.gpu import Gpu, canonical_dtype, find_gpu

Array = NDArray[np.float64]

#: Kinds of work that moves memory and little else. An `activation` (GELU and the like) computes
#: enough to be slower than a plain `elementwise` sum. `transpose` reads or writes out of order,
#: `upcast` makes wider numbers of narrow ones; PyTorch runs both far slower than a plain `copy`.
MEMORY_KINDS = (
    "elementwise", "normalisation", "softmax", "optimizer", "reduction", "embedding", "copy",
    "activation", "transpose", "upcast",
)  # fmt: skip
_COEFFICIENTS = Path(__file__).with_suffix(".toml")
_BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}
#: Tiles a GEMM may be cut into: rows, columns, and which of a model's `tiles` says how well
#: this shape feeds the units.
_TILES = np.array(
    [
        (256, 128, 0), (128, 256, 0), (128, 128, 1), (256, 64, 2), (64, 256, 2),
        (128, 64, 3), (64, 128, 3), (64, 64, 4), (64, 32, 5), (32, 64, 5),
    ]
)  # fmt: skip
#: Ways of cutting the inner size among processors when there are few tiles.
_SPLITS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0])
_INNER_STEP = 64.0
_ATTENTION_TILE = 128.0
#: GEMMs of attention, by direction: scores and sum; the scores again, and four gradients.
_ATTENTION_GEMMS = {False: 2.0, True: 5.0}
#: How sharply a lone call's floor and its work's time take turns: the host prepares the next call
#: while the device works, so the longer of the two is what is measured.
_FLOOR_BLEND = 16.0


class GemmModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of matrix multiplications on one GPU for one data type.

    The output is cut into tiles, the tiles go over the processors in waves, and of several shapes
    of tiles (and ways of sharing the inner size) the fastest is taken, as a library would.

    Attributes:
        rate: Share of the peak that the best tile reaches inside its loop.
        bandwidth: Share of the memory's bandwidth.
        floor_us: What the shortest kernel takes.
        prologue_us: What a tile takes beside its loop: filling the pipeline, writing out.
        quantum: How much a last, part-filled wave of tiles costs: 0 its share, 1 a whole one.
        throttle: How much longer work takes when power limits the clock...
        throttle_us: ...and the length of a kernel at which half of that is felt.
        tiles: Efficiency of each shape of tiles against the best, largest first.
        merge: What sharing the inner size costs, in prologues a doubling.
        blend: How sharply memory takes over from arithmetic as the limit.
        hot: How much longer a GEMM takes in a loop of nothing else, which draws more power
            than a step of all kinds of work.
        event_us: What two events around a lone call add.
        isolated_us: What a lone call takes at least.
        spread: Standard deviation of the logarithm of what is left unexplained.
    """

    gpu: str
    dtype: str
    rate: float
    bandwidth: float
    floor_us: float
    prologue_us: float
    quantum: float
    throttle: float
    throttle_us: float
    tiles: tuple[float, ...]
    merge: float
    blend: float
    spread: float
    source: str
    hot: float = 0.0
    event_us: float = 4.0
    isolated_us: float = 10.0

    def device_us(
        self, machine: Gpu, dtype: str, m: Array, n: Array, k: Array, batch: Array
    ) -> Array:
        """Time on the device of `batch` GEMMs of m rows, n columns and inner size k."""
        arithmetic_us = self._arithmetic_us(machine, dtype, m, n, k, batch)
        size = _BYTES.get(dtype, 2.0)
        moved = batch * (size * (m * k + k * n) + max(size, 2.0) * m * n)
        memory_us = moved / (machine.memory_gb_s * 1e3 * self.bandwidth)
        busy_us = blend(arithmetic_us, memory_us, self.blend)
        throttled = 1.0 + self.throttle * busy_us / (busy_us + self.throttle_us)
        return self.floor_us + busy_us * throttled

    def isolated(self, device_us: Array) -> Array:
        """What a lone call of this device time measures."""
        return blend(device_us * (1.0 + self.hot) + self.event_us, self.isolated_us, _FLOOR_BLEND)

    def _arithmetic_us(
        self, machine: Gpu, dtype: str, m: Array, n: Array, k: Array, batch: Array
    ) -> Array:
        sm_flops_us = machine.peak_tflops(dtype) * 1e6 * self.rate / machine.sms
        steps = np.ceil(k / _INNER_STEP) * _INNER_STEP
        best = np.full(np.broadcast_shapes(m.shape, n.shape, k.shape, batch.shape), np.inf)
        # Splits along a new first axis; tiles in turn, which keeps large tables within the cache.
        splits = _SPLITS.reshape(-1, *(1,) * best.ndim)
        merge_us = self.prologue_us * self.merge * np.log2(splits)
        for rows, columns, shape in _TILES:
            tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
            loop_us = 2.0 * rows * columns * steps / (sm_flops_us * self.tiles[shape])
            waves = _waves(tiles * splits / machine.sms, self.quantum)
            each = waves * (loop_us / splits + self.prologue_us) + merge_us
            best = np.minimum(best, each.min(axis=0))
        return best


class AttentionModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of fused attention in one direction, on one GPU for one data type.

    Attributes:
        rate: Share of the peak that the GEMMs inside reach.
        fixed_dim: The work beside the GEMMs (exponentials, sums) in widths of a head: it does
            not shrink with the head.
        blend: How sharply the longest row of tiles, and memory, take over as the limit.
        hot: How much longer it takes in a loop of nothing else; below zero where the mix of a
            step, whose GEMMs set the clock, slows it more.
        isolated_us: What a lone call takes at least: attention has a long way through the host.
        derived: Not measured on this GPU in this direction, but concluded from the other one.
    """

    gpu: str
    dtype: str
    backward: bool
    rate: float
    fixed_dim: float
    bandwidth: float
    floor_us: float
    blend: float
    spread: float
    source: str
    hot: float = 0.0
    event_us: float = 10.0
    isolated_us: float = 50.0
    derived: bool = False

    def device_us(
        self, machine: Gpu, dtype: str, batch: Array, heads: Array, seq_q: Array, seq_k: Array,
        head_dim: Array, v_dim: Array, kv_heads: Array, *, causal: bool,
    ) -> Array:  # fmt: skip
        """Time on the device."""
        tile = _ATTENTION_TILE
        rows = np.ceil(seq_q / tile) * tile
        longest = np.ceil(seq_k / tile) * tile
        mean = (longest + tile) / 2.0 if causal else longest
        depth = (head_dim + v_dim) / 2.0 + self.fixed_dim
        sm_flops_us = machine.peak_tflops(dtype) * 1e6 * self.rate / machine.sms
        pair_us = 2.0 * _ATTENTION_GEMMS[self.backward] * depth / sm_flops_us
        shared_us = batch * heads * rows * mean * pair_us / machine.sms
        busy_us = blend(shared_us, tile * longest * pair_us, self.blend)
        # Queries, keys, values and outputs once; their gradients as well on the way back.
        each = (heads * seq_q + kv_heads * seq_k) * (head_dim + v_dim)
        moved = _BYTES.get(dtype, 2.0) * batch * each * (2.0 if self.backward else 1.0)
        memory_us = moved / (machine.memory_gb_s * 1e3 * self.bandwidth)
        return self.floor_us + blend(busy_us, memory_us, self.blend)

    def isolated(self, device_us: Array) -> Array:
        """What a lone call of this device time measures."""
        return blend(device_us * (1.0 + self.hot) + self.event_us, self.isolated_us, _FLOOR_BLEND)


class MemoryModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Coefficients of one kind of kernels that move memory, on one GPU.

    Attributes:
        bandwidth: Share of the memory's bandwidth.
        row_ns: What a row costs beside its bytes, all processors together, where work is by row.
        wide: The power of their width with which rows slow down that are longer...
        wide_bytes: ...than this, read and written; 0: no such thing.
        long_bandwidth: The same for kernels made for long rows, taken where they are faster...
        long_row_ns: ...which cost this much more a row.
        row_us: What one long row takes however few there are: a warp walks it alone. Rows
            shorter than twice `wide_bytes` take their share.
        hot: How much longer it takes in a loop of nothing else; below zero where a loop finds
            its data in the cache, and a step does not.
    """

    gpu: str
    kind: str
    bandwidth: float
    floor_us: float
    spread: float
    source: str
    row_ns: float = 0.0
    wide: float = 0.0
    wide_bytes: float = 0.0
    long_bandwidth: float = 0.0
    long_row_ns: float = 0.0
    row_us: float = 0.0
    hot: float = 0.0
    event_us: float = 4.0
    isolated_us: float = 10.0

    def device_us(self, machine: Gpu, moved: Array, rows: Array) -> Array:
        """Time on the device for so many bytes, in so many rows (0: not by rows)."""
        gb_s = machine.memory_gb_s * 1e3
        stream_us = moved / (gb_s * self.bandwidth)
        if self.wide_bytes:
            width = moved / np.maximum(rows, 1.0)
            slowed_us = stream_us * np.maximum(width / self.wide_bytes, 1.0) ** self.wide
            long_us = moved / (gb_s * self.long_bandwidth) + rows * self.long_row_ns * 1e-3
            alone_us = self.row_us * np.minimum(width / (2.0 * self.wide_bytes), 1.0)
            stream_us = np.where(
                rows > 0.0, np.maximum(np.minimum(slowed_us, long_us), alone_us), stream_us
            )
        return self.floor_us + stream_us + rows * self.row_ns * 1e-3

    def isolated(self, device_us: Array) -> Array:
        """What a lone call of this device time measures."""
        return blend(device_us * (1.0 + self.hot) + self.event_us, self.isolated_us, _FLOOR_BLEND)


Model = GemmModel | AttentionModel | MemoryModel


class Coefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All fitted coefficients. An entry for the GPU "*" speaks for those without their own."""

    gemm: tuple[GemmModel, ...]
    attention: tuple[AttentionModel, ...]
    memory: tuple[MemoryModel, ...]

    def find_gemm(self, gpu: Gpu, dtype: str) -> GemmModel:
        """The entry for this GPU and data type, or the nearest that speaks for it."""
        by_key = {(m.gpu, m.dtype): m for m in self.gemm}
        return _first(by_key, gpu, _alike(dtype))

    def find_attention(self, gpu: Gpu, dtype: str, backward: bool) -> AttentionModel:
        """The entry for this GPU, data type and direction."""
        by_key = {(m.gpu, m.dtype): m for m in self.attention if m.backward == backward}
        return _first(by_key, gpu, _alike(dtype))

    def find_memory(self, gpu: Gpu, kind: str) -> MemoryModel:
        """The entry for this GPU and kind of work."""
        if kind not in MEMORY_KINDS:
            known = ", ".join(MEMORY_KINDS)
            raise InputError(f"no kind {kind!r} of memory-bound work", hint=f"known are {known}")
        return _first({(m.gpu, m.kind): m for m in self.memory}, gpu, (kind,))


class KernelTimes(msgspec.Struct, frozen=True):
    """Times of kernels on one GPU.

    Sizes may be arrays, which are broadcast against one another.

    >>> times = KernelTimes.of("H200")
    >>> bool(times.gemm_us(8192, 8192, 8192) > times.gemm_us(4096, 8192, 8192))
    True
    >>> times.source("gemm", "bf16"), KernelTimes.of("MI300X").source("gemm", "bf16")
    ('table', 'roofline')
    """

    gpu: Gpu
    coefficients: Coefficients

    @classmethod
    def of(cls, gpu: Gpu | str, coefficients: Coefficients | None = None) -> KernelTimes:
        """Times on a GPU, by itself or by name, with the coefficients as shipped."""
        machine = find_gpu(gpu) if isinstance(gpu, str) else gpu
        return cls(machine, coefficients or shipped_coefficients())

    def gemm_us(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1,
        dtype: str = "bf16", *, isolated: bool = False,
    ) -> Array:  # fmt: skip
        """Time of `batch` GEMMs of an m x k with a k x n matrix."""
        dtype = canonical_dtype(dtype)
        model = self.coefficients.find_gemm(self.gpu, dtype)
        sizes = _sizes(m=m, n=n, k=k, batch=batch)
        device_us = model.device_us(self.gpu, dtype, *sizes)
        if isolated:
            return model.isolated(device_us)
        if not self.gpu.sustained:
            return device_us
        flops = 2.0 * sizes[0] * sizes[1] * sizes[2] * sizes[3]
        return np.maximum(
            device_us, flops / (1e6 * self.gpu.sustained * self.gpu.peak_tflops(dtype))
        )

    def attention_us(
        self, batch: ArrayLike, heads: ArrayLike, seq_q: ArrayLike, seq_k: ArrayLike,
        head_dim: ArrayLike, *, causal: bool = True, backward: bool = False,
        dtype: str = "bf16", v_dim: ArrayLike | None = None, kv_heads: ArrayLike | None = None,
        isolated: bool = False,
    ) -> Array:  # fmt: skip
        """Time of fused attention: scores, softmax and weighted sum in one kernel."""
        dtype = canonical_dtype(dtype)
        model = self.coefficients.find_attention(self.gpu, dtype, backward)
        sizes = _sizes(
            batch=batch, heads=heads, seq_q=seq_q, seq_k=seq_k, head_dim=head_dim,
            v_dim=head_dim if v_dim is None else v_dim,
            kv_heads=heads if kv_heads is None else kv_heads,
        )  # fmt: skip
        device_us = model.device_us(self.gpu, dtype, *sizes, causal=causal)
        return model.isolated(device_us) if isolated else device_us

    def memory_us(
        self, bytes_moved: ArrayLike, *, kind: str = "elementwise", rows: ArrayLike = 0,
        isolated: bool = False,
    ) -> Array:  # fmt: skip
        """Time of a kernel that reads and writes this much and computes next to nothing.

        Args:
            bytes_moved: Read and written together.
            kind: One of `MEMORY_KINDS`.
            rows: Rows that are normalised, where that is what is done; 0 where unknown.
        """
        model = self.coefficients.find_memory(self.gpu, kind)
        moved = np.maximum(np.asarray(bytes_moved, dtype=np.float64), 0.0)
        device_us = model.device_us(self.gpu, moved, np.asarray(rows, dtype=np.float64))
        return model.isolated(device_us) if isolated else device_us

    def spread(self, family: str, dtype: str = "bf16", *, backward: bool = False) -> float:
        """Standard deviation of the logarithm of a family's times about the model.

        Args:
            family: "gemm", "attention" or one of `MEMORY_KINDS`.
        """
        return self._model(family, dtype, backward).spread

    def source(self, family: str, dtype: str = "bf16", *, backward: bool = False) -> str:
        """Says "table" where a GPU of this design was measured and fitted, else "roofline"."""
        model = self._model(family, dtype, backward)
        derived = isinstance(model, AttentionModel) and model.derived
        return "roofline" if model.gpu == "*" or derived else "table"

    def _model(self, family: str, dtype: str, backward: bool) -> Model:
        if family == "gemm":
            return self.coefficients.find_gemm(self.gpu, canonical_dtype(dtype))
        if family == "attention":
            return self.coefficients.find_attention(self.gpu, canonical_dtype(dtype), backward)
        return self.coefficients.find_memory(self.gpu, family)


_Model = TypeVar("_Model", bound=GemmModel | AttentionModel | MemoryModel)


def _first(by_key: Mapping[tuple[str, str], _Model], gpu: Gpu, cases: tuple[str, ...]) -> _Model:
    for machine, names in ((gpu.name, cases), (gpu.like, cases), ("*", (*cases, "*"))):
        for name in names:
            if (machine, name) in by_key:
                return by_key[machine, name]
    raise InputError(f"no coefficients for {gpu.name} and {cases[0]}", where=str(_COEFFICIENTS))


def _alike(dtype: str) -> tuple[str, ...]:
    return (dtype, {"fp16": "bf16", "bf16": "fp16"}.get(dtype, dtype))


def _waves(filled: Array, quantum: float) -> Array:
    """Rounds of tiles over the processors: never less than one."""
    return np.maximum(1.0, (1.0 - quantum) * filled + quantum * np.ceil(filled))


def blend(one: Array, other: Array | float, sharpness: float) -> Array:
    """The larger of two limits, and a little more where they are close."""
    larger, smaller = np.maximum(one, other), np.minimum(one, other)
    ratio = smaller / np.maximum(larger, 1e-30)
    return np.asarray(larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness), dtype=np.float64)


def _sizes(**sizes: ArrayLike) -> tuple[Array, ...]:
    arrays = []
    for name, values in sizes.items():
        array = np.asarray(values, dtype=np.float64)
        if array.size and not array.min() > 0.0:
            raise InputError(f"{name} has to be above zero, not {array.min():g}")
        arrays.append(array)
    return tuple(arrays)


@cache
def shipped_coefficients() -> Coefficients:
    """The coefficients that come with gnomon, each with the table it was fitted on."""
    return msgspec.toml.decode(_COEFFICIENTS.read_bytes(), type=Coefficients)
