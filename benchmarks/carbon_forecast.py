"""Forecasts of grid intensity, scored on real years, beside CarbonCast's; and generated years.

usage: carbon_forecast.py [carboncast] [maps] [years] [--zones Z,Z] [--scope lifecycle|direct]
                          [--methods M,M] [--clone FOLDER]

Data are looked for in $GNOMON_DATA, or in ../shared/data. Rows are comma-separated.

- carboncast: 12 zones, forecasts made on each midnight (UTC) from July to December 2021, 96 hours
  ahead: the data, span and measure of CarbonCast. Where its authors published forecasts for that
  span, the error of those stands beside ours.
- maps: 16 zones of Electricity Maps, forecasts over all of 2024.
- years: for each of the 23 bundled zones, how like its newest year (2024, or 2021 for seven) one is
  that was generated from the years before it, beside how like it the year before was.

With --clone FOLDER, a clone of carbonfirst/CarbonCast: its two-tier forecasts of July to December
2022 (branch v3.1), on its data of 2019 to 2022 (branch v2.2), 28 zones of the US.

We use a zone's own past and nothing else. CarbonCast also has weather forecasts, what each kind of
plant produces and, for some zones, operators' own forecasts of sun and wind. Ours is fitted again
every four weeks on all that has come by then; its networks were trained once, before the span. The
terms and the ridge of ours were chosen on January to June 2021, which no table here holds.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from likeness import LAGS_H, Likeness, compare_years  # noqa: E402
from make_profiles import CAST_ZONES as BUNDLED_CAST  # noqa: E402
from make_profiles import MAPS, default_data, read_cast, read_maps  # noqa: E402

from gnomon.series import Signal  # noqa: E402
from gnomon.series.forecast import METHODS, score  # noqa: E402
from gnomon.series.intensity import INTENSITY_UNIT, intensity_kind  # noqa: E402
from gnomon.series.profile import Profile  # noqa: E402

HOUR_NS = 3600 * 10**9
CAST_ZONES = ["BPAT", "CISO", "DE", "ERCO", "ES", "FPL", "ISNE", "NL", "NYISO", "PJM", "PL", "SE"]
#: Mean absolute % error of days 1 to 4 of the forecasts in CarbonCast's repository (commit
#: 12d6989, data/ZONE/ZONE_carbon_from_src_forecasts_SCOPE_Jul_Dec_2021.csv: its forecasts of what
#: each kind of plant produces, turned into intensity by the emission factors), computed by us
#: from the two columns of those files. Their actual values are those of our data, hour by hour.
#: The other six zones have no such file.
PUBLISHED = {
    ("CISO", "lifecycle"): (6.45, 14.66, 19.66, 21.79),
    ("DE", "lifecycle"): (7.21, 11.82, 13.95, 16.57),
    ("ERCO", "lifecycle"): (7.87, 15.40, 18.97, 20.89),
    ("ISNE", "lifecycle"): (4.32, 9.23, 10.69, 11.57),
    ("PJM", "lifecycle"): (3.08, 5.51, 7.06, 8.15),
    ("SE", "lifecycle"): (3.28, 5.92, 6.79, 7.33),
    ("CISO", "direct"): (7.51, 17.14, 22.77, 25.27),
    ("DE", "direct"): (8.67, 14.02, 16.53, 19.84),
    ("ERCO", "direct"): (18.18, 19.04, 20.28, 21.24),
    ("ISNE", "direct"): (4.43, 9.46, 10.96, 11.89),
    ("PJM", "direct"): (3.32, 6.03, 7.97, 9.35),
    ("SE", "direct"): (6.52, 10.85, 12.28, 13.21),
}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    data = default_data()
    if data is None and not options.clone:
        print("no data: set GNOMON_DATA to its folder", file=sys.stderr)
        return 2
    parts = options.parts or ([] if options.clone else ["carboncast", "maps", "years"])
    if data is not None:
        if "carboncast" in parts:
            examine_carboncast(data, options)
        if "maps" in parts:
            examine_maps(data, options)
        if "years" in parts:
            examine_years(data, options)
    if options.clone:
        examine_clone(options.clone, options)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("parts", nargs="*", help="carboncast, maps, years; all unless given")
    parser.add_argument("--zones", type=lambda text: text.split(","), default=None)
    parser.add_argument("--scope", choices=("lifecycle", "direct"), default="lifecycle")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--clone", type=Path, default=None)
    options = parser.parse_args(arguments)
    for name in options.parts:
        if name not in ("carboncast", "maps", "years"):
            parser.error(f"no part is called {name!r}: carboncast, maps, years")
    for name in options.methods:
        if name not in METHODS:
            parser.error(f"no method is called {name!r}: {', '.join(METHODS)}")
    return options


def examine_carboncast(data: Path, options: argparse.Namespace) -> None:
    print(f"# CarbonCast's data, July to December 2021, {options.scope}")
    print("zone,method,ahead,mape_pct,coverage_pct,carboncast_mape_pct,verdict")
    tally = Tally()
    for zone in options.zones or CAST_ZONES:
        signal = read_cast(data, zone, options.scope)
        published = PUBLISHED.get((zone, options.scope))
        for method in options.methods:
            table = score(signal, method, start_ns=instant("2021-07-01"))
            theirs = beside(published)
            print_rows(zone, method, table.rows(), theirs, tally if method == "fitted" else None)
    tally.print()


def examine_maps(data: Path, options: argparse.Namespace) -> None:
    print(f"# Electricity Maps, 2024, {options.scope}")
    print("zone,method,ahead,mape_pct,coverage_pct,carboncast_mape_pct,verdict")
    zones = sorted(path.name.removesuffix(".csv.gz") for path in (data / MAPS).glob("*.csv.gz"))
    tally = Tally()
    for zone in options.zones or zones:
        signal = read_maps(data, zone, options.scope)
        for method in options.methods:
            table = score(signal, method, start_ns=instant("2024-01-01"))
            print_rows(zone, method, table.rows(), {}, tally if method == "fitted" else None)
    tally.print()


def beside(published: tuple[float, ...] | None) -> dict[str, float]:
    return {f"day {day + 1}": error for day, error in enumerate(published or ())}


def print_rows(
    zone: str,
    method: str,
    rows: Iterator[dict[str, Any]],
    theirs: dict[str, float],
    tally: Tally | None,
) -> None:
    for row in rows:
        other = theirs.get(row["ahead"])
        ours, covered = row["mape_pct"], row["coverage_pct"]
        verdict = "" if other is None else ("better" if ours < other else "worse")
        shown = "" if other is None else f"{other:.2f}"
        print(f"{zone},{method},{row['ahead']},{ours:.2f},{covered:.1f},{shown},{verdict}")
        if tally is not None:
            tally.add(row["ahead"], ours, covered, other)
    sys.stdout.flush()


class Tally:
    """Means over zones of the fitted method, and how often it was the better one."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[float, float, float | None]]] = {}

    def add(self, ahead: str, ours: float, covered: float, other: float | None) -> None:
        self.rows.setdefault(ahead, []).append((ours, covered, other))

    def print(self) -> None:
        for ahead, rows in self.rows.items():
            ours, covered = (float(np.mean([row[k] for row in rows])) for k in (0, 1))
            text = f"# fitted, {ahead}: mean {ours:.2f} % over {len(rows)} zones, "
            text += f"{covered:.1f} % of hours in the range"
            both = [(row[0], row[2]) for row in rows if row[2] is not None]
            if both:
                better = sum(mine < other for mine, other in both)
                # Medians: a network that learned nothing of one grid would rule a mean.
                middles = [float(np.median(column)) for column in zip(*both)]
                text += f"; where both, median {middles[0]:.2f} % against {middles[1]:.2f} %, "
                text += f"better in {better} of {len(both)}"
            print(text)


