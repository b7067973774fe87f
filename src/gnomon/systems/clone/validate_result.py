"""A validation as a Result: every metric of both, errors against limits, what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnomon.report import BarChart, Bars, Figure, Manifest, Result
from gnomon.systems.clone.judge import machine_caches
from gnomon.systems.clone.validate import Row
from gnomon.table import Table, format_value

_VERDICT = {True: "yes", False: "no", None: ""}


def to_result(rows: Sequence[Row], *, command: str, recipe: str | None = None) -> Result:
    """The report on a clone and its original; `recipe`: how they differ on purpose."""
    judged = [one for one in rows if one.within is not None]
    held_out = [one for one in judged if one.held_out]
    wrong = [one for one in judged if not one.within]
    missing = [one for one in rows if one.original is None or one.clone is None]
    return Result(
        "clone", "validate", "A clone beside its original", "Is the clone close enough?",
        figures=[
            Figure("within", "Within limits", len(judged) - len(wrong),
                   note=f"of {len(judged)} metrics that have one"),
            Figure("held_out_within", "Of these, held out", sum(map(_is_within, held_out)),
                   note=f"of {len(held_out)}: the clone was not tuned to these settings"),
            Figure("not_measured", "Not measured", len(missing)),
        ],
        tables=[Table.from_rows("Metrics", [_shown(one) for one in rows])],
        charts=[chart for chart in (_chart("Error on settings of the profile", rows, False),
                                    _chart("Error on held-out settings", rows, True)) if chart],
        how=[one.format(caches=machine_caches().name) for one in _HOW],
        notes=[*([recipe] if recipe else []), *_notes(wrong, missing)],
        manifest=Manifest.of(command),
    )  # fmt: skip


def to_script(rows: Sequence[Row]) -> dict[str, Any]:
    """For scripts: whether all is within limits, and the rows with plain values."""
    return {
        "within": all(one.within is not False for one in rows),
        "metrics": [
            {"metric": one.metric, "setting": one.setting, "original": one.original,
             "original_spread": list(_spread(one)), "clone": one.clone,
             "error_pct": one.error_pct, "held_out": one.held_out, "limit_pct": one.limit_pct,
             "within": one.within}
            for one in rows
        ],
    }  # fmt: skip


_HOW = [
    "Values are **medians** of runs. The **spread** goes from the least to the greatest of the "
    "original's own runs: an error that is smaller says nothing.",
    "**Native** runs take turns. **Simulated** counts are callgrind's, with the first two levels "
    "of this machine's caches ({caches}) and with others. A long and a short load of the same "
    "duration are counted; their difference is of requests alone, without starting, connecting "
    "and timers. System calls are counted in the same way, but for those that wait.",
    "First-level misses and mispredictions may be off by 0.05 points, and second-level misses by "
    "0.01 points of all references, whatever that is in percent: so few cost next to nothing.",
]
_SHOWN_PCT = 100.0


def _is_within(row: Row) -> bool:
    return row.within is True


def _spread(row: Row) -> tuple[float, ...]:
    return (min(row.originals), max(row.originals)) if row.originals else ()


def _shown(row: Row) -> dict[str, object]:
    return {
        "metric": row.metric, "setting": row.setting, "original": row.original,
        "original_spread": " – ".join(map(format_value, _spread(row))),
        "clone": row.clone, "error_pct": row.error_pct, "limit_pct": row.limit_pct,
        "within": _VERDICT[row.within], "held_out": row.held_out,
    }  # fmt: skip


def _notes(wrong: Sequence[Row], missing: Sequence[Row]) -> list[str]:
    notes = []
    if wrong:
        worst = sorted(wrong, key=lambda one: -abs(one.error_pct or 0.0))[:3]
        names = "; ".join(f"{one.metric}, {one.setting}" for one in worst)
        notes.append(f"{len(wrong)} metrics are beyond their limit. Most of all: {names}.")
        alike = sum(_is_as_the_original(one) for one in wrong)
        if alike:
            notes.append(f"Of these the clone's {alike} are among the original's own runs.")
    notes += [f"{one.metric}: {one.setting}" for one in missing]
    return notes


def _is_as_the_original(row: Row) -> bool:
    """One of its runs could have been so."""
    low, high = _spread(row)
    return row.clone is not None and not row.is_distance and low <= row.clone <= high


def _chart(title: str, rows: Sequence[Row], held_out: bool) -> BarChart | None:
    shown = [one for one in rows if one.held_out is held_out and one.error_pct is not None]
    if not shown:
        return None
    metrics = list(dict.fromkeys(one.metric for one in shown))
    settings = list(dict.fromkeys(one.setting for one in shown)) if held_out else ["error"]
    found = {
        (one.metric, one.setting if held_out else "error"):
            max(-_SHOWN_PCT, min(one.error_pct or 0.0, _SHOWN_PCT))
        for one in shown
    }  # fmt: skip
    return BarChart(
        title, metrics,
        [Bars(name, [found.get((metric, name)) for metric in metrics]) for name in settings],
        value_label="error", unit="%", stacked=False,
        caption=f"Bars end at {_SHOWN_PCT:.0f} %; the table has the errors themselves.",
    )  # fmt: skip
