"""Control groups: the real ones of this machine, and version 2 as a tree of files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gnomon.act.local.cgroup import CpuTime, Group, ProcessGroup, process_cpu_ns, root_group
from gnomon.act.local.machine import cpu_times_ns
from gnomon.errors import ActuationError
from tests.waiting import until

SPIN = "while True: pass"


@pytest.fixture
def real_group():
    try:
        root = root_group()
    except ActuationError as error:
        pytest.skip(f"no control groups: {error}")
    group = root.create_child(f"gnomon-test-{os.getpid()}")
    yield group
    group.remove()


def test_a_limit_throttles(real_group):
    real_group.set_limit(0.2, period_ms=20.0)
    real_group.set_weight(2.0)
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    for file in real_group.entry_files:
        file.write_text(str(process.pid))
    assert real_group.pids() == {process.pid}
    used = until(lambda: (now := real_group.read()).throttled > 3 and now)
    assert used.throttled <= used.periods
    assert used.usage_ns > 0
    assert used.throttled_ns > 0
    real_group.set_limit(None)
    before = real_group.read()
    until(lambda: real_group.read().usage_ns > before.usage_ns + 50e6)
    assert real_group.read().throttled <= before.throttled + 1
    child = real_group.create_child("below")
    real_group.remove()
    assert process.wait(timeout=60) == -signal.SIGKILL, "what runs in a group ends with it"
    assert not real_group.cpu.exists()
    assert not child.cpu.exists()


def test_tiny_limits_are_raised_to_what_the_kernel_takes(real_group):
    real_group.set_limit(0.0)
    real_group.set_limit(1e-6, period_ms=1000.0)
    real_group.set_limit(64.0, period_ms=10.0)


@pytest.fixture
def v2(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    return root_group(tmp_path)


def test_v2_writes_and_reads(v2):
    child = v2.create_child("one")
    assert (v2.cpu / "cgroup.subtree_control").read_text() == "+cpu"
    assert child.entry_files == (v2.cpu / "one" / "cgroup.procs",)
    child.set_limit(0.5)
    assert (child.cpu / "cpu.max").read_text() == "50000 100000"
    child.set_limit(None, period_ms=10.0)
    assert (child.cpu / "cpu.max").read_text() == "max 10000"
    for cores, weight in ((1.0, "100"), (0.001, "1"), (1e6, "10000")):
        child.set_weight(cores)
        assert (child.cpu / "cpu.weight").read_text() == weight
    (child.cpu / "cpu.stat").write_text(
        "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n"
        "nr_periods 7\nnr_throttled 3\nthrottled_usec 20\nnr_bursts 0\nburst_usec 0\n"
    )
    assert child.read() == CpuTime(1_500_000, 7, 3, 20_000)
    (child.cpu / "cpu.stat").write_text("usage_usec 2\nuser_usec 1\nsystem_usec 1\n" + " " * 80)
    assert child.read() == CpuTime(2000), "the root and groups without the controller have less"
    assert [one.cpu.name for one in v2.children()] == ["one"]


def test_v2_processes_of_another_namespace_are_not_ours(v2):
    child = v2.create_child("one")
    (child.cpu / "cgroup.procs").write_text("0\n17\n0\n")
    assert child.pids() == {17}


def test_v2_removes_empty_groups(v2):
    v2.create_child("one").create_child("two").remove()
    (v2.cpu / "one" / "cgroup.subtree_control").unlink()  # the kernel's files go with the folder
    Group(v2.cpu / "one", v2.cpu / "one", is_v2=True).remove()
    assert v2.children() == []


def test_why_there_are_no_groups(tmp_path):
    with pytest.raises(ActuationError, match="cpu is not mounted"):
        root_group(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    with pytest.raises(ActuationError, match="has no cpu controller"):
        root_group(tmp_path)


def test_a_refused_value_is_an_error(v2):
    (v2.cpu / "cpu.max").mkdir()
    with pytest.raises(ActuationError, match=r"cpu\.max does not take 'max 100000'"):
        v2.set_limit(None)


def test_processes_without_groups():
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    group = ProcessGroup()
    group.add(process.pid)
    until(lambda: group.read().usage_ns > 0)
    assert group.pids() == {process.pid}
    group.remove()
    assert process.wait(timeout=60) == -signal.SIGKILL
    assert process_cpu_ns(process.pid) == 0


def test_the_whole_machine(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 50 9999 5 3 2 7 1 0\ncpu0 1 2 3\n")
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    assert cpu_times_ns(stat) == (165 * tick_ns, 7 * tick_ns)
    assert cpu_times_ns().busy_ns > 0
