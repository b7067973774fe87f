"""What a column may be: a numpy array, a list of strings, a Dictionary, a ListOf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError


class Dictionary(msgspec.Struct, frozen=True, eq=False):
    """Text that repeats: each distinct value once, and an integer code for each row.

    >>> names = Dictionary.of(["gemm", "copy", "gemm"])
    >>> names.codes.tolist(), list(names.values)
    ([0, 1, 0], ['gemm', 'copy'])
    >>> names[2], len(names), list(names)
    ('gemm', 3, ['gemm', 'copy', 'gemm'])
    """

    codes: NDArray[Any]
    values: Sequence[str]

    def __post_init__(self) -> None:
        if self.codes.dtype.kind not in "iu" or self.codes.ndim != 1:
            raise InputError(f"codes must be a flat integer array, not {self.codes.dtype}")

    @classmethod
    def of(cls, texts: Iterable[str]) -> Dictionary:
        seen: dict[str, int] = {}
        codes = [seen.setdefault(text, len(seen)) for text in texts]
        return cls(np.asarray(codes, np.int32), list(seen))

    def decode(self) -> list[str]:
        values = self.values
        return [values[code] for code in self.codes.tolist()]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.values[int(self.codes[row])]

    def __iter__(self) -> Iterator[str]:
        return iter(self.decode())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dictionary):
            return NotImplemented
        return list(self.values) == list(other.values) and bool(
            np.array_equal(self.codes, other.codes)
        )

    __hash__ = None  # type: ignore[assignment]


class ListOf(msgspec.Struct, frozen=True, eq=False):
    """A list in each row: row i holds `child[offsets[i]:offsets[i + 1]]`.

    The child is a column, or columns side by side (a list of records).

    >>> waits = ListOf(np.array([0, 2, 2, 3]), np.array([5, 7, 9]))
    >>> len(waits), [waits[i].tolist() for i in range(3)]
    (3, [[5, 7], [], [9]])
    """

    offsets: NDArray[np.int64]
    child: Column | Mapping[str, Column]

    def __post_init__(self) -> None:
        offsets = self.offsets
        if offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets):
            raise InputError("offsets must be a flat int64 array, one longer than the rows")
        if offsets[0] != 0 or (len(offsets) > 1 and bool(np.any(offsets[1:] < offsets[:-1]))):
            raise InputError("offsets must begin with 0 and never fall")
        parts = self.child.values() if isinstance(self.child, Mapping) else [self.child]
        for part in parts:
            if len(part) != offsets[-1]:
                raise InputError(
                    f"a list column ends at element {offsets[-1]}, its child has {len(part)}"
                )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        row = range(len(self))[row]
        low, high = int(self.offsets[row]), int(self.offsets[row + 1])
        if isinstance(self.child, Mapping):
            return {name: slice_column(part, low, high) for name, part in self.child.items()}
        return slice_column(self.child, low, high)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ListOf):
            return NotImplemented
        if not np.array_equal(self.offsets, other.offsets):
            return False
        if isinstance(self.child, Mapping) and isinstance(other.child, Mapping):
            return list(self.child) == list(other.child) and all(
                equal_columns(part, other.child[name]) for name, part in self.child.items()
            )
        if isinstance(self.child, Mapping) or isinstance(other.child, Mapping):
            return False
        return equal_columns(self.child, other.child)

    __hash__ = None  # type: ignore[assignment]


Column: TypeAlias = NDArray[Any] | Sequence[str] | Dictionary | ListOf


def slice_column(column: Column, low: int, high: int) -> Column:
    """Rows low to high; arrays stay views."""
    if isinstance(column, Dictionary):
        return Dictionary(column.codes[low:high], column.values)
    if isinstance(column, ListOf):
        offsets = column.offsets[low : high + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        child: Column | Mapping[str, Column]
        if isinstance(column.child, Mapping):
            child = {k: slice_column(part, first, last) for k, part in column.child.items()}
        else:
            child = slice_column(column.child, first, last)
        return ListOf(offsets - first, child)
    return column[low:high]


def equal_columns(a: Column, b: Column) -> bool:
    """Same kind, same values; NaN equals NaN. Dictionaries are equal when they decode alike.

    >>> equal_columns(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    True
    >>> equal_columns(np.array([1, 2]), ["1", "2"])
    False
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype:
            return False
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    if isinstance(a, Dictionary) and isinstance(b, Dictionary):
        return a == b or (len(a) == len(b) and a.decode() == b.decode())
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return a == b
    if isinstance(a, np.ndarray | Dictionary | ListOf) or isinstance(
        b, np.ndarray | Dictionary | ListOf
    ):
        return False
    return list(a) == list(b)
