"""The measured tables behind the models of kernels and collectives, read into arrays.

Public ones (aiconfigurator, NeuSight, vTrain) are named with their commits in kernel_models.py;
the rest was measured for this project on an H200 and on CPU ranks.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from gnomon.ingest.profiler.kineto import KinetoTrace, read_kineto

DATA = Path(os.environ.get("GNOMON_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
Array = np.ndarray
GEMM_TABLES = {
    "A100": "a100_sxm/gemm/sglang/0.5.10",
    "L40S": "l40s/gemm/sglang/0.5.10",
    "H100": "h100_sxm/gemm/vllm/0.19.0",
    "H200": "h200_sxm/gemm/vllm/0.19.0",
    "B200": "b200_sxm/gemm/vllm/0.19.0",
}
ATTENTION_TABLES = {
    "A100": "a100_sxm/attention/sglang/0.5.10",
    "H100": "h100_sxm/attention/sglang/0.5.10",
}
#: NeuSight's devices, and the GPU of the catalogue whose data sheet applies.
NEUSIGHT_GPUS = {
    "NVIDIA A100 80GB PCIe": "A100-PCIe",
    "NVIDIA H100 80GB HBM3": "H100",
    "Tesla V100-PCIE-32GB": "V100",
    "NVIDIA L4": "L4",
    "Tesla T4": "T4",
    "Tesla P100-PCIE-16GB": "P100",
    "Tesla P4": "P4",
}
TRACES = ("gpt-base", "gpt-l6", "gpt-h1024", "gpt-b2", "gpt-cpubound")
NCCL_TABLES = {
    "nvlink3": ("a100_sxm/comm/nccl/2.27.3",),
    "nvlink4": ("h100_sxm/comm/nccl/2.29.2", "h200_sxm/comm/nccl/2.29.2"),
    "nvlink5": ("b200_sxm/comm/nccl/2.29.2", "gb200/comm/nccl/2.29.2"),
    "pcie4": ("l40s/comm/nccl/2.27.3",),
}
NCCL_KINDS = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "alltoall": "all-to-all",
    "reduce_scatter": "reduce-scatter",
}  # fmt: skip


class Table(NamedTuple):
    """Measured times: sizes by name, and what they took."""

    sizes: Mapping[str, Array]
    time_us: Array

    def part(self, keep: Array) -> Table:
        return Table({k: v[keep] for k, v in self.sizes.items()}, self.time_us[keep])

    def fifths(self, seed: int) -> Array:
        """Which fifth each row is in: by shape, the same for the same seed."""
        shapes = np.stack([np.asarray(v, float) for v in self.sizes.values()], axis=1)
        order = sorted({row.tobytes() for row in shapes}, key=lambda b: (zlib.crc32(b, seed), b))
        place = {shape: number % 5 for number, shape in enumerate(order)}
        return np.array([place[row.tobytes()] for row in shapes])


def read_gemm(gpu: str, dtype: str) -> Table:
    path = DATA / "public/aiconfigurator/data" / GEMM_TABLES[gpu] / "gemm_perf.parquet"
    rows = pd.read_parquet(path)
    rows = rows[rows.gemm_dtype == dtype]
    return gemm_table(rows.m, rows.n, rows.k, np.ones(len(rows)), rows.latency * 1e3)


def read_neusight_gemms(device: str) -> Table:
    parts = [pd.read_csv(DATA / f"public/neusight/test/{op}.csv.gz") for op in ("linear", "bmm")]
    rows = pd.concat(parts)
    rows = rows[rows.Device == device]
    return gemm_table(rows.M, rows.N, rows.K, rows.B, rows.Latency * 1e3)


def gemm_table(*columns: pd.Series | Array) -> Table:
    m, n, k, batch, time_us = (np.asarray(c, float) for c in columns)
    return Table({"m": m, "n": n, "k": k, "batch": batch}, time_us)


def read_own_gemms() -> dict[str, Table]:
    """GEMMs of kernels.csv by how their operands lie in memory."""
    rows = read_own()
    return {
        op: gemm_table(part.m, part.n, part.k, np.ones(len(part)), part.median_us)
        for op, part in rows[rows.op.str.startswith("gemm")].groupby("op")
    }


def read_own() -> pd.DataFrame:
    return pd.read_csv(DATA / "h200-pairs/kernels.csv")


def read_attention(gpu: str) -> Table:
    path = DATA / "public/aiconfigurator/data" / ATTENTION_TABLES[gpu]
    rows = pd.read_parquet(path / "context_attention_perf.parquet")
    rows = rows[(rows.attn_dtype == "bfloat16") & (rows.kv_cache_dtype == "bfloat16")]
    rows = rows[rows.isl >= 128]
    return attention_table(
        rows.batch_size, rows.num_heads, rows.isl, rows.head_dim, rows.num_key_value_heads,
        rows.latency * 1e3,
    )  # fmt: skip


def read_own_attention(backward: bool) -> Table:
    rows = read_own()
    rows = rows[rows.op == ("sdpa_causal_bwd" if backward else "sdpa_causal_fwd")]
    return attention_table(rows.m, rows.n, rows.k // 10000, rows.k % 10000, rows.n, rows.median_us)


def attention_table(*columns: pd.Series | Array) -> Table:
    batch, heads, seq, width, kv_heads, time_us = (np.asarray(c, float) for c in columns)
    sizes = {
        "batch": batch, "heads": heads, "seq_q": seq, "seq_k": seq, "head_dim": width,
        "v_dim": width, "kv_heads": kv_heads,
    }  # fmt: skip
    return Table(sizes, time_us)


def own_memory() -> dict[str, dict[str, Table]]:
    """kernels.csv by kind of work, then by what was run. Elements are bf16."""
    rows = read_own()
    bytes_each = {"gelu": 4.0, "add": 4.0, "layer_norm": 4.0, "softmax": 4.0, "adamw_fused": 14.0}
    kinds = {
        "gelu": "activation", "add": "elementwise", "layer_norm": "normalisation",
        "softmax": "softmax", "adamw_fused": "optimizer",
    }  # fmt: skip
    out: dict[str, dict[str, Table]] = defaultdict(dict)
    for op, kind in kinds.items():
        part = rows[rows.op == op]
        by_row = part.n.to_numpy() > 0
        elements = part.m * np.maximum(part.n, 1)
        out[kind][op] = memory_table(
            elements * bytes_each[op], np.where(by_row, part.m, 0), part.median_us
        )
    return out


def memory_table(*columns: pd.Series | Array | Sequence[float]) -> Table:
    moved, rows, time_us = (np.asarray(c, float) for c in columns)
    return Table({"bytes": moved, "rows": rows}, time_us)


def neusight_memory(op: str, device: str) -> Table:
    rows = pd.read_csv(DATA / f"public/neusight/test/{op}.csv.gz")
    rows = rows[rows.Device == device]
    return memory_table(rows.B * rows.H * 8.0, rows.B, rows.Latency * 1e3)


def neusight_labels(gpu: str) -> dict[str, Table]:
    """Operators of fp32 models run one by one on an H100, forward."""
    folder = {"H100": "NVIDIA_H100_80GB_HBM3"}[gpu]
    found: dict[str, dict[tuple[float, float], list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with tarfile.open(DATA / "public/neusight/labels_h100_a100.tar.gz") as archive:
        for member in archive:
            if folder not in member.name or not member.name.endswith(".csv"):
                continue
            for row in pd.read_csv(archive.extractfile(member)).itertuples():
                kind, moved, rows = label_work(str(row.target), str(row.input_shapes))
                if kind and row.fw_latency > 0.0:
                    found[kind][moved, rows].append(row.fw_latency * 1e3)
    return {
        kind: memory_table(
            [k[0] for k in cases], [k[1] for k in cases], [np.median(v) for v in cases.values()]
        )
        for kind, cases in found.items()
    }


def label_work(target: str, shapes: str) -> tuple[str, float, float]:
    """Kind, bytes and rows of an operator of NeuSight's labels; no kind where it is no use."""
    sizes = [s for s in json.loads(shapes.replace("'", '"')) if len(s) > 1]
    elements = [float(np.prod(s)) for s in sizes]
    if not sizes or elements[0] < 1e5 or len(set(elements)) > 1:
        return "", 0.0, 0.0
    rows = elements[0] / sizes[0][-1]
    if re.search(r"function (add|mul|truediv)>", target):
        return "elementwise", 4.0 * (sum(elements) + elements[0]), 0.0
    if "softmax" in target:
        return "softmax", 8.0 * elements[0], rows
    if re.search(r"\bln_[12f]$", target):
        return "normalisation", 8.0 * elements[0], rows
    return "", 0.0, 0.0


