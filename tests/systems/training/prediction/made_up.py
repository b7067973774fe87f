"""Made-up Kineto traces of transformers: a host that launches, streams that work.

Times are those of a simple device (a GEMM by its operations, the rest by its bytes). What
matters is the make-up: which operators come in which order, with which shapes, on which stream.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BF16, FP32 = "c10::BFloat16", "float"
_COMPUTE, _NCCL = 7, 20
_COLLECTIVES = {
    "allreduce": ("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "allgather": ("c10d::_allgather_base_", "ncclDevKernel_AllGather_RING_LL"),
    "reduce_scatter": ("c10d::_reduce_scatter_base_", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """What is trained, and how its code does it.

    Attributes:
        attention: `flash`, or `eager` for GEMMs and a softmax.
        fused_qkv: One GEMM makes queries, keys and values.
        expands_keys: Keys are repeated before the attention sees them.
        loss: `cross_entropy`, or `own` for exponentials and sums.
        autocast: Weights are floats, cast for every GEMM.
        operators: Memory-bound kernels have operators; else they are a compiler's.
        decoder_layers: Layers with a second attention after the others, with an embedding.
        optimizer: The name of its class.
    """

    layers: int = 3
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 4
    seq: int = 128
    batch: int = 4
    vocab: int = 1000
    tp: int = 1
    accumulation: int = 1
    attention: str = "flash"
    fused_qkv: bool = True
    expands_keys: bool = False
    loss: str = "cross_entropy"
    autocast: bool = False
    operators: bool = True
    decoder_layers: int = 0
    optimizer: str = "AdamW"

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def width(self) -> int:
        return self.hidden // self.heads


@dataclass(frozen=True)
class Job:
    """How ranks work together.

    Attributes:
        gradients: `none`, `overlapped` (a bucket a layer) or `after`.
        gathers: Parameters are gathered layer by layer (FSDP).
        sums_loss: One number is summed over ranks after the loss.
    """

    world: int = 1
    gradients: str = "none"
    gathers: bool = False
    sums_loss: bool = False


@dataclass
class Recorder:
    """Writes down what a host and its streams do."""

    rank: int = 0
    world: int = 1
    gpu: str = "NVIDIA H200"
    now_us: float = 100.0
    events: list[dict[str, Any]] = field(default_factory=list)
    free_us: dict[int, float] = field(default_factory=dict)
    calls: int = 0

    def event(
        self, category: str, name: str, begin_us: float, us: float, thread: int, **args: Any
    ) -> None:
        where = {"pid": 0 if category == "kernel" else 1, "tid": thread}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": us, "args": args}
            | where
        )

    @contextlib.contextmanager
    def inside(self, name: str, category: str = "cpu_op", **args: Any) -> Iterator[None]:
        begin = self.now_us
        self.now_us += 1.0
        yield
        self.now_us += 1.0
        self.event(category, name, begin, self.now_us - begin, 1, **args)

    def kernel(
        self, name: str, us: float, stream: int = _COMPUTE, not_before: float = 0.0, **args: Any
    ) -> float:
        """Launches a kernel; when it will be through."""
        self.calls += 1
        self.event("cuda_runtime", "cudaLaunchKernel", self.now_us, 3.0, 1, correlation=self.calls)
        begin = max(self.free_us.get(stream, 0.0), self.now_us + 4.0, not_before)
        ids = {"correlation": self.calls, "stream": stream, "device": 0}
        self.event("kernel", name, begin, us, stream, **ids, **args)
        self.free_us[stream] = begin + us
        self.now_us += 4.0
        return begin + us

    def operator(
        self, name: str, shapes: Sequence[Any], kernel: str, us: float, *,
        types: Sequence[str] = (), **args: Any,
    ) -> float:  # fmt: skip
        fields = {"Input Dims": list(shapes), "Input type": list(types) or [BF16] * len(shapes)}
        with self.inside(name, **fields):
            return self.kernel(kernel, us, **args)

    def wait(self, stream: int, other: int) -> None:
        """Makes a stream wait for what another one was given so far."""
        self.calls += 2
        self.event(
            "cuda_runtime", "cudaEventRecord", self.now_us, 1.0, 1, correlation=self.calls - 1
        )
        self.event(
            "cuda_runtime",
            "cudaStreamWaitEvent",
            self.now_us + 1.5,
            1.0,
            1,
            correlation=self.calls,
        )
        self.now_us += 3.0
        self.free_us[stream] = max(
            self.free_us.get(stream, 0.0), self.free_us.get(other, 0.0) + 1.5
        )

    def collective(self, kind: str, elements: int, us: float, ranks: int) -> None:
        operator, kernel = _COLLECTIVES[kind]
        self.wait(_NCCL, _COMPUTE)
        self.operator(
            operator, [[elements]], kernel, us, stream=_NCCL,
            **{"Collective name": kind, "In msg nelems": elements, "Out msg nelems": elements,
               "Group size": ranks, "dtype": "BFloat16", "Process Group Name": "0",
               "Process Group Ranks": str(list(range(ranks)))},
        )  # fmt: skip

    def message(self, kind: str, peer: int, elements: int, ready_us: float = 0.0) -> float:
        """Sends or receives; when it was through. A receive waits until `ready_us`."""
        if kind == "send":
            self.wait(_NCCL, _COMPUTE)
        begin = max(self.free_us.get(_NCCL, 0.0), self.now_us + 5.0)
        through = self.operator(
            f"c10d::{kind}", [[elements]], "ncclDevKernel_SendRecv",
            max(elements * 2 / 300e3 + 10.0, ready_us - begin), stream=_NCCL,
            **{"Collective name": kind, "In msg nelems": elements, "Out msg nelems": elements,
               "Group size": 2, "dtype": "BFloat16", "Process Group Name": "1",
               "Process Group Ranks": str(list(range(self.world))), "Src Rank": peer,
               "Dst Rank": peer},
        )  # fmt: skip
        if kind == "recv":
            self.wait(_COMPUTE, _NCCL)
        return through

    def synchronise(self) -> None:
        end = max(self.free_us.values())
        self.event(
            "cuda_runtime", "cudaDeviceSynchronize", self.now_us, max(end - self.now_us, 1.0), 1
        )
        self.now_us = max(self.now_us, end) + 2.0

    def save(self, path: Path) -> Path:
        fields: dict[str, Any] = {"schemaVersion": 1, "traceEvents": self.events}
        if self.gpu:
            fields["deviceProperties"] = [{"id": 0, "name": self.gpu}]
        if self.world > 1:
            fields["distributedInfo"] = {
                "backend": "nccl",
                "rank": self.rank,
                "world_size": self.world,
            }
        path.write_text(json.dumps(fields))
        return path


class Rank:
    """One rank of a job: the parts of its model, on a recorder."""

    def __init__(self, model: Model, job: Job, recorder: Recorder) -> None:
        self.model, self.job, self.to = model, job, recorder
        self._rows = [model.batch, model.seq, model.hidden]

    def memory(
        self, name: str, shapes: Sequence[Any], kernel: str = "vectorized_elementwise_kernel"
    ) -> None:
        us = 3 * 2 * max(math.prod(shape) for shape in shapes if shape) / 4e6 + 1.5
        if self.model.operators:
            self.to.operator(name, shapes, kernel, us)
        else:
            self.to.now_us += 3.0
            self.to.kernel(f"triton_poi_fused_{name.removeprefix('aten::')}", us)

    def gemm(self, rows: int, columns: int, inner: int) -> None:
        if self.model.autocast and inner != rows:
            cast = [[columns, inner], [columns, inner], []]
            self.to.operator("aten::copy_", cast, "copy_kernel", 2.0, types=[BF16, FP32, "Scalar"])
        us = 2 * rows * columns * inner / 500e6 + 2
        self.to.operator("aten::mm", [[rows, inner], [inner, columns]], "nvjet_tst", us)

    def backward_of(self, name: str, work: Callable[[], None]) -> None:
        with self.to.inside(f"autograd::engine::evaluate_function: {name}"), self.to.inside(name):
            work()

    def gemm_backward(self, columns: int, inner: int) -> None:
        def work() -> None:
            tokens = self.model.tokens
            for shapes in (
                [[tokens, columns], [columns, inner]],
                [[columns, tokens], [tokens, inner]],
            ):
                self.to.operator(
                    "aten::mm", shapes, "nvjet_tst", 2 * tokens * columns * inner / 500e6 + 2
                )

        self.backward_of("MmBackward0", work)

    def _sizes(self) -> tuple[int, int, int]:
        m = self.model
        return m.heads // m.tp, max(m.kv_heads // m.tp, 1), 4 * m.hidden // m.tp

    def attention(self) -> None:
        m = self.model
        heads, keys, _ = self._sizes()
        q = [m.batch, heads, m.seq, m.width]
        k = [m.batch, heads if m.expands_keys else keys, m.seq, m.width]
        if m.attention == "flash":
            self.to.operator(
                "aten::_scaled_dot_product_flash_attention", [q, k, k], "flash_fwd", 20.0
            )
            return
        many, scores = m.batch * heads, [m.batch, heads, m.seq, m.seq]
        self.to.operator(
            "aten::bmm", [[many, m.seq, m.width], [many, m.width, m.seq]], "gemm", 8.0
        )
        self.memory("aten::div", [scores])
        self.memory("aten::_softmax", [scores], "softmax_warp_forward")
        self.to.operator("aten::bmm", [[many, m.seq, m.seq], [many, m.seq, m.width]], "gemm", 8.0)

    def attention_backward(self) -> None:
        m = self.model
        heads, keys, _ = self._sizes()
        q = [m.batch, heads, m.seq, m.width]
        k = [m.batch, heads if m.expands_keys else keys, m.seq, m.width]
        if m.attention == "flash":
            self.to.operator(
                "aten::_scaled_dot_product_flash_attention_backward",
                [q, q, k, k],
                "flash_bwd",
                50.0,
            )
            return
        many, scores = m.batch * heads, [m.batch, heads, m.seq, m.seq]
        for a, b in (((m.seq, m.seq), (m.seq, m.width)), ((m.seq, m.width), (m.width, m.seq))):
            self.to.operator("aten::bmm", [[many, *a], [many, *b]], "gemm", 8.0)
        self.memory("aten::_softmax_backward_data", [scores, scores], "softmax_warp_backward")
        for a, b in (((m.width, m.seq), (m.seq, m.seq)), ((m.seq, m.seq), (m.seq, m.width))):
            self.to.operator("aten::bmm", [[many, *a], [many, *b]], "gemm", 8.0)

    def norm(self) -> None:
        self.memory(
            "aten::native_layer_norm", [self._rows, [self.model.hidden]], "layer_norm_kernel"
        )

    def norm_backward(self) -> None:
        def work() -> None:
            self.memory(
                "aten::native_layer_norm_backward", [self._rows, self._rows], "layer_norm_grad"
            )

        self.backward_of("NativeLayerNormBackward0", work)

    def _sum_activations(self) -> None:
        m = self.model
        if m.tp > 1:
            self.to.collective("allreduce", m.tokens * m.hidden, 15.0, m.tp)
            self.to.wait(_COMPUTE, _NCCL)

    def _gather(self) -> None:
        if self.job.gathers:
            self.to.collective("allgather", 12 * self.model.hidden**2, 10.0, self.job.world)
            self.to.wait(_COMPUTE, _NCCL)

    def layer(self, *, crosses: bool = False) -> None:
        m = self.model
        heads, keys, ffn = self._sizes()
        self._gather()
        for _ in range(2 if crosses else 1):
            self.norm()
            columns = [(heads + 2 * keys) * m.width]
            if not m.fused_qkv:
                columns = [heads * m.width, keys * m.width, keys * m.width]
            for count in columns:
                self.gemm(m.tokens, count, m.hidden)
            self.attention()
            self.gemm(m.tokens, m.hidden, heads * m.width)
            self._sum_activations()
            self.memory("aten::add", [self._rows, self._rows])
        self.norm()
        self.gemm(m.tokens, ffn, m.hidden)
        self.memory("aten::gelu", [[m.batch, m.seq, ffn]])
        self.gemm(m.tokens, m.hidden, ffn)
        self._sum_activations()
        self.memory("aten::add", [self._rows, self._rows])

    def layer_backward(self, *, crosses: bool = False) -> None:
        m = self.model
        heads, keys, ffn = self._sizes()
        self.gemm_backward(m.hidden, ffn)
        wide = [m.batch, m.seq, ffn]
        self.backward_of("GeluBackward0", lambda: self.memory("aten::gelu_backward", [wide, wide]))
        self.gemm_backward(ffn, m.hidden)
        self.backward_of("CopyBackward", self._sum_activations)
        self.norm_backward()
        for _ in range(2 if crosses else 1):
            self.gemm_backward(m.hidden, heads * m.width)
            self.backward_of("AttentionBackward0", self.attention_backward)
            columns = [(heads + 2 * keys) * m.width]
            if not m.fused_qkv:
                columns = [keys * m.width, keys * m.width, heads * m.width]
            for count in columns:
                self.gemm_backward(count, m.hidden)
            self.backward_of("CopyBackward", self._sum_activations)
            self.norm_backward()
        if self.job.gathers:
            self._communication_gradient("reduce_scatter")

    def _communication_gradient(self, kind: str = "allreduce") -> None:
        elements = 12 * self.model.hidden**2 + 13 * self.model.hidden
        self.backward_of(
            "torch::autograd::AccumulateGrad",
            lambda: self.to.collective(kind, elements, 12.0, self.job.world),
        )

    def embedding(self) -> None:
        m = self.model
        table = [m.vocab // m.tp, m.hidden]
        self.to.operator(
            "aten::embedding", [table, [m.batch, m.seq]], "indexSelectLargeIndex", 3.0
        )
        self._sum_activations()
        self.to.operator(
            "aten::embedding", [[2 * m.seq, m.hidden], [m.seq]], "indexSelectLargeIndex", 2.0
        )
        self.memory("aten::add", [self._rows, [1, m.seq, m.hidden]])

    def embedding_backward(self) -> None:
        self.backward_of("EmbeddingBackward0", lambda: self.to.operator(
            "aten::embedding_dense_backward", [self._rows, [self.model.batch, self.model.seq]],
            "embedding_backward_feature_kernel", 4.0,
        ))  # fmt: skip

    def head(self) -> None:
        m = self.model
        logits = [m.tokens, m.vocab // m.tp]
        self.norm()
        self.gemm(m.tokens, m.vocab // m.tp, m.hidden)
        if m.loss == "cross_entropy":
            self.memory("aten::_log_softmax", [logits], "cunn_SoftMaxForward")
            self.memory("aten::nll_loss_forward", [logits, [m.tokens]], "nll_loss_forward")
        else:
            self.memory("aten::exp", [logits])
            self.memory("aten::sum", [logits], "reduce_kernel")
        if self.job.sums_loss:
            self.to.collective("allreduce", 1, 10.0, self.job.world)

    def head_backward(self) -> None:
        m = self.model
        logits = [m.tokens, m.vocab // m.tp]
        self.backward_of("ExpBackward0", lambda: self.memory("aten::mul", [logits, logits]))
        self.gemm_backward(m.vocab // m.tp, m.hidden)
        self.norm_backward()

    def forward(self, layers: int, *, first: bool = True, last: bool = True) -> None:
        if first:
            self.embedding()
        for _ in range(layers):
            self.layer()
        if self.model.decoder_layers:
            self.embedding()
            for _ in range(self.model.decoder_layers):
                self.layer(crosses=True)
        if last:
            self.head()

    def backward(
        self, layers: int, *, first: bool = True, last: bool = True, sums: bool = True
    ) -> None:
        if last:
            self.head_backward()
        for _ in range(self.model.decoder_layers):
            self.layer_backward(crosses=True)
        for _ in range(layers):
            self.layer_backward()
            if self.job.gradients == "overlapped" and sums:
                self._communication_gradient()
        if first:
            self.embedding_backward()

    def update(self) -> None:
        if self.job.gradients == "after":
            self.to.collective("allreduce", 10_000_000, 100.0, self.job.world)
        if _NCCL in self.to.free_us:
            self.to.wait(_COMPUTE, _NCCL)
        element = FP32 if self.model.autocast else BF16
        with self.to.inside(f"Optimizer.step#{self.model.optimizer}.step", "user_annotation"):
            for name in ("mul_", "add_"):
                self.to.operator(
                    f"aten::_foreach_{name}", [], f"multi_tensor_apply_kernel<Functor<{element}, 1>>",
                    20.0, types=["TensorList"],
                )  # fmt: skip


@contextlib.contextmanager
def _step(recorders: Sequence[Recorder], number: int) -> Iterator[None]:
    begin = [recorder.now_us for recorder in recorders]
    for recorder in recorders:
        recorder.now_us += 2.0
    yield
    end = max(recorder.now_us for recorder in recorders) + 3.0
    for recorder, begun in zip(recorders, begin, strict=True):
        recorder.event("user_annotation", f"ProfilerStep#{number}", begun, end - begun - 1.0, 1)
        recorder.now_us = end


def write_job(
    path: Path, model: Model, job: Job | None = None, *, steps: int = 3, gpu: str = "NVIDIA H200",
    later: Model | None = None,
) -> Path:  # fmt: skip
    """Writes the trace of one rank; from the second step on of another model, if given."""
    job = job or Job()
    recorder = Recorder(world=job.world, gpu=gpu)
    for number in range(steps):
        rank = Rank(later if later and number else model, job, recorder)
        with _step([recorder], number):
            for micro_batch in range(model.accumulation):
                rank.forward(model.layers)
                rank.backward(model.layers, sums=micro_batch == model.accumulation - 1)
            rank.update()
            recorder.synchronise()
    return recorder.save(path)


def write_pipeline(folder: Path, model: Model, stages: int = 2, *, steps: int = 3) -> Path:
    """Writes the traces of a pipeline's ranks: all forward passes, then all backward passes."""
    folder.mkdir(parents=True, exist_ok=True)
    recorders = [Recorder(rank=rank, world=stages) for rank in range(stages)]
    ranks = [Rank(replace(model, layers=model.layers // stages), Job(), r) for r in recorders]
    elements = model.tokens * model.hidden
    for number in range(steps):
        with _step(recorders, number):
            for order, backward in ((range(stages), False), (range(stages - 1, -1, -1), True)):
                for _ in range(model.accumulation):
                    _pass(ranks, list(order), elements, backward=backward)
            for rank in ranks:
                rank.update()
                rank.to.synchronise()
    for recorder in recorders:
        recorder.save(folder / f"rank{recorder.rank}.json")
    return folder


def _pass(ranks: Sequence[Rank], order: Sequence[int], elements: int, *, backward: bool) -> None:
    sent_us = 0.0
    for place, number in enumerate(order):
        rank = ranks[number]
        ends = {"first": number == 0, "last": number == len(ranks) - 1}
        if place:
            rank.to.message("recv", order[place - 1], elements, sent_us)
        (rank.backward if backward else rank.forward)(rank.model.layers, **ends)
        if place < len(order) - 1:
            sent_us = rank.to.message("send", order[place + 1], elements)
