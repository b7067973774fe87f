"""Answers of `simulate` and `compare`: score card, charts over time, the service graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.graph.application import Application
from gnomon.report import Chart, Figure, GraphChart, GraphNode, Line, LineChart, Manifest, Result
from gnomon.sim.mesh import Spent
from gnomon.systems.services.measure import SLA_WINDOW_S, Score, missing_parts
from gnomon.systems.services.trial import Outcome, Setup
from gnomon.table import Table

#: Of checks, so many may be missed within an SLA.
TOLERATED_PCT = 1.0
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
        caption="violation: checks that missed the SLA, one per class and window of "
        f"{SLA_WINDOW_S:g} s; late: requests over the bound; recovery: longest time in violation",
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


def service_graph(app: Application, spent: Spent, of: str = "") -> GraphChart:
    """Who calls whom, and where requests spend their time; of a run that is named `of`."""
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
        f"Where the time goes{', ' * bool(of)}{of}", nodes,
        [(a, b, weight) for (a, b), weight in edges.items()],
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
    """Averaged to as many points as a chart can show; a gap where nothing was measured."""
    step = max(1, -(-len(x) // _POINTS))
    cut = len(x) - len(x) % step
    xs = np.asarray(x[:cut]).reshape(-1, step).max(axis=1)
    ys = np.asarray(y[:cut], float).reshape(-1, step)
    known = np.count_nonzero(~np.isnan(ys), axis=1)
    mean = np.where(known > 0, np.nansum(ys, axis=1) / np.maximum(known, 1), math.nan)
    return Line(name, xs.tolist(), mean.tolist())


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
        of = f"{scores[0].manager} at {scores[0].rate}" if len(outcomes) > 1 else ""
        charts.append(service_graph(app, first.spent, of))
    figures = _figures(scores[0]) if verb != "compare" else _best(app, scores)
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
        Figure("violation_pct", "SLA violations", one.violation_pct, "%", better="lower")
        if not math.isnan(one.violation_pct)
        else Figure("violation_pct", "SLA violations", "not checked"),
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


def is_within_sla(one: Score) -> bool:
    """Whether a run missed so few checks that its CPU counts, under a manager that worked."""
    return one.violation_pct <= TOLERATED_PCT and not _has_failed(one)


def meets_sla(outcomes: Sequence[Outcome]) -> bool:
    """Whether at each rate some manager does; true where nothing was checked."""
    scores = [one.score for one in outcomes if not math.isnan(one.score.violation_pct)]
    rates = {one.rate for one in scores}
    return all(any(is_within_sla(one) for one in scores if one.rate == rate) for rate in rates)


def _has_failed(one: Score) -> bool:
    return 2 * one.failed > one.windows


def _best(app: Application, scores: Sequence[Score]) -> list[Figure]:
    """For each rate, who meets the SLA with the least CPU; nobody where that means nothing."""
    lacks = [what for what in missing_parts(app) if not what.startswith("no CPU limit")]
    figures = []
    for number, rate in enumerate(dict.fromkeys(one.rate for one in scores)):
        mine = [one for one in scores if one.rate == rate]
        good = [one for one in mine if is_within_sla(one)]
        # What a service uses is less than any limit it can work under: those with limits first.
        limited = [one for one in good if not one.unlimited]
        if lacks:
            text = f"nobody is ranked: {' and '.join(lacks)}"
        elif all(math.isnan(one.violation_pct) for one in mine):
            text = "nobody is ranked: no request was checked"
        elif good:
            best = min(limited or good, key=lambda one: one.cpu_mean)
            text = f"{best.manager}: {best.cpu_mean:.2f} cores"
            if best.unlimited:
                many = best.unlimited > 1
                text += f" used, {best.unlimited} service{'s' * many} without a limit"
        else:
            text = "no manager"
        figures.append(
            Figure(f"best_{number}", f"Least CPU within the SLA, {rate}", text,
                   note=f"at most {TOLERATED_PCT:g} % of checks missed")
        )  # fmt: skip
    return figures


def _how(setup: Setup, outcomes: Sequence[Outcome]) -> list[str]:
    events = sum(outcome.events for outcome in outcomes)
    watts = setup.core_w
    each = f"{watts.mid:g} W each"
    if watts.low < watts.high:
        each = f"{watts.low:g} to {watts.high:g} W each (a guess)"
    lines = [
        "Requests arrive as a Poisson process at the rate given, whatever the services do; all "
        "managers get the same requests.",
        f"A manager decides every {setup.interval_s:g} s.",
        f"An SLA is checked for each class in each window of {SLA_WINDOW_S:g} s.",
        f"Energy: cores allocated, at {each}.",
    ]
    return [f"Simulated: {events:,} events.", *lines] if events else lines


def _notes(setup: Setup, scores: Sequence[Score]) -> list[str]:
    notes = [
        f"{what[0].upper()}{what[1:]}: {now}." for what, now in missing_parts(setup.app).items()
    ]
    if any(one.unlimited for one in scores):
        names = ", ".join(dict.fromkeys(one.manager for one in scores if one.unlimited))
        notes.append(f"Services without a limit count with what they use, under: {names}.")
    for one in scores:
        if one.failed:
            left_out = ", so it is not ranked" if _has_failed(one) and len(scores) > 1 else ""
            notes.append(f"{one.manager} at {one.rate} failed in {one.failed} of {one.windows} "
                         f"windows{left_out}: {one.failure}.")  # fmt: skip
    held = sum(one.held - one.failed + one.capped for one in scores)
    if held > 0:
        notes.append(f"Guard rails stepped in {held} times.")
    return notes


def to_script(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What `--json` promises: `managers[NAME][RATE]`."""
    managers: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        one = outcome.score
        managers.setdefault(one.manager, {})[one.rate] = {
            "violation_pct": _number(one.violation_pct), "late_pct": _number(one.late_pct),
            "cpu_mean": one.cpu_mean, "cpu_p95": one.cpu_p95, "cpu_used": one.cpu_used,
            "p50_ms": {k.name: _number(k.p50_ms) for k in one.classes},
            "p99_ms": {k.name: _number(k.p99_ms) for k in one.classes},
            "decisions": one.decisions, "held": one.held, "capped": one.capped,
            "failed": one.failed, "unlimited": one.unlimited, "recovery_s": one.recovery_s,
            "manager_ms": one.manager_ms, "manager_max_ms": one.manager_max_ms,
            "energy_kwh": one.energy_kwh.mid,
            "carbon_g": None if one.carbon_g is None else one.carbon_g.mid,
        }  # fmt: skip
    return {"managers": managers}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
