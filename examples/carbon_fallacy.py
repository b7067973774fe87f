"""What sorting servers by SCI costs, by grid.

Scenario: a month of jobs on the 740 servers of the Sunk Carbon Fallacy's case study, on its
grid of 10 g/kWh, on Sweden's and on Germany's.
"""

import numpy as np

from gnomon.ingest.intensity.grid import grid_signal
from gnomon.model.machines.machine_file import read_fleet
from gnomon.systems.carbon.metric import parse_metrics
from gnomon.systems.carbon.place import Demand, place_jobs

HOUR_NS = 3600 * 10**9
JOBS = 20_000
rng = np.random.default_rng(7)
arrival_ns = np.sort(rng.integers(0, 30 * 24 * HOUR_NS, JOBS))
hours = rng.lognormal(4.4, 0.5, JOBS)
jobs = Demand(
    arrival_ns=arrival_ns,
    cores=rng.choice([1, 2, 4], JOBS),
    duration_ns=(hours * HOUR_NS).astype(np.int64),
    deadline_ns=np.full(JOBS, np.iinfo(np.int64).max),
)
fleet = read_fleet("bundled:mit-740")


for zone in ("10", "SE", "DE"):
    found = place_jobs(
        fleet,
        jobs,
        lambda start_ns, end_ns, zone=zone: grid_signal(zone, start_ns, end_ns)[0],
        parse_metrics("sci,osci"),
        year=2024,
        amortise="age",
    )
    mean = found.intensity.mean(found.start_ns, found.end_ns)
    print(f"grid {zone}: {mean:.0f} g/kWh, {100 * found.utilisation:.0f} % utilisation:")
    for outcome in found.outcomes:
        operational, total = found.added_pct(outcome)
        print(
            f"  {outcome.metric.title:5}{outcome.operational_kg.mid:8.1f} kg operational, "
            f"{outcome.embodied_kg.mid:.1f} kg embodied: "
            f"{operational:4.1f} % more operational, {total:4.1f} % more in all"
        )
    print(f"  no placement is below {found.bound_kg:.1f} kg operational")
