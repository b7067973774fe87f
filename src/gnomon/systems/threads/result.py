"""The answer of `threads simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.report import Chart, Figure, Line, LineChart, Manifest, Result
from gnomon.systems.threads.study import Advice, Cell, Setting
from gnomon.table import Table

_US = {"p50_us": "us", "p99_us": "us", "p999_us": "us", "quantum_us": "us", "lost_pct": "%"}


def to_result(
    setting: Setting, source: str, cells: Sequence[Cell], advice: Sequence[Advice], *,
    command: str = "", sources: Sequence[str] = (),
) -> Result:  # fmt: skip
    """Latencies of every policy, and what to choose at each load."""
    workload, how = setting.workload, setting.mechanism
    late_us = sum(how.late_ns) / max(len(how.late_ns), 1) / 1e3
    return Result(
        "threads", "simulate", f"{workload.name} on {_count(setting.workers, 'worker')}",
        "Which policy and quantum keep the short requests short?",
        figures=[_figure(one) for one in advice],
        tables=[_cell_table(cells), _class_table(cells)],
        charts=_charts(workload.kinds, cells),
        how=[
            f"{setting.requests:,} requests a cell, Poisson arrivals, the same for every policy; "
            "the first tenth is not counted.",
            f"A preemption ({source}) costs a worker {how.cost_ns / 1e3:g} us and is "
            f"{late_us:g} us late.",
            "Not worth it: no policy has a p99 of all requests that is better by a fifth.",
        ],
        notes=_notes(cells, advice),
        manifest=Manifest.of(command, sources, seed=setting.seed),
    )  # fmt: skip


def to_script(cells: Sequence[Cell], advice: Sequence[Advice], source: str) -> dict[str, Any]:
    """What `--json` promises."""
    return {
        "cells": [_flat(one) | {"source": source} for one in cells],
        "advice": [
            {"load": one.load, "policy": one.best.policy, "quantum_us": one.best.quantum_us,
             "is_worth_it": one.is_worth_it, "gain": one.gain, "price": one.price}
            for one in advice
        ],
    }  # fmt: skip


def _flat(cell: Cell) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(cell)
    overall: dict[str, Any] = plain.pop("overall")
    return overall | plain


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _choice(cell: Cell) -> str:
    return cell.policy if cell.quantum_us is None else f"{cell.policy}, {cell.quantum_us:g} us"


def _name(one: Advice) -> str:
    return f"p99_us_at_{100 * one.load:.0f}_pct"


def _figure(one: Advice) -> Figure:
    if not one.is_worth_it:
        note = f"preemption is not worth it: p99 {one.base.overall.p99_us:,.0f} us"
        return Figure(_name(one), f"Load {one.load:g}", one.base.overall.p99_us, "us",
                      note=note, better="lower")  # fmt: skip
    paid = ", ".join(f"p99 of {name} x {price:.2g}" for name, price in one.price.items())
    return Figure(
        _name(one), f"Load {one.load:g}: {_choice(one.best)}", one.best.overall.p99_us,
        "us", note=f"p99, {one.gain:.1f} times better than fcfs; {paid}", better="lower",
    )  # fmt: skip


def _cell_table(cells: Sequence[Cell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "quantum_us": one.quantum_us,
         "p50_us": one.overall.p50_us, "p99_us": one.overall.p99_us,
         "p999_us": one.overall.p999_us, "preemptions": one.preemptions,
         "lost_pct": one.lost_pct, "stable": "yes" if one.is_stable else "no"}
        for one in cells
    ]  # fmt: skip
    caption = "preemptions of a request; lost: of the workers' time"
    return Table.from_rows("policies", rows, units=_US, caption=caption)


def _class_table(cells: Sequence[Cell]) -> Table:
    rows = [
        {"load": one.load, "policy": one.policy, "quantum_us": one.quantum_us, "class": name,
         "requests": seen.requests, "p50_us": seen.p50_us, "p99_us": seen.p99_us,
         "p999_us": seen.p999_us}
        for one in cells for name, seen in one.classes.items()
    ]  # fmt: skip
    units = {name: unit for name, unit in _US.items() if name in rows[0]}
    return Table.from_rows("classes", rows, units=units)


def _charts(kinds: Sequence[str], cells: Sequence[Cell]) -> list[Chart]:
    """p99 over load of each class: a line a policy, at its best quantum."""
    loads = list(dict.fromkeys(one.load for one in cells))
    if len(loads) < 2:
        return []
    charts: list[Chart] = []
    for kind in kinds:
        lines = []
        for policy in dict.fromkeys(one.policy for one in cells):
            mine = [[one for one in cells if (one.policy, one.load) == (policy, load)]
                    for load in loads]  # fmt: skip
            best = [min(some, key=lambda one: one.overall.p99_us) for some in mine]
            p99 = [one.classes[kind].p99_us if kind in one.classes else float("nan")
                   for one in best]  # fmt: skip
            lines.append(Line(policy, loads, p99))
        charts.append(
            LineChart(
                f"p99 of {kind}", lines, x_label="load", y_label="p99", y_unit="us",
                caption="Each policy with the quantum that has the least p99.",
            )
        )  # fmt: skip
    return charts


def _notes(cells: Sequence[Cell], advice: Sequence[Advice]) -> list[str]:
    notes = []
    lost = sorted({_choice(one) for one in cells if not one.is_stable})
    if lost:
        notes.append(f"Preempting costs more than there is at some load: {', '.join(lost[:4])}.")
    dear = {name: one for a in advice for name, one in a.price.items() if one > 1.5}
    if dear:
        name = max(dear, key=lambda name: dear[name])
        notes.append(f"{name} pays: its p99 is up to {dear[name]:.1f} times that under fcfs.")
    return notes