class Ran(NamedTuple):
    """A kernel of a trace, with the operator that launched it."""

    kernel: str
    operator: str
    sizes: list
    types: list
    us: float


def ran_kernels(trace: KinetoTrace) -> Iterator[Ran]:
    """Kernels with the innermost operator around their launch."""
    category = np.array(trace.categories)[trace.category]
    launches = {
        int(trace.correlation[i]): i
        for i in np.flatnonzero(np.isin(category, ["cuda_runtime", "cuda_driver"]))
    }
    operators: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(category == "cpu_op"):
        operators[int(trace.thread[i])].append(int(i))
    starts = {thread: trace.start_ns[np.array(v)] for thread, v in operators.items()}
    end_ns = trace.start_ns + trace.duration_ns
    for kernel in np.flatnonzero(category == "kernel"):
        launch = launches.get(int(trace.correlation[kernel]))
        if launch is None or int(trace.thread[launch]) not in operators:
            continue
        thread, now = int(trace.thread[launch]), trace.start_ns[launch]
        place = int(np.searchsorted(starts[thread], now, "right")) - 1
        while place >= 0 and end_ns[operators[thread][place]] < now:
            place -= 1
        if place < 0:
            continue
        operator = operators[thread][place]
        sizes, types, *_ = (*trace.shapes[trace.shape[operator]].split("\t"), "", "")
        yield Ran(
            trace.names[trace.name[kernel]], trace.names[trace.name[operator]],
            json.loads(sizes or "[]"), json.loads(types or "[]"),
            float(trace.duration_ns[kernel]) / 1e3,
        )  # fmt: skip


