"""Tables: columns in memory, Arrow at the edges.

`Table` is a named set of columns with units, and opens in polars, pandas, pyarrow and duckdb.
`write_arrow` and `read_arrow` keep columns in Arrow files without any of those installed.
"""

from __future__ import annotations

from gnomon.table.arrow_file import ArrowTable, read_arrow, write_arrow
from gnomon.table.atomic import atomic_file
from gnomon.table.column import Column, Dictionary, ListOf, equal_columns
from gnomon.table.format import format_column, format_value
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
    "format_value",
    "read_arrow",
    "write_arrow",
]
