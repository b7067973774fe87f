"""Fitting of the models of kernels and collectives: coefficients that make log errors small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from kernel_tables import (
    Array,
    Table,
)

from gnomon.model.accelerator.collective_time import CollectiveModel
from gnomon.model.accelerator.gpu import find_gpu
from gnomon.model.accelerator.kernel_time import AttentionModel, GemmModel, MemoryModel

#: Beyond these a coefficient no longer means what its name says.
LIMITS = {
    "quantum": (0.0, 1.0),
    "rate": (0.05, 1.0),
    "bandwidth": (0.1, 1.0),
    "long_bandwidth": (0.1, 1.0),
    "blend": (1.0, 8.0),
    "hot": (-0.3, 0.3),
    "merge": (0.05, 10.0),
    "prologue_us": (0.05, 20.0),
    "floor_us": (0.5, 20.0),
    "throttle": (0.001, 0.3),
    "throttle_us": (50.0, 3000.0),
    "wide": (0.0, 3.0),
    "event_us": (0.05, 30.0),
    "isolated_us": (2.0, 300.0),
    "row_ns": (1e-4, 50.0),
    "long_row_ns": (1e-4, 50.0),
}


# Fitting: a search along one coefficient at a time, steps that grow while they help.


def fit(
    model: msgspec.Struct,
    names: Sequence[str],
    predict: Callable[[msgspec.Struct], Array],
    measured_us: Array,
    weight: Array | float = 1.0,
    rounds: int = 40,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> msgspec.Struct:
    """Coefficients `names` (`tiles.3` is one of a row) that make log errors small."""
    limits = LIMITS | dict(limits or {})
    logs = np.log(measured_us)

    def loss(candidate: msgspec.Struct) -> float:
        off = np.log(predict(candidate)) - logs
        return float(np.mean(weight * np.abs(off)) + 0.3 * np.sqrt(np.mean(weight * off**2)))

    best, steps = loss(model), dict.fromkeys(names, 0.3)
    for _ in range(rounds):
        before = best
        for name in names:
            for sign in (1.0, -1.0):
                trial = moved(model, name, sign * steps[name], limits)
                value = loss(trial)
                if value < best:
                    model, best = trial, value
                    steps[name] = min(steps[name] * 1.4, 1.0)
                    break
            else:
                steps[name] = max(steps[name] * 0.5, 0.004)
        if before - best < 1e-6 and max(steps.values()) <= 0.01:
            break
    return model


def moved(
    model: msgspec.Struct, name: str, step: float, limits: Mapping[str, tuple[float, float]]
) -> msgspec.Struct:
    field, _, place = name.partition(".")
    if place:
        row = list(getattr(model, field))
        low, high = limits.get(field, (0.3, 1.0))
        row[int(place)] = float(np.clip(row[int(place)] * np.exp(step), low, high))
        return msgspec.structs.replace(model, **{field: tuple(row)})
    low, high = limits.get(field, (1e-6, 1e9))
    value = getattr(model, field)
    grown = value + step * 0.5 if field in ("quantum", "hot") else value * np.exp(step)
    return msgspec.structs.replace(model, **{field: float(np.clip(grown, low, high))})


# Matrix multiplications.

GEMM_START = GemmModel(
    gpu="*", dtype="*", rate=0.85, bandwidth=0.85, floor_us=1.5, prologue_us=1.0, quantum=0.5,
    throttle=0.1, throttle_us=500.0, tiles=(1.0, 0.95, 0.9, 0.8, 0.6, 0.4), merge=0.5, blend=3.0,
    spread=0.15, source="",
)  # fmt: skip
GEMM_FIELDS = (
    "rate", "bandwidth", "floor_us", "prologue_us", "quantum", "throttle", "throttle_us",
    "tiles.1", "tiles.2", "tiles.3", "tiles.4", "tiles.5", "merge", "blend",
)  # fmt: skip


def predict_gemm(model: GemmModel, gpu: str, dtype: str, table: Table) -> Array:
    machine = find_gpu(gpu)
    sizes = table.sizes
    # In pieces: all tiles of a whole table at once would not fit the cache.
    pieces = np.array_split(np.arange(len(table.time_us)), max(1, len(table.time_us) // 2000))
    return np.concatenate(
        [model.device_us(machine, dtype, *(v[i] for v in sizes.values())) for i in pieces]
    )


def trains(table: Table) -> Array:
    """GEMMs of the sizes that training has, rather than decoding."""
    s = table.sizes
    return (s["m"] >= 256) & (s["n"] >= 64) & (s["k"] >= 64)


def fit_gemm(gpu: str, dtype: str, table: Table, source: str, *, lone: bool = False) -> GemmModel:
    """Coefficients for a table; `lone` where each row was measured as a call by itself."""
    rng = np.random.default_rng(0)
    large = trains(table)
    keep = np.concatenate(
        [draw(rng, np.flatnonzero(large), 2400), draw(rng, np.flatnonzero(~large), 600)]
    )
    sample = table.part(keep)
    fields = GEMM_FIELDS

    def predict(candidate: GemmModel) -> Array:
        device_us = predict_gemm(candidate, gpu, dtype, sample)
        return candidate.isolated(device_us) if lone else device_us

    if lone:
        fields = (*(f for f in GEMM_FIELDS if f != "floor_us"), "event_us", "isolated_us")
    models = []
    # From two starting points: whether waves are whole or not is where a search gets stuck.
    for quantum in (0.1, 0.9):
        start = msgspec.structs.replace(
            GEMM_START, gpu=gpu, dtype=dtype, source=source, quantum=quantum
        )
        weight = np.where(trains(sample), 1.0, 0.4)
        models.append(fit(start, fields, predict, sample.time_us, weight))
    off = [np.mean(weight * np.abs(np.log(predict(m) / sample.time_us))) for m in models]
    return models[int(np.argmin(off))]


def draw(rng: np.random.Generator, places: Array, count: int) -> Array:
    return places if len(places) <= count else rng.choice(places, count, replace=False)


def fit_lone_gemm(model: GemmModel, tables: Sequence[Table]) -> GemmModel:
    """What a loop of lone calls adds to the device's times, on an H200."""
    device = [predict_gemm(model, model.gpu, model.dtype, t) for t in tables]
    device_us, measured = np.concatenate(device), np.concatenate([t.time_us for t in tables])
    names = ("hot", "event_us", "isolated_us")
    return fit(model, names, lambda c: c.isolated(device_us), measured)


