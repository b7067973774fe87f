"""Answers of `simulate` and `compare`: score card, charts over time, the service graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.graph.application import Application
from gnomon.report import Chart, Figure, GraphChart, GraphNode, Line, LineChart, Manifest, Result
from gnomon.sim.mesh import Spent
from gnomon.systems.services.measure import SLA_WINDOW_S, Score
from gnomon.systems.services.trial import Outcome, Setup
from gnomon.table import Table

_QUESTION = "How little CPU meets this SLA?"
#: Points of a line over time; more than a screen is wide are averaged.
_POINTS = 400
#: Places that the table of where the time goes lists.
_ROWS = 20


def score_table(scores: Sequence[Score]) -> Table:
    """The score card: a row for each manager and rate."""
    rows = [
        {
            "rate": one.rate, "manager": one.manager, "violation_pct": one.violation_pct,
            "late_pct": one.late_pct, "cpu_mean": one.cpu_mean, "cpu_p95": one.cpu_p95,
            "cpu_used": one.cpu_used, "decisions": one.decisions, "recovery_s": one.recovery_s,
            "manager_ms": one.manager_ms, "energy_wh": one.energy_kwh.mid * 1e3,
        } | ({} if one.carbon_g is None else {"carbon_g": one.carbon_g.mid})
        for one in scores
    ]  # fmt: skip
    units = {
        "violation_pct": "%", "late_pct": "%", "cpu_mean": "cores", "cpu_p95": "cores",
        "cpu_used": "cores", "recovery_s": "s", "manager_ms": "ms", "energy_wh": "Wh",
    }  # fmt: skip
    if "carbon_g" in rows[0]:
        units["carbon_g"] = "g"
    return Table.from_rows(
        "score_card", rows, units=units,
        caption=f"violation: windows of {SLA_WINDOW_S:g} s with a class over its SLA; late: "
        "requests over the bound; recovery: the longest time in violation",
    )  # fmt: skip


def class_table(scores: Sequence[Score]) -> Table:
    """Latency and SLA by class."""
    rows = [
        {
            "rate": one.rate, "manager": one.manager, "class": kind.name,
            "requests": kind.requests, "p50_ms": kind.p50_ms, "p99_ms": kind.p99_ms,
            "sla_ms": kind.sla_ms, "sla_percentile": kind.sla_percentile,
            "violation_pct": kind.violation_pct, "error_pct": kind.error_pct,
        }
        for one in scores
        for kind in one.classes
    ]  # fmt: skip
    units = {
        "p50_ms": "ms",
        "p99_ms": "ms",
        "sla_ms": "ms",
        "violation_pct": "%",
        "error_pct": "%",
    }
    return Table.from_rows("classes", rows, units=units)


def spent_table(app: Application, spent: Spent) -> Table:
    """Where the time of each class goes, by service."""
    services, classes = list(app.services), list(app.classes)
    rows = [
        {
            "class": classes[spent.request_class[i]], "service": services[spent.service[i]],
            "calls": int(spent.calls[i]), "exclusive_ms": float(spent.exclusive_ms[i]),
            "cpu_ms": float(spent.cpu_ms[i]), "queued_ms": float(spent.queued_ms[i]),
            "p50_ms": spent.quantile_ms(i, 50), "p99_ms": spent.quantile_ms(i, 99),
        }
        for i in np.argsort(-spent.exclusive_ms * spent.calls, kind="stable")[:_ROWS]
        if spent.calls[i] > 0
    ]  # fmt: skip
    return Table.from_rows(
        "where_the_time_goes", rows, units=dict.fromkeys(list(rows[0])[3:], "ms") if rows else {},
        caption="means and percentiles of one call; exclusive: queueing, work and throttling "
        "there, without the calls below",
    )  # fmt: skip


def service_graph(app: Application, spent: Spent) -> GraphChart:
    """Who calls whom, and where requests spend their time."""
    names = list(app.services)
    whole = np.zeros(len(names))
    np.add.at(whole, spent.service, spent.exclusive_ms * spent.calls)
    total = whole.sum() or 1.0
    edges: dict[tuple[str, str], float] = {}
    for name, share in app.shares().items():
        left = [(app.classes[name].call, share)]
        while left:
            call, chance = left.pop()
            for below in (one for stage in call.then for one in stage):
                key = (call.service, below.service)
                edges[key] = edges.get(key, 0.0) + chance * below.probability
                left.append((below, chance * below.probability))
    shares = whole / total
    top = shares.max() or 1.0
    nodes = [
        GraphNode(name, f"{100 * share:.1f} % of the time", float(share / top))
        for name, share in zip(names, shares)
    ]
    return GraphChart(
        "Where the time goes", nodes, [(a, b, weight) for (a, b), weight in edges.items()],
        caption="Time at a service without the calls below; calls in parallel count each.",
    )  # fmt: skip


def over_time(app: Application, outcomes: Sequence[Outcome]) -> list[Chart]:
    """Allocation and latency over time, a line for each manager; charts for each rate."""
    charts: list[Chart] = []
    for rate in dict.fromkeys(outcome.score.rate for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.score.rate == rate]
        charts.append(
            LineChart(
                f"CPU allocated, {rate}",
                [_line(one.score.manager, one.series.end_s, one.series.allocated) for one in mine],
                x_label="time", x_unit="s", y_label="allocated", y_unit="cores",
            )
        )  # fmt: skip
        for c, (name, kind) in enumerate(app.classes.items()):
            if kind.sla is None:
                continue
            lines = [
                _line(one.score.manager, one.series.end_s, one.series.p99_ms[c]) for one in mine
            ]
            ends = [float(mine[0].series.end_s[0]), float(mine[0].series.end_s[-1])]
            lines.append(Line("SLA", ends, [kind.sla.bound_ms] * 2, dashed=True))
            charts.append(
                LineChart(
                    f"p99 of {name}, {rate}", lines, x_label="time", x_unit="s", y_label="p99",
                    y_unit="ms",
                )
            )  # fmt: skip
    return charts


def _line(name: str, x: Any, y: Any) -> Line:
    """Averaged to as many points as a chart can show."""
    step = max(1, -(-len(x) // _POINTS))
    cut = len(x) - len(x) % step
    with np.errstate(invalid="ignore"):
        xs = np.asarray(x[:cut]).reshape(-1, step).max(axis=1)
        ys = np.nan_to_num(np.asarray(y[:cut], float), nan=0.0).reshape(-1, step).mean(axis=1)
    return Line(name, xs.tolist(), ys.tolist())


def to_result(
    setup: Setup, outcomes: Sequence[Outcome], *, verb: str, command: str = "",
    sources: Sequence[str] = (), notes: Sequence[str] = (),
) -> Result:  # fmt: skip
    """The answer to `simulate` (one outcome) or `compare` (many)."""
    app, scores = setup.app, [outcome.score for outcome in outcomes]
    first = outcomes[0]
    tables = [score_table(scores), class_table(scores)]
    charts = over_time(app, outcomes)
    if first.spent is not None:
        if len(outcomes) == 1:
            tables.append(spent_table(app, first.spent))
        charts.append(service_graph(app, first.spent))
    figures = _figures(scores[0]) if len(scores) == 1 else _best(scores)
    return Result(
        "services", verb, f"{app.name}: {len(app.services)} services", _QUESTION, figures=figures,
        tables=tables, charts=charts, how=_how(setup, outcomes),
        notes=[*notes, *_notes(setup, scores)],
        manifest=Manifest.of(
            command, sources, seed=setup.seed, application=app.name,
            managers=[one.manager for one in scores], rates=[one.rate for one in scores],
        ),
    )  # fmt: skip


def _figures(one: Score) -> list[Figure]:
    figures = [
        Figure("violation_pct", "SLA violations", one.violation_pct, "%", better="lower"),
        Figure("cpu_mean", "CPU allocated", one.cpu_mean, "cores", better="lower"),
        Figure("cpu_used", "CPU used", one.cpu_used, "cores"),
        Figure("energy_kwh", "Energy", one.energy_kwh, "kWh", better="lower"),
    ]
    worst = max((k.p99_ms for k in one.classes if not math.isnan(k.p99_ms)), default=None)
    if worst is not None:
        figures.insert(1, Figure("p99_ms", "Slowest p99", worst, "ms", better="lower"))
    if one.carbon_g is not None:
        figures.append(Figure("carbon_g", "Carbon", one.carbon_g, "g", better="lower"))
    return figures


def _best(scores: Sequence[Score]) -> list[Figure]:
    """For each rate, who meets the SLA in 99 % of windows with the least CPU."""
    figures = []
    for number, rate in enumerate(dict.fromkeys(one.rate for one in scores)):
        mine = [one for one in scores if one.rate == rate]
        good = [one for one in mine if one.violation_pct <= 1.0]
        text = "none meets the SLA in 99 % of the windows"
        if good:
            best = min(good, key=lambda one: one.cpu_mean)
            text = f"{best.manager}: {best.cpu_mean:.2f} cores"
        figures.append(Figure(f"best_{number}", f"Least CPU within the SLA, {rate}", text))
    return figures


def _how(setup: Setup, outcomes: Sequence[Outcome]) -> list[str]:
    events = sum(outcome.events for outcome in outcomes)
    lines = [
        "Requests arrive as a Poisson process at the rate given, whatever the services do; all "
        "managers get the same requests.",
        f"A manager decides every {setup.interval_s:g} s.",
        "Energy: cores allocated, at 3 to 8 W each (a guess).",
    ]
    return [f"Simulated: {events:,} events.", *lines] if events else lines


def _notes(setup: Setup, scores: Sequence[Score]) -> list[str]:
    notes = []
    if all(one.sla is None for one in setup.app.classes.values()):
        notes.append("No class has an SLA: violations are not counted.")
    held = sum(one.held + one.capped for one in scores)
    if held:
        notes.append(f"Guard rails stepped in {held} times.")
    return notes


def to_script(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What `--json` promises: `managers[NAME][RATE]`."""
    managers: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        one = outcome.score
        managers.setdefault(one.manager, {})[one.rate] = {
            "violation_pct": one.violation_pct, "late_pct": one.late_pct,
            "cpu_mean": one.cpu_mean, "cpu_p95": one.cpu_p95, "cpu_used": one.cpu_used,
            "p50_ms": {k.name: _number(k.p50_ms) for k in one.classes},
            "p99_ms": {k.name: _number(k.p99_ms) for k in one.classes},
            "decisions": one.decisions, "held": one.held, "capped": one.capped,
            "recovery_s": one.recovery_s, "manager_ms": one.manager_ms,
            "energy_kwh": one.energy_kwh.mid,
            "carbon_g": None if one.carbon_g is None else one.carbon_g.mid,
        }  # fmt: skip
    return {"managers": managers}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
