"""What a lab leaves when its process is killed, and how the next one removes it.

The names of groups and folders hold the pid namespace, the pid and the start time of the process
that made them, so a dead maker shows, even when its pid is in use again. Labs of other namespaces
(containers that share /tmp or the groups) are left alone: their pids say nothing here.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

from gnomon.act.local.cgroup import root_group
from gnomon.errors import ActuationError

_NAME = re.compile(r"gnomon-lab-(\d+)-(\d+)-(\d+)-\d+")
_numbers = itertools.count()


def new_name() -> str:
    """A name for a lab of this process."""
    pid = os.getpid()
    return f"gnomon-lab-{_pid_namespace()}-{pid}-{_start_ticks(pid)}-{next(_numbers)}"


def clean_up_leftovers() -> list[str]:
    """Ends processes and removes groups and folders of labs whose process is dead.

    Returns:
        The names of those labs.
    """
    folders = {path.name: path for path in Path(tempfile.gettempdir()).glob("gnomon-lab-*")}
    try:
        groups = {group.cpu.name: group for group in root_group().children()}
    except ActuationError:
        groups = {}
    dead = sorted(name for name in {*folders, *groups} if _is_dead(name))
    for name in dead:
        if name in groups:
            groups[name].remove()
        if name in folders:
            _kill_in(folders[name])
            shutil.rmtree(folders[name], ignore_errors=True)
    return dead


def _is_dead(name: str) -> bool:
    made = _NAME.fullmatch(name)
    if made is None or int(made[1]) != _pid_namespace():
        return False
    return _start_ticks(int(made[2])) != int(made[3])


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _kill_in(folder: Path) -> None:
    """Ends processes started in a folder: without groups nothing else ties them to it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # it is gone, or it is not ours
