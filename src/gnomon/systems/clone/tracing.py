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
#: Where a task keeps the registers of its system call: the first argument, and the number, by
#: which the place is checked. Some kernels leave 16 bytes free above them.
_ARGUMENTS = {"x86_64": ("di", "orig_ax"), "aarch64": ("orig_x0", "syscallno")}
_STACK_BYTES, _STACK_PADDING = 16384, 16
_ATTACH_S, _END_S = 20.0, 10.0
_STRACE_LINE = re.compile(
    r"(\d+) +([\d.]+) (?:<\.\.\. (\w+) resumed>|(\w+)\((?:\d+<([^>]*(?:(?<=-)>[^>]*)?)>)?)"
)
_RETURNED = re.compile(r"= (\d+)(?:<.*>)?(?: \([^=]*\))?$")


class Traced(msgspec.Struct):
    """What was seen of system calls, by thread.

    Attributes:
        moved: By call and kind of descriptor: calls that moved data, and bytes.
        sizes: By call and kind: how many moved so many bytes; by the least of each power of two.
        ready: By thread and call: what a wait returned.
        gaps: Nanoseconds between reads from clients that had data, as `sizes`.
    """

    seconds: float = 0.0
    calls: Counter[tuple[int, str]] = msgspec.field(default_factory=Counter)
    moved: dict[tuple[str, str], tuple[int, int]] = {}
    sizes: dict[tuple[str, str], Counter[int]] = {}
    ready: dict[tuple[int, str], Counter[int]] = {}
    gaps: Counter[int] = msgspec.field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """Reads from clients that returned data."""
        return sum(count for (call, kind), (count, _) in self.moved.items()
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
    pids: Sequence[int], ports: Iterable[int], *, unix: bool, limit_s: int, every: int = 1
) -> str:
    """One tracepoint, at the end of calls; all is summed up in the kernel and read at the end.

    Calls are counted one by one. What is dear, their descriptors, sizes and times, is looked up
    for one in `every`, at random, and what follows a request for its gap. The descriptor is the
    first argument, which the kernel keeps until the call returns: a second tracepoint at the
    begin of calls would cost as much as the first.
    """
    numbers = {name: number for number, name in call_names().items()}

    def any_of(names: Iterable[str]) -> str:
        return " || ".join(f"$id == {numbers[one]}" for one in names if one in numbers)

    ours = " || ".join(f"pid == {pid}" for pid in pids)
    clients = " || ".join(f"$port == {port}" for port in ports) or "$port == 0 && 1 == 0"
    is_unix = "$family == 1" if unix else "1 == 0"
    first, number = _ARGUMENTS[platform.machine()]
    return f"""
BEGIN {{ @last = nsecs; @last = 0; }}
tracepoint:raw_syscalls:sys_exit /args->id >= 0 && ({ours})/ {{
  $id = args->id; $ret = args->ret;
  if ({any_of(WAITS)}) {{
    @ready[tid, $id] = lhist($ret, 0, 256, 1);
  }} else {{
    @calls[(uint64)tid << 32 | (uint64)$id << 1 | (uint64)($ret > 0)] = count();
    if ($ret > 0 && ({any_of((*READS, *SENDS))})) {{
      $is_read = 0; $last = (uint64)0;
      if ({any_of(READS)}) {{ $is_read = 1; $last = (uint64)@last; }}
      $is_drawn = rand % {every} == 0;
      if ($is_drawn || $last > 0) {{
        $task = (struct task_struct *)curtask;
        $top = (uint64)$task->stack + {_STACK_BYTES};
        $regs = (struct pt_regs *)($top - sizeof(struct pt_regs));
        if ((int64)$regs->{number} != $id) {{
          $regs = (struct pt_regs *)($top - {_STACK_PADDING} - sizeof(struct pt_regs));
        }}
        if ((int64)$regs->{number} != $id) {{ @lost = count(); }} else {{
          $file = (struct file *)*(uint64 *)((uint64)$task->files->fdt->fd + 8 * $regs->{first});
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
          if ($is_drawn) {{
            @bytes[$id, $kind] = sum($ret);
            @sizes[$id, $kind] = hist($ret);
          }}
          if ($is_read && $kind == 0) {{
            $now = nsecs;
            if ($last > 0) {{ @gaps = hist($now - $last); @last = 0; }}
            if ($is_drawn) {{ @last = $now; }}
          }}
        }}
      }}
    }}
  }}
}}
interval:ms:20 /@on == 0/ {{
  clear(@calls); clear(@bytes); clear(@sizes); clear(@gaps); clear(@ready);
  @on = nsecs; printf("on\\n");
}}
interval:ms:10 /@on > 0/ {{ @took = nsecs - @on; }}
interval:s:{limit_s} {{ exit(); }}
"""


@contextmanager
def bpftrace(
    pids: Sequence[int], ports: Iterable[int], *, unix: bool, limit_s: int, every: int = 1
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
    if not call_names() or platform.machine() not in _ARGUMENTS:
        raise Refused(f"the system calls of {platform.machine()} are not known")
    words = ["bpftrace", "-B", "line", "-f", "json", "-e"]
    words.append(bpftrace_program(pids, ports, unix=unix, limit_s=limit_s, every=every))
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
    """Counts of calls as they are; sizes and bytes times as many as were not looked up."""
    names = call_names()
    maps: dict[str, Any] = {}
    for line in text.partition('"on\\n"')[2].splitlines():
        try:
            found: dict[str, Any] = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # empty lines, and the end of the line that says "on"
        if isinstance(found.get("data"), dict):
            maps |= found["data"]

    def rows(name: str) -> Iterator[tuple[list[int], Any]]:
        for key, value in maps.get(name, {}).items():
            yield [int(one) for one in key.split(",")], value

    seen.seconds = maps.get("@took", 0) / 1e9
    seen.gaps = _bins(maps.get("@gaps", []))
    moving: Counter[int] = Counter()
    for (packed,), count in rows("@calls"):  # of one word, which is hashed faster than three
        thread, number = packed >> 32, packed >> 1 & 0x7FFFFFFF
        seen.calls[thread, names.get(number, f"call{number}")] += count
        moving[number] += count * (packed & 1)
    for (thread, number), value in rows("@ready"):
        call = names[number]
        seen.ready[thread, call] = _bins(value)
        seen.calls[thread, call] += seen.ready[thread, call].total()
    sizes = {(number, kind): _bins(value) for (number, kind), value in rows("@sizes")}
    drawn: Counter[int] = Counter()
    for (number, _), bins in sizes.items():
        drawn[number] += bins.total()
    totals = {(number, kind): value for (number, kind), value in rows("@bytes")}
    for (number, kind), bins in sizes.items():
        scale, key = moving[number] / drawn[number], (names[number], KINDS[kind])
        seen.sizes[key] = Counter({low: round(scale * count) for low, count in bins.items()})
        seen.moved[key] = (
            round(scale * bins.total()), round(scale * totals.get((number, kind), 0))
        )  # fmt: skip
    if maps.get("@lost") and not sizes:
        raise Refused("this kernel keeps the arguments of system calls at another place")


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
    (1, {('read', 'client'): (1, 36)})
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
        count, total = seen.moved.get((name, kind), (0, 0))
        seen.moved[name, kind] = count + 1, total + size
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
