"""The paper's figures again; placement of jobs beside a plain pandas version of the same rule.

    python benchmarks/carbon.py paper [--svg FOLDER]      also draws the two sweeps
    python benchmarks/carbon.py place [--sizes 100:10000,1000:100000,10000:1000000]
    python benchmarks/carbon.py place --all-in-pandas     pandas takes every job, not a part

`paper`: the Sunk Carbon Fallacy (arXiv 2410.15087), from its tables.

`place`: a year of hourly intensity; servers of the 15 models of the bundled fleet; jobs of 1 to 4 threads,
58 % of the fleet in use. Both sort servers by SCI, place every job, and count operational carbon.
Where pandas would take long, it gets the first jobs only: its time a job is then what is compared.
What both placed has to be the same, job by job, and so have the grams.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

HOUR_NS = 3_600 * 10**9
YEAR_H = 8_760
SIZES = ((100, 10_000), (1_000, 100_000), (10_000, 1_000_000))
#: What pandas gets of the larger sizes.
PANDAS_JOBS = 20_000
USE = 0.58


def workload(servers: int, jobs: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """A fleet of that many servers, jobs over a year, and the grid of that year."""
    import msgspec

    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.series.zones import zone_signal
    from gnomon.systems.carbon.place import Demand

    rng = np.random.default_rng(seed)
    base = read_fleet("bundled:mit-740")
    counts = [max(1, round(servers * group.count / 740)) for group in base.groups]
    counts[0] += servers - sum(counts)
    groups = tuple(
        msgspec.structs.replace(group, count=count) for group, count in zip(base.groups, counts)
    )
    fleet = msgspec.structs.replace(base, groups=groups)
    most = min(group.machine.threads for group in groups)
    threads = sum(group.count * group.machine.threads for group in groups)
    cores = np.minimum(rng.choice([1, 2, 4], jobs), most)
    hours = rng.lognormal(0.0, 0.5, jobs)
    hours *= USE * threads * YEAR_H / (hours * cores).sum()
    arrival = np.sort(rng.integers(0, YEAR_H * HOUR_NS, jobs))
    demand = Demand(
        arrival_ns=arrival, cores=cores.astype(np.int64),
        duration_ns=np.maximum(hours * HOUR_NS, 1).astype(np.int64),
        deadline_ns=np.full(jobs, np.iinfo(np.int64).max),
    )  # fmt: skip
    # The slowest thread of the fleet has a ninth of the mean one's points; queues come on top.
    end_ns = int((demand.arrival_ns + 12 * demand.duration_ns).max())
    return fleet, demand, zone_signal("DE", 0, end_ns, seed=seed)


def ours(fleet: Any, demand: Any, grid: Any) -> tuple[float, Any]:
    from gnomon.systems.carbon.metric import parse_metrics
    from gnomon.systems.carbon.place import place_jobs

    began = time.perf_counter()
    placements = place_jobs(
        fleet, demand, lambda *_: grid, parse_metrics("sci"), year=2024, amortise="age"
    )
    return time.perf_counter() - began, placements


def only_one(fleet: Any, demand: Any, grid: Any) -> float:
    """One metric alone, as pandas has it: our command tries three."""
    from gnomon.model.carbon import grid_hours
    from gnomon.sim.placement import Groups, Tasks, place
    from gnomon.systems.carbon.metric import METRICS, candidates_of
    from gnomon.systems.carbon.supply import supply_of

    began = time.perf_counter()
    supply = supply_of(fleet, year=2024, amortise="age")
    per_thread = supply.points / supply.threads
    known = supply.capacity.sum() / (supply.servers * supply.threads).sum()
    groups = Groups.of(supply.servers, supply.threads, per_thread / known)
    (order,) = candidates_of(METRICS["sci"], supply, mean_of(grid, demand))
    placed = place(groups, order, Tasks.of(demand.arrival_ns, demand.cores, demand.duration_ns))
    weighed = grid_hours(grid, placed.start_ns, placed.end_ns).mid
    watts = supply.dynamic_w[placed.group] * demand.cores / supply.threads[placed.group]
    grams = float((watts * weighed).sum()) / 1e3
    assert grams > 0
    return time.perf_counter() - began


def mean_of(grid: Any, demand: Any) -> float:
    last = int((demand.arrival_ns + demand.duration_ns).max())
    return float(grid.mean(int(demand.arrival_ns.min()), last))


def in_pandas(fleet: Any, demand: Any, grid: Any, jobs: int, mean: float) -> tuple[float, Any]:
    """The same rule as one would write it with a table of servers."""
    import pandas as pd

    began = time.perf_counter()
    machines = pd.DataFrame(
        [
            {
                "group": number, "count": g.count, "threads": g.machine.threads,
                "score": g.machine.score, "peak_w": g.machine.peak_w.mid,
                "idle_w": g.machine.idle_w.mid, "kg": g.machine.embodied_kg.mid,
                "years": max(g.machine.life_years, 2024 - g.bought),
            }
            for number, g in enumerate(fleet.groups)
        ]
    )  # fmt: skip
    machines["sci"] = (
        machines["peak_w"] * mean / 1e3 + machines["kg"] * 1e3 / (machines["years"] * YEAR_H)
    ) / machines["score"]
    machines["rank"] = machines["sci"].rank(method="first")
    speed = machines["score"] / machines["threads"]
    whole = (machines["score"] * machines["count"]).sum()
    speed /= whole / (machines["threads"] * machines["count"]).sum()
    servers = machines.loc[machines.index.repeat(machines["count"])].copy()
    servers["server"] = servers.groupby("group").cumcount()
    servers = servers.reset_index(drop=True)
    servers["free"] = servers["threads"]
    rows, running, line = [], [], deque()

    def begin(job: int, now: int) -> bool:
        cores = int(demand.cores[job])
        fits = servers[servers["free"] >= cores]
        if fits.empty:
            return False
        best = fits[fits["rank"] == fits["rank"].min()]
        at = best["free"].idxmin()
        group = servers.at[at, "group"]
        end = now + round(float(demand.duration_ns[job] / speed[group]))
        servers.at[at, "free"] -= cores
        heapq.heappush(running, (end, job, at, cores))
        rows.append((job, now, end, group, servers.at[at, "server"], cores))
        return True

    def finish_until(time_ns: int) -> None:
        while running and running[0][0] <= time_ns:
            now = running[0][0]
            while running and running[0][0] == now:
                _, _, at, cores = heapq.heappop(running)
                servers.at[at, "free"] += cores
            while line and begin(line[0], now):
                line.popleft()

    for job in range(jobs):
        now = int(demand.arrival_ns[job])
        finish_until(now)
        if line or not begin(job, now):
            line.append(job)
    while line:
        finish_until(running[0][0])
    columns = ["job", "start", "end", "group", "server", "cores"]
    placed = pd.DataFrame(rows, columns=columns).sort_values("job").merge(machines, on="group")
    hours = pd.Series(np.append(0.0, np.cumsum(grid.values)))
    edges = np.append(grid.time_ns, grid.end_ns)
    weighed = np.interp(placed["end"], edges, hours) - np.interp(placed["start"], edges, hours)
    dynamic = (placed["peak_w"] - placed["idle_w"]) * placed["cores"] / placed["threads"]
    grams = float((dynamic * weighed).sum()) / 1e3
    return time.perf_counter() - began, (placed, grams)


def supply_watts(fleet: Any, demand: Any, placed: Any, part: int) -> Any:
    machines = [group.machine for group in fleet.groups]
    dynamic = np.array([m.peak_w.mid - m.idle_w.mid for m in machines])
    threads = np.array([m.threads for m in machines])
    group = placed.group[:part]
    return dynamic[group] * demand.cores[:part] / threads[group]


def hours_of(grid: Any, placed: Any, part: int) -> Any:
    from gnomon.model.carbon import grid_hours

    return grid_hours(grid, placed.start_ns[:part], placed.end_ns[:part]).mid


def peak_alone(servers: int, jobs: int) -> float:
    """MiB that placing and accounting take in a process of their own, inputs and Python included."""
    code = (
        "import carbon, peak_memory; "
        f"carbon.only_one(*carbon.workload({servers}, {jobs})); "
        "print(peak_memory.peak_mib())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return float(done.stdout)


def measure_place(sizes: Any = SIZES, *, every_job: bool = False) -> dict[str, Any]:
    rows = []
    for servers, jobs in sizes:
        fleet, demand, grid = workload(servers, jobs)
        times = [only_one(fleet, demand, grid) for _ in range(3)]
        whole, placements = ours(fleet, demand, grid)
        peak_mib = peak_alone(servers, jobs)
        part = jobs if every_job else min(jobs, PANDAS_JOBS)
        theirs, (placed, grams) = in_pandas(fleet, demand, grid, part, mean_of(grid, demand))
        mine = placements.outcomes[0].placed
        # A part has no queue behind it: what comes later cannot have moved what came before.
        same = all(
            np.array_equal(np.asarray(getattr(mine, column))[:part], placed[name].to_numpy())
            for column, name in (("group", "group"), ("server", "server"), ("start_ns", "start"))
        )
        assert same, "pandas placed a job elsewhere"
        watts = supply_watts(fleet, demand, mine, part)
        own = float((watts * hours_of(grid, mine, part)).sum()) / 1e3
        assert abs(own / grams - 1) < 1e-9, (own, grams)
        rows.append(
            {
                "servers": servers, "jobs": jobs, "ours_s": statistics.median(times),
                "ours_spread_s": f"{min(times):.3f}..{max(times):.3f}", "three_metrics_s": whole,
                "pandas_jobs": part, "pandas_s": theirs,
                "ratio": (theirs / part) / (statistics.median(times) / jobs),
                "same_places": same, "pandas_grams": grams,
                "utilisation": placements.utilisation,
                "peak_mib": peak_mib,
            }
        )  # fmt: skip
        print(_line(rows[-1]), flush=True)
    return {
        "rows": rows, "least_ratio": min(row["ratio"] for row in rows),
        "largest_ratio": rows[-1]["ratio"], "largest_s": rows[-1]["ours_s"],
        "same_places": all(row["same_places"] for row in rows),
    }  # fmt: skip


#: Read off the paper's figures: largest added carbon by embodied share 0, 0.1 ... 1, and by life.
SHARES_PCT = (48.2, 37.8, 29.7, 23.3, 18.2, 13.8, 10.2, 7.1, 4.4, 2.1, 0.0)
LIVES_PCT = (8.0, 13.8, 18.1, 21.4, 24.1, 26.3, 28.1, 29.7, 31.0, 32.1)


def two_servers() -> Any:
    """The paper's pair, a point of each: grams a score-year on a grid of 1000 g/kWh."""
    from gnomon.systems.carbon.supply import Supply

    return Supply(
        names=("E-2286G", "Gold 6538N"), servers=np.ones(2, int), threads=np.ones(2, int),
        points=np.ones(2), idle_w=np.zeros(2), peak_w=np.array([0.83, 0.56]),
        embodied_g_h=np.array([0.11, 0.45]),
    )  # fmt: skip


