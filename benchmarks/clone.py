"""A service beside its clone: under the profiler, and natively in turns.

    python benchmarks/clone.py [--runs 7] [--requests 60000]

Redis of the distribution, with redis-benchmark: profiled, generated, tuned, then both run natively one after the other on
loopback. Medians, with the least and the greatest; needs redis-server, redis-benchmark, qemu-user, CMake and a C compiler.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ORIGINAL, CLONE = 7101, 7102


def load(port: int, requests: int) -> str:
    return f"redis-benchmark -p {port} -t set,get -n {requests} -r 1000 -d 256 -c 16"


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(command: list[str], port: int, requests: int) -> dict[str, float]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ping = ["redis-cli", "-p", str(port), "ping"]
        while subprocess.run(ping, capture_output=True, check=False).returncode != 0:
            time.sleep(0.05)
        subprocess.run([*load(port, 5000).split(), "-q"], capture_output=True, check=True)
        before = cpu_s(server.pid)
        done = subprocess.run(
            [*load(port, requests).split(), "--csv"], capture_output=True, text=True, check=True
        )
        spent = cpu_s(server.pid) - before
    finally:
        server.terminate()
        server.wait()
    rows = list(csv.DictReader(done.stdout.splitlines()))
    mean = {name: statistics.mean(float(row[name]) for row in rows)
            for name in ("rps", "p50_latency_ms", "p99_latency_ms")}  # fmt: skip
    return mean | {"cpu_us_per_request": 1e6 * spent / (requests * len(rows))}


def main() -> None:
    from gnomon.systems.clone import compare, profile, tune, write_project
    from gnomon.systems.clone.tune import mix_distance

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--requests", type=int, default=60_000)
    given = parser.parse_args()
    redis = ["redis-server", "--port", str(ORIGINAL), "--save", ""]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "clone"
        began = time.monotonic()
        bundle = profile(redis, load(ORIGINAL, 8000) + " -q", protocol="resp")
        write_project(bundle, folder)
        print(f"profile, bundle and project: {time.monotonic() - began:.0f} s")
        seen = tune(bundle, folder, load(CLONE, 8000) + " -q", port=CLONE)
        print(
            f"tuned after {time.monotonic() - began:.0f} s; mix off by {mix_distance(bundle, seen):.1f} %"
        )
        for one in compare(bundle, seen):
            print(f"{one.name:28} {one.original:9.2f} {one.clone:9.2f} {one.error_pct:+8.1f} %")
        clone = [str(folder / "build" / "clone"), "--port", str(CLONE)]
        runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for _ in range(given.runs):
            runs[0].append(run(redis, ORIGINAL, given.requests))
            runs[1].append(run(clone, CLONE, given.requests))
        for what in runs[0][0]:
            a, b = (sorted(one[what] for one in each) for each in runs)
            middle = statistics.median(a), statistics.median(b)
            print(f"{what}: original {middle[0]:.4g} ({a[0]:.4g} to {a[-1]:.4g}), clone {middle[1]:.4g} "
                  f"({b[0]:.4g} to {b[-1]:.4g}), off by {100 * (middle[1] / middle[0] - 1):+.1f} %")  # fmt: skip


if __name__ == "__main__":
    main()
