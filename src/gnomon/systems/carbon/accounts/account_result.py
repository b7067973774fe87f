"""An account as a Result: totals, every job, the metrics, and what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from gnomon.estimate import Estimate
from gnomon.ingest.intensity.grid import day_of
from gnomon.model.ranges import Ranges
from gnomon.report import BarChart, Bars, Chart, Figure, LineChart, Manifest, Result
from gnomon.report.charts.chart import Line
from gnomon.systems.carbon.accounts.account import METRICS, Accounts
from gnomon.systems.carbon.metric import TITLES
from gnomon.table import Table, format_range, format_value
from gnomon.units import HOUR_NS

_DRAWN = 15
_MOST_POINTS = 2000


def _possible(a: Accounts, metrics: Sequence[str]) -> tuple[list[str], list[str]]:
    """The metrics that this account can have, and notes about the others.

    A single one that it cannot have is left in: asking for it says why.
    """
    names = list(metrics)
    if names == ["rsci"] or "rsci" not in names or a.operational_g.total().mid > 0:
        return names, []
    names.remove("rsci")
    return names, ["rSCI is left out: there is no operational carbon to share a report by."]


def to_result(
    accounts: Accounts,
    metrics: Sequence[str],
    command: str = "",
    *,
    sources: Sequence[str] = (),
    notes: Sequence[str] = (),
    seed: int | None = None,
    top: int = 20,
) -> Result:
    """Everything there is to say about an account."""
    a = accounts
    metrics, left_out = _possible(a, metrics)
    return Result(
        "carbon",
        "account",
        f"Carbon of {len(a):,} {'job' if len(a) == 1 else 'jobs'}",
        "What did it emit, and by which number?",
        figures=_figures(a),
        tables=[_jobs(a, metrics, top), _metrics(a, metrics)],
        charts=[_largest(a), _grid(a)],
        how=_HOW,
        notes=[*a.notes, *left_out, *notes],
        manifest=Manifest.of(
            command, sources, seed=seed, metrics=list(metrics), amortise=a.amortise
        ),
    )  # fmt: skip


_HOW = [
    "**Energy** is what a job's share of its machines draws: idle power by threads held, plus "
    "load times what lies between idle and peak, times PUE. Measured energy goes before it.",
    "**Operational** carbon is energy times the grid's intensity, hour by hour "
    "(`gnomon.model.carbon`).",
    "**Embodied** carbon is the job's share of its machines for as long as it held them: evenly "
    "over the expected life, over max(life, age), or nothing after it (`--amortise`).",
    "**tSCI** adds the job's share of idle capacity, by threads held between one start or end and "
    "the next (`gnomon.model.attribution`); over all jobs it is the fleet's total.",
    "Every **range** is interval arithmetic over the ranges of power, intensity, PUE and embodied "
    "carbon: as if all were wrong the same way.",
]


def _figures(a: Accounts) -> list[Figure]:
    operational, embodied = a.operational_g.total() * 1e-3, a.embodied_g.total() * 1e-3
    energy = a.energy_kwh.total()
    total = operational + embodied
    share = 100 * embodied.mid / total.mid if total.mid else 0.0
    figures = [
        Figure("total_kg", "Carbon of the jobs", total, "kg", "lower"),
        Figure("operational_kg", "of which operational", operational, "kg", "lower"),
        Figure("embodied_kg", "of which embodied", embodied, "kg", note=f"{share:.3g} % of it"),
        Figure("energy_kwh", "Energy", energy, "kWh", "lower", "with PUE"),
    ]
    if energy.mid:
        mean = 1e3 * operational.mid / energy.mid
        figures.append(Figure("mean_g_kwh", "Mean intensity of the energy", mean, "g/kWh"))
    if a.fleet_g is not None:
        idle = (a.idle_operational_g.total() + a.idle_embodied_g.total() + a.nobody_g) * 1e-3
        figures += [
            Figure(
                "fleet_kg", "Carbon of the whole fleet in the same time", a.fleet_g * 1e-3, "kg"
            ),
            Figure("idle_kg", "of which idle capacity", idle, "kg", "lower"),
        ]
    if (cost := a.cost_usd) is not None:
        figures.append(Figure("cost_usd", "Electricity", cost.total(), "USD", "lower"))
    return figures


def _order(a: Accounts) -> Any:
    return np.argsort(-a.total_g.mid, kind="stable")


def _jobs(a: Accounts, metrics: Sequence[str], top: int) -> Table:
    rows = _order(a)[:top].tolist()
    values = {name: a.metric(name) for name in metrics}
    total, cost = a.total_g, a.cost_usd
    records = []
    for row in rows:
        record: dict[str, Any] = {
            "job": a.names[row],
            "start": day_of(int(a.start_ns[row])),
            "hours": float(a.end_ns[row] - a.start_ns[row]) / HOUR_NS,
            "energy_kwh": a.energy_kwh[row].mid,
            "operational_g": a.operational_g[row].mid,
            "embodied_g": a.embodied_g[row].mid,
            "total_g": total[row].mid,
            "range_g": _range(total[row]),
        }
        if cost is not None:
            record["cost_usd"] = cost[row].mid
        record |= {name: values[name][row].mid for name in metrics}
        records.append(record)
    shown = f"The {len(rows):,} largest of {len(a):,}." if len(rows) < len(a) else ""
    return Table.from_rows("Jobs", records, caption=shown)


def _range(estimate: Estimate) -> str:
    return format_range(estimate.low, estimate.high)


def _metrics(a: Accounts, metrics: Sequence[str]) -> Table:
    rows = []
    for name in metrics:
        values = a.metric(name)
        whole = values * a.work
        unit = "g s" if name == "cdp" else f"g/{a.work_unit}"
        rows.append(
            {
                "metric": TITLES[name],
                "median": float(np.median(values.mid)),
                "min": float(values.mid.min()),
                "max": float(values.mid.max()),
                "unit": unit,
                "sum_kg": "" if name == "cdp" else format_value(whole.total().mid * 1e-3),
                "range_kg": "" if name == "cdp" else _range(whole.total() * 1e-3),
                "about": METRICS[name],
            }
        )
    return Table.from_rows("Metrics", rows, caption="Sums are over all jobs, times their work.")


def _largest(a: Accounts) -> Chart:
    rows = _order(a)[:_DRAWN]
    return BarChart(
        "Largest jobs",
        [a.names[row] for row in rows.tolist()],
        [
            Bars("operational", (a.operational_g.mid[rows] * 1e-3).tolist()),
            Bars("embodied", (a.embodied_g.mid[rows] * 1e-3).tolist()),
            Bars(
                "share of idle capacity",
                ((a.idle_operational_g.mid + a.idle_embodied_g.mid)[rows] * 1e-3).tolist(),
            ),
        ],
        unit="kg",
        caption="Carbon by job; with its share of idle capacity it is tSCI.",
    )


def _grid(a: Accounts) -> Chart:
    start, end = int(a.start_ns.min()), int(a.end_ns.max())
    part = a.intensity.slice(start, max(end, start + 1))
    step = max(1, -(-len(part) // _MOST_POINTS))
    hours = ((part.time_ns - start) / HOUR_NS)[::step]
    ranges: dict[str, Any] = {}
    if part.low is not None and part.high is not None:
        ranges = {"low": part.low[::step].tolist(), "high": part.high[::step].tolist()}
    line = Line("grid", hours.tolist(), part.values[::step].tolist(), step=True, **ranges)
    return LineChart(
        "Grid while they ran", [line], x_label="since the first start", x_unit="h",
        y_label="intensity", y_unit="g/kWh",
    )  # fmt: skip


def to_script(accounts: Accounts, metrics: Sequence[str]) -> dict[str, Any]:
    """Every job with every number, as plain values."""
    a = accounts
    metrics, _ = _possible(a, metrics)
    columns: dict[str, Ranges] = {
        "energy_kwh": a.energy_kwh,
        "operational_g": a.operational_g,
        "embodied_g": a.embodied_g,
        "total_g": a.total_g,
        "idle_operational_g": a.idle_operational_g,
        "idle_embodied_g": a.idle_embodied_g,
    }
    if (cost := a.cost_usd) is not None:
        columns["cost_usd"] = cost
    columns |= {name: a.metric(name) for name in metrics}
    plain = {
        name: list(zip(values.low.tolist(), values.mid.tolist(), values.high.tolist()))
        for name, values in columns.items()
    }
    jobs = []
    for row, name in enumerate(a.names):
        job: dict[str, Any] = {
            "id": name,
            "line": int(a.line[row]),
            "start_ns": int(a.start_ns[row]),
            "end_ns": int(a.end_ns[row]),
        }
        for key, values in plain.items():
            low, mid, high = values[row]
            job[key] = {"low": low, "mid": mid, "high": high}
        jobs.append(job)
    totals = {
        "energy_kwh": a.energy_kwh.total(),
        "operational_kg": a.operational_g.total() * 1e-3,
        "embodied_kg": a.embodied_g.total() * 1e-3,
        "total_kg": a.total_g.total() * 1e-3,
    }
    plain_totals = {name: msgspec.structs.asdict(total) for name, total in totals.items()}
    return {
        "totals": plain_totals,
        "jobs": jobs,
        "work_unit": a.work_unit,
        "amortise": a.amortise,
    }
