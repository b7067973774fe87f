"""Curves as a Result: what sorting by a metric adds, without a list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.random import Generator

from gnomon.estimate import Estimate
from gnomon.model.carbon import YEAR_H, Amortisation
from gnomon.model.machines.machine import Fleet
from gnomon.report import Chart, Figure, LineChart, Manifest, Result
from gnomon.report.charts.chart import Line
from gnomon.systems.carbon.advice import Cost, advise
from gnomon.systems.carbon.curves import (
    Added,
    added_by_grid,
    added_by_idle,
    added_by_life,
    added_by_share,
    added_by_utilisation,
    best_order,
    filled_g_h,
    largest,
)
from gnomon.systems.carbon.metric import METRICS, Metric, order_of
from gnomon.systems.carbon.supply import Floats, Supply, supply_of
from gnomon.table import Table

_GRIDS = np.geomspace(1.0, 200.0, 80)
_SHARES = np.linspace(0.0, 1.0, 41)
_YEARS = np.arange(1, 13, dtype=float)
_DRAWS = 400


class Curves(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What every metric adds on a fleet.

    Attributes:
        at_utilisation: Added operational and total carbon by metric, at the utilisation.
        uncertain: Added operational carbon by metric when embodied figures are drawn from their
            ranges and servers are sorted by what was drawn.
    """

    supply: Supply
    fleet: Fleet
    g_kwh: float
    utilisation: float
    sleep: bool
    metrics: tuple[Metric, ...]
    by: dict[str, dict[str, Added]]
    at_utilisation: dict[str, tuple[float, float]]
    worst: dict[str, tuple[float, float, float]]
    uncertain: dict[str, Estimate]


def curves_of(
    fleet: Fleet, g_kwh: float, metrics: Sequence[Metric], *, year: int,
    amortise: Amortisation = "life", utilisation: float = 0.5, sleep: bool = False,
    rng: Generator,
) -> Curves:  # fmt: skip
    """All curves of a fleet; see `gnomon.systems.carbon.curves`."""
    supply = supply_of(fleet, year=year, amortise=amortise)

    def lived(years: float) -> Supply:
        return supply_of(_with_life(fleet, years), year=year, amortise=amortise)

    by: dict[str, dict[str, Added]] = {}
    for metric in metrics:
        axes = {
            "utilisation": added_by_utilisation(supply, metric, g_kwh, sleep=sleep),
            "share": added_by_share(supply, metric, _SHARES, g_kwh, sleep=sleep),
            "share, re-sorted": added_by_share(
                supply, metric, _SHARES, g_kwh, sort_anew=True, sleep=sleep
            ),
            "life": added_by_life(lived, metric, _YEARS, g_kwh, today=supply, sleep=sleep),
            "grid": added_by_grid(supply, metric, _GRIDS, sleep=sleep),
            "idle": added_by_idle(supply, metric, _SHARES, g_kwh, sleep=sleep),
        }
        for axis, added in axes.items():
            by.setdefault(axis, {})[metric.name] = added
    at = {
        metric.name: _at(
            added_by_utilisation(supply, metric, g_kwh, utilisation=[utilisation], sleep=sleep)
        )
        for metric in metrics
    }
    orders = {m.name: order_of(m, supply, g_kwh, sleep=sleep) for m in metrics}
    ends = [
        supply_of(fleet, year=year, amortise=amortise, end=end).embodied_g_h
        for end in ("low", "high")
    ]
    return Curves(
        supply=supply, fleet=fleet, g_kwh=g_kwh, utilisation=utilisation, sleep=sleep,
        metrics=tuple(metrics), by=by, at_utilisation=at,
        worst={name: largest(supply, order, g_kwh, sleep=sleep) for name, order in orders.items()},
        uncertain={
            m.name: _uncertain(supply, ends, m, g_kwh, utilisation, sleep, at[m.name][0], rng)
            for m in metrics
        },
    )  # fmt: skip


def _with_life(fleet: Fleet, years: float) -> Fleet:
    groups = tuple(
        msgspec.structs.replace(
            group, machine=msgspec.structs.replace(group.machine, life_years=years)
        )
        for group in fleet.groups
    )
    return msgspec.structs.replace(fleet, groups=groups)


