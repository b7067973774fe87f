"""A check as a Result: the verdict, rows side by side, and bars of both by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.report import BarChart, Bars, Chart, Figure, Manifest, Result
from gnomon.systems.aibench.verify.comparison import Check, Row
from gnomon.table import Table
from gnomon.version import __version__

_VERDICTS = {True: "agrees", False: "differs", None: "not judged"}


def to_result(check: Check, command: str = "") -> Result:
    """The report on a clone and its original."""
    return Result(
        "aibench",
        "check",
        f"Clone on {check.clone.device}, original on {check.original.device}",
        "Does the clone behave as the original?",
        figures=_figures(check),
        tables=_tables(check),
        charts=_charts(check),
        how=_HOW,
        notes=[*_out_of_tolerance(check), *check.notes],
        manifest=Manifest(
            command, msgspec.structs.asdict(check.tolerance), None, __version__, list(check.inputs)
        ),
    )


def to_script(check: Check) -> dict[str, Any]:
    """The figures that scripts ask for, as plain values."""
    return {
        "agrees": check.agrees,
        "basis": check.basis,
        "against": [row.name for row in check.against],
        "rows": [_row(row) for row in check.rows],
        "families": [_row(row) for row in check.families],
        "counts": [_row(row) for row in check.counts],
        "stream_pct": {
            "original": [round(pct, 4) for pct in check.original.stream_pct],
            "clone": [round(pct, 4) for pct in check.clone.stream_pct],
        },
        "step_from": {"original": check.original.step_from, "clone": check.clone.step_from},
    }


_HOW = [
    "Both are read off **profiles**: kernels belong to the step that launched them, and what is "
    "counted by step is the median of the steps whose kernels are all in the trace.",
    "The **step** is the one without the profiler: of the original as it was measured beside its "
    "trace, as it was given, or as estimated from the trace; of the clone as it timed itself. "
    "The device is **busy** in what kernels and copies cover of it.",
    "The clone **agrees** when its step and the time of every family that matters are within "
    "tolerance. All other rows are there to explain, and decide nothing.",
]


def _out_of_tolerance(check: Check) -> list[str]:
    rows = []
    for row in check.against:
        off = row.difference_pct
        rows.append(f"{row.name} ({'only one has it' if off is None else f'{off:+.1f} %'})")
    return [f"out of tolerance: {', '.join(rows)}"] if rows else []


def _figures(check: Check) -> list[Figure]:
    original, clone = check.original, check.clone
    figures = [
        Figure("verdict", "The clone", _VERDICTS[check.agrees], note=_tolerances(check)),
        Figure("original_step_ms", "Step, original", original.step_ms, "ms",
               note=original.step_from),
        Figure("clone_step_ms", "Step, clone", clone.step_ms, "ms", note=clone.step_from),
    ]  # fmt: skip
    off = {row.name: row.difference_pct for row in check.rows}
    for name, label, row in (
        ("step_difference_pct", "Step, difference", "step"),
        ("device_time_difference_pct", "Device time, difference", "device time per step"),
    ):
        if (value := off.get(row)) is not None:
            figures.append(Figure(name, label, round(value, 3) + 0.0, "%"))
    for name, label in (
        ("coverage_ops_pct", "Replayed, of operators"),
        ("coverage_time_pct", "Replayed, of device time"),
    ):
        if (value := getattr(check.run, name, None)) is not None:
            figures.append(Figure(name, label, round(value, 3), "%", "higher"))
    for name, label in (("placeholders", "Placeholder kernels"), ("skipped", "Skipped")):
        if (count := getattr(check.run, name, None)) is not None:
            figures.append(Figure(name, label, count, better="lower"))
    return figures


def _tolerances(check: Check) -> str:
    if check.agrees is None:
        return f"on {check.basis}"
    t = check.tolerance
    return (
        f"step within {t.step_pct:g} %, families from {t.share_pct:g} % of the time on within "
        f"{t.family_pct:g} %"
    )


def _tables(check: Check) -> list[Table]:
    caption = "Differences in percent of the original, of percentages in points."
    tables = [_table("Clone against original", check.rows, caption)]
    what = "Kernels" if check.original.on_gpu else "Operators"
    if check.families:
        caption = f"Families with {check.tolerance.share_pct:g} % of the time or more decide."
        tables += [
            _table(f"{what} by family, time per step", check.families, caption),
            _table(f"{what} by family, number per step", check.counts, ""),
        ]
    return tables


def _table(name: str, rows: Sequence[Row], caption: str) -> Table:
    # What is empty in all rows need not be read in each.
    columns = [_row(row) for row in rows]
    empty = {key for key in ("decides", "unit") if not any(row[key] for row in columns)}
    shown = [{key: cell for key, cell in row.items() if key not in empty} for row in columns]
    units = {"difference_pct": "%"} if rows else {}
    return Table.from_rows(name, shown, units=units, caption=caption)


def _row(row: Row) -> dict[str, Any]:
    """The columns of every table; numbers are numbers also where one is not known."""

    def rounded(value: float | None, digits: int) -> float | None:
        return None if value is None else round(float(value), digits) + 0.0

    return {
        "what": row.name,
        "original": rounded(row.original, 6),
        "clone": rounded(row.clone, 6),
        "unit": row.unit,
        "difference_pct": rounded(row.difference_pct, 4),
        "decides": "yes" if row.decides else "",
        "verdict": row.verdict,
    }


def _charts(check: Check) -> list[Chart]:
    if not check.families:
        return []
    what = "Device" if check.original.on_gpu else "Operator"
    bars = [
        Bars("original", [row.original for row in check.families]),
        Bars("clone", [row.clone for row in check.families]),
    ]
    names = [row.name for row in check.families]
    return [BarChart(f"{what} time by family per step", names, bars, unit="ms", stacked=False)]
