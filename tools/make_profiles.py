"""Compute the bundled profiles of grid zones from public hourly data.

usage: make_profiles.py [--data FOLDER] [--out FILE]

FOLDER holds `electricitymaps-hourly-2021-2024/` and `carboncast-hourly-2020-2021/`; without it,
they are looked for under carbon/ in $GNOMON_DATA, or in ../shared/data. A grid that both have is
taken from the newer. The same data give the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from gnomon.series import Signal
from gnomon.series.intensity import INTENSITY_UNIT, Scope, intensity_kind
from gnomon.series.profile import Profile
from gnomon.series.zones import ProfileFile

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src" / "gnomon" / "series" / "profiles.json.gz"
HOUR_NS = 3600 * 10**9
SCOPES: tuple[Scope, ...] = ("lifecycle", "direct")
MAPS = "electricitymaps-hourly-2021-2024"
CAST = "carboncast-hourly-2020-2021"
MAPS_COLUMNS = {"lifecycle": "lca_gco2_kwh", "direct": "direct_gco2_kwh"}
#: CarbonCast's zones that the other set lacks, by the name we give them.
CAST_ZONES = {
    "BPAT": "US-NW-BPAT",
    "ES": "ES",
    "FPL": "US-FLA-FPL",
    "ISNE": "US-NE-ISNE",
    "NL": "NL",
    "PL": "PL",
    "SE": "SE",
}
MAPS_THANKS = (
    "profile of hourly data of Electricity Maps 2021-2024 (ODbL 1.0, electricitymaps.com)"
)
CAST_THANKS = "profile of hourly data of CarbonCast 2020-2021 (Apache-2.0; from {source})"
NOTICE = (
    "Computed from hourly data of Electricity Maps (Data Portal, electricitymaps.com, Open "
    "Database License 1.0: what is computed from it is offered under the same licence) and of "
    "CarbonCast (carbonfirst/CarbonCast, Apache-2.0), which come from the EIA (public domain) and "
    "the ENTSO-E Transparency Platform (free re-use with attribution)."
)


def main(arguments: list[str]) -> int:
    """Read, fit, write, and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.data is None or not (options.data / MAPS).is_dir():
        print("no data: give --data FOLDER, or set GNOMON_DATA", file=sys.stderr)
        return 2
    began = time.perf_counter()
    profiles = [Profile.fit(signal) for signal in signals(options.data)]
    profiles.sort(key=lambda profile: (profile.zone, profile.kind))
    packed = pack(ProfileFile(NOTICE, tuple(profiles)))
    options.out.write_bytes(packed)
    zones = len({profile.zone for profile in profiles})
    print(f"wrote {options.out.name}: {len(profiles)} profiles of {zones} zones, ", end="")
    print(f"{len(packed):,} bytes, in {time.perf_counter() - began:.1f} s")
    return 0


def default_data() -> Path | None:
    """The folder of carbon data, where there is one."""
    for candidate in (os.environ.get("GNOMON_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and (Path(candidate) / "carbon").is_dir():
            return Path(candidate) / "carbon"
    return None


def pack(file: ProfileFile) -> bytes:
    """The file's bytes, without the time of the day in them."""
    return gzip.compress(msgspec.json.encode(file), compresslevel=9, mtime=0)


def signals(folder: Path) -> Iterator[Signal]:
    """Every zone once, life-cycle and direct."""
    for path in sorted((folder / MAPS).glob("*.csv.gz")):
        for scope in SCOPES:
            yield read_maps(folder, path.name.removesuffix(".csv.gz"), scope)
    for name in CAST_ZONES:
        for scope in SCOPES:
            yield read_cast(folder, name, scope)


def read_maps(folder: Path, zone: str, scope: Scope) -> Signal:
    """A zone of the Electricity Maps set."""
    with gzip.open(folder / MAPS / f"{zone}.csv.gz", "rt", newline="") as text:
        rows = [(row["datetime_utc"], row[MAPS_COLUMNS[scope]]) for row in csv.DictReader(text)]
    return _signal(rows, zone, scope, MAPS_THANKS)


def read_cast(folder: Path, name: str, scope: Scope) -> Signal:
    """A zone of the CarbonCast set, by the name it has there."""
    if scope == "lifecycle":
        path = folder / CAST / f"{name}_lifecycle_emissions.csv.gz"
        content = gzip.decompress(path.read_bytes())
    else:
        with tarfile.open(folder / CAST / "direct_emissions_12zones.tar.xz") as archive:
            member = archive.extractfile(f"{name}_direct_emissions.csv")
            assert member is not None
            content = member.read()
    reader = csv.DictReader(io.StringIO(content.decode()))
    rows = [(row["UTC time"], row["carbon_intensity"]) for row in reader]
    american = name in ("BPAT", "CISO", "ERCO", "FPL", "ISNE", "NYISO", "PJM")
    thanks = CAST_THANKS.format(source="EIA" if american else "ENTSO-E")
    if (name, scope) == ("SE", "direct"):
        # Its factor for sources that are not named is higher there than in the life cycle's set.
        thanks += "; as published, these direct hours exceed the life-cycle ones"
    return _signal(rows, CAST_ZONES.get(name, name), scope, thanks)


def _signal(rows: list[tuple[str, str]], zone: str, scope: Scope, thanks: str) -> Signal:
    times = np.array([_hour_ns(text) for text, _ in rows], dtype=np.int64)
    values = np.array([float(value) for _, value in rows])
    assert (np.diff(times) == HOUR_NS).all(), f"{zone}: hours are missing"
    kind = intensity_kind("average", scope)
    return Signal.regular(
        int(times[0]),
        HOUR_NS,
        values,
        unit=INTENSITY_UNIT,
        kind=kind,
        zone=zone,
        attribution=thanks,
    )


def _hour_ns(text: str) -> int:
    """'2021-01-01 00:00:00', with or without +00:00, or '01/31/2020 00:00:00'."""
    day, clock = text.removesuffix("+00:00").split(" ")
    if "/" in day:
        month, number, year = day.split("/")
        day = f"{year}-{month}-{number}"
    return int(np.datetime64(f"{day}T{clock}", "ns").astype(np.int64))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