def _at(added: Added) -> tuple[float, float]:
    return float(added.operational_pct[0]), float(added.total_pct[0])


def _uncertain(
    supply: Supply, ends: Sequence[Floats], metric: Metric, g_kwh: float, utilisation: float,
    sleep: bool, as_it_is: float, rng: Generator,
) -> Estimate:  # fmt: skip
    low, high = ends
    if np.array_equal(low, high):
        return Estimate.exact(as_it_is)
    middle, above = np.clip(supply.embodied_g_h, low, high), np.nextafter(high, np.inf)
    draws = rng.triangular(low, middle, above, size=(_DRAWS, low.size))
    added_pct = []
    for drawn in draws:
        sorted_by = msgspec.structs.replace(supply, embodied_g_h=drawn)
        order = order_of(metric, sorted_by, g_kwh, sleep=sleep)
        mine, least = (
            filled_g_h(supply, groups, [utilisation], g_kwh, sleep=sleep)[0]
            for groups in (order, best_order(supply, g_kwh, sleep=sleep))
        )
        added_pct.append(100.0 * (mine / least - 1.0) if least > 0 else 0.0)
    spread = Estimate.from_samples(added_pct)
    return Estimate(min(spread.low, as_it_is), as_it_is, max(spread.high, as_it_is))


def to_result(
    curves: Curves, command: str = "", *, sources: Sequence[str] = (), notes: Sequence[str] = (),
    seed: int | None = None,
) -> Result:  # fmt: skip
    """Everything there is to say about a fleet without jobs."""
    c = curves
    total = int(c.supply.servers.sum())
    return Result(
        "carbon",
        "place",
        f"Sorting {total:,} servers",
        "Which number should the scheduler sort servers by, and what does each cost?",
        figures=_figures(c),
        tables=[_added_table(c), _orders(c)],
        charts=_charts(c),
        how=list(_HOW),
        notes=[*_advice(c), *notes],
        manifest=Manifest.of(
            command, sources, seed=seed, g_kwh=c.g_kwh, utilisation=c.utilisation, sleep=c.sleep
        ),
    )  # fmt: skip


_HOW = [
    "Servers are **filled in the order of the metric** until the demand is met; all embodied "
    "carbon of the fleet stands on both sides, because the servers are there "
    "(`gnomon.systems.carbon.curves`).",
    "Shares and lives keep **today's order**, as the paper does: they show what the choice costs. "
    "'Sorted anew' lets the metric choose again at every point.",
    "The range of a metric comes from drawing every machine's embodied carbon from its range, "
    "sorting by what was drawn, and counting what it truly adds: 80 % of draws lie inside.",
]


def _figures(c: Curves) -> list[Figure]:
    figures = [
        Figure("g_kwh", "Grid", c.g_kwh, "gCO2e/kWh"),
        Figure(
            "embodied_kg_y",
            "Embodied, per year",
            c.supply.embodied_total_g_h * YEAR_H / 1000,
            "kg",
        ),
    ]
    for metric in c.metrics[:3]:
        operational, total, at = c.worst[metric.name]
        figures.append(
            Figure(
                f"{metric.name}_worst_pct", f"{metric.title} adds at worst", operational, "%",
                better="lower",
                note=f"operational, at {100 * at:.1f} % utilisation; {total:.1f} % of all"
                if operational > 0 else "nothing, at any utilisation",
            )
        )  # fmt: skip
    return figures


