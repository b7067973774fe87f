"""What the commands of carbon share: where grids are found, which files were read."""

from __future__ import annotations

import os
from pathlib import Path

from gnomon.errors import InputError


def own_folder() -> str | None:
    """The folder that `GNOMON_CARBON` names, of files called by their zone."""
    return os.environ.get("GNOMON_CARBON") or None


def own_file(zone: str | None) -> Path | None:
    """The user's own file of a zone, where there is one."""
    from gnomon.ingest.intensity.grid import find_grid_file

    return None if zone is None else find_grid_file(own_folder(), zone)


def files_of(*named: str | Path | None) -> list[str]:
    """Those that are files: what a result records as its inputs."""
    return [str(name) for name in named if name is not None and Path(name).is_file()]


def check_per_cent(option: str, value: float) -> None:
    """From 0 to 100."""
    if not 0 <= value <= 100:
        raise InputError(f"{option} {value:g}: between 0 and 100 per cent")
