"""Steps predicted from a configuration alone, beside public measurements of others.

usage: training_predict_public.py [vtrain] [neusight] [simumax] [lumos] [own] [--json] [--fit]

Data are looked for in $GNOMON_DATA, or in ../shared/data. Every table is printed with the mean of
the absolute errors, the case that is worst and why, the share of cases inside the predicted 80 %
range, and the figure that the table's own authors report for their tool.

- vtrain: 1,440 single-node rows (A100, tp, dp and pp to 8, 8 and 4). Four constants of how that
  table was made (time between kernels, the host's time a launch, and both for a collective) are
  told from a seeded tenth of the rows; the others are the exam. Where `ground_truth_multi.csv`
  (or .csv.gz) lies beside the table, its rows are examined too, with no constant told from them.
- neusight: eleven 4-GPU steps (A100-40GB, H100), float, Megatron through Accelerate.
- simumax: 43 steps on eight B200, with the memory that was allocated.
- lumos: nine layouts of a 15B model on H100; totals only, and no constant told from them. Once
  from sizes alone, and once from a trace of one GPU that `synthetic_trace.py` writes.
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
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from synthetic_trace import write_trace

from gnomon.errors import InputError
from gnomon.model.accelerator.collective_time import CollectiveTimes
from gnomon.model.accelerator.kernel_time import KernelTimes
from gnomon.sim.sample import sample_ends
from gnomon.systems.training.prediction.analytic.operators import build_program
from gnomon.systems.training.prediction.analytic.style import (
    MEGATRON,
    MEGATRON_2022,
    TORCH,
    TRANSFORMERS_FP32,
    Style,
)
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.layout.assemble import Assembled, assemble
from gnomon.systems.training.prediction.memory import least_recompute, stage_memory
from gnomon.systems.training.prediction.predict import predict as predict_from
from gnomon.systems.training.prediction.source import Recorded, read_recorded

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
    """Cases of one source, and what its authors report for their own tool.

    Attributes:
        key: What its figures' names begin with in `measure`.
        main: Its figures stand for the exam: they are also named without the key.
    """

    title: str
    cases: list[Case]
    theirs: str
    groups: tuple[str, ...] = ()
    why: str = ""
    key: str = ""
    main: bool = False

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

    def percentages(self) -> dict[str, Any]:
        """The same in percent and without signs, named as `measure` names them."""
        figures = self.figures()
        names = ("mean", "median", "p90", "worst", "inside", "memory_mean", "memory_worst")
        errors = {f"{name}_pct": 100.0 * abs(figures[name]) for name in names if name in figures}
        errors |= {"cases": figures["cases"], "worst_case": figures["worst_case"]}
        prefixes = [f"{self.key}_"] if self.key else []
        prefixes += [""] if self.main else []
        return {prefix + name: value for prefix in prefixes for name, value in errors.items()}


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


#: Sizes of a row by the names of its columns.
_VTRAIN_COLUMNS = {
    "layers": "# layers", "hidden": "hidden size", "heads": "attention heads",
    "seq": "sequence length", "batch": "micro batch", "tp": "tensor parallelism",
    "dp": "data parallelism", "pp": "pipeline parallelism", "whole": "global batch",
    "ms": "iteration time (ms)",
}  # fmt: skip


def vtrain_rows() -> list[tuple[Configuration, float]]:
    return _read_vtrain(data_folder() / "vtrain" / "ground_truth_single.csv.gz")


def _read_vtrain(path: Path, **more: Any) -> list[tuple[Configuration, float]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig") as file:
        rows = [{k.strip().lower(): v for k, v in row.items()} for row in csv.DictReader(file)]
    missing = [name for name in _VTRAIN_COLUMNS.values() if rows and name not in rows[0]]
    if missing:
        raise InputError(f"no column {', '.join(missing)}", where=str(path))
    return [_vtrain_row(row, more) for row in rows]


def _vtrain_row(row: dict[str, str], more: dict[str, Any]) -> tuple[Configuration, float]:
    value = {name: float(row[column]) for name, column in _VTRAIN_COLUMNS.items()}
    ms, whole = value.pop("ms"), value.pop("whole")
    sizes: dict[str, Any] = {name: int(size) for name, size in value.items()}
    sizes["accumulation"] = int(whole) // sizes["dp"] // sizes["batch"]
    return Configuration(**sizes, vocab=50257, gpu="A100", dtype="fp16", **more), ms


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
        Table("vTrain single node, rows not used", unused, theirs, key="unused"),
        Table("vTrain single node, all rows", cases, theirs, groups, why, key="all", main=True),
        *vtrain_multi(),
    ]


def vtrain_multi() -> Iterator[Table]:
    """The table of several nodes, where it lies beside the other.

    Its rows are of whole trainings, so the style is Megatron's of the time as it is: nothing is
    told from them. Eight GPUs of a node share four adapters.
    """
    folder = data_folder() / "vtrain"
    for name in ("ground_truth_multi.csv", "ground_truth_multi.csv.gz"):
        if not (folder / name).is_file():
            continue
        rows = _read_vtrain(folder / name, network="ib-hdr-4")
        cases = [_case(_name(c), c, ms, _fitting(c, MEGATRON_2022)) for c, ms in rows]
        theirs = "vTrain reports 14.73 %"
        yield Table("vTrain multi node", cases, theirs, ("tp", "dp", "pp", "hidden"), key="multi")
        return


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
    """A GPU's kernel times, its GEMMs put right by those of a single-GPU run of the same GPU.

    What the model leaves (no float GEMMs of an H100 were measured for it) grows as GEMMs
    get small: a line over the logarithm of the work, fitted on the run's GEMMs.
    """

    def __init__(self, kernels: KernelTimes, gemms: np.ndarray) -> None:
        self._kernels = kernels
        m, n, k, batch, us = gemms.T
        left = np.log(us / kernels.gemm_us(m, n, k, batch, "fp32"))
        work = np.log(m * n * k * batch)
        self._slope, self._start = np.polyfit(work, left, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def gemm_us(self, m: Any, n: Any, k: Any, batch: Any = 1, dtype: str = "fp32") -> Any:
        left = self._start + self._slope * np.log(m * n * k * batch)
        return np.exp(np.maximum(left, 0.0)) * self._kernels.gemm_us(m, n, k, batch, dtype)


def label_gemms(gpu: str = "H100_80GB_HBM3") -> np.ndarray:
    """Forward GEMMs of the single-GPU runs: m, n, k, batch and microseconds."""
    rows: set[tuple[float, ...]] = set()
    with tarfile.open(data_folder() / "neusight" / "labels_h100_a100.tar.gz") as archive:
        for member in archive.getmembers():
            if not re.search(rf"{gpu}/gpt\w+-train-\d+-\d+.csv", member.name):
                continue
            file = archive.extractfile(member)
            assert file is not None
            for row in csv.DictReader(io.TextIOWrapper(file)):
                rows.update(_label_gemm(row))
    return np.array(sorted(rows))


def _label_gemm(row: dict[str, str]) -> Iterator[tuple[float, ...]]:
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
    labelled = LabelledKernels(_kernels("H100"), label_gemms())
    for found, ms in _labels(_NEUSIGHT_FOUR):
        c = _neusight_configuration(*found.groups())
        kernels = labelled if labels and c.gpu == "H100" else None
        trace = ", GEMMs from labels" if kernels else ", no trace"
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
    labelled = LabelledKernels(_kernels("H100"), label_gemms())
    cases = []
    for found, ms in _labels(_NEUSIGHT_ONE):
        c = _neusight_configuration(*found.groups())
        name = " ".join(found.groups()[1:]) + ", GEMMs from labels"
        # OPT has a ReLU: one operator.
        style = NEUSIGHT_ONE.changed(written_out_gelu=not found[2].startswith("opt"))
        cases.append(_case(name, c, ms, style, kernels=labelled))
    return cases


def run_neusight(_: bool) -> list[Table]:
    theirs = "NeuSight reports 7.7 % on these"
    why = (
        "the line that puts GEMMs right goes too far for the smallest ones, those of one "
        "sequence a GPU; without it the same case is short"
    )
    return [
        Table("NeuSight 4 GPUs", neusight(), theirs, ("way",), why, main=True),
        Table("NeuSight 4 GPUs, no labels used", neusight(labels=False), theirs, key="no_labels"),
        Table(
            "NeuSight 1 GPU (H100)",
            neusight_one_gpu(),
            "not among its own figures",
            key="one_gpu",
        ),
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


#: A B200's fused attention against the model, and that with heads whose values are narrower (latent).
_B200_ATTENTION = (1.2, 1.5)


class MeasuredAttention:
    """A GPU's kernel times with what others measured of its attention."""

    def __init__(self, kernels: KernelTimes) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

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


