"""A standalone Spark on this machine: a master and workers, real processes on loopback.

    with standalone(workers=2) as master_url:
        SparkSession.builder.master(master_url)...

For trials and tests. The driver and the master listen on 127.0.0.1, the workers on 127.0.0.2 and
on. Logs and work folders are in one temporary folder, removed at the end of the block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gnomon.act.spark.home import SparkHome, find_java, find_spark
from gnomon.errors import ActuationError

_LOOPBACK = "127.0.0.1"
_ATTEMPTS = 3
_END_S = 10.0


@contextlib.contextmanager
def standalone(
    workers: int = 2, *, cores: int = 2, memory: str = "1g", home: Path | str | None = None,
    start_s: float = 90.0,
) -> Iterator[str]:  # fmt: skip
    """Starts a master and workers, yields the address for Spark sessions, and ends them.

    Args:
        workers: How many.
        cores: Cores that each worker offers.
        memory: Memory that each worker offers; an executor takes 512 MB at least.
        home: The Spark to run; that of `find_spark` otherwise.
        start_s: How long starting may take.

    Raises:
        ActuationError: It did not start; the message ends with the last line of its log.
    """
    spark = find_spark(home)
    find_java()
    folder = Path(tempfile.mkdtemp(prefix="gnomon-spark-"))
    running: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + start_s
    try:
        port, web_port = _start_master(spark, folder, running, deadline)
        url = f"spark://{_LOOPBACK}:{port}"
        for number in range(workers):
            running.append(_start_worker(spark, folder, number, url, cores, memory))
        _wait_for_workers(web_port, workers, running, folder, deadline)
        yield url
    finally:
        _end(running)
        shutil.rmtree(folder, ignore_errors=True)


def _start_master(
    spark: SparkHome, folder: Path, running: list[subprocess.Popen[bytes]], deadline: float
) -> tuple[int, int]:
    """A master on free ports; on others where they were taken meanwhile."""
    for _ in range(_ATTEMPTS):
        port, web_port = _free_ports(2)
        master = _start(
            spark, folder, "master", "org.apache.spark.deploy.master.Master",
            "--host", _LOOPBACK, "--port", str(port), "--webui-port", str(web_port),
        )  # fmt: skip
        while master.poll() is None and time.monotonic() < deadline:
            if _is_open(port) and _is_open(web_port):
                running.append(master)
                return port, web_port
            time.sleep(0.1)
        _end([master])
    raise ActuationError(f"Spark's master did not start: {_last_line(folder / 'master.log')}")


def _start_worker(
    spark: SparkHome, folder: Path, number: int, url: str, cores: int, memory: str
) -> subprocess.Popen[bytes]:
    name, host = f"worker{number}", _host(number)
    return _start(
        spark, folder, name, "org.apache.spark.deploy.worker.Worker",
        "--host", host, "--port", "0", "--webui-port", "0", "--cores", str(cores),
        "--memory", memory, "--work-dir", str(folder / name), url, host=host,
    )  # fmt: skip


def _start(
    spark: SparkHome, folder: Path, name: str, main_class: str, *arguments: str,
    host: str = _LOOPBACK,
) -> subprocess.Popen[bytes]:  # fmt: skip
    environment = os.environ | {
        "SPARK_HOME": str(spark.path), "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "local"),
        # They have little to do: a quick start counts more than speed.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }  # fmt: skip
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [str(spark.path / "bin" / "spark-class"), main_class, *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=folder,
            start_new_session=True,  # a terminal's interrupt is not for them
        )  # fmt: skip


def _wait_for_workers(
    web_port: int, workers: int, running: list[subprocess.Popen[bytes]], folder: Path,
    deadline: float,
) -> None:  # fmt: skip
    while time.monotonic() < deadline and all(process.poll() is None for process in running):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if _alive_workers(web_port) >= workers:
                return
        time.sleep(0.1)
    logs = sorted(folder.glob("worker*.log"))
    raise ActuationError(f"Spark's workers did not start: {_last_line(logs[-1]) if logs else ''}")


def _alive_workers(web_port: int) -> int:
    # No proxy of the environment leads to loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{_LOOPBACK}:{web_port}/json/", timeout=5) as answer:
        return int(msgspec.json.decode(answer.read())["aliveworkers"])


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """Ends workers before their master; kills what does not end, with its executors."""
    for process in reversed(running):
        process.terminate()
    deadline = time.monotonic() + _END_S
    for process in reversed(running):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - time.monotonic()))
        # Each leads a process group of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _host(number: int) -> str:
    """A loopback address for each worker: to Spark they are hosts of their own.

    Blocks that move away from an executor count as saved only on another host.
    """
    address = f"127.0.0.{2 + number}"
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:  # a system with one loopback address
            return _LOOPBACK
    return address


def _free_ports(count: int) -> list[int]:
    """Free ports, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((_LOOPBACK, port)) == 0


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it wrote no log"
    return lines[-1][-300:] if lines else "its log is empty"
