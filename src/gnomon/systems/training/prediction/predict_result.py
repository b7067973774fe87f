"""The answer of a prediction as a Result: figures, the waterfall, memory, both timelines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.estimate import Estimate
from gnomon.report import BarChart, Bars, Chart, Figure, Manifest, Result, hash_input
from gnomon.report.views import timeline_view
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.predict import Prediction
from gnomon.systems.training.sides import compute_and_communication
from gnomon.table import Table
from gnomon.version import __version__

_GIB = 2**30
#: Settings that are shown even where they are as usual.
_ALWAYS = ("vocab", "accumulation", "dp", "pp", "tp", "dtype")


def to_result(
    prediction: Prediction,
    command: str = "",
    *,
    price_usd_h: float | None = None,
    carbon: Estimate | None = None,
    sources: Sequence[str] = (),
) -> Result:
    """Everything there is to say about a prediction.

    Args:
        prediction: The prediction.
        command: What asked for it.
        price_usd_h: Of one GPU for an hour; the catalogue's unless given.
        carbon: g/kWh.
        sources: The traces that were read.
    """
    p = prediction
    return Result(
        "training",
        "predict",
        f"Predicted training step on {p.target.world} x {p.gpu.name}",
        "How long would the step take in a configuration nobody ran?",
        figures=_figures(p, price_usd_h, carbon),
        tables=[_configurations(p), _waterfall(p), _parts(p), _models(p), _memory(p)],
        charts=[*_waterfall_chart(p), _memory_chart(p)],
        timelines=[
            timeline_view(p.base_line, "Base step, as put together"),
            timeline_view(p.line, "Predicted step"),
        ],
        how=_HOW,
        notes=list(p.notes),
        manifest=Manifest(
            command,
            {"base": msgspec.structs.asdict(p.base), "target": msgspec.structs.asdict(p.target)},
            p.seed,
            __version__,
            [hash_input(source) for source in sources],
        ),
    )


_HOW = [
    "The step is taken apart into **parts that repeat** (a layer forward, a layer backward, the "
    "ends, the optimiser), found by what comes again back to back in the trace; without a trace "
    "they are listed from the configuration (`gnomon.systems.training.prediction`).",
    "A kernel whose sizes do not change **keeps its measured time**. One that changes takes its "
    "measured time times the model's ratio of new to old: the "
    "model's error in level cancels.",
    "Collectives are timed by an **alpha-beta model** of each link, fitted to what the trace "
    "shows where it shows any (`gnomon.model.accelerator.collective_time`).",
    "The parts are **put together** for the layout (1F1B or interleaved pipeline, gradients "
    "beside the backward pass) and replayed; the result is scaled by what the base was measured "
    "to take over what the same machinery makes of it.",
    "The **range** is meant to hold the step in 80 % of cases: errors of one family of kernels "
    "and one model are drawn together and played through the graph.",
]


def to_script(prediction: Prediction) -> dict[str, Any]:
    """The figures that scripts ask for, as plain values."""
    p = prediction
    return {
        "base": msgspec.structs.asdict(p.base),
        "target": msgspec.structs.asdict(p.target),
        "base_ms": round(p.base_ms, 6),
        "predicted_ms": round(p.step.mid, 6),
        "low_ms": round(p.step.low, 6),
        "high_ms": round(p.step.high, 6),
        "memory_gib": round(p.memory.total / _GIB, 6),
        "memory_of_gpu_gib": p.gpu.memory_gib,
        "fits": p.fits,
        "over_gib": round(max(p.over_gib, 0.0), 6),
        "tokens_s": round(p.tokens_s, 3),
        "parameters": round(p.parameters),
        "tflops": round(p.tflops, 3),
        "mfu_pct": round(_mfu_pct(p), 3),
        "breakdown_ms": {name: round(ms, 6) for name, ms in _breakdown(p).items()},
        "waterfall": [msgspec.structs.asdict(row) for row in p.waterfall],
        "models": [
            {"family": family, "model": model, "device_ms": round(ms, 6)}
            for (family, model), ms in p.retimed.items()
        ],
    }


def _figures(p: Prediction, price_usd_h: float | None, carbon: Estimate | None) -> list[Figure]:
    change = 100.0 * (p.step.mid / p.base_ms - 1.0)
    fits = "fits" if p.fits else f"does NOT fit: {p.over_gib:.1f} GiB too many"
    memory = p.memory.total / _GIB
    figures = [
        Figure("predicted_ms", "Step, predicted", p.step, "ms", "lower",
               f"{change:+.1f} % against the base; without the profiler"),
        Figure("base_ms", "Step, base", round(p.base_ms, 4), "ms", "lower"),
        Figure("memory_gib", "Peak memory of a rank", round(memory, 3), "GiB", "lower",
               f"{fits} in the {p.gpu.memory_gib:g} GiB of {p.gpu.name}"),
        Figure("tokens_s", "Tokens per second", round(p.tokens_s, 1), "1/s", "higher",
               f"{p.target.world} GPU{'s' if p.target.world > 1 else ''}"),
    ]  # fmt: skip
    figures.append(
        Figure("mfu_pct", "Model FLOPs utilisation", round(_mfu_pct(p), 2), "%", "higher",
               f"{p.tflops:.0f} TFLOP/s per GPU; {p.parameters / 1e9:.3g} billion parameters")
    )  # fmt: skip
    price = p.gpu.price_usd_h if price_usd_h is None else price_usd_h
    hours = p.step * (p.target.world / 3.6e6)
    tokens = p.target.global_batch * p.target.seq
    if price:
        figures.append(
            Figure("usd_per_million_tokens", "Cost of a million tokens",
                   hours * (price * 1e6 / tokens), "USD", "lower", f"{price:g} USD per GPU-hour")
        )  # fmt: skip
    energy_kwh = hours * (_power_w(p) / 1e3)
    figures.append(
        Figure("kwh_per_million_tokens", "Energy of a million tokens",
               energy_kwh * (1e6 / tokens), "kWh", "lower", "GPUs only, idle + share of peak")
    )  # fmt: skip
    if carbon is not None:
        figures.append(
            Figure("g_per_million_tokens", "Carbon of a million tokens",
                   energy_kwh * carbon * (1e6 / tokens), "g", "lower",
                   f"{carbon.format('g/kWh')}, GPUs only")
        )  # fmt: skip
    return figures


def _mfu_pct(p: Prediction) -> float:
    return 100.0 * p.tflops / p.gpu.peak_tflops(p.target.dtype)


def _power_w(p: Prediction) -> float:
    parts = _breakdown(p)
    computes = parts["exposed_compute"] + parts["overlapped"]
    share = min(computes / p.step.mid, 1.0) if p.step.mid else 0.0
    return p.gpu.idle_w + share * (p.gpu.power_w - p.gpu.idle_w)


def _breakdown(p: Prediction) -> dict[str, float]:
    """Milliseconds of the step by what ranks do, the mean of the pipeline's ranks."""
    sides = compute_and_communication(p.line)

    def exposed(name: str) -> float:
        return float(sides.exposed_ns(name)) if name in sides.classes else 0.0

    ns = {
        "exposed_compute": exposed("compute"),
        "exposed_communication": exposed("communication"),
        "overlapped": float(sides.overlapped_ns),
        "idle": float(sides.idle_ns),
    }
    return {name: value / 1e6 * p.factor for name, value in ns.items()}


