"""What a notebook shows of a result: figures, charts and tables, no script."""

from __future__ import annotations

import html

from gnomon.report.charts.svg import render_chart
from gnomon.report.result import Result


def render_fragment(result: Result) -> str:
    """A fragment of HTML for `_repr_html_`.

    >>> render_fragment(Result("training", "replay", "8 <ranks>"))
    '<h3>8 &lt;ranks&gt;</h3>'
    """
    parts = [f"<h3>{html.escape(result.title)}</h3>"]
    if result.question:
        parts.append(f"<p>{html.escape(result.question)}</p>")
    if result.figures:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(figure.label)}</th>"
            f"<td><b>{html.escape(figure.text)}</b></td>"
            f"<td>{html.escape(figure.range_text)}</td><td>{html.escape(figure.note)}</td></tr>"
            for figure in result.figures
        )
        parts.append(f"<table>{rows}</table>")
    if result.notes:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in result.notes)
        parts.append(f"<ul>{items}</ul>")
    for chart in result.charts:
        parts.append(
            f"<h4>{html.escape(chart.title)}</h4>"
            f"<div style='max-width:640px'>{render_chart(chart, standalone=True)}</div>"
        )
    parts += [table._repr_html_() for table in result.tables]
    return "".join(parts)
