"""Steps predicted from a configuration alone, beside public measurements of others.

usage: training_predict_public.py [vtrain] [neusight] [simumax] [lumos] [own] [--json] [--fit]

Data are looked for in $GNOMON_DATA, or in ../shared/data. Every table is printed with the mean of
the absolute errors, the case that is worst and why, the share of cases inside the predicted 80 %
range, and the figure that the table's own authors report for their tool.

- vtrain: 1,440 single-node rows (A100, tp, dp and pp to 8, 8 and 4). Four constants of how that
  table was made (time between kernels, the host's time a launch, and both for a collective) are
  told from a seeded tenth of the rows; the others are the exam.
- neusight: eleven 4-GPU steps (A100-40GB, H100), float, Megatron through Accelerate.
- simumax: 43 steps on eight B200, with the memory that was allocated.
- lumos: nine layouts of a 15B model on H100; totals only, and no constant told from them.
- own: five steps of one H200 with their peak of memory, from our own recordings' `meta.json`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import re
import sys
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gnomon.model.collective_time import CollectiveTimes
from gnomon.model.kernel_time import KernelTimes
from gnomon.sim.sample import sample_ends
from gnomon.systems.training.prediction.assemble import Assembled, assemble
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.memory import least_recompute, stage_memory
from gnomon.systems.training.prediction.operators import (
    MEGATRON,
    MEGATRON_2022,
    TORCH,
    TRANSFORMERS_FP32,
    Style,
    build_program,
)

_GIB = 2.0**30
_SAMPLES = 200
#: Longer tables are summed up.
_SHOWN = 50


class Case(msgspec.Struct):
    """One measured step and what was predicted for it."""

    name: str
    measured_ms: float
    predicted_ms: float
    low_ms: float
    high_ms: float
    group: dict[str, Any]
    measured_gib: float = 0.0
    predicted_gib: float = 0.0

    @property
    def error(self) -> float:
        return self.predicted_ms / self.measured_ms - 1.0

    @property
    def inside(self) -> bool:
        return self.low_ms <= self.measured_ms <= self.high_ms


class Table(msgspec.Struct):
    """Cases of one source, and what its authors report for their own tool."""

    title: str
    cases: list[Case]
    theirs: str
    groups: tuple[str, ...] = ()
    why: str = ""

    @property
    def worst(self) -> Case:
        return max(self.cases, key=lambda case: abs(case.error))

    def figures(self) -> dict[str, Any]:
        """What is claimed: shares, not percent."""
        errors = np.array([case.error for case in self.cases])
        found: dict[str, Any] = {
            "cases": len(self.cases),
            "mean": float(np.abs(errors).mean()),
            "median": float(np.median(np.abs(errors))),
            "bias": float(errors.mean()),
            "p90": float(np.quantile(np.abs(errors), 0.9)),
            "worst": self.worst.error,
            "worst_case": self.worst.name,
            "inside": float(np.mean([case.inside for case in self.cases])),
        }
        sized = [case for case in self.cases if case.measured_gib]
        if sized:
            off = np.abs([case.predicted_gib / case.measured_gib - 1.0 for case in sized])
            found |= {"memory_mean": float(off.mean()), "memory_worst": float(off.max())}
        return found


def data_folder() -> Path:
    """Where the public tables are."""
    named = os.environ.get("GNOMON_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        sys.exit(f"no data in {folder}; set GNOMON_DATA")
    return folder / "public"


@cache
def _kernels(gpu: str) -> KernelTimes:
    return KernelTimes.of(gpu)


@cache
def _collectives(gpu: str, network: str) -> CollectiveTimes:
    return CollectiveTimes.of(gpu, network or None)


def predict(c: Configuration, style: Style, kernels: Any = None) -> tuple[float, float, float]:
    """The step in ms, and the ends of the range that holds it with 80 %."""
    collectives = _collectives(c.gpu, c.network)
    program = build_program(c, kernels or _kernels(c.gpu), collectives, style)
    step = assemble(
        program,
        collectives,
        fine=False,
        steps=2,
        blocking_sends=style.blocking_pipeline,
        node_gpus=_kernels(c.gpu).gpu.node_gpus,
    )
    low, high = np.quantile(_samples_ms(step, style), (0.1, 0.9))
    return step.step_ms, float(low), float(high)


def _samples_ms(step: Assembled, style: Style) -> np.ndarray:
    """Steps with every group of pieces wrong by a factor of its own, and all by the style's."""
    rng = np.random.default_rng(1)
    ends = sample_ends(step.graph, step.spread_group, step.spread, step.step, _SAMPLES, rng)
    last = ends[:, -1] - (ends[:, -2] if step.steps > 1 else 0)
    return last / 1e6 * np.exp(style.spread * rng.standard_normal(_SAMPLES))


