"""Nezha's metrics of pods, a minute a row: the cores that each service used.

    Time,TimeStamp,PodName,CpuUsage(m),...

A folder has a file a pod. Millicores are summed over the pods of a service and averaged over time.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from gnomon.errors import InputError
from gnomon.ingest.delimited import HeadedTable, header_of, read_lines
from gnomon.ingest.spans.span_table import service_of_pod
from gnomon.ingest.text import read_head

_POD, _CPU = "PodName", "CpuUsage(m)"


class PodMetrics(msgspec.Struct, frozen=True):
    """Cores by service, and how many rows and pods they come from."""

    cores: dict[str, float]
    pods: int
    rows: int


def is_pod_metrics(head: bytes) -> bool:
    """Whether a file begins as a table of a pod's metrics does.

    >>> is_pod_metrics(b"Time,TimeStamp,PodName,CpuUsage(m),CpuUsageRate(%)")
    True
    """
    return {_POD, _CPU} <= set(header_of(head))


def read_pod_metrics(path: str | os.PathLike[str]) -> PodMetrics:
    """Cores used by each service; of a folder's files those that are such tables are read."""
    place = Path(path)
    files = sorted(place.glob("*.csv")) if place.is_dir() else [place]
    if place.is_dir():
        files = [file for file in files if is_pod_metrics(read_head(file))]
    used_m: dict[str, list[float]] = {}
    for file in files:
        table = HeadedTable(read_lines(file), os.fspath(file))
        if missing := [name for name in (_POD, _CPU) if name not in table.names]:
            raise InputError(f"there is no column {missing[0]!r}", where=os.fspath(file),
                             hint=table.listing())  # fmt: skip
        pod_at, cpu_at = table.names.index(_POD), table.names.index(_CPU)
        for row in table.rows():
            value = table.value(row[cpu_at], _CPU)
            if np.isfinite(value) and value >= 0:
                used_m.setdefault(row[pod_at], []).append(value)
    if not used_m:
        raise InputError("there is no use of CPU time in it", where=os.fspath(path))
    cores: Counter[str] = Counter()
    for pod, values in used_m.items():
        cores[service_of_pod(pod)] += float(np.mean(values)) / 1e3  # type: ignore[assignment]
    return PodMetrics(dict(cores), len(used_m), sum(map(len, used_m.values())))
