"""How much CPU do three managers need for the same surge, and is the SLA kept?

A hotel reservation of 17 tiers gets twice its requests in the middle third of three minutes. The
static allocation is the baseline; AutoScaleCons and Autothrottle decide every second.
"""

from __future__ import annotations

from gnomon.ingest.services.application_file import read_application
from gnomon.systems.services import Setup, find_rate, simulate

app = read_application("bundled:hotel-reservation")
rate = find_rate("surge", app.rate, duration_s=180)
for manager in ("static", "autoscale-cons", "autothrottle"):
    score = simulate(Setup(app, seed=1), manager, rate).score
    worst = max(score.classes, key=lambda one: one.p99_ms)
    print(
        f"{manager:15} {score.cpu_mean:5.2f} cores, {score.violation_pct:4.1f} % of windows in "
        f"violation, p99 of {worst.name} {worst.p99_ms:.0f} ms"
    )
