"""Joining a cluster by its address: a real head, a real client."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

# Not among the ordinary Ray tests: a head of its own takes its time to answer on a busy machine.
pytestmark = [pytest.mark.slow]


@pytest.fixture
def head():
    """A Ray that somebody else started, with a port for clients."""
    ports = [free_port() for _ in range(2)]
    # A folder of its own: a head leaves its address behind, and others would look for it there.
    # A short one: sockets lie in it.
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    ray = Path(sys.executable).with_name("ray")
    process = subprocess.Popen(
        [str(ray), "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=false",
         f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}", "--disable-usage-stats",
         "--min-worker-port=0", "--max-worker-port=0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=os.environ | {"PATH": f"{ray.parent}:{os.environ['PATH']}", "RAY_TMPDIR": folder},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not is_open(ports[1]) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.2)
        yield f"ray://127.0.0.1:{ports[1]}"
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    # The head listens on the address of the machine, which loopback may not lead to.
    hosts = {"127.0.0.1", socket.gethostbyname(socket.gethostname())}
    for host in hosts:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex((host, port)) == 0:
                return True
    return False


def test_a_cluster_somebody_else_runs_is_joined_by_its_address(head):
    script = "import math; from gnomon.parallel import pmap; " \
             f"print(pmap(math.sqrt, [4, 9], on={head!r}))"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout == "[2.0, 3.0]\n", done.stderr
    assert done.stderr == ""