# --- vTrain --------------------------------------------------------------------------------------

#: How vTrain's single-node table was made, as far as it shows: half precision, separate attention
#: kernels, no recomputation, a vocabulary without padding, the loss in half precision, reductions
#: after the backward pass, no clipping. What is recomputed is as little as fits 80 GiB, which
#: here is nothing. Pauses and the host's times are told from a tenth of the rows (`--fit`).
VTRAIN = MEGATRON_2022.changed(
    name="vtrain", clip=False, loss_scale=False, loss="eager", loss_bytes=2, padded_vocab=False,
    pause_us=17.0, pause_collective_us=171.1, host_us=67.5, host_collective_us=61.9, spread=0.06,
)  # fmt: skip


def vtrain_rows() -> list[tuple[Configuration, float]]:
    with gzip.open(data_folder() / "vtrain" / "ground_truth_single.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    return [(_vtrain_configuration([int(v) for v in row[:10]]), float(row[10])) for row in rows]


def _vtrain_configuration(row: list[int]) -> Configuration:
    _, whole, micro, hidden, heads, layers, seq, tp, dp, pp = row
    return Configuration(
        layers=layers, hidden=hidden, heads=heads, seq=seq, batch=micro, vocab=50257,
        accumulation=whole // dp // micro, tp=tp, dp=dp, pp=pp, gpu="A100", dtype="fp16",
    )  # fmt: skip


def vtrain(style: Style = VTRAIN) -> list[Case]:
    rows = vtrain_rows()
    chosen = _tenth(len(rows))
    return [
        _case(_name(c), c, ms, _fitting(c, style), used=bool(chosen[i]))
        for i, (c, ms) in enumerate(rows)
    ]


def _fitting(c: Configuration, style: Style) -> Style:
    return least_recompute(c, style, _kernels(c.gpu).gpu.memory_gib * _GIB)


def _tenth(number: int) -> np.ndarray:
    chosen = np.zeros(number, bool)
    chosen[np.random.default_rng(10).permutation(number)[: number // 10]] = True
    return chosen


def _name(c: Configuration) -> str:
    return f"h{c.hidden} l{c.layers} mb{c.batch} m{c.accumulation} tp{c.tp} dp{c.dp} pp{c.pp}"


def _case(
    name: str, c: Configuration, ms: float, style: Style, *, kernels: Any = None, **group: Any
) -> Case:
    sizes = {k: getattr(c, k) for k in ("hidden", "batch", "tp", "dp", "pp", "accumulation")}
    return Case(name, ms, *predict(c, style, kernels), sizes | group)


def run_vtrain(refit: bool) -> list[Table]:
    cases = vtrain(fit_vtrain() if refit else VTRAIN)
    unused = [case for case in cases if not case.group["used"]]
    theirs = "vTrain reports 8.37 %"
    groups = ("tp", "dp", "pp", "hidden", "batch", "accumulation")
    why = (
        "at hidden 2048 and tp 4 the table's layer takes less with two sequences than with one, "
        "and at tp 8 most with one: noise of the profiles that its rows are made of. Rows of one "
        f"profile are sums of the same numbers to {_additive_ns():.0f} ns"
    )
    return [
        Table("vTrain single node, rows not used", unused, theirs),
        Table("vTrain single node, all rows", cases, theirs, groups, why),
    ]


def _additive_ns() -> float:
    """How far rows of tp 8, hidden 1024 and micro-batch 1 are from a + b l + m (c + d l)."""
    rows = [(c, ms) for c, ms in vtrain_rows() if (c.tp, c.hidden, c.batch) == (8, 1024, 1)]
    sizes = np.array([[1, c.layers, c.accumulation, c.layers * c.accumulation] for c, _ in rows])
    measured = np.array([ms for _, ms in rows])
    weights = np.linalg.lstsq(sizes, measured, rcond=None)[0]
    return float(np.abs(sizes @ weights - measured).max() * 1e6)


def fit(
    rows: list[tuple[Configuration, float]],
    style: Style,
    names: Iterable[str],
    kernels: Any = None,
) -> Style:
    """A style's constants by going up and down each in turn while the mean error falls."""
    best = _mean_error(rows, style, kernels)
    for factor in (3.0, 1.5, 1.2, 3.0, 1.5, 1.2, 1.1):
        for name in names:
            for step in (factor, 1 / factor):
                while True:
                    other = style.changed(**{name: getattr(style, name) * step})
                    error = _mean_error(rows, other, kernels)
                    if error >= best:
                        break
                    style, best = other, error
    values = {name: round(getattr(style, name), 1) for name in names}
    print(f"fitted on {len(rows)} rows: mean {best:.2%}", values)
    return style


def _mean_error(
    rows: Iterable[tuple[Configuration, float]], style: Style, kernels: Any = None
) -> float:
    return float(np.mean([abs(predict(c, style, kernels)[0] / ms - 1.0) for c, ms in rows]))


def fit_vtrain() -> Style:
    rows = vtrain_rows()
    some = [rows[i] for i in np.flatnonzero(_tenth(len(rows)))]
    names = ("pause_us", "host_us", "pause_collective_us", "host_collective_us")
    start = {name: getattr(MEGATRON_2022, name) for name in names}
    return fit(some, VTRAIN.changed(recompute="none", **start), names)


# --- NeuSight ------------------------------------------------------------------------------------

#: Megatron-LM core 0.5 through Accelerate, `mixed_precision: no`: float without TF32, so the
#: fused softmax (half precision only) is not used; the step of the optimiser is in the time.
NEUSIGHT = MEGATRON_2022.changed(
    name="neusight", recompute="none", loss_scale=False, fused_softmax=False,
    gradient_bytes=4.0, state_bytes=8.0, pause_us=1.0, pause_collective_us=5.0, host_us=10.0,
    host_collective_us=15.0, spread=0.02,
)  # fmt: skip
_NEUSIGHT_MODELS: dict[str, dict[str, Any]] = {
    "gpt2_large": {"layers": 36, "hidden": 1280, "heads": 20},
    "gpt3_xl": {"layers": 24, "hidden": 3072, "heads": 24},
    "gpt3_27": {"layers": 32, "hidden": 2560, "heads": 32},
    "opt_13": {"layers": 24, "hidden": 2048, "heads": 32, "vocab": 50272},
}


_NEUSIGHT_FOUR = r"NVIDIA_(.*)/(\w+)-train-(\d+)-(\d+)-(dp|tp|pp)4(?:_1)?.json"


class LabelledKernels:
    """A GPU's kernel times, its products put right by those of a single-GPU run of the same GPU.

    What the model leaves (no float products of an H100 were measured for it) grows as products
    get small: a line over the logarithm of the work, fitted on the run's products.
    """

    def __init__(self, kernels: KernelTimes, products: np.ndarray) -> None:
        self._kernels = kernels
        m, n, k, batch, us = products.T
        left = np.log(us / kernels.product_us(m, n, k, batch, "fp32"))
        work = np.log(m * n * k * batch)
        self._slope, self._start = np.polyfit(work, left, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def product_us(self, m: Any, n: Any, k: Any, batch: Any = 1, dtype: str = "fp32") -> Any:
        left = self._start + self._slope * np.log(m * n * k * batch)
        return np.exp(np.maximum(left, 0.0)) * self._kernels.product_us(m, n, k, batch, dtype)


def label_products(gpu: str = "H100_80GB_HBM3") -> np.ndarray:
    """Forward products of the single-GPU runs: m, n, k, batch and microseconds."""
    rows: set[tuple[float, ...]] = set()
    with tarfile.open(data_folder() / "neusight" / "labels_h100_a100.tar.gz") as archive:
        for member in archive.getmembers():
            if not re.search(rf"{gpu}/gpt\w+-train-\d+-\d+.csv", member.name):
                continue
            file = archive.extractfile(member)
            assert file is not None
            for row in csv.DictReader(io.TextIOWrapper(file)):
                rows.update(_label_product(row))
    return np.array(sorted(rows))


def _label_product(row: dict[str, str]) -> Iterator[tuple[float, ...]]:
    name, us = row["Name"], 1e3 * float(row["fw_latency"])
    shapes = [
        [int(v) for v in re.findall(r"\d+", s)]
        for s in re.findall(r"\[[\d, ]+\]", row["input_shapes"])
    ]
    if name.startswith("addmm"):
        yield shapes[1][0], shapes[2][1], shapes[1][1], 1, us
    elif name.startswith("matmul"):
        yield shapes[0][2], shapes[1][3], shapes[0][3], shapes[0][0] * shapes[0][1], us


def _labels(pattern: str) -> Iterator[tuple[re.Match[str], float]]:
    """Whole steps of NeuSight's labels whose name is like this, and their ms."""
    with tarfile.open(data_folder() / "neusight" / "labels_h100_a100.tar.gz") as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if found := re.search(pattern, member.name):
                label = archive.extractfile(member)
                assert label is not None
                yield found, json.load(label)["e2e_latency"]


def neusight(style: Style = NEUSIGHT, *, labels: bool = True) -> list[Case]:
    cases = []
    labelled = LabelledKernels(_kernels("H100"), label_products())
    for found, ms in _labels(_NEUSIGHT_FOUR):
        c = _neusight_configuration(*found.groups())
        kernels = labelled if labels and c.gpu == "H100" else None
        trace = ", products from labels" if kernels else ", no trace"
        name = " ".join(found.groups()) + "4" + trace
        cases.append(_case(name, c, ms, style, kernels=kernels, way=found[5]))
    return cases


def _neusight_configuration(
    gpu: str, model: str, seq: str, whole: str, way: str = ""
) -> Configuration:
    # The batch is one micro-batch: a pipeline of it has no two stages at work at once.
    batch = int(whole) // (4 if way == "dp" else 1)
    sizes: dict[str, Any] = {"vocab": 50257} | _NEUSIGHT_MODELS[model]
    if way:
        sizes[way] = 4
    machine = "A100-40GB" if gpu.startswith("A100") else "H100"
    return Configuration(**sizes, seq=int(seq), batch=batch, dtype="fp32", gpu=machine)


#: Single-GPU steps of the same table: Hugging Face models in eager mode, optimiser not timed.
NEUSIGHT_ONE = TRANSFORMERS_FP32.changed(optimizer_in_step=False, host_us=10.0)
_NEUSIGHT_ONE = r"NVIDIA_(H100\w+)/(gpt2_large|gpt3_xl|gpt3_27|opt_13)-train-(\d+)-(\d+).json"


def neusight_one_gpu() -> list[Case]:
    labelled = LabelledKernels(_kernels("H100"), label_products())
    cases = []
    for found, ms in _labels(_NEUSIGHT_ONE):
        c = _neusight_configuration(*found.groups())
        name = " ".join(found.groups()[1:]) + ", products from labels"
        # OPT has a ReLU: one operator.
        style = NEUSIGHT_ONE.changed(written_out_gelu=not found[2].startswith("opt"))
        cases.append(_case(name, c, ms, style, kernels=labelled))
    return cases


def run_neusight(_: bool) -> list[Table]:
    theirs = "NeuSight reports 7.7 % on these"
    why = (
        "the line that puts products right goes too far for the smallest ones, those of one "
        "sequence a GPU; without it the same case is short"
    )
    return [
        Table("NeuSight 4 GPUs", neusight(), theirs, ("way",), why),
        Table("NeuSight 4 GPUs, no labels used", neusight(labels=False), theirs),
        Table("NeuSight 1 GPU (H100)", neusight_one_gpu(), "not among its own figures"),
    ]


# --- SimuMax -------------------------------------------------------------------------------------

#: Megatron-core with Transformer Engine, as the table's launch scripts set it: no recomputation,
#: no overlap of communication, a distributed optimiser, float gradients, fused cross entropy. The
#: pauses are told from one row of each of the four models (`--fit`).
SIMUMAX = MEGATRON.changed(name="simumax", pause_us=13.6, spread=0.02)
_SIMUMAX_MODELS: dict[str, dict[str, Any]] = {
    "llama3_70b": {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256},
    "llama3_405b": {"hidden": 16384, "heads": 128, "kv_heads": 16, "ffn": 53248, "vocab": 128256},
    "deepseekv2": {
        "hidden": 5120, "ffn": 12288, "experts": 160, "top_k": 6, "expert_ffn": 1536,
        "shared_ffn": 3072, "vocab": 102400,
    },
    "deepseekv3": {
        "hidden": 7168, "ffn": 18432, "experts": 256, "top_k": 8, "expert_ffn": 2048,
        "shared_ffn": 2048, "vocab": 129280,
    },
}  # fmt: skip
_LATENT: dict[str, Any] = {
    "heads": 128, "head_dim": 128, "q_rank": 1536, "kv_rank": 512, "rope_dim": 64, "v_dim": 128,
    "dense_layers": 1,
}  # fmt: skip


#: Share of the peak that products keep up on a B200 in training, where power limits the clock:
#: the median of the 304 products above 0.5 ms that SimuMax publishes with its tool (of 514).
_B200_SUSTAINED = 0.482
#: Its fused attention against the model, and that with heads whose values are narrower (latent).
_B200_ATTENTION = (1.2, 1.5)


class SustainedKernels:
    """A GPU's kernel times with what others measured of its products and attention.

    Products are no faster than its power allows for long.
    """

    def __init__(self, kernels: KernelTimes, share: float) -> None:
        self._kernels = kernels
        self._flops_us = share * kernels.gpu.peak_tflops("bf16") * 1e6

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def product_us(self, m: Any, n: Any, k: Any, batch: Any = 1, dtype: str = "bf16") -> Any:
        model = self._kernels.product_us(m, n, k, batch, dtype)
        return np.maximum(model, 2.0 * m * n * k * batch / self._flops_us)

    def attention_us(self, *sizes: Any, v_dim: Any, **more: Any) -> Any:
        slower = np.where(np.asarray(v_dim) < sizes[-1], *_B200_ATTENTION[::-1])
        return slower * self._kernels.attention_us(*sizes, v_dim=v_dim, **more)


def _simumax_rows() -> list[dict[str, Any]]:
    path = data_folder() / "simumax" / "b200_release_v1.2_summary.json.gz"
    rows: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["rows"]
    return rows


def _one_a_model(rows: list[dict[str, Any]]) -> np.ndarray:
    """One row of each of the four models, drawn with a seed."""
    rng, chosen = np.random.default_rng(10), np.zeros(len(rows), bool)
    for model in _SIMUMAX_MODELS:
        chosen[rng.choice([i for i, r in enumerate(rows) if r["case"].startswith(model)])] = True
    return chosen


def _b200() -> SustainedKernels:
    return SustainedKernels(_kernels("B200"), _B200_SUSTAINED)


def fit_simumax() -> Style:
    rows = _simumax_rows()
    some = [rows[i] for i in np.flatnonzero(_one_a_model(rows))]
    known = [(_simumax_configuration(r["case"], r["mbc"]), r["real_ms"]) for r in some]
    return fit(known, MEGATRON, ("pause_routing_us", "host_us", "pause_us"), _b200())


def simumax(style: Style = SIMUMAX) -> list[Case]:
    rows, kernels = _simumax_rows(), _b200()
    chosen = _one_a_model(rows)
    cases = []
    for i, row in enumerate(rows):
        c = _simumax_configuration(row["case"], row["mbc"])
        group = {"model": row["case"].split("_l")[0][:11], "cp": c.cp, "used": bool(chosen[i])}
        case = _case(row["case"], c, row["real_ms"], style, kernels=kernels, **group)
        case.measured_gib = row["real_alloc_gib"]
        case.predicted_gib = stage_memory(c, style).total / _GIB
        cases.append(case)
    return cases


def _simumax_configuration(name: str, micro_batches: int) -> Configuration:
    model = next(model for model in _SIMUMAX_MODELS if name.startswith(model))

    def number(key: str, default: int = 1) -> int:
        found = re.search(rf"_{key}(\d+)", name)
        return int(found[1]) if found else default

    sizes = _SIMUMAX_MODELS[model] | (_LATENT if "deepseek" in model else {})
    layout = {key: number(key) for key in ("tp", "pp", "dp", "cp", "ep")}
    return Configuration(
        **(sizes | layout), layers=number("l"), seq=number("seq", 4096), batch=1, gated=True,
        accumulation=micro_batches, gpu="B200",
    )  # fmt: skip


def run_simumax(refit: bool) -> list[Table]:
    cases = simumax(fit_simumax() if refit else SIMUMAX)
    unused = [case for case in cases if not case.group["used"]]
    theirs = "SimuMax reports 5.6 % of the step, 0.46 % of the memory"
    why = (
        "the wait for routing is one constant, told from layers of 40 experts a rank; with 20 it "
        "is shorter"
    )
    return [
        Table("SimuMax 8 x B200, rows not used", unused, theirs),
        Table("SimuMax 8 x B200, all rows", cases, theirs, ("model", "tp", "pp", "cp"), why),
    ]


# --- Lumos ---------------------------------------------------------------------------------------

#: MLPerf's GPT-3 as NVIDIA runs it; as many micro-batches of one sequence as tp times pp, as the
#: paper's schedule has it.
LUMOS = MEGATRON.changed(
    name="lumos", bias=True, rms_norm=False, rotary=False, dropout=True, tied_head=True,
    overlap_gradients=True, overlap_tensor=True, spread=0.15,
)  # fmt: skip
#: tp x pp x dp: measured and predicted by Lumos from a trace of 2x2x4, ms (its figure 7).
_LUMOS = {
    (2, 2, 8): (797, 802), (2, 2, 16): (813, 838), (2, 2, 32): (864, 879),
    (2, 4, 4): (872, 913), (2, 8, 4): (1446, 1552), (2, 16, 4): (1785, 1838),
    (2, 4, 8): (888, 913), (2, 8, 8): (1010, 1095), (2, 4, 16): (1336, 1316),
}  # fmt: skip


def lumos(style: Style = LUMOS) -> list[Case]:
    cases = []
    for (tp, pp, dp), (measured, theirs) in _LUMOS.items():
        c = Configuration(
            layers=48, hidden=6144, ffn=12288, heads=48, seq=2048, batch=1, vocab=51200,
            tp=tp, pp=pp, dp=dp, accumulation=tp * pp, gpu="H100", network="roce-400",
        )  # fmt: skip
        name = f"15B {tp}x{pp}x{dp} (Lumos {theirs / measured - 1:+.1%}), model only"
        cases.append(_case(name, c, measured, style))
    return cases


def run_lumos(_: bool) -> list[Table]:
    cases = lumos()
    theirs = "Lumos reports 3.7 % from a trace"
    scale = cases[0].measured_ms / cases[0].predicted_ms
    others = [_scaled(case, scale) for case in cases[1:]]
    why = (
        "three rows of it expose 820 to 930 ms of communication that smaller or larger jobs of "
        "the same work do not (2x8x4 takes 1446 ms, 2x8x8 1010): its network, not its sizes"
    )
    return [
        Table("Lumos 15B on H100, no trace", cases, theirs, why=why),
        Table("the same as if 2x2x8 had been met", others, theirs, ("pp", "dp"), why),
    ]


def _scaled(case: Case, by: float) -> Case:
    low, mid, high = case.low_ms * by, case.predicted_ms * by, case.high_ms * by
    return msgspec.structs.replace(case, low_ms=low, predicted_ms=mid, high_ms=high)


# --- our own recordings --------------------------------------------------------------------------

_OWN: dict[str, dict[str, Any]] = {
    "gpt-base": {"layers": 12, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 4},
    "gpt-l6": {"layers": 6, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 4},
    "gpt-h1024": {"layers": 12, "hidden": 1024, "heads": 8, "seq": 2048, "batch": 4},
    "gpt-b2": {"layers": 12, "hidden": 2048, "heads": 16, "seq": 2048, "batch": 2},
    "gpt-cpubound": {
        "layers": 24, "hidden": 512, "heads": 8, "seq": 128, "batch": 2, "vocab": 8192,
    },
}  # fmt: skip


def own(_: bool) -> list[Table]:
    cases = []
    for name, sizes in _OWN.items():
        meta = json.loads((data_folder().parent / "h200" / name / "meta.json").read_text())
        c = Configuration(**sizes, gpu="H200")
        case = _case(f"{name}, no trace", c, meta["step_ms_median"], TORCH)
        case.measured_gib = meta["peak_bytes"] / _GIB
        case.predicted_gib = stage_memory(c, TORCH).total / _GIB
        cases.append(case)
    why = "kernel models were fitted on this GPU; the host's time on gpt-cpubound itself"
    return [Table("one H200, our recordings", cases, "no other's figure", why=why)]


# --- printing ------------------------------------------------------------------------------------


def show(table: Table) -> None:
    """Print a table's summary, and its rows where they are few."""
    figures = table.figures()
    print(f"\n{table.title}: {len(table.cases)} cases; {table.theirs}")
    if len(table.cases) <= _SHOWN:
        for c in table.cases:
            memory = f"{c.measured_gib:9.2f} {c.predicted_gib:9.2f} GiB" if c.measured_gib else ""
            print(f"  {c.name:48s} {c.measured_ms:10.1f} {c.predicted_ms:10.1f} ms "
                  f"{c.error:+7.1%} [{c.low_ms:.0f}, {c.high_ms:.0f}] {memory}")  # fmt: skip
    print("  " + "  ".join(f"{k} {figures[k]:.2%}" for k in ("mean", "median", "bias", "p90")))
    worst = table.worst
    print(f"  worst {worst.error:+.1%}: {worst.name}, measured {worst.measured_ms:.1f} ms, "
          f"predicted {worst.predicted_ms:.1f} ms")  # fmt: skip
    print(f"  inside the 80 % range: {figures['inside']:.0%}")
    if "memory_mean" in figures:
        print(f"  memory: mean {figures['memory_mean']:.2%}, worst {figures['memory_worst']:.2%}")
    for group in table.groups:
        print(f"  by {group}: " + "  ".join(_by(table.cases, group)))
    if table.why:
        print(f"  why: {table.why}")


def _by(cases: list[Case], group: str) -> Iterator[str]:
    held = defaultdict(list)
    for case in cases:
        held[case.group[group]].append(case.error)
    for value, errors in sorted(held.items()):
        yield f"{value}: {np.mean(np.abs(errors)):.1%} ({np.mean(errors):+.1%})"


_EXAMS: dict[str, Callable[[bool], list[Table]]] = {
    "vtrain": run_vtrain,
    "neusight": run_neusight,
    "simumax": run_simumax,
    "lumos": run_lumos,
    "own": own,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exams", nargs="*", metavar="exam", help=", ".join(_EXAMS))
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead")
    parser.add_argument("--fit", action="store_true", help="tell constants from rows again")
    arguments = parser.parse_args()
    unknown = set(arguments.exams) - set(_EXAMS)
    if unknown:
        parser.error(f"no exam {', '.join(sorted(unknown))}; there are {', '.join(_EXAMS)}")
    found = {name: _EXAMS[name](arguments.fit) for name in arguments.exams or _EXAMS}
    if arguments.json:
        print(
            json.dumps({k: {t.title: t.figures() for t in v} for k, v in found.items()}, indent=1)
        )
        return
    for tables in found.values():
        for table in tables:
            show(table)


if __name__ == "__main__":
    main()