# Attention.

ATTENTION_START = AttentionModel(
    gpu="*", dtype="bf16", backward=False, rate=0.7, fixed_dim=30.0, bandwidth=0.7, floor_us=4.0,
    blend=2.0, spread=0.2, source="",
)  # fmt: skip
ATTENTION_FIELDS = ("rate", "bandwidth", "floor_us", "blend")
#: Tables of one head size cannot tell what of the work shrinks with a head. Between what an H200
#: shows and none at all.
ASSUMED_FIXED_DIM = 30.0


def predict_attention(model: AttentionModel, gpu: str, table: Table) -> Array:
    return model.device_us(find_gpu(gpu), "bf16", *table.sizes.values(), causal=True)


def fit_attention(gpu: str, table: Table, source: str) -> AttentionModel:
    start = msgspec.structs.replace(
        ATTENTION_START, gpu=gpu, source=source, fixed_dim=ASSUMED_FIXED_DIM
    )
    sample = table.part(draw(np.random.default_rng(0), np.arange(len(table.time_us)), 4000))
    # The shortest rows of these tables show a launch; kernels inside steps begin at some 5 us.
    return fit(
        start, ATTENTION_FIELDS, lambda c: predict_attention(c, gpu, sample), sample.time_us,
        limits={"floor_us": (1.0, 6.0)},
    )  # fmt: skip


def fit_own_attention(backward: bool, lone: Table, in_steps: Table, source: str) -> AttentionModel:
    """From lone calls, and from kernels inside steps, which run at a step's clock."""
    start = msgspec.structs.replace(
        ATTENTION_START, gpu="H200", backward=backward, source=source,
        isolated_us=160.0 if backward else 50.0,
    )  # fmt: skip

    def predict(candidate: AttentionModel) -> Array:
        alone = candidate.isolated(predict_attention(candidate, "H200", lone))
        return np.concatenate([alone, predict_attention(candidate, "H200", in_steps)])

    measured = np.concatenate([lone.time_us, in_steps.time_us])
    # A handful of shapes in steps stand for what matters; give them a fair say.
    weight = np.concatenate([np.ones(len(lone.time_us)), np.full(len(in_steps.time_us), 4.0)])
    names = (*ATTENTION_FIELDS, "fixed_dim", "hot", "event_us", "isolated_us")
    limits = {"event_us": (0.05, 60.0)}
    model = fit(start, names, predict, measured, weight, limits=limits)
    return settle_host(model, predict_attention(model, "H200", lone), lone.time_us)


Lone = TypeVar("Lone", AttentionModel, MemoryModel)