def examine_years(data: Path, options: argparse.Namespace) -> None:
    """A year generated from those before it, beside the year before it."""
    print(
        f"# the newest year against one generated from those before, and the one before, {options.scope}"
    )
    names = ["level", "quantiles", "distribution", "shape", "shape_correlation"]
    names += [f"memory_{lag}h" for lag in LAGS_H] + ["swing", "day_range"]
    print("zone,what," + ",".join(names))
    means: dict[str, list[list[float]]] = {"generated": [], "before": []}
    for name, signal, year in zones_with_years(data, options):
        before, begin, end = (instant(f"{y}-01-01") for y in (year - 1, year, year + 1))
        profile = Profile.fit(signal.slice(signal.start_ns, begin))
        real = signal.slice(begin, end)
        draws = [profile.generate(begin, end, np.random.default_rng(seed)) for seed in range(8)]
        likenesses = [numbers(compare_years(real, draw)) for draw in draws]
        natural = numbers(compare_years(real, signal.slice(before, begin)))
        rows = {"generated": np.abs(likenesses).mean(axis=0), "before": np.abs(natural)}
        for what, row in rows.items():
            print(f"{name},{what}," + ",".join(f"{value:.3f}" for value in row), flush=True)
            means[what].append(row.tolist())
    for what, rows_of in means.items():
        mean = np.mean(rows_of, axis=0)
        print(f"# mean of {len(rows_of)},{what}," + ",".join(f"{value:.3f}" for value in mean))


