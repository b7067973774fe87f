"""Whether a request failed, by the columns of a table that say so: flags, codes, errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from gnomon.ingest.delimited import BLANK

#: Names of columns in small letters, without marks.
_NAMES: dict[Literal["flag", "code", "error"], frozenset[str]] = {
    "flag": frozenset({"success", "successful", "succeeded", "ok"}),
    "code": frozenset({
        "status", "statuscode", "responsecode", "httpstatus", "httpcode", "grpcstatus", "grpccode",
        "exitcode", "returncode", "code",
    }),
    "error": frozenset({
        "error", "errors", "err", "errorcode", "errormessage", "exception", "failed", "failure",
        "failuremessage",
    }),
}  # fmt: skip
_CODE = re.compile(r"(?:http/\S{1,8}\s+)?(-?\d{1,9})(?:\.0*)?(?:\s.*)?")
_TRUE, _FALSE = frozenset({"true", "t", "yes", "y"}), frozenset({"false", "f", "no", "n"})
_DONE = frozenset({
    "ok", "okay", "success", "successful", "succeeded", "pass", "passed", "done", "complete",
    "completed", "finished", "2xx", "3xx", "no error", "no_error", "noerror",
})  # fmt: skip
_FAILED = re.compile(
    r"\b(?:ko|nok|bad|oom|[45]xx)\b|(?<!no)(?<!no[ _-])(?:err(?:or|\b)|fail)|time[d _-]*out|abort"
    r"|cancel|interrupt|refused|reject|reset|unavailable|denied|exceeded|exhausted|exception"
    r"|invalid|internal|crash|kill|dropped|throttled|not[ _]?found|unauth|unimplemented"
    r"|data[ _]?loss|non http"
)
#: Cells that are remembered with what they mean.
_MOST_KNOWN = 10_000


class Outcome(msgspec.Struct, frozen=True):
    """A column that says whether a request failed.

    Attributes:
        kind: Of a flag zero is a failure; of a code it is none, unless the others are HTTP's; of
            an error whatever is not empty, zero or false.
    """

    at: int
    name: str
    kind: Literal["flag", "code", "error"]


def find_outcomes(names: Sequence[str], stems: Sequence[str]) -> tuple[Outcome, ...]:
    """The columns that say it, flags first."""
    return tuple(
        Outcome(at, names[at].strip(), kind)
        for kind, known in _NAMES.items() for at, stem in enumerate(stems) if stem in known
    )  # fmt: skip


def is_http(cell: str) -> bool:
    """Whether a code can be none but HTTP's: 1xx is no answer, and programs exit with up to 255.

    >>> [is_http(cell) for cell in ("200 OK", "503", "0", "14", "137", "255")]
    [True, True, False, False, False, False]
    """
    number = _number(cell)
    return number is not None and 200 <= number < 600 and number != 255


class Judge:
    """Says of each row whether it failed, and afterwards by what.

    Args:
        holds_http: Whether a column has codes of HTTP; asked once, when its codes leave it open.
    """

    def __init__(self, columns: Sequence[Outcome], holds_http: Callable[[int], bool]) -> None:
        self._columns, self._holds_http = columns, holds_http
        self._is_http: dict[int, bool] = {}
        self._known: dict[tuple[int, str], bool | None] = {}
        self._unclear: Counter[str] = Counter()
        self._example: dict[str, str] = {}

    def failed_by(self, row: Sequence[str]) -> str | None:
        """The column that says that it failed."""
        unclear = None
        for column in self._columns:
            failed = self._read(column, row[column.at])
            if failed:
                return column.name
            if failed is None:
                unclear = column
        if unclear is not None:
            self._unclear[unclear.name] += 1
            self._example.setdefault(unclear.name, row[unclear.at].strip()[:40])
        return None

    @property
    def notes(self) -> list[str]:
        """What was taken and assumed."""
        if not self._columns:
            return []
        zero = [
            f", where 0 is {'no answer' if self._is_http[column.at] else 'success'}"
            if column.at in self._is_http else "" for column in self._columns
        ]  # fmt: skip
        listed = "; ".join(f"{column.name!r}{how}" for column, how in zip(self._columns, zero))
        return [
            f"Which requests failed is taken from {listed}.",
            *(f"{count:,} requests with words in {name!r} that are not known, such as "
              f"{self._example[name]!r}, count as successful."
              for name, count in self._unclear.items()),
        ]  # fmt: skip

    def _read(self, column: Outcome, cell: str) -> bool | None:
        """None where a word is not known."""
        key = column.at, cell
        if key not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._has_failed(column, cell.strip().lower())
        return self._known[key]

    def _has_failed(self, column: Outcome, word: str) -> bool | None:
        if word in BLANK:
            return False
        if (number := _number(word)) is not None:
            return self._is_failure(column, number)
        if column.kind == "error":
            return word not in _FALSE and word not in _DONE
        if word in _TRUE or word in _DONE:
            return False
        return True if word in _FALSE or _FAILED.search(word) else None

    def _is_failure(self, column: Outcome, number: int) -> bool:
        if column.kind == "flag":
            return number == 0
        if column.kind == "error":
            return number != 0 and not 200 <= number < 400
        if number < 0 or number >= 400 or 1 <= number < 100:
            return True
        if is_http(str(number)):
            return False
        if column.at not in self._is_http:
            self._is_http[column.at] = self._holds_http(column.at)
        return (number == 0) == self._is_http[column.at]


def _number(cell: str) -> int | None:
    match = _CODE.fullmatch(cell.strip().lower())
    return int(match[1]) if match else None
