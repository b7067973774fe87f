"""Where a command finds the hours of a grid: a folder of the user's own, else the profiles."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gnomon.series import Signal

__all__ = ["own_file", "year_of_jobs", "zone_hours"]

#: Times before this are counted from the start of a run, and say no year.
_DATED_NS = 20 * 31_556_952 * 10**9


def own_folder() -> str | None:
    """The folder that `GNOMON_CARBON` names, of files called by their zone."""
    return os.environ.get("GNOMON_CARBON") or None


def own_file(zone: str | None) -> Path | None:
    """The user's own file of a zone, where there is one."""
    from gnomon.ingest.intensity.grid import find_grid_file

    return None if zone is None else find_grid_file(own_folder(), zone)


def zone_hours(
    zone: str | None, start_ns: int, end_ns: int, *, scope: Literal["lifecycle", "direct"],
    seed: int, fill: Literal["hold", "interpolate"] | None,
) -> tuple[Signal, list[str]]:  # fmt: skip
    """A zone's hours over a span, and notes about them."""
    from gnomon.ingest.intensity.grid import grid_signal

    filled = fill if own_file(zone) is not None else None
    return grid_signal(
        zone, start_ns, end_ns, scope=scope, seed=seed, folder=own_folder(), fill=filled
    )


def year_of_jobs(first_ns: int, year: int | None) -> int:
    """The year it is, for the age of machines: as given, that of the first job, or today's."""
    from gnomon.ingest.intensity.grid import year_of

    if year is not None:
        return year
    return year_of(first_ns) if first_ns > _DATED_NS else time.gmtime().tm_year
