"""A lab, an application in it, and ways to wait for what they do."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from gnomon.act.spark import DriverState, SparkDriver, SparkPlan, run_agent, spark_conf
from tests.waiting import until

#: Many small machines on a small one: what starts quickly beats what runs fast.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Application:
    """A user's program in a process of its own."""

    def __init__(self, folder: Path, plugin: Path) -> None:
        self.handshake = folder / "handshake.json"
        self._folder, self._plugin = folder, plugin
        self._results: dict[int, dict] = {}
        self._last: dict[str, int] = {}  # of each name, the number of the job that has it now
        self._jobs = 0
        self._answers: queue.Queue[dict] = queue.Queue()
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
        }
        environment.pop("SPARK_HOME", None)
        with (folder / "application.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("application.py"))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1,
                env=environment, cwd=folder, start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()
        self._send(do="warm", conf=self._conf("local[1]"))

    def start(self, master: str, *, disable=(), **more) -> None:
        """Starts a context; settings are given with two underscores for a dot."""
        conf = self._conf(master, disable)
        conf |= {key.replace("__", "."): value for key, value in more.items()}
        self._send(do="start", conf=conf)
        self._wait("started")

    def _conf(self, master: str, disable=()) -> dict[str, str]:
        ours = spark_conf(
            handshake=self.handshake, plugin=self._plugin, lease_s=4.0, disable=disable
        )
        return ours | {
            "spark.master": master,
            "spark.app.name": "trial",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "3",
            "spark.driver.extraJavaOptions": _JVM,
            "spark.executor.extraJavaOptions": _JVM,
            "spark.locality.wait": "0s",
            # A job whose barrier stage lacks slots fails after half a minute, not after ten.
            "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
            "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "30",
        }

    def submit(self, name: str, **job) -> int:
        """Runs a job in the background; answers the sum that it must find."""
        self._jobs += 1
        self._last[name] = self._jobs
        self._send(do="job", name=self._jobs, job=job)
        count = job["tasks"] * 10
        return count * (count - 1) // 2

    def result(self, name: str, timeout_s: float = 90.0) -> int:
        number = self._last[name]
        until(lambda: number in self._results, f"job {name} ends", timeout_s)
        answer = self._results.pop(number)
        assert "result" in answer, answer
        return answer["result"]

    def stop(self) -> None:
        self._send(do="stop")
        self._wait("stopped")

    def close(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            # It leads a group of its own: the JVM that it started is in it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()

    def _send(self, **command) -> None:
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            if "job" in answer:
                self._results[answer["job"]] = answer
            else:
                self._answers.put(answer)

    def _wait(self, word: str):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                return self._answers.get(timeout=0.5)[word]
            except queue.Empty:
                if self._process.poll() is not None:
                    break
        raise AssertionError(f"the application did not say {word!r}: {self._last_words()}")

    def _last_words(self) -> str:
        return (self._folder / "application.log").read_text(errors="replace")[-3000:]


class Agent:
    """The agent's loop in a thread; what it saw is kept."""

    def __init__(self, handshake: Path, decide) -> None:
        self.lines: list[dict] = []
        self.states: list[DriverState] = []
        self.run = None
        self._ask = decide
        self._end = False
        self._driver = SparkDriver.connect(handshake, wait_s=20)
        self._thread = threading.Thread(target=self._loop)

    def __enter__(self) -> Agent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end = True
        self._thread.join(30)
        self._driver.close()

    @property
    def plans(self) -> list[dict]:
        return [line["plan"] for line in self.lines if line["event"] == "applied"]

    def _loop(self) -> None:
        self.run = run_agent(
            self._driver, self._decide, period_s=0.2, until=1.0,
            clock=lambda: float(self._end), emit=lambda line: self.lines.append(json.loads(line)),
        )  # fmt: skip

    def _decide(self, state: DriverState, now: float) -> SparkPlan:
        self.states.append(state)
        return self._ask(state, now)


def staying(state: DriverState) -> int:
    return sum(not executor.decommissioning for executor in state.executors)


def stage_of(state: DriverState, number: int):
    return next((stage for stage in state.stages if stage.stage == number), None)


def running_stage(driver: SparkDriver) -> int:
    """The number of a stage that runs."""
    return until(lambda: [s.stage for s in driver.state().stages if s.running], "it runs")[0]


def waiting_stage(driver: SparkDriver, after: int) -> int:
    """The number of a stage that is served, and younger than another."""
    found = until(
        lambda: [s.stage for s in driver.state().stages if s.schedulable and s.stage > after],
        "it waits",
    )
    return found[0]


def executor_pids(application: str) -> dict[str, int]:
    """The executors of an application on this machine, by their id."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if application in words and "--executor-id" in words:
                found[words[words.index("--executor-id") + 1]] = int(folder.name)
    return found
