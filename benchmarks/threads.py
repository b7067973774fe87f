"""The simulator of requests on cores: requests per second, by policy.

    python benchmarks/threads.py [--requests 2000000] [--repeats 5]

Workload A2 at a load of 0.7 with safepoints, one worker and sixteen; CPU time, medians of repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time


def main() -> None:
    from gnomon.decide.threads import thread_policies
    from gnomon.sim.cores import run_cores
    from gnomon.systems.threads import SOURCES, find_workload

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for workers in (1, 16):
        requests = find_workload("A2").requests(0.7, count=given.requests, workers=workers)
        for name in thread_policies.names():
            if name == "reserved" and workers == 1:
                continue
            scheduling = thread_policies.create(name).native(None)
            spent = []
            for _ in range(given.repeats):
                began = time.process_time()
                run = run_cores(
                    requests, scheduling, workers=workers, mechanism=SOURCES["safepoint"]
                )
                spent.append(time.process_time() - began)
                assert len(run.latency_ns) == given.requests
                assert run.latency_ns.min() > 0
            speed = [given.requests / one / 1e6 for one in spent]
            print(f"{workers:2} workers, {name:10} {statistics.median(speed):5.1f} million requests/s "
                  f"({min(speed):.1f} to {max(speed):.1f})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
