"""Charts drawn as inline SVG: marks with classes, colours left to the page's style sheet.

Every mark carries a `<title>` (a tooltip without any script) and its place (`data-x`, `data-y`),
with which the page's script finds the mark nearest to the pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.report.charts.bars import draw_columns, draw_rows
from gnomon.report.charts.callgraph import GraphChart, draw_graph
from gnomon.report.charts.chart import Chart, Line, LineChart, ScatterChart
from gnomon.report.charts.drawing import (
    CHAR,
    LINE,
    Drawing,
    coordinate,
    fit,
    hue_class,
    point,
    present,
    value_at,
    with_unit,
)
from gnomon.report.charts.scale import Scale
from gnomon.table import format_range, format_value

_MAX_POINTS, _MAX_TARGETS = 600, 120


def render_chart(chart: Chart, width: int = 560, standalone: bool = False) -> str:
    """The chart as one `<svg>` element.

    Args:
        width: Width of the drawing's own coordinates; text keeps its size, so a narrow drawing
            stays readable on a phone where a wide one would be shrunk.
        standalone: Adds colours (light and dark) and namespace, for use outside a report page.

    >>> from gnomon.report import BarChart, Bars
    >>> svg = render_chart(BarChart("t", ["a<b"], [Bars("x", [3.0])]))
    >>> svg.count('class="mark'), "a&lt;b" in svg
    (1, True)
    """
    if isinstance(chart, LineChart):
        drawing = _draw_lines(chart, width)
    elif isinstance(chart, ScatterChart):
        drawing = _draw_scatter(chart, width)
    elif isinstance(chart, GraphChart):
        drawing = draw_graph(chart)
    elif chart.horizontal:
        drawing = draw_rows(chart, width)
    else:
        drawing = draw_columns(chart, width)
    return drawing.finish(chart.title, standalone)


def _frame(
    drawing: Drawing, top: float, labels: tuple[str, str], x: list[float], y: list[float],
    zero: tuple[bool, bool],
) -> tuple[Scale, Scale]:  # fmt: skip
    """Grid and both axes of a plane of numbers; returns the scales of x and y."""
    drawing.text(0, top + 10, labels[1], "axis")
    height = max(150.0, drawing.width * 0.4)
    high, low = top + 24, top + 24 + height
    y_scale = Scale.over(y, low, high, 5, zero[1])
    left = max(len(label) for label in y_scale.labels) * CHAR + 8
    x_scale = Scale.over(x, left, drawing.width - 12, 4 if drawing.width < 420 else 7, zero[0])
    if x:  # the data's own ends: a curve should not float in the middle of its axis
        ends = (min(x), max(x)) if not zero[0] else (min(0.0, *x), max(0.0, *x))
        x_scale = x_scale.tighten(*ends)
    for tick, label in zip(y_scale.ticks, y_scale.labels):
        at = y_scale(tick)
        kind = "base" if tick == 0 else "grid"
        drawing.add("line", x1=left, x2=drawing.width, y1=at, y2=at, class_=kind)
        drawing.text(left - 6, at + 4, label, "tick", text_anchor="end")
    for tick, label in zip(x_scale.ticks, x_scale.labels):
        drawing.text(x_scale(tick), low + 16, label, "tick", text_anchor="middle")
    drawing.text(drawing.width, low + 33, labels[0], "axis", text_anchor="end")
    drawing.height = low + (40 if labels[0] else 22)
    return x_scale, y_scale


# --- lines --------------------------------------------------------------------------------------


def _draw_lines(chart: LineChart, width: float) -> Drawing:
    drawing = Drawing(width)
    names = [line.name for line in chart.lines]
    top = drawing.legend(names, 0) if len(names) > 1 else 0.0
    labels = (with_unit(chart.x_label, chart.x_unit), with_unit(chart.y_label, chart.y_unit))
    xs = [v for line in chart.lines for v in present(line.x)]
    ys = [v for line in chart.lines for v in present(line.y, line.low, line.high)]
    x, y = _frame(drawing, top, labels, xs, ys, (False, chart.from_zero))
    for i, line in enumerate(chart.lines):
        for run in _runs(line):
            if line.low is not None and line.high is not None:
                _draw_band(drawing, line.low, line.high, run, line, x, y, hue_class(i))
    for i, line in enumerate(chart.lines):
        for run in _runs(line):
            _draw_run(drawing, chart, line, run, x, y, hue_class(i))
    return drawing


def _runs(line: Line) -> Iterator[list[int]]:
    """Stretches without a gap, thinned so that no peak is lost."""
    run: list[int] = []
    for i, (x, y) in enumerate(zip(line.x, line.y)):
        if x is None or y is None:
            if run:
                yield _thin(run, line.y)
            run = []
        else:
            run.append(i)
    if run:
        yield _thin(run, line.y)


def _thin(run: list[int], y: Sequence[float | None]) -> list[int]:
    if len(run) <= _MAX_POINTS:
        return run
    kept = {run[0], run[-1]}
    size = 2 * len(run) / (_MAX_POINTS - 2)
    for b in range((_MAX_POINTS - 2) // 2):
        bucket = run[int(b * size) : int((b + 1) * size)]
        kept |= {min(bucket, key=lambda i: y[i] or 0.0), max(bucket, key=lambda i: y[i] or 0.0)}
    return sorted(kept)


def _draw_band(
    drawing: Drawing, low: Sequence[float | None], high: Sequence[float | None],
    run: list[int], line: Line, x: Scale, y: Scale, hue: str,
) -> None:  # fmt: skip
    run = [i for i in run if low[i] is not None and high[i] is not None]
    there = [point(x(value_at(line.x, i)), y(value_at(high, i))) for i in run]
    back = [point(x(value_at(line.x, i)), y(value_at(low, i))) for i in reversed(run)]
    if run:
        drawing.add("polygon", points=" ".join(there + back), class_=f"band {hue}")


def _draw_run(
    drawing: Drawing, chart: LineChart, line: Line, run: list[int], x: Scale, y: Scale, hue: str
) -> None:
    points = [(x(value_at(line.x, i)), y(value_at(line.y, i))) for i in run]
    path = f"M{point(*points[0])}"
    for px, py in points[1:]:
        path += f"H{coordinate(px)}V{coordinate(py)}" if line.step else f"L{point(px, py)}"
    drawing.add("path", d=path, class_=f"line {hue}" + (" dashed" if line.dashed else ""))
    every = -(-len(run) // _MAX_TARGETS)
    dots = "dot" if len(run) <= 24 else "target"
    for i, at in list(zip(run, points))[::every]:
        value = f"{format_value(line.y[i])} {chart.y_unit}".strip()
        if line.low is not None and line.high is not None:
            span = format_range(line.low[i], line.high[i])
            value += f" ({span})" if span else ""
        place = f"{chart.x_label} {format_value(line.x[i])} {chart.x_unit}".strip()
        tip = f"{line.name}: {value}\n{place}"
        drawing.mark("circle", tip, at, f"{dots} {hue}", cx=at[0], cy=at[1], r=3.0)


# --- points -------------------------------------------------------------------------------------


def _draw_scatter(chart: ScatterChart, width: float) -> Drawing:
    drawing = Drawing(width)
    groups = list(dict.fromkeys(chart.groups)) or [""]
    top = drawing.legend(groups, 0) if len(groups) > 1 else 0.0
    labels = (with_unit(chart.x_label, chart.x_unit), with_unit(chart.y_label, chart.y_unit))
    whole = [(i, x, y) for i, (x, y) in enumerate(zip(chart.x, chart.y)) if None not in (x, y)]
    xs, ys = present([x for _, x, _ in whole]), present([y for _, _, y in whole])
    pad = (max(xs) - min(xs)) * 0.03 if xs else 0.0
    ends = [min(xs) - pad, max(xs) + pad] if xs else []
    x, y = _frame(drawing, top, labels, ends, ys, (chart.from_zero, chart.from_zero))
    front = chart.front()
    best = [(x(value_at(chart.x, i)), y(value_at(chart.y, i))) for i in front]
    if len(best) > 1:
        path = "M" + "L".join(point(*at) for at in best)
        drawing.add("path", d=path, class_="front")
    on_front = set(front)
    for i, _, _ in whole:
        at = x(value_at(chart.x, i)), y(value_at(chart.y, i))
        hue = hue_class(groups.index(chart.groups[i]) if chart.groups else 0)
        kind = "point best" if i in on_front else "point"
        size = 5.0 if i in on_front else 4.0
        drawing.mark(
            "circle", _point_tip(chart, i), at, f"{kind} {hue}", cx=at[0], cy=at[1], r=size
        )
    points = [(x(value_at(chart.x, i)), y(value_at(chart.y, i))) for i, _, _ in whole]
    _label_front(drawing, chart, dict(zip(front, best)), points)
    return drawing


def _point_tip(chart: ScatterChart, i: int) -> str:
    lines = [chart.names[i]] if chart.names else []
    if chart.groups:
        lines.append(chart.groups[i])
    for label, unit, value in (
        (chart.x_label, chart.x_unit, chart.x[i]),
        (chart.y_label, chart.y_unit, chart.y[i]),
    ):
        lines.append(f"{label} {format_value(value)} {unit}".strip())
    return "\n".join(lines)


def _label_front(
    drawing: Drawing, chart: ScatterChart, best: dict[int, tuple[float, float]],
    points: list[tuple[float, float]],
) -> None:  # fmt: skip
    """Names beside the front, its empty side first; where nothing is free the tooltip must do."""
    if not chart.names:
        return
    below, above = 15.0, -8.0
    downs = (below, above) if chart.better_y == "lower" else (above, below)
    taken = [(px - 5, px + 5, py + 4) for px, py in points]
    for i, (px, py) in best.items():
        name = fit(chart.names[i], 160)
        size = len(name) * CHAR * 0.95
        sides = (px - 5 - size, px + 5) if chart.better_x == "lower" else (px + 5, px - 5 - size)
        for left, line in [(side, py + down) for down in downs for side in sides]:
            if left >= 45 and left + size <= drawing.width and _is_free(left, size, line, taken):
                drawing.text(left, line, name, "name")
                taken.append((left, left + size, line))
                break


def _is_free(
    left: float, size: float, line: float, taken: list[tuple[float, float, float]]
) -> bool:
    return all(left > b or left + size < a or abs(line - y) > LINE - 6 for a, b, y in taken)
