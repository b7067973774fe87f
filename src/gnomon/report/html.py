"""One result as one HTML file that needs nothing else, and many as a small site."""

from __future__ import annotations

import functools
import importlib.resources
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from gnomon.estimate import Estimate
from gnomon.report.charts.palette import MARK_STYLE, THEME
from gnomon.report.charts.svg import render_chart
from gnomon.report.charts.timeline import TimelineView
from gnomon.report.result import Result
from gnomon.table import Table, atomic_file, format_column
from gnomon.table.atomic import make_folder, unused_path
from gnomon.table.column import slice_column

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

MAX_SPANS, MAX_ROWS = 20_000, 2_000


def render_html(result: Result, *, back: str | None = None, max_spans: int = MAX_SPANS) -> str:
    """The page of a result.

    Args:
        max_spans: More spans than this are joined into counted blocks, so the page stays light.

    >>> page = render_html(Result("training", "replay", "<b>8 ranks</b>"))
    >>> "&lt;b&gt;8 ranks&lt;/b&gt;" in page, len(page) < 60_000
    (True, True)
    """
    timelines = [_timeline(view, max_spans) for view in result.timelines]
    config = result.manifest.config
    return _environment().get_template("page.html").render(
        result=result,
        back=back,
        style=_style(),
        script=_asset("page.js") + (_asset("timeline.js") if timelines else ""),
        sections=_sections(result),
        charts=[
            {
                "title": chart.title,
                "caption": chart.caption,
                "wide": _markup(render_chart(chart, 560)),
                "narrow": _markup(render_chart(chart, 330)),
            }
            for chart in result.charts
        ],
        timelines=timelines,
        tables=[_table(table) for table in result.tables],
        config=msgspec.json.format(msgspec.json.encode(config)).decode() if config else "",
    )  # fmt: skip


def write_html(
    result: Result, path: str | os.PathLike[str], *, max_spans: int = MAX_SPANS
) -> None:
    """Writes `render_html(result)`, whole or not at all."""
    _write(Path(path), render_html(result, max_spans=max_spans))


