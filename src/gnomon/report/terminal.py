"""A result on a terminal: figures first, then tables, then notes; plain when piped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gnomon.report.result import Result
from gnomon.table import Table, format_column
from gnomon.table.column import slice_column

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_result"]

MAX_ROWS = 40
_PIPED_WIDTH = 160  # a pipe has no width; rich would fold lines at 80


def print_result(result: Result, console: Console | None = None, max_rows: int = MAX_ROWS) -> None:
    """Prints the result.

    Args:
        result: What to print.
        console: Where; standard output unless given.
        max_rows: Rows shown of each table; the rest is counted.

    >>> from gnomon.report import Figure
    >>> from rich.console import Console
    >>> print_result(Result("training", "replay", "8 ranks", figures=[
    ...     Figure("step_ms", "Step time", 120.5, "ms")]), Console(width=60))
    8 ranks
    Step time  120.5 ms
    """
    from rich.console import Console
    from rich.text import Text

    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal:
            console = Console(highlight=False, width=_PIPED_WIDTH)
    # Text objects throughout: names such as "op[fp16]" are not markup.
    console.print(Text(result.title, style="bold"))
    if result.question:
        console.print(Text(result.question, style="dim"))
    if result.figures:
        console.print(_figures(result))
    for table in result.tables:
        console.print()
        console.print(_table(table, max_rows, console.is_terminal))
        if len(table) > max_rows:
            console.print(Text(f"  … {len(table) - max_rows:,} more rows", style="dim"))
    if result.notes:
        console.print()
    for note in result.notes:
        console.print(Text(f"! {_plain(note)}", style="yellow"))


def _plain(text: str) -> str:
    """Light markdown without its marks."""
    return re.sub(r"`([^`]+)`|\*\*(.+?)\*\*", lambda match: match[1] or match[2], text)


def _figures(result: Result) -> Any:
    from rich.table import Table as Grid
    from rich.text import Text

    ranges = any(figure.range_text for figure in result.figures)
    notes = any(figure.note for figure in result.figures)
    grid = Grid.grid(padding=(0, 0, 0, 2))
    for _ in range(2 + ranges + notes):
        grid.add_column(overflow="fold")
    for figure in result.figures:
        cells = [Text(figure.label), Text(figure.text, style="bold")]
        if ranges:
            cells.append(Text(f"({figure.range_text})" if figure.range_text else "", style="dim"))
        if notes:
            cells.append(Text(_plain(figure.note), style="dim"))
        grid.add_row(*cells)
    return grid


def _table(table: Table, max_rows: int, framed: bool) -> Any:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    short = Table(
        table.name, {name: slice_column(c, 0, max_rows) for name, c in table.columns.items()}
    )
    title = table.name.replace("_", " ")
    if table.caption:
        title = f"{title}: {_plain(table.caption)}"
    grid = Grid(
        title=Text(title, style="bold"),
        title_justify="left",
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
        head = Text(f"{table.heading(name)} ({unit})" if unit else table.heading(name))
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
        grid.add_row(*(Text(cell) for cell in row))
    return grid
