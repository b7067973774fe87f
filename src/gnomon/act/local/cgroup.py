"""Control groups for CPU time, version 1 and 2 behind one class.

Version 1 keeps limits (`cpu`) and accounts (`cpuacct`) in two trees, version 2 in one. Where
neither can be written, `ProcessGroup` stands in: it counts CPU time and enforces nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gnomon.errors import ActuationError

MOUNT = Path("/sys/fs/cgroup")
_LEAST_QUOTA_US = 1_000  # the kernel refuses less
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class CpuTime(msgspec.Struct, frozen=True):
    """What a group used and how often it was throttled, since it was made.

    Attributes:
        usage_ns: CPU time.
        periods: CFS periods in which a limit was in force and the group wanted to run.
        throttled: Those in which it hit the limit.
        throttled_ns: How long it stood still, summed over cores.
    """

    usage_ns: int = 0
    periods: int = 0
    throttled: int = 0
    throttled_ns: int = 0


class Group:
    """One control group.

    Args:
        cpu: Its folder in the tree of limits.
        accounts: Its folder in the tree of accounts; the same in version 2.
        is_v2: Which of the two it is.
    """

    def __init__(self, cpu: Path, accounts: Path, *, is_v2: bool) -> None:
        self.cpu, self.accounts, self._is_v2 = cpu, accounts, is_v2
        self._period_us = 0  # not known yet
        self._open_files: dict[str, int] = {}

    @property
    def entry_files(self) -> tuple[Path, ...]:
        """A process enters by writing its pid into each."""
        return tuple(folder / "cgroup.procs" for folder in self._folders())

    def create_child(self, name: str) -> Group:
        if self._is_v2:
            _write(self.cpu / "cgroup.subtree_control", "+cpu")
        for folder in self._folders():
            try:
                (folder / name).mkdir()
            except OSError as error:
                raise ActuationError(f"{folder} takes no group: {error.strerror}") from error
        return self._child(name)

    def children(self) -> list[Group]:
        return [self._child(path.name) for path in _folders_in(self.cpu)]

    def set_limit(self, cores: float | None, period_ms: float = 100.0) -> None:
        """Cores that it may use on average over each period; None: all it can get."""
        period_us = round(period_ms * 1e3)
        quota_us = None if cores is None else max(_LEAST_QUOTA_US, round(cores * period_us))
        if self._is_v2:
            _write(self.cpu / "cpu.max", f"{'max' if quota_us is None else quota_us} {period_us}")
            return
        if period_us != self._period_us:
            # Lifted first: a new period must never meet an old quota that does not fit it.
            _write(self.cpu / "cpu.cfs_quota_us", "-1")
            _write(self.cpu / "cpu.cfs_period_us", str(period_us))
            self._period_us = period_us
        _write(self.cpu / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))

    def set_weight(self, cores: float) -> None:
        """Its share where cores are contended, relative to its neighbours; 1 is the default."""
        if self._is_v2:
            _write(self.cpu / "cpu.weight", str(min(10_000, max(1, round(cores * 100)))))
        else:
            _write(self.cpu / "cpu.shares", str(min(262_144, max(2, round(cores * 1024)))))

    def read(self) -> CpuTime:
        words = self._reread(self.cpu, "cpu.stat").split()
        stat = dict(zip(words[::2], map(int, words[1::2])))
        if self._is_v2:
            usage_ns, throttled_ns = (
                stat[b"usage_usec"] * 1000,
                stat.get(b"throttled_usec", 0) * 1000,
            )
        else:
            usage_ns = int(self._reread(self.accounts, "cpuacct.usage"))
            throttled_ns = stat[b"throttled_time"]
        periods, throttled = stat.get(b"nr_periods", 0), stat.get(b"nr_throttled", 0)
        return CpuTime(usage_ns, periods, throttled, throttled_ns)

    def pids(self) -> set[int]:
        found: set[int] = set()
        for file in self.entry_files:
            try:
                found.update(map(int, _read(file).split()))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENODEV):  # being removed
                    raise
        # Version 2 shows processes of other pid namespaces as 0, and a signal to 0 is for us.
        return found - {0}

    def remove(self, timeout_s: float = 10.0) -> None:
        """Kills what runs in it and below, then removes it."""
        for child in self.children():
            child.remove(timeout_s)
        deadline = time.monotonic() + timeout_s
        while self._open_files:
            os.close(self._open_files.popitem()[1])
        for folder in self._folders():
            while folder.exists():
                for pid in self.pids():
                    _kill(pid)
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:  # the last process is still on its way out
                    if time.monotonic() > deadline:
                        raise ActuationError(f"{folder} cannot be removed") from None
                    time.sleep(0.005)

    def _reread(self, folder: Path, name: str) -> bytes:
        # Kept open: opening takes longer than reading, and a lab is sampled ten times a second.
        if name not in self._open_files:
            self._open_files[name] = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._open_files[name], 4096, 0)

    def _child(self, name: str) -> Group:
        return Group(self.cpu / name, self.accounts / name, is_v2=self._is_v2)

    def _folders(self) -> tuple[Path, ...]:
        return (self.cpu,) if self.cpu == self.accounts else (self.cpu, self.accounts)


class ProcessGroup(Group):
    """Processes without a control group: their CPU time is counted, limits are not enforced."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    @property
    def entry_files(self) -> tuple[Path, ...]:
        return ()

    def add(self, pid: int) -> None:
        self._seen.add(pid)

    def create_child(self, name: str) -> ProcessGroup:
        return ProcessGroup()

    def children(self) -> list[Group]:
        return []

    def set_limit(self, cores: float | None, period_ms: float = 100.0) -> None:
        pass

    def set_weight(self, cores: float) -> None:
        pass

    def read(self) -> CpuTime:
        return CpuTime(sum(map(process_cpu_ns, self._seen)))

    def pids(self) -> set[int]:
        return {pid for pid in self._seen if Path(f"/proc/{pid}").exists()}

    def remove(self, timeout_s: float = 10.0) -> None:
        for pid in self.pids():
            _kill(pid)


def root_group(mount: Path = MOUNT) -> Group:
    """The group below which others can be made; ActuationError with the reason where none can."""
    if (mount / "cgroup.controllers").exists():
        group = Group(mount, mount, is_v2=True)
        if "cpu" not in _read(mount / "cgroup.controllers").split():
            raise ActuationError(f"{mount} has no cpu controller")
    else:
        # Where both are mounted as one, the two names lead to the same folder.
        cpu, accounts = ((mount / name).resolve() for name in ("cpu", "cpuacct"))
        group = Group(cpu, accounts, is_v2=False)
    for folder in (group.cpu, group.accounts):
        if not folder.is_dir():
            raise ActuationError(f"{folder} is not mounted")
        if not os.access(folder, os.W_OK):
            raise ActuationError(f"{folder} cannot be written: it takes root")
    return group


def process_cpu_ns(pid: int) -> int:
    """CPU time of a process with all its threads; 0 when it is gone."""
    try:
        stat = _read(Path(f"/proc/{pid}/stat"))
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = stat.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return (int(fields[11]) + int(fields[12])) * _TICK_NS


def _read(path: Path) -> str:
    return path.read_text()


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise ActuationError(f"{path} does not take {value!r}: {error.strerror}") from error


def _folders_in(folder: Path) -> Iterator[Path]:
    try:
        yield from [path for path in folder.iterdir() if path.is_dir()]
    except FileNotFoundError:  # somebody else removed it
        return


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
