"""A quota is restored: by its owner, by the watchdog, or by the next owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from gnomon.act import held_quota
from gnomon.act.held_quota import ANNOTATION, HeldQuota
from gnomon.act.kubernetes import quota_patch
from gnomon.errors import ActuationError
from tests.act import fake_cluster
from tests.act.fake_cluster import TOKEN, kubeconfig, serving
from tests.waiting import until

FOUND = {"pods": "20", "limits.memory": "64Gi"}
HOLD = """
import sys, time
from gnomon.act.held_quota import HeldQuota
from gnomon.act.kubernetes import quota_patch
held = HeldQuota()
held.set(quota_patch("spark", "executors", pods=int(sys.argv[1]), cpu=2))
print("set", held._watchdog.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    with serving() as handler:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", handler.url)))
        yield handler


def limits(cluster):
    return cluster.quota["spec"]["hard"]


def annotations(cluster):
    return cluster.quota["metadata"].get("annotations", {})


def looks(cluster):
    return sum(method == "GET" for method, *_ in cluster.seen)


def changes(cluster):
    return int(cluster.quota["metadata"]["resourceVersion"]) - 1


class Clock:
    """Time that passes where it is slept; `at` is what happens after so long."""

    def __init__(self, **at):
        self.now = 0.0
        self.at = {float(second.lstrip("s")): do for second, do in at.items()}

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        for second in [second for second in self.at if second <= self.now]:
            self.at.pop(second)()


def watch(owner, clock):
    """The watchdog's work after its agent's end, in this process."""
    task = held_quota._WatchdogTask(owner, quota_patch("spark", "executors", pods=1))
    return held_quota._restore_for_owner(task, clock=clock, sleep=clock.sleep)


def test_set_twice_and_restored(cluster):
    held = HeldQuota()
    assert held.restore() is None
    assert cluster.seen == []
    for pods in (4, 2):
        held.set(quota_patch("spark", "executors", pods=pods, cpu=1))
        assert limits(cluster) == FOUND | {"pods": str(pods), "requests.cpu": "1"}
    record = json.loads(annotations(cluster)[ANNOTATION])
    assert record["before"] == {"pods": "20", "requests.cpu": None}
    assert record["set"] == {"pods": "2", "requests.cpu": "1"}
    watchdog = held._watchdog
    assert held.restore().hard == {"pods": "20", "requests.cpu": None}
    assert limits(cluster) == FOUND
    assert annotations(cluster) == {}
    assert watchdog.returncode == 0
    asked = len(cluster.seen)
    assert held.restore() is None
    assert len(cluster.seen) == asked


def start_holding(pods):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(pods)], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def hold(pods):
    agent = start_holding(pods)
    event, watchdog = agent.stdout.readline().split()
    assert event == "set"
    return agent, int(watchdog)


def test_killed_the_watchdog_restores(cluster):
    agent, watchdog = hold(3)
    try:
        assert limits(cluster)["pods"] == "3"
        os.kill(watchdog, signal.SIGTERM)  # as with all of a service's processes
        agent.kill()
        until(lambda: limits(cluster) == FOUND)
        assert annotations(cluster) == {}
    finally:
        agent.kill()
        agent.communicate()


def test_killed_while_its_change_is_under_way_the_watchdog_restores(cluster):
    """The cluster takes its time: the change comes after the watchdog has looked for it."""
    cluster.may_patch.clear()
    agent = start_holding(3)
    try:
        assert cluster.patching.acquire(timeout=240)
    finally:
        agent.kill()
        agent.communicate()
    before = looks(cluster)
    until(lambda: looks(cluster) > before, "a look of the watchdog")
    assert limits(cluster) == FOUND
    cluster.may_patch.set()
    until(lambda: changes(cluster) == 2, "set and restored")
    assert limits(cluster) == FOUND
    assert annotations(cluster) == {}


def test_a_change_may_come_until_the_cluster_would_have_let_go_of_it(cluster):
    held = HeldQuota()
    late = Clock(s64=lambda: held.set(quota_patch("spark", "executors", pods=3)))
    assert watch(held._owner, late) == 0
    assert changes(cluster) == 2
    assert limits(cluster) == FOUND
    held._stop_watchdog()
    nothing = Clock()
    assert watch("nobody", nothing) == 0
    assert nothing.now >= held_quota._LATE_S > 60.0
    assert sum(held_quota._RETRY_S) > held_quota._LATE_S
    assert changes(cluster) == 2


