"""A quota is given back: by who set it, by the keeper, or by the next one that comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gnomon.act.held_quota import BEFORE, HeldQuota
from gnomon.act.kubernetes import quota_patch
from gnomon.errors import ActuationError
from tests.act.fake_cluster import kubeconfig, serving

FOUND = {"pods": "20", "limits.memory": "64Gi"}
HOLD = """
import sys, time
from gnomon.act.held_quota import HeldQuota
from gnomon.act.kubernetes import quota_patch
held = HeldQuota()
held.set(quota_patch("spark", "executors", pods=int(sys.argv[1]), cpu=2))
print("set", held._keeper.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # no kubectl
    with serving() as handler:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", handler.url)))
        yield handler


def until(check, seconds=20.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return False


def limits(cluster):
    return cluster.quota["spec"]["hard"]


def notes(cluster):
    return cluster.quota["metadata"].get("annotations", {})


def test_set_twice_and_given_back(cluster):
    held = HeldQuota()
    assert held.give_back() is None
    assert cluster.seen == []
    for pods in (4, 2):
        held.set(quota_patch("spark", "executors", pods=pods, cpu=1))
        assert limits(cluster) == FOUND | {"pods": str(pods), "requests.cpu": "1"}
    assert json.loads(notes(cluster)[BEFORE]) == {"pods": "20", "requests.cpu": None}
    keeper = held._keeper
    assert held.give_back().hard == {"pods": "20", "requests.cpu": None}
    assert limits(cluster) == FOUND
    assert notes(cluster) == {}
    assert keeper.returncode == 0
    asked = len(cluster.seen)
    assert held.give_back() is None
    assert len(cluster.seen) == asked


def hold(pods):
    agent = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(pods)], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    said, keeper = agent.stdout.readline().split()
    assert said == "set"
    return agent, int(keeper)


def test_killed_the_keeper_gives_back(cluster):
    agent, keeper = hold(3)
    try:
        assert limits(cluster)["pods"] == "3"
        os.kill(keeper, signal.SIGTERM)  # as with all of a service's processes
        agent.kill()
        assert until(lambda: limits(cluster) == FOUND)
        assert notes(cluster) == {}
    finally:
        agent.kill()
        agent.communicate()


def test_killed_with_the_keeper_the_next_one_gives_back(cluster):
    agent, keeper = hold(3)
    os.kill(keeper, signal.SIGKILL)
    agent.kill()
    agent.communicate()
    assert limits(cluster)["pods"] == "3"
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=5))
    assert limits(cluster)["pods"] == "5"
    held.give_back()
    assert limits(cluster) == FOUND


def test_what_is_not_taken_back_is_tried_again(cluster):
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=4))
    cluster.answer = (503, b'{"message": "etcd is away"}')
    with pytest.raises(ActuationError, match="503 etcd is away"):
        held.give_back()
    held._keeper.stdin.close()  # what this process' end would do
    time.sleep(0.3)
    cluster.answer = None
    assert until(lambda: limits(cluster) == FOUND)
    with held._keeper as keeper:
        assert keeper.wait(timeout=20) == 0


def test_a_note_that_says_nothing(cluster):
    cluster.quota["metadata"]["annotations"] = {BEFORE: "twenty"}
    with pytest.raises(ActuationError, match=f"annotation {BEFORE} says nothing"):
        HeldQuota().set(quota_patch("spark", "executors", pods=4))
    assert limits(cluster) == FOUND


def test_the_agent_killed_in_its_run(cluster, tmp_path):
    rows = "".join(f"2024-01-01T{hour:02d}:00:00Z,{100 + 40 * (hour % 6)}\n" for hour in range(24))
    (tmp_path / "grid.csv").write_text("time,gCO2e/kWh\n" + rows)
    agent = subprocess.Popen(
        [sys.executable, "-m", "gnomon.cli", "batch", "spark-agent", "--policy", "cap:fifo",
         "--signal", str(tmp_path / "grid.csv"), "--hour", "200ms", "--kubernetes",
         "spark/executors", "--executors", "10", "--period", "50ms", "--for", "30s", "--apply"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert until(lambda: limits(cluster)["pods"] not in ("20", "11"))
        agent.kill()
        agent.wait()
        assert until(lambda: limits(cluster) == FOUND)
    finally:
        agent.kill()
        agent.wait()


def test_without_a_keeper_nothing_is_set(cluster, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ActuationError, match="nothing is set"):
        HeldQuota().set(quota_patch("spark", "executors", pods=4))
    assert limits(cluster) == FOUND
