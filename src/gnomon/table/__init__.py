"""Tables: columns in memory, Arrow at the edges.

`Table` is a named set of columns with units, and opens in polars, pandas, pyarrow and duckdb.
`write_arrow` and `read_arrow` keep columns in Arrow files without any of those installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.lazy import lazy_names

if TYPE_CHECKING:
    from gnomon.table.arrow_file import ArrowTable, read_arrow, write_arrow
    from gnomon.table.atomic import atomic_file
    from gnomon.table.column import Column, Dictionary, ListOf, equal_columns
    from gnomon.table.format import format_column, format_range, format_value
    from gnomon.table.table import Table

__all__ = [
    "ArrowTable",
    "Column",
    "Dictionary",
    "ListOf",
    "Table",
    "atomic_file",
    "equal_columns",
    "format_column",
    "format_range",
    "format_value",
    "read_arrow",
    "write_arrow",
]

# Readers need columns only: what prints and writes tables waits until it is used.
_HOME = {
    "arrow_file": ["ArrowTable", "read_arrow", "write_arrow"],
    "column": ["Column", "Dictionary", "ListOf", "equal_columns"],
    "table": ["Table"],
    "atomic": ["atomic_file"],
    "format": ["format_column", "format_range", "format_value"],
}

__getattr__ = lazy_names(__name__, _HOME)
