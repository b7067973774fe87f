"""Columns as an Arrow C stream, through nanoarrow: how polars, pyarrow and duckdb take a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.table.column import Column, Dictionary, ListOf


def arrow_stream(columns: Mapping[str, Column], rows: int) -> Any:
    """A nanoarrow stream of one batch; numbers are lent, text and bits are built.

    Dictionaries travel as text: nanoarrow can describe one but not fill it.
    """
    import nanoarrow as na
    from nanoarrow.c_array_stream import CArrayStream

    parts = {name: _array(na, name, column) for name, column in columns.items()}
    schema = na.c_schema(na.struct({name: part.schema for name, part in parts.items()}))
    batch = na.c_array_from_buffers(
        schema, rows, [None], null_count=0, children=list(parts.values())
    )
    return CArrayStream.from_c_arrays([batch], schema)


def _array(na: Any, name: str, column: Column) -> Any:
    if isinstance(column, ListOf):
        raise InputError(f"column {name!r} holds lists, which a table of rows cannot show")
    if isinstance(column, np.ndarray) and column.dtype.kind != "U":
        return _numbers(na, column)
    if isinstance(column, Dictionary):
        return _texts(na, column.decode())
    return _texts(na, column.tolist() if isinstance(column, np.ndarray) else column)


def _numbers(na: Any, array: NDArray[Any]) -> Any:
    if array.dtype.kind == "b":
        bits = np.packbits(array, bitorder="little")
        return na.c_array_from_buffers(na.bool_(), len(array), [None, bits], null_count=0)
    names = {"i": "int", "u": "uint", "f": "float"}
    kind = getattr(na, f"{names[array.dtype.kind]}{8 * array.itemsize}")()
    data = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return na.c_array_from_buffers(kind, len(array), [None, data], null_count=0)


def _texts(na: Any, texts: Sequence[str]) -> Any:
    raw = [text.encode() for text in texts]
    offsets = np.zeros(len(raw) + 1, np.int64)
    np.cumsum([len(part) for part in raw], out=offsets[1:])
    return na.c_array_from_buffers(
        na.large_string(), len(raw), [None, offsets, b"".join(raw)], null_count=0
    )
