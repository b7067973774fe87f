"""Bar charts: rows or columns, stacked or side by side, with ranges as whiskers."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.report.charts.chart import BarChart, Bars
from gnomon.report.charts.drawing import (
    CHAR,
    Drawing,
    coordinate,
    escape,
    fit,
    hue_class,
    point,
    present,
    value_at,
    with_unit,
)
from gnomon.report.charts.scale import Scale
from gnomon.table import format_range, format_value


def _bar_values(chart: BarChart) -> list[float]:
    values = [v for bars in chart.series for v in present(bars.low, bars.high)]
    if not chart.stacked:
        return values + [v for bars in chart.series for v in present(bars.values)]
    for c in range(len(chart.categories)):
        column = [bars.values[c] or 0.0 for bars in chart.series]
        values += [sum(v for v in column if v > 0), sum(v for v in column if v < 0)]
    return values


def _tip(chart: BarChart, bars: Bars, c: int) -> str:
    value = f"{format_value(bars.values[c])} {chart.unit}".strip()
    if bars.low is not None and bars.high is not None:
        span = format_range(bars.low[c], bars.high[c])
        value += f" ({span})" if span else ""
    total = chart.total(c)
    if chart.stacked and len(chart.series) > 1 and total:
        value += f", {100 * (bars.values[c] or 0.0) / total:.1f} %"
    name = f"{bars.name}: " if len(chart.series) > 1 else ""
    return f"{name}{value}\n{chart.categories[c]}"


def _spans(chart: BarChart, c: int) -> Iterator[tuple[int, Bars, float, float, int]]:
    above = below = 0.0
    for i, bars in enumerate(chart.series):
        value = bars.values[c]
        if value is None:
            continue
        if not chart.stacked:
            yield i, bars, 0.0, value, i
        elif value >= 0:
            yield i, bars, above, above + value, 0
            above += value
        else:
            yield i, bars, below, below + value, 0
            below += value


def draw_rows(chart: BarChart, width: float) -> Drawing:
    """Bars lying, one category below the other."""
    drawing = Drawing(width)
    names = [bars.name for bars in chart.series]
    top = drawing.legend(names, 0) if len(names) > 1 else 0.0
    abreast = 1 if chart.stacked else max(1, len(names))
    bar = 20.0 if abreast == 1 else 14.0
    pitch = bar * abreast + 10
    longest = max((len(c) for c in chart.categories), default=0) * CHAR
    # On narrow paper long names stand above their bars instead of being cut beside them.
    above = 15.0 if width < 420 and longest > width * 0.3 else 0.0
    pitch += above
    left = 4.0 if above else min(longest + 10, width * 0.4)
    # Room for the value at the bar's end, which says more than the grid does.
    values = [0.0, *_bar_values(chart)]
    scale = Scale.over(values, left, width - 62, 3 if width < 420 else 5, True)
    scale = scale.tighten(min(values), max(values))
    low = top + 4 + pitch * len(chart.categories)
    for tick, label in zip(scale.ticks, scale.labels):
        kind = "base" if tick == 0 else "grid"
        drawing.add("line", x1=scale(tick), x2=scale(tick), y1=top, y2=low, class_=kind)
        drawing.text(scale(tick), low + 15, label, "tick", text_anchor="middle")
    for c, category in enumerate(chart.categories):
        y = top + 6 + pitch * c + above
        if above:
            drawing.text(left, y - 4, fit(category, width))
        else:
            label = f"{escape(fit(category, left - 10))}<title>{escape(category)}</title>"
            middle = y + bar * abreast / 2 + 4
            drawing.add("text", label, x=left - 8, y=middle, text_anchor="end")
        end = 0.0
        for i, bars, first, last, place in _spans(chart, c):
            x0, x1 = sorted((scale(first), scale(last)))
            at = (x0 + x1) / 2, y + bar * (place + 0.5)
            drawing.mark(
                "rect", _tip(chart, bars, c), at, f"bar {hue_class(i)}",
                x=x0, y=y + bar * place, width=max(x1 - x0, 0.5), height=bar - (abreast > 1),
            )  # fmt: skip
            end = max(end, last)
            if not chart.stacked or len(names) == 1:
                x1 = _whisker(drawing, bars, c, scale, at[1], x1, flat=True)
                drawing.text(x1 + 5, at[1] + 4, format_value(bars.values[c]), "value")
        if chart.stacked and len(names) > 1:
            drawing.text(scale(end) + 5, y + 14, format_value(chart.total(c)), "value")
    label = with_unit(chart.value_label, chart.unit)
    drawing.text(width, low + 32, label, "axis", text_anchor="end")
    drawing.height = low + (38 if label else 20)
    return drawing


def _whisker(
    drawing: Drawing, bars: Bars, c: int, scale: Scale, mid: float, end: float, flat: bool
) -> float:
    """The range of a bar; returns where a value label is clear of it."""
    if bars.low is None or bars.high is None or bars.low[c] is None or bars.high[c] is None:
        return end
    a, b = scale(value_at(bars.low, c)), scale(value_at(bars.high, c))
    if flat:
        d = f"M{point(a, mid)}H{coordinate(b)}"
        d += "".join(f"M{point(at, mid - 3)}v6" for at in (a, b))
    else:
        d = f"M{point(mid, a)}V{coordinate(b)}"
        d += "".join(f"M{point(mid - 3, at)}h6" for at in (a, b))
    drawing.add("path", d=d, class_="whisker")
    return max(end, b) if flat else min(end, b)


def draw_columns(chart: BarChart, width: float) -> Drawing:
    """Bars standing, one category beside the other."""
    drawing = Drawing(width)
    names = [bars.name for bars in chart.series]
    top = drawing.legend(names, 0) if len(names) > 1 else 0.0
    drawing.text(0, top + 10, with_unit(chart.value_label, chart.unit), "axis")
    height = max(150.0, width * 0.36)
    scale = Scale.over(_bar_values(chart), top + 24 + height, top + 24, 5, True)
    left = max(len(label) for label in scale.labels) * CHAR + 8
    for tick, label in zip(scale.ticks, scale.labels):
        kind = "base" if tick == 0 else "grid"
        drawing.add("line", x1=left, x2=width, y1=scale(tick), y2=scale(tick), class_=kind)
        drawing.text(left - 6, scale(tick) + 4, label, "tick", text_anchor="end")
    slot = (width - left) / max(1, len(chart.categories))
    abreast = 1 if chart.stacked else max(1, len(names))
    bar = min(slot * 0.76, 56.0 * abreast) / abreast
    for c in range(len(chart.categories)):
        x = left + slot * (c + 0.5) - bar * abreast / 2
        for i, bars, first, last, place in _spans(chart, c):
            y1, y0 = sorted((scale(first), scale(last)))
            at = x + bar * (place + 0.5), (y0 + y1) / 2
            drawing.mark(
                "rect", _tip(chart, bars, c), at, f"bar {hue_class(i)}",
                x=x + bar * place, y=y1, width=bar - (abreast > 1), height=max(y0 - y1, 0.5),
            )  # fmt: skip
            if not chart.stacked or len(names) == 1:
                _whisker(drawing, bars, c, scale, at[0], y1, flat=False)
    low = top + 24 + height
    drawing.height = low + 6 + _draw_categories(drawing, chart.categories, left, slot, low)
    return drawing


def _draw_categories(
    drawing: Drawing, categories: list[str], left: float, slot: float, low: float
) -> float:
    """Names below the columns: level where they fit, else slanted or every so many."""
    longest = max((len(c) for c in categories), default=0) * CHAR
    every = max(1, -(-30 // max(1, int(slot)))) if slot < 30 else 1
    slanted = longest > slot * every - 6 and every == 1
    for c, category in list(enumerate(categories))[::every]:
        x, text = left + slot * (c + 0.5), fit(category, 110)
        if slanted:
            turn = f"rotate(-35 {point(x + 4, low + 14)})"
            drawing.text(x + 4, low + 14, text, "tick", text_anchor="end", transform=turn)
        else:
            drawing.text(x, low + 16, text, "tick", text_anchor="middle")
    return min(longest, 110.0) * 0.6 + 22 if slanted else 18.0
