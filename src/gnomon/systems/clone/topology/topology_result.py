"""What `topology` answers: what was found in traces, and how close the running clone is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnomon.ingest.spans.call_graph import Operation
from gnomon.report import Figure, Line, LineChart, Manifest, Result
from gnomon.systems.clone.topology.compare import (
    CALLS_PCT,
    FEWEST,
    LATENCY_PCT,
    Comparison,
    LatencyRow,
)
from gnomon.systems.clone.topology.live import Ran
from gnomon.systems.clone.topology.model import Model
from gnomon.table import Table

_SHOWN = 40
_CHARTS = 4


def model_to_result(model: Model, *, command: str, sources: Sequence[str], next: str) -> Result:
    """What the traces hold, before anything runs."""
    rows = [
        {"operation": _name(one.operation), "requests": one.count,
         "p50_ms": one.percentiles_ms[50], "p99_ms": one.percentiles_ms[99]}
        for one in model.original.latencies if one.is_entry
    ]  # fmt: skip
    return Result(
        "clone", "topology", f"{len(model.shapes.tiers)} tiers from traces",
        "Which calls do requests make, and how long do they take?",
        figures=[*_sizes(model), Figure("rate", "Requests per second", model.shapes.rate, "1/s")],
        tables=[Table.from_rows("first operations", rows[:_SHOWN],
                                units={"p50_ms": "ms", "p99_ms": "ms"})],
        notes=[*model.notes, _cpu_note(model), f"Next: `gnomon clone topology {next} --run 60`."],
        manifest=Manifest.of(command, sources),
    )  # fmt: skip


def run_to_result(
    model: Model, ran: Ran, found: Comparison, *, command: str, sources: Sequence[str]
) -> Result:
    """The clone's own spans beside the original's."""
    figures = [
        Figure("matches", "The clone matches", "yes" if found.matches else "no",
               note=f"p50 and p99 within {LATENCY_PCT:g} %, calls within {CALLS_PCT:g} % and "
               "chance"),
        Figure("same_graph", "Same call graph", "yes" if found.has_same_graph else "no",
               note=f"{found.missing} calls missing, {found.added} added"),
    ]  # fmt: skip
    for percentile in (50, 99):
        worst = found.worst_error_pct(percentile)
        if not math.isnan(worst):
            figures.append(Figure(f"p{percentile}_error_pct", f"p{percentile} off by", worst, "%",
                                  better="lower", note="worst first operation"))  # fmt: skip
    figures += [
        Figure("requests", "Requests", ran.seen.requests, note=f"{ran.rate:.3g}/s"),
        Figure("cores", "CPU used", ran.cores, "cores"),
        *_sizes(model),
    ]
    return Result(
        "clone", "topology", f"{len(model.shapes.tiers)} tiers, cloned",
        "Do the clone's own spans look like the original's?", figures=figures,
        tables=[_latencies("first operations", found, is_entry=True), _calls(found),
                _latencies("all operations", found, is_entry=False)],
        charts=[_chart(row) for row in found.entries[:_CHARTS]],
        how=["Both sets of spans are read by the same code. Percentiles are values of requests, "
             "without lines between them.",
             f"First operations with fewer than {FEWEST} recorded requests decide nothing, unless "
             "all have."],
        notes=[*model.notes, _cpu_note(model), *ran.notes], manifest=Manifest.of(command, sources),
    )  # fmt: skip


def _sizes(model: Model) -> list[Figure]:
    shapes = model.shapes
    return [
        Figure("tiers", "Tiers", len(shapes.tiers), note=f"{len(shapes.operations)} operations"),
        Figure("edges", "Edges of the call graph",
               sum(one.caller is not None for one in model.original.edges)),
        Figure("shapes", "Request shapes", len(shapes.shapes),
               note=f"of {sum(shape.weight for shape in shapes.shapes):,} requests"),
    ]  # fmt: skip


def _cpu_note(model: Model) -> str:
    if model.cpu_share == 0:
        return ("Tiers wait for their own time and take no CPU time: spans do not tell the two "
                "apart. `--cpu-share 0.3` spends 30 % of it as CPU time.")  # fmt: skip
    return f"Tiers spend {model.cpu_share:.0%} of their own time as CPU time and wait the rest."


def _name(operation: Operation | None) -> str:
    return "client" if operation is None else " ".join(operation)


def _latencies(title: str, found: Comparison, *, is_entry: bool) -> Table:
    rows = [
        {"operation": _name(row.operation), "requests": row.original_count,
         "clone_requests": row.clone_count,
         **{f"p{p}{name}": value for p in (50, 99) for name, value in (
             ("_ms", row.original_ms[p]), ("_clone_ms", row.clone_ms[p]),
             ("_error_pct", row.error_pct(p)))}}
        for row in found.latency if row.is_entry == is_entry
    ]  # fmt: skip
    units = {name: "ms" for name in rows[0] if name.endswith("_ms")} if rows else {}
    return Table.from_rows(title, rows[:_SHOWN], caption=_left_out(len(rows)),
                           units=units | {"p50_error_pct": "%", "p99_error_pct": "%"})  # fmt: skip


def _calls(found: Comparison) -> Table:
    rows = [
        {"caller": _name(row.caller), "callee": _name(row.callee), "calls": row.original,
         "clone_calls": row.clone, "failed_pct": row.original_failed_pct,
         "clone_failed_pct": row.clone_failed_pct, "same": "yes" if row.is_same else "no"}
        for row in sorted(found.edges, key=lambda row: row.is_same)
    ]  # fmt: skip
    return Table.from_rows("calls", rows[:_SHOWN], caption=f"per request{_left_out(len(rows))}",
                           units={"failed_pct": "%", "clone_failed_pct": "%"})  # fmt: skip


def _left_out(rows: int) -> str:
    return f" (the first {_SHOWN} of {rows})" if rows > _SHOWN else ""


def _chart(row: LatencyRow) -> LineChart:
    shares = list(range(101))
    return LineChart(
        f"Latency of {_name(row.operation)}",
        [Line("original", shares, row.original_ms),
         Line("clone", shares, row.clone_ms, dashed=True)],
        x_label="percentile", x_unit="%", y_label="latency", y_unit="ms",
    )  # fmt: skip
