"""What /proc tells about processes: threads and their CPU time, descriptors, ports, memory."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gnomon.errors import InputError

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD = 0x00200000
_LISTENS, _UNIX_LISTENS = "0A", 0x10000


class Thread(msgspec.Struct, frozen=True):
    """Seconds of CPU time so far, and context switches."""

    name: str
    user_s: float
    system_s: float
    run_s: float
    voluntary: int
    involuntary: int


class Snapshot(msgspec.Struct, frozen=True):
    """Processes at a moment.

    Attributes:
        io_calls: Reads and writes so far, without `recv` and `send`; None: may not be read.
    """

    at: float
    threads: dict[int, Thread]
    user_s: float
    system_s: float
    resident_bytes: int
    io_calls: int | None


class Descriptors(msgspec.Struct, frozen=True):
    """Of all processes, by kind, and where they listen."""

    kinds: dict[str, int]
    ports: tuple[int, ...]
    listens_on_unix: bool


def check_pid(pid: int) -> None:
    """Raises InputError unless it is a process that runs, and one that has system calls."""
    where, hint = f"process {pid}", "ps -e lists those that run"
    fields = _fields(pid)
    if fields is None or fields[0] in "ZX":
        what = "does not exist" if fields is None else "has ended"
        raise InputError(what, where=where, hint=hint)
    if int(fields[6]) & _KERNEL_THREAD:
        raise InputError("is a thread of the kernel, no service", where=where, hint=hint)
    with suppress(OSError):
        leader = _status(Path(f"/proc/{pid}")).get("Tgid", str(pid))
        if leader != str(pid):
            raise InputError("is a thread", where=where, hint=f"its process is {leader}")
    if pid == os.getpid():
        raise InputError("is gnomon itself", where=where)


def is_alive(pid: int) -> bool:
    """Whether it runs, or could: a process that nobody waited for does not."""
    fields = _fields(pid)
    return fields is not None and fields[0] not in "ZX"


def family(pid: int) -> list[int]:
    """It and its descendants, as of now."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _fields(int(path.name)):
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return [one for one in found if one != os.getpid()]


def take(pids: Sequence[int]) -> Snapshot:
    """Processes that have ended count no more."""
    threads: dict[int, Thread] = {}
    user = system = 0.0
    resident, io_calls = 0, 0
    is_readable = True
    for pid in pids:
        fields = _fields(pid)
        if fields is None or fields[0] in "ZX":
            continue
        user += int(fields[11]) * _TICK_S
        system += int(fields[12]) * _TICK_S
        resident += int(fields[21]) * _PAGE
        try:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            io = dict(line.split(": ") for line in lines)
            io_calls += int(io["syscr"]) + int(io["syscw"])
        except (OSError, KeyError, ValueError):
            is_readable = False
        with suppress(OSError):
            for path in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, KeyError, ValueError, TypeError):
                    threads[int(path.name)] = _thread(path)
    return Snapshot(
        time.monotonic(), threads, user, system, resident, io_calls if is_readable else None
    )


def descriptors(pids: Sequence[int]) -> Descriptors | None:
    """None: they may not be read."""
    links: list[str] = []
    for pid in pids:
        try:
            for path in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    links.append(os.readlink(path))
        except PermissionError:
            return None
        except OSError:
            continue  # it has ended
    held = {link[8:-1] for link in links if link.startswith("socket:[")}
    listening: set[str] = set()
    known: dict[str, str] = {}
    ports: set[int] = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for row in _rows(pids[0], table):
            if row[9] in held:
                is_server = row[3] == _LISTENS or (table[0] == "u" and row[2].endswith(":0000"))
                known[row[9]] = "listening socket" if is_server else "connection"
                if is_server:
                    ports.add(int(row[1].rsplit(":", 1)[1], 16))
    for row in _rows(pids[0], "unix"):
        if row[6] in held:
            is_server = bool(int(row[3], 16) & _UNIX_LISTENS)
            known[row[6]] = "listening Unix socket" if is_server else "Unix socket"
            if is_server:
                listening.add(row[6])
    kinds = Counter(_kind(link, known) for link in links)
    return Descriptors(dict(kinds.most_common()), tuple(sorted(ports)), bool(listening))


def _kind(link: str, known: dict[str, str]) -> str:
    if link.startswith("socket:["):
        return known.get(link[8:-1], "other socket")
    if link.startswith("anon_inode:"):
        return link.removeprefix("anon_inode:").strip("[]")
    if link.startswith("pipe:"):
        return "pipe"
    return "device" if link.startswith("/dev/") else "file"


def _rows(pid: int, table: str) -> list[list[str]]:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
        return [line.split() for line in lines[1:]]
    return []


def _thread(path: Path) -> Thread:
    fields, status = _fields(int(path.name), path), _status(path)
    assert fields is not None
    run_s = int((path / "schedstat").read_text().split()[0]) / 1e9
    return Thread(
        status["Name"], int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S, run_s,
        int(status["voluntary_ctxt_switches"]), int(status["nonvoluntary_ctxt_switches"]),
    )  # fmt: skip


def _status(folder: Path) -> dict[str, str]:
    lines = (folder / "status").read_text(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _fields(pid: int, folder: Path | None = None) -> list[str] | None:
    """Of stat, from the state on: names may hold spaces and brackets."""
    try:
        text = ((folder or Path(f"/proc/{pid}")) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rsplit(")", 1)[1].split()
