"""Found: a search over layouts from a recorded job or models, and its answer as a Result."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.model.accelerator.gpu import Gpu, find_gpu
from gnomon.parallel import Progress
from gnomon.report import Chart, Figure, Manifest, Result, ScatterChart, hash_input
from gnomon.systems.training.prediction.configuration import Configuration
from gnomon.systems.training.prediction.predict import Prediction, predict
from gnomon.systems.training.prediction.search import Found, Row, Space, search
from gnomon.systems.training.prediction.source import Source, factor_of
from gnomon.table import Table
from gnomon.version import __version__

_GIB = 2**30
_MICRO_BATCHES = (1, 2, 4, 8, 16)
_LAYOUT = ("tp", "pp", "dp", "batch", "accumulation", "interleave")


class Layouts(msgspec.Struct, frozen=True, eq=False):
    """What a search found.

    Attributes:
        configuration: What is trained; its layout is what was searched.
        found: The layouts.
        best: The best one, predicted in full; None where nothing fits.
        seconds: The search alone.
    """

    configuration: Configuration
    gpus: int
    memory_gib: float
    gpu: Gpu
    global_batch: int
    rank_by: str
    found: Found
    best: Prediction | None
    seconds: float
    on: str
    has_carbon: bool
    has_price: bool


#: Columns are called otherwise than what they are ranked by.
_RANK_ALIASES = {"energy_kwh": "energy_j"}


def _check(
    gpus: int,
    global_batch: int | None,
    micro_batch: Sequence[int],
    interleave: Sequence[int],
    price_usd_h: float | None,
    memory_gib: float | None,
) -> None:
    if gpus < 1:
        raise InputError(f"a search over {gpus} GPUs; give at least one")
    sizes = {"global batch": [global_batch], "micro-batch": micro_batch, "interleave": interleave}
    for name, values in sizes.items():
        for value in values:
            if value is not None and value < 1:
                raise InputError(f"a {name} of {value}; give at least one")
    if price_usd_h is not None and not 0 <= price_usd_h < math.inf:
        raise InputError(f"a price of {price_usd_h} USD; give zero or more")
    if memory_gib is not None and not 0 < memory_gib < math.inf:
        raise InputError(f"a memory of {memory_gib} GiB; give more than none")


def find_layouts(
    source: Source,
    settings: Mapping[str, Any],
    gpus: int,
    *,
    memory_gib: float | None = None,
    global_batch: int | None = None,
    micro_batch: Sequence[int] = (),
    interleave: Sequence[int] = (),
    rank_by: str = "step_ms",
    price_usd_h: float | None = None,
    carbon: Estimate | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> Layouts:
    """Predicts every layout of a job over so many GPUs, and ranks those that fit.

    Args:
        source: A recorded job, or models.
        settings: What is trained, where it differs from the source's base.
        gpus: How many there are.
        memory_gib: Of each; the catalogue's unless given.
        global_batch: Sequences of a step; the base's for every GPU unless given.
        micro_batch: Sizes to try.
        interleave: Chunks a pipeline rank may hold.
        rank_by: What the best is best at.
        price_usd_h: Of one GPU; the catalogue's unless given.
        carbon: g/kWh.
        on: Where to run; here if there are few layouts, on local cores otherwise.
        progress: Shows how far it is.
    """
    _check(gpus, global_batch, micro_batch, interleave, price_usd_h, memory_gib)
    chosen = sorted({"dp", "pp", "tp", "interleave", "accumulation"} & set(settings))
    if chosen:
        raise InputError(f"a search chooses {chosen[0]} itself: leave it out of what is set")
    # Experts are shared out over ranks that hold the same layers: as many at the least.
    experts = settings.get("ep", source.base.ep)
    plain = {"dp": experts, "pp": 1, "tp": 1, "interleave": 1, "accumulation": 1} | dict(settings)
    configuration = source.base.changed(plain)
    machine = find_gpu(configuration.gpu)
    rank_by = _RANK_ALIASES.get(rank_by, rank_by)
    price = machine.price_usd_h if price_usd_h is None else price_usd_h
    if rank_by == "cost_usd" and not price:
        raise InputError(f"no price of {machine.name} is known: give --price, USD per GPU-hour")
    if rank_by == "carbon_g" and carbon is None:
        raise InputError("carbon needs a grid: give --zone")
    sequences = global_batch or gpus * configuration.batch * source.base.accumulation
    space = Space(
        gpus=(gpus,), global_batch=sequences, node_gpus=machine.node_gpus,
        micro_batch=tuple(micro_batch) or _MICRO_BATCHES, interleave=tuple(interleave) or (1,),
    )  # fmt: skip
    where: dict[str, Any] = {} if on is None else {"on": on}
    begun = time.perf_counter()
    found = search(
        source, configuration, space, gpu=machine, factor=factor_of(source),
        memory_gib=memory_gib, price_usd_h=price_usd_h,
        carbon_g_per_kwh=carbon.mid if carbon else 0.0, rank_by=rank_by, progress=progress,
        **where,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    best = None
    if found.rows:
        best = predict(source, found.rows[0].configuration, explain=False)
    return Layouts(
        configuration, gpus, machine.memory_gib if memory_gib is None else memory_gib, machine,
        sequences, rank_by, found, best, seconds, on or "local cores", carbon is not None,
        price > 0,
    )  # fmt: skip


def to_script(layouts: Layouts) -> dict[str, Any]:
    """The figures that scripts ask for, as plain values."""
    found = layouts.found
    best = _plain(found.rows[0], layouts) if found.rows else None
    if best is not None and layouts.best is not None:
        best |= {"low_ms": layouts.best.step.low, "high_ms": layouts.best.step.high,
                 "full_ms": layouts.best.step.mid}  # fmt: skip
    return {
        "configuration": msgspec.structs.asdict(layouts.configuration),
        "gpus": layouts.gpus,
        "memory_gib": layouts.memory_gib,
        "global_batch": layouts.global_batch,
        "evaluated": found.evaluated,
        "dropped": [
            {**_layout(one.configuration), "reason": one.reason,
             "over_gib": round(one.over_bytes / _GIB, 3)}
            for one in found.dropped
        ],
        "impossible": dict(found.impossible),
        "pareto": [_plain(found.rows[i], layouts) for i in found.pareto],
        "best": best,
        "rows": [_plain(row, layouts) for row in found.rows],
        "seconds": round(layouts.seconds, 3),
        "candidates_s": round((found.evaluated + len(found.dropped)) / layouts.seconds, 1),
    }  # fmt: skip


def _layout(configuration: Configuration) -> dict[str, int]:
    return {name: getattr(configuration, name) for name in _LAYOUT}


def _plain(row: Row, layouts: Layouts) -> dict[str, Any]:
    return {
        **_layout(row.configuration),
        "step_ms": round(row.step_ms, 4),
        "tokens_s": round(row.tokens_s, 2),
        "memory_gib": round(row.memory_bytes / _GIB, 3),
        "computing_pct": round(100.0 * row.utilisation, 2),
        "cost_usd": round(row.cost_usd, 6) if layouts.has_price else None,
        "energy_kwh": round(row.energy_j / 3.6e6, 6),
        "carbon_g": round(row.carbon_g, 3) if layouts.has_carbon else None,
    }


def to_result(
    layouts: Layouts, command: str = "", *, top: int = 20, sources: Sequence[str] = ()
) -> Result:
    """Everything there is to say about a search.

    Args:
        layouts: What was found.
        command: What asked for it.
        top: How many layouts the ranking shows.
        sources: The traces that were read.
    """
    found = layouts.found
    front = [found.rows[i] for i in found.pareto]
    tables = [
        _rows("Pareto front", layouts, front, "No other is better in time, cost and energy."),
        _rows(f"Best by {layouts.rank_by}", layouts, found.rows[:top],
              f"{min(top, len(found.rows))} of {len(found.rows)} that fit."),
        _reasons(found),
    ]  # fmt: skip
    return Result(
        "training",
        "search",
        f"Layouts over {layouts.gpus} x {layouts.gpu.name}",
        "How should this model be spread over these GPUs?",
        figures=_figures(layouts),
        tables=tables,
        charts=_charts(layouts),
        how=_HOW,
        notes=list(layouts.best.notes) if layouts.best else [],
        manifest=Manifest(
            command,
            {"configuration": msgspec.structs.asdict(layouts.configuration)},
            layouts.best.seed if layouts.best else None,
            __version__,
            [hash_input(source) for source in sources],
        ),
    )


_HOW = [
    "Every combination of tensor, pipeline and data parallelism and micro-batch size that uses "
    "all GPUs and keeps the global batch is **put together and replayed** in a coarse graph: one "
    "task a pass through a stage's layers, transfers and gradients beside it.",
    "What does not **fit into memory** is dropped first, with the reason.",
    "A layout is on the **Pareto front** when no other is at least as good in step time, cost and "
    "energy and better in one. Energy: idle power all the time, the rest up to the limit in the "
    "share of the step in which a GPU computes.",
    "The **range** beside the best comes from a full prediction of it.",
]


def _figures(layouts: Layouts) -> list[Figure]:
    found = layouts.found
    tried = found.evaluated + len(found.dropped)
    figures = [
        Figure("evaluated", "Layouts predicted", found.evaluated),
        Figure("dropped", "Layouts that do not fit", len(found.dropped),
               note=f"in {layouts.memory_gib:g} GiB per GPU"),
        Figure("candidates_s", "Layouts per second", round(tried / layouts.seconds, 1), "1/s",
               note=f"on {layouts.on}"),
    ]  # fmt: skip
    if found.rows and layouts.best is not None:
        best = found.rows[0]
        words = " ".join(f"{name}={value}" for name, value in _layout(best.configuration).items())
        figures = [
            Figure("best", f"Best by {layouts.rank_by}", words),
            Figure("best_ms", "Its step", layouts.best.step, "ms", "lower"),
            Figure("best_tokens_s", "Its tokens per second", round(best.tokens_s, 1), "1/s",
                   "higher"),
            Figure("best_memory_gib", "Its peak memory", round(best.memory_bytes / _GIB, 2), "GiB",
                   "lower", f"of {layouts.memory_gib:g}"),
            *figures,
        ]  # fmt: skip
    return figures


def _rows(name: str, layouts: Layouts, rows: Sequence[Row], caption: str) -> Table:
    units = {"step_ms": "ms", "tokens_s": "1/s", "memory_gib": "GiB", "computing_pct": "%",
             "cost_usd": "USD", "energy_kwh": "kWh", "carbon_g": "g"}  # fmt: skip
    plain = [_plain(row, layouts) for row in rows]
    known = {"carbon_g": layouts.has_carbon, "cost_usd": layouts.has_price}
    for column in (column for column, is_known in known.items() if not is_known):
        units.pop(column)
        for row in plain:
            row.pop(column)
    return Table.from_rows(name, plain, units=units if plain else {}, caption=caption)


def _reasons(found: Found) -> Table:
    rows = [
        {"layouts": count, "reason": reason}
        for reason, count in sorted(found.impossible.items(), key=lambda item: -item[1])
    ]
    if found.dropped:
        nearest = min(found.dropped, key=lambda one: one.over_bytes)
        words = " ".join(f"{k}={v}" for k, v in _layout(nearest.configuration).items())
        reason = f"do not fit; the nearest, {words}, {nearest.reason}"
        rows.insert(0, {"layouts": len(found.dropped), "reason": reason})
    return Table.from_rows("Left out", rows)


def _charts(layouts: Layouts) -> list[Chart]:
    rows = layouts.found.rows
    if not rows:
        return []
    names = [
        " ".join(
            f"{k}{v}" for k, v in _layout(row.configuration).items() if k in ("tp", "pp", "dp")
        )
        + f" b{row.configuration.batch}"
        for row in rows
    ]
    step_ms = [row.step_ms for row in rows]
    return [
        ScatterChart(
            f"Step against {what}", x=x, y=step_ms, names=names, groups=groups, x_label=label,
            x_unit=unit, y_label="step", y_unit="ms", better_x="lower", better_y="lower",
        )
        for what, x, groups, label, unit in (
            ("memory", [row.memory_bytes / _GIB for row in rows],
             [f"pp={row.configuration.pp}" for row in rows], "peak memory of a rank", "GiB"),
            ("energy", [row.energy_j / 3.6e6 for row in rows],
             [f"tp={row.configuration.tp}" for row in rows], "energy of a step", "kWh"),
        )
    ]  # fmt: skip
