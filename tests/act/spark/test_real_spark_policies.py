"""The command that runs beside a real Spark, with CAP and with PCAPS; and its log played again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from gnomon.act.spark import SparkDriver
from gnomon.ingest.spark.event_log import read_spark_logs
from gnomon.ingest.spark.jobs import spark_jobs
from gnomon.systems.batch.logs import replay_recorded
from tests.act.spark.harness import running_stage, stage_of, staying, waiting_stage
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
HOUR_S = 4.0


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def logged(process, master_url, logs):
    """A context with three executors of a core each, which keeps a log."""
    process.start(master_url, spark__eventLog__enabled="true", spark__eventLog__dir=logs.as_uri())
    with SparkDriver.connect(process.handshake, wait_s=20, watch=True) as driver:
        until(lambda: staying(driver.state()) == 3, "three executors", 90)
    yield process
    process.stop()


@pytest.fixture
def watching(logged):
    with SparkDriver.connect(logged.handshake, watch=True) as driver:
        yield driver
        until(lambda: not driver.state().jobs, "what a test has left behind ends")


class Command:
    """`gnomon batch spark-agent` in a process of its own; what it says is kept."""

    def __init__(self, handshake, policy, hours, folder, *, apply=True):
        rows = [f"{1704067200 + 3600 * h},{value}" for h, value in enumerate(hours)]
        signal_file = folder / "grid.csv"
        signal_file.write_text("\n".join(["timestamp,carbon_gco2_kwh", *rows]) + "\n")
        words = ["batch", "spark-agent", "--policy", policy, "--signal", str(signal_file),
                 "--hour", f"{HOUR_S}s", "--handshake", str(handshake), "--executors", "3",
                 "--period", "300ms", *(["--apply"] if apply else [])]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gnomon.cli", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def end(self, how=signal.SIGTERM):
        os.kill(self.process.pid, how)
        self.process.wait(20)
        self._reader.join(10)
        self.process.stdout.close()
        log = self.process.stderr.read()
        self.process.stderr.close()
        return log

    @property
    def plans(self):
        events = [json.loads(line) for line in self.lines]
        return [line["plan"] for line in events if line["event"] == "applied"]


def test_its_log_played_again_takes_as_long(logged, logs):
    """Several jobs at once: the replay's makespan is the log's within 10 %."""
    expected = []
    for name, tasks in (("a", 40), ("b", 25), ("c", 30)):
        expected.append(logged.submit(name, tasks=tasks, ms=120, reducers=9))
        time.sleep(0.7)
    assert [logged.result(name) for name in "abc"] == expected
    replayed = until(lambda: _replayed(logs), "the log is written", 20, 0.5)
    assert replayed.recorded_s > 4.0
    assert abs(replayed.error_pct) < 10.0


def _replayed(logs):
    """Of the log so far, once all three jobs are in it."""
    found = read_spark_logs(logs)
    if sum(job.succeeded for log in found for job in log.jobs) < 3:
        return None
    return replay_recorded(spark_jobs(found))


def test_cap_by_its_command(logged, watching, tmp_path):
    """Three executors in clean hours, one in dirty ones; nothing is lost, and all is restored."""
    expected = logged.submit("a", tasks=110, ms=150)
    running_stage(watching)
    agent = Command(logged.handshake, "cap:fifo", [500, 500, *[100] * 60], tmp_path)
    try:
        until(lambda: len(watching.state().executors) == 1, "one in the dirty hours", 40)
        until(lambda: staying(watching.state()) == 3, "three in the clean ones", 60)
        assert logged.result("a") == expected
    finally:
        log = agent.end()
    assert agent.process.returncode == 0
    assert "stopped" in log
    # In clean hours Spark has what it would have without us.
    assert [plan["target"] for plan in agent.plans] == [1, None]
    assert "500 g/kWh" in agent.plans[0]["reasons"]["quota"]
    assert (watching.state().failed_tasks, watching.state().target) == (0, None)


def test_pcaps_by_its_command_and_a_kill(logged, watching, tmp_path):
    """The short job waits for the long one while the grid is dirty; a killed agent lets it go."""
    expected = [logged.submit("long", tasks=90, ms=150, reducers=30)]
    first = running_stage(watching)
    expected.append(logged.submit("short", tasks=4, ms=150))
    second = waiting_stage(watching, first)
    agent = Command(
        logged.handshake, "pcaps?gamma=1:path-softmax?sharpness=20", [500, *[500] * 30, 100],
        tmp_path,
    )  # fmt: skip
    try:
        held = until(
            lambda: (s := stage_of(watching.state(), second)) and s.held and s, "it is held", 30
        )
        assert held.running == 0
        assert stage_of(watching.state(), first).running > 0
        assert any("importance" in why for plan in agent.plans for why in plan["reasons"].values())
    finally:
        agent.end(signal.SIGKILL)
    assert [logged.result("long"), logged.result("short")] == expected
    assert watching.state().lease_expiries >= 1
    assert watching.state().failed_tasks == 0


def test_decima_weighs_the_stages_of_a_real_spark(logged, watching, tmp_path):
    """Every hour is the dirtiest: of two jobs the likelier runs, the other waits for it."""
    expected = [logged.submit("long", tasks=60, ms=150, reducers=20)]
    first = running_stage(watching)
    expected.append(logged.submit("short", tasks=12, ms=150))
    second = waiting_stage(watching, first)
    agent = Command(logged.handshake, "pcaps?gamma=1:decima", [*[500] * 30, 100], tmp_path)
    try:
        until(
            lambda: any(s.held for s in watching.state().stages if s.stage in (first, second)),
            "one of them is held", 30,
        )  # fmt: skip
        until(lambda: any(plan.get("priority") for plan in agent.plans), "an order is given", 10)
        assert [logged.result("long"), logged.result("short")] == expected
    finally:
        agent.end()
    assert watching.state().failed_tasks == 0


def test_without_apply_it_only_says_what_it_would_do(logged, watching, tmp_path):
    before = watching.state().target
    expected = logged.submit("a", tasks=12, ms=150)
    agent = Command(logged.handshake, "cap:fifo", [500, *[100] * 60], tmp_path, apply=False)
    try:
        until(lambda: any("ask for 1 executor" in line for line in agent.lines), "it says so", 30)
        assert watching.state().target == before
    finally:
        log = agent.end(signal.SIGINT)
    assert "--apply applies it" in log
    assert logged.result("a") == expected