def lived(two: Any) -> Any:
    """The pair, had it another life than five years."""
    import msgspec

    return lambda years: msgspec.structs.replace(two, embodied_g_h=two.embodied_g_h * 5.0 / years)


def measure_paper() -> dict[str, Any]:
    """Two servers and the fleet of 740."""
    from gnomon.model.machines.machine_file import read_fleet
    from gnomon.systems.carbon.curves import added_by_life, added_by_share, largest
    from gnomon.systems.carbon.metric import METRICS, order_of
    from gnomon.systems.carbon.supply import supply_of

    sci = METRICS["sci"]
    two = two_servers()
    shares = added_by_share(two, sci, np.arange(11) / 10, 1000.0).total_pct
    lives = added_by_life(lived(two), sci, np.arange(1, 11), 1000.0, today=two).total_pct
    fleet = read_fleet("bundled:mit-740")
    aged, written_off = (supply_of(fleet, year=2024, amortise=how) for how in ("age", "sunk"))
    order = order_of(sci, aged, 10.0)
    operational, total, at = largest(aged, order, 10.0)
    found = {
        "two_servers_pct": largest(two, order_of(sci, two, 1000.0), 1000.0)[1],
        "shares_off_points": float(np.abs(shares - SHARES_PCT).max()),
        "lives_off_points": float(np.abs(lives - LIVES_PCT).max()),
        "fleet_operational_pct": operational, "fleet_at_pct": 100 * at,
        "fleet_total_age_pct": total,
        "fleet_total_sunk_pct": largest(written_off, order, 10.0)[1],
    }  # fmt: skip
    print(_line(found))
    return found


