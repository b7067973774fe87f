"""What a carbon guard around managers of services saves on a day, and what its placebo does.

    python benchmarks/services_carbon.py [--explored starter=FILE] [--explored media-pipeline=FILE]
                                         [--seeds 1] [--hour-s 240] [--depth 0.2] [--json OUT]

A day of `bundled:starter` and `bundled:media-pipeline` under `autothrottle`, and under `ursa` where
`gnomon services explore bundled:NAME -o FILE` has been run; alone, behind `relax`, and behind its
placebo, on three grids. The day is in fast motion (an hour takes `--hour-s` seconds; 3600 is real
time and takes half an hour of CPU), decisions every 10 s, the fewest requests at 03:00 local time.
The half-life of the rise that `ursa` expects is as short as the day is: at its 30 min it would have
spare CPU all day, and the guard would take that.

Carbon is that of allocated cores. Savings are in per cent of the manager alone: total = less CPU +
cleaner hours; `used` is the total by the CPU time that was used, which a limit does not change.
With several seeds: means, and the range of totals. Only what exceeds the placebo's is due to the
grid.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import msgspec
import numpy as np

#: Grids, and the hour (UTC) at which it is 03:00 there in winter.
ZONES = {"DE": 2.0, "CAISO": 11.0, "ON": 8.0}
APPLICATIONS = ("starter", "media-pipeline")
FIELDS = ("total_pct", "less_cpu_pct", "cleaner_hours_pct", "used_pct")


#: Half-life of the rise that Ursa expects, in hours.
RISE_H = 0.5


def managers(name: str, explored: dict[str, str], hour_s: float) -> list[str]:
    found = ["autothrottle"]
    if name in explored:
        file = explored[name].replace("%", "%25").replace(":", "%3A").replace("&", "%26")
        found.append(f"ursa?explored={file}&rise_s={RISE_H * hour_s:g}")
    return found


def run(name: str, manager: str, options: Any) -> list[dict[str, Any]]:
    """All zones and seeds of one application under one manager; the base is run once a seed."""
    from gnomon.ingest.services.application_file import read_application
    from gnomon.systems.services.relaxed import study

    app, bases, rows = read_application(f"bundled:{name}"), {}, []
    for zone, hour in ZONES.items():
        for seed in range(options.seeds):
            found = study(
                app, manager, zone, hour=hour, depth=options.depth, hour_s=options.hour_s,
                seed=seed, base=bases.get(seed),
            )  # fmt: skip
            bases[seed] = found.base
            runs = (found.base, found.relaxed, found.placebo)
            windows = round(24 * options.hour_s / 10.0)
            assert all(one.score.windows == windows for one in runs), "a day is a day"
            assert not any(one.score.failed for one in runs), found.relaxed.score.failure
            rows.append({
                "app": name, "manager": manager.partition("?")[0], "zone": zone, "seed": seed,
                "cores": found.base.score.cpu_mean,
                "relaxed": msgspec.structs.asdict(found.saving),
                "placebo": msgspec.structs.asdict(found.placebo_saving),
            })  # fmt: skip
    return rows


def mean(rows: list[dict[str, Any]], kind: str, field: str) -> float:
    return float(np.mean([row[kind][field] for row in rows]))


def show(rows: list[dict[str, Any]], zone: str) -> None:
    chosen = [row for row in rows if row["zone"] == zone]
    first = chosen[0]
    for kind in ("relaxed", "placebo"):
        totals = [row[kind]["total_pct"] for row in chosen]
        spread = f" ({min(totals):.1f}..{max(totals):.1f})" if len(totals) > 1 else ""
        cells = " ".join(f"{mean(chosen, kind, field):9.2f}" for field in FIELDS)
        missed = (
            f"{mean(chosen, kind, 'base_violation_pct'):.2f} -> "
            f"{mean(chosen, kind, 'violation_pct'):.2f}"
        )
        head = f"{first['app']:<15}{first['manager']:<13}{zone:<6} {kind:<8}"
        print(f"{head}{cells}  {missed}{spread}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--explored", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--hour-s", type=float, default=240.0)
    parser.add_argument("--depth", type=float, default=0.2)
    parser.add_argument("--json")
    options = parser.parse_args()
    explored = dict(one.split("=", 1) for one in options.explored)
    if unknown := set(explored) - set(APPLICATIONS):
        parser.error(f"--explored NAME=FILE: {unknown.pop()} is none of {', '.join(APPLICATIONS)}")
    began = time.process_time()
    print(f"{'application':<15}{'manager':<13}{'zone':<6} {'run':<8}" + " ".join(
        f"{label:>9}" for label in ("saved %", "less CPU", "hours", "used"))
        + "  SLA checks missed %")  # fmt: skip
    rows = []
    for name in APPLICATIONS:
        for manager in managers(name, explored, options.hour_s):
            found = run(name, manager, options)
            rows += found
            for zone in ZONES:
                show(found, zone)
        if name not in explored:
            print(f"{name:<15}ursa: skipped, no --explored {name}=FILE")
    print(f"{time.process_time() - began:.0f} s of CPU time")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
