"""System calls of running processes: summed up in the kernel, or written down by strace."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

#: Whose result is a number of bytes, and whose first argument is a descriptor.
READS = ("read", "readv", "pread64", "recvfrom", "recvmsg")
SENDS = ("write", "writev", "pwrite64", "sendto", "sendmsg", "sendfile")
WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6")
#: Of a descriptor: accepted on a port it listens on, any other socket, a file, anything else.
CLIENT, SOCKET, FILE, OTHER = KINDS = ("client", "other socket", "file", "other")
_TRACEFS = Path("/sys/kernel/tracing")
#: A process number means the same to the kernel's programs only in the first namespace.
_FIRST_NAMESPACE = "pid:[4026531836]"
_BY_THREAD = ("@calls", "@ready", "@bytes", "@sizes")
_ATTACH_S, _END_S = 20.0, 10.0
_STRACE_LINE = re.compile(
    r"(\d+) +([\d.]+) (?:<\.\.\. (\w+) resumed>|(\w+)\((?:\d+<([^>]*(?:(?<=-)>[^>]*)?)>)?)"
)
_RETURNED = re.compile(r"= (\d+)(?:<.*>)?(?: \([^=]*\))?$")


class Traced(msgspec.Struct):
    """What was seen of system calls, by thread.

    Attributes:
        moved: By thread, call and kind of descriptor: calls that moved data, and bytes.
        sizes: By call and kind: how many moved so many bytes; by the least of each power of two.
        ready: By thread and call: what a wait returned.
        gaps: Nanoseconds between reads from clients that had data, as `sizes`.
    """

    seconds: float = 0.0
    calls: Counter[tuple[int, str]] = msgspec.field(default_factory=Counter)
    moved: dict[tuple[int, str, str], tuple[int, int]] = {}
    sizes: dict[tuple[str, str], Counter[int]] = {}
    ready: dict[tuple[int, str], Counter[int]] = {}
    gaps: Counter[int] = msgspec.field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """Reads from clients that returned data."""
        return sum(count for (_, call, kind), (count, _) in self.moved.items()
                   if call in READS and kind == CLIENT)  # fmt: skip

    def add(self, other: Traced) -> None:
        self.seconds += other.seconds
        self.calls += other.calls
        self.gaps += other.gaps
        for key, (count, total) in other.moved.items():
            before = self.moved.get(key, (0, 0))
            self.moved[key] = before[0] + count, before[1] + total
        for size, counts in other.sizes.items():
            self.sizes.setdefault(size, Counter()).update(counts)
        for wait, counts in other.ready.items():
            self.ready.setdefault(wait, Counter()).update(counts)


class Refused(Exception):
    """This way of tracing is not possible here; the message says why."""


@cache
def call_names() -> dict[int, str]:
    """Of this machine, by number."""
    text = Path(__file__).with_name("syscalls.txt").read_text()
    part = text.partition(f"[{platform.machine()}]\n")[2].partition("\n[")[0]
    return {int(number): name for number, name in re.findall(r"(\d+):(\w+)", part)}


# --- in the kernel -------------------------------------------------------------------------------


def bpftrace_program(
    pids: Sequence[int], ports: Iterable[int], *, unix: bool, limit_s: int
) -> str:
    """Tracepoints alone; all is summed up in the kernel and read once, at the end."""
    numbers = {name: number for number, name in call_names().items()}

    def any_of(names: Iterable[str], number: str = "$id") -> str:
        return " || ".join(f"{number} == {numbers[one]}" for one in names if one in numbers)

    ours = " || ".join(f"pid == {pid}" for pid in pids)
    moves, waits = any_of((*READS, *SENDS)), any_of(WAITS)
    begins = any_of((*READS, *SENDS), "args->id")
    clients = " || ".join(f"$port == {port}" for port in ports) or "$port == 0 && 1 == 0"
    is_unix = "$family == 1" if unix else "1 == 0"
    return f"""