def draw_paper(folder: Path) -> None:
    """The two sweeps, ours and the paper's, as pictures."""
    from gnomon.report import LineChart
    from gnomon.report.charts.chart import Line
    from gnomon.report.charts.svg import render_chart
    from gnomon.systems.carbon.curves import added_by_life, added_by_share
    from gnomon.systems.carbon.metric import METRICS

    two, sci = two_servers(), METRICS["sci"]
    percent, years = np.linspace(0, 100, 101), np.linspace(1, 10, 91)
    shares = [
        added_by_share(two, sci, percent / 100, 1000.0, sort_anew=anew).total_pct
        for anew in (False, True)
    ]
    lives = [
        added_by_life(lived(two), sci, years, 1000.0, today=today).total_pct
        for today in (two, None)
    ]
    for name, title, x, (kept, anew), at, paper, label, unit in (
        ("share", "embodied share", percent, shares, range(0, 101, 10), SHARES_PCT, "share", "%"),
        ("life", "expected life", years, lives, range(1, 11), LIVES_PCT, "life", "years"),
    ):
        chart = LineChart(
            f"Largest added carbon by {title}, two servers",
            [
                Line("the choice kept", x.tolist(), kept.tolist()),
                Line("SCI sorts anew", x.tolist(), anew.tolist(), dashed=True),
                Line("paper, read off", list(at), list(paper)),
            ],
            x_label=label, x_unit=unit, y_unit="%",
        )  # fmt: skip
        target = folder / f"carbon_{name}.svg"
        target.write_text(render_chart(chart, standalone=True))
        print(f"wrote {target}")


def measure(parts: list[str]) -> dict[str, dict[str, Any]]:
    """For `tests/claims`."""
    known = {
        "place": lambda: measure_place(((100, 2_000), (1_000, 2_000))),
        "paper": measure_paper,
    }
    return {part: known[part]() for part in parts}


def _line(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["paper", "place"])
    parser.add_argument("--sizes", default=",".join(f"{s}:{j}" for s, j in SIZES))
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--all-in-pandas", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sizes = [tuple(map(int, pair.split(":"))) for pair in given.sizes.split(",")]
    if given.what == "paper":
        found = measure_paper()
        if given.svg is not None:
            draw_paper(given.svg)
    else:
        found = measure_place(sizes, every_job=given.all_in_pandas)
    if given.json:
        json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
