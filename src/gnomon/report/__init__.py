"""One Result, many outputs: terminal, JSON, one HTML file, a folder, Prometheus text.

Every system answers with a `Result`; nothing here computes. Importing this package is cheap:
templates and terminal drawing are loaded when an output asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names
from gnomon.report.charts.callgraph import GraphChart, GraphNode
from gnomon.report.charts.chart import BarChart, Bars, Chart, Line, LineChart, ScatterChart

# Not lazy: whoever imported the submodule first would find it under this name, not the function.
from gnomon.report.compare import Comparison, FigureChange, compare
from gnomon.report.result import Figure, InputFile, Manifest, Result, TimelineView, hash_input

if TYPE_CHECKING:
    from gnomon.report.charts.svg import render_chart
    from gnomon.report.folder import load, save, write_csv
    from gnomon.report.html import render_html, write_html, write_site
    from gnomon.report.json import to_json, write_json
    from gnomon.report.prometheus import to_prometheus
    from gnomon.report.terminal import print_result

_LAZY = {
    "folder": ["load", "save", "write_csv"],
    "terminal": ["print_result"],
    "charts.svg": ["render_chart"],
    "html": ["render_html", "write_html", "write_site"],
    "json": ["to_json", "write_json"],
    "prometheus": ["to_prometheus"],
}

__all__ = [
    "BarChart",
    "Bars",
    "Chart",
    "Comparison",
    "Figure",
    "FigureChange",
    "GraphChart",
    "GraphNode",
    "InputFile",
    "Line",
    "LineChart",
    "Manifest",
    "Result",
    "ScatterChart",
    "TimelineView",
    "compare",
    "hash_input",
    "load",
    "print_result",
    "render_chart",
    "render_html",
    "save",
    "to_json",
    "to_prometheus",
    "write_csv",
    "write_html",
    "write_json",
    "write_site",
]


__getattr__ = lazy_names(__name__, _LAZY)


def __dir__() -> list[str]:
    return sorted(__all__)
