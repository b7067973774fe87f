"""Charts as data: what is drawn, not how. `svg.render_chart` draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.report.charts.callgraph import GraphChart

Better: TypeAlias = Literal["lower", "higher"]


def _clean(values: Sequence[float | None]) -> list[float | None]:
    """Plain floats; what is not a finite number is a gap."""
    return [None if v is None or not math.isfinite(v) else float(v) for v in values]


def _set(struct: msgspec.Struct, title: str, rows: int, *fields: str) -> None:
    for field in fields:
        value = getattr(struct, field)
        if value is None:
            continue
        if len(value) != rows:
            raise InputError(
                f"{field!r} has {len(value)} entries, {rows} were expected",
                where=f"chart {title!r}",
            )
        msgspec.structs.force_setattr(struct, field, _clean(value))


class Line(msgspec.Struct, frozen=True):
    """One curve, with a band where `low` and `high` are given; None in `y` is a gap."""

    name: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    dashed: bool = False
    step: bool = False

    def __post_init__(self) -> None:
        _set(self, self.name, len(self.x), "x", "y", "low", "high")
        if (self.low is None) != (self.high is None):
            raise InputError("a band needs both low and high", where=f"line {self.name!r}")


class LineChart(msgspec.Struct, frozen=True, tag="line"):
    """Curves over one axis.

    >>> line = Line("node", [0, 1, 2], [300, 420, float("nan")])
    >>> chart = LineChart("Power", [line], x_label="time", x_unit="s")
    >>> chart.lines[0].y
    [300.0, 420.0, None]
    """

    title: str
    lines: list[Line]
    x_label: str = ""
    x_unit: str = ""
    y_label: str = ""
    y_unit: str = ""
    caption: str = ""
    from_zero: bool = True


class Bars(msgspec.Struct, frozen=True):
    """One series of a bar chart: a value for each category, perhaps with a range."""

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None

    def __post_init__(self) -> None:
        _set(self, self.name, len(self.values), "values", "low", "high")
        if (self.low is None) != (self.high is None):
            raise InputError("a range needs both low and high", where=f"bars {self.name!r}")


class BarChart(msgspec.Struct, frozen=True, tag="bar"):
    """Values by category: series stacked on one another or standing side by side.

    >>> chart = BarChart("Where the step goes", ["today", "2x NIC"],
    ...                  [Bars("compute", [80, 80]), Bars("wait", [40, 21])], unit="ms")
    >>> chart.total(1)
    101.0
    """

    title: str
    categories: list[str]
    series: list[Bars]
    value_label: str = ""
    unit: str = ""
    stacked: bool = True
    horizontal: bool = True
    caption: str = ""

    def __post_init__(self) -> None:
        for bars in self.series:
            if len(bars.values) != len(self.categories):
                raise InputError(
                    f"series {bars.name!r} has {len(bars.values)} values "
                    f"for {len(self.categories)} categories",
                    where=f"chart {self.title!r}",
                )

    def total(self, category: int) -> float:
        return math.fsum(bars.values[category] or 0.0 for bars in self.series)


class ScatterChart(msgspec.Struct, frozen=True, tag="scatter"):
    """Points in a plane; with both directions given, the Pareto front is drawn through the best.

    >>> chart = ScatterChart("Choices", x=[1, 2, 3], y=[9, 4, 6], names=["a", "b", "c"],
    ...                      better_x="lower", better_y="lower")
    >>> [chart.names[i] for i in chart.front()]
    ['a', 'b']
    """

    title: str
    x: Sequence[float | None]
    y: Sequence[float | None]
    names: list[str] = []
    groups: list[str] = []
    x_label: str = ""
    x_unit: str = ""
    y_label: str = ""
    y_unit: str = ""
    better_x: Better | None = None
    better_y: Better | None = None
    caption: str = ""
    from_zero: bool = False

    def __post_init__(self) -> None:
        _set(self, self.title, len(self.x), "x", "y")
        for field in ("names", "groups"):
            if getattr(self, field) and len(getattr(self, field)) != len(self.x):
                raise InputError(
                    f"{field!r} has another length than the points",
                    where=f"chart {self.title!r}",
                )

    def front(self) -> list[int]:
        """Points that no other point beats in both directions, from best x to worst."""
        if self.better_x is None or self.better_y is None:
            return []
        whole = [
            (x if self.better_x == "lower" else -x, y if self.better_y == "lower" else -y, i)
            for i, (x, y) in enumerate(zip(self.x, self.y))
            if x is not None and y is not None
        ]
        front: list[int] = []
        best = np.inf
        for _, y, i in sorted(whole):
            if y < best:
                best = y
                front.append(i)
        return front


Chart: TypeAlias = LineChart | BarChart | ScatterChart | GraphChart
