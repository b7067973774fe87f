"""What it takes to act on a real Spark, to read its event logs, and to play them again.

    python benchmarks/batch_spark.py calls     # how long a look, a hold, a quota take
    python benchmarks/batch_spark.py replay    # logs of runs of its own, played as recorded
    python benchmarks/batch_spark.py logs      # half a gigabyte of events: CPU time and memory

`calls` and `replay` start a standalone master and two workers on loopback (PySpark, Java 17) and the
program of the tests in them; they end by themselves after a minute or two.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peak_memory import peak_mib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the tests' program
LOG_BYTES = 512 << 20


@contextlib.contextmanager
def application(**settings: str) -> Iterator[Any]:
    """The tests' program on a standalone Spark, with three executors of a core each."""
    from tests.act.spark.harness import Application, staying
    from tests.act.spark.standalone import standalone
    from tests.waiting import until

    from gnomon.act.spark import SparkDriver, build_plugin

    with tempfile.TemporaryDirectory() as folder:
        program = Application(Path(folder), build_plugin())
        try:
            with standalone(2, cores=2, memory="1100m") as master_url:
                program.start(master_url, **settings)
                with SparkDriver.connect(program.handshake, wait_s=20, watch=True) as driver:
                    until(lambda: staying(driver.state()) == 3, "three executors", 90)
                yield program
                program.stop()
        finally:
            program.close()


def timed_ms(call: Callable[[], object], repeat: int) -> list[float]:
    took = []
    for _ in range(repeat):
        begin = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - begin))
    return took


def tell_ms(what: str, took: list[float]) -> None:
    took = sorted(took)
    p95 = took[int(0.95 * (len(took) - 1))]
    print(f"{what:28} median {statistics.median(took):7.2f} ms, p95 {p95:7.2f} ms, {len(took)} times",
          flush=True)  # fmt: skip


def calls(repeat: int) -> None:
    """While a job with a shuffle runs on three executors, and another waits behind it."""
    from gnomon.act.spark import SparkDriver

    with application() as program, SparkDriver.connect(program.handshake) as driver:
        driver.set_lease(60.0)
        print(driver.hello.describe(), flush=True)
        hold_and_order(program, driver, repeat)
        fewer_and_more(program, driver)
    with (
        application(spark__decommission__enabled="false") as program,
        SparkDriver.connect(program.handshake) as driver,
    ):
        driver.set_lease(60.0)
        print("without decommissioning, nothing running:")
        change_target(driver, 2)


def hold_and_order(program: Any, driver: Any, repeat: int) -> None:
    from tests.act.spark.harness import running_stage, waiting_stage

    from gnomon.act.spark import SparkPlan

    expected = [program.submit("a", tasks=120, ms=150)]
    first = running_stage(driver)
    expected.append(program.submit("b", tasks=6, ms=100))
    second = waiting_stage(driver, first)
    plans = {
        "hold a stage": SparkPlan(hold=(second,)), "let it go": SparkPlan(release=(second,)),
        "another order": SparkPlan(priority={second: -1}),
        "Spark's own order": SparkPlan(priority={second: None}),
    }  # fmt: skip
    took: dict[str, list[float]] = {"look": timed_ms(driver.state, 20 * repeat)}
    for _ in range(repeat):  # in turn, so that each of them changes something
        for what, plan in plans.items():
            took.setdefault(what, []).extend(timed_ms(lambda plan=plan: driver.apply(plan), 1))
    for what, own in took.items():
        tell_ms(what, own)
    driver.release()
    assert [program.result("a"), program.result("b")] == expected
    assert driver.state().failed_tasks == 0


def fewer_and_more(program: Any, driver: Any) -> None:
    from tests.act.spark.harness import running_stage

    expected = program.submit("c", tasks=300, ms=150)
    running_stage(driver)
    for target in (2, 3, 2, 3):
        change_target(driver, target)
    driver.release()
    assert program.result("c") == expected
    assert driver.state().failed_tasks == 0


