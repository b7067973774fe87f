"""A lab whose process is killed leaves nothing behind after the next start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gnomon.act.local.cgroup import root_group
from gnomon.act.local.lab import Lab
from gnomon.act.local.leftovers import clean_up_leftovers, new_name
from gnomon.errors import ActuationError
from gnomon.graph.application import Call
from tests.act.local.loads import app_of
from tests.waiting import until

CHILD = """
import sys, time
from gnomon.act.local.lab import Lab
from gnomon.graph.application import Application, Call, RequestClass, Service
call = Call("front", then=((Call("store"),),))
services = {"front": Service(server=sys.argv[1]), "store": Service(replicas=2)}
with Lab(Application("killed", services, {"get": RequestClass(call)})) as lab:
    lab.load([10**12], [0], grace_s=1e6)
    pids = [one.process.pid for tier in lab.tiers.values() for one in tier.replicas]
    print(lab.folder, *pids, flush=True)
    time.sleep(1000)
"""


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def groups() -> list[str]:
    try:
        return [group.cpu.name for group in root_group().children()]
    except ActuationError:
        return []


@pytest.mark.parametrize("server", ["cell", "nginx"])
def test_kill_9_leaves_nothing_after_the_next_start(server):
    if server == "nginx" and not shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin"):
        pytest.skip("no nginx on this machine")
    parent = subprocess.Popen(
        [sys.executable, "-c", CHILD, server], stdout=subprocess.PIPE, text=True
    )
    folder, *pids = parent.stdout.readline().split()
    assert len(pids) == 3
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not any(is_alive(int(pid)) for pid in pids), "cells die with their parent")
    with Lab(app_of(Call("front"))):
        pass

    def is_gone() -> bool:
        inside = [p for p in Path("/proc").glob("[0-9]*/cwd") if folder in link_of(p)]
        return not (inside or Path(folder).exists() or Path(folder).name in groups())

    # A lab of another test may be at it as well.
    until(is_gone, "nothing is left")


def link_of(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # the process is gone
        return ""


def test_the_living_are_left_alone():
    with Lab(app_of(Call("front"))) as lab:
        assert lab.folder.name not in clean_up_leftovers()
        lab.read()
        assert lab.folder.exists()


def test_a_pid_in_use_again():
    """The name of a dead process's lab, whose pid is now ours."""
    name = new_name().split("-")
    name[4] = str(int(name[4]) + 1)
    folder = Path(tempfile.gettempdir(), "-".join(name))
    folder.mkdir()
    assert folder.name in clean_up_leftovers()
    assert not folder.exists()


def test_labs_of_another_pid_namespace_are_left_alone(tmp_path, monkeypatch):
    """A container that shares /tmp: its pids are not ours, so they look dead."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = new_name().split("-")
    name[2], name[4] = str(int(name[2]) + 1), str(int(name[4]) + 1)
    (tmp_path / "-".join(name)).mkdir()
    assert "-".join(name) not in clean_up_leftovers()
    assert (tmp_path / "-".join(name)).exists()


def test_names_that_are_no_labs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "gnomon-lab-notes").mkdir()
    (tmp_path / f"gnomon-lab-{os.getpid()}").mkdir()
    assert not set(clean_up_leftovers()) & {p.name for p in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 2
