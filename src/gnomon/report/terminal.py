"""A result on a terminal: figures first, then tables, then notes; plain when piped."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from gnomon.report.result import Result
from gnomon.table import Table, format_column
from gnomon.table.column import slice_column

if TYPE_CHECKING:
    from rich.console import Console

MAX_ROWS = 40
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_PIPED_WIDTH = 160  # a pipe has no width; rich would fold lines at 80


def print_result(result: Result, console: Console | None = None, max_rows: int = MAX_ROWS) -> None:
    """Prints the result.

    >>> from gnomon.report import Figure
    >>> from rich.console import Console
    >>> print_result(Result("training", "replay", "8 ranks", figures=[
    ...     Figure("step_ms", "Step time", 120.5, "ms")]), Console(width=60))
    8 ranks
    Step time  120.5 ms
    """

    if console is None:
        console = _console()
    # Text objects throughout: names such as "op[fp16]" are not markup.
    console.print(_text(result.title, style="bold"))
    if result.question:
        console.print(_text(result.question, style="dim"))
    if result.figures:
        console.print(_figures(result))
    for table in result.tables:
        console.print()
        console.print(_table(table, max_rows, console.is_terminal))
        if len(table) > max_rows:
            console.print(_text(f"  … {len(table) - max_rows:,} more rows", style="dim"))
    if result.notes:
        console.print()
    for note in result.notes:
        console.print(_text(f"! {_plain(note)}", style="yellow"))


def _console() -> Console:
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would leave with 1; who pipes into head means no harm

    console = Plain(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Plain(highlight=False, width=_PIPED_WIDTH)


def _text(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(_visible(text), style=style)


def _visible(text: str) -> str:
    """Names come from traces of strangers: an escape sequence must not reach the terminal.

    >>> _visible("gpu\\x1b[31m")
    'gpu\\\\x1b[31m'
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def _plain(text: str) -> str:
    return re.sub(r"`([^`]+)`|\*\*(.+?)\*\*", lambda match: match[1] or match[2], text)


def _figures(result: Result) -> Any:
    from rich.table import Table as Grid

    ranges = any(figure.range_text for figure in result.figures)
    notes = any(figure.note for figure in result.figures)
    grid = Grid.grid(padding=(0, 0, 0, 2))
    for _ in range(2 + ranges + notes):
        grid.add_column(overflow="fold")
    for figure in result.figures:
        cells = [_text(figure.label), _text(figure.text, style="bold")]
        if ranges:
            cells.append(_text(f"({figure.range_text})" if figure.range_text else "", style="dim"))
        if notes:
            cells.append(_text(_plain(figure.note), style="dim"))
        grid.add_row(*cells)
    return grid


def _table(table: Table, max_rows: int, framed: bool) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid

    short = Table(
        table.name, {name: slice_column(c, 0, max_rows) for name, c in table.columns.items()}
    )
    title = table.name.replace("_", " ")
    if table.caption:
        title = f"{title}: {_plain(table.caption)}"
    grid = Grid(
        box=box.SIMPLE_HEAD if framed else None,
        pad_edge=False,
        header_style="dim",
    )
    bounds = {name: short.bounds(name) for name in short.columns}
    hidden = {f"{n}_{end}" for n, pair in bounds.items() if pair for end in ("low", "high")}
    texts = []
    for name in short.columns:
        if name in hidden:
            continue
        unit = table.units.get(name)
        head = _text(f"{table.heading(name)} ({unit})" if unit else table.heading(name))
        number = short.is_number(name)
        grid.add_column(head, justify="right" if number else "left", overflow="fold")
        cells = short.cells(name)
        pair = bounds[name]
        if pair is not None:
            cells = [
                cell if low == high else f"{cell} ({low} – {high})"
                for cell, low, high in zip(cells, *(format_column(end) for end in pair))
            ]
        texts.append(cells)
    for row in zip(*texts):
        grid.add_row(*(_text(cell) for cell in row))
    # Above the table, not in it: rich would wrap a title to the width of a narrow table.
    return Group(_text(title, style="bold"), grid)