def write_site(
    results: Iterable[Result], folder: str | os.PathLike[str], title: str = "Results"
) -> None:
    """Writes `index.html` with a card for each result, and a page for each, linking back.

    The index comes last: it never points at a page that is not there yet.
    """
    folder = make_folder(folder)
    index, cards = folder / "index.html", list[dict[str, Any]]()
    taken = [index]
    for result in results:
        taken.append(unused_path(folder / f"{result.system}-{result.verb}.html", taken))
        _write(taken[-1], render_html(result, back=index.name))
        cards.append({"href": taken[-1].name, "result": result})
    template = _environment().get_template("index.html")
    page = template.render(title=title, cards=cards, style=_style(), script=_asset("page.js"))
    _write(index, page)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        # Half a surrogate pair, from a trace cut in the middle of a name, has no UTF-8.
        file.write(text.encode("utf-8", "replace"))


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("gnomon.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["light"] = light_markdown
    environment.filters["middle"] = _middle
    return environment


def _markup(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


@functools.cache
def _asset(name: str) -> Markup:
    folder = importlib.resources.files("gnomon.report") / "templates"
    return _markup((folder / name).read_text("utf-8"))


@functools.cache
def _style() -> Markup:
    # The CSS is ours to the last byte; indentation is for its readers, not for the page's.
    return _markup(re.sub(r"\n\s*", "\n", f"{THEME}\n{MARK_STYLE}\n{_asset('style.css')}"))


def light_markdown(text: str) -> Markup:
    """`code` and **bold**, everything else as it stands.

    >>> str(light_markdown("a `<b>` is **not** bold"))
    'a <code>&lt;b&gt;</code> is <strong>not</strong> bold'
    """
    from markupsafe import escape

    parts = re.split(r"(`[^`]+`)", text)
    out = ""
    for part in parts:
        if len(part) > 2 and part[0] == part[-1] == "`":
            out += f"<code>{escape(part[1:-1])}</code>"
        else:
            out += re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(escape(part)))
    return _markup(out)


def _middle(value: Estimate) -> str:
    return f"{100 * (value.mid - value.low) / value.width:.1f}"


def _sections(result: Result) -> list[tuple[str, str]]:
    known = [
        ("notes", "Notes", result.notes),
        ("charts", "Charts", result.charts),
        ("timeline", "Timeline", result.timelines),
        ("tables", "Tables", result.tables),
    ]
    return [(a, label) for a, label, there in known if there] + [("how", "How was this computed")]


def _embed(data: object) -> Markup:
    """JSON that cannot end the script element it stands in, whatever the names are."""
    text = msgspec.json.encode(data).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return _markup(text)


def _timeline(view: TimelineView, max_spans: int) -> dict[str, Any]:
    thin = view.thin(max_spans)
    order = np.lexsort((-thin.end_ns, thin.start_ns))
    first = view.first_ns
    starts = thin.start_ns[order] - first
    busy = np.bincount(view.kind, view.span_busy_ns, len(view.kinds))
    data: dict[str, Any] = {
        "lanes": _clean(thin.lanes),
        "kinds": _clean(thin.kinds),
        "names": _clean(thin.names),
        "span": view.last_ns - first,
        "busy": [round(b) for b in busy.tolist()],
        "lane": thin.lane[order].tolist(),
        "kind": thin.kind[order].tolist(),
        "name": thin.name[order].tolist(),
        "start": np.diff(starts, prepend=0).tolist(),
        "dur": (thin.end_ns - thin.start_ns)[order].tolist(),
    }
    if thin.critical is not None:
        data["critical"] = thin.critical[order].astype(int).tolist()
    if thin.merged:
        data["count"] = thin.span_count[order].tolist()
        data["ran"] = thin.span_busy_ns[order].tolist()
    spans, lanes = len(view) + view.merged, len(view.lanes)
    label = f"{view.title}: {spans:,} spans on {lanes:,} lanes"
    note = ""
    if thin.merged:
        note = (
            f"{spans:,} spans, drawn as {len(thin):,}: short neighbours of one lane and kind "
            "share a block, filled as high as they were busy."
        )
    return {
        "title": view.title,
        "label": label,
        "note": note,
        "critical": thin.critical is not None,
        "data": _embed(data),
    }


def _clean(texts: list[str]) -> list[str]:
    return [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]


def _table(table: Table) -> dict[str, Any]:
    """Heads and cells; the three columns of a range become one."""
    rows = min(len(table), MAX_ROWS)
    hidden = {
        f"{name}_{end}" for name in table.columns if table.bounds(name) for end in ("low", "high")
    }
    names = [name for name in table.columns if name not in hidden]
    columns = [_cells(table, name, rows) for name in names]
    heads = [
        {
            "name": table.heading(name),
            "unit": table.units.get(name, ""),
            "about": table.descriptions.get(name, name),
            "number": table.is_number(name),
        }
        for name in names
    ]
    note = f"{len(table):,} {'row' if len(table) == 1 else 'rows'}"
    if rows < len(table):
        note = f"The first {rows:,} of {len(table):,} rows; a result folder holds them all."
    return {
        "title": table.name.replace("_", " "),
        "caption": table.caption,
        "heads": heads,
        "rows": list(zip(*columns)),
        "note": note,
    }


def _cells(table: Table, name: str, rows: int) -> list[dict[str, Any]]:
    values = slice_column(table[name], 0, rows)
    if not isinstance(values, np.ndarray) or values.dtype.kind == "U":
        return [{"raw": None, "text": text} for text in values]  # type: ignore[union-attr]
    cells = [
        {"raw": _raw(value), "text": text, "range": "", "room": 0}
        for value, text in zip(values.tolist(), format_column(values))
    ]
    bounds = table.bounds(name)
    if bounds is not None:
        ends = list(zip(*(format_column(end[:rows]) for end in bounds)))
        # One room for all ranges of the column, so that the values beside them stand in line.
        room = max((len(low) + len(high) + 3 for low, high in ends if low != high), default=0)
        for cell, (low, high) in zip(cells, ends):
            cell["range"] = "" if low == high else f"{low} – {high}"
            cell["room"] = room
    return cells


def _raw(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return repr(value + 0)
