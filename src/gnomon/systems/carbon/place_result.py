"""Placements as a Result: totals by metric, who did the work, and what it means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.estimate import Estimate
from gnomon.report import BarChart, Bars, Chart, Figure, LineChart, Manifest, Result
from gnomon.report.charts.chart import Line
from gnomon.series.intensity import describe_intensity
from gnomon.systems.carbon.advice import Cost, advise
from gnomon.systems.carbon.place import PlacementOutcome, Placements
from gnomon.table import Table, format_range
from gnomon.units import HOUR_NS

#: From here on a list of every job is no longer something to print.
_MOST_ASSIGNMENTS = 100_000


def to_result(
    placements: Placements, command: str = "", *, price_usd_kwh: float | None = None,
    sources: Sequence[str] = (), notes: Sequence[str] = (), seed: int | None = None,
) -> Result:  # fmt: skip
    """Everything there is to say about placements."""
    p = placements
    best = p.best
    servers, jobs = int(p.supply.servers.sum()), p.jobs.arrival_ns.size
    return Result(
        "carbon",
        "place",
        f"{jobs:,} jobs on {servers:,} servers",
        "Which number should the scheduler sort servers by, and what does each cost?",
        figures=_figures(p, best, price_usd_kwh),
        tables=[_totals(p, price_usd_kwh), _shares(p), _times(p)],
        charts=[_totals_chart(p), _load_chart(p, best)],
        how=list(_HOW),
        notes=[*_advice(p), *_notes(p), *(notes or [f"Grid: {describe_intensity(p.intensity)}."])],
        manifest=Manifest.of(
            command, sources, seed=seed, metrics=[o.metric.name for o in p.outcomes],
            sleep=p.sleep, shift=p.shift,
        ),
    )  # fmt: skip


_HOW = [
    "Jobs are placed **one after the other**: each goes to the first machine in the order of the "
    "metric that has a server with room, and there to the fullest one; without room it waits in "
    "line (`gnomon.sim.placement`).",
    "The **true total** is operational carbon, hour by hour, plus all embodied carbon of the "
    "fleet over the horizon, used or not, counted once (`gnomon.systems.carbon.place`).",
    "A faster thread ends a job sooner: its duration is divided by points a thread over those of "
    "the reference.",
    "The bound is what **no placement can go below**: every job in its cleanest moment, dirty "
    "moments on the most efficient servers, every server full.",
]


def _all(placements: Placements) -> list[PlacementOutcome]:
    return [*placements.outcomes, *placements.compared]


def _figures(p: Placements, best: PlacementOutcome, price: float | None) -> list[Figure]:
    hours = (p.end_ns - p.start_ns) / HOUR_NS
    figures = [
        Figure("best_metric", "Best metric to sort by", best.metric.title, note=best.metric.about),
        Figure("total_kg", "Its total", best.total_kg, "kg", better="lower"),
        Figure(
            "operational_kg", "of which operational", best.operational_kg, "kg", better="lower"
        ),
        Figure("embodied_kg", "of which embodied", best.embodied_kg, "kg"),
        Figure("bound_kg", "Lower bound, operational", p.bound_kg, "kg"),
        Figure("energy_kwh", "Energy", best.energy_kwh, "kWh", better="lower"),
        Figure("utilisation_pct", "Utilisation", 100 * p.utilisation, "%"),
        Figure("hours", "Horizon", hours, "h"),
    ]
    if price is not None:
        cost = best.energy_kwh * price
        figures.append(Figure("cost_usd", "Electricity", cost, "USD", better="lower"))
    return figures


def _totals(p: Placements, price: float | None) -> Table:
    outcomes = _all(p)
    added = [p.added_pct(outcome) for outcome in outcomes]
    columns: dict[str, list[Any]] = {
        "metric": [o.metric.title for o in outcomes],
        "operational_kg": [o.operational_kg.mid for o in outcomes],
        "embodied_kg": [o.embodied_kg.mid for o in outcomes],
        "total_kg": [o.total_kg.mid for o in outcomes],
        "total_range_kg": [format_range(o.total_kg.low, o.total_kg.high) for o in outcomes],
        "added_operational_pct": [operational for operational, _ in added],
        "added_total_pct": [total for _, total in added],
        "energy_kwh": [o.energy_kwh.mid for o in outcomes],
    }
    if price is not None:
        columns["cost_usd"] = [o.energy_kwh.mid * price for o in outcomes]
    caption = "Embodied carbon is the same for all: the servers are there."
    return Table.from_columns("By metric", columns, units=_units(columns), caption=caption)


def _units(columns: Mapping[str, object]) -> dict[str, str]:
    known = {"kg": "kg", "pct": "%", "kwh": "kWh", "usd": "USD", "s": "s", "h": "h"}
    ends = {name: name.rpartition("_")[2] for name in columns if "_" in name}
    return {name: known[end] for name, end in ends.items() if end in known}


def _shares(p: Placements) -> Table:
    outcomes = _all(p)
    columns: dict[str, Any] = {
        "machine": list(p.supply.names),
        "servers": p.supply.servers,
        "watts": 1e3 * p.supply.peak_w / p.supply.points,
    }
    for outcome in outcomes:
        hours = outcome.core_hours.sum()
        columns[f"{outcome.metric.name}_pct"] = 100 * outcome.core_hours / max(hours, 1e-12)
    units = {name: "%" for name in columns if name.endswith("_pct")} | {"watts": "W/kpoint"}
    return Table.from_columns("Who does the work, % of thread-hours", columns, units=units)


def _times(p: Placements) -> Table:
    outcomes = _all(p)
    columns: dict[str, Any] = {
        "metric": [o.metric.title for o in outcomes],
        "mean_wait_s": [o.wait_s for o in outcomes],
        "longest_wait_s": [o.longest_wait_s for o in outcomes],
        "late": [o.late for o in outcomes],
        "mean_run_h": [
            float((o.placed.end_ns - o.placed.start_ns).mean()) / HOUR_NS for o in outcomes
        ],
    }
    return Table.from_columns("Job waiting times", columns, units=_units(columns))


def _totals_chart(p: Placements) -> Chart:
    outcomes = _all(p)
    return BarChart(
        "Carbon by what servers are sorted by",
        [o.metric.title for o in outcomes],
        [
            Bars("embodied, sunk", [o.embodied_kg.mid for o in outcomes]),
            Bars("operational", [o.operational_kg.mid for o in outcomes]),
        ],
        unit="kg",
    )


def _load_chart(p: Placements, best: PlacementOutcome) -> Chart:
    edges = np.linspace(p.start_ns, p.end_ns, 201).astype(np.int64)
    middle = (edges[:-1] + edges[1:]) // 2
    hours = ((middle - p.start_ns) / HOUR_NS).tolist()
    lines = [
        Line(outcome.metric.title, hours, _in_use(outcome, p, middle), step=True)
        for outcome in dict.fromkeys((best, *p.outcomes[:2]))
    ]
    grid = np.asarray(p.intensity.at(np.minimum(middle, p.intensity.end_ns - 1)))
    scaled = 100 * grid / max(float(grid.max()), 1e-12)
    lines.append(Line("grid, % of its peak", hours, scaled.tolist(), dashed=True))
    return LineChart(
        "Threads in use", lines, x_label="since the first arrival", x_unit="h", y_unit="%"
    )


def _in_use(outcome: PlacementOutcome, p: Placements, at_ns: NDArray[np.int64]) -> list[float]:
    placed, cores = outcome.placed, p.jobs.cores
    begun, ended = np.argsort(placed.start_ns), np.argsort(placed.end_ns)
    started = np.concatenate([[0], np.cumsum(cores[begun])])
    over = np.concatenate([[0], np.cumsum(cores[ended])])
    busy = (
        started[np.searchsorted(placed.start_ns[begun], at_ns, side="right")]
        - over[np.searchsorted(placed.end_ns[ended], at_ns, side="right")]
    )
    threads = float((p.supply.servers * p.supply.threads).sum())
    return [float(share) for share in 100 * busy / threads]


def _advice(p: Placements) -> list[str]:
    costs = [Cost(o.metric, *p.added_pct(o)) for o in p.outcomes]
    where = f"on this fleet at {100 * p.utilisation:.0f} % utilisation"
    return advise(costs, p.best.metric, where)


def _notes(p: Placements) -> list[str]:
    notes = []
    above = 100 * (p.best.operational_kg.mid / p.bound_kg - 1) if p.bound_kg > 0 else 0.0
    above = max(above, 0.0)
    notes.append(
        f"The best is {above:.1f} % above the bound that no placement can go below, which need "
        "not be within reach."
    )
    if p.jobs.arrival_ns.size > _MOST_ASSIGNMENTS:
        notes.append(
            f"With more than {_MOST_ASSIGNMENTS:,} jobs, JSON has no list of assignments."
        )
    if p.shift:
        notes += _shift_notes(p)
    late = {o.metric.title: o.late for o in _all(p) if o.late}
    if late:
        fields = ", ".join(f"{count} by {name}" for name, count in late.items())
        notes.append(f"Jobs that ended after their deadline: {fields}.")
    return notes


def _shift_notes(p: Placements) -> list[str]:
    if (p.jobs.deadline_ns == np.iinfo(np.int64).max).all():
        return ["No job has a deadline: none was shifted."]
    notes = []
    for outcome in p.outcomes:
        before = outcome.unshifted_kg or 0.0
        if outcome.shifted and before > 0:
            saved = before - outcome.operational_kg.mid
            notes.append(
                f"Sorted by {outcome.metric.title}, shifting saves {saved:.4g} kg operational "
                f"({100 * saved / before:.1f} %) over the same horizon."
            )
        else:
            notes.append(
                f"Sorted by {outcome.metric.title}, jobs were not shifted: no start is cleaner, "
                "or too many want the same hours and would end later or emit more."
            )
    return notes


def to_script(placements: Placements) -> dict[str, Any]:
    """What `--json` has at its top: numbers by metric, and every job's place."""
    p = placements
    listed = p.jobs.arrival_ns.size <= _MOST_ASSIGNMENTS
    return {
        "metrics": {o.metric.name: _script(p, o, listed=listed) for o in _all(p)},
        "best": p.best.metric.name,
        "bound_kg": p.bound_kg,
        "utilisation_pct": 100 * p.utilisation,
        "intensity": describe_intensity(p.intensity),
        "advice": _advice(p),
    }