def _configurations(p: Prediction) -> Table:
    rows = []
    base, target = msgspec.structs.asdict(p.base), msgspec.structs.asdict(p.target)
    default = Configuration(layers=1, hidden=1, heads=1, seq=1, batch=1)
    for name in base:
        if name not in _ALWAYS and base[name] == target[name] == getattr(default, name):
            continue
        rows.append(
            {"setting": name, "base": str(base[name]), "target": str(target[name]),
             "changed": "yes" if base[name] != target[name] else ""}
        )  # fmt: skip
    return Table.from_rows("Configuration", rows)


def _waterfall(p: Prediction) -> Table:
    rows = [{"change": "base", "what": "", "delta_ms": 0.0, "step_ms": round(p.base_ms, 4)}]
    rows += [
        {"change": w.change, "what": w.what, "delta_ms": round(w.delta_ms, 4),
         "step_ms": round(w.after_ms, 4)}
        for w in p.waterfall
    ]  # fmt: skip
    return Table.from_rows(
        "From base to prediction", rows, units={"delta_ms": "ms", "step_ms": "ms"},
        caption="Each change on top of those before it, replayed.",
    )  # fmt: skip


def _parts(p: Prediction) -> Table:
    names = {
        "exposed_compute": "compute alone",
        "overlapped": "compute and communication",
        "exposed_communication": "communication alone",
        "idle": "neither (pipeline bubbles, host)",
    }
    parts = _breakdown(p)
    rows = [
        {"what": names[key], "time_ms": round(parts[key], 4),
         "share_pct": round(100.0 * parts[key] / p.step.mid, 2) if p.step.mid else 0.0}
        for key in names
    ]  # fmt: skip
    return Table.from_rows("Predicted step", rows, units={"time_ms": "ms", "share_pct": "%"})


