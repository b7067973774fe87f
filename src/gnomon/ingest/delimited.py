"""Delimited text, as every reader of tables reads it: lines of a file, rows of cells, numbers.

Plain, gzip or zstd, UTF-8 with or without a mark at its begin; commas, semicolons, tabs or bars
between cells, quotes around them or not.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gnomon.errors import InputError
from gnomon.ingest.moment import is_time
from gnomon.ingest.text import read_pieces

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: What stands in a cell without a value, in lower case.
BLANK = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?")
_COMMA_NUMBER = re.compile(r"[+-]?\d{1,40},\d{1,40}([eE][+-]?\d{1,3})?")
_MAX_LINE_CHARS = 1 << 20
#: Of text, after decompression: a small .gz can hold any amount of it.
_MAX_CHARS = 1 << 32


class _Pieces(io.RawIOBase):
    """The decompressed content of a file, as a stream of bytes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._pieces, self._held = read_pieces(path), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._held:
            if (piece := next(self._pieces, None)) is None:
                return 0
            self._held = memoryview(piece)
        taken = self._held[: len(memoryview(buffer))]
        memoryview(buffer)[: len(taken)] = taken
        self._held = self._held[len(taken) :]
        return len(taken)


def read_lines(
    path: str | os.PathLike[str], *, hint: str = "expected CSV in UTF-8"
) -> Iterator[str]:
    """The lines of a text file with their ends, one after the other."""
    where, read = os.fspath(path), 0
    stream = io.TextIOWrapper(
        io.BufferedReader(_Pieces(path), 1 << 20), encoding="utf-8-sig", newline=""
    )
    try:
        # readline with a bound: one endless line must not be drawn into memory.
        for number in itertools.count(1):
            if not (line := stream.readline(_MAX_LINE_CHARS)):
                return
            read += len(line)
            if len(line) == _MAX_LINE_CHARS:
                what = f"line {number}: more than a million characters in a line"
                raise InputError(what, where=where, hint="is this a CSV?")
            if read > _MAX_CHARS:
                what = f"line {number}: the table is larger than {_MAX_CHARS:,} characters"
                raise InputError(what, where=where, hint="split it")
            if "\0" in line:
                what = f"line {number}: a zero byte"
                raise InputError(what, where=where, hint="this is not a text file")
            yield line
    except UnicodeDecodeError:
        raise InputError("is not a text file", where=where, hint=hint) from None


class Delimited:
    """Rows of delimited text; blank lines, and comments before the first row, are passed over.

    >>> table = Delimited(["# of 2024\\n", 'time;"a;b"\\n', "0;1\\n"], "x.csv")
    >>> [(table.line, row) for row in table]
    [(2, ['time', 'a;b']), (3, ['0', '1'])]

    Attributes:
        comments: Lines that begin with a hash, before the first row, by number.
    """

    def __init__(
        self, lines: Iterable[str], where: str, *, separator: str | None = None,
        is_quoted: bool = True,
    ) -> None:  # fmt: skip
        self.where, self.line, self.comments = where, 0, dict[int, str]()
        counted = self._count(lines)
        first = next((line for line in counted if not self._is_comment(line)), "")
        self.separator = separator or find_separator(first)
        self._rows = csv.reader(
            itertools.chain([first] if first else [], counted), delimiter=self.separator,
            quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
        )  # fmt: skip

    def _is_comment(self, line: str) -> bool:
        if line.startswith("#"):
            self.comments[self.line] = line
        return line.startswith("#") or not line.strip()

    def _count(self, lines: Iterable[str]) -> Iterator[str]:
        for self.line, line in enumerate(lines, 1):
            yield line

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        try:
            return next(row for row in self._rows if row)
        except csv.Error as error:
            raise self.error(str(error), "is this a CSV?") from None

    def error(self, what: str, hint: str | None = None, line: int | None = None) -> InputError:
        return InputError(f"line {line or self.line}: {what}", where=self.where, hint=hint)

    def check_width(self, row: list[str], width: int) -> None:
        if len(row) != width:
            what = f"{len(row)} cells where the header has {width}"
            raise self.error(what, "was the file cut short?")