def _script(p: Placements, outcome: PlacementOutcome, *, listed: bool) -> dict[str, Any]:
    operational, total = p.added_pct(outcome)
    fields: dict[str, Any] = {}
    for name in ("operational_kg", "embodied_kg", "total_kg", "energy_kwh"):
        estimate: Estimate = getattr(outcome, name)
        fields |= {name: estimate.mid, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return fields | {
        "added_operational_pct": operational if math.isfinite(operational) else None,
        "added_total_pct": total if math.isfinite(total) else None,
        "shifted": outcome.shifted,
        "unshifted_operational_kg": outcome.unshifted_kg,
        "order": list(outcome.order),
        "late": outcome.late,
        "mean_wait_s": outcome.wait_s,
        "by_machine": {
            name: {"jobs": int(jobs), "thread_hours": float(hours)}
            for name, jobs, hours in zip(p.supply.names, outcome.jobs, outcome.core_hours)
        },
        "assignments": _assignments(p, outcome) if listed else [],
    }


def _assignments(p: Placements, outcome: PlacementOutcome) -> list[dict[str, Any]]:
    placed, names = outcome.placed, p.supply.names
    return [
        {
            "job": p.jobs.name(job), "machine": names[group], "server": server,
            "start_s": start / 1e9, "end_s": end / 1e9,
        }
        for job, (group, server, start, end) in enumerate(
            zip(
                placed.group.tolist(), placed.server.tolist(), placed.start_ns.tolist(),
                placed.end_ns.tolist(),
            )
        )
    ]  # fmt: skip
