"""Two results side by side: which figures grew, and whether that is good."""

from __future__ import annotations

from typing import Literal

import msgspec

from gnomon.errors import InputError
from gnomon.estimate import Estimate
from gnomon.report.result import Figure, Manifest, Result
from gnomon.table import Table

Verdict = Literal["better", "same", "worse", "changed", "new", "missing"]


class FigureChange(msgspec.Struct, frozen=True):
    """One figure before and after; `change` is a fraction of the value before.

    Of a figure in percent it is the points between the two, as a fraction: from -30 to -28 % is
    0.02, not a fifteenth. It is None for text, for a figure that is on one side only, and where
    the value before is zero. A figure without a good direction is "same" or "changed".
    """

    name: str
    label: str
    unit: str
    before: Figure | None
    after: Figure | None
    change: float | None
    verdict: Verdict
    overlaps: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """All figures of two results, and whether any of them got worse than allowed.

    >>> a, b = (Result("training", "replay", "t", figures=[
    ...     Figure("step_ms", "Step", ms, "ms", better="lower")]) for ms in (100, 108))
    >>> comparison = compare(a, b, max_regress=0.05)
    >>> comparison.regressed, comparison.changes[0].verdict, comparison.changes[0].change
    (True, 'worse', 0.08)
    """

    before: Result
    after: Result
    max_regress: float
    changes: list[FigureChange]

    @property
    def regressed(self) -> bool:
        return any(change.verdict == "worse" for change in self.changes)

    def to_result(self) -> Result:
        counts = {
            verdict: sum(change.verdict == verdict for change in self.changes)
            for verdict in ("worse", "better", "same", "changed", "new", "missing")
        }
        notes = _differences(self.before, self.after) + [
            f"{change.label} is in one of the two results only"
            for change in self.changes
            if change.verdict in ("new", "missing")
        ]
        notes += [
            f"{change.label}: the ranges overlap, so the order of the two is not settled"
            for change in self.changes
            if change.overlaps and change.verdict in ("better", "worse")
        ]
        limit = f"{100 * self.max_regress:g} %"
        how = (
            f"Each figure of **{self.after.title}** against **{self.before.title}**, as a share "
            "of the value before; of percentages, the points between them. More than "
            f"{limit} in the wrong direction counts as worse; of an estimate the middle is "
            "compared."
        )
        return Result(
            self.after.system,
            "compare",
            f"{self.before.title} → {self.after.title}",
            question=f"Did anything get worse by more than {limit}?",
            figures=[
                Figure("regressed", "Regressed", "yes" if self.regressed else "no"),
                Figure("worse", "Worse", counts["worse"], better="lower"),
                Figure("better", "Better", counts["better"], better="higher"),
                Figure("same", "Same", counts["same"] + counts["changed"]),
            ],
            tables=[self._table()],
            how=[how],
            notes=notes,
            manifest=Manifest(
                config={"max_regress": self.max_regress},
                seed=self.after.manifest.seed,
                version=self.after.manifest.version,
                inputs=[*self.before.manifest.inputs, *self.after.manifest.inputs],
            ),
        )

    def _table(self) -> Table:
        rows = [
            {
                "figure": change.label,
                "verdict": change.verdict,
                "before": change.before.text if change.before else "–",
                "after": change.after.text if change.after else "–",
                "change": None if change.change is None else 100 * change.change,
            }
            for change in self.changes
        ]
        # Without any number the column would be taken for text.
        numbers = any(row["change"] is not None for row in rows)
        return Table.from_rows("changes", rows, units={"change": "%"} if numbers else {})


def compare(a: Result, b: Result, max_regress: float = 0.0) -> Comparison:
    """Compares `b` with `a`; `max_regress` is a fraction of a figure's value in `a`."""
    if a.system != b.system:
        raise InputError(
            f"a result of {a.system!r} cannot be compared with one of {b.system!r}",
            hint="compare two results of the same system",
        )
    if not max_regress >= 0:
        raise InputError(f"the allowed regression is a fraction of at least 0, not {max_regress}")
    before = {figure.name: figure for figure in a.figures}
    after = {figure.name: figure for figure in b.figures}
    names = list(before | after)
    changes = [_change(before.get(name), after.get(name), max_regress) for name in names]
    return Comparison(a, b, max_regress, changes)


def _differences(a: Result, b: Result) -> list[str]:
    notes = []
    if (a.verb, a.title) != (b.verb, b.title):
        notes.append(f"these are answers about different things: {a.title!r} and {b.title!r}")
    if a.manifest.version != b.manifest.version:
        notes.append(f"computed by {a.manifest.version} and {b.manifest.version}")
    return notes


def _change(before: Figure | None, after: Figure | None, limit: float) -> FigureChange:
    known = after or before
    assert known is not None
    change, verdict, overlaps = None, _verdict_of_words(before, after), False
    if before is not None and after is not None:
        x, y = before.number, after.number
        if x is not None and y is not None:
            if before.unit != after.unit:
                raise InputError(
                    f"was in {before.unit!r} and is in {after.unit!r}",
                    where=f"figure {known.name!r}",
                )
            change = _relative(x, y, known.unit)
            verdict = _verdict(y - x, change, limit, known.better)
            is_guess = isinstance(before.value, Estimate) or isinstance(after.value, Estimate)
            overlaps = is_guess and _range(before).overlaps(_range(after))
    return FigureChange(
        known.name, known.label, known.unit, before, after, change, verdict, overlaps
    )


def _relative(before: float, after: float, unit: str) -> float | None:
    if unit == "%":
        return (after - before) / 100.0
    if before == 0:
        return 0.0 if after == 0 else None
    return (after - before) / abs(before)


def _verdict_of_words(before: Figure | None, after: Figure | None) -> Verdict:
    if before is None:
        return "new"
    if after is None:
        return "missing"
    return "same" if before.value == after.value else "changed"


def _verdict(delta: float, change: float | None, limit: float, better: str | None) -> Verdict:
    # The last digits of a fraction are rounding: 3 % must not regress against a limit of 3 %.
    if change is not None and abs(change) <= limit + 1e-12:
        return "same"
    if better is None:
        return "changed"
    return "better" if (delta < 0) == (better == "lower") else "worse"


def _range(figure: Figure) -> Estimate:
    return (
        figure.value if isinstance(figure.value, Estimate) else Estimate.exact(figure.number or 0)
    )