def _models(p: Prediction) -> Table:
    rows = [
        {"family": family, "timed_by": model, "device_ms": round(ms, 4)}
        for (family, model), ms in p.retimed.items()
        if ms > 0
    ]
    return Table.from_rows(
        "Kernel time models", rows, units={"device_ms": "ms"} if rows else {},
        caption="Device time of one rank's share of a step, before it is scaled to the base. "
        "measured: as in the trace; table: a model fitted on measurements of this device; "
        "roofline: from its data sheet; alpha-beta: a collective.",
    )  # fmt: skip


def _memory(p: Prediction) -> Table:
    rows = [
        {"what": name, "memory_gib": round(value / _GIB, 4)}
        for name, value in _memory_parts(p).items()
    ]
    return Table.from_rows(
        "Peak memory of the fullest rank", rows, units={"memory_gib": "GiB"},
        caption=f"{p.memory.total / _GIB:.2f} GiB in all; a {p.gpu.name} has "
        f"{p.gpu.memory_gib:g} GiB.",
    )  # fmt: skip


def _memory_parts(p: Prediction) -> dict[str, float]:
    return {
        field.name: float(getattr(p.memory, field.name))
        for field in msgspec.structs.fields(p.memory)
        if isinstance(getattr(p.memory, field.name), float | int) and field.name != "stage"
    }


def _waterfall_chart(p: Prediction) -> list[Chart]:
    if not p.waterfall:
        return []
    names = ["base", *(w.change for w in p.waterfall), "predicted"]
    levels = [p.base_ms, *(w.after_ms for w in p.waterfall)]
    steps = list(itertools.pairwise(levels))
    kept = [p.base_ms, *map(min, steps), p.step.mid]
    added = [0.0, *(max(after - before, 0.0) for before, after in steps), 0.0]
    saved = [0.0, *(max(before - after, 0.0) for before, after in steps), 0.0]
    return [
        BarChart(
            "From base to prediction", names,
            [Bars("step", kept), Bars("added", added), Bars("saved", saved)],
            value_label="step", unit="ms",
            caption=f"Predicted: {p.step.format('ms')}. Numbers beside bars are the longer of "
            "before and after.",
        )
    ]  # fmt: skip


def _memory_chart(p: Prediction) -> Chart:
    parts = {name: value for name, value in _memory_parts(p).items() if value > 0}
    return BarChart(
        "Peak memory of a rank", ["predicted", f"{p.gpu.name} has"],
        [
            *(Bars(name, [value / _GIB, 0.0]) for name, value in parts.items()),
            Bars("capacity", [0.0, p.gpu.memory_gib]),
        ],
        unit="GiB",
    )  # fmt: skip
