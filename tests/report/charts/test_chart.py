"""Charts: sound data in, sound SVG out."""

import itertools
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import InputError
from gnomon.report import BarChart, Bars, Line, LineChart, ScatterChart, render_chart
from gnomon.report.charts.scale import Scale, label_ticks, round_ticks


def marks(svg: str) -> int:
    root = ET.fromstring(svg)
    return sum("mark" in (el.get("class") or "").split() for el in root.iter())


def check(svg: str) -> int:
    """Well-formed, no coordinate that is not a number; returns the number of marks."""
    assert "nan" not in svg.replace("finance", "")
    assert "inf" not in svg
    return marks(svg)


def test_every_sample_chart_draws(sample):
    for chart in sample.charts:
        for width in (560, 330):
            assert check(render_chart(chart, width)) > 3
        assert render_chart(chart, standalone=True).count("<style>") == 1


@pytest.mark.parametrize(
    "chart",
    [
        LineChart("t", []),
        LineChart("t", [Line("a", [], [])]),
        LineChart("t", [Line("a", [1], [None])]),
        LineChart("t", [Line("a", [1], [5])]),
        LineChart("t", [Line("a", [1, 1], [5, 5], [5, 5], [5, 5], step=True)]),
        BarChart("t", [], []),
        BarChart("t", ["a"], [Bars("s", [0])]),
        BarChart("t", ["a", "b"], [Bars("s", [-3, 2]), Bars("u", [-1, None])], stacked=True),
        BarChart("t", ["a"], [Bars("s", [2], [1], [3])], horizontal=False, stacked=False),
        BarChart("t", [f"long category {i}" for i in range(12)], [Bars("s", [1] * 12)],
                 horizontal=False),
        BarChart("t", [str(i) for i in range(200)], [Bars("s", [1] * 200)], horizontal=False),
        BarChart("t", ["a"], [Bars(f"s{i}", [1]) for i in range(12)]),
        ScatterChart("t", [], []),
        ScatterChart("t", [1], [2], better_x="lower", better_y="higher", names=["n"]),
        ScatterChart("t", [1, None], [2, 3]),
    ],
)  # fmt: skip
def test_thin_and_empty_charts_draw(chart):
    for width in (560, 330):
        check(render_chart(chart, width))


def test_hostile_names_are_text(hostile):
    for name in hostile:
        for chart in (
            LineChart(name, [Line(name, [1, 2], [1, 2]), Line("b", [1], [1])], name, name),
            BarChart(name, [name], [Bars(name, [1]), Bars("b", [2])], unit=name),
            BarChart(name, [name], [Bars(name, [1])], horizontal=False),
            ScatterChart(name, [1, 2], [2, 1], [name, name], [name, "b"], better_x="lower",
                         better_y="lower"),
        ):  # fmt: skip
            svg = render_chart(chart)
            root = ET.fromstring(svg.replace("\u2028", ""))
            assert {el.tag for el in root.iter()} <= {
                "svg", "g", "rect", "circle", "line", "path", "polygon", "text", "title"
            }  # fmt: skip


def test_long_lines_keep_their_peaks():
    y = np.sin(np.arange(50_000) / 50)
    y[31_234] = 40.0
    svg = render_chart(LineChart("t", [Line("a", range(50_000), y.tolist())]))
    assert len(svg) < 60_000
    whole = render_chart(LineChart("t", [Line("a", [0, 1], [0.0, 40.0])]))
    top = min(float(p.split()[1]) for p in svg.split('d="M')[1].split('"')[0].split("L"))
    peak = min(float(p.split()[1]) for p in whole.split('d="M')[1].split('"')[0].split("L"))
    assert top == pytest.approx(peak, abs=2)


def test_data_is_checked_and_cleaned():
    assert Line("a", [1, 2], [math.inf, 3]).y == [None, 3.0]
    with pytest.raises(InputError, match="'y' has 1 entries"):
        Line("a", [1, 2], [1])
    with pytest.raises(InputError, match="both low and high"):
        Line("a", [1], [1], low=[1])
    with pytest.raises(InputError, match="1 values for 2 categories"):
        BarChart("t", ["a", "b"], [Bars("s", [1])])
    with pytest.raises(InputError, match="'names'"):
        ScatterChart("t", [1], [1], names=["a", "b"])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25))
def test_prop_no_point_beats_the_front(points):
    x, y = [p[0] for p in points], [p[1] for p in points]
    chart = ScatterChart("t", x, y, better_x="lower", better_y="higher")
    front = chart.front()
    assert bool(front) == bool(points)
    for i in front:
        assert not any(a <= x[i] and b >= y[i] and (a, b) != (x[i], y[i]) for a, b in points)
    for a, b in points:  # whoever is not on the front is beaten or equalled by one on it
        assert any(x[i] <= a and y[i] >= b for i in front)


numbers = st.floats(-1e12, 1e12)


@settings(max_examples=400)
@given(numbers, numbers, st.integers(2, 8))
def test_prop_ticks_cover_the_data_and_are_few(a, b, most):
    low, high = min(a, b), max(a, b)
    ticks = round_ticks(low, high, most)
    slack = 1e-6 * max(abs(low), abs(high), 1e-9)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 3 * most + 4
    assert all(q > p for p, q in itertools.pairwise(ticks))
    labels = label_ticks(ticks)
    assert len(labels) == len(ticks)


@given(st.lists(numbers, min_size=1, max_size=9))
def test_prop_a_scale_keeps_order(values):
    scale = Scale.over(values, 10, 200, 5)
    places = [scale(v) for v in sorted(values)]
    assert places == sorted(places)
    assert all(9.9 <= p <= 200.1 for p in places)
