"""Answers of `explore` and `plan`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gnomon.decide.services.ursa import Exploration, Plan
from gnomon.graph.application import Application
from gnomon.report import BarChart, Bars, Chart, Figure, Manifest, Result
from gnomon.table import Table

_SHOWN = 8


def explored_to_result(
    app: Application, found: Exploration, *, where: str, command: str = "",
    sources: Sequence[str] = (), seed: int = 0, application: str = "app.yaml",
    out: str = "explored.json",
) -> Result:  # fmt: skip
    """What was explored, service by service."""
    rows = []
    for name, one in found.services.items():
        carried = [option.utilisation for option in one.options]
        rows.append({
            "service": name, "threshold_pct": 100 * one.threshold, "points": len(one.options),
            "utilisation_from_pct": 100 * min(carried, default=math.nan),
            "utilisation_to_pct": 100 * max(carried, default=math.nan), "ended": one.ended,
        })  # fmt: skip
    correlated = {name: one for name, one in found.correlation.items() if one > 0}
    notes = [
        f"Times of {name} are slow together: a correlation of {one:g} explains what was measured."
        for name, one in correlated.items()
    ]
    lacking = [name for name, one in found.services.items() if not one.options]
    if lacking:
        notes.append(
            f"{', '.join(lacking)}: no operating point, an SLA was at risk with plenty of CPU. "
            "Run the command again when the application keeps its SLAs: only they are explored."
        )
    notes.append(f"Next: gnomon services plan {application} {out}")
    return Result(
        "services", "explore", f"{app.name}: operating points of {len(found.services)} services",
        "How much load can a replica carry, and how fast is it then?",
        figures=[
            Figure("samples", "Samples", found.samples),
            Figure("hours", f"Time in the {where}", found.hours, "h"),
            Figure("services", "Services", len(found.services)),
        ],
        tables=[Table.from_rows("services", rows, units=dict.fromkeys(
            ("threshold_pct", "utilisation_from_pct", "utilisation_to_pct"), "%"))],
        how=["One service at a time gets less CPU, step by step, while the others have plenty; it "
             "gets it back when an SLA is at risk.",
             "Threshold: the utilisation at which callers begin to wait, found behind a proxy by "
             "Welch's test."],
        notes=notes, manifest=Manifest.of(command, sources, seed=seed),
    )  # fmt: skip


def plan_to_result(
    app: Application, plan: Plan, *, command: str = "", sources: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Result:  # fmt: skip
    """A plan that explains itself."""
    services = [
        {"service": name, "cores": one.cores, "limit_cores": one.option.cpu_limit,
         "utilisation_pct": 100 * one.option.utilisation,
         "calls_per_replica": sum(one.option.load.values()), "alternatives": len(one.also)}
        for name, one in sorted(plan.services.items(), key=lambda item: -item[1].cores)
    ]  # fmt: skip
    classes = [
        {"class": name, "percentile": one.percentile, "bound_ms": one.bound_ms,
         "expected_ms": one.expected_ms, "union_bound_ms": _known(one.union_ms),
         "room_pct": 100 * (1 - one.expected_ms / one.bound_ms),
         "millicores_saved_per_ms": 1e3 * one.saved_per_ms}
        for name, one in plan.classes.items()
    ]  # fmt: skip
    binding = plan.binding
    shares = list(plan.classes[binding].share_ms.items())[:_SHOWN] if binding else []
    figures = [
        Figure("cores", "CPU of the plan", plan.cores, "cores", better="lower",
               note="by joint samples" if plan.decomposition == "joint" else "by the union bound"),
        Figure("union_cores", "CPU by the union bound alone", plan.union_cores, "cores",
               better="lower")
        if math.isfinite(plan.union_cores)
        else Figure("union_cores", "CPU by the union bound alone", "no answer",
                    note="too few samples of rare latencies, or too many services"),
    ]  # fmt: skip
    remarks = [
        *notes,
        *(f"Calls of {which} to {name} were never timed: a request that waits for one counts as "
          "late." for name, one in plan.services.items()
          for which, seen in one.option.latencies.items()
          if which in plan.classes and not seen.count),
    ]  # fmt: skip
    if binding:
        one = plan.classes[binding]
        remarks.append(
            f"The SLA of {binding} has the least room: p{one.percentile:g} "
            f"{one.expected_ms:.0f} of {one.bound_ms:g} ms. "
            + (f"One more millisecond would save {1e3 * one.saved_per_ms:.2f} millicores."
               if one.saved_per_ms > 0 else "A looser bound would save nothing.")
        )  # fmt: skip
    tables = []
    if classes:
        tables.append(Table.from_rows("classes", classes, units={
            "bound_ms": "ms", "expected_ms": "ms", "union_bound_ms": "ms", "room_pct": "%",
        }))  # fmt: skip
    if shares:
        bound_ms = plan.classes[binding].bound_ms
        rows = [{"service": name, "ms": ms, "of_bound_pct": 100 * ms / bound_ms}
                for name, ms in shares]  # fmt: skip
        tables.append(Table.from_rows("shares", rows, units={"of_bound_pct": "%"},
                                      caption=f"of the latency of {binding}"))  # fmt: skip
    tables.append(Table.from_rows("services", services, units={
        "cores": "cores", "limit_cores": "cores", "utilisation_pct": "%",
        "calls_per_replica": "1/s"}))  # fmt: skip
    charts: list[Chart] = []
    if shares:
        where = f"Where the time of {binding} goes at p{plan.classes[binding].percentile:g}"
        bars = Bars("its part", [ms for _, ms in shares])
        charts = [BarChart(where, [name for name, _ in shares], [bars], unit="ms")]
    return Result(
        "services", "plan", f"{app.name}: {plan.cores:.2f} cores at "
        f"{sum(plan.class_rate.values()):.0f} requests/s", "How little CPU meets these SLAs?",
        figures=figures, tables=tables, charts=charts,
        how=["An integer program (HiGHS) chooses an explored operating point for each service.",
             "Union bound: percentiles of services add up, whatever their dependence. Joint "
             "samples: requests drawn with the dependence that was measured, checked end to end."],
        notes=remarks, manifest=Manifest.of(command, sources),
    )  # fmt: skip


def _known(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def plan_to_script(plan: Plan) -> dict[str, Any]:
    """What `--json` promises of a plan."""
    return {
        "cores": plan.cores,
        "union_cores": plan.union_cores if math.isfinite(plan.union_cores) else None,
        "decomposition": plan.decomposition,
        "binding": plan.binding or None,
        "services": {
            name: {"cores": one.cores, "cpu_limit": one.option.cpu_limit,
                   "load": one.option.load, "utilisation": one.option.utilisation}
            for name, one in plan.services.items()
        },
        "classes": {
            name: {"bound_ms": one.bound_ms, "percentile": one.percentile,
                   "expected_ms": one.expected_ms,
                   "union_bound_ms": one.union_ms if math.isfinite(one.union_ms) else None,
                   "share_ms": one.share_ms, "cores_saved_per_ms": one.saved_per_ms}
            for name, one in plan.classes.items()
        },
    }  # fmt: skip