def settle_host(model: Lone, device_us: Array, measured_us: Array) -> Lone:
    """The host's time: of all that it showed, what leaves the smallest median and wide errors."""

    def wide(isolated_us: float) -> float:
        predicted = msgspec.structs.replace(model, isolated_us=isolated_us).isolated(device_us)
        off = np.abs(predicted / measured_us - 1.0)
        return float(np.quantile(off, 0.9) + 3.0 * np.median(off))

    return msgspec.structs.replace(
        model, isolated_us=float(min(np.geomspace(5.0, 300.0, 160), key=wide))
    )


# Kernels that move memory.


#: What softmax over a vocabulary reaches in recorded steps: 0.44 of the bandwidth forward and 0.59
#: backward. It is another kernel than the one of short rows, so they are not fitted together.
LONG_ROWS = 0.5


class Moved(NamedTuple):
    """Measured kernels: bytes, rows, time, and whether each was a lone call."""

    table: Table
    lone: Array


def predict_memory(model: MemoryModel, gpu: str, moved: Moved) -> Array:
    sizes = moved.table.sizes
    device_us = model.device_us(find_gpu(gpu), sizes["bytes"], sizes["rows"])
    return np.where(moved.lone, model.isolated(device_us), device_us)


def fit_memory(gpu: str, kind: str, moved: Moved, source: str) -> MemoryModel:
    start = MemoryModel(
        gpu=gpu, kind=kind, bandwidth=0.8, floor_us=2.0, spread=0.2, source=source,
        isolated_us=80.0 if kind == "optimizer" else 10.0,
    )  # fmt: skip
    names = ["bandwidth"]
    if (~moved.lone).any():
        names += ["floor_us"]
    if moved.lone.any():
        names += ["event_us", "isolated_us"]
    if kind in ("normalisation", "reduction"):
        start = msgspec.structs.replace(start, row_ns=0.5)
        names += ["row_ns"]
    if kind == "softmax":
        start = msgspec.structs.replace(
            start, wide=0.3, wide_bytes=4096.0, long_bandwidth=LONG_ROWS, long_row_ns=6.0
        )
        names += ["wide"] if gpu == "H200" else ["wide", "long_bandwidth", "long_row_ns"]
        if gpu == "H200":
            start = msgspec.structs.replace(start, row_us=5.0)
            names += ["row_us"]
    if kind == "normalisation" and gpu not in ("H100", "H200"):
        start = msgspec.structs.replace(
            start, wide=0.1, wide_bytes=16384.0, long_bandwidth=LONG_ROWS, long_row_ns=1.0
        )
        names += ["wide", "long_bandwidth", "long_row_ns"]
    if moved.lone.any() and (~moved.lone).any():
        names += ["hot"]
    model = fit(start, names, lambda c: predict_memory(c, gpu, moved), moved.table.time_us)
    # Elsewhere the smallest rows are long enough to hide the host: nothing to settle it on.
    if gpu != "H200" or not moved.lone.any():
        return model
    calls = moved.table.part(moved.lone)
    device_us = model.device_us(find_gpu(gpu), calls.sizes["bytes"], calls.sizes["rows"])
    return settle_host(model, device_us, calls.time_us)


# Collectives.


def predict_collective(model: CollectiveModel, kind: str, table: Table) -> Array:
    latency_us, transfer_us = model.parts_us(kind, table.sizes["bytes"], table.sizes["ranks"])
    return latency_us + transfer_us


def fit_collective(link: str, kind: str, table: Table, source: str) -> CollectiveModel:
    ranks = tuple(int(r) for r in np.unique(table.sizes["ranks"]))
    large = table.part(table.sizes["bytes"] >= np.quantile(table.sizes["bytes"], 0.8))
    whole = CollectiveModel(
        link=link, kind=kind, floor_us=5.0, step_us=1.0, ranks=ranks, gb_s=(1.0,) * len(ranks),
        start_us=5.0, start_bytes=2e6, spread=0.15, source=source,
    )  # fmt: skip
    # What the largest messages reach is where the search for rates begins.
    seconds = whole.parts_us(kind, large.sizes["bytes"], large.sizes["ranks"])[1]
    reached = seconds / large.time_us
    rates = tuple(float(np.median(reached[large.sizes["ranks"] == r])) for r in ranks)
    start = msgspec.structs.replace(whole, gb_s=rates)
    names = ["floor_us", "step_us", "start_us", "start_bytes"]
    names += [f"gb_s.{place}" for place in range(len(ranks))]
    if len(ranks) == 1:
        # One group size cannot tell steps from the rest; a ring's share is assumed.
        names.remove("step_us")
    limits = {"floor_us": (1.0, 500.0), "start_bytes": (1e4, 1e8), "gb_s": (0.01, 2000.0)}
    return fit(
        start, names, lambda c: predict_collective(c, kind, table), table.time_us, limits=limits
    )