def change_target(driver: Any, target: int) -> None:
    """Asks for so many executors, and waits until they are there and no others."""
    from tests.waiting import until

    from gnomon.act.spark import SparkPlan

    (call_ms,) = timed_ms(lambda: driver.apply(SparkPlan(target=target)), 1)
    begin = time.perf_counter()
    until(lambda: len(driver.state().executors) == target, f"{target} executors", 60, 0.02)
    print(f"target {target}: call {call_ms:.1f} ms, as many after "
          f"{time.perf_counter() - begin:.1f} s", flush=True)  # fmt: skip


def replay() -> None:
    """Three jobs that overlap, logged in three ways; then the log that comes with gnomon."""
    from gnomon.datasets import bundled

    ways = {
        "plain": {},
        "zstd": {"spark__eventLog__compress": "true"},
        "rolling": {"spark__eventLog__rolling__enabled": "true"},
    }
    for name, more in ways.items():
        with tempfile.TemporaryDirectory() as logs:
            settings = {"spark__eventLog__rolling__enabled": "false", **more}
            with application(
                spark__eventLog__enabled="true", spark__eventLog__dir=Path(logs).as_uri(),
                **settings,
            ) as program:  # fmt: skip
                expected = {}
                for job, tasks in (("a", 80), ("b", 50), ("c", 60)):
                    expected[job] = program.submit(job, tasks=tasks, ms=120, reducers=9)
                    time.sleep(0.7)
                assert all(program.result(job) == told for job, told in expected.items())
            tell_replay(name, Path(logs))
    tell_replay("bundled:spark-diamonds", bundled("spark-diamonds"))


def tell_replay(name: str, logs: Path) -> None:
    from gnomon.ingest.spark.event_log import read_spark_logs
    from gnomon.ingest.spark.jobs import spark_jobs
    from gnomon.systems.batch.logs import replay_recorded

    replayed = replay_recorded(spark_jobs(read_spark_logs(logs)))
    print(f"{name:24} recorded {replayed.recorded_s:7.1f} s, replayed "
          f"{replayed.makespan_s.mid:7.1f} s: {replayed.error_pct:+.1f} %", flush=True)  # fmt: skip


def logs() -> None:
    """Events of a real run, those of its tasks again and again; read by a program of its own."""
    from collections import Counter

    from gnomon.datasets import bundled
    from gnomon.ingest.spark.log_files import find_spark_logs, log_lines

    (log,) = find_spark_logs(bundled("spark-diamonds"))
    lines = [line.rstrip(b"\n") + b"\n" for line in log_lines(log, Counter())]
    ends = [line for line in lines if b'"SparkListenerTaskEnd"' in line[:60]]
    last = max(place for place, line in enumerate(lines) if line in set(ends)) + 1
    with tempfile.TemporaryDirectory() as folder:
        place, written = Path(folder) / "app-many", 0
        with place.open("wb") as file:
            written += file.write(b"".join(lines[:last]))
            block = b"".join(ends)
            while written < LOG_BYTES:
                written += file.write(block)
            file.write(b"".join(lines[last:]))
        read = [sys.executable, __file__, "read", "--log", str(place)]
        for _ in range(3):
            print(subprocess.run(read, check=True, capture_output=True, text=True).stdout, end="")


def read_one(place: str) -> None:
    from gnomon.ingest.spark.event_log import read_spark_log

    begin = time.process_time()
    log = read_spark_log(place)
    took = time.process_time() - begin
    size = Path(place).stat().st_size
    print(f"{size / 2**20:.0f} MiB, {len(log.tasks):,} tasks kept: {took:.2f} s of CPU, peak "
          f"{peak_mib():.0f} MiB")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=["calls", "replay", "logs", "read"])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--log", default="", help="of read, which logs starts")
    args = parser.parse_args()
    verbs = {
        "calls": lambda: calls(args.repeat), "replay": replay, "logs": logs,
        "read": lambda: read_one(args.log),
    }  # fmt: skip
    from gnomon.act.process import interrupted_by_signals

    # Ended from outside, it ends the Spark that it has started.
    with interrupted_by_signals():
        verbs[args.verb]()


if __name__ == "__main__":
    main()