class HeadedTable(Delimited):
    """A table of measurements: a header of names, at least one row, numbers in one notation."""

    def __init__(self, lines: Iterable[str], where: str) -> None:
        super().__init__(lines, where)
        if (header := next(self, None)) is None:
            raise InputError("the file is empty", where=where)
        self.names = [name.strip() for name in header]
        self.decimals = Decimals(self.separator)
        if any(self.decimals.is_number(name) or is_time(name) for name in self.names):
            what = "the first line holds values, not the names of columns"
            hint = "expected a header such as datetime,lca_gco2_kwh"
            raise self.error(what, hint)
        first = next(self, None)
        if first is None:
            raise InputError("there is a header and nothing below it", where=where)
        self.check_width(first, len(self.names))
        self.first: list[str] = first

    def rows(self) -> Iterator[list[str]]:
        """All rows below the header, each as wide as it is."""
        for row in itertools.chain([self.first], self):
            self.check_width(row, len(self.names))
            yield row

    def value(self, cell: str, column: str) -> float:
        """The number in a cell of the row being read; NaN where it is blank."""
        try:
            number = self.decimals.number(cell)
        except InputError as error:
            raise self.error(error.what, error.hint) from None
        if number is not None and math.isfinite(number):
            return number
        if cell.lower() in BLANK:
            return math.nan
        what = f"{cell[:40]!r} in column {column!r} is not a number"
        raise self.error(what, "a missing value is an empty cell")

    def listing(self) -> str:
        shown = ", ".join(repr(name[:40]) for name in self.names[:12])
        return f"columns are {shown}{' ...' if len(self.names) > 12 else ''}"


def header_of(head: bytes) -> list[str]:
    """The names in the first row of a table, of the first bytes of a file; empty if none."""
    if head[:1] in b"{[":  # JSON on one line would be a row of a million cells
        return []
    lines = io.StringIO(head.decode("utf-8", "replace"), newline="")
    try:
        return [name.strip() for name in next(Delimited(lines, ""), [])]
    except InputError:
        return []


def find_separator(header: str) -> str:
    """What parts the cells of a table: the mark that its header has most of, outside of quotes.

    >>> find_separator("time;intensity, average (g/kWh)"), find_separator("time,value")
    (';', ',')
    """
    bare = re.sub(r'"[^"]*"', "", header)
    # A comma may be part of a name; of the others that is hardly ever true.
    return max((";", "\t", "|", ","), key=bare.count) if bare.strip() else ","


class Decimals:
    """How a table writes fractions: by a point or, where semicolons part cells, by a comma.

    >>> Decimals(";").number("300,5"), Decimals(",").number("300,5")
    (300.5, None)
    """

    def __init__(self, separator: str) -> None:
        self.may_be_comma = separator == ";"
        self.mark: str | None = None

    def is_number(self, cell: str) -> bool:
        """Whether a cell is a number; it says nothing yet about the others."""
        by_comma = self.may_be_comma and _COMMA_NUMBER.fullmatch(cell) is not None
        return by_comma or NUMBER.fullmatch(cell) is not None

    def number(self, cell: str) -> float | None:
        """The number in a cell, None where it is none; all have to be written in one way."""
        if not self.is_number(cell):
            return None
        mark = next((mark for mark in ",." if mark in cell), None)
        if mark is not None and self.mark not in (None, mark):
            what = f"{cell[:40]!r} where numbers above have a decimal {_MARK_NAMES[self.mark]}"
            raise InputError(what, hint="write all in one way, without marks between thousands")
        self.mark = self.mark or mark
        return float(cell.replace(",", "."))


_MARK_NAMES: dict[str | None, str] = {",": "comma", ".": "point"}
