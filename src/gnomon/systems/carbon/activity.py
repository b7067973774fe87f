"""What ran, from whatever file says so: a CSV of jobs, sacct, a Prometheus power series."""

from __future__ import annotations

import os
from datetime import UTC, tzinfo

from gnomon.ingest.jobs import Jobs
from gnomon.ingest.jobs_csv import read_jobs_csv
from gnomon.ingest.power_series import PowerSeries, is_power_series, read_power_series
from gnomon.ingest.sacct import is_sacct, read_sacct
from gnomon.ingest.text import read_head

__all__ = ["read_activity"]


def read_activity(
    path: str | os.PathLike[str],
    *,
    zone: tzinfo = UTC,
    series: str | None = None,
    unit: str | None = None,
) -> Jobs | list[PowerSeries]:
    """Jobs or power series, told by the file's first bytes.

    Args:
        path: The file.
        zone: Where times without an offset are from.
        series: The metric to read, where a Prometheus file has several.
        unit: W, kW, mW or J, where a series has lost its name.
    """
    head = read_head(path)
    if is_sacct(head):
        return read_sacct(path, zone=zone)
    if is_power_series(head):
        return read_power_series(path, metric=series, unit=unit)
    return read_jobs_csv(path, zone=zone)