def _b200() -> MeasuredAttention:
    return MeasuredAttention(_kernels("B200"))


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
        model = next(model for model in _SIMUMAX_MODELS if row["case"].startswith(model))
        group = {"model": model, "cp": c.cp, "used": bool(chosen[i])}
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
        "the wait for routing is one constant, fitted to layers of 40 experts a rank; with 20 it "
        "is shorter"
    )
    return [
        Table("SimuMax 8 x B200, rows not used", unused, theirs, key="unused"),
        Table(
            "SimuMax 8 x B200, all rows",
            cases,
            theirs,
            ("model", "tp", "pp", "cp"),
            why,
            main=True,
        ),
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


_LUMOS_15B = Configuration(
    layers=48, hidden=6144, ffn=12288, heads=48, seq=2048, batch=1, vocab=51200, gpu="H100"
)


def _lumos_targets() -> Iterator[tuple[str, dict[str, Any], float]]:
    """Name, settings and measured ms of each."""
    for (tp, pp, dp), (measured, theirs) in _LUMOS.items():
        settings = {"tp": tp, "pp": pp, "dp": dp, "accumulation": tp * pp, "network": "roce-400"}
        yield f"15B {tp}x{pp}x{dp} (Lumos {theirs / measured - 1:+.1%})", settings, measured


def lumos(style: Style = LUMOS) -> list[Case]:
    return [
        _case(f"{name}, model only", _LUMOS_15B.changed(settings), measured, style)
        for name, settings, measured in _lumos_targets()
    ]


def lumos_from_trace() -> list[Case]:
    """The same from a trace of one GPU, written from the models and read back.

    No such trace could be recorded (the model does not fit one GPU); it shows that layouts follow
    from one, not how fast an H100 is.
    """
    source = _synthetic(_LUMOS_15B)
    cases = []
    for name, settings, measured in _lumos_targets():
        step = predict_from(source, settings, explain=False).step
        sizes = {key: settings[key] for key in ("pp", "dp")}
        cases.append(Case(name, measured, step.mid, step.low, step.high, sizes))
    return cases


def _synthetic(c: Configuration) -> Recorded:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        write_trace(path, c)
        source, _ = read_recorded(path)
    if source.base != c:
        raise InputError(f"the trace of {c.short()} was read as {source.base.short()}")
    return source


def run_lumos(_: bool) -> list[Table]:
    theirs = "Lumos reports 3.7 % from a trace"
    why = (
        "three rows of it expose 820 to 930 ms of communication that smaller or larger jobs of "
        "the same work do not (2x8x4 takes 1446 ms, 2x8x8 1010): its network, not its sizes"
    )
    tables = []
    for title, cases, key, scaled_key in (
        ("no trace", lumos(), "model_only", "scaled"),
        ("model-only: from a synthetic trace", lumos_from_trace(), "trace", "trace_scaled"),
    ):
        scale = cases[0].measured_ms / cases[0].predicted_ms
        others = [_scaled(case, scale) for case in cases[1:]]
        scaled = f"the same ({title}) as if 2x2x8 had been met"
        main = key == "model_only"
        tables += [
            Table(f"Lumos 15B on H100, {title}", cases, theirs, why=why, key=key, main=main),
            Table(scaled, others, theirs, ("pp", "dp"), why, key=scaled_key),
        ]
    return tables


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
    return [Table("one H200, our recordings", cases, "no other's figure", why=why, main=True)]


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


def measure(parts: list[str]) -> dict[str, dict[str, Any]]:
    """The figures of some exams, in percent: `mean_pct`, `unused_mean_pct`, `worst_pct` ..."""
    return {part: _merged(_EXAMS[part](False)) for part in parts}


def _merged(tables: Iterable[Table]) -> dict[str, Any]:
    return {name: value for table in tables for name, value in table.percentages().items()}


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
