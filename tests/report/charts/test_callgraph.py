"""Graphs of services: layers, and a drawing with every box and arrow."""

from __future__ import annotations

import pytest

from gnomon.errors import InputError
from gnomon.report import GraphChart, GraphNode
from gnomon.report.charts.svg import render_chart


def chart(edges, names="abcd"):
    return GraphChart("calls", [GraphNode(name, "label", 0.5) for name in names], edges)


def test_layers_follow_the_longest_path():
    edges = [("a", "b", 1.0), ("b", "c", 1.0), ("a", "c", 0.5), ("c", "d", 0.1)]
    assert chart(edges).layers() == [["a"], ["b"], ["c"], ["d"]]


@pytest.mark.parametrize(
    "edges",
    [
        [],
        [("a", "a", 1.0)],
        [("a", "b", 1.0), ("b", "a", 1.0)],
        [("a", "b", 1.0), ("b", "c", 1.0), ("c", "b", 1.0), ("c", "d", 1.0)],
    ],
)
def test_cycles_are_drawn_too(edges):
    drawn = chart(edges)
    assert sorted(name for layer in drawn.layers() for name in layer) == list("abcd")
    svg = render_chart(drawn)
    assert svg.count("<rect") == 4
    assert svg.count("<path") == len(edges)


def test_arrows_need_their_nodes():
    with pytest.raises(InputError, match="which are no nodes"):
        chart([("a", "z", 1.0)])