def in_steps() -> tuple[Table, dict[bool, Table], dict[str, Table]]:
    """GEMMs, attention by direction and memory-bound kernels of the recorded steps."""
    gemms: dict[tuple, list[float]] = defaultdict(list)
    attention: dict[bool, dict[tuple, dict[str, list[float]]]] = {
        way: defaultdict(lambda: defaultdict(list)) for way in (False, True)
    }
    memory: dict[str, dict[tuple, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name in TRACES:
        for ran in ran_kernels(read_kineto(DATA / "h200" / name / "kineto.json.gz")):
            if ran.operator in ("aten::mm", "aten::addmm"):
                left, right = ran.sizes[:2] if ran.operator == "aten::mm" else ran.sizes[1:3]
                gemms[name, left[0], right[1], left[1]].append(ran.us)
            elif "attention" in ran.operator:
                batch, heads, seq, width = ran.sizes[0]
                way = "backward" in ran.operator
                attention[way][name, batch, heads, seq, width][ran.kernel].append(ran.us)
            else:
                kind, moved, rows = step_work(ran)
                if kind:
                    memory[kind][ran.operator, ran.kernel[:60], moved, rows].append(ran.us)
    m, n, k = np.array([key[1:] for key in gemms], float).T
    median = [np.median(v) for v in gemms.values()]
    return (
        gemm_table(m, n, k, np.ones(len(m)), np.array(median)),
        {way: step_attention(cases) for way, cases in attention.items()},
        {
            kind: memory_table(
                [key[2] for key in cases], [key[3] for key in cases],
                [np.median(v) for v in cases.values()],
            )
            for kind, cases in memory.items()
        },
    )  # fmt: skip


def step_attention(cases: Mapping[tuple, Mapping[str, list[float]]]) -> Table:
    """One call may be several kernels: their times together."""
    b, h, s, d = np.array([key[1:] for key in cases], float).T
    time_us = [sum(np.median(v) for v in kernels.values()) for kernels in cases.values()]
    return attention_table(b, h, s, d, h, np.array(time_us))


def step_work(ran: Ran) -> tuple[str, float, float]:
    """Kind, bytes and rows of a kernel, from its operator's sizes."""
    width = {"float": 4.0, "c10::BFloat16": 2.0}
    shape = ran.sizes[0] if ran.sizes and ran.sizes[0] else []
    if not shape:
        return "", 0.0, 0.0
    if ran.operator == "aten::cat":
        return "transpose", 2.0 * 2.0 * sum(float(np.prod(s)) for s in shape), 0.0
    elements, rows = float(np.prod(shape)), float(np.prod(shape[:-1]))
    size = width.get(str(ran.types[0]), 0.0)
    if ran.operator == "aten::copy_" and ran.sizes[1] == shape:
        moved = elements * (size + width.get(str(ran.types[1]), 0.0))
        if ran.types[0] == "float" and ran.types[1] != "float":
            return "upcast", moved, 0.0
        return ("copy" if "vectorized" in ran.kernel else "transpose"), moved, 0.0
    if ran.operator == "aten::sum" and elements > 1e4:
        return "reduction", size * elements, rows
    if "GammaBeta" in ran.kernel:
        return "reduction", 2.0 * size * elements, rows
    if "layer_norm_grad_input" in ran.kernel:
        return "normalisation", 3.0 * size * elements, rows
    if ran.operator == "aten::native_layer_norm":
        return "normalisation", 2.0 * size * elements, rows
    if ran.operator == "aten::_log_softmax":
        return "softmax", 2.0 * size * elements, rows
    if ran.operator == "aten::_log_softmax_backward_data":
        return "softmax", 3.0 * size * elements, rows
    if ran.operator in ("aten::gelu", "aten::gelu_backward") and elements > 1e4:
        return "activation", (2.0 if ran.operator == "aten::gelu" else 3.0) * size * elements, 0.0
    if ran.operator in ("aten::add", "aten::add_") and ran.sizes[1] == shape:
        return "elementwise", 3.0 * size * elements, 0.0
    if ran.operator == "aten::gather" and "gather" in ran.kernel:
        return "embedding", 4.0 * float(np.prod(ran.sizes[2])), 0.0
    return "", 0.0, 0.0


def read_nccl(folder: str) -> dict[str, Table]:
    rows = pd.read_parquet(DATA / "public/aiconfigurator/data" / folder / "nccl_perf.parquet")
    # Sizes are elements of a type; half precision is what gradients and activations are.
    rows = rows[rows.nccl_dtype == "half"]
    return {
        kind: collective_table(part.message_size * 2.0, part.num_gpus, part.latency * 1e3)
        for op, kind in NCCL_KINDS.items()
        for part in [rows[rows.op_name == op]]
    }


def read_lookup(gpu: str) -> Table:
    """All-reduces of 1 MB to 1 GB on 2 to 8 GPUs; thinned out evenly on a logarithmic scale."""
    parts = []
    picks = np.unique(np.geomspace(1, 1024, 40).astype(int)) - 1
    for path in sorted((DATA / "public/vtrain/trace" / gpu).glob("AR_GPU*_LUT.gz")):
        ranks = int(re.search(r"GPU(\d)", path.name).group(1))
        with gzip.open(path, "rt") as file:
            rows = pd.read_csv(file).iloc[picks]
        parts.append((rows["size(B)"], np.full(len(rows), ranks), rows["time(ns)"] / 1e3))
    return collective_table(*(np.concatenate(column) for column in zip(*parts)))


def read_gloo() -> Table:
    """All-reduces of gradients between two CPU ranks, the median of many."""
    found: dict[float, list[float]] = defaultdict(list)
    for path in sorted((DATA / "ranks/dp2-pp2-l8-h512-m8").glob("rank*.json.gz")):
        trace = read_kineto(path)
        for i in np.flatnonzero(trace.name == trace.names.index("gloo:all_reduce")):
            sizes = json.loads(trace.shapes[trace.shape[i]].split("\t")[0])
            found[4.0 * float(np.prod(sizes[0]))].append(trace.duration_ns[i] / 1e3)
    sizes, medians = list(found), [np.median(v) for v in found.values()]
    return collective_table(sizes, np.full(len(sizes), 2), medians)


def collective_table(*columns: pd.Series | Array | Sequence[float]) -> Table:
    size, ranks, time_us = (np.asarray(c, float) for c in columns)
    return Table({"bytes": size, "ranks": ranks}, time_us)
