"""A check as a Result: the verdict, rows side by side, and bars of both by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.report import BarChart, Bars, Chart, Figure, Manifest, Result
from gnomon.systems.aibench.verify.comparison import Check, Row
from gnomon.table import Table
from gnomon.version import __version__

__all__ = ["to_result", "to_script"]

_VERDICTS = {True: "agrees", False: "differs", None: "not judged"}


def to_result(check: Check, command: str = "") -> Result:
    """Everything there is to say about a clone and its original."""
    return Result(
        "aibench",
        "check",
        f"Clone on {check.clone.device}, original on {check.original.device}",
        "Does the clone behave as the original?",
        figures=_figures(check),
        tables=_tables(check),
        charts=_charts(check),
        how=_HOW,
        notes=[*_against(check), *check.notes],
        manifest=Manifest(command, _config(check), None, __version__, list(check.inputs)),
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


def _config(check: Check) -> dict[str, Any]:
    tolerance = check.tolerance
    return {name: getattr(tolerance, name) for name in tolerance.__struct_fields__}


def _against(check: Check) -> list[str]:
    """What the verdict hangs on and is off, by name."""
    if not check.against:
        return []
    return ["out of tolerance: " + ", ".join(_told(row) for row in check.against)]


def _told(row: Row) -> str:
    off = row.difference_pct
    return f"{row.name} ({'only one has it' if off is None else f'{off:+.1f} %'})"


def _figures(check: Check) -> list[Figure]:
    figures = [Figure("verdict", "The clone", _VERDICTS[check.agrees], note=_tolerances(check))]
    for name, label, profile in (
        ("original_step_ms", "Step, original", check.original),
        ("clone_step_ms", "Step, clone", check.clone),
    ):
        figures.append(Figure(name, label, profile.step_ms, "ms", note=profile.step_from))
    for name, label, row in (
        ("step_difference_pct", "Step, difference", _named(check.rows, "step")),
        ("device_time_difference_pct", "Device time, difference",
         _named(check.rows, "device time a step")),
    ):  # fmt: skip
        if row is not None and row.difference_pct is not None:
            figures.append(Figure(name, label, round(row.difference_pct, 3) + 0.0, "%"))
    return figures + _coverage(check)


def _tolerances(check: Check) -> str:
    if check.agrees is None:
        return f"on {check.basis}"
    t = check.tolerance
    return (
        f"step within {t.step_pct:g} %, families from {t.share_pct:g} % of the time on within "
        f"{t.family_pct:g} %"
    )


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row.name == name), None)


def _coverage(check: Check) -> list[Figure]:
    """What the clone says of itself."""
    run = check.run
    if run is None:
        return []
    figures = []
    for name, label, value in (
        ("coverage_ops_pct", "Replayed, of operators", run.coverage_ops_pct),
        ("coverage_time_pct", "Replayed, of device time", run.coverage_time_pct),
    ):
        if value is not None:
            figures.append(Figure(name, label, round(value, 3), "%", "higher"))
    for name, label, what in (
        ("stand_ins", "Stand-ins", run.stand_ins),
        ("skipped", "Skipped", run.skipped),
    ):
        if what is not None:
            count = what if isinstance(what, int) else len(what)
            figures.append(Figure(name, label, count, better="lower"))
    return figures


def _tables(check: Check) -> list[Table]:
    tables = [
        _table("Clone against original", check.rows,
               "Differences in percent of the original, of percentages in points."),
    ]  # fmt: skip
    what = "Kernels" if check.original.on_gpu else "Operators"
    if check.families:
        tables.append(
            _table(f"{what} by family, time a step", check.families,
                   f"Families with {check.tolerance.share_pct:g} % of the time or more decide.")
        )  # fmt: skip
        tables.append(_table(f"{what} by family, number a step", check.counts, ""))
    return tables


def _table(name: str, rows: Sequence[Row], caption: str) -> Table:
    # What is the same in all rows need not be read in each.
    useless = set()
    if not any(row.decides for row in rows):
        useless.add("decides")
    if not any(row.unit for row in rows):
        useless.add("unit")
    return Table.from_rows(
        name,
        [{key: cell for key, cell in _row(row).items() if key not in useless} for row in rows],
        units={"difference_pct": "%"} if rows else {},
        caption=caption,
    )


def _row(row: Row) -> dict[str, Any]:
    """The columns of every table; numbers are numbers also where one is not known."""
    return {
        "what": row.name,
        "original": None if row.original is None else _rounded(float(row.original), 6),
        "clone": None if row.clone is None else _rounded(float(row.clone), 6),
        "unit": row.unit,
        "difference_pct": _rounded(row.difference_pct, 4),
        "decides": "yes" if row.decides else "",
        "verdict": row.verdict,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits) + 0.0


def _charts(check: Check) -> list[Chart]:
    if not check.families:
        return []
    what = "Device" if check.original.on_gpu else "Operator"
    names = [row.name for row in check.families]
    return [
        BarChart(
            f"{what} time by family, a step",
            names,
            [
                Bars("original", [row.original for row in check.families]),
                Bars("clone", [row.clone for row in check.families]),
            ],
            unit="ms",
            stacked=False,
        )
    ]