def zones_with_years(data: Path, options: argparse.Namespace) -> Iterator[tuple[str, Signal, int]]:
    """Every zone of the bundle with its newest year."""
    for path in sorted((data / MAPS).glob("*.csv.gz")):
        zone = path.name.removesuffix(".csv.gz")
        if options.zones is None or zone in options.zones:
            yield zone, read_maps(data, zone, options.scope), 2024
    for zone in BUNDLED_CAST:
        if options.zones is None or zone in options.zones:
            yield zone, read_cast(data, zone, options.scope), 2021


def numbers(likeness: Likeness) -> list[float]:
    one = likeness
    first = [one.level, one.quantiles, one.distribution, one.shape, one.shape_correlation]
    return [*first, *one.memory, one.swing, one.day_range]


def examine_clone(clone: Path, options: argparse.Namespace) -> None:
    """CarbonCast's two tiers on its own data of 2022, read from a clone of its repository."""
    print(f"# CarbonCast's two-tier forecasts, July to December 2022, {options.scope}")
    print("zone,method,ahead,mape_pct,coverage_pct,carboncast_mape_pct,verdict")
    listing = git(clone, "ls-tree", "-r", "--name-only", "v3.1", "CI_forecast_data")
    ending = f"_{options.scope}_96hr_CI_forecasts_0.csv"
    tally = Tally()
    for path in listing.split():
        zone = path.split("/")[1]
        if not path.endswith(ending) or (options.zones and zone not in options.zones):
            continue
        theirs, actual = forecast_file(git(clone, "show", f"v3.1:{path}"))
        signal = emissions(
            git(clone, "show", f"v2.2:v2.2/{zone}/{zone}_{options.scope}_emissions.csv")
        )
        if signal is None:
            print(f"# {zone} is left out: hours are missing, repeated, blank or below zero")
            continue
        published = day_errors(theirs, actual)
        for method in options.methods:
            start, end = instant("2022-07-01"), instant("2023-01-01")
            table = score(signal, method, start_ns=start, end_ns=end)
            other = beside(published)
            print_rows(zone, method, table.rows(), other, tally if method == "fitted" else None)
    tally.print()


def git(clone: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(clone), *words], capture_output=True, text=True, check=True
    ).stdout


def forecast_file(text: str) -> tuple[np.ndarray, np.ndarray]:
    rows = list(csv.reader(io.StringIO(text)))[1:]
    actual, expected = (np.array([float(row[k]) for row in rows]).reshape(-1, 96) for k in (1, 2))
    return expected, actual


def day_errors(expected: np.ndarray, actual: np.ndarray) -> tuple[float, ...]:
    known = np.where(actual > 0, actual, np.nan)
    errors = 100 * np.abs(expected - actual) / known
    return tuple(float(np.nanmean(errors[:, 24 * day : 24 * day + 24])) for day in range(4))


def emissions(text: str) -> Signal | None:
    """The hours of a file, or None where they are not whole."""
    rows = list(csv.DictReader(io.StringIO(text)))
    times = np.array([instant(row["UTC time"][:19].replace(" ", "T")) for row in rows])
    values = np.array([float(row["carbon_intensity"] or "nan") for row in rows])
    if (np.diff(times) != HOUR_NS).any() or not (values >= 0).all():
        return None
    return Signal.regular(
        int(times[0]), HOUR_NS, values, unit=INTENSITY_UNIT, kind=intensity_kind()
    )


def instant(text: str) -> int:
    return int(np.datetime64(text, "ns").astype(np.int64))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
