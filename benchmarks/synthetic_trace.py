"""A profiler trace of a training run that nobody made, written from our own kernel models.

usage: synthetic_trace.py OUT.json.gz [name=value,...] [--steps N] [--seed N]

Writes what the PyTorch profiler would write (Kineto JSON, gzip) for one GPU that trains a
transformer in eager mode: operators with the shapes of their inputs, nested as autograd nests
them, launches, kernels on one stream, marks of steps and of the optimiser. Kernels take what
`gnomon.model.accelerator.kernel_time` says, give or take 1 %; the host takes what style `torch` says, give or
take 5 %, and the profiler's own costs on top, as `gnomon.model.accelerator.profiler_cost` has them. The same
seed gives the same file.

It is for traces of machines and sizes that one has not: reading it back has to give the
configuration, and predictions from it can be held against the trace of the larger one. What it
cannot show is how far the kernel models are from a machine.
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.model.accelerator.profiler_cost import default_profiler_cost
from gnomon.systems.training.prediction.analytic.operators import build_program
from gnomon.systems.training.prediction.analytic.style import TORCH, Style, width
from gnomon.systems.training.prediction.analytic.transformer import list_work
from gnomon.systems.training.prediction.configuration import Configuration, parse_settings
from gnomon.systems.training.prediction.program import Piece

KERNEL_NOISE, HOST_NOISE = 0.01, 0.05
_PROCESS, _MAIN, _AUTOGRAD, _STREAM = 420, 420, 421, 7
#: A launch's way to an idle device.
_LAUNCH_NS = 4_000.0
#: Of the host's time for a kernel, what passes before its operator is called, and what between
#: that and the launch; the rest comes after the launch.
_BEFORE, _INSIDE = 0.4, 0.3
_BETWEEN_STEPS_NS = 50_000.0
_TYPES = {"bf16": "c10::BFloat16", "fp16": "c10::Half", "fp32": "float"}
_SIZES = ("dp", "pp", "tp", "cp", "ep", "interleave")

Dims = tuple[tuple[int, ...], ...]


class Operator(NamedTuple):
    """What launches a kernel: operators and their inputs, outermost first, and the kernel."""

    calls: tuple[tuple[str, Dims], ...]
    kernel: str
    node: str = ""


# --- which operators a transformer's kernels come from ------------------------------------------

_PRODUCT = "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT"
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, {}>"
_LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel"
_ADAM = "void at::native::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata, FusedAdam>"


def operators(c: Configuration) -> dict[str, Operator]:
    """The operator behind every kernel of `transformer.list_work`, by its name there."""
    gated = 2 if c.gated else 1
    inner = c.heads * c.head_dim
    found: dict[str, Operator] = {}
    for name, out, into in (
        ("qkv", inner + 2 * c.kv_heads * c.head_dim, c.hidden), ("projection", c.hidden, inner),
        ("up", gated * c.ffn, c.hidden), ("down", c.hidden, c.ffn), ("head", c.vocab, c.hidden),
    ):  # fmt: skip
        found |= _linear(c, name, out, into, bias=name != "head")
    for name in ("attention norm", "feed-forward norm", "last norm"):
        found |= _norm(c, name)
    return found | _pointwise(c) | _attention(c) | _embedding(c) | _loss(c)


def _linear(
    c: Configuration, name: str, out: int, into: int, *, bias: bool
) -> dict[str, Operator]:
    t, node = c.tokens, "AddmmBackward0" if bias else "MmBackward0"
    whole: Dims = ((c.batch, c.seq, into), (out, into)) + (((out,),) if bias else ())
    product: Dims = (((out,),) if bias else ()) + ((t, into), (into, out))
    inside = "aten::addmm" if bias else "aten::mm"
    grown = (("torch::autograd::AccumulateGrad", ((out, into),)),
             ("aten::add_", ((out, into), (out, into), ())))  # fmt: skip
    add = _ELEMENTWISE.format("CUDAFunctor_add")
    return {
        name: Operator((("aten::linear", whole), (inside, product)), _PRODUCT),
        f"{name} input gradient": _back(node, "aten::mm", ((t, out), (out, into)), _PRODUCT),
        f"{name} weight gradient": _back(node, "aten::mm", ((out, t), (t, into)), _PRODUCT),
        f"{name} bias gradient": _back(
            node, "aten::sum", ((t, out), (), ()), "void at::native::reduce_kernel<128, 4>"
        ),
        f"{name} accumulate": Operator(grown, add, "torch::autograd::AccumulateGrad"),
    }


def _back(node: str, name: str, dims: Dims, kernel: str) -> Operator:
    return Operator(((node, dims[:1]), (name, dims)), kernel, node)


def _norm(c: Configuration, name: str) -> dict[str, Operator]:
    x, w = (c.batch, c.seq, c.hidden), (c.hidden,)
    node = "NativeLayerNormBackward0"
    dims: Dims = (x, x, (), (c.batch, c.seq, 1), (c.batch, c.seq, 1), w, w, ())
    forward = (
        ("aten::layer_norm", (x, (), w, w, (), ())), ("aten::native_layer_norm", (x, (), w, w, ()))
    )  # fmt: skip
    return {
        name: Operator(forward, _LAYER_NORM),
        f"{name} gradient": _back(
            node, "aten::native_layer_norm_backward", dims, f"{_LAYER_NORM}_grad_input"
        ),
        f"{name} weight gradient": _back(
            node, "aten::native_layer_norm_backward", dims, f"{_LAYER_NORM}_grad_gamma_beta"
        ),
    }


def _pointwise(c: Configuration) -> dict[str, Operator]:
    x, wide = (c.batch, c.seq, c.hidden), (c.batch, c.seq, c.ffn)
    add = _ELEMENTWISE.format("CUDAFunctor_add")
    call = "silu" if c.gated else "gelu"
    node = f"{call.capitalize()}Backward0"
    kernel = _ELEMENTWISE.format(f"{call}_kernel")
    found = {
        "activation": Operator(((f"aten::{call}", (wide, ())),), kernel),
        "activation gradient": _back(node, f"aten::{call}_backward", (wide, wide, ()), kernel),
        "activation gate": Operator((("aten::mul", (wide, wide)),), add),
        "activation gate gradient": _back("MulBackward0", "aten::mul", (wide, wide), add),
    }
    for part in ("attention", "feed-forward"):
        found[f"{part} residual"] = Operator((("aten::add", (x, x, ())),), add)
        found[f"{part} residual gradient"] = Operator(
            (("aten::add_", (x, x, ())),), add, "NativeLayerNormBackward0"
        )
    return found


def _attention(c: Configuration) -> dict[str, Operator]:
    q, k = (c.batch, c.heads, c.seq, c.head_dim), (c.batch, c.kv_heads, c.seq, c.head_dim)
    packed = (c.batch, c.seq, c.heads + 2 * c.kv_heads, c.head_dim)
    flash = "aten::_scaled_dot_product_flash_attention"
    whole: Dims = (q, k, k, (), (), ())
    node = "ScaledDotProductFlashAttentionBackward0"
    copy = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"
    return {
        "attention": Operator(
            (("aten::scaled_dot_product_attention", whole), (flash, whole)),
            "void pytorch_flash::flash_fwd_kernel",
        ),
        "attention gradient": _back(
            node, f"{flash}_backward", (q, q, k, k, q, (c.batch, c.heads, c.seq)),
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
        ),
        "stack heads gradient": _back(
            "UnbindBackward0", "aten::cat", (q, k, k, ()), "void at::native::CatArrayBatchedCopy"
        ),
        "reorder heads gradient": _back(
            "PermuteBackward0", "aten::copy_", (packed, packed, ()), copy
        ),
    }  # fmt: skip


def _embedding(c: Configuration) -> dict[str, Operator]:
    x, rows, ids = (c.batch, c.seq, c.hidden), (c.tokens, c.hidden), (c.batch, c.seq)
    words, places = (c.vocab, c.hidden), (c.seq, c.hidden)
    node, gradient = "EmbeddingBackward0", "aten::embedding_dense_backward"
    add = _ELEMENTWISE.format("CUDAFunctor_add")
    gather = "void at::native::vectorized_gather_kernel"

    def lookup(table: tuple[int, int]) -> Operator:
        calls = (("aten::embedding", (table, ids, (), (), ())),
                 ("aten::gather", (table, (), rows, (), rows)))  # fmt: skip
        return Operator(calls, gather)

    return {
        "words": lookup(words),
        "positions": lookup(places),
        "add positions": Operator((("aten::add", (x, x, ())),), add),
        "positions gradient": _back(
            node, gradient, (x, ids, (), (), ()), "void at::native::embedding_backward_kernel"
        ),
        "words gradient clear": _back(
            node, "aten::fill_", (words, ()), _ELEMENTWISE.format("FillFunctor")
        ),
        "words gradient": _back(
            node, gradient, (x, ids, (), (), ()), "void at::native::embedding_backward_kernel"
        ),
        "words gradient accumulate": Operator(
            (("torch::autograd::AccumulateGrad", (words,)), ("aten::add_", (words, words, ()))),
            add, "torch::autograd::AccumulateGrad",
        ),
    }  # fmt: skip


def _loss(c: Configuration) -> dict[str, Operator]:
    x, flat = (c.batch, c.seq, c.vocab), (c.tokens, c.vocab)
    cast = _ELEMENTWISE.format("float_copy_kernel_cuda")
    softmax = "void at::native::(anonymous namespace)::cunn_SoftMax{}<LogSoftMax{}>"
    targets = (c.tokens,)
    loss = "void at::native::(anonymous namespace)::nll_loss_{}_reduce_cuda_kernel_2d"
    return {
        "logits to float": Operator(
            (("aten::to", (x, (), ())), ("aten::copy_", (x, x, ()))), cast
        ),
        "log-softmax": Operator(
            (("aten::cross_entropy_loss", (flat, targets, (), ())),
             ("aten::_log_softmax", (flat, (), ()))), softmax.format("Forward", "Forward"),
        ),
        "loss": Operator(
            (("aten::nll_loss_forward", (flat, targets, (), (), ())),), loss.format("forward")
        ),
        "loss gradient clear": _back(
            "NllLossBackward0", "aten::fill_", (flat, ()), _ELEMENTWISE.format("FillFunctor")
        ),
        "loss gradient": _back(
            "NllLossBackward0", "aten::nll_loss_backward", ((), flat, targets, (), (), (), ()),
            loss.format("backward"),
        ),
        "log-softmax gradient": _back(
            "LogSoftmaxBackward0", "aten::_log_softmax_backward_data", (flat, flat, (), ()),
            softmax.format("Backward", "Backward"),
        ),
        "logits gradient to narrow": _back("ToCopyBackward0", "aten::copy_", (x, x, ()), cast),
    }  # fmt: skip


# --- the clock of a host and a device -----------------------------------------------------------


class _Recorder:
    """Host and device side by side, and the events that a profiler takes down of them."""

    def __init__(self, style: Style, dtype: str, rng: np.random.Generator) -> None:
        self._pause_ns = 1e3 * style.pause_us
        self._type = _TYPES[dtype]
        self._rng = rng
        self._cost = default_profiler_cost()
        self._free_ns = 0.0
        self._correlation = 0
        self.now_ns = 1e6
        self.events: list[dict[str, Any]] = []

    def launch(self, operator: Operator, piece: Piece, thread: int, launches: int) -> None:
        """One operator with its kernels, from the end of what the host did before."""
        slower, *each = 1.0 + HOST_NOISE * self._noise(1 + launches)
        calls = list(operator.calls)
        if operator.node:
            calls.insert(0, (f"autograd::engine::evaluate_function: {operator.node}", ()))
        cost = self._cost
        # Around an operator caches are colder than between those it calls: see `ProfilerCost`.
        colder_ns = len(calls) * (cost.operator - 1.0) * (cost.enter_ns + cost.exit_ns)
        # What a launch takes without the profiler is part of the host's own time.
        clean_ns = piece.host_ns * slower - launches * (1.0 - cost.launch) * cost.launch_ns
        self.now_ns += _BEFORE * clean_ns + colder_ns
        starts = []
        for _ in calls:
            self.now_ns += cost.enter_ns
            starts.append(self.now_ns)
        for factor in each:
            self.now_ns += _INSIDE * clean_ns / launches
            self._start_kernel(operator, piece, thread, launches, factor)
            self.now_ns += (1.0 - _BEFORE - _INSIDE) * clean_ns / launches
        for (name, dims), start_ns in zip(reversed(calls), reversed(starts), strict=True):
            self.now_ns += cost.exit_ns
            self._take_down("cpu_op", name, thread, start_ns, self.now_ns, self._inputs(dims))

    def mark(self, name: str, start_ns: float) -> None:
        """An annotation from then until now."""
        self._take_down("user_annotation", name, _MAIN, start_ns, self.now_ns, {})

    def _start_kernel(
        self, operator: Operator, piece: Piece, thread: int, launches: int, factor: float
    ) -> None:
        self._correlation += 1
        told = {"correlation": self._correlation}
        start_ns = self.now_ns
        self.now_ns += self._cost.launch_ns * factor
        self._take_down("cuda_runtime", "cudaLaunchKernel", thread, start_ns, self.now_ns, told)
        pause_ns = self._pause_ns + self._cost.kernel_ns
        begin_ns = max(self._free_ns + pause_ns, start_ns + _LAUNCH_NS)
        kernel_ns = piece.device_ns / launches - self._pause_ns
        self._free_ns = begin_ns + kernel_ns * (1.0 + KERNEL_NOISE * float(self._noise(1)[0]))
        told = {"device": 0, "context": 1, "stream": _STREAM} | told
        self._take_down("kernel", operator.kernel, _STREAM, begin_ns, self._free_ns, told)

    def _noise(self, number: int) -> np.ndarray:
        # Cut off: nothing runs backwards.
        return np.clip(self._rng.standard_normal(number), -3.0, 3.0)

    def _inputs(self, dims: Dims) -> dict[str, Any]:
        if not dims:
            return {}
        types = [self._type if size else "Scalar" for size in dims]
        return {"Input Dims": dims, "Input type": types}

    def _take_down(
        self, category: str, name: str, thread: int, start_ns: float, end_ns: float,
        more: dict[str, Any],
    ) -> None:  # fmt: skip
        start, end = round(start_ns) / 1e3, round(end_ns) / 1e3
        process = 0 if category == "kernel" else _PROCESS
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread,
             "ts": start, "dur": round(end - start, 3), "args": more}
        )  # fmt: skip


# --- a training run -----------------------------------------------------------------------------


class _Part(NamedTuple):
    """The kernels of a part: operator, times, launches, and whether it only accumulates."""

    operator: Operator
    piece: Piece
    launches: int
    accumulates: bool


def write_trace(
    path: str | os.PathLike[str], configuration: Configuration, *, steps: int = 3, seed: int = 0
) -> None:
    """Writes the trace of some steps of a configuration on one GPU.

    Raises:
        InputError: The configuration is of several GPUs, or has what eager operators here lack.
    """
    _check(configuration)
    c, style = configuration, _style(configuration)
    recorder = _Recorder(style, c.dtype, np.random.default_rng(seed))
    parts = _parts(c, style)
    for number in range(steps):
        _run_step(recorder, c, parts, number)
    _write(path, c, recorder.events)


def _check(c: Configuration) -> None:
    spread = [name for name in _SIZES if getattr(c, name) > 1]
    if spread:
        raise InputError(f"{', '.join(spread)} above 1: the trace is of one GPU")
    if c.experts or c.kv_rank or c.heads * c.head_dim != c.hidden or c.v_dim != c.head_dim:
        raise InputError("experts, latent attention and heads of their own width are not written")
    if c.dtype not in _TYPES:
        raise InputError(f"dtype {c.dtype}; it has to be one of {', '.join(_TYPES)}")


def _style(c: Configuration) -> Style:
    wide = width(c.dtype)
    return TORCH.changed(gradient_bytes=float(wide), state_bytes=2.0 * wide)


def _parts(c: Configuration, style: Style) -> dict[str, list[_Part]]:
    program = build_program(c, KernelTimes.of(c.gpu), CollectiveTimes.of(c.gpu), style)
    known = operators(c)
    parts = {}
    for name, works in list_work(c, style).items():
        parts[name] = [
            _Part(_adam() if work.family == "optimizer" else known[work.name], piece,
                  int(work.launches), work.name.endswith("accumulate"))
            for work, piece in zip(works, program.parts[name], strict=True)
        ]  # fmt: skip
    return parts


def _adam() -> Operator:
    return Operator((("aten::_fused_adamw_", ((),) * 6),), _ADAM)


def _run_step(
    recorder: _Recorder, c: Configuration, parts: dict[str, list[_Part]], number: int
) -> None:
    started_ns = recorder.now_ns
    for micro_batch in range(c.accumulation):
        for name in ("embedding.forward", *["layer.forward"] * c.layers, "head.forward"):
            _run(recorder, parts[name], _MAIN)
        for name in ("head.backward", *["layer.backward"] * c.layers, "embedding.backward"):
            # The first gradients of a step have nothing to be added to.
            kept = (part for part in parts[name] if micro_batch or not part.accumulates)
            _run(recorder, kept, _AUTOGRAD)
    optimizer_ns = recorder.now_ns
    for name in ("embedding", *["layer"] * c.layers, "head"):
        _run(recorder, parts[f"optimizer.{name}"], _MAIN)
    recorder.mark("Optimizer.step#AdamW.step", optimizer_ns)
    recorder.mark(f"ProfilerStep#{number}", started_ns)
    recorder.now_ns += _BETWEEN_STEPS_NS


def _run(recorder: _Recorder, parts: Iterable[_Part], thread: int) -> None:
    for part in parts:
        recorder.launch(part.operator, part.piece, thread, part.launches)


def _write(path: str | os.PathLike[str], c: Configuration, events: list[dict[str, Any]]) -> None:
    gpu = find_gpu(c.gpu)
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": c.gpu, "totalGlobalMem": int(gpu.memory_gib * 2**30),
             "numSms": gpu.sms}
        ],
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceEvents": [*_names(), *events],
    }  # fmt: skip
    # No time of writing in the file: the same seed gives the same bytes.
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as file:
        file.write(msgspec.json.encode(trace))


def _names() -> Iterator[dict[str, Any]]:
    for process, label in ((_PROCESS, "CPU"), (0, "GPU 0")):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0.0,
               "args": {"name": "python3"}}  # fmt: skip
        yield {"ph": "M", "name": "process_labels", "pid": process, "tid": 0, "ts": 0.0,
               "args": {"labels": label}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the file to write, .json.gz")
    parser.add_argument("settings", nargs="*", help="sizes: layers=12,hidden=2048,heads=16 ...")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sizes: dict[str, Any] = {
        "layers": 12,
        "hidden": 2048,
        "heads": 16,
        "seq": 2048,
        "batch": 4,
        "gpu": "H200",
    }
    configuration = Configuration(**(sizes | parse_settings(asked.settings, "settings")))
    write_trace(asked.out, configuration, steps=asked.steps, seed=asked.seed)
    print(f"{asked.out}: {configuration.short()}")


if __name__ == "__main__":
    main()
