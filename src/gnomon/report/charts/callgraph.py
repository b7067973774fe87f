"""A graph of services: who calls whom, drawn from left to right."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.errors import InputError
from gnomon.report.charts.drawing import Drawing, fit, point


class GraphNode(msgspec.Struct, frozen=True):
    """A box: its name, a line below it, and its share of the whole, which colours it."""

    name: str
    label: str = ""
    share: float = 0.0


class GraphChart(msgspec.Struct, frozen=True, tag="graph"):
    """Boxes and arrows; an arrow's weight is drawn as its width.

    >>> chart = GraphChart("Calls", [GraphNode("web"), GraphNode("db")], [("web", "db", 1.0)])
    >>> chart.layers()
    [['web'], ['db']]
    """

    title: str
    nodes: list[GraphNode]
    edges: Sequence[tuple[str, str, float]]
    caption: str = ""

    def __post_init__(self) -> None:
        known = {node.name for node in self.nodes}
        for start, end, _ in self.edges:
            if start not in known or end not in known:
                raise InputError(f"an arrow from {start!r} to {end!r}, which are no nodes",
                                 where=f"chart {self.title!r}")  # fmt: skip

    def layers(self) -> list[list[str]]:
        """Nodes by their longest path from a start; arrows back do not count."""
        below: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for start, end, _ in self.edges:
            if start != end:
                below[start].append(end)
        called = {end for ends in below.values() for end in ends}
        depth = dict.fromkeys(below, 0)
        order: list[str] = []
        state = dict.fromkeys(below, 0)  # 1: on the path, 2: done
        for root in [n for n in below if n not in called] + list(below):
            stack = [(root, iter(below[root]))] if state[root] == 0 else []
            state[root] = state[root] or 1
            while stack:
                name, rest = stack[-1]
                for end in rest:
                    if state[end] == 0:
                        state[end] = 1
                        stack.append((end, iter(below[end])))
                        break
                    if state[end] == 1 and end in below[name]:
                        below[name] = [other for other in below[name] if other != end]
                else:
                    state[name] = 2
                    order.append(name)
                    stack.pop()
        for name in reversed(order):
            for end in below[name]:
                depth[end] = max(depth[end], depth[name] + 1)
        rows: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=0))]
        for node in self.nodes:
            rows[depth[node.name]].append(node.name)
        return [row for row in rows if row]


_BOX_W, _BOX_H, _GAP_X, _GAP_Y = 150.0, 40.0, 60.0, 12.0


def draw_graph(chart: GraphChart) -> Drawing:
    """As wide as its layers take; the page shrinks it to fit."""
    layers = _untangled(chart.layers(), chart.edges)
    drawing = Drawing(len(layers) * (_BOX_W + _GAP_X) - _GAP_X)
    drawing.height = max(len(layer) for layer in layers) * (_BOX_H + _GAP_Y) - _GAP_Y
    place: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        top = (drawing.height - len(layer) * (_BOX_H + _GAP_Y) + _GAP_Y) / 2
        for row, name in enumerate(layer):
            place[name] = (column * (_BOX_W + _GAP_X), top + row * (_BOX_H + _GAP_Y))
    most = max((weight for _, _, weight in chart.edges), default=0.0) or 1.0
    for start, end, weight in chart.edges:
        x0, y0 = place[start][0] + _BOX_W, place[start][1] + _BOX_H / 2
        x1, y1 = place[end][0], place[end][1] + _BOX_H / 2
        bend = max(abs(x1 - x0) / 2, 20.0)
        way = f"M{point(x0, y0)}C{point(x0 + bend, y0)} {point(x1 - bend, y1)} {point(x1, y1)}"
        tip = f"{start} calls {end}: {weight:.3g} per request"
        drawing.mark("path", tip, ((x0 + x1) / 2, (y0 + y1) / 2), "arrow", d=way,
                     stroke_width=0.6 + 3.4 * weight / most)  # fmt: skip
    for node in chart.nodes:
        x, y = place[node.name]
        share = min(max(node.share, 0.0), 1.0)
        drawing.mark("rect", f"{node.name}: {node.label}", (x + _BOX_W / 2, y + _BOX_H / 2),
                     "box s1", x=x, y=y, width=_BOX_W, height=_BOX_H, rx=5.0,
                     fill_opacity=f"{0.1 + 0.75 * share:.2f}")  # fmt: skip
        middle = x + _BOX_W / 2
        drawing.text(middle, y + 17, fit(node.name, _BOX_W), text_anchor="middle")
        drawing.text(middle, y + 32, fit(node.label, _BOX_W), "tick", text_anchor="middle")
    return drawing


def _untangled(
    layers: list[list[str]], edges: Sequence[tuple[str, str, float]]
) -> list[list[str]]:
    """Each layer in the order of the middle of its callers: fewer arrows cross."""
    ordered = [layers[0]]
    for layer in layers[1:]:
        above = {name: i / max(len(row) - 1, 1) for row in ordered for i, name in enumerate(row)}

        def middle(name: str, above: dict[str, float] = above) -> float:
            callers = [above[start] for start, end, _ in edges if end == name and start in above]
            return sum(callers) / len(callers) if callers else 0.5

        ordered.append(sorted(layer, key=middle))
    return ordered