def _added_table(c: Curves) -> Table:
    best = filled_g_h(
        c.supply, best_order(c.supply, c.g_kwh, sleep=c.sleep), [c.utilisation], c.g_kwh,
        sleep=c.sleep,
    )[0]  # fmt: skip
    rows = [(metric, *c.at_utilisation[metric.name]) for metric in c.metrics]
    columns: dict[str, Any] = {
        "metric": [metric.title for metric, _, _ in rows],
        "operational_kg": [best * (1 + added / 100) * YEAR_H / 1000 for _, added, _ in rows],
        "embodied_kg": [c.supply.embodied_total_g_h * YEAR_H / 1000] * len(rows),
        "added_operational_pct": [added for _, added, _ in rows],
        "added_total_pct": [total for _, _, total in rows],
        "added_operational_pct_low": [c.uncertain[metric.name].low for metric, _, _ in rows],
        "added_operational_pct_high": [c.uncertain[metric.name].high for metric, _, _ in rows],
        "worst_operational_pct": [c.worst[metric.name][0] for metric, _, _ in rows],
        "worst_total_pct": [c.worst[metric.name][1] for metric, _, _ in rows],
        "worst_at_pct": [100 * c.worst[metric.name][2] for metric, _, _ in rows],
    }
    return Table.from_columns(
        f"At {100 * c.utilisation:.0f} % utilisation, a year", columns,
        caption="ranges: embodied figures drawn from theirs",
    )  # fmt: skip


def _orders(c: Curves) -> Table:
    columns: dict[str, Any] = {
        "machine": list(c.supply.names),
        "servers": c.supply.servers,
        "operational": 1e3 * c.supply.operational_g(c.g_kwh),
        "embodied": 1e3 * c.supply.embodied_g(),
    }
    for metric in c.metrics:
        rank = np.empty(len(c.supply.names), dtype=int)
        rank[order_of(metric, c.supply, c.g_kwh, sleep=c.sleep)] = np.arange(1, rank.size + 1)
        columns[f"{metric.name}_rank"] = rank
    unit = f"g/(1000 {c.supply.score_unit} h)"
    units = {"operational": unit, "embodied": unit}
    return Table.from_columns("Orders", columns, units=units)


_AXES = {
    "utilisation": ("Added carbon by utilisation", "utilisation", "%", 100.0),
    "share": ("Largest added carbon by embodied share", "embodied share", "%", 100.0),
    "share, re-sorted": ("The same, re-sorted", "embodied share", "%", 100.0),
    "life": ("Largest added carbon by life", "life", "years", 1.0),
    "grid": ("Largest added carbon by grid", "grid", "gCO2e/kWh", 1.0),
    "idle": ("Largest added carbon by idle power", "idle share of peak power", "%", 100.0),
}


def _charts(c: Curves) -> list[Chart]:
    charts: list[Chart] = []
    for axis, (title, label, unit, scale) in _AXES.items():
        lines = []
        for name, added in c.by[axis].items():
            if not added.operational_pct.any():
                continue
            x = (scale * added.at).tolist()
            shown = METRICS[name].title
            lines.append(Line(f"{shown}, operational", x, added.operational_pct.tolist()))
            lines.append(Line(f"{shown}, all", x, added.total_pct.tolist(), dashed=True))
        if lines:
            charts.append(LineChart(title, lines, x_label=label, x_unit=unit, y_unit="%"))
    return charts


def _advice(c: Curves) -> list[str]:
    costs = [Cost(metric, *c.at_utilisation[metric.name]) for metric in c.metrics]
    best = METRICS["osci"] if c.sleep or not c.supply.idle_w.any() else METRICS["tsci"]
    return advise(costs, best, f"on this fleet at {100 * c.utilisation:.0f} % utilisation")


def to_script(curves: Curves) -> dict[str, Any]:
    """What `--json` has at its top."""
    c = curves
    return {
        "metrics": {
            m.name: {
                "added_operational_pct": c.at_utilisation[m.name][0],
                "added_total_pct": c.at_utilisation[m.name][1],
                "added_operational_pct_low": c.uncertain[m.name].low,
                "added_operational_pct_high": c.uncertain[m.name].high,
                "worst_operational_pct": c.worst[m.name][0],
                "worst_total_pct": c.worst[m.name][1],
                "worst_at_utilisation": c.worst[m.name][2],
                "order": [
                    c.supply.names[g] for g in order_of(m, c.supply, c.g_kwh, sleep=c.sleep)
                ],
            }
            for m in c.metrics
        },
        "curves": {
            axis: {
                name: {
                    "at": added.at.tolist(),
                    "operational_pct": added.operational_pct.tolist(),
                    "total_pct": added.total_pct.tolist(),
                }
                for name, added in by.items()
            }
            for axis, by in c.by.items()
        },
        "advice": _advice(c),
    }
