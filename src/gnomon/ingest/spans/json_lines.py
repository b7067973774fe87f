"""JSON documents of a file: one, or one a line as log exporters write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from gnomon.errors import InputError
from gnomon.ingest.text import BAD_JSON, read_whole

_MOST_BYTES = 2 << 30


def read_documents(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The documents of a file, in order."""
    where = os.fspath(path)
    content = read_whole(path, _MOST_BYTES, "split it").removeprefix(b"\xef\xbb\xbf").strip()
    if not content:
        raise InputError("is empty", where=where)
    try:
        yield msgspec.json.decode(content)
        return
    except BAD_JSON as error:
        lines = content.splitlines()
        problem = _explain(error)
    if len(lines) == 1 or not _is_document(lines[0]):
        raise InputError(problem, where=where, hint="was the file cut short?")
    del content
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line)
            except BAD_JSON as error:
                hint = "was the file cut short?" if number == len(lines) else None
                raise InputError(
                    f"line {number}: {_explain(error)}", where=where, hint=hint
                ) from None


def _explain(error: Exception) -> str:
    what = str(error).splitlines()[0] if str(error) else "nests too deep"
    return f"is no JSON: {what[:200]}"


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict | list)
    except BAD_JSON:
        return False


def as_table(value: Any) -> dict[str, Any]:
    """The value if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_tables(value: Any) -> list[dict[str, Any]]:
    """The tables in a list; what else there is counts for nothing."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def as_int(value: Any) -> int | None:
    """A whole number, written as one or as a text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if abs(value) < 2**63 else None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and len(value) < 25 and value.strip().lstrip("-").isdecimal():
        return int(value)
    return None