tracepoint:raw_syscalls:sys_enter /({ours}) && ({begins})/ {{ @fd[tid] = args->args[0] + 1; }}
tracepoint:raw_syscalls:sys_exit /{ours}/ {{
  $id = args->id; $ret = args->ret; $fd = (uint64)0; $is_counted = 0;
  if ({moves}) {{ $fd = (uint64)@fd[tid]; }}
  if ($ret > 0 && $fd > 0) {{
    $table = (uint64)((struct task_struct *)curtask)->files->fdt->fd;
    $file = (struct file *)*(uint64 *)($table + 8 * ($fd - 1));
    $mode = $file->f_inode->i_mode & 0170000;
    $kind = 3;
    if ($mode == 0100000) {{ $kind = 2; }}
    if ($mode == 0140000) {{
      $sock = ((struct socket *)$file->private_data)->sk;
      $port = $sock->__sk_common.skc_num;
      $family = $sock->__sk_common.skc_family;
      $kind = 1;
      if (($family != 1 && ({clients})) || {is_unix}) {{ $kind = 0; }}
    }}
    @bytes[tid, $id, $kind] = sum($ret);
    @sizes[tid, $id, $kind] = hist($ret);
    $is_counted = 1;
    if ($kind == 0 && ({any_of(READS)})) {{
      $last = @last;
      if ($last > 0) {{ @gaps = hist(nsecs - $last); }}
      @last = nsecs;
    }}
  }}
  if ({waits}) {{ @ready[tid, $id] = lhist($ret, 0, 256, 1); $is_counted = 1; }}
  if ($is_counted == 0) {{ @calls[tid, $id] = count(); }}
}}
interval:ms:100 /@on == 0/ {{
  clear(@calls); clear(@bytes); clear(@sizes); clear(@gaps); clear(@ready);
  @on = nsecs; printf("on\\n");
}}
interval:ms:10 /@on > 0/ {{ @took = nsecs - @on; }}
interval:s:{limit_s} {{ exit(); }}
"""


@contextmanager
def bpftrace(
    pids: Sequence[int], ports: Iterable[int], *, unix: bool, limit_s: int
) -> Iterator[Traced]:
    """While the block runs; what was seen is filled in when it is left.

    Raises:
        Refused: No root, no bpftrace, or the kernel does not take the program.
    """
    if os.geteuid() != 0:
        raise Refused("bpftrace needs root")
    if shutil.which("bpftrace") is None:
        raise Refused("bpftrace is not installed")
    if os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE:
        raise Refused("bpftrace sees other process numbers than this container")
    if not call_names():
        raise Refused(f"the system calls of {platform.machine()} are not known")
    words = ["bpftrace", "-B", "line", "-f", "json", "-e"]
    words.append(bpftrace_program(pids, ports, unix=unix, limit_s=limit_s))
    if not (_TRACEFS / "events").is_dir():
        mount = f'mount -t tracefs tracefs {_TRACEFS} && exec "$@"'
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", *words]
    seen = Traced()
    with tempfile.TemporaryDirectory(prefix="gnomon-live-") as folder:
        out = Path(folder, "out")
        with _running(words, out, lambda: '"on\\n"' in out.read_text(errors="replace")):
            yield seen
        _read_maps(out.read_text(errors="replace"), seen)


def _read_maps(text: str, seen: Traced) -> None:
    names = call_names()
    counts: dict[tuple[int, str, str], int] = {}
    totals: dict[tuple[int, str, str], int] = {}
    for line in text.partition('"on\\n"')[2].splitlines():
        try:
            found: dict[str, Any] = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # empty lines, and the end of the line that says "on"
        if not isinstance(found.get("data"), dict):
            continue
        for name, rows in found["data"].items():
            if name == "@took":
                seen.seconds = rows / 1e9
            if name == "@gaps":
                seen.gaps = _bins(rows)
            for key, value in rows.items() if name in _BY_THREAD else ():
                thread, number, *kinds = (int(one) for one in key.split(","))
                call = names.get(number, f"call{number}")
                if name == "@calls":
                    seen.calls[thread, call] += value
                elif name == "@ready":
                    seen.ready[thread, call] = _bins(value)
                    seen.calls[thread, call] += seen.ready[thread, call].total()
                elif name == "@bytes":
                    totals[thread, call, KINDS[kinds[0]]] = value
                elif name == "@sizes":
                    bins = _bins(value)
                    kind = KINDS[kinds[0]]
                    seen.calls[thread, call] += bins.total()
                    seen.sizes.setdefault((call, kind), Counter()).update(bins)
                    counts[thread, call, kind] = bins.total()
    seen.moved = {key: (count, totals.get(key, 0)) for key, count in counts.items()}


def _bins(rows: list[dict[str, int]]) -> Counter[int]:
    return Counter({row.get("min", -1): row["count"] for row in rows if row["count"]})


# --- by strace -----------------------------------------------------------------------------------


@contextmanager
def strace(pids: Sequence[int], ports: Iterable[int], *, unix: bool) -> Iterator[Traced]:
    """As `bpftrace`, but each call stops the service twice: it becomes several times slower."""
    if shutil.which("strace") is None:
        raise Refused("strace is not installed")
    seen = Traced()
    with tempfile.TemporaryDirectory(prefix="gnomon-live-") as folder:
        out, said = Path(folder, "out"), Path(folder, "said")
        words = ["strace", "-f", "-yy", "-ttt", "-s", "0", "-e", "signal=none", "-o", str(out)]
        words += [word for pid in pids for word in ("-p", str(pid))]
        with _running(words, said, lambda: "attached" in said.read_text(errors="replace")):
            began = time.time()
            yield seen
            ended = time.time()
        if out.exists():
            with out.open(errors="replace") as lines:
                seen.seconds = ended - began
                read_strace(lines, seen, set(ports), began, ended, unix=unix)


def read_strace(
    lines: Iterable[str], seen: Traced, ports: set[int], began: float, ended: float,
    *, unix: bool = False,
) -> None:  # fmt: skip
    """Adds up the lines of a time.

    >>> line = '7 1.5 read(8<TCP:[127.0.0.1:80->127.0.0.1:9]>, ""..., 99) = 36'
    >>> read_strace([line], seen := Traced(), {80}, 1, 2)
    >>> seen.requests, seen.moved
    (1, {(7, 'read', 'client'): (1, 36)})
    """
    begun: dict[str, str | None] = {}
    last = 0.0
    sizes: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    ready: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for line in lines:
        if (found := _STRACE_LINE.match(line)) is None:
            continue
        pid, stamp, resumed, name, target = found.groups()
        if line.rstrip().endswith("<unfinished ...>"):
            begun[pid] = target
            continue
        target, name = (begun.pop(pid, None) if resumed else target), resumed or name
        if not began <= float(stamp) <= ended:
            continue
        thread = int(pid)
        seen.calls[thread, name] += 1
        returned = _RETURNED.search(line.rstrip())
        if name in WAITS:
            ready[thread, name][int(returned[1]) if returned else -1] += 1
        size = int(returned[1]) if returned else 0
        if size == 0 or target is None or name not in READS + SENDS:
            continue
        kind = _kind(target, ports, unix=unix)
        count, total = seen.moved.get((thread, name, kind), (0, 0))
        seen.moved[thread, name, kind] = count + 1, total + size
        sizes[name, kind][1 << size.bit_length() - 1] += 1
        if kind == CLIENT and name in READS:
            gap = round((float(stamp) - last) * 1e9)
            if last and gap > 0:
                seen.gaps[1 << gap.bit_length() - 1] += 1
            last = float(stamp)
    seen.sizes, seen.ready = dict(sizes), dict(ready)


def _kind(target: str, ports: set[int], *, unix: bool) -> str:
    if found := re.match(r"(?:TCP|UDP)(?:v6)?:\[.*?:(\d+)(?:->|\])", target):
        return CLIENT if int(found[1]) in ports else SOCKET
    if target.startswith(("UNIX", "socket:")):
        # strace may not be allowed to ask what a socket is connected to.
        return CLIENT if unix or target.startswith("socket:") else SOCKET
    return FILE if target.startswith("/") and not target.startswith("/dev/") else OTHER


@contextmanager
def _running(words: Sequence[str], out: Path, is_attached: Callable[[], bool]) -> Iterator[None]:
    """A tracer; it ends with the block, or with this process."""
    if shutil.which("setpriv"):
        words = ["setpriv", "--pdeathsig", "INT", *words]
    with out.open("wb") as file:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        until = time.monotonic() + _ATTACH_S
        while not is_attached():
            if child.poll() is not None or time.monotonic() > until:
                said = [one for one in out.read_text(errors="replace").splitlines()
                        if one.strip() and "RLIMIT_MEMLOCK" not in one]  # fmt: skip
                name = next(one for one in words if one in ("bpftrace", "strace"))
                raise Refused(f"{name} cannot attach: {said[-1][:160] if said else 'no answer'}")
            time.sleep(0.02)
        yield
    finally:
        # bpftrace misses a signal now and then, and prints nothing when it is killed.
        until = time.monotonic() + _END_S
        while child.poll() is None and time.monotonic() < until:
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                child.wait(1.0)
        if child.poll() is None:
            child.kill()
        child.wait()
