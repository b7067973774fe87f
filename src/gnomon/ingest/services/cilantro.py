"""Measurements of Hotel Reservation under Cilantro: load, latency and CPU by service over time.

Rows of its `hr-client.csv` are intervals of about 30 s. They are measurements of a real cluster,
and what the simulator is compared with.
"""

from __future__ import annotations

import os
import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import InputError
from gnomon.ingest.delimited import HeadedTable, header_of, read_lines

Floats = NDArray[np.float64]

_NEEDED = ("load", "avg_latency", "p99", "allocs", "event_start_time", "event_end_time")
_ALLOCATION = re.compile(r"\s*'([^'\\]{1,200})'\s*:\s*([0-9.eE+-]{1,30})\s*")


class CilantroLog(msgspec.Struct, frozen=True, eq=False):
    """Columns of measurements, one row an interval. NaN is what was not measured.

    Attributes:
        start_s: Since 1970.
        end_s: When the interval ended.
        load: Requests in the interval.
        mean_ms: Latency.
        p99_ms: Latency.
        services: Without the prefix of their tenant.
        cores: What each service had: one row an interval, one column a service.
    """

    start_s: Floats
    end_s: Floats
    load: Floats
    mean_ms: Floats
    p99_ms: Floats
    services: tuple[str, ...]
    cores: Floats

    def __len__(self) -> int:
        return len(self.load)

    @property
    def rate(self) -> Floats:
        """Requests per second."""
        return self.load / (self.end_s - self.start_s)


def is_cilantro(head: bytes) -> bool:
    """Whether a file begins as Cilantro's log of a client does.

    >>> is_cilantro(b",load,avg_latency,p99,stddev_latency,allocs,event_start_time,event_end_time")
    True
    """
    return set(_NEEDED) <= set(header_of(head))


def read_cilantro(path: str | os.PathLike[str]) -> CilantroLog:
    """Read a client's log."""
    where = os.fspath(path)
    table = HeadedTable(read_lines(where), where)
    if missing := [name for name in _NEEDED if name not in table.names]:
        raise InputError(f"there is no column {missing[0]!r}", where=where, hint=table.listing())
    at = {name: table.names.index(name) for name in _NEEDED}
    numbers: dict[str, list[float]] = {name: [] for name in _NEEDED if name != "allocs"}
    allocations: list[dict[str, float]] = []
    for row in table.rows():
        for name, column in numbers.items():
            value = table.value(row[at[name]], name)
            column.append(value if value >= 0 else np.nan)  # -1 is what was not measured
        allocations.append(_allocation(table, row[at["allocs"]]))
    start_s, end_s = np.array(numbers["event_start_time"]), np.array(numbers["event_end_time"])
    if not np.all(end_s > start_s):
        row_number = int(np.argmin(end_s > start_s)) + 2
        raise InputError(f"line {row_number}: the interval has no length", where=where)
    services = tuple(dict.fromkeys(name for one in allocations for name in one))
    cores = [[one.get(name, np.nan) for name in services] for one in allocations]
    return CilantroLog(
        start_s=start_s, end_s=end_s, load=np.array(numbers["load"]),
        mean_ms=np.array(numbers["avg_latency"]), p99_ms=np.array(numbers["p99"]),
        services=services, cores=np.array(cores).reshape(len(allocations), len(services)),
    )  # fmt: skip


def _allocation(table: HeadedTable, cell: str) -> dict[str, float]:
    """Cores by service, which Python printed: `{'root--geo': 5.7, ...}`."""
    text = cell.strip()
    found = {}
    if not (text.startswith("{") and text.endswith("}")):
        raise table.error(f"{text[:40]!r} is no table of cores by service")
    for part in text[1:-1].split(",") if text[1:-1].strip() else []:
        match = _ALLOCATION.fullmatch(part)
        try:
            found[match[1].rpartition("--")[2]] = float(match[2])  # type: ignore[index]
        except (TypeError, ValueError):
            raise table.error(f"{part.strip()[:40]!r} is no service with its cores") from None
    return found