@pytest.fixture
def stopped(cluster, monkeypatch):
    """A quota whose first change is stopped under way, and what lets it come after all."""
    held, may_come, came = HeldQuota(), threading.Event(), []
    real = held._connect().patch

    def comes_late(plan):
        may_come.wait()
        try:
            came.append(real(plan))
        except ActuationError as error:
            came.append(error)

    def patch(plan):
        monkeypatch.setattr(held._cluster, "patch", real)
        threading.Thread(target=comes_late, args=(plan,), daemon=True).start()
        raise KeyboardInterrupt

    monkeypatch.setattr(held._cluster, "patch", patch)
    with pytest.raises(KeyboardInterrupt):
        held.set(quota_patch("spark", "executors", pods=3))
    watchdog = held._watchdog

    def let_come():
        may_come.set()
        return until(lambda: came)[0]

    yield held, let_come
    may_come.set()
    watchdog.kill()


def test_stopped_while_its_change_is_under_way_the_watchdog_looks_on(cluster, stopped):
    held, let_come = stopped
    watchdog = held._watchdog
    assert held.restore() is None
    until(lambda: watchdog.stdin.closed, "the end of its input")
    assert watchdog.poll() is None
    let_come()
    until(lambda: changes(cluster) == 2, "set and restored")
    assert limits(cluster) == FOUND
    assert annotations(cluster) == {}


def test_what_is_set_after_that_is_not_for_that_watchdog(cluster, stopped):
    held, let_come = stopped
    owner = held._owner
    assert held.restore() is None
    held.set(quota_patch("spark", "executors", pods=5))
    assert json.loads(annotations(cluster)[ANNOTATION])["owner"] != owner
    assert "409" in str(let_come())  # it was for the quota before that
    assert watch(owner, Clock()) == 0
    assert limits(cluster)["pods"] == "5"
    assert held.restore().hard == {"pods": "20"}
    assert limits(cluster) == FOUND


def test_a_refusal_after_a_timeout_leaves_the_first_change_pending(cluster, stopped):
    held, let_come = stopped
    cluster.refuses_patches = True
    with pytest.raises(ActuationError, match="403"):
        held.set(quota_patch("spark", "executors", pods=4))
    cluster.refuses_patches = False
    assert held.restore() is None
    let_come()
    until(lambda: changes(cluster) == 2, "set and restored")
    assert limits(cluster) == FOUND


def test_a_token_that_was_changed_meanwhile(cluster, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    kubeconfig(tmp_path / "config", cluster.url, user={"tokenFile": "token"})
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=3))
    monkeypatch.setattr(fake_cluster, "TOKEN", "another")
    token.write_text("another")
    assert held.restore().hard == {"pods": "20"}
    assert limits(cluster) == FOUND


def test_killed_with_the_watchdog_the_next_one_restores(cluster):
    agent, watchdog = hold(3)
    os.kill(watchdog, signal.SIGKILL)
    agent.kill()
    agent.communicate()
    assert limits(cluster)["pods"] == "3"
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=5))
    assert limits(cluster)["pods"] == "5"
    held.restore()
    assert limits(cluster) == FOUND


def test_a_restore_that_fails_is_tried_again(cluster):
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=4))
    cluster.answer = (503, b'{"message": "etcd is away"}')
    with pytest.raises(ActuationError, match="503 etcd is away"):
        held.restore()
    before = looks(cluster)
    held._watchdog.stdin.close()  # what this process' end would do
    until(lambda: looks(cluster) > before, "a look of the watchdog")
    cluster.answer = None
    until(lambda: limits(cluster) == FOUND)
    with held._watchdog as watchdog:
        assert watchdog.wait(timeout=240) == 0


def test_an_annotation_that_is_not_valid(cluster):
    cluster.quota["metadata"]["annotations"] = {ANNOTATION: "twenty"}
    with pytest.raises(ActuationError, match=f"annotation {ANNOTATION} is not valid"):
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
        until(lambda: limits(cluster)["pods"] not in ("20", "11"))
        agent.kill()
        agent.wait()
        until(lambda: limits(cluster) == FOUND)
    finally:
        agent.kill()
        agent.wait()


def test_a_watchdog_leaves_what_another_has_set(cluster):
    """One is gone, and another came before its watchdog could do anything."""
    first, second = HeldQuota(), HeldQuota()
    first.set(quota_patch("spark", "executors", pods=3))
    second.set(quota_patch("spark", "executors", pods=5))
    assert watch(first._owner, Clock()) == 0
    assert limits(cluster)["pods"] == "5"
    first._stop_watchdog()
    second.restore()
    assert limits(cluster) == FOUND


def test_of_two_at_once_the_first_steps_back(cluster):
    first, second = HeldQuota(), HeldQuota()
    first.set(quota_patch("spark", "executors", pods=3))
    second.set(quota_patch("spark", "executors", pods=7))
    with pytest.raises(ActuationError, match="another owner has set it"):
        first.set(quota_patch("spark", "executors", pods=4))
    assert first.restore() is None
    assert limits(cluster)["pods"] == "7"
    assert second.restore().hard == {"pods": "20"}
    assert limits(cluster) == FOUND


def test_what_somebody_changed_meanwhile_stays(cluster):
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=3, cpu=1))
    limits(cluster)["pods"] = "40"
    assert held.restore().hard == {"pods": "40", "requests.cpu": None}
    assert limits(cluster) == FOUND | {"pods": "40"}


def test_a_change_between_reading_and_writing(cluster, monkeypatch):
    """The quota moves on after it was read: read again, then written."""
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=3))
    real, moved = held._cluster.read, []

    def read(plan):
        found = real(plan)
        if not moved:
            moved.append(True)
            limits(cluster)["pods"] = "30"
            cluster.quota["metadata"]["resourceVersion"] = "99"
        return found

    monkeypatch.setattr(held._cluster, "read", read)
    assert held.restore().hard == {"pods": "30"}
    assert limits(cluster)["pods"] == "30"


def test_a_quota_that_may_only_be_read(cluster):
    held = HeldQuota()
    cluster.refuses_patches = True
    with pytest.raises(ActuationError, match="403"):
        held.set(quota_patch("spark", "executors", pods=3))
    watchdog = held._watchdog
    assert held.restore() is None
    assert watchdog.returncode == 0
    assert limits(cluster) == FOUND


def test_a_change_whose_answer_is_lost_is_restored(cluster, monkeypatch):
    held = HeldQuota()
    held._connect()
    real = held._cluster.patch

    def patch(plan):
        real(plan)
        raise ActuationError("no answer of the cluster within 15 s")

    monkeypatch.setattr(held._cluster, "patch", patch)
    with pytest.raises(ActuationError, match="no answer"):
        held.set(quota_patch("spark", "executors", pods=3))
    assert limits(cluster)["pods"] == "3"
    monkeypatch.setattr(held._cluster, "patch", real)
    assert held.restore().hard == {"pods": "20"}
    assert limits(cluster) == FOUND


def test_a_stale_annotation_and_a_quota_that_moves_on_meanwhile(cluster, monkeypatch):
    """Somebody is gone, and counts of pods change between reading and writing: tried again."""
    agent, watchdog = hold(3)
    os.kill(watchdog, signal.SIGKILL)
    agent.kill()
    agent.communicate()
    held = HeldQuota()
    held._connect()
    real = held._cluster.read

    def read(plan):
        found = real(plan)
        cluster.quota["metadata"]["resourceVersion"] = "99"
        return found

    monkeypatch.setattr(held._cluster, "read", read)
    with pytest.raises(ActuationError, match="409"):
        held.set(quota_patch("spark", "executors", pods=5))
    monkeypatch.setattr(held._cluster, "read", real)
    held.set(quota_patch("spark", "executors", pods=5))
    assert limits(cluster)["pods"] == "5"
    held.restore()
    assert limits(cluster) == FOUND


def test_a_quota_that_is_gone(cluster):
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=3))
    watchdog = held._watchdog
    cluster.answer = (404, b'{"message": "not found"}')
    assert held.restore() is None
    assert watchdog.returncode == 0


def test_a_watchdog_that_was_killed_is_replaced(cluster):
    held = HeldQuota()
    held.set(quota_patch("spark", "executors", pods=3))
    first = held._watchdog
    first.kill()
    first.communicate()
    held.set(quota_patch("spark", "executors", pods=4))
    assert held._watchdog.pid != first.pid
    held.restore()
    assert limits(cluster) == FOUND


def test_an_interrupt_of_the_agents_group_is_not_for_the_watchdog(cluster):
    agent, watchdog = hold(3)
    assert os.getpgid(watchdog) != os.getpgid(agent.pid)
    os.killpg(agent.pid, signal.SIGINT)
    agent.communicate()
    until(lambda: limits(cluster) == FOUND)


def test_without_a_watchdog_nothing_is_set(cluster, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ActuationError, match="nothing is set"):
        HeldQuota().set(quota_patch("spark", "executors", pods=4))
    assert limits(cluster) == FOUND
